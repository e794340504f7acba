//! Rows printed one column per line: tables of many columns are wider than screens.
//!
//! ```text
//! ── row 1 ──
//! id   │ 7
//! text │ a text
//!      │ of two lines
//! ```

use std::io::{BufWriter, Write, stdout};

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion_cli::print_options::MaxRows;

use super::long_cells;
use crate::failure::Outcome;
use crate::text::{counted, visible};

/// Prints rows, up to a number of them.
pub(super) struct Records {
    /// The name of each column, all as wide as the longest.
    names: Vec<String>,
    printed: usize,
    shown: MaxRows,
}

impl Records {
    pub(super) fn new(schema: &Schema, shown: MaxRows) -> Self {
        let names: Vec<String> = schema.fields().iter().map(|field| visible(field.name())).collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or_default();
        let names = names.into_iter().map(|name| format!("{name:width$}")).collect();
        Self { names, printed: 0, shown }
    }

    pub(super) fn push(&mut self, batch: &RecordBatch, options: &FormatOptions<'_>) -> Outcome {
        let left = match self.shown {
            MaxRows::Limited(rows) => rows - self.printed,
            MaxRows::Unlimited => usize::MAX,
        };
        if left == 0 {
            return Ok(());
        }
        let batch = long_cells::cut(&batch.slice(0, batch.num_rows().min(left)), options)?;
        let mut out = BufWriter::new(stdout().lock());
        self.write(&batch, options, &mut out)?;
        Ok(out.flush()?)
    }

    /// Tells that there are more than the `printed` rows, unless they are all of so many.
    pub(super) fn finish(self, rows: usize) -> Outcome {
        if self.printed < rows {
            writeln!(stdout(), "── {} not shown ──", counted((rows - self.printed) as u64, "row"))?;
        }
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch, options: &FormatOptions<'_>, out: &mut impl Write) -> Outcome {
        let formatters = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, options));
        let formatters = formatters.collect::<Result<Vec<_>, ArrowError>>()?;
        for row in 0..batch.num_rows() {
            self.printed += 1;
            writeln!(out, "── row {} ──", self.printed)?;
            for (name, formatter) in self.names.iter().zip(&formatters) {
                let value = formatter.value(row).try_to_string()?;
                let mut lines = value.lines();
                writeln!(out, "{name} │ {}", visible(lines.next().unwrap_or_default()))?;
                for line in lines {
                    writeln!(out, "{:width$} │ {}", "", visible(line), width = name.chars().count())?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int32Array, StringArray};

    use super::*;

    fn printed(records: &mut Records, batch: &RecordBatch) -> String {
        let mut out = Vec::new();
        records.write(batch, &FormatOptions::default().with_null("NULL"), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_column_has_its_line() {
        let ids: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), None]));
        let text: ArrayRef = Arc::new(StringArray::from(vec!["a text\nof two lines", "\u{1b}[2J"]));
        let batch = RecordBatch::try_from_iter([("id", ids), ("größe", text)]).unwrap();
        let mut records = Records::new(&batch.schema(), MaxRows::Unlimited);
        let first = "── row 1 ──\nid    │ 7\ngröße │ a text\n      │ of two lines\n";
        let second = "── row 2 ──\nid    │ NULL\ngröße │ \\u{1b}[2J\n";
        assert_eq!(printed(&mut records, &batch), [first, second].concat());
        assert!(printed(&mut records, &batch).starts_with("── row 3 ──"), "rows of all batches count");
    }
}
