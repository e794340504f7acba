//! Files in any object store.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arrow::buffer::Buffer;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use object_store::{GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, ObjectStore};
use parking_lot::Mutex;

use super::descriptor::Descriptor;
use super::local::{read_at_hand, read_blocking, read_many};
use super::names::object_name;
use super::{BlockCache, CachedFile, ReadAt, StorageProfile, StoreId, read_each};
use crate::{Error, Result};

/// One version of an object in an object store. Reads ask for the e-tag that was listed, or else for the version, so
/// that an object overwritten in the meantime results in an error rather than in mixed contents (to read an old version
/// of one that is still there, leave out its e-tag). Some servers ignore that, so the size of the object and the e-tags
/// of answers are compared as well; if there are none, times, which have seconds.
///
/// A store that serves local files returns an open descriptor with its first answer; later reads use that
/// descriptor, without an open for each. They are errors once the file has been written.
#[derive(Debug)]
pub struct ObjectFile {
    store: Arc<dyn ObjectStore>,
    meta: ObjectMeta,
    descriptor: OnceLock<Descriptor>,
    first: FirstAnswer,
    /// The last bytes of the object, until a read takes them.
    end: Mutex<Option<Bytes>>,
    /// What identifies the store: its name, which others may have, too, and its [`StoreId`].
    store_name: Box<str>,
    name: Box<str>,
    profile: StorageProfile,
}

/// What an answer tells about the version of an object: its e-tag or, if it has none, when it was modified, in seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Version {
    Tag(String),
    Modified(i64),
}

impl Version {
    fn of(answer: &ObjectMeta) -> Self {
        match &answer.e_tag {
            Some(tag) => Self::Tag(tag.clone()),
            None => Self::Modified(answer.last_modified.timestamp()),
        }
    }
}

/// What the first answer of a store told of the version of an object, as all later ones must. Copies share it.
#[derive(Debug, Clone, Default)]
pub struct FirstAnswer(Arc<Answered>);

#[derive(Debug, Default)]
struct Answered {
    version: OnceLock<Version>,
    is_contradicted: AtomicBool,
}

/// A [`FirstAnswer`], as long as others hold it.
#[derive(Debug)]
pub(super) struct WeakAnswer(Weak<Answered>);

impl FirstAnswer {
    /// Whether this and the other one are the same, not only equal.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether a later answer told of another version: what is known of the first one is outdated.
    pub fn is_contradicted(&self) -> bool {
        self.0.is_contradicted.load(Ordering::Relaxed)
    }

    /// Whether both may stand for one version. If only the other one is known, it becomes that of this one, too.
    pub(super) fn agrees_with(&self, other: &Self) -> bool {
        !self.is_contradicted()
            && match other.0.version.get() {
                None => true,
                Some(answer) => self.0.version.get_or_init(|| answer.clone()) == answer,
            }
    }

    pub(super) fn downgrade(&self) -> WeakAnswer {
        WeakAnswer(Arc::downgrade(&self.0))
    }
}

impl WeakAnswer {
    pub(super) fn upgrade(&self) -> Option<FirstAnswer> {
        self.0.upgrade().map(FirstAnswer)
    }

    pub(super) fn is_held(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// Identifies an object of a store and its version, regardless of the table it belongs to.
fn version_of(store: StoreId, meta: &ObjectMeta) -> String {
    let ObjectMeta { location, last_modified, e_tag, version, .. } = meta;
    format!("{store} {location} {last_modified} {e_tag:?} {version:?}")
}

/// Whether a store distinguishes versions of an object by e-tag, version or time. Not all web servers do.
pub fn is_versioned(meta: &ObjectMeta) -> bool {
    let ObjectMeta { last_modified, e_tag, version, .. } = meta;
    e_tag.is_some() || version.is_some() || last_modified.timestamp() != 0
}

/// What tells the stores of sources apart: a name, which others may have, too, and a number.
pub(super) fn store_name(store: &Arc<dyn ObjectStore>) -> String {
    format!("{store} ({})", StoreId::of(store))
}

/// The answer of a store to a request.
enum Answer {
    /// An open file to read from.
    Local(Descriptor),
    Remote(GetResult),
}

impl ObjectFile {
    /// How late reads are by default that are requested a second time, see [`with_hedge`](Self::with_hedge).
    pub const HEDGE: u32 = 4;

    /// Creates the object that a listing or a head request described.
    pub fn new(store: Arc<dyn ObjectStore>, meta: ObjectMeta) -> Self {
        let profile = StorageProfile { hedge: Self::HEDGE, ..StorageProfile::of(store.as_ref()) };
        let name = object_name(store.as_ref(), &meta.location).into();
        let store_name = store_name(&store).into();
        let (descriptor, first) = (OnceLock::new(), FirstAnswer::default());
        Self { store, meta, descriptor, first, end: Mutex::default(), store_name, name, profile }
    }

    /// The object whose last bytes a store has answered a request with; the first read of these is served from memory.
    pub(super) fn with_end(store: Arc<dyn ObjectStore>, meta: ObjectMeta, end: Bytes) -> Self {
        let mut object = Self::new(store, meta);
        object.first.0.version.get_or_init(|| Version::of(&object.meta));
        *object.end.get_mut() = Some(end);
        object
    }

    /// The metadata that the store reported for the object.
    pub fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    /// The bytes of a range within the end that was read to find the object; they are not kept after
    /// this.
    fn take_end(&self, range: &Range<u64>) -> Option<Bytes> {
        if range.is_empty() {
            return None;
        }
        let mut end = self.end.lock();
        let start = self.meta.size - end.as_ref()?.len() as u64;
        let skipped = usize::try_from(range.start.checked_sub(start)?).ok()?;
        let len = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
        (range.end <= self.meta.size).then(|| end.take())?.map(|end| end.slice(skipped..skipped + len))
    }

    /// What the first answer tells of the version, once there is one.
    pub fn first_answer(&self) -> FirstAnswer {
        self.first.clone()
    }

    /// Compares answers with the first one that another reader of this object had, from which it knows, say, the
    /// footer: stores without strong e-tags do not notice by themselves that an object was replaced in between.
    #[must_use]
    pub fn with_first_answer(mut self, first: FirstAnswer) -> Self {
        // An end that was read belongs to the version of its own answer.
        *self.end.get_mut() = None;
        self.first = first;
        self
    }

    /// Remote reads that take `factor` times as long as usual are requested a second time, 4 by default; 0 disables
    /// this. See [`StorageProfile::hedge`].
    #[must_use]
    pub fn with_hedge(mut self, factor: u32) -> Self {
        self.profile.hedge = factor;
        self
    }

    /// Whether the store [distinguishes versions](is_versioned) of the object.
    pub fn is_versioned(&self) -> bool {
        is_versioned(&self.meta)
    }

    /// Compares answers with the first one that readers had whose bytes are in `cache`, as
    /// [`cached`](Self::cached) does.
    #[must_use]
    pub fn with_answer_of(mut self, cache: &BlockCache) -> Self {
        if !self.is_versioned() {
            return self;
        }
        self.first = cache.shared_answer(&version_of(StoreId::of(&self.store), &self.meta), self.first);
        self
    }

    /// The same object with its bytes cached in blocks of approximately `block_len` bytes, unless changes
    /// of the object could go unnoticed. Bytes are taken from the cache only if they belong to the first answer that
    /// this reader, or one that it shares [the first answer](Self::with_answer_of) with, has had from the store.
    pub fn cached(self, cache: Arc<BlockCache>, block_len: u64) -> CachedFile {
        let (version, size) = (version_of(StoreId::of(&self.store), &self.meta), self.meta.size);
        let cache = if self.is_versioned() { cache } else { BlockCache::new(0) };
        let object = self.with_answer_of(&cache);
        let first = object.first_answer();
        CachedFile::new(Arc::new(object), &version, size, cache, block_len).with_answer(first)
    }

    async fn get(&self, range: &Range<u64>) -> Result<Answer> {
        if let Some(file) = self.descriptor.get() {
            return Ok(Answer::Local(file.clone()));
        }
        // A weak e-tag matches nothing here, not even itself (RFC 9110, 13.1.1): answers are compared below.
        let if_match = self.meta.e_tag.clone().filter(|tag| !tag.starts_with("W/"));
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            // S3 wants a permission of its own for requests that name a version, even if it is the newest.
            version: self.meta.version.clone().filter(|_| if_match.is_none()),
            if_match,
            ..GetOptions::default()
        };
        let result = self
            .store
            .get_opts(&self.meta.location, options)
            .await
            .map_err(|error| self.failed(range, error))?;
        self.check_unchanged(&result.meta).map_err(|error| Error::read(self.name(), range.clone(), error))?;
        if result.range != *range {
            let message = format!("the store returned bytes {}..{}", result.range.start, result.range.end);
            return Err(Error::read(self.name(), range.clone(), message));
        }
        if let GetResultPayload::File(file, _) = result.payload {
            let file =
                Descriptor::new(file).map_err(|error| Error::read(self.name(), range.clone(), error))?;
            if file.len() != self.meta.size {
                return Err(self.failed(range, self.replaced(": its file was written")));
            }
            // A concurrent reader may have set its descriptor first; either one will do.
            return Ok(Answer::Local(self.descriptor.get_or_init(|| file).clone()));
        }
        Ok(Answer::Remote(result))
    }

    /// Compares an answer with the size that was listed, and with the first answer: e-tags are not always written alike
    /// in lists, and table formats may take times from a log.
    fn check_unchanged(&self, found: &ObjectMeta) -> std::result::Result<(), object_store::Error> {
        if found.size != self.meta.size {
            let (now, before) = (found.size, self.meta.size);
            return Err(self.replaced(&format!(": it has {now} bytes, not {before}")));
        }
        let version = Version::of(found);
        if *self.first.0.version.get_or_init(|| version.clone()) != version {
            self.first.0.is_contradicted.store(true, Ordering::Relaxed);
            return Err(self.replaced(&format!(" while it was read, at {}", found.last_modified)));
        }
        Ok(())
    }

    /// An error of the class of what a store answers that compares e-tags itself.
    fn replaced(&self, how: &str) -> object_store::Error {
        object_store::Error::Precondition {
            path: self.meta.location.to_string(),
            source: format!("the object was replaced{how}").into(),
        }
    }

    /// What was read of the open file, unless somebody has written into it.
    fn unchanged<T>(&self, file: &Descriptor, range: &Range<u64>, outcome: Result<T>) -> Result<T> {
        if file.is_changed() {
            self.first.0.is_contradicted.store(true, Ordering::Relaxed);
            return Err(self.failed(range, self.replaced(" while it was read: its file was written")));
        }
        outcome
    }

    fn failed(&self, range: &Range<u64>, error: object_store::Error) -> Error {
        Error::read(self.name(), range.clone(), error)
    }
}

#[async_trait]
impl ReadAt for ObjectFile {
    fn name(&self) -> &str {
        &self.name
    }

    async fn len(&self) -> Result<u64> {
        Ok(self.meta.size)
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        if let Some(bytes) = self.take_end(&range) {
            return Ok(bytes);
        }
        let result = match self.get(&range).await? {
            Answer::Local(file) => {
                let bytes = read_blocking(&file, self.name(), range.clone()).await;
                return self.unchanged(&file, &range, bytes);
            }
            Answer::Remote(result) => result,
        };
        let bytes = result.bytes().await.map_err(|error| self.failed(&range, error))?;
        let expected = range.end - range.start;
        if bytes.len() as u64 != expected {
            let message = format!("the store returned {} bytes instead of {expected}", bytes.len());
            return Err(Error::read(self.name(), range, message));
        }
        Ok(bytes)
    }

    async fn stream(&self, range: Range<u64>) -> Result<BoxStream<'static, Result<Bytes>>> {
        if range.is_empty() {
            return Ok(futures::stream::once(async { Ok(Bytes::new()) }).boxed());
        }
        match self.get(&range).await? {
            Answer::Local(file) => {
                let bytes = read_blocking(&file, self.name(), range.clone()).await;
                let bytes = self.unchanged(&file, &range, bytes)?;
                Ok(futures::stream::once(async move { Ok(bytes) }).boxed())
            }
            Answer::Remote(result) => {
                let name = self.name.clone();
                let pieces = result.into_stream();
                Ok(pieces
                    .map(move |piece| piece.map_err(|error| Error::read(&name, range.clone(), error)))
                    .boxed())
            }
        }
    }

    async fn read_many(&self, ranges: &[Range<u64>]) -> Result<Vec<Buffer>> {
        let (mut pieces, mut rest) = (Vec::with_capacity(ranges.len()), ranges);
        // The first answer of a local store brings the descriptor from which all others are read.
        if self.descriptor.get().is_none()
            && !self.profile.remote
            && let Some((first, others)) = ranges.split_first()
        {
            pieces.push(self.read(first.clone()).await?.into());
            rest = others;
        }
        pieces.append(&mut match self.descriptor.get() {
            Some(file) => {
                let read = read_many(file, self.name(), rest).await;
                self.unchanged(file, &rest.first().cloned().unwrap_or_default(), read)?
            }
            None => read_each(self, rest).await?,
        });
        Ok(pieces)
    }

    fn at_hand(&self, range: &Range<u64>) -> Option<Bytes> {
        read_at_hand(self.descriptor.get()?, range)
    }

    fn cached(&self, range: &Range<u64>) -> Option<Bytes> {
        self.take_end(range)
    }

    fn store(&self) -> &str {
        &self.store_name
    }

    fn profile(&self) -> StorageProfile {
        // Stores with other names may serve local files, too.
        if self.descriptor.get().is_some() { StorageProfile::LOCAL } else { self.profile }
    }
}

/// What errors of clients say then, as HTTP and S3 put it; their types are not public. A name of an
/// object may hold the numbers alone.
const THROTTLED: [&str; 3] = ["503 Service Unavailable", "429 Too Many Requests", "SlowDown"];

/// Whether the store reported that it is throttling requests.
pub(super) fn is_throttled(error: &Error) -> bool {
    let Error::Read { source, .. } = error.root() else { return false };
    let Some(object_store::Error::Generic { source, .. }) = source.downcast_ref() else { return false };
    let mut cause: Option<&dyn std::error::Error> = Some(source.as_ref());
    while let Some(error) = cause {
        let text = error.to_string();
        if THROTTLED.iter().any(|sign| text.contains(sign)) {
            return true;
        }
        cause = error.source();
    }
    false
}
