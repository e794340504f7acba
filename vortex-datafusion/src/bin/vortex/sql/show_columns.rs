//! `SHOW COLUMNS FROM 'a.vortex'`, which DataFusion answers from a list of the tables that have names.

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{DescribeAlias, Statement as SqlStatement};

/// Makes it `DESCRIBE 'a.vortex'`, if a path or a URL is shown.
pub(super) fn describe(statement: &mut Statement) {
    let Statement::Statement(inner) = statement else { return };
    let SqlStatement::ShowColumns { show_options, .. } = inner.as_ref() else { return };
    let shown = show_options.show_in.as_ref().and_then(|within| within.parent_name.as_ref());
    let Some(table_name) = shown.cloned() else { return };
    let [part] = table_name.0.as_slice() else { return };
    if part.as_ident().is_none_or(|name| !name.value.contains(['.', '/', '*'])) {
        return;
    }
    let place = SqlStatement::ExplainTable {
        describe_alias: DescribeAlias::Describe,
        hive_format: None,
        has_table_keyword: false,
        table_name,
    };
    **inner = place;
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::*;

    #[test]
    fn columns_of_places_are_described_and_those_of_named_tables_listed() {
        for (sql, expected) in [
            ("SHOW COLUMNS FROM 'a.vortex'", "DESCRIBE 'a.vortex'"),
            ("SHOW COLUMNS IN 's3://b/c/'", "DESCRIBE 's3://b/c/'"),
            ("SHOW COLUMNS FROM visits", "SHOW COLUMNS FROM visits"),
            ("SHOW COLUMNS FROM public.visits", "SHOW COLUMNS FROM public.visits"),
            ("SHOW TABLES", "SHOW TABLES"),
        ] {
            let mut statement = DFParser::parse_sql(sql).unwrap().pop_front().unwrap();
            describe(&mut statement);
            assert_eq!(statement.to_string(), expected);
        }
    }
}
