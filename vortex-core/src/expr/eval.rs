//! Evaluation of an expression on the encoded columns of one split.

use std::sync::Arc;

use arrow::array::{BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};

use super::{Expr, FieldPath, RowPredicate};
use crate::array::{ArrayRef, EncodedRef, decode_as};
use crate::dtype::arrow::field;
use crate::limits::Work;
use crate::mask::Mask;
use crate::{Error, Result};

/// Evaluates an expression on `rows` rows; `column` returns the encoded column of a path.
///
/// # Errors
/// If a column cannot be decoded, or a predicate fails.
pub fn evaluate(
    expr: &Expr,
    rows: usize,
    column: &mut dyn FnMut(&FieldPath) -> Result<EncodedRef>,
) -> Result<BooleanArray> {
    match expr {
        Expr::Literal(Some(true)) => Ok(BooleanArray::from(vec![true; rows])),
        Expr::Literal(Some(false)) => Ok(BooleanArray::from(vec![false; rows])),
        Expr::Literal(None) => Ok(BooleanArray::new_null(rows)),
        Expr::Field(path, predicate) => {
            let _work = Work::begin();
            column(path)?.matches(predicate)
        }
        Expr::And(parts) => fold(parts, rows, true, column),
        Expr::Or(parts) => fold(parts, rows, false, column),
        Expr::Not(inner) => Ok(arrow::compute::not(&evaluate(inner, rows, column)?)?),
        Expr::InTurn(parts) => in_turn(parts, rows, column),
        Expr::Rows(predicate) => evaluate_rows(predicate.as_ref(), rows, column),
        Expr::Dynamic(filter) => match filter.current() {
            Some(current) => evaluate(&current, rows, column),
            None => Ok(BooleanArray::from(vec![true; rows])),
        },
    }
}

/// AND or OR of all parts, by Kleene's rules; stops once the rest cannot matter.
fn fold(
    parts: &[Expr],
    rows: usize,
    and: bool,
    column: &mut dyn FnMut(&FieldPath) -> Result<EncodedRef>,
) -> Result<BooleanArray> {
    let mut outcome: Option<BooleanArray> = None;
    for part in parts {
        let next = evaluate(part, rows, column)?;
        let combined = match &outcome {
            None => next,
            Some(before) if and => arrow::compute::and_kleene(before, &next)?,
            Some(before) => arrow::compute::or_kleene(before, &next)?,
        };
        let decided = if and { combined.false_count() == rows } else { combined.true_count() == rows };
        outcome = Some(combined);
        if decided {
            break;
        }
    }
    Ok(outcome.unwrap_or_else(|| BooleanArray::from(vec![and; rows])))
}

/// The rows for which all parts are true. Each part reads its columns for rows that passed those before it.
fn in_turn(
    parts: &[Expr],
    rows: usize,
    column: &mut dyn FnMut(&FieldPath) -> Result<EncodedRef>,
) -> Result<BooleanArray> {
    let mut live = Mask::all(rows);
    for part in parts {
        let mut narrowed = |path: &FieldPath| {
            let array = column(path)?;
            if live.is_all() { Ok(array) } else { array.filter(&live) }
        };
        let outcome = evaluate(part, live.true_count(), &mut narrowed)?;
        live = live.refine(&Mask::from_predicate(&outcome));
        if live.is_none() {
            break;
        }
    }
    Ok(live.to_filter())
}

fn evaluate_rows(
    predicate: &dyn RowPredicate,
    rows: usize,
    column: &mut dyn FnMut(&FieldPath) -> Result<EncodedRef>,
) -> Result<BooleanArray> {
    let wanted = predicate.schema();
    let too_few = || Error::invalid(format!("the schema of `{predicate}` has too few fields"));
    let mut fields = Vec::new();
    let mut columns = Vec::new();
    for (at, path) in predicate.columns().iter().enumerate() {
        let _work = Work::begin();
        let array = column(path)?;
        let built: Field = match &wanted {
            Some(schema) => schema.fields().get(at).ok_or_else(too_few)?.as_ref().clone(),
            None => field(&path.to_string(), array.dtype())?,
        };
        columns.push(decode_as(array.as_ref(), built.data_type())?);
        fields.push(built);
    }
    let schema = wanted.unwrap_or_else(|| Arc::new(Schema::new(fields)));
    outcomes(predicate, &schema, columns, rows)
}

fn outcomes(
    predicate: &dyn RowPredicate,
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<BooleanArray> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?;
    let outcome = predicate.evaluate(&batch)?;
    match outcome.len() {
        len if len == rows => Ok(outcome),
        len => Err(Error::invalid(format!("`{predicate}` has {len} outcomes for {rows} rows"))),
    }
}
