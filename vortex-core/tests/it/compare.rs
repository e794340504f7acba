//! Reading a file and comparing it with its expected contents.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchReader as _};
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::ipc::reader::FileReader;
use async_trait::async_trait;
use bytes::Bytes;
use vortex_core::io::{LocalFile, MemoryFile, MemorySink, ReadAt, StorageProfile};
use vortex_core::scan::ScanBuilder;
use vortex_core::write::{FileWriter, WriteOptions};
use vortex_core::{Error, VortexFile};

/// A file whose bytes have to be fetched.
#[derive(Debug)]
pub(crate) struct Stored(pub(crate) MemoryFile);

#[async_trait]
impl ReadAt for Stored {
    fn name(&self) -> &str {
        "stored"
    }

    async fn len(&self) -> Result<u64, Error> {
        self.0.len().await
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes, Error> {
        self.0.read(range).await
    }

    fn profile(&self) -> StorageProfile {
        StorageProfile::LOCAL
    }
}

/// Opens a file; blocks.
pub(crate) fn open(path: &Path) -> Result<VortexFile, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime starts");
    runtime.block_on(VortexFile::open(Arc::new(LocalFile::open(path)?)))
}

/// The bytes of a file with these rows.
pub(crate) async fn written(batch: &RecordBatch, options: WriteOptions) -> Bytes {
    let sink = MemorySink::new();
    let mut writer = FileWriter::try_new(sink.clone(), batch.schema(), options).expect("types are supported");
    writer.write(batch).await.expect("rows are accepted");
    writer.finish().await.expect("the file is completed");
    sink.bytes().expect("a complete file")
}

/// All rows of a file, with a given schema if there is one.
pub(crate) fn read(file: &VortexFile, schema: Option<SchemaRef>) -> Result<RecordBatch, String> {
    let mut scan = file.scan();
    if let Some(schema) = schema {
        scan = scan.with_schema(schema);
    }
    collect(scan)
}

/// All rows of a scan; blocks. Invalid Arrow data is an error.
pub(crate) fn collect(scan: ScanBuilder) -> Result<RecordBatch, String> {
    let reader = scan.into_reader().map_err(|error| error.to_string())?;
    let schema = reader.schema();
    let batches = reader.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    for batch in &batches {
        for column in batch.columns() {
            column.to_data().validate_full().map_err(|error| format!("invalid Arrow data: {error}"))?;
        }
    }
    concat_batches(&schema, &batches).map_err(|error| error.to_string())
}

/// The rows of an Arrow IPC file.
pub(crate) fn read_arrow(path: &Path) -> RecordBatch {
    let reader = FileReader::try_new(File::open(path).expect("file exists"), None).expect("an Arrow file");
    let schema = reader.schema();
    let batches = reader.collect::<Result<Vec<_>, _>>().expect("batches");
    concat_batches(&schema, &batches).expect("one schema")
}

/// Checks that a file has the expected contents: Arrow types, validity, and values bit for bit.
pub(crate) fn check(path: &Path, expected: &Path) -> Result<(), String> {
    let expected = read_arrow(expected);
    let file = open(path).map_err(|error| error.to_string())?;
    let natural = read(&file, None)?;
    // Names and types are taken from the file's own schema, the Arrow types to decode to from the expected one.
    let fields = natural.schema();
    if fields.fields().len() != expected.num_columns() {
        return Err(format!("{} columns, expected {}", fields.fields().len(), expected.num_columns()));
    }
    let wanted: Vec<Field> = fields
        .fields()
        .iter()
        .zip(expected.schema().fields())
        .map(|(ours, theirs)| Field::new(ours.name(), theirs.data_type().clone(), ours.is_nullable()))
        .collect();
    if natural.num_rows() != expected.num_rows() {
        return Err(format!("{} rows, expected {}", natural.num_rows(), expected.num_rows()));
    }
    let presented = read(&file, Some(Arc::new(Schema::new(wanted))))?;
    for (at, field) in expected.schema().fields().iter().enumerate() {
        let (ours, theirs) = (presented.column(at), expected.column(at));
        if presented.schema().field(at).name() != field.name() && fields.fields().len() > 1 {
            return Err(format!("column {at} is called {:?}", presented.schema().field(at).name()));
        }
        same(ours, theirs).map_err(|what| format!("column `{}`: {what}", field.name()))?;
    }
    Ok(())
}

/// Compares logically: values under nulls are ignored.
fn same(ours: &ArrayRef, theirs: &ArrayRef) -> Result<(), String> {
    if ours.data_type() != theirs.data_type() {
        return Err(format!("type {}, expected {}", ours.data_type(), theirs.data_type()));
    }
    if ours.as_ref() == theirs.as_ref() {
        return Ok(());
    }
    for row in 0..ours.len() {
        if ours.slice(row, 1).as_ref() != theirs.slice(row, 1).as_ref() {
            return Err(format!("row {row}: {:?}, expected {:?}", ours.slice(row, 1), theirs.slice(row, 1)));
        }
    }
    Ok(())
}
