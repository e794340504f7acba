//! The scan gives the same answers as DataFusion on decoded rows.

use std::path::Path;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use datafusion::common::ScalarValue;
use datafusion::datasource::TableProvider;
use datafusion::logical_expr::{Expr, ident, lit};
use datafusion::prelude::{DataFrame, SessionConfig};
use vortex_datafusion::VortexOptions;

use crate::files::{copy, file, newest, nothing_pushed, register_files, session_with, table, write_chunks};

/// The rows of a frame, or the text of the error.
async fn rows(frame: DataFrame) -> Result<RecordBatch, String> {
    // A session of its own for each of thousands of runs would take most of the time.
    let context = std::sync::Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await.map_err(|error| error.to_string())?;
    let batches = datafusion::physical_plan::collect(std::sync::Arc::clone(&plan), context)
        .await
        .map_err(|error| error.to_string())?;
    concat_batches(&plan.schema(), &batches).map_err(|error| error.to_string())
}

/// Filters on a column, with constants from its data.
fn filters(column: &str, values: &[ScalarValue]) -> Vec<Expr> {
    let c = || ident(column);
    let mut filters = vec![c().is_null(), c().is_not_null()];
    for value in values {
        let v = || lit(value.clone());
        filters.extend([
            c().eq(v()),
            c().not_eq(v()),
            c().lt(v()),
            c().lt_eq(v()),
            c().gt(v()),
            !c().gt_eq(v()),
            c().in_list(vec![v()], false),
            c().in_list(vec![v(), lit(ScalarValue::Null)], true),
            c().gt(v()).or(c().is_null()),
        ]);
        if let Some(Some(text)) = value.try_as_str() {
            let start: String = text.chars().take(2).filter(|c| !"%_\\".contains(*c)).collect();
            filters.push(c().like(lit(format!("{start}%"))));
            filters.push(c().not_like(lit(format!("%{start}"))));
            filters.push(c().ilike(lit(format!("%{}%", start.to_uppercase()))));
        }
    }
    if let [low, high] = values {
        filters.push(c().between(lit(low.clone()), lit(high.clone())));
        filters.push(c().in_list(values.iter().map(|value| lit(value.clone())).collect(), true));
    }
    filters
}

/// Up to two distinct values of a column.
fn samples(rows: &RecordBatch, column: usize) -> Vec<ScalarValue> {
    let array = rows.column(column);
    let mut found: Vec<ScalarValue> = Vec::new();
    for at in [0, array.len() / 3, array.len() / 2, array.len().saturating_sub(1)] {
        if at >= array.len() {
            continue;
        }
        let value = ScalarValue::try_from_array(array, at).expect("a value");
        if !value.is_null() && !found.contains(&value) && found.len() < 2 {
            found.push(value);
        }
    }
    found
}

/// Checks one file; returns how many filters were tried, how many of them fail in both ways, and the differences; or
/// why the file cannot be read.
async fn check(path: &Path) -> Result<(usize, usize, Vec<String>), String> {
    let context = session_with(SessionConfig::new().with_target_partitions(1));
    let pushed = table(&context, path, VortexOptions::default()).await;
    let plain = table(&context, path, nothing_pushed()).await;
    let columns = plain.schema().fields().clone();
    let all = |of: &std::sync::Arc<_>| context.read_table(std::sync::Arc::clone(of) as _).expect("a table");
    let decoded = rows(all(&plain)).await?;
    let (mut count, mut refused, mut differences) = (0, 0, Vec::new());
    for (at, field) in columns.iter().enumerate() {
        for filter in filters(field.name(), &samples(&decoded, at)) {
            let frames = [all(&plain), all(&pushed)].map(|frame| frame.filter(filter.clone()));
            let [Ok(expected), Ok(actual)] = frames else { continue };
            let (expected, actual) = (rows(expected).await, rows(actual).await);
            count += 1;
            let same = match (&expected, &actual) {
                (Ok(expected), Ok(actual)) => expected == actual,
                (Err(_), Err(_)) => {
                    refused += 1;
                    true
                }
                _ => false,
            };
            if !same {
                let len = |rows: &Result<RecordBatch, String>| match rows {
                    Ok(rows) => format!("{} rows", rows.num_rows()),
                    Err(error) => error.clone(),
                };
                differences.push(format!("{filter}: {}, expected {}", len(&actual), len(&expected)));
            }
        }
    }
    Ok((count, refused, differences))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_filter_on_every_column_gives_the_rows_of_an_unpushed_one() {
    let mut checks = tokio::task::JoinSet::new();
    for entry in std::fs::read_dir(newest()).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        // Hundreds of columns take long and provide no new information.
        let is_small = path.metadata().is_ok_and(|meta| meta.len() < 400_000);
        if name.ends_with(".vortex") && is_small && !["wide_300.vortex", "names_odd.vortex"].contains(&&*name)
        {
            checks.spawn(async move { (name, check(&path).await) });
        }
    }
    let (mut count, mut refused, mut unread, mut failures) = (0, 0, Vec::new(), Vec::new());
    while let Some(outcome) = checks.join_next().await {
        let (name, found) = outcome.expect("no panic");
        match found {
            Err(_) => unread.push(name),
            Ok((tried, failed, differences)) => {
                count += tried;
                refused += failed;
                failures.extend(differences.into_iter().map(|what| format!("{name}: {what}")));
            }
        }
    }
    assert_eq!(unread, [""; 0], "files that cannot be read");
    assert!(count > 100 && refused * 10 < count, "{refused} of {count} filters fail");
    assert!(failures.is_empty(), "{} of {count} differ: {failures:#?}", failures.len());
}

/// Runs a query with everything pushed and with nothing; returns the number of rows.
async fn agree(path: &Path, sql: &str) -> usize {
    let mut outcomes = Vec::new();
    for options in [VortexOptions::default(), nothing_pushed()] {
        let context = session_with(SessionConfig::new().with_target_partitions(3));
        let provider = table(&context, path, options).await;
        context.register_table("t", provider).expect("a new name");
        let frame = context.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        outcomes.push(rows(frame).await.unwrap_or_else(|error| panic!("{sql}: {error}")));
    }
    assert_eq!(outcomes[0], outcomes[1], "{sql}");
    outcomes[0].num_rows()
}

#[tokio::test]
async fn queries_over_lineitem_agree() {
    let path = file("tpch_lineitem");
    let queries = [
        "SELECT l_orderkey, l_linenumber FROM t WHERE l_shipdate >= DATE '1995-01-01' AND l_quantity < 10 \
         ORDER BY 1, 2",
        "SELECT count(*) FROM t WHERE l_shipmode IN ('AIR', 'RAIL') AND l_comment LIKE '%the%'",
        "SELECT l_returnflag, sum(l_extendedprice * (1 - l_discount)) FROM t GROUP BY 1 ORDER BY 1",
        "SELECT count(*) FROM t WHERE l_orderkey % 7 = 3 AND upper(l_shipmode) = 'AIR'",
        "SELECT l_orderkey * 2 AS twice, length(l_comment), 7 AS seven, l_orderkey FROM t \
         WHERE l_partkey BETWEEN 10 AND 100 ORDER BY 1, 2",
        "SELECT l_orderkey, l_linenumber FROM t ORDER BY l_extendedprice DESC, 1, 2 LIMIT 10",
        "SELECT a.l_orderkey, b.l_linenumber FROM t a JOIN t b USING (l_orderkey) WHERE a.l_quantity = 50 \
         ORDER BY 1, 2",
        "SELECT min(l_orderkey), max(l_shipdate), count(l_comment), sum(l_linenumber) FROM t",
        "SELECT count(*) FROM t WHERE l_quantity > (SELECT avg(l_quantity) FROM t)",
        "SELECT CASE WHEN l_quantity > 25 THEN 'many' ELSE 'few' END AS how, count(*) FROM t GROUP BY 1 ORDER BY 1",
        "SELECT count(*) FROM t WHERE l_shipdate IS DISTINCT FROM DATE '1995-01-01'",
        "SELECT count(*) FROM t WHERE random() < 2",
        "SELECT count(*) FROM t WHERE false",
        "SELECT l_orderkey FROM t WHERE l_orderkey > 5 LIMIT 0",
    ];
    for sql in queries {
        agree(&path, sql).await;
    }
}

#[tokio::test]
async fn nested_keys_are_joined() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nested.vortex");
    let context = session_with(SessionConfig::new());
    let keys =
        "map(['k'], [value]) m, make_array(make_array(value)) ll, make_array(named_struct('a', value)) ls,
        named_struct('a', make_array(value)) sl, named_struct('m', map(['k'], [value])) sm,
        arrow_cast(make_array(make_array(value)), 'FixedSizeList(1, FixedSizeList(1, Int64))') ff";
    copy(&context, &format!("SELECT value id, {keys} FROM generate_series(1, 10)"), path.display()).await;
    for key in ["m", "ll", "ls", "sl", "sm", "ff"] {
        let from = format!("FROM '{}'", path.display());
        let joined = format!("SELECT a.id {from} a JOIN '{}' b ON a.{key} = b.{key}", path.display());
        let listed = format!("SELECT id {from} WHERE {key} IN (SELECT {key} {from} WHERE id < 4)");
        for (sql, expected) in [(joined, 10), (listed, 3)] {
            let found = rows(context.sql(&sql).await.unwrap()).await;
            assert_eq!(found.map(|rows| rows.num_rows()), Ok(expected), "{sql}");
        }
    }
}

#[tokio::test]
async fn a_division_is_protected_by_the_condition_before_it() {
    let path = file("tpch_lineitem");
    let context = session_with(SessionConfig::new());
    register_files(&context, &path).await;
    let protected = "SELECT * FROM t WHERE l_linenumber <> 1 AND 100 / (l_linenumber - 1) > 30";
    let expected = "SELECT * FROM t WHERE l_linenumber BETWEEN 2 AND 4";
    let [protected, expected] = [protected, expected].map(|sql| context.sql(sql));
    let (protected, expected) = (rows(protected.await.unwrap()).await, rows(expected.await.unwrap()).await);
    assert_eq!(protected.unwrap().num_rows(), expected.unwrap().num_rows());
}

#[tokio::test]
async fn fields_of_structs_are_filtered_and_projected_alone() {
    let path = file("struct_nested");
    let context = session_with(SessionConfig::new());
    let provider = table(&context, &path, VortexOptions::default()).await;
    let fields = provider.schema().fields().clone();
    for field in &fields {
        let arrow::datatypes::DataType::Struct(inner) = field.data_type() else { continue };
        for child in inner {
            let path_sql = format!("\"{}\"['{}']", field.name(), child.name());
            agree(&path, &format!("SELECT {path_sql} AS x FROM t")).await;
            agree(&path, &format!("SELECT count(*) FROM t WHERE {path_sql} IS NULL")).await;
            agree(&path, &format!("SELECT {path_sql} AS x, \"{}\" AS s FROM t", field.name())).await;
        }
    }
}

#[tokio::test]
async fn one_file_fills_all_partitions_and_no_row_is_read_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_chunks(folder.path()).await;
    for partitions in [1, 2, 3, 8, 50] {
        let context = session_with(SessionConfig::new().with_target_partitions(partitions));
        let provider = table(&context, &path, VortexOptions::default()).await;
        let name = provider.schema().field(0).name().clone();
        context.register_table("t", provider).expect("a new name");
        // Not answered from statistics: the filter has to run.
        let sql = format!("SELECT count(*) AS n FROM t WHERE \"{name}\" IS NULL OR \"{name}\" IS NOT NULL");
        let rows = rows(context.sql(&sql).await.unwrap()).await.unwrap();
        assert_eq!(
            ScalarValue::try_from_array(rows.column(0), 0).unwrap(),
            ScalarValue::Int64(Some(270_000))
        );
    }
}
