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
use datafusion_common::{Result, ScalarValue, internal_datafusion_err};
use datafusion_expr::Accumulator;
use vortex_core::Scalar;
use vortex_core::array::Aggregate;

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
    /// The states for this many rows, given what is known of their column. `None` if they depend on the order of
    /// additions.
    ///
    /// # Errors
    /// If a value does not have the type of the state.
    pub(crate) fn states(&self, rows: u64, found: Option<&Aggregate>) -> Result<Option<Vec<ScalarValue>>> {
        let data_type = self.fields[0].data_type();
        let no_value = || ScalarValue::try_from(data_type);
        let Some(found) = found else {
            return Ok(Some(vec![ScalarValue::Int64(Some(rows.cast_signed()))]));
        };
        let values = found.row_count - found.null_count;
        let sum = || found.sum.ok_or_else(|| internal_datafusion_err!("no sum of {}", self.expr.name()));
        Ok(Some(match self.kind {
            Kind::Count => vec![ScalarValue::Int64(Some(values.cast_signed()))],
            Kind::Sum if values == 0 => vec![no_value()?],
            Kind::Sum => vec![as_sum(sum()?, data_type).map_or_else(no_value, Ok)?],
            Kind::Min => vec![value(found.min.as_ref(), data_type)?],
            Kind::Max => vec![value(found.max.as_ref(), data_type)?],
            Kind::Average if values == 0 => vec![ScalarValue::UInt64(Some(0)), ScalarValue::Float64(None)],
            Kind::Average if !adds_exactly(values, found) => return Ok(None),
            Kind::Average => {
                // As exact as its partial sums.
                let sum = sum()?.to_i128().map(|sum| sum as f64);
                vec![ScalarValue::UInt64(Some(values)), ScalarValue::Float64(sum)]
            }
        }))
    }

    /// Whether floats represent all partial sums of so many values exactly, given their extremes, or bounds of these.
    pub(crate) fn may_add_exactly(&self, rows: u64, bounds: [Option<&Scalar>; 2]) -> bool {
        let known = bounds.into_iter().flatten().filter_map(Scalar::as_i128);
        self.kind != Kind::Average || known.into_iter().all(|bound| fits(rows, bound))
    }
}

/// Whether floats represent all partial sums exactly, in any order.
fn adds_exactly(values: u64, found: &Aggregate) -> bool {
    let fits = |bound: &Option<Scalar>| {
        bound.as_ref().and_then(Scalar::as_i128).is_some_and(|bound| fits(values, bound))
    };
    fits(&found.min) && fits(&found.max)
}

fn fits(values: u64, bound: i128) -> bool {
    let most = i256::from_i128(values.into()).checked_mul(i256::from_i128(bound));
    most.and_then(i256::checked_abs).is_some_and(|most| most <= MAX_EXACT)
}

fn value(value: Option<&Scalar>, data_type: &DataType) -> Result<ScalarValue> {
    match value {
        None => ScalarValue::try_from(data_type),
        Some(value) => {
            let array = value.to_arrow(data_type, 1).map_err(datafusion_error)?;
            ScalarValue::try_from_array(&array, 0)
        }
    }
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
