//! Checksums of all parts of a file, stored in an entry of user metadata.
//!
//! ```text
//! "xxh3" │ u32 segments │ u32 entries │ u64 description │ u64 per segment │ u64 per entry
//! ```
//!
//! All numbers are little endian. The description consists of dtype, layout, statistics and footer,
//! concatenated; entries are those of user metadata other than this one, ordered by key. Hashes are
//! 64-bit XXH3 of the bytes as stored in the file. The postscript, which contains the position of the
//! entry, is not covered. Readers that do not know the entry ignore it.

use twox_hash::XxHash3_64;

use super::SegmentId;
use crate::wire::MAX_USER_METADATA;
use crate::{Error, Result};

/// Key of the user metadata entry with the checksums of a file.
pub(crate) const CHECKSUMS_KEY: &str = "vortex-core.checksums";

const MAGIC: &[u8; 4] = b"xxh3";
const HEADER_LEN: usize = 20;
/// Maximum length of the checksums of what are not segments: the header, and one of each entry of user metadata.
pub(crate) const MAX_CHECKSUMS_OF_OTHERS: u32 = (HEADER_LEN + 8 * MAX_USER_METADATA) as u32;

/// The checksums of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Checksums {
    pub(crate) description: u64,
    pub(crate) segments: Vec<u64>,
    pub(crate) entries: Vec<u64>,
}

/// The checksum of some bytes.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// The checksum of the concatenation of several parts.
pub(crate) fn checksum_of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hasher = XxHash3_64::new();
    parts.into_iter().for_each(|part| std::hash::Hasher::write(&mut hasher, part));
    std::hash::Hasher::finish(&hasher)
}

impl Checksums {
    /// Serializes the entry. There are fewer than 2^32 segments and entries.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((self.segments.len() as u32).to_le_bytes());
        bytes.extend((self.entries.len() as u32).to_le_bytes());
        let hashes = [self.description].into_iter().chain(self.segments.iter().copied());
        hashes.chain(self.entries.iter().copied()).for_each(|hash| bytes.extend(hash.to_le_bytes()));
        bytes
    }

    /// Parses the entry of a file with this many segments and other entries.
    pub(crate) fn parse(bytes: &[u8], segments: usize, entries: usize) -> Result<Self> {
        let damaged = || Error::corrupt("checksums do not fit the file");
        let (header, hashes) = bytes.split_at_checked(HEADER_LEN).ok_or_else(damaged)?;
        let word =
            |at: usize| header[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word) as usize);
        let fits = header.starts_with(MAGIC)
            && (word(4), word(8)) == (segments, entries)
            && hashes.len() == (segments + entries) * size_of::<u64>();
        if !fits {
            return Err(damaged());
        }
        let mut hashes =
            hashes.chunks_exact(8).map(|hash| u64::from_le_bytes(*hash.first_chunk().unwrap_or(&[0; 8])));
        Ok(Self {
            description: header[12..].first_chunk().map_or(0, |hash| u64::from_le_bytes(*hash)),
            segments: hashes.by_ref().take(segments).collect(),
            entries: hashes.collect(),
        })
    }

    /// Verifies the bytes of a segment against its checksum.
    pub(crate) fn check(&self, id: SegmentId, bytes: &[u8]) -> Result<()> {
        match self.segments.get(id.0 as usize) {
            Some(expected) => compare(&format!("segment {}", id.0), *expected, bytes),
            None => Ok(()),
        }
    }
}

/// Verifies bytes against their checksum.
pub(crate) fn compare(what: &str, expected: u64, bytes: &[u8]) -> Result<()> {
    let found = checksum(bytes);
    if found == expected {
        return Ok(());
    }
    Err(Error::corrupt(format!("{what} has checksum {found:016x}, was written with {expected:016x}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_come_back_if_their_number_fits() {
        let checksums = Checksums { description: 7, segments: vec![1, u64::MAX], entries: vec![3] };
        let bytes = checksums.to_bytes();
        assert_eq!(Checksums::parse(&bytes, 2, 1).unwrap(), checksums);
        assert!(Checksums::parse(&bytes, 1, 2).is_err());
        for len in 0..bytes.len() {
            assert!(Checksums::parse(&bytes[..len], 2, 1).is_err());
        }
    }

    #[test]
    fn parts_hash_as_the_whole_does() {
        assert_eq!(checksum_of([&b"ab"[..], b"", b"c"]), checksum(b"abc"));
        let checksums = Checksums { segments: vec![checksum(b"abc")], ..Checksums::default() };
        assert!(checksums.check(SegmentId(0), b"abc").is_ok());
        assert!(checksums.check(SegmentId(0), b"abd").is_err());
    }
}
