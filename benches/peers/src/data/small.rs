//! A table in many small files with few rows each, and 8 columns.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringViewArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::error::DataFusionError;

use super::random::{heavy_tailed, mix, one_in, unit};
use super::{Batches, FileSource, Table};

/// Rows per file; fewer if there are thousands of files.
const ROWS: u64 = 2_000;
const FEW_ROWS: u64 = 100;
const STATES: [&str; 4] = ["ok", "late", "retry", "lost"];
const START_MICROS: i64 = 1_740_787_200_000_000;

/// The table; `id` and `taken_at` increase from file to file.
pub(super) fn table(files: u64) -> Table {
    let schema = schema();
    let rows = if files < 1_000 { ROWS } else { FEW_ROWS };
    let files = (0..files).map(|file| {
        let schema = Arc::clone(&schema);
        let make = {
            let schema = Arc::clone(&schema);
            move || -> Batches {
                let batch =
                    RecordBatch::try_new(Arc::clone(&schema), columns(file * rows..(file + 1) * rows))
                        .map_err(|error| DataFusionError::ArrowError(Box::new(error), None));
                Box::new(std::iter::once(batch))
            }
        };
        FileSource { schema, rows: Box::new(make) }
    });
    Table { name: "readings", files: files.collect() }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("taken_at", DataType::Timestamp(TimeUnit::Microsecond, None), false),
        Field::new("device_id", DataType::Int32, false),
        Field::new("state", DataType::Utf8View, false),
        Field::new("level", DataType::Float64, false),
        Field::new("retries", DataType::Int32, true),
        Field::new("is_final", DataType::Boolean, false),
        Field::new("note", DataType::Utf8View, false),
    ]))
}

fn columns(rows: Range<u64>) -> Vec<ArrayRef> {
    let hashes = |salt: u64| rows.clone().map(move |row| mix(mix(row) ^ salt));
    vec![
        Arc::new(Int64Array::from_iter_values(rows.clone().map(|row| row as i64))),
        Arc::new(TimestampMicrosecondArray::from_iter_values(
            rows.clone().map(|row| START_MICROS + row as i64 * 750_000),
        )),
        Arc::new(Int32Array::from_iter_values(hashes(1).map(|hash| heavy_tailed(hash, 900, 2) as i32))),
        Arc::new(StringViewArray::from_iter_values(
            hashes(2).map(|hash| STATES[heavy_tailed(hash, 4, 4) as usize]),
        )),
        Arc::new(Float64Array::from_iter_values(hashes(3).map(|hash| (unit(hash) * 1e4).round() / 100.0))),
        Arc::new(Int32Array::from_iter(hashes(4).map(|hash| one_in(hash, 8).then_some((hash >> 60) as i32)))),
        Arc::new(BooleanArray::from(hashes(5).map(|hash| one_in(hash, 20)).collect::<Vec<_>>())),
        Arc::new(StringViewArray::from_iter_values(hashes(6).map(|hash| {
            if one_in(hash, 10) {
                format!("checked by {} in round {}", hash % 97, hash % 1_009)
            } else {
                String::new()
            }
        }))),
    ]
}
