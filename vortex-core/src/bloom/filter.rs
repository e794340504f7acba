//! Filters of single zones, and how those of many zones are stored.

use crate::segments::checksums::checksum;

/// Bytes of a block: eight words of 32 bits.
pub(crate) const BLOCK_LEN: usize = 32;

/// Bits per distinct value, at least. Their number is a power of two, so that there are up to twice as many: of the
/// zones without a value, one in 300 to 1,500 seems to hold it, and is read, with its chunk of up to 16 zones.
const BITS_PER_VALUE: usize = 12;

/// An odd factor per word of a block, which select the bit of the word.
const SALTS: [u32; 8] =
    [0x47b6_137b, 0x4497_4d91, 0x8824_ad5b, 0xa2b7_289d, 0x7054_95c7, 0x2df1_424b, 0x9efc_4947, 0x5c6b_fb31];

/// A block: in each word, one bit per value.
type Block = [u32; 8];

/// The bits of a value in its block.
fn bits(hash: u64) -> Block {
    SALTS.map(|salt| 1 << ((hash as u32).wrapping_mul(salt) >> 27))
}

/// The position of a value's block among `2^exponent`: the upper bits of its hash. The block of a filter thus stands
/// for two of a filter of twice as many.
pub(super) fn block_of(hash: u64, exponent: u8) -> usize {
    hash.checked_shr(u64::BITS - u32::from(exponent)).unwrap_or(0) as usize
}

/// Whether a block, as stored, may hold a value.
pub(super) fn may_hold(block: &[u8], hash: u64) -> bool {
    let words = block.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    words.zip(bits(hash)).all(|(word, bit)| word & bit != 0)
}

/// The filter of some rows: a power of two of blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter {
    exponent: u8,
    blocks: Vec<Block>,
}

impl Filter {
    /// The filter of values with these hashes.
    pub(crate) fn of(mut hashes: Vec<u64>) -> Self {
        hashes.sort_unstable();
        hashes.dedup();
        let count = (hashes.len() * BITS_PER_VALUE).div_ceil(8 * BLOCK_LEN).next_power_of_two();
        let exponent = count.ilog2() as u8;
        let mut blocks = vec![Block::default(); count];
        for hash in hashes {
            let block = &mut blocks[block_of(hash, exponent)];
            block.iter_mut().zip(bits(hash)).for_each(|(word, bit)| *word |= bit);
        }
        Self { exponent, blocks }
    }

    /// Block `at` of the same filter with `2^exponent` blocks, not fewer than it has.
    fn block(&self, at: usize, exponent: u8) -> &Block {
        &self.blocks[at >> (exponent - self.exponent)]
    }
}

/// The stripes of a group of filters, and the exponent of the number of their blocks.
pub(crate) fn stripes(filters: &[Filter]) -> (Vec<u8>, u8) {
    let exponent = filters.iter().map(|filter| filter.exponent).max().unwrap_or(0);
    let mut bytes = Vec::with_capacity(stripe_len(filters.len()) << exponent);
    for at in 0..1 << exponent {
        let start = bytes.len();
        let words = filters.iter().flat_map(|filter| filter.block(at, exponent));
        words.for_each(|word| bytes.extend(word.to_le_bytes()));
        push_checksum(&mut bytes, start);
    }
    (bytes, exponent)
}

/// Bytes of a stripe of a group of so many zones.
pub(super) fn stripe_len(zones: usize) -> usize {
    zones * BLOCK_LEN + CHECKSUM_LEN
}

const CHECKSUM_LEN: usize = size_of::<u32>();

/// Appends the checksum of the bytes from `start` on.
pub(super) fn push_checksum(bytes: &mut Vec<u8>, start: usize) {
    let checksum = checksum(&bytes[start..]) as u32;
    bytes.extend(checksum.to_le_bytes());
}

/// The bytes before the checksum that they end in, unless they differ from it.
pub(super) fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (bytes, stored) = bytes.split_last_chunk::<CHECKSUM_LEN>()?;
    (checksum(bytes) as u32 == u32::from_le_bytes(*stored)).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::random;

    fn hashes(count: usize, seed: u64) -> Vec<u64> {
        let mut next = random(seed);
        (0..count).map(|_| next()).collect()
    }

    /// Whether a filter that is stored along with others may hold a value.
    fn holds(stripes: &[u8], exponent: u8, zones: usize, zone: usize, hash: u64) -> bool {
        let len = stripe_len(zones);
        let stripe = &stripes[block_of(hash, exponent) * len..][..len];
        may_hold(&checked(stripe).unwrap()[zone * BLOCK_LEN..][..BLOCK_LEN], hash)
    }

    #[test]
    fn filters_hold_all_their_values_and_few_others() {
        for (count, exponent) in [(0, 0), (1, 0), (21, 0), (22, 1), (100, 3), (5000, 8), (8192, 9)] {
            let values = hashes(count, 1);
            let (bytes, found) = stripes(&[Filter::of(values.clone())]);
            assert_eq!((found, bytes.len()), (exponent, 36 << exponent), "{count}");
            assert!(values.iter().all(|hash| holds(&bytes, found, 1, 0, *hash)), "{count}");
            let others = hashes(20_000, 2).into_iter().filter(|hash| holds(&bytes, found, 1, 0, *hash));
            let others = others.count();
            assert!(others < 20_000 / 200, "{others} of 20,000 others, {count} values");
        }
    }

    #[test]
    fn filters_of_different_sizes_are_stored_as_if_they_were_of_the_largest() {
        let parts = [hashes(10, 1), hashes(8192, 2), Vec::new(), hashes(700, 3)];
        let filters: Vec<Filter> = parts.iter().cloned().map(Filter::of).collect();
        let (bytes, exponent) = stripes(&filters);
        assert_eq!(exponent, 9);
        for (zone, values) in parts.iter().enumerate() {
            assert!(values.iter().all(|hash| holds(&bytes, exponent, 4, zone, *hash)));
        }
        assert!(!holds(&bytes, exponent, 4, 2, parts[0][0]), "no value is in a zone without any");
    }

    #[test]
    fn stripes_that_were_changed_are_recognized() {
        let (mut bytes, _) = stripes(&[Filter::of(vec![7]), Filter::of(vec![8])]);
        assert!(checked(&bytes).is_some());
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert!(checked(&bytes).is_none(), "{at}");
            bytes[at] ^= 1;
        }
        assert!(checked(&bytes[..3]).is_none());
    }
}
