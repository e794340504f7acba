//! Floats that are decimals with few digits, stored as integers.
//!
//! ```text
//! rows    1.25   -0.3    NaN     integer = round(value * 10^e * 10^-f)
//! e=2     [125,   -30,    125]   value = (integer * 10^f) * 10^-e, rounded after each step
//! f=0                            patches: [2] -> [NaN]
//! ```
//!
//! Metadata: the exponents e and f, and the patches. Children: the integers, as wide as the floats, which
//! carry the nulls; then the patches, for floats that would not be restored bit for bit.
//!
//! The value never decreases when the integer increases. Thus a comparison with a constant holds on a
//! range of integers, which a binary search finds exactly, regardless of rounding; the encoding of the
//! integers evaluates it, and patched rows are corrected afterwards.

mod encode;
mod float;

use std::sync::Arc;

use arrow::array::{BooleanArray, PrimitiveArray};
use arrow::buffer::{Buffer, ScalarBuffer};
use arrow::datatypes::DataType;

use self::float::{Decimals, Float, Scale};
use super::Encoding;
use super::shared::integer_predicate::IntegerTest;
use super::shared::patches::{Patches, PatchesMessage};
use crate::array::{
    Aggregate, ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, decode_raw, into_vec,
    present,
};
use crate::dtype::{DType, PType};
use crate::expr::{Intervals, Predicate};
use crate::kernels::simd::vectorized;
use crate::scalar::Value;
use crate::{Error, Result};

pub(crate) use encode::{Exponents, ToInteger, encode, find_exponents, to_integers};

/// The `vortex.alp` encoding.
#[derive(Debug)]
pub(in crate::encodings) struct Alp;

const ID: &str = "vortex.alp";

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(uint32, tag = "1")]
    e: u32,
    #[prost(uint32, tag = "2")]
    f: u32,
    #[prost(message, optional, tag = "3")]
    patches: Option<PatchesMessage>,
}

impl Encoding for Alp {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        match node.dtype() {
            DType::Primitive(PType::F32, _) => load::<f32>(node),
            DType::Primitive(PType::F64, _) => load::<f64>(node),
            other => Err(Error::corrupt(format!("holds f32 or f64, not {other}"))),
        }
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        self.load(&node.of_rows(rows))
    }
}

fn load<F: Float>(node: &Node<'_>) -> Result<EncodedRef> {
    let metadata: Metadata = node.message()?;
    let power = |table: &'static [F], exponent: u32| {
        let power = usize::try_from(exponent).ok().and_then(|exponent| table.get(exponent).copied());
        power.ok_or_else(|| Error::corrupt(format!("decimal exponent {exponent} of {}", table.len() - 1)))
    };
    let patch_children = metadata.patches.as_ref().map_or(0, PatchesMessage::child_count);
    node.expect_buffers(0)?;
    node.expect_children(1 + patch_children)?;
    let integers = DType::Primitive(F::INTEGER, node.dtype().is_nullable());
    let patches = metadata.patches.map(|message| Patches::load(node, &message, 1, node.dtype()));
    let encoded = node.child(0, &integers, node.len());
    Ok(Arc::new(AlpArray {
        header: node.header(ID),
        scale: Scale { up: power(F::POWERS, metadata.f)?, down: power(F::FRACTIONS, metadata.e)? },
        patches: patches.transpose()?,
        encoded: encoded?,
    }))
}

#[derive(Debug)]
struct AlpArray<F: Float> {
    header: Header,
    scale: Scale<F>,
    encoded: EncodedRef,
    patches: Option<Patches>,
}

impl<F: Float> AlpArray<F> {
    /// The first integer whose value satisfies `holds`, which must be monotonic; one past the last
    /// integer if there is no such integer.
    fn first(&self, holds: impl Fn(F) -> bool) -> i128 {
        let (mut low, mut high) = (i128::from(*F::INTEGERS.start()), i128::from(*F::INTEGERS.end()) + 1);
        while low < high {
            let middle = (low + high).div_euclid(2);
            // This is below `high`, which is at most one past the last integer.
            if holds(F::decode(middle as i64, self.scale)) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// The first integer whose value is not below `constant`.
    fn not_below(&self, constant: F) -> i128 {
        self.first(|value| value.compare(constant).is_ge())
    }

    /// The first integer whose value is above `constant`.
    fn above(&self, constant: F) -> i128 {
        self.first(|value| value.compare(constant).is_gt())
    }

    /// The test of the integers that is equivalent to `predicate`; `None` if only the values can tell.
    fn integer_test(&self, predicate: &Predicate) -> Option<IntegerTest> {
        match predicate {
            // Integers are decoded for a longer list, too, and what looks floats up is kept from chunk to chunk.
            Predicate::In(list) if list.values().len() > Intervals::MOST => None,
            _ => IntegerTest::of(predicate, self.encoded.dtype(), |constant| {
                let constant = F::of(constant)?;
                // Far from zero, several integers have the same value.
                Some(self.not_below(constant)..self.above(constant))
            }),
        }
    }

    /// Replaces the outcome of patched rows with that of their patches. Null rows stay null.
    fn correct(&self, outcome: BooleanArray, predicate: &Predicate) -> Result<BooleanArray> {
        let Some(patches) = &self.patches else { return Ok(outcome) };
        let located = patches.locate()?;
        if located.is_empty() {
            return Ok(outcome);
        }
        let (patches, _) = decode_raw::<F>(&located.values)?;
        let patches: ArrayRef = Arc::new(PrimitiveArray::<F::Arrow>::try_new(patches, None)?);
        let patches = predicate.evaluate(&patches)?;
        let (bits, nulls) = outcome.into_parts();
        Ok(BooleanArray::new(located.overwrite(&bits, patches.values().iter()), nulls))
    }
}

impl<F: Float> EncodedArray for AlpArray<F> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        let encoded = std::iter::once(("encoded", &self.encoded));
        encoded.chain(self.patches.iter().flat_map(Patches::children)).collect()
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let (integers, nulls) = decode_raw::<F::Integer>(&self.encoded)?;
        let mut bits = into_vec(integers, self.limits())?;
        vectorized(Decimals { integers: &mut bits, scale: self.scale });
        if let Some(patches) = &self.patches {
            patches.apply(&mut bits, |_, patch| patch)?;
        }
        let len = bits.len();
        let values = ScalarBuffer::new(Buffer::from_vec(bits), 0, len);
        present(Arc::new(PrimitiveArray::<F::Arrow>::try_new(values, nulls)?), to)
    }

    fn validity(&self) -> Result<Validity> {
        self.encoded.validity()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let patches = self.patches.as_ref().map(|patches| patches.pick(pick)).transpose()?;
        Ok(Arc::new(Self {
            header: self.header.of_rows(pick.row_count()),
            scale: self.scale,
            encoded: pick.of(&self.encoded)?,
            patches: patches.flatten(),
        }))
    }

    fn aggregate(&self) -> Result<Aggregate> {
        // Integers under patches are arbitrary. All others have the same order as their values.
        if self.patches.is_none() {
            let found = self.encoded.aggregate()?.map(self.dtype(), |value| match value {
                Value::Int(integer) if F::INTEGERS.contains(integer) => {
                    Some(F::decode(*integer, self.scale).into_value())
                }
                _ => None,
            });
            if let Some(found) = found {
                return Ok(found);
            }
        }
        self.aggregate_decoded()
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        let Some(test) = self.integer_test(predicate) else { return self.matches_decoded(predicate) };
        let outcome = test.answer(self, |predicate| self.encoded.matches(predicate))?;
        if predicate.is_null_test() { Ok(outcome) } else { self.correct(outcome, predicate) }
    }
}

#[cfg(test)]
mod tests;
