//! Dictionaries whose keys are too narrow for the values of the whole file.
//!
//! Every batch may come with its own dictionary. Readers cut rows into different batches, in which values
//! of several dictionaries meet; keys of 8 or 16 bits may not be able to address all of them. The schema
//! stored in the file then has keys of 32 bits.
//!
//! Arrays and types are traversed in the same order, so that dictionaries within structs, lists, maps and other
//! dictionaries can be identified by their number.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use arrow::array::{AnyDictionaryArray, Array, ArrayRef, AsArray as _, RecordBatch};
use arrow::datatypes::{DataType, Int16Type, Int32Type, Int64Type, Schema, SchemaRef};
use arrow::row::{RowConverter, SortField};

use crate::Result;
use crate::dtype::with_inner;

/// The dictionaries with narrow keys, and the values they have had.
#[derive(Debug)]
pub(super) struct NarrowKeys {
    dictionaries: Vec<Dictionary>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Dictionary {
    /// Number of values that the keys can address.
    capacity: usize,
    /// The values seen last, which most batches share.
    last: Option<ArrayRef>,
    /// Hashes of the distinct values, until there are too many of them.
    values: HashSet<u64>,
    /// Number of rows with structs as values: Arrow gives each of them a value of its own.
    struct_rows: usize,
}

impl NarrowKeys {
    pub(super) fn new(schema: &Schema) -> Self {
        let mut dictionaries = Vec::new();
        for field in schema.fields() {
            widened(field.data_type(), &mut |capacity| {
                let values = HashSet::new();
                dictionaries.push(Dictionary { capacity, last: None, values, struct_rows: 0 });
                false
            });
        }
        Self { dictionaries, hasher: RandomState::new() }
    }

    /// Records the values of a batch.
    ///
    /// # Errors
    /// If values cannot be compared, which Arrow supports for all types of dictionaries it makes.
    pub(super) fn see(&mut self, batch: &RecordBatch) -> Result<()> {
        if self.dictionaries.is_empty() {
            return Ok(());
        }
        let mut dictionaries = self.dictionaries.iter_mut();
        let hasher = &self.hasher;
        batch.columns().iter().try_for_each(|column| {
            walk_array(column, &mut |array| match dictionaries.next() {
                Some(dictionary) => dictionary.see(array, hasher),
                None => Ok(()),
            })
        })
    }

    /// The schema in which the file can be read, no matter which batches it is cut into.
    pub(super) fn widened(&self, schema: &SchemaRef) -> SchemaRef {
        let mut dictionaries = self.dictionaries.iter();
        let mut is_too_narrow = |_| dictionaries.next().is_some_and(Dictionary::is_full);
        let fields = schema.fields().iter().map(|field| {
            let wide = widened(field.data_type(), &mut is_too_narrow);
            field.as_ref().clone().with_data_type(wide)
        });
        Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
    }
}

impl Dictionary {
    /// Whether there are more values than the keys can address.
    fn is_full(&self) -> bool {
        self.values.len().max(self.struct_rows) > self.capacity
    }

    fn see(&mut self, array: &dyn AnyDictionaryArray, hasher: &RandomState) -> Result<()> {
        let values = array.values();
        if matches!(values.data_type(), DataType::Struct(_)) {
            self.struct_rows = self.struct_rows.saturating_add(array.len());
        }
        let is_known = self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, values));
        if is_known || self.is_full() {
            return Ok(());
        }
        self.last = Some(Arc::clone(values));
        let converter = RowConverter::new(vec![SortField::new(values.data_type().clone())])?;
        let rows = converter.convert_columns(&[Arc::clone(values)])?;
        for (at, row) in rows.iter().enumerate() {
            if values.is_valid(at) {
                self.values.insert(hasher.hash_one(row.as_ref()));
            }
        }
        Ok(())
    }
}

/// The number of values that narrow keys can address.
fn capacity(keys: &DataType) -> Option<usize> {
    match keys {
        DataType::Int8 => Some(1 << 7),
        DataType::UInt8 => Some(1 << 8),
        DataType::Int16 => Some(1 << 15),
        DataType::UInt16 => Some(1 << 16),
        _ => None,
    }
}

/// Visits each dictionary with narrow keys.
fn walk_array(array: &dyn Array, found: &mut dyn FnMut(&dyn AnyDictionaryArray) -> Result<()>) -> Result<()> {
    match array.data_type() {
        DataType::Dictionary(keys, _) => {
            let dictionary = array.as_any_dictionary();
            if capacity(keys).is_some() {
                found(dictionary)?;
            }
            walk_array(dictionary.values(), found)
        }
        DataType::Struct(_) => {
            array.as_struct().columns().iter().try_for_each(|column| walk_array(column, found))
        }
        DataType::List(_) => walk_array(array.as_list::<i32>().values(), found),
        DataType::LargeList(_) => walk_array(array.as_list::<i64>().values(), found),
        DataType::ListView(_) => walk_array(array.as_list_view::<i32>().values(), found),
        DataType::LargeListView(_) => walk_array(array.as_list_view::<i64>().values(), found),
        DataType::FixedSizeList(..) => walk_array(array.as_fixed_size_list().values(), found),
        DataType::Map(..) => walk_array(array.as_map().entries(), found),
        DataType::RunEndEncoded(ends, _) => match ends.data_type() {
            DataType::Int16 => walk_runs::<Int16Type>(array, found),
            DataType::Int32 => walk_runs::<Int32Type>(array, found),
            _ => walk_runs::<Int64Type>(array, found),
        },
        _ => Ok(()),
    }
}

fn walk_runs<R: arrow::datatypes::RunEndIndexType>(
    array: &dyn Array,
    found: &mut dyn FnMut(&dyn AnyDictionaryArray) -> Result<()>,
) -> Result<()> {
    array.as_run_opt::<R>().map_or(Ok(()), |runs| walk_array(runs.values(), found))
}

/// The type with wide keys in those dictionaries whose keys, which can address so many values, are too narrow.
fn widened(data_type: &DataType, is_too_narrow: &mut dyn FnMut(usize) -> bool) -> DataType {
    match data_type {
        DataType::Dictionary(keys, values) => {
            let keys = match capacity(keys).is_some_and(&mut *is_too_narrow) {
                true if keys.is_signed_integer() => DataType::Int32,
                true => DataType::UInt32,
                false => keys.as_ref().clone(),
            };
            DataType::Dictionary(Box::new(keys), Box::new(widened(values, is_too_narrow)))
        }
        other => with_inner(other, &mut |inner| widened(inner, is_too_narrow)),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{DictionaryArray, Int8Array, ListArray, StringArray, StructArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::{Field, Int8Type};

    use super::*;

    fn words(values: std::ops::Range<usize>) -> ArrayRef {
        let words: StringArray = values.clone().map(|at| Some(format!("word {at}"))).collect();
        let keys = values.clone().map(|at| i8::try_from(at - values.start).ok()).collect();
        Arc::new(DictionaryArray::<Int8Type>::try_new(keys, Arc::new(words)).unwrap())
    }

    fn batch(column: ArrayRef) -> RecordBatch {
        RecordBatch::try_from_iter([("a", column)]).unwrap()
    }

    fn wide() -> DataType {
        DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
    }

    #[test]
    fn keys_get_wider_once_they_cannot_tell_the_values_apart() {
        let schema = batch(words(0..1)).schema();
        let mut keys = NarrowKeys::new(&schema);
        for range in [0..100, 50..128, 0..100] {
            keys.see(&batch(words(range))).unwrap();
        }
        assert_eq!(keys.widened(&schema), schema);
        keys.see(&batch(words(120..129))).unwrap();
        assert_eq!(keys.widened(&schema).field(0).data_type(), &wide());
    }

    #[test]
    fn dictionaries_below_dictionaries_get_wider_keys_of_their_own() {
        let nested = |range: std::ops::Range<usize>, keys: Int8Array| -> ArrayRef {
            let words = words(range);
            let field = Field::new("word", words.data_type().clone(), true);
            let structs = StructArray::new(vec![field].into(), vec![words], None);
            Arc::new(DictionaryArray::<Int8Type>::new(keys, Arc::new(structs)))
        };
        let schema = batch(nested(0..1, Int8Array::from(vec![0]))).schema();
        let mut keys = NarrowKeys::new(&schema);
        keys.see(&batch(nested(0..100, Int8Array::from(vec![0])))).unwrap();
        assert_eq!(keys.widened(&schema), schema);
        keys.see(&batch(nested(100..200, Int8Array::from(vec![0])))).unwrap();
        let fields = vec![Field::new("word", wide(), true)].into();
        let expected = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Struct(fields)));
        assert_eq!(keys.widened(&schema).field(0).data_type(), &expected);
    }

    #[test]
    fn only_the_dictionary_that_is_too_narrow_gets_wider_wherever_it_lies() {
        let nested = |few: std::ops::Range<usize>, many: std::ops::Range<usize>| {
            let item = Arc::new(Field::new("item", words(0..1).data_type().clone(), true));
            let lists = OffsetBuffer::from_lengths([many.len()]);
            let lists = ListArray::new(item, lists, words(many), None);
            let columns = vec![
                (Arc::new(Field::new("few", words(0..1).data_type().clone(), true)), words(few)),
                (Arc::new(Field::new("many", lists.data_type().clone(), true)), Arc::new(lists) as ArrayRef),
            ];
            batch(Arc::new(StructArray::from(columns)))
        };
        let schema = nested(0..1, 0..1).schema();
        let mut keys = NarrowKeys::new(&schema);
        for start in [0, 100] {
            keys.see(&nested(0..1, start..start + 100)).unwrap();
        }
        let schema = keys.widened(&schema);
        let DataType::Struct(fields) = schema.field(0).data_type() else { panic!("still a struct") };
        assert_eq!(fields[0].data_type(), words(0..1).data_type());
        assert_eq!(fields[1].data_type(), &DataType::new_list(wide(), true));
    }
}
