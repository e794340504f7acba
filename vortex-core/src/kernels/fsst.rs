//! FSST: one-byte codes for strings of up to eight bytes.
//!
//! ```text
//! code 0..n     the symbol of that code
//! code 255      the next byte stands for itself
//! ```
//!
//! Every symbol lies in a 64-bit word, so that decoding stores whole words and moves on by the
//! symbol's length. Comparing walks the codes only until they decide.
#![expect(unsafe_code, reason = "stores whole words into capacity that is checked per eight codes")]

use super::needle::{Against, Automaton, Needle};
use crate::{Error, Result};

/// The code that announces a literal byte.
const ESCAPE: u8 = 255;

/// Capacity behind the decoded bytes: what eight codes can store at most.
const SLACK: usize = 64;

/// Symbols by code. Codes without symbol have length 0.
pub(crate) struct SymbolTable {
    symbols: [u64; 256],
    lengths: [u8; 256],
}

impl std::fmt::Debug for SymbolTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SymbolTable({} symbols)", self.lengths.iter().filter(|len| **len > 0).count())
    }
}

impl SymbolTable {
    /// The table of `symbols`, eight bytes each, and their lengths.
    ///
    /// # Errors
    /// If there are more than 255, or a length is not 1 to 8.
    pub(crate) fn try_new(symbols: &[u8], lengths: &[u8]) -> Result<Self> {
        let (words, rest) = symbols.as_chunks::<8>();
        if words.len() != lengths.len() || !rest.is_empty() || lengths.len() > usize::from(ESCAPE) {
            return Err(Error::corrupt(format!(
                "{} bytes of symbols with {} lengths",
                symbols.len(),
                lengths.len()
            )));
        }
        let mut table = Self { symbols: [0; 256], lengths: [0; 256] };
        for (code, (word, len)) in words.iter().zip(lengths).enumerate() {
            if !(1..=8).contains(len) {
                return Err(Error::corrupt(format!("symbol {code} has {len} bytes")));
            }
            table.symbols[code] = u64::from_le_bytes(*word) & low_bytes(usize::from(*len));
            table.lengths[code] = *len;
        }
        Ok(table)
    }

    /// Decodes codes that stand for exactly `len` bytes; `None` if they do not.
    pub(crate) fn decode(&self, codes: &[u8], len: usize) -> Option<Vec<u8>> {
        let mut out: Vec<u8> = Vec::with_capacity(len.checked_add(SLACK)?);
        let start = out.as_mut_ptr();
        let mut at = 0;
        let store_symbol = |code: u8, at: &mut usize| {
            // SAFETY: `at <= len` is checked before every eight codes, which move `at` by at most
            // 64; so a word stored by any of them ends within `len + SLACK`.
            unsafe { start.add(*at).cast::<u64>().write_unaligned(self.symbols[usize::from(code)].to_le()) };
            *at += usize::from(self.lengths[usize::from(code)]);
        };
        let store_literal = |byte: u8, at: &mut usize| {
            // SAFETY: as above; a literal is one of the eight codes.
            unsafe { start.add(*at).write(byte) };
            *at += 1;
        };

        let mut rest = codes;
        while let Some((eight, after)) = rest.split_first_chunk::<8>() {
            if at > len {
                return None;
            }
            let escapes = escape_bits(u64::from_le_bytes(*eight));
            if escapes == 0 {
                eight.iter().for_each(|code| store_symbol(*code, &mut at));
                rest = after;
            } else {
                let plain = (escapes.trailing_zeros() / 8) as usize;
                eight[..plain].iter().for_each(|code| store_symbol(*code, &mut at));
                store_literal(*rest.get(plain + 1)?, &mut at);
                rest = &rest[plain + 2..];
            }
        }
        while let Some((code, after)) = rest.split_first() {
            if at > len {
                return None;
            }
            rest = after;
            if *code == ESCAPE {
                let (literal, after) = rest.split_first()?;
                store_literal(*literal, &mut at);
                rest = after;
            } else {
                store_symbol(*code, &mut at);
            }
        }
        if at != len {
            return None;
        }
        // SAFETY: the bytes up to `at` were stored without gaps, and `at == len` is within
        // capacity.
        unsafe { out.set_len(len) };
        Some(out)
    }

    /// Compares the value of some codes with a constant, looking no further than needed.
    pub(crate) fn against(&self, codes: &[u8], needle: &Needle) -> Against {
        let mut at = 0;
        let mut codes = codes.iter();
        while let Some(code) = codes.next() {
            let (symbol, len) = match *code {
                ESCAPE => match codes.next() {
                    Some(literal) => (u64::from(*literal), 1),
                    None => break,
                },
                code => (self.symbols[usize::from(code)], usize::from(self.lengths[usize::from(code)])),
            };
            let left = needle.len() - at;
            let shared = low_bytes(len.min(left));
            let (symbol, wanted) = (symbol & shared, needle.word(at) & shared);
            if symbol != wanted {
                // Bytes compare from the first on, which is the lowest of the word.
                let below = symbol.swap_bytes() < wanted.swap_bytes();
                return if below { Against::Below } else { Against::Above };
            }
            if len > left {
                return Against::Extends;
            }
            at += len;
        }
        if at == needle.len() { Against::Equal } else { Against::Below }
    }

    /// An automaton over bytes as one over codes.
    pub(crate) fn over_codes<'a>(&self, bytes: &'a Automaton) -> OverCodes<'a> {
        let walk = |state: u8, code: usize| {
            let symbol = self.symbols[code].to_le_bytes();
            let symbol = &symbol[..usize::from(self.lengths[code])];
            symbol.iter().fold(state, |state, byte| bytes.step(state, *byte))
        };
        let next = (0..=bytes.accepting()).map(|state| std::array::from_fn(|code| walk(state, code)));
        OverCodes { next: next.collect(), bytes }
    }
}

/// An automaton that reads codes.
pub(crate) struct OverCodes<'a> {
    next: Vec<[u8; 256]>,
    bytes: &'a Automaton,
}

impl OverCodes<'_> {
    /// Whether it accepts the value of some codes.
    pub(crate) fn accepts(&self, codes: &[u8]) -> bool {
        let mut state = 0;
        let mut codes = codes.iter();
        while let Some(code) = codes.next() {
            state = match *code {
                ESCAPE => match codes.next() {
                    Some(literal) => self.bytes.step(state, *literal),
                    None => break,
                },
                code => self.next[usize::from(state)][usize::from(code)],
            };
        }
        state == self.bytes.accepting()
    }
}

/// A word whose `len` low bytes are set; all of them from 8 on.
#[inline]
fn low_bytes(len: usize) -> u64 {
    match len {
        0 => 0,
        len => u64::MAX >> (64 - 8 * len.min(8)),
    }
}

/// A nonzero word if one of eight codes is an escape; its lowest set bit lies in the first one.
#[inline]
fn escape_bits(codes: u64) -> u64 {
    (!codes).wrapping_sub(0x0101_0101_0101_0101) & codes & 0x8080_8080_8080_8080
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(symbols: &[&str]) -> SymbolTable {
        let mut words = Vec::new();
        for symbol in symbols {
            let mut word = [0; 8];
            word[..symbol.len()].copy_from_slice(symbol.as_bytes());
            words.extend(word);
        }
        let lengths: Vec<u8> = symbols.iter().map(|symbol| u8::try_from(symbol.len()).unwrap()).collect();
        SymbolTable::try_new(&words, &lengths).unwrap()
    }

    fn naive(symbols: &[&str], codes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut codes = codes.iter();
        while let Some(code) = codes.next() {
            match *code {
                ESCAPE => out.push(*codes.next().unwrap()),
                code => out.extend(symbols[usize::from(code)].as_bytes()),
            }
        }
        out
    }

    const SYMBOLS: [&str; 6] = ["the", "eight by", "a", "bc", " ", "longer"];

    /// Codes with escapes at every distance from each other and from the end.
    fn samples() -> Vec<Vec<u8>> {
        let mut seed = 1u32;
        let mut next = || {
            seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12345);
            (seed >> 16) as usize
        };
        (0..600)
            .map(|at| {
                let mut codes = Vec::new();
                for _ in 0..at % 40 {
                    match next() % 9 {
                        symbol if symbol < 6 => codes.push(u8::try_from(symbol).unwrap()),
                        _ => codes.extend([ESCAPE, u8::try_from(next() % 256).unwrap()]),
                    }
                }
                codes
            })
            .collect()
    }

    #[test]
    fn decoding_equals_its_naive_twin() {
        let table = table(&SYMBOLS);
        for codes in samples() {
            let wanted = naive(&SYMBOLS, &codes);
            assert_eq!(table.decode(&codes, wanted.len()).as_deref(), Some(&*wanted));
            assert_eq!(table.decode(&codes, wanted.len() + 1), None);
            if let Some(less) = wanted.len().checked_sub(1) {
                assert_eq!(table.decode(&codes, less), None);
            }
        }
    }

    #[test]
    fn a_lone_escape_and_an_unknown_code_do_not_decode() {
        let table = table(&SYMBOLS);
        assert_eq!(table.decode(&[0, ESCAPE], 3), None);
        assert_eq!(table.decode(&[0, 0, 0, 0, 0, 0, 0, ESCAPE], 21), None);
        assert_eq!(table.decode(&[0, 77], 4), None);
        assert_eq!(table.decode(&[1; 100], 3), None);
        assert_eq!(table.decode(&[], 0), Some(vec![]));
    }

    #[test]
    fn comparing_codes_equals_comparing_bytes() {
        let table = table(&SYMBOLS);
        let samples: Vec<_> = samples().into_iter().take(120).collect();
        for needle in &samples {
            let wanted = naive(&SYMBOLS, needle);
            for cut in [wanted.len(), wanted.len() / 2, wanted.len().min(3)] {
                let wanted = &wanted[..cut];
                let needle = Needle::new(wanted);
                for codes in &samples {
                    let value = naive(&SYMBOLS, codes);
                    let against = table.against(codes, &needle);
                    assert_eq!(against.ordering(), value.as_slice().cmp(wanted));
                    assert_eq!(against.starts_with(), value.starts_with(wanted));
                }
            }
        }
    }

    #[test]
    fn finding_in_codes_equals_finding_in_bytes() {
        let table = table(&SYMBOLS);
        for needle in ["a", "thethe", "bc a", "ht by", "ger", "aab"] {
            let bytes = Automaton::finding(needle.as_bytes()).unwrap();
            let automaton = table.over_codes(&bytes);
            for codes in samples() {
                let value = naive(&SYMBOLS, &codes);
                let found = value.windows(needle.len()).any(|window| window == needle.as_bytes());
                assert_eq!(automaton.accepts(&codes), found);
            }
        }
    }

    #[test]
    fn lengths_must_be_one_to_eight() {
        assert!(SymbolTable::try_new(&[0; 8], &[0]).is_err());
        assert!(SymbolTable::try_new(&[0; 8], &[9]).is_err());
        assert!(SymbolTable::try_new(&[0; 9], &[1]).is_err());
        assert!(SymbolTable::try_new(&[0; 256 * 8], &[1; 256]).is_err());
        assert!(SymbolTable::try_new(&[], &[]).is_ok());
    }
}
