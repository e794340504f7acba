//! Searching strings for several constants in turn.
//!
//! ```text
//! "ab%cd%"     -a-> 1 -b-> 2 -c-> 3 -d-> 4 (accepts, is never left)
//!              all but "a" and "b" there lead to 5, which is never left, either
//! ```

/// Where automata start.
pub(super) const START: u8 = 0;

/// Maximum number of states.
pub(super) const MAX_STATES: usize = 256;

/// An automaton over bytes. It accepts strings that start and end with constants and contain others between them, in
/// this order and without an overlap.
#[derive(Debug)]
pub(crate) struct Automaton {
    next: Vec<[u8; 256]>,
    /// For each state, the first one of the search for the same constant, to which it returns at most bytes; for those
    /// of the start, the one that rejects.
    like: Vec<u8>,
    accepting: u8,
}

impl Automaton {
    /// The automaton that accepts `start`, anything with all of `between` in it, `end`; `None` if it needs too many
    /// states.
    pub(crate) fn finding(start: &[u8], between: &[&[u8]], end: &[u8]) -> Option<Self> {
        let len = between.iter().fold(start.len() + end.len(), |len, text| len + text.len());
        // One state more than bytes, and perhaps one for strings that start otherwise.
        if len + 2 > MAX_STATES {
            return None;
        }
        // Both fit, as just checked.
        let (accepting, rejecting) = (len as u8, len as u8 + 1);
        let mut next = Vec::with_capacity(len + 2);
        let mut like = Vec::with_capacity(len + 2);
        for byte in start {
            let mut steps = [rejecting; 256];
            like.push(rejecting);
            steps[usize::from(*byte)] = next.len() as u8 + 1;
            next.push(steps);
        }
        for text in between.iter().copied().filter(|text| !text.is_empty()) {
            like.extend(std::iter::repeat_n(next.len() as u8, text.len()));
            push_search(&mut next, text);
        }
        if end.is_empty() {
            like.push(accepting);
            next.push([accepting; 256]);
        } else {
            like.extend(std::iter::repeat_n(next.len() as u8, end.len() + 1));
            let fallback = push_search(&mut next, end);
            next.push(next[usize::from(fallback)]);
        }
        like.push(rejecting);
        next.push([rejecting; 256]);
        Some(Self { next, like, accepting })
    }

    /// Number of states.
    pub(super) fn state_count(&self) -> usize {
        self.next.len()
    }

    /// Whether strings that lead to a state are accepted.
    pub(super) fn accepts(&self, state: u8) -> bool {
        state == self.accepting
    }

    /// Whether all bytes lead from a state to itself.
    pub(super) fn is_final(&self, state: u8) -> bool {
        self.next[usize::from(state)].iter().all(|next| *next == state)
    }

    /// A state to which most bytes lead from this one as they do from that one. It may be the same; otherwise it is one
    /// of which this is true.
    pub(super) fn like(&self, state: u8) -> u8 {
        self.like[usize::from(state)]
    }

    /// The state reached from `state` by a byte.
    #[inline]
    pub(super) fn step(&self, state: u8, byte: u8) -> u8 {
        self.next[usize::from(state)][usize::from(byte)]
    }

    /// The state reached from `state` by some bytes.
    #[inline]
    pub(super) fn walk(&self, state: u8, bytes: &[u8]) -> u8 {
        bytes.iter().fold(state, |state, byte| self.step(state, *byte))
    }

    /// The state reached from `state` by the first `len` bytes. Walks on, which is faster than having the processor
    /// guess where to end.
    #[inline]
    pub(super) fn walk_padded<const N: usize>(&self, state: u8, bytes: &[u8; N], len: usize) -> u8 {
        let mut reached = [state; N];
        let mut last = state;
        for (reached, byte) in reached.iter_mut().zip(bytes) {
            last = self.step(last, *byte);
            *reached = last;
        }
        len.checked_sub(1).map_or(state, |at| reached[at])
    }
}

/// Adds the states that search for a text, which must not be empty, up to the one for all of its bytes but the last.
/// Returns the state from which to continue the search after the text was found, as if it had not been.
fn push_search(next: &mut Vec<[u8; 256]>, text: &[u8]) -> u8 {
    let first = next.len() as u8;
    // The state reached by the text without its first byte, from which to continue after a mismatch.
    let mut fallback = first;
    for (state, byte) in (first..).zip(text) {
        let mut steps = if state == first { [first; 256] } else { next[usize::from(fallback)] };
        if state > first {
            fallback = steps[usize::from(*byte)];
        }
        steps[usize::from(*byte)] = state + 1;
        next.push(steps);
    }
    fallback
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [&str; 13] = [
        "",
        "a",
        "aaab",
        "aaaab",
        "ababab",
        "abcabcabd",
        "xabaabab",
        "aabaa",
        "abaabaaa",
        "abab",
        "ba",
        "b",
        "abcabd",
    ];

    fn naive(text: &str, start: &str, between: &[&str], end: &str) -> bool {
        let Some(mut rest) = text.strip_prefix(start) else { return false };
        for part in between {
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(end)
    }

    /// All combinations of constants that overlap themselves and each other.
    fn patterns() -> Vec<(&'static str, Vec<&'static str>, &'static str)> {
        let parts = ["", "a", "aab", "abab", "aaaa", "ba", "abcabd"];
        let mut patterns = Vec::new();
        for start in parts {
            for end in parts {
                patterns.push((start, vec![], end));
                for one in parts {
                    patterns.push((start, vec![one], end));
                    patterns.extend(parts.map(|two| (start, vec![one, two], end)));
                }
            }
        }
        patterns
    }

    fn automaton(start: &str, between: &[&str], end: &str) -> Option<Automaton> {
        let between: Vec<_> = between.iter().map(|text| text.as_bytes()).collect();
        Automaton::finding(start.as_bytes(), &between, end.as_bytes())
    }

    #[test]
    fn automata_find_constants_that_overlap_themselves_and_each_other() {
        for (start, between, end) in patterns() {
            let automaton = automaton(start, &between, end).unwrap();
            for text in TEXTS {
                let found = automaton.accepts(automaton.walk(START, text.as_bytes()));
                assert_eq!(found, naive(text, start, &between, end), "{start}%{between:?}%{end} in {text}");
            }
        }
    }

    #[test]
    fn automata_have_few_states() {
        let long = "a".repeat(MAX_STATES);
        assert!(automaton("", &[&long[..MAX_STATES - 1]], "").is_none());
        let [start, middle, end] = [&long[..50], &long[..100], &long[..MAX_STATES - 152]];
        let longest = automaton(start, &[middle], end).unwrap();
        assert_eq!(longest.state_count(), MAX_STATES);
        let accepts = |text: &str| longest.accepts(longest.walk(START, text.as_bytes()));
        assert!(accepts(&long[2..]) && accepts(&long) && !accepts(&long[3..]));
    }
}
