//! Loads some rows of a serialized array, from only the bytes that they need.
//!
//! ```text
//! for       rows [2, 900] of 4096        the same rows of its child, plus the reference
//! dict      rows [2, 900] of its codes,  then those of its values that the codes refer to
//! primitive rows [2, 900]                bytes 8..12 and 3600..3604 of its buffer
//! ```
//!
//! An encoding whose children have one row for each row loads some rows in the same way as all of them:
//! its [`Node`] represents the selected rows, and so do the nodes of its children. Other encodings
//! determine what they need of each child. Small buffers are loaded as a whole, and so are arrays whose
//! encoding has no better way.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{MutableArrayData, UInt64Array, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer};

use super::parts::{Buffers, Context, Taken};
use super::pieces::Pieces;
use super::{ArrayRef, ArrowRef, Decoded, Node, decode_offsets};
use crate::dtype::DType;
use crate::dtype::arrow::data_type;
use crate::encodings::Registry;
use crate::encodings::chunked::chunked;
use crate::error::ResultExt as _;
use crate::limits::{Limits, Work};
use crate::wire::{ArrayTree, RawNode};
use crate::{Error, Result};

/// Nodes whose buffers have fewer bytes in total are loaded as a whole. Tests load individual rows of all
/// nodes.
const SMALL: usize = if cfg!(any(test, fuzzing)) { 1 } else { 2 << 10 };

/// The rows that a node represents, in ascending order, and the number of rows of the array.
#[derive(Debug, Clone, Copy)]
pub(super) struct Picked<'a> {
    pub(super) rows: &'a [usize],
    pub(super) of: usize,
}

/// An array in a file of which only pieces are available.
pub(crate) struct TreeRows<'a> {
    pub(crate) tree: &'a ArrayTree,
    pub(crate) pieces: &'a Pieces,
    /// The position in the file at which the array's blob starts.
    pub(crate) start: u64,
    pub(crate) ids: &'a [Arc<str>],
    pub(crate) registry: &'a Registry,
    pub(crate) limits: &'a Limits,
    pub(crate) kept: &'a KeptBytes,
}

/// Counts the bytes of arrays that are kept in trees, which is limited.
#[derive(Debug, Default)]
pub(crate) struct KeptBytes(Arc<AtomicUsize>);

/// An array that is kept in a tree.
#[derive(Debug)]
pub(crate) struct KeptArray {
    array: ArrayRef,
    _counted: CountedBytes,
}

/// Bytes that count until they are dropped.
#[derive(Debug)]
struct CountedBytes {
    count: Arc<AtomicUsize>,
    bytes: usize,
}

impl KeptBytes {
    /// Maximum number of bytes kept per open file.
    const MOST: usize = 16 << 20;
    /// Maximum number of bytes of a single array.
    const LARGEST: usize = 1 << 20;

    /// Counts this many more bytes, if they may be kept.
    fn take(&self, bytes: usize) -> Option<CountedBytes> {
        let fits = |before: usize| before.checked_add(bytes).filter(|after| *after <= Self::MOST);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(CountedBytes { count: Arc::clone(&self.0), bytes })
    }

    /// Bytes of the arrays that are kept.
    #[cfg(test)]
    pub(super) fn byte_len(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.count.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl TreeRows<'_> {
    /// Loads some rows of the array, which has `len` rows; `rows` must be ascending.
    ///
    /// # Errors
    /// If pieces are missing, in which case they have been requested, or the array is broken.
    pub(crate) fn load(&self, dtype: &DType, len: usize, rows: &[usize]) -> Result<ArrayRef> {
        let (pieces, start, places) = (self.pieces, self.start, &self.tree.buffers);
        let buffers = Buffers::Pieces { pieces, start, places, kept: self.kept };
        let nodes_left = Cell::new(self.limits.max_nodes);
        let context =
            Context { buffers, ids: self.ids, registry: self.registry, limits: self.limits, nodes_left };
        let _work = Work::begin();
        Node::root(&self.tree.root, dtype, len, &context).load_rows(rows)
    }
}

impl<'a> Node<'a> {
    /// Creates an array of some rows, which must be ascending.
    pub(super) fn load_rows(&self, rows: &[usize]) -> Result<ArrayRef> {
        debug_assert!(rows.windows(2).all(|pair| pair[0] < pair[1]), "rows rise");
        if rows.is_empty() {
            return Ok(chunked(self.dtype, Vec::new(), self.limits()));
        }
        if let Some(last) = rows.last().filter(|last| **last >= self.len) {
            return Err(Error::corrupt(format!("row {last} of {}", self.len)));
        }
        if rows.len() == self.len {
            return self.load();
        }
        if self.byte_len(self.raw, SMALL) < SMALL {
            return self.take(rows);
        }
        self.enter()?;
        let id = self.encoding_id()?;
        let array = self.encoding(id)?.load_rows(self, rows).at(|| id)?;
        self.of_rows(rows).check(id, array)
    }

    /// A node that represents only some of its rows, which must be ascending.
    pub fn of_rows<'b>(&'b self, rows: &'b [usize]) -> Node<'b> {
        Node { len: rows.len(), picked: Some(Picked { rows, of: self.len }), ..*self }
    }

    /// A node that represents all rows again, and the rows that this one represents.
    pub(crate) fn whole(&self) -> (Node<'a>, Option<&'a [usize]>) {
        match self.picked {
            None => (*self, None),
            Some(Picked { rows, of }) => (Node { len: of, picked: None, ..*self }, Some(rows)),
        }
    }

    /// Loads all rows and takes some of them.
    ///
    /// # Errors
    /// If the array is broken.
    pub fn take(&self, rows: &[usize]) -> Result<ArrayRef> {
        self.load()?.take(&UInt64Array::from_iter_values(rows.iter().map(|row| *row as u64)))
    }

    /// Loads some rows of child `at`, which has `len` rows of `dtype`; `rows` must be ascending.
    ///
    /// # Errors
    /// If there is no such child, it is not of that type, or it has fewer rows.
    pub fn child_rows(&self, at: usize, dtype: &DType, len: usize, rows: &[usize]) -> Result<ArrayRef> {
        self.child_node(at, dtype, len)?.load_rows(rows)
    }

    /// The ranges between the offsets of each of some rows. Child `at` has one more offset than there are
    /// rows, which are `of`; offsets must not decrease or exceed `end`.
    ///
    /// # Errors
    /// If the offsets violate this.
    pub(crate) fn ranges(
        &self,
        at: usize,
        dtype: &DType,
        of: usize,
        rows: &[usize],
        end: usize,
    ) -> Result<Vec<Range<usize>>> {
        let len = of.checked_add(1).ok_or_else(|| Error::limit("too many rows with offsets"))?;
        let mut needed: Vec<usize> = rows.iter().flat_map(|row| [*row, row + 1]).collect();
        needed.dedup();
        let offsets = decode_offsets(&self.child_rows(at, dtype, len, &needed)?, "offsets", end)?;
        let mut next = 0;
        let range = |row: &usize| {
            next += needed[next..].iter().take_while(|needed| *needed < row).count();
            offsets[next]..offsets[next + 1]
        };
        Ok(rows.iter().map(range).collect())
    }

    /// The values of buffer `at`, which has exactly `width` bytes for each row.
    ///
    /// # Errors
    /// If it has another length.
    pub fn values(&self, at: usize, width: usize) -> Result<Buffer> {
        let of = self.picked.map_or(self.len, |picked| picked.of);
        let byte_len = self.buffer_len(at)?;
        if of.checked_mul(width) != Some(byte_len) {
            return Err(Error::corrupt(format!("{byte_len} bytes for {of} values of {width} bytes")));
        }
        match self.picked {
            None => self.buffer(at),
            Some(picked) => {
                let runs = picked.rows.chunk_by(|row, next| row + 1 == *next);
                self.gather(at, runs.map(|run| run[0] * width..(run[0] + run.len()) * width))
            }
        }
    }

    /// One bit for each row, from buffer `at`, in which the first row is bit `offset`.
    ///
    /// # Errors
    /// If the buffer is too short.
    pub(crate) fn bits(&self, at: usize, offset: usize) -> Result<BooleanBuffer> {
        let of = self.picked.map_or(self.len, |picked| picked.of);
        let byte_len = self.buffer_len(at)?;
        if of.checked_add(offset).is_none_or(|bits| bits.div_ceil(8) > byte_len) {
            return Err(Error::corrupt(format!("{byte_len} bytes of bits for {of} rows")));
        }
        let Some(picked) = self.picked else {
            return Ok(BooleanBuffer::new(self.buffer(at)?, offset, of));
        };
        let place = |row: usize| ((row + offset) / 8, (row + offset) % 8);
        let bytes = self.gather(at, picked.rows.iter().map(|row| place(*row).0..place(*row).0 + 1))?;
        let bit = |(row, byte): (&usize, &u8)| byte >> place(*row).1 & 1 == 1;
        Ok(picked.rows.iter().zip(bytes.as_slice()).map(bit).collect())
    }

    /// Buffers of this node from `first` on, one for each item of `wanted`; those not wanted are returned
    /// empty.
    ///
    /// # Errors
    /// If there are fewer buffers.
    pub(crate) fn buffers(&self, first: usize, wanted: impl Iterator<Item = bool>) -> Result<Vec<Buffer>> {
        let mut buffers = Vec::new();
        all(wanted.enumerate().map(|(at, wanted)| {
            buffers.push(if wanted { self.buffer(first + at)? } else { Buffer::default() });
            Ok(())
        }))?;
        Ok(buffers)
    }

    /// Applies a function to some bytes of buffer `at`.
    ///
    /// # Errors
    /// If the buffer has fewer bytes.
    pub(crate) fn with_piece<R>(
        &self,
        at: usize,
        range: Range<usize>,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R> {
        let byte_len = self.buffer_len(at)?;
        if range.start > range.end || range.end > byte_len {
            return Err(Error::corrupt(format!("bytes {range:?} of {byte_len}")));
        }
        match (self.own_buffers, self.context.buffers) {
            (None, Buffers::Pieces { pieces, start, places, .. }) => {
                let place = start + places[usize::from(self.raw.buffers[at])].start as u64;
                pieces.with(place + range.start as u64..place + range.end as u64, look)
            }
            _ => Ok(look(&self.buffer(at)?[range])),
        }
    }

    /// Concatenates some byte ranges of buffer `at`.
    ///
    /// # Errors
    /// If the buffer has fewer bytes, or a limit is exceeded.
    pub(crate) fn gather(
        &self,
        at: usize,
        ranges: impl Iterator<Item = Range<usize>> + Clone,
    ) -> Result<Buffer> {
        let total = ranges.clone().fold(0usize, |sum, range| sum.saturating_add(range.len()));
        self.take_bytes(total)?;
        let mut gathered = MutableBuffer::new(total);
        let append = |range| self.with_piece(at, range, |bytes| gathered.extend_from_slice(bytes));
        all(ranges.map(append))?;
        Ok(gathered.into())
    }

    /// The length of buffer `at` in bytes.
    ///
    /// # Errors
    /// If there is no such buffer.
    pub(crate) fn buffer_len(&self, at: usize) -> Result<usize> {
        let byte_len = match (self.own_buffers, self.raw.buffers.get(at)) {
            (Some(buffers), _) => buffers.get(at).map(Buffer::len),
            (None, Some(place)) => self.context.buffers.len_of(*place),
            (None, None) => None,
        };
        byte_len.ok_or_else(|| Error::corrupt(format!("buffer {at} is missing")))
    }

    /// Creates the array of all rows from pieces, and keeps it in the tree if it is small: such arrays tell where
    /// individual rows are, so they are needed again for other rows. Bytes of others are copied, because rows that are
    /// handed out may share them, and should not keep whole pieces in memory.
    pub(super) fn load_from_pieces(&self) -> Result<ArrayRef> {
        let Buffers::Pieces { pieces, start, places, kept } = self.context.buffers else {
            return self.load();
        };
        let same = |array: &ArrayRef| array.len() == self.len && array.dtype() == self.dtype;
        if let Some(found) = self.raw.kept.get().filter(|found| same(&found.array)) {
            return Ok(Arc::clone(&found.array));
        }
        let mut taken = Taken::new();
        self.take_buffers(self.raw, pieces, start, places, &mut taken)?;
        let nodes_left = self.context.nodes_left.clone();
        let context = Context { buffers: Buffers::Taken(&taken), nodes_left, ..*self.context };
        let array = Node { context: &context, ..*self }.load();
        self.context.nodes_left.set(context.nodes_left.get());
        let array = array?;
        // Positions of rows are integers; other arrays are rarely needed twice. Decoded integers can be
        // searched without examining all of them. They must not keep a piece, either.
        let DType::Primitive(ptype, _) = self.dtype else { return Ok(array) };
        let byte_len = self.len.saturating_mul(ptype.byte_width());
        if byte_len > KeptBytes::LARGEST {
            return Ok(array);
        }
        let Some(counted) = kept.take(byte_len) else { return Ok(array) };
        let decoded = apart(array.decode(&data_type(self.dtype)?)?, &taken)?;
        let array: ArrayRef = Arc::new(Decoded::new(self.dtype.clone(), decoded).with_limits(*self.limits()));
        // Another task may have been faster; then the bytes of this array no longer count.
        let _ = self.raw.kept.set(Arc::new(KeptArray { array: Arc::clone(&array), _counted: counted }));
        Ok(array)
    }

    /// Total bytes of the buffers of a node and its descendants; may stop counting at `most`.
    fn byte_len(&self, raw: &RawNode, most: usize) -> usize {
        let lens = raw.buffers.iter().filter_map(|at| self.context.buffers.len_of(*at));
        let own = lens.fold(0, usize::saturating_add);
        raw.children.iter().fold(own, |sum, child| match sum < most {
            true => sum.saturating_add(self.byte_len(child, most - sum)),
            false => sum,
        })
    }

    /// Takes the buffers of a node and its descendants, each once, even if several of them share it.
    fn take_buffers(
        &self,
        raw: &RawNode,
        pieces: &Pieces,
        start: u64,
        places: &[Range<usize>],
        taken: &mut Taken,
    ) -> Result<()> {
        let own = all(raw.buffers.iter().map(|at| {
            let Some(place) = places.get(usize::from(*at)).filter(|_| !taken.contains_key(at)) else {
                return Ok(());
            };
            self.take_bytes(place.len())?;
            let range = start + place.start as u64..start + place.end as u64;
            let is_handed_out = self.depth == 0 || !matches!(self.dtype, DType::Primitive(..));
            let bytes = match is_handed_out {
                true => pieces.with(range, |bytes| Buffer::from(bytes))?,
                false => pieces.get(range)?,
            };
            taken.insert(*at, bytes);
            Ok(())
        }));
        let children =
            raw.children.iter().map(|child| self.take_buffers(child, pieces, start, places, taken));
        all([own, all(children)].into_iter())
    }
}

/// The same integers in buffers of their own, if they share any of those that were taken.
fn apart(array: ArrowRef, taken: &Taken) -> Result<ArrowRef> {
    let data = array.to_data();
    let nulls = data.nulls().map(NullBuffer::buffer);
    let is_taken =
        |buffer: &Buffer| taken.values().any(|taken| taken.as_ptr_range().contains(&buffer.as_ptr()));
    if !data.buffers().iter().chain(nulls).any(is_taken) {
        return Ok(array);
    }
    let mut copy = MutableArrayData::new(vec![&data], false, array.len());
    copy.try_extend(0, 0, array.len())?;
    Ok(make_array(copy.freeze()))
}

/// Runs all steps before failing because of missing bytes, so that all missing bytes are requested.
pub(crate) fn all(steps: impl Iterator<Item = Result<()>>) -> Result<()> {
    let mut missing = Ok(());
    for step in steps {
        match step {
            Err(Error::NotFetched) => missing = Err(Error::NotFetched),
            step => step?,
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray as _, UInt32Array};
    use arrow::datatypes::UInt32Type;

    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::PType;

    /// Runs whose ends are values of a dictionary, with these codes.
    fn runs(codes: &[u8]) -> Tree {
        let ends = Tree::new("vortex.dict").metadata(vec![0x08, 3]);
        let ends = ends.child(Tree::primitive(codes)).child(Tree::primitive(&[100u32, 200, 300]));
        // Protobuf: 1 the integer type of the ends, which is u32, 2 the number of runs.
        Tree::new("vortex.runend")
            .metadata(vec![0x08, 2, 0x10, 3])
            .child(ends)
            .child(Tree::primitive(&[1i32, 2, 3]))
    }

    #[test]
    fn no_more_bytes_are_kept_than_may_be() {
        let kept = KeptBytes::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let taken = [kept.take(KeptBytes::MOST / 2), kept.take(KeptBytes::MOST / 2 + 1)];
                        assert!(kept.byte_len() <= KeptBytes::MOST && taken.len() == 2);
                    }
                });
            }
        });
        assert_eq!(kept.byte_len(), 0);
        let all = kept.take(KeptBytes::MOST);
        assert!(all.is_some() && kept.take(1).is_none() && kept.take(usize::MAX).is_none());
    }

    #[test]
    fn arrays_that_are_kept_share_no_pieces() {
        let piece = Buffer::from(vec![0u32, 1, 2, 3]);
        let array: ArrowRef = Arc::new(UInt32Array::new(piece.slice(4).into(), None));
        let place = |array: &ArrowRef| array.as_primitive::<UInt32Type>().values().as_ptr();
        let copied = apart(Arc::clone(&array), &Taken::from([(7, piece)])).unwrap();
        assert_eq!(&copied, &array);
        assert_ne!(place(&copied), place(&array));
        let others = Taken::from([(7, Buffer::from(vec![1u32, 2, 3]))]);
        assert_eq!(place(&apart(Arc::clone(&array), &others).unwrap()), place(&array));
    }

    #[test]
    fn arrays_count_as_long_as_their_tree_is_kept() {
        // Loading also reads single rows, and checks that nothing counts once the tree is dropped.
        let array = runs(&[0, 1, 2]).load(&DType::Primitive(PType::I32, false), 300).unwrap();
        assert_eq!(array.len(), 300);
    }

    #[test]
    fn arrays_that_cannot_be_decoded_do_not_count() {
        let array = runs(&[0, 1, 9]).load(&DType::Primitive(PType::I32, false), 300).unwrap();
        assert!(array.decode(&arrow::datatypes::DataType::Int32).is_err());
    }
}
