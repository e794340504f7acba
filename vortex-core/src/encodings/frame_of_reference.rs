//! Frame of reference: integers as differences from a reference, usually the minimum.
//!
//! ```text
//! rows  1003 1000 1007   reference 1000   encoded  3 0 7
//! ```
//!
//! Child: `encoded`, which carries the nulls. Additions wrap in two's complement, so differences may appear
//! negative. No buffers. The first version has a single reference, which is stored in the metadata as a bare
//! scalar value. The second has one reference for each 1024 rows, in a second child, `references`; its metadata
//! contains the number of rows of the first 1024 that are not part of the array.
//!
//! A bit-packed child adds references while it unpacks. Comparisons shift the constant instead of the
//! values: in modular arithmetic, `value - low <= span` is equivalent to `encoded - (low - reference) <=
//! span`, regardless of wrapping.

use std::any::Any;
use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{ArrowNativeType as _, DataType, i256};

use super::Encoding;
use super::bit_packed::BitPackedArray;
use super::shared::block_rows::BlockRows;
use super::shared::integer_predicate::IntegerTest;
use crate::array::intervals::tests_of;
use crate::array::{
    Aggregate, ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, array_of_raw, decode_raw,
    into_mutable, present,
};
use crate::dtype::{DType, PType};
use crate::expr::{Interval, Intervals, Predicate};
use crate::kernels::{Word, map_words, match_word};
use crate::scalar::{Scalar, Value};
use crate::wire::{WriteNode, value_to_bytes};
use crate::{Error, Result};

/// The `fastlanes.for` encoding.
#[derive(Debug)]
pub(super) struct FrameOfReference;

/// The `fastlanes.for.v2` encoding: a reference for each 1024 rows.
#[derive(Debug)]
pub(super) struct FrameOfReferenceV2;

const ID: &str = "fastlanes.for";
const ID_V2: &str = "fastlanes.for.v2";

#[derive(Clone, PartialEq, prost::Message)]
struct MetadataV2 {
    #[prost(uint32, tag = "1")]
    offset: u32,
}

impl Encoding for FrameOfReference {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let ptype = node.dtype().integer_ptype()?;
        node.expect_buffers(0)?;
        node.expect_children(1)?;
        let reference = node.scalar(node.metadata(), &DType::Primitive(ptype, false))?;
        let reference = reference.as_i128().ok_or_else(|| Error::corrupt("reference is not an integer"))?;
        // Up to release 0.40, the child was declared unsigned. That matters only if it contains scalars;
        // the bits are the same.
        let encoded = node.child(0, node.dtype(), node.len()).or_else(|error| {
            // Bytes that are missing are about to come, and will be of the same type then.
            if ptype.is_unsigned() || !matches!(error.root(), Error::Corrupt(_)) {
                return Err(error);
            }
            let unsigned = DType::Primitive(ptype.to_unsigned(), node.dtype().is_nullable());
            node.child(0, &unsigned, node.len()).map_err(|_| error)
        })?;
        Ok(Arc::new(ForArray {
            header: node.header(ID),
            ptype,
            encoded,
            // Truncation in two's complement preserves the value modulo the width.
            references: References::One(reference as u64),
        }))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        self.load(&node.of_rows(rows))
    }
}

impl Encoding for FrameOfReferenceV2 {
    fn id(&self) -> &'static str {
        ID_V2
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let ptype = node.dtype().integer_ptype()?;
        node.expect_buffers(0)?;
        node.expect_children(2)?;
        let rows = BlockRows::try_new(node.message::<MetadataV2>()?.offset.into(), node.len())?;
        Ok(Arc::new(ForArray {
            header: node.header(ID_V2),
            ptype,
            encoded: node.child(0, node.dtype(), node.len())?,
            references: References::PerBlock {
                child: node.child(1, &DType::Primitive(ptype, false), rows.block_count())?,
                rows,
            },
        }))
    }
}

#[derive(Debug)]
struct ForArray {
    header: Header,
    ptype: PType,
    encoded: EncodedRef,
    references: References,
}

#[derive(Debug)]
enum References {
    /// The same for all rows, as bits.
    One(u64),
    /// One for each 1024 rows.
    PerBlock { child: EncodedRef, rows: BlockRows },
}

/// Decoded [`References`].
enum Added<W: Word> {
    One(W),
    PerBlock(ScalarBuffer<W>, BlockRows),
}

impl References {
    fn decode<W: Word>(&self) -> Result<Added<W>> {
        Ok(match self {
            Self::One(reference) => Added::One(W::narrow(*reference)),
            Self::PerBlock { child, rows } => Added::PerBlock(decode_raw::<W>(child)?.0, *rows),
        })
    }
}

impl<W: Word> Added<W> {
    fn of_row(&self, row: usize) -> W {
        match self {
            Self::One(reference) => *reference,
            Self::PerBlock(references, rows) => references[rows.place(row).0],
        }
    }

    /// The references by block of a bit-packed child, if its blocks are aligned with the references.
    fn of_blocks(&self, packed: &BitPackedArray) -> Option<impl Fn(usize) -> W> {
        let (one, references) = match self {
            Self::One(reference) => (*reference, &[][..]),
            Self::PerBlock(references, rows) if *rows == packed.rows() => (W::ZERO, &references[..]),
            Self::PerBlock(..) => return None,
        };
        Some(move |block: usize| references.get(block).copied().unwrap_or(one))
    }
}

impl ForArray {
    fn packed(&self) -> Option<&BitPackedArray> {
        let encoded: &dyn Any = self.encoded.as_ref();
        encoded.downcast_ref()
    }

    fn values<W: Word>(&self) -> Result<ArrayRef> {
        let added = self.references.decode::<W>()?;
        if let Some(packed) = self.packed()
            && let Some(reference) = added.of_blocks(packed)
        {
            let nulls = packed.validity()?.to_nulls(self.len());
            return array_of_raw(self.ptype, packed.unpack(reference)?.into(), nulls);
        }
        let (encoded, nulls) = decode_raw::<W>(&self.encoded)?;
        let own = |encoded| into_mutable::<W>(encoded, self.limits());
        let values = match &added {
            Added::One(reference) if *reference == W::ZERO => encoded,
            Added::One(reference) => map_words(own(encoded)?, |_, value: W| value.plus(*reference)),
            Added::PerBlock(..) => map_words(own(encoded)?, |row, value: W| value.plus(added.of_row(row))),
        };
        array_of_raw(self.ptype, values, nulls)
    }

    /// Encoded values of rows selected from many blocks, with their references added.
    fn add_selected<W: Word>(
        &self,
        encoded: EncodedRef,
        rows: impl Iterator<Item = usize>,
    ) -> Result<EncodedRef> {
        let added = self.references.decode::<W>()?;
        let (encoded, nulls) = decode_raw::<W>(&encoded)?;
        self.limits().count::<W>(encoded.len())?;
        let values = encoded.iter().zip(rows).map(|(value, row)| value.plus(added.of_row(row)));
        let array = array_of_raw(self.ptype, values.collect::<Vec<_>>().into(), nulls)?;
        Ok(self.header.decoded(array))
    }

    /// Evaluates tests in the domain of a bit-packed child, if there is a suitable one.
    fn test_packed<W: Word>(&self, intervals: &Intervals) -> Result<Option<BooleanArray>> {
        let Some(packed) = self.packed() else { return Ok(None) };
        let added = self.references.decode::<W>()?;
        let Some(reference) = added.of_blocks(packed) else { return Ok(None) };
        let bits = packed.test(&tests_of(intervals), reference)?;
        Ok(Some(intervals.outcome(bits, packed.validity()?.to_nulls(self.len()))))
    }

    /// The aggregates of the encoded values, shifted by the reference, unless the values wrap around.
    fn shifted_aggregate(&self) -> Result<Option<Aggregate>> {
        let References::One(bits) = self.references else { return Ok(None) };
        let Some((min, max)) = self.ptype.integer_range() else { return Ok(None) };
        let ring = max - min + 1;
        let reference = (i128::from(bits) - min).rem_euclid(ring) + min;
        let found = self.encoded.aggregate()?;
        let values = i128::from(found.row_count - found.null_count);
        let added = i256::from_i128(values).checked_mul(i256::from_i128(reference));
        let sum = found.sum.and_then(|sum| sum.checked_add(added?));
        let moved = found.map(self.dtype(), |encoded| {
            let value = Scalar::integer(self.dtype(), encoded.as_i128()? + reference)?;
            Some(value.value().clone())
        });
        Ok(moved.map(|moved| Aggregate { sum, ..moved }))
    }

    /// The interval in the domain of the encoded values, unless wrapping splits it into two parts.
    fn shifted(&self, interval: Interval) -> Option<Interval> {
        let References::One(reference) = self.references else { return None };
        let ptype = self.encoded.dtype().as_ptype()?;
        let (min, max) = ptype.integer_range()?;
        let ring = max - min + 1;
        let shift = |value: i128| (value - i128::from(reference) - min).rem_euclid(ring) + min;
        let (low, high) = (shift(interval.low), shift(interval.high));
        if low <= high {
            return Some(Interval { low, high, ..interval });
        }
        // The complement is a single interval.
        (high + 1 < low).then(|| Interval { low: high + 1, high: low - 1, outside: !interval.outside })
    }
}

impl EncodedArray for ForArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        let mut children = vec![("encoded", &self.encoded)];
        if let References::PerBlock { child, .. } = &self.references {
            children.push(("references", child));
        }
        children
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        present(match_word!(self.ptype, |W| self.values::<W>()?), to)
    }

    fn validity(&self) -> Result<Validity> {
        self.encoded.validity()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let encoded = pick.of(&self.encoded)?;
        let references = match (&self.references, pick) {
            (References::One(reference), _) => References::One(*reference),
            (References::PerBlock { child, rows: all }, Pick::Slice(rows)) => {
                let (blocks, rows) = all.slice(rows);
                References::PerBlock { child: child.slice(blocks)?, rows }
            }
            (References::PerBlock { .. }, Pick::Filter(mask)) => {
                let rows = mask.indices().into_iter();
                return match_word!(self.ptype, |W| self.add_selected::<W>(encoded, rows));
            }
            (References::PerBlock { .. }, Pick::Take(indices)) => {
                let rows = indices.values().iter().map(|row| row.as_usize());
                return match_word!(self.ptype, |W| self.add_selected::<W>(encoded, rows));
            }
        };
        let header = self.header.of_rows(pick.row_count());
        Ok(Arc::new(Self { header, ptype: self.ptype, encoded, references }))
    }

    fn aggregate(&self) -> Result<Aggregate> {
        match self.shifted_aggregate()? {
            Some(found) => Ok(found),
            None => self.aggregate_decoded(),
        }
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        if predicate.is_null_test() {
            return self.encoded.matches(predicate);
        }
        if let Some(intervals) = Intervals::of(predicate, self.ptype)
            && let Some(outcome) = match_word!(self.ptype, |W| self.test_packed::<W>(&intervals)?)
        {
            return Ok(outcome);
        }
        if let Some(interval) = Interval::of(predicate, self.ptype).filter(|interval| !interval.is_empty())
            && let Some(shifted) = self.shifted(interval)
            && let Some(test) = IntegerTest::within(shifted, self.encoded.dtype())
        {
            return test.answer(self, |predicate| self.encoded.matches(predicate));
        }
        self.matches_decoded(predicate)
    }
}

/// A node of integers whose differences from `reference` are `encoded`.
///
/// # Errors
/// If the reference is not an integer.
pub(crate) fn encode(reference: &Value, encoded: WriteNode) -> Result<WriteNode> {
    Ok(WriteNode::new(ID).metadata(value_to_bytes(reference)?).child(encoded))
}

#[cfg(test)]
mod tests {
    use super::super::bit_packed::tests::{narrow_values, tree as packed_tree, validity_of};
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crate::Registry;
    use crate::array::build::Tree;
    use crate::encodings::shared::conformance;
    use crate::kernels::BLOCK;
    use crate::limits::Limits;

    /// The reference as a scalar value: as zigzag in field 3, or plain in field 4.
    fn reference(ptype: PType, bits: u64) -> Vec<u8> {
        let (tag, mut value) = if ptype.is_signed() {
            let shift = 64 - ptype.bit_width();
            let signed = ((bits << shift) as i64) >> shift;
            (0x18, (signed << 1 ^ signed >> 63) as u64)
        } else {
            (0x20, bits)
        };
        let mut bytes = vec![tag];
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }

    fn check<W: Word>(ptype: PType, bits: u64, encoded: &[W], child: impl Fn() -> Tree) {
        let len = encoded.len();
        let values: Vec<W> = encoded.iter().map(|value| value.plus(W::narrow(bits))).collect();
        let tree = Tree::new(ID).metadata(reference(ptype, W::narrow(bits).as_u64()));
        let array = tree.clone().child(child()).load(&DType::Primitive(ptype, false), len).unwrap();
        conformance::check(&array, &array_of_raw(ptype, values.clone().into(), None).unwrap());
        let valid = validity_of(len);
        let nullable = tree.child(child().child(Tree::bools(&valid)));
        let nullable = nullable.load(&DType::Primitive(ptype, true), len).unwrap();
        conformance::check(&nullable, &array_of_raw(ptype, values.into(), Some(valid.into())).unwrap());
    }

    #[test]
    fn frames_of_frames_try_a_child_twice_at_most_per_level() {
        let limits = Limits::default().with_max_nodes(1000);
        let reference = [0x18, 0x02];
        let nested = (0..30).fold(Tree::new("vortex.primitive"), |child, _| {
            Tree::new(ID).metadata(reference.to_vec()).child(child)
        });
        let error = nested.load_within(&DType::Primitive(PType::I32, false), 1, &limits).unwrap_err();
        assert!(!matches!(error.root(), Error::LimitExceeded(_)), "{error}");
    }

    /// An encoding whose bytes are never there, and how often they were asked for.
    #[derive(Debug, Default)]
    struct Missing(AtomicUsize);

    impl Encoding for Missing {
        fn id(&self) -> &'static str {
            "missing"
        }

        fn load(&self, _: &Node<'_>) -> Result<EncodedRef> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Err(Error::NotFetched)
        }
    }

    #[test]
    fn a_child_is_asked_once_for_bytes_that_are_missing() {
        let missing = Arc::new(Missing::default());
        let registry = Registry::built_in().with_encoding(Arc::clone(&missing) as _);
        let tree = Tree::new(ID).metadata([0x18, 0x02]).child(Tree::new("missing"));
        let error = tree.load_with(&DType::Primitive(PType::I32, false), 1, &registry).unwrap_err();
        assert!(matches!(error.root(), Error::NotFetched), "{error}");
        assert_eq!(missing.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn conforms_over_bit_packed_and_primitive_children() {
        for ptype in [PType::U8, PType::I8, PType::U16, PType::I32, PType::U64, PType::I64] {
            match_word!(ptype, |W| {
                // Sums that do not wrap, that wrap, and that cross zero.
                for bits in [0, 5, u64::MAX - 9, 1 << (ptype.bit_width() - 1)] {
                    for width in [0, 5, ptype.bit_width()] {
                        let encoded: Vec<W> = narrow_values(2100, width, bits ^ width as u64);
                        check(ptype, bits, &encoded, || packed_tree(&encoded, width, 100));
                        check(ptype, bits, &encoded, || Tree::primitive(&encoded));
                    }
                }
            });
        }
    }

    #[test]
    fn intervals_shift_whether_or_not_they_wrap() {
        use crate::expr::CompareOp;
        use crate::scalar::{Scalar, Value};
        let dtype = DType::Primitive(PType::I8, false);
        let encoded: Vec<i8> = (-128..=127).collect();
        for bits in [0i8, 1, 100, -128, -1] {
            let tree = Tree::new(ID).metadata(reference(PType::I8, bits.cast_unsigned().into()));
            let array = tree.child(Tree::primitive(&encoded)).load(&dtype, 256).unwrap();
            let plain = array.to_decoded().unwrap();
            let scalar = |value: i64| Scalar::try_new(dtype.clone(), Value::Int(value)).unwrap();
            for low in [-128, -50, -1, 0, 3, 127] {
                let mut predicates = vec![];
                for op in [CompareOp::Eq, CompareOp::NotEq, CompareOp::Lt, CompareOp::Gt] {
                    predicates.push(Predicate::Compare(op, scalar(low)));
                }
                for high in [-128, -49, 2, 127] {
                    predicates.push(Predicate::Between(scalar(low), scalar(high)));
                }
                for predicate in predicates {
                    let expected = predicate.evaluate(plain.arrow()).unwrap();
                    assert_eq!(array.matches(&predicate).unwrap(), expected, "{predicate} from {bits}");
                }
            }
        }
    }

    fn blocks_tree<W: Word>(encoded: Tree, references: &[W], offset: u32) -> Tree {
        Tree::new(ID_V2).message(&MetadataV2 { offset }).child(encoded).child(Tree::primitive(references))
    }

    #[test]
    fn conforms_with_a_reference_per_block() {
        let references = [7u32, u32::MAX - 3, 1_000_000];
        let encoded: Vec<u32> = narrow_values(2500, 6, 3);
        // Where the blocks of the child are aligned with those of the references, and where they are not.
        for (offset, child_offset) in [(500, 500), (500, 0), (0, 0)] {
            let rows = encoded.iter().enumerate();
            let values: Vec<u32> =
                rows.map(|(row, value)| value.wrapping_add(references[(row + offset) / BLOCK])).collect();
            let valid = validity_of(2500);
            let child = packed_tree(&encoded, 6, child_offset).child(Tree::bools(&valid));
            let tree = blocks_tree(child, &references, offset as u32);
            let array = tree.load(&DType::Primitive(PType::I32, true), 2500).unwrap();
            let expected = array_of_raw(PType::I32, values.into(), Some(valid.into())).unwrap();
            conformance::check(&array, &expected);
        }
    }

    #[test]
    fn empty_arrays_have_no_references() {
        let tree = blocks_tree::<u64>(Tree::primitive::<u64>(&[]), &[], 0);
        let array = tree.load(&DType::Primitive(PType::U64, false), 0).unwrap();
        conformance::check(&array, &array_of_raw::<u64>(PType::U64, vec![].into(), None).unwrap());
    }

    #[test]
    fn a_child_of_the_unsigned_type_is_read_bit_by_bit() {
        // A constant u8 of 200, which does not fit i8; plus -100.
        let constant = Tree::new("vortex.constant").buffer(vec![0x20u8, 0xc8, 0x01]);
        let tree = Tree::new(ID).metadata(reference(PType::I8, 156)).child(constant);
        let array = tree.load(&DType::Primitive(PType::I8, true), 5).unwrap();
        conformance::check(&array, &array_of_raw::<i8>(PType::I8, vec![100; 5].into(), None).unwrap());
    }

    #[test]
    fn a_missing_or_null_reference_is_corrupt() {
        let dtype = DType::Primitive(PType::I32, true);
        for metadata in [vec![], vec![0x08, 0x00], vec![0x20, 0xff, 0xff, 0xff, 0xff, 0x0f]] {
            let tree = Tree::new(ID).metadata(metadata).child(Tree::primitive(&[1i32]));
            assert!(tree.load(&dtype, 1).is_err());
        }
        let short = blocks_tree(Tree::primitive(&[1i32; 1025]), &[1u32], 0);
        assert!(short.load(&dtype, 1025).is_err(), "a reference is missing");
        let beyond = blocks_tree(Tree::primitive(&[1i32]), &[1u32, 1], 1024);
        assert!(beyond.load(&dtype, 1).is_err(), "offset beyond the block");
    }
}
