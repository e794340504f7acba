//! A table with far more columns than are ever read: 3,000 columns, 1,000 rows.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringViewArray,
    TimestampMicrosecondArray,
};

use super::random::{heavy_tailed, mix, one_in, unit};
use super::{Batches, FileSource, Table};

const COLUMNS: u64 = 3_000;
const ROWS: u64 = 1_000;
const STATES: [&str; 5] = ["idle", "running", "waiting", "failed", "unknown"];
const START_MICROS: i64 = 1_740_787_200_000_000;

/// The table, in one file. Column `c0007` is the eighth; types repeat every six columns.
pub(super) fn table() -> Table {
    let columns = (0..COLUMNS).map(|i| (format!("c{i:04}"), column(i)));
    let batch = RecordBatch::try_from_iter(columns).expect("columns have one length");
    let schema = batch.schema();
    let rows = move || -> Batches { Box::new(std::iter::once(Ok(batch.clone()))) };
    Table { name: "wide", files: vec![FileSource { schema, rows: Box::new(rows) }] }
}

fn column(index: u64) -> ArrayRef {
    let hashes = (0..ROWS).map(move |row| mix(index << 32 | row));
    match index % 6 {
        0 => Arc::new(Int64Array::from_iter_values((0..ROWS).map(|row| (row * 3 + index) as i64))),
        1 => Arc::new(Float64Array::from_iter_values(hashes.map(|hash| unit(hash) * 100.0))),
        2 => Arc::new(Int32Array::from_iter_values(hashes.map(|hash| heavy_tailed(hash, 1_000, 3) as i32))),
        3 => Arc::new(StringViewArray::from_iter_values(hashes.map(|hash| STATES[(hash % 5) as usize]))),
        4 => Arc::new(TimestampMicrosecondArray::from_iter_values(
            hashes.map(|hash| START_MICROS + (hash % 1_000_000_000) as i64),
        )),
        _ => Arc::new(BooleanArray::from(hashes.map(|hash| one_in(hash, 50)).collect::<Vec<_>>())),
    }
}
