//! Query results in the form used by suites: one text per cell, one letter per column.

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use sqllogictest::ColumnType;

/// The kind of a column, as a letter after `query`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// `B`
    Bool,
    /// `I`
    Integer,
    /// `R`: floats and decimals
    Number,
    /// `T`
    Text,
    /// `D`
    Date,
    /// `P`
    Timestamp,
    /// `?`
    Other,
}

impl ColumnType for Cell {
    fn from_char(letter: char) -> Option<Self> {
        Some(match letter {
            'B' => Self::Bool,
            'I' => Self::Integer,
            'R' => Self::Number,
            'T' => Self::Text,
            'D' => Self::Date,
            'P' => Self::Timestamp,
            '?' => Self::Other,
            _ => return None,
        })
    }

    fn to_char(&self) -> char {
        match self {
            Self::Bool => 'B',
            Self::Integer => 'I',
            Self::Number => 'R',
            Self::Text => 'T',
            Self::Date => 'D',
            Self::Timestamp => 'P',
            Self::Other => '?',
        }
    }
}

impl Cell {
    /// The kinds of the columns of a result.
    pub fn of(schema: &SchemaRef) -> Vec<Cell> {
        schema.fields().iter().map(|field| Self::of_type(field.data_type())).collect()
    }

    fn of_type(data_type: &DataType) -> Cell {
        match data_type {
            DataType::Boolean => Self::Bool,
            DataType::Float16 | DataType::Float32 | DataType::Float64 => Self::Number,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Text,
            DataType::Date32 | DataType::Date64 => Self::Date,
            DataType::Timestamp(..) => Self::Timestamp,
            DataType::Dictionary(_, values) => Self::of_type(values),
            integer if integer.is_integer() => Self::Integer,
            decimal if decimal.is_decimal() => Self::Number,
            _ => Self::Other,
        }
    }
}

/// The rows of a batch as text.
///
/// # Errors
/// If a value of the batch has no form as text.
pub fn rows(batch: &RecordBatch) -> Result<Vec<Vec<String>>, ArrowError> {
    let options = FormatOptions::new().with_null("NULL").with_display_error(false);
    let columns = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
        .collect::<Result<Vec<_>, _>>()?;
    (0..batch.num_rows())
        .map(|row| columns.iter().map(|column| Ok(visible(&column.value(row).try_to_string()?))).collect())
        .collect()
}

/// Cells are separated by blanks and rows by line breaks, so both must be visible in cells.
fn visible(text: &str) -> String {
    if text.is_empty() {
        return "(empty)".to_owned();
    }
    if text.trim().is_empty() {
        return format!("({} blank)", text.chars().count());
    }
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() { shown.extend(letter.escape_default()) } else { shown.push(letter) }
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Float64Array, StringArray};

    use super::*;

    #[test]
    fn nulls_blanks_and_control_characters_stay_visible() {
        let texts = StringArray::from(vec![Some(""), Some("  "), Some("a\nb"), None]);
        let batch = RecordBatch::try_from_iter([("c", Arc::new(texts) as ArrayRef)]).unwrap();
        assert_eq!(rows(&batch).unwrap().concat(), ["(empty)", "(2 blank)", "a\\nb", "NULL"]);
    }

    #[test]
    fn signs_of_zero_and_nan_are_told_apart() {
        let floats = Float64Array::from(vec![0.0, -0.0, f64::NAN]);
        let batch = RecordBatch::try_from_iter([("c", Arc::new(floats) as ArrayRef)]).unwrap();
        assert_eq!(rows(&batch).unwrap().concat(), ["0.0", "-0.0", "NaN"]);
    }

    #[test]
    fn letters_and_types_agree() {
        for letter in "BIRTDP?".chars() {
            assert_eq!(Cell::from_char(letter).unwrap().to_char(), letter);
        }
        assert_eq!(Cell::from_char('x'), None);
    }
}
