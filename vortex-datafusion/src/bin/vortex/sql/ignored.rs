//! Clauses that DataFusion ignores although they change which rows there are: they are refused.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{GroupByExpr, Select, TableFactor, VisitorMut};

use super::visit::visit;
use crate::failure::{Failure, Outcome};

/// Refuses a statement with such a clause. See `tests/it/upstream/files.rs`: `samples_of_tables_are_whole_tables`.
pub(super) fn check(statement: &mut Statement) -> Outcome {
    match visit(statement, &mut Ignored) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(clause) => Err(Failure::error(format!("{clause}, which DataFusion would ignore"))),
    }
}

struct Ignored;

impl VisitorMut for Ignored {
    /// The clause, and what to write instead.
    type Break = &'static str;

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Self::Break> {
        match table {
            TableFactor::Table { sample: Some(_), .. } | TableFactor::Derived { sample: Some(_), .. } => {
                ControlFlow::Break("use WHERE random() < 0.1 instead of TABLESAMPLE")
            }
            TableFactor::Table { partitions, .. } if !partitions.is_empty() => {
                ControlFlow::Break("use WHERE with the columns of folders instead of PARTITION")
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) = &select.group_by;
        if !modifiers.is_empty() {
            return ControlFlow::Break(
                "use GROUP BY ROLLUP (..), CUBE (..) or GROUPING SETS instead of WITH",
            );
        }
        if select.prewhere.is_some() {
            return ControlFlow::Break("use WHERE instead of PREWHERE");
        }
        if !select.connect_by.is_empty() {
            return ControlFlow::Break("use WITH RECURSIVE instead of CONNECT BY");
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::*;

    #[test]
    fn clauses_that_would_be_ignored_are_refused_wherever_they_are() {
        for (sql, is_refused) in [
            ("SELECT * FROM t TABLESAMPLE (10 PERCENT)", true),
            ("SELECT * FROM 't.vortex' TABLESAMPLE BERNOULLI (1)", true),
            ("EXPLAIN SELECT (SELECT max(x) FROM t TABLESAMPLE (10 ROWS)) FROM u", true),
            ("COPY (SELECT * FROM (SELECT 1) TABLESAMPLE (10 PERCENT)) TO 'b.vortex'", true),
            ("SELECT a FROM t GROUP BY a WITH ROLLUP", true),
            ("SELECT * FROM t PREWHERE a = 2", true),
            ("SELECT * FROM t PARTITION (p0)", true),
            ("SELECT tablesample FROM t GROUP BY ROLLUP (tablesample)", false),
        ] {
            let mut statement = DFParser::parse_sql(sql).unwrap().pop_front().unwrap();
            assert_eq!(check(&mut statement).is_err(), is_refused, "{sql}");
        }
    }
}
