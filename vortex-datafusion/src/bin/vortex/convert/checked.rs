//! Dates, times and decimals of CSV files, whose types are inferred from the first lines or given.
//!
//! Other lines may need more than these types hold: `2020-01-01T10:30:00.5` in a column of dates, or of seconds. The
//! CSV reader would cut such values off. Therefore, the columns are read as text and converted here, and a value that
//! is not kept as a whole is an error, just as `x` is in a column of integers.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, TimeUnit};
use arrow::error::ArrowError;
use datafusion::common::{Column, Result};
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{ColumnarValue, Expr, ScalarUDF, Volatility, create_udf};

/// Number of characters of a date.
const DATE: usize = "2020-01-01".len();

/// Columns that are read as text, and their types.
#[derive(Debug, Default)]
pub(super) struct Checked(Vec<FieldRef>);

impl Checked {
    /// The schema to read, and the columns of it that are to be converted.
    pub(super) fn of(schema: &Schema) -> (Schema, Self) {
        let is_checked = |field: &&FieldRef| digits(field.data_type()).is_some();
        let checked = schema.fields().iter().filter(is_checked).cloned().collect();
        let read = |field: &FieldRef| {
            if is_checked(&field) {
                Arc::new(Field::new(field.name(), DataType::Utf8, true))
            } else {
                Arc::clone(field)
            }
        };
        let fields: Vec<_> = schema.fields().iter().map(read).collect();
        (Schema::new_with_metadata(fields, schema.metadata().clone()), Self(checked))
    }

    /// The rows with these columns converted.
    ///
    /// # Errors
    /// If they lack one of the columns.
    pub(super) fn converted(&self, rows: DataFrame) -> Result<DataFrame> {
        if self.0.is_empty() {
            return Ok(rows);
        }
        let columns = rows.schema().fields().iter().map(|field| {
            let column = Expr::Column(Column::from_name(field.name()));
            match self.0.iter().find(|checked| checked.name() == field.name()) {
                Some(checked) => conversion(checked).call(vec![column]).alias(field.name()),
                None => column,
            }
        });
        let columns: Vec<Expr> = columns.collect();
        rows.select(columns)
    }
}

/// The number of digits after the second that a type of dates or times keeps, or after the point that one of decimals
/// does; `None` for other types.
fn digits(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::Date32 => Some(0),
        DataType::Timestamp(unit, _) | DataType::Time32(unit) | DataType::Time64(unit) => Some(match unit {
            TimeUnit::Second => 0,
            TimeUnit::Millisecond => 3,
            TimeUnit::Microsecond => 6,
            TimeUnit::Nanosecond => 9,
        }),
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => Some(usize::try_from(*scale).unwrap_or(0)),
        _ => None,
    }
}

/// The function from text to the type of a column.
fn conversion(column: &Field) -> ScalarUDF {
    let to = column.clone();
    let convert = move |arguments: &[ColumnarValue]| {
        let texts = ColumnarValue::values_to_arrays(arguments)?;
        Ok(ColumnarValue::Array(parse(&texts[0], &to)?))
    };
    let name = format!("value_of_{}", column.name());
    create_udf(
        &name,
        vec![DataType::Utf8],
        column.data_type().clone(),
        Volatility::Immutable,
        Arc::new(convert),
    )
}

fn parse(texts: &ArrayRef, column: &Field) -> Result<ArrayRef> {
    let to = column.data_type();
    for text in texts.as_string::<i32>().iter().flatten() {
        if !is_kept(text.trim(), to) {
            return Err(misfit(text, column).into());
        }
    }
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let times = cast_with_options(texts, to, &options)?;
    let failed = (0..texts.len()).find(|row| times.is_null(*row) && !texts.is_null(*row));
    match failed {
        Some(row) => Err(misfit(texts.as_string::<i32>().value(row), column).into()),
        None => Ok(times),
    }
}

/// Whether a type keeps all of a date, a time or a number.
fn is_kept(text: &str, to: &DataType) -> bool {
    let is_zero = |text: &str| !text.contains(|char: char| char.is_ascii_digit() && char != '0');
    if *to == DataType::Date32 {
        return text.get(DATE..).is_none_or(is_zero);
    }
    let Some((_, fraction)) = text.rsplit_once('.') else { return true };
    let end = fraction.find(|char: char| !char.is_ascii_digit()).unwrap_or(fraction.len());
    fraction.get(digits(to).unwrap_or_default()..end).is_none_or(is_zero)
}

fn misfit(text: &str, column: &Field) -> ArrowError {
    let (name, to) = (column.name(), column.data_type());
    ArrowError::ParseError(format!(
        "column `{name}`: `{text}` does not fit {to}, the type of the first lines, or the one given"
    ))
}

#[cfg(test)]
mod tests {
    use arrow::array::StringArray;

    use super::*;

    #[test]
    fn what_a_type_does_not_keep_is_an_error() {
        let second = DataType::Timestamp(TimeUnit::Second, None);
        let micro = DataType::Timestamp(TimeUnit::Microsecond, None);
        for (text, to, is_kept) in [
            ("2020-01-02", &DataType::Date32, true),
            ("2020-01-02T00:00:00.000", &DataType::Date32, true),
            ("2020-01-02T10:30:00", &DataType::Date32, false),
            ("2020-02-30", &DataType::Date32, false),
            ("tomorrow", &DataType::Date32, false),
            ("2020-01-02T10:30:00", &second, true),
            ("2020-01-02", &second, true),
            ("2020-01-02T10:30:00.000", &second, true),
            ("2020-01-02T10:30:00.5", &second, false),
            ("2020-01-02T10:30:00.5", &micro, true),
            ("2020-01-02T10:30:00.123456+02:00", &micro, true),
            ("2020-01-02T10:30:00.1234567", &micro, false),
            ("1000-01-01T00:00:00.123456789", &DataType::Timestamp(TimeUnit::Nanosecond, None), false),
        ] {
            let texts: ArrayRef = Arc::new(StringArray::from(vec![None, Some(text)]));
            let times = parse(&texts, &Field::new("t", to.clone(), true));
            assert_eq!(times.is_ok(), is_kept, "{text} as {to}");
            match times {
                Ok(times) => assert_eq!(times.data_type(), to),
                Err(error) => {
                    assert!(error.to_string().contains(&format!("column `t`: `{text}`")), "{error}")
                }
            }
        }
    }
}
