//! Arrays of some rows, kept while more bytes are fetched for others.
//!
//! Rows are read in several attempts, between which missing bytes are fetched. What was loaded completely in
//! one attempt is not loaded again in the next.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use super::EncodedRef;
use crate::Result;
use crate::dtype::DType;
use crate::limits::{Limits, Work};

/// An array node of a file: its segment, and its number in the tree of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) segment: u32,
    pub(crate) node: u32,
}

/// More rows of a node are loaded again: every node would have a list of them.
const MOST_ROWS: usize = 16 << 10;

/// What was loaded so far.
#[derive(Debug, Default)]
pub(crate) struct LoadedRows {
    known: RefCell<HashMap<Place, Rows>>,
    /// Bytes that were counted, but not loaded again.
    spared: Cell<usize>,
}

/// Some rows of a node of `len` rows, and the bytes that were decompressed or copied to load them, with those of the
/// list of rows: they count for every attempt, since all of them hold the array.
#[derive(Debug)]
struct Rows {
    len: usize,
    rows: Vec<usize>,
    array: EncodedRef,
    byte_len: usize,
}

impl LoadedRows {
    /// Returns these rows of a node of `dtype` and `len` rows if they were the last ones loaded of it, or else loads
    /// them. A file may refer to one node as several types.
    ///
    /// # Errors
    /// If loading fails, or the limits are exceeded.
    pub(crate) fn get_or_load(
        &self,
        place: Place,
        dtype: &DType,
        len: usize,
        rows: &[usize],
        limits: &Limits,
        load: impl FnOnce() -> Result<EncodedRef>,
    ) -> Result<EncodedRef> {
        if let Some(known) = self.known.borrow().get(&place)
            && known.len == len
            && known.rows == rows
            && known.array.dtype() == dtype
        {
            limits.count_bytes(known.byte_len as u64)?;
            self.spared.set(self.spared.get().saturating_add(known.byte_len));
            return Ok(Arc::clone(&known.array));
        }
        let work = Work::begin();
        let array = load()?;
        if rows.len() > MOST_ROWS {
            return Ok(array);
        }
        limits.count::<usize>(rows.len())?;
        let loaded = Rows { len, rows: rows.to_vec(), array: Arc::clone(&array), byte_len: work.byte_len() };
        self.known.borrow_mut().insert(place, loaded);
        Ok(array)
    }

    /// Bytes that counted as decoded so far, although they were not loaded again.
    pub(crate) fn spared_bytes(&self) -> usize {
        self.spared.get()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int32Array;

    use super::*;
    use crate::Error;
    use crate::array::Decoded;
    use crate::dtype::PType;

    #[test]
    fn only_what_was_loaded_completely_and_is_the_same_is_not_loaded_again() {
        let (loaded, loads, limits) = (LoadedRows::default(), Cell::new(0), Limits::default());
        let of = |ptype| DType::Primitive(ptype, false);
        let load = |node, dtype: &DType, len, rows: &[usize], is_complete| {
            let result = loaded.get_or_load(Place { segment: 7, node }, dtype, len, rows, &limits, || {
                loads.set(loads.get() + 1);
                let array = Arc::new(Int32Array::from_iter_values(0..rows.len() as i32)) as _;
                let array = Arc::new(Decoded::new(dtype.clone(), array, &limits));
                if is_complete { Ok(array as EncodedRef) } else { Err(Error::NotFetched) }
            });
            (result.is_ok(), loads.get())
        };
        assert_eq!(load(1, &of(PType::I32), 10, &[2, 3], false), (false, 1));
        assert_eq!(load(1, &of(PType::I32), 10, &[2, 3], true), (true, 2));
        assert_eq!(load(1, &of(PType::I32), 10, &[2, 3], true), (true, 2));
        assert_eq!(load(2, &of(PType::I32), 10, &[2, 3], true), (true, 3));
        assert_eq!(load(1, &of(PType::I32), 10, &[2, 4], true), (true, 4));
        assert_eq!(load(1, &of(PType::I32), 11, &[2, 4], true), (true, 5));
        assert_eq!(load(1, &of(PType::U32), 11, &[2, 4], true), (true, 6));
        assert_eq!(load(1, &of(PType::U32), 11, &[2, 4], true), (true, 6));
    }

    #[test]
    fn lists_of_rows_count_and_long_ones_are_not_kept() {
        let dtype = DType::Primitive(PType::I32, false);
        for (count, is_kept) in [(MOST_ROWS, true), (MOST_ROWS + 1, false)] {
            let (loaded, loads, limits) = (LoadedRows::default(), Cell::new(0), Limits::default());
            let rows: Vec<usize> = (0..count).collect();
            for _ in 0..2 {
                let work = Work::begin();
                let load = || {
                    loads.set(loads.get() + 1);
                    let array = Arc::new(Int32Array::from(vec![0; count]));
                    Ok(Arc::new(Decoded::new(dtype.clone(), array, &limits)) as EncodedRef)
                };
                let place = Place { segment: 0, node: 0 };
                loaded.get_or_load(place, &dtype, count, &rows, &limits, load).unwrap();
                assert_eq!(work.byte_len(), if is_kept { count * size_of::<usize>() } else { 0 });
            }
            assert_eq!(loads.get(), if is_kept { 1 } else { 2 });
        }
    }

    #[test]
    fn what_was_loaded_before_counts_again() {
        let (loaded, limits) = (LoadedRows::default(), Limits::new().with_max_decoded_bytes(100));
        let dtype = DType::Primitive(PType::I32, false);
        let load = || {
            loaded.get_or_load(Place { segment: 0, node: 0 }, &dtype, 1, &[0], &limits, || {
                limits.count_bytes(52)?;
                let array = Arc::new(Int32Array::from(vec![1]));
                Ok(Arc::new(Decoded::new(dtype.clone(), array, &limits)) as EncodedRef)
            })
        };
        for _ in 0..3 {
            let work = Work::begin();
            load().unwrap();
            assert_eq!(work.byte_len(), 60);
        }
        assert_eq!(loaded.spared_bytes(), 2 * 60);
        let _work = Work::begin();
        load().unwrap();
        assert!(load().is_err());
    }
}
