//! Writing tables that are in memory: seconds and megabytes per format.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::catalog::TableProvider;
use datafusion::error::Result;

use crate::data::{DataSet, Format, Scale, copy_to_file, generate, load};
use crate::report;

/// What to write, where, and how often.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) data: PathBuf,
    pub(crate) scale: Scale,
    pub(crate) iterations: usize,
    pub(crate) target_partitions: usize,
}

/// A table in memory, as many providers as it has files.
struct Loaded {
    name: &'static str,
    files: Vec<Arc<dyn TableProvider>>,
}

impl Write {
    /// Writes the largest table of each set in each format in turn; a table in Markdown.
    pub(crate) async fn run(&self) -> Result<String> {
        let formats = [Format::Parquet, Format::Reference];
        let mut rows = Vec::new();
        for set in [DataSet::Tpch, DataSet::Analytics, DataSet::Wide, DataSet::SmallFiles] {
            let table = self.load(set).await?;
            let mut times = vec![Vec::new(); formats.len()];
            let mut sizes = vec![0; formats.len()];
            for _ in 0..self.iterations {
                for (i, &format) in formats.iter().enumerate() {
                    let (time, size) = self.write(&table, format).await?;
                    times[i].push(time);
                    sizes[i] = size;
                }
            }
            let cell = |(times, size): (&Vec<Duration>, &u64)| {
                format!("{} ms, {:.1} MB", report::time_cell(times), *size as f64 / 1e6)
            };
            rows.push((table.name.to_owned(), times.iter().zip(&sizes).map(cell).collect()));
        }
        let columns: Vec<String> = formats.iter().map(|format| format.writer().name()).collect();
        Ok(report::times("Write from memory", &columns, &rows))
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

    async fn write(&self, table: &Loaded, format: Format) -> Result<(Duration, u64)> {
        let folder = self.data.join("written").join(format.folder());
        let session = format.writer().session(self.target_partitions)?;
        let start = Instant::now();
        for (i, source) in table.files.iter().enumerate() {
            let path = folder.join(format!("{}-{i:03}.{}", table.name, format.extension()));
            copy_to_file(&session, Arc::clone(source), format, &path).await?;
        }
        let time = start.elapsed();
        let size = folder_bytes(&folder)?;
        std::fs::remove_dir_all(&folder)?;
        Ok((time, size))
    }
}

fn folder_bytes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}
