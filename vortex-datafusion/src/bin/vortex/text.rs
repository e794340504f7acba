//! Formatting of numbers, names and values for people.

use arrow::array::{Array, RecordBatch, make_array};
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::failure::{Failure, Outcome};

/// What Arrow shows of a duration that is too long for it, instead of an error.
pub(crate) const INVALID: &str = "<invalid>";

/// Refuses durations that Arrow writes to CSV as `<invalid>`.
pub(crate) fn check_durations(batch: &RecordBatch) -> Outcome {
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        if !matches!(field.data_type(), DataType::Duration(_)) {
            continue;
        }
        let formatter = ArrayFormatter::try_new(column, &FormatOptions::new())?;
        let is_invalid = |row: &usize| column.is_valid(*row) && formatter.value(*row).to_string() == INVALID;
        if let Some(row) = (0..column.len()).find(is_invalid) {
            return Err(Failure::error(format!(
                "column `{}`: {} is no {} that can be shown as text; leave the column out, or cast it in SQL",
                field.name(),
                whole_number(column, row).unwrap_or_default(),
                field.data_type()
            )));
        }
    }
    Ok(())
}

/// A number with separators between thousands.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// A byte count with a unit.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    let mut value = number as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A number and a noun, in the plural unless the number is one.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Text from a file with control characters made visible: a name in a file must not control the terminal.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        // Including those that change the direction of text.
        let steers =
            letter.is_control() || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if steers { shown.extend(letter.escape_default()) } else { shown.push(letter) }
    }
    shown
}

/// A value as Arrow displays it, or else as the number that is stored: a date may lie beyond the calendar.
pub(crate) fn value(array: &dyn Array, at: usize) -> Option<String> {
    let formatter = ArrayFormatter::try_new(array, &FormatOptions::new()).ok()?;
    let text = formatter.value(at).try_to_string().ok();
    text.filter(|text| text != INVALID).or_else(|| whole_number(array, at))
}

/// The number that is stored for a date, a time or a duration.
pub(crate) fn whole_number(array: &dyn Array, at: usize) -> Option<String> {
    let whole = match array.data_type().primitive_width()? {
        4 => DataType::Int32,
        8 => DataType::Int64,
        _ => return None,
    };
    let data = array.slice(at, 1).to_data().into_builder().data_type(whole).build().ok()?;
    let numbers = make_array(data);
    ArrayFormatter::try_new(numbers.as_ref(), &FormatOptions::new()).ok()?.value(0).try_to_string().ok()
}

/// At most `limit` characters of a text.
pub(crate) fn shortened(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A size that is not zero.
pub(crate) fn parse_size(text: &str) -> Result<usize, String> {
    let size = usize::try_from(vortex_datafusion::parse_size(text)?).unwrap_or(usize::MAX);
    if size == 0 { Err("at least one byte is needed".to_owned()) } else { Ok(size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn sizes_never_show_a_thousand_of_a_unit() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes(1024 * 1024 - 1), "1.0 MiB");
        assert_eq!(bytes(u64::MAX), "16384.0 PiB");
    }

    #[test]
    fn names_cannot_steer_the_terminal() {
        assert_eq!(visible("a\u{1b}[31m\n"), "a\\u{1b}[31m\\n");
        assert_eq!(visible("naïve 日本"), "naïve 日本");
    }

    #[test]
    fn values_that_cannot_be_shown_are_numbers() {
        let days = arrow::array::Date32Array::from(vec![0, i32::MAX]);
        assert_eq!(
            (value(&days, 0), value(&days, 1)),
            (Some("1970-01-01".into()), Some("2147483647".into()))
        );
        let times = arrow::array::Time64NanosecondArray::from(vec![Some(-1), None]);
        assert_eq!(value(&times, 0), Some("-1".into()));
        let durations = arrow::array::DurationSecondArray::from(vec![5, i64::MIN]);
        assert_eq!(
            (value(&durations, 0), value(&durations, 1)),
            (Some("PT5S".into()), Some(i64::MIN.to_string()))
        );
    }
}
