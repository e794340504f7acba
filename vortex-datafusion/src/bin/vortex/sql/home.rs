//! `~/` at the start of a place, short for the folder of the user, as in other shells.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, ObjectName, ObjectNamePart, TableFactor, Value, VisitorMut,
};

use super::visit::visit_mut;

/// Replaces `~` in the places that a statement names, if there is such a folder.
pub(super) fn expand(statement: &mut Statement) {
    if let Some(home) = std::env::home_dir().and_then(|home| home.into_os_string().into_string().ok()) {
        Home(home).expand_all(statement);
    }
}

struct Home(String);

impl Home {
    fn expand_all(mut self, statement: &mut Statement) {
        self.expand_outputs(statement);
        let _ = visit_mut(statement, &mut self);
    }

    /// Replaces it where a statement writes to, and in the locations of its table.
    fn expand_outputs(&self, statement: &mut Statement) {
        match statement {
            Statement::Explain(explain) => self.expand_outputs(&mut explain.statement),
            Statement::CopyTo(copy) => self.expand(&mut copy.target),
            Statement::CreateExternalTable(table) => {
                table.locations.iter_mut().for_each(|place| self.expand(place));
            }
            Statement::Statement(_) | Statement::Reset(_) => {}
        }
    }

    fn expand(&self, place: &mut String) {
        if place.starts_with("~/") {
            place.replace_range(..1, &self.0);
        }
    }

    fn expand_argument(&self, argument: &mut FunctionArg) {
        match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value))) => {
                if let Value::SingleQuotedString(place) = &mut value.value {
                    self.expand(place);
                }
            }
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(name))) => {
                self.expand(&mut name.value)
            }
            _ => {}
        }
    }
}

impl VisitorMut for Home {
    type Break = ();

    fn pre_visit_relation(&mut self, table: &mut ObjectName) -> ControlFlow<()> {
        if let [ObjectNamePart::Identifier(name)] = table.0.as_mut_slice() {
            self.expand(&mut name.value);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        let arguments = match table {
            TableFactor::Table { args: Some(function), .. } => function.args.as_mut_slice(),
            TableFactor::Function { args, .. } => args,
            _ => &mut [],
        };
        arguments.iter_mut().for_each(|argument| self.expand_argument(argument));
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::*;

    #[test]
    fn places_begin_with_the_folder_of_the_user() {
        for (sql, expected) in [
            ("SELECT '~/x' AS a FROM '~/b.vortex'", "SELECT '~/x' AS a FROM '/home/me/b.vortex'"),
            ("SELECT 1 FROM '~b' JOIN \"~/c\" ON true", "SELECT 1 FROM '~b' JOIN \"/home/me/c\" ON true"),
            ("SELECT * FROM vortex_zones('~/a')", "SELECT * FROM vortex_zones('/home/me/a')"),
            ("EXPLAIN COPY '~/a' TO '~/b'", "EXPLAIN COPY '/home/me/a' TO '/home/me/b'"),
            ("COPY (SELECT 1 FROM '~/a') TO 'b'", "COPY (SELECT 1 FROM '/home/me/a') TO 'b'"),
            (
                "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '~/a'",
                "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/home/me/a'",
            ),
        ] {
            let parsed = |sql: &str| DFParser::parse_sql(sql).unwrap().pop_front().unwrap();
            let mut statement = parsed(sql);
            Home("/home/me".to_owned()).expand_all(&mut statement);
            assert_eq!(statement.to_string(), parsed(expected).to_string(), "{sql}");
        }
    }
}
