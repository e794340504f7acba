//! A field of a nullable struct as seen from outside the struct: null where the struct is null.
//!
//! Has no serialized form; a nullable struct layout returns it for its fields.

use std::ops::Range;
use std::sync::Arc;

use super::{Layout, LayoutRef, PieceSet, SegmentSet, nulls};
use crate::Result;
use crate::array::EncodedRef;
use crate::dtype::DType;
use crate::encodings::masked::masked;
use crate::segments::SegmentId;

#[derive(Debug)]
struct MaskedLayout {
    dtype: DType,
    field: LayoutRef,
    validity: LayoutRef,
}

/// `field`, null wherever `validity` is false.
pub(super) fn layout(field: LayoutRef, validity: LayoutRef) -> LayoutRef {
    Arc::new(MaskedLayout { dtype: field.dtype().with_nullable(true), field, validity })
}

impl Layout for MaskedLayout {
    fn id(&self) -> &str {
        self.field.id()
    }

    fn dtype(&self) -> &DType {
        &self.dtype
    }

    fn row_count(&self) -> u64 {
        self.field.row_count()
    }

    fn children(&self) -> Result<Vec<(String, LayoutRef)>> {
        self.field.children()
    }

    fn segments(&self) -> Vec<SegmentId> {
        self.field.segments()
    }

    fn field(&self, at: usize) -> Result<Option<LayoutRef>> {
        Ok(self.field.field(at)?.map(|inner| layout(inner, Arc::clone(&self.validity))))
    }

    fn nulls(&self) -> Result<Option<LayoutRef>> {
        if !self.field.dtype().is_nullable() {
            return Ok(Some(nulls::layout(Some(&self.validity), self.row_count())));
        }
        Ok(self.field.nulls()?.map(|inner| layout(inner, Arc::clone(&self.validity))))
    }

    fn dictionary_values(&self) -> Option<u64> {
        self.field.dictionary_values()
    }

    fn takes_rounds(&self) -> Result<bool> {
        self.field.takes_rounds()
    }

    fn request(&self, rows: &Range<u64>, have: &SegmentSet<'_>, want: &mut Vec<SegmentId>) -> Result<()> {
        self.validity.request(rows, have, want)?;
        self.field.request(rows, have, want)
    }

    fn read(&self, rows: &Range<u64>, have: &SegmentSet<'_>) -> Result<EncodedRef> {
        let validity = self.validity.read(rows, have)?;
        Ok(masked(self.field.read(rows, have)?, &Some(validity).into(), self.dtype.clone()))
    }

    fn read_rows(&self, rows: &[u64], have: &PieceSet<'_>) -> Result<EncodedRef> {
        // No `?` before all are read: see `read_rows`.
        let (validity, field) = (self.validity.read_rows(rows, have), self.field.read_rows(rows, have));
        Ok(masked(field?, &Some(validity?).into(), self.dtype.clone()))
    }
}
