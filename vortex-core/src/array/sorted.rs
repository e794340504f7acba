//! Searching sorted integers without decoding all of them.

use arrow::array::UInt64Array;
use arrow::datatypes::ArrowNativeType;

use super::{EncodedRef, with_integers};
use crate::Result;

/// The integers to search in, in errors.
const WHAT: &str = "sorted values";

/// Widens an integer; negative values, which cannot be searched for, become the maximum.
fn widen(integer: impl ArrowNativeType) -> u64 {
    integer.to_usize().map_or(u64::MAX, |integer| integer as u64)
}

/// With fewer integers per target than this, all are decoded: decoding whole blocks takes less time than
/// a few single values.
const MIN_INTEGERS_PER_TARGET: usize = 512;

/// Number of integers among which each step of a search decides. More steps would decode fewer of them, but
/// each has a cost of its own.
const FAN_OUT: usize = 16;

/// Decoding these encodings costs nothing.
const DECODED: [&str; 2] = ["vortex.primitive", "arrow"];

/// Single integers of these encodings cannot be decoded without many others.
const SEQUENTIAL: [&str; 3] = ["fastlanes.delta", "vortex.pco", "vortex.zstd"];

fn is_sequential(array: &EncodedRef) -> bool {
    SEQUENTIAL.contains(&array.encoding()) || array.children().iter().any(|(_, child)| is_sequential(child))
}

/// Searches ascending integers for each of `targets`, which are ascending, too: returns the result of
/// [`binary_search`](slice::binary_search), but always the first of equal values. Only as many integers
/// are decoded as necessary; if the integers are not sorted, the positions returned are arbitrary.
///
/// # Errors
/// If the integers cannot be decoded.
pub(crate) fn search(sorted: &EncodedRef, targets: &[u64]) -> Result<Vec<Result<usize, usize>>> {
    let found =
        |at: usize, value: Option<&u64>, target: &u64| if value == Some(target) { Ok(at) } else { Err(at) };
    let len = sorted.len();
    if targets.is_empty() {
        return Ok(Vec::new());
    }
    let is_decoded = DECODED.contains(&sorted.encoding());
    if targets.len() >= len / MIN_INTEGERS_PER_TARGET || is_decoded || is_sequential(sorted) {
        let decoded = sorted.decode_preferred()?;
        return with_integers!(decoded, WHAT, |integers| {
            let all = integers.values();
            let places = places(targets, all.len(), |at| widen(all[at]));
            let found = |(at, target)| found(at, all.get(at).map(|value| widen(*value)).as_ref(), target);
            places.into_iter().zip(targets).map(found).collect()
        });
    }
    // The first step decides for all targets; the others around the last integer below each target.
    let mut step = 1;
    while len / step > FAN_OUT * targets.len() {
        step *= FAN_OUT;
    }
    let (mut starts, mut span) = (vec![0; targets.len()], len);
    loop {
        let mut windows = starts.clone();
        windows.dedup();
        let places = |start: &usize| (*start..len.min(start + span + 1)).step_by(step);
        let rows = windows.iter().flat_map(places).map(|row| row as u64);
        let integers = integers(&sorted.take(&UInt64Array::from_iter_values(rows))?)?;
        let (mut window, mut first) = (0, 0);
        let mut results = Vec::with_capacity(targets.len());
        for (target, start) in targets.iter().zip(&mut starts) {
            // Windows are in the order of targets.
            while windows[window] != *start {
                first += places(&windows[window]).len();
                window += 1;
            }
            let values = &integers[first..first + places(start).len()];
            let below = values.partition_point(|value| value < target);
            results.push(found(*start + below * step, values.get(below), target));
            *start += below.saturating_sub(1) * step;
        }
        if step == 1 {
            return Ok(results);
        }
        (span, step) = (step, step / FAN_OUT);
    }
}

/// Searches `len` ascending integers for all targets at once. The steps of different targets do not depend on each
/// other, so that a processor waits for several integers from memory at a time.
fn places(targets: &[u64], len: usize, integer: impl Fn(usize) -> u64) -> Vec<usize> {
    let mut places = vec![0; targets.len()];
    // Each target belongs at its place, or at most this many integers after it.
    let mut span = len;
    while span > 0 {
        let half = span.div_ceil(2);
        for (place, target) in places.iter_mut().zip(targets) {
            *place += half * usize::from(integer(*place + half - 1) < *target);
        }
        span -= half;
    }
    places
}

fn integers(array: &EncodedRef) -> Result<Vec<u64>> {
    let decoded = array.decode_preferred()?;
    with_integers!(decoded, WHAT, |integers| integers.values().iter().map(|value| widen(*value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::{DType, PType};
    use crate::kernels::{BLOCK, bitpack, random};

    /// The same integers, of at most 17 bits: not encoded, which are searched as a whole, and bit-packed, which are
    /// sampled if there are few targets.
    fn arrays(integers: &[u32]) -> [EncodedRef; 2] {
        let mut padded = integers.to_vec();
        padded.resize(padded.len().next_multiple_of(BLOCK), 0);
        let blocks = padded.as_chunks::<BLOCK>().0.iter();
        let packed: Vec<u32> = blocks.flat_map(|block| bitpack::pack(17, block)).collect();
        // Protobuf: 1 the width in bits.
        let packed = Tree::new("fastlanes.bitpacked").metadata(vec![0x08, 17]).buffer(packed);
        let dtype = DType::Primitive(PType::U32, false);
        [Tree::primitive(integers), packed].map(|tree| tree.load(&dtype, integers.len()).unwrap())
    }

    fn targets(next: &mut impl FnMut() -> u64, count: usize, below: u64) -> Vec<u64> {
        let mut targets: Vec<u64> = (0..count).map(|_| next() % below).collect();
        targets.sort_unstable();
        targets
    }

    #[test]
    fn finds_what_a_search_of_all_finds() {
        let mut next = random(3);
        for (len, most) in [
            (0, 1),
            (1, 5),
            (65, 9),
            (5000, 20_000),
            (30 * MIN_INTEGERS_PER_TARGET, 100_000),
            (30 * MIN_INTEGERS_PER_TARGET + 7, 50),
        ] {
            let mut sorted: Vec<u32> = (0..len).map(|_| (next() % most) as u32).collect();
            sorted.sort_unstable();
            let arrays = arrays(&sorted);
            for count in [0, 1, 2, 7, 29, 200] {
                let targets = targets(&mut next, count, most + most / 20 + 1);
                let wanted: Vec<_> = targets
                    .iter()
                    .map(|target| {
                        let place = sorted.partition_point(|at| u64::from(*at) < *target);
                        let is_there = sorted.get(place).is_some_and(|at| u64::from(*at) == *target);
                        if is_there { Ok(place) } else { Err(place) }
                    })
                    .collect();
                for array in &arrays {
                    let found = search(array, &targets).unwrap();
                    assert_eq!(found, wanted, "{count} of {len} in {}", array.encoding());
                }
            }
        }
    }

    #[test]
    fn more_integers_than_could_be_decoded_are_searched() {
        // Protobuf: 1 the first integer, which is 0, 2 the difference, which is 3.
        let sequence = Tree::new("vortex.sequence").metadata(vec![0x0a, 2, 0x18, 0, 0x12, 2, 0x18, 6]);
        let multiples = sequence.load(&DType::Primitive(PType::U64, false), 1 << 40).unwrap();
        let targets = [5, 6, 6, 3_000_000_000_000, u64::MAX];
        let found = search(&multiples, &targets).unwrap();
        assert_eq!(found, [Err(2), Ok(2), Ok(2), Ok(1_000_000_000_000), Err(1 << 40)]);
    }

    #[test]
    fn integers_that_fall_are_no_reason_to_panic() {
        let mut next = random(4);
        let unsorted: Vec<u32> = (0..6 * MIN_INTEGERS_PER_TARGET).map(|_| (next() % 70_000) as u32).collect();
        let arrays = arrays(&unsorted);
        for _ in 0..20 {
            let targets = targets(&mut next, 5, 71_000);
            for array in &arrays {
                for found in search(array, &targets).unwrap() {
                    assert!(found.unwrap_or_else(|at| at) <= unsorted.len());
                }
            }
        }
    }
}
