//! The places that a statement names, in `FROM` or as arguments of table functions.

use std::ops::ControlFlow;
use std::path::Path;

use datafusion::common::DataFusionError;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, ObjectName, ObjectNamePart, TableFactor, Visitor,
};

use super::visit::visit;
use crate::failure::Failure;

/// What a statement names that may be a place: tables, and texts that table functions are given.
pub(super) fn places_in(statement: &Statement) -> Vec<String> {
    let mut places = Places::default();
    let _ = visit(statement, &mut places);
    places.0
}

/// Whether a name is that of a store or of several files.
pub(super) fn is_place(name: &str) -> bool {
    name.contains("://") || name.contains(['*', '?', '['])
}

#[derive(Default)]
struct Places(Vec<String>);

impl Places {
    fn add_argument(&mut self, argument: &FunctionArg) {
        match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value))) => {
                self.0.extend(value.clone().into_string());
            }
            FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(name))) => {
                self.0.push(name.value.clone())
            }
            _ => {}
        }
    }
}

impl Visitor for Places {
    type Break = ();

    fn pre_visit_relation(&mut self, table: &ObjectName) -> ControlFlow<()> {
        if let [ObjectNamePart::Identifier(name)] = table.0.as_slice() {
            self.0.push(name.value.clone());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<()> {
        let arguments = match table {
            TableFactor::Table { args: Some(function), .. } => function.args.as_slice(),
            TableFactor::Function { args, .. } => args,
            _ => &[],
        };
        arguments.iter().for_each(|argument| self.add_argument(argument));
        ControlFlow::Continue(())
    }
}

/// An error of the planner. If there is no table of a name that looks like a place, it tells what is at the
/// place.
pub(super) fn explained(error: DataFusionError, state: &SessionState) -> Failure {
    let catalog = &state.config_options().catalog;
    let message = error.strip_backtrace();
    let name = message.split_once(&format!("table '{}.", catalog.default_catalog));
    let Some(name) = name.and_then(|(_, rest)| rest.strip_suffix("' not found")) else { return error.into() };
    let is_file = |name: &str| {
        let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| state.get_file_format_factory(extension).is_some())
    };
    let Some(name) = name.strip_prefix(&format!("{}.", catalog.default_schema)) else {
        return if is_file(name) {
            Failure::error(format!("table {name} not found; for the file, write '{name}'"))
        } else {
            error.into()
        };
    };
    if Path::new(name).is_dir() {
        Failure::error(format!("table '{name}' not found; for the folder, write '{name}/'"))
    } else if name.contains(['*', '?', '[']) || is_file(name) {
        Failure::error(format!("no file at {name}"))
    } else if let Some(file) = FORMATS.iter().map(|format| format!("{name}.{format}")).find(is_there) {
        Failure::error(format!("table '{name}' not found; for the file, write '{file}'"))
    } else if Path::new(name).extension().is_some() {
        Failure::error(format!("no table and no file '{name}'"))
    } else {
        error.into()
    }
}

/// Extensions of files that may be meant where a table is named.
const FORMATS: [&str; 5] = ["vortex", "parquet", "arrow", "csv", "json"];

fn is_there(file: &String) -> bool {
    Path::new(file).is_file()
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::*;

    #[test]
    fn places_are_found_wherever_a_statement_names_tables() {
        for (sql, expected) in [
            ("SELECT 's3://no/table' AS x FROM 's3://a/b.vortex'", vec!["s3://a/b.vortex"]),
            (
                "SELECT * FROM vortex_metadata('s3://a/b') WHERE file = 's3://c/d'",
                vec!["s3://a/b", "vortex_metadata"],
            ),
            ("SELECT * FROM vortex_metadata(\"s3://a/b\")", vec!["s3://a/b", "vortex_metadata"]),
            ("EXPLAIN SELECT (SELECT max(x) FROM \"az://a/b\") FROM t", vec!["az://a/b", "t"]),
            ("COPY (SELECT * FROM 's3://a/b') TO 's3://c/d'", vec!["s3://a/b"]),
            ("COPY 's3://a/b' TO 'x.csv'", vec!["s3://a/b"]),
            ("DESCRIBE 's3://a/b'", vec!["s3://a/b"]),
            ("CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION 's3://a/b'", vec![]),
            (
                "SELECT * FROM 'a/b.vortex' JOIN vortex_zones('c.vortex') ON true",
                vec!["a/b.vortex", "c.vortex", "vortex_zones"],
            ),
            ("CREATE VIEW v AS SELECT * FROM 'a/*.vortex'", vec!["a/*.vortex"]),
            ("PREPARE p AS SELECT * FROM 'a/*.vortex'", vec!["a/*.vortex"]),
        ] {
            let statement = DFParser::parse_sql(sql).unwrap().pop_front().unwrap();
            assert_eq!(places_in(&statement), expected, "{sql}");
        }
    }
}
