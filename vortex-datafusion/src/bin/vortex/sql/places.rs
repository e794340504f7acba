//! The places that a statement names, in `FROM` or as arguments of table functions.

use std::path::Path;

use datafusion::common::DataFusionError;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;

use super::visit::for_each_name;
use crate::failure::Failure;

/// What a statement reads that may be a place: tables, and texts that table functions are given.
pub(super) fn places_in(statement: &mut Statement) -> Vec<String> {
    let mut places = Vec::new();
    for_each_name(statement, |name| places.push(name.clone()));
    places
}

/// Whether a name is that of a store or of several files.
pub(super) fn is_place(name: &str) -> bool {
    name.contains("://") || name.contains(['*', '?', '['])
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
            let mut statement = DFParser::parse_sql(sql).unwrap().pop_front().unwrap();
            assert_eq!(places_in(&mut statement), expected, "{sql}");
        }
    }
}
