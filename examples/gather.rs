//! Fetch single rows by their position, blocking, without a runtime of one's own.

use arrow::util::pretty::print_batches;
use futures::executor::block_on;
use std::sync::Arc;
use vortex_core::VortexFile;
use vortex_core::io::MemoryFile;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/lineitem.vortex");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Any bytes will do: here a file that is already in memory.
    let file = block_on(VortexFile::open(Arc::new(MemoryFile::new(std::fs::read(FILE)?))))?;
    let last = file.row_count() - 1;
    let reader = file
        .scan()
        .with_projection(["l_orderkey", "l_linenumber", "l_comment"])
        .with_row_indices([0, 17, last])
        .into_reader()?;
    let batches = reader.collect::<Result<Vec<_>, _>>()?;
    print_batches(&batches)?;
    Ok(())
}
