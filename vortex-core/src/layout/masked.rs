//! A field seen from outside its nullable struct: null where the struct is null.
//!
//! Has no serialized form; a nullable struct layout hands it out for its fields.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array as _, make_array};
use arrow::buffer::NullBuffer;

use super::{Layout, LayoutRef, SegmentSet};
use crate::Result;
use crate::array::{ArrayRef, Decoded, Validity, validity};
use crate::dtype::DType;
use crate::dtype::arrow::data_type;
use crate::file::SegmentId;

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

    fn boundaries(&self, start: u64, out: &mut Vec<u64>) -> Result<()> {
        self.field.boundaries(start, out)
    }

    fn request(&self, rows: &Range<u64>, have: &SegmentSet<'_>, want: &mut Vec<SegmentId>) -> Result<()> {
        self.validity.request(rows, have, want)?;
        self.field.request(rows, have, want)
    }

    fn read(&self, rows: &Range<u64>, have: &SegmentSet<'_>) -> Result<ArrayRef> {
        let array = self.field.read(rows, have)?;
        let nulls = match validity::decode_child(Some(&self.validity.read(rows, have)?))? {
            Validity::AllValid => None,
            other => other.to_nulls(array.len()),
        };
        let decoded = array.decode(&data_type(array.dtype())?)?;
        let Some(nulls) = nulls else {
            return Ok(Arc::new(Decoded::new(self.dtype.clone(), decoded)));
        };
        if self.dtype == DType::Null {
            return Ok(Arc::new(Decoded::new(DType::Null, decoded)));
        }
        let nulls = NullBuffer::union(decoded.nulls(), Some(&nulls));
        let data = decoded.to_data().into_builder().nulls(nulls).build()?;
        Ok(Arc::new(Decoded::new(self.dtype.clone(), make_array(data))))
    }
}
