//! Constants that encoded strings are compared with.

use std::cmp::Ordering;

/// Number of zeros after the bytes, so that a double word can be read at any position.
const PADDING: usize = 16;

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

    /// The eight bytes starting at `at`, the first one lowest; padded with zeros.
    ///
    /// # Panics
    /// If `at` is beyond the end.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.padded[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
    }

    /// As [`word`](Self::word), sixteen bytes.
    ///
    /// # Panics
    /// If `at` is beyond the end.
    #[inline]
    pub(crate) fn double_word(&self, at: usize) -> u128 {
        self.padded[at..].first_chunk().map_or(0, |word| u128::from_le_bytes(*word))
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
