//! Limits on what a file may demand of its reader.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use crate::{Error, Result};

/// Limits on what a file may demand of its reader. Every count that a file claims is checked against them
/// before memory is reserved or time is spent.
///
/// The defaults open everything that real writers produce, 100,000 columns included.
///
/// ```
/// use vortex_core::Limits;
/// use vortex_core::file::OpenOptions;
///
/// let limits = Limits::new().with_max_columns(1000).with_max_decoded_bytes(64 << 20);
/// let options = OpenOptions::new().with_limits(limits);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Limits {
    /// Nesting of dtypes, layouts, array nodes and scalars, in tables of the file, of which each level of a dtype takes
    /// two; 64 by default.
    pub max_depth: u32,
    /// Nodes of one array tree or one scalar, counted with repetition; 1,000,000 by default.
    pub max_nodes: u32,
    /// Nodes of the layout tree, counted with repetition; 8,000,000 by default, but at most as many as the bytes
    /// of the tree can hold without nodes that have several parents. Also the tables of each other description in the
    /// file, such as its dtype.
    pub max_layouts: u32,
    /// Types in the file's dtype: fields of all structs, elements of lists, and the dtype itself; 1,000,000 by default.
    pub max_columns: u32,
    /// Rows of the file; 2^48 by default.
    pub max_rows: u64,
    /// Bytes that decoding may produce at a time, intermediate results and decompressed segments included: the
    /// rows of one column of a split, the outcome of one predicate on them, a zone table, or a single array
    /// outside of a scan. 2 GiB by default.
    ///
    /// A scan works on several columns and splits at once, each with this limit.
    pub max_decoded_bytes: u64,
    /// Bytes of a row whose values are all null: fixed-size lists have values even then. Query engines create
    /// such rows before they read any. 64 MiB by default.
    pub max_row_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_depth: 64,
            max_nodes: 1_000_000,
            max_layouts: 8_000_000,
            max_columns: 1_000_000,
            max_rows: 1 << 48,
            max_decoded_bytes: 2 << 30,
            max_row_bytes: 64 << 20,
        }
    }
}

impl Limits {
    /// The default limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`max_depth`](Self::max_depth).
    #[must_use]
    pub fn with_max_depth(mut self, depth: u32) -> Self {
        self.max_depth = depth;
        self
    }

    /// Sets [`max_nodes`](Self::max_nodes).
    #[must_use]
    pub fn with_max_nodes(mut self, nodes: u32) -> Self {
        self.max_nodes = nodes;
        self
    }

    /// Sets [`max_layouts`](Self::max_layouts).
    #[must_use]
    pub fn with_max_layouts(mut self, layouts: u32) -> Self {
        self.max_layouts = layouts;
        self
    }

    /// Sets [`max_columns`](Self::max_columns).
    #[must_use]
    pub fn with_max_columns(mut self, columns: u32) -> Self {
        self.max_columns = columns;
        self
    }

    /// Sets [`max_rows`](Self::max_rows).
    #[must_use]
    pub fn with_max_rows(mut self, rows: u64) -> Self {
        self.max_rows = rows;
        self
    }

    /// Sets [`max_decoded_bytes`](Self::max_decoded_bytes).
    #[must_use]
    pub fn with_max_decoded_bytes(mut self, bytes: u64) -> Self {
        self.max_decoded_bytes = bytes;
        self
    }

    /// Sets [`max_row_bytes`](Self::max_row_bytes).
    #[must_use]
    pub fn with_max_row_bytes(mut self, bytes: u64) -> Self {
        self.max_row_bytes = bytes;
        self
    }

    /// The default limits, but for the bytes decoded: these are limited elsewhere.
    pub(crate) fn of_any_bytes() -> Self {
        Self::default().with_max_decoded_bytes(u64::MAX)
    }

    /// Counts bytes that are about to be decoded, decompressed or copied as part of the work in progress on this
    /// thread, if any. What an array holds counts when it is loaded.
    ///
    /// # Errors
    /// [`Error::LimitExceeded`] if there are too many.
    pub fn count_bytes(&self, bytes: u64) -> Result<()> {
        if self.has_counted(bytes) { Ok(()) } else { Err(self.exceeded_by(format_args!("{bytes} bytes"))) }
    }

    /// Counts the bytes of so many values of a type, as [`count_bytes`](Self::count_bytes).
    ///
    /// # Errors
    /// As [`count_bytes`](Self::count_bytes).
    pub fn count<T>(&self, values: usize) -> Result<()> {
        self.count_rows(values, size_of::<T>()).map(drop)
    }

    /// Counts the bytes of rows of `width` bytes each, as [`count_bytes`](Self::count_bytes), and returns their number.
    ///
    /// # Errors
    /// As [`count_bytes`](Self::count_bytes).
    pub fn count_rows(&self, rows: usize, width: usize) -> Result<usize> {
        let bytes = rows.checked_mul(width).filter(|bytes| self.has_counted(*bytes as u64));
        bytes.ok_or_else(|| self.exceeded_by(format_args!("{rows} rows of {width} bytes")))
    }

    /// Counts bytes, unless there are too many.
    fn has_counted(&self, bytes: u64) -> bool {
        let total = DECODED.get().unwrap_or(0).checked_add(bytes);
        let total = total.filter(|total| *total <= self.max_decoded_bytes);
        if let Some(total) = total {
            DECODED.set(DECODED.get().map(|_| total));
        }
        total.is_some()
    }

    fn exceeded_by(&self, what: fmt::Arguments<'_>) -> Error {
        let (before, most) = (DECODED.get().unwrap_or(0), self.max_decoded_bytes);
        Error::limit(format!("{what}, after {before} bytes, exceed {most} bytes decoded at a time"))
    }
}

thread_local! {
    /// Bytes decoded by the work in progress on this thread, if any.
    static DECODED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Decodes a part of a result that was counted as a whole, where the part takes `bytes`. These count once;
/// whatever else decoding it takes counts as well.
pub(crate) fn counted_before<T>(bytes: usize, decode: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = DECODED.get();
    let part = decode()?;
    let after = DECODED.get().zip(before);
    // Nothing was counted of a part that shares bytes with the file.
    DECODED.set(after.map(|(after, before)| after.saturating_sub(bytes as u64).max(before)));
    Ok(part)
}

/// Decodes something that is kept for other work: it has to stay within the limit together with what was counted, but
/// does not count against what follows, not even if it fails.
pub(crate) fn counted_apart<T>(decode: impl FnOnce() -> T) -> T {
    let before = DECODED.get();
    let decoded = decode();
    DECODED.set(before);
    decoded
}

/// Work whose decoded bytes are limited together, until it is dropped.
///
/// Every array limits its own bytes. A file, however, can make an array of any number of others: fields of
/// structs, chunks, values of dictionaries, ends of runs, each as large as an array may be and each kept
/// until the whole is complete. The sum belongs to the thread, as decoding is one recursion that never
/// waits; encodings need not know of it. Work within other work is part of it.
pub(crate) struct Work {
    is_outermost: bool,
    /// Bytes decoded by the work around it before it began.
    before: u64,
    /// Must be dropped on the same thread.
    _thread: PhantomData<*const ()>,
}

impl Work {
    pub(crate) fn begin() -> Self {
        let around = DECODED.get();
        let before = around.unwrap_or(0);
        DECODED.set(Some(before));
        Self { is_outermost: around.is_none(), before, _thread: PhantomData }
    }

    /// Bytes decoded since it began.
    pub(crate) fn byte_len(&self) -> usize {
        let decoded = DECODED.get().unwrap_or(0).saturating_sub(self.before);
        usize::try_from(decoded).unwrap_or(usize::MAX)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if self.is_outermost {
            DECODED.set(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::arrow::data_type;
    use crate::dtype::{DType, PType, StructType};

    #[test]
    fn all_work_until_the_end_of_the_outermost_is_limited_together() {
        let limits = Limits::new().with_max_decoded_bytes(100);
        for _ in 0..2 {
            let outer = Work::begin();
            limits.count_rows(10, 4).unwrap();
            {
                let inner = Work::begin();
                limits.count_rows(1, 40).unwrap();
                assert_eq!((inner.byte_len(), outer.byte_len()), (40, 80));
            }
            let error = limits.count_rows(3, 7).unwrap_err().to_string();
            assert!(error.contains("3 rows of 7 bytes, after 80 bytes, exceed 100 bytes"), "{error}");
            limits.count_bytes(20).unwrap();
        }
        for _ in 0..3 {
            limits.count_bytes(100).unwrap();
        }
        assert!(limits.count_rows(usize::MAX, 2).is_err());
    }

    #[test]
    fn a_part_of_what_was_counted_counts_only_with_what_exceeds_it() {
        let limits = Limits::new().with_max_decoded_bytes(100);
        let _work = Work::begin();
        limits.count_bytes(60).unwrap();
        for counted in [0, 30, 30, 35] {
            counted_before(30, || limits.count_bytes(counted)).unwrap();
        }
        assert!(counted_before(30, || limits.count_bytes(36)).is_err(), "60 + 5 + 36");
        limits.count_bytes(35).unwrap();
        assert!(limits.count_bytes(1).is_err());
    }

    #[test]
    fn what_is_kept_for_other_work_does_not_count_for_this() {
        let limits = Limits::new().with_max_decoded_bytes(100);
        let _work = Work::begin();
        limits.count_bytes(60).unwrap();
        counted_apart(|| limits.count_bytes(40)).unwrap();
        assert!(counted_apart(|| limits.count_bytes(30).and_then(|_| limits.count_bytes(11))).is_err());
        limits.count_bytes(40).unwrap();
        assert!(limits.count_bytes(1).is_err());
    }

    fn constants(fields: usize) -> (Tree, DType) {
        let field = DType::Primitive(PType::I64, false);
        let names = (0..fields).map(|at| (format!("f{at}").into(), field.clone()));
        let tree = (0..fields).fold(Tree::new("vortex.struct"), |tree, _| {
            // A scalar of protobuf: sint64 7.
            tree.child(Tree::new("vortex.constant").buffer([0x18u8, 14]))
        });
        (tree, DType::Struct(Arc::new(StructType::new(names)), false))
    }

    #[test]
    fn fields_are_limited_together() {
        let (tree, dtype) = constants(10);
        let limits = Limits::new().with_max_decoded_bytes(5000);
        let array = tree.load_within(&dtype, 100, &limits).unwrap();
        let to = data_type(&dtype).unwrap();
        for _ in 0..3 {
            let error = array.decode(&to).unwrap_err().to_string();
            assert!(error.contains("exceed 5000 bytes"), "{error}");
            assert_eq!(array.slice(0..50).unwrap().decode(&to).unwrap().len(), 50);
        }
    }

    #[test]
    fn fields_of_list_items_are_limited_together() {
        let (item, dtype) = constants(100);
        let offsets = Tree::primitive(&[0u32, 1 << 20]);
        let tree = Tree::new("vortex.list")
            .metadata(vec![0x08, 0x80, 0x80, 0x40, 0x10, 2])
            .child(item)
            .child(offsets);
        let dtype = DType::List(Arc::new(dtype), false);
        let limits = Limits::new().with_max_decoded_bytes(64 << 20);
        let array = tree.load_within(&dtype, 1, &limits).unwrap();
        assert!(array.decode(&data_type(&dtype).unwrap()).is_err(), "100 fields of 8 MiB");
    }
}
