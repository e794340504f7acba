//! Which rows are null.

use std::ops::Range;

use arrow::array::{Array as _, AsArray as _, BooleanArray};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::DataType;

use super::EncodedRef;
use crate::expr::Predicate;
use crate::kernels::nulls::null_buffer;
use crate::mask::Mask;
use crate::{Error, Result};

/// Which rows are null. Bits are set for valid rows.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Validity {
    /// No row is null.
    AllValid,
    /// Every row is null.
    AllNull,
    /// One bit per row.
    Bits(NullBuffer),
}

impl Validity {
    /// Converts from Arrow's optional null buffer.
    pub fn from_nulls(nulls: Option<NullBuffer>) -> Self {
        match nulls {
            None => Validity::AllValid,
            Some(nulls) if nulls.null_count() == 0 => Validity::AllValid,
            Some(nulls) if nulls.null_count() == nulls.len() => Validity::AllNull,
            Some(nulls) => Validity::Bits(nulls),
        }
    }

    /// Converts to Arrow's optional null buffer for `len` rows.
    pub fn to_nulls(&self, len: usize) -> Option<NullBuffer> {
        match self {
            Validity::AllValid => None,
            Validity::AllNull => Some(NullBuffer::new_null(len)),
            Validity::Bits(nulls) => Some(nulls.clone()),
        }
    }

    /// The outcome of a null test on `len` rows; `None` for other predicates.
    pub fn null_test(&self, predicate: &Predicate, len: usize) -> Option<BooleanArray> {
        let valid = match predicate {
            Predicate::IsNull => !&self.to_bits(len),
            Predicate::IsNotNull => self.to_bits(len),
            _ => return None,
        };
        Some(BooleanArray::new(valid, None))
    }

    /// One bit per row: whether it is valid.
    fn to_bits(&self, len: usize) -> BooleanBuffer {
        match self {
            Validity::AllValid => BooleanBuffer::new_set(len),
            Validity::AllNull => BooleanBuffer::new_unset(len),
            Validity::Bits(nulls) => nulls.inner().clone(),
        }
    }

    /// Number of nulls among `len` rows.
    pub fn null_count(&self, len: usize) -> usize {
        match self {
            Validity::AllValid => 0,
            Validity::AllNull => len,
            Validity::Bits(nulls) => nulls.null_count(),
        }
    }
}

/// The validity stored in an optional child of type `bool`, in which true means valid.
///
/// Encodings that store their nulls have such a child; if it is absent, all rows are valid.
pub(crate) fn decode_child(child: Option<&EncodedRef>) -> Result<Validity> {
    let Some(child) = child else { return Ok(Validity::AllValid) };
    let bits = child.decode(&DataType::Boolean)?;
    let bits = bits.as_boolean_opt().ok_or_else(|| Error::corrupt("validity is not boolean"))?;
    if bits.null_count() > 0 {
        return Err(Error::corrupt("validity itself has nulls"));
    }
    Ok(Validity::from_nulls(Some(null_buffer(bits.values().clone()))))
}

/// Slices an optional validity child.
pub(crate) fn slice_child(child: Option<&EncodedRef>, rows: &Range<usize>) -> Result<Option<EncodedRef>> {
    child.map(|child| child.slice(rows.clone())).transpose()
}

/// Filters an optional validity child.
pub(crate) fn filter_child(child: Option<&EncodedRef>, mask: &Mask) -> Result<Option<EncodedRef>> {
    child.map(|child| child.filter(mask)).transpose()
}
