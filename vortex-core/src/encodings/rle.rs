//! Block-wise run-length encoding: a small dictionary of run values for each 1024 rows.
//!
//! ```text
//! rows                a a a b b | c c c c c      (blocks, here of five)
//! values              a b c                      (of all blocks)
//! indices             0 0 0 1 1 | . . . . .      (within the block's values)
//! values_idx_offsets  0         | 2              (where the block's values start)
//! ```
//!
//! Metadata: lengths and types of the children, and the number of rows in the first block that are not
//! part of the array. Children: `values`, not null; `indices`, of one or two bytes each, which carry the
//! nulls; `values_idx_offsets`, which slices keep unchanged, so that they need not start at zero. Indices
//! are arbitrary in null rows, and in blocks that have a single value.
//!
//! Slices share the offsets and decode only the values of their blocks. Predicates are evaluated once per
//! value; taking looks up individual rows.

use std::sync::{Arc, OnceLock};

use arrow::array::{BooleanArray, UInt64Array};
use arrow::buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowNativeType as _, DataType};

use super::Encoding;
use super::shared::block_rows::BlockRows;
use crate::array::{
    ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, array_of_raw, decode_offsets,
    decode_raw, indices, present, unsigned_type,
};
use crate::dtype::{DType, PType};
use crate::expr::Predicate;
use crate::kernels::gather::gather_into;
use crate::kernels::{BLOCK, Word, match_word};
use crate::once::get_or_try_init;
use crate::{Error, Result};

/// The `fastlanes.rle` encoding.
#[derive(Debug)]
pub(super) struct Rle;

const ID: &str = "fastlanes.rle";

/// What errors call the starts of blocks.
const OFFSETS: &str = "value offsets";

/// Taking more than one in this many rows decodes all of them.
const TAKE_MANY: usize = 8;

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(uint64, tag = "1")]
    values_len: u64,
    #[prost(uint64, tag = "2")]
    indices_len: u64,
    #[prost(int32, tag = "3")]
    indices_ptype: i32,
    #[prost(uint64, tag = "4")]
    values_idx_offsets_len: u64,
    #[prost(int32, tag = "5")]
    values_idx_offsets_ptype: i32,
    #[prost(uint64, tag = "6")]
    offset: u64,
}

impl Encoding for Rle {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let ptype = node.dtype().ptype()?;
        node.expect_buffers(0)?;
        node.expect_children(3)?;
        let metadata = node.message::<Metadata>()?;
        let number = |number: u64| {
            usize::try_from(number).map_err(|_| Error::corrupt(format!("{number} is out of range")))
        };
        let (values_len, indices_len) = (number(metadata.values_len)?, number(metadata.indices_len)?);
        let starts_len = number(metadata.values_idx_offsets_len)?;
        let rows = BlockRows::try_new(metadata.offset, node.len())?;
        let positions = rows.positions();
        if indices_len % BLOCK != 0 || positions.end > indices_len {
            return Err(Error::corrupt(format!("rows {positions:?} of {indices_len} indices")));
        }
        if starts_len != indices_len / BLOCK {
            return Err(Error::corrupt(format!("{starts_len} value offsets for {indices_len} indices")));
        }
        let indices_ptype = PType::try_from_number(metadata.indices_ptype.into())?;
        if !matches!(indices_ptype, PType::U8 | PType::U16) {
            return Err(Error::corrupt(format!("indices are {indices_ptype}, not u8 or u16")));
        }
        let starts = unsigned_type(metadata.values_idx_offsets_ptype, OFFSETS)?;
        node.limits().count::<usize>(starts_len)?;

        let values = node.child(0, &DType::Primitive(ptype, false), values_len)?;
        let nullable = node.dtype().is_nullable();
        let indices = node.child(1, &DType::Primitive(indices_ptype, nullable), indices_len)?;
        let starts = node.child(2, &starts, starts_len)?;
        Ok(Arc::new(RleArray {
            header: node.header(ID),
            ptype,
            indices_ptype,
            values,
            indices: indices.slice(positions)?,
            starts: Arc::new(Starts { child: starts, values_len, known: OnceLock::new() }),
            first: 0,
            rows,
        }))
    }
}

#[derive(Debug)]
struct RleArray {
    header: Header,
    ptype: PType,
    indices_ptype: PType,
    /// The values of all blocks, including those before `first`.
    values: EncodedRef,
    /// One per row.
    indices: EncodedRef,
    starts: Arc<Starts>,
    /// The block that contains row 0.
    first: usize,
    /// Where the rows lie in that block and the following ones.
    rows: BlockRows,
}

/// The start of the values of each block, decoded at most once for all slices.
#[derive(Debug)]
struct Starts {
    child: EncodedRef,
    values_len: usize,
    /// One more than there are blocks, relative to the first.
    known: OnceLock<Box<[usize]>>,
}

impl Starts {
    fn get(&self) -> Result<&[usize]> {
        Ok(get_or_try_init(&self.known, || self.decode())?)
    }

    fn decode(&self) -> Result<Box<[usize]>> {
        let mut starts = decode_offsets(&self.child, OFFSETS, usize::MAX)?;
        let first = starts.first().copied().unwrap_or_default();
        starts.iter_mut().for_each(|start| *start -= first);
        let last = starts.last().copied().unwrap_or_default();
        if last > self.values_len {
            return Err(Error::corrupt(format!("a block's values start at {last} of {}", self.values_len)));
        }
        starts.push(self.values_len);
        Ok(starts.into())
    }
}

impl RleArray {
    /// The values of the blocks that contain the rows, and the start of each block's values in them.
    fn window(&self) -> Result<(EncodedRef, Vec<usize>)> {
        let count = self.rows.block_count();
        let starts = &self.starts.get()?[self.first..][..count + 1];
        let base = starts[0];
        let values = self.values.slice(base..starts[count])?;
        Ok((values, starts.iter().map(|start| start - base).collect()))
    }

    /// For each row, the entry of `of_values` for its value.
    fn spread<V: Copy + Default>(
        &self,
        of_values: &[V],
        starts: &[usize],
    ) -> Result<(Vec<V>, Option<NullBuffer>)> {
        self.limits().count::<V>(self.len())?;
        match self.indices_ptype {
            PType::U8 => self.spread_by::<V, u8>(of_values, starts),
            _ => self.spread_by::<V, u16>(of_values, starts),
        }
    }

    fn spread_by<V: Copy + Default, I: Word>(
        &self,
        of_values: &[V],
        starts: &[usize],
    ) -> Result<(Vec<V>, Option<NullBuffer>)> {
        let (indices, nulls) = decode_raw::<I>(&self.indices)?;
        let mut out = Vec::with_capacity(indices.len());
        for (block, part) in self.rows.parts() {
            let values = &of_values[starts[block]..starts[block + 1]];
            let first = out.len();
            let indices = &indices[first..first + part.len()];
            if let [only] = values {
                out.resize(first + indices.len(), *only);
            } else if gather_into(values, indices, &mut out).is_none() {
                // Acceptable if only null rows have indices out of range.
                for (row, index) in (first..).zip(indices) {
                    let value = values.get(index.as_usize()).copied();
                    if value.is_none() && nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                        let count = values.len();
                        return Err(Error::corrupt(format!("run {index:?} in a block of {count}")));
                    }
                    out.push(value.unwrap_or_default());
                }
            }
        }
        Ok((out, nulls))
    }

    /// The rows at `indices`, each looked up by itself.
    fn look_up(&self, indices: &UInt64Array) -> Result<EncodedRef> {
        let (values, starts) = self.window()?;
        let Some((positions, nulls)) = self.positions(indices, &starts)? else {
            return self.to_decoded()?.pick(Pick::Take(indices));
        };
        let array = match_word!(self.ptype, |W| {
            array_of_raw(self.ptype, decode_raw::<W>(&values.take(&positions)?)?.0, nulls)?
        });
        Ok(self.header.decoded(array))
    }

    /// The position of the value of each of some rows in `values` of [`window`](Self::window); `None` if
    /// determining it requires the whole block.
    fn positions(
        &self,
        rows: &UInt64Array,
        starts: &[usize],
    ) -> Result<Option<(UInt64Array, Option<NullBuffer>)>> {
        let indices = self.indices.take(rows)?;
        let (indices, nulls) = match self.indices_ptype {
            PType::U8 => {
                let (indices, nulls) = decode_raw::<u8>(&indices)?;
                (indices.iter().map(|index| u16::from(*index)).collect(), nulls)
            }
            _ => decode_raw::<u16>(&indices)?,
        };
        let indices: ScalarBuffer<u16> = indices;
        let mut positions = Vec::with_capacity(rows.len());
        for (row, index) in rows.values().iter().zip(indices.iter()) {
            let (block, _) = self.rows.place(row.as_usize());
            let (start, count) = (starts[block], starts[block + 1] - starts[block]);
            let index = if count == 1 { 0 } else { usize::from(*index) };
            if index >= count {
                return Ok(None);
            }
            positions.push((start + index) as u64);
        }
        Ok(Some((UInt64Array::from(positions), nulls)))
    }
}

impl EncodedArray for RleArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        vec![("values", &self.values), ("indices", &self.indices), ("values_idx_offsets", &self.starts.child)]
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let (values, starts) = self.window()?;
        let array = match_word!(self.ptype, |W| {
            let (values, _) = decode_raw::<W>(&values)?;
            let (rows, nulls) = self.spread(&values, &starts)?;
            array_of_raw(self.ptype, rows.into(), nulls)?
        });
        present(array, to)
    }

    fn validity(&self) -> Result<Validity> {
        self.indices.validity()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        match pick {
            Pick::Slice(rows) => {
                let (blocks, in_blocks) = self.rows.slice(rows);
                Ok(Arc::new(Self {
                    header: self.header.of_rows(rows.len()),
                    values: Arc::clone(&self.values),
                    starts: Arc::clone(&self.starts),
                    indices: pick.of(&self.indices)?,
                    first: self.first + blocks.start,
                    rows: in_blocks,
                    ..*self
                }))
            }
            _ if pick.row_count() > self.len() / TAKE_MANY => self.to_decoded()?.pick(pick),
            Pick::Filter(mask) => self.look_up(&indices(&mask.indices())),
            Pick::Take(indices) => self.look_up(indices),
        }
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        if predicate.is_null_test() {
            return self.indices.matches(predicate);
        }
        if !predicate.is_unknown_for_nulls_only() {
            return self.matches_decoded(predicate);
        }
        let (values, starts) = self.window()?;
        let of_values = values.matches(predicate)?;
        let of_values: Vec<bool> = of_values.values().iter().collect();
        let (rows, nulls) = self.spread(&of_values, &starts)?;
        Ok(BooleanArray::new(BooleanBuffer::from(rows), nulls))
    }
}

#[cfg(test)]
mod tests {
    use super::super::bit_packed::tests::validity_of;
    use super::*;
    use crate::array::build::Tree;
    use crate::encodings::shared::conformance;
    use crate::kernels::random;

    /// Runs of values, the rows including nulls, and the tree of both.
    struct Runs<W> {
        metadata: Metadata,
        values: Vec<W>,
        indices: Vec<u16>,
        starts: Vec<u32>,
        rows: Vec<W>,
    }

    /// Three blocks: with many runs, one run, and two runs.
    fn runs<W: Word>(ptype: PType) -> Runs<W> {
        let mut next = random(3);
        let (mut values, mut indices, mut starts) = (Vec::new(), Vec::new(), Vec::new());
        let mut rows: Vec<W> = Vec::new();
        for run_len in [5, 1024, 512] {
            starts.push(100 + values.len() as u32);
            for row in 0..BLOCK {
                if row % run_len == 0 {
                    // Small numbers are ordinary values for floats, too.
                    values.push(W::narrow(next() % 100));
                }
                indices.push(if run_len == 1024 { 9999 } else { (row / run_len) as u16 });
                rows.push(*values.last().unwrap());
            }
        }
        assert!(ptype.byte_width() == size_of::<W>());
        let metadata = Metadata {
            values_len: values.len() as u64,
            indices_len: 3072,
            indices_ptype: PType::U16 as i32,
            values_idx_offsets_len: 3,
            values_idx_offsets_ptype: PType::U32 as i32,
            offset: 0,
        };
        Runs { metadata, values, indices, starts, rows }
    }

    impl<W: Word> Runs<W> {
        fn tree(&self, valid: Option<&[bool]>) -> Tree {
            let indices = Tree::primitive(&self.indices);
            Tree::new(ID)
                .message(&self.metadata)
                .child(Tree::primitive(&self.values))
                .child(match valid {
                    Some(valid) => indices.child(Tree::bools(valid)),
                    None => indices,
                })
                .child(Tree::primitive(&self.starts))
        }
    }

    #[test]
    fn conforms_for_integers_and_floats() {
        for ptype in [PType::U8, PType::I16, PType::F16, PType::F32, PType::I64, PType::F64] {
            match_word!(ptype, |W| for (offset, len) in [(0usize, 3072), (600, 2000)] {
                let mut runs = runs::<W>(ptype);
                runs.metadata.offset = offset as u64;
                let rows = runs.rows[offset..offset + len].to_vec();
                let array = runs.tree(None).load(&DType::Primitive(ptype, false), len).unwrap();
                conformance::check(&array, &array_of_raw(ptype, rows.clone().into(), None).unwrap());

                let valid = validity_of(3072);
                for (index, valid) in runs.indices.iter_mut().zip(&valid) {
                    if !valid {
                        *index = 50_000;
                    }
                }
                let array = runs.tree(Some(&valid)).load(&DType::Primitive(ptype, true), len).unwrap();
                let nulls = Some(valid[offset..offset + len].to_vec().into());
                conformance::check(&array, &array_of_raw(ptype, rows.into(), nulls).unwrap());
            });
        }
    }

    #[test]
    fn a_valid_row_without_a_run_is_corrupt() {
        let mut runs = runs::<u32>(PType::U32);
        runs.indices[7] = 205;
        let array = runs.tree(None).load(&DType::Primitive(PType::U32, false), 3072).unwrap();
        assert!(array.decode(&DataType::UInt32).is_err());
        assert!(array.take(&UInt64Array::from(vec![7])).is_err());
        assert!(array.slice(1024..3072).unwrap().decode(&DataType::UInt32).is_ok());
    }

    #[test]
    fn a_block_without_values_holds_nulls_only() {
        let mut runs = runs::<u32>(PType::U32);
        runs.starts = vec![100, 100, 305];
        let dtype = DType::Primitive(PType::U32, true);
        let mut valid = vec![true; 3072];
        let array = runs.tree(Some(&valid)).load(&dtype, 1024).unwrap();
        assert!(array.decode(&DataType::UInt32).is_err());
        valid[..1024].fill(false);
        let array = runs.tree(Some(&valid)).load(&dtype, 1024).unwrap();
        assert_eq!(array.decode(&DataType::UInt32).unwrap().null_count(), 1024);
        assert_eq!(array.take(&UInt64Array::from(vec![5])).unwrap().validity().unwrap(), Validity::AllNull);
    }

    #[test]
    fn nodes_that_contradict_themselves_are_corrupt() {
        let dtype = DType::Primitive(PType::U32, false);
        let broken = |change: fn(&mut Runs<u32>)| {
            let mut runs = runs::<u32>(PType::U32);
            change(&mut runs);
            let array = runs.tree(None).load(&dtype, 2072);
            array.and_then(|array| array.decode(&DataType::UInt32)).is_err()
        };
        assert!(!broken(|runs| runs.metadata.offset = 1000));
        assert!(broken(|runs| runs.metadata.offset = 1001));
        assert!(broken(|runs| runs.metadata.offset = 1024));
        assert!(broken(|runs| runs.metadata.indices_len = 3071));
        assert!(broken(|runs| runs.metadata.indices_ptype = PType::U32 as i32));
        assert!(broken(|runs| runs.metadata.values_idx_offsets_len = 2));
        assert!(broken(|runs| runs.starts = vec![100, 99, 100]));
        assert!(broken(|runs| runs.starts = vec![0, 205, 1000]));
        assert!(broken(|runs| runs.metadata.values_len = u64::MAX));
    }
}
