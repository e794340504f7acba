//! What DataFusion gets wrong in Parquet files.
//!
//! Minima and maxima of floats leave out NaN. If they are equal, DataFusion 55 would take each value for that one, and
//! it would answer `max` with the greatest number, although NaN is above it. See `tests/it/upstream/statistics.rs`:
//! `statistics_of_parquet_files_leave_out_nan`.

use arrow::datatypes::{DataType, Schema};
use datafusion::common::Statistics;

/// The unit in which timestamps of 96 bits are read: they may be any day, of which those outside of 1677 to 2262 would
/// be taken for others in nanoseconds. Spark writes no finer ones.
pub(crate) const INT96_UNIT: &str = "us";

/// The statistics of a file with these columns, as estimates where NaN is left out.
pub(super) fn with_estimates_of_floats(mut known: Statistics, schema: &Schema) -> Statistics {
    for (column, field) in known.column_statistics.iter_mut().zip(schema.fields()) {
        if holds_floats(field.data_type()) {
            column.min_value = column.min_value.clone().to_inexact();
            column.max_value = column.max_value.clone().to_inexact();
        }
    }
    known
}

fn holds_floats(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => holds_floats(values),
        DataType::RunEndEncoded(_, values) => holds_floats(values.data_type()),
        other => other.is_floating(),
    }
}
