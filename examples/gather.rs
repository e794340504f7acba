//! Fetch single rows by position with the blocking API, without an asynchronous runtime.

use arrow::util::pretty::print_batches;
use vortex_core::VortexFile;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/lineitem.vortex");

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = VortexFile::open_path_blocking(FILE)?;
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
