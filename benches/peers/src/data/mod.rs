//! The data sets: their tables, how each file is generated, and where it is stored.
//!
//! ```text
//! <data>/<set>/<format>/<table>.<extension>             one file
//! <data>/<set>/<format>/<table>/<number>.<extension>    many files
//! ```
//!
//! All data is a function of the set's scale: the same scale results in the same bytes anywhere. Parquet
//! files are created first, and all other formats are written from them, so that all engines have the
//! same rows in the same order with the same Arrow types.

pub(crate) mod analytics;
mod files;
mod random;
mod shapes;
mod small;
mod tpch;
mod visits;
mod wide;

use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use clap::ValueEnum;
use datafusion::error::Result;

pub(crate) use files::{Format, Level, copy_to_file, generate, generated, load};
pub(crate) use random::mix;

/// Batches in row order, generated on demand.
pub(crate) type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// The size of the sets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    /// TPC-H scale factor.
    pub(crate) tpch: f64,
    /// Rows of the web-analytics table.
    pub(crate) events: u64,
    /// Number of files of the table of small files.
    pub(crate) files: u64,
}

/// A named group of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DataSet {
    /// The eight tables of TPC-H.
    Tpch,
    /// One table of 105 columns, the hit log of a web-analytics service.
    Analytics,
    /// One table of 3,000 columns and 1,000 rows.
    Wide,
    /// One table consisting of small files.
    SmallFiles,
}

/// One table and the files it consists of.
pub(crate) struct Table {
    /// Its name in SQL.
    pub(crate) name: &'static str,
    /// A single file is stored next to the others; several are stored in a folder named after the table.
    pub(crate) files: Vec<FileSource>,
}

/// The content of one file.
pub(crate) struct FileSource {
    /// The types of the rows.
    pub(crate) schema: SchemaRef,
    /// Generates the rows, starting from the first one on each call.
    pub(crate) rows: Box<dyn Fn() -> Batches + Send + Sync>,
}

impl DataSet {
    /// The folder of the set, which depends on the scale.
    pub(crate) fn folder(self, scale: &Scale) -> String {
        match self {
            Self::Tpch => format!("tpch-sf{}", scale.tpch),
            Self::Analytics => format!("analytics-{}", scale.events),
            Self::Wide => "wide".into(),
            Self::SmallFiles => format!("small-files-{}", scale.files),
        }
    }

    /// The tables of the set.
    pub(crate) fn tables(self, scale: &Scale) -> Vec<Table> {
        match self {
            Self::Tpch => tpch::tables(scale.tpch),
            Self::Analytics => vec![analytics::table(scale.events)],
            Self::Wide => vec![wide::table()],
            Self::SmallFiles => vec![small::table(scale.files)],
        }
    }
}

impl Table {
    /// The location of the table under `data`: a file, or a folder if there are several files.
    pub(crate) fn location(&self, data: &Path, set: DataSet, scale: &Scale, format: Format) -> PathBuf {
        let folder = data.join(set.folder(scale)).join(format.folder());
        match self.files.len() {
            1 => folder.join(format!("{}.{}", self.name, format.extension())),
            _ => folder.join(self.name),
        }
    }

    /// The paths of the files, in the order of `files`.
    pub(crate) fn paths(&self, data: &Path, set: DataSet, scale: &Scale, format: Format) -> Vec<PathBuf> {
        let location = self.location(data, set, scale, format);
        match self.files.len() {
            1 => vec![location],
            n => (0..n).map(|i| location.join(format!("{i:03}.{}", format.extension()))).collect(),
        }
    }
}
