//! Single rows of long segments, of which only pieces are read. Short ones, such as most of those in golden
//! files, are read as a whole.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Field};
use bytes::Bytes;
use vortex_core::io::StorageProfile;
use vortex_core::scan::{RowAccess, ScanMetrics};
use vortex_core::write::WriteOptions;
use vortex_core::{Level, VortexFile};

use crate::given::{Stored, collect_valid, written};
use crate::random::{Random, array, plain_types};

/// A file with one column of each type. Its segments are not compressed as a whole, so that they have pieces.
pub(crate) async fn long_segments(types: &[DataType], rows: usize) -> Bytes {
    let mut random = Random(7);
    let mut column = |(at, to): (usize, &DataType)| -> (String, ArrayRef, bool) {
        (format!("c{at}"), array(&mut random, to, rows, true), true)
    };
    let columns: Vec<_> = types.iter().enumerate().map(&mut column).collect();
    let batch = RecordBatch::try_from_iter_with_nullable(columns).expect("columns of the same length");
    let mut options = WriteOptions::new().with_level(Level::Fast);
    // Those of the shorter columns are not asked: reading the values costs less.
    for (at, to) in types.iter().enumerate() {
        if matches!(to, DataType::Int64 | DataType::Utf8View | DataType::Decimal128(..)) {
            options = options.with_bloom_filter(format!("c{at}").as_str());
        }
    }
    written([&batch], options).await
}

#[tokio::test]
async fn rows_of_long_segments_are_read_from_pieces() {
    const ROWS: u64 = 20_000;
    let item = || Arc::new(Field::new("item", DataType::Utf8View, true));
    let fields = vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Utf8View, false)];
    let mut types = plain_types();
    // Arrow compares runs one by one.
    types.retain(|to| !matches!(to, DataType::RunEndEncoded(..)));
    types.extend([
        DataType::List(item()),
        DataType::List(Arc::new(Field::new("item", DataType::List(item()), true))),
        DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Int32, true)), 3),
        DataType::Struct(fields.into()),
    ]);
    let bytes = long_segments(&types, ROWS as usize).await;
    let file = VortexFile::open(Arc::new(Stored::new(bytes, StorageProfile::LOCAL))).await.unwrap();
    // Without the tail that was read when opening, everything has to be requested.
    let file = VortexFile::from_footer(Arc::clone(file.source()), Arc::clone(file.footer()));
    let whole = collect_valid(file.scan()).await.unwrap();
    let picks = [vec![0], vec![ROWS - 1], vec![8191], vec![8192], vec![1, 9999], vec![0, 7, 8, ROWS - 1]];
    for rows in picks.into_iter().chain((1..20).map(|at| vec![at * at * 47])) {
        let metrics = Arc::new(ScanMetrics::default());
        let scan = file.scan().with_row_indices(rows.clone()).with_row_access(RowAccess::Single);
        let found = collect_valid(scan.with_metrics(Arc::clone(&metrics))).await.unwrap();
        let expected = take_record_batch(&whole, &UInt64Array::from(rows.clone())).unwrap();
        assert_eq!(found, expected, "rows {rows:?}");
        let read = metrics.bytes_read.get();
        assert!(read * 2 < file.footer().file_size(), "{read} bytes for rows {rows:?}");
    }
}
