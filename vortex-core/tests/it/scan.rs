//! What scans return, and what they request from storage.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::{Array as _, ArrayRef, AsArray as _, BooleanArray, Int64Array, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use vortex_core::array::Aggregate;
use vortex_core::expr::{CompareOp, Expr, FieldPath, InList, Like, Predicate};
use vortex_core::file::OpenOptions;
use vortex_core::io::{LocalFile, MemoryFile, MemorySink, ReadAt, Scheduler, StorageProfile};
use vortex_core::scalar::Value;
use vortex_core::scan::{ScanBuilder, ScanMetrics};
use vortex_core::write::{FileWriter, WriteOptions};
use vortex_core::{DType, Error, PType, Scalar, VortexFile};

use crate::compare;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files").join(name)
}

fn lineitem() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/data/lineitem.vortex")
}

fn int(value: i64) -> Scalar {
    Scalar::try_new(DType::Primitive(PType::I64, false), Value::Int(value)).unwrap()
}

fn text(value: &str) -> Scalar {
    Scalar::try_new(DType::Utf8(false), Value::Utf8(value.into())).unwrap()
}

async fn open(path: &Path) -> VortexFile {
    VortexFile::open(Arc::new(LocalFile::open(path).unwrap())).await.unwrap()
}

async fn collect(scan: ScanBuilder) -> RecordBatch {
    let stream = scan.into_stream().unwrap();
    let schema = Arc::clone(stream.schema());
    let batches: Vec<_> = stream.try_collect().await.unwrap();
    concat_batches(&schema, &batches).unwrap()
}

/// A source that counts reads, and optionally delays them.
#[derive(Debug)]
struct Watched {
    inner: Arc<dyn ReadAt>,
    reads: AtomicU64,
    in_flight: AtomicU64,
    delay: Duration,
}

impl Watched {
    fn new(path: &Path, delay: Duration) -> Arc<Self> {
        let inner: Arc<dyn ReadAt> = Arc::new(MemoryFile::new(std::fs::read(path).unwrap()));
        Arc::new(Self { inner, reads: AtomicU64::new(0), in_flight: AtomicU64::new(0), delay })
    }
}

struct InFlight<'a>(&'a AtomicU64);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl ReadAt for Watched {
    fn name(&self) -> &str {
        "watched"
    }

    async fn len(&self) -> Result<u64, Error> {
        self.inner.len().await
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes, Error> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let _in_flight = InFlight(&self.in_flight);
        tokio::time::sleep(self.delay).await;
        self.inner.read(range).await
    }

    fn profile(&self) -> StorageProfile {
        StorageProfile::REMOTE
    }
}

#[tokio::test]
async fn a_filtered_scan_equals_filtering_the_whole_file() {
    let file = open(&lineitem()).await;
    let whole = collect(file.scan()).await;
    let keys = whole["l_orderkey"].as_primitive::<Int64Type>();
    let middle = keys.value(keys.len() / 2);
    let field = |name: &str, predicate| Expr::Field(name.into(), predicate);
    let like = |pattern: &str, negated| Predicate::Like(Like::new(pattern).with_negated(negated));
    let filters = [
        Expr::compare("l_orderkey", CompareOp::Eq, int(middle)),
        Expr::compare("l_orderkey", CompareOp::Lt, int(middle)),
        Expr::compare("l_orderkey", CompareOp::GtEq, int(i64::MAX)),
        field("l_orderkey", Predicate::Between(int(middle - 50), int(middle + 50))),
        field("l_returnflag", Predicate::Compare(CompareOp::NotEq, text("N"))),
        field("l_shipmode", Predicate::In(Arc::new(InList::new(["AIR", "RAIL"].map(text), false)))),
        field("l_shipmode", Predicate::In(Arc::new(InList::new(["AIR", "RAIL"].map(text), true)))),
        field("l_comment", like("%even%", false)),
        field("l_comment", like("a%", true)),
        field("l_comment", Predicate::IsNull),
        Expr::all([
            Expr::compare("l_orderkey", CompareOp::Gt, int(middle)),
            field("l_comment", like("%ly%", false)),
        ]),
        Expr::Or(vec![
            Expr::compare("l_orderkey", CompareOp::Lt, int(10)),
            Expr::Not(Box::new(field("l_returnflag", Predicate::Compare(CompareOp::LtEq, text("N"))))),
        ]),
    ];
    for filter in filters {
        let mask = vortex_core::expr::evaluate(&filter, whole.num_rows(), &mut |path| {
            let column = Arc::clone(&whole[&*path.names()[0]]);
            let dtype = vortex_core::dtype::arrow::from_field(
                whole.schema().field_with_name(&path.names()[0]).unwrap(),
            )?;
            Ok(Arc::new(vortex_core::array::Decoded::new(dtype, column)))
        })
        .unwrap();
        let expected = filter_record_batch(&whole, &mask).unwrap();
        let actual = collect(file.scan().with_filter(filter.clone())).await;
        assert_eq!(actual, expected, "{filter}");
    }
}

#[tokio::test]
async fn ranges_indices_limits_and_batch_sizes_pick_the_same_rows() {
    let file = open(&golden("0.91.0/tpch_orders.vortex")).await;
    let whole = collect(file.scan()).await;
    let rows = whole.num_rows();

    let range = collect(file.scan().with_row_range(100..777)).await;
    assert_eq!(range, whole.slice(100, 677));

    let indices = [0, 1, 99, 500, rows as u64 - 1];
    let picked = collect(file.scan().with_row_indices(indices)).await;
    let mask: BooleanArray = (0..rows as u64).map(|row| Some(indices.contains(&row))).collect();
    assert_eq!(picked, filter_record_batch(&whole, &mask).unwrap());

    assert_eq!(collect(file.scan().with_limit(37)).await, whole.slice(0, 37));
    assert_eq!(collect(file.scan().with_limit(0)).await.num_rows(), 0);

    let small: Vec<_> = file.scan().with_batch_size(10).into_stream().unwrap().try_collect().await.unwrap();
    assert!(small.iter().all(|batch| batch.num_rows() <= 10));
    assert_eq!(concat_batches(&whole.schema(), &small).unwrap(), whole);

    assert!(file.scan().with_row_indices([3, 2]).into_stream().is_err());
    assert!(file.scan().with_row_range(5..rows as u64 + 1).into_stream().is_err());
}

#[tokio::test]
async fn the_blocking_reader_works_inside_a_runtime_too() {
    let file = open(&lineitem()).await;
    let rows: usize = file.scan().into_reader().unwrap().map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(rows as u64, file.row_count());
}

#[tokio::test]
async fn nested_fields_are_read_by_path_and_null_under_null_structs() {
    let file = open(&golden("0.91.0/struct_nested.vortex")).await;
    let whole = collect(file.scan()).await;
    let schema = whole.schema();
    for field in schema.fields() {
        let DataType::Struct(inner) = field.data_type() else { continue };
        let parent = whole[field.name().as_str()].as_struct();
        for (at, child) in inner.iter().enumerate() {
            let path = FieldPath::new([field.name().as_str(), child.name().as_str()]);
            let read = collect(file.scan().with_projection([path.clone()])).await;
            let (read, expected) = (read.column(0), parent.column(at));
            for row in 0..whole.num_rows() {
                if parent.is_null(row) {
                    assert!(read.is_null(row), "{path} row {row}");
                } else {
                    assert_eq!(
                        read.slice(row, 1).as_ref(),
                        expected.slice(row, 1).as_ref(),
                        "{path} row {row}"
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn a_schema_chooses_the_arrow_types() {
    let file = open(&lineitem()).await;
    let natural = collect(file.scan().with_projection(["l_shipmode"])).await;
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    for wanted in [DataType::Utf8, DataType::LargeUtf8, dictionary] {
        let schema = Arc::new(Schema::new(vec![Field::new("mode", wanted.clone(), false)]));
        let read = collect(file.scan().with_projection(["l_shipmode"]).with_schema(schema)).await;
        assert_eq!(read.column(0).data_type(), &wanted);
        let back = arrow::compute::cast(read.column(0), &DataType::Utf8View).unwrap();
        assert_eq!(&back, natural.column(0));
    }
    let wrong = Arc::new(Schema::new(vec![Field::new("mode", DataType::Int32, false)]));
    assert!(file.scan().with_projection(["l_shipmode"]).with_schema(wrong).into_stream().is_err());
}

#[tokio::test]
async fn an_unknown_column_is_an_error_that_lists_the_known_ones() {
    let file = open(&lineitem()).await;
    let message = file.scan().with_projection(["nope"]).into_stream().unwrap_err().to_string();
    assert!(message.contains("nope") && message.contains("l_orderkey"), "{message}");
}

#[tokio::test]
async fn a_small_file_is_opened_and_scanned_with_one_read() {
    let source = Watched::new(&golden("0.91.0/tpch_lineitem_1k.vortex"), Duration::ZERO);
    let file = VortexFile::open(Arc::clone(&source) as Arc<dyn ReadAt>).await.unwrap();
    collect(file.scan()).await;
    assert_eq!(source.reads.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn statistics_rule_out_rows_without_reading_them() {
    let source = Watched::new(&lineitem(), Duration::ZERO);
    let opened = VortexFile::open(Arc::clone(&source) as Arc<dyn ReadAt>).await.unwrap();
    // Without the tail that was read when opening, everything has to be requested.
    let file = VortexFile::from_footer(Arc::clone(&source) as Arc<dyn ReadAt>, Arc::clone(opened.footer()));
    let schema = file.schema().unwrap();
    let column = schema.fields().iter().find(|field| field.data_type() == &DataType::Utf8View).unwrap();
    let metrics = Arc::new(ScanMetrics::default());
    let impossible = Expr::compare(column.name().as_str(), CompareOp::Gt, text("\u{10FFFF}\u{10FFFF}"));
    let scan = file.scan().with_filter(impossible).with_metrics(Arc::clone(&metrics));
    assert_eq!(collect(scan).await.num_rows(), 0);
    assert_eq!(metrics.splits_scanned.load(Ordering::Relaxed), 0);
    assert!(metrics.splits_pruned.load(Ordering::Relaxed) > 0);
}

#[tokio::test]
async fn dropping_a_stream_stops_its_reads_and_returns_its_budget() {
    let source = Watched::new(&lineitem(), Duration::from_secs(60));
    let opened = open(&lineitem()).await;
    let file = VortexFile::from_footer(Arc::clone(&source) as Arc<dyn ReadAt>, Arc::clone(opened.footer()));
    let scheduler = Scheduler::new(1 << 30);
    let mut stream = file.scan().with_scheduler(Arc::clone(&scheduler)).into_stream().unwrap();
    let waited = tokio::time::timeout(Duration::from_millis(50), stream.next()).await;
    assert!(waited.is_err(), "the store is slow");
    assert!(source.in_flight.load(Ordering::SeqCst) > 0);
    assert!(scheduler.bytes_in_use() > 0);
    drop(stream);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(source.in_flight.load(Ordering::SeqCst), 0);
    assert_eq!(scheduler.bytes_in_use(), 0);
}

#[tokio::test]
async fn a_tiny_budget_slows_a_scan_down_but_does_not_stop_it() {
    let file = open(&lineitem()).await;
    let whole = collect(file.scan()).await;
    let starved = collect(file.scan().with_scheduler(Scheduler::new(1))).await;
    assert_eq!(starved, whole);
}

#[test]
fn errors_name_the_file_and_the_place() {
    let path = golden("0.91.0/tpch_orders.vortex");
    let mut bytes = std::fs::read(&path).unwrap();
    let len = bytes.len();
    bytes[len - 1] = b'?';
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.vortex");
    std::fs::write(&broken, &bytes).unwrap();
    let message = compare::open(&broken).unwrap_err().to_string();
    assert!(message.contains("broken.vortex") && message.contains("not a Vortex file"), "{message}");
    std::fs::write(&broken, b"VRTX").unwrap();
    assert!(compare::open(&broken).is_err());
    bytes[len - 4..].copy_from_slice(b"VRTX");
    std::fs::write(&broken, &bytes).unwrap();
    let message = compare::open(&broken).unwrap_err().to_string();
    assert!(message.contains("before 0.36"), "{message}");
}

#[tokio::test]
async fn aggregates_are_those_of_the_rows() {
    let folder = golden("0.91.0");
    let goldens = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = goldens.filter(|path| path.extension().is_some_and(|extension| extension == "vortex"));
    for path in files.chain([lineitem()]) {
        let file = open(&path).await;
        let Some(fields) = file.footer().dtype().as_columns() else { continue };
        let rows = file.row_count();
        let some: Vec<u64> = (0..rows).step_by(97).collect();
        let not_null = fields.names().first().map_or(Expr::Literal(Some(true)), |name| {
            Expr::Field(FieldPath::new([Arc::clone(name)]), Predicate::IsNotNull)
        });
        for scan in [
            file.scan(),
            file.scan().with_row_range(rows / 3..rows),
            file.scan().with_row_indices(some),
            file.scan().with_filter(not_null.clone()).with_row_range(0..rows / 2),
            file.scan().with_filter(Expr::Literal(Some(false))),
        ] {
            let found = scan.clone().aggregate().await.unwrap();
            let batch = collect(scan).await;
            assert_eq!(found.row_count, batch.num_rows() as u64, "{}", path.display());
            for ((dtype, column), found) in fields.dtypes().iter().zip(batch.columns()).zip(found.columns) {
                let wanted = Aggregate::of(column, dtype).unwrap();
                assert_eq!(format!("{found:?}"), format!("{wanted:?}"), "{}", path.display());
            }
        }
    }
    let file = open(&lineitem()).await;
    let nothing: [&str; 0] = [];
    let counted = file.scan().with_projection(nothing).aggregate().await.unwrap();
    assert_eq!((counted.row_count, counted.columns.len()), (file.row_count(), 0));
    assert!(file.scan().with_limit(1).aggregate().await.is_err());
}

#[tokio::test]
async fn errors_name_the_column_once() {
    let mut bytes = std::fs::read(golden("0.91.0/tpch_orders.vortex")).unwrap();
    let sound = VortexFile::open(Arc::new(MemoryFile::new(bytes.clone()))).await.unwrap();
    for segment in sound.footer().segments() {
        // A segment ends in the length of its array tree.
        bytes[segment.range().end as usize - 4..][..4].fill(0xff);
    }
    let file = VortexFile::open(Arc::new(MemoryFile::new(bytes))).await.unwrap();
    let scan = || file.scan().with_projection(["o_orderkey"]);
    let rows: Result<Vec<RecordBatch>, Error> = scan().into_stream().unwrap().try_collect().await;
    for error in [rows.unwrap_err(), scan().aggregate().await.unwrap_err()] {
        let error = error.to_string();
        assert_eq!(error.matches("column `o_orderkey`").count(), 1, "{error}");
    }
}

/// A damaged zone table prunes nothing; those who have checksums verified get to know.
#[tokio::test]
async fn damaged_zone_tables_change_no_answer() {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..100_000).map(|n| n * 7919 % 100_003)));
    let table = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
    let sink = MemorySink::new();
    let options = WriteOptions::new().with_checksums(true);
    let mut writer = FileWriter::try_new(sink.clone(), table.schema(), options).unwrap();
    writer.write(&table).await.unwrap();
    writer.finish().await.unwrap();
    let bytes = sink.bytes().unwrap().to_vec();
    let small = |verify: bool, bytes: Vec<u8>| async move {
        let options = OpenOptions::new().with_checksums(verify);
        let file = options.open(Arc::new(MemoryFile::new(bytes))).await?;
        let stream = file.scan().with_filter(vortex_core::expr::column("n").lt(50)).into_stream()?;
        let rows: Vec<RecordBatch> = stream.try_collect().await?;
        Ok::<usize, Error>(rows.iter().map(RecordBatch::num_rows).sum())
    };
    let sound = VortexFile::open(Arc::new(MemoryFile::new(bytes.clone()))).await.unwrap();
    let expected = small(true, bytes.clone()).await.unwrap();
    let mut ignored = 0;
    for segment in sound.footer().segments() {
        let mut damaged = bytes.clone();
        damaged[segment.range().end as usize - 4..][..4].fill(0xff);
        match small(false, damaged.clone()).await {
            Ok(rows) => {
                assert_eq!(rows, expected);
                ignored += 1;
            }
            Err(error) => assert!(error.to_string().contains("column `n`"), "{error}"),
        }
        let error = small(true, damaged).await.unwrap_err().to_string();
        assert!(error.contains("checksum"), "{error}");
    }
    assert_eq!(ignored, 1, "of the zone table");
}
