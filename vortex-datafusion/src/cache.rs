//! Caching of footers: between queries in DataFusion's metadata cache, within one scan as open files.
//!
//! An entry is valid for one version of an object, identified by its size, modification time and, if the
//! store provides one, e-tag. Of objects without time, e-tag and version, nothing is kept. The size of an entry
//! is that of the parsed footer, not of its bytes in the file.

use std::any::Any;
use std::sync::Arc;

use arrow::buffer::Buffer;
use datafusion_common::{DataFusionError, HashMap, Result};
use datafusion_execution::cache::cache_manager::{CachedFileMetadataEntry, FileMetadata, FileMetadataCache};
use datafusion_execution::config::SessionConfig;
use datafusion_execution::runtime_env::RuntimeEnv;
use futures::future::{BoxFuture, Shared, WeakShared};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use vortex_core::file::{Footer, OpenOptions, VortexFile};
#[cfg(feature = "session")]
use vortex_core::io::StorageProfile;
use vortex_core::io::{BlockCache, ObjectFile, ReadAt};

use crate::convert::datafusion_error;
use crate::options::VortexOptions;

/// Entries of finished scans are removed from the table of open files when it has this many entries.
const SWEEP_AT: usize = 64;

/// Parsed footers of small files take up at most about one part in this many of the footer cache; further
/// footers are kept as the bytes of their files.
const PARSED_SHARE: usize = 3;
/// Footers of files larger than this many bytes are always kept parsed.
const MAX_STORED: usize = 64 << 10;

/// Opens files, and caches their footers.
#[derive(Clone, Default)]
pub(crate) struct FooterCache {
    footers: Option<Arc<FileMetadataCache>>,
    /// Keeps bytes of remote files, if the options enable it.
    segments: Option<Arc<BlockCache>>,
    reading: Reading,
}

/// How files are read, according to the options, and the cache for the bytes that are fetched.
#[derive(Debug, Clone, Default)]
struct Reading {
    /// Number of bytes to read from the end of a file.
    tail: Option<u64>,
    blocks: Option<Arc<BlockCache>>,
    block_len: u64,
    preload: u64,
    hedge: u32,
    verify: bool,
}

impl FooterCache {
    /// The caches of a session.
    pub(crate) fn new(runtime: &RuntimeEnv, config: &SessionConfig) -> Self {
        Self {
            footers: Some(runtime.cache_manager.get_file_metadata_cache()),
            segments: config.get_extension(),
            reading: Reading::default(),
        }
    }

    /// Reads files as specified by `options`.
    pub(crate) fn with_options(mut self, options: &VortexOptions) -> Self {
        let blocks = self.segments.as_ref().filter(|_| options.segment_cache > 0);
        if let Some(blocks) = blocks {
            blocks.set_limit(options.segment_cache);
        }
        self.reading = Reading {
            tail: (options.footer_read_size > 0).then_some(options.footer_read_size),
            blocks: blocks.cloned(),
            block_len: options.segment_cache_block_size,
            preload: options.segment_cache_preload,
            hedge: options.hedge,
            verify: options.verify_checksums,
        };
        self
    }

    /// Opens the file in the version that `meta` describes. `hint` is the number of bytes to read from its
    /// end if the footer is not cached and the options do not specify the number.
    ///
    /// # Errors
    /// If storage fails, or this is not a Vortex file.
    pub(crate) async fn open(
        &self,
        store: &Arc<dyn ObjectStore>,
        meta: &ObjectMeta,
        hint: Option<u64>,
    ) -> Result<VortexFile> {
        self.open_object(ObjectFile::new(Arc::clone(store), meta.clone()), hint).await
    }

    /// Fetches the metadata of a remote file and puts its footer into the cache, in one request. Returns
    /// `None` if a footer is already cached, if fetched bytes are to be kept in blocks, or if the request
    /// fails; a head request is necessary then.
    ///
    /// # Errors
    /// If it is not a Vortex file.
    #[cfg(feature = "session")]
    pub(crate) async fn find(
        &self,
        store: &Arc<dyn ObjectStore>,
        location: &Path,
    ) -> Result<Option<ObjectMeta>> {
        let is_known = self.footers.as_ref().is_none_or(|footers| footers.contains_key(location));
        // Bytes to be kept in blocks are read in blocks, which requires the size.
        if is_known || self.reading.blocks.is_some() {
            return Ok(None);
        }
        let end = self.reading.tail.unwrap_or(StorageProfile::REMOTE.tail_read);
        // The read for opening starts at a multiple of 64.
        let object = ObjectFile::find(Arc::clone(store), location, end + 64).await;
        let Ok(object) = object else { return Ok(None) };
        if object.meta().size == 0 {
            return Ok(None);
        }
        let meta = object.meta().clone();
        self.open_object(object, Some(end)).await?;
        Ok(Some(meta))
    }

    async fn open_object(&self, object: ObjectFile, hint: Option<u64>) -> Result<VortexFile> {
        let Reading { tail, blocks, block_len, preload, hedge, verify } = &self.reading;
        let object = object.with_hedge(*hedge);
        let meta = &object.meta().clone();
        // Whether a change of the object would be noticed.
        let is_versioned = object.is_versioned();
        let blocks = blocks.as_ref().filter(|_| object.profile().remote && is_versioned);
        let is_preloaded = blocks.is_some() && meta.size <= *preload;
        let source: Arc<dyn ReadAt> = match blocks {
            Some(blocks) => Arc::new(object.cached(Arc::clone(blocks), *block_len)),
            None => Arc::new(object),
        };
        if is_versioned && let Some(footer) = self.get(meta) {
            return Ok(VortexFile::from_footer(source, footer));
        }
        let mut options = OpenOptions::new().with_file_size(meta.size).with_checksums(*verify);
        if let Some(bytes) = is_preloaded.then_some(meta.size).or(*tail).or(hint) {
            options = options.with_tail_size(bytes);
        }
        let file = options.open(source).await.map_err(datafusion_error)?;
        if is_versioned {
            self.put(meta, Arc::clone(file.footer()));
        }
        Ok(file)
    }

    /// Whether the footer of exactly this version is cached.
    #[cfg(feature = "session")]
    pub(crate) fn knows(&self, meta: &ObjectMeta) -> bool {
        let entry = self.footers.as_ref().and_then(|footers| footers.get(&meta.location));
        entry.is_some_and(|entry| same_version(&entry.meta, meta))
    }

    fn get(&self, meta: &ObjectMeta) -> Option<Arc<Footer>> {
        let entry = self.footers.as_ref()?.get(&meta.location)?;
        let known = entry.file_metadata.as_any().downcast_ref::<CachedFooter>()?;
        let footer = same_version(&entry.meta, meta).then(|| known.footer()).flatten()?;
        let verifies = self.reading.verify && footer.has_checksums();
        (footer.verifies_checksums() == verifies).then_some(footer)
    }

    /// Caches a footer; as the bytes of its file, if the file is small and parsed footers of this size would
    /// take up too much of the cache.
    fn put(&self, meta: &ObjectMeta, footer: Arc<Footer>) {
        let Some(footers) = &self.footers else { return };
        let like_it = footer.memory_size().saturating_mul(footers.len() + 1);
        let whole =
            footer.whole_file().filter(|file| file.len() <= MAX_STORED && !footer.verifies_checksums());
        let footer = match whole {
            Some(file) if like_it > footers.cache_limit() / PARSED_SHARE => {
                CachedFooter::Stored { file, info: info(&footer) }
            }
            _ => CachedFooter::Parsed(footer),
        };
        footers.put(&meta.location, CachedFileMetadataEntry::new(meta.clone(), Arc::new(footer)));
    }
}

impl std::fmt::Debug for FooterCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FooterCache")
            .field("footers", &self.footers.as_ref().map(|cache| cache.len()))
            .finish()
    }
}

pub(crate) fn same_version(left: &ObjectMeta, right: &ObjectMeta) -> bool {
    // Listings do not tell versions.
    let versions = left.version.as_ref().zip(right.version.as_ref());
    left.size == right.size
        && left.last_modified == right.last_modified
        && left.e_tag == right.e_tag
        && versions.is_none_or(|(left, right)| left == right)
}

/// A footer as DataFusion's cache holds it.
enum CachedFooter {
    Parsed(Arc<Footer>),
    /// The bytes of a small file, parsed on every use: slower, but a fraction of the size.
    Stored {
        file: Buffer,
        info: Info,
    },
}

/// Rows, columns and segments.
type Info = [u64; 3];

fn info(footer: &Footer) -> Info {
    let columns = footer.dtype().as_struct().map_or(1, |fields| fields.len());
    [footer.row_count(), columns as u64, footer.segments().len() as u64]
}

impl CachedFooter {
    fn footer(&self) -> Option<Arc<Footer>> {
        match self {
            CachedFooter::Parsed(footer) => Some(Arc::clone(footer)),
            CachedFooter::Stored { file, .. } => OpenOptions::new().parse(file.clone()).ok().map(Arc::new),
        }
    }
}

impl FileMetadata for CachedFooter {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn memory_size(&self) -> usize {
        match self {
            CachedFooter::Parsed(footer) => footer.memory_size(),
            CachedFooter::Stored { file, .. } => size_of::<Self>() + file.len(),
        }
    }

    fn extra_info(&self) -> HashMap<String, String> {
        let values = match self {
            CachedFooter::Parsed(footer) => info(footer),
            CachedFooter::Stored { info, .. } => *info,
        };
        let names = ["row_count", "columns", "segments"];
        names.into_iter().zip(values).map(|(name, value)| (name.to_owned(), value.to_string())).collect()
    }
}

/// Files that scans of one plan have open: partitions that read different ranges of a file share its
/// descriptor and the bytes they fetch. A file is closed when its last scan ends.
///
/// Nothing is shared between runtimes: one that stands still would hold up the others.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    files: Mutex<HashMap<Key, (ObjectMeta, WeakShared<Opening>)>>,
}

type Key = (Path, Option<Id>);
type Opening = BoxFuture<'static, Result<VortexFile, Arc<DataFusionError>>>;

/// A file that is opened once for all that wait for it, by whichever of them is polled.
pub(crate) type OpenFile = Shared<Opening>;

impl OpenFiles {
    /// The file in the version that `meta` describes; `open` opens it if it is not open.
    pub(crate) fn entry(&self, meta: &ObjectMeta, open: impl FnOnce() -> OpenFile) -> OpenFile {
        let key = (meta.location.clone(), runtime());
        let mut files = self.files.lock();
        if let Some((version, file)) = files.get(&key)
            && same_version(version, meta)
            && let Some(file) = file.upgrade()
        {
            return file;
        }
        if files.len() >= SWEEP_AT {
            files.retain(|_, (_, file)| file.upgrade().is_some());
        }
        let file = open();
        if let Some(shared) = file.downgrade() {
            files.insert(key, (meta.clone(), shared));
        }
        file
    }
}

/// The runtime that polls the caller.
pub(crate) fn runtime() -> Option<Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    #[cfg(feature = "session")]
    use object_store::ObjectStoreExt as _;

    use super::*;

    fn meta(e_tag: Option<&str>) -> ObjectMeta {
        ObjectMeta {
            location: Path::from("a.vortex"),
            last_modified: Default::default(),
            size: 10,
            e_tag: e_tag.map(str::to_owned),
            version: None,
        }
    }

    #[cfg(feature = "session")]
    #[tokio::test]
    async fn a_footer_is_not_kept_if_changes_would_go_unnoticed() {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/data/lineitem.vortex");
        let bytes = std::fs::read(example).unwrap();
        let size = bytes.len() as u64;
        let store: Arc<dyn ObjectStore> = Arc::new(object_store::memory::InMemory::new());
        store.put(&Path::from("a.vortex"), bytes.into()).await.unwrap();
        let cache = FooterCache::new(&RuntimeEnv::default(), &SessionConfig::new());
        let unversioned = ObjectMeta { size, ..meta(None) };
        let dated = ObjectMeta { last_modified: std::time::SystemTime::now().into(), ..unversioned.clone() };
        for (meta, is_kept) in [(unversioned, false), (dated, true)] {
            cache.open(&store, &meta, None).await.unwrap();
            assert_eq!(cache.knows(&meta), is_kept);
        }
    }

    fn opened() -> OpenFile {
        futures::future::pending().boxed().shared()
    }

    #[test]
    fn readers_of_one_version_share_the_file() {
        let files = OpenFiles::default();
        let first = files.entry(&meta(Some("1")), opened);
        assert!(first.ptr_eq(&files.entry(&meta(Some("1")), opened)));
        assert!(!first.ptr_eq(&files.entry(&meta(Some("2")), opened)));
    }

    #[test]
    fn a_file_closes_with_its_last_reader() {
        let files = OpenFiles::default();
        drop(files.entry(&meta(None), opened));
        let (_, file) = &files.files.lock()[&(Path::from("a.vortex"), None)];
        assert!(file.upgrade().is_none());
    }

    #[tokio::test]
    async fn runtimes_do_not_share_files() {
        let files = Arc::new(OpenFiles::default());
        let first = files.entry(&meta(None), opened);
        let other = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _entered = runtime.enter();
            files.entry(&meta(None), opened)
        });
        assert!(!first.ptr_eq(&other.join().unwrap()));
    }

    #[tokio::test]
    async fn a_file_opens_although_its_first_reader_is_not_polled() {
        let files = OpenFiles::default();
        let (answer, answered) = tokio::sync::oneshot::channel::<()>();
        let refused = async move {
            let _ = answered.await;
            Err(Arc::new(DataFusionError::Internal("refused".to_owned())))
        };
        let mut first = files.entry(&meta(None), || refused.boxed().shared());
        let second = files.entry(&meta(None), opened);
        assert!(futures::poll!(&mut first).is_pending());
        answer.send(()).unwrap();
        assert!(second.await.is_err());
    }
}
