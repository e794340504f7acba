//! Patches: values that a compact form cannot represent, and the rows they belong to.
//!
//! ```text
//! rows     3 1 7 0 2 ...     compact  3 1 . 0 2 ...   (`.` is arbitrary)
//!                            indices  [2]             (ascending, counted from `offset`)
//!                            values   [7]
//! ```
//!
//! A message in the owner's metadata describes two children, `indices` and `values`. A third,
//! `chunk_offsets`, contains the number of patches before each block of 1024 rows. It only speeds up the
//! search and becomes stale in slices, so it is counted but not read: the ascending indices suffice.
//!
//! Slices share the children and the decoded indices, and move the window of rows.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::array::{BooleanBufferBuilder, UInt64Array};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::ArrowNativeType;

use crate::array::sorted::search;
use crate::array::{EncodedRef, Node, Pick, decode_raw, unsigned_type, with_integers};
use crate::dtype::{DType, PType};
use crate::encodings::primitive;
use crate::kernels::rising::positions;
use crate::kernels::{Word as _, match_word};
use crate::mask::Mask;
use crate::once::get_or_try_init;
use crate::wire::WriteNode;
use crate::{Error, Result};

/// The description of patches in the metadata.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PatchesMessage {
    #[prost(uint64, tag = "1")]
    pub(crate) len: u64,
    /// The index that corresponds to the owner's row 0.
    #[prost(uint64, tag = "2")]
    pub(crate) offset: u64,
    #[prost(int32, tag = "3")]
    pub(crate) indices_ptype: i32,
    #[prost(uint64, optional, tag = "4")]
    pub(crate) chunk_offsets_len: Option<u64>,
    /// Present if and only if the child is.
    #[prost(int32, optional, tag = "5")]
    pub(crate) chunk_offsets_ptype: Option<i32>,
}

impl PatchesMessage {
    /// Number of children that the patches take, starting at the position given to [`Patches::load`].
    pub(crate) fn child_count(&self) -> usize {
        if self.chunk_offsets_ptype.is_some() { 3 } else { 2 }
    }
}

/// Values for some rows of an owner, in ascending order of rows.
#[derive(Debug, Clone)]
pub(crate) struct Patches {
    indices: Arc<Indices>,
    values: EncodedRef,
    /// The index that corresponds to the owner's row 0.
    offset: usize,
    rows: usize,
}

/// The rows of all patches, decoded at most once for all slices.
#[derive(Debug)]
struct Indices {
    /// Absent for computed patches, whose indices are known.
    child: Option<EncodedRef>,
    /// The range in which all indices must lie.
    window: Range<usize>,
    known: OnceLock<Box<[usize]>>,
}

impl Patches {
    /// Loads the patches of a node from its children at `first_child` and after; `values` is the type of
    /// the patch values. The patches of selected rows are located through the indices of all patches.
    ///
    /// # Errors
    /// If the message and the children contradict each other.
    pub(crate) fn load(
        node: &Node<'_>,
        message: &PatchesMessage,
        first_child: usize,
        values: &DType,
    ) -> Result<Self> {
        let (node, picked) = node.whole();
        let rows = node.len();
        let len = usize::try_from(message.len).ok().filter(|len| *len <= rows);
        let len = len.ok_or_else(|| Error::corrupt(format!("{} patches for {rows} rows", message.len)))?;
        let offset = usize::try_from(message.offset).ok();
        let window = offset.and_then(|offset| Some(offset..offset.checked_add(rows)?));
        let window =
            window.ok_or_else(|| Error::corrupt(format!("patch offset {} overflows", message.offset)))?;
        node.limits().count::<usize>(len)?;

        let indices =
            node.child(first_child, &unsigned_type(message.indices_ptype, "patch indices")?, len)?;
        if let Some(picked) = picked {
            let (positions, numbers) = among(&indices, window.start, picked)?;
            let values = node.child_rows(first_child + 1, values, len, &numbers)?;
            return Ok(Self::new(positions, values, picked.len()));
        }
        let values = node.child(first_child + 1, values, len)?;
        if let Some(ptype) = message.chunk_offsets_ptype {
            let len = message.chunk_offsets_len.unwrap_or_default();
            let len = usize::try_from(len)
                .map_err(|_| Error::corrupt(format!("{len} chunk offsets of patches")))?;
            node.child(first_child + 2, &unsigned_type(ptype, "chunk offsets of patches")?, len)?;
        }
        Ok(Self {
            offset: window.start,
            rows,
            indices: Arc::new(Indices { child: Some(indices), window, known: OnceLock::new() }),
            values,
        })
    }

    /// Creates patches at ascending positions among `rows` rows.
    pub(crate) fn new(positions: Vec<usize>, values: EncodedRef, rows: usize) -> Self {
        debug_assert_eq!(positions.len(), values.len());
        debug_assert!(positions.windows(2).all(|pair| pair[0] < pair[1]));
        debug_assert!(positions.last().is_none_or(|last| *last < rows));
        let known = OnceLock::from(positions.into_boxed_slice());
        Self { indices: Arc::new(Indices { child: None, window: 0..rows, known }), values, offset: 0, rows }
    }

    /// The encoded parts, with names.
    pub(crate) fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        let indices = self.indices.child.iter().map(|child| ("patch_indices", child));
        indices.chain([("patch_values", &self.values)]).collect()
    }

    /// The patches of a range of the owner's rows.
    pub(crate) fn slice(&self, rows: Range<usize>) -> Self {
        debug_assert!(rows.start <= rows.end && rows.end <= self.rows);
        Self {
            indices: Arc::clone(&self.indices),
            values: Arc::clone(&self.values),
            offset: self.offset + rows.start,
            rows: rows.len(),
        }
    }

    /// The patches of the rows to keep, with positions among those. If none are left, this may be `None`.
    ///
    /// # Errors
    /// As [`locate`](Self::locate).
    pub(crate) fn pick(&self, pick: Pick<'_>) -> Result<Option<Self>> {
        match pick {
            Pick::Slice(rows) => Ok(Some(self.slice(rows.clone()))),
            Pick::Filter(mask) => self.filter(mask),
            Pick::Take(indices) => self.take(indices),
        }
    }

    /// Determines which rows are patched, and their values.
    ///
    /// # Errors
    /// If the indices are not ascending, or lie outside the rows.
    pub(crate) fn locate(&self) -> Result<Located<'_>> {
        let all = self.indices.get()?;
        let start = all.partition_point(|index| *index < self.offset);
        let end = all.partition_point(|index| *index < self.offset + self.rows);
        let values = if end - start == all.len() {
            Arc::clone(&self.values)
        } else {
            self.values.slice(start..end)?
        };
        Ok(Located { indices: &all[start..end], offset: self.offset, values })
    }

    /// Overwrites patched rows in `out`, which holds one value per row; `change` maps a row and its patch
    /// to the value. `N` is any type as wide as the patches: nulls among them are ignored, as the owner
    /// has the validity.
    ///
    /// # Errors
    /// As [`locate`](Self::locate).
    pub(crate) fn apply<N: ArrowNativeType>(
        &self,
        out: &mut [N],
        mut change: impl FnMut(usize, N) -> N,
    ) -> Result<()> {
        debug_assert_eq!(out.len(), self.rows);
        let located = self.locate()?;
        if located.is_empty() {
            return Ok(());
        }
        let (values, _) = decode_raw::<N>(&located.values)?;
        for (row, value) in located.rows().zip(values.iter()) {
            out[row] = change(row, *value);
        }
        Ok(())
    }

    /// The patches of the live rows, with positions among those; `None` if none are left.
    ///
    /// # Errors
    /// As [`locate`](Self::locate).
    pub(crate) fn filter(&self, mask: &Mask) -> Result<Option<Self>> {
        if mask.is_none() {
            return Ok(None);
        }
        if mask.is_all() {
            return Ok(Some(self.clone()));
        }
        if let Some(few) = mask.few() {
            return self.take(&few);
        }
        let located = self.locate()?;
        let bits = mask.to_bits();
        let (mut positions, mut kept) = (Vec::new(), Vec::new());
        let (mut counted, mut live) = (0, 0);
        for (number, row) in located.rows().enumerate() {
            if bits.value(row) {
                live += bits.slice(counted, row - counted).count_set_bits();
                counted = row;
                positions.push(live);
                kept.push(number);
            }
        }
        if kept.is_empty() {
            return Ok(None);
        }
        let values = located.values.filter(&Mask::from_indices(located.len(), kept))?;
        Ok(Some(Self::new(positions, values, mask.true_count())))
    }

    /// The patches of the rows at `rows`, with positions among those; `None` if there are none.
    ///
    /// # Errors
    /// As [`locate`](Self::locate).
    pub(crate) fn take(&self, rows: &UInt64Array) -> Result<Option<Self>> {
        let located = self.locate()?;
        let (mut positions, mut numbers) = (Vec::new(), Vec::new());
        for (position, row) in rows.values().iter().enumerate() {
            if let Some(number) = located.find(row.as_usize()) {
                positions.push(position);
                numbers.push(number as u64);
            }
        }
        if positions.is_empty() {
            return Ok(None);
        }
        let values = located.values.take(&UInt64Array::from(numbers))?;
        Ok(Some(Self::new(positions, values, rows.len())))
    }
}

impl Indices {
    fn get(&self) -> Result<&[usize]> {
        Ok(get_or_try_init(&self.known, || self.decode())?)
    }

    fn decode(&self) -> Result<Box<[usize]>> {
        let Some(child) = &self.child else { return Ok(Box::default()) };
        let decoded = child.decode_preferred()?;
        let indices =
            with_integers!(decoded, "patch indices", |integers| positions::<true, _>(integers.values()))?
                .ok_or_else(|| Error::corrupt("patch indices are not ascending"))?;
        for index in indices.first().into_iter().chain(indices.last()) {
            if !self.window.contains(index) {
                return Err(Error::corrupt(format!("patch index {index} is not in {:?}", self.window)));
            }
        }
        Ok(indices.into())
    }
}

/// Which of some rows, in ascending order, are patched, and the numbers of their patches.
fn among(indices: &EncodedRef, offset: usize, rows: &[usize]) -> Result<(Vec<usize>, Vec<usize>)> {
    let wanted: Vec<u64> = rows.iter().map(|row| (row + offset) as u64).collect();
    let (mut positions, mut numbers) = (Vec::new(), Vec::new());
    for (position, found) in search(indices, &wanted)?.into_iter().enumerate() {
        // Unsorted indices may lead to arbitrary positions.
        if let Ok(number) = found
            && numbers.last().is_none_or(|last| *last < number)
        {
            positions.push(position);
            numbers.push(number);
        }
    }
    Ok((positions, numbers))
}

/// The patches of the owner's rows, located.
#[derive(Debug)]
pub(crate) struct Located<'a> {
    indices: &'a [usize],
    offset: usize,
    /// One value per patch.
    pub(crate) values: EncodedRef,
}

impl Located<'_> {
    /// Number of patches.
    pub(crate) fn len(&self) -> usize {
        self.indices.len()
    }

    /// Whether no row is patched.
    pub(crate) fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// The patched rows, in ascending order.
    pub(crate) fn rows(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.indices.iter().map(|index| index - self.offset)
    }

    /// The bits of all rows, with those of patched rows overwritten by the bits of their patches.
    pub(crate) fn overwrite(
        &self,
        bits: &BooleanBuffer,
        of_patches: impl Iterator<Item = bool>,
    ) -> BooleanBuffer {
        let mut all = BooleanBufferBuilder::new(bits.len());
        all.append_buffer(bits);
        self.overwritten(all, of_patches)
    }

    /// `len` equal bits, except in patched rows, which have those of their patches.
    pub(crate) fn spread(
        &self,
        len: usize,
        fill: bool,
        of_patches: impl Iterator<Item = bool>,
    ) -> BooleanBuffer {
        let mut all = BooleanBufferBuilder::new(len);
        all.append_n(len, fill);
        self.overwritten(all, of_patches)
    }

    fn overwritten(
        &self,
        mut all: BooleanBufferBuilder,
        of_patches: impl Iterator<Item = bool>,
    ) -> BooleanBuffer {
        self.rows().zip(of_patches).for_each(|(row, bit)| all.set_bit(row, bit));
        all.finish()
    }

    /// The number of the patch of a row, if it is patched.
    pub(crate) fn find(&self, row: usize) -> Option<usize> {
        self.indices.binary_search(&(row + self.offset)).ok()
    }
}

/// Encoded patches, to be written.
#[derive(Debug)]
pub(crate) struct EncodedPatches {
    pub(crate) message: PatchesMessage,
    pub(crate) indices: WriteNode,
    pub(crate) values: WriteNode,
}

impl EncodedPatches {
    /// Patches of some rows, ascending and at least one, whose values are `values`.
    pub(crate) fn new(rows: &[u32], values: WriteNode) -> Self {
        let last = rows.last().copied().unwrap_or_default();
        let ptype = PType::for_unsigned(last.into());
        let indices = match_word!(ptype, |W| {
            primitive::encode(rows.iter().map(|row| W::narrow((*row).into())).collect::<Vec<_>>(), None)
        });
        Self::with_indices(rows.len(), ptype, indices, values)
    }

    /// Patches of `len` rows; the indices are ascending encoded integers of type `ptype`.
    pub(crate) fn with_indices(len: usize, ptype: PType, indices: WriteNode, values: WriteNode) -> Self {
        let message = PatchesMessage {
            len: len as u64,
            offset: 0,
            indices_ptype: ptype as i32,
            chunk_offsets_len: None,
            chunk_offsets_ptype: None,
        };
        Self { message, indices, values }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::build::Tree;
    use crate::array::{ArrayRef, EncodedArray, Header};
    use crate::encodings::Encoding;
    use arrow::array::{Array as _, Int32Array};
    use arrow::datatypes::DataType;

    /// An owner whose rows are zero unless they are patched.
    #[derive(Debug)]
    struct Zeros(Header, Patches);

    impl EncodedArray for Zeros {
        fn header(&self) -> &Header {
            &self.0
        }

        fn decode(&self, _: &DataType) -> Result<ArrayRef> {
            let mut out = vec![0i32; self.len()];
            self.1.apply(&mut out, |_, value| value)?;
            Ok(Arc::new(Int32Array::from(out)))
        }

        fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
            let Pick::Slice(rows) = pick else { return self.to_decoded()?.pick(pick) };
            Ok(Arc::new(Self(self.0.of_rows(rows.len()), self.1.slice(rows.clone()))))
        }
    }

    struct ZerosEncoding;

    impl Encoding for ZerosEncoding {
        fn id(&self) -> &'static str {
            "zeros"
        }

        fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
            let message = node.message::<PatchesMessage>()?;
            node.expect_children(message.child_count())?;
            Ok(Arc::new(Zeros(
                node.header("zeros"),
                Patches::load(node, &message, 0, &DType::Primitive(PType::I32, false))?,
            )))
        }
    }

    fn message(len: u64, offset: u64) -> PatchesMessage {
        PatchesMessage { len, offset, indices_ptype: 1, ..Default::default() }
    }

    fn load(message: &PatchesMessage, indices: &[u16], rows: usize) -> Result<Zeros> {
        let values: Vec<i32> = indices.iter().map(|index| i32::from(*index) + 1).collect();
        let tree = Tree::new("zeros")
            .message(message)
            .child(Tree::primitive(indices))
            .child(Tree::primitive(&values));
        let registry = crate::Registry::built_in().with_encoding(Arc::new(ZerosEncoding));
        let dtype = DType::Primitive(PType::I32, false);
        let array = tree.load_with(&dtype, rows, &registry)?;
        let any: Arc<dyn std::any::Any + Send + Sync> = array;
        Ok(Arc::into_inner(any.downcast::<Zeros>().unwrap()).unwrap())
    }

    fn decoded(patches: &Patches) -> Vec<i32> {
        let mut out = vec![0; patches.rows];
        patches.apply(&mut out, |_, value: i32| value).unwrap();
        out
    }

    #[test]
    fn indices_count_from_the_offset() {
        let Zeros(_, patches) = load(&message(3, 10), &[10, 12, 15], 6).unwrap();
        assert_eq!(decoded(&patches), [11, 0, 13, 0, 0, 16]);
        assert_eq!(decoded(&patches.slice(2..5)), [13, 0, 0]);
        assert_eq!(decoded(&patches.slice(2..6).slice(1..4)), [0, 0, 16]);
        assert_eq!(decoded(&patches.slice(3..3)), [0; 0]);
    }

    #[test]
    fn filter_and_take_count_among_the_rows_kept() {
        let Zeros(_, patches) = load(&message(4, 0), &[0, 2, 3, 7], 9).unwrap();
        let kept = patches.filter(&Mask::from_indices(9, [1, 2, 6, 7])).unwrap().unwrap();
        assert_eq!(decoded(&kept), [0, 3, 0, 8]);
        assert!(patches.filter(&Mask::from_indices(9, [1, 4])).unwrap().is_none());
        let taken = patches.take(&UInt64Array::from(vec![8, 7, 0, 0, 1])).unwrap().unwrap();
        assert_eq!(decoded(&taken), [0, 8, 1, 1, 0]);
        let sliced = patches.slice(2..9);
        assert_eq!(decoded(&sliced.filter(&Mask::from_indices(7, [0, 5])).unwrap().unwrap()), [3, 8]);
    }

    #[test]
    fn bits_of_patched_rows_are_overwritten() {
        let Zeros(_, patches) = load(&message(3, 10), &[10, 12, 15], 6).unwrap();
        let bits = BooleanBuffer::from(vec![true, true, true, false, true, false]);
        let overwritten = patches.locate().unwrap().overwrite(&bits, [false, true, true].into_iter());
        assert_eq!(overwritten, BooleanBuffer::from(vec![false, true, true, false, true, true]));
    }

    #[test]
    fn indices_that_fall_or_leave_the_rows_are_corrupt() {
        for (offset, indices) in [(0, [1, 1]), (0, [3, 2]), (0, [1, 6]), (2, [1, 3]), (2, [2, 8])] {
            let Zeros(_, patches) = load(&message(2, offset), &indices, 6).unwrap();
            assert!(patches.locate().is_err(), "{indices:?} from {offset}");
        }
    }

    #[test]
    fn contradicting_messages_are_corrupt() {
        assert!(load(&message(3, 0), &[1, 2], 6).is_err(), "more patches than indices");
        assert!(load(&message(2, 0), &[0, 1], 1).is_err(), "more patches than rows");
        assert!(load(&message(2, u64::MAX), &[1, 2], 6).is_err(), "offset overflows");
        let signed = PatchesMessage { indices_ptype: 5, ..message(2, 0) };
        assert!(load(&signed, &[1, 2], 6).is_err(), "signed indices");
        let counted = PatchesMessage { chunk_offsets_ptype: Some(0), ..message(2, 0) };
        assert_eq!(counted.child_count(), 3);
        assert!(load(&counted, &[1, 2], 6).is_err(), "chunk offsets announced but absent");
    }

    #[test]
    fn a_zero_chunk_offset_type_announces_the_child() {
        let counted =
            PatchesMessage { chunk_offsets_len: Some(1), chunk_offsets_ptype: Some(0), ..message(1, 0) };
        let mut bytes = Vec::new();
        prost::Message::encode(&counted, &mut bytes).unwrap();
        assert!(bytes.ends_with(&[0x28, 0x00]), "{bytes:?}");
        let array = load(&message(1, 0), &[2], 4).unwrap();
        assert_eq!(array.decode(&DataType::Int32).unwrap().len(), 4);
    }
}
