//! Options of writing a file.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use crate::compress::Levels;
use crate::expr::FieldPath;
use crate::file::SegmentCompression;
use crate::wire::{MAX_USER_KEY_LEN, MAX_USER_METADATA};
use crate::{Error, Level, Release, Result};

/// Default memory budget of a writer.
const MEMORY_BUDGET: usize = 64 << 20;

/// Options of writing a file.
///
/// ```
/// use vortex_core::Level;
/// use vortex_core::write::WriteOptions;
///
/// let options = WriteOptions::new()
///     .with_level(Level::Compact)
///     .with_min_reader("0.54".parse()?)
///     .with_memory_budget(256 << 20)
///     .with_checksums(true)
///     .with_user_metadata("station", "Oslo")?;
/// # Ok::<(), vortex_core::Error>(())
/// ```
///
/// The entries of metadata are those of [`Footer::user_metadata`](crate::file::Footer::user_metadata).
#[derive(Debug, Clone)]
pub struct WriteOptions {
    pub(super) levels: Levels,
    pub(super) bloom_filters: BTreeSet<FieldPath>,
    pub(super) min_reader: Option<Release>,
    pub(super) memory_budget: usize,
    pub(super) metadata: Vec<(Arc<str>, Bytes)>,
    pub(super) checksums: bool,
    pub(super) segment_compression: Option<SegmentCompression>,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            levels: Levels::default(),
            bloom_filters: BTreeSet::new(),
            min_reader: None,
            memory_budget: MEMORY_BUDGET,
            metadata: Vec::new(),
            checksums: false,
            segment_compression: None,
        }
    }
}

impl WriteOptions {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the trade-off between the size of the file and the time to decode it; [`Level::Default`] by default.
    #[must_use]
    pub fn with_level(mut self, level: Level) -> Self {
        self.levels.level = level;
        self
    }

    /// Sets the level of one column, or of a field of structs given by its path, in place of [that of the
    /// file](Self::with_level). The level of a struct is that of its fields, too, unless they have one of their own.
    /// [`FileWriter::try_new`](super::FileWriter::try_new) fails if a path names no column.
    ///
    /// ```
    /// # use vortex_core::Level;
    /// # use vortex_core::write::WriteOptions;
    /// let options = WriteOptions::new()
    ///     .with_column_level("id", Level::Fast)
    ///     .with_column_level(["address", "city"], Level::Compact);
    /// ```
    #[must_use]
    pub fn with_column_level(mut self, path: impl Into<FieldPath>, level: Level) -> Self {
        self.levels.set_field(path.into(), level);
        self
    }

    /// Adds a Bloom filter to a column, or to a field of structs given by its path: a small index with which scans find
    /// the zones of 8,192 rows that may hold a value, without reading the column. It pays for columns that are compared
    /// with single values, by `=` or `IN`, and whose values are in no order, such as random keys; it does nothing for
    /// other comparisons. The column must hold integers, decimals, dates, times, text, byte strings or UUIDs.
    ///
    /// It takes 12 to 24 bits per distinct value of a zone in the file, as many for all of up to 1,024 zones, and up to
    /// 32 MiB of memory while the file is written. Other readers, of which none looks for it, do not notice it.
    ///
    /// ```
    /// # use vortex_core::write::WriteOptions;
    /// let options = WriteOptions::new().with_bloom_filter("id").with_bloom_filter(["address", "zip"]);
    /// ```
    #[must_use]
    pub fn with_bloom_filter(mut self, path: impl Into<FieldPath>) -> Self {
        self.bloom_filters.insert(path.into());
        self
    }

    /// Sets the oldest release of the reference implementation that must be able to read the file; all
    /// later releases are, too. By default 0.85, or the first one that knows the types of the file if that
    /// is newer. With [segment compression](Self::with_segment_compression), this only limits types and
    /// encodings. A file for which more columns or chunks are written than releases accept is read by none of them, as
    /// [`min_reader`](super::WriteSummary::min_reader) tells.
    #[must_use]
    pub fn with_min_reader(mut self, release: Release) -> Self {
        self.min_reader = Some(release);
        self
    }

    /// Sets the approximate number of bytes that the writer may hold in memory; 64 MiB by default. A file
    /// with very many columns needs about 64 KiB for each of them, and some 200 KiB for each column of
    /// repetitive text, even if that exceeds the budget. Not counted are bytes
    /// that a [sink](crate::io::Sink::buffered_bytes) holds, such as the parts of an upload, and what is written at the
    /// end of the file: about 90 bytes per column for every 8,192 rows. [Bloom filters](Self::with_bloom_filter) take
    /// memory of their own.
    #[must_use]
    pub fn with_memory_budget(mut self, bytes: usize) -> Self {
        self.memory_budget = bytes;
        self
    }

    /// Sets whether the file contains checksums of all its parts except the postscript, which tells where they are, 8
    /// bytes per segment. Readers verify what they read against them [if
    /// requested](crate::file::OpenOptions::with_verify_checksums); the reference implementation ignores them. Off by
    /// default.
    #[must_use]
    pub fn with_checksums(mut self, checksums: bool) -> Self {
        self.checksums = checksums;
        self
    }

    /// Compresses every segment as a whole, in addition to its encodings. No release of the reference
    /// implementation can read such a file, whatever [the oldest reader](Self::with_min_reader), and for
    /// most data [`Level::Compact`](crate::Level::Compact) results in smaller files. Off by default.
    #[must_use]
    pub fn with_segment_compression(mut self, scheme: SegmentCompression) -> Self {
        self.segment_compression = Some(scheme);
        self
    }

    /// Adds an entry of user metadata, which readers return unchanged; an existing entry with the same
    /// key is replaced. [`VortexFile::user_metadata`](crate::VortexFile::user_metadata) returns its value; of one of
    /// more than 4 KiB, a [`Footer`](crate::file::Footer) has only the position in the file.
    ///
    /// # Errors
    /// If the key is empty, longer than 64 bytes or begins with `vortex-core.`, or if there are 14 entries already: the
    /// writer reserves two for itself, and a third one for [Bloom filters](Self::with_bloom_filter). With 13 or 14, a
    /// file may lack room for the version of the writer.
    pub fn with_user_metadata(mut self, key: &str, value: impl Into<Bytes>) -> Result<Self> {
        if key.is_empty() || key.len() > MAX_USER_KEY_LEN {
            return Err(Error::invalid(format!(
                "metadata key of {} bytes, 1 to {MAX_USER_KEY_LEN} allowed",
                key.len()
            )));
        }
        if key.starts_with(super::OWN_KEYS) {
            return Err(Error::invalid(format!(
                "metadata keys that start with `{}` are reserved",
                super::OWN_KEYS
            )));
        }
        self.metadata.retain(|(present, _)| **present != *key);
        if self.metadata.len() == MAX_USER_METADATA - 2 {
            return Err(Error::invalid(format!("more than {} entries of metadata", MAX_USER_METADATA - 2)));
        }
        self.metadata.push((key.into(), value.into()));
        Ok(self)
    }

    /// Checks that there is room for the metadata of the file.
    pub(super) fn check_metadata(&self) -> Result<()> {
        let most = MAX_USER_METADATA - 2 - usize::from(!self.bloom_filters.is_empty());
        if self.metadata.len() > most {
            return Err(Error::invalid(format!(
                "more than {most} entries of metadata, beside Bloom filters"
            )));
        }
        Ok(())
    }
}
