//! Gathering Arrow values of any type by index, within the limits.
//!
//! Lists and flat strings are copied once per index, so that a few bytes of a file could require any
//! amount of memory; views and dictionaries share the values they refer to.

use arrow::array::UInt32Array;
use arrow::datatypes::DataType;

use crate::array::ArrowRef;
use crate::array::row_bytes::{RowBytes, reserved_bytes};
use crate::limits::Limits;
use crate::{Error, Result};

/// The values at `indices`, which must be in range. A null index results in a null.
///
/// # Errors
/// If the result exceeds a limit, or the 32-bit offsets of its type.
pub(super) fn gather(values: &ArrowRef, indices: &UInt32Array, limits: &Limits) -> Result<ArrowRef> {
    let sizes = RowBytes::of(values.as_ref());
    let size = |at: usize| sizes.up_to(at + 1).saturating_sub(sizes.up_to(at));
    let bytes =
        indices.values().iter().fold(0u64, |bytes, index| bytes.saturating_add(size(*index as usize)));
    let reserved = reserved_bytes(values.data_type(), indices.len() as u64);
    limits.decoded_bytes(usize::try_from(bytes.max(reserved)).unwrap_or(usize::MAX), 1)?;
    if i32::try_from(bytes).is_err() && has_narrow_offsets(values.data_type()) {
        return Err(Error::limit(format!("{bytes} bytes of repeated values")));
    }
    crate::array::take(values, indices)
}

/// Whether the values have 32-bit offsets.
fn has_narrow_offsets(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::Binary | DataType::List(_) | DataType::Map(..) => true,
        DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            has_narrow_offsets(field.data_type())
        }
        DataType::Struct(fields) => fields.iter().any(|field| has_narrow_offsets(field.data_type())),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array as _, LargeListArray, ListArray, StringArray, StringViewArray};
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn only_copies_count_against_the_limit() {
        let long = "a string of more than twelve bytes, which views do not copy";
        let tight = Limits { max_decoded_bytes: 1000, ..Limits::default() };
        let views: ArrowRef = Arc::new(StringViewArray::from(vec![Some(long), None]));
        assert_eq!(gather(&views, &vec![0; 40].into(), &tight).unwrap().len(), 40);
        let strings: ArrowRef = Arc::new(StringArray::from(vec![Some(long), None]));
        assert!(gather(&strings, &vec![0; 40].into(), &tight).is_err());
        assert_eq!(gather(&strings, &vec![1; 40].into(), &tight).unwrap().null_count(), 40);
    }

    #[test]
    fn elements_of_lists_count() {
        let rows = [Some((0..100).map(Some).collect::<Vec<_>>()), None];
        let tight = Limits { max_decoded_bytes: 10_000, ..Limits::default() };
        let lists: ArrowRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(rows.clone()));
        assert!(gather(&lists, &vec![0; 20].into(), &tight).is_err());
        assert_eq!(gather(&lists, &vec![0, 1, 0].into(), &tight).unwrap().len(), 3);
        let lists: ArrowRef = Arc::new(LargeListArray::from_iter_primitive::<Int64Type, _, _>(rows));
        assert!(gather(&lists, &vec![0; 20].into(), &tight).is_err());
    }
}
