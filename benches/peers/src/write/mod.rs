//! Writing: seconds, sizes, sizes per kind of column, and memory.
//!
//! ```text
//! time, size    a table in memory, formats in turn, in repeated rounds
//! columns       bytes of integers, floats, strings, ... in the files of the last round
//! memory        a separate process per format, fed batch by batch; its high-water mark
//! ```

mod columns;
mod memory;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::catalog::TableProvider;
use datafusion::error::Result;

use crate::data::{DataSet, Format, Scale, copy_to_file, generate, load};
use crate::report;
use columns::Columns;
pub(crate) use memory::{Child, Memory};

/// What to write, where, and how often.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) data: PathBuf,
    pub(crate) scale: Scale,
    pub(crate) sets: Vec<DataSet>,
    pub(crate) iterations: usize,
    pub(crate) target_partitions: usize,
    /// Names of formats; empty means all.
    pub(crate) formats: Vec<String>,
}

/// A table in memory, with as many providers as it has files.
struct Loaded {
    name: &'static str,
    files: Vec<Arc<dyn TableProvider>>,
}

/// The measurements of one format for one table.
#[derive(Debug, Default)]
struct Outcome {
    times: Vec<Duration>,
    bytes: u64,
    columns: Columns,
}

impl Write {
    /// Writes the largest table of each set in each format in turn; returns Markdown tables.
    pub(crate) async fn run(&self) -> Result<String> {
        let formats = chosen(&self.formats);
        let mut summary = Vec::new();
        let mut per_kind = String::new();
        for &set in &self.sets {
            let table = self.load(set).await?;
            let folder = self.data.join("written");
            let mut outcomes: Vec<Outcome> = formats.iter().map(|_| Outcome::default()).collect();
            for round in 0..self.iterations {
                for turn in 0..formats.len() {
                    // A different one starts each time, so that a noisy machine affects all of them equally.
                    let at = (turn + round) % formats.len();
                    eprint!("{} {} ", table.name, formats[at].folder());
                    let folder = folder.join(round.to_string()).join(formats[at].folder());
                    self.write(&table, formats[at], &folder, &mut outcomes[at]).await?;
                }
                eprintln!();
            }
            std::fs::remove_dir_all(&folder)?;
            let cell = |outcome: &Outcome| {
                format!("{} ms, {:.2} MB", report::time_cell(&outcome.times), outcome.bytes as f64 / 1e6)
            };
            summary.push((table.name.to_owned(), outcomes.iter().map(cell).collect()));
            let columns: Vec<&Columns> = outcomes.iter().map(|outcome| &outcome.columns).collect();
            per_kind.push('\n');
            per_kind.push_str(&report::times(
                &format!("MB per kind of column: {}", table.name),
                &names(&formats),
                &Columns::rows(&columns),
            ));
        }
        Ok(report::times("Write from memory: median (least), size", &names(&formats), &summary) + &per_kind)
    }

    async fn load(&self, set: DataSet) -> Result<Loaded> {
        generate(&self.data, set, &self.scale, &[Format::Parquet]).await?;
        let tables = set.tables(&self.scale);
        let table = tables.last().expect("the largest table is the last one of its set");
        let mut files = Vec::new();
        for path in table.paths(&self.data, set, &self.scale, Format::Parquet) {
            files.push(load(&path, 1).await?);
        }
        Ok(Loaded { name: table.name, files })
    }

    /// One round of one format. Its files are truncated afterwards and kept until the set is done: ext4
    /// searches for the place of a new file beyond all recently deleted ones, which took a quarter of the
    /// time of 300 files.
    async fn write(
        &self,
        table: &Loaded,
        format: Format,
        folder: &Path,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let session = format.writer().session(self.target_partitions)?;
        let mut paths = Vec::with_capacity(table.files.len());
        let start = Instant::now();
        for (i, source) in table.files.iter().enumerate() {
            let path = folder.join(format!("{}-{i:03}.{}", table.name, format.extension()));
            copy_to_file(&session, Arc::clone(source), format, &path).await?;
            paths.push(path);
        }
        outcome.times.push(start.elapsed());
        outcome.bytes = 0;
        outcome.columns = Columns::default();
        for path in &paths {
            outcome.bytes += path.metadata()?.len();
            outcome.columns.add_file(path, format).await?;
            File::create(path)?;
        }
        Ok(())
    }
}

/// The formats with these names; all formats if there are no names.
fn chosen(names: &[String]) -> Vec<Format> {
    let wanted = |format: &Format| names.is_empty() || names.iter().any(|name| name == format.folder());
    Format::ALL.into_iter().filter(wanted).collect()
}

fn names(formats: &[Format]) -> Vec<String> {
    formats.iter().map(|format| format.folder().to_owned()).collect()
}
