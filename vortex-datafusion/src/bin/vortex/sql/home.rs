//! `~/` at the start of a place, short for the folder of the user, as in other shells.

use datafusion::sql::parser::Statement;

use super::visit::for_each_name;

/// Replaces `~` in the places that a statement names, if there is such a folder.
pub(super) fn expand(statement: &mut Statement) {
    if let Some(home) = std::env::home_dir().and_then(|home| home.into_os_string().into_string().ok()) {
        expand_to(&home, statement);
    }
}

fn expand_to(home: &str, statement: &mut Statement) {
    let expand = |place: &mut String| {
        if place.starts_with("~/") {
            place.replace_range(..1, home);
        }
    };
    expand_outputs(statement, &expand);
    for_each_name(statement, expand);
}

/// Replaces it where a statement writes to, and in the locations of its table.
fn expand_outputs(statement: &mut Statement, expand: &impl Fn(&mut String)) {
    match statement {
        Statement::Explain(explain) => expand_outputs(&mut explain.statement, expand),
        Statement::CopyTo(copy) => expand(&mut copy.target),
        Statement::CreateExternalTable(table) => table.locations.iter_mut().for_each(expand),
        Statement::Statement(_) | Statement::Reset(_) => {}
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
            expand_to("/home/me", &mut statement);
            assert_eq!(statement.to_string(), parsed(expected).to_string(), "{sql}");
        }
    }
}
