//! The files that suites query: golden files, and tables created from them for one run.

use std::path::{Path, PathBuf};
use std::{fs, io};

use tempfile::TempDir;

use crate::large;

/// The folder of golden files: `<release>/<case>.vortex` and, next to it, its contents as `<case>.arrow`.
/// `VORTEX_TEST_FILES` can name another folder.
pub fn golden_files() -> PathBuf {
    match std::env::var_os("VORTEX_TEST_FILES") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../vortex-core/tests/files"),
    }
}

/// Tables of several files or many rows, created in a temporary folder:
///
/// ```text
/// arrow/  and  vortex/
///   orders/release=0.36.0/part.*     hive partitions: one release each, same rows
///   orders/release=0.91.0/part.*
///   orders/release=__HIVE_DEFAULT_PARTITION__/part.*
///   lineitem/a.*  lineitem/b.*       0.36.0 without decimal columns, 0.91.0 with them
///   damaged/empty.* cut.* text.*     no bytes, the first half, something else
///   large/facts.*  large/wide.*      not from golden files: enough rows for several splits
/// ```
#[derive(Debug)]
pub struct Tables {
    folder: TempDir,
}

impl Tables {
    /// Creates the tables.
    ///
    /// # Errors
    /// If a golden file is missing or the folder cannot be written.
    pub async fn create() -> io::Result<Self> {
        let tables = Self { folder: TempDir::new()? };
        for extension in ["arrow", "vortex"] {
            tables.lay_out(extension)?;
            let folder = tables.folder(extension).join("large");
            large::write(&folder, extension).await.map_err(io::Error::other)?;
        }
        Ok(tables)
    }

    /// The tables whose files have this extension.
    pub fn folder(&self, extension: &str) -> PathBuf {
        self.folder.path().join(extension)
    }

    fn lay_out(&self, extension: &str) -> io::Result<()> {
        let golden = |name: &str| golden_files().join(name).with_extension(extension);
        let target = |name: &str| -> io::Result<PathBuf> {
            let path = self.folder(extension).join(format!("{name}.{extension}"));
            fs::create_dir_all(path.parent().unwrap_or(&path))?;
            Ok(path)
        };
        let copies = [
            ("0.36.0/tpch_orders.x", "orders/release=0.36.0/part"),
            ("0.91.0/tpch_orders.x", "orders/release=0.91.0/part"),
            ("0.75.0/tpch_orders.x", "orders/release=__HIVE_DEFAULT_PARTITION__/part"),
            ("0.36.0/tpch_lineitem_1k.x", "lineitem/a"),
            ("0.91.0/tpch_lineitem_1k.x", "lineitem/b"),
        ];
        for (from, to) in copies {
            let from = golden(from);
            let bytes = fs::read(&from)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", from.display())))?;
            fs::write(target(to)?, bytes)?;
        }
        let whole = fs::read(golden("0.91.0/tpch_orders.x"))?;
        fs::write(target("damaged/empty")?, [])?;
        fs::write(target("damaged/cut")?, &whole[..whole.len() / 2])?;
        fs::write(target("damaged/text")?, "this is not a columnar file\n".repeat(9))
    }
}
