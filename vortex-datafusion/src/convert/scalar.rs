//! Conversions between DataFusion's [`ScalarValue`] and the core's [`Scalar`].

use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion_common::{Result, ScalarValue};
use vortex_core::dtype::DType;
use vortex_core::dtype::arrow::{data_type, presents};
use vortex_core::scalar::Scalar;

use super::datafusion_error;

/// The value as the core compares it with a column of type `dtype`, or `None` if it is not of that type. A null becomes
/// the null of `dtype`.
pub(crate) fn to_core(value: &ScalarValue, dtype: &DType) -> Result<Option<Scalar>> {
    match value {
        ScalarValue::Dictionary(_, value) => return to_core(value, dtype),
        ScalarValue::RunEndEncoded(_, _, value) => return to_core(value, dtype),
        value if value.is_null() => return Ok(Some(Scalar::null(dtype))),
        _ => {}
    }
    // Byte strings of a fixed size are stored as others.
    let is_binary = matches!((dtype, value), (DType::Binary(_), ScalarValue::FixedSizeBinary(..)));
    if !is_binary && !presents(dtype, &value.data_type()) {
        return Ok(None);
    }
    let one = value.to_array()?;
    // A decimal may have more digits than its type.
    Ok(Scalar::from_arrow(one.as_ref(), 0, &dtype.with_nullable(true)).ok())
}

/// The value in the Arrow type `to`, or `None` if `to` cannot hold it or orders values differently: a bound
/// must remain a bound.
pub(crate) fn to_datafusion(value: &Scalar, to: &DataType) -> Result<Option<ScalarValue>> {
    if presents(value.dtype(), to) {
        let one = value.to_arrow(to, 1).map_err(datafusion_error)?;
        return ScalarValue::try_from_array(&one, 0).map(Some);
    }
    let from = data_type(value.dtype()).map_err(datafusion_error)?;
    if !widens(&from, to) {
        return Ok(None);
    }
    let one = value.to_arrow(&from, 1).map_err(datafusion_error)?;
    let there = cast(&one, to)?;
    let back = cast(&there, &from)?;
    if back != one {
        return Ok(None);
    }
    ScalarValue::try_from_array(&there, 0).map(Some)
}

/// Whether casting keeps the order of values, so that the cast of a minimum is the minimum of
/// the casts.
fn widens(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Date64, Float64, Timestamp};
    let number = |t: &DataType| t.is_integer() || t.is_decimal();
    match (from, to) {
        (from, to) if number(from) && number(to) => true,
        (from, Float64) if from.is_integer() || from.is_floating() => true,
        (from, to) if from.is_floating() && to.is_floating() => {
            from.primitive_width() <= to.primitive_width()
        }
        (Date32, Date64) => true,
        (Date32, Timestamp(_, None)) => true,
        (Timestamp(from, zone), Timestamp(to, other)) => zone.is_some() == other.is_some() && from <= to,
        _ => false,
    }
}

/// Whether values remain distinct and in the same order when they are cast.
pub(crate) fn cast_is_strictly_monotonic(from: &DataType, to: &DataType) -> bool {
    let bits = |t: &DataType| t.primitive_width().unwrap_or(0) * 8 - usize::from(t.is_signed_integer());
    match (from, to) {
        (DataType::Dictionary(_, from), to) => cast_is_strictly_monotonic(from, to),
        (from, DataType::Dictionary(_, to)) => cast_is_strictly_monotonic(from, to),
        (from, to) if from == to || (from.is_string() && to.is_string()) => true,
        (from, to) if from.is_binary() && to.is_binary() => true,
        (from, to) if from.is_integer() && to.is_integer() => {
            bits(from) <= bits(to) && (from.is_unsigned_integer() || to.is_signed_integer())
        }
        (from, to) if from.is_integer() || from.is_decimal() => {
            // A double has 53 bits for integers.
            (from.is_integer() && bits(from) <= 32 && *to == DataType::Float64) || has_all_digits(from, to)
        }
        (from, to) => widens(from, to),
    }
}

/// Whether values remain in order when they are cast, although some may become equal and others may fail to be
/// cast: a bound that is cast is a bound of the values that are cast.
pub(crate) fn cast_is_monotonic(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Date64, Decimal32, Decimal64, Timestamp};
    match (from, to) {
        (DataType::Dictionary(_, from), to) => cast_is_monotonic(from, to),
        (from, DataType::Dictionary(_, to)) => cast_is_monotonic(from, to),
        // Arrow 59 drops the upper bits of integers that do not fit.
        (from, Decimal32(..) | Decimal64(..)) if from.is_integer() => {
            from.primitive_width() < to.primitive_width()
                || (from.is_signed_integer() && from.primitive_width() == to.primitive_width())
        }
        (from, to) if from.is_numeric() && to.is_numeric() => true,
        (from, Date32 | Timestamp(..)) if from.is_integer() => true,
        // In a zone that turns its clocks back just after midnight, a later time may have an earlier date.
        (Timestamp(_, zone), Date32 | Date64) => is_fixed(zone.as_deref()),
        (Date64, Date32) => true,
        (Timestamp(_, zone), Timestamp(_, other)) => zone.is_some() == other.is_some(),
        (from, to) => cast_is_strictly_monotonic(from, to),
    }
}

/// Whether a zone, or none, never turns its clocks.
pub(crate) fn is_fixed(zone: Option<&str>) -> bool {
    zone.is_none_or(|zone| zone.starts_with(['+', '-']) || matches!(zone, "UTC" | "Etc/UTC" | "GMT" | "Z"))
}

/// Whether the decimal type `to` has room for all digits of the decimal or integer type `from`.
fn has_all_digits(from: &DataType, to: &DataType) -> bool {
    match (digits(from), digits(to)) {
        (Some((whole, fraction)), Some((more, finer))) => {
            to.is_decimal() && whole <= more && fraction <= finer
        }
        _ => false,
    }
}

/// The type of the values of a dictionary, or of others.
pub(crate) fn values_of(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        plain => plain,
    }
}

/// Whether values of this type are byte strings of any length.
pub(crate) fn is_bytes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

/// Whether this is a decimal type whose values are multiples of tens. Casts of such values may panic.
pub(crate) fn is_coarse(of: &DataType) -> bool {
    digits(of).is_some_and(|(_, fraction)| fraction < 0)
}

/// How many digits the values of a decimal or integer type have, at most, before and after the point.
pub(crate) fn digits(of: &DataType) -> Option<(i16, i16)> {
    match of {
        DataType::Decimal32(p, s)
        | DataType::Decimal64(p, s)
        | DataType::Decimal128(p, s)
        | DataType::Decimal256(p, s) => Some((i16::from(*p) - i16::from(*s), i16::from(*s))),
        DataType::Int8 | DataType::UInt8 => Some((3, 0)),
        DataType::Int16 | DataType::UInt16 => Some((5, 0)),
        DataType::Int32 | DataType::UInt32 => Some((10, 0)),
        DataType::Int64 => Some((19, 0)),
        DataType::UInt64 => Some((20, 0)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::TimeUnit;
    use vortex_core::dtype::PType;
    use vortex_core::scalar::Value;

    use super::*;

    fn int(value: i64) -> Scalar {
        Scalar::try_new(DType::Primitive(PType::I64, true), Value::Int(value)).unwrap()
    }

    #[test]
    fn integers_that_do_not_fit_a_decimal_lose_their_order() {
        use DataType::{Decimal32, Decimal64, Decimal128, Int32, Int64, UInt32, UInt64};
        for (from, to, expected) in [
            (Int32, Decimal32(9, 2), true),
            (UInt32, Decimal32(9, 2), false),
            (Int64, Decimal32(9, 2), false),
            (UInt32, Decimal64(18, 4), true),
            (Int64, Decimal64(18, 4), true),
            (UInt64, Decimal64(18, 4), false),
            (UInt64, Decimal128(18, 4), true),
        ] {
            assert_eq!(cast_is_monotonic(&from, &to), expected, "{from} as {to}");
        }
    }

    #[test]
    fn values_of_the_same_type_go_both_ways() {
        let text = DType::Utf8(true);
        for value in [
            ScalarValue::Utf8(Some("a".into())),
            ScalarValue::LargeUtf8(Some("a".into())),
            ScalarValue::Utf8View(Some("a".into())),
        ] {
            let core = to_core(&value, &text).unwrap().unwrap();
            assert_eq!(core.as_str(), Some("a"));
            assert_eq!(to_datafusion(&core, &value.data_type()).unwrap(), Some(value));
        }
    }

    #[test]
    fn casts_that_reorder_or_join_values_do_not_keep_their_order() {
        use DataType::{Date32, Decimal128, Float32, Float64, Int32, Int64, UInt32, UInt64, Utf8, Utf8View};
        let dictionary = DataType::Dictionary(Box::new(Int32), Box::new(Utf8));
        for (from, to) in [
            (Utf8, Utf8View),
            (dictionary.clone(), Utf8View),
            (Int32, Int64),
            (UInt32, Int64),
            (Int32, Float64),
            (Float32, Float64),
            (Date32, DataType::Timestamp(TimeUnit::Second, None)),
            (Decimal128(10, 2), Decimal128(12, 3)),
            (Int32, Decimal128(12, 2)),
        ] {
            assert!(cast_is_strictly_monotonic(&from, &to), "{from} to {to}");
        }
        for (from, to) in [
            (Utf8, Int32),
            (Int32, Utf8View),
            (dictionary, Int32),
            (Int64, Int32),
            (Int32, UInt64),
            (UInt64, Int64),
            (Int64, Float64),
            (Float64, Int32),
            (Float64, Float32),
            (Decimal128(10, 2), Int64),
            (Decimal128(10, 2), Decimal128(10, 1)),
            (Decimal128(10, 2), Decimal128(10, 3)),
            (Int32, Decimal128(11, 2)),
        ] {
            assert!(!cast_is_strictly_monotonic(&from, &to), "{from} to {to}");
        }
    }

    #[test]
    fn casts_that_join_values_keep_their_order_unless_they_start_again() {
        use DataType::{Boolean, Date32, Decimal128, Float64, Int16, Int32, Int64, Time64, UInt64, Utf8};
        let seconds = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Second, zone.map(Into::into));
        let milliseconds = DataType::Timestamp(TimeUnit::Millisecond, None);
        for (from, to) in [
            (Int64, Int16),
            (Int64, UInt64),
            (Int64, Float64),
            (Float64, Int32),
            (Decimal128(10, 2), Int32),
            (Decimal128(10, 2), Decimal128(10, 1)),
            (Int32, Date32),
            (seconds(None), Date32),
            (seconds(Some("UTC")), Date32),
            (seconds(Some("-03:30")), Date32),
            (seconds(None), milliseconds.clone()),
            (milliseconds, seconds(None)),
            (seconds(Some("UTC")), seconds(Some("America/St_Johns"))),
            (DataType::Dictionary(Box::new(Int32), Box::new(Int64)), Int16),
        ] {
            assert!(cast_is_monotonic(&from, &to), "{from} to {to}");
        }
        for (from, to) in [
            (Int64, Utf8),
            (Utf8, Int64),
            (Int64, Boolean),
            (seconds(None), Time64(TimeUnit::Nanosecond)),
            (seconds(Some("America/St_Johns")), Date32),
            (seconds(None), seconds(Some("America/St_Johns"))),
            (seconds(Some("America/St_Johns")), seconds(None)),
        ] {
            assert!(!cast_is_monotonic(&from, &to), "{from} to {to}");
        }
    }

    #[test]
    fn a_dictionary_value_is_its_value() {
        let value = ScalarValue::Dictionary(
            Box::new(DataType::UInt16),
            Box::new(ScalarValue::Utf8(Some("a".into()))),
        );
        let core = to_core(&value, &DType::Utf8(false)).unwrap().unwrap();
        assert_eq!(core.as_str(), Some("a"));
        assert_eq!(to_datafusion(&core, &value.data_type()).unwrap(), Some(value));
    }

    #[test]
    fn a_value_of_another_type_is_refused() {
        let i32 = DType::Primitive(PType::I32, true);
        assert_eq!(to_core(&ScalarValue::Int64(Some(1)), &i32).unwrap(), None);
        assert!(to_core(&ScalarValue::Int64(None), &i32).unwrap().unwrap().is_null());
    }

    #[test]
    fn a_bound_is_cast_only_where_order_and_value_survive() {
        let to = |value: i64, to: DataType| to_datafusion(&int(value), &to).unwrap();
        assert_eq!(to(5, DataType::Int8), Some(ScalarValue::Int8(Some(5))));
        assert_eq!(to(500, DataType::Int8), None);
        assert_eq!(to(5, DataType::Float64), Some(ScalarValue::Float64(Some(5.0))));
        assert_eq!(to((1 << 53) + 1, DataType::Float64), None);
        // Numbers order differently as text.
        assert_eq!(to(5, DataType::Utf8), None);
    }
}
