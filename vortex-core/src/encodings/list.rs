//! Lists whose elements are consecutive.
//!
//! ```text
//! offsets   [1,    3, 3,       6]      one more than rows; never decrease
//! elements   x  a  b     c  d  e  x    elements outside belong to no row
//! rows         [a b] [] [c  d  e]
//! ```
//!
//! Metadata: number of elements, integer type of the offsets. Children: elements, offsets, optionally the
//! validity. Slicing slices the offsets and shares the elements; decoding reads only the elements that
//! the offsets span. Selecting individual rows leaves gaps, so `filter` and `take` result in
//! [views](super::list_view).

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    ArrowPrimitiveType, GenericListArray, GenericListViewArray, OffsetSizeTrait, PrimitiveArray, UInt64Array,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowNativeType, ArrowNativeTypeOp, DataType, Field, FieldRef};

use super::Encoding;
use super::list_view::{ListViewArray, Views};
use super::shared::offsets::ends;
use crate::array::masking::without_hidden_items;
use crate::array::{
    ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, ValidityChild, decode_offsets, indices,
    integer_type, integers_child, one_more, present, with_integers,
};
use crate::dtype::{DType, PType};
use crate::limits::{Limits, Work};
use crate::wire::WriteNode;
use crate::{Error, Result};

/// The `vortex.list` encoding.
#[derive(Debug)]
pub(super) struct List;

const ID: &str = "vortex.list";

/// From this share of rows on, decoding all offsets is faster than fetching them for individual rows.
const MANY: f64 = 0.1;

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(uint64, tag = "1")]
    elements_len: u64,
    #[prost(int32, tag = "2")]
    offset_ptype: i32,
}

impl Encoding for List {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let (element, elements_len, offsets) = parts(node)?;
        let validity = node.validity_child(2)?;
        Ok(Arc::new(ListArray {
            header: node.header(ID),
            elements: node.child(0, element, elements_len)?,
            offsets: node.child(1, &offsets, one_more(node.len())?)?,
            validity,
        }))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        let (element, elements_len, offsets) = parts(node)?;
        // No `?` before all are loaded: see `load_rows`.
        let validity = node.of_rows(rows).validity_child(2);
        let ranges = node.ranges(1, &offsets, node.len(), rows, elements_len)?;
        let count = ranges.iter().fold(0usize, |count, range| count.saturating_add(range.len()));
        node.limits().count::<usize>(count)?;
        let offsets = ends(&ranges);
        let wanted: Vec<usize> = ranges.into_iter().flatten().collect();
        let elements = node.child_rows(0, element, elements_len, &wanted)?;
        Ok(lists(node.dtype(), elements, offsets, validity?, node.limits()))
    }
}

/// An array of lists: each reaches from one of these offsets, which must not decrease, to the next.
pub(crate) fn lists(
    dtype: &DType,
    elements: EncodedRef,
    offsets: Vec<u64>,
    validity: ValidityChild,
    limits: &Limits,
) -> EncodedRef {
    let header = Header::new(ID, dtype.clone(), offsets.len() - 1, limits);
    Arc::new(ListArray { header, elements, offsets: integers_child(offsets, limits), validity })
}

/// The type of a node's elements, their number, and the type of the offsets.
fn parts<'a>(node: &Node<'a>) -> Result<(&'a DType, usize, DType)> {
    let DType::List(element, _) = node.dtype() else {
        return Err(Error::corrupt(format!("holds lists, not {}", node.dtype())));
    };
    let metadata = node.message::<Metadata>()?;
    node.expect_buffers(0)?;
    Ok((element, elements_len(metadata.elements_len)?, integer_type(metadata.offset_ptype, "list offsets")?))
}

/// The number of elements according to the metadata.
pub(super) fn elements_len(claimed: u64) -> Result<usize> {
    usize::try_from(claimed).map_err(|_| Error::corrupt(format!("{claimed} elements")))
}

#[derive(Debug)]
struct ListArray {
    header: Header,
    elements: EncodedRef,
    offsets: EncodedRef,
    validity: ValidityChild,
}

impl ListArray {
    /// Offsets starting at zero, and the elements they refer to, decoded as `item`.
    fn parts<O: OffsetSizeTrait>(&self, item: &Field) -> Result<(OffsetBuffer<O>, ArrayRef)> {
        self.limits().count::<O>(self.offsets.len())?;
        let offsets = self.offsets.decode_preferred()?;
        let (offsets, window) =
            with_integers!(offsets, "list offsets", |offsets| rebase::<_, O>(offsets, self.elements.len())?)?;
        let elements = window_of(&self.elements, window)?.decode(item.data_type())?;
        Ok((offsets, elements))
    }

    /// The lists in these rows, as views of the same elements.
    fn views_at(&self, rows: &UInt64Array) -> Result<Views> {
        let few = (rows.len() as f64) < self.len() as f64 * MANY;
        if few {
            // Rows are below `len`, so their next offsets exist and the addition does not overflow.
            let next: UInt64Array = rows.values().iter().map(|row| row + 1).collect::<Vec<_>>().into();
            return Views::between(&self.offsets.take(rows)?, &self.offsets.take(&next)?);
        }
        let offsets = decode_offsets(&self.offsets, "list offsets", self.elements.len())?;
        let views = rows.values().iter().map(|row| {
            let row = row.as_usize();
            (offsets[row], offsets[row + 1] - offsets[row])
        });
        Ok(views.collect())
    }
}

/// The elements in `window`.
pub(super) fn window_of(elements: &EncodedRef, window: Range<usize>) -> Result<EncodedRef> {
    if window == (0..elements.len()) { Ok(Arc::clone(elements)) } else { elements.slice(window) }
}

/// Checks offsets and rebases them to start at zero; also returns the window they span.
fn rebase<T: ArrowPrimitiveType, O: OffsetSizeTrait>(
    offsets: &PrimitiveArray<T>,
    elements: usize,
) -> Result<(OffsetBuffer<O>, Range<usize>)> {
    let offsets = offsets.values();
    let (Some(first), Some(last)) = (offsets.first(), offsets.last()) else {
        return Err(Error::corrupt("a list without offsets"));
    };
    let window = match (first.to_usize(), last.to_usize()) {
        (Some(start), Some(end)) if end <= elements => start..end,
        _ => {
            return Err(Error::corrupt(format!("list offsets {first:?} to {last:?} of {elements} elements")));
        }
    };
    // Branch-free, so that many offsets are checked at once.
    if offsets.windows(2).fold(false, |falls, pair| falls | pair[0].is_gt(pair[1])) {
        return Err(Error::corrupt("list offsets decrease"));
    }
    if O::from_usize(window.len()).is_none() {
        return Err(Error::limit(format!("{} elements of lists with {} offsets", window.len(), O::PREFIX)));
    }
    let wanted = if O::IS_LARGE { DataType::Int64 } else { DataType::Int32 };
    let offsets = if window.start == 0 && T::DATA_TYPE == wanted {
        ScalarBuffer::new(offsets.inner().clone(), 0, offsets.len())
    } else {
        offsets.iter().map(|offset| O::usize_as(offset.as_usize() - window.start)).collect()
    };
    Ok((OffsetBuffer::new(offsets), window))
}

/// An Arrow list array.
pub(super) fn arrow_list<O: OffsetSizeTrait>(
    field: &FieldRef,
    (offsets, elements): (OffsetBuffer<O>, ArrayRef),
    validity: &Validity,
) -> Result<ArrayRef> {
    let nulls = validity.to_nulls(offsets.len() - 1);
    without_hidden_items(Arc::new(GenericListArray::try_new(Arc::clone(field), offsets, elements, nulls)?))
}

/// An Arrow list-view array of consecutive lists.
fn arrow_view<O: OffsetSizeTrait>(
    field: &FieldRef,
    (offsets, elements): (OffsetBuffer<O>, ArrayRef),
    validity: &Validity,
) -> Result<ArrayRef> {
    let sizes: ScalarBuffer<O> = offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let offsets = offsets.into_inner().slice(0, sizes.len());
    let nulls = validity.to_nulls(sizes.len());
    let views = GenericListViewArray::try_new(Arc::clone(field), offsets, sizes, elements, nulls)?;
    without_hidden_items(Arc::new(views))
}

impl EncodedArray for ListArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        let validity = self.validity.named();
        let children = [("elements", &self.elements), ("offsets", &self.offsets)];
        children.into_iter().chain(validity).collect()
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let _work = Work::begin();
        let validity = self.validity()?;
        match to {
            DataType::List(item) => arrow_list(item, self.parts::<i32>(item)?, &validity),
            DataType::LargeList(item) => arrow_list(item, self.parts::<i64>(item)?, &validity),
            DataType::ListView(item) => arrow_view(item, self.parts::<i32>(item)?, &validity),
            DataType::LargeListView(item) => arrow_view(item, self.parts::<i64>(item)?, &validity),
            _ => present(self.decode_preferred()?, to),
        }
    }

    fn validity(&self) -> Result<Validity> {
        self.validity.decode()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let (elements, validity) = (Arc::clone(&self.elements), self.validity.pick(pick)?);
        let views = match pick {
            Pick::Slice(rows) => {
                let header = self.header.of_rows(rows.len());
                let offsets = self.offsets.slice(rows.start..rows.end + 1)?;
                return Ok(Arc::new(Self { header, elements, offsets, validity }));
            }
            Pick::Filter(mask) => self.views_at(&indices(&mask.indices()))?,
            Pick::Take(indices) => self.views_at(indices)?,
        };
        Ok(Arc::new(ListViewArray::new(self.dtype().clone(), elements, views, validity, self.limits())))
    }
}

/// A node of lists that `offsets`, one more than lists, cut out of `elements_len` elements.
pub(crate) fn encode(
    elements: WriteNode,
    elements_len: usize,
    offsets: (PType, WriteNode),
    validity: Option<WriteNode>,
) -> WriteNode {
    let metadata = Metadata { elements_len: elements_len as u64, offset_ptype: offsets.0 as i32 };
    WriteNode::new(ID).message(&metadata).child(elements).child(offsets.1).children(validity)
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray as _, Int32Array, ListArray as ArrowList};

    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::arrow::data_type;
    use crate::encodings::shared::conformance;

    fn lists(nullable: bool) -> DType {
        DType::List(Arc::new(DType::Primitive(PType::I32, false)), nullable)
    }

    fn tree<T: ArrowNativeType>(ptype: PType, elements: &[i32], offsets: &[T]) -> Tree {
        let metadata = Metadata { elements_len: elements.len() as u64, offset_ptype: ptype as i32 };
        let tree = Tree::new(ID).message(&metadata);
        tree.child(Tree::primitive(elements)).child(Tree::primitive(offsets))
    }

    fn expected(offsets: Vec<i32>, elements: Vec<i32>, nulls: Option<Vec<bool>>) -> ArrayRef {
        let field = Arc::new(Field::new("item", DataType::Int32, false));
        let elements = Arc::new(Int32Array::from(elements));
        let offsets = OffsetBuffer::new(offsets.into());
        Arc::new(ArrowList::new(field, offsets, elements, nulls.map(Into::into)))
    }

    /// 100 lists of 0 to 4 elements; two elements before and one after them belong to no list.
    fn sample() -> (Vec<i32>, Vec<i32>) {
        let mut end = 2;
        let starts = (0..=100).map(|at| {
            end += (at + 4) % 5;
            end - (at + 4) % 5
        });
        let offsets: Vec<i32> = starts.collect();
        let elements = (0..=offsets[100]).collect();
        (offsets, elements)
    }

    #[test]
    fn conforms() {
        let (offsets, elements) = sample();
        let wanted = |nulls| expected(offsets.clone(), elements.clone(), nulls);
        let array = tree(PType::I32, &elements, &offsets).load(&lists(false), 100).unwrap();
        conformance::check(&array, &wanted(None));

        let valid: Vec<bool> = (0..100).map(|at| at % 3 != 0).collect();
        let small: Vec<u16> = offsets.iter().map(|offset| u16::try_from(*offset).unwrap()).collect();
        let nullable = tree(PType::U16, &elements, &small).child(Tree::bools(&valid));
        conformance::check(&nullable.load(&lists(true), 100).unwrap(), &wanted(Some(valid)));
    }

    #[test]
    fn all_list_types_show_the_same_rows() {
        let (offsets, elements) = sample();
        let array = tree(PType::I32, &elements, &offsets).load(&lists(false), 100).unwrap();
        let wanted = expected(offsets, elements, None);
        let item = Arc::new(Field::new("element", DataType::Int64, true));
        let narrow = Arc::new(Field::new("element", DataType::Int32, true));
        for to in [
            DataType::LargeList(Arc::clone(&narrow)),
            DataType::ListView(Arc::clone(&narrow)),
            DataType::LargeListView(narrow),
            DataType::List(item),
        ] {
            for array in [Arc::clone(&array), array.take(&(0..100u64).collect::<Vec<_>>().into()).unwrap()] {
                let decoded = array.decode(&to).unwrap();
                decoded.to_data().validate_full().unwrap();
                assert_eq!(decoded.data_type(), &to);
                let back = present(decoded, wanted.data_type()).unwrap();
                assert_eq!(&back, &wanted);
            }
        }
    }

    #[test]
    fn a_slice_decodes_only_its_own_elements() {
        let (offsets, elements) = sample();
        let array = tree(PType::I32, &elements, &offsets).load(&lists(false), 100).unwrap();
        let slice = array.slice(10..13).unwrap().decode(&data_type(&lists(false)).unwrap()).unwrap();
        assert_eq!(slice.as_list::<i32>().values().len(), 5);
        let picked = array.take(&UInt64Array::from(vec![4, 99])).unwrap();
        let picked = picked.decode(&data_type(&lists(false)).unwrap()).unwrap();
        assert_eq!(picked.as_list::<i32>().values().len(), 6);
    }

    #[test]
    fn offsets_that_fall_or_lead_outside_are_corrupt() {
        let to = data_type(&lists(false)).unwrap();
        for offsets in [[0, 3, 2], [-1, 0, 1], [0, 1, 4], [2, 1, 3]] {
            let array = tree(PType::I32, &[7, 8, 9], &offsets).load(&lists(false), 2).unwrap();
            assert!(array.decode(&to).is_err(), "{offsets:?}");
            let picked = array.take(&UInt64Array::from(vec![0, 1])).and_then(|rows| rows.decode(&to));
            assert!(picked.is_err(), "{offsets:?}");
        }
        assert!(tree(PType::F32, &[7], &[0.0f32, 1.0]).load(&lists(false), 1).is_err());
        assert!(tree(PType::I32, &[7], &[0, 1]).load(&lists(false), 2).is_err());
    }

    #[test]
    fn elements_keep_their_nulls() {
        let dtype = DType::List(Arc::new(DType::Primitive(PType::I32, true)), false);
        let metadata = Metadata { elements_len: 3, offset_ptype: PType::U8 as i32 };
        let elements = Tree::primitive(&[1i32, 2, 3]).child(Tree::bools(&[true, false, true]));
        let tree = Tree::new(ID).message(&metadata).child(elements).child(Tree::primitive(&[0u8, 2, 3]));
        let field = Arc::new(Field::new("item", DataType::Int32, true));
        let elements = Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]));
        let wanted = ArrowList::new(field, OffsetBuffer::from_lengths([2, 1]), elements, None);
        conformance::check(&tree.load(&dtype, 2).unwrap(), &(Arc::new(wanted) as ArrayRef));
    }
}
