//! The eight tables of TPC-H, from the `tpchgen` crates.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

use super::{Batches, FileSource, Table};

/// All tables at one scale factor, each in one file.
pub(super) fn tables(scale: f64) -> Vec<Table> {
    vec![
        table("region", RegionArrow::schema_ref(), move || {
            RegionArrow::new(RegionGenerator::new(scale, 1, 1))
        }),
        table("nation", NationArrow::schema_ref(), move || {
            NationArrow::new(NationGenerator::new(scale, 1, 1))
        }),
        table("supplier", SupplierArrow::schema_ref(), move || {
            SupplierArrow::new(SupplierGenerator::new(scale, 1, 1))
        }),
        table("customer", CustomerArrow::schema_ref(), move || {
            CustomerArrow::new(CustomerGenerator::new(scale, 1, 1))
        }),
        table("part", PartArrow::schema_ref(), move || PartArrow::new(PartGenerator::new(scale, 1, 1))),
        table("partsupp", PartSuppArrow::schema_ref(), move || {
            PartSuppArrow::new(PartSuppGenerator::new(scale, 1, 1))
        }),
        table("orders", OrderArrow::schema_ref(), move || OrderArrow::new(OrderGenerator::new(scale, 1, 1))),
        table("lineitem", LineItemArrow::schema_ref(), move || {
            LineItemArrow::new(LineItemGenerator::new(scale, 1, 1))
        }),
    ]
}

/// Starting a generator is not cheap, so it waits until rows are asked for.
fn table<G>(name: &'static str, schema: SchemaRef, generator: impl Fn() -> G + Send + Sync + 'static) -> Table
where
    G: Iterator<Item = Result<RecordBatch, ArrowError>> + Send + 'static,
{
    let rows = move || -> Batches {
        Box::new(
            generator()
                .map(|batch| batch.map_err(|error| DataFusionError::ArrowError(Box::new(error), None))),
        )
    };
    Table { name, files: vec![FileSource { schema, rows: Box::new(rows) }] }
}
