//! Offsets: where the values of each row start and end among those of all rows, one row after the other.
//!
//! ```text
//! offsets  [2, 4, 4, 7]      rows 0 and 2 are values 2..4 and 4..7, joined [0, 2, 5]
//! ```
//!
//! Values are bytes, codes or list elements.

use std::ops::Range;

use arrow::array::UInt64Array;

use crate::array::{EncodedRef, Pick, decode_integers, decode_offsets};
use crate::limits::Limits;
use crate::{Error, Result};

/// Taking at most one in so many offsets or values is faster than decoding all of them. Tests have fewer rows.
pub(in crate::encodings) const MIN_PER_TAKEN: usize = if cfg!(any(test, fuzzing)) { 16 } else { 64 };

/// Where the values of chosen rows are.
pub(in crate::encodings) struct Places {
    /// Offsets that do not decrease within a run.
    offsets: Vec<usize>,
    /// The chosen rows, as positions of offsets. Offset `run.end` is where the values of the last row end.
    runs: Vec<Range<usize>>,
}

impl Places {
    /// The places of rows, given the offsets of all rows, none of which may exceed `end`; `what` is their name in
    /// errors. Of few rows, only their own offsets are decoded.
    ///
    /// # Errors
    /// If offsets decrease or exceed `end`.
    pub(in crate::encodings) fn of(all: &EncodedRef, what: &str, pick: Pick<'_>, end: usize) -> Result<Self> {
        let mut runs = pick.runs();
        if pick.row_count().saturating_add(runs.len()) > all.len() / MIN_PER_TAKEN {
            return Ok(Self { offsets: decode_offsets(all, what, end)?, runs });
        }
        let needed = runs.iter().flat_map(|run| run.start..=run.end).map(|at| at as u64);
        let taken = all.take(&UInt64Array::from_iter_values(needed))?;
        let offsets = decode_integers(&taken, what, |offset| {
            let within = usize::try_from(offset).ok().filter(|offset| *offset <= end);
            within.ok_or_else(|| Error::corrupt(format!("{what} reach {offset}, beyond {end}")))
        })?;
        let mut next = 0;
        for run in &mut runs {
            *run = next..next + run.len();
            next = run.end + 1;
            if !offsets[run.start..next].is_sorted() {
                return Err(Error::corrupt(format!("{what} decrease")));
            }
        }
        Ok(Self { offsets, runs })
    }

    /// The number of values, saturated at `usize::MAX`: rows may repeat.
    pub(in crate::encodings) fn value_count(&self) -> usize {
        self.runs.iter().fold(0, |count, run| count.saturating_add(self.values_of(run).len()))
    }

    /// From the first to the last value of these rows.
    pub(in crate::encodings) fn span(&self) -> Range<usize> {
        let values = self.runs.iter().map(|run| self.values_of(run));
        values
            .reduce(|span, values| span.start.min(values.start)..span.end.max(values.end))
            .unwrap_or_default()
    }

    fn values_of(&self, run: &Range<usize>) -> Range<usize> {
        self.offsets[run.start]..self.offsets[run.end]
    }

    /// Passes all ranges of values to `append`, and returns the end of each row after these are concatenated: one more
    /// offset than rows, starting with 0.
    pub(in crate::encodings) fn join(&self, mut append: impl FnMut(Range<usize>)) -> Vec<u64> {
        let mut ends = Vec::with_capacity(1 + self.runs.iter().map(Range::len).sum::<usize>());
        ends.push(0);
        let mut before = 0;
        for run in &self.runs {
            let values = self.values_of(run);
            ends.extend(
                self.offsets[run.start + 1..=run.end].iter().map(|end| (before + end - values.start) as u64),
            );
            before += values.len();
            append(values);
        }
        ends
    }

    /// The concatenated values of the rows, and the end of each row, as [`join`](Self::join). `values` are those from
    /// position `first` on.
    ///
    /// # Errors
    /// If copies of rows that repeat exceed the limits.
    pub(in crate::encodings) fn gather<T: Copy>(
        &self,
        values: &[T],
        first: usize,
        limits: &Limits,
    ) -> Result<(Vec<T>, Vec<u64>)> {
        let count = self.value_count();
        limits.count::<T>(count)?;
        let mut gathered = Vec::with_capacity(count);
        let ends = self.join(|own| gathered.extend_from_slice(&values[own.start - first..own.end - first]));
        Ok((gathered, ends))
    }
}

/// The offsets of ranges after they are concatenated, starting with 0.
pub(in crate::encodings) fn ends(ranges: &[Range<usize>]) -> Vec<u64> {
    let ends = ranges.iter().scan(0, |end, range| {
        *end += range.len() as u64;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}
