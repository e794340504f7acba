//! `RESET vortex.x`, which DataFusion 55 refuses: it resets its own settings only, and those that the command line has
//! changed to values with which some queries return wrong rows.

use datafusion::sql::parser::{ResetStatement, Statement};
use datafusion::sql::sqlparser::ast::{Expr, Ident, ObjectNamePart, Set, Statement as SqlStatement, Value};

use super::session::SETTINGS;

/// Makes `RESET vortex.x` the statement that restores the default: `SET vortex.x = 'default'`; and `RESET datafusion.x`
/// the one that restores the value of the command line, if this has one of its own.
pub(super) fn set_default(statement: &mut Statement) {
    let Statement::Reset(ResetStatement::Variable(variable)) = &*statement else { return };
    // It may be quoted as a whole.
    let names: Vec<&str> =
        variable.0.iter().filter_map(ObjectNamePart::as_ident).map(|name| name.value.as_str()).collect();
    let name = names.join(".").to_ascii_lowercase();
    let own = SETTINGS.iter().find(|(setting, _)| *setting == name).map(|(_, value)| *value);
    let Some(value) = own.or(name.starts_with("vortex.").then_some("default")) else { return };
    let set = Set::SingleAssignment {
        scope: None,
        hivevar: false,
        variable: vec![Ident::new(name)].into(),
        values: vec![Expr::value(Value::SingleQuotedString(value.to_owned()))],
    };
    *statement = Statement::Statement(Box::new(SqlStatement::Set(set)));
}

#[cfg(test)]
mod tests {
    use datafusion::sql::parser::DFParser;

    use super::*;

    #[test]
    fn settings_of_vortex_and_of_the_command_line_are_reset_and_others_left_to_the_engine() {
        for (sql, expected) in [
            ("RESET vortex.level", "SET vortex.level = 'default'"),
            ("RESET VORTEX.Level", "SET vortex.level = 'default'"),
            ("RESET 'vortex.level'", "SET vortex.level = 'default'"),
            ("RESET datafusion.execution.batch_size", "RESET datafusion.execution.batch_size"),
            ("RESET datafusion.format.null", "SET datafusion.format.null = 'NULL'"),
            ("RESET vortex", "RESET vortex"),
            ("SELECT 1", "SELECT 1"),
        ] {
            let mut statement = DFParser::parse_sql(sql).unwrap().pop_front().unwrap();
            set_default(&mut statement);
            assert_eq!(statement.to_string(), expected);
        }
    }
}
