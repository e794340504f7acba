//! Floats split into two parts: left bits encoded by a dictionary, right bits as they are.
//!
//! ```text
//! bits of a value   | left: 16 at most | right: `right_bit_width` |
//!                     dictionary[code]    integer
//! ```
//!
//! Metadata: the width of the right part, the dictionary (at most 8 entries), and the patches: left bits
//! that are not in the dictionary. Children: codes, which carry the nulls, and right parts, as wide as
//! the floats; then the patches. Codes under nulls and patches are arbitrary.
//!
//! The dictionary entries are shifted into place once; decoding combines them with the right parts by OR.

mod encode;

use std::sync::Arc;

use arrow::array::{ArrowPrimitiveType, PrimitiveArray};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Float32Type, Float64Type};

use super::Encoding;
use super::shared::patches::{Patches, PatchesMessage};
use crate::array::{
    ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, decode_raw, into_vec, present,
};
use crate::dtype::{DType, PType};
use crate::kernels::Word;
use crate::kernels::gather::in_range;
use crate::{Error, Result};

pub(crate) use encode::{Cut, encode, find_cut};

/// The `vortex.alprd` encoding.
#[derive(Debug)]
pub(in crate::encodings) struct AlpRd;

const ID: &str = "vortex.alprd";

/// Maximum number of dictionary entries; codes are masked with one less, so that no lookup fails.
const MAX_ENTRIES: usize = 8;

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(uint32, tag = "1")]
    right_bit_width: u32,
    #[prost(uint32, tag = "2")]
    entry_count: u32,
    #[prost(uint32, repeated, tag = "3")]
    entries: Vec<u32>,
    #[prost(int32, tag = "4")]
    codes_ptype: i32,
    #[prost(message, optional, tag = "5")]
    patches: Option<PatchesMessage>,
}

impl Encoding for AlpRd {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let DType::Primitive(ptype @ (PType::F32 | PType::F64), nullable) = *node.dtype() else {
            return Err(Error::corrupt(format!("holds f32 or f64, not {}", node.dtype())));
        };
        let metadata: Metadata = node.message()?;
        let dictionary = dictionary(&metadata)?;
        let width = metadata.right_bit_width;
        if width as usize >= ptype.bit_width() {
            return Err(Error::corrupt(format!("right part of {width} bits of {ptype}")));
        }
        if dictionary.is_empty() && !node.is_empty() {
            return Err(Error::corrupt("dictionary of left parts is empty"));
        }
        if PType::try_from_number(metadata.codes_ptype.into())? != PType::U16 {
            return Err(Error::corrupt("codes of left parts are not u16"));
        }
        // Old releases declare codes and patches of nullable columns as nullable, newer ones only the
        // codes; a nullable child need not have nulls, so that type fits both. The chunk offsets of these
        // patches are never written.
        let left = DType::Primitive(PType::U16, nullable);
        let message = metadata.patches.map(|patches| PatchesMessage { chunk_offsets_ptype: None, ..patches });
        node.expect_buffers(0)?;
        node.expect_children(2 + message.as_ref().map_or(0, PatchesMessage::child_count))?;
        // No `?` before all are loaded: see `load_rows`.
        let patches = message.map(|message| Patches::load(node, &message, 2, &left)).transpose();
        let codes = node.child(0, &left, node.len());
        let right = node.child(1, &DType::Primitive(ptype.to_unsigned(), false), node.len());
        Ok(Arc::new(AlpRdArray {
            header: node.header(ID),
            dictionary,
            right_bit_width: width,
            codes: codes?,
            right: right?,
            patches: patches?,
        }))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        self.load(&node.of_rows(rows))
    }
}

fn dictionary(metadata: &Metadata) -> Result<Arc<[u16]>> {
    let entries = usize::try_from(metadata.entry_count).ok().filter(|count| *count <= MAX_ENTRIES);
    let entries = entries.and_then(|count| metadata.entries.get(..count)).ok_or_else(|| {
        Error::corrupt(format!(
            "{} left parts used of {}, {MAX_ENTRIES} allowed",
            metadata.entry_count,
            metadata.entries.len()
        ))
    })?;
    let entry = |entry: &u32| {
        u16::try_from(*entry).map_err(|_| Error::corrupt(format!("left part {entry:#x} exceeds 16 bits")))
    };
    entries.iter().map(entry).collect()
}

#[derive(Debug)]
struct AlpRdArray {
    header: Header,
    dictionary: Arc<[u16]>,
    right_bit_width: u32,
    codes: EncodedRef,
    right: EncodedRef,
    patches: Option<Patches>,
}

impl AlpRdArray {
    fn decode_bits<W: Word, F: ArrowPrimitiveType>(&self) -> Result<ArrayRef> {
        let width = self.right_bit_width;
        let left = |part: u16| W::narrow(part.into()) << width as usize;
        let mut table = [W::ZERO; MAX_ENTRIES];
        for (slot, entry) in table.iter_mut().zip(self.dictionary.iter()) {
            *slot = left(*entry);
        }
        let (codes, nulls) = decode_raw::<u16>(&self.codes)?;
        self.check_codes(&codes, nulls.as_ref())?;
        let (right, _) = decode_raw::<W>(&self.right)?;
        let mut bits = into_vec(right, self.limits())?;
        for (bits, code) in bits.iter_mut().zip(codes.iter()) {
            *bits = *bits | table[usize::from(*code) % MAX_ENTRIES];
        }
        if let Some(patches) = &self.patches {
            let located = patches.locate()?;
            let (parts, _) = decode_raw::<u16>(&located.values)?;
            let mask = !(W::MAX << width as usize);
            for (row, part) in located.rows().zip(parts.iter()) {
                bits[row] = bits[row] & mask | left(*part);
            }
        }
        let len = bits.len();
        let values = ScalarBuffer::new(Buffer::from_vec(bits), 0, len);
        Ok(Arc::new(PrimitiveArray::<F>::try_new(values, nulls)?))
    }

    /// Rejects codes that are not in the dictionary, unless they are null or patched.
    fn check_codes(&self, codes: &[u16], nulls: Option<&NullBuffer>) -> Result<()> {
        let known = |code: u16| usize::from(code) < self.dictionary.len();
        if in_range(codes, self.dictionary.len()) {
            return Ok(());
        }
        let located = self.patches.as_ref().map(Patches::locate).transpose()?;
        let unknown = codes.iter().enumerate().find(|(row, code)| {
            !known(**code)
                && nulls.is_none_or(|nulls| nulls.is_valid(*row))
                && located.as_ref().is_none_or(|located| located.find(*row).is_none())
        });
        match unknown {
            None => Ok(()),
            Some((row, code)) => Err(Error::corrupt(format!(
                "code {code} of {} left parts in row {row}",
                self.dictionary.len()
            ))),
        }
    }
}

impl EncodedArray for AlpRdArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        let parts = [("codes", &self.codes), ("right", &self.right)];
        parts.into_iter().chain(self.patches.iter().flat_map(Patches::children)).collect()
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let decoded = match self.right.dtype().ptype()? {
            PType::U32 => self.decode_bits::<u32, Float32Type>()?,
            _ => self.decode_bits::<u64, Float64Type>()?,
        };
        present(decoded, to)
    }

    fn validity(&self) -> Result<Validity> {
        self.codes.validity()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let patches = self.patches.as_ref().map(|patches| patches.pick(pick)).transpose()?;
        Ok(Arc::new(Self {
            header: self.header.of_rows(pick.row_count()),
            dictionary: Arc::clone(&self.dictionary),
            right_bit_width: self.right_bit_width,
            codes: pick.of(&self.codes)?,
            right: pick.of(&self.right)?,
            patches: patches.flatten(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float32Array, Float64Array};

    use super::*;
    use crate::array::build::Tree;
    use crate::encodings::shared::conformance;

    const F64: DType = DType::Primitive(PType::F64, false);
    const F32: DType = DType::Primitive(PType::F32, false);

    fn metadata(right_bit_width: u32, entries: &[u32]) -> Metadata {
        let entry_count = entries.len() as u32;
        let codes_ptype = PType::U16 as i32;
        Metadata { right_bit_width, entry_count, entries: entries.to_vec(), codes_ptype, patches: None }
    }

    fn with_patches(count: usize, metadata: Metadata) -> Metadata {
        let message = PatchesMessage { len: count as u64, indices_ptype: 1, ..Default::default() };
        Metadata { patches: Some(message), ..metadata }
    }

    #[test]
    fn conforms_for_doubles() {
        let rows = 600usize;
        let dictionary = [0x3ff0u32, 0xbfe1, 0x4009];
        let codes: Vec<u16> = (0..rows).map(|row| u16::try_from(row * 7 % 3).unwrap()).collect();
        let right: Vec<u64> = (0..rows as u64).map(|row| row * 0x9e37_79b9_7f4a % (1 << 48)).collect();
        let mut bits: Vec<u64> = codes
            .iter()
            .zip(&right)
            .map(|(code, right)| u64::from(dictionary[usize::from(*code)]) << 48 | right)
            .collect();
        let tree = Tree::new(ID)
            .message(&metadata(48, &dictionary))
            .child(Tree::primitive(&codes))
            .child(Tree::primitive(&right));
        let floats = |bits: &[u64]| bits.iter().map(|bits| f64::from_bits(*bits)).collect::<Vec<_>>();
        let expected: ArrayRef = Arc::new(Float64Array::from(floats(&bits)));
        conformance::check(&tree.load(&F64, rows).unwrap(), &expected);

        // With patches, nulls, and garbage codes under both.
        let indices = [5u16, 77, 599];
        let parts = [0u16, 0x7ff8, 0x8000];
        let valid: Vec<bool> = (0..rows).map(|row| row % 4 != 2).collect();
        let mut codes = codes;
        for (index, part) in indices.iter().zip(parts) {
            bits[usize::from(*index)] = u64::from(part) << 48 | right[usize::from(*index)];
            codes[usize::from(*index)] = 7;
        }
        for (row, code) in codes.iter_mut().enumerate().filter(|(row, _)| row % 4 == 2) {
            *code = u16::try_from(60_000 + row).unwrap();
        }
        for patch_nulls in [false, true] {
            let mut patch_values = Tree::primitive(&parts);
            if patch_nulls {
                patch_values = patch_values.child(Tree::bools(&[true; 3]));
            }
            let tree = Tree::new(ID)
                .message(&with_patches(3, metadata(48, &dictionary)))
                .child(Tree::primitive(&codes).child(Tree::bools(&valid)))
                .child(Tree::primitive(&right))
                .child(Tree::primitive(&indices))
                .child(patch_values);
            let expected = Float64Array::new(floats(&bits).into(), Some(valid.clone().into()));
            let array = tree.load(&F64.with_nullable(true), rows).unwrap();
            conformance::check(&array, &(Arc::new(expected) as ArrayRef));
        }
    }

    #[test]
    fn conforms_for_floats() {
        let dictionary = [0x1fcu32, 0x180];
        let codes: Vec<u16> = (0..90).map(|row| row % 2).collect();
        let right: Vec<u32> = (0..90).map(|row| row * 12_345).collect();
        let values: Vec<f32> = codes
            .iter()
            .zip(&right)
            .map(|(code, right)| f32::from_bits(dictionary[usize::from(*code)] << 21 | right))
            .collect();
        let tree = Tree::new(ID)
            .message(&metadata(21, &dictionary))
            .child(Tree::primitive(&codes))
            .child(Tree::primitive(&right));
        conformance::check(
            &tree.load(&F32, 90).unwrap(),
            &(Arc::new(Float32Array::from(values)) as ArrayRef),
        );
    }

    #[test]
    fn damage_is_refused() {
        let load = |metadata: Metadata, codes: &[u16]| {
            let right = vec![0u64; codes.len()];
            Tree::new(ID)
                .message(&metadata)
                .child(Tree::primitive(codes))
                .child(Tree::primitive(&right))
                .load(&F64, codes.len())
        };
        assert!(load(metadata(48, &[1]), &[0]).unwrap().decode(&DataType::Float64).is_ok());
        assert!(load(metadata(48, &[1]), &[1]).unwrap().decode(&DataType::Float64).is_err());
        assert!(load(metadata(64, &[1]), &[0]).is_err());
        assert!(load(metadata(48, &[0x1_0000]), &[0]).is_err());
        assert!(load(metadata(48, &[0; 9]), &[0]).is_err());
        assert!(load(metadata(48, &[]), &[0]).is_err());
        assert!(load(metadata(48, &[]), &[]).is_ok());
        assert!(load(Metadata { entry_count: 2, ..metadata(48, &[1]) }, &[0]).is_err());
        assert!(load(Metadata { codes_ptype: 0, ..metadata(48, &[1]) }, &[0]).is_err());
        assert!(load(with_patches(1, metadata(48, &[1])), &[0]).is_err(), "patches announced but absent");
    }
}
