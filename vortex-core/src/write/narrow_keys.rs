//! Dictionaries whose keys, and runs whose ends, are too narrow for the values of the whole file.
//!
//! Every batch may come with its own dictionary. Readers cut rows into different batches, in which values
//! of several dictionaries meet; keys of 8 or 16 bits may not be able to address all of them. The schema
//! stored in the file then has keys of 32 bits. The same goes for run ends of 16 bits below lists, which may have more
//! items at a time than these can count. What dictionaries, runs and views of lists repeat counts as often as it is
//! shown: it is repeated in files, and so when it is read.
//!
//! Arrays and types are traversed in the same order, so that dictionaries within structs, lists, maps and other
//! dictionaries can be identified by their number.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use arrow::array::{AnyDictionaryArray, Array, ArrayRef, AsArray as _, OffsetSizeTrait, RecordBatch};
use arrow::datatypes::{
    DataType, Field, Int16Type, Int32Type, Int64Type, RunEndIndexType, Schema, SchemaRef,
};
use arrow::row::{RowConverter, SortField};

use super::own_bytes::may_share;
use crate::Result;
use crate::dtype::with_inner;

/// Number of values that are copied at a time, to compare them.
const AT_ONCE: usize = 64;

/// The arrays with narrow keys, or ends, and what these have had to address, or count.
#[derive(Debug)]
pub(super) struct NarrowKeys {
    all: Vec<Seen>,
    hasher: RandomState,
}

/// An array with narrow keys or ends.
enum Narrow<'a> {
    /// Keys, and how their values are shown.
    Keys(&'a dyn AnyDictionaryArray, Shown),
    /// The number of rows that ends of runs count.
    Ends(usize),
}

#[derive(Debug)]
struct Seen {
    /// Number of values that the keys can address, or of rows that the ends can count.
    capacity: usize,
    /// The values seen last, which most batches share.
    last: Option<ArrayRef>,
    /// Hashes of the distinct values, until there are too many of them.
    values: HashSet<u64>,
    /// Number of rows of which each needs a number of its own: those that ends count, and those of values that are not
    /// compared.
    rows: usize,
}

impl NarrowKeys {
    pub(super) fn new(schema: &Schema) -> Self {
        let mut all = Vec::new();
        for field in schema.fields() {
            widened(field.data_type(), false, &mut |capacity| {
                all.push(Seen { capacity, last: None, values: HashSet::new(), rows: 0 });
                false
            });
        }
        Self { all, hasher: RandomState::new() }
    }

    /// Records the values of a batch.
    ///
    /// # Errors
    /// If values cannot be compared, which Arrow supports for all types of dictionaries it makes.
    pub(super) fn see(&mut self, batch: &RecordBatch) -> Result<()> {
        if self.all.is_empty() {
            return Ok(());
        }
        let mut all = self.all.iter_mut();
        let hasher = &self.hasher;
        batch.columns().iter().try_for_each(|column| {
            walk_array(column, Shown::once(column.len()), false, &mut |narrow| match all.next() {
                Some(seen) => seen.see(narrow, hasher),
                None => Ok(()),
            })
        })
    }

    /// The schema in which the file can be read, no matter which batches it is cut into.
    pub(super) fn widened(&self, schema: &SchemaRef) -> SchemaRef {
        let mut all = self.all.iter();
        let mut is_too_narrow = |_| all.next().is_some_and(Seen::is_full);
        let fields = schema.fields().iter().map(|field| {
            let wide = widened(field.data_type(), false, &mut is_too_narrow);
            field.as_ref().clone().with_data_type(wide)
        });
        Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
    }
}

impl Seen {
    /// Whether there is more than the keys can address, or the ends can count.
    fn is_full(&self) -> bool {
        self.values.len().max(self.rows) > self.capacity
    }

    fn see(&mut self, narrow: Narrow<'_>, hasher: &RandomState) -> Result<()> {
        let (values, rows) = match narrow {
            Narrow::Keys(array, shown) => {
                if shown.must_be_valid && array.logical_null_count() > 0 {
                    self.values.insert(hasher.hash_one("what null structs and lists hide"));
                }
                (Some(array.values()), shown.rows)
            }
            Narrow::Ends(rows) => (None, rows),
        };
        let Some(values) = values.filter(|values| !is_counted_by_rows(values.data_type())) else {
            self.rows = self.rows.saturating_add(rows);
            return Ok(());
        };
        if self.is_full() || self.last.as_ref().is_some_and(|last| is_same(last, values)) {
            return Ok(());
        }
        self.last = Some(Arc::clone(values));
        let mut see = |value: &[u8]| _ = self.values.insert(hasher.hash_one(value));
        match values.data_type() {
            DataType::Utf8 => see_text(values.as_string::<i32>(), see),
            DataType::LargeUtf8 => see_text(values.as_string::<i64>(), see),
            DataType::Utf8View => see_text(values.as_string_view(), see),
            DataType::Binary => see_text(values.as_binary::<i32>(), see),
            DataType::LargeBinary => see_text(values.as_binary::<i64>(), see),
            DataType::BinaryView => see_text(values.as_binary_view(), see),
            other => {
                let converter = RowConverter::new(vec![SortField::new(other.clone())])?;
                for start in (0..values.len()).step_by(AT_ONCE) {
                    let some = values.slice(start, AT_ONCE.min(values.len() - start));
                    let rows = converter.convert_columns(&[Arc::clone(&some)])?;
                    let valid = rows.iter().enumerate().filter(|(at, _)| some.is_valid(*at));
                    valid.for_each(|(_, row)| see(row.as_ref()));
                }
            }
        }
        Ok(())
    }
}

/// Passes on each text or byte string that is not null.
fn see_text<V: AsRef<[u8]>>(values: impl IntoIterator<Item = Option<V>>, mut see: impl FnMut(&[u8])) {
    values.into_iter().flatten().for_each(|value| see(value.as_ref()));
}

/// Whether rows are counted instead of distinct values: Arrow makes a value of each row, or the values may share bytes,
/// so that they take much more when they are compared.
fn is_counted_by_rows(values: &DataType) -> bool {
    let is_text = matches!(values, DataType::Utf8View | DataType::BinaryView);
    matches!(values, DataType::Struct(_)) || (!is_text && may_share(values))
}

/// Whether these are the same bytes: readers make a new array of them for each batch.
fn is_same(left: &ArrayRef, right: &ArrayRef) -> bool {
    Arc::ptr_eq(left, right) || left.to_data().ptr_eq(&right.to_data())
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

/// Whether ends are too narrow for the items of many lists. At the top level, scans decode fewer rows at once instead.
fn are_narrow(ends: &DataType, below_lists: bool) -> bool {
    below_lists && *ends == DataType::Int16
}

/// How an array is shown: by how many rows, and whether each of its values may be shown by several.
#[derive(Clone, Copy)]
struct Shown {
    rows: usize,
    repeats: bool,
    /// Whether nulls are stored as values. Structs and lists that are null hide them.
    must_be_valid: bool,
}

impl Shown {
    fn once(rows: usize) -> Self {
        Self { rows, repeats: false, must_be_valid: false }
    }

    fn repeated(rows: usize) -> Self {
        Self { rows, repeats: true, must_be_valid: false }
    }

    /// How a field of structs is shown, or the items of lists of a fixed size.
    fn field(self, field: &Field) -> Self {
        Self { must_be_valid: !field.is_nullable(), ..self }
    }

    /// How the items of lists are shown, if there are so many. How often lists show theirs that are repeated is not
    /// known.
    fn items(self, count: usize) -> Self {
        Self { rows: if self.repeats { usize::MAX } else { count }, must_be_valid: false, ..self }
    }
}

/// Visits each array with narrow keys or ends. Dictionaries, runs and views of lists may show values several times.
fn walk_array(
    array: &dyn Array,
    shown: Shown,
    below_lists: bool,
    found: &mut dyn FnMut(Narrow<'_>) -> Result<()>,
) -> Result<()> {
    let mut walk_items = |items: &dyn Array| walk_array(items, shown.items(items.len()), true, found);
    match array.data_type() {
        DataType::Dictionary(keys, _) => {
            let dictionary = array.as_any_dictionary();
            if capacity(keys).is_some() {
                found(Narrow::Keys(dictionary, shown))?;
            }
            walk_array(dictionary.values(), Shown::repeated(shown.rows), below_lists, found)
        }
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns();
            let mut columns = columns.iter().zip(fields);
            columns.try_for_each(|(column, field)| walk_array(column, shown.field(field), below_lists, found))
        }
        DataType::List(_) => walk_items(array.as_list::<i32>().values()),
        DataType::LargeList(_) => walk_items(array.as_list::<i64>().values()),
        DataType::ListView(_) => {
            let lists = array.as_list_view::<i32>();
            let items = Shown::repeated(shown.items(sum(lists.sizes())).rows);
            walk_array(lists.values(), items, true, found)
        }
        DataType::LargeListView(_) => {
            let lists = array.as_list_view::<i64>();
            let items = Shown::repeated(shown.items(sum(lists.sizes())).rows);
            walk_array(lists.values(), items, true, found)
        }
        DataType::FixedSizeList(item, _) => {
            let items = array.as_fixed_size_list().values();
            walk_array(items, shown.items(items.len()).field(item), true, found)
        }
        DataType::Map(..) => walk_items(array.as_map().entries()),
        DataType::RunEndEncoded(ends, _) => {
            if are_narrow(ends.data_type(), below_lists) {
                found(Narrow::Ends(shown.rows))?;
            }
            match ends.data_type() {
                DataType::Int16 => walk_runs::<Int16Type>(array, shown, below_lists, found),
                DataType::Int32 => walk_runs::<Int32Type>(array, shown, below_lists, found),
                _ => walk_runs::<Int64Type>(array, shown, below_lists, found),
            }
        }
        _ => Ok(()),
    }
}

fn sum<O: OffsetSizeTrait>(sizes: &[O]) -> usize {
    sizes.iter().map(|size| size.as_usize()).fold(0, usize::saturating_add)
}

fn walk_runs<R: RunEndIndexType>(
    array: &dyn Array,
    shown: Shown,
    below_lists: bool,
    found: &mut dyn FnMut(Narrow<'_>) -> Result<()>,
) -> Result<()> {
    let Some(runs) = array.as_run_opt::<R>() else { return Ok(()) };
    walk_array(runs.values(), Shown { repeats: true, ..shown }, below_lists, found)
}

/// The type with wide keys and ends where those, which can tell so many values or rows apart, are too narrow.
fn widened(
    data_type: &DataType,
    below_lists: bool,
    is_too_narrow: &mut dyn FnMut(usize) -> bool,
) -> DataType {
    match data_type {
        DataType::Dictionary(keys, values) => {
            let keys = if !capacity(keys).is_some_and(&mut *is_too_narrow) {
                keys.as_ref().clone()
            } else if keys.is_signed_integer() {
                DataType::Int32
            } else {
                DataType::UInt32
            };
            DataType::Dictionary(Box::new(keys), Box::new(widened(values, below_lists, is_too_narrow)))
        }
        DataType::RunEndEncoded(ends, values) => {
            let is_full = are_narrow(ends.data_type(), below_lists) && is_too_narrow(i16::MAX as usize);
            let ends = if is_full {
                Arc::new(ends.as_ref().clone().with_data_type(DataType::Int32))
            } else {
                Arc::clone(ends)
            };
            let wide = widened(values.data_type(), below_lists, is_too_narrow);
            DataType::RunEndEncoded(ends, Arc::new(values.as_ref().clone().with_data_type(wide)))
        }
        other => {
            let below_lists = below_lists || !matches!(other, DataType::Struct(_));
            with_inner(other, &mut |inner| widened(inner, below_lists, is_too_narrow))
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        DictionaryArray, Int8Array, ListArray, ListViewArray, StringArray, StringViewArray, StructArray,
    };
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Int8Type;

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
    fn a_dictionary_is_recognised_in_another_array() {
        let words = words(0..100).as_any_dictionary().values().slice(10, 20);
        assert!(is_same(&words, &arrow::array::make_array(words.to_data())));
        assert!(!is_same(&words, &words.slice(0, 19)));
        assert!(!is_same(&words, self::words(0..20).as_any_dictionary().values()));
    }

    #[test]
    fn values_that_may_share_bytes_are_counted_by_the_rows_that_show_them() {
        let field = Arc::new(Field::new_list_field(DataType::Utf8View, true));
        let lists = ListViewArray::new(
            field,
            vec![0; 2].into(),
            vec![100; 2].into(),
            Arc::new(StringViewArray::from(vec!["a text that is longer than a view"; 100])),
            None,
        );
        let rows = |rows: usize| {
            let keys = (0..rows).map(|row| Some((row % 2) as i8)).collect();
            batch(Arc::new(DictionaryArray::<Int8Type>::new(keys, Arc::new(lists.clone()))))
        };
        let schema = rows(1).schema();
        let mut keys = NarrowKeys::new(&schema);
        keys.see(&rows(100)).unwrap();
        assert_eq!(keys.widened(&schema), schema);
        keys.see(&rows(29)).unwrap();
        assert_ne!(keys.widened(&schema), schema);
    }

    #[test]
    fn keys_get_wider_for_the_value_that_null_structs_hide() {
        let keys = Int8Array::from_iter((0..=127).map(Some).chain([None]));
        let words = Arc::clone(words(0..128).as_any_dictionary().values());
        let words: ArrayRef = Arc::new(DictionaryArray::<Int8Type>::new(keys, words));
        for nullable in [true, false] {
            let field = Arc::new(Field::new("word", words.data_type().clone(), nullable));
            let nulls = Some((0..129).map(|row| row < 128).collect());
            let structs = StructArray::new(vec![field].into(), vec![ArrayRef::clone(&words)], nulls);
            let rows = batch(Arc::new(structs));
            let mut keys = NarrowKeys::new(&rows.schema());
            keys.see(&rows).unwrap();
            assert_eq!(keys.widened(&rows.schema()) == rows.schema(), nullable);
        }
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
        let structs = DataType::Struct(vec![Field::new("word", wide(), true)].into());
        let coded = |keys| DataType::Dictionary(Box::new(keys), Box::new(structs.clone()));
        assert_eq!(keys.widened(&schema).field(0).data_type(), &coded(DataType::Int8), "for two rows");
        keys.see(&batch(nested(0..1, Int8Array::from(vec![0; 127])))).unwrap();
        assert_eq!(keys.widened(&schema).field(0).data_type(), &coded(DataType::Int32));
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
