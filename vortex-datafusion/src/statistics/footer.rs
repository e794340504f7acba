//! Statistics in a footer as DataFusion's [`Statistics`].
//!
//! `Exact` is a promise that planning relies on: `count(*)`, `min`, `max` and `sum` are then answered without
//! reading data. Anything less than certain is inexact or absent.

use arrow::datatypes::{DataType, Field, Fields, Schema};
use datafusion_common::stats::Precision;
use datafusion_common::{ColumnStatistics, ScalarValue, Statistics};
use vortex_core::dtype::arrow::presents;
use vortex_core::dtype::{DType, StructType};
use vortex_core::file::Footer;
use vortex_core::scalar::{Scalar, Value};
use vortex_core::stats::{FieldStats, Precision as Known};

use crate::convert::{is_zero, to_datafusion};

/// The statistics in a footer, for table providers that plan their own scans: one entry per column of
/// `table`, without partition columns. Exact values may be used to answer queries.
///
/// They are meant for a file. A scan should state null counts, sums, minima and maxima as inexact, as one that is
/// planned by [`VortexFormat`](crate::VortexFormat) does: DataFusion 55 takes exact sums below a join for those above
/// it, casts exact extremes together with their column, even if the cast changes the order of values, and answers
/// queries with the results.
pub fn statistics(footer: &Footer, table: &Schema) -> Statistics {
    let rows = footer.row_count();
    let columns = table.fields().iter().map(|field| match column(footer, field.name()) {
        Some((dtype, known)) => column_statistics(dtype, known, field, rows),
        // All rows read as null, or it is an error to read any.
        None if field.is_nullable() || rows == 0 => {
            ColumnStatistics { null_count: count(Some(rows)), ..ColumnStatistics::new_unknown() }
        }
        None => ColumnStatistics::new_unknown(),
    });
    let columns: Vec<_> = columns.collect();
    Statistics {
        num_rows: count(Some(rows)),
        total_byte_size: total_bytes(table, &columns),
        column_statistics: columns,
    }
}

/// The size of all columns, if each has a fixed width. With strings, a projection would keep the size of the
/// whole table (`Statistics::calculate_total_byte_size` of DataFusion 55), and an inner join that of its input,
/// however few rows it returns (`estimate_join_statistics`): further joins would choose the side with fewer
/// columns as the build side instead of the one with fewer rows. Without sizes they compare row counts. See
/// `tests/it/upstream/statistics.rs`: `a_projection_keeps_the_size_of_a_whole_table_with_text`.
fn total_bytes(table: &Schema, columns: &[ColumnStatistics]) -> Precision<usize> {
    if !table.fields().iter().all(|field| field.data_type().primitive_width().is_some()) {
        return Precision::Absent;
    }
    let mut sizes = columns.iter().map(|column| column.byte_size.get_value());
    let total = sizes.try_fold(0usize, |total, size| total.checked_add(*size?));
    total.map_or(Precision::Absent, Precision::Inexact)
}

/// Type and statistics of the column called `name`; `None` if the file lacks it.
fn column<'a>(footer: &'a Footer, name: &str) -> Option<(&'a DType, Option<&'a FieldStats>)> {
    let (at, dtype) = footer.dtype().column(name)?;
    Some((dtype, footer.column_statistics(at)))
}

fn column_statistics(
    dtype: &DType,
    known: Option<&FieldStats>,
    field: &Field,
    rows: u64,
) -> ColumnStatistics {
    // Only columns of fixed width have a size, as in `total_bytes`.
    let fixed = field.data_type().primitive_width().and_then(|width| u64::try_from(width).ok());
    let byte_size = fixed.and_then(|width| rows.checked_mul(width));
    let unknown = FieldStats::default();
    let known = known.unwrap_or(&unknown);
    let nulls = if dtype.is_nullable() { known.null_count } else { Some(0) };
    let to = field.data_type();
    // A null is an error then, which statistics must not hide.
    let contradicts = !field.is_nullable() && nulls != Some(0);
    let null_count = if is_as_declared(dtype, to) { count(nulls) } else { Precision::Absent };
    let found = ColumnStatistics {
        null_count,
        min_value: bound(known, &known.min, dtype, to),
        max_value: bound(known, &known.max, dtype, to),
        sum_value: sum(known, dtype, nulls, rows, to),
        distinct_count: distinct(known, nulls, rows),
        byte_size: inexact(byte_size),
    };
    if presents(dtype, to) && !contradicts {
        return found;
    }
    // A cast may join values, make a list of one null of a null, or fail: then, too, reading the rows is an error.
    let found = ColumnStatistics { distinct_count: Precision::Absent, ..found };
    let casts = |bound: &Known<Scalar>| {
        bound.value().is_some_and(|value| matches!(to_datafusion(value, to), Ok(Some(_))))
    };
    if !contradicts && casts(&known.min) && casts(&known.max) {
        return found;
    }
    let null_count = if to.is_nested() { Precision::Absent } else { found.null_count.to_inexact() };
    let (min_value, max_value) = (found.min_value.to_inexact(), found.max_value.to_inexact());
    ColumnStatistics { null_count, min_value, max_value, sum_value: Precision::Absent, ..found }
}

/// Whether fields and elements have the names that the table declares, and no nulls where it declares that there are
/// none. Reading others is an error, or casts them by name: statistics must not hide that.
fn is_as_declared(dtype: &DType, to: &DataType) -> bool {
    let field = |dtype: &DType, field: &Field| {
        (field.is_nullable() || !dtype.is_nullable()) && is_as_declared(dtype, field.data_type())
    };
    let fields = |stored: &StructType, declared: &Fields| {
        let mut pairs = stored.fields().zip(declared);
        stored.len() == declared.len()
            && pairs.all(|((name, dtype), declared)| **name == **declared.name() && field(dtype, declared))
    };
    match (dtype.storage(), to) {
        (DType::Struct(stored, _), DataType::Struct(declared)) => fields(stored, declared),
        (
            DType::List(element, _) | DType::FixedSizeList(element, ..),
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::ListView(item)
            | DataType::LargeListView(item)
            | DataType::FixedSizeList(item, _),
        ) => field(element, item),
        (DType::Map(map, _), DataType::Map(entries, _)) => match entries.data_type() {
            DataType::Struct(declared) => {
                let mut pairs = [map.key(), map.value()].into_iter().zip(declared);
                pairs.all(|(dtype, declared)| field(dtype, declared))
            }
            _ => false,
        },
        (DType::Union(stored, _), DataType::Union(declared, _)) => {
            let variants = stored.variants();
            let mut pairs = variants.fields().zip(declared.iter());
            variants.len() == declared.len()
                && pairs.all(|((name, dtype), (_, declared))| {
                    **name == **declared.name() && field(dtype, declared)
                })
        }
        (DType::Variant(_), _) => true,
        (dtype, DataType::Dictionary(_, values)) => is_as_declared(dtype, values),
        (dtype, DataType::RunEndEncoded(_, values)) => is_as_declared(dtype, values.data_type()),
        (_, to) => !to.is_nested(),
    }
}

fn count(value: Option<u64>) -> Precision<usize> {
    value.and_then(|value| usize::try_from(value).ok()).map_or(Precision::Absent, Precision::Exact)
}

fn inexact(value: Option<u64>) -> Precision<usize> {
    count(value).to_inexact()
}

/// A minimum or maximum in the table's type. Bounds of floats ignore NaN, which DataFusion orders above all
/// numbers, and do not distinguish the two zeros.
fn bound(known: &FieldStats, bound: &Known<Scalar>, dtype: &DType, to: &DataType) -> Precision<ScalarValue> {
    let is_float = matches!(dtype.storage(), DType::Primitive(ptype, _) if ptype.is_float());
    if is_float && known.nan_count != Some(0) {
        return Precision::Absent;
    }
    let Some(value) = bound.value() else { return Precision::Absent };
    match (to_datafusion(value, to), bound) {
        // Either zero may be stored for both: they compare as equal, but only one may occur.
        (Ok(Some(value)), _) if is_float && is_zero(&value) => Precision::Inexact(value),
        (Ok(Some(value)), Known::Exact(_)) => Precision::Exact(value),
        (Ok(Some(value)), Known::Inexact(_)) => Precision::Inexact(value),
        _ => Precision::Absent,
    }
}

/// The sum, if it does not depend on the order of additions: of integers and decimals, without overflow.
fn sum(
    known: &FieldStats,
    dtype: &DType,
    nulls: Option<u64>,
    rows: u64,
    to: &DataType,
) -> Precision<ScalarValue> {
    // SQL's sum of no values is NULL, not 0.
    let has_values = nulls.is_some_and(|nulls| nulls < rows);
    let Some(sum) = known.sum.as_ref().filter(|sum| has_values && !sum.is_null()) else {
        return Precision::Absent;
    };
    let value = match (dtype, sum.value(), to) {
        (DType::Primitive(..), Value::Int(sum), to) if to.is_signed_integer() => {
            ScalarValue::Int64(Some(*sum))
        }
        (DType::Primitive(..), Value::UInt(sum), to) if to.is_unsigned_integer() => {
            ScalarValue::UInt64(Some(*sum))
        }
        (DType::Decimal(decimal, _), Value::Decimal(sum), DataType::Decimal128(precision, scale))
            if (decimal.precision(), decimal.scale()) == (*precision, *scale) =>
        {
            match sum.to_i128() {
                Some(sum) => ScalarValue::Decimal128(Some(sum), precision.saturating_add(10).min(38), *scale),
                None => return Precision::Absent,
            }
        }
        _ => return Precision::Absent,
    };
    Precision::Exact(value)
}

/// The number of distinct values, as an estimate: DataFusion 55 passes it through joins and casts unchanged,
/// and would answer `count(DISTINCT ...)` above them with an exact one. See `tests/it/upstream/statistics.rs`:
/// `distinct_values_below_joins_are_taken_for_those_above`.
fn distinct(known: &FieldStats, nulls: Option<u64>, rows: u64) -> Precision<usize> {
    let all_valid = nulls == Some(0);
    match (known.is_constant, known.is_strict_sorted) {
        (Some(true), _) if all_valid && rows > 0 => Precision::Inexact(1),
        (_, Some(true)) if all_valid => inexact(Some(rows)),
        _ => Precision::Absent,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int32Array, RecordBatch};
    use vortex_core::VortexFile;
    use vortex_core::dtype::{PType, ROOT_COLUMN};
    use vortex_core::io::{MemoryFile, MemorySink};
    use vortex_core::write::{FileWriter, WriteOptions};

    use super::*;

    fn int(value: i64) -> Known<Scalar> {
        Known::Exact(Scalar::try_new(DType::Primitive(PType::I32, true), Value::Int(value)).unwrap())
    }

    fn float(value: f64) -> Known<Scalar> {
        Known::Exact(Scalar::try_new(DType::Primitive(PType::F64, true), Value::F64(value)).unwrap())
    }

    fn known(set: impl FnOnce(&mut FieldStats)) -> FieldStats {
        let mut known = FieldStats::default();
        set(&mut known);
        known
    }

    fn of(dtype: DType, known: &FieldStats, to: DataType, rows: u64) -> ColumnStatistics {
        column_statistics(&dtype, Some(known), &Field::new("c", to, true), rows)
    }

    #[tokio::test]
    async fn columns_are_found_by_name_whatever_their_order() {
        let column = |at: i32| Arc::new(Int32Array::from(vec![at, at + 100])) as ArrayRef;
        let batch = RecordBatch::try_from_iter((0..40).map(|at| (format!("c{at}"), column(at)))).unwrap();
        let sink = MemorySink::new();
        let mut writer = FileWriter::try_new(sink.clone(), batch.schema(), WriteOptions::new()).unwrap();
        writer.write(&batch).await.unwrap();
        writer.finish().await.unwrap();
        let file = VortexFile::open(Arc::new(MemoryFile::new(sink.bytes().unwrap()))).await.unwrap();

        let field = |name: &str| Field::new(name, DataType::Int32, true);
        let table = Schema::new(["c31", "c40", "c7", ROOT_COLUMN].map(field).to_vec());
        let found = statistics(file.footer(), &table);
        let min: Vec<_> = found.column_statistics.iter().map(|column| column.min_value.clone()).collect();
        let exact = |value: i32| Precision::Exact(value.into());
        assert_eq!(min, [exact(31), Precision::Absent, exact(7), Precision::Absent]);
        let nulls: Vec<_> = found.column_statistics.iter().map(|column| column.null_count).collect();
        assert_eq!(nulls, [0, 2, 0, 2].map(Precision::Exact));
    }

    #[test]
    fn bounds_take_the_type_of_the_table() {
        let known = known(|of| (of.min, of.max, of.null_count) = (int(1), int(9), Some(2)));
        let i32 = DType::Primitive(PType::I32, true);
        let wide = of(i32.clone(), &known, DataType::Int64, 10);
        assert_eq!(wide.min_value, Precision::Exact(ScalarValue::Int64(Some(1))));
        assert_eq!(wide.null_count, Precision::Exact(2));
        assert_eq!(of(i32, &known, DataType::Utf8, 10).max_value, Precision::Absent);
    }

    #[test]
    fn nulls_of_nested_columns_are_counted_if_the_table_declares_what_is_stored() {
        let known = known(|of| of.null_count = Some(2));
        let item = |name: &str, data_type, nullable| Field::new(name, data_type, nullable);
        let int = |nullable| DType::Primitive(PType::I32, nullable);
        let pair: DType =
            DType::Struct(StructType::new([("a".into(), int(false)), ("b".into(), int(true))]).into(), true);
        let pair_of = |first, second, nullable| {
            DataType::Struct(Fields::from(vec![
                item(first, DataType::Int32, nullable),
                item(second, DataType::Int32, true),
            ]))
        };
        let list = |of: DType| DType::List(of.into(), true);
        let list_of = |data_type, nullable| DataType::new_list(data_type, nullable);
        for (stored, declared, is_known) in [
            (list(int(true)), list_of(DataType::Int32, true), true),
            (list(int(true)), list_of(DataType::Int32, false), false),
            (list(int(false)), list_of(DataType::Int32, false), true),
            (pair.clone(), pair_of("a", "b", false), true),
            (pair.clone(), pair_of("b", "a", true), false),
            (list(pair.clone()), list_of(pair_of("a", "b", true), true), true),
            (list(pair.clone()), list_of(pair_of("b", "a", true), true), false),
        ] {
            let expected = if is_known { Precision::Exact(2) } else { Precision::Absent };
            assert_eq!(of(stored.clone(), &known, declared.clone(), 10).null_count, expected, "{declared}");
        }
    }

    #[test]
    fn values_that_the_type_of_the_table_cannot_hold_are_not_aggregated() {
        let sum = Scalar::try_new(DType::Primitive(PType::I64, true), Value::Int(2995)).unwrap();
        let stats = known(|of| {
            (of.min, of.max, of.null_count, of.sum) = (int(-5), int(3000), Some(2), Some(sum));
        });
        let i32 = DType::Primitive(PType::I32, true);
        for to in [DataType::Int8, DataType::UInt32, DataType::Date32] {
            let cast = of(i32.clone(), &stats, to.clone(), 10);
            assert_eq!(cast.sum_value, Precision::Absent, "{to}");
            assert_eq!(cast.null_count, Precision::Inexact(2), "{to}");
            assert!([&cast.min_value, &cast.max_value].iter().all(|bound| bound.is_exact() != Some(true)));
        }
        let wide = of(i32, &stats, DataType::Int64, 10);
        assert_eq!(
            (wide.sum_value, wide.null_count),
            (Precision::Exact(2995i64.into()), Precision::Exact(2))
        );
    }

    #[test]
    fn a_truncated_string_is_only_a_bound() {
        let text = Scalar::try_new(DType::Utf8(true), Value::Utf8("abc".into())).unwrap();
        let known = known(|of| of.max = Known::Inexact(text));
        let stats = of(DType::Utf8(true), &known, DataType::Utf8View, 10);
        assert_eq!(stats.max_value, Precision::Inexact(ScalarValue::Utf8View(Some("abc".into()))));
    }

    #[test]
    fn floats_have_bounds_only_without_nan_and_zero_is_not_exact() {
        let f64 = DType::Primitive(PType::F64, true);
        let mut known = known(|of| (of.min, of.max) = (float(0.0), float(2.0)));
        assert_eq!(of(f64.clone(), &known, DataType::Float64, 10).max_value, Precision::Absent);
        known.nan_count = Some(0);
        let stats = of(f64, &known, DataType::Float64, 10);
        assert_eq!(stats.max_value, Precision::Exact(ScalarValue::Float64(Some(2.0))));
        assert_eq!(stats.min_value, Precision::Inexact(ScalarValue::Float64(Some(0.0))));
    }

    #[test]
    fn a_sum_is_known_only_over_some_values() {
        let i64_sum = Scalar::try_new(DType::Primitive(PType::I64, true), Value::Int(7)).unwrap();
        let mut known = known(|of| (of.sum, of.null_count) = (Some(i64_sum), Some(9)));
        let i32 = DType::Primitive(PType::I32, true);
        let stats = of(i32.clone(), &known, DataType::Int32, 10);
        assert_eq!(stats.sum_value, Precision::Exact(ScalarValue::Int64(Some(7))));
        known.null_count = Some(10);
        assert_eq!(of(i32, &known, DataType::Int32, 10).sum_value, Precision::Absent);
    }

    #[test]
    fn a_table_with_strings_has_no_size_that_a_projection_would_keep() {
        let sized = ColumnStatistics { byte_size: Precision::Inexact(40), ..ColumnStatistics::new_unknown() };
        let number = Field::new("n", DataType::Int32, true);
        let text = Field::new("t", DataType::Utf8View, true);
        let numbers = Schema::new(vec![number.clone(), number.clone()]);
        assert_eq!(total_bytes(&numbers, &[sized.clone(), sized.clone()]), Precision::Inexact(80));
        let mixed = Schema::new(vec![number, text]);
        assert_eq!(total_bytes(&mixed, &[sized.clone(), sized]), Precision::Absent);
    }

    #[test]
    fn a_strictly_sorted_column_has_as_many_values_as_rows() {
        let sorted = known(|of| of.is_strict_sorted = Some(true));
        let stats = of(DType::Primitive(PType::I32, false), &sorted, DataType::Int32, 10);
        assert_eq!(stats.distinct_count, Precision::Inexact(10));
        let joined = of(DType::Primitive(PType::F64, false), &sorted, DataType::Int32, 10);
        assert_eq!(joined.distinct_count, Precision::Absent, "casts may join values");
        let constant = known(|of| (of.is_constant, of.null_count) = (Some(true), Some(0)));
        let stats = of(DType::Primitive(PType::I32, true), &constant, DataType::Int32, 10);
        assert_eq!(stats.distinct_count, Precision::Inexact(1));
    }
}
