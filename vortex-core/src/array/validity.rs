//! Which rows are null.

use arrow::array::{Array as _, AsArray as _, BooleanArray};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::DataType;

use super::{EncodedRef, Pick};
use crate::expr::Predicate;
use crate::kernels::nulls::null_buffer;
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

/// The child in which encodings store which rows are null: one bool per row, true if the row is valid.
///
/// Encodings leave it out if all rows are valid.
#[derive(Debug, Clone, Default)]
pub struct ValidityChild(Option<EncodedRef>);

impl From<Option<EncodedRef>> for ValidityChild {
    fn from(child: Option<EncodedRef>) -> Self {
        Self(child)
    }
}

impl ValidityChild {
    /// Whether there is no child, so that all rows are valid.
    pub fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    /// Decodes which rows are null.
    ///
    /// # Errors
    /// If the child cannot be decoded, is not boolean, or has nulls itself.
    pub fn decode(&self) -> Result<Validity> {
        let Some(child) = &self.0 else { return Ok(Validity::AllValid) };
        let bits = child.decode(&DataType::Boolean)?;
        let bits = bits.as_boolean_opt().ok_or_else(|| Error::corrupt("validity is not boolean"))?;
        if bits.null_count() > 0 {
            return Err(Error::corrupt("validity itself has nulls"));
        }
        Ok(Validity::from_nulls(Some(null_buffer(bits.values().clone()))))
    }

    /// The validity of the rows to keep.
    ///
    /// # Errors
    /// If the bytes contradict the format.
    pub fn pick(&self, pick: Pick<'_>) -> Result<Self> {
        self.0.as_ref().map(|child| pick.of(child)).transpose().map(Self)
    }

    /// The child with its name, for [`EncodedArray::children`](super::EncodedArray::children).
    pub fn named(&self) -> Option<(&'static str, &EncodedRef)> {
        self.0.as_ref().map(|child| ("validity", child))
    }
}
