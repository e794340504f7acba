//! How files in object stores are opened: with which options, and through which caches of the session.
//!
//! Footers are kept between queries (`footers.rs`), and bytes of remote files, if the options enable that. Of
//! objects without time, e-tag and version, nothing is kept.

pub(crate) mod footers;
pub(crate) mod listings;

use std::sync::Arc;

use datafusion_common::Result;
use datafusion_execution::config::SessionConfig;
use datafusion_execution::runtime_env::RuntimeEnv;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use vortex_core::file::{Footer, OpenOptions};
use vortex_core::io::{BlockCache, ObjectFile, ReadAt, Scheduler, StorageProfile, StoreId, is_versioned};
use vortex_core::{Limits, Registry, VortexFile};

use self::footers::FooterCache;
use self::listings::Listings;
use crate::convert::datafusion_error;
use crate::options::VortexOptions;
use crate::statistics::kept::FileStatistics;

/// What a session provides for reading files: caches, and extensions of its configuration. By default, nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionResources {
    footers: Option<FooterCache>,
    listings: Listings,
    /// The cache for bytes of remote files, if the session has one, which the options may leave unused.
    segments: Option<Arc<BlockCache>>,
    terms: Terms,
    /// Who issues the reads of scans, if not the scheduler of the process.
    scheduler: Option<Arc<Scheduler>>,
}

/// What a file may demand, and the encodings that are known: extensions of the session's configuration, see `register`.
#[derive(Debug, Clone, Default, PartialEq)]
struct Terms {
    limits: Limits,
    registry: Registry,
}

impl Terms {
    fn of(config: &SessionConfig) -> Self {
        let limits = config.get_extension::<Limits>().map(|limits| *limits).unwrap_or_default();
        let registry =
            config.get_extension::<Registry>().map(|known| known.as_ref().clone()).unwrap_or_default();
        Self { limits, registry }
    }

    fn options(&self) -> OpenOptions {
        OpenOptions::new().with_limits(self.limits).with_registry(self.registry.clone())
    }
}

impl SessionResources {
    pub(crate) fn new(runtime: &RuntimeEnv, config: &SessionConfig) -> Self {
        let terms = Terms::of(config);
        Self {
            footers: Some(FooterCache::new(runtime, terms.clone())),
            listings: Listings::of(&runtime.cache_manager),
            segments: segment_cache(config),
            terms,
            scheduler: config.get_extension::<Scheduler>(),
        }
    }

    /// A footer from which planning may guess, see [`FooterCache::parsed`]; `None` if none is kept parsed.
    pub(crate) fn hint(&self, meta: &ObjectMeta) -> Option<Arc<Footer>> {
        self.footers.as_ref()?.parsed(meta)
    }

    /// Whether the footer of exactly this version is cached.
    pub(crate) fn has_footer(&self, store: &Arc<dyn ObjectStore>, meta: &ObjectMeta) -> bool {
        self.footers.as_ref().is_some_and(|footers| footers.has(StoreId::of(store), meta))
    }
}

/// Opens files as options specify.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    session: SessionResources,
    options: VortexOptions,
}

impl Reading {
    pub(crate) fn new(session: SessionResources, options: VortexOptions) -> Self {
        Self { session, options }
    }

    pub(crate) fn options(&self) -> &VortexOptions {
        &self.options
    }

    /// The statistics that the session keeps of this file and others, unless a change of it would go unnoticed, or the
    /// options decide what to take from its footer.
    pub(crate) fn statistics(
        &self,
        store: &Arc<dyn ObjectStore>,
        meta: &ObjectMeta,
    ) -> Option<FileStatistics> {
        let asks_footer = self.options.order_from_statistics || self.options.verify_checksums;
        let footers = self.session.footers.as_ref().filter(|_| is_versioned(meta) && !asks_footer);
        footers.map(|footers| footers.statistics(StoreId::of(store), &meta.location))
    }

    /// The listings that name the files.
    pub(crate) fn listings(&self) -> &Listings {
        &self.session.listings
    }

    /// Who issues the reads of scans, if not the scheduler of the process.
    pub(crate) fn scheduler(&self) -> Option<&Arc<Scheduler>> {
        self.session.scheduler.as_ref()
    }

    /// The cache for bytes, if it is used.
    fn blocks(&self) -> Option<&Arc<BlockCache>> {
        self.session.segments.as_ref().filter(|_| self.options.segment_cache > 0)
    }

    /// The number of bytes to read from the end of a file, if specified.
    fn tail(&self) -> Option<u64> {
        (self.options.footer_read_size > 0).then_some(self.options.footer_read_size)
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
        self.open_object(StoreId::of(store), ObjectFile::new(Arc::clone(store), meta.clone()), hint).await
    }

    /// Fetches the metadata of a remote file and puts its footer into the cache, in one request if the store can read
    /// the end of a file. Returns `None` if a footer is already cached, if fetched bytes are to be kept in blocks, or
    /// if there is no file or an empty one; a head request is necessary then.
    ///
    /// # Errors
    /// If it is not a Vortex file, or the store fails.
    pub(crate) async fn find(
        &self,
        store: &Arc<dyn ObjectStore>,
        location: &Path,
    ) -> Result<Option<ObjectMeta>> {
        let number = StoreId::of(store);
        let is_known = self.session.footers.as_ref().is_none_or(|footers| footers.has_any(number, location));
        // Bytes to be kept in blocks are read in blocks, which requires the size.
        if is_known || self.blocks().is_some() {
            return Ok(None);
        }
        let end = self.tail().unwrap_or(StorageProfile::REMOTE.tail_size);
        let scheduler = self.scheduler().map_or_else(Scheduler::shared, Arc::clone);
        let object = match scheduler.find_object(store, location, end, self.options.hedge).await {
            Ok(object) if object.meta().size > 0 => object,
            Err(error) if !error.is_not_found() => return Err(datafusion_error(error)),
            // Maybe it is a folder.
            Ok(_) | Err(_) => return Ok(None),
        };
        let meta = object.meta().clone();
        self.open_object(number, object, Some(end)).await?;
        Ok(Some(meta))
    }

    async fn open_object(&self, store: StoreId, object: ObjectFile, hint: Option<u64>) -> Result<VortexFile> {
        let object = object.with_hedge(self.options.hedge);
        let meta = &object.meta().clone();
        let verify = self.options.verify_checksums;
        // Whether a change of the object would be noticed.
        let is_versioned = object.is_versioned();
        let footers = self.session.footers.as_ref().filter(|_| is_versioned);
        let blocks = self.blocks().filter(|_| object.profile().remote && is_versioned);
        let is_preloaded = blocks.is_some() && meta.size <= self.options.segment_cache_preload;
        let known = footers.and_then(|footers| footers.get(store, meta, verify));
        let object = match &known {
            Some((_, first)) => object.with_first_answer(first.clone()),
            None => object,
        };
        let object = match blocks {
            Some(blocks) => object.with_answer_of(blocks),
            None => object,
        };
        let first = object.first_answer();
        let source: Arc<dyn ReadAt> = match blocks {
            Some(blocks) => {
                Arc::new(object.cached(Arc::clone(blocks), self.options.segment_cache_block_size))
            }
            None => Arc::new(object),
        };
        if let Some((footer, _)) = known {
            return Ok(VortexFile::from_footer(source, footer));
        }
        let mut options =
            self.session.terms.options().with_file_size(meta.size).with_verify_checksums(verify);
        if let Some(bytes) = is_preloaded.then_some(meta.size).or(self.tail()).or(hint) {
            options = options.with_tail_size(bytes);
        }
        if let Some(scheduler) = self.scheduler() {
            options = options.with_scheduler(Arc::clone(scheduler));
        }
        let file = options.open(source).await.map_err(datafusion_error)?;
        if let Some(footers) = footers {
            footers.put(store, meta, Arc::clone(file.footer()), first);
        }
        Ok(file)
    }
}

/// The cache of a session for bytes of remote files, unless it has no space, with the limit that its options state now.
/// If the session has no options, its application has set the limit.
fn segment_cache(config: &SessionConfig) -> Option<Arc<BlockCache>> {
    let cache = config.get_extension::<BlockCache>()?;
    let Some(options) = config.options().extensions.get::<VortexOptions>() else { return Some(cache) };
    cache.set_limit(options.segment_cache);
    (options.segment_cache > 0).then_some(cache)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Schema;
    use datafusion_common::Statistics;
    use datafusion_datasource::file_format::FileMeta;
    use datafusion_execution::cache::SchemaFingerprint;
    use object_store::ObjectStoreExt as _;

    use super::*;

    /// With default options.
    fn with_defaults(runtime: &RuntimeEnv, config: &SessionConfig) -> Reading {
        Reading::new(SessionResources::new(runtime, config), VortexOptions::default())
    }

    #[test]
    fn the_session_decides_how_much_is_kept_and_options_whether_that_is_used() {
        let options = |bytes: u64| VortexOptions { segment_cache: bytes, ..VortexOptions::default() };
        let config = SessionConfig::new().with_extension(BlockCache::new(1 << 20));
        let used = |config: &SessionConfig, bytes: u64| {
            let session = SessionResources::new(&RuntimeEnv::default(), config);
            Reading::new(session, options(bytes)).blocks().is_some()
        };
        // An application that adds only the cache has set its limit.
        assert!(used(&config, 1) && !used(&config, 0));
        for (session, table, expected) in [(0, 1 << 20, false), (1 << 20, 0, false), (1 << 20, 1, true)] {
            let mut config = config.clone();
            config.options_mut().extensions.insert(options(session));
            assert_eq!(used(&config, table), expected, "{session} {table}");
        }
    }

    #[tokio::test]
    async fn a_footer_is_not_kept_if_changes_would_go_unnoticed() {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/data/lineitem.vortex");
        let bytes = std::fs::read(example).unwrap();
        let unversioned = ObjectMeta {
            location: Path::from("a.vortex"),
            last_modified: Default::default(),
            size: bytes.len() as u64,
            e_tag: None,
            version: None,
        };
        let dated = ObjectMeta { last_modified: std::time::SystemTime::now().into(), ..unversioned.clone() };
        let store: Arc<dyn ObjectStore> = Arc::new(object_store::memory::InMemory::new());
        store.put(&unversioned.location, bytes.into()).await.unwrap();
        let reading = with_defaults(&RuntimeEnv::default(), &SessionConfig::new());
        for (meta, is_kept) in [(unversioned, false), (dated, true)] {
            reading.open(&store, &meta, None).await.unwrap();
            assert_eq!(reading.session.has_footer(&store, &meta), is_kept);
        }
    }

    #[tokio::test]
    async fn statistics_are_not_kept_of_a_file_that_was_replaced_unnoticed_by_listings() {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/data/lineitem.vortex");
        let bytes = std::fs::read(example).unwrap();
        let faulty = test_store::TestStore::new();
        faulty.hide_e_tags();
        let store = Arc::clone(&faulty) as Arc<dyn ObjectStore>;
        let path = Path::from("a.vortex");
        store.put(&path, bytes.clone().into()).await.unwrap();
        let listed = store.head(&path).await.unwrap();
        let reading = with_defaults(&RuntimeEnv::default(), &SessionConfig::new());
        let columns = Arc::new(SchemaFingerprint::from_schema(&Schema::empty()));
        let known = || FileMeta::new(Statistics::new_unknown(&Schema::empty()));
        let kept = || reading.statistics(&store, &listed).unwrap();
        for opens_again in [false, true] {
            let file = reading.open(&store, &listed, Some(1)).await.unwrap();
            kept().put(&store, &listed, Arc::clone(&columns), &known());
            assert!(kept().get(&store, &listed, &columns).is_some());
            let later = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1 + u64::from(opens_again));
            faulty.set_time(later);
            store.put(&path, bytes.clone().into()).await.unwrap();
            let error = file.source().read(0..1).await.unwrap_err().to_string();
            assert!(error.contains("replaced"), "{error}");
            if opens_again {
                reading.open(&store, &listed, Some(1)).await.unwrap();
            }
            assert!(kept().get(&store, &listed, &columns).is_none());
        }
    }

    #[tokio::test]
    async fn a_footer_is_not_kept_for_other_limits() {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/data/lineitem.vortex");
        let store: Arc<dyn ObjectStore> = Arc::new(object_store::memory::InMemory::new());
        let path = Path::from("a.vortex");
        store.put(&path, std::fs::read(example).unwrap().into()).await.unwrap();
        let meta = store.head(&path).await.unwrap();
        let (runtime, config) = (RuntimeEnv::default(), SessionConfig::new());
        let usual = with_defaults(&runtime, &config);
        let strict = Arc::new(Limits::new().with_max_columns(3));
        let strict = with_defaults(&runtime, &config.with_extension(strict));
        usual.open(&store, &meta, None).await.unwrap();
        assert!(usual.session.has_footer(&store, &meta) && !strict.session.has_footer(&store, &meta));
        let error = strict.open(&store, &meta, None).await.unwrap_err().to_string();
        assert!(error.contains("too many fields") && error.contains("a.vortex"), "{error}");
        usual.open(&store, &meta, None).await.unwrap();
    }

    #[tokio::test]
    async fn of_two_requests_that_fail_the_first_tells_why() {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/data/lineitem.vortex");
        let faulty = test_store::TestStore::new();
        let store = Arc::clone(&faulty) as Arc<dyn ObjectStore>;
        let path = Path::from("a.vortex");
        let reading = with_defaults(&RuntimeEnv::default(), &SessionConfig::new());
        assert!(reading.find(&store, &path).await.unwrap().is_none(), "maybe it is a folder");
        faulty.fail_reads(|| Some(test_store::ReadFault::Fails));
        assert!(reading.find(&store, &path).await.unwrap().is_none(), "there is no file");
        store.put(&path, std::fs::read(example).unwrap().into()).await.unwrap();
        let mut fault = Some(test_store::ReadFault::Fails);
        faulty.fail_reads(move || fault.take());
        assert!(reading.find(&store, &path).await.unwrap().is_some(), "other requests succeed");
        faulty.fail_reads(|| Some(test_store::ReadFault::Fails));
        faulty.fail_heads();
        let reading = with_defaults(&RuntimeEnv::default(), &SessionConfig::new());
        let error = reading.find(&store, &path).await.unwrap_err().to_string();
        assert!(error.contains("the network is down"), "{error}");
    }
}
