//! The distribution of a file's bytes: kinds of columns, and metadata.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use arrow::datatypes::DataType;
use datafusion::error::{DataFusionError, Result};
use datafusion::parquet::arrow::parquet_to_arrow_schema;
use datafusion::parquet::file::reader::{FileReader as _, SerializedFileReader};
use vortex_core::VortexFile;

use crate::data::Format;

/// Bytes per kind of column.
#[derive(Debug, Default)]
pub(super) struct Columns {
    bytes: BTreeMap<&'static str, u64>,
}

/// Bytes that belong to no column: footers, layouts, statistics of files.
const REST: &str = "~ the rest";

impl Columns {
    /// Adds the bytes of a file.
    pub(super) async fn add_file(&mut self, path: &Path, format: Format) -> Result<()> {
        let size = path.metadata()?.len();
        let before: u64 = self.bytes.values().sum();
        match format {
            Format::Parquet | Format::ParquetZstd | Format::ParquetBloom => self.add_parquet(path)?,
            Format::Reference | Format::Ours(_) | Format::OursBloom => {
                self.add_vortex(path).await.map_err(|error| DataFusionError::External(Box::new(error)))?;
            }
        }
        let columns = self.bytes.values().sum::<u64>() - before;
        self.add(REST, size.saturating_sub(columns));
        Ok(())
    }

    fn add(&mut self, kind: &'static str, bytes: u64) {
        *self.bytes.entry(kind).or_default() += bytes;
    }

    fn add_parquet(&mut self, path: &Path) -> Result<()> {
        let reader = SerializedFileReader::new(std::fs::File::open(path)?)?;
        let metadata = reader.metadata();
        let file = metadata.file_metadata();
        let schema = parquet_to_arrow_schema(file.schema_descr(), file.key_value_metadata())?;
        for group in metadata.row_groups() {
            for column in group.columns() {
                let root = column.column_path().parts().first().map(String::as_str).unwrap_or_default();
                let bytes = u64::try_from(column.compressed_size()).unwrap_or(0);
                self.add(kind(schema.field_with_name(root)?.data_type()), bytes);
            }
        }
        Ok(())
    }

    async fn add_vortex(&mut self, path: &Path) -> vortex_core::Result<()> {
        let file = VortexFile::open_path(path).await?;
        let footer = file.footer();
        for (at, field) in file.schema()?.fields().iter().enumerate() {
            let Some(layout) = footer.layout().field(at)? else { continue };
            for id in layout.all_segments()? {
                self.add(kind(field.data_type()), u64::from(footer.segment(id)?.length));
            }
        }
        Ok(())
    }

    /// One row per kind, in MB, with several formats side by side.
    pub(super) fn rows(formats: &[&Self]) -> Vec<(String, Vec<String>)> {
        let kinds: BTreeSet<&str> = formats.iter().flat_map(|it| it.bytes.keys().copied()).collect();
        let cell = |bytes: u64| format!("{:.3}", bytes as f64 / 1e6);
        let row = |kind: &str| -> Vec<String> {
            formats.iter().map(|it| cell(it.bytes.get(kind).copied().unwrap_or(0))).collect()
        };
        kinds.iter().map(|kind| ((*kind).to_owned(), row(kind))).collect()
    }
}

fn kind(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Boolean => "booleans",
        DataType::Int64 | DataType::UInt64 => "integers of 64 bits",
        integer if integer.is_integer() => "integers below 64 bits",
        float if float.is_floating() => "floats",
        decimal if decimal.is_decimal() => "decimals",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "strings",
        temporal if temporal.is_temporal() => "dates and times",
        _ => "others",
    }
}
