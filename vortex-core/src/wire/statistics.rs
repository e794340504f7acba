//! Statistics of the columns of a file.

use flatbuffers::{FlatBufferBuilder, Vector, WIPOffset};

use super::generated::array::array as fb;
use super::scalar::{scalar_from_bytes, value_to_bytes};
use super::{aligned, broken, verifier};
use crate::Result;
use crate::dtype::DType;
use crate::limits::Limits;
use crate::scalar::{Scalar, Value};
use crate::stats::{FieldStats, Precision, sum_dtype};

/// The statistics of each field of a file's root, in order; `None` if these are not as many as the fields. If a bound
/// that is called exact may be none, which is so for some releases of the reference implementation, it must not be
/// `trusted`.
pub(crate) fn file_statistics_from_bytes(
    bytes: &[u8],
    dtypes: &[DType],
    row_count: u64,
    trusted: bool,
    limits: &Limits,
) -> Result<Option<Vec<FieldStats>>> {
    let bytes = aligned(bytes);
    let fields = parse(&bytes, limits)?.field_stats().unwrap_or_default();
    if fields.len() != dtypes.len() {
        return Ok(None);
    }
    let fields = fields.iter().zip(dtypes);
    Ok(Some(fields.map(|(stored, dtype)| read(stored, dtype, row_count, trusted, limits)).collect()))
}

/// Number of fields that have statistics.
pub(crate) fn file_statistics_len(bytes: &[u8], limits: &Limits) -> Result<usize> {
    Ok(parse(&aligned(bytes), limits)?.field_stats().unwrap_or_default().len())
}

fn parse<'a>(bytes: &'a [u8], limits: &Limits) -> Result<fb::FileStatistics<'a>> {
    flatbuffers::root_with_opts::<fb::FileStatistics<'_>>(&verifier(limits, bytes.len()), bytes)
        .map_err(broken("file statistics"))
}

/// Interprets the statistics of a column. What does not fit the type, or is impossible for `row_count` rows,
/// is left out: statistics are optional, so broken ones must not do harm. So are bounds of nested values,
/// which nothing uses, and the number of nulls of structs, since release 0.36 counts nulls that it does not
/// store.
fn read(
    stored: fb::ArrayStats<'_>,
    dtype: &DType,
    row_count: u64,
    trusted: bool,
    limits: &Limits,
) -> FieldStats {
    let scalar = |bytes: Vector<'_, u8>, dtype: &DType| {
        if dtype.is_nested() {
            return None;
        }
        let value = scalar_from_bytes(bytes.bytes(), &dtype.with_nullable(true), limits).ok();
        value.filter(|value| !value.is_null())
    };
    let bound = |bytes: Option<Vector<'_, u8>>, precision: fb::Precision| {
        let Some(value) = bytes.and_then(|bytes| scalar(bytes, dtype)) else { return Precision::Absent };
        if precision == fb::Precision::Exact && (trusted || is_told_exactly(&value)) {
            Precision::Exact(value)
        } else {
            Precision::Inexact(value)
        }
    };
    let count = |count: Option<u64>| count.filter(|count| *count <= row_count);
    let (min, max) =
        (bound(stored.min(), stored.min_precision()), bound(stored.max(), stored.max_precision()));
    let crossed = match (min.value(), max.value()) {
        (Some(min), Some(max)) => min.compare(max).is_none_or(std::cmp::Ordering::is_gt),
        _ => false,
    };
    let (min, max) = if crossed { (Precision::Absent, Precision::Absent) } else { (min, max) };
    FieldStats {
        min,
        max,
        sum: stored.sum().and_then(|bytes| scalar(bytes, &sum_dtype(dtype)?)),
        null_count: count(stored.null_count())
            .filter(|_| !matches!(dtype, DType::Struct(_, true)) && !dtype.has_nullable_variants()),
        nan_count: count(stored.nan_count()),
        is_sorted: stored.is_sorted(),
        is_strict_sorted: stored.is_strict_sorted(),
        is_constant: stored.is_constant(),
        uncompressed_size: stored.uncompressed_size_in_bytes(),
    }
}

/// Length in bytes from which on a text bound may have been truncated: releases before 0.84 truncate at
/// 64 bytes, or a bit earlier if characters are long or have no successor, and call the result exact.
const MAY_BE_CUT: usize = 48;

/// Whether a bound that is called exact is really a value of the column: long text may be truncated, and
/// releases before 0.54 state `false` as the minimum of booleans that are all true.
fn is_told_exactly(bound: &Scalar) -> bool {
    match bound.value() {
        Value::Bool(_) => false,
        Value::Utf8(text) => text.len() < MAY_BE_CUT,
        Value::Binary(bytes) => bytes.len() < MAY_BE_CUT,
        _ => true,
    }
}

/// Serializes the statistics of each root field.
pub(crate) fn file_statistics_to_bytes(stats: &[FieldStats]) -> Vec<u8> {
    let mut b = FlatBufferBuilder::new();
    let fields: Vec<_> = stats.iter().map(|stats| field_stats(&mut b, stats)).collect();
    finish(b, &fields)
}

fn finish<'b>(mut b: FlatBufferBuilder<'b>, fields: &[WIPOffset<fb::ArrayStats<'b>>]) -> Vec<u8> {
    let field_stats = Some(b.create_vector(fields));
    let root = fb::FileStatistics::create(&mut b, &fb::FileStatisticsArgs { field_stats });
    b.finish_minimal(root);
    b.finished_data().to_vec()
}

fn field_stats<'b>(b: &mut FlatBufferBuilder<'b>, stats: &FieldStats) -> WIPOffset<fb::ArrayStats<'b>> {
    // Values that cannot be written are left out, since statistics are optional.
    let value = |b: &mut FlatBufferBuilder<'b>, value: Option<&Scalar>| {
        value.and_then(|value| value_to_bytes(value.value()).ok()).map(|bytes| b.create_vector(&bytes))
    };
    let precision = |bound: &Precision<Scalar>| match bound {
        Precision::Exact(_) => fb::Precision::Exact,
        Precision::Inexact(_) | Precision::Absent => fb::Precision::Inexact,
    };
    let (min, max) = (value(b, stats.min.value()), value(b, stats.max.value()));
    let sum = value(b, stats.sum.as_ref());
    let args = fb::ArrayStatsArgs {
        min,
        min_precision: precision(&stats.min),
        max,
        max_precision: precision(&stats.max),
        sum,
        is_sorted: stats.is_sorted,
        is_strict_sorted: stats.is_strict_sorted,
        is_constant: stats.is_constant,
        null_count: stats.null_count,
        uncompressed_size_in_bytes: stats.uncompressed_size,
        nan_count: stats.nan_count,
    };
    fb::ArrayStats::create(b, &args)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::dtype::{DecimalType, PType, StructType};

    const ROWS: u64 = 10;

    /// What is read of stored statistics whose bounds are called exact.
    fn read_back([min, max]: [&[u8]; 2], null_count: u64, dtype: &DType) -> FieldStats {
        let mut b = FlatBufferBuilder::new();
        let args = fb::ArrayStatsArgs {
            min: Some(b.create_vector(min)),
            min_precision: fb::Precision::Exact,
            max: Some(b.create_vector(max)),
            max_precision: fb::Precision::Exact,
            null_count: Some(null_count),
            ..fb::ArrayStatsArgs::default()
        };
        let stored = fb::ArrayStats::create(&mut b, &args);
        let bytes = finish(b, &[stored]);
        let dtypes = std::slice::from_ref(dtype);
        let fields = file_statistics_from_bytes(&bytes, dtypes, ROWS, false, &Limits::default());
        fields.unwrap().unwrap().remove(0)
    }

    #[test]
    fn bounds_of_nested_values_are_left_out() {
        let list = DType::List(Arc::new(DType::Primitive(PType::I32, false)), false);
        // A list of one number.
        let found = read_back([&[0x4a, 4, 0x0a, 2, 0x18, 2], &[0x4a, 4, 0x0a, 2, 0x18, 4]], 3, &list);
        assert_eq!((found.min, found.max, found.null_count), (Precision::Absent, Precision::Absent, Some(3)));
    }

    #[test]
    fn statistics_that_cannot_be_true_are_left_out() {
        let i32 = DType::Primitive(PType::I32, false);
        let fine = read_back([&[0x18, 0x02], &[0x18, 0x04]], 3, &i32);
        assert_eq!(fine.min.exact().unwrap().as_i128(), Some(1));
        assert_eq!(fine.null_count, Some(3));
        let crossed = read_back([&[0x18, 0x04], &[0x18, 0x02]], ROWS + 1, &i32);
        assert_eq!(
            (crossed.min, crossed.max, crossed.null_count),
            (Precision::Absent, Precision::Absent, None)
        );
        assert_eq!(read_back([&[0x3a, 0], &[0x18, 0x02]], 0, &i32).min, Precision::Absent);
        let thousand = [0x42, 2, 0xe8, 0x03];
        let of_digits = |digits| DType::Decimal(DecimalType::try_new(digits, 0).unwrap(), false);
        assert!(read_back([&[0x42, 1, 7], &thousand], 0, &of_digits(4)).max.exact().is_some());
        let more_digits = read_back([&[0x42, 1, 7], &thousand], 0, &of_digits(3));
        assert!(more_digits.min.exact().is_some());
        assert_eq!(more_digits.max, Precision::Absent);
        let structs = DType::Struct(Arc::new(StructType::new([])), true);
        assert_eq!(read_back([&[], &[]], 3, &structs).null_count, None);
    }

    #[test]
    fn statistics_come_back_if_every_column_has_them() {
        let number = DType::Primitive(PType::I32, true);
        let bound = |v| Scalar::try_new(number.clone(), Value::Int(v)).unwrap();
        let stats = FieldStats {
            min: Precision::Exact(bound(-1)),
            max: Precision::Inexact(bound(7)),
            null_count: Some(2),
            is_sorted: Some(false),
            uncompressed_size: Some(40),
            ..FieldStats::default()
        };
        let bytes = file_statistics_to_bytes(std::slice::from_ref(&stats));
        let read =
            |dtypes: &[DType]| file_statistics_from_bytes(&bytes, dtypes, ROWS, false, &Limits::default());
        assert_eq!(read(std::slice::from_ref(&number)).unwrap(), Some(vec![stats]));
        assert_eq!(read(&[number.clone(), number.clone()]).unwrap(), None);
        assert_eq!(file_statistics_len(&bytes, &Limits::default()).unwrap(), 1);
    }
}
