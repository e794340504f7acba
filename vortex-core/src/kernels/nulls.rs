//! Counting nulls.
#![expect(unsafe_code, reason = "passes a null count to Arrow, whose own counting takes longer")]

use arrow::buffer::{BooleanBuffer, NullBuffer};

use super::simd::{Vectorized, vectorized};

/// Creates a null buffer from bits that are set for valid rows.
pub(crate) fn null_buffer(valid: BooleanBuffer) -> NullBuffer {
    let null_count = valid.len() - count_set_bits(&valid);
    // SAFETY: this is the exact number of bits that are not set.
    unsafe { NullBuffer::new_unchecked(valid, null_count) }
}

fn count_set_bits(bits: &BooleanBuffer) -> usize {
    if !bits.offset().is_multiple_of(8) {
        return bits.count_set_bits();
    }
    let (first, bytes) = (bits.offset() / 8, bits.len() / 8);
    let rest = bits.slice(bytes * 8, bits.len() % 8);
    vectorized(SetBits(&bits.values()[first..first + bytes])) + rest.count_set_bits()
}

struct SetBits<'a>(&'a [u8]);

impl Vectorized for SetBits<'_> {
    type Output = usize;

    #[inline(always)]
    fn run(self) -> usize {
        let (words, rest) = self.0.as_chunks::<8>();
        let ones: u64 = words.iter().map(|word| u64::from(u64::from_le_bytes(*word).count_ones())).sum();
        ones as usize + rest.iter().map(|byte| byte.count_ones() as usize).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nulls_are_as_many_as_arrow_counts() {
        let mut next = crate::kernels::random(5);
        let bits: BooleanBuffer = (0..5000).map(|_| !next().is_multiple_of(7)).collect();
        for (start, len) in [(0, 5000), (0, 0), (0, 7), (8, 64), (3, 4000), (16, 4901), (4999, 1)] {
            let bits = bits.slice(start, len);
            assert_eq!(null_buffer(bits.clone()), NullBuffer::new(bits.clone()));
            assert_eq!(null_buffer(bits.clone()).null_count(), NullBuffer::new(bits).null_count());
        }
    }
}
