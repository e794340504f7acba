//! Files that are bytes in memory.

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
        let within = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
        match within {
            Some((start, end)) if start <= end && end <= self.bytes.len() => Ok(self.bytes.slice(start..end)),
            _ => Err(Error::read("memory", range, format!("only {} bytes", self.bytes.len()))),
        }
    }

    fn profile(&self) -> StorageProfile {
        StorageProfile::MEMORY
    }
}
