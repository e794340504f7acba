//! Tables of thousands of columns.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch};

use crate::files::{create, run, session, show, written};

const COLUMNS: usize = 5000;

async fn write(path: &std::path::Path) {
    let column =
        |at: usize| Arc::new(Int32Array::from_iter_values((0..10).map(|row| row * at as i32))) as ArrayRef;
    let batch = RecordBatch::try_from_iter((0..COLUMNS).map(|at| (format!("c{at}"), column(at)))).unwrap();
    std::fs::write(path, written(&batch).await).unwrap();
}

#[tokio::test]
async fn all_columns_and_single_ones_are_read() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.vortex", "b.vortex"] {
        write(&folder.path().join(name)).await;
    }
    let context = session();
    create(&context, "t", folder.path().join("").display()).await;
    let all = run(&context, "SELECT * FROM t WHERE c1 >= 8 ORDER BY c1").await;
    assert_eq!((all.num_columns(), all.num_rows()), (COLUMNS, 4));
    let few =
        show(&context, "SELECT c4999, sum(c17) FROM t WHERE c4998 > 0 GROUP BY 1 ORDER BY 1 DESC LIMIT 1")
            .await;
    assert!(few.contains("| 44991 | 306 "), "{few}");
    let known = show(&context, "SELECT min(c3), max(c4999), count(c7) FROM t").await;
    assert!(known.contains("| 0 ") && known.contains("| 44991 ") && known.contains("| 20 "), "{known}");
}
