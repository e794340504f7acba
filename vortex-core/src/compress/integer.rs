//! Schemes for integers: sequences, and packing into as few bits as most values need.

use super::dictionary::Dictionary;
use super::numbers::{Numbers, Schemes, bits as bit_count};
use super::pco::Pco;
use super::runs::Runs;
use super::sample::Sample;
use super::scheme::{Context, Kind, Scheme};
use super::sparse::Sparse;
use super::zstd::Zstd;
use crate::Result;
use crate::encodings::{bit_packed, frame_of_reference, sequence};
use crate::kernels::{BLOCK, Word};
use crate::release::since;
use crate::wire::WriteNode;

/// Bytes for the row of an exception, in addition to its value.
const EXCEPTION_ROW: usize = 4;

/// The schemes for integers.
pub(super) fn schemes<W: Word>() -> Schemes<W, 7> {
    [&Sequence, &Packed, &Dictionary, &Runs, &Sparse, &Pco, &Zstd]
}

/// Integers with a constant difference.
struct Sequence;

impl<W: Word> Scheme<Numbers<W>> for Sequence {
    fn kind(&self) -> Kind {
        Kind::Sequence
    }

    fn estimate(&self, numbers: &Numbers<W>, cx: &Context) -> Option<usize> {
        let ([first, second, ..], [.., last]) = (&numbers.values[..], &numbers.values[..]) else {
            return None;
        };
        let (first, second, last) = (*first, *second, *last);
        let step = second.minus(first);
        let is_even = numbers.nulls.is_none()
            && numbers.runs == numbers.len()
            && numbers.values.windows(2).all(|pair| pair[1].minus(pair[0]) == step);
        // Readers do not support sequences that wrap around. Those of unsigned types only ascend.
        let distance = number(numbers, step) * (numbers.len() as i128 - 1);
        let wraps = number(numbers, first) + distance != number(numbers, last);
        let is_far = numbers.ptype.is_signed() && distance.unsigned_abs() >= 1 << (W::BITS - 1);
        (is_even && !wraps && (!is_far || cx.reader() >= since::FAR_SEQUENCES)).then_some(0)
    }

    fn encode(&self, numbers: &Numbers<W>, _: &Context) -> Result<Option<WriteNode>> {
        let (first, second) = (numbers.values[0], numbers.values[1]);
        sequence::encode(&numbers.value(first), &numbers.value(second.minus(first))).map(Some)
    }
}

/// The integer that a word is.
fn number<W: Word>(numbers: &Numbers<W>, word: W) -> i128 {
    if numbers.ptype.is_signed() {
        let unused = u64::BITS as usize - W::BITS;
        (((word.as_u64() << unused) as i64) >> unused).into()
    } else {
        word.as_u64().into()
    }
}

/// Differences from the minimum in few bits, and patches for those that do not fit.
///
/// The reference is the minimum, even if a greater one would save bits by excluding a few much smaller
/// rows: release 0.91 compares packed values as unsigned integers, with wrong results for such rows.
pub(super) struct Packed;

/// The parameters of packing.
struct Frame {
    width: usize,
    bytes: f64,
}

impl Frame {
    /// The best parameters for words of `bits` bits whose maximum rank is `span`.
    fn best(sample: &Sample, span: u64, bits: usize) -> Self {
        let rows = sample.rows().next_multiple_of(BLOCK) as f64;
        let exception = sample.scale() * (EXCEPTION_ROW + bits / 8) as f64;
        let whole = bit_count(span);
        let mut best = Frame { width: whole, bytes: rows * whole as f64 / 8.0 };
        let mut by_width = [0usize; 65];
        sample.sorted.iter().for_each(|rank| by_width[bit_count(*rank)] += 1);
        let mut exceptions = 0usize;
        for width in (0..=bits).rev() {
            let bytes = rows * width as f64 / 8.0 + exceptions as f64 * exception;
            if bytes < best.bytes * 0.98 && width < whole {
                best = Frame { width, bytes };
            }
            exceptions += by_width[width];
        }
        best
    }
}

/// Estimated bytes of packed integers of `bits` bits each, given a sample of their ranks.
pub(super) fn packed_bytes(sample: &Sample, bits: usize) -> f64 {
    Frame::best(sample, sample.sorted.last().copied().unwrap_or_default(), bits).bytes
}

impl<W: Word> Scheme<Numbers<W>> for Packed {
    fn kind(&self) -> Kind {
        Kind::Packed
    }

    fn estimate(&self, numbers: &Numbers<W>, _: &Context) -> Option<usize> {
        let frame = Frame::best(numbers.sample(), numbers.span(), W::BITS);
        (frame.width < W::BITS).then_some(frame.bytes as usize + numbers.null_bytes())
    }

    fn encode(&self, numbers: &Numbers<W>, cx: &Context) -> Result<Option<WriteNode>> {
        let frame = Frame::best(numbers.sample(), numbers.span(), W::BITS);
        // A reference of zero costs nothing to add; it is used if values need no more bits for it.
        let is_natural = !numbers.ptype.is_signed() || !is_negative(numbers.min);
        let from_zero = is_natural && bit_count(numbers.max.as_u64()) <= frame.width;
        let reference = if from_zero { W::ZERO } else { numbers.min };
        let validity = numbers.validity(cx)?;
        let packed =
            bit_packed::encode(&numbers.values, reference, frame.width, numbers.nulls.as_ref(), validity);
        if reference == W::ZERO {
            return Ok(Some(packed));
        }
        frame_of_reference::encode(&numbers.value(reference), packed).map(Some)
    }
}

fn is_negative<W: Word>(value: W) -> bool {
    value.as_u64() >> (W::BITS - 1) == 1
}

/// Integers whose valid values all equal the minimum: a reference, and blocks without bits.
///
/// # Errors
/// If the reference cannot be written.
pub(super) fn without_bits<W: Word>(numbers: &Numbers<W>, validity: Option<WriteNode>) -> Result<WriteNode> {
    let packed = bit_packed::encode(&numbers.values, numbers.min, 0, numbers.nulls.as_ref(), validity);
    frame_of_reference::encode(&numbers.value(numbers.min), packed)
}
