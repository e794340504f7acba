//! The states of aggregate functions: as DataFusion 55 defines them, from what the core has computed.
//!
//! | function | states |
//! |---|---|
//! | count | the number of values, `Int64` |
//! | sum | the sum in the type of the result, which wraps around; null if there are no values |
//! | min, max | the value, null if there are none |
//! | avg of integers | the number of values, `UInt64`, and their sum, `Float64`, null if there are none |

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef, i256};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::Accumulator;
use vortex_core::scalar::Scalar;
use vortex_core::scan::Aggregate;

use super::{Aggregation, Function, Kind};
use crate::convert::datafusion_error;

/// The greatest number up to which floats of 64 bits represent all integers.
const MAX_EXACT: i256 = i256::from_i128(1 << 53);

/// Whether the states of a function are those that are computed here.
pub(super) fn has_form(kind: Kind, fields: &[FieldRef]) -> bool {
    let mut types = fields.iter().map(|field| field.data_type());
    let (first, second, third) = (types.next(), types.next(), types.next());
    match kind {
        Kind::Count => first == Some(&DataType::Int64) && second.is_none(),
        Kind::Sum => first.is_some_and(|first| as_sum(i256::ZERO, first).is_some()) && second.is_none(),
        Kind::Min | Kind::Max => first.is_some() && second.is_none(),
        Kind::Average => (first, second, third) == (Some(&DataType::UInt64), Some(&DataType::Float64), None),
    }
}

/// An exact sum in a type whose sums wrap around.
#[expect(clippy::cast_possible_truncation, reason = "sums wrap around")]
fn as_sum(sum: i256, data_type: &DataType) -> Option<ScalarValue> {
    let wrapped = sum.to_parts().0.cast_signed();
    Some(match *data_type {
        DataType::Int64 => ScalarValue::Int64(Some(wrapped as i64)),
        DataType::UInt64 => ScalarValue::UInt64(Some((wrapped as i64).cast_unsigned())),
        DataType::Decimal32(precision, scale) => {
            ScalarValue::Decimal32(Some(wrapped as i32), precision, scale)
        }
        DataType::Decimal64(precision, scale) => {
            ScalarValue::Decimal64(Some(wrapped as i64), precision, scale)
        }
        DataType::Decimal128(precision, scale) => ScalarValue::Decimal128(Some(wrapped), precision, scale),
        _ => return None,
    })
}

impl Function {
    /// The states, given what is known of the column. `None` if they depend on the order of additions, or not enough is
    /// known.
    ///
    /// # Errors
    /// If a value does not have the type of the state.
    pub(crate) fn states(&self, found: &Aggregate) -> Result<Option<Vec<ScalarValue>>> {
        let data_type = self.fields[0].data_type();
        let no_value = || ScalarValue::try_from(data_type);
        let values = found.row_count.saturating_sub(found.null_count);
        let extreme = |of: &Option<Scalar>| of.as_ref().map(|of| value(of, data_type)).transpose();
        let states = match self.kind {
            Kind::Count => Some(vec![ScalarValue::Int64(Some(values.cast_signed()))]),
            Kind::Average if values == 0 => {
                Some(vec![ScalarValue::UInt64(Some(0)), ScalarValue::Float64(None)])
            }
            _ if values == 0 => Some(vec![no_value()?]),
            _ if found.nan_count > 0 && !self.ignores_nan() => None,
            // Encodings of the application may not know all that they are asked for.
            Kind::Sum => found.sum.and_then(|sum| as_sum(sum, data_type)).map(|sum| vec![sum]),
            Kind::Min => extreme(&found.min)?.map(|min| vec![min]),
            Kind::Max => extreme(&found.max)?.map(|max| vec![max]),
            Kind::Average => {
                // As exact as its partial sums.
                let bounds = [found.min.as_ref(), found.max.as_ref()];
                let sum = found.sum.filter(|_| self.adds_exactly(values, bounds)).and_then(i256::to_i128);
                let count = ScalarValue::UInt64(Some(values));
                sum.map(|sum| vec![count, ScalarValue::Float64(Some(sum as f64))])
            }
        };
        Ok(states)
    }

    /// The states of this many rows that all have the same value, if these are simple.
    ///
    /// # Errors
    /// If the value does not have the type of the state.
    pub(crate) fn states_of_constant(
        &self,
        rows: u64,
        constant: &ScalarValue,
    ) -> Result<Option<ScalarValue>> {
        let data_type = self.fields[0].data_type();
        let is_nothing = rows == 0 || constant.is_null();
        Ok(match self.kind {
            Kind::Count if is_nothing => Some(ScalarValue::Int64(Some(0))),
            Kind::Count => Some(ScalarValue::Int64(Some(rows.cast_signed()))),
            Kind::Min | Kind::Max if is_nothing => Some(ScalarValue::try_from(data_type)?),
            Kind::Min | Kind::Max => Some(constant.cast_to(data_type)?),
            Kind::Sum | Kind::Average => None,
        })
    }

    /// Whether floats are known to represent all partial sums of so many values exactly, given bounds of the values,
    /// or the function adds no floats.
    pub(crate) fn adds_exactly(&self, rows: u64, bounds: [Option<&Scalar>; 2]) -> bool {
        let fits =
            |bound: Option<&Scalar>| bound.and_then(Scalar::as_i128).is_some_and(|bound| fits(rows, bound));
        self.kind != Kind::Average || bounds.into_iter().all(fits)
    }

    /// Whether NaN changes no state. The core finds the extremes of numbers only; for DataFusion, NaN is greater than
    /// these, or less if its sign is set.
    pub(crate) fn ignores_nan(&self) -> bool {
        !matches!(self.kind, Kind::Min | Kind::Max)
    }

    /// Whether it adds values.
    pub(crate) fn adds(&self) -> bool {
        matches!(self.kind, Kind::Sum | Kind::Average)
    }
}

fn fits(values: u64, bound: i128) -> bool {
    let most = i256::from_i128(values.into()).checked_mul(i256::from_i128(bound));
    most.and_then(i256::checked_abs).is_some_and(|most| most <= MAX_EXACT)
}

fn value(value: &Scalar, data_type: &DataType) -> Result<ScalarValue> {
    let array = value.to_arrow(data_type, 1).map_err(datafusion_error)?;
    ScalarValue::try_from_array(&array, 0)
}

/// Aggregates rows with the functions of DataFusion.
pub(crate) struct ByRows(Vec<Box<dyn Accumulator>>);

impl ByRows {
    /// # Errors
    /// If a function cannot be computed.
    pub(crate) fn new(aggregation: &Aggregation) -> Result<Self> {
        let functions = aggregation.functions().iter();
        Ok(Self(functions.map(|function| function.expr.create_accumulator()).collect::<Result<_>>()?))
    }

    /// Adds rows of the [arguments](Aggregation::arguments).
    ///
    /// # Errors
    /// If a function fails.
    pub(crate) fn add(&mut self, arguments: &RecordBatch) -> Result<()> {
        let arguments = arguments.columns().chunks(1);
        self.0.iter_mut().zip(arguments).try_for_each(|(function, argument)| function.update_batch(argument))
    }

    /// The states of all functions, one after the other.
    ///
    /// # Errors
    /// If a function fails.
    pub(crate) fn states(mut self) -> Result<Vec<ScalarValue>> {
        let states = self.0.iter_mut().map(|function| function.state()).collect::<Result<Vec<_>>>()?;
        Ok(states.into_iter().flatten().collect())
    }
}
