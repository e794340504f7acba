//! Files in any object store.

use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::buffer::Buffer;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use object_store::{GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, ObjectStore};

use super::local::{read_at_hand, read_blocking, read_many};
use super::{BlockCache, CachedFile, ReadAt, StorageProfile};
use crate::{Error, Result};

/// An object of an object store, in one version: reads ask for the e-tag that was listed, so
/// that an object overwritten meanwhile is an error and not a mixture.
///
/// A store that serves local files hands out an open descriptor with its first answer; later
/// reads go through that, with no open and stat each.
#[derive(Debug)]
pub struct ObjectFile {
    store: Arc<dyn ObjectStore>,
    meta: ObjectMeta,
    descriptor: OnceLock<Arc<File>>,
    /// What the store calls itself.
    name: Box<str>,
    profile: StorageProfile,
}

/// What names an object of a store and its version, whichever table it belongs to.
fn version_of(store: u64, meta: &ObjectMeta) -> String {
    let ObjectMeta { location, last_modified, e_tag, version, .. } = meta;
    format!("{store} {location} {last_modified} {e_tag:?} {version:?}")
}

/// What came of asking the store.
enum Answer {
    /// An open file to read from.
    Local(Arc<File>),
    Remote(GetResult),
}

impl ObjectFile {
    /// The object that a listing or a head request described.
    pub fn new(store: Arc<dyn ObjectStore>, meta: ObjectMeta) -> Self {
        let (name, profile) = (store.to_string().into_boxed_str(), StorageProfile::of(store.as_ref()));
        Self { store, meta, descriptor: OnceLock::new(), name, profile }
    }

    /// Reads that take `factor` times as long as is usual are asked for a second time; 0 for
    /// never. See [`StorageProfile::hedge`].
    #[must_use]
    pub fn with_hedge(mut self, factor: u32) -> Self {
        self.profile.hedge = factor;
        self
    }

    /// Whether the store told versions of the object apart: by e-tag, by version or by time. Not
    /// all web servers do.
    pub fn is_versioned(&self) -> bool {
        let ObjectMeta { last_modified, e_tag, version, .. } = &self.meta;
        e_tag.is_some() || version.is_some() || last_modified.timestamp() != 0
    }

    /// The same object, with what is read of it kept in blocks of about `block_len` bytes, unless
    /// it may change without a sign.
    pub fn cached(self, cache: Arc<BlockCache>, block_len: u64) -> CachedFile {
        let (version, size) = (version_of(cache.number_of(&self.store), &self.meta), self.meta.size);
        let cache = if self.is_versioned() { cache } else { BlockCache::new(0) };
        CachedFile::new(Arc::new(self), &version, size, cache, block_len)
    }

    async fn get(&self, range: &Range<u64>) -> Result<Answer> {
        if let Some(file) = self.descriptor.get() {
            return Ok(Answer::Local(Arc::clone(file)));
        }
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: self.meta.e_tag.clone(),
            version: self.meta.version.clone(),
            ..GetOptions::default()
        };
        let result = self
            .store
            .get_opts(&self.meta.location, options)
            .await
            .map_err(|error| self.failed(range, error))?;
        if result.range != *range {
            let message = format!("the store returned bytes {}..{}", result.range.start, result.range.end);
            return Err(Error::read(self.name(), range.clone(), message));
        }
        if let GetResultPayload::File(file, _) = result.payload {
            // A second reader may have been as fast; either descriptor will do.
            return Ok(Answer::Local(Arc::clone(self.descriptor.get_or_init(|| Arc::new(file)))));
        }
        Ok(Answer::Remote(result))
    }

    fn failed(&self, range: &Range<u64>, error: object_store::Error) -> Error {
        Error::read(&self.meta.location, range.clone(), error)
    }
}

#[async_trait]
impl ReadAt for ObjectFile {
    fn name(&self) -> &str {
        self.meta.location.as_ref()
    }

    async fn len(&self) -> Result<u64> {
        Ok(self.meta.size)
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let result = match self.get(&range).await? {
            Answer::Local(file) => return read_blocking(file, self.name(), range).await,
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
                let bytes = read_blocking(file, self.name(), range).await?;
                Ok(futures::stream::once(async move { Ok(bytes) }).boxed())
            }
            Answer::Remote(result) => {
                let location = self.meta.location.clone();
                let pieces = result.into_stream();
                Ok(pieces
                    .map(move |piece| piece.map_err(|error| Error::read(&location, range.clone(), error)))
                    .boxed())
            }
        }
    }

    async fn read_many(&self, ranges: &[Range<u64>]) -> Result<Vec<Buffer>> {
        if let Some(file) = self.descriptor.get() {
            return read_many(file, self.name(), ranges).await;
        }
        let reads = ranges.iter().map(|range| self.read(range.clone()));
        Ok(futures::future::try_join_all(reads).await?.into_iter().map(Buffer::from).collect())
    }

    fn at_hand(&self, range: &Range<u64>) -> Option<Bytes> {
        read_at_hand(self.descriptor.get()?, range)
    }

    fn store(&self) -> &str {
        &self.name
    }

    fn profile(&self) -> StorageProfile {
        // Stores with other names may serve local files too.
        if self.descriptor.get().is_some() { StorageProfile::LOCAL } else { self.profile }
    }
}

/// Whether the store said that it is asked too much.
pub(super) fn is_throttled(error: &Error) -> bool {
    let Error::Read { source, .. } = error.root() else { return false };
    let Some(object_store::Error::Generic { source, .. }) = source.downcast_ref() else { return false };
    let mut cause: Option<&dyn std::error::Error> = Some(source.as_ref());
    while let Some(error) = cause {
        let text = error.to_string();
        if ["503", "429", "SlowDown", "Too Many Requests"].iter().any(|sign| text.contains(sign)) {
            return true;
        }
        cause = error.source();
    }
    false
}
