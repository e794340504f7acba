//! Running automata over codes that stand for bytes.
//!
//! ```text
//! bytes    0 -t-> 1 -h-> 2 -e-> 3
//! codes    0 -- "the" --> 3      1 -- "he s" --> 3      0 -- "at" --> 1
//! ```
//!
//! Where thousands of codes lead is only found out for the starting points of an automaton. Other states differ from
//! these for the codes that begin with few bytes.

#![expect(unsafe_code, reason = "codes are checked once, not each time they are read")]

use arrow::buffer::BooleanBuffer;

use super::automaton::{Automaton, MAX_STATES, START};
use super::gather::{Key, in_range};

/// Number of rows that are read at once: each code has to wait for the one before it, but not for those of other rows.
const LANES: usize = 4;

/// Rows are read byte by byte only if they have at most one in so many codes: decoding all of them is faster otherwise.
const MIN_CODES_PER_ROW: usize = 16;

/// Number of transitions that are copied in the time of finding one out.
const COPIED: usize = 16;

/// Maximum number of transitions over codes, each of which takes a byte.
const MAX_TRANSITIONS: usize = 1 << 20;

/// Rows of codes, each of which stands for at most sixteen bytes.
pub(super) struct Coded<'a, K, F> {
    pub(super) codes: &'a [K],
    /// The codes of a row lie between two offsets, which must not decrease or exceed the number of codes.
    pub(super) offsets: &'a [usize],
    /// Number of codes that stand for something.
    pub(super) code_count: usize,
    /// What a code stands for, and how many of these bytes.
    pub(super) bytes_of: F,
    /// The code that means that the next one is a byte which stands for itself.
    pub(super) escape: Option<u8>,
}

impl<K: Key, F: Fn(usize) -> ([u8; 16], usize)> Coded<'_, K, F> {
    /// Whether an automaton accepts each row; not those beyond `among`, if there is such a limit. `None` if some codes
    /// are none of those counted, or if decoding them is faster.
    ///
    /// # Panics
    /// If offsets decrease, or exceed the number of codes.
    pub(super) fn accepted(
        &self,
        automaton: &Automaton,
        among: Option<&BooleanBuffer>,
    ) -> Option<BooleanBuffer> {
        let (Some(first), Some(last)) = (self.offsets.first(), self.offsets.last()) else {
            return Some(BooleanBuffer::new_unset(0));
        };
        assert!(self.offsets.is_sorted(), "offsets do not decrease, so that all codes of rows are checked");
        if !in_range(&self.codes[*first..*last], self.code_count) {
            return None;
        }
        let read_count = match among {
            Some(among) => among.set_indices().map(|row| self.row(row).len()).sum(),
            None => last - first,
        };
        let rows = self.offsets.len() - 1;
        let is_among = |row| among.is_none_or(|among| among.value(row));
        Some(match (self.transitions(automaton, read_count), among) {
            (None, _) if read_count > (last - first) / MIN_CODES_PER_ROW => return None,
            (None, _) => {
                BooleanBuffer::collect_bool(rows, |row| is_among(row) && self.accepts(automaton, row))
            }
            (Some(transitions), None) => {
                let states = self.read_all(&transitions, &self.codes[..*last]);
                BooleanBuffer::collect_bool(rows, |row| automaton.accepts(states[row]))
            }
            (Some(transitions), Some(_)) => BooleanBuffer::collect_bool(rows, |row| {
                is_among(row) && automaton.accepts(transitions.read(START, self.row(row)))
            }),
        })
    }

    fn row(&self, row: usize) -> &[K] {
        &self.codes[self.offsets[row]..self.offsets[row + 1]]
    }

    /// Whether an automaton accepts a row, byte by byte.
    fn accepts(&self, automaton: &Automaton, row: usize) -> bool {
        let (mut state, mut codes) = (START, self.row(row).iter());
        while let Some(code) = codes.next() {
            if self.escape.map(usize::from) == Some(code.index()) {
                let Some(literal) = codes.next() else { return false };
                // Where there is an escape, codes are bytes.
                state = automaton.step(state, literal.index() as u8);
            } else {
                let (bytes, len) = (self.bytes_of)(code.index());
                state = automaton.walk(state, &bytes[..len]);
            }
        }
        automaton.accepts(state)
    }

    /// The state in which an automaton is after each row. All of `codes`, which contain those of the last row, must
    /// have been checked from the first row on.
    fn read_all(&self, transitions: &Transitions, codes: &[K]) -> Vec<u8> {
        let rows = self.offsets.len().saturating_sub(1);
        let mut states = Vec::with_capacity(rows);
        while let Some(offsets) = self.offsets[states.len()..].first_chunk() {
            states.extend(transitions.read_together(codes, offsets));
        }
        states.extend((states.len()..rows).map(|row| transitions.read(START, self.row(row))));
        states
    }

    /// Where codes lead; `None` if finding out takes longer than reading so many codes.
    fn transitions(&self, automaton: &Automaton, read_count: usize) -> Option<Transitions> {
        let plain = automaton.state_count();
        // Each state has a second one, for the byte after an escape.
        let state_count = if self.escape.is_some() { 2 * plain } else { plain };
        let code_bits = self.code_count.next_power_of_two().trailing_zeros();
        let states = || (START..=u8::MAX).take(plain);
        let searches = || states().filter(|state| automaton.like(*state) == *state);
        let cost = searches().count() * self.code_count + (state_count << code_bits) / COPIED;
        if state_count > MAX_STATES || state_count << code_bits > MAX_TRANSITIONS || cost > read_count {
            return None;
        }
        let by_first = ByFirst::new(self.code_count, &self.bytes_of);
        let codes_that_differ = |state: u8| {
            let like = automaton.like(state);
            let differs = move |byte: &u8| automaton.step(state, *byte) != automaton.step(like, *byte);
            (0..=u8::MAX).filter(differs).flat_map(|byte| by_first.starting_with(byte))
        };
        if cost + states().map(|state| codes_that_differ(state).count()).sum::<usize>() > read_count {
            return None;
        }
        let mut transitions = Transitions { next: vec![START; state_count << code_bits], code_bits };
        for state in searches() {
            if automaton.is_final(state) {
                (0..self.code_count).for_each(|code| transitions.set(state, code, state));
                continue;
            }
            for code in 0..self.code_count {
                let (bytes, len) = (self.bytes_of)(code);
                transitions.set(state, code, automaton.walk_padded(state, &bytes, len));
            }
        }
        for state in states().filter(|state| automaton.like(*state) != *state) {
            transitions.copy(automaton.like(state), state);
            for code in codes_that_differ(state) {
                let (bytes, len) = (self.bytes_of)(*code);
                transitions.set(state, *code, automaton.walk(state, &bytes[..len]));
            }
            by_first.empty().iter().for_each(|code| transitions.set(state, *code, state));
        }
        if let Some(escape) = self.escape {
            for state in states() {
                // There are at most 256, as just checked.
                let escaped = state + plain as u8;
                transitions.set(state, escape.into(), escaped);
                (0..=u8::MAX).for_each(|byte| {
                    transitions.set(escaped, byte.into(), automaton.step(state, byte));
                });
            }
        }
        Some(transitions)
    }
}

/// Codes by the first byte of what they stand for.
struct ByFirst {
    codes: Vec<usize>,
    /// Where the codes of each byte end, after those that stand for no bytes.
    ends: [usize; 257],
}

impl ByFirst {
    fn new(code_count: usize, bytes_of: impl Fn(usize) -> ([u8; 16], usize)) -> Self {
        let group = |code| match bytes_of(code) {
            (_, 0) => 0,
            (bytes, _) => usize::from(bytes[0]) + 1,
        };
        let mut starts = [0; 258];
        (0..code_count).for_each(|code| starts[group(code) + 1] += 1);
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let (mut codes, mut ends) = (vec![0; code_count], [0; 257]);
        ends.copy_from_slice(&starts[..257]);
        for code in 0..code_count {
            let end = &mut ends[group(code)];
            codes[*end] = code;
            *end += 1;
        }
        Self { codes, ends }
    }

    fn starting_with(&self, byte: u8) -> &[usize] {
        &self.codes[self.ends[usize::from(byte)]..self.ends[usize::from(byte) + 1]]
    }

    fn empty(&self) -> &[usize] {
        &self.codes[..self.ends[0]]
    }
}

/// Where codes lead, by state and code.
struct Transitions {
    next: Vec<u8>,
    /// The number of bits of codes, which separates states.
    code_bits: u32,
}

impl Transitions {
    fn set(&mut self, state: u8, code: usize, to: u8) {
        self.next[usize::from(state) << self.code_bits | code] = to;
    }

    /// Makes codes lead from one state where they lead from another.
    fn copy(&mut self, from: u8, to: u8) {
        let of = |state: u8| usize::from(state) << self.code_bits;
        self.next.copy_within(of(from)..of(from) + (1 << self.code_bits), of(to));
    }

    #[inline(always)]
    fn step<K: Key>(&self, state: u8, code: K) -> u8 {
        let at = usize::from(state) << self.code_bits | code.index();
        debug_assert!(at < self.next.len(), "code {} in state {state}", code.index());
        // SAFETY: codes were checked to be below their number, which has so many bits; there are transitions from all
        // states for so many codes, and they lead only to these states.
        unsafe { *self.next.get_unchecked(at) }
    }

    #[inline(always)]
    fn read<K: Key>(&self, state: u8, codes: &[K]) -> u8 {
        codes.iter().fold(state, |state, code| self.step(state, *code))
    }

    /// Reads rows that follow each other; `codes` must have been checked from the first of them on. All are read as far
    /// as the longest one, since the processor would have to guess where each of them ends.
    #[inline(always)]
    fn read_together<K: Key>(&self, codes: &[K], offsets: &[usize; LANES + 1]) -> [u8; LANES] {
        let lengths: [usize; LANES] = std::array::from_fn(|lane| offsets[lane + 1] - offsets[lane]);
        let longest = lengths.into_iter().max().unwrap_or_default();
        if offsets[LANES - 1] + longest > codes.len() {
            return std::array::from_fn(|lane| self.read(START, &codes[offsets[lane]..offsets[lane + 1]]));
        }
        let rows: [&[K]; LANES] = std::array::from_fn(|lane| &codes[offsets[lane]..offsets[lane] + longest]);
        let mut states = [START; LANES];
        for at in 0..longest {
            for ((state, row), len) in states.iter_mut().zip(rows).zip(lengths) {
                // SAFETY: each of these rows is `longest` codes long.
                let next = self.step(*state, unsafe { *row.get_unchecked(at) });
                let is_own = if at < len { u8::MAX } else { 0 };
                *state ^= (*state ^ next) & is_own;
            }
        }
        states
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: [&str; 9] = ["a", "b", "ab", "", "aab", "c", "d", "abcab", "x"];
    const ESCAPE: u8 = 255;

    type BytesOf = fn(usize) -> ([u8; 16], usize);

    fn bytes_of(code: usize) -> ([u8; 16], usize) {
        let mut bytes = [0; 16];
        let word = WORDS.get(code).map_or(&[][..], |word| word.as_bytes());
        bytes[..word.len()].copy_from_slice(word);
        (bytes, word.len())
    }

    /// Rows of words, and of letters after escapes if there are any; and what they stand for.
    fn rows(escapes: bool, row_count: usize) -> (Vec<u8>, Vec<usize>, Vec<String>) {
        let mut next = crate::kernels::random(row_count as u64);
        let (mut codes, mut offsets, mut texts) = (Vec::new(), vec![0], Vec::new());
        for _ in 0..row_count {
            let mut text = String::new();
            for _ in 0..next() % 9 {
                if escapes && next().is_multiple_of(5) {
                    let byte = b"abd"[next() as usize % 3];
                    codes.extend([ESCAPE, byte]);
                    text.push(byte.into());
                } else {
                    let code = next() as u8 % WORDS.len() as u8;
                    codes.push(code);
                    text.push_str(WORDS[usize::from(code)]);
                }
            }
            offsets.push(codes.len());
            texts.push(text);
        }
        (codes, offsets, texts)
    }

    fn coded<'a>(codes: &'a [u8], offsets: &'a [usize], escapes: bool) -> Coded<'a, u8, BytesOf> {
        let code_count = if escapes { 256 } else { WORDS.len() };
        Coded { codes, offsets, code_count, bytes_of, escape: escapes.then_some(ESCAPE) }
    }

    #[test]
    fn rows_of_codes_are_accepted_as_are_their_bytes() {
        let parts: [&[u8]; 6] = [b"", b"a", b"aab", b"abab", b"ba", b"abcab"];
        for (escapes, row_count) in [(false, 301), (true, 1503)] {
            let (codes, offsets, texts) = rows(escapes, row_count);
            let coded = coded(&codes, &offsets, escapes);
            for start in parts {
                for between in parts {
                    for end in parts {
                        let automaton = Automaton::finding(start, &[between, b"b"], end).unwrap();
                        let naive = |text: &String| automaton.accepts(automaton.walk(START, text.as_bytes()));
                        let wanted: BooleanBuffer = texts.iter().map(naive).collect();
                        assert_eq!(coded.accepted(&automaton, None), Some(wanted.clone()));
                        // Of few rows, codes with escapes are read byte by byte.
                        for one_in in [2, 64] {
                            let among: BooleanBuffer = (0..row_count).map(|row| row % one_in == 1).collect();
                            assert_eq!(coded.accepted(&automaton, Some(&among)), Some(&wanted & &among));
                        }
                        let some = Coded { offsets: &offsets[1..], ..coded };
                        let after_first = wanted.slice(1, row_count - 1);
                        assert_eq!(some.accepted(&automaton, None), Some(after_first));
                    }
                }
            }
        }
    }

    #[test]
    fn transitions_are_found_for_many_codes_and_few_states() {
        let (codes, offsets, _) = rows(true, 5);
        let coded = coded(&codes, &offsets, true);
        let short = Automaton::finding(&[], &[b"ab"], &[]).unwrap();
        assert!(coded.transitions(&short, 256).is_none(), "there is a search, and the end");
        assert!(coded.transitions(&short, 4 * 256).is_some());
        assert!(coded.accepted(&short, None).is_none(), "decoding few codes is faster");
        let long = Automaton::finding(&[], &[&[b'a'; 126]], &[]).unwrap();
        assert!(coded.transitions(&long, 1 << 20).is_some());
        let longer = Automaton::finding(&[], &[&[b'a'; 127]], &[]).unwrap();
        assert!(coded.transitions(&longer, 1 << 20).is_none(), "states after an escape would be too many");
        let many = Coded { code_count: 1 << 16, escape: None, ..coded };
        assert!(many.transitions(&longer, 1 << 20).is_none());
        // All codes begin with the byte that leads on.
        let bytes_of: BytesOf = |_| ([b'a'; 16], 16);
        let alike = Coded { code_count: 1 << 10, escape: None, bytes_of, ..coded };
        let twenty = Automaton::finding(&[], &[&[b'a'; 20]], &[]).unwrap();
        assert!(alike.transitions(&twenty, 20 << 10).is_none());
        assert!(alike.transitions(&twenty, 40 << 10).is_some());
    }

    #[test]
    #[should_panic(expected = "offsets do not decrease")]
    fn offsets_that_decrease_are_refused() {
        let automaton = Automaton::finding(&[], &[b"b"], &[]).unwrap();
        coded(&[1, 99, 1], &[0, 2, 1], false).accepted(&automaton, None);
    }

    #[test]
    fn codes_that_stand_for_nothing_are_not_read_and_lone_escapes_are_not_accepted() {
        let automaton = Automaton::finding(&[], &[b"b"], &[]).unwrap();
        let many = |last: u8| [vec![1; 64], vec![last]].concat();
        let offsets = [0, 64, 65];
        let accepted = |codes: &[u8]| {
            coded(codes, &offsets, false).accepted(&automaton, Some(&vec![false, true].into()))
        };
        assert_eq!(accepted(&many(1)), Some(vec![false, true].into()));
        assert_eq!(accepted(&many(9)), None);

        // Those before the first row and after the last one do not matter.
        let (codes, offsets, _) = rows(false, 301);
        let wanted = coded(&codes, &offsets, false).accepted(&automaton, None);
        let others = [vec![99; 5], codes, vec![99; 30]].concat();
        let offsets: Vec<usize> = offsets.iter().map(|offset| offset + 5).collect();
        assert!(wanted.is_some());
        assert_eq!(coded(&others, &offsets, false).accepted(&automaton, None), wanted);

        let (mut codes, mut offsets, _) = rows(true, 600);
        codes.extend([1, ESCAPE]);
        offsets.push(codes.len());
        let rows = coded(&codes, &offsets, true);
        assert!(!rows.accepted(&automaton, None).unwrap().value(600));
        let among = (0..=600).map(|row| row == 600).collect();
        assert!(!rows.accepted(&automaton, Some(&among)).unwrap().value(600));
    }
}
