//! Gathering Arrow values of any type by index, within the limits.
//!
//! Lists and flat strings are copied once per index, so that a few bytes of a file could ask for
//! any amount of memory; views and dictionaries share what they point to.

use arrow::array::{Array as _, AsArray as _, UInt32Array};
use arrow::datatypes::DataType;

use crate::array::ArrowRef;
use crate::limits::Limits;
use crate::{Error, Result};

/// Bytes per row that every type takes: its index, at the least.
const ROW_BYTES: usize = 4;

/// The values at `indices`, which must be in range.
///
/// # Errors
/// If the outcome exceeds a limit, or the 32-bit offsets of its type.
pub(super) fn gather(values: &ArrowRef, indices: Vec<u32>, limits: &Limits) -> Result<ArrowRef> {
    let sizes: Vec<usize> = (0..values.len()).map(|at| copied_bytes(values, at)).collect();
    let bytes = indices.iter().fold(indices.len().saturating_mul(ROW_BYTES), |bytes, index| {
        bytes.saturating_add(sizes[*index as usize])
    });
    limits.decoded_bytes(bytes, 1)?;
    if i32::try_from(bytes).is_err() && has_narrow_offsets(values.data_type()) {
        return Err(Error::limit(format!("{bytes} bytes of repeated values")));
    }
    Ok(arrow::compute::take(values, &UInt32Array::from(indices), None)?)
}

/// Whether offsets into the values are 32 bits wide.
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

/// About the bytes that a copy of one value takes.
fn copied_bytes(values: &ArrowRef, at: usize) -> usize {
    let all = |items: &ArrowRef| {
        (0..items.len()).fold(0, |bytes: usize, at| bytes.saturating_add(copied_bytes(items, at) + ROW_BYTES))
    };
    match values.data_type() {
        _ if values.is_null(at) => 0,
        DataType::Utf8 => values.as_string::<i32>().value(at).len(),
        DataType::LargeUtf8 => values.as_string::<i64>().value(at).len(),
        DataType::Binary => values.as_binary::<i32>().value(at).len(),
        DataType::LargeBinary => values.as_binary::<i64>().value(at).len(),
        DataType::List(_) => all(&values.as_list::<i32>().value(at)),
        DataType::LargeList(_) => all(&values.as_list::<i64>().value(at)),
        DataType::FixedSizeList(..) => all(&values.as_fixed_size_list().value(at)),
        DataType::Map(..) => {
            values.as_map().value(at).columns().iter().map(all).fold(0, usize::saturating_add)
        }
        DataType::Struct(_) => values
            .as_struct()
            .columns()
            .iter()
            .map(|column| copied_bytes(column, at))
            .fold(0, usize::saturating_add),
        other => other.primitive_width().unwrap_or(16),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{LargeListArray, ListArray, StringArray, StringViewArray};
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn only_copies_count_against_the_limit() {
        let long = "a string of more than twelve bytes, which views do not copy";
        let tight = Limits { max_decoded_bytes: 1000, ..Limits::default() };
        let views: ArrowRef = Arc::new(StringViewArray::from(vec![Some(long), None]));
        assert_eq!(gather(&views, vec![0; 40], &tight).unwrap().len(), 40);
        let strings: ArrowRef = Arc::new(StringArray::from(vec![Some(long), None]));
        assert!(gather(&strings, vec![0; 40], &tight).is_err());
        assert_eq!(gather(&strings, vec![1; 40], &tight).unwrap().null_count(), 40);
    }

    #[test]
    fn elements_of_lists_count() {
        let rows = [Some((0..100).map(Some).collect::<Vec<_>>()), None];
        let tight = Limits { max_decoded_bytes: 10_000, ..Limits::default() };
        let lists: ArrowRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(rows.clone()));
        assert!(gather(&lists, vec![0; 20], &tight).is_err());
        assert_eq!(gather(&lists, vec![0, 1, 0], &tight).unwrap().len(), 3);
        let lists: ArrowRef = Arc::new(LargeListArray::from_iter_primitive::<Int64Type, _, _>(rows));
        assert!(gather(&lists, vec![0; 20], &tight).is_err());
    }
}
