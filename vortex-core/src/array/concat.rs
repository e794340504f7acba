//! Chunks of one column, one after the other.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array as _, BooleanArray, UInt64Array, new_empty_array};
use arrow::datatypes::DataType;

use super::{ArrayRef, ArrowRef, Decoded, EncodedArray, Validity};
use crate::Result;
use crate::dtype::DType;
use crate::dtype::arrow::data_type;
use crate::expr::Predicate;
use crate::mask::Mask;

/// Arrays of one dtype, one after the other. Each is sliced, filtered and compared as it is
/// encoded; only decoding joins them.
#[derive(Debug)]
pub(crate) struct Concat {
    dtype: DType,
    chunks: Vec<ArrayRef>,
    /// First row of each chunk, and the row count at the end.
    starts: Vec<usize>,
}

/// The rows of `chunks`, one after the other; all have type `dtype`.
pub(crate) fn concat(dtype: &DType, mut chunks: Vec<ArrayRef>) -> Result<ArrayRef> {
    if chunks.len() > 1 {
        chunks.retain(|chunk| !chunk.is_empty());
    }
    match chunks.len() {
        0 => {
            let empty = new_empty_array(&data_type(dtype)?);
            Ok(Arc::new(Decoded::new(dtype.clone(), empty)))
        }
        1 => Ok(chunks.swap_remove(0)),
        _ => {
            let mut starts = vec![0];
            starts.extend(chunks.iter().scan(0, |end: &mut usize, chunk| {
                *end += chunk.len();
                Some(*end)
            }));
            Ok(Arc::new(Concat { dtype: dtype.clone(), chunks, starts }))
        }
    }
}

impl Concat {
    /// Chunks that overlap `rows`, with the part of each.
    fn overlapping(&self, rows: &Range<usize>) -> impl Iterator<Item = (&ArrayRef, Range<usize>)> {
        let first = self.starts.partition_point(|start| *start <= rows.start).saturating_sub(1);
        let (start, end) = (rows.start, rows.end);
        self.chunks
            .iter()
            .zip(&self.starts)
            .skip(first)
            .take_while(move |(_, chunk_start)| **chunk_start < end)
            .map(move |(chunk, chunk_start)| {
                let from = start.max(*chunk_start) - chunk_start;
                let to = end.min(chunk_start + chunk.len()) - chunk_start;
                (chunk, from..to)
            })
    }
}

impl EncodedArray for Concat {
    fn encoding(&self) -> &str {
        "vortex.chunked"
    }

    fn dtype(&self) -> &DType {
        &self.dtype
    }

    fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    fn children(&self) -> Vec<(&'static str, ArrayRef)> {
        self.chunks.iter().map(|chunk| ("chunk", Arc::clone(chunk))).collect()
    }

    fn decode(&self, to: &DataType) -> Result<ArrowRef> {
        let chunks = self.chunks.iter().map(|chunk| chunk.decode(to)).collect::<Result<Vec<_>>>()?;
        let chunks: Vec<&dyn arrow::array::Array> = chunks.iter().map(AsRef::as_ref).collect();
        Ok(arrow::compute::concat(&chunks)?)
    }

    fn validity(&self) -> Result<Validity> {
        let mut nulls = arrow::array::NullBufferBuilder::new(self.len());
        for chunk in &self.chunks {
            match chunk.validity()? {
                Validity::AllValid => nulls.append_n_non_nulls(chunk.len()),
                Validity::AllNull => nulls.append_n_nulls(chunk.len()),
                Validity::Bits(bits) => nulls.append_buffer(&bits),
            }
        }
        Ok(Validity::from_nulls(nulls.finish()))
    }

    fn slice(&self, rows: Range<usize>) -> Result<ArrayRef> {
        let chunks = self.overlapping(&rows).map(|(chunk, part)| chunk.slice(part)).collect::<Result<_>>()?;
        concat(&self.dtype, chunks)
    }

    fn filter(&self, mask: &Mask) -> Result<ArrayRef> {
        let parts = self.chunks.iter().zip(&self.starts);
        let chunks = parts
            .map(|(chunk, start)| (chunk, mask.slice(*start..start + chunk.len())))
            .filter(|(_, part)| !part.is_none())
            .map(|(chunk, part)| chunk.filter(&part))
            .collect::<Result<_>>()?;
        concat(&self.dtype, chunks)
    }

    fn take(&self, indices: &UInt64Array) -> Result<ArrayRef> {
        // Runs of indices into the same chunk are taken together, so that the order holds.
        let indices = indices.values();
        let mut taken = Vec::new();
        let mut at = 0;
        while at < indices.len() {
            let row = indices[at] as usize;
            let chunk = self.starts.partition_point(|start| *start <= row).saturating_sub(1);
            let rows = self.starts[chunk] as u64..self.starts[chunk + 1] as u64;
            let run = indices[at..].iter().take_while(|index| rows.contains(index)).count();
            let local: Vec<u64> = indices[at..at + run].iter().map(|index| index - rows.start).collect();
            taken.push(self.chunks[chunk].take(&UInt64Array::from(local))?);
            at += run.max(1);
        }
        concat(&self.dtype, taken)
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        let outcomes =
            self.chunks.iter().map(|chunk| chunk.matches(predicate)).collect::<Result<Vec<_>>>()?;
        let outcomes: Vec<&dyn arrow::array::Array> = outcomes.iter().map(|o| o as _).collect();
        let joined = arrow::compute::concat(&outcomes)?;
        Ok(arrow::array::AsArray::as_boolean(&joined).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PType;
    use crate::array::build::Tree;
    use crate::encodings::conformance;

    #[test]
    fn conforms() {
        let dtype = DType::Primitive(PType::I32, true);
        let chunk = |values: &[i32], valid: &[bool]| {
            Tree::primitive(values).child(Tree::bools(valid)).load(&dtype, values.len()).unwrap()
        };
        let chunks = vec![
            chunk(&[1, 2, 3], &[true, false, true]),
            chunk(&[], &[]),
            chunk(&[4, 5], &[true, true]),
            chunk(&[6; 40], &[false; 40]),
        ];
        let expected = chunks.iter().map(|chunk| chunk.decode(&DataType::Int32).unwrap()).collect::<Vec<_>>();
        let expected: Vec<&dyn arrow::array::Array> = expected.iter().map(AsRef::as_ref).collect();
        let expected = arrow::compute::concat(&expected).unwrap();
        conformance::check(&concat(&dtype, chunks).unwrap(), &expected);
        assert!(concat(&dtype, vec![]).unwrap().is_empty());
    }
}
