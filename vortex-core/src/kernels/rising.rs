//! Sorted integers: offsets, ends of runs, indices of patches.
//!
//! In malicious files they are not sorted, and checking each integer before it is used would cost more
//! than what they are used for. Here, all are widened and compared in a single vectorized pass.

use arrow::datatypes::ArrowNativeType;

use super::simd::{Vectorized, vectorized};

/// Converts integers to positions; `None` if one is less than its predecessor or, where they must be `STRICT`ly
/// ascending, equal to it. A negative integer becomes a huge position: the caller has to check the last one.
pub(crate) fn positions<const STRICT: bool, T: ArrowNativeType>(integers: &[T]) -> Option<Vec<usize>> {
    vectorized(Widen::<STRICT, T>(integers))
}

struct Widen<'a, const STRICT: bool, T>(&'a [T]);

impl<const STRICT: bool, T: ArrowNativeType> Vectorized for Widen<'_, STRICT, T> {
    type Output = Option<Vec<usize>>;

    #[inline(always)]
    fn run(self) -> Option<Vec<usize>> {
        let positions: Vec<usize> = self.0.iter().map(|integer| integer.as_usize()).collect();
        // Folded instead of searched, so that it is vectorized.
        let falls = positions
            .windows(2)
            .fold(false, |falls, pair| falls | if STRICT { pair[0] >= pair[1] } else { pair[0] > pair[1] });
        (!falls).then_some(positions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_that_rise_become_positions() {
        assert_eq!(positions::<false, u8>(&[]), Some(vec![]));
        assert_eq!(positions::<false, u16>(&[3, 3, 500]), Some(vec![3, 3, 500]));
        assert_eq!(positions::<true, u16>(&[3, 3, 500]), None);
        assert_eq!(positions::<true, i64>(&[0, 1, 7]), Some(vec![0, 1, 7]));
    }

    #[test]
    fn a_fall_is_found_wherever_it_is() {
        let mut next = crate::kernels::random(11);
        for len in [2usize, 31, 64, 1000] {
            let mut rising: Vec<u32> = (0..len).map(|_| next() as u32 >> 1).collect();
            rising.sort_unstable();
            rising.dedup();
            assert!(positions::<true, u32>(&rising).is_some());
            let at = next() as usize % (rising.len() - 1);
            rising.swap(at, at + 1);
            assert_eq!(positions::<false, u32>(&rising), None, "swapped {at} of {len}");
        }
    }

    #[test]
    fn negative_integers_are_beyond_all_others() {
        let found = positions::<false, i32>(&[5, -1]).unwrap();
        assert!(found[1] > u32::MAX as usize);
        assert_eq!(positions::<false, i32>(&[-1, 5]), None);
    }
}
