//! Exceptions stored outside the array they belong to, sorted for lanes that work in parallel.
//!
//! ```text
//! rows      |------ 1024 ------|------ 1024 ------| ...
//! slots     | lane 0 | lane 1 | ... | lane 0 | ...        lane_offsets: where each slot begins
//! patches   | k k k  | k      | ... | k k    | ...        indices (within the 1024), values
//! ```
//!
//! Metadata: number of patches, number of lanes, and the number of rows in the first 1024 that are not
//! part of the array. Children: `inner`, the array without its exceptions but with its nulls;
//! `lane_offsets`, one more than there are slots; `indices`; `values`. No buffers. Slices retain patches
//! outside of their rows, which are ignored.
//!
//! The patches of a chunk are adjacent, so that a slice decodes only those of its own chunks.

use std::sync::{Arc, OnceLock};

use arrow::array::{Array as _, BooleanArray, UInt64Array};
use arrow::datatypes::DataType;

use super::Encoding;
use super::shared::block_rows::BlockRows;
use super::shared::patches::Patches;
use crate::array::{
    ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, array_of_raw, decode_offsets,
    decode_raw, into_vec, present,
};
use crate::dtype::{DType, PType};
use crate::expr::Predicate;
use crate::kernels::{BLOCK, Word, match_word};
use crate::once::get_or_try_init;
use crate::{Error, Result};

/// The `vortex.patched` encoding.
#[derive(Debug)]
pub(super) struct Patched;

const ID: &str = "vortex.patched";

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(uint32, tag = "1")]
    n_patches: u32,
    #[prost(uint32, tag = "2")]
    n_lanes: u32,
    #[prost(uint32, tag = "3")]
    offset: u32,
}

impl Encoding for Patched {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let ptype = node.dtype().ptype()?;
        node.expect_buffers(0)?;
        node.expect_children(4)?;
        let metadata = node.message::<Metadata>()?;
        let (lanes, patch_count) = (metadata.n_lanes as usize, metadata.n_patches as usize);
        let rows = BlockRows::try_new(metadata.offset.into(), node.len())?;
        let slots = rows.block_count().checked_mul(lanes);
        let Some(lane_offsets_len) = slots.and_then(|slots| slots.checked_add(1)) else {
            return Err(Error::corrupt(format!("{} rows in {lanes} lanes", node.len())));
        };
        node.limits().count::<usize>(lane_offsets_len)?;
        let inner = node.child(0, node.dtype(), node.len())?;
        let integers = |ptype| DType::Primitive(ptype, false);
        Ok(Arc::new(PatchedArray {
            header: node.header(ID),
            ptype,
            inner,
            lane_offsets: node.child(1, &integers(PType::U32), lane_offsets_len)?,
            indices: node.child(2, &integers(PType::U16), patch_count)?,
            values: node.child(3, node.dtype(), patch_count)?,
            lanes,
            rows,
            by_row: OnceLock::new(),
        }))
    }
}

#[derive(Debug)]
struct PatchedArray {
    header: Header,
    ptype: PType,
    inner: EncodedRef,
    /// Offsets of the chunks that contain the rows.
    lane_offsets: EncodedRef,
    /// Indices of all patches, including those of other chunks.
    indices: EncodedRef,
    values: EncodedRef,
    lanes: usize,
    /// Where the rows lie in the chunks.
    rows: BlockRows,
    by_row: OnceLock<Patches>,
}

impl PatchedArray {
    /// The row of each patch of the chunks, and its value; rows may lie outside the array.
    fn patches(&self) -> Result<(Vec<Option<usize>>, EncodedRef)> {
        let bounds = decode_offsets(&self.lane_offsets, "lane offsets", self.indices.len())?;
        let (Some(first), Some(last)) = (bounds.first().copied(), bounds.last().copied()) else {
            return Err(Error::corrupt("no lane offsets"));
        };
        let (indices, _) = decode_raw::<u16>(&self.indices.slice(first..last)?)?;
        // There may be more patches than rows.
        self.limits().count::<Option<usize>>(indices.len())?;
        let own = self.rows.positions();
        let mut rows = Vec::with_capacity(indices.len());
        // The lane of a patch does not matter; the chunk changes every `lanes` slots.
        for chunk in 0..(bounds.len() - 1).checked_div(self.lanes).unwrap_or_default() {
            let (start, end) = (bounds[chunk * self.lanes], bounds[(chunk + 1) * self.lanes]);
            for index in &indices[start - first..end - first] {
                let index = usize::from(*index);
                if index >= BLOCK {
                    return Err(Error::corrupt(format!("patch {index} of a chunk of {BLOCK}")));
                }
                let position = chunk * BLOCK + index;
                rows.push(own.contains(&position).then(|| position - own.start));
            }
        }
        Ok((rows, self.values.slice(first..last)?))
    }

    fn by_row(&self) -> Result<&Patches> {
        get_or_try_init(&self.by_row, || self.sort_by_row())
    }

    /// The patches in ascending order of rows; if a row has several, the last one applies.
    fn sort_by_row(&self) -> Result<Patches> {
        let (rows, values) = self.patches()?;
        self.limits().count_rows(rows.len(), 2 * size_of::<(usize, u64)>())?;
        let mut numbered: Vec<(usize, usize)> =
            rows.iter().enumerate().filter_map(|(number, row)| Some(((*row)?, number))).collect();
        numbered.sort_unstable_by_key(|(row, number)| (*row, std::cmp::Reverse(*number)));
        numbered.dedup_by_key(|(row, _)| *row);
        let (rows, numbers): (Vec<usize>, Vec<u64>) =
            numbered.into_iter().map(|(row, number)| (row, number as u64)).unzip();
        Ok(Patches::new(rows, values.take(&UInt64Array::from(numbers))?, self.len()))
    }

    fn patched<W: Word>(&self) -> Result<ArrayRef> {
        let (rows, values) = self.patches()?;
        let (inner, nulls) = decode_raw::<W>(&self.inner)?;
        if rows.is_empty() {
            return array_of_raw(self.ptype, inner, nulls);
        }
        let (values, _) = decode_raw::<W>(&values)?;
        let mut out = into_vec(inner, self.limits())?;
        for (row, value) in rows.into_iter().zip(values.iter()) {
            if let Some(row) = row {
                out[row] = *value;
            }
        }
        array_of_raw(self.ptype, out.into(), nulls)
    }

    /// Selected rows of the inner array with their patches applied.
    fn with_patches(&self, inner: EncodedRef, patches: Option<Patches>) -> Result<EncodedRef> {
        let Some(patches) = patches else { return Ok(inner) };
        let array = match_word!(self.ptype, |W| {
            let (inner, nulls) = decode_raw::<W>(&inner)?;
            let mut out = into_vec(inner, self.limits())?;
            patches.apply(&mut out, |_, patch| patch)?;
            array_of_raw(self.ptype, out.into(), nulls)?
        });
        Ok(self.header.decoded(array))
    }
}

impl EncodedArray for PatchedArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        vec![
            ("inner", &self.inner),
            ("lane_offsets", &self.lane_offsets),
            ("patch_indices", &self.indices),
            ("patch_values", &self.values),
        ]
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        present(match_word!(self.ptype, |W| self.patched::<W>()?), to)
    }

    fn validity(&self) -> Result<Validity> {
        self.inner.validity()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let inner = pick.of(&self.inner)?;
        let Pick::Slice(rows) = pick else { return self.with_patches(inner, self.by_row()?.pick(pick)?) };
        let (chunks, in_chunks) = self.rows.slice(rows);
        let lane_offsets = chunks.start * self.lanes..chunks.end * self.lanes + 1;
        Ok(Arc::new(Self {
            header: self.header.of_rows(rows.len()),
            ptype: self.ptype,
            inner,
            lane_offsets: self.lane_offsets.slice(lane_offsets)?,
            indices: Arc::clone(&self.indices),
            values: Arc::clone(&self.values),
            lanes: self.lanes,
            rows: in_chunks,
            by_row: OnceLock::new(),
        }))
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        if predicate.is_null_test() {
            return self.inner.matches(predicate);
        }
        if predicate.is_unknown_for_nulls_only() {
            let located = self.by_row()?.locate()?;
            let of_patches = located.values.matches(predicate)?;
            if of_patches.null_count() == 0 {
                let of_inner = self.inner.matches(predicate)?;
                let bits = located.overwrite(of_inner.values(), of_patches.values().iter());
                return Ok(BooleanArray::new(bits, of_inner.nulls().cloned()));
            }
        }
        self.matches_decoded(predicate)
    }
}

#[cfg(test)]
mod tests {
    use super::super::bit_packed::tests::{narrow_values, validity_of};
    use super::*;
    use crate::array::build::Tree;
    use crate::encodings::shared::conformance;
    use crate::limits::{Limits, Work};

    const LANES: usize = 4;

    /// The children for patches at ascending positions of the chunks.
    fn patches<W: Word>(chunks: usize, at: &[(usize, W)]) -> (Vec<u32>, Vec<u16>, Vec<W>) {
        let (mut offsets, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
        for slot in 0..chunks * LANES {
            for (position, value) in at {
                let index = position % BLOCK;
                if position / BLOCK == slot / LANES && index % LANES == slot % LANES {
                    indices.push(index as u16);
                    values.push(*value);
                }
            }
            offsets.push(indices.len() as u32);
        }
        (offsets, indices, values)
    }

    #[test]
    fn conforms_for_integers_and_floats() {
        for ptype in [PType::U8, PType::F32, PType::I64] {
            match_word!(ptype, |W| for offset in [0usize, 1000] {
                let len = 3000 - offset;
                let mut inner: Vec<W> = narrow_values(len, 6, 8);
                let at: Vec<(usize, W)> =
                    (0..3000).step_by(70).map(|at| (at, W::narrow(70 + at as u64 % 30))).collect();
                let (offsets, indices, values) = patches(3, &at);
                let metadata =
                    Metadata { n_patches: values.len() as u32, n_lanes: LANES as u32, offset: offset as u32 };
                let valid = validity_of(len);
                let with = |child: Tree| {
                    Tree::new(ID)
                        .message(&metadata)
                        .child(child)
                        .child(Tree::primitive(&offsets))
                        .child(Tree::primitive(&indices))
                        .child(Tree::primitive(&values))
                };
                let plain = with(Tree::primitive(&inner));
                let nullable = with(Tree::primitive(&inner).child(Tree::bools(&valid)));
                for (position, value) in at {
                    if let Some(row) = position.checked_sub(offset) {
                        inner[row] = value;
                    }
                }
                let array = plain.load(&DType::Primitive(ptype, false), len).unwrap();
                conformance::check(&array, &array_of_raw(ptype, inner.clone().into(), None).unwrap());
                let array = nullable.load(&DType::Primitive(ptype, true), len).unwrap();
                let expected = array_of_raw(ptype, inner.into(), Some(valid.into())).unwrap();
                conformance::check(&array, &expected);
            });
        }
    }

    fn tree(metadata: &Metadata, offsets: &[u32], indices: &[u16]) -> Tree {
        Tree::new(ID)
            .message(metadata)
            .child(Tree::primitive(&[1i32, 2, 3]))
            .child(Tree::primitive(offsets))
            .child(Tree::primitive(indices))
            .child(Tree::primitive(&[7i32, 8]))
    }

    #[test]
    fn the_last_of_several_patches_of_a_row_counts() {
        let metadata = Metadata { n_patches: 2, n_lanes: 1, offset: 0 };
        let array = tree(&metadata, &[0, 2], &[1, 1]).load(&DType::Primitive(PType::I32, false), 3).unwrap();
        conformance::check(&array, &array_of_raw(PType::I32, vec![1, 8, 3].into(), None).unwrap());
    }

    #[test]
    fn patches_of_few_rows_are_limited() {
        let patch_count = 1000;
        let constant = |bytes: [u8; 2]| Tree::new("vortex.constant").buffer(bytes);
        let tree = Tree::new(ID)
            .message(&Metadata { n_patches: patch_count, n_lanes: 1, offset: 0 })
            .child(Tree::primitive(&[1i32]))
            .child(Tree::primitive(&[0, patch_count]))
            .child(constant([0x20, 0]))
            .child(constant([0x18, 14]));
        let dtype = DType::Primitive(PType::I32, false);
        for (bytes, is_enough) in [(40_000, true), (10_000, false)] {
            let limits = Limits::new().with_max_decoded_bytes(bytes);
            let _work = Work::begin();
            let decoded = tree.load_within(&dtype, 1, &limits).unwrap().decode(&DataType::Int32);
            assert_eq!(decoded.is_ok(), is_enough, "{decoded:?}");
        }
    }

    #[test]
    fn patches_that_contradict_themselves_are_corrupt() {
        let dtype = DType::Primitive(PType::I32, false);
        let metadata = Metadata { n_patches: 2, n_lanes: 1, offset: 0 };
        let decode = |tree: Tree| tree.load(&dtype, 3)?.decode(&DataType::Int32);
        assert!(decode(tree(&metadata, &[0, 2], &[0, 2])).is_ok());
        assert!(decode(tree(&metadata, &[0, 2], &[0, 1024])).is_err(), "beyond the chunk");
        assert!(decode(tree(&metadata, &[0, 3], &[0, 2])).is_err(), "more than there are");
        assert!(decode(tree(&metadata, &[2, 0], &[0, 2])).is_err(), "falling");
        assert!(decode(tree(&metadata, &[0, 1, 2], &[0, 2])).is_err(), "too many slots");
        let late = Metadata { offset: 1024, ..metadata };
        assert!(decode(tree(&late, &[0, 2], &[0, 2])).is_err(), "offset beyond the chunk");
    }
}
