//! Several arrays of one type, concatenated.
//!
//! ```text
//! offsets   [0, 2, 2, 5]        u64, from zero to the row count, never decreasing
//! chunks    [a b] [] [c d e]    each with its own encoding
//! ```
//!
//! No metadata, no buffers. Children: the offsets, then the chunks. Operations are passed on to the
//! chunks that they concern; empty chunks are dropped after they have been checked.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, AsArray as _, BooleanArray, NullBufferBuilder, UInt64Array};
use arrow::buffer::MutableBuffer;
use arrow::datatypes::DataType;

use super::Encoding;
use crate::array::{
    Aggregate, ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, concat, decode_offsets,
    fixed_width, present,
};
use crate::dtype::{DType, PType};
use crate::expr::Predicate;
use crate::limits::{Limits, Work, counted_before};
use crate::{Error, Result};

/// The `vortex.chunked` encoding.
#[derive(Debug)]
pub(super) struct Chunked;

const ID: &str = "vortex.chunked";

impl Encoding for Chunked {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        node.no_metadata()?;
        node.expect_buffers(0)?;
        let offset_count = node.child_count();
        if offset_count == 0 {
            return Err(Error::corrupt("chunks without offsets"));
        }
        let offsets = node.child(0, &DType::Primitive(PType::U64, false), offset_count)?;
        let offsets = decode_offsets(&offsets, "chunk offsets", node.len())?;
        if (offsets.first(), offsets.last()) != (Some(&0), Some(&node.len())) {
            return Err(Error::corrupt(format!("chunk offsets do not span {} rows", node.len())));
        }
        let chunks = offsets.windows(2).enumerate();
        let chunks = chunks.map(|(at, pair)| node.child(at + 1, node.dtype(), pair[1] - pair[0]));
        let chunks = chunks.collect::<Result<Vec<_>>>()?;
        Ok(chunked(node.dtype(), chunks, node.limits()))
    }
}

#[derive(Debug)]
struct ChunkedArray {
    header: Header,
    /// None of them is empty.
    chunks: Vec<EncodedRef>,
    /// The end of each chunk, as a row.
    ends: Vec<usize>,
}

/// The concatenation of `chunks`, which are all of `dtype`. A single chunk is returned as it is.
pub(crate) fn chunked(dtype: &DType, mut chunks: Vec<EncodedRef>, limits: &Limits) -> EncodedRef {
    chunks.retain(|chunk| !chunk.is_empty());
    if let [chunk] = chunks.as_slice() {
        return Arc::clone(chunk);
    }
    let ends = chunks.iter().scan(0, |end, chunk| {
        *end += chunk.len();
        Some(*end)
    });
    let ends: Vec<usize> = ends.collect();
    let header = Header::new(ID, dtype.clone(), ends.last().copied().unwrap_or(0), limits);
    Arc::new(ChunkedArray { header, chunks, ends })
}

impl ChunkedArray {
    fn with(&self, chunks: Vec<EncodedRef>) -> EncodedRef {
        chunked(self.dtype(), chunks, self.limits())
    }

    /// The chunks that overlap `rows`, each with the part that does.
    fn within(&self, rows: Range<usize>) -> impl Iterator<Item = (&EncodedRef, Range<usize>)> {
        let first = self.ends.partition_point(|end| *end <= rows.start);
        let ends = self.chunks[first..].iter().zip(&self.ends[first..]);
        ends.map(|(chunk, end)| (chunk, end - chunk.len()))
            .take_while(move |(_, start)| *start < rows.end)
            .map(move |(chunk, start)| {
                (chunk, rows.start.saturating_sub(start)..(rows.end - start).min(chunk.len()))
            })
    }

    /// The rows at `indices`, in that order.
    fn rows_at(&self, indices: &UInt64Array) -> Result<EncodedRef> {
        // With the rows sorted by chunk, each chunk is accessed once; then rows are reordered as requested.
        let indices = indices.values();
        let in_order = indices.is_sorted();
        let mut order: Vec<usize> = (0..indices.len()).collect();
        if !in_order {
            order.sort_by_key(|at| indices[*at]);
        }
        let mut rest = order.as_slice();
        let mut chunks = Vec::new();
        for (chunk, end) in self.chunks.iter().zip(&self.ends) {
            let (here, behind) = rest.split_at(rest.partition_point(|at| indices[*at] < *end as u64));
            rest = behind;
            if !here.is_empty() {
                let start = (end - chunk.len()) as u64;
                let rows: Vec<u64> = here.iter().map(|at| indices[*at] - start).collect();
                chunks.push(chunk.take(&rows.into())?);
            }
        }
        if !rest.is_empty() {
            return Err(Error::invalid(format!("taking rows beyond {}", self.len())));
        }
        let sorted = self.with(chunks);
        if in_order {
            return Ok(sorted);
        }
        let mut back = vec![0u64; order.len()];
        for (sorted_at, at) in order.into_iter().enumerate() {
            back[at] = sorted_at as u64;
        }
        sorted.to_decoded()?.pick(Pick::Take(&back.into()))
    }

    /// Decodes each chunk and copies it before decoding the next, so that only one decoded chunk is held
    /// at a time.
    fn decode_primitive(&self, to: &DataType, width: usize) -> Result<ArrayRef> {
        let rows = self.len();
        self.limits().count_rows(rows, width)?;
        let mut values = MutableBuffer::with_capacity(rows * width);
        let mut nulls = NullBufferBuilder::new(rows);
        for chunk in &self.chunks {
            let part = counted_before(chunk.len() * width, || chunk.decode(to))?.to_data();
            let bytes = part.offset() * width..(part.offset() + part.len()) * width;
            values.extend_from_slice(&part.buffers()[0][bytes]);
            match part.nulls() {
                Some(part) => nulls.append_buffer(part),
                None => nulls.append_n_non_nulls(part.len()),
            }
        }
        fixed_width(to.clone(), rows, values.into(), nulls.finish())
    }
}

impl EncodedArray for ChunkedArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        self.chunks.iter().map(|chunk| ("chunk", chunk)).collect()
    }

    fn decompresses(&self) -> bool {
        self.chunks.iter().any(|chunk| chunk.decompresses())
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        // Merging dictionaries costs more than building one at the end.
        if let DataType::Dictionary(_, values) = to {
            return present(self.decode(values)?, to);
        }
        let _work = Work::begin();
        if let Some(width) = to.primitive_width() {
            return self.decode_primitive(to, width);
        }
        // Chunks that share bytes with the file count as nothing, however often they repeat.
        let width = self.dtype().row_bytes_hint();
        self.limits().count_rows(self.len(), width)?;
        let parts = self.chunks.iter().map(|chunk| counted_before(chunk.len() * width, || chunk.decode(to)));
        concat(&parts.collect::<Result<Vec<_>>>()?, to, self.limits())
    }

    fn validity(&self) -> Result<Validity> {
        let valid = self.matches(&Predicate::IsNotNull)?;
        Ok(Validity::from_nulls(Some(valid.values().clone().into())))
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let chunks: Result<Vec<_>> = match pick {
            Pick::Slice(rows) => {
                let chunks = self.within(rows.clone()).map(|(chunk, rows)| {
                    if rows == (0..chunk.len()) { Ok(Arc::clone(chunk)) } else { chunk.slice(rows) }
                });
                chunks.collect()
            }
            Pick::Filter(mask) => {
                let chunks = self.chunks.iter().zip(&self.ends).filter_map(|(chunk, end)| {
                    let mask = mask.slice(end - chunk.len()..*end);
                    match () {
                        () if mask.is_none() => None,
                        () if mask.is_all() => Some(Ok(Arc::clone(chunk))),
                        () => Some(chunk.filter(&mask)),
                    }
                });
                chunks.collect()
            }
            Pick::Take(indices) => return self.rows_at(indices),
        };
        Ok(self.with(chunks?))
    }

    fn aggregate(&self) -> Result<Aggregate> {
        let nothing = Aggregate::empty(self.dtype());
        self.chunks.iter().try_fold(nothing, |before, chunk| Ok(before.merge(chunk.aggregate()?)))
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        let outcomes = self.chunks.iter().map(|chunk| Ok(Arc::new(chunk.matches(predicate)?) as ArrayRef));
        let outcomes = outcomes.collect::<Result<Vec<_>>>()?;
        Ok(concat(&outcomes, &DataType::Boolean, self.limits())?.as_boolean().clone())
    }

    fn field(&self, at: usize) -> Result<EncodedRef> {
        let dtype = crate::array::masking::field_dtype(self.dtype(), at)?;
        let chunks = self.chunks.iter().map(|chunk| chunk.field(at)).collect::<Result<_>>()?;
        Ok(chunked(&dtype, chunks, self.limits()))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int32Array;

    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::StructType;
    use crate::encodings::shared::conformance;

    const I32: DType = DType::Primitive(PType::I32, true);

    fn tree(offsets: &[u64]) -> Tree {
        Tree::new(ID).child(Tree::primitive(offsets))
    }

    #[test]
    fn conforms() {
        let seven = Tree::new("vortex.constant").buffer(vec![0x18u8, 14]);
        let valid: Vec<bool> = (0..30).map(|at| at % 4 != 0).collect();
        let numbers: Vec<i32> = (0..30).collect();
        let nullable = Tree::primitive(&numbers).child(Tree::bools(&valid));
        let tree = tree(&[0, 30, 30, 50, 80])
            .child(Tree::primitive(&numbers))
            .child(Tree::primitive::<i32>(&[]))
            .child(seven)
            .child(nullable);
        let expected: Int32Array = (0..30)
            .map(Some)
            .chain([Some(7); 20])
            .chain((0..30).map(|at| (at % 4 != 0).then_some(at)))
            .collect();
        conformance::check(&tree.load(&I32, 80).unwrap(), &(Arc::new(expected) as ArrayRef));
    }

    #[test]
    fn numbers_count_once_against_the_limit() {
        let seven = || Tree::new("vortex.constant").buffer(vec![0x18u8, 14]);
        let tree = tree(&[0, 100, 200]).child(seven()).child(seven());
        let within = |bytes| {
            let array = tree.load_within(&I32, 200, &Limits::new().with_max_decoded_bytes(bytes)).unwrap();
            let _work = Work::begin();
            array.decode(&DataType::Int32)
        };
        // All 200 rows, and a chunk of 100 before it is copied.
        assert_eq!(within(1200).unwrap().len(), 200);
        assert!(within(1199).is_err());
    }

    #[test]
    fn chunks_are_limited_together() {
        let text = || Tree::new("vortex.constant").buffer([vec![0x3a, 100], vec![b'x'; 100]].concat());
        let tree = tree(&[0, 100, 200, 300]).child(text()).child(text()).child(text());
        let within = |bytes| {
            let limits = Limits::new().with_max_decoded_bytes(bytes);
            tree.load_within(&DType::Utf8(false), 300, &limits).unwrap().decode(&DataType::Utf8)
        };
        assert_eq!(within(40_000).unwrap().len(), 300);
        assert!(within(30_000).is_err(), "300 rows of 108 bytes");
    }

    #[test]
    fn no_chunks_make_no_rows() {
        let array = tree(&[0]).load(&I32, 0).unwrap();
        conformance::check(&array, &(Arc::new(Int32Array::new_null(0)) as ArrayRef));
    }

    #[test]
    fn offsets_must_span_the_rows() {
        let two = || Tree::primitive(&[1i32, 2]);
        assert!(tree(&[0, 2]).child(two()).load(&I32, 2).is_ok());
        for offsets in [[0, 1], [1, 3], [0, 3], [2, 0]] {
            assert!(tree(&offsets).child(two()).load(&I32, 2).is_err(), "{offsets:?}");
        }
        assert!(tree(&[0, 3, 1, 2]).child(two()).child(two()).child(two()).load(&I32, 2).is_err());
        assert!(Tree::new(ID).load(&I32, 0).is_err());
    }

    #[test]
    fn a_slice_inside_one_chunk_is_that_chunk() {
        let two = || Tree::primitive(&[1i32, 2]);
        let array = tree(&[0, 2, 4]).child(two()).child(two()).load(&I32, 4).unwrap();
        assert_eq!(array.slice(2..4).unwrap().encoding(), "vortex.primitive");
        assert_eq!(array.slice(1..3).unwrap().encoding(), ID);
    }

    #[test]
    fn a_field_comes_from_every_chunk() {
        let dtype = DType::Struct(Arc::new(StructType::new([("a".into(), I32)])), true);
        let plain = Tree::new("vortex.struct").child(Tree::primitive(&[1i32, 2]));
        let nullable = Tree::new("vortex.struct").child(Tree::bools(&[false, true]));
        let nullable = nullable.child(Tree::primitive(&[3i32, 4]));
        let array = tree(&[0, 2, 4]).child(plain).child(nullable).load(&dtype, 4).unwrap();
        let expected: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), Some(2), None, Some(4)]));
        conformance::check(&array.field(0).unwrap(), &expected);
    }
}
