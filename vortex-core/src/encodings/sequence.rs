//! Sequence: integers with a constant difference.
//!
//! `value(row) = base + row * step`. Metadata: base and step as scalar values; the step may be signed
//! even if the values are not. No buffers, no children, no nulls.
//!
//! Loading checks that the first and the last value fit the type; then all values do, and decoding may
//! use wrapping arithmetic. Comparisons are solved for the rows.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{BooleanArray, BooleanBufferBuilder};
use arrow::datatypes::{DataType, i256};

use super::Encoding;
use crate::array::{
    Aggregate, ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, array_of_raw, present,
};
use crate::dtype::PType;
use crate::expr::{Interval, Predicate};
use crate::kernels::runs::count_up;
use crate::kernels::{Word, match_word};
use crate::scalar::{Scalar, Value};
use crate::wire::proto::{ScalarValue, scalar_value::Kind};
use crate::wire::{WriteNode, value_to_proto};
use crate::{Error, Result};

/// The `vortex.sequence` encoding.
#[derive(Debug)]
pub(super) struct Sequence;

const ID: &str = "vortex.sequence";

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(message, optional, tag = "1")]
    base: Option<ScalarValue>,
    #[prost(message, optional, tag = "2")]
    multiplier: Option<ScalarValue>,
}

impl Encoding for Sequence {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let ptype = node.dtype().ptype()?;
        let Some((min, max)) = ptype.integer_range() else {
            return Err(Error::corrupt(format!("holds integers, not {ptype}")));
        };
        node.expect_buffers(0)?;
        node.expect_children(0)?;
        let metadata = node.message::<Metadata>()?;
        let integer = |value: Option<ScalarValue>, what: &str| match value.and_then(|value| value.kind) {
            Some(Kind::Int64Value(value)) => Ok(i128::from(value)),
            Some(Kind::Uint64Value(value)) => Ok(i128::from(value)),
            _ => Err(Error::corrupt(format!("{what} is not an integer"))),
        };
        let base = integer(metadata.base, "base")?;
        let step = integer(metadata.multiplier, "step")?;
        let distance = step.checked_mul(node.len().saturating_sub(1) as i128);
        let last = distance.and_then(|distance| base.checked_add(distance));
        if !(min..=max).contains(&base) || !last.is_some_and(|last| (min..=max).contains(&last)) {
            let rows = node.len();
            return Err(Error::corrupt(format!("{rows} rows from {base} by {step} do not fit {ptype}")));
        }
        Ok(Arc::new(SequenceArray { header: node.header(ID), ptype, base, step }))
    }
}

#[derive(Debug)]
struct SequenceArray {
    header: Header,
    ptype: PType,
    base: i128,
    step: i128,
}

impl SequenceArray {
    /// The values of some rows.
    fn values(&self, rows: impl ExactSizeIterator<Item = usize>) -> Result<ArrayRef> {
        self.limits().count_rows(rows.len(), self.ptype.byte_width())?;
        match_word!(self.ptype, |W| {
            // Truncation in two's complement preserves the value modulo the width.
            let (base, step) = (W::narrow(self.base as u64), W::narrow(self.step as u64));
            let values = rows.map(|row| base.plus(step.times(W::narrow(row as u64))));
            array_of_raw(self.ptype, values.collect::<Vec<W>>().into(), None)
        })
    }

    /// The rows whose values lie in `low..=high`.
    fn rows_within(&self, low: i128, high: i128) -> Range<usize> {
        let ceil = |value: i128, by: i128| -(-value).div_euclid(by);
        let (first, last) = match self.step {
            0 if low <= self.base && self.base <= high => (0, i128::MAX - 1),
            0 => return 0..0,
            step if step > 0 => (ceil(low - self.base, step), (high - self.base).div_euclid(step)),
            step => (ceil(self.base - high, -step), (self.base - low).div_euclid(-step)),
        };
        let within = |row: i128| usize::try_from(row.clamp(0, self.len() as i128)).unwrap_or(self.len());
        let (start, end) = (within(first), within(last + 1));
        start..end.max(start)
    }
}

impl EncodedArray for SequenceArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn decodes_in_parts(&self) -> bool {
        true
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        self.limits().count_rows(self.len(), self.ptype.byte_width())?;
        let values = match_word!(self.ptype, |W| {
            // Truncation in two's complement preserves the value modulo the width.
            let (base, step) = (W::narrow(self.base as u64), W::narrow(self.step as u64));
            array_of_raw(self.ptype, count_up(base, step, self.len()).into(), None)?
        });
        present(values, to)
    }

    fn validity(&self) -> Result<Validity> {
        Ok(Validity::AllValid)
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let values = match pick {
            Pick::Slice(rows) => {
                return Ok(Arc::new(Self {
                    header: self.header.of_rows(rows.len()),
                    base: self.base + self.step * rows.start as i128,
                    ..*self
                }));
            }
            Pick::Filter(mask) => self.values(mask.indices().into_iter())?,
            Pick::Take(indices) => self.values(indices.values().iter().map(|row| *row as usize))?,
        };
        Ok(self.header.decoded(values))
    }

    fn aggregate(&self) -> Result<Aggregate> {
        let Some(before_last) = self.len().checked_sub(1) else { return Ok(Aggregate::empty(self.dtype())) };
        let (rows, last) = (self.len() as i128, self.base + self.step * before_last as i128);
        let end = |value| {
            let value = Scalar::integer(self.dtype(), value);
            let value = value.ok_or_else(|| Error::corrupt("a value of a sequence exceeds its type"))?;
            Ok::<_, Error>(Aggregate::of_value(&value, 1))
        };
        let sum = rows.checked_mul(self.base + last).map(|twice| i256::from_i128(twice / 2));
        let ends = end(self.base)?.merge(end(last)?);
        Ok(Aggregate { row_count: self.len() as u64, sum, ..ends })
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        self.limits().count_rows(self.len(), 1)?;
        if let Some(outcome) = self.null_test(predicate)? {
            return Ok(outcome);
        }
        let Some(interval) = Interval::of(predicate, self.ptype) else {
            return self.matches_decoded(predicate);
        };
        let rows = if interval.is_empty() { 0..0 } else { self.rows_within(interval.low, interval.high) };
        let mut bits = BooleanBufferBuilder::new(self.len());
        bits.append_n(rows.start, interval.outside);
        bits.append_n(rows.len(), !interval.outside);
        bits.append_n(self.len() - rows.end, interval.outside);
        Ok(BooleanArray::new(bits.finish(), None))
    }
}

/// A node of `base`, `base + step`, and so on; both are scalars of the values' type.
///
/// # Errors
/// If they are not integers.
pub(crate) fn encode(base: &Value, step: &Value) -> Result<WriteNode> {
    let (base, multiplier) = (Some(value_to_proto(base)?), Some(value_to_proto(step)?));
    Ok(WriteNode::new(ID).message(&Metadata { base, multiplier }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::DType;
    use crate::encodings::shared::conformance;

    fn tree(base: Kind, step: Kind) -> Tree {
        Tree::new(ID).message(&Metadata {
            base: Some(ScalarValue { kind: Some(base) }),
            multiplier: Some(ScalarValue { kind: Some(step) }),
        })
    }

    fn load(ptype: PType, base: i64, step: i64, len: usize) -> Result<EncodedRef> {
        tree(Kind::Int64Value(base), Kind::Int64Value(step)).load(&DType::Primitive(ptype, true), len)
    }

    #[test]
    fn conforms_for_steps_of_both_signs() {
        for (ptype, base, step, len) in [
            (PType::U8, 250, -50, 6),
            (PType::I8, -128, 1, 256),
            (PType::I16, 100, -3, 1500),
            (PType::U32, 7, 0, 10),
            (PType::I64, i64::MIN, 1 << 50, 2000),
            (PType::I64, 5, 0, 1),
            (PType::U64, 3, 17, 0),
        ] {
            let array = load(ptype, base, step, len).unwrap();
            let expected = match_word!(ptype, |W| {
                let value = |row| W::narrow((i128::from(base) + i128::from(step) * row) as u64);
                let values: Vec<W> = (0..len as i128).map(value).collect();
                array_of_raw(ptype, values.into(), None).unwrap()
            });
            conformance::check(&array, &expected);
        }
    }

    #[test]
    fn the_step_has_a_sign_of_its_own() {
        let dtype = DType::Primitive(PType::I64, false);
        let array = tree(Kind::Int64Value(i64::MIN), Kind::Uint64Value(u64::MAX)).load(&dtype, 2).unwrap();
        let expected = array_of_raw(PType::I64, vec![i64::MIN, i64::MAX].into(), None).unwrap();
        conformance::check(&array, &expected);
    }

    #[test]
    fn values_beyond_the_type_are_corrupt() {
        assert!(load(PType::U8, 250, 206, 3).is_err());
        assert!(load(PType::U8, 256, 0, 1).is_err());
        assert!(load(PType::U8, 1, -1, 3).is_err());
        assert!(load(PType::I64, 1, i64::MAX, usize::MAX).is_err());
        assert!(load(PType::F32, 1, 1, 3).is_err());
        assert!(Tree::new(ID).load(&DType::Primitive(PType::U8, false), 1).is_err());
        let endless = load(PType::U64, 1, 1, 1 << 50).unwrap();
        assert!(endless.decode(&DataType::UInt64).is_err());
        assert!(endless.slice(1 << 40..(1 << 40) + 2).unwrap().decode(&DataType::UInt64).is_ok());
    }
}
