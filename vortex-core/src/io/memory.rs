//! Files held in memory.

use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;

use super::{ReadAt, StorageProfile};
use crate::{Error, Result};

/// A file held in memory.
#[derive(Debug, Clone)]
pub struct MemoryFile {
    bytes: Bytes,
}

impl MemoryFile {
    /// A file of these bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into() }
    }
}

#[async_trait]
impl ReadAt for MemoryFile {
    fn name(&self) -> &str {
        "memory"
    }

    async fn len(&self) -> Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let missing = || Error::read("memory", range.clone(), format!("only {} bytes", self.bytes.len()));
        self.at_hand(&range).ok_or_else(missing)
    }

    fn at_hand(&self, range: &Range<u64>) -> Option<Bytes> {
        let (start, end) = (usize::try_from(range.start).ok()?, usize::try_from(range.end).ok()?);
        (start <= end && end <= self.bytes.len()).then(|| self.bytes.slice(start..end))
    }

    fn contents(&self) -> Option<Bytes> {
        Some(self.bytes.clone())
    }

    fn profile(&self) -> StorageProfile {
        StorageProfile::MEMORY
    }
}
