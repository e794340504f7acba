//! Delta: integers as differences from their predecessors, in blocks of 1024.
//!
//! ```text
//! rows    |------ 1024 ------|------ 1024 ------|--- rest, padded ---|
//! deltas  |   transposed     |   transposed     |    transposed      |
//! bases   |  one per lane    |  one per lane    |   one per lane     |
//! ```
//!
//! Within a block, the values are [transposed](crate::kernels::delta): each lane adds up its differences,
//! starting with its base. Sums wrap. Metadata: number of deltas, and the number of rows in the first
//! block that are not part of the array. Children: `bases`, `deltas`, optionally the validity.
//!
//! Two older layouts had the same id:
//! - Until 0.63, the remainder was not padded. It is not transposed either, and has a single base, so
//!   that the number of deltas identifies this layout.
//! - From 0.65 to 0.76, `deltas` carried the nulls, transposed like the values. A nullable array with two
//!   children may have that layout, or no nulls; both are read in the same way.
//!
//! Slices keep whole blocks.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::BooleanBufferBuilder;
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;

use super::Encoding;
use super::shared::block_rows::BlockRows;
use crate::array::{
    ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, ValidityChild, array_of_raw,
    decode_raw, present,
};
use crate::dtype::PType;
use crate::kernels::delta::{transposed_positions, undelta};
use crate::kernels::{BLOCK, Word, lanes, match_word};
use crate::{Error, Result};

/// The `fastlanes.delta` encoding.
#[derive(Debug)]
pub(super) struct Delta;

const ID: &str = "fastlanes.delta";

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(uint64, tag = "1")]
    deltas_len: u64,
    #[prost(uint32, tag = "2")]
    offset: u32,
}

impl Encoding for Delta {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let ptype = node.dtype().integer_ptype()?;
        node.expect_buffers(0)?;
        let metadata = node.message::<Metadata>()?;
        let rows = BlockRows::try_new(metadata.offset.into(), node.len())?;
        let (count, positions) = (metadata.deltas_len, rows.positions());
        let deltas_len = usize::try_from(count).ok().filter(|len| positions.end <= *len);
        let deltas_len =
            deltas_len.ok_or_else(|| Error::corrupt(format!("rows {positions:?} of {count} deltas")))?;
        let lanes = match_word!(ptype, |W| lanes::<W>());
        let bases_len = deltas_len / BLOCK * lanes + usize::from(deltas_len % BLOCK != 0);

        let validity = match node.child_count() {
            2 if node.dtype().is_nullable() => Nulls::InDeltas,
            _ => Nulls::Child(node.validity_child(2)?),
        };
        let dtype = node.dtype().with_nullable(matches!(validity, Nulls::InDeltas));
        let all = DeltaArray {
            header: node.header(ID),
            ptype,
            rows,
            lanes,
            bases: node.child(0, &dtype, bases_len)?,
            deltas: node.child(1, &dtype, deltas_len)?,
            validity,
        };
        // Drops blocks after the last row.
        Ok(Arc::new(DeltaArray { validity: all.validity.clone(), ..all.blocks_of(&(0..node.len()))? }))
    }
}

#[derive(Debug)]
struct DeltaArray {
    header: Header,
    ptype: PType,
    rows: BlockRows,
    /// Number of bases per block.
    lanes: usize,
    bases: EncodedRef,
    deltas: EncodedRef,
    validity: Nulls,
}

#[derive(Debug, Clone)]
enum Nulls {
    Child(ValidityChild),
    /// The validity of `deltas`, transposed.
    InDeltas,
}

impl DeltaArray {
    /// The blocks that contain some rows, without validity.
    fn blocks_of(&self, rows: &Range<usize>) -> Result<Self> {
        let (blocks, rows) = self.rows.slice(rows);
        // The last block may be shorter, in which case it has a single base.
        let slice = |child: &EncodedRef, per_block: usize| {
            let clip = |blocks: usize| (blocks * per_block).min(child.len());
            child.slice(clip(blocks.start)..clip(blocks.end))
        };
        Ok(Self {
            header: self.header.of_rows(rows.len()),
            rows,
            bases: slice(&self.bases, self.lanes)?,
            deltas: slice(&self.deltas, BLOCK)?,
            validity: Nulls::Child(ValidityChild::default()),
            ..*self
        })
    }

    /// The values, and the nulls that the deltas have.
    fn values<W: Word>(&self) -> Result<(Vec<W>, Option<NullBuffer>)> {
        self.limits().count::<W>(self.len())?;
        let (bases, _) = decode_raw::<W>(&self.bases)?;
        let (deltas, transposed) = decode_raw::<W>(&self.deltas)?;
        let mut out = Vec::with_capacity(self.len());
        let mut block = [W::ZERO; BLOCK];
        for (at, part) in self.rows.parts() {
            let deltas = &deltas[at * BLOCK..];
            let bases = &bases[at * self.lanes..];
            match deltas.first_chunk::<BLOCK>() {
                Some(deltas) => undelta(deltas, &bases[..self.lanes], &mut block),
                None => {
                    let mut sum = bases[0];
                    for (value, delta) in block.iter_mut().zip(deltas) {
                        sum = sum.plus(*delta);
                        *value = sum;
                    }
                }
            }
            out.extend_from_slice(&block[part]);
        }
        Ok((out, transposed))
    }

    /// Nulls of `deltas` in row order.
    fn untransposed(&self, transposed: &NullBuffer) -> NullBuffer {
        let full = transposed.len() / BLOCK * BLOCK;
        let positions = transposed_positions();
        let mut rows = BooleanBufferBuilder::new(self.len());
        for row in self.rows.positions() {
            let at = if row < full { row / BLOCK * BLOCK + positions[row % BLOCK] } else { row };
            rows.append(transposed.is_valid(at));
        }
        rows.finish().into()
    }
}

impl EncodedArray for DeltaArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        let mut children = vec![("bases", &self.bases), ("deltas", &self.deltas)];
        if let Nulls::Child(validity) = &self.validity {
            children.extend(validity.named());
        }
        children
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let array = match_word!(self.ptype, |W| {
            // The limits are checked for the values: deltas that are all null take no bytes.
            let (values, transposed) = self.values::<W>()?;
            let nulls = match &self.validity {
                Nulls::Child(child) => child.decode()?.to_nulls(self.len()),
                Nulls::InDeltas => transposed.map(|transposed| self.untransposed(&transposed)),
            };
            array_of_raw(self.ptype, values.into(), nulls)?
        });
        present(array, to)
    }

    fn validity(&self) -> Result<Validity> {
        match &self.validity {
            Nulls::Child(child) => child.decode(),
            Nulls::InDeltas => Ok(match self.deltas.validity()? {
                Validity::Bits(transposed) => Validity::from_nulls(Some(self.untransposed(&transposed))),
                uniform => uniform,
            }),
        }
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let Pick::Slice(rows) = pick else { return self.to_decoded()?.pick(pick) };
        let validity = match &self.validity {
            Nulls::Child(child) => Nulls::Child(child.pick(pick)?),
            Nulls::InDeltas => Nulls::InDeltas,
        };
        Ok(Arc::new(Self { validity, ..self.blocks_of(rows)? }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::bit_packed::tests::validity_of;
    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::DType;
    use crate::encodings::shared::conformance;
    use crate::kernels::delta::tests::naive_delta;
    use crate::kernels::random;
    use crate::limits::Limits;

    fn values<W: Word>(len: usize) -> Vec<W> {
        let mut next = random(11);
        let mut value = W::MAX;
        (0..len)
            .map(|_| {
                value = value.plus(W::narrow(next() % 9));
                value
            })
            .collect()
    }

    /// The bases and deltas of whole blocks.
    fn encode<W: Word>(values: &[W]) -> (Vec<W>, Vec<W>) {
        let blocks = values.chunks_exact(BLOCK).map(naive_delta);
        let (bases, deltas): (Vec<_>, Vec<_>) = blocks.unzip();
        (bases.concat(), deltas.concat())
    }

    fn tree<W: Word>(bases: &[W], deltas: &[W], offset: u32) -> Tree {
        Tree::new(ID)
            .message(&Metadata { deltas_len: deltas.len() as u64, offset })
            .child(Tree::primitive(bases))
            .child(Tree::primitive(deltas))
    }

    #[test]
    fn conforms_for_every_width() {
        for ptype in [PType::U8, PType::I16, PType::U32, PType::I64] {
            match_word!(ptype, |W| for (offset, len) in [(0, 3072), (1000, 1100)] {
                let values: Vec<W> = values(3072);
                let (bases, deltas) = encode(&values);
                let values = values[offset..offset + len].to_vec();
                let tree = tree(&bases, &deltas, offset as u32);
                let array = tree.load(&DType::Primitive(ptype, false), len).unwrap();
                conformance::check(&array, &array_of_raw(ptype, values.clone().into(), None).unwrap());
                let valid = validity_of(len);
                let nullable = tree.child(Tree::bools(&valid));
                let array = nullable.load(&DType::Primitive(ptype, true), len).unwrap();
                let expected = array_of_raw(ptype, values.into(), Some(valid.into())).unwrap();
                conformance::check(&array, &expected);
            });
        }
    }

    #[test]
    fn deltas_of_deltas_take_no_longer_than_their_depth() {
        let metadata = Metadata { deltas_len: 1, offset: 0 };
        let nested = (0..40).fold(Tree::primitive(&[7i32]), |deltas, _| {
            Tree::new(ID).message(&metadata).child(Tree::primitive(&[7i32])).child(deltas)
        });
        let array = nested.load(&DType::Primitive(PType::I32, true), 1).unwrap();
        assert!(matches!(array.validity().unwrap(), Validity::AllValid));
    }

    #[test]
    fn a_rest_without_padding_has_one_base() {
        let values: Vec<u16> = values(2500);
        let (mut bases, mut deltas) = encode(&values);
        bases.push(values[2048]);
        deltas.push(0);
        deltas.extend(values[2048..].windows(2).map(|pair| pair[1].wrapping_sub(pair[0])));
        let valid = validity_of(2500);
        let tree = tree(&bases, &deltas, 0).child(Tree::bools(&valid));
        let array = tree.load(&DType::Primitive(PType::U16, true), 2500).unwrap();
        let expected = array_of_raw(PType::U16, values.into(), Some(valid.into())).unwrap();
        conformance::check(&array, &expected);
    }

    #[test]
    fn nulls_of_the_deltas_are_transposed() {
        let values: Vec<i32> = values::<u32>(2048).iter().map(|value| value.cast_signed()).collect();
        let words: Vec<u32> = values.iter().map(|value| value.cast_unsigned()).collect();
        let (bases, deltas) = encode(&words);
        let valid = validity_of(2048);
        let positions = transposed_positions();
        let mut transposed = vec![false; 2048];
        for (row, valid) in valid.iter().enumerate() {
            transposed[row / BLOCK * BLOCK + positions[row % BLOCK]] = *valid;
        }
        let tree = Tree::new(ID)
            .message(&Metadata { deltas_len: 2048, offset: 0 })
            .child(Tree::primitive(&bases))
            .child(Tree::primitive(&deltas).child(Tree::bools(&transposed)));
        let array = tree.load(&DType::Primitive(PType::I32, true), 2000).unwrap();
        let nulls = Some(valid[..2000].to_vec().into());
        let expected = array_of_raw(PType::I32, values[..2000].to_vec().into(), nulls).unwrap();
        conformance::check(&array, &expected);
    }

    #[test]
    fn rows_that_are_all_null_are_limited() {
        let null = || Tree::new("vortex.constant").buffer(vec![0x08u8, 0]);
        let zero = Tree::new("vortex.constant").buffer(vec![0x20u8, 0]);
        let rows = 1 << 46;
        let metadata = Metadata { deltas_len: rows, offset: 0 };
        let tree = Tree::new(ID).message(&metadata).child(zero).child(null());
        let array = tree.load_within(&DType::Primitive(PType::U64, true), rows as usize, &Limits::new());
        let error = array.unwrap().decode(&DataType::UInt64).unwrap_err();
        assert!(matches!(error, Error::LimitExceeded(_)), "{error}");
    }

    #[test]
    fn nodes_that_contradict_themselves_are_corrupt() {
        let dtype = DType::Primitive(PType::U64, false);
        let (bases, deltas) = ([0u64; 16], [0u64; 1024]);
        assert!(tree(&bases, &deltas, 24).load(&dtype, 1000).is_ok());
        assert!(tree(&bases, &deltas, 25).load(&dtype, 1000).is_err(), "rows behind the deltas");
        assert!(tree(&bases[..15], &deltas, 0).load(&dtype, 1000).is_err(), "a base is missing");
        assert!(tree(&bases, &deltas[..1023], 0).load(&dtype, 1000).is_err(), "too many bases");
        assert!(tree(&bases, &deltas, 1024).load(&dtype, 0).is_err(), "offset beyond the block");
        let nulls = tree(&bases, &deltas, 0).child(Tree::bools(&[true; 1000]));
        assert!(nulls.load(&dtype, 1000).is_err(), "validity of a non-nullable array");
    }
}
