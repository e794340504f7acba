//! Rows as JSON: an object per row, with a key for every column, also where it is null.
//!
//! Arrow's writer puts text about errors in place of values that it cannot show, such as dates beyond its
//! calendar, and null in place of NaN and infinities. Here, such a value is an error.

use std::sync::{Arc, LazyLock, OnceLock};

use arrow::array::{Array, AsArray as _, Float64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Float64Type};
use arrow::error::ArrowError;
use arrow::json::writer::{Encoder, EncoderFactory, EncoderOptions, NullableEncoder, make_encoder};
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::failure::{Failure, Outcome};
use crate::text::{INVALID, whole_number};

/// Converts the batches of one result.
pub(crate) struct JsonRows {
    options: EncoderOptions,
    /// The first value that cannot be shown, described.
    unshown: Arc<OnceLock<String>>,
    /// Number of rows converted.
    rows: u64,
}

impl JsonRows {
    pub(crate) fn new() -> Self {
        let unshown = Arc::default();
        let factory = CheckedValues { unshown: Arc::clone(&unshown) };
        let options =
            EncoderOptions::default().with_explicit_nulls(true).with_encoder_factory(Arc::new(factory));
        Self { options, unshown, rows: 0 }
    }

    /// Passes each row of a batch to `write`.
    ///
    /// # Errors
    /// If a column has a type, or a row has a value, that JSON cannot hold, and if `write` fails.
    pub(crate) fn write(
        &mut self,
        batch: &RecordBatch,
        mut write: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> Outcome {
        let schema = batch.schema();
        let mut columns = Vec::with_capacity(batch.num_columns());
        for (field, column) in schema.fields().iter().zip(batch.columns()) {
            let key = serde_json::to_string(field.name())? + ":";
            let encoder = make_encoder(field, column, &self.options);
            let encoder = encoder.map_err(|error| {
                Failure::error(format!("column `{}`: {error}; cast it in SQL", field.name()))
            })?;
            columns.push((field.name(), key, encoder));
        }
        let mut text = Vec::new();
        for row in 0..batch.num_rows() {
            text.clear();
            text.push(b'{');
            for (at, (name, key, encoder)) in columns.iter_mut().enumerate() {
                if at > 0 {
                    text.push(b',');
                }
                text.extend_from_slice(key.as_bytes());
                if encoder.is_null(row) {
                    text.extend_from_slice(b"null");
                } else {
                    encoder.encode(row, &mut text);
                }
                if let Some(value) = self.unshown.get() {
                    let row = self.rows + row as u64 + 1;
                    let message = format!(
                        "column `{name}`, row {row}: {value} that JSON can hold; filter or cast it in SQL"
                    );
                    return Err(Failure::error(message));
                }
            }
            text.push(b'}');
            write(&text)?;
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }
}

/// Encodes numbers, dates, times and durations, and keeps the first value that cannot be shown. Encodes dictionaries
/// some of whose values are null, which Arrow's own encoder takes for values.
#[derive(Debug)]
struct CheckedValues {
    unshown: Arc<OnceLock<String>>,
}

impl EncoderFactory for CheckedValues {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        if array.data_type().is_floating() {
            let encoder = FloatEncoder {
                numbers: cast(array, &DataType::Float64)?.as_primitive::<Float64Type>().clone(),
                encoder: make_encoder(field, array, &UNCHECKED)?,
                unshown: Arc::clone(&self.unshown),
            };
            return Ok(Some(NullableEncoder::new(Box::new(encoder), array.nulls().cloned())));
        }
        if let Some(dictionary) = array.as_any_dictionary_opt()
            && dictionary.values().null_count() > 0
        {
            let values = make_encoder(field, dictionary.values().as_ref(), options)?;
            let encoder = DictionaryEncoder { keys: dictionary.normalized_keys(), values };
            return Ok(Some(NullableEncoder::new(Box::new(encoder), array.logical_nulls())));
        }
        if !array.data_type().is_temporal() {
            return Ok(None);
        }
        let formatter = ArrayFormatter::try_new(array, &FormatOptions::new())?;
        let encoder =
            TemporalEncoder { array, formatter, text: String::new(), unshown: Arc::clone(&self.unshown) };
        Ok(Some(NullableEncoder::new(Box::new(encoder), array.nulls().cloned())))
    }
}

/// Arrow's own encoders, which write null for numbers that are not finite.
static UNCHECKED: LazyLock<EncoderOptions> = LazyLock::new(EncoderOptions::default);

struct DictionaryEncoder<'a> {
    keys: Vec<usize>,
    values: NullableEncoder<'a>,
}

impl Encoder for DictionaryEncoder<'_> {
    fn encode(&mut self, at: usize, out: &mut Vec<u8>) {
        self.values.encode(self.keys[at], out);
    }
}

struct FloatEncoder<'a> {
    numbers: Float64Array,
    encoder: NullableEncoder<'a>,
    unshown: Arc<OnceLock<String>>,
}

impl Encoder for FloatEncoder<'_> {
    fn encode(&mut self, at: usize, out: &mut Vec<u8>) {
        let number = self.numbers.value(at);
        if !number.is_finite() {
            let _ = self.unshown.set(format!("{number} is no number"));
        }
        self.encoder.encode(at, out);
    }
}

struct TemporalEncoder<'a> {
    array: &'a dyn Array,
    formatter: ArrayFormatter<'a>,
    text: String,
    unshown: Arc<OnceLock<String>>,
}

impl Encoder for TemporalEncoder<'_> {
    fn encode(&mut self, at: usize, out: &mut Vec<u8>) {
        self.text.clear();
        if self.formatter.value(at).write(&mut self.text).is_err() || self.text == INVALID {
            let value = whole_number(self.array, at).unwrap_or_else(|| "a value".to_owned());
            // Only the first one is reported.
            let _ = self.unshown.set(format!("{value} is no {}", self.array.data_type()));
        }
        // None of the formats has a character to escape.
        out.push(b'"');
        out.extend_from_slice(self.text.as_bytes());
        out.push(b'"');
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        ArrayRef, Date32Array, DictionaryArray, DurationSecondArray, Int8Array, ListArray, MapArray,
        RecordBatchOptions, StringArray, StructArray, Time64NanosecondArray, TimestampMicrosecondArray,
    };
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::{Field, Int32Type, Schema};

    use super::*;

    fn written(columns: Vec<(&str, ArrayRef)>) -> Result<String, String> {
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut text = String::new();
        let outcome = JsonRows::new().write(&batch, |row| {
            text.push_str(std::str::from_utf8(row).unwrap());
            Ok(())
        });
        match outcome {
            Ok(()) => Ok(text),
            Err(Failure::Error(message)) => Err(message),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_column_has_a_key() {
        let names: ArrayRef = Arc::new(StringArray::from(vec![Some("a \"quoted\" word"), None]));
        let days: ArrayRef = Arc::new(Date32Array::from(vec![None, Some(1)]));
        let lists: ArrayRef =
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None]));
        let expected = r#"{"n":"a \"quoted\" word","a \"day\"":null,"l":[1,null]}{"n":null,"a \"day\"":"1970-01-02","l":null}"#;
        assert_eq!(written(vec![("n", names), ("a \"day\"", days), ("l", lists)]).unwrap(), expected);
    }

    #[test]
    fn values_that_cannot_be_shown_are_errors() {
        let zoned = TimestampMicrosecondArray::from(vec![0, i64::MAX]).with_timezone("UTC");
        for (column, told) in [
            (
                Arc::new(zoned) as ArrayRef,
                "row 2: 9223372036854775807 is no Timestamp(µs, \"UTC\") that JSON",
            ),
            (Arc::new(Date32Array::from(vec![i32::MAX])), "row 1: 2147483647 is no Date32 that JSON"),
            (Arc::new(Float64Array::from(vec![1.5, f64::NAN])), "row 2: NaN is no number that JSON"),
            (Arc::new(Float64Array::from(vec![f64::NEG_INFINITY])), "row 1: -inf is no number that JSON"),
            (Arc::new(Time64NanosecondArray::from(vec![-1])), "row 1: -1 is no Time64(ns) that JSON"),
            (
                Arc::new(DurationSecondArray::from(vec![i64::MAX])),
                "row 1: 9223372036854775807 is no Duration(s)",
            ),
        ] {
            let message = written(vec![("a", column)]).unwrap_err();
            assert!(message.contains("column `a`, ") && message.contains(told), "{message}");
        }
    }

    #[test]
    fn nulls_among_the_values_of_dictionaries_are_null() {
        let keys = || Int8Array::from(vec![Some(1), Some(0), None]);
        let names = StringArray::from(vec![None, Some("x")]);
        let names: ArrayRef = Arc::new(DictionaryArray::new(keys(), Arc::new(names)));
        let hidden = Float64Array::new(vec![f64::NAN, 0.5].into(), Some(vec![false, true].into()));
        let numbers: ArrayRef = Arc::new(DictionaryArray::new(keys(), Arc::new(hidden)));
        let expected = r#"{"n":"x","f":0.5}{"n":null,"f":null}{"n":null,"f":null}"#;
        assert_eq!(written(vec![("n", names), ("f", numbers)]).unwrap(), expected);
    }

    #[test]
    fn types_that_are_not_written_are_named_by_their_column() {
        let keys = Arc::new(Int8Array::from(vec![1])) as ArrayRef;
        let entries = StructArray::try_from(vec![("key", Arc::clone(&keys)), ("value", keys)]).unwrap();
        let field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
        let map: ArrayRef =
            Arc::new(MapArray::new(field, OffsetBuffer::from_lengths([1]), entries, None, false));
        let message = written(vec![("m", map)]).unwrap_err();
        assert!(message.starts_with("column `m`: "), "{message}");
    }

    #[test]
    fn values_that_are_not_written_do_not_matter() {
        let beyond: ArrayRef = Arc::new(Date32Array::from(vec![i32::MAX]));
        let field = Arc::new(Field::new("day", DataType::Date32, false));
        let nulls = Some(vec![false].into());
        let none: ArrayRef = Arc::new(StructArray::new(vec![field].into(), vec![beyond], nulls));
        assert_eq!(written(vec![("a", none)]).unwrap(), r#"{"a":null}"#);
        let options = RecordBatchOptions::new().with_row_count(Some(2));
        let empty = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap();
        let mut rows = 0;
        JsonRows::new()
            .write(&empty, |row| {
                rows += usize::from(row == b"{}");
                Ok(())
            })
            .unwrap();
        assert_eq!(rows, 2);
    }
}
