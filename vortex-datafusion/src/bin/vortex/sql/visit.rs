//! Visits the parts of a statement, whether DataFusion's parser or the one below it knows that kind.

use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{Visit as _, VisitMut as _, Visitor, VisitorMut};

/// Visits a statement, or the one that it explains, or what it copies.
pub(super) fn visit<V: Visitor>(statement: &Statement, visitor: &mut V) -> ControlFlow<V::Break> {
    match statement {
        Statement::Statement(statement) => statement.visit(visitor),
        Statement::Explain(explain) => visit(&explain.statement, visitor),
        Statement::CopyTo(copy) => match &copy.source {
            CopyToSource::Relation(table) => visitor.pre_visit_relation(table),
            CopyToSource::Query(query) => query.visit(visitor),
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => ControlFlow::Continue(()),
    }
}

/// The same, for what changes it.
pub(super) fn visit_mut<V: VisitorMut>(statement: &mut Statement, visitor: &mut V) -> ControlFlow<V::Break> {
    match statement {
        Statement::Statement(statement) => statement.visit(visitor),
        Statement::Explain(explain) => visit_mut(&mut explain.statement, visitor),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Relation(table) => visitor.pre_visit_relation(table),
            CopyToSource::Query(query) => query.visit(visitor),
        },
        Statement::CreateExternalTable(_) | Statement::Reset(_) => ControlFlow::Continue(()),
    }
}
