//! What unit tests start from: files written for one test, where they are stored, and pools without memory.

use std::borrow::Borrow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use crate::io::{MemoryFile, MemoryPool, MemorySink, ReadAt, StorageProfile};
use crate::write::{FileWriter, WriteOptions};
use crate::{Result, VortexFile};

/// The bytes of a file with the rows of one or more batches.
pub(crate) async fn written<B: Borrow<RecordBatch>>(
    batches: impl IntoIterator<Item = B>,
    options: WriteOptions,
) -> Bytes {
    let mut batches = batches.into_iter().peekable();
    let schema = batches.peek().expect("a batch").borrow().schema();
    let sink = MemorySink::new();
    let mut writer = FileWriter::try_new(sink.clone(), schema, options).unwrap();
    for batch in batches {
        writer.write(batch.borrow()).await.unwrap();
    }
    writer.finish().await.unwrap();
    sink.bytes().expect("a complete file")
}

/// A file in memory.
pub(crate) async fn opened(bytes: impl Into<Bytes>) -> VortexFile {
    VortexFile::open(Arc::new(MemoryFile::new(bytes))).await.unwrap()
}

/// A file in memory with the rows of one or more batches, written with default options.
pub(crate) async fn file_of<B: Borrow<RecordBatch>>(batches: impl IntoIterator<Item = B>) -> VortexFile {
    opened(written(batches, WriteOptions::new()).await).await
}

/// A file whose bytes have to be fetched from storage.
#[derive(Debug)]
pub(crate) struct Stored {
    file: MemoryFile,
    profile: Mutex<StorageProfile>,
    delay: Duration,
    in_flight: AtomicU64,
    /// The number of reads that started while no other was in flight.
    pub(crate) alone: AtomicU64,
}

impl Stored {
    pub(crate) fn new(bytes: impl Into<Bytes>, profile: StorageProfile) -> Self {
        let (delay, in_flight, alone) = Default::default();
        Self { file: MemoryFile::new(bytes), profile: Mutex::new(profile), delay, in_flight, alone }
    }

    /// Sets the time that reads take.
    pub(crate) fn with_delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// Storage turns out to be of another kind.
    pub(crate) fn becomes(&self, profile: StorageProfile) {
        *self.profile.lock() = profile;
    }
}

#[async_trait]
impl ReadAt for Stored {
    fn name(&self) -> &str {
        "stored"
    }

    async fn len(&self) -> Result<u64> {
        self.file.len().await
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        if self.in_flight.fetch_add(1, Ordering::SeqCst) == 0 {
            self.alone.fetch_add(1, Ordering::SeqCst);
        }
        if self.delay > Duration::ZERO {
            tokio::time::sleep(self.delay).await;
        }
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        self.file.read(range).await
    }

    fn profile(&self) -> StorageProfile {
        *self.profile.lock()
    }
}

/// A pool without memory, which counts how often it is asked for some.
#[derive(Debug, Default)]
pub(crate) struct Refuses(pub(crate) AtomicU64);

impl MemoryPool for Refuses {
    fn try_grow(&self, _bytes: u64) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn shrink(&self, _bytes: u64) {}
}
