//! Where values of a column pass a constant when they are cast.
//!
//! ```text
//! c         .. 23:59:58   23:59:59   00:00:00   00:00:01 ..        23:59:59   00:00:00 ..
//! c::date        1st        1st        2nd        2nd                 2nd        3rd
//! constant: the 2nd                    ▲ first that is not less                  ▲ first that is greater
//! ```
//!
//! Both are found by trying values with the same cast that would evaluate the comparison, so that they are exact
//! whatever it rounds.

use arrow::array::{Array as _, ArrayData, ArrayRef, Datum, Scalar, make_array, new_null_array};
use arrow::buffer::{BooleanBuffer, Buffer};
use arrow::compute::kernels::cmp::{gt, gt_eq};
use arrow::compute::{CastOptions, cast_with_options, concat};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion_common::ScalarValue;
use datafusion_common::utils::normalize_float_zero_scalar;

use super::scalar::{cast_is_monotonic, digits};
use super::simplify::is_nan;

/// Values that are tried at once.
const TRIED: i128 = 64;

/// Where the values of a type pass a constant when they are cast to its type.
#[derive(Debug, PartialEq)]
pub(super) struct Boundary {
    /// The first value that is not less than the constant; `None` if all are.
    pub(super) first: Option<ScalarValue>,
    /// The first value that is greater; `None` if none is.
    pub(super) after: Option<ScalarValue>,
    /// The last value that equals the constant; `None` if none does.
    pub(super) last: Option<ScalarValue>,
    /// The least and the greatest value of the type.
    pub(super) all: [ScalarValue; 2],
}

impl Boundary {
    /// The boundary for values of type `from`; `None` if it is unknown, or if the cast may fail. Floats that are not
    /// numbers pass no constant, or come before all.
    pub(super) fn of(from: &DataType, constant: &ScalarValue) -> Option<Self> {
        let to = constant.data_type();
        if constant.is_null() || is_nan(constant) || !rarely_fails(from, &to) || !cast_is_monotonic(from, &to)
        {
            return None;
        }
        let values = Values::of(from)?;
        let constant = Scalar::new(normalize_float_zero_scalar(constant.clone()).to_array().ok()?);
        let least = |compare: Compare| values.least(|tried| passes(tried, &to, &constant, compare)).ok();
        let (first, after) = (least(gt_eq)?, least(gt)?);
        let last = match (first, after.unwrap_or(values.greatest + 1) - 1) {
            (Some(first), last) if first <= last => Some(last),
            _ => None,
        };
        let value = |number: i128| values.scalar(number).ok();
        let known = |number: Option<i128>| number.map_or(Some(None), |number| value(number).map(Some));
        Some(Self {
            first: known(first)?,
            after: known(after)?,
            last: known(last)?,
            all: [value(values.least)?, value(values.greatest)?],
        })
    }
}

type Compare = fn(&dyn Datum, &dyn Datum) -> Result<arrow::array::BooleanArray, ArrowError>;

/// The values as another type; those that cannot be cast become null.
pub(super) fn cast_each(values: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    let options = CastOptions { safe: true, ..CastOptions::default() };
    match cast_with_options(values, to, &options) {
        // Some casts fail as a whole.
        Err(_) if values.len() > 1 => {
            let half = values.len() / 2;
            let first = cast_each(&values.slice(0, half), to)?;
            concat(&[&first, &cast_each(&values.slice(half, values.len() - half), to)?])
        }
        outcome => outcome.or_else(|_| Ok(new_null_array(to, values.len()))),
    }
}

/// Whether values pass the constant when they are cast. Those that the cast fails for are beyond all that it does not
/// fail for.
fn passes(
    values: &ArrayRef,
    to: &DataType,
    constant: &Scalar<ArrayRef>,
    compare: Compare,
) -> Result<(BooleanBuffer, BooleanBuffer), ArrowError> {
    let cast = cast_each(values, to)?;
    let known = match cast.logical_nulls() {
        Some(nulls) => nulls.into_inner(),
        None => BooleanBuffer::new_set(values.len()),
    };
    Ok((compare(&cast, constant)?.values().clone(), known))
}

/// Whether a cast fails for no value, or only for those out of the range of a time, or of a decimal that DataFusion
/// chose to compare with. Who casts integers to shorter ones expects an error.
fn rarely_fails(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Date64, Timestamp};
    // Casts of decimals with a negative scale may panic.
    let is_coarse = |of| digits(of).is_some_and(|(_, fraction)| fraction < 0);
    match (from, to) {
        (from, to) if is_coarse(from) || is_coarse(to) => false,
        (from, to) if from.is_integer() && to.is_integer() => {
            let whole = |of| digits(of).map(|(whole, _)| whole);
            whole(from) < whole(to) && (from.is_unsigned_integer() || to.is_signed_integer())
        }
        (from, to) if from.is_floating() => {
            to.is_floating() && from.primitive_width() <= to.primitive_width()
        }
        (from, to) if from.is_integer() || from.is_decimal() => match (digits(from), digits(to)) {
            // Rounding may carry, and not all integers of so many digits fit.
            (Some((whole, _)), Some((more, _))) if to.is_integer() => {
                to.is_signed_integer() && whole + 1 < more
            }
            (Some((whole, fraction)), Some((more, finer))) => {
                whole + i16::from(finer < fraction) <= more || (from.is_decimal() && fraction < finer)
            }
            // Small negative decimals would become -0.0, which only some comparisons take for zero.
            _ => to.is_floating() && !(from.is_decimal() && *to == DataType::Float16),
        },
        (Timestamp(..) | Date64, Date32 | Date64) | (Date32, Timestamp(_, None) | Date64) => true,
        (Timestamp(..), Timestamp(..)) => true,
        _ => false,
    }
}

/// The values of a type in their order, as numbers.
pub(super) struct Values<'a> {
    of: &'a DataType,
    width: usize,
    pub(super) least: i128,
    pub(super) greatest: i128,
}

impl<'a> Values<'a> {
    pub(super) fn of(of: &'a DataType) -> Option<Self> {
        let width = of.primitive_width().filter(|width| *width <= size_of::<i128>())?;
        let bits = 8 * width as u32;
        let signed = |bits: u32| (i128::MIN >> (128 - bits), i128::MAX >> (128 - bits));
        let (least, greatest) = match of {
            DataType::Decimal32(digits, _)
            | DataType::Decimal64(digits, _)
            | DataType::Decimal128(digits, _) => {
                let greatest = 10i128.checked_pow(u32::from(*digits))? - 1;
                (-greatest, greatest)
            }
            // Those of infinity.
            DataType::Float16 => (-0x7c01, 0x7c00),
            DataType::Float32 => (-0x7f80_0001, 0x7f80_0000),
            DataType::Float64 => (-0x7ff0_0000_0000_0001, 0x7ff0_0000_0000_0000),
            of if of.is_unsigned_integer() => (0, signed(bits + 1).1),
            of if of.is_integer() || of.is_temporal() => signed(bits),
            _ => return None,
        };
        Some(Self { of, width, least, greatest })
    }

    /// The values with these numbers.
    pub(super) fn array(&self, numbers: &[i128]) -> Result<ArrayRef, ArrowError> {
        let mut bytes = Vec::with_capacity(numbers.len() * self.width);
        for number in numbers {
            // Negative floats are in the opposite order of their bits.
            let ones =
                if self.of.is_floating() && *number < 0 { i128::MAX >> (128 - 8 * self.width) } else { 0 };
            bytes.extend_from_slice(&(number ^ ones).to_le_bytes()[..self.width]);
        }
        let data = ArrayData::builder(self.of.clone()).len(numbers.len()).add_buffer(Buffer::from(bytes));
        Ok(make_array(data.align_buffers(true).build()?))
    }

    fn scalar(&self, number: i128) -> datafusion_common::Result<ScalarValue> {
        ScalarValue::try_from_array(&self.array(&[number])?, 0)
    }

    /// The number of the first value that passes, if all after it do, too; `None` if none passes. Values for which it
    /// is unknown pass if they are positive.
    fn least(
        &self,
        passes: impl Fn(&ArrayRef) -> Result<(BooleanBuffer, BooleanBuffer), ArrowError>,
    ) -> Result<Option<i128>, ArrowError> {
        let middle = 0.clamp(self.least, self.greatest);
        let first_of = |tried: &[i128]| -> Result<Option<usize>, ArrowError> {
            let (passing, known) = passes(&self.array(tried)?)?;
            if tried == [middle] && !known.value(0) {
                return Err(ArrowError::CastError(format!("no {} can be cast", self.of)));
            }
            let does = |at: usize| if known.value(at) { passing.value(at) } else { tried[at] >= 0 };
            Ok((0..tried.len()).find(|at| does(*at)))
        };
        // All below `from` do not pass, all from `to` on do. Differences within either half are numbers.
        let (mut from, mut to) = match first_of(&[middle])? {
            Some(_) => (self.least, middle),
            None => (middle + 1, self.greatest + 1),
        };
        while from < to {
            let step = (to - from) / TRIED + 1;
            let tried: Vec<i128> = (0..TRIED).map(|at| from + at * step).take_while(|at| *at < to).collect();
            match first_of(&tried)? {
                Some(0) => to = from,
                Some(at) => (from, to) = (tried[at - 1] + 1, tried[at]),
                None => from = tried[tried.len() - 1] + 1,
            }
        }
        Ok((from <= self.greatest).then_some(from))
    }
}
