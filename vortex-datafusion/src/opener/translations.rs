//! Filters in terms of the core, which files of the same columns share: filters may have thousands of constants, and
//! tables thousands of files.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion_common::Result;
use datafusion_datasource::TableSchema;
use datafusion_physical_expr_adapter::PhysicalExprAdapterFactory;
use parking_lot::Mutex;
use vortex_core::dtype::DType;
use vortex_core::expr::Expr;

use super::constants::differs_by_file;
use crate::pushdown::Filters;

/// The filter of a scan for the latest kind of file.
#[derive(Debug)]
pub(crate) struct Translations {
    /// Whether files of the same columns have the same filter.
    are_shared: bool,
    latest: Mutex<Option<Translated>>,
}

/// A filter for files of these columns; `None` if no row of these passes.
#[derive(Debug)]
struct Translated {
    physical: SchemaRef,
    dtype: DType,
    filter: Option<Expr>,
}

impl Translations {
    /// For these filters, which `adapters` adapt to files in another way than DataFusion does.
    pub(crate) fn new(
        filters: &Filters,
        table: &TableSchema,
        adapters: Option<&Arc<dyn PhysicalExprAdapterFactory>>,
    ) -> Self {
        let are_shared = adapters.is_none() && !filters.all().any(|filter| differs_by_file(filter, table));
        Self { are_shared, latest: Mutex::default() }
    }

    /// The filter for files of type `dtype` that are decoded to a physical schema, which `translate` translates.
    ///
    /// # Errors
    /// Those of `translate`.
    pub(super) fn get(
        &self,
        physical: &SchemaRef,
        dtype: &DType,
        translate: impl FnOnce() -> Result<Option<Expr>>,
    ) -> Result<Option<Expr>> {
        if !self.are_shared {
            return translate();
        }
        if let Some(latest) = &*self.latest.lock()
            && latest.physical == *physical
            && latest.dtype == *dtype
        {
            return Ok(latest.filter.clone());
        }
        let filter = translate()?;
        let (physical, dtype) = (Arc::clone(physical), dtype.clone());
        *self.latest.lock() = Some(Translated { physical, dtype, filter: filter.clone() });
        Ok(filter)
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion_expr::Operator;
    use datafusion_physical_expr::expressions::{binary, col, lit};
    use vortex_core::dtype::arrow::from_schema;
    use vortex_core::expr::column;

    use super::*;
    use crate::options::VortexOptions;

    #[test]
    fn files_of_the_same_columns_share_their_filter_unless_it_reads_what_differs() {
        let file = |name: &str| Arc::new(Schema::new(vec![Field::new(name, DataType::Int64, true)]));
        let folder = Arc::new(Field::new("p", DataType::Int64, false));
        let table = TableSchema::builder(file("c")).with_table_partition_cols(vec![folder]).build();
        for (read, translated) in [("c", [1, 1, 2, 3]), ("p", [1, 2, 3, 4])] {
            let schema = table.table_schema();
            let mut filters = Filters::default();
            let filter = binary(col(read, schema).unwrap(), Operator::Gt, lit(3i64), schema).unwrap();
            filters.offer(filter, &table, &VortexOptions::default());
            let translations = Translations::new(&filters, &table, None);
            let mut count = 0;
            let counts = ["c", "c", "d", "c"].map(|name| {
                let physical = file(name);
                let dtype = from_schema(&physical).unwrap();
                let translate = || {
                    count += 1;
                    Ok(Some(column(name).gt(3)))
                };
                let filter = translations.get(&physical, &dtype, translate).unwrap();
                assert_eq!(filter.unwrap().to_string(), format!("{name} > 3"));
                count
            });
            assert_eq!(counts, translated, "{read}");
        }
    }
}
