//! Random queries over random tables: Vortex files must answer like the same rows in memory.
//!
//! Each seed creates tables ([`rows`]), writes them to files with random options, and asks queries ([`queries`])
//! of sessions with random settings ([`tables`]). A failure prints its seed, the statement, and the settings;
//! `RANDOM_SQL=17 cargo all-tests --test random` repeats seed 17, and `RANDOM_SQL=100..200` tries a hundred.

use std::ops::Range;

use rand::SeedableRng as _;
use rand::rngs::StdRng;

mod queries;
mod rows;
mod tables;

use queries::Queries;
use tables::{Answer, Tables};

/// Seeds of an ordinary test run.
const SEEDS: Range<u64> = 0..12;
/// Statements per seed.
const STATEMENTS: usize = 40;

#[tokio::test]
async fn random_queries_are_answered_like_rows_in_memory() {
    let (mut answered, mut refused) = (0, 0);
    let mut failures = Vec::new();
    for seed in seeds() {
        let mut random = StdRng::seed_from_u64(seed);
        let tables = Tables::create(&mut random).await.expect("tables");
        for _ in 0..STATEMENTS {
            let statement = Queries::new(&mut random, &tables.rows, &tables.order).statement();
            let expected = match tables.in_memory(&statement).await {
                Answer::Rows(rows) => rows,
                // Overflow, for instance. Which rows an operator computes first is up to the plan.
                Answer::Error(_) => {
                    refused += 1;
                    continue;
                }
            };
            answered += 1;
            let (settings, actual) = tables.in_files(&mut random, &statement).await;
            if let Some(difference) = difference(&expected, &actual) {
                let sql = statement.sql;
                failures.push(format!("seed {seed}\n{sql}\nwith {settings:?}\n{difference}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {answered} queries\n\n{}", failures.len(), failures.join("\n\n"));
    assert!(refused * 10 <= answered, "{refused} queries have no answer, {answered} have");
}

/// The seeds that `RANDOM_SQL` names, one or a range.
fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("RANDOM_SQL") else {
        return SEEDS;
    };
    let number =
        |text: &str| text.parse::<u64>().expect("RANDOM_SQL is a seed, or a range of seeds such as 5..9");
    match text.split_once("..") {
        Some((start, end)) => number(start)..number(end),
        None => number(&text)..number(&text) + 1,
    }
}

/// How an answer differs.
fn difference(expected: &[String], actual: &Answer) -> Option<String> {
    let actual = match actual {
        Answer::Rows(rows) => rows,
        Answer::Error(error) => {
            return Some(format!("{} rows in memory, error in files: {error}", expected.len()));
        }
    };
    if expected == actual {
        return None;
    }
    let only = |these: &[String], those: &[String]| -> Vec<String> {
        these.iter().filter(|row| !those.contains(row)).take(5).cloned().collect()
    };
    Some(format!(
        "{} rows in memory, {} in files; only in memory: {:#?}, only in files: {:#?}",
        expected.len(),
        actual.len(),
        only(expected, actual),
        only(actual, expected),
    ))
}
