//! Bit-packing: integers stored in as few bits as most of them need.
//!
//! ```text
//! rows     |-------- 1024 --------|-------- 1024 --------|--- rest, padded ---|
//! packed   [  128 * width bytes  ][  128 * width bytes  ][ 128 * width bytes ]
//!          ^ `offset` rows of the first block are not part of the array
//! ```
//!
//! Metadata: width, offset, description of the patches. Buffer: the blocks, each packed in lanes as
//! described in [`kernels::bitpack`](crate::kernels::bitpack). Children: those of the [patches](patches),
//! which hold the values that need more bits, then optionally the validity.
//!
//! Packed values are not negative: the bits above `width` are zero. [`v2`] allows a different width for
//! each block.
//!
//! Slicing shares the bytes and moves the offset. Comparisons unpack one block at a time into a scratch
//! buffer, unless the width alone determines the outcome. Filter and take extract single values from
//! blocks of which few are wanted, and never touch blocks without any.

mod blocks;
mod encode;
mod v2;

use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{ArrowNativeType as _, DataType};

use self::blocks::{BYTES_PER_BIT, BlockPositions};

use super::Encoding;
use super::shared::block_rows::BlockRows;
use super::shared::patches::{Patches, PatchesMessage};
use crate::array::intervals::tests_of;
use crate::array::{
    ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, ValidityChild, all, array_of_raw,
    decode_raw, present,
};
use crate::dtype::PType;
use crate::expr::{Intervals, Predicate};
use crate::kernels::bitpack::{extract_single, few, unpack_rows, words_of};
use crate::kernels::within::{BLOCK_BITS, Within, bitmap};
use crate::kernels::{BLOCK, Word, match_word};
use crate::{Error, Result};

pub(crate) use encode::encode;
pub(super) use v2::BitPackedV2;

/// Taking more than one in this many rows unpacks all of them.
const TAKE_MANY: usize = 8;

/// The `fastlanes.bitpacked` encoding.
#[derive(Debug)]
pub(super) struct BitPacked;

const ID: &str = "fastlanes.bitpacked";

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(uint32, tag = "1")]
    bit_width: u32,
    #[prost(uint32, tag = "2")]
    offset: u32,
    #[prost(message, optional, tag = "3")]
    patches: Option<PatchesMessage>,
}

impl Encoding for BitPacked {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let metadata = node.message::<Metadata>()?;
        let frame = Frame::of(node, metadata.offset)?;
        let width = metadata.bit_width as usize;
        node.expect_buffers(1)?;
        frame.check_bytes(width, node.buffer_len(0)?)?;
        let packed = node.aligned(node.buffer(0)?, frame.ptype.byte_width())?;
        let (patches, after) = frame.patches(node, metadata.patches.as_ref())?;
        Ok(Arc::new(BitPackedArray {
            header: node.header(ID),
            ptype: frame.ptype,
            rows: frame.rows,
            blocks: BlockPositions::Even { packed, width },
            patches,
            validity: node.validity_child(after)?,
        }))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        let metadata = node.message::<Metadata>()?;
        let frame = Frame::of(node, metadata.offset)?;
        let width = metadata.bit_width as usize;
        node.expect_buffers(1)?;
        frame.check_bytes(width, node.buffer_len(0)?)?;
        let picked = node.of_rows(rows);
        // No `?` before all are loaded: see `load_rows`.
        let patches = frame.patches(&picked, metadata.patches.as_ref());
        let validity =
            picked.validity_child(metadata.patches.as_ref().map_or(0, PatchesMessage::child_count));
        match_word!(frame.ptype, |W| {
            let mut values = frame.single_values::<W>(node, width, rows)?;
            if let (Some(patches), _) = patches? {
                patches.apply(&mut values, |_, patch| patch)?;
            }
            let nulls = validity?.decode()?.to_nulls(rows.len());
            let array = array_of_raw(frame.ptype, values.into(), nulls)?;
            Ok(picked.header(ID).decoded(array))
        })
    }
}

/// The properties of a node that both versions check.
struct Frame {
    ptype: PType,
    rows: BlockRows,
}

impl Frame {
    fn of(node: &Node<'_>, offset: u32) -> Result<Self> {
        let ptype = node.dtype().integer_ptype()?;
        Ok(Self { ptype, rows: BlockRows::try_new(offset.into(), node.len())? })
    }

    /// Checks the number of bytes of blocks that all have the same width.
    fn check_bytes(&self, width: usize, byte_len: usize) -> Result<()> {
        if width > self.ptype.bit_width() {
            return Err(Error::corrupt(format!("{width} bits for values of {}", self.ptype)));
        }
        let block_count = self.rows.block_count();
        if block_count.checked_mul(BYTES_PER_BIT * width) != Some(byte_len) {
            return Err(Error::corrupt(format!("{byte_len} bytes for {block_count} blocks of {width} bits")));
        }
        Ok(())
    }

    /// The values of some rows, each extracted from the few words that contain it.
    fn single_values<W: Word>(&self, node: &Node<'_>, width: usize, rows: &[usize]) -> Result<Vec<W>> {
        let mut values = Vec::with_capacity(rows.len());
        let mut append = |row: &usize| {
            let (block, at) = self.rows.place(*row);
            let words = words_of::<W>(width, at);
            let block = block * BYTES_PER_BIT * width;
            let bytes = block + words.start * size_of::<W>()..block + words.end * size_of::<W>();
            node.with_piece(0, bytes, |bytes| values.push(extract_single(width, at, bytes)))
        };
        all(rows.iter().map(&mut append))?;
        Ok(values)
    }

    /// The patches, and the number of children that they take.
    fn patches(&self, node: &Node<'_>, message: Option<&PatchesMessage>) -> Result<(Option<Patches>, usize)> {
        let Some(message) = message else { return Ok((None, 0)) };
        let patches = Patches::load(node, message, 0, node.dtype())?;
        Ok((Some(patches), message.child_count()))
    }
}

/// Bit-packed integers.
#[derive(Debug)]
pub(crate) struct BitPackedArray {
    header: Header,
    ptype: PType,
    rows: BlockRows,
    blocks: BlockPositions,
    patches: Option<Patches>,
    validity: ValidityChild,
}

impl BitPackedArray {
    /// Where the rows lie in the blocks.
    pub(super) fn rows(&self) -> BlockRows {
        self.rows
    }

    /// All values, each plus the `reference` of its block. Additions wrap.
    pub(crate) fn unpack<W: Word>(&self, reference: impl Fn(usize) -> W) -> Result<Vec<W>> {
        self.limits().count::<W>(self.rows.len())?;
        let blocks = self.blocks.view::<W>()?;
        let mut out = unpack_rows(self.rows.positions(), |at, most| {
            let added = reference(at);
            (blocks.some(at, most, |next| reference(next) == added), added)
        });
        if let Some(patches) = &self.patches {
            patches.apply(&mut out, |row, patch: W| patch.plus(reference(self.rows.place(row).0)))?;
        }
        Ok(out)
    }

    /// Tests which values, plus the `reference` of their block, pass any of several tests. The results of
    /// null rows are arbitrary.
    pub(crate) fn test<W: Word>(
        &self,
        any_of: &[Within<W>],
        reference: impl Fn(usize) -> W,
    ) -> Result<BooleanBuffer> {
        self.limits().count_rows(self.rows.len(), 1)?;
        let blocks = self.blocks.view::<W>()?;
        let block_count = self.rows.block_count();
        let mut bits: Vec<u64> = Vec::with_capacity(block_count * BLOCK_BITS);
        let mut scratch = [W::ZERO; BLOCK];
        for at in 0..block_count {
            let (block, reference) = (blocks.get(at), reference(at));
            let (mut passed, mut is_unpacked) = ([0; BLOCK_BITS], false);
            for within in any_of.iter().map(|within| within.minus(reference)) {
                match within.decided(block.max()) {
                    Some(true) => passed = [u64::MAX; BLOCK_BITS],
                    Some(false) => {}
                    None => {
                        if !is_unpacked {
                            block.unpack(W::ZERO, &mut scratch);
                            is_unpacked = true;
                        }
                        let more = within.test(&scratch);
                        passed.iter_mut().zip(more).for_each(|(passed, more)| *passed |= more);
                    }
                }
            }
            bits.extend(passed);
        }
        if let Some(patches) = &self.patches {
            let located = patches.locate()?;
            let (values, _) = decode_raw::<W>(&located.values)?;
            for (row, value) in located.rows().zip(values.iter()) {
                let (block, at) = self.rows.place(row);
                let (word, bit) = (&mut bits[block * BLOCK_BITS + at / 64], 1u64 << (at % 64));
                let reference = reference(block);
                if any_of.iter().any(|within| within.minus(reference).holds(*value)) {
                    *word |= bit
                } else {
                    *word &= !bit
                }
            }
        }
        Ok(bitmap(bits, self.rows.positions()))
    }

    /// The live values. `live` has one bit per row.
    fn unpack_live<W: Word>(&self, live: &BooleanBuffer, count: usize) -> Result<Vec<W>> {
        self.limits().count::<W>(count)?;
        let blocks = self.blocks.view::<W>()?;
        let mut out = Vec::with_capacity(count);
        let mut scratch = [W::ZERO; BLOCK];
        let mut within = Vec::with_capacity(few::<W>());
        let mut first = 0;
        for (at, part) in self.rows.parts() {
            let live = live.slice(first, part.len());
            first += part.len();
            let block = blocks.get(at);
            match live.count_set_bits() {
                0 => {}
                BLOCK => block.append_to(W::ZERO, &mut out),
                count if count <= few::<W>() => {
                    within.clear();
                    within.extend(live.set_indices().map(|row| part.start + row));
                    block.extract(&within, W::ZERO, &mut out);
                }
                count => {
                    block.unpack(W::ZERO, &mut scratch);
                    let scratch = &scratch[part.clone()];
                    if count > part.len() / 4 * 3 {
                        live.set_slices()
                            .for_each(|(start, end)| out.extend_from_slice(&scratch[start..end]));
                    } else {
                        out.extend(live.set_indices().map(|row| scratch[row]));
                    }
                }
            }
        }
        Ok(out)
    }

    /// The values of some rows, in the given order. Fastest if neighbouring rows share blocks.
    fn unpack_single<W: Word>(&self, rows: &[u64]) -> Result<Vec<W>> {
        self.limits().count::<W>(rows.len())?;
        let blocks = self.blocks.view::<W>()?;
        let mut out = Vec::with_capacity(rows.len());
        let mut within = Vec::new();
        for rows in rows.chunk_by(|left, right| self.block_of(*left) == self.block_of(*right)) {
            let block = blocks.get(self.block_of(rows[0]));
            within.clear();
            within.extend(rows.iter().map(|row| self.rows.place(row.as_usize()).1));
            if rows.len() <= few::<W>() {
                block.extract(&within, W::ZERO, &mut out);
            } else {
                let mut scratch = [W::ZERO; BLOCK];
                block.unpack(W::ZERO, &mut scratch);
                out.extend(within.iter().map(|row| scratch[*row]));
            }
        }
        Ok(out)
    }

    fn block_of(&self, row: u64) -> usize {
        self.rows.place(row.as_usize()).0
    }

    /// An array of selected values with their patches and validity.
    fn decoded<W: Word>(
        &self,
        mut values: Vec<W>,
        patches: Option<Patches>,
        validity: &ValidityChild,
    ) -> Result<EncodedRef> {
        if let Some(patches) = patches {
            patches.apply(&mut values, |_, patch| patch)?;
        }
        let nulls = validity.decode()?.to_nulls(values.len());
        let array = array_of_raw(self.ptype, values.into(), nulls)?;
        Ok(self.header.decoded(array))
    }
}

impl EncodedArray for BitPackedArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        let mut children = self.patches.as_ref().map_or_else(Vec::new, Patches::children);
        children.extend(self.validity.named());
        if let BlockPositions::Uneven { bounds, .. } = &self.blocks {
            children.push(("block_offsets", &bounds.child));
        }
        children
    }

    fn buffer_bytes(&self) -> usize {
        self.blocks.byte_len()
    }

    fn decodes_in_parts(&self) -> bool {
        true
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let nulls = self.validity()?.to_nulls(self.len());
        let array = match_word!(self.ptype, |W| {
            array_of_raw(self.ptype, self.unpack::<W>(|_| W::ZERO)?.into(), nulls)?
        });
        present(array, to)
    }

    fn validity(&self) -> Result<Validity> {
        self.validity.decode()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let few = if let Pick::Filter(mask) = pick { mask.few() } else { None };
        let pick = few.as_ref().map_or(pick, Pick::Take);
        if let Pick::Take(indices) = pick
            && indices.len() > self.len() / TAKE_MANY
        {
            return self.to_decoded()?.pick(pick);
        }
        let patches = self.patches.as_ref().map(|patches| patches.pick(pick)).transpose()?.flatten();
        let validity = self.validity.pick(pick)?;
        match pick {
            Pick::Slice(rows) => {
                let (blocks, in_blocks) = self.rows.slice(rows);
                Ok(Arc::new(Self {
                    header: self.header.of_rows(rows.len()),
                    ptype: self.ptype,
                    rows: in_blocks,
                    blocks: self.blocks.slice(blocks),
                    patches,
                    validity,
                }))
            }
            Pick::Filter(mask) => match_word!(self.ptype, |W| {
                let values = self.unpack_live::<W>(&mask.to_bits(), mask.true_count())?;
                self.decoded(values, patches, &validity)
            }),
            Pick::Take(indices) => match_word!(self.ptype, |W| {
                let values = self.unpack_single::<W>(indices.values())?;
                self.decoded(values, patches, &validity)
            }),
        }
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        if let Some(outcome) = self.null_test(predicate)? {
            return Ok(outcome);
        }
        let Some(intervals) = Intervals::of(predicate, self.ptype) else {
            return self.matches_decoded(predicate);
        };
        let nulls = self.validity()?.to_nulls(self.len());
        let bits = match_word!(self.ptype, |W| self.test::<W>(&tests_of(&intervals), |_| W::ZERO)?);
        Ok(intervals.outcome(bits, nulls))
    }
}

#[cfg(test)]
pub(super) mod tests;
