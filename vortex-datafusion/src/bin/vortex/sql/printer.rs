//! Prints the rows of a result: tables as a whole, since their columns must be aligned; other formats as rows arrive.

use std::io::{BufWriter, Write as _, stdout};
use std::mem;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, RecordBatch};
use arrow::csv;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::config::FormatOptions;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion_cli::print_format::PrintFormat;
use datafusion_cli::print_options::MaxRows;

use super::long_cells;
use super::records::Records;
use crate::failure::{Failure, Outcome};
use crate::json::JsonRows;
use crate::text::{check_durations, counted, visible};

/// Prints the rows of one result.
pub(super) struct Printer {
    schema: SchemaRef,
    options: FormatOptions,
    form: Form,
    /// Rows that there were so far.
    rows: usize,
}

/// What is printed, and how much of it is yet to be.
enum Form {
    /// Rows without columns are only counted.
    NoColumns,
    Json {
        rows: JsonRows,
        /// An object per line, instead of an array of them.
        in_lines: bool,
    },
    /// CSV or TSV.
    Text {
        format: PrintFormat,
        delimiter: u8,
    },
    Table(Table),
    Records(Records),
}

/// The rows of a table that will be shown, and one more if there are more. The memory limit applies to them.
struct Table {
    kept: Vec<RecordBatch>,
    rows: usize,
    shown: MaxRows,
    memory: MemoryReservation,
}

impl Printer {
    /// # Errors
    /// If the format has no place for nested columns: before rows are computed in vain.
    pub(super) fn new(
        format: PrintFormat,
        expanded: bool,
        shown: MaxRows,
        schema: SchemaRef,
        task: &TaskContext,
    ) -> Outcome<Self> {
        let form = match format {
            _ if schema.fields().is_empty() => Form::NoColumns,
            PrintFormat::Json => Form::Json { rows: JsonRows::new(), in_lines: false },
            PrintFormat::NdJson => Form::Json { rows: JsonRows::new(), in_lines: true },
            PrintFormat::Csv => Form::text(format, "CSV", b',', &schema)?,
            PrintFormat::Tsv => Form::text(format, "TSV", b'\t', &schema)?,
            PrintFormat::Table | PrintFormat::Automatic if expanded => {
                Form::Records(Records::new(&schema, shown))
            }
            PrintFormat::Table | PrintFormat::Automatic => {
                let memory = MemoryConsumer::new("printed table").register(&task.runtime_env().memory_pool);
                Form::Table(Table { kept: Vec::new(), rows: 0, shown, memory })
            }
        };
        Ok(Self { schema, options: task.session_config().options().format.clone(), form, rows: 0 })
    }

    pub(super) fn push(&mut self, batch: &RecordBatch) -> Outcome {
        let is_first = self.rows == 0;
        self.rows += batch.num_rows();
        match &mut self.form {
            Form::NoColumns => Ok(()),
            Form::Json { rows, in_lines } => {
                let mut out = BufWriter::new(stdout().lock());
                let mut before: &[u8] = if is_first { b"[" } else { b"," };
                rows.write(batch, |row| {
                    if *in_lines {
                        return out.write_all(row).and_then(|()| out.write_all(b"\n"));
                    }
                    out.write_all(mem::replace(&mut before, b",")).and_then(|()| out.write_all(row))
                })?;
                Ok(out.flush()?)
            }
            Form::Text { format, .. } => {
                check_durations(batch)?;
                let (schema, batches, all) = (Arc::clone(&self.schema), [batch.clone()], MaxRows::Unlimited);
                let mut out = stdout().lock();
                Ok(format.print_batches(&mut out, schema, &batches, all, is_first, &self.options)?)
            }
            Form::Table(table) => table.push(batch, &self.options),
            Form::Records(records) => records.push(batch, &(&self.options).try_into()?),
        }
    }

    /// Prints what is left, and what there is even without rows: names of columns, brackets of an array. Returns how
    /// many rows there were.
    pub(super) fn finish(self) -> Outcome<usize> {
        let Self { schema, options, form, rows } = self;
        match form {
            Form::NoColumns if rows > 0 => {
                writeln!(stdout(), "{}, no columns", counted(rows as u64, "row"))?;
            }
            Form::Json { in_lines: false, .. } => {
                stdout().write_all(if rows > 0 { b"]\n" } else { b"[]\n" })?;
            }
            Form::Text { delimiter, .. } if rows == 0 => {
                let builder = csv::WriterBuilder::new().with_header(true).with_delimiter(delimiter);
                builder.build(stdout().lock()).write(&RecordBatch::new_empty(schema))?;
            }
            Form::Table(table) => table.print(schema, &options)?,
            Form::Records(records) => records.finish(rows)?,
            // Statements without a result have no columns; lines of JSON have no frame.
            Form::NoColumns | Form::Json { .. } | Form::Text { .. } => {}
        }
        Ok(rows)
    }
}

impl Form {
    /// CSV or the like, unless there are nested columns.
    fn text(format: PrintFormat, name: &str, delimiter: u8, schema: &SchemaRef) -> Outcome<Self> {
        let nested = schema.fields().iter().filter(|field| field.data_type().is_nested());
        let names: Vec<_> =
            nested.map(|field| format!("\"{}\"", visible(&field.name().replace('"', "\"\"")))).collect();
        if names.is_empty() {
            return Ok(Self::Text { format, delimiter });
        }
        Err(Failure::error(format!(
            "{name} cannot hold nested columns: leave them out, as SELECT * EXCEPT ({}) does, or choose another \
             format, such as --format json",
            names.join(", ")
        )))
    }
}

impl Table {
    fn push(&mut self, batch: &RecordBatch, options: &FormatOptions) -> Outcome {
        let wanted = match self.shown {
            MaxRows::Limited(rows) => rows.saturating_add(1),
            MaxRows::Unlimited => usize::MAX,
        };
        let rows = batch.num_rows().min(wanted - self.rows);
        if rows == 0 {
            return Ok(());
        }
        let batch = long_cells::cut(&batch.slice(0, rows), &options.try_into()?)?;
        self.memory.try_grow(size_of_rows(&batch))?;
        self.rows += rows;
        self.kept.push(batch);
        Ok(())
    }

    fn print(self, schema: SchemaRef, options: &FormatOptions) -> Outcome {
        let mut table = Vec::new();
        PrintFormat::Table.print_batches(&mut table, schema, &self.kept, self.shown, true, options)?;
        let mut out = BufWriter::new(stdout().lock());
        String::from_utf8_lossy(&table).lines().try_for_each(|line| writeln!(out, "{}", visible(line)))?;
        Ok(out.flush()?)
    }
}

/// About the bytes that the rows of a batch take: batches may share their buffers.
fn size_of_rows(batch: &RecordBatch) -> usize {
    let size = |column: &ArrayRef| {
        let text = match column.data_type() {
            DataType::Utf8View => column.as_string_view().total_buffer_bytes_used(),
            DataType::BinaryView => column.as_binary_view().total_buffer_bytes_used(),
            _ => 0,
        };
        text + column.to_data().get_slice_memory_size().unwrap_or_default()
    };
    batch.columns().iter().map(size).sum()
}
