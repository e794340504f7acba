//! Concatenation of decoded arrays.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray as _, new_empty_array};
use arrow::datatypes::{BinaryViewType, ByteViewType, DataType, StringViewType};

use super::restore::restore;
use super::row_bytes::{check_parts, max_rows, reserved_bytes};
use crate::dtype::with_inner;
use crate::kernels::views::concat_views;
use crate::limits::Limits;
use crate::{Error, Result};

/// The rows of several arrays of type `to`, one after the other.
///
/// # Errors
/// If they exceed a limit, or are more than arrays of the type have room for.
pub(crate) fn concat(parts: &[ArrayRef], to: &DataType, limits: &Limits) -> Result<ArrayRef> {
    match parts {
        [] => return Ok(new_empty_array(to)),
        [part] => return Ok(Arc::clone(part)),
        _ => {}
    }
    let rows = parts.iter().map(|part| part.len()).fold(0, usize::saturating_add);
    if max_rows(to).is_some_and(|most| rows > most) {
        return Err(Error::limit(format!("{rows} rows of type {to}, decoded in parts")));
    }
    let listed = check_parts(parts)?;
    let plain = without_dictionaries(to);
    if plain != *to {
        // Arrow adds up the lengths of dictionaries, and panics if the sum exceeds what keys can tell.
        let parts = parts.iter().map(|part| restore(part, &plain, limits));
        let joined = concat(&parts.collect::<Result<Vec<_>>>()?, &plain, limits)?;
        return restore(&joined, to, limits);
    }
    let reserved = reserved_bytes(to, rows as u64).saturating_add(listed as u64);
    limits.count_bytes(reserved)?;
    match to {
        DataType::Utf8View => views::<StringViewType>(parts),
        DataType::BinaryView => views::<BinaryViewType>(parts),
        _ => {
            let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
            Ok(arrow::compute::concat(&parts)?)
        }
    }
}

fn views<V: ByteViewType>(parts: &[ArrayRef]) -> Result<ArrayRef> {
    let parts: Option<Vec<_>> = parts.iter().map(|part| part.as_byte_view_opt::<V>()).collect();
    let parts = parts.ok_or_else(|| Error::invalid("cannot join views and other arrays"))?;
    let joined = concat_views(&parts);
    Ok(Arc::new(joined.ok_or_else(|| Error::limit("views that refer to too many buffers"))?))
}

/// The same type with the values of dictionaries instead of dictionaries, wherever they are.
pub(crate) fn without_dictionaries(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) => without_dictionaries(values),
        // Runs of dictionaries are decoded, too: their ends cannot be kept while their values change.
        DataType::RunEndEncoded(_, values)
            if without_dictionaries(values.data_type()) != *values.data_type() =>
        {
            without_dictionaries(values.data_type())
        }
        other => with_inner(other, &mut without_dictionaries),
    }
}

#[cfg(test)]
mod tests {

    use arrow::array::{
        FixedSizeListArray, Int32Array, ListArray, ListViewArray, NullArray, StringArray, StringViewArray,
        StructArray,
    };
    use arrow::buffer::{Buffer, OffsetBuffer};
    use arrow::compute::cast;
    use arrow::datatypes::{Field, FieldRef};

    use super::*;

    /// Words that are numbers, every seventh of them null.
    fn words(numbers: std::ops::Range<usize>) -> ArrayRef {
        Arc::new(StringArray::from_iter(numbers.map(|at| (at % 7 > 0).then(|| at.to_string()))))
    }

    fn packed(values: DataType) -> DataType {
        DataType::Dictionary(Box::new(DataType::Int8), Box::new(values))
    }

    fn items(item: &ArrayRef) -> FieldRef {
        Arc::new(Field::new("item", item.data_type().clone(), true))
    }

    fn structure(field: ArrayRef) -> ArrayRef {
        Arc::new(StructArray::from(vec![(items(&field), field)]))
    }

    fn nested() -> Vec<fn(ArrayRef) -> ArrayRef> {
        vec![
            |words| words,
            structure,
            |words| {
                let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(1, words.len()));
                Arc::new(ListArray::new(items(&words), offsets, words, None))
            },
            |words| {
                let starts: Vec<i32> = (0..words.len() as i32).collect();
                let sizes = vec![1; words.len()];
                Arc::new(ListViewArray::new(items(&words), starts.into(), sizes.into(), words, None))
            },
            |words| Arc::new(FixedSizeListArray::new(items(&words), 1, words, None)),
            |words| {
                let ends = Int32Array::from_iter_values(1..=words.len() as i32);
                Arc::new(arrow::array::RunArray::try_new(&ends, &words).unwrap())
            },
        ]
    }

    #[test]
    fn dictionaries_are_joined_if_the_result_has_few_values() {
        for values in [DataType::Utf8, DataType::Utf8View, DataType::LargeBinary] {
            for of in nested() {
                let rows = |numbers| of(cast(&words(numbers), &packed(values.clone())).unwrap());
                let parts = [rows(0..70), rows(20..90), rows(10..80)];
                let to = parts[0].data_type();
                let found = concat(&parts, to, &Limits::default()).unwrap();
                assert_eq!((found.data_type(), found.len()), (to, 210));
                found.to_data().validate_full().unwrap();
                for (at, part) in parts.iter().enumerate() {
                    assert_eq!(shown(&found.slice(at * 70, 70)), shown(part), "{to}");
                }
                let others = concat(&[rows(0..100), rows(100..200)], to, &Limits::default());
                assert!(others.is_err(), "{to}");
            }
        }
    }

    fn shown(rows: &ArrayRef) -> Vec<String> {
        use arrow::util::display::array_value_to_string;
        (0..rows.len()).map(|row| array_value_to_string(rows, row).unwrap()).collect()
    }

    #[test]
    fn more_elements_than_offsets_can_tell_are_not_joined() {
        let items = Arc::new(NullArray::new(3 << 29)) as ArrayRef;
        let field = Arc::new(Field::new("item", DataType::Null, true));
        let lists = ListArray::new(field, OffsetBuffer::from_lengths([3 << 29]), items, None);
        let lists = Arc::new(lists) as ArrayRef;
        let joined = concat(&[Arc::clone(&lists), Arc::clone(&lists)], lists.data_type(), &Limits::default());
        assert!(matches!(joined, Err(Error::LimitExceeded(_))));
    }

    #[test]
    fn lists_of_buffers_count() {
        // Each part has as many buffers, which may all be empty, and the next one has others.
        let part = |count| {
            let buffers: Vec<Buffer> = vec![Buffer::default(); count];
            let views = StringViewArray::new(vec![0u128].into(), buffers, None);
            Arc::new(views) as ArrayRef
        };
        let parts: Vec<ArrayRef> = (0..200).map(|at| part(10_000 + at % 2)).collect();
        let limits = Limits::new().with_max_decoded_bytes(10 << 20);
        let joined = |parts: &[ArrayRef]| concat(parts, parts[0].data_type(), &limits);
        assert!(matches!(joined(&parts), Err(Error::LimitExceeded(_))), "48 MB of buffers");
        let nested: Vec<ArrayRef> = parts.iter().cloned().map(structure).collect();
        assert!(matches!(joined(&nested), Err(Error::LimitExceeded(_))));
        assert_eq!(joined(&parts[..20]).unwrap().len(), 20);
    }

    #[test]
    fn long_texts_of_dictionaries_are_not_copied_without_limit() {
        let text: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(1 << 20)]));
        let rows = arrow::compute::take(&text, &Int32Array::from(vec![0]), None).unwrap();
        let rows = cast(&rows, &packed(DataType::Utf8)).unwrap();
        let often = arrow::compute::take(&rows, &Int32Array::from(vec![0; 4096]), None).unwrap();
        let joined = concat(&[Arc::clone(&often), often], rows.data_type(), &Limits::default());
        assert!(matches!(joined, Err(Error::LimitExceeded(_))), "4 GiB of text");
    }
}
