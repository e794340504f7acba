//! Constants that encoded strings are compared with or searched for.

use std::cmp::Ordering;

/// Number of zeros after the bytes, so that a word can be read at any position.
const PADDING: usize = 8;

/// A byte string to compare with.
#[derive(Debug)]
pub(crate) struct Needle {
    padded: Box<[u8]>,
    len: usize,
}

impl Needle {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut padded = bytes.to_vec();
        padded.extend([0; PADDING]);
        Self { padded: padded.into(), len: bytes.len() }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.padded[..self.len]
    }

    /// The eight bytes starting at `at`, the first one lowest; padded with zeros.
    ///
    /// # Panics
    /// If `at` is beyond the end.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.padded[at..].first_chunk::<PADDING>().map_or(0, |word| u64::from_le_bytes(*word))
    }
}

/// The relation of a value to a needle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Against {
    /// It sorts before the needle.
    Below,
    /// It is equal to the needle.
    Equal,
    /// It starts with the needle and is longer, so it sorts after it.
    Extends,
    /// It sorts after the needle, and does not start with it.
    Above,
}

impl Against {
    /// The order of the value relative to the needle.
    pub(crate) fn ordering(self) -> Ordering {
        match self {
            Against::Below => Ordering::Less,
            Against::Equal => Ordering::Equal,
            Against::Extends | Against::Above => Ordering::Greater,
        }
    }

    /// Whether the value starts with the needle.
    pub(crate) fn starts_with(self) -> bool {
        matches!(self, Against::Equal | Against::Extends)
    }
}

/// An automaton over bytes that ends in the state [`accepting`](Self::accepting) once it has read a
/// needle. State `n` means that the last `n` bytes are the first bytes of the needle.
#[derive(Debug)]
pub(crate) struct Automaton {
    next: Vec<[u8; 256]>,
}

impl Automaton {
    /// The automaton that finds `needle`; `None` if it needs more states than fit a byte.
    pub(crate) fn finding(needle: &[u8]) -> Option<Self> {
        let accepting = u8::try_from(needle.len()).ok()?;
        let mut next: Vec<[u8; 256]> = Vec::with_capacity(needle.len() + 1);
        // The state reached by the needle without its first byte, from which to continue after a mismatch.
        let mut fallback = 0;
        for (state, byte) in (0..accepting).zip(needle) {
            let mut steps = if state == 0 { [0; 256] } else { next[usize::from(fallback)] };
            steps[usize::from(*byte)] = state + 1;
            if state > 0 {
                fallback = next[usize::from(fallback)][usize::from(*byte)];
            }
            next.push(steps);
        }
        next.push([accepting; 256]);
        Some(Self { next })
    }

    /// The state reached from `state` by `byte`.
    #[inline]
    pub(crate) fn step(&self, state: u8, byte: u8) -> u8 {
        self.next[usize::from(state)][usize::from(byte)]
    }

    /// The final state, which is never left.
    pub(crate) fn accepting(&self) -> u8 {
        // There is one more state than the needle has bytes, and that number of bytes fits `u8`.
        (self.next.len() - 1) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_automaton_finds_needles_that_overlap_themselves() {
        let find = |needle: &str, text: &str| {
            let automaton = Automaton::finding(needle.as_bytes()).unwrap();
            text.bytes().fold(0, |state, byte| automaton.step(state, byte)) == automaton.accepting()
        };
        for needle in ["", "a", "aab", "abab", "aaaa", "abcabd"] {
            for text in ["", "a", "aaab", "aaaab", "ababab", "abcabcabd", "xabaabab", "aabaa", "abaabaaa"] {
                assert_eq!(find(needle, text), text.contains(needle), "{needle} in {text}");
            }
        }
        assert!(Automaton::finding(&[0; 256]).is_none());
        assert!(Automaton::finding(&[0; 255]).is_some());
    }
}
