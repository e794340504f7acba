//! Which rows of a column are null, without its values.
//!
//! Has no serialized form; layouts that store nulls apart from values return it. It reads as structs without fields.

use std::ops::Range;
use std::sync::Arc;

use super::{Layout, LayoutRef, PieceSet, SegmentSet, len_of};
use crate::Result;
use crate::array::EncodedRef;
use crate::dtype::{DType, StructType};
use crate::encodings::struct_::struct_of;
use crate::segments::SegmentId;

#[derive(Debug)]
struct NullsLayout {
    dtype: DType,
    row_count: u64,
    validity: Option<LayoutRef>,
}

/// The nulls of a layout of so many rows: those in which `validity` is false, or none.
pub(super) fn layout(validity: Option<&LayoutRef>, row_count: u64) -> LayoutRef {
    let none = Arc::new(StructType::new([]));
    Arc::new(NullsLayout {
        dtype: DType::Struct(none, validity.is_some()),
        row_count,
        validity: validity.cloned(),
    })
}

impl NullsLayout {
    fn rows(&self, validity: Option<EncodedRef>, len: usize, have: &SegmentSet<'_>) -> EncodedRef {
        struct_of(self.dtype.clone(), Vec::new(), validity.into(), len, have.limits())
    }
}

impl Layout for NullsLayout {
    fn id(&self) -> &str {
        super::ids::STRUCT
    }

    fn dtype(&self) -> &DType {
        &self.dtype
    }

    fn row_count(&self) -> u64 {
        self.row_count
    }

    fn children(&self) -> Result<Vec<(String, LayoutRef)>> {
        Ok(self.validity.iter().map(|validity| ("validity".to_owned(), Arc::clone(validity))).collect())
    }

    fn request(&self, rows: &Range<u64>, have: &SegmentSet<'_>, want: &mut Vec<SegmentId>) -> Result<()> {
        self.validity.as_ref().map_or(Ok(()), |validity| validity.request(rows, have, want))
    }

    fn read(&self, rows: &Range<u64>, have: &SegmentSet<'_>) -> Result<EncodedRef> {
        let validity = self.validity.as_ref().map(|validity| validity.read(rows, have)).transpose()?;
        Ok(self.rows(validity, len_of(rows.end - rows.start)?, have))
    }

    fn read_rows(&self, rows: &[u64], have: &PieceSet<'_>) -> Result<EncodedRef> {
        let validity = self.validity.as_ref().map(|validity| validity.read_rows(rows, have)).transpose()?;
        Ok(self.rows(validity, rows.len(), have.segments()))
    }
}
