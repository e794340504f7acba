//! Files that claim more rows than fit into memory. They are legal: a constant column of 2^48 rows takes
//! a few bytes. A scan returns rows as they are decoded.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use futures::TryStreamExt as _;
use vortex_core::expr::{Expr, FieldPath, Predicate};
use vortex_core::file::OpenOptions;
use vortex_core::io::MemoryFile;
use vortex_core::scan::{RowRanges, ScanBuilder};
use vortex_core::write::WriteOptions;
use vortex_core::{Error, Limits};

use crate::anatomy::{Anatomy, What};
use crate::given::{collect, golden, opened, written};

const ROWS: u64 = 1 << 48;

/// A scan of one constant column of [`ROWS`] rows: a golden file with its row counts replaced.
async fn vast() -> ScanBuilder {
    vast_within(Limits::new()).await
}

async fn vast_within(limits: Limits) -> ScanBuilder {
    let mut bytes = std::fs::read(golden("0.91.0/prims_allnull.vortex")).unwrap();
    for site in Anatomy::of(&bytes).sites.iter().filter(|site| site.what == What::RowCount) {
        bytes[site.at..site.at + site.width].copy_from_slice(&ROWS.to_le_bytes());
    }
    let options = OpenOptions::new().with_limits(limits);
    let file = options.open(Arc::new(MemoryFile::new(bytes))).await.unwrap();
    assert_eq!(file.row_count(), ROWS);
    let schema = file.schema().unwrap();
    file.scan().with_projection([schema.field(0).name().as_str()])
}

/// The name of the column.
async fn vast_column() -> String {
    let stream = vast().await.into_stream().unwrap();
    stream.schema().field(0).name().clone()
}

#[tokio::test]
async fn a_scan_of_2_to_the_48_rows_starts_at_once() {
    let mut stream = vast().await.into_stream().unwrap();
    let batch = stream.try_next().await.unwrap().unwrap();
    assert!(batch.num_rows() > 0);
}

#[tokio::test]
async fn rows_are_counted_without_looking_at_2_to_the_48_of_them() {
    let counted = vast().await.with_projection([] as [&str; 0]).aggregate().await.unwrap();
    assert_eq!(counted.row_count, ROWS);
}

#[tokio::test]
async fn the_last_of_2_to_the_48_rows_is_found_at_once() {
    let rows = collect(vast().await.with_row_indices([7, ROWS - 1])).await.unwrap();
    assert_eq!(rows.num_rows(), 2);
}

#[tokio::test]
async fn rows_at_both_ends_of_2_to_the_48_are_found_at_once_whatever_a_filter_rules_out() {
    let ends = || RowRanges::new([0..1, 1 << 47..(1 << 47) + 5, ROWS - 1..ROWS]);
    assert_eq!(collect(vast().await.with_row_ranges(ends())).await.unwrap().num_rows(), 7);
    let scan = vast().await.with_row_ranges(ends());
    assert_eq!(scan.splits().unwrap().len(), 3);
    let name = vast_column().await;
    let is_null = |predicate| Expr::Field(FieldPath::from(name.as_str()), predicate);
    for (predicate, rows) in [(Predicate::IsNull, 7), (Predicate::IsNotNull, 0)] {
        let filtered = scan.clone().with_filter(is_null(predicate));
        assert_eq!(collect(filtered).await.unwrap().num_rows(), rows);
    }
}

#[tokio::test]
async fn rows_beyond_the_limit_are_not_decoded_in_any_number_of_parts() {
    let rows = async |bytes| {
        let scan = vast_within(Limits::new().with_max_decoded_bytes(bytes)).await.with_row_ranges(0..1 << 16);
        Ok::<_, Error>(collect(scan).await?.num_rows())
    };
    // An eighth of the values of a split, and the few bytes that loading their array copies.
    assert_eq!(rows((128 << 10) + 64).await.unwrap(), 1 << 16);
    let error = rows(512).await.unwrap_err();
    assert!(matches!(error.root(), Error::LimitExceeded(_)), "{error}");
}

#[tokio::test]
async fn splits_of_vast_files_are_joined_and_still_cover_all_rows() {
    let splits = vast().await.with_row_ranges(5..ROWS - 5).splits().unwrap();
    assert!(splits.len() <= 1 << 16);
    assert_eq!((splits[0].start, splits[splits.len() - 1].end), (5, ROWS - 5));
    assert!(splits.windows(2).all(|pair| pair[0].end == pair[1].start));
    assert!(vast().await.with_row_ranges(9..9).splits().unwrap().is_empty());
}

#[tokio::test]
async fn rows_of_kilobytes_come_a_few_at_a_time() {
    // Ten texts of 100,000 bytes, each repeated many times: 2 GB from a small file.
    let texts: Vec<String> = ('a'..='j').map(|letter| letter.to_string().repeat(100_000)).collect();
    let rows: ArrayRef = Arc::new(StringArray::from_iter_values((0..100).map(|row| &texts[row % 10])));
    let batch = RecordBatch::try_from_iter([("text", rows)]).unwrap();
    let bytes = written(std::iter::repeat_n(&batch, 200), WriteOptions::new()).await;
    assert!(bytes.len() < 40 << 20, "{} bytes", bytes.len());
    let file = opened(bytes).await;
    let (mut rows, mut largest) = (0, 0);
    let mut stream = file.scan().with_schema(batch.schema()).into_stream().unwrap();
    while let Some(batch) = stream.try_next().await.unwrap() {
        rows += batch.num_rows();
        largest = largest.max(batch.get_array_memory_size());
    }
    assert_eq!(rows, 20_000);
    assert!(largest <= 64 << 20, "a batch of {largest} bytes");
}

#[tokio::test]
async fn rows_that_grow_when_they_are_converted_exceed_a_limit_before_they_do() {
    // Each has one row, a list of 2^28 bytes, stored as a constant. As values of a variant, or as a bound to compare
    // with, the bytes would take fifty times as much.
    let files: [(&str, &[u8]); 3] = [
        ("variant", include_bytes!("expanding/variant_of_a_long_list.vortex")),
        ("shredded variant", include_bytes!("expanding/shredded_variant_of_a_long_list.vortex")),
        ("zone", include_bytes!("expanding/zone_bound_of_a_long_list.vortex")),
    ];
    for (name, bytes) in files {
        let options = OpenOptions::new().with_limits(Limits::new().with_max_decoded_bytes(1 << 30));
        let file = options.open(Arc::new(MemoryFile::new(bytes))).await.unwrap();
        let column = file.schema().unwrap().field(0).name().clone();
        let is_null = Expr::Field(FieldPath::from(column.as_str()), Predicate::IsNull);
        let found = collect(file.scan().with_filter(is_null)).await;
        assert!(found.is_ok_and(|rows| rows.num_rows() == 0), "{name}");
        let whole = collect(file.scan()).await;
        match name {
            "zone" => drop(whole.unwrap()),
            _ => assert!(matches!(whole.unwrap_err().root(), Error::LimitExceeded(_)), "{name}"),
        }
    }
}
