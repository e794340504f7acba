//! Scan without a query engine: some columns, a filter, batches as they are decoded.

use std::sync::Arc;

use arrow::util::pretty::print_batches;
use futures::TryStreamExt as _;
use vortex_core::expr::{CompareOp, Expr, Like, Predicate};
use vortex_core::io::LocalFile;
use vortex_core::scalar::Value;
use vortex_core::{DType, PType, Scalar, VortexFile};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/lineitem.vortex");

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = VortexFile::open(Arc::new(LocalFile::open(FILE)?)).await?;
    println!("{} rows of {}", file.row_count(), file.footer().dtype());

    let key = Scalar::try_new(DType::Primitive(PType::I64, false), Value::Int(100))?;
    let like = Like { pattern: "%regular%".into(), negated: false, case_insensitive: false };
    let scan =
        file.scan().with_projection(["l_orderkey", "l_shipmode", "l_comment"]).with_filter(Expr::all([
            Expr::compare("l_orderkey", CompareOp::Lt, key),
            Expr::Field("l_comment".into(), Predicate::Like(like)),
        ]));
    let metrics = Arc::clone(scan.metrics());
    let batches: Vec<_> = scan.into_stream()?.try_collect().await?;
    print_batches(&batches)?;
    for (name, value) in metrics.snapshot() {
        println!("{name:>24} {value}");
    }
    Ok(())
}
