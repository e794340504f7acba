//! Each limit of a reader at the least value with which a file can be read, and below it.

use std::sync::Arc;

use arrow::array::{FixedSizeListArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field};
use bytes::Bytes;
use vortex_core::file::OpenOptions;
use vortex_core::io::MemoryFile;
use vortex_core::write::WriteOptions;
use vortex_core::{Error, Limits, Result};

use crate::given::{collect, golden, written};

/// No file of the tests needs more of anything.
const PLENTY: u32 = 1 << 16;

struct Case {
    limit: &'static str,
    set: fn(u32) -> Limits,
    file: Bytes,
    /// What the file needs.
    needs: u32,
}

fn case(limit: &'static str, set: fn(u32) -> Limits, file: Bytes, needs: u32) -> Case {
    Case { limit, set, file, needs }
}

fn of_release(name: &str) -> Bytes {
    std::fs::read(golden("0.91.0").join(name)).unwrap().into()
}

/// A file of one column of lists that have 100 numbers each, also where they are null.
async fn wide_rows() -> Bytes {
    let item = Arc::new(Field::new("item", DataType::Int64, false));
    let numbers = Arc::new(Int64Array::from_iter_values(0..1000));
    let lists = FixedSizeListArray::new(item, 100, numbers, None);
    let batch = RecordBatch::try_from_iter([("lists", Arc::new(lists) as _)]).unwrap();
    written([&batch], WriteOptions::new()).await
}

async fn cases() -> Vec<Case> {
    vec![
        // Eight levels of types, each of which is two tables.
        case("max_depth", |n| Limits::new().with_max_depth(n), of_release("struct_nested.vortex"), 16),
        // Lists of lists and of structs, each of which is one array with several parts.
        case("max_nodes", |n| Limits::new().with_max_nodes(n), of_release("list_nested.vortex"), 16),
        case("max_layouts", |n| Limits::new().with_max_layouts(n), of_release("lowcard.vortex"), 115),
        // 24 columns and the root.
        case("max_columns", |n| Limits::new().with_max_columns(n), of_release("lowcard.vortex"), 25),
        case("max_rows", |n| Limits::new().with_max_rows(n.into()), of_release("lowcard.vortex"), 2000),
        // The numbers of two of the ten rows, which are decoded in no more than eight parts.
        case(
            "max_decoded_bytes",
            |n| Limits::new().with_max_decoded_bytes(n.into()),
            wide_rows().await,
            1600,
        ),
        // The numbers, and a byte for each of the list and the row.
        case("max_row_bytes", |n| Limits::new().with_max_row_bytes(n.into()), wide_rows().await, 802),
    ]
}

async fn read(file: &Bytes, limits: Limits) -> Result<RecordBatch> {
    let source = Arc::new(MemoryFile::new(file.clone()));
    let opened = OpenOptions::new().with_limits(limits).open(source).await?;
    collect(opened.scan()).await
}

#[tokio::test]
async fn every_limit_refuses_files_that_need_more_and_no_others() {
    for Case { limit, set, file, needs } in cases().await {
        let whole = read(&file, Limits::new()).await.unwrap();
        let (mut below, mut least) = (0, PLENTY);
        while below < least {
            let middle = below + (least - below) / 2;
            match read(&file, set(middle)).await {
                Ok(_) => least = middle,
                Err(_) => below = middle + 1,
            }
        }
        assert_eq!(least, needs, "{limit}");
        assert_eq!(read(&file, set(least)).await.unwrap(), whole, "{limit} of {least}");
        for less in [least - 1, least / 2, 1, 0] {
            let error = read(&file, set(less)).await.unwrap_err();
            assert!(matches!(error.root(), Error::LimitExceeded(_)), "{limit} of {less}: {error}");
        }
    }
}
