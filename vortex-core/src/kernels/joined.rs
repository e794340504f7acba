//! Concatenated strings, as produced by decoders, converted to views in a single pass.
//!
//! Views are made of a few kilobytes at a time, right after they were decoded: later they would have to be fetched into
//! the cache again.
//!
//! Text is validated as a whole, and not at all if the decoder knows that it is ASCII.
#![expect(unsafe_code, reason = "Arrow's own check goes string by string")]

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryViewArray, StringViewArray};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::ArrowNativeType;

use super::simd::{Vectorized, vectorized};
use super::views::MAX_INLINE;

/// Masks of the low bytes of a word, by their number.
const LOW_BYTES: [u128; MAX_INLINE + 1] = {
    let mut masks = [0; MAX_INLINE + 1];
    let mut len = 1;
    while len <= MAX_INLINE {
        masks[len] = masks[len - 1] << 8 | 0xFF;
        len += 1;
    }
    masks
};

/// The sum of lengths, saturated at `usize::MAX`; `None` if one is negative.
pub(crate) fn total_len<L: ArrowNativeType>(lengths: &[L]) -> Option<usize> {
    vectorized(TotalLen(lengths))
}

struct TotalLen<'a, L>(&'a [L]);

impl<L: ArrowNativeType> Vectorized for TotalLen<'_, L> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run(self) -> Option<usize> {
        let zero = L::default();
        if self.0.iter().fold(false, |negative, len| negative | (*len < zero)) {
            return None;
        }
        Some(match size_of::<L>() {
            // There are few enough of them not to overflow 64 bits.
            ..=4 => {
                let total = self.0.iter().map(|len| len.as_usize() as u64).sum::<u64>();
                usize::try_from(total).unwrap_or(usize::MAX)
            }
            _ => self.0.iter().fold(0, |sum: usize, len| sum.saturating_add(len.as_usize())),
        })
    }
}

/// Number of bytes between two checks whether all bytes so far were ASCII.
const ASCII_STEP: usize = 4096;

/// Whether all bytes are ASCII.
pub(super) fn is_ascii(bytes: &[u8]) -> bool {
    bytes.chunks(ASCII_STEP).all(|bytes| vectorized(AnyBit(bytes)).is_ascii())
}

struct AnyBit<'a>(&'a [u8]);

impl Vectorized for AnyBit<'_> {
    type Output = u8;

    #[inline(always)]
    fn run(self) -> u8 {
        self.0.iter().fold(0, |bits, byte| bits | byte)
    }
}

/// What is done with bytes while they are being decoded.
pub(crate) trait Follow {
    /// Takes note of all bytes that have been decoded so far; they do not change any more.
    fn decoded(&mut self, bytes: &[u8]);
}

/// Does nothing.
impl Follow for () {
    fn decoded(&mut self, _bytes: &[u8]) {}
}

/// Decoded bytes, and what the decoder knows about them.
#[derive(Debug)]
pub(crate) struct Joined {
    bytes: Vec<u8>,
    is_ascii: bool,
}

impl Joined {
    /// Wraps bytes that are known to be ASCII, or else may be anything.
    ///
    /// # Safety
    /// If `is_ascii`, all bytes must be: text is not checked then.
    pub(super) unsafe fn new(bytes: Vec<u8>, is_ascii: bool) -> Self {
        debug_assert!(!is_ascii || bytes.is_ascii());
        Self { bytes, is_ascii }
    }

    /// The bytes of all values.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// An array of `views`, which have followed the decoding of these bytes, or of none. Returns the bytes if the
    /// lengths do not add up, if values that must be text are not, or if views cannot address them: a slower path may
    /// still succeed, or report what is wrong.
    pub(crate) fn into_views<L: ArrowNativeType>(
        self,
        views: Views<'_, L>,
        nulls: Option<&NullBuffer>,
        is_text: bool,
    ) -> Result<ArrayRef, Self> {
        let lengths = views.lengths;
        if i32::try_from(self.bytes.len()).is_err() || nulls.is_some_and(|nulls| nulls.len() != lengths.len())
        {
            return Err(self);
        }
        if is_text && !self.is_ascii && !self.is_text(lengths) {
            return Err(self);
        }
        let Some(views) = views.finish(&self.bytes) else { return Err(self) };
        let (views, buffers) = (views.into(), [Buffer::from_vec(self.bytes)]);
        // SAFETY: all `views` are within the only buffer, with correct prefixes and zeroed padding; there
        // are as many of them as null bits.
        Ok(if is_text {
            // SAFETY: values start and end at character boundaries of valid text.
            Arc::new(unsafe { StringViewArray::new_unchecked(views, buffers, nulls.cloned()) })
        } else {
            // SAFETY: bytes need not be text.
            Arc::new(unsafe { BinaryViewArray::new_unchecked(views, buffers, nulls.cloned()) })
        })
    }

    /// Whether all bytes are text, and all values start at character boundaries.
    fn is_text<L: ArrowNativeType>(&self, lengths: &[L]) -> bool {
        if is_ascii(&self.bytes) {
            return true;
        }
        let Ok(text) = std::str::from_utf8(&self.bytes) else { return false };
        let mut at = 0usize;
        lengths.iter().all(|len| {
            let starts_well = text.is_char_boundary(at);
            at = at.saturating_add(len.to_usize().unwrap_or(usize::MAX));
            starts_well
        })
    }
}

/// Views of consecutive values in one buffer, made while these are being decoded.
pub(crate) struct Views<'a, L> {
    lengths: &'a [L],
    made: Vec<u128>,
    /// Where the next value starts.
    at: usize,
}

impl<'a, L: ArrowNativeType> Views<'a, L> {
    /// Views of values with these lengths. The limits have been asked for as many views.
    pub(crate) fn new(lengths: &'a [L]) -> Self {
        Self { lengths, made: Vec::with_capacity(lengths.len()), at: 0 }
    }

    /// Views of all values; `None` unless they fill the buffer.
    fn finish(mut self, bytes: &[u8]) -> Option<Vec<u128>> {
        self.extend(bytes, 0);
        (self.made.len() == self.lengths.len() && self.at == bytes.len()).then_some(self.made)
    }

    /// Makes views of the values up to the end of `bytes`, of which at least `ahead` follow the start of each.
    #[inline(always)]
    fn extend(&mut self, bytes: &[u8], ahead: usize) {
        let mut at = self.at;
        for len in &self.lengths[self.made.len()..] {
            let rest = &bytes[at..];
            let len = len.to_usize().unwrap_or(usize::MAX);
            if len > rest.len() || ahead > rest.len() {
                break;
            }
            self.made.push(match (LOW_BYTES.get(len), rest.first_chunk::<4>()) {
                // Built in halves: assembling a 16-byte word directly is slow.
                (None, Some(prefix)) => {
                    let low = len as u64 | u64::from(u32::from_le_bytes(*prefix)) << 32;
                    u128::from(low) | u128::from((at as u64) << 32) << 64
                }
                (mask, _) => len as u128 | (first_bytes(rest) & mask.copied().unwrap_or_default()) << 32,
            });
            at += len;
        }
        self.at = at;
    }
}

impl<L: ArrowNativeType> Follow for Views<'_, L> {
    fn decoded(&mut self, bytes: &[u8]) {
        // All sixteen bytes of a short value's word are there, which takes no branch.
        self.extend(bytes, 16);
    }
}

/// The first 16 bytes, padded with zeros.
#[inline]
fn first_bytes(bytes: &[u8]) -> u128 {
    match bytes.first_chunk::<16>() {
        Some(chunk) => u128::from_le_bytes(*chunk),
        None => {
            let mut chunk = [0; 16];
            chunk[..bytes.len()].copy_from_slice(bytes);
            u128::from_le_bytes(chunk)
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array as _, AsArray as _};

    use super::*;

    fn joined(bytes: Vec<u8>, is_ascii: bool) -> Joined {
        assert!(!is_ascii || bytes.is_ascii());
        // SAFETY: as was just checked.
        unsafe { Joined::new(bytes, is_ascii) }
    }

    fn strings(values: &[&str], is_ascii: bool) -> Result<ArrayRef, Joined> {
        let lengths: Vec<i32> = values.iter().map(|value| i32::try_from(value.len()).unwrap()).collect();
        joined(values.concat().into_bytes(), is_ascii).into_views(Views::new(&lengths), None, true)
    }

    #[test]
    fn values_of_every_length_come_back() {
        let all = "abcdefghijklmnopqrstuvwxyz";
        let values: Vec<&str> = (0..=26).chain([0, 13, 12]).map(|len| &all[..len]).collect();
        let array = strings(&values, true).unwrap();
        array.to_data().validate_full().unwrap();
        assert_eq!(array.as_string_view().iter().flatten().collect::<Vec<_>>(), values);
        let values = ["ä", "", "a longer value with ö", "日本"];
        let array = strings(&values, false).unwrap();
        array.to_data().validate_full().unwrap();
        assert_eq!(array.as_string_view().iter().flatten().collect::<Vec<_>>(), values);
    }

    #[test]
    fn views_made_while_decoding_are_those_of_all_bytes() {
        let values: Vec<String> =
            (0..300).map(|at| "abcdefghijklmnopqrstuvwxyz".repeat(3)[..at * 7 % 70].into()).collect();
        let lengths: Vec<u8> = values.iter().map(|value| value.len() as u8).collect();
        let bytes = values.concat().into_bytes();
        for step in [1, 5, 16, 100, 4000, bytes.len()] {
            let mut views = Views::new(&lengths);
            for end in (0..bytes.len()).step_by(step) {
                views.decoded(&bytes[..end]);
            }
            let array = joined(bytes.clone(), true).into_views(views, None, true).unwrap();
            array.to_data().validate_full().unwrap();
            assert!(array.as_string_view().iter().flatten().eq(values.iter().map(String::as_str)), "{step}");
        }
    }

    #[test]
    fn lengths_must_fill_the_bytes() {
        for lengths in [&[2i8, 2][..], &[2, 4], &[-1, 6], &[5, -1], &[]] {
            let bytes = joined(b"abcde".to_vec(), true);
            assert!(bytes.into_views(Views::new(lengths), None, true).is_err(), "{lengths:?}");
        }
    }

    #[test]
    fn values_that_split_a_character_are_not_text() {
        let split = || joined("aäa".as_bytes().to_vec(), false);
        assert!(split().into_views(Views::new(&[2u8, 2]), None, true).is_err());
        assert!(split().into_views(Views::new(&[1u8, 3]), None, true).is_ok());
        assert!(split().into_views(Views::new(&[2u8, 2]), None, false).is_ok());
        assert!(joined(vec![0xFF], false).into_views(Views::new(&[1u8]), None, true).is_err());
    }
}
