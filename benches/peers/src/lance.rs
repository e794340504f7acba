//! Lance, in a Python process of its own: its crates need other releases of DataFusion and Arrow.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::SchemaRef;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::error::{DataFusionError, Result};

/// A process that takes rows from a dataset.
pub(crate) struct Lance {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Where it writes the rows.
    rows: PathBuf,
}

impl Lance {
    /// Starts the process, which writes the dataset from a Parquet file unless it exists.
    pub(crate) fn start(python: &Path, parquet: &Path, dataset: &Path) -> Result<Self> {
        let mut process = Command::new(python)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/lance_rows.py"))
            .args([parquet, dataset])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (requests, answers) =
            process.stdin.take().zip(process.stdout.take()).ok_or_else(|| failed("no pipes"))?;
        let rows = dataset.with_extension("rows.arrows");
        let mut lance = Self { process, requests, answers: BufReader::new(answers), rows };
        match lance.answer()?.as_str() {
            "ready" => Ok(lance),
            other => Err(failed(other)),
        }
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line)? {
            0 => Err(failed("the process has ended")),
            _ => Ok(line.trim().to_owned()),
        }
    }

    /// Takes rows, with the types of a schema, and the time that it took within the process.
    pub(crate) fn take(
        &mut self,
        is_kept: bool,
        rows: &[u64],
        schema: &SchemaRef,
    ) -> Result<(RecordBatch, Duration)> {
        let how = if is_kept { "kept" } else { "opened" };
        let list = rows.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        writeln!(self.requests, "{how} {} {list}", self.rows.display())?;
        let nanos = self.answer()?.parse().map_err(|_| failed("no time"))?;
        let stream = StreamReader::try_new(File::open(&self.rows)?, None)?;
        let read = stream.schema();
        let batch = concat_batches(&read, &stream.collect::<Result<Vec<_>, _>>()?)?;
        let columns = batch.columns().iter().zip(schema.fields());
        let columns =
            columns.map(|(column, field)| cast(column, field.data_type())).collect::<Result<_, _>>()?;
        Ok((RecordBatch::try_new(SchemaRef::clone(schema), columns)?, Duration::from_nanos(nanos)))
    }
}

impl Drop for Lance {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.rows);
    }
}

fn failed(what: &str) -> DataFusionError {
    DataFusionError::Execution(format!("Lance: {what}"))
}
