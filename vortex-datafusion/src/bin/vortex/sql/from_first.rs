//! `FROM 'a.vortex'`, short for `SELECT * FROM 'a.vortex'`.
//!
//! DataFusion plans it as a query without columns.

use std::ops::ControlFlow;

use datafusion::sql::parser::{CopyToSource, Statement};
use datafusion::sql::sqlparser::ast::{
    Select, SelectFlavor, SelectItem, VisitMut as _, VisitorMut, WildcardAdditionalOptions,
};

/// Makes all queries in a statement that begin with `FROM`, and select nothing, select all columns.
pub(super) fn select_all(statement: &mut Statement) {
    let _ = match statement {
        Statement::Statement(statement) => statement.visit(&mut SelectAll),
        Statement::CopyTo(copy) => match &mut copy.source {
            CopyToSource::Query(query) => query.visit(&mut SelectAll),
            CopyToSource::Relation(_) => return,
        },
        Statement::Explain(explain) => return select_all(&mut explain.statement),
        Statement::CreateExternalTable(_) | Statement::Reset(_) => return,
    };
}

struct SelectAll;

impl VisitorMut for SelectAll {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if select.flavor == SelectFlavor::FromFirstNoSelect {
            select.flavor = SelectFlavor::Standard;
            select.projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
        }
        ControlFlow::Continue(())
    }
}
