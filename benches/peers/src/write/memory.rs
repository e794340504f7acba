//! The memory that writing takes, batch by batch in a separate process.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use clap::ValueEnum as _;
use datafusion::common::exec_datafusion_err;
use datafusion::error::Result;

use super::{chosen, names};
use crate::data::{DataSet, Format, Scale, copy_to_file, generated};
use crate::report;

/// The table to write, and its sizes.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) data: PathBuf,
    pub(crate) set: DataSet,
    pub(crate) row_counts: Vec<u64>,
    pub(crate) scale: Scale,
    /// Names of formats; empty means all.
    pub(crate) formats: Vec<String>,
}

/// One table in one format, written by this process.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) data: PathBuf,
    pub(crate) set: DataSet,
    pub(crate) scale: Scale,
    pub(crate) format: String,
}

impl Memory {
    /// Writes each size in each format; returns a Markdown table. The first column is for generating the
    /// rows without writing them.
    pub(crate) fn run(&self) -> Result<String> {
        let formats = chosen(&self.formats);
        let mut columns = vec!["rows only".to_owned()];
        columns.extend(names(&formats));
        let mut rows = Vec::new();
        for &row_count in &self.row_counts {
            let cells = columns.iter().map(|format| self.child(row_count, format)).collect::<Result<_>>()?;
            rows.push((format!("{row_count} rows"), cells));
        }
        Ok(report::times("Writing a stream: seconds, peak memory of the process", &columns, &rows))
    }

    fn child(&self, row_count: u64, format: &str) -> Result<String> {
        eprintln!("{row_count} rows, {format}");
        let set = self.set.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        let output = Command::new(std::env::current_exe()?)
            .args(["write-stream", "--set", &set, "--format", format])
            .args(["--rows", &row_count.to_string()])
            .args(["--scale-factor", &self.scale.tpch.to_string()])
            .arg("--data")
            .arg(&self.data)
            // Otherwise, pages of 2 MiB would count as a whole if only a few bytes of them are used.
            .env("MIMALLOC_ALLOW_THP", "0")
            .output()?;
        if !output.status.success() {
            return Err(exec_datafusion_err!("{}", String::from_utf8_lossy(&output.stderr)));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

impl Child {
    /// Writes the largest table of the set; returns the time and memory in one line.
    pub(crate) async fn run(&self) -> Result<String> {
        let tables = self.set.tables(&self.scale);
        let file = tables.last().and_then(|table| table.files.first()).expect("every set has a table");
        let format = Format::ALL.into_iter().find(|format| format.folder() == self.format);
        let start = Instant::now();
        match format {
            Some(format) => {
                let name = format!("stream-{}.{}", std::process::id(), format.extension());
                let path = self.data.join("written").join(name);
                let session = format.writer().session(2)?;
                copy_to_file(&session, generated(file)?, format, &path).await?;
                std::fs::remove_file(path)?;
            }
            None => {
                for batch in (file.rows)() {
                    std::hint::black_box(batch?);
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        Ok(format!("{seconds:.1} s, {:.0} MB", peak_memory()? as f64 / 1e6))
    }
}

/// The peak memory of this process in bytes.
fn peak_memory() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kibibytes.map(|kib| kib * 1024).ok_or_else(|| exec_datafusion_err!("/proc/self/status has no VmHWM"))
}
