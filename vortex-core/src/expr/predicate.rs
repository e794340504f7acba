//! Predicates on one column, which encodings can answer without decoding.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, BooleanArray, Datum, Scalar as ArrowScalar};
use arrow::compute::kernels::cmp;
use arrow::datatypes::DataType;

use super::{InList, Like};
use crate::dtype::DType;
use crate::scalar::Scalar;
use crate::{Error, Result};

/// A comparison. Floats compare by total order, as Arrow's kernels do: `-0.0 < 0.0`, and NaN
/// equals itself and is greater than infinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum CompareOp {
    Eq,
    NotEq,
    Lt,
    LtEq,
    Gt,
    GtEq,
}

impl CompareOp {
    /// The operator that holds exactly when this one does not.
    #[must_use]
    pub fn negate(self) -> Self {
        match self {
            CompareOp::Eq => CompareOp::NotEq,
            CompareOp::NotEq => CompareOp::Eq,
            CompareOp::Lt => CompareOp::GtEq,
            CompareOp::LtEq => CompareOp::Gt,
            CompareOp::Gt => CompareOp::LtEq,
            CompareOp::GtEq => CompareOp::Lt,
        }
    }

    /// The equivalent operator for exchanged operands.
    #[must_use]
    pub fn swap(self) -> Self {
        match self {
            CompareOp::Eq | CompareOp::NotEq => self,
            CompareOp::Lt => CompareOp::Gt,
            CompareOp::LtEq => CompareOp::GtEq,
            CompareOp::Gt => CompareOp::Lt,
            CompareOp::GtEq => CompareOp::LtEq,
        }
    }

    /// Whether two values in this order satisfy the comparison.
    pub fn holds(self, order: Ordering) -> bool {
        match self {
            CompareOp::Eq => order.is_eq(),
            CompareOp::NotEq => order.is_ne(),
            CompareOp::Lt => order.is_lt(),
            CompareOp::LtEq => order.is_le(),
            CompareOp::Gt => order.is_gt(),
            CompareOp::GtEq => order.is_ge(),
        }
    }

    fn kernel(self, left: &dyn Datum, right: &dyn Datum) -> Result<BooleanArray> {
        Ok(match self {
            CompareOp::Eq => cmp::eq(left, right)?,
            CompareOp::NotEq => cmp::neq(left, right)?,
            CompareOp::Lt => cmp::lt(left, right)?,
            CompareOp::LtEq => cmp::lt_eq(left, right)?,
            CompareOp::Gt => cmp::gt(left, right)?,
            CompareOp::GtEq => cmp::gt_eq(left, right)?,
        })
    }
}

/// A predicate on the values of one column. The outcome for null values is unknown, except for the null tests and
/// lists without values: nothing is among these.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Predicate {
    /// `value op constant`; with a null constant, the outcome is unknown for all values.
    Compare(CompareOp, Scalar),
    /// `low <= value AND value <= high`.
    Between(Scalar, Scalar),
    /// `value IN (...)`, or NOT IN.
    In(Arc<InList>),
    /// `value LIKE pattern`.
    Like(Like),
    /// `value IS NULL`.
    IsNull,
    /// `value IS NOT NULL`.
    IsNotNull,
}

impl Predicate {
    /// Evaluates the predicate on decoded values; every encoding must return the same outcome.
    ///
    /// # Errors
    /// If the predicate does not fit the type of the values.
    pub fn evaluate(&self, values: &ArrayRef) -> Result<BooleanArray> {
        match self {
            Predicate::IsNull => Ok(arrow::compute::is_null(values)?),
            Predicate::IsNotNull => Ok(arrow::compute::is_not_null(values)?),
            // Nothing is in an empty list, not even null.
            Predicate::In(list) if list.values().is_empty() => list.evaluate(values),
            _ if values.data_type() == &DataType::Null => Ok(BooleanArray::new_null(values.len())),
            Predicate::Compare(_, constant) if constant.is_null() => Ok(BooleanArray::new_null(values.len())),
            Predicate::Compare(op, constant) => op.kernel(values, &datum(constant, values)?),
            Predicate::Between(low, high) => {
                let above = Predicate::Compare(CompareOp::GtEq, low.clone()).evaluate(values)?;
                let below = Predicate::Compare(CompareOp::LtEq, high.clone()).evaluate(values)?;
                Ok(arrow::compute::and_kleene(&above, &below)?)
            }
            Predicate::In(list) => list.evaluate(values),
            Predicate::Like(like) => like.evaluate(values),
        }
    }

    /// Whether this is `IS NULL` or `IS NOT NULL`.
    pub fn is_null_test(&self) -> bool {
        matches!(self, Predicate::IsNull | Predicate::IsNotNull)
    }

    /// Whether the outcome is unknown for null values, and for no others.
    pub(crate) fn is_unknown_for_nulls_only(&self) -> bool {
        match self {
            Predicate::Compare(_, constant) => !constant.is_null(),
            Predicate::Between(low, high) => !low.is_null() && !high.is_null(),
            // Nothing is in an empty list, not even null.
            Predicate::In(list) => !list.has_null() && !list.values().is_empty(),
            Predicate::Like(_) => true,
            Predicate::IsNull | Predicate::IsNotNull => false,
        }
    }

    /// The predicate for the storage type of an extension column.
    #[must_use]
    pub fn to_storage(&self) -> Predicate {
        match self {
            Predicate::Compare(op, constant) => Predicate::Compare(*op, constant.to_storage()),
            Predicate::Between(low, high) => Predicate::Between(low.to_storage(), high.to_storage()),
            Predicate::In(list) => Predicate::In(list.to_storage()),
            Predicate::Like(_) | Predicate::IsNull | Predicate::IsNotNull => self.clone(),
        }
    }

    /// The outcome for one value.
    ///
    /// # Errors
    /// As for [`evaluate`](Self::evaluate).
    pub fn evaluate_scalar(&self, value: &Scalar) -> Result<Option<bool>> {
        match self {
            Predicate::IsNull => return Ok(Some(value.is_null())),
            Predicate::IsNotNull => return Ok(Some(!value.is_null())),
            _ => {}
        }
        let one = value.to_arrow(&crate::dtype::arrow::data_type(value.dtype())?, 1)?;
        let outcome = self.evaluate(&one)?;
        Ok(outcome.is_valid(0).then(|| outcome.value(0)))
    }

    /// The predicate with its constants converted to a column's type.
    ///
    /// # Errors
    /// If a constant is not a value of that type.
    pub(crate) fn coerce(self, dtype: &DType) -> Result<Self> {
        let nullable = dtype.with_nullable(true);
        let fits = |constant: &Scalar| constant.dtype().with_nullable(true) == nullable;
        let coerce = |constant: Scalar| if fits(&constant) { Ok(constant) } else { constant.coerce(dtype) };
        Ok(match self {
            Predicate::Compare(op, constant) => Predicate::Compare(op, coerce(constant)?),
            Predicate::Between(low, high) => Predicate::Between(coerce(low)?, coerce(high)?),
            Predicate::In(list) if !list.of_each_type().all(fits) => {
                Predicate::In(Arc::new(list.try_map(|constant| constant.coerce(dtype))?))
            }
            other => other,
        })
    }

    /// Checks that the predicate can be evaluated on a column of this type.
    ///
    /// # Errors
    /// If it cannot; the error names both types.
    pub fn check(&self, dtype: &DType) -> Result<()> {
        let nullable = dtype.with_nullable(true);
        let same = |constant: &Scalar| {
            if constant.dtype().with_nullable(true) == nullable {
                return Ok(());
            }
            Err(Error::invalid(format!("comparing {dtype} with a constant of type {}", constant.dtype())))
        };
        match self {
            Predicate::Compare(_, constant) => same(constant),
            Predicate::Between(low, high) => same(low).and_then(|()| same(high)),
            Predicate::In(list) => list.of_each_type().try_for_each(same),
            Predicate::Like(_) => match dtype.storage() {
                DType::Utf8(_) => Ok(()),
                other => Err(Error::invalid(format!("LIKE on a column of type {other}"))),
            },
            Predicate::IsNull | Predicate::IsNotNull => Ok(()),
        }
    }
}

/// The constant in the form that Arrow requires for comparing it with `values`.
fn datum(constant: &Scalar, values: &ArrayRef) -> Result<ArrowScalar<ArrayRef>> {
    let to = match values.data_type() {
        DataType::Dictionary(_, inner) => inner.as_ref(),
        other => other,
    };
    Ok(ArrowScalar::new(constant.to_arrow(to, 1)?))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, NullArray};

    use super::*;

    #[test]
    fn no_null_is_in_an_empty_list() {
        let null = Scalar::null(&DType::Null);
        let columns: [ArrayRef; 2] = [Arc::new(NullArray::new(2)), Arc::new(Int32Array::new_null(2))];
        for column in columns {
            let outcome = |list: InList| {
                let outcome = Predicate::In(Arc::new(list)).evaluate(&column).unwrap();
                outcome.iter().collect::<Vec<_>>()
            };
            assert_eq!(outcome(InList::new([])), [Some(false); 2]);
            assert_eq!(outcome(InList::new([]).with_negated(true)), [Some(true); 2]);
            assert_eq!(outcome(InList::new([null.clone()]).with_negated(true)), [None; 2]);
        }
    }
}
