//! Visits the parts of a statement, whether DataFusion's parser or the one below it knows that kind.

use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, ObjectName, ObjectNamePart, TableFactor, Value, VisitMut as _,
    VisitorMut,
};

/// Visits a statement, or the one that it explains, or what it copies.
pub(super) fn visit<V: VisitorMut>(statement: &mut Statement, visitor: &mut V) -> ControlFlow<V::Break> {
    match statement {
        Statement::Statement(statement) => statement.visit(visitor),
        Statement::Explain(explain) => visit(&mut explain.statement, visitor),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Relation(table) => visitor.pre_visit_relation(table),
            CopyToSource::Query(query) => query.visit(visitor),
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => ControlFlow::Continue(()),
    }
}

/// Calls `f` with what a statement reads that may be a place: names of tables, and texts that table functions are
/// given.
pub(super) fn for_each_name(statement: &mut Statement, f: impl FnMut(&mut String)) {
    let _ = visit(statement, &mut Names(f));
}

struct Names<F>(F);

impl<F: FnMut(&mut String)> Names<F> {
    fn visit_argument(&mut self, argument: &mut FunctionArg) {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument else { return };
        match argument {
            Expr::Value(value) => match &mut value.value {
                Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => (self.0)(text),
                _ => {}
            },
            Expr::Identifier(name) => (self.0)(&mut name.value),
            _ => {}
        }
    }
}

impl<F: FnMut(&mut String)> VisitorMut for Names<F> {
    type Break = ();

    fn pre_visit_relation(&mut self, table: &mut ObjectName) -> ControlFlow<()> {
        if let [ObjectNamePart::Identifier(name)] = table.0.as_mut_slice() {
            (self.0)(&mut name.value);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        let arguments = match table {
            TableFactor::Table { args: Some(function), .. } => function.args.as_mut_slice(),
            TableFactor::Function { args, .. } => args,
            _ => &mut [],
        };
        arguments.iter_mut().for_each(|argument| self.visit_argument(argument));
        ControlFlow::Continue(())
    }
}
