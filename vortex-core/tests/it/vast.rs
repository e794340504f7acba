//! Files that claim more rows than any memory holds. They are legal: a constant column of 2^48
//! rows takes a few bytes. Whoever reads one gets its rows as they are made.

use std::path::Path;
use std::sync::Arc;

use futures::TryStreamExt as _;
use vortex_core::VortexFile;
use vortex_core::io::MemoryFile;
use vortex_core::scan::ScanBuilder;

use crate::anatomy::{Anatomy, What};

const ROWS: u64 = 1 << 48;

/// A scan of one constant column of [`ROWS`] rows: a golden file with its row counts replaced.
async fn vast() -> ScanBuilder {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files/0.91.0/prims_allnull.vortex");
    let mut bytes = std::fs::read(path).unwrap();
    for site in Anatomy::of(&bytes).sites.iter().filter(|site| site.what == What::RowCount) {
        bytes[site.at..site.at + site.width].copy_from_slice(&ROWS.to_le_bytes());
    }
    let file = VortexFile::open(Arc::new(MemoryFile::new(bytes))).await.unwrap();
    assert_eq!(file.row_count(), ROWS);
    let schema = file.schema().unwrap();
    file.scan().with_projection([schema.field(0).name().as_str()])
}

#[tokio::test]
async fn a_scan_of_2_to_the_48_rows_starts_at_once() {
    let mut stream = vast().await.into_stream().unwrap();
    let batch = stream.try_next().await.unwrap().unwrap();
    assert!(batch.num_rows() > 0);
}

#[tokio::test]
async fn the_last_of_2_to_the_48_rows_is_found_at_once() {
    let stream = vast().await.with_row_indices([7, ROWS - 1]).into_stream().unwrap();
    let batches: Vec<_> = stream.try_collect().await.unwrap();
    assert_eq!(batches.iter().map(|batch| batch.num_rows()).sum::<usize>(), 2);
}

#[tokio::test]
async fn splits_of_vast_files_are_joined_and_still_cover_all_rows() {
    let splits = vast().await.with_row_range(5..ROWS - 5).splits().unwrap();
    assert!(splits.len() <= 1 << 16);
    assert_eq!((splits[0].start, splits[splits.len() - 1].end), (5, ROWS - 5));
    assert!(splits.windows(2).all(|pair| pair[0].end == pair[1].start));
    assert!(vast().await.with_row_range(9..9).splits().unwrap().is_empty());
}
