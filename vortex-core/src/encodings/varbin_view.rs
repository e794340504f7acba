//! Strings and byte strings referenced by views: short ones within the view, long ones in data buffers.
//!
//! ```text
//! buffers   data 0, data 1, ..., views
//! view      [u32 length][12 bytes]  or  [u32 length][4 bytes][u32 buffer][u32 offset]
//! ```
//!
//! No metadata. Optional child: the validity. Views of null rows and padding are arbitrary. Arrow's views
//! have the same layout, so decoding checks them and shares everything. Views may also share bytes with each
//! other, so that reading all values takes far longer than the file is large: if values have more bytes than
//! there are, all of these count as decoded.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::builder::GenericByteViewBuilder;
use arrow::array::{Array as _, GenericByteViewArray};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{ByteViewType, DataType};

use super::Encoding;
use super::varbin::VarBinArray;
use crate::array::{
    ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, ValidityChild, all, bytes,
};
use crate::dtype::arrow::data_type;
use crate::kernels::views::{MAX_INLINE, VIEW_BYTES, view_len};
use crate::wire::WriteNode;
use crate::{Error, Result};

/// The `vortex.varbinview` encoding.
#[derive(Debug)]
pub(super) struct VarBinView;

const ID: &str = "vortex.varbinview";

impl Encoding for VarBinView {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        bytes::is_text(node.dtype())?;
        node.no_metadata()?;
        let data = node.buffer_count().checked_sub(1).ok_or_else(|| Error::corrupt("views are missing"))?;
        let views = node.buffer(data)?;
        if node.len().checked_mul(VIEW_BYTES) != Some(views.len()) {
            return Err(Error::corrupt(format!("{} bytes of views for {} rows", views.len(), node.len())));
        }
        if data >= node.tree_buffer_count() {
            return Err(Error::corrupt(format!(
                "{data} data buffers, of {} stored",
                node.tree_buffer_count()
            )));
        }
        // They are kept one by one, even if they are empty.
        node.limits().count::<Buffer>(data)?;
        let data: Arc<[Buffer]> = (0..data).map(|at| node.buffer(at)).collect::<Result<_>>()?;
        Ok(Arc::new(VarBinViewArray {
            header: node.header(ID),
            views: ScalarBuffer::new(node.aligned(views, VIEW_BYTES)?, 0, node.len()),
            held: distinct_bytes(&data),
            data,
            validity: node.validity_child(0)?,
        }))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        bytes::is_text(node.dtype())?;
        node.no_metadata()?;
        let data = node.buffer_count().checked_sub(1).ok_or_else(|| Error::corrupt("views are missing"))?;
        let picked = node.of_rows(rows);
        // No `?` before all are loaded: see `load_rows`.
        let (views, validity) = (picked.values(data, VIEW_BYTES), picked.validity_child(0));
        let (views, validity) = (node.aligned(views?, VIEW_BYTES)?, validity?);
        let nulls = validity.decode()?.to_nulls(rows.len());
        let valid = |at: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(at));
        let views = views.typed_data::<u128>().iter().enumerate();
        // Views of null rows are arbitrary.
        let lens: Vec<usize> =
            views.clone().map(|(at, view)| if valid(at) { view_len(*view) } else { 0 }).collect();
        node.limits().count_bytes(lens.iter().copied().fold(0, usize::saturating_add) as u64)?;
        let (mut joined, mut offsets) = (Vec::new(), vec![0]);
        all(views.zip(&lens).map(|((_, view), len)| {
            let bytes = view.to_le_bytes();
            let [.., b0, b1, b2, b3, o0, o1, o2, o3] = bytes;
            let buffer = u32::from_le_bytes([b0, b1, b2, b3]) as usize;
            let start = u32::from_le_bytes([o0, o1, o2, o3]) as usize;
            match *len {
                len @ ..=MAX_INLINE => joined.extend_from_slice(&bytes[4..4 + len]),
                _ if buffer >= data => {
                    return Err(Error::corrupt(format!("a view into buffer {buffer} of {data}")));
                }
                len => {
                    node.with_piece(buffer, start..start + len, |bytes| joined.extend_from_slice(bytes))?
                }
            }
            offsets.push(joined.len() as u64);
            Ok(())
        }))?;
        Ok(VarBinArray::joined(node, joined.into(), offsets, validity))
    }
}

#[derive(Debug)]
struct VarBinViewArray {
    header: Header,
    views: ScalarBuffer<u128>,
    data: Arc<[Buffer]>,
    /// Bytes of the data, each counted once.
    held: usize,
    validity: ValidityChild,
}

/// Bytes of buffers, counting each once: a node may refer to one of its tree many times.
fn distinct_bytes(buffers: &[Buffer]) -> usize {
    let mut places: Vec<_> = buffers.iter().map(|buffer| (buffer.as_ptr(), buffer.len())).collect();
    places.sort_unstable();
    places.dedup();
    places.into_iter().map(|(_, len)| len).fold(0, usize::saturating_add)
}

impl VarBinViewArray {
    /// Counts the bytes of values that share some of them, as if each had its own.
    fn count_shared(&self, nulls: Option<&NullBuffer>) -> Result<()> {
        let valid = |row: usize| nulls.is_none_or(|nulls| nulls.is_valid(row));
        let lens =
            self.views.iter().enumerate().filter(|(row, _)| valid(*row)).map(|(_, view)| view_len(*view));
        let read = lens.filter(|len| *len > MAX_INLINE).fold(0, usize::saturating_add);
        if read > self.held {
            self.limits().count_bytes(read as u64)?;
        }
        Ok(())
    }
}

impl EncodedArray for VarBinViewArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        self.validity.named().into_iter().collect()
    }

    fn buffer_bytes(&self) -> usize {
        self.views.len() * VIEW_BYTES + self.data.iter().map(Buffer::len).sum::<usize>()
    }

    fn decodes_in_parts(&self) -> bool {
        true
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let nulls = self.validity()?.to_nulls(self.len());
        // Other types copy the values, which counts them anyway.
        if *to == data_type(self.dtype())? {
            self.count_shared(nulls.as_ref())?;
        }
        let (views, data) = (self.views.clone(), Arc::clone(&self.data));
        bytes::from_views(self.dtype(), to, views, data, nulls, self.limits())
    }

    fn validity(&self) -> Result<Validity> {
        self.validity.decode()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let views = match pick {
            Pick::Slice(rows) => self.views.slice(rows.start, rows.len()),
            Pick::Filter(mask) => {
                let mut views = Vec::with_capacity(mask.true_count());
                mask.runs().into_iter().for_each(|run| views.extend_from_slice(&self.views[run]));
                views.into()
            }
            Pick::Take(indices) => {
                debug_assert_eq!(indices.null_count(), 0, "indices of a take are not null");
                // Indices are in range of an array in memory, so they fit `usize`.
                indices.values().iter().map(|at| self.views[*at as usize]).collect()
            }
        };
        Ok(Arc::new(Self {
            header: self.header.of_rows(pick.row_count()),
            views,
            data: Arc::clone(&self.data),
            held: self.held,
            validity: self.validity.pick(pick)?,
        }))
    }
}

/// A node of strings or byte strings, with only the bytes that views refer to: those that several views share are there
/// once if that is shorter.
pub(crate) fn encode<T: ByteViewType>(
    array: &GenericByteViewArray<T>,
    validity: Option<WriteNode>,
) -> WriteNode {
    let buffers: HashSet<_> =
        array.data_buffers().iter().map(|bytes| (bytes.as_ptr(), bytes.len())).collect();
    let held = buffers.iter().fold(0usize, |sum, (_, len)| sum.saturating_add(*len));
    let compact = if array.total_buffer_bytes_used() <= held {
        array.gc()
    } else {
        let mut distinct = GenericByteViewBuilder::<T>::new().with_deduplicate_strings();
        array.iter().for_each(|value| distinct.append_option(value));
        distinct.finish()
    };
    let data = compact.data_buffers().iter();
    let node = data.fold(WriteNode::new(ID), |node, bytes| node.buffer(bytes.clone(), 1));
    node.buffer(compact.views().inner().clone(), VIEW_BYTES).children(validity)
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray as _, StringViewArray};

    use super::*;
    use crate::Registry;
    use crate::array::ArrayParts;
    use crate::array::build::Tree;
    use crate::dtype::DType;
    use crate::encodings::shared::conformance;
    use crate::expr::{Like, Predicate};
    use crate::limits::Limits;
    use crate::wire::RawNode;

    fn tree(array: &StringViewArray) -> Tree {
        let mut tree = Tree::new(ID);
        for buffer in array.data_buffers().iter() {
            tree = tree.buffer(buffer.clone());
        }
        tree.buffer(array.views().inner().clone())
    }

    fn words() -> Vec<String> {
        (0..70).map(|at| format!("{}{at}", "a longer string, e. g. with ü".repeat(at % 3))).collect()
    }

    #[test]
    fn conforms() {
        let array = StringViewArray::from_iter_values(words());
        let loaded = tree(&array).load(&DType::Utf8(false), 70).unwrap();
        conformance::check(&loaded, &(Arc::new(array) as ArrayRef));

        let valid: Vec<bool> = (0..70).map(|at| at % 5 != 2).collect();
        let rows = words().into_iter().zip(&valid).map(|(word, valid)| valid.then_some(word));
        let array: StringViewArray = rows.collect();
        let loaded = tree(&array).child(Tree::bools(&valid)).load(&DType::Utf8(true), 70).unwrap();
        conformance::check(&loaded, &(Arc::new(array) as ArrayRef));
    }

    #[test]
    fn decoding_shares_the_views() {
        let array = StringViewArray::from_iter_values(words());
        let loaded = tree(&array).load(&DType::Utf8(false), 70).unwrap();
        let decoded = loaded.decode(&DataType::Utf8View).unwrap();
        assert_eq!(decoded.as_string_view().views().inner().as_ptr(), array.views().inner().as_ptr());
        let text = loaded.decode(&DataType::Utf8).unwrap();
        assert_eq!(text.as_string::<i32>().value(2), array.value(2));
    }

    #[test]
    fn views_of_null_rows_and_padding_are_arbitrary() {
        let views = [u128::MAX, 2 | u128::from(u16::from_le_bytes(*b"ok")) << 32 | 0xAB << 100];
        let tree = Tree::new(ID).buffer(Buffer::from_slice_ref(views)).child(Tree::bools(&[false, true]));
        let expected: ArrayRef = Arc::new(StringViewArray::from(vec![None, Some("ok")]));
        conformance::check(&tree.load(&DType::Utf8(true), 2).unwrap(), &expected);
    }

    #[test]
    fn values_that_share_bytes_are_limited_as_if_each_had_its_own() {
        let one = StringViewArray::from(vec!["x".repeat(1000)]);
        let load = |valid: &[bool], limit| {
            // Naming a buffer again adds no bytes.
            let data = &one.data_buffers()[0];
            let tree = (0..10).fold(Tree::new(ID), |tree, _| tree.buffer(data.clone()));
            let tree = tree.buffer(Buffer::from_vec(vec![one.views()[0]; valid.len()]));
            let limits = Limits::new().with_max_decoded_bytes(limit);
            let tree = tree.child(Tree::bools(valid));
            tree.load_within(&DType::Utf8(true), valid.len(), &limits).unwrap()
        };
        let like = Predicate::Like(Like::new("%y%"));
        let array = load(&[true; 8], 8000);
        assert_eq!(array.decode(&DataType::Utf8View).unwrap().len(), 8);
        assert_eq!(array.matches(&like).unwrap().true_count(), 0);
        let array = load(&[true; 8], 7999);
        for error in [array.decode(&DataType::Utf8View).unwrap_err(), array.matches(&like).unwrap_err()] {
            assert!(matches!(error, Error::LimitExceeded(_)), "{error}");
        }
        assert!(array.slice(0..7).unwrap().matches(&like).is_ok());
        let one_valid = [true, false, false, false, false, false, false, false];
        assert!(load(&one_valid, 999).matches(&like).is_ok(), "no bytes are shared");
    }

    #[test]
    fn misaligned_views_are_copied() {
        let array = StringViewArray::from_iter_values(words());
        let mut bytes = vec![0u8; 1];
        bytes.extend(array.views().inner().as_slice());
        let tree = Tree::new(ID).buffer(array.data_buffers()[0].clone()).buffer(Buffer::from(bytes).slice(1));
        let loaded = tree.load(&DType::Utf8(false), 70).unwrap();
        assert_eq!(&loaded.decode(&DataType::Utf8View).unwrap(), &(Arc::new(array) as ArrayRef));
    }

    #[test]
    fn counts_and_ranges_are_checked() {
        let load = |tree: &Tree, len| tree.load(&DType::Utf8(false), len);
        let long = Tree::new(ID).buffer(Buffer::from_slice_ref([40u128]));
        assert!(load(&long, 1).unwrap().decode(&DataType::Utf8View).is_err());
        assert!(load(&long, 2).is_err());
        assert!(load(&Tree::new(ID), 0).is_err());
        let buffers = vec![Buffer::default(); 3];
        for (named, is_sound) in [(vec![0, 1, 2], true), (vec![0, 0, 1], true), (vec![0, 0, 0, 1], false)] {
            let root = RawNode { buffers: named, ..RawNode::default() };
            let parts = ArrayParts::new(root, buffers.clone(), [ID.into()].into());
            let loaded = parts.load(&DType::Utf8(false), 0, &Registry::built_in(), &Limits::default());
            assert_eq!(loaded.is_ok(), is_sound);
        }
        assert!(load(&long.clone().metadata([1]), 1).is_err());
        assert!(load(&Tree::new(ID).buffer(Vec::<u8>::new()), 0).is_ok());
        assert!(load(&long, usize::MAX).is_err());
    }
}
