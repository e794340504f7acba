//! A source of one's own: anything that can read a range of bytes. This one counts.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt as _;
use vortex_core::io::{LocalFile, ReadAt, StorageProfile};
use vortex_core::{Result, VortexFile};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/lineitem.vortex");

#[derive(Debug)]
struct Counting {
    inner: LocalFile,
    bytes: AtomicU64,
}

#[async_trait]
impl ReadAt for Counting {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn len(&self) -> Result<u64> {
        self.inner.len().await
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        self.bytes.fetch_add(range.end - range.start, Ordering::Relaxed);
        self.inner.read(range).await
    }

    fn profile(&self) -> StorageProfile {
        self.inner.profile()
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let source = Arc::new(Counting { inner: LocalFile::open(FILE)?, bytes: AtomicU64::new(0) });
    let file = VortexFile::open(Arc::clone(&source) as Arc<dyn ReadAt>).await?;
    println!("opening read {} of {} bytes", source.bytes.load(Ordering::Relaxed), file.footer().file_size());

    let scan = file.scan().with_projection(["l_shipdate"]);
    let rows: usize = scan
        .into_stream()?
        .map_ok(|batch| batch.num_rows())
        .try_fold(0, |sum, n| async move { Ok(sum + n) })
        .await?;
    println!("{rows} dates, {} bytes read in all", source.bytes.load(Ordering::Relaxed));
    Ok(())
}
