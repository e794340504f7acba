//! Filters of joins on keys that DataFusion mishandles while it makes the filter.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, Int32Array, Int64Array, ListArray, NullArray, RecordBatch, RunArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type};
use datafusion::prelude::SessionContext;

use super::Plain;
use super::source::Table;

const WORKAROUND: &str = "`has_unusable_key` in pushdown/filter.rs";

/// A plain session with tables `x` and `y` of one column `k`, whose scans keep the filters that they are offered.
fn with_keys(keys: ArrayRef) -> Plain {
    let plain = Plain::new(1);
    let rows = RecordBatch::try_from_iter_with_nullable([("k", keys, true)]).unwrap();
    let register = |context: &SessionContext, name| {
        context.register_table(name, Arc::new(Table::new(rows.clone()))).unwrap();
    };
    register(&plain.context, "x");
    register(&plain.context, "y");
    plain
}

#[tokio::test]
async fn joins_cannot_find_integers_in_dictionaries() {
    let integers: ArrayRef = Arc::new(Int64Array::from_iter_values(1..10));
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Int64));
    let plain = with_keys(cast(&integers, &dictionary).unwrap());
    let sql = "SELECT count(*) FROM x JOIN y ON x.k = y.k";
    plain.assert_fails(sql, "Unsupported type for ArrayMap", WORKAROUND).await;
}

#[tokio::test]
async fn joins_cannot_compute_bounds_of_runs() {
    let ends = Int32Array::from(vec![2, 3]);
    let runs = RunArray::<Int32Type>::try_new(&ends, &Int64Array::from(vec![5, 6])).unwrap();
    let plain = with_keys(Arc::new(runs));
    // A comparison would cast them to integers.
    plain.assert_fails("SELECT k FROM x INTERSECT SELECT k FROM y", "RunEndEncoded", WORKAROUND).await;
}

#[tokio::test]
async fn joins_cannot_compute_bounds_of_lists_of_lists() {
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(1)]), Some([Some(2)])]);
    let offsets = lists.offsets().clone();
    let field = Arc::new(Field::new_list_field(lists.data_type().clone(), true));
    let nested = ListArray::new(field, offsets, Arc::new(lists), None);
    let plain = with_keys(Arc::new(nested));
    plain.assert_fails("SELECT count(*) FROM x JOIN y ON x.k = y.k", "List", WORKAROUND).await;
}

#[tokio::test]
async fn sorts_evaluate_filters_that_no_scan_takes() {
    let plain = Plain::new(1);
    plain.run("CREATE TABLE one AS SELECT 0e0 AS f").await;
    plain
        .run("CREATE TABLE zeros AS SELECT column1 AS a, column2 AS f FROM (VALUES (1, 0e0), (2, -0e0))")
        .await;
    let sql = "SELECT zeros.a FROM one JOIN zeros ON one.f = zeros.f ORDER BY zeros.a";
    let workaround = "`without_dynamic` in optimizer/tell_scans.rs and `offer` in pushdown/filter.rs";
    plain.assert_wrong(sql, &["1"], &["1", "2"], workaround).await;
}

#[tokio::test]
async fn joins_reject_equal_nulls_of_type_null() {
    let plain = with_keys(Arc::new(NullArray::new(6)));
    let sql = "SELECT count(*) FROM x JOIN y ON x.k IS NOT DISTINCT FROM y.k";
    plain.assert_wrong(sql, &["0"], &["36"], WORKAROUND).await;
}
