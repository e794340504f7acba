//! Cells that are too long for a printed table.
//!
//! The library that lays out tables takes time that grows with the square of the length of cells with more than 65,535
//! characters: minutes for a text of a megabyte.

use std::fmt::{self, Write};
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// Bytes of a cell that are printed.
const MAX_CELL_BYTES: usize = 10_000;

/// What stands for the rest.
const REST: &str = "… (cut; other formats print all)";

/// The rows in which long cells are cut. Columns with such cells become text.
///
/// # Errors
/// If a value cannot be printed.
pub(super) fn cut(batch: &RecordBatch, options: &FormatOptions<'_>) -> Result<RecordBatch, ArrowError> {
    let mut columns = batch.columns().to_vec();
    let mut fields = batch.schema().fields().to_vec();
    for (column, field) in columns.iter_mut().zip(&mut fields) {
        if let Some(text) = cut_column(column, options)? {
            *field = Arc::new(Field::new(field.name(), DataType::Utf8, true));
            *column = text;
        }
    }
    let schema = Schema::new_with_metadata(fields, batch.schema().metadata().clone());
    RecordBatch::try_new(Arc::new(schema), columns)
}

/// The cells of a column as text, if any of them has to be cut.
fn cut_column(column: &ArrayRef, options: &FormatOptions<'_>) -> Result<Option<ArrayRef>, ArrowError> {
    if !may_be_long(column) {
        return Ok(None);
    }
    let formatter = ArrayFormatter::try_new(column.as_ref(), options)?;
    let mut any = false;
    let mut cells = Vec::with_capacity(column.len());
    for row in 0..column.len() {
        let mut cell = Beginning::default();
        if column.is_null(row) {
            cells.push(None);
            continue;
        }
        match formatter.value(row).write(&mut cell) {
            Err(_) if cell.is_cut => cell.text.push_str(REST),
            outcome => outcome?,
        }
        any |= cell.is_cut;
        cells.push(Some(cell.text));
    }
    Ok(any.then(|| Arc::new(StringArray::from(cells)) as ArrayRef))
}

/// Whether cells may be long, as far as that is known without printing them.
fn may_be_long(column: &ArrayRef) -> bool {
    let longest = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or_default();
    let len = column.len();
    let bytes = match column.data_type() {
        DataType::RunEndEncoded(..) => return true,
        data_type if data_type.is_nested() => return true,
        DataType::Dictionary(..) => return may_be_long(column.as_any_dictionary().values()),
        DataType::Utf8View => longest(&mut column.as_string_view().lengths().map(|len| len as usize)),
        DataType::BinaryView => longest(&mut column.as_binary_view().lengths().map(|len| len as usize)),
        DataType::Utf8 => {
            longest(&mut (0..len).map(|row| column.as_string::<i32>().value_length(row) as usize))
        }
        DataType::LargeUtf8 => {
            longest(&mut (0..len).map(|row| column.as_string::<i64>().value_length(row) as usize))
        }
        DataType::Binary => {
            longest(&mut (0..len).map(|row| column.as_binary::<i32>().value_length(row) as usize))
        }
        DataType::LargeBinary => {
            longest(&mut (0..len).map(|row| column.as_binary::<i64>().value_length(row) as usize))
        }
        DataType::FixedSizeBinary(width) => usize::try_from(*width).unwrap_or_default(),
        _ => 0,
    };
    // Bytes are printed as two digits.
    bytes > MAX_CELL_BYTES / 2
}

/// The beginning of what is written.
#[derive(Default)]
struct Beginning {
    text: String,
    is_cut: bool,
}

impl Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = MAX_CELL_BYTES - self.text.len();
        if text.len() <= left {
            self.text.push_str(text);
            return Ok(());
        }
        self.text.push_str(&text[..text.floor_char_boundary(left)]);
        self.is_cut = true;
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{BinaryViewArray, Int8Array, Int32Array, ListArray, RunArray, StringViewArray};
    use arrow::buffer::OffsetBuffer;

    use super::*;

    /// The cells of a column with long ones cut.
    fn cells(column: ArrayRef) -> Vec<Option<String>> {
        let batch = RecordBatch::try_from_iter_with_nullable([("a", column, true)]).unwrap();
        let cut = cut(&batch, &FormatOptions::default()).unwrap();
        cut.column(0).as_string::<i32>().iter().map(|cell| cell.map(str::to_owned)).collect()
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let long = "é".repeat(MAX_CELL_BYTES);
        let found = cells(Arc::new(StringViewArray::from(vec![Some(long.as_str()), None, Some("short")])));
        assert_eq!(found[0].as_deref(), Some(format!("{}{REST}", &long[..MAX_CELL_BYTES]).as_str()));
        assert_eq!(found[1..], [None, Some("short".to_owned())]);
        let bytes = cells(Arc::new(BinaryViewArray::from_iter_values([[0xab; MAX_CELL_BYTES]])));
        assert!(bytes[0].as_deref().unwrap().starts_with("abab"));
        let runs = RunArray::try_new(&Int32Array::from(vec![2]), &StringArray::from(vec![long.as_str()]));
        let runs = cells(Arc::new(runs.unwrap()));
        assert!(runs.iter().all(|cell| cell.as_ref().is_some_and(|cell| cell.ends_with(REST))));
    }

    #[test]
    fn of_a_long_list_only_the_beginning_is_converted() {
        let item = Arc::new(Field::new("item", DataType::Int8, false));
        let lists = OffsetBuffer::from_lengths([1 << 20]);
        let lists = ListArray::new(item, lists, Arc::new(Int8Array::from(vec![7; 1 << 20])), None);
        let found = cells(Arc::new(lists));
        assert!(found[0].as_deref().unwrap().starts_with("[7, 7, "));
        assert_eq!(found[0].as_ref().unwrap().len(), MAX_CELL_BYTES + REST.len());
    }

    #[test]
    fn rows_without_long_cells_keep_their_types() {
        let numbers: ArrayRef = Arc::new(Int8Array::from(vec![1]));
        let text: ArrayRef = Arc::new(StringViewArray::from(vec!["short"]));
        let batch = RecordBatch::try_from_iter([("a", numbers), ("b", text)]).unwrap();
        assert_eq!(cut(&batch, &FormatOptions::default()).unwrap(), batch);
    }
}
