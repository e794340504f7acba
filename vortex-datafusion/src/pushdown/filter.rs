//! Filters: which ones the scan guarantees, and which it only uses to skip data.
//!
//! Accepting a filter is a promise: the scan returns no row for which the filter is false or NULL, exactly as
//! DataFusion evaluates it. Every deterministic filter over the columns of the table can be accepted, since
//! filters that encodings cannot answer are evaluated by DataFusion's own code on decoded columns. Dynamic
//! filters are never accepted, although the answer is yes: the operator that produces them is correct without
//! the scan, so the scan is free to apply them only where that is worthwhile, and nobody else needs to. If it
//! were no, sorts in between would evaluate them as if they were part of the query, and lose rows of joins on
//! floats and on nested keys (`tests/it/upstream/keys.rs`: `sorts_evaluate_filters_that_no_scan_takes`). Volatile
//! filters do not even serve to skip data: the rows above the scan are compared with other random numbers than those by
//! which it would have skipped them.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_common::tree_node::TreeNode as _;
use datafusion_datasource::TableSchema;
use datafusion_functions::core::file_row_index::FileRowIndexFunc;
use datafusion_physical_expr::PhysicalExpr;
use datafusion_physical_expr::expressions::{Column, DynamicFilterPhysicalExpr};
use datafusion_physical_expr::utils::{collect_columns, conjunction};
use datafusion_physical_expr_adapter::rewrite::expr_references_scalar_udf;
use datafusion_physical_plan::filter_pushdown::PushedDown;
use vortex_core::dtype::arrow::from_schema;

use crate::convert::{Translator, is_dynamic, is_volatile};
use crate::options::VortexOptions;

/// The filters a scan has been offered, over the columns of its table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filters {
    accepted: Vec<Arc<dyn PhysicalExpr>>,
    hints: Vec<Arc<dyn PhysicalExpr>>,
}

impl Filters {
    /// Filters that were offered in another process.
    #[cfg(feature = "proto")]
    pub(crate) fn new(accepted: Vec<Arc<dyn PhysicalExpr>>, hints: Vec<Arc<dyn PhysicalExpr>>) -> Self {
        Self { accepted, hints }
    }

    /// Adds a filter, and returns whether the plan may drop it.
    pub(crate) fn offer(
        &mut self,
        filter: Arc<dyn PhysicalExpr>,
        table: &TableSchema,
        options: &VortexOptions,
    ) -> PushedDown {
        let not_accepted = if is_dynamic(&filter) { PushedDown::Yes } else { PushedDown::No };
        if !reads_only(&filter, table) || has_unusable_key(&filter, table) || is_volatile(&filter) {
            return not_accepted;
        }
        // The same filter may be offered again by a later optimizer pass.
        let keep = |kept: &mut Vec<Arc<dyn PhysicalExpr>>| {
            if !kept.contains(&filter) {
                kept.push(Arc::clone(&filter));
            }
        };
        if options.predicate_pushdown && is_exact(&filter, table, options) {
            keep(&mut self.accepted);
            PushedDown::Yes
        } else {
            keep(&mut self.hints);
            not_accepted
        }
    }

    /// Only the filters that all returned rows satisfy.
    pub(crate) fn without_hints(&self) -> Self {
        Self { accepted: self.accepted.clone(), hints: Vec::new() }
    }

    /// Drops the dynamic filters with these ids.
    pub(crate) fn ignore(&mut self, ids: &[u64]) {
        let has_id =
            |node: &Arc<dyn PhysicalExpr>| Ok(node.expression_id().is_some_and(|id| ids.contains(&id)));
        self.hints.retain(|filter| !filter.exists(has_id).unwrap_or(true));
    }

    /// Filters that all returned rows satisfy.
    pub(crate) fn accepted(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.accepted
    }

    /// Filters that are checked above the scan, which may use them to skip data.
    pub(crate) fn hints(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.hints
    }

    /// The conjunction of the accepted filters.
    pub(crate) fn accepted_conjunction(&self) -> Option<Arc<dyn PhysicalExpr>> {
        (!self.accepted.is_empty()).then(|| conjunction(self.accepted.iter().cloned()))
    }

    /// All filters, accepted or not.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<dyn PhysicalExpr>> {
        self.accepted.iter().chain(&self.hints)
    }

    /// Whether any filter changes while the query runs.
    pub(crate) fn is_dynamic(&self) -> bool {
        self.hints.iter().any(is_dynamic)
    }
}

/// Whether the filter reads only columns of files and partition columns.
fn reads_only(filter: &Arc<dyn PhysicalExpr>, table: &TableSchema) -> bool {
    let readable = table.schema_without_virtual_columns();
    let known = |column: &Column| {
        readable.fields().get(column.index()).is_some_and(|field| field.name() == column.name())
    };
    collect_columns(filter).iter().all(known)
}

/// Whether this is the filter of a join on keys that DataFusion 55 mishandles while it makes the filter, which it
/// does only for scans that keep it:
/// - It fails to compute bounds of runs, and of types like lists of lists.
/// - Once it has bounds of integers, it fails to find them in dictionaries.
/// - It does not see that values of type Null are null, and the filter rejects them although nulls may be equal.
///
/// `tests/it/upstream/keys.rs` has a test of each.
fn has_unusable_key(filter: &Arc<dyn PhysicalExpr>, table: &TableSchema) -> bool {
    let is_unusable = |key: &&Arc<dyn PhysicalExpr>| match key.data_type(table.table_schema()) {
        Ok(DataType::Null | DataType::RunEndEncoded(..)) => true,
        Ok(DataType::Dictionary(_, values)) if values.is_integer() => true,
        Ok(data_type) => data_type.is_nested(),
        Err(_) => false,
    };
    let found = filter
        .exists(|node| Ok(node.is::<DynamicFilterPhysicalExpr>() && node.children().iter().any(is_unusable)));
    found.unwrap_or(true)
}

fn is_exact(filter: &Arc<dyn PhysicalExpr>, table: &TableSchema, options: &VortexOptions) -> bool {
    // The scan takes from a filter on numbers of rows which rows to read, but does not evaluate it.
    if is_dynamic(filter) || expr_references_scalar_udf::<FileRowIndexFunc>(filter) {
        return false;
    }
    let file_columns = table.file_schema().fields().len();
    options.fallback_filter_eval
        || collect_columns(filter).iter().all(|column| column.index() >= file_columns)
        || from_schema(table.file_schema())
            .is_ok_and(|dtype| Translator::new(table.file_schema(), &dtype).translate(filter).is_some())
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, Schema};
    use datafusion_common::config::ConfigOptions;
    use datafusion_expr::{ColumnarValue, Operator, ScalarUDF, Volatility, create_udf};
    use datafusion_physical_expr::ScalarFunctionExpr;
    use datafusion_physical_expr::expressions::{binary, col, is_null, lit};

    use super::*;

    fn table() -> TableSchema {
        let file = Arc::new(Schema::new(vec![Field::new("a", DataType::Int32, true)]));
        let partition = Arc::new(Field::new("p", DataType::Utf8, false));
        TableSchema::builder(file).with_table_partition_cols(vec![partition]).build()
    }

    fn native() -> Arc<dyn PhysicalExpr> {
        let schema = Arc::clone(table().table_schema());
        binary(col("a", &schema).unwrap(), Operator::Lt, lit(3i32), &schema).unwrap()
    }

    fn foreign() -> Arc<dyn PhysicalExpr> {
        let schema = Arc::clone(table().table_schema());
        let odd = binary(col("a", &schema).unwrap(), Operator::Modulo, lit(2i32), &schema).unwrap();
        binary(odd, Operator::Eq, lit(1i32), &schema).unwrap()
    }

    fn accepts(filter: Arc<dyn PhysicalExpr>, options: &VortexOptions) -> bool {
        let mut filters = Filters::default();
        matches!(filters.offer(filter, &table(), options), PushedDown::Yes)
    }

    #[test]
    fn every_deterministic_filter_is_accepted() {
        let options = VortexOptions::default();
        assert!(accepts(native(), &options));
        assert!(accepts(foreign(), &options));
        let schema = Arc::clone(table().table_schema());
        let partition = binary(col("p", &schema).unwrap(), Operator::Eq, lit("x"), &schema).unwrap();
        assert!(accepts(partition, &options));
    }

    #[test]
    fn options_narrow_what_is_accepted() {
        let native_only = VortexOptions { fallback_filter_eval: false, ..VortexOptions::default() };
        assert!(accepts(native(), &native_only));
        assert!(!accepts(foreign(), &native_only));
        let nothing = VortexOptions { predicate_pushdown: false, ..VortexOptions::default() };
        assert!(!accepts(native(), &nothing));
    }

    fn call(function: ScalarUDF) -> Arc<dyn PhysicalExpr> {
        let (function, config) = (Arc::new(function), Arc::new(ConfigOptions::new()));
        Arc::new(ScalarFunctionExpr::try_new(function, vec![], table().table_schema(), config).unwrap())
    }

    #[test]
    fn a_filter_on_drawn_values_is_not_even_kept() {
        let schema = Arc::clone(table().table_schema());
        let draw = || {
            let drawn = Arc::new(|_: &[ColumnarValue]| Ok(ColumnarValue::Scalar(4i32.into())));
            call(create_udf("draw", vec![], DataType::Int32, Volatility::Volatile, drawn))
        };
        let compared = binary(col("a", &schema).unwrap(), Operator::Gt, draw(), &schema).unwrap();
        let dynamic = DynamicFilterPhysicalExpr::new(vec![draw()], lit(true));
        for (filter, must_be_evaluated) in [(compared, true), (Arc::new(dynamic) as _, false)] {
            let mut filters = Filters::default();
            let answer = filters.offer(filter, &table(), &VortexOptions::default());
            assert_eq!(matches!(answer, PushedDown::No), must_be_evaluated);
            assert!(filters.all().next().is_none());
        }
    }

    #[test]
    fn a_filter_on_numbers_of_rows_is_kept_but_not_accepted() {
        let number = call(ScalarUDF::from(FileRowIndexFunc::new()));
        let few = binary(number, Operator::Lt, lit(5i64), table().table_schema()).unwrap();
        let mut filters = Filters::default();
        assert!(matches!(filters.offer(few, &table(), &VortexOptions::default()), PushedDown::No));
        assert_eq!((filters.accepted().len(), filters.hints().len()), (0, 1));
    }

    #[test]
    fn a_dynamic_filter_is_kept_but_not_accepted() {
        let schema = Arc::clone(table().table_schema());
        let column = col("a", &schema).unwrap();
        let dynamic: Arc<dyn PhysicalExpr> =
            Arc::new(DynamicFilterPhysicalExpr::new(vec![column], lit(true)));
        let mut filters = Filters::default();
        let options = VortexOptions::default();
        assert!(matches!(filters.offer(Arc::clone(&dynamic), &table(), &options), PushedDown::Yes));
        filters.offer(dynamic, &table(), &options);
        assert!(filters.is_dynamic());
        assert_eq!(filters.all().count(), 1);
        assert!(filters.accepted_conjunction().is_none());
    }

    #[test]
    fn a_dynamic_filter_is_kept_unless_its_keys_are_nested() {
        let list = Arc::new(Schema::new(vec![Field::new_list(
            "l",
            Field::new_list_field(DataType::Int8, true),
            true,
        )]));
        let table = TableSchema::from(&list);
        let column = col("l", &list).unwrap();
        for (key, is_kept) in [(is_null(Arc::clone(&column)).unwrap(), true), (column, false)] {
            assert_eq!(is_dynamic_filter_kept(vec![key], &table), is_kept);
        }
    }

    #[test]
    fn a_dynamic_filter_is_kept_unless_joins_cannot_make_it_from_its_keys() {
        let dictionary = |of| DataType::Dictionary(Box::new(DataType::Int32), Box::new(of));
        let ends = Arc::new(Field::new("run_ends", DataType::Int32, false));
        let runs = DataType::RunEndEncoded(ends, Arc::new(Field::new("values", DataType::Int64, true)));
        for (key, is_kept) in [
            (DataType::Int64, true),
            (DataType::Utf8View, true),
            (dictionary(DataType::Utf8), true),
            (dictionary(DataType::Int64), false),
            (runs, false),
            (DataType::Null, false),
        ] {
            let fields = vec![Field::new("a", DataType::Int32, true), Field::new("k", key.clone(), true)];
            let schema = Arc::new(Schema::new(fields));
            let keys = vec![col("a", &schema).unwrap(), col("k", &schema).unwrap()];
            assert_eq!(is_dynamic_filter_kept(keys, &TableSchema::from(&schema)), is_kept, "{key}");
        }
    }

    fn is_dynamic_filter_kept(keys: Vec<Arc<dyn PhysicalExpr>>, table: &TableSchema) -> bool {
        let dynamic = Arc::new(DynamicFilterPhysicalExpr::new(keys, lit(true)));
        let mut filters = Filters::default();
        filters.offer(dynamic, table, &VortexOptions::default());
        filters.is_dynamic()
    }
}
