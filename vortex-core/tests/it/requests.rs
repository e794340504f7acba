//! Requests of callers: columns, constants, and the errors if they do not exist.

use std::sync::Arc;

use arrow::array::{AsArray as _, Int32Array, RecordBatch, StructArray};
use arrow::datatypes::{DataType, Field, Fields, Int64Type, UInt64Type};
use vortex_core::expr::{Expr, column};
use vortex_core::io::LocalFile;
use vortex_core::scalar::Scalar;
use vortex_core::scan::{RowAccess, ScanBuilder};
use vortex_core::write::WriteOptions;
use vortex_core::{Error, Result, VortexFile};

use crate::given::{collect, lineitem, opened, written};

async fn count(file: &VortexFile, filter: Expr) -> Result<u64> {
    Ok(file.scan().with_projection(["l_orderkey"]).with_filter(filter).aggregate().await?.row_count)
}

/// A file of 30 numbers and a struct.
async fn nested() -> VortexFile {
    let numbers = || Arc::new(Int32Array::from(vec![1, 2, 3]));
    let inner =
        Fields::from(vec![Field::new("x", DataType::Int32, false), Field::new("y", DataType::Int32, false)]);
    let mut columns: Vec<(String, arrow::array::ArrayRef)> =
        (0..30).map(|at| (format!("c{at}"), numbers() as _)).collect();
    columns.push(("s".into(), Arc::new(StructArray::new(inner, vec![numbers(), numbers()], None))));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    opened(written([&batch], WriteOptions::new()).await).await
}

#[tokio::test]
async fn a_missing_column_is_told_with_what_there_is_in_its_place() {
    let file = nested().await;
    let told = |path: vortex_core::expr::FieldPath| {
        file.scan().with_projection([path]).into_stream().expect_err("no such column").to_string()
    };
    let missing = told("nosuch".into());
    assert!(missing.contains("no column `nosuch`; there are: c0, c1,"), "{missing}");
    assert!(missing.contains("c19 and 11 more"), "{missing}");
    let within = told(["s", "z"].into());
    assert!(within.contains("no column `s.z`; there are in `s`: x, y"), "{within}");
    let below = told(["c0", "x"].into());
    assert!(below.contains("no column `c0.x`: `c0` is i32, without fields"), "{below}");
}

#[tokio::test]
async fn columns_are_named_by_strings_and_paths() {
    let file = nested().await;
    let names: Vec<String> = vec!["c3".into(), "c7".into()];
    let stream = file.scan().with_projection(&names).into_stream().unwrap();
    assert_eq!(stream.schema().fields().len(), 2);
    let field = file.scan().with_projection([["s", "y"]]).with_filter(column(["s", "x"]).gt(1));
    assert_eq!(collect(field).await.unwrap().num_rows(), 2);
}

#[tokio::test]
async fn constants_become_values_of_the_column_they_are_compared_with() {
    let file = VortexFile::open_path(lineitem()).await.unwrap();
    let all = file.row_count();
    // l_orderkey is a 64-bit integer, l_quantity a decimal, l_shipdate a date.
    let below = count(&file, column("l_orderkey").lt(100)).await.unwrap();
    assert!(below > 0 && below < all);
    assert_eq!(count(&file, column("l_orderkey").lt(100u8)).await.unwrap(), below);
    assert_eq!(count(&file, column("l_orderkey").between(-5i8, 99u64)).await.unwrap(), below);
    let large = count(&file, column("l_quantity").gt_eq(40)).await.unwrap();
    assert!(large > 0 && large < all);
    let listed = count(&file, column("l_quantity").is_in(40..=50)).await.unwrap();
    assert_eq!(listed, large, "quantities are whole, 50 at most");
    let either = Expr::any([column("l_quantity").lt(40), column("l_quantity").gt_eq(40)]);
    assert_eq!(count(&file, either).await.unwrap(), all);
    assert_eq!(count(&file, column("l_shipdate").gt(0)).await.unwrap(), all, "days since 1970");
    let early = count(&file, column("l_shipdate").lt(Scalar::date(1995, 3, 15).unwrap())).await.unwrap();
    assert!(early > 0 && early < all);
    assert_eq!(count(&file, column("l_shipdate").lt(9204)).await.unwrap(), early);
    let half = Scalar::decimal(39_500, 3).unwrap();
    assert_eq!(count(&file, column("l_quantity").gt(half)).await.unwrap(), large);
    assert_eq!(count(&file, Expr::any([])).await.unwrap(), 0);

    let error = count(&file, column("l_orderkey").eq("text")).await.unwrap_err();
    assert!(matches!(error.root(), Error::InvalidArgument(_)), "{error}");
    assert!(error.to_string().contains("column `l_orderkey`"), "{error}");
    let error = count(&file, column("l_orderkey").eq(u64::MAX)).await.unwrap_err().to_string();
    assert!(error.contains("18446744073709551615") && error.contains("i64"), "{error}");
}

#[test]
fn files_are_opened_and_read_without_a_runtime() {
    let file = VortexFile::open_blocking(Arc::new(LocalFile::open(lineitem()).unwrap())).unwrap();
    let reader = file.scan().with_projection(["l_orderkey"]).into_reader().unwrap();
    let rows: usize = reader.map(|batch| batch.unwrap().num_rows()).sum();
    assert_eq!(rows as u64, file.row_count());
}

#[tokio::test]
async fn files_are_opened_blocking_within_a_runtime_too() {
    let source = Arc::new(LocalFile::open(lineitem()).unwrap());
    assert!(VortexFile::open_blocking(source).is_ok());
    let error = VortexFile::open_path("no/such.vortex").await.unwrap_err().to_string();
    assert!(error.starts_with("opening no/such.vortex: "), "{error}");
}

/// The numbers of rows that a scan gives, and what it gives beside them.
async fn numbered(scan: ScanBuilder) -> Vec<(u64, i64)> {
    let rows = collect(scan.with_projection(["l_orderkey"]).with_row_numbers("n")).await.unwrap();
    assert_eq!(rows.schema().field(1), &Field::new("n", DataType::UInt64, false));
    let numbers = rows.column(1).as_primitive::<UInt64Type>().values().iter().copied();
    numbers.zip(rows.column(0).as_primitive::<Int64Type>().values().iter().copied()).collect()
}

#[tokio::test]
async fn rows_know_their_number_whatever_is_left_out() {
    let file = VortexFile::open_path(lineitem()).await.unwrap();
    let all = numbered(file.scan()).await;
    assert!(all.iter().enumerate().all(|(at, (number, _))| at as u64 == *number));
    assert_eq!(all.len() as u64, file.row_count());

    let indices: Vec<u64> = (0..file.row_count()).step_by(37).collect();
    let excluded: Vec<u64> =
        (0..file.row_count()).filter(|row| row % 5 == 0 || (900..4000).contains(row)).collect();
    let picked = |row: &u64| indices.binary_search(row).is_ok();
    let kept = |row: &u64| excluded.binary_search(row).is_err();
    let by_hand = |passes: &dyn Fn(&u64, &i64) -> bool| -> Vec<(u64, i64)> {
        all.iter().copied().filter(|(row, key)| passes(row, key)).collect()
    };
    let filter = || column("l_orderkey").gt(2000);
    let scan = || file.scan();
    for access in [RowAccess::Cheapest, RowAccess::Single, RowAccess::Segments] {
        let some = scan().with_row_indices(indices.clone()).with_row_access(access);
        assert_eq!(numbered(some.clone()).await, by_hand(&|row, _| picked(row)));
        let less = some.with_excluded_rows(excluded.clone());
        assert_eq!(numbered(less.clone()).await, by_hand(&|row, _| picked(row) && kept(row)));
        let fewer = less.with_filter(filter()).with_row_ranges(500..8000);
        let expected =
            by_hand(&|row, key| picked(row) && kept(row) && *key > 2000 && (500..8000).contains(row));
        assert_eq!(numbered(fewer).await, expected);
    }
    let most = scan().with_excluded_rows(excluded.clone());
    let expected = by_hand(&|row, _| kept(row));
    assert_eq!(numbered(most.clone()).await, expected);
    assert_eq!(numbered(most.clone().with_limit(10)).await, expected[..10]);
    assert_eq!(most.clone().aggregate().await.unwrap().row_count, expected.len() as u64);
    assert_eq!(numbered(most.with_filter(filter())).await, by_hand(&|row, key| kept(row) && *key > 2000));
    let none: Vec<u64> = (0..file.row_count()).collect();
    assert_eq!(numbered(scan().with_excluded_rows(none)).await, []);
    assert!(scan().with_excluded_rows([file.row_count()]).into_stream().is_err());
}
