//! OnPair: integer codes for strings of up to sixteen bytes.
//!
//! Each token is stored in sixteen bytes, so that decoding copies all sixteen and advances by the token's
//! length.
#![expect(unsafe_code, reason = "copies whole tokens into capacity that is checked per chunk")]

use arrow::buffer::BooleanBuffer;

use super::automaton::Automaton;
use super::coded::Coded;
use super::gather::{Key, in_range};
use super::joined::{Follow, Joined};
use super::needle::{Against, Needle};
use crate::{Error, Result};

/// Maximum length of a token.
const MAX_TOKEN: usize = 16;

/// Number of codes decoded between two checks of the capacity.
const CHUNK: usize = 16;

/// Number of chunks after which views are made of what they decode to.
const FOLLOWED: usize = 64;

/// Capacity required after the decoded bytes: the maximum that a chunk can write.
const SLACK: usize = CHUNK * MAX_TOKEN;

/// Tokens by code.
pub(crate) struct Tokens {
    bytes: Vec<[u8; MAX_TOKEN]>,
    lengths: Vec<u8>,
    /// Whether all tokens are ASCII.
    is_ascii: bool,
}

impl Tokens {
    /// Memory for each token.
    pub(crate) const BYTES: usize = MAX_TOKEN + 1;
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokens({})", self.lengths.len())
    }
}

impl Tokens {
    /// Creates the tokens `bytes[offsets[t]..offsets[t + 1]]`.
    ///
    /// # Errors
    /// If a token is empty, longer than sixteen bytes, or extends beyond the bytes.
    pub(crate) fn try_new(bytes: &[u8], offsets: &[usize]) -> Result<Self> {
        let mut tokens = Self { bytes: Vec::new(), lengths: Vec::new(), is_ascii: true };
        for (code, pair) in offsets.windows(2).enumerate() {
            let token = bytes.get(pair[0]..pair[1]).filter(|token| (1..=MAX_TOKEN).contains(&token.len()));
            let token = token.ok_or_else(|| {
                Error::corrupt(format!("token {code} lies at {}..{} of {}", pair[0], pair[1], bytes.len()))
            })?;
            let mut padded = [0; MAX_TOKEN];
            padded[..token.len()].copy_from_slice(token);
            tokens.bytes.push(padded);
            tokens.is_ascii &= token.is_ascii();
            // At most 16, as just checked.
            tokens.lengths.push(token.len() as u8);
        }
        Ok(tokens)
    }

    /// Decodes codes that represent exactly `len` bytes; `None` if they do not.
    pub(crate) fn decode<K: Key>(&self, codes: &[K], len: usize, follow: &mut dyn Follow) -> Option<Joined> {
        if !in_range(codes, self.lengths.len()) {
            return None;
        }
        let mut out: Vec<u8> = Vec::with_capacity(len.checked_add(SLACK)?);
        let start = out.as_mut_ptr();
        let mut at = 0;
        for (chunk, codes) in codes.chunks(CHUNK).enumerate() {
            if at > len {
                return None;
            }
            if chunk % FOLLOWED == FOLLOWED - 1 {
                // SAFETY: the bytes up to `at` were written without gaps, and `at <= len` is within the capacity.
                follow.decoded(unsafe { std::slice::from_raw_parts(start, at) });
            }
            for code in codes {
                // SAFETY: codes were checked against the number of tokens, which is also that of lengths;
                // `at <= len` was true before the chunk, so the sixteen bytes of each of its tokens end
                // within the capacity.
                unsafe {
                    let token = self.bytes.get_unchecked(code.index());
                    start.add(at).cast::<[u8; MAX_TOKEN]>().write(*token);
                    at += usize::from(*self.lengths.get_unchecked(code.index()));
                }
            }
        }
        if at != len {
            return None;
        }
        // SAFETY: the bytes up to `at` were written without gaps, and `at == len` is within the capacity.
        unsafe { out.set_len(len) };
        // SAFETY: `is_ascii` says that all tokens are, and the bytes consist of tokens.
        Some(unsafe { Joined::new(out, self.is_ascii) })
    }

    /// The number of bytes that codes stand for; `None` if some have no token.
    pub(crate) fn decoded_len<K: Key>(&self, codes: &[K]) -> Option<usize> {
        codes.iter().map(|code| self.lengths.get(code.index()).map(|len| usize::from(*len))).sum()
    }

    /// Whether an automaton accepts the value of each row of codes, or of those `among` them; `None` if some codes have
    /// no token, or if decoding them is faster. The codes of a row lie between two offsets, which must not decrease or
    /// exceed the number of codes.
    pub(crate) fn accepted<K: Key>(
        &self,
        codes: &[K],
        offsets: &[usize],
        automaton: &Automaton,
        among: Option<&BooleanBuffer>,
    ) -> Option<BooleanBuffer> {
        let bytes_of = |code: usize| (self.bytes[code], usize::from(self.lengths[code]));
        let code_count = self.bytes.len();
        Coded { codes, offsets, code_count, bytes_of, escape: None }.accepted(automaton, among)
    }

    /// Compares the value of some codes with a constant, reading no more codes than needed. A code
    /// without a token ends the value.
    pub(crate) fn against<K: Key>(&self, codes: &[K], needle: &Needle) -> Against {
        let mut at = 0;
        for code in codes {
            let (Some(token), Some(len)) = (self.bytes.get(code.index()), self.lengths.get(code.index()))
            else {
                break;
            };
            let len = usize::from(*len);
            let left = needle.len() - at;
            let shared = low_bytes(len.min(left));
            let (token, wanted) = (u128::from_le_bytes(*token) & shared, needle.double_word(at) & shared);
            if token != wanted {
                // Bytes are compared starting with the first, which is the lowest of the word.
                let below = token.swap_bytes() < wanted.swap_bytes();
                return if below { Against::Below } else { Against::Above };
            }
            if len > left {
                return Against::Extends;
            }
            at += len;
        }
        if at == needle.len() { Against::Equal } else { Against::Below }
    }
}

/// A word whose `len` lowest bytes are set, at most sixteen.
#[inline]
fn low_bytes(len: usize) -> u128 {
    match len {
        0 => 0,
        len => u128::MAX >> (128 - 8 * len.min(MAX_TOKEN)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(words: &[&str]) -> Tokens {
        let mut offsets = vec![0];
        let mut bytes = Vec::new();
        for word in words {
            bytes.extend(word.as_bytes());
            offsets.push(bytes.len());
        }
        Tokens::try_new(&bytes, &offsets).unwrap()
    }

    const WORDS: [&str; 5] = ["a", "sixteen bytes ok", "the ", "xyz", "ab"];

    fn samples() -> Vec<Vec<u16>> {
        (0..200u16).map(|at| (0..at % 23).map(|k| (at * 7 + k * k + k) % 5).collect()).collect()
    }

    fn decoded<K: Key>(tokens: &Tokens, codes: &[K], len: usize) -> Option<Vec<u8>> {
        tokens.decode(codes, len, &mut ()).map(Joined::into_bytes)
    }

    fn naive(codes: &[u16]) -> Vec<u8> {
        codes.iter().flat_map(|code| WORDS[usize::from(*code)].bytes()).collect()
    }

    #[test]
    fn decoding_equals_its_naive_twin() {
        let tokens = tokens(&WORDS);
        for codes in samples() {
            let wanted = naive(&codes);
            assert_eq!(decoded(&tokens, &codes, wanted.len()).as_deref(), Some(&*wanted));
            assert_eq!(decoded(&tokens, &codes, wanted.len() + 1), None);
            assert_eq!(tokens.decoded_len(&codes), Some(wanted.len()));
        }
        assert_eq!(tokens.decoded_len(&[0u8, 5]), None, "there are only five tokens");
        assert_eq!(decoded(&tokens, &[1u8; 50], 3), None);
        assert_eq!(decoded(&tokens, &[5u8], 1), None, "there are only five tokens");
    }

    #[test]
    fn comparing_codes_equals_comparing_bytes() {
        let tokens = tokens(&WORDS);
        for needle in samples() {
            let wanted = naive(&needle);
            for wanted in [&wanted[..], &wanted[..wanted.len() / 2]] {
                let needle = Needle::new(wanted);
                for codes in samples() {
                    let value = naive(&codes);
                    let against = tokens.against(&codes, &needle);
                    assert_eq!(against.ordering(), value.as_slice().cmp(wanted));
                    assert_eq!(against.starts_with(), value.starts_with(wanted));
                }
            }
        }
    }

    #[test]
    fn finding_in_codes_equals_finding_in_bytes() {
        let tokens = tokens(&WORDS);
        for needle in ["a", "abab", "zthe s", "xyzxyz", "bytes ok"] {
            let bytes = Automaton::finding(&[], &[needle.as_bytes()], &[]).unwrap();
            let (mut codes, mut offsets, mut found) = (Vec::new(), vec![0], Vec::new());
            for row in samples() {
                let value = naive(&row);
                found.push(value.windows(needle.len()).any(|window| window == needle.as_bytes()));
                codes.extend(row);
                offsets.push(codes.len());
            }
            assert_eq!(tokens.accepted(&codes, &offsets, &bytes, None), Some(found.into()));
            codes[77] = 5;
            assert_eq!(tokens.accepted(&codes, &offsets, &bytes, None), None, "there are only five tokens");
        }
    }

    #[test]
    fn tokens_have_one_to_sixteen_bytes() {
        assert!(Tokens::try_new(b"abc", &[0, 1, 1]).is_err());
        assert!(Tokens::try_new(&[0; 17], &[0, 17]).is_err());
        assert!(Tokens::try_new(b"abc", &[0, 4]).is_err());
        assert!(Tokens::try_new(b"abc", &[0, 2, 1]).is_err());
    }
}
