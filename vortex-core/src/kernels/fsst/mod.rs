//! FSST: one-byte codes for strings of up to eight bytes.
//!
//! ```text
//! code 0..n     the symbol of that code
//! code 255      the next byte is a literal
//! ```
//!
//! Every symbol is stored in a 64-bit word, so that decoding writes whole words and advances by the symbol's
//! length. Escapes and literal bytes are identified for many codes at a time; literals are looked up like
//! codes, so that escapes cost no branches. Comparisons read codes only until the outcome is known.
#![expect(unsafe_code, reason = "stores whole words into capacity that is checked per chunk")]

#[cfg(target_arch = "x86_64")]
mod packed;

#[cfg(target_arch = "x86_64")]
use self::packed::Packing;
use arrow::buffer::BooleanBuffer;

use super::automaton::Automaton;
use super::coded::Coded;
use super::joined::{Follow, Joined};
use super::needle::{Against, Needle};
use super::simd::{Vectorized, vectorized};
use crate::{Error, Result};

/// The escape code: the next byte is a literal.
const ESCAPE: u8 = 255;

/// Number of codes decoded between two checks of the capacity.
const CHUNK: usize = 256;

/// Number of chunks after which views are made of what they decode to.
const FOLLOWED: usize = 8;

/// Capacity required after the decoded bytes: the maximum that a chunk can write.
const SLACK: usize = CHUNK * 8;

/// Added to a literal byte to get its place in the table.
const LITERAL: u16 = 256;

/// Symbols by code, followed by every byte as the symbol of itself. The escape and codes without a symbol
/// have length 0.
pub(crate) struct SymbolTable {
    symbols: [u64; 512],
    lengths: [u8; 512],
    /// For each code, the lowest bits: as many as its symbol has bytes.
    #[cfg(target_arch = "x86_64")]
    masks: [u8; 256],
    /// Whether all symbols are ASCII.
    is_ascii: bool,
}

impl std::fmt::Debug for SymbolTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SymbolTable({} symbols)", self.lengths[..256].iter().filter(|len| **len > 0).count())
    }
}

impl SymbolTable {
    /// Creates the table of `symbols`, eight bytes each, with their lengths.
    ///
    /// # Errors
    /// If there are more than 255 symbols, or a length is not 1 to 8.
    pub(crate) fn try_new(symbols: &[u8], lengths: &[u8]) -> Result<Self> {
        let (words, rest) = symbols.as_chunks::<8>();
        if words.len() != lengths.len() || !rest.is_empty() || lengths.len() > usize::from(ESCAPE) {
            return Err(Error::corrupt(format!(
                "{} bytes of symbols with {} lengths",
                symbols.len(),
                lengths.len()
            )));
        }
        let symbols = std::array::from_fn(|code| if code < 256 { 0 } else { code as u64 % 256 });
        let mut table = Self {
            symbols,
            lengths: [0; 512],
            #[cfg(target_arch = "x86_64")]
            masks: [0; 256],
            is_ascii: true,
        };
        table.lengths[256..].fill(1);
        for (code, (word, len)) in words.iter().zip(lengths).enumerate() {
            if !(1..=8).contains(len) {
                return Err(Error::corrupt(format!("symbol {code} has {len} bytes")));
            }
            table.symbols[code] = u64::from_le_bytes(*word) & low_bytes(usize::from(*len));
            table.lengths[code] = *len;
            #[cfg(target_arch = "x86_64")]
            {
                table.masks[code] = u8::MAX >> (8 - len);
            }
            table.is_ascii &= table.symbols[code] & 0x8080_8080_8080_8080 == 0;
        }
        Ok(table)
    }

    /// Decodes codes that represent exactly `len` bytes; `None` if they do not.
    pub(crate) fn decode(&self, codes: &[u8], len: usize, follow: &mut dyn Follow) -> Option<Joined> {
        #[cfg(target_arch = "x86_64")]
        let packing = Packing::best();
        #[cfg(not(target_arch = "x86_64"))]
        let packing = None;
        vectorized(Decode { table: self, codes, len, follow, packing })
    }

    /// The number of bytes that codes stand for; `None` if they end with an escape.
    pub(crate) fn decoded_len(&self, codes: &[u8]) -> Option<usize> {
        let (mut len, mut codes) = (0, codes.iter());
        while let Some(code) = codes.next() {
            len += match *code {
                ESCAPE => codes.next().map(|_| 1)?,
                code => usize::from(self.lengths[usize::from(code)]),
            };
        }
        Some(len)
    }

    /// Compares the value of some codes with a constant, reading no more codes than needed.
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
                // Bytes are compared starting with the first, which is the lowest of the word.
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

    /// Whether an automaton accepts the value of each row of codes, or of those `among` them; `None` if decoding them
    /// is faster. The codes of a row lie between two offsets, which must not decrease or exceed the number of codes.
    pub(crate) fn accepted(
        &self,
        codes: &[u8],
        offsets: &[usize],
        automaton: &Automaton,
        among: Option<&BooleanBuffer>,
    ) -> Option<BooleanBuffer> {
        let bytes_of = |code: usize| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&self.symbols[code].to_le_bytes());
            (bytes, usize::from(self.lengths[code]))
        };
        Coded { codes, offsets, code_count: 256, bytes_of, escape: Some(ESCAPE) }.accepted(automaton, among)
    }
}

/// There is no way but one by one.
#[cfg(not(target_arch = "x86_64"))]
type Packing = std::convert::Infallible;

/// The loop of [`SymbolTable::decode`].
struct Decode<'a> {
    table: &'a SymbolTable,
    codes: &'a [u8],
    len: usize,
    follow: &'a mut dyn Follow,
    /// How symbols are stored several at a time, which the machine must support.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "there is only one way"))]
    packing: Option<Packing>,
}

impl Vectorized for Decode<'_> {
    type Output = Option<Joined>;

    #[inline(always)]
    fn run(self) -> Option<Joined> {
        let mut out: Vec<u8> = Vec::with_capacity(self.len.checked_add(SLACK)?);
        let start = out.as_mut_ptr();
        // Stores symbols from `at` on; returns where the last one ends.
        let store = |places: &[u16], mut at: usize| {
            if at > self.len {
                return None;
            }
            #[cfg(target_arch = "x86_64")]
            if let Some(packing) = self.packing
                && let Some(places) = places.as_array::<CHUNK>()
            {
                // SAFETY: the machine supports it. `at <= len` was true before the chunk, behind which there is room
                // for eight bytes for each of its places.
                return Some(at + unsafe { packed::store(packing, self.table, places, start.add(at)) });
            }
            for place in places {
                let place = usize::from(*place) % 512;
                let (symbol, symbol_len) = (self.table.symbols[place], self.table.lengths[place]);
                // SAFETY: `at <= len` was true before the chunk, and each of its codes advances `at` by
                // at most 8; so a word stored by any of them ends within `len + SLACK`.
                unsafe { start.add(at).cast::<u64>().write_unaligned(symbol.to_le()) };
                at += usize::from(symbol_len);
            }
            Some(at)
        };

        let mut lookup = Lookup { places: [0; CHUNK], escaped: false, literals: 0 };
        let (mut last, mut at) = (0, 0);
        for (chunk, codes) in self.codes.chunks(CHUNK).enumerate() {
            match codes.as_array::<CHUNK>() {
                // Whether the preceding byte is an escape is consistent with its value.
                Some(codes) if lookup.escaped == (last == ESCAPE) => lookup.chunk(codes),
                _ => lookup.one_by_one(codes),
            }
            last = codes.last().copied().unwrap_or_default();
            at = store(&lookup.places[..codes.len()], at)?;
            if chunk % FOLLOWED == FOLLOWED - 1 && at <= self.len {
                // SAFETY: the bytes up to `at` were written without gaps, and are within the capacity.
                self.follow.decoded(unsafe { std::slice::from_raw_parts(start, at) });
            }
        }
        if lookup.escaped || at != self.len {
            return None;
        }
        // SAFETY: the bytes up to `at` were written without gaps, and `at == len` is within the capacity.
        unsafe { out.set_len(self.len) };
        // SAFETY: the bytes consist of symbols, all of which are ASCII then, and of literals, of which that is the
        // union.
        Some(unsafe { Joined::new(out, self.table.is_ascii && lookup.literals < 128) })
    }
}

/// The places in the table of all codes of a chunk.
struct Lookup {
    places: [u16; CHUNK],
    /// Whether the last code was an escape, so that the next byte is a literal.
    escaped: bool,
    /// The bitwise OR of all literal bytes.
    literals: u8,
}

impl Lookup {
    #[inline(always)]
    fn chunk(&mut self, codes: &[u8; CHUNK]) {
        let literal = |before: u8| if before == ESCAPE { 0xFF } else { 0 };
        let escaped = if self.escaped { 0xFF } else { 0 };
        let mut literals = escaped & codes[0];
        let mut doubled = literals & literal(codes[0]);
        self.places[0] = u16::from(codes[0]) | u16::from(escaped) << 1 & LITERAL;
        // Bytes after an escape are literals, provided that no literal is itself equal to the escape.
        let pairs = codes.iter().zip(&codes[1..]);
        for (place, (before, code)) in self.places[1..].iter_mut().zip(pairs) {
            let bits = literal(*before);
            literals |= bits & code;
            doubled |= bits & literal(*code);
            *place = u16::from(*code) | u16::from(bits) << 1 & LITERAL;
        }
        if doubled != 0 {
            return self.one_by_one(codes);
        }
        self.escaped = codes[CHUNK - 1] == ESCAPE;
        self.literals |= literals;
    }

    fn one_by_one(&mut self, codes: &[u8]) {
        for (place, code) in self.places.iter_mut().zip(codes) {
            if self.escaped {
                *place = u16::from(*code) | LITERAL;
                self.literals |= *code;
                self.escaped = false;
            } else {
                *place = u16::from(*code);
                self.escaped = *code == ESCAPE;
            }
        }
    }
}

/// A word whose `len` lowest bytes are set; all bytes are if `len` is 8 or more.
#[inline]
fn low_bytes(len: usize) -> u64 {
    match len {
        0 => 0,
        len => u64::MAX >> (64 - 8 * len.min(8)),
    }
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

    fn decoded(table: &SymbolTable, codes: &[u8], len: usize) -> Option<Vec<u8>> {
        table.decode(codes, len, &mut ()).map(Joined::into_bytes)
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

    /// Codes with escapes at all distances from each other and from the end.
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
    fn the_length_of_codes_is_that_of_what_they_decode_to() {
        let table = table(&SYMBOLS);
        for codes in samples() {
            assert_eq!(table.decoded_len(&codes), Some(naive(&SYMBOLS, &codes).len()));
            assert_eq!(table.decoded_len(&[&codes[..], &[ESCAPE]].concat()), None);
        }
        assert_eq!(table.decoded_len(&[0, 17, 2]), Some(4), "codes without a symbol stand for nothing");
    }

    #[test]
    fn escapes_at_the_borders_of_chunks_are_escapes() {
        let table = table(&SYMBOLS);
        for first in CHUNK - 6..CHUNK + 3 {
            for escapes in
                [&[ESCAPE, b'x'][..], &[ESCAPE, ESCAPE], &[ESCAPE, ESCAPE, ESCAPE, 0xC3, ESCAPE, 7]]
            {
                let codes = [vec![2; first], escapes.to_vec(), vec![3; 2 * CHUNK]].concat();
                let wanted = naive(&SYMBOLS, &codes);
                assert_eq!(
                    decoded(&table, &codes, wanted.len()).as_deref(),
                    Some(&*wanted),
                    "{first} {escapes:?}"
                );
                assert_eq!(decoded(&table, &codes[..=first], first), None, "an escape is the last code");
            }
        }
    }

    #[test]
    fn decoding_equals_its_naive_twin() {
        let table = table(&SYMBOLS);
        for codes in samples() {
            let wanted = naive(&SYMBOLS, &codes);
            assert_eq!(decoded(&table, &codes, wanted.len()).as_deref(), Some(&*wanted));
            assert_eq!(decoded(&table, &codes, wanted.len() + 1), None);
            if let Some(less) = wanted.len().checked_sub(1) {
                assert_eq!(decoded(&table, &codes, less), None);
            }
        }
    }

    /// All ways to store symbols on this machine.
    fn ways() -> Vec<Option<Packing>> {
        #[cfg(target_arch = "x86_64")]
        if Packing::best().is_some() {
            return vec![None, Some(Packing::Loads), Some(Packing::Gathers)];
        }
        vec![None]
    }

    #[test]
    fn long_codes_are_decoded_alike_one_by_one_and_packed() {
        let mut next = crate::kernels::random(7);
        let all: Vec<String> =
            (0..255).map(|_| "symbol!"[..].repeat(2)[..1 + next() as usize % 8].to_owned()).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let table = table(&all);
        for escapes in [0, 3, 50] {
            for len in [0, 7, 255, 256, 257, 5000] {
                let mut codes = Vec::new();
                while codes.len() < len {
                    match next() % 100 {
                        at if at < escapes => codes.extend([ESCAPE, next() as u8]),
                        _ => codes.push((next() % 255) as u8),
                    }
                }
                let wanted = naive(&all, &codes);
                for packing in ways() {
                    let decode =
                        Decode { table: &table, codes: &codes, len: wanted.len(), follow: &mut (), packing };
                    let found = vectorized(decode).map(Joined::into_bytes);
                    assert_eq!(found.as_deref(), Some(&*wanted), "{escapes}, {len}");
                    for wrong in [wanted.len() + 1, wanted.len().saturating_sub(1)] {
                        let decode =
                            Decode { table: &table, codes: &codes, len: wrong, follow: &mut (), packing };
                        assert!(wrong == wanted.len() || vectorized(decode).is_none());
                    }
                }
            }
        }
    }

    #[test]
    fn a_lone_escape_and_an_unknown_code_do_not_decode() {
        let table = table(&SYMBOLS);
        assert_eq!(decoded(&table, &[0, ESCAPE], 3), None);
        assert_eq!(decoded(&table, &[0, 0, 0, 0, 0, 0, 0, ESCAPE], 21), None);
        assert_eq!(decoded(&table, &[0, 77], 4), None);
        assert_eq!(decoded(&table, &[1; 100], 3), None);
        assert_eq!(decoded(&table, &[], 0), Some(vec![]));
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
            let bytes = Automaton::finding(&[], &[needle.as_bytes()], &[]).unwrap();
            let (mut codes, mut offsets, mut found) = (Vec::new(), vec![0], Vec::new());
            for row in samples() {
                let value = naive(&SYMBOLS, &row);
                found.push(value.windows(needle.len()).any(|window| window == needle.as_bytes()));
                codes.extend(row);
                offsets.push(codes.len());
            }
            assert_eq!(table.accepted(&codes, &offsets, &bytes, None), Some(found.into()));
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
