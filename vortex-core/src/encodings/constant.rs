//! One value for all rows.
//!
//! No metadata that matters, no children. Buffer: the value as a serialized scalar, that of the
//! storage type for extensions; a null makes every row null.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array as _, BooleanArray, UInt64Array};
use arrow::datatypes::DataType;

use super::Encoding;
use crate::Result;
use crate::array::{ArrayRef, ArrowRef, EncodedArray, Node, Validity};
use crate::dtype::DType;
use crate::expr::Predicate;
use crate::limits::Limits;
use crate::mask::Mask;
use crate::scalar::{Scalar, Value};

/// The `vortex.constant` encoding.
#[derive(Debug)]
pub(super) struct Constant;

const ID: &str = "vortex.constant";

impl Encoding for Constant {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<ArrayRef> {
        node.expect_children(0)?;
        node.expect_buffers(1)?;
        let value = node.scalar(&node.buffer(0)?, node.dtype())?;
        Ok(Arc::new(ConstantArray { value, len: node.len(), limits: *node.limits() }))
    }
}

/// An array of one repeated value.
#[derive(Debug)]
pub(crate) struct ConstantArray {
    value: Scalar,
    len: usize,
    limits: Limits,
}

impl ConstantArray {
    /// `len` rows of `value`.
    pub(crate) fn new(value: Scalar, len: usize, limits: Limits) -> Self {
        Self { value, len, limits }
    }

    fn with_len(&self, len: usize) -> ArrayRef {
        Arc::new(Self { value: self.value.clone(), len, limits: self.limits })
    }
}

/// Bytes that one row of a value takes once decoded.
fn decoded_bytes(value: &Value) -> usize {
    match value {
        Value::List(values) => 8 + values.iter().map(decoded_bytes).sum::<usize>(),
        Value::Utf8(_) | Value::Binary(_) => 16,
        Value::Decimal(_) => 32,
        _ => 8,
    }
}

impl EncodedArray for ConstantArray {
    fn encoding(&self) -> &str {
        ID
    }

    fn dtype(&self) -> &DType {
        self.value.dtype()
    }

    fn len(&self) -> usize {
        self.len
    }

    fn decode(&self, to: &DataType) -> Result<ArrowRef> {
        // `Utf8` and `Binary` repeat the bytes, views do not.
        let copied = match to {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
                self.value.as_bytes().map_or(0, <[u8]>::len)
            }
            _ => 0,
        };
        self.limits.decoded_bytes(self.len, decoded_bytes(self.value.value()).saturating_add(copied))?;
        self.value.to_arrow(to, self.len)
    }

    fn validity(&self) -> Result<Validity> {
        Ok(if self.value.is_null() { Validity::AllNull } else { Validity::AllValid })
    }

    fn slice(&self, rows: Range<usize>) -> Result<ArrayRef> {
        Ok(self.with_len(rows.len()))
    }

    fn filter(&self, mask: &Mask) -> Result<ArrayRef> {
        Ok(self.with_len(mask.true_count()))
    }

    fn take(&self, indices: &UInt64Array) -> Result<ArrayRef> {
        Ok(self.with_len(indices.len()))
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        self.limits.decoded_bytes(self.len, 1)?;
        Ok(match predicate.evaluate_scalar(&self.value)? {
            Some(outcome) => BooleanArray::from(vec![outcome; self.len]),
            None => BooleanArray::new_null(self.len),
        })
    }

    fn as_constant(&self) -> Option<Scalar> {
        Some(self.value.clone())
    }
}
