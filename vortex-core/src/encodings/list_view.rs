//! Lists that each have their own start and length.
//!
//! ```text
//! offsets   [4,     0,   1]
//! sizes     [2,     2,   0]
//! elements   a b x x c d
//! rows      [c d] [a b] []       any order, gaps and overlaps allowed
//! ```
//!
//! Metadata: number of elements, integer types of offsets and sizes. Children: elements, offsets, sizes,
//! optionally the validity. Selecting rows selects offsets and sizes and shares the elements. Decoding
//! reads the elements that rows refer to, each of them once; if rows share elements and the requested
//! type does not allow that, they are copied within the limits of the reader.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array as _, GenericListViewArray, OffsetSizeTrait, UInt64Array};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowNativeType as _, DataType, Field, FieldRef};

use super::Encoding;
use super::list::{arrow_list, elements_len, window_of};
use crate::array::{
    ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, ValidityChild, integer_type,
    integers_child, present, take_within, with_integers,
};
use crate::dtype::{DType, PType};
use crate::limits::{Limits, Work};
use crate::mask::Mask;
use crate::row_ranges::merged;
use crate::wire::WriteNode;
use crate::{Error, Result};

/// The `vortex.listview` encoding.
#[derive(Debug)]
pub(super) struct ListView;

pub(super) const ID: &str = "vortex.listview";

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(uint64, tag = "1")]
    elements_len: u64,
    #[prost(int32, tag = "2")]
    offset_ptype: i32,
    #[prost(int32, tag = "3")]
    size_ptype: i32,
}

impl Encoding for ListView {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let Parts { element, elements_len, offset, size } = Parts::of(node)?;
        let validity = node.validity_child(3)?;
        Ok(Arc::new(ListViewArray {
            header: node.header(ID),
            elements: node.child(0, element, elements_len)?,
            offsets: node.child(1, &offset, node.len())?,
            sizes: node.child(2, &size, node.len())?,
            validity,
        }))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        let Parts { element, elements_len, offset, size } = Parts::of(node)?;
        // No `?` before all are loaded: see `load_rows`.
        let validity = node.of_rows(rows).validity_child(3);
        let offsets = node.child_rows(1, &offset, node.len(), rows);
        let sizes = node.child_rows(2, &size, node.len(), rows);
        let validity = validity?;
        let nulls = validity.decode()?.to_nulls(rows.len());
        let mut views = Views::read(&offsets?, &sizes?, nulls.as_ref(), elements_len)?;
        let runs = views.runs();
        let count = runs.iter().fold(0usize, |count, run| count.saturating_add(run.len()));
        node.limits().count::<usize>(count)?;
        views.compact(&runs);
        let wanted: Vec<usize> = runs.into_iter().flatten().collect();
        let elements = node.child_rows(0, element, elements_len, &wanted)?;
        Ok(Arc::new(ListViewArray::new(node.dtype().clone(), elements, views, validity, node.limits())))
    }
}

/// What a node says of its children.
struct Parts<'a> {
    element: &'a DType,
    elements_len: usize,
    /// The types of offsets and sizes.
    offset: DType,
    size: DType,
}

impl<'a> Parts<'a> {
    fn of(node: &Node<'a>) -> Result<Self> {
        let DType::List(element, _) = node.dtype() else {
            return Err(Error::corrupt(format!("holds lists, not {}", node.dtype())));
        };
        let metadata = node.message::<Metadata>()?;
        node.expect_buffers(0)?;
        Ok(Self {
            element,
            elements_len: elements_len(metadata.elements_len)?,
            offset: integer_type(metadata.offset_ptype, "list offsets")?,
            size: integer_type(metadata.size_ptype, "list sizes")?,
        })
    }
}

/// Lists as (offset, size) pairs.
#[derive(Debug)]
pub(super) struct Views {
    offsets: Vec<usize>,
    sizes: Vec<usize>,
}

impl FromIterator<(usize, usize)> for Views {
    fn from_iter<I: IntoIterator<Item = (usize, usize)>>(views: I) -> Self {
        let (offsets, sizes) = views.into_iter().unzip();
        Self { offsets, sizes }
    }
}

impl Views {
    /// The views of rows over so many elements. Those of null rows are arbitrary, and made empty.
    ///
    /// # Errors
    /// If a list reaches beyond the elements.
    fn read(
        offsets: &EncodedRef,
        sizes: &EncodedRef,
        nulls: Option<&NullBuffer>,
        elements_len: usize,
    ) -> Result<Self> {
        let mut views = Self { offsets: decode_counts(offsets)?, sizes: decode_counts(sizes)? };
        if let Some(nulls) = nulls {
            let rows = views.offsets.iter_mut().zip(&mut views.sizes).zip(nulls.iter());
            rows.filter(|(_, valid)| !valid).for_each(|((offset, size), _)| (*offset, *size) = (0, 0));
        }
        let outside =
            |(offset, size): (&usize, &usize)| offset.checked_add(*size).is_none_or(|end| end > elements_len);
        if views.offsets.iter().zip(&views.sizes).any(outside) {
            return Err(Error::corrupt(format!("a list reaches beyond {elements_len} elements")));
        }
        Ok(views)
    }

    /// Creates views from the start and the end of each list.
    pub(super) fn between(starts: &EncodedRef, ends: &EncodedRef) -> Result<Self> {
        let (offsets, ends) = (decode_counts(starts)?, decode_counts(ends)?);
        let sizes = offsets.iter().zip(&ends).map(|(start, end)| end.checked_sub(*start));
        let sizes = sizes.collect::<Option<_>>().ok_or_else(|| Error::corrupt("list offsets decrease"))?;
        Ok(Self { offsets, sizes })
    }

    /// The ranges of elements of all lists that are not empty.
    fn ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let views = self.offsets.iter().zip(&self.sizes);
        views.filter(|(_, size)| **size > 0).map(|(offset, size)| *offset..*offset + *size)
    }

    /// Total number of elements, counting shared ones for each list.
    fn total(&self) -> Result<usize> {
        let total = self.sizes.iter().try_fold(0usize, |sum, size| sum.checked_add(*size));
        total.ok_or_else(|| Error::limit("lists of more than 2^64 elements"))
    }

    /// Whether each list starts at or after the end of the previous one.
    fn rise(&self) -> bool {
        let mut end = 0;
        self.ranges().all(|range| {
            let rises = range.start >= end;
            end = range.end;
            rises
        })
    }

    /// The elements in use, as disjoint ascending runs.
    fn runs(&self) -> Vec<Range<usize>> {
        merged(self.ranges().collect(), 0)
    }

    /// Rebases offsets to the positions of elements after only `runs` are kept. Empty lists start at 0.
    fn compact(&mut self, runs: &[Range<usize>]) {
        let starts: Vec<usize> = runs
            .iter()
            .scan(0, |sum, run| {
                let start = *sum;
                *sum += run.len();
                Some(start)
            })
            .collect();
        let mut at = 0;
        for (offset, size) in self.offsets.iter_mut().zip(&self.sizes) {
            if *size == 0 {
                *offset = 0;
                continue;
            }
            // Neighbouring lists mostly lie in the same run.
            if !runs[at].contains(offset) {
                at = runs.partition_point(|run| run.end <= *offset);
            }
            *offset = *offset - runs[at].start + starts[at];
        }
    }
}

/// Decodes non-null integers. Negative ones become huge, so that they reach beyond any elements.
fn decode_counts(child: &EncodedRef) -> Result<Vec<usize>> {
    child.limits().count::<usize>(child.len())?;
    let decoded = child.decode_preferred()?;
    with_integers!(decoded, "list offsets or sizes", |integers| {
        integers.values().iter().map(|value| value.as_usize()).collect()
    })
}

/// Lists given by offsets and sizes of shared elements.
#[derive(Debug)]
pub(super) struct ListViewArray {
    header: Header,
    elements: EncodedRef,
    offsets: EncodedRef,
    sizes: EncodedRef,
    validity: ValidityChild,
}

impl ListViewArray {
    /// Creates an array of `views`, one per row.
    pub(super) fn new(
        dtype: DType,
        elements: EncodedRef,
        views: Views,
        validity: ValidityChild,
        limits: &Limits,
    ) -> Self {
        let child = |values: Vec<usize>| {
            integers_child(values.into_iter().map(|value| value as u64).collect(), limits)
        };
        let (offsets, sizes) = (child(views.offsets), child(views.sizes));
        Self { header: Header::new(ID, dtype, offsets.len(), limits), elements, offsets, sizes, validity }
    }

    fn views(&self, nulls: Option<&NullBuffer>) -> Result<Views> {
        Views::read(&self.offsets, &self.sizes, nulls, self.elements.len())
    }

    /// Decodes the elements in use and rebases the views to their new positions; keeps small gaps between
    /// them if `gaps` allows it.
    fn gather(&self, views: &mut Views, item: &Field, gaps: bool) -> Result<ArrayRef> {
        let runs = views.runs();
        let window = match (runs.first(), runs.last()) {
            (Some(first), Some(last)) => first.start..last.end,
            _ => 0..0,
        };
        let elements = window_of(&self.elements, window.clone())?;
        let used: usize = runs.iter().map(Range::len).sum();
        if used == window.len() || (gaps && used > window.len() / 2) {
            views.compact(std::slice::from_ref(&window));
            return elements.decode(item.data_type());
        }
        self.limits().count_bytes(Mask::max_bytes(window.len(), used) as u64)?;
        views.compact(&runs);
        let runs = runs.iter().map(|run| run.start - window.start..run.end - window.start);
        let used = elements.filter(&Mask::from_runs(window.len(), runs))?;
        used.decode(item.data_type())
    }

    /// Converts the lists to consecutive ones.
    fn consecutive<O: OffsetSizeTrait>(
        &self,
        item: &Field,
        validity: &Validity,
    ) -> Result<(OffsetBuffer<O>, ArrayRef)> {
        let mut views = self.views(validity.to_nulls(self.len()).as_ref())?;
        let total = views.total()?;
        if O::from_usize(total).is_none() {
            return Err(Error::limit(format!("{total} elements of lists with {} offsets", O::PREFIX)));
        }
        let rise = views.rise();
        // If elements are copied anyway, gaps need not be closed first, unless they are large.
        let mut elements = self.gather(&mut views, item, !rise)?;
        if !rise {
            elements = self.copy(&elements, &views, total)?;
        }
        let ends = views.sizes.iter().scan(0, |end, size| {
            *end += *size;
            Some(O::usize_as(*end))
        });
        let offsets: ScalarBuffer<O> = std::iter::once(O::usize_as(0)).chain(ends).collect();
        Ok((OffsetBuffer::new(offsets), elements))
    }

    /// The concatenated elements of all views, `total` elements.
    fn copy(&self, elements: &ArrayRef, views: &Views, total: usize) -> Result<ArrayRef> {
        self.limits().count::<u64>(total)?;
        let indices = UInt64Array::from_iter_values(views.ranges().flatten().map(|at| at as u64));
        take_within(elements, &indices, self.limits())
    }

    fn arrow_view<O: OffsetSizeTrait>(&self, field: &FieldRef, validity: &Validity) -> Result<ArrayRef> {
        let nulls = validity.to_nulls(self.len());
        let mut views = self.views(nulls.as_ref())?;
        let elements = self.gather(&mut views, field, true)?;
        if O::from_usize(elements.len()).is_none() {
            return Err(Error::limit(format!(
                "{} elements of lists with {} offsets",
                elements.len(),
                O::PREFIX
            )));
        }
        let narrow = |values: Vec<usize>| values.into_iter().map(O::usize_as).collect::<ScalarBuffer<O>>();
        let (offsets, sizes) = (narrow(views.offsets), narrow(views.sizes));
        Ok(Arc::new(GenericListViewArray::try_new(Arc::clone(field), offsets, sizes, elements, nulls)?))
    }
}

impl EncodedArray for ListViewArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        let validity = self.validity.named();
        let children = [("elements", &self.elements), ("offsets", &self.offsets), ("sizes", &self.sizes)];
        children.into_iter().chain(validity).collect()
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let _work = Work::begin();
        let validity = self.validity()?;
        match to {
            DataType::List(item) => arrow_list(item, self.consecutive::<i32>(item, &validity)?, &validity),
            DataType::LargeList(item) => {
                arrow_list(item, self.consecutive::<i64>(item, &validity)?, &validity)
            }
            DataType::ListView(item) => self.arrow_view::<i32>(item, &validity),
            DataType::LargeListView(item) => self.arrow_view::<i64>(item, &validity),
            _ => present(self.decode_preferred()?, to),
        }
    }

    fn validity(&self) -> Result<Validity> {
        self.validity.decode()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        Ok(Arc::new(Self {
            header: self.header.of_rows(pick.row_count()),
            elements: Arc::clone(&self.elements),
            offsets: pick.of(&self.offsets)?,
            sizes: pick.of(&self.sizes)?,
            validity: self.validity.pick(pick)?,
        }))
    }
}

/// A node of lists with an offset and a size each, which refer to `elements_len` elements.
pub(crate) fn encode(
    elements: WriteNode,
    elements_len: usize,
    offsets: (PType, WriteNode),
    sizes: (PType, WriteNode),
    validity: Option<WriteNode>,
) -> WriteNode {
    let metadata = Metadata {
        elements_len: elements_len as u64,
        offset_ptype: offsets.0 as i32,
        size_ptype: sizes.0 as i32,
    };
    let node = WriteNode::new(ID).message(&metadata).child(elements);
    node.child(offsets.1).child(sizes.1).children(validity)
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray as _, Int32Array, ListArray, StringViewArray};

    use super::*;
    use crate::array::Decoded;
    use crate::array::build::Tree;
    use crate::dtype::arrow::data_type;
    use crate::encodings::shared::conformance;

    fn lists(nullable: bool) -> DType {
        DType::List(Arc::new(DType::Primitive(PType::I32, false)), nullable)
    }

    fn tree(elements: Tree, elements_len: u64, offsets: &[u32], sizes: &[i8]) -> Tree {
        let (offset_ptype, size_ptype) = (PType::U32 as i32, PType::I8 as i32);
        let tree = Tree::new(ID).message(&Metadata { elements_len, offset_ptype, size_ptype });
        tree.child(elements).child(Tree::primitive(offsets)).child(Tree::primitive(sizes))
    }

    fn numbers(offsets: &[u32], sizes: &[i8]) -> Tree {
        let elements: Vec<i32> = (0..200).collect();
        tree(Tree::primitive(&elements), 200, offsets, sizes)
    }

    fn expected(offsets: &[u32], sizes: &[i8], nulls: Option<Vec<bool>>) -> ArrayRef {
        let elements = offsets.iter().zip(sizes).flat_map(|(offset, size)| {
            (*offset..*offset + u32::try_from(*size).unwrap()).map(|at| i32::try_from(at).unwrap())
        });
        let elements = Arc::new(elements.collect::<Int32Array>());
        let offsets = OffsetBuffer::from_lengths(sizes.iter().map(|size| usize::try_from(*size).unwrap()));
        let field = Arc::new(Field::new("item", DataType::Int32, false));
        Arc::new(ListArray::new(field, offsets, elements, nulls.map(Into::into)))
    }

    #[test]
    fn conforms() {
        let sizes: Vec<i8> = (0..60).map(|at| (at % 4) as i8).collect();
        let valid: Vec<bool> = (0..60).map(|at| at % 5 != 0).collect();
        let one_behind_the_other: Vec<u32> = sizes
            .iter()
            .scan(0, |end, size| {
                let start = *end;
                *end += u32::try_from(*size).unwrap();
                Some(start)
            })
            .collect();
        let with_gaps: Vec<u32> = (0..60).map(|at| at * 3).collect();
        let backwards: Vec<u32> = (0..60).map(|at| 190 - at * 3).collect();
        let overlapping: Vec<u32> = (0..60).map(|at| at % 7).collect();
        for offsets in [one_behind_the_other, with_gaps, backwards, overlapping] {
            let array = numbers(&offsets, &sizes).load(&lists(false), 60).unwrap();
            conformance::check(&array, &expected(&offsets, &sizes, None));
            let array = numbers(&offsets, &sizes).child(Tree::bools(&valid)).load(&lists(true), 60).unwrap();
            conformance::check(&array, &expected(&offsets, &sizes, Some(valid.clone())));
        }
    }

    #[test]
    fn views_asked_for_as_views_share_elements() {
        let (offsets, sizes) = ([5, 5, 150, 6], [3, 2, 0, 4]);
        let array = numbers(&offsets, &sizes).load(&lists(false), 4).unwrap();
        let item = Arc::new(Field::new("item", DataType::Int32, false));
        for to in [DataType::ListView(Arc::clone(&item)), DataType::LargeListView(item)] {
            let decoded = array.decode(&to).unwrap();
            decoded.to_data().validate_full().unwrap();
            let values = match to {
                DataType::ListView(_) => decoded.as_list_view::<i32>().values().len(),
                _ => decoded.as_list_view::<i64>().values().len(),
            };
            assert_eq!(values, 5, "elements 5 to 9, each once");
            let wanted = expected(&offsets, &sizes, None);
            assert_eq!(&present(decoded, wanted.data_type()).unwrap(), &wanted);
        }
    }

    #[test]
    fn only_elements_in_use_are_decoded() {
        let array = numbers(&[199, 0], &[1, 1]).load(&lists(false), 2).unwrap();
        let item = Arc::new(Field::new("item", DataType::Int32, false));
        let decoded = array.decode(&DataType::ListView(item)).unwrap();
        assert_eq!(decoded.as_list_view::<i32>().values().len(), 2);
    }

    #[test]
    fn a_view_outside_the_elements_is_corrupt() {
        let to = data_type(&lists(true)).unwrap();
        for (offset, size) in [(200, 1), (u32::MAX, 127), (0, -1), (199, 2)] {
            let array = numbers(&[offset], &[size]).load(&lists(false), 1).unwrap();
            assert!(array.decode(&to).is_err(), "{size} elements from {offset}");
        }
        let garbage_under_null =
            numbers(&[7, u32::MAX, 0], &[2, -1, -1]).child(Tree::bools(&[true, false, false]));
        let array = garbage_under_null.load(&lists(true), 3).unwrap();
        conformance::check(&array, &expected(&[7, 0, 0], &[2, 0, 0], Some(vec![true, false, false])));
        let empty_at_the_end = numbers(&[200], &[0]).load(&lists(false), 1).unwrap();
        assert_eq!(empty_at_the_end.decode(&to).unwrap().len(), 1);
    }

    #[test]
    fn a_long_string_shared_by_many_lists_hits_the_limit() {
        let dtype = DType::List(Arc::new(DType::Utf8(false)), false);
        let text: ArrayRef = Arc::new(StringViewArray::from(vec!["x".repeat(1 << 16); 2]));
        let elements: EncodedRef = Arc::new(Decoded::new(DType::Utf8(false), text, &Limits::default()));
        let views: Views = std::iter::repeat_n((0, 2), 1 << 15).collect();
        let array = ListViewArray::new(dtype, elements, views, ValidityChild::default(), &Limits::default());
        let item = |data_type| DataType::List(Arc::new(Field::new("item", data_type, false)));
        let error = array.decode(&item(DataType::Utf8)).unwrap_err();
        assert!(matches!(error, Error::LimitExceeded(_)), "{error}");
        assert_eq!(array.decode(&item(DataType::Utf8View)).unwrap().len(), 1 << 15, "views do not copy");
    }
}
