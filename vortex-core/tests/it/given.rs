//! What tests start from: files of releases, files written for one test, where they are stored, and their rows.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::{
    Array as _, ArrayData, ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, ListArray,
    PrimitiveArray, RecordBatch, RecordBatchOptions, RecordBatchReader as _, StringArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{
    DataType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType, Field, Fields,
    SchemaRef,
};
use arrow::error::ArrowError;
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use vortex_core::file::OpenOptions;
use vortex_core::io::{MemoryFile, MemorySink, ReadAt, StorageProfile};
use vortex_core::scan::ScanBuilder;
use vortex_core::write::{FileWriter, WriteOptions, WriteSummary};
use vortex_core::{Error, Result, Verification, VortexFile, verify};

/// The folder of files written by real releases, `<release>/<case>.vortex` beside `<case>.arrow`.
pub(crate) fn golden_files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files")
}

/// One of these files, or a folder of them.
pub(crate) fn golden(name: &str) -> PathBuf {
    golden_files().join(name)
}

/// The Vortex files of a folder.
pub(crate) fn files_of(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a readable folder");
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "vortex"))
}

/// The line items of the examples, in several zones.
pub(crate) fn lineitem() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/data/lineitem.vortex")
}

/// A table of `rows` rows: ascending numbers, occasional nulls, floats, text, a struct and a list.
pub(crate) fn table(rows: usize) -> RecordBatch {
    let ids = Int64Array::from_iter_values(0..rows as i64);
    let some = |at: usize| !at.is_multiple_of(7);
    let nulls = NullBuffer::from_iter((0..rows).map(some));
    let numbers = Int32Array::from_iter((0..rows).map(|at| some(at).then_some((at * 7919 % 10_000) as i32)));
    let floats =
        Float64Array::from_iter_values((0..rows).map(|at| if at == 5 { f64::NAN } else { at as f64 / 8.0 }));
    let text = StringArray::from_iter((0..rows).map(|at| some(at).then(|| format!("row number {at}"))));
    let flags: ArrayRef = Arc::new(BooleanArray::from_iter((0..rows).map(|at| Some(at % 3 == 0))));
    let inner: ArrayRef = Arc::new(Int32Array::from_iter_values(0..rows as i32));
    let fields = Fields::from(vec![
        Field::new("flag", DataType::Boolean, true),
        Field::new("inner", DataType::Int32, false),
    ]);
    let structs = StructArray::new(fields, vec![flags, inner], Some(nulls));
    let elements = Arc::new(Int32Array::from_iter_values(0..(rows * 2) as i32));
    let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(2, rows));
    let lists = ListArray::new(Arc::new(Field::new("item", DataType::Int32, false)), offsets, elements, None);
    RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(ids) as ArrayRef, false),
        ("number", Arc::new(numbers), true),
        ("float", Arc::new(floats), false),
        ("text", Arc::new(text), true),
        ("struct", Arc::new(structs), true),
        ("list", Arc::new(lists), false),
    ])
    .unwrap()
}

/// The bytes of a file that a function writes, and what the writer says of it.
pub(crate) async fn written_by(
    schema: SchemaRef,
    options: WriteOptions,
    write: impl AsyncFnOnce(&mut FileWriter) -> Result<()>,
) -> (Bytes, WriteSummary) {
    let sink = MemorySink::new();
    let mut writer = FileWriter::try_new(sink.clone(), Arc::clone(&schema), options).unwrap();
    write(&mut writer).await.unwrap_or_else(|error| panic!("{error}: {schema:?}"));
    let summary = writer.finish().await.unwrap_or_else(|error| panic!("{error}: {schema:?}"));
    let bytes = sink.bytes().expect("a complete file");
    assert_eq!(summary.file_size(), bytes.len() as u64);
    (bytes, summary)
}

/// The bytes of a file with the rows of one or more batches.
pub(crate) async fn written(batches: impl IntoIterator<Item = &RecordBatch>, options: WriteOptions) -> Bytes {
    let mut batches = batches.into_iter().peekable();
    let schema = batches.peek().expect("a batch").schema();
    let mut rows = 0;
    let (bytes, summary) = written_by(schema, options, async |writer| {
        for batch in batches {
            writer.write(batch).await?;
            rows += batch.num_rows() as u64;
        }
        Ok(())
    })
    .await;
    assert_eq!(summary.row_count(), rows);
    bytes
}

/// A file in memory.
pub(crate) async fn opened(bytes: impl Into<Bytes>) -> VortexFile {
    VortexFile::open(Arc::new(MemoryFile::new(bytes))).await.unwrap()
}

/// What checking a file found.
pub(crate) async fn verified(bytes: impl Into<Bytes>) -> Verification {
    verify(Arc::new(MemoryFile::new(bytes)), &OpenOptions::new()).await.unwrap()
}

/// A file on disk; blocks.
pub(crate) fn open_blocking(path: &Path) -> Result<VortexFile> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime starts");
    runtime.block_on(VortexFile::open_path(path))
}

/// A file whose bytes have to be fetched from storage; counts what is fetched.
#[derive(Debug)]
pub(crate) struct Stored {
    file: MemoryFile,
    profile: StorageProfile,
    delay: fn(&Range<u64>) -> Duration,
    pub(crate) reads: AtomicU64,
    pub(crate) in_flight: AtomicU64,
}

impl Stored {
    pub(crate) fn new(bytes: impl Into<Bytes>, profile: StorageProfile) -> Self {
        let (reads, in_flight) = Default::default();
        Self { file: MemoryFile::new(bytes), profile, delay: |_| Duration::ZERO, reads, in_flight }
    }

    /// Sets the time that reads of a range take.
    pub(crate) fn with_delay(self, delay: fn(&Range<u64>) -> Duration) -> Self {
        Self { delay, ..self }
    }
}

struct InFlight<'a>(&'a AtomicU64);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl ReadAt for Stored {
    fn name(&self) -> &str {
        "stored"
    }

    async fn len(&self) -> Result<u64> {
        self.file.len().await
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let _in_flight = InFlight(&self.in_flight);
        let delay = (self.delay)(&range);
        if delay > Duration::ZERO {
            tokio::time::sleep(delay).await;
        }
        self.file.read(range).await
    }

    fn profile(&self) -> StorageProfile {
        self.profile
    }
}

const INVALID_ARROW: &str = "invalid Arrow data";

/// Whether decoded data was not valid, which no bytes of a file justify.
pub(crate) fn is_invalid_arrow(error: &Error) -> bool {
    error.to_string().contains(INVALID_ARROW)
}

/// Not for long tables with booleans in structs: Arrow's check takes nulls that begin at an earlier bit than
/// the values for too short.
fn valid(batch: RecordBatch) -> Result<RecordBatch> {
    for (column, field) in batch.columns().iter().zip(batch.schema().fields()) {
        let invalid =
            |error| Error::External(format!("{INVALID_ARROW} in `{}`: {error}", field.name()).into());
        let data = column.to_data();
        data.validate_full().and_then(|()| validate_decimals(&data)).map_err(invalid)?;
    }
    Ok(batch)
}

/// Arrow's full check does not count the digits of decimals.
fn validate_decimals(data: &ArrayData) -> std::result::Result<(), ArrowError> {
    match *data.data_type() {
        DataType::Decimal32(digits, _) => validate_digits::<Decimal32Type>(data, digits),
        DataType::Decimal64(digits, _) => validate_digits::<Decimal64Type>(data, digits),
        DataType::Decimal128(digits, _) => validate_digits::<Decimal128Type>(data, digits),
        // Release 0.56 wrote any value as one of the most digits.
        DataType::Decimal256(digits, _) if digits < 76 => validate_digits::<Decimal256Type>(data, digits),
        _ => data.child_data().iter().try_for_each(validate_decimals),
    }
}

/// Unlike Arrow's check of one array, accepts negative scales.
fn validate_digits<T: DecimalType>(data: &ArrayData, digits: u8) -> std::result::Result<(), ArrowError> {
    let decimals = PrimitiveArray::<T>::from(data.clone());
    let mut values = decimals.iter().flatten();
    match values.find(|value| !T::is_valid_decimal_precision(*value, digits)) {
        Some(value) => {
            Err(ArrowError::InvalidArgumentError(format!("{value:?} has more than {digits} digits")))
        }
        None => Ok(()),
    }
}

/// All rows of a scan.
pub(crate) async fn collect(scan: ScanBuilder) -> Result<RecordBatch> {
    collect_each(scan, Ok).await
}

/// All rows of a scan; invalid Arrow data is an error.
pub(crate) async fn collect_valid(scan: ScanBuilder) -> Result<RecordBatch> {
    collect_each(scan, valid).await
}

/// As [`collect_valid`], cast to a schema: one batch after the other, since all values of several dictionaries may
/// be too many for one.
pub(crate) async fn collect_cast(scan: ScanBuilder, schema: &SchemaRef) -> Result<RecordBatch> {
    let batches = scan.into_stream()?.map(|batch| as_schema(&valid(batch?)?, schema));
    Ok(concat_batches(schema, &batches.try_collect::<Vec<_>>().await?)?)
}

fn as_schema(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| Ok(cast(column, field.data_type())?));
    let count = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns.collect::<Result<_>>()?, &count)?)
}

async fn collect_each(
    scan: ScanBuilder,
    check: fn(RecordBatch) -> Result<RecordBatch>,
) -> Result<RecordBatch> {
    let stream = scan.into_stream()?;
    let schema = Arc::clone(stream.schema());
    let batches: Vec<_> = stream.map(|batch| check(batch?)).try_collect().await?;
    Ok(concat_batches(&schema, &batches)?)
}

/// As [`collect_valid`]; blocks.
pub(crate) fn collect_blocking(scan: ScanBuilder) -> Result<RecordBatch> {
    let reader = scan.into_reader()?;
    let schema = reader.schema();
    let batches: Vec<_> = reader.map(|batch| valid(batch?)).collect::<Result<_>>()?;
    Ok(concat_batches(&schema, &batches)?)
}

/// All rows of a file, as certain Arrow types.
pub(crate) async fn read_as(file: &VortexFile, schema: SchemaRef) -> RecordBatch {
    collect(file.scan().with_schema(schema)).await.unwrap()
}
