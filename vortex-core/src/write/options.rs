//! How a file is written.

use std::sync::Arc;

use bytes::Bytes;

use crate::file::SegmentCompression;
use crate::{Error, Level, Release, Result};

/// Memory that a writer uses, if nothing else is said.
const MEMORY_BUDGET: usize = 64 << 20;
/// Entries of user metadata that a file may have.
const MAX_ENTRIES: usize = 16;
/// Bytes that the key of an entry may have.
const MAX_KEY_LEN: usize = 64;

/// How a file is written.
///
/// ```
/// # use vortex_core::{Level, write::WriteOptions};
/// let options = WriteOptions::new().with_level(Level::Compact).with_min_reader("0.54".parse()?);
/// # Ok::<(), vortex_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct WriteOptions {
    pub(super) level: Level,
    pub(super) min_reader: Option<Release>,
    pub(super) memory_budget: usize,
    pub(super) metadata: Vec<(Arc<str>, Bytes)>,
    pub(super) checksums: bool,
    pub(super) segment_compression: Option<SegmentCompression>,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self {
            level: Level::default(),
            min_reader: None,
            memory_budget: MEMORY_BUDGET,
            metadata: Vec::new(),
            checksums: false,
            segment_compression: None,
        }
    }
}

impl WriteOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// What to spend time on.
    #[must_use]
    pub fn with_level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// The oldest release of the reference implementation that must read the file; all later
    /// ones do as well. By default an old one, or the first that knows the types of the file.
    #[must_use]
    pub fn with_min_reader(mut self, release: Release) -> Self {
        self.min_reader = Some(release);
        self
    }

    /// Bytes that the writer may hold in memory, about. A file of very many columns takes what
    /// 64 KiB for each of them take, and some 200 KiB for each of text that repeats, if that is more.
    #[must_use]
    pub fn with_memory_budget(mut self, bytes: usize) -> Self {
        self.memory_budget = bytes;
        self
    }

    /// Whether the file keeps checksums of all its parts, 8 bytes per segment. Readers hold what
    /// they read against them [if asked to](crate::file::OpenOptions::with_checksums); those of
    /// the reference implementation pass them over.
    #[must_use]
    pub fn with_checksums(mut self, checksums: bool) -> Self {
        self.checksums = checksums;
        self
    }

    /// Compresses every segment as a whole, on top of its encodings. No release of the reference
    /// implementation reads such a file; most data is smaller at
    /// [`Level::Compact`](crate::Level::Compact).
    #[must_use]
    pub fn with_segment_compression(mut self, scheme: SegmentCompression) -> Self {
        self.segment_compression = Some(scheme);
        self
    }

    /// Adds an entry of user metadata, which readers hand out as it is; one of the same key is
    /// replaced.
    ///
    /// # Errors
    /// If the key is empty, longer than 64 bytes, or there are 14 entries already: the writer
    /// keeps two for itself.
    pub fn with_metadata(mut self, key: &str, value: impl Into<Bytes>) -> Result<Self> {
        if key.is_empty() || key.len() > MAX_KEY_LEN {
            return Err(Error::invalid(format!(
                "metadata key of {} bytes, 1 to {MAX_KEY_LEN} allowed",
                key.len()
            )));
        }
        if key.starts_with(super::OWN_KEYS) {
            return Err(Error::invalid(format!(
                "metadata keys that start with `{}` are taken",
                super::OWN_KEYS
            )));
        }
        self.metadata.retain(|(present, _)| **present != *key);
        if self.metadata.len() == MAX_ENTRIES - 2 {
            return Err(Error::invalid(format!("more than {} entries of metadata", MAX_ENTRIES - 2)));
        }
        self.metadata.push((key.into(), value.into()));
        Ok(self)
    }
}
