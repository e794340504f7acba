//! Arrays that store values only for valid rows.
//!
//! ```text
//! rows      a  -  b  -  -  c      valid  1 0 1 0 0 1
//! values    a  b  c               rows 2..6 own values 1..3
//! ```

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::array::UInt64Array;
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::DataType;

use crate::Result;
use crate::array::{ArrayRef, EncodedArray, EncodedRef, Header, Pick, Validity, ValidityChild};
use crate::dtype::arrow::data_type;
use crate::mask::Mask;
use crate::once::get_or_try_init;

/// Below this share of live rows, their values are counted instead of looking at each valid row.
const SPARSE: f64 = 0.1;

/// Valid rows are counted up to every one of this many: otherwise, each slice of an array would count all rows before
/// it, of which a file of a few kilobytes may have any number.
const COUNTED_ROWS: usize = 64 << 10;

/// Some rows of an array, and the values that belong to them. Slices share the decoded validity.
#[derive(Debug, Clone)]
pub(in crate::encodings) struct ValidRows {
    child: ValidityChild,
    all: Arc<OnceLock<AllRows>>,
    /// Number of rows of the array before it was sliced.
    of: usize,
    rows: Range<usize>,
}

/// Which rows of an array are null.
#[derive(Debug)]
struct AllRows {
    validity: Validity,
    /// Number of valid rows before each multiple of [`COUNTED_ROWS`]; empty if all rows are alike.
    counts: Vec<usize>,
}

impl AllRows {
    fn new(validity: Validity) -> Self {
        let mut counts = Vec::new();
        if let Validity::Bits(nulls) = &validity {
            let mut count = 0;
            for start in (0..nulls.len()).step_by(COUNTED_ROWS) {
                counts.push(count);
                let len = COUNTED_ROWS.min(nulls.len() - start);
                count += nulls.inner().slice(start, len).count_set_bits();
            }
        }
        Self { validity, counts }
    }

    /// A row up to which valid rows have been counted, close before `row`, and their number.
    fn counted(&self, row: usize) -> (usize, usize) {
        let at = (row / COUNTED_ROWS).min(self.counts.len().saturating_sub(1));
        (at * COUNTED_ROWS, self.counts.get(at).copied().unwrap_or_default())
    }
}

impl ValidRows {
    /// All `len` rows of an array with this validity child.
    pub(in crate::encodings) fn new(child: ValidityChild, len: usize) -> Self {
        Self { child, all: Arc::new(OnceLock::new()), of: len, rows: 0..len }
    }

    /// A slice of these rows.
    pub(in crate::encodings) fn slice(&self, rows: &Range<usize>) -> Self {
        let rows = self.rows.start + rows.start..self.rows.start + rows.end;
        Self { rows, ..self.clone() }
    }

    fn all(&self) -> Result<&AllRows> {
        get_or_try_init(&self.all, || self.child.decode().map(AllRows::new))
    }

    /// Which of these rows are null.
    pub(in crate::encodings) fn validity(&self) -> Result<Validity> {
        Ok(match &self.all()?.validity {
            Validity::Bits(nulls) => {
                Validity::from_nulls(Some(nulls.slice(self.rows.start, self.rows.len())))
            }
            other => other.clone(),
        })
    }

    /// The range of values that belong to these rows.
    pub(in crate::encodings) fn values(&self) -> Result<Range<usize>> {
        let all = self.all()?;
        Ok(match &all.validity {
            Validity::AllValid => self.rows.clone(),
            Validity::AllNull => 0..0,
            Validity::Bits(nulls) => {
                let valid_before = |row: usize| {
                    let (start, count) = all.counted(row);
                    count + nulls.inner().slice(start, row - start).count_set_bits()
                };
                valid_before(self.rows.start)..valid_before(self.rows.end)
            }
        })
    }

    /// Of a part of the values of the array: those that `live` keeps, which has one bit per value of these rows, and
    /// where its bits start in the part; `None` if it keeps none.
    pub(in crate::encodings) fn live_in(
        &self,
        live: &Mask,
    ) -> Result<impl Fn(&Range<usize>) -> Option<(Mask, usize)>> {
        let values = self.values()?;
        Ok(move |part: &Range<usize>| {
            let shared = part.start.max(values.start)..part.end.min(values.end);
            if shared.is_empty() {
                return None;
            }
            let live = live.slice(shared.start - values.start..shared.end - values.start);
            (!live.is_none()).then(|| (live, shared.start - part.start))
        })
    }

    /// The number of values that the array must have, all of its rows included.
    pub(in crate::encodings) fn total(&self) -> Result<usize> {
        Ok(self.of - self.all()?.validity.null_count(self.of))
    }

    /// The values that belong to some of the rows.
    pub(in crate::encodings) fn live(&self, rows: &[usize]) -> Result<Mask> {
        let mask = Mask::from_indices(self.rows.len(), rows.iter().copied());
        Ok(self.select(&mask)?.0)
    }

    /// The values of these rows that belong to live rows of `mask`, and the validity of the live rows.
    pub(in crate::encodings) fn select(&self, mask: &Mask) -> Result<(Mask, Option<NullBuffer>)> {
        Ok(match self.validity()? {
            Validity::AllValid => (mask.clone(), None),
            Validity::AllNull => (Mask::none(0), Some(NullBuffer::new_null(mask.true_count()))),
            Validity::Bits(nulls) if mask.is_all() => {
                (Mask::all(nulls.len() - nulls.null_count()), Some(nulls))
            }
            Validity::Bits(nulls) => {
                (values_of(mask, nulls.inner()), Some(bits_of(nulls.inner(), mask).into()))
            }
        })
    }
}

/// The values of all valid rows of an array and of those that it is a slice of, stored in parts of which only those
/// with live rows are decompressed.
pub(in crate::encodings) trait StoredValues:
    fmt::Debug + Send + Sync + Sized + 'static
{
    /// Number of bytes of all parts.
    fn byte_len(&self) -> usize;

    /// Decodes live rows of an array that has these values.
    ///
    /// # Errors
    /// As [`EncodedArray::decode`].
    fn decode_rows(array: &ValidRowsArray<Self>, mask: &Mask, to: &DataType) -> Result<ArrayRef>;
}

/// Rows whose values are stored if they are valid. Slices share these.
#[derive(Debug)]
pub(in crate::encodings) struct ValidRowsArray<V> {
    pub(in crate::encodings) header: Header,
    pub(in crate::encodings) stored: Arc<V>,
    pub(in crate::encodings) rows: ValidRows,
}

impl<V: StoredValues> EncodedArray for ValidRowsArray<V> {
    fn header(&self) -> &Header {
        &self.header
    }

    /// Compressed values are decompressed by the thousand at least.
    fn decodes_in_parts(&self) -> bool {
        false
    }

    fn decompresses(&self) -> bool {
        true
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        self.rows.child.named().into_iter().collect()
    }

    fn buffer_bytes(&self) -> usize {
        self.stored.byte_len()
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        V::decode_rows(self, &Mask::all(self.len()), to)
    }

    fn validity(&self) -> Result<Validity> {
        self.rows.validity()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        match pick {
            Pick::Slice(rows) => Ok(Arc::new(Self {
                header: self.header.of_rows(rows.len()),
                stored: Arc::clone(&self.stored),
                rows: self.rows.slice(rows),
            })),
            Pick::Filter(mask) => {
                let rows = V::decode_rows(self, mask, &data_type(self.dtype())?)?;
                Ok(self.header.decoded(rows))
            }
            Pick::Take(indices) => take_by_filter(self, indices),
        }
    }
}

/// The values that belong to live rows, among those of all valid rows.
fn values_of(live: &Mask, valid: &BooleanBuffer) -> Mask {
    if live.density() >= SPARSE {
        let live = live.to_bits();
        return Mask::from_bits(valid.set_indices().map(|at| live.value(at)).collect());
    }
    let values = Mask::from_bits(valid.clone());
    let live = live.indices().into_iter().filter(|row| valid.value(*row));
    Mask::from_indices(values.true_count(), values.live_below(live))
}

fn bits_of(bits: &BooleanBuffer, mask: &Mask) -> BooleanBuffer {
    mask.indices().into_iter().map(|at| bits.value(at)).collect()
}

/// Spreads values to the valid rows; other rows hold the default.
pub(in crate::encodings) fn spread<T: Copy + Default>(values: Vec<T>, nulls: Option<&NullBuffer>) -> Vec<T> {
    let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) else { return values };
    let mut rows = vec![T::default(); nulls.len()];
    let mut left = values.as_slice();
    // Where nulls are scattered, a copy for each run of valid rows would take longer than their rows one by one.
    for (rows, mut bits) in rows.chunks_mut(64).zip(nulls.inner().bit_chunks().iter_padded()) {
        if bits == u64::MAX
            && let Some((run, rest)) = left.split_at_checked(64)
        {
            rows.copy_from_slice(run);
            left = rest;
            continue;
        }
        // There are as many values as valid rows; if there were fewer, defaults would remain.
        while bits != 0
            && let Some((value, rest)) = left.split_first()
        {
            rows[bits.trailing_zeros() as usize] = *value;
            left = rest;
            bits &= bits - 1;
        }
    }
    rows
}

/// Takes rows by a filter, for arrays that decode only the parts that contain live rows.
///
/// # Errors
/// As the array's `filter`.
fn take_by_filter(array: &dyn EncodedArray, indices: &UInt64Array) -> Result<EncodedRef> {
    // Indices are in range of an array in memory, so they fit `usize`.
    let wanted = Mask::from_indices(array.len(), indices.values().iter().map(|at| *at as usize));
    if wanted.is_all() {
        return array.to_decoded()?.pick(Pick::Take(indices));
    }
    let live = wanted.indices();
    let among: Vec<u64> =
        indices.values().iter().map(|at| live.partition_point(|row| (*row as u64) < *at) as u64).collect();
    array.filter(&wanted)?.take(&UInt64Array::from(among))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::DType;

    #[test]
    fn few_of_many_rows_take_no_memory_for_the_others() {
        let many = Tree::new("vortex.constant").buffer(vec![0x18u8, 14]);
        let many = many.load(&DType::Primitive(crate::dtype::PType::I32, false), 1 << 60).unwrap();
        let indices = UInt64Array::from(vec![1 << 50, 5, 1 << 50]);
        assert_eq!(take_by_filter(many.as_ref(), &indices).unwrap().len(), 3);
        let rows = ValidRows::new(ValidityChild::default(), 1 << 60).live(&[5, 1 << 50]).unwrap();
        assert_eq!(rows.indices(), [5, 1 << 50]);
    }

    fn rows(valid: &[bool]) -> ValidRows {
        let child = Tree::bools(valid).load(&DType::Bool(false), valid.len()).unwrap();
        ValidRows::new(Some(child).into(), valid.len())
    }

    #[test]
    fn a_slice_owns_the_values_of_its_valid_rows() {
        let rows = rows(&[true, false, true, false, false, true]);
        assert_eq!(rows.values().unwrap(), 0..3);
        assert_eq!(rows.total().unwrap(), 3);
        let slice = rows.slice(&(2..6));
        assert_eq!(slice.values().unwrap(), 1..3);
        assert_eq!(slice.total().unwrap(), 3, "of all rows");
        assert_eq!(slice.slice(&(1..3)).values().unwrap(), 2..2);
        assert_eq!(ValidRows::new(ValidityChild::default(), 9).slice(&(3..5)).values().unwrap(), 3..5);
    }

    #[test]
    fn few_rows_before_a_slice_of_a_long_array_are_counted() {
        let mut next = crate::kernels::random(7);
        let valid: Vec<bool> = (0..3 * COUNTED_ROWS).map(|_| next().is_multiple_of(3)).collect();
        for len in [3 * COUNTED_ROWS, 3 * COUNTED_ROWS - 1, COUNTED_ROWS + 1, COUNTED_ROWS, 1, 0] {
            let rows = rows(&valid[..len]);
            let valid_before = |row: usize| valid[..row].iter().filter(|valid| **valid).count();
            for row in [0, 1, COUNTED_ROWS - 1, COUNTED_ROWS, COUNTED_ROWS + 1, 2 * COUNTED_ROWS + 7, len] {
                let row = row.min(len);
                assert_eq!(rows.slice(&(row..len)).values().unwrap(), valid_before(row)..valid_before(len));
                let start = rows.all().unwrap().counted(row).0;
                assert!(start <= row && row - start <= COUNTED_ROWS);
            }
        }
    }

    #[test]
    fn parts_of_the_values_have_live_ones_or_none() {
        let rows = rows(&[true, false, true, true, false, true]).slice(&(2..6));
        assert_eq!(rows.values().unwrap(), 1..4);
        let live = Mask::from_indices(3, [1]);
        let live_in = rows.live_in(&live).unwrap();
        let of_part = |part| live_in(&part).map(|(live, start)| (live.indices(), start));
        assert_eq!(of_part(0..3), Some((vec![1], 1)));
        assert_eq!(of_part(2..4), Some((vec![0], 0)));
        assert_eq!((of_part(0..1), of_part(3..4)), (None, None));
    }

    #[test]
    fn selecting_rows_selects_their_values() {
        let rows = rows(&[true, false, true, false, false, true]);
        let (values, nulls) = rows.select(&Mask::from_indices(6, [1, 2, 5])).unwrap();
        assert_eq!(values.indices(), [1, 2]);
        assert_eq!(nulls.unwrap().iter().collect::<Vec<_>>(), [false, true, true]);
    }

    #[test]
    fn few_rows_select_the_same_values_as_many() {
        let valid: Vec<bool> = (0..1000).map(|row| row % 3 != 0).collect();
        let rows = rows(&valid).slice(&(5..900));
        let live = [0, 1, 2, 63, 64, 65, 500, 894];
        let (values, nulls) = rows.select(&Mask::from_indices(895, live)).unwrap();
        let valid_before = |row: usize| valid[5..5 + row].iter().filter(|valid| **valid).count();
        let expected: Vec<usize> = live.into_iter().filter(|row| valid[5 + row]).map(valid_before).collect();
        assert_eq!(values.indices(), expected);
        assert_eq!(values.len(), valid_before(895));
        assert_eq!(nulls.unwrap().iter().collect::<Vec<_>>(), live.map(|row| valid[5 + row]));
    }

    #[test]
    fn values_spread_to_the_valid_rows() {
        let nulls = NullBuffer::from(vec![false, true, true, false, true]);
        assert_eq!(spread(vec![7, 8, 9], Some(&nulls)), [0, 7, 8, 0, 9]);
        assert_eq!(spread(vec![7, 8, 9], None), [7, 8, 9]);
        assert_eq!(spread(vec![7], Some(&nulls)), [0, 7, 0, 0, 0]);
    }

    #[test]
    fn values_spread_alike_over_long_and_short_runs() {
        let mut next = crate::kernels::random(5);
        for (len, one_in) in [(64, 2), (200, 1000), (1000, 3), (129, 50), (640, 200)] {
            let valid: Vec<bool> = (0..len).map(|row| row != 70 && !next().is_multiple_of(one_in)).collect();
            let nulls = NullBuffer::from(valid).slice(3, len - 3);
            let expected = nulls.iter().scan(0, |count, valid| {
                *count += u32::from(valid);
                Some(if valid { *count } else { 0 })
            });
            let values = (1..=(nulls.len() - nulls.null_count()) as u32).collect();
            assert_eq!(spread(values, Some(&nulls)), expected.collect::<Vec<_>>());
        }
    }
}
