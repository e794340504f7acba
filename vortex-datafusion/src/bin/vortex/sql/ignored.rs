//! Clauses that DataFusion ignores although they change which rows there are: they are refused.

use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{TableFactor, Visit as _, Visitor};

use crate::failure::{Failure, Outcome};

/// Refuses a statement with `TABLESAMPLE`. See `tests/it/upstream/files.rs`: `samples_of_tables_are_whole_tables`.
pub(super) fn check(statement: &Statement) -> Outcome {
    let found = match statement {
        Statement::Statement(statement) => statement.visit(&mut Samples),
        Statement::Explain(explain) => return check(&explain.statement),
        Statement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => query.visit(&mut Samples),
            CopyToSource::Relation(_) => ControlFlow::Continue(()),
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => ControlFlow::Continue(()),
    };
    match found {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Failure::error(
            "TABLESAMPLE would be ignored, and all rows be read; use WHERE random() < 0.1",
        )),
    }
}

struct Samples;

impl Visitor for Samples {
    type Break = ();

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<()> {
        match table {
            TableFactor::Table { sample: Some(_), .. } | TableFactor::Derived { sample: Some(_), .. } => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::*;

    #[test]
    fn samples_are_refused_wherever_they_are() {
        for (sql, is_refused) in [
            ("SELECT * FROM t TABLESAMPLE (10 PERCENT)", true),
            ("SELECT * FROM 't.vortex' TABLESAMPLE BERNOULLI (1)", true),
            ("EXPLAIN SELECT (SELECT max(x) FROM t TABLESAMPLE (10 ROWS)) FROM u", true),
            ("COPY (SELECT * FROM (SELECT 1) TABLESAMPLE (10 PERCENT)) TO 'b.vortex'", true),
            ("SELECT tablesample FROM t", false),
        ] {
            let statement = DFParser::parse_sql(sql).unwrap().pop_front().unwrap();
            assert_eq!(check(&statement).is_err(), is_refused, "{sql}");
        }
    }
}
