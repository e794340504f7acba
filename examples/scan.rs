//! Scan without a query engine: some columns, a filter, and batches as they are decoded.

use std::sync::Arc;

use arrow::util::pretty::print_batches;
use futures::TryStreamExt as _;
use vortex_core::VortexFile;
use vortex_core::expr::{Expr, column};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/lineitem.vortex");

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = VortexFile::open_path(FILE).await?;
    println!("{} rows of {}", file.row_count(), file.footer().dtype());

    let scan = file
        .scan()
        .with_projection(["l_orderkey", "l_shipmode", "l_comment"])
        .with_filter(Expr::all([column("l_orderkey").lt(100), column("l_comment").like("%regular%")]));
    let metrics = Arc::clone(scan.metrics());
    let batches: Vec<_> = scan.into_stream()?.try_collect().await?;
    print_batches(&batches)?;
    for (name, value) in metrics.snapshot() {
        println!("{name:>24} {value}");
    }
    Ok(())
}
