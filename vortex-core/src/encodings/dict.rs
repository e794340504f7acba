//! Temporary stand-in, replaced by the real encoding.
use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::DataType;

use crate::Result;
use crate::array::{ArrayRef, ArrowRef, EncodedArray, decode_integers};
use crate::dtype::DType;
use crate::limits::Limits;

/// Values.
#[derive(Debug)]
pub(crate) struct SharedValues(ArrayRef);
impl SharedValues {
    pub(crate) fn new(values: ArrayRef) -> Self {
        Self(values)
    }
}

/// Dict.
#[derive(Debug)]
pub(crate) struct DictArray {
    dtype: DType,
    codes: ArrayRef,
    values: Arc<SharedValues>,
    limits: Limits,
}
impl DictArray {
    pub(crate) fn new(dtype: DType, codes: ArrayRef, values: Arc<SharedValues>, limits: Limits) -> Self {
        Self { dtype, codes, values, limits }
    }
}
impl EncodedArray for DictArray {
    fn encoding(&self) -> &str {
        "vortex.dict"
    }
    fn dtype(&self) -> &DType {
        &self.dtype
    }
    fn len(&self) -> usize {
        self.codes.len()
    }
    fn decode(&self, to: &DataType) -> Result<ArrowRef> {
        let nulls = self.codes.validity()?.to_mask(self.len());
        let codes = decode_integers(&self.codes, "codes", |v| Ok(v as u64))?;
        let codes: arrow::array::UInt64Array =
            codes.into_iter().enumerate().map(|(i, c)| nulls.to_bits().value(i).then_some(c)).collect();
        Ok(arrow::compute::take(&self.values.0.decode(to)?, &codes, None)?)
    }
    fn slice(&self, rows: Range<usize>) -> Result<ArrayRef> {
        Ok(Arc::new(Self {
            dtype: self.dtype.clone(),
            codes: self.codes.slice(rows)?,
            values: Arc::clone(&self.values),
            limits: self.limits,
        }))
    }
}
