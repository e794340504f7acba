//! Opening a file.

use std::path::Path;
use std::sync::Arc;

use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use tokio::runtime::Builder;

use super::described::Described;
use super::footer::Footer;
use crate::Registry;
use crate::dtype::DType;
use crate::error::ResultExt as _;
use crate::io::{LocalFile, ReadAt, StorageProfile, block_on_thread, runtime};
use crate::limits::Limits;
use crate::segments::{Leases, TreeCache};
use crate::{Error, Result};

/// A description, with the zone tables before it, takes about one part in this many of a file.
const TAIL_SHARE: u64 = 256;

/// Number of bytes to read from the end of a file: all of a small file, also of a somewhat larger one where that costs
/// less than a second read; of others, the usual size of the description and the zone tables.
pub(super) fn tail_size(file_size: u64, profile: &StorageProfile) -> u64 {
    let most = profile.tail_read;
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
    checksums: bool,
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

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Sets the known encodings and layouts; by default, those [built in](Registry::built_in).
    #[must_use]
    pub fn with_registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// Sets the number of bytes to read from the end at first; at least 64 KiB are read. By default, one part
    /// in 256 of the file, or all of a small file, and never more than the
    /// [profile](crate::io::StorageProfile::tail_read) of the storage says.
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
    pub fn with_checksums(mut self, verify: bool) -> Self {
        self.checksums = verify;
        self
    }

    /// Opens a file with one read, or two if its description exceeds the tail; more if that is scattered.
    ///
    /// # Errors
    /// If storage fails, or the bytes are not a Vortex file this build can read.
    pub async fn open(&self, source: Arc<dyn ReadAt>) -> Result<VortexFile> {
        self.read(&source).await.at(|| source.name().to_owned())
    }

    /// As [`open`](Self::open), for a file on a local disk.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_path(&self, path: impl AsRef<Path>) -> Result<VortexFile> {
        let path = path.as_ref().to_path_buf();
        let file = runtime()?.spawn_blocking(|| LocalFile::open(path)).await;
        self.open(Arc::new(file.map_err(|error| Error::External(error.into()))??)).await
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
    /// [checksums](Self::with_checksums), it is verified, as are segments that scans read later.
    ///
    /// # Errors
    /// If the bytes are not a Vortex file this build can read.
    pub fn parse(&self, file: Buffer) -> Result<Footer> {
        let file_size = file.len() as u64;
        self.footer(file, file_size)
    }

    /// Parses the description of a file of `file_size` bytes, which ends in `tail`.
    pub(crate) fn footer(&self, tail: Buffer, file_size: u64) -> Result<Footer> {
        Described::of(tail, file_size, self)?.into_footer(self.checksums)
    }

    async fn read(&self, source: &Arc<dyn ReadAt>) -> Result<VortexFile> {
        let described = Described::read(source.as_ref(), self, self.checksums).await?;
        Ok(VortexFile::from_footer(Arc::clone(source), Arc::new(described.into_footer(self.checksums)?)))
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
    /// Reading local files and scanning need a tokio runtime; without one, use
    /// [`open_blocking`](Self::open_blocking) and
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

    /// The segments that its scans hold.
    pub(crate) fn leases(&self) -> &Leases {
        &self.leases
    }

    /// The trees of arrays of which single rows were read.
    pub(crate) fn trees(&self) -> &TreeCache {
        &self.trees
    }
}
