//! Dictionary columns whose keys are too narrow for the values of the whole file.
//!
//! Every batch may come with a dictionary of its own. Readers cut rows into other batches, where
//! values of several dictionaries meet; keys of 8 or 16 bits may not tell all of them apart. The
//! schema that the file keeps then has keys of 32 bits. Only columns of the root are looked at.

use std::collections::HashSet;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef as ArrowRef, AsArray as _, RecordBatch};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::row::{RowConverter, SortField};

use crate::Result;

/// The columns with narrow keys, and what values they have had.
#[derive(Debug)]
pub(super) struct NarrowKeys {
    columns: Vec<Column>,
    hasher: std::hash::RandomState,
}

#[derive(Debug)]
struct Column {
    at: usize,
    /// Values that keys tell apart.
    capacity: usize,
    /// The dictionary seen last: most batches share one.
    last: Option<ArrowRef>,
    /// Hashes of the values, until there are too many of them.
    values: HashSet<u64>,
}

impl NarrowKeys {
    pub(super) fn new(schema: &Schema) -> Self {
        let columns = schema.fields().iter().enumerate().filter_map(|(at, field)| {
            let capacity = capacity(field.data_type())?;
            Some(Column { at, capacity, last: None, values: HashSet::new() })
        });
        Self { columns: columns.collect(), hasher: std::hash::RandomState::new() }
    }

    /// Takes note of the values of a batch.
    ///
    /// # Errors
    /// If values cannot be told apart, which Arrow can for all types of dictionaries it makes.
    pub(super) fn see(&mut self, batch: &RecordBatch) -> Result<()> {
        for column in &mut self.columns {
            let dictionary = batch.column(column.at).as_any_dictionary();
            let values = dictionary.values();
            let is_known = column.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, values));
            if column.values.len() > column.capacity || is_known {
                continue;
            }
            column.last = Some(Arc::clone(values));
            let converter = RowConverter::new(vec![SortField::new(values.data_type().clone())])?;
            let rows = converter.convert_columns(&[Arc::clone(values)])?;
            for (row, key) in rows.iter().zip(0..) {
                if values.is_valid(key) {
                    column.values.insert(self.hasher.hash_one(row.as_ref()));
                }
            }
        }
        Ok(())
    }

    /// The schema in which the file can be read whatever batches it is cut into.
    pub(super) fn widened(&self, schema: &SchemaRef) -> SchemaRef {
        let too_narrow = |at| self.columns.iter().any(|c| c.at == at && c.values.len() > c.capacity);
        let fields = schema.fields().iter().enumerate().map(|(at, field)| match field.data_type() {
            DataType::Dictionary(keys, values) if too_narrow(at) => {
                let keys = if keys.is_signed_integer() { DataType::Int32 } else { DataType::UInt32 };
                let wide = DataType::Dictionary(Box::new(keys), values.clone());
                Arc::new(field.as_ref().clone().with_data_type(wide))
            }
            _ => Arc::clone(field),
        });
        let fields: Vec<_> = fields.collect();
        Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
    }
}

/// How many values narrow keys tell apart.
fn capacity(data_type: &DataType) -> Option<usize> {
    let DataType::Dictionary(keys, _) = data_type else { return None };
    match keys.as_ref() {
        DataType::Int8 => Some(1 << 7),
        DataType::UInt8 => Some(1 << 8),
        DataType::Int16 => Some(1 << 15),
        DataType::UInt16 => Some(1 << 16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{DictionaryArray, StringArray};
    use arrow::datatypes::Int8Type;

    use super::*;

    fn batch(values: std::ops::Range<usize>) -> RecordBatch {
        let words: StringArray = values.clone().map(|at| Some(format!("word {at}"))).collect();
        let keys = values.clone().map(|at| i8::try_from(at - values.start).ok()).collect();
        let column = DictionaryArray::<Int8Type>::try_new(keys, Arc::new(words)).unwrap();
        RecordBatch::try_from_iter([("a", Arc::new(column) as ArrowRef)]).unwrap()
    }

    #[test]
    fn keys_get_wider_once_they_cannot_tell_the_values_apart() {
        let schema = batch(0..1).schema();
        let mut keys = NarrowKeys::new(&schema);
        for range in [0..100, 50..128, 0..100] {
            keys.see(&batch(range)).unwrap();
        }
        assert_eq!(keys.widened(&schema), schema);
        keys.see(&batch(120..129)).unwrap();
        let DataType::Dictionary(wide, _) = keys.widened(&schema).field(0).data_type().clone() else {
            panic!("still a dictionary")
        };
        assert_eq!(*wide, DataType::Int32);
    }
}
