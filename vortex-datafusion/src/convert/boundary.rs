//! Where values of a column pass a constant when they are cast, truncated, or otherwise keep their order.
//!
//! ```text
//! c         .. 23:59:58   23:59:59   00:00:00   00:00:01 ..        23:59:59   00:00:00 ..
//! c::date        1st        1st        2nd        2nd                 2nd        3rd
//! constant: the 2nd                    ▲ first that is not less                  ▲ first that is greater
//! ```
//!
//! Both are found by trying values with the same function that would evaluate the comparison, so that they are exact
//! whatever it rounds.

use arrow::array::{Array as _, ArrayData, ArrayRef, Datum, Scalar, make_array, new_null_array};
use arrow::buffer::{BooleanBuffer, Buffer};
use arrow::compute::concat;
use arrow::compute::kernels::cmp::{gt, gt_eq};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion_common::utils::normalize_float_zero_scalar;
use datafusion_common::{DataFusionError, Result, ScalarValue};

/// Values that are tried at once.
const TRIED: i128 = 64;

/// Where the values of a type pass a constant when a function is applied that keeps their order.
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
    /// The boundary for values to which `function` is applied; `None` if it is unknown, or not among those that may be
    /// tried. Floats that are not numbers pass no constant, or come before all.
    pub(super) fn of(values: &Values<'_>, constant: &ScalarValue, function: Function<'_>) -> Option<Self> {
        let to = constant.data_type();
        let constant = Scalar::new(normalize_float_zero_scalar(constant.clone()).to_array().ok()?);
        let least = |compare: Compare| {
            values.least(|tried| passes(&apply_to_each(function, tried, &to)?, &constant, compare)).ok()
        };
        let (first, after) = (least(gt_eq)?, least(gt)?);
        let [from, to] = values.tried;
        let is_among = |number: Option<i128>| number.is_some_and(|number| number > from);
        let is_known = values.are_all_tried() || (is_among(first) && is_among(after));
        if !is_known {
            return None;
        }
        let last = match (first, after.unwrap_or(to + 1) - 1) {
            (Some(first), last) if first <= last => Some(last),
            _ => None,
        };
        let value = |number: i128| values.scalar(number).ok();
        let known = |number: Option<i128>| number.map_or(Some(None), |number| value(number).map(Some));
        Some(Self { first: known(first)?, after: known(after)?, last: known(last)?, all: values.extremes()? })
    }
}

/// A function of an array, row by row.
type Function<'a> = &'a dyn Fn(&ArrayRef) -> Result<ArrayRef>;

type Compare = fn(&dyn Datum, &dyn Datum) -> Result<arrow::array::BooleanArray, ArrowError>;

/// The function of each value, of type `to`; null where it fails.
pub(super) fn apply_to_each(function: Function<'_>, values: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    match function(values) {
        // Some fail as a whole.
        Err(_) if values.len() > 1 => {
            let half = values.len() / 2;
            let first = apply_to_each(function, &values.slice(0, half), to)?;
            let rest = apply_to_each(function, &values.slice(half, values.len() - half), to)?;
            Ok(concat(&[&first, &rest])?)
        }
        outcome => outcome.or_else(|_| Ok(new_null_array(to, values.len()))),
    }
}

/// Which values pass the constant, and which are known.
fn passes(
    values: &ArrayRef,
    constant: &Scalar<ArrayRef>,
    compare: Compare,
) -> Result<(BooleanBuffer, BooleanBuffer)> {
    let known = match values.logical_nulls() {
        Some(nulls) => nulls.into_inner(),
        None => BooleanBuffer::new_set(values.len()),
    };
    Ok((compare(values, constant)?.values().clone(), known))
}

/// The values of a type in their order, as numbers.
pub(super) struct Values<'a> {
    of: &'a DataType,
    width: usize,
    /// The least and the greatest of the type.
    pub(super) all: [i128; 2],
    /// The least and the greatest of those that are tried.
    tried: [i128; 2],
}

impl<'a> Values<'a> {
    pub(super) fn of(of: &'a DataType) -> Option<Self> {
        let width = of.primitive_width().filter(|width| *width <= size_of::<i128>())?;
        let bits = 8 * width as u32;
        let signed = |bits: u32| [i128::MIN >> (128 - bits), i128::MAX >> (128 - bits)];
        let all = match of {
            DataType::Decimal32(digits, _)
            | DataType::Decimal64(digits, _)
            | DataType::Decimal128(digits, _) => {
                let greatest = 10i128.checked_pow(u32::from(*digits))? - 1;
                [-greatest, greatest]
            }
            // Those of infinity.
            DataType::Float16 => [-0x7c01, 0x7c00],
            DataType::Float32 => [-0x7f80_0001, 0x7f80_0000],
            DataType::Float64 => [-0x7ff0_0000_0000_0001, 0x7ff0_0000_0000_0000],
            of if of.is_unsigned_integer() => [0, signed(bits + 1)[1]],
            of if of.is_integer() || of.is_temporal() => signed(bits),
            _ => return None,
        };
        Some(Self { of, width, all, tried: all })
    }

    /// Tries only values between `-most` and `most`. A boundary there is one of all values.
    pub(super) fn up_to(mut self, most: i128) -> Self {
        self.tried = [-most, most];
        self
    }

    /// The least and the greatest value of the type.
    pub(super) fn extremes(&self) -> Option<[ScalarValue; 2]> {
        Some([self.scalar(self.all[0]).ok()?, self.scalar(self.all[1]).ok()?])
    }

    fn are_all_tried(&self) -> bool {
        self.tried == self.all
    }

    /// The values with these numbers.
    pub(super) fn array(&self, numbers: &[i128]) -> Result<ArrayRef> {
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

    fn scalar(&self, number: i128) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.array(&[number])?, 0)
    }

    /// The number of the first value that passes, if all after it do, too; `None` if none passes. Values for which it
    /// is unknown, since the function fails, are beyond all for which it does not: they pass if they are positive.
    fn least(
        &self,
        passes: impl Fn(&ArrayRef) -> Result<(BooleanBuffer, BooleanBuffer)>,
    ) -> Result<Option<i128>> {
        let [least, greatest] = self.tried;
        let middle = 0.clamp(least, greatest);
        let first_of = |tried: &[i128]| -> Result<Option<usize>> {
            let (passing, known) = passes(&self.array(tried)?)?;
            if tried == [middle] && !known.value(0) {
                return Err(DataFusionError::Execution(format!("no value of {}", self.of)));
            }
            let does = |at: usize| if known.value(at) { passing.value(at) } else { tried[at] >= 0 };
            Ok((0..tried.len()).find(|at| does(*at)))
        };
        // All below `from` do not pass, all from `to` on do. Differences within either half are numbers.
        let (mut from, mut to) = match first_of(&[middle])? {
            Some(_) => (least, middle),
            None => (middle + 1, greatest + 1),
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
        Ok((from <= greatest).then_some(from))
    }
}
