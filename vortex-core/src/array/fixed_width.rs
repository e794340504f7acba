//! Arrow arrays of values that all have the same width, whatever they mean.

use arrow::array::{Array, ArrayData, ArrayRef, make_array};
use arrow::buffer::{Buffer, MutableBuffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowNativeType, DataType};

use crate::Result;
use crate::limits::Limits;

/// Runs `$body` with `$N` bound to a native type of this [width](DataType::primitive_width) in bytes; other
/// widths, and `None`, run `$other`.
macro_rules! match_width {
    ($width:expr, |$N:ident| $body:expr, else $other:expr) => {
        match $width {
            Some(1) => {
                type $N = u8;
                $body
            }
            Some(2) => {
                type $N = u16;
                $body
            }
            Some(4) => {
                type $N = u32;
                $body
            }
            Some(8) => {
                type $N = u64;
                $body
            }
            Some(16) => {
                type $N = i128;
                $body
            }
            Some(32) => {
                type $N = arrow::datatypes::i256;
                $body
            }
            _ => $other,
        }
    };
}
pub(crate) use match_width;

/// An array of `len` values of fixed width.
///
/// # Errors
/// If the buffer is too short or not aligned, or the number of nulls differs.
pub(crate) fn fixed_width(
    data_type: DataType,
    len: usize,
    values: Buffer,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    Ok(make_array(ArrayData::builder(data_type).len(len).add_buffer(values).nulls(nulls).build()?))
}

/// The values as a vector: a copy only if they are shared.
///
/// # Errors
/// If a copy exceeds the limits: any number of arrays may share a buffer.
pub(crate) fn into_vec<N: ArrowNativeType>(values: ScalarBuffer<N>, limits: &Limits) -> Result<Vec<N>> {
    values.into_inner().into_vec::<N>().or_else(|shared| {
        limits.count_bytes(shared.len() as u64)?;
        Ok(shared.typed_data::<N>().to_vec())
    })
}

/// The bytes of values, to be changed: a copy only if they are shared.
///
/// # Errors
/// As [`into_vec`].
pub(crate) fn into_mutable<N: ArrowNativeType>(
    values: ScalarBuffer<N>,
    limits: &Limits,
) -> Result<MutableBuffer> {
    values.into_inner().into_mutable().or_else(|shared| {
        limits.count_bytes(shared.len() as u64)?;
        let mut copy = MutableBuffer::new(shared.len());
        copy.extend_from_slice(&shared);
        Ok(copy)
    })
}

/// The values of an array of fixed-width values, as words of that width.
pub(crate) fn values_of<T: ArrowNativeType>(array: &dyn Array) -> ScalarBuffer<T> {
    let data = array.to_data();
    ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len())
}
