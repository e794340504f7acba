//! The queries: text files grouped into suites.
//!
//! ```text
//! queries/<suite>/*.sql
//!
//! -- <name>: <what it asks for> [<order>]
//! SELECT ...;
//! ```
//!
//! A file contains one or more queries. `[ordered]` means that the query completely determines the order
//! of its rows; `[ordered by the first column]`, that rows with equal values there may be in any order.

use std::path::PathBuf;

use clap::ValueEnum;
use datafusion::error::{DataFusionError, Result};

use crate::compare::Order;
use crate::data::DataSet;

const TOTAL: &str = "[ordered]";
const FIRST_COLUMN: &str = "[ordered by the first column]";

/// A group of queries over the same data sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// The 22 queries of TPC-H.
    Tpch,
    /// Reports over the hit log.
    Analytics,
    /// Scans, look-ups, LIKE and top-k over lineitem and the hit log.
    Points,
    /// Few rows of the hit log by keys in no order.
    LookUps,
    /// Aggregates of ranges of rows and of whole tables, over the same.
    Aggregates,
    /// Single columns of a table with 3,000 columns.
    Wide,
    /// One table consisting of small files.
    SmallFiles,
}

/// One query.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    /// Short, unique in its suite.
    pub(crate) name: String,
    /// What it asks for.
    pub(crate) title: String,
    /// How far the order of the rows is part of the answer.
    pub(crate) order: Order,
    /// The statement.
    pub(crate) sql: String,
}

impl Suite {
    /// The name in reports, on the command line, and of the folder of queries.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The data sets that the queries read.
    pub(crate) fn data_sets(self) -> &'static [DataSet] {
        match self {
            Self::Tpch => &[DataSet::Tpch],
            Self::Analytics | Self::LookUps => &[DataSet::Analytics],
            Self::Points | Self::Aggregates => &[DataSet::Tpch, DataSet::Analytics],
            Self::Wide => &[DataSet::Wide],
            Self::SmallFiles => &[DataSet::SmallFiles],
        }
    }

    /// All queries, in the order of their files' names.
    pub(crate) fn queries(self) -> Result<Vec<Query>> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("queries").join(self.name());
        let entries = std::fs::read_dir(&folder)?.collect::<std::io::Result<Vec<_>>>()?;
        let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
        files.sort();
        let mut queries = Vec::new();
        for file in files {
            let text = std::fs::read_to_string(&file)?;
            let parsed = parse(&text).ok_or_else(|| {
                DataFusionError::Configuration(format!(
                    "{} does not begin with `-- name: title`",
                    file.display()
                ))
            })?;
            queries.extend(parsed);
        }
        Ok(queries)
    }
}

impl Query {
    /// Whether the query reads the table.
    pub(crate) fn mentions(&self, table: &str) -> bool {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        self.sql.split(|c| !is_name(c)).any(|word| word == table)
    }
}

fn parse(text: &str) -> Option<Vec<Query>> {
    let mut queries: Vec<Query> = Vec::new();
    for line in text.lines() {
        if let Some((name, title)) = line.strip_prefix("-- ").and_then(|rest| rest.split_once(": ")) {
            let (title, order) = match (title.strip_suffix(TOTAL), title.strip_suffix(FIRST_COLUMN)) {
                (Some(title), _) => (title, Order::Total),
                (_, Some(title)) => (title, Order::FirstColumn),
                _ => (title, Order::Any),
            };
            let title = title.trim_end().to_owned();
            queries.push(Query { name: name.to_owned(), title, order, sql: String::new() });
        } else {
            let query = queries.last_mut()?;
            query.sql.push_str(line);
            query.sql.push('\n');
        }
    }
    Some(queries)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn suites_hold_as_many_queries_as_they_say() -> Result<()> {
        for (suite, count) in
            [(Suite::Tpch, 22), (Suite::Analytics, 46), (Suite::Points, 17), (Suite::Aggregates, 6)]
        {
            let queries = suite.queries()?;
            let names: HashSet<&String> = queries.iter().map(|query| &query.name).collect();
            assert_eq!((queries.len(), names.len()), (count, count), "{suite:?}");
        }
        Ok(())
    }

    #[test]
    fn a_table_is_mentioned_by_its_whole_name_only() -> Result<()> {
        let [q02] = &Suite::Tpch.queries()?[1..2] else { panic!("there are 22 queries") };
        assert!(q02.mentions("part") && q02.mentions("partsupp") && !q02.mentions("lineitem"));
        assert!(!parse("-- a: b\nSELECT 1 FROM partsupp;").expect("it has a name")[0].mentions("part"));
        Ok(())
    }
}
