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

/// Kinds of files of which filters are kept: a table may get a column now and then, and files of all kinds alternate.
const MAX_KINDS: usize = 4;

/// The filter of a scan for the latest kinds of files.
#[derive(Debug)]
pub(crate) struct Translations {
    /// Whether files of the same columns have the same filter.
    are_shared: bool,
    /// The last one was used last.
    latest: Mutex<Vec<Translated>>,
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
        let is_kind = |kept: &Translated| kept.physical == *physical && kept.dtype == *dtype;
        let mut latest = self.latest.lock();
        if let Some(at) = latest.iter().rposition(is_kind) {
            latest[at..].rotate_left(1);
            return Ok(latest.last().and_then(|kept| kept.filter.clone()));
        }
        drop(latest);
        let filter = translate()?;
        let (physical, dtype) = (Arc::clone(physical), dtype.clone());
        let mut latest = self.latest.lock();
        if latest.len() == MAX_KINDS {
            latest.remove(0);
        }
        latest.push(Translated { physical, dtype, filter: filter.clone() });
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
        let (of_file, of_folder) = ([1, 1, 2, 2, 3, 4, 5, 5, 6], [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        for (read, translated) in [("c", of_file), ("p", of_folder)] {
            let schema = table.table_schema();
            let mut filters = Filters::default();
            let filter = binary(col(read, schema).unwrap(), Operator::Gt, lit(3i64), schema).unwrap();
            filters.offer(filter, &table, &VortexOptions::default());
            let translations = Translations::new(&filters, &table, None);
            let mut count = 0;
            let counts = ["c", "c", "d", "c", "e", "f", "g", "c", "d"].map(|name| {
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
