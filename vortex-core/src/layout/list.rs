//! Lists whose elements and offsets are stored separately.
//!
//! Metadata: protobuf, field 1 the integer type of the offsets. Children: elements, offsets
//! (one more than rows, counting elements from the start of this layout), and a validity if
//! the lists are nullable. Reading takes two steps: offsets tell which elements are needed.

use std::ops::Range;
use std::sync::Arc;

use super::{Layout, LayoutKind, LayoutNode, LayoutRef, PieceSet, SegmentSet, nulls};
use crate::array::{EncodedRef, decode_offsets, integer_type};
use crate::dtype::DType;
use crate::encodings::chunked::chunked;
use crate::encodings::list::lists;
use crate::limits::Work;
use crate::segments::SegmentId;
use crate::{Error, Result};

/// The `vortex.list` layout.
pub(super) struct List;

const ID: &str = "vortex.list";

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(int32, tag = "1")]
    offsets_ptype: i32,
}

impl LayoutKind for List {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &LayoutNode) -> Result<LayoutRef> {
        let DType::List(element, nullable) = node.dtype() else {
            return Err(Error::corrupt(format!("holds lists, not {}", node.dtype())));
        };
        node.expect_children(if *nullable { 3 } else { 2 })?;
        let offsets = integer_type(node.message::<Metadata>()?.offsets_ptype, "list offsets")?;
        let offset_count = node.row_count().checked_add(1).ok_or_else(|| Error::corrupt("2^64 rows"))?;
        Ok(Arc::new(ListLayout {
            elements: node.child(0, element)?.load()?,
            offsets: node.load_child(1, &offsets, offset_count)?,
            validity: nullable
                .then(|| node.load_child(2, &DType::Bool(false), node.row_count()))
                .transpose()?,
            dtype: node.dtype().clone(),
            row_count: node.row_count(),
        }))
    }
}

#[derive(Debug)]
struct ListLayout {
    dtype: DType,
    row_count: u64,
    elements: LayoutRef,
    offsets: LayoutRef,
    validity: Option<LayoutRef>,
}

impl ListLayout {
    fn offsets(&self, rows: &Range<u64>, have: &SegmentSet<'_>) -> Result<Vec<usize>> {
        let _work = Work::begin();
        let end = usize::try_from(self.elements.row_count()).unwrap_or(usize::MAX);
        let offsets =
            decode_offsets(&self.offsets.read(&(rows.start..rows.end + 1), have)?, "list offsets", end)?;
        if offsets.len() as u64 != rows.end - rows.start + 1 {
            return Err(Error::corrupt("list offsets are missing"));
        }
        Ok(offsets)
    }
}

impl Layout for ListLayout {
    fn id(&self) -> &str {
        ID
    }

    fn dtype(&self) -> &DType {
        &self.dtype
    }

    fn row_count(&self) -> u64 {
        self.row_count
    }

    fn children(&self) -> Result<Vec<(String, LayoutRef)>> {
        let mut children = vec![
            ("elements".into(), Arc::clone(&self.elements)),
            ("offsets".into(), Arc::clone(&self.offsets)),
        ];
        children.extend(self.validity.iter().map(|validity| ("validity".into(), Arc::clone(validity))));
        Ok(children)
    }

    fn nulls(&self) -> Result<Option<LayoutRef>> {
        Ok(Some(nulls::layout(self.validity.as_ref(), self.row_count)))
    }

    fn takes_rounds(&self) -> Result<bool> {
        Ok(true)
    }

    fn request(&self, rows: &Range<u64>, have: &SegmentSet<'_>, want: &mut Vec<SegmentId>) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        if let Some(validity) = &self.validity {
            validity.request(rows, have, want)?;
        }
        let before = want.len();
        self.offsets.request(&(rows.start..rows.end + 1), have, want)?;
        if want.len() > before {
            return Ok(());
        }
        let offsets = self.offsets(rows, have)?;
        let (first, last) = (offsets[0] as u64, offsets[offsets.len() - 1] as u64);
        self.elements.request(&(first..last), have, want)
    }

    fn read(&self, rows: &Range<u64>, have: &SegmentSet<'_>) -> Result<EncodedRef> {
        if rows.is_empty() {
            return Ok(chunked(&self.dtype, Vec::new(), have.limits()));
        }
        let _work = Work::begin();
        let offsets = self.offsets(rows, have)?;
        let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
        let elements = self.elements.read(&(first as u64..last as u64), have)?;
        let validity = self.validity.as_ref().map(|validity| validity.read(rows, have)).transpose()?;
        let offsets = offsets.iter().map(|offset| (offset - first) as u64).collect();
        Ok(lists(&self.dtype, elements, offsets, validity.into(), have.limits()))
    }

    fn read_rows(&self, rows: &[u64], have: &PieceSet<'_>) -> Result<EncodedRef> {
        let _work = Work::begin();
        // No `?` before all are read: see `read_rows`.
        let validity = self.validity.as_ref().map(|validity| validity.read_rows(rows, have)).transpose();
        let mut needed: Vec<u64> = rows.iter().flat_map(|row| [*row, row + 1]).collect();
        needed.dedup();
        let end = usize::try_from(self.elements.row_count()).unwrap_or(usize::MAX);
        let known = decode_offsets(&self.offsets.read_rows(&needed, have)?, "list offsets", end)?;
        let (mut next, mut offsets, mut wanted) = (0, vec![0u64], Vec::new());
        for row in rows {
            next += needed[next..].partition_point(|needed| needed < row);
            let list = known[next]..known[next + 1];
            have.limits().count::<u64>(list.len())?;
            wanted.extend(list.map(|at| at as u64));
            offsets.push(wanted.len() as u64);
        }
        let elements = self.elements.read_rows(&wanted, have)?;
        Ok(lists(&self.dtype, elements, offsets, validity?.into(), have.limits()))
    }
}
