//! What scans return, and what they request from storage.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BooleanArray, Int64Array, RecordBatch, StringArray, StructArray,
    UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use futures::{StreamExt as _, TryStreamExt as _};
use vortex_core::dtype::{DType, PType};
use vortex_core::expr::{CompareOp, Expr, FieldPath, InList, Like, Predicate, column};
use vortex_core::file::OpenOptions;
use vortex_core::io::{MemoryFile, Scheduler, StorageProfile};
use vortex_core::scalar::{Scalar, Value};
use vortex_core::scan::{Aggregate, ScanMetrics};
use vortex_core::write::WriteOptions;
use vortex_core::{Error, Limits, VortexFile};

use crate::given::{Stored, collect, files_of, golden, lineitem, open_blocking, opened, written};
use crate::random::scattered;

fn int(value: i64) -> Scalar {
    Scalar::try_new(DType::Primitive(PType::I64, false), Value::Int(value)).unwrap()
}

fn text(value: &str) -> Scalar {
    Scalar::try_new(DType::Utf8(false), Value::Utf8(value.into())).unwrap()
}

fn remote(path: &Path) -> Stored {
    Stored::new(std::fs::read(path).unwrap(), StorageProfile::REMOTE)
}

#[tokio::test]
async fn a_filtered_scan_equals_filtering_the_whole_file() {
    let file = VortexFile::open_path(lineitem()).await.unwrap();
    let whole = collect(file.scan()).await.unwrap();
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
        field("l_shipmode", Predicate::In(Arc::new(InList::new(["AIR", "RAIL"].map(text))))),
        field(
            "l_shipmode",
            Predicate::In(Arc::new(InList::new(["AIR", "RAIL"].map(text)).with_negated(true))),
        ),
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
            Ok(Arc::new(vortex_core::array::Decoded::new(dtype, column, &Limits::default())))
        })
        .unwrap();
        let expected = filter_record_batch(&whole, &mask).unwrap();
        let actual = collect(file.scan().with_filter(filter.clone())).await.unwrap();
        assert_eq!(actual, expected, "{filter}");
    }
}

#[tokio::test]
async fn ranges_indices_limits_and_batch_sizes_pick_the_same_rows() {
    let file = VortexFile::open_path(golden("0.91.0/tpch_orders.vortex")).await.unwrap();
    let whole = collect(file.scan()).await.unwrap();
    let rows = whole.num_rows();

    let range = collect(file.scan().with_row_ranges(100..777)).await.unwrap();
    assert_eq!(range, whole.slice(100, 677));

    let indices = [0, 1, 99, 500, rows as u64 - 1];
    let picked = collect(file.scan().with_row_indices(indices)).await.unwrap();
    let mask: BooleanArray = (0..rows as u64).map(|row| Some(indices.contains(&row))).collect();
    assert_eq!(picked, filter_record_batch(&whole, &mask).unwrap());

    assert_eq!(collect(file.scan().with_limit(37)).await.unwrap(), whole.slice(0, 37));
    assert_eq!(collect(file.scan().with_limit(0)).await.unwrap().num_rows(), 0);

    let small: Vec<_> = file.scan().with_batch_size(10).into_stream().unwrap().try_collect().await.unwrap();
    assert!(small.iter().all(|batch| batch.num_rows() <= 10));
    assert_eq!(concat_batches(&whole.schema(), &small).unwrap(), whole);

    assert!(file.scan().with_row_indices([3, 2]).into_stream().is_err());
    assert!(file.scan().with_row_ranges(5..rows as u64 + 1).into_stream().is_err());
}

#[tokio::test]
async fn the_blocking_reader_works_inside_a_runtime_too() {
    let file = VortexFile::open_path(lineitem()).await.unwrap();
    let rows: usize = file.scan().into_reader().unwrap().map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(rows as u64, file.row_count());
}

#[tokio::test]
async fn nested_fields_are_read_by_path_and_null_under_null_structs() {
    let file = VortexFile::open_path(golden("0.91.0/struct_nested.vortex")).await.unwrap();
    let whole = collect(file.scan()).await.unwrap();
    let schema = whole.schema();
    for field in schema.fields() {
        let DataType::Struct(inner) = field.data_type() else { continue };
        let parent = whole[field.name().as_str()].as_struct();
        for (at, child) in inner.iter().enumerate() {
            let path = FieldPath::new([field.name().as_str(), child.name().as_str()]);
            let read = collect(file.scan().with_projection([path.clone()])).await.unwrap();
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
async fn which_structs_are_null_is_found_without_their_fields() {
    let rows = 100_000;
    let long = StringArray::from_iter_values((0..rows).map(|row| format!("{:x}", scattered(row))));
    let fields = vec![
        Arc::new(Field::new("x", DataType::UInt64, false)),
        Arc::new(Field::new("text", DataType::Utf8, false)),
    ];
    let columns = vec![Arc::new(UInt64Array::from_iter_values(0..rows)) as ArrayRef, Arc::new(long)];
    let nulls: NullBuffer = (0..rows).map(|row| row % 7 != 0).collect();
    let place = StructArray::new(fields.into(), columns, Some(nulls));
    let batch = RecordBatch::try_from_iter([("place", Arc::new(place) as ArrayRef)]).unwrap();
    let file = opened(written([&batch], WriteOptions::new()).await).await;
    let nulls = rows / 7 + 1;
    for (filter, expected) in [
        (column("place").is_null(), nulls),
        (column("place").is_not_null(), rows - nulls),
        // Of a field that cannot be null itself.
        (column(["place", "x"]).is_null(), nulls),
        (!column(["place", "text"]).is_null(), rows - nulls),
    ] {
        let scan = file.scan().with_projection::<FieldPath>([]).with_filter(filter.clone());
        let metrics = Arc::clone(scan.metrics());
        assert_eq!(scan.aggregate().await.unwrap().row_count, expected, "{filter}");
        assert!(metrics.bytes_read.get() < 20_000, "{filter}: {metrics:?}");
        // Single rows, too.
        let few =
            file.scan().with_filter(filter).with_row_indices((0..rows).step_by(9000).collect::<Vec<_>>());
        assert!(collect(few).await.unwrap().num_rows() > 0);
    }
    let both = column("place").is_not_null().and(column(["place", "x"]).lt(70));
    assert_eq!(collect(file.scan().with_filter(both)).await.unwrap().num_rows(), 60);
}

#[tokio::test]
async fn a_schema_chooses_the_arrow_types() {
    let file = VortexFile::open_path(lineitem()).await.unwrap();
    let natural = collect(file.scan().with_projection(["l_shipmode"])).await.unwrap();
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    for wanted in [DataType::Utf8, DataType::LargeUtf8, dictionary] {
        let schema = Arc::new(Schema::new(vec![Field::new("mode", wanted.clone(), false)]));
        let read = collect(file.scan().with_projection(["l_shipmode"]).with_schema(schema)).await.unwrap();
        assert_eq!(read.column(0).data_type(), &wanted);
        let back = arrow::compute::cast(read.column(0), &DataType::Utf8View).unwrap();
        assert_eq!(&back, natural.column(0));
    }
    let wrong = Arc::new(Schema::new(vec![Field::new("mode", DataType::Int32, false)]));
    assert!(file.scan().with_projection(["l_shipmode"]).with_schema(wrong).into_stream().is_err());
}

#[tokio::test]
async fn an_unknown_column_is_an_error_that_lists_the_known_ones() {
    let file = VortexFile::open_path(lineitem()).await.unwrap();
    let message = file.scan().with_projection(["nope"]).into_stream().unwrap_err().to_string();
    assert!(message.contains("nope") && message.contains("l_orderkey"), "{message}");
}

#[tokio::test]
async fn a_small_file_is_opened_and_scanned_with_one_read() {
    let source = Arc::new(remote(&golden("0.91.0/tpch_lineitem_1k.vortex")));
    let file = VortexFile::open(Arc::clone(&source) as _).await.unwrap();
    collect(file.scan()).await.unwrap();
    assert_eq!(source.reads.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_file_of_up_to_twice_the_usual_tail_is_opened_and_scanned_with_one_read() {
    let numbers = (0..100_000).map(|row| scattered(row) as i64);
    let table = [("n", Arc::new(Int64Array::from_iter_values(numbers)) as ArrayRef)];
    let bytes = written([&RecordBatch::try_from_iter(table).unwrap()], WriteOptions::new()).await;
    let tail = StorageProfile::REMOTE.tail_size as usize;
    assert!((tail + 1..=2 * tail).contains(&bytes.len()), "{} bytes", bytes.len());
    let source = Arc::new(Stored::new(bytes, StorageProfile::REMOTE));
    let file = VortexFile::open(Arc::clone(&source) as _).await.unwrap();
    assert_eq!(collect(file.scan()).await.unwrap().num_rows(), 100_000);
    assert_eq!(source.reads.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn statistics_rule_out_rows_without_reading_them() {
    let opened = VortexFile::open(Arc::new(remote(&lineitem()))).await.unwrap();
    // Without the tail that was read when opening, everything has to be requested.
    let file = VortexFile::from_footer(Arc::clone(opened.source()), Arc::clone(opened.footer()));
    let schema = file.schema().unwrap();
    let column = schema.fields().iter().find(|field| field.data_type() == &DataType::Utf8View).unwrap();
    let metrics = Arc::new(ScanMetrics::default());
    let impossible = Expr::compare(column.name().as_str(), CompareOp::Gt, text("\u{10FFFF}\u{10FFFF}"));
    let scan = file.scan().with_filter(impossible).with_metrics(Arc::clone(&metrics));
    assert_eq!(collect(scan).await.unwrap().num_rows(), 0);
    assert_eq!(metrics.splits_scanned.get(), 0);
    assert!(metrics.splits_pruned.get() > 0);
}

#[tokio::test]
async fn dropping_a_stream_stops_its_reads_and_returns_its_budget() {
    let source = Arc::new(remote(&lineitem()).with_delay(|_| Duration::from_secs(60)));
    let opened = VortexFile::open_path(lineitem()).await.unwrap();
    let file = VortexFile::from_footer(Arc::clone(&source) as _, Arc::clone(opened.footer()));
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
    let file = VortexFile::open_path(lineitem()).await.unwrap();
    let whole = collect(file.scan()).await.unwrap();
    let starved = collect(file.scan().with_scheduler(Scheduler::new(1))).await.unwrap();
    assert_eq!(starved, whole);
}

#[tokio::test]
async fn a_tiny_budget_changes_no_aggregate() {
    let file = VortexFile::open_path(lineitem()).await.unwrap();
    let scan = file.scan().with_filter(column("l_quantity").gt(20)).with_projection(["l_tax", "l_comment"]);
    let roomy = scan.clone().aggregate().await.unwrap();
    let scheduler = Scheduler::new(1);
    assert_eq!(scan.with_scheduler(Arc::clone(&scheduler)).aggregate().await.unwrap(), roomy);
    assert!(roomy.row_count > 0);
    assert_eq!(scheduler.bytes_in_use(), 0);
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
    let message = open_blocking(&broken).unwrap_err().to_string();
    assert!(message.contains("broken.vortex") && message.contains("not a Vortex file"), "{message}");
    std::fs::write(&broken, b"VRTX").unwrap();
    assert!(open_blocking(&broken).is_err());
    bytes[len - 4..].copy_from_slice(b"VRTX");
    std::fs::write(&broken, &bytes).unwrap();
    let message = open_blocking(&broken).unwrap_err().to_string();
    assert!(message.contains("before 0.36"), "{message}");
}

#[tokio::test]
async fn aggregates_are_those_of_the_rows() {
    for path in files_of(&golden("0.91.0")).chain([lineitem()]) {
        let file = VortexFile::open_path(&path).await.unwrap();
        let Some(fields) = file.footer().dtype().as_columns() else { continue };
        let rows = file.row_count();
        let some: Vec<u64> = (0..rows).step_by(97).collect();
        let not_null = fields.names().first().map_or(Expr::Literal(Some(true)), |name| {
            Expr::Field(FieldPath::new([Arc::clone(name)]), Predicate::IsNotNull)
        });
        for scan in [
            file.scan(),
            file.scan().with_row_ranges(rows / 3..rows),
            file.scan().with_row_indices(some),
            file.scan().with_filter(not_null.clone()).with_row_ranges(0..rows / 2),
            file.scan().with_filter(Expr::Literal(Some(false))),
        ] {
            let found = scan.clone().aggregate().await.unwrap();
            let batch = collect(scan).await.unwrap();
            assert_eq!(found.row_count, batch.num_rows() as u64, "{}", path.display());
            for ((dtype, column), found) in fields.dtypes().iter().zip(batch.columns()).zip(found.columns) {
                let wanted = Aggregate::of(column, dtype).unwrap();
                assert_eq!(format!("{found:?}"), format!("{wanted:?}"), "{}", path.display());
            }
        }
    }
    let file = VortexFile::open_path(lineitem()).await.unwrap();
    let nothing: [&str; 0] = [];
    let counted = file.scan().with_projection(nothing).aggregate().await.unwrap();
    assert_eq!((counted.row_count, counted.columns.len()), (file.row_count(), 0));
    assert!(file.scan().with_limit(1).aggregate().await.is_err());
}

#[tokio::test]
async fn errors_name_the_column_once() {
    let mut bytes = std::fs::read(golden("0.91.0/tpch_orders.vortex")).unwrap();
    let sound = opened(bytes.clone()).await;
    for segment in sound.footer().segments() {
        // A segment ends in the length of its array tree.
        bytes[segment.range().end as usize - 4..][..4].fill(0xff);
    }
    let file = opened(bytes).await;
    let scan = || file.scan().with_projection(["o_orderkey"]);
    for error in [collect(scan()).await.unwrap_err(), scan().aggregate().await.unwrap_err()] {
        let error = error.to_string();
        assert_eq!(error.matches("column `o_orderkey`").count(), 1, "{error}");
    }
}

/// A damaged zone table prunes nothing; those who have checksums verified get to know.
#[tokio::test]
async fn damaged_zone_tables_change_no_answer() {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..100_000).map(|n| n * 7919 % 100_003)));
    let table = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
    let bytes = written([&table], WriteOptions::new().with_checksums(true)).await.to_vec();
    let small = |verify: bool, bytes: Vec<u8>| async move {
        let options = OpenOptions::new().with_verify_checksums(verify);
        let file = options.open(Arc::new(MemoryFile::new(bytes))).await?;
        let rows = collect(file.scan().with_filter(column("n").lt(50))).await?;
        Ok::<_, Error>(rows.num_rows())
    };
    let sound = opened(bytes.clone()).await;
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

#[tokio::test]
async fn few_rows_of_many_splits_come_in_the_type_of_their_dictionary() {
    let packed = |values| DataType::Dictionary(Box::new(DataType::Int8), Box::new(values));
    // A hundred words, of which a few rows in each of several splits remain.
    let words = || (0..300_000).map(|at| format!("word {}", at % 100));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..300_000).map(|n| n * 7919 % 1009)));
    for values in [DataType::Utf8, DataType::Utf8View] {
        let words: ArrayRef = Arc::new(StringArray::from_iter_values(words()));
        let words = cast(&words, &packed(values)).unwrap();
        let table = RecordBatch::try_from_iter([("number", Arc::clone(&numbers)), ("word", words)]).unwrap();
        let file = opened(written([&table], WriteOptions::new()).await).await;
        assert!(file.scan().splits().unwrap().len() > 3);
        let stream = file.scan().with_filter(column("number").lt(5)).into_stream().unwrap();
        let found: Vec<RecordBatch> = stream.try_collect().await.unwrap();
        assert!(found.iter().all(|batch| batch.schema() == table.schema()));
        // Arrow cannot join the dictionaries.
        let text = |rows: &RecordBatch| cast(&rows["word"], &DataType::Utf8).unwrap();
        let found: Vec<ArrayRef> = found.iter().map(text).collect();
        let found: Vec<_> = found.iter().flat_map(|words| words.as_string::<i32>()).collect();
        let few = arrow::compute::kernels::cmp::lt(&numbers, &Int64Array::new_scalar(5)).unwrap();
        let expected = text(&filter_record_batch(&table, &few).unwrap());
        assert_eq!(found, expected.as_string::<i32>().iter().collect::<Vec<_>>());
    }
}
