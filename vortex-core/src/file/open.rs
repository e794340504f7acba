//! Opening a file.

use std::path::Path;
use std::sync::Arc;

use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use object_store::ObjectStore;
use tokio::runtime::Builder;

use super::described::Described;
use super::description::LONGEST_END;
use super::footer::Footer;
use crate::Registry;
use crate::dtype::DType;
use crate::error::ResultExt as _;
use crate::io::{
    LocalFile, MemoryFile, ObjectFile, ReadAt, Scheduler, StorageProfile, block_on_thread, read_exact,
    runtime,
};
use crate::limits::Limits;
use crate::segments::checksums::compare;
use crate::segments::{Leases, TreeCache};
use crate::{Error, Result};

/// A description, with the zone tables before it, takes about one part in this many of a file.
const TAIL_SHARE: u64 = 256;

/// Number of bytes to read from the end of a file: all of a small file, also of a somewhat larger one where that costs
/// less than a second read; of others, the usual size of the description and the zone tables.
pub(super) fn tail_size(file_size: u64, profile: &StorageProfile) -> u64 {
    let most = profile.tail_size;
    let whole = if profile.remote { most.saturating_mul(2) } else { most };
    if file_size <= whole { file_size } else { (file_size / TAIL_SHARE).min(most) }
}

/// Options of opening a file.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    pub(super) limits: Limits,
    pub(super) registry: Registry,
    pub(super) tail_size: Option<u64>,
    pub(super) file_size: Option<u64>,
    pub(super) dtype: Option<DType>,
    pub(super) checksums: bool,
    scheduler: Option<Arc<Scheduler>>,
}

impl OpenOptions {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the limits on what a file may require of the reader. The defaults are listed at [`Limits`].
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the known encodings and layouts; by default, those [built in](Registry::built_in).
    #[must_use]
    pub fn with_registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// Sets the number of bytes to read from the end at first; at least 64 KiB are read. By default, one part in 256 of
    /// the file, and at most as much as the [profile](crate::io::StorageProfile::tail_size) of the storage says, or all
    /// of a small file: in remote storage, up to twice as much. `open_object`, which does not know the size, reads what
    /// the profile says.
    #[must_use]
    pub fn with_tail_size(mut self, bytes: u64) -> Self {
        self.tail_size = Some(bytes);
        self
    }

    /// Sets the size of the file, if it is known from a listing: saves a request.
    #[must_use]
    pub fn with_file_size(mut self, bytes: u64) -> Self {
        self.file_size = Some(bytes);
        self
    }

    /// Sets the dtype, for files that do not contain their own.
    #[must_use]
    pub fn with_dtype(mut self, dtype: DType) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// Sets whether all data read is verified against the checksums of the file, if it has any; damage of
    /// any kind then results in an error. Off by default.
    #[must_use]
    pub fn with_verify_checksums(mut self, verify: bool) -> Self {
        self.checksums = verify;
        self
    }

    /// Sets who issues the reads of descriptions of remote files; by default, the scheduler of this
    /// [process](Scheduler::shared).
    #[must_use]
    pub fn with_scheduler(mut self, scheduler: Arc<Scheduler>) -> Self {
        self.scheduler = Some(scheduler);
        self
    }

    pub(super) fn scheduler(&self) -> Arc<Scheduler> {
        self.scheduler.clone().unwrap_or_else(Scheduler::shared)
    }

    /// Opens a file with one read, or two if its description exceeds the tail; more if that is scattered.
    ///
    /// # Errors
    /// If storage fails, or the bytes are not a Vortex file this build can read.
    pub async fn open(&self, source: Arc<dyn ReadAt>) -> Result<VortexFile> {
        self.read(&source).await.map_err(|error| error.in_file(source.name()))
    }

    /// As [`open`](Self::open), for a file on a local disk.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_path(&self, path: impl AsRef<Path>) -> Result<VortexFile> {
        let path = path.as_ref().to_path_buf();
        let file = runtime()?.spawn_blocking(|| LocalFile::open(path)).await;
        self.open(Arc::new(file.map_err(Error::external)??)).await
    }

    /// As [`open`](Self::open), for an object in a store, of which nothing needs to be known: its end is read in the
    /// first request. A head request comes before it if the store cannot read ends (as Azure) or none of this object.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use vortex_core::file::OpenOptions;
    /// # use vortex_core::object_store::{ObjectStore, local::LocalFileSystem};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/data");
    /// let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new_with_prefix(folder)?); // or AmazonS3, ...
    /// let file = OpenOptions::new().open_object(&store, &"lineitem.vortex".into()).await?;
    /// assert!(file.row_count() > 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_object(
        &self,
        store: &Arc<dyn ObjectStore>,
        location: &object_store::path::Path,
    ) -> Result<VortexFile> {
        let tail = self.tail_size.unwrap_or_else(|| StorageProfile::of(store.as_ref()).tail_size);
        let tail = tail.max(LONGEST_END);
        let object = self.scheduler().find_object(store, location, tail, ObjectFile::HEDGE).await?;
        let options = self.clone().with_tail_size(tail).with_file_size(object.meta().size);
        options.open(Arc::new(object)).await
    }

    /// As [`open`](Self::open), for the bytes of a whole file.
    ///
    /// # Errors
    /// If the bytes are not a Vortex file this build can read.
    pub fn open_bytes(&self, bytes: impl Into<Bytes>) -> Result<VortexFile> {
        let bytes = bytes.into();
        let source = MemoryFile::new(bytes.clone());
        let footer = self.parse(bytes.into()).map_err(|error| error.in_file(source.name()))?;
        Ok(VortexFile::from_footer(Arc::new(source), Arc::new(footer)))
    }

    /// As [`open_path`](Self::open_path), for callers outside of asynchronous code; blocks the thread.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_path_blocking(&self, path: impl AsRef<Path>) -> Result<VortexFile> {
        self.open_blocking(Arc::new(LocalFile::open(path)?))
    }

    /// As [`open`](Self::open), for callers outside of asynchronous code; blocks the thread. The
    /// reading is done on a thread with a runtime of its own.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_blocking(&self, source: Arc<dyn ReadAt>) -> Result<VortexFile> {
        let options = self.clone();
        let open = || async move { options.open(source).await };
        block_on_thread("vortex-open", Builder::new_current_thread(), open)
    }

    /// Parses the description of a file that is entirely in memory. With
    /// [checksums](Self::with_verify_checksums), it is verified, as are segments that scans read later.
    ///
    /// # Errors
    /// If the bytes are not a Vortex file this build can read.
    pub fn parse(&self, file: Buffer) -> Result<Footer> {
        let file_size = file.len() as u64;
        self.parse_end(file, file_size)
    }

    /// As [`parse`](Self::parse), for the last bytes of a file of `file_size` bytes, at least [those that describe
    /// it](Footer::description_len).
    ///
    /// # Errors
    /// As [`parse`](Self::parse), or if the bytes are too few.
    pub fn parse_end(&self, end: Buffer, file_size: u64) -> Result<Footer> {
        Described::of(end, file_size, self)?.into_footer(self)
    }

    async fn read(&self, source: &Arc<dyn ReadAt>) -> Result<VortexFile> {
        let footer = Described::read(source, self).await?.into_footer(self)?;
        Ok(VortexFile::from_footer(Arc::clone(source), Arc::new(footer)))
    }
}

/// An open file: its description and its source. Cheap to clone; clones share the data that scans of the
/// file on one runtime have in flight.
#[derive(Debug, Clone)]
pub struct VortexFile {
    source: Arc<dyn ReadAt>,
    footer: Arc<Footer>,
    leases: Arc<Leases>,
    trees: Arc<TreeCache>,
}

impl VortexFile {
    /// Opens a file with default options.
    ///
    /// Reading local files and scanning need a tokio runtime, whose tasks also read descriptions of remote files;
    /// without one, use [`open_blocking`](Self::open_blocking) and
    /// [`ScanBuilder::into_reader`](crate::scan::ScanBuilder::into_reader).
    ///
    /// # Errors
    /// If storage fails, or the bytes are not a Vortex file this build can read.
    pub async fn open(source: Arc<dyn ReadAt>) -> Result<Self> {
        OpenOptions::new().open(source).await
    }

    /// Opens a file on a local disk with default options.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_path(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::new().open_path(path).await
    }

    /// Opens an object in a store with default options, see [`OpenOptions::open_object`].
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_object(
        store: &Arc<dyn ObjectStore>,
        location: &object_store::path::Path,
    ) -> Result<Self> {
        OpenOptions::new().open_object(store, location).await
    }

    /// Opens the bytes of a whole file with default options.
    ///
    /// # Errors
    /// If the bytes are not a Vortex file this build can read.
    pub fn open_bytes(bytes: impl Into<Bytes>) -> Result<Self> {
        OpenOptions::new().open_bytes(bytes)
    }

    /// As [`open_path`](Self::open_path), for callers outside of asynchronous code; blocks the thread.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_path_blocking(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::new().open_path_blocking(path)
    }

    /// As [`open`](Self::open), for callers outside of asynchronous code; blocks the thread. The
    /// reading is done on a thread with a runtime of its own.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_blocking(source: Arc<dyn ReadAt>) -> Result<Self> {
        OpenOptions::new().open_blocking(source)
    }

    /// Creates a file whose description is already known, without reading.
    pub fn from_footer(source: Arc<dyn ReadAt>, footer: Arc<Footer>) -> Self {
        Self { source, footer, leases: Arc::default(), trees: Arc::default() }
    }

    /// The description of the file.
    pub fn footer(&self) -> &Arc<Footer> {
        &self.footer
    }

    /// The source of its bytes.
    pub fn source(&self) -> &Arc<dyn ReadAt> {
        &self.source
    }

    /// Number of rows.
    pub fn row_count(&self) -> u64 {
        self.footer.row_count()
    }

    /// The Arrow schema: the one that the file was written from, or the types that decoding prefers.
    ///
    /// # Errors
    /// If a type has no Arrow equivalent.
    pub fn schema(&self) -> Result<SchemaRef> {
        self.footer.schema()
    }

    /// The value of an entry of user metadata, which is read from the source if it is longer than what the
    /// [footer](Footer::user_metadata) keeps; none if there is no such entry.
    ///
    /// # Errors
    /// If reading fails, or if the file was opened to verify [checksums](OpenOptions::with_verify_checksums), and that
    /// of the value is another one.
    pub async fn user_metadata(&self, key: &str) -> Result<Option<Bytes>> {
        let Some(entry) = self.footer.entry(key) else { return Ok(None) };
        let value = match &entry.value {
            Some(value) => Bytes::from_owner(Arc::clone(value)),
            None => read_exact(self.source.as_ref(), entry.range.clone()).await?,
        };
        if let Some(checksums) = &self.footer.table.checksums {
            let expected = self.footer.entries_with_checksums().into_iter().zip(&checksums.entries);
            for (_, expected) in expected.filter(|(other, _)| other.key == entry.key) {
                let place = || format!("bytes {}..{} of the file", entry.range.start, entry.range.end);
                compare(&format!("metadata `{key}`"), *expected, &value).at(place)?;
            }
        }
        Ok(Some(value))
    }

    /// The segments that its scans hold.
    pub(crate) fn leases(&self) -> &Leases {
        &self.leases
    }

    /// The trees of arrays of which single rows were read.
    pub(crate) fn trees(&self) -> &TreeCache {
        &self.trees
    }
}
