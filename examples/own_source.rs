//! A table over a custom source, which is anything that can read a range of bytes. This one is in memory, and
//! counts bytes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::prelude::SessionContext;
use vortex_datafusion::VortexTable;
use vortex_datafusion::vortex_core::Result;
use vortex_datafusion::vortex_core::io::{ReadAt, StorageProfile};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/lineitem.vortex");

#[derive(Debug)]
struct Counting {
    bytes: Bytes,
    read: AtomicU64,
}

#[async_trait]
impl ReadAt for Counting {
    fn name(&self) -> &str {
        "lineitem in memory"
    }

    async fn len(&self) -> Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        self.read.fetch_add(range.end - range.start, Ordering::Relaxed);
        // The range lies within the length stated above.
        Ok(self.bytes.slice(range.start as usize..range.end as usize))
    }

    fn profile(&self) -> StorageProfile {
        StorageProfile::LOCAL
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = Arc::new(Counting { bytes: std::fs::read(FILE)?.into(), read: AtomicU64::new(0) });
    let table = VortexTable::open([Arc::clone(&source) as Arc<dyn ReadAt>]).await?;
    println!("opening read {} of {} bytes", source.read.load(Ordering::Relaxed), source.bytes.len());

    let ctx = SessionContext::new();
    vortex_datafusion::register(&ctx)?;
    ctx.register_table("lineitem", Arc::new(table))?;
    ctx.sql("SELECT min(l_comment), max(l_comment) FROM lineitem WHERE l_shipmode = 'AIR'")
        .await?
        .show()
        .await?;
    println!("{} bytes were read in total", source.read.load(Ordering::Relaxed));
    Ok(())
}
