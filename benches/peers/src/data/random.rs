//! Seeded values without state: a value is a hash of the entity it belongs to.

/// Spreads `x` over all 64 bits (the finalizer of SplitMix64). A bijection: distinct inputs result in
/// distinct outputs.
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Converts the hash to a number in `0.0..1.0`.
pub(super) fn unit(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

/// An index below `n` that is usually small: the larger `power`, the heavier the head.
pub(super) fn heavy_tailed(hash: u64, n: u64, power: i32) -> u64 {
    ((unit(hash).powi(power) * n as f64) as u64).min(n - 1)
}

/// True for about one in `n` hashes.
pub(super) fn one_in(hash: u64, n: u64) -> bool {
    hash.is_multiple_of(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_heavy_and_indices_stay_below_the_bound() {
        let picks: Vec<u64> = (0..10_000).map(|i| heavy_tailed(mix(i), 100, 3)).collect();
        assert!(picks.iter().all(|&pick| pick < 100));
        assert!(picks.iter().filter(|&&pick| pick < 10).count() > 4_000);
    }
}
