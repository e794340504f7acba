//! Rows of Parquet files on local disks, read page by page.
//!
//! DataFusion fetches the chunks of all columns of a row group before it decodes the first row: more than a
//! hundred megabytes for a table of a hundred columns. A conversion reads each column once, from start to
//! end, and needs only one page of each at a time.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, SchemaRef};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::{ARROW_SCHEMA_META_KEY, ProjectionMask};
use parquet::basic::{ConvertedType, Type};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::schema::types::ColumnDescriptor;

use super::find::Found;
use super::input::{Rows, Wanted};
use crate::columns::with_types;
use crate::failure::{Failure, Outcome};

/// Maximum number of rows per batch, and of bytes that they take on average.
const BATCH_ROWS: usize = 8192;
const BATCH_BYTES: i64 = 64 << 20;

/// A file whose metadata has been read. It is opened again for its rows: there may be more files than a process
/// can have open.
struct Described {
    name: String,
    path: PathBuf,
    schema: SchemaRef,
    rows: i64,
    /// Number of rows to read.
    limit: usize,
}

/// Rows of files, one after the other; `None` if DataFusion is required: if files have different schemas or a
/// declared order, or a column does not exist.
pub(super) fn read_pages(files: &[(&Found, PathBuf)], wanted: &Wanted<'_>) -> Outcome<Option<Rows>> {
    let mut schema: Option<SchemaRef> = None;
    let mut left = wanted.limit.unwrap_or(u64::MAX);
    let mut count = 0;
    let mut described = Vec::with_capacity(files.len());
    for (found, path) in files {
        let at_file = |error: Failure| Failure::at(&found.name, error);
        let file = File::open(path).map_err(|error| at_file(error.into()))?;
        let metadata = metadata(&file).map_err(at_file)?;
        let description = metadata.metadata();
        let is_sorted = description
            .row_groups()
            .iter()
            .any(|group| group.sorting_columns().is_some_and(|order| !order.is_empty()));
        let own = metadata.schema();
        check_intervals(&metadata, wanted.columns).map_err(at_file)?;
        if is_sorted || has_int96(description) || *schema.get_or_insert_with(|| Arc::clone(own)) != *own {
            return Ok(None);
        }
        let rows = description.file_metadata().num_rows();
        let wanted = u64::try_from(rows).unwrap_or(0).min(left);
        left -= wanted;
        count += wanted;
        let limit = usize::try_from(wanted).unwrap_or(usize::MAX);
        let (name, path, schema) = (found.name.clone(), path.clone(), Arc::clone(own));
        described.push(Described { name, path, schema, rows, limit });
    }
    let Some(schema) = schema else { return Ok(None) };
    let columns = match wanted.columns {
        None => None,
        Some(names) => match names.iter().map(|name| schema.index_of(name)).collect::<Result<Vec<_>, _>>() {
            Ok(columns) => Some(columns),
            Err(_) => return Ok(None),
        },
    };
    let projected = match &columns {
        None => schema,
        Some(columns) => Arc::new(schema.project(columns)?),
    };
    // A file is read when the preceding one has ended.
    let batches = stream::iter(described).map(move |file| {
        let batches = read(&file, columns.as_deref()).map_err(|failure| Failure::at(&file.name, failure))?;
        let at_file = move |failure: Failure| Failure::at(&file.name, failure);
        Ok::<_, Failure>(stream::iter(batches).map_err(at_file))
    });
    let batches = batches.try_flatten().boxed();
    Ok(Some(Rows { schema: projected, count: Some(count), order: None, batches }))
}

/// What a file says about its columns. Those whose Arrow type is a dictionary of decimals or half floats are read as
/// plain values: the reader of Arrow 59 knows no such dictionaries where Parquet has values of fixed length.
fn metadata(file: &File) -> Outcome<ArrowReaderMetadata> {
    let metadata = ArrowReaderMetadata::load(file, ArrowReaderOptions::new())?;
    let stored = metadata.metadata().file_metadata().schema_descr().columns();
    let is_fixed = |column: &Field| {
        let is_of = |stored: &ColumnDescriptor| stored.path().parts().first() == Some(column.name());
        stored.iter().any(|stored| is_of(stored) && stored.physical_type() == Type::FIXED_LEN_BYTE_ARRAY)
    };
    let plain = with_types(metadata.schema(), |column| match column.data_type() {
        DataType::Dictionary(_, values)
            if (values.is_decimal() || **values == DataType::Float16) && is_fixed(column) =>
        {
            values.as_ref().clone()
        }
        other => other.clone(),
    });
    if plain == **metadata.schema() {
        return Ok(metadata);
    }
    let options = ArrowReaderOptions::new().with_schema(Arc::new(plain));
    Ok(ArrowReaderMetadata::try_new(Arc::clone(metadata.metadata()), options)?)
}

/// Whether a file has timestamps of 96 bits, of which DataFusion reads those outside of 1677 to 2262, too.
fn has_int96(description: &ParquetMetaData) -> bool {
    let columns = description.file_metadata().schema_descr().columns();
    columns.iter().any(|column| column.physical_type() == Type::INT96)
}

/// Refuses intervals, unless the schema that Arrow stores in a file tells their kind: the reader of Arrow 59 leaves out
/// their months.
fn check_intervals(metadata: &ArrowReaderMetadata, columns: Option<&[String]>) -> Outcome {
    let file = metadata.metadata().file_metadata();
    let entries = file.key_value_metadata().into_iter().flatten();
    if entries.into_iter().any(|entry| entry.key == ARROW_SCHEMA_META_KEY) {
        return Ok(());
    }
    let is_wanted = |name: &str| columns.is_none_or(|columns| columns.iter().any(|column| column == name));
    let intervals = file.schema_descr().columns().iter();
    let mut intervals = intervals.filter(|column| column.converted_type() == ConvertedType::INTERVAL);
    match intervals.find(|column| column.path().parts().first().is_some_and(|name| is_wanted(name))) {
        None => Ok(()),
        Some(column) => Err(Failure::error(format!(
            "column `{}` has intervals, whose months would be lost; leave it out with --exclude, or write it as text",
            column.path().string()
        ))),
    }
}

/// Number of rows of a batch: fewer than usual if they are long.
fn batch_rows(description: &ParquetMetaData) -> usize {
    // Text that repeats takes little in a file, so newer ones state how much it is.
    let column_bytes = |column: &ColumnChunkMetaData| {
        column.unencoded_byte_array_data_bytes().unwrap_or(0).max(column.uncompressed_size())
    };
    let group_bytes =
        |group: &RowGroupMetaData| group.columns().iter().map(column_bytes).fold(0, i64::saturating_add);
    let groups = description.row_groups().iter().filter(|group| group.num_rows() > 0);
    let longest = groups.map(|group| group_bytes(group) / group.num_rows()).max().unwrap_or(0);
    usize::try_from(BATCH_BYTES / longest.max(1)).unwrap_or(1).clamp(1, BATCH_ROWS)
}

/// The rows of a file, with these columns in this order.
fn read(
    described: &Described,
    columns: Option<&[usize]>,
) -> Outcome<impl Iterator<Item = Outcome<RecordBatch>> + Send + use<>> {
    let file = File::open(&described.path)?;
    let metadata = metadata(&file)?;
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata);
    let rows = builder.metadata().file_metadata().num_rows();
    if rows != described.rows || *builder.schema() != described.schema {
        return Err(Failure::error("was replaced by another file while it was read"));
    }
    let mask = match columns {
        None => ProjectionMask::all(),
        Some(columns) => ProjectionMask::roots(builder.parquet_schema(), columns.iter().copied()),
    };
    let batch_rows = batch_rows(builder.metadata());
    let reader =
        builder.with_projection(mask).with_batch_size(batch_rows).with_limit(described.limit).build()?;
    // Each column is read once, in the order of the file.
    let order = columns.map(|columns| {
        let mut read = columns.to_vec();
        read.sort_unstable();
        read.dedup();
        columns.iter().map(|column| read.partition_point(|other| other < column)).collect::<Vec<_>>()
    });
    Ok(reader.map(move |batch| match &order {
        None => Ok(batch?),
        Some(order) => Ok(batch?.project(order)?),
    }))
}
