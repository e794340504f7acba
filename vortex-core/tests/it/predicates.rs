//! Predicates that callers evaluate themselves, and the scans that run them.

use arrow::array::AsArray as _;
use arrow::datatypes::{Int64Type, UInt64Type};
use vortex_core::expr::{Expr, column};
use vortex_core::{Error, Result, VortexFile};

use crate::given::{collect, lineitem, opened};

/// Passes all rows, but cannot evaluate one of them.
fn chokes(on: i64, panics: bool) -> Expr {
    Expr::rows(format!("chokes on {on}"), ["l_orderkey"], move |batch| {
        let found = batch.column(0).as_primitive::<Int64Type>().values().contains(&on);
        assert!(!(found && panics), "chokes on {on}");
        if found {
            Err(Error::External(format!("chokes on {on}").into()))
        } else {
            Ok(vec![true; batch.num_rows()].into())
        }
    })
}

/// The order keys of all rows.
async fn keys(file: &VortexFile) -> Vec<i64> {
    let rows = collect(file.scan().with_projection(["l_orderkey"])).await.unwrap();
    rows.column(0).as_primitive::<Int64Type>().values().to_vec()
}

#[tokio::test]
async fn dictionaries_of_two_types_may_share_their_values() {
    // Made by hand: the values 1, 2^63 + 1 and 3 are stored once, as signed and as unsigned numbers.
    let bytes = include_bytes!("dictionary_of_two_types.vortex");
    let file = opened(bytes.as_slice()).await;
    let filter = column("i").not_eq(100).and(column("u").gt(3));
    let found = collect(file.scan().with_filter(filter)).await.unwrap();
    assert_eq!(found["i"].as_primitive::<Int64Type>().values(), &[i64::MIN + 1; 2]);
    assert_eq!(found["u"].as_primitive::<UInt64Type>().values(), &[(1 << 63) + 1; 2]);
}

#[tokio::test]
async fn rows_that_the_caller_left_out_are_not_evaluated() {
    let file = VortexFile::open_path(lineitem()).await.unwrap();
    let keys = keys(&file).await;
    let on = keys[keys.len() / 2];
    let (bad, good): (Vec<u64>, Vec<u64>) =
        (0..file.row_count()).partition(|row| keys[usize::try_from(*row).unwrap()] == on);
    let scan = || file.scan().with_filter(chokes(on, false)).with_projection(["l_comment"]);
    let error = scan().aggregate().await.unwrap_err().to_string();
    assert!(error.contains("chokes"), "{error}");
    let kept = good.len() as u64;
    assert_eq!(scan().with_excluded_rows(bad).aggregate().await.unwrap().row_count, kept);
    assert_eq!(collect(scan().with_row_indices(good)).await.unwrap().num_rows() as u64, kept);
}

#[tokio::test]
async fn parts_in_turn_read_only_rows_that_passed_those_before_them() {
    let file = VortexFile::open_path(lineitem()).await.unwrap();
    let keys = keys(&file).await;
    let on = keys[keys.len() / 2];
    let other = keys[0];
    assert_ne!(on, other);
    let scan = |parts| file.scan().with_filter(Expr::InTurn(parts)).with_projection(["l_comment"]);
    let is_other = || column("l_orderkey").eq(other);
    let expected = keys.iter().filter(|key| **key == other).count() as u64;
    // Each part is evaluated on fewer rows than the one before it.
    let parts = vec![column("l_orderkey").not_eq(on), chokes(on, false), is_other(), chokes(on + 1, false)];
    assert_eq!(scan(parts).aggregate().await.unwrap().row_count, expected);
    let parts = vec![is_other(), chokes(on, false), column("l_orderkey").is_null()];
    assert_eq!(scan(parts).aggregate().await.unwrap().row_count, 0);
    let parts = vec![chokes(on, false), is_other()];
    let error = scan(parts).aggregate().await.unwrap_err().to_string();
    assert!(error.contains("chokes"), "{error}");
}

#[tokio::test]
async fn parts_in_turn_are_refused_where_unknown_and_false_differ() {
    let file = VortexFile::open_path(lineitem()).await.unwrap();
    let in_turn = || Expr::InTurn(vec![column("l_orderkey").gt(1)]);
    let others = [
        Expr::Not(Box::new(in_turn())),
        in_turn().or(column("l_comment").is_null()),
        Expr::InTurn(vec![column("l_comment").is_null(), Expr::Not(Box::new(in_turn()))]),
    ];
    for filter in others {
        let error = file.scan().with_filter(filter.clone()).aggregate().await.unwrap_err().to_string();
        assert!(error.contains("combined with others by AND only"), "{filter}: {error}");
    }
    let combined = in_turn().and(column("l_comment").is_null());
    assert_eq!(file.scan().with_filter(combined).aggregate().await.unwrap().row_count, 0);
}

#[tokio::test]
async fn a_panic_is_not_the_end_of_the_rows() {
    let file = VortexFile::open_path(lineitem()).await.unwrap();
    let last = *keys(&file).await.last().unwrap();
    let reader = file.scan().with_filter(chokes(last, true)).into_reader().unwrap();
    let counting = tokio::task::spawn_blocking(move || reader.collect::<Result<Vec<_>, _>>());
    let error = counting.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("the scan panicked: chokes on"), "{error}");
}
