//! Runs every suite against every variant; see the documentation of the crate.
//!
//! `SLT_COMPLETE=1 cargo sql-tests answers_come_from_arrow` writes answers into the suites.
//! `SLT=nulls,like cargo sql-tests` runs two of them.

use std::path::{Path, PathBuf};

use sql_tests::{Database, Places, Store, Tables, Variant};
use sqllogictest::{
    AsyncDB as _, DBOutput, Runner, default_normalizer, default_validator, strict_column_validator,
};

#[tokio::test]
async fn answers_come_from_arrow() {
    run(Variant::Arrow).await;
}

#[tokio::test]
async fn vortex_answers_the_same() {
    run(Variant::Vortex).await;
}

#[tokio::test]
async fn vortex_answers_the_same_without_push_down() {
    run(Variant::Plain).await;
}

#[tokio::test]
async fn vortex_answers_the_same_in_many_partitions() {
    run(Variant::Splits).await;
}

#[tokio::test]
async fn vortex_answers_the_same_in_a_recorded_order() {
    run(Variant::Sorted).await;
}

#[tokio::test]
async fn vortex_answers_the_same_in_partitions_with_a_recorded_order() {
    for by_statistics in [false, true] {
        run(Variant::Groups { by_statistics }).await;
    }
}

/// What these variants are for.
#[tokio::test]
async fn tables_with_a_recorded_order_declare_it() {
    let tables = Tables::create().await.expect("golden files and a temporary folder");
    let groups = |by_statistics| Variant::Groups { by_statistics };
    for variant in [Variant::Sorted, groups(false), groups(true)] {
        for (table, order) in [
            ("'{files}/0.91.0/tpch_lineitem_1k.vortex'", "output_ordering=[l_orderkey@0 ASC"),
            ("'{tables}/large/facts.vortex'", "output_ordering=[id@0 ASC"),
        ] {
            let sql = format!("EXPLAIN FORMAT INDENT SELECT * FROM {table}");
            let plan = plan(variant, &tables, &sql).await;
            assert!(plan.contains(order) && plan.contains("3.vortex"), "{variant:?}\n{plan}");
        }
    }
}

/// What the suites over large tables rely on.
#[tokio::test]
async fn large_tables_are_read_in_several_splits() {
    let tables = Tables::create().await.expect("golden files and a temporary folder");
    for variant in [Variant::Vortex, Variant::Plain, Variant::Splits] {
        for (table, column, least) in [("facts", "noise", 3), ("facts", "*", 4), ("wide", "body", 4)] {
            let sql = format!(
                "EXPLAIN ANALYZE SELECT {column} FROM '{{tables}}/large/{table}.vortex' WHERE id % 2 = 1"
            );
            let plan = plan(variant, &tables, &sql).await;
            let (_, count) = plan.split_once("splits_scanned=").expect("a scan");
            let digits: String = count.chars().take_while(char::is_ascii_digit).collect();
            let splits: usize = digits.parse().expect("a number");
            assert!(splits >= least, "{variant:?} reads {column} of {table} in {splits} splits\n{plan}");
        }
    }
}

/// What EXPLAIN returns, in a session of its own.
async fn plan(variant: Variant, tables: &Tables, sql: &str) -> String {
    let places = Places::on_disk(tables, variant.extension());
    let mut database = Database::open(variant, places).await.expect("a session");
    let DBOutput::Rows { rows, .. } = database.run(sql).await.expect("a plan") else {
        panic!("no plan: {sql}");
    };
    rows.concat().join("\n")
}

/// The files are on the server named by `SLT_STORE`, which `stores/run` sets.
#[cfg(feature = "stores")]
#[tokio::test]
async fn vortex_answers_the_same_from_an_object_store() {
    run(Variant::Store).await;
}

/// Runs all suites, and fails with the first difference of each.
async fn run(variant: Variant) {
    let tables = Tables::create().await.expect("golden files and a temporary folder");
    let places = match variant {
        Variant::Store => {
            Places::in_store(Store::upload(&tables).await.expect("a server that takes the files"))
        }
        _ => Places::on_disk(&tables, variant.extension()),
    };
    let complete = variant == Variant::Arrow && std::env::var_os("SLT_COMPLETE").is_some();
    let mut failures = Vec::new();
    let suites = suites();
    for suite in &suites {
        let mut runner = Runner::new(|| Database::open(variant, places.clone()));
        runner.with_column_validator(strict_column_validator);
        for label in variant.labels() {
            runner.add_label(label);
        }
        let outcome = if complete {
            let checks = (default_validator, default_normalizer, strict_column_validator);
            let update = runner.update_test_file(suite, " ", checks.0, checks.1, checks.2).await;
            update.map_err(|error| error.to_string())
        } else {
            runner.run_file_async(suite).await.map_err(|error| error.display(false).to_string())
        };
        if let Err(failure) = outcome {
            failures.push(format!("{}\n{failure}", suite.display()));
        }
    }
    assert!(failures.is_empty(), "{} of {} suites\n{}", failures.len(), suites.len(), failures.join("\n\n"));
}

fn suites() -> Vec<PathBuf> {
    let chosen = std::env::var("SLT").unwrap_or_default();
    let chosen: Vec<&str> = chosen.split(',').filter(|name| !name.is_empty()).collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("slt");
    let entries = folder.read_dir().expect("a folder of suites");
    let mut suites: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    suites.retain(|path| {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        path.extension().is_some_and(|it| it == "slt") && (chosen.is_empty() || chosen.contains(&&*stem))
    });
    suites.sort();
    assert!(!suites.is_empty(), "no suite in {}", folder.display());
    suites
}
