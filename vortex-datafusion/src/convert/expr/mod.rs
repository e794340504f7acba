//! The translation of DataFusion's expressions to the core's filters.
//!
//! [`Translator::translate`] is exact: the result is true, false and unknown for the same rows as
//! DataFusion's evaluation. If it returns `None`, DataFusion evaluates the expression itself, see
//! [`PhysicalPredicate`](super::PhysicalPredicate). The result of [`Translator::weaken`] is not exact: it
//! holds wherever the expression is true, which suffices for skipping rows if an operator above the scan
//! checks the expression again.

use std::sync::Arc;

use arrow::datatypes::{ArrowPrimitiveType, DataType, FieldRef, Float16Type, Schema};
use datafusion_common::utils::normalize_float_zero_scalar;
use datafusion_common::{Result, ScalarValue, internal_datafusion_err};
use datafusion_expr::Operator;
use datafusion_functions::core::getfield::GetFieldFunc;
use datafusion_physical_expr::expressions::{
    BinaryExpr, CaseExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use vortex_core::dtype::DType;
use vortex_core::expr::{CompareOp, Expr, FieldPath, InList, Like, Predicate};
use vortex_core::scalar::{Scalar, Value};

use super::{chain, to_core};

type F16 = <Float16Type as ArrowPrimitiveType>::Native;

/// Translates expressions over one file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Translator<'a> {
    /// The physical schema, which expressions refer to: the fields of the file, in the order of the file.
    schema: &'a Schema,
    /// The type of the file.
    root: &'a DType,
    /// Whether both zeros pass if either of them does. Sorts distinguish them and joins do not, so a filter
    /// must be correct for both kinds of operators.
    joins_zeros: bool,
}

/// A column or a field of a struct, as DataFusion and the core see it.
struct FieldRead<'a> {
    path: FieldPath,
    dtype: &'a DType,
    field: FieldRef,
}

impl FieldRead<'_> {
    /// Whether DataFusion compares floats by total order: it takes both zeros for equal in plain arrays, but
    /// not in dictionaries and runs.
    fn distinguishes_zeros(&self) -> bool {
        matches!(self.field.data_type(), DataType::Dictionary(..) | DataType::RunEndEncoded(..))
    }
}

impl<'a> Translator<'a> {
    /// Creates a translator for expressions over `schema`, which presents a file of type `root`.
    pub(crate) fn new(schema: &'a Schema, root: &'a DType) -> Self {
        Self { schema, root, joins_zeros: false }
    }

    /// The column or struct field that `expr` consists of; `None` for any other expression.
    ///
    /// # Errors
    /// If `expr` is a column that the schema lacks.
    pub(crate) fn field(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Option<(FieldPath, FieldRef)>> {
        match (self.read(expr), expr.downcast_ref::<Column>()) {
            (None, Some(column)) => Err(self.schema.index_of(column.name()).map_or_else(
                |missing| missing.into(),
                |_| internal_datafusion_err!("column `{}` is not at its position in the file", column.name()),
            )),
            (read, _) => Ok(read.map(|read| (read.path, read.field))),
        }
    }

    /// A filter with the same outcome for every row, or `None` if only DataFusion can evaluate `expr`.
    pub(crate) fn translate(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Expr> {
        if let Some(literal) = expr.downcast_ref::<Literal>() {
            return match literal.value() {
                ScalarValue::Boolean(value) => Some(Expr::Literal(*value)),
                ScalarValue::Null => Some(Expr::Literal(None)),
                _ => None,
            };
        }
        if let Some((op, operands)) = chain(expr) {
            let operands = operands.into_iter().map(|operand| self.translate(operand));
            let operands = operands.collect::<Option<Vec<_>>>()?;
            return Some(if op == Operator::And { Expr::all(operands) } else { Expr::any(operands) });
        }
        if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
            return self.binary(binary);
        }
        if let Some(not) = expr.downcast_ref::<NotExpr>() {
            let exact = Self { joins_zeros: false, ..*self };
            return Some(Expr::Not(Box::new(exact.translate(not.arg())?)));
        }
        if let Some(is_null) = expr.downcast_ref::<IsNullExpr>() {
            return Some(Expr::Field(self.read(is_null.arg())?.path, Predicate::IsNull));
        }
        if let Some(is_not_null) = expr.downcast_ref::<IsNotNullExpr>() {
            return Some(Expr::Field(self.read(is_not_null.arg())?.path, Predicate::IsNotNull));
        }
        if let Some(list) = expr.downcast_ref::<InListExpr>() {
            return self.in_list(list);
        }
        if let Some(like) = expr.downcast_ref::<LikeExpr>() {
            return self.like(like);
        }
        // A boolean column is a filter by itself.
        let read = self.read(expr)?;
        matches!(read.dtype, DType::Bool(_)).then(|| {
            let yes = to_core(&ScalarValue::Boolean(Some(true)), read.dtype).ok()??;
            Some(Expr::compare(read.path, CompareOp::Eq, yes))
        })?
    }

    /// A filter that holds wherever `expr` is true, and whether it leaves nothing out, except which branch of a CASE is
    /// taken. The filter is `None` if it would hold everywhere.
    pub(crate) fn weaken(&self, expr: &Arc<dyn PhysicalExpr>) -> (Option<Expr>, bool) {
        if let Some(exact) = (Self { joins_zeros: true, ..*self }).translate(expr) {
            return (Some(exact), true);
        }
        if let Some((op, operands)) = chain(expr) {
            let (weaker, is_whole) = self.weaken_all(operands);
            if op == Operator::Or {
                return (weaker.into_iter().collect::<Option<Vec<_>>>().map(Expr::any), is_whole);
            }
            let known: Vec<_> = weaker.into_iter().flatten().collect();
            return ((!known.is_empty()).then(|| Expr::all(known)), is_whole);
        }
        // One of the branches is taken, regardless of the condition: the filter of a partitioned join.
        let Some(branches) = branches(expr) else { return (None, false) };
        let (weaker, is_whole) = self.weaken_all(branches);
        (weaker.into_iter().collect::<Option<Vec<_>>>().map(Expr::any), is_whole)
    }

    /// [`weaken`](Self::weaken) for each of some expressions, and whether nothing is left out of any.
    fn weaken_all<'e>(
        &self,
        exprs: impl IntoIterator<Item = &'e Arc<dyn PhysicalExpr>>,
    ) -> (Vec<Option<Expr>>, bool) {
        let (weaker, are_whole): (Vec<_>, Vec<_>) = exprs.into_iter().map(|expr| self.weaken(expr)).unzip();
        (weaker, are_whole.into_iter().all(|is_whole| is_whole))
    }

    /// A comparison of a column with a constant.
    fn binary(&self, binary: &BinaryExpr) -> Option<Expr> {
        let (left, right) = (binary.left(), binary.right());
        let (read, literal, swapped) = match (self.read(left), right.downcast_ref::<Literal>()) {
            (Some(read), Some(literal)) => (read, literal, false),
            _ => (self.read(right)?, left.downcast_ref::<Literal>()?, true),
        };
        // Whatever the type of the column, DataFusion compares with 0.0 instead of a plain -0.0.
        let constant = self.constant(&read, &normalize_float_zero_scalar(literal.value().clone()))?;
        let distinct = |negated: bool, read: FieldRead, constant: Scalar| {
            let (null, op) = if negated {
                (Predicate::IsNotNull, CompareOp::Eq)
            } else {
                (Predicate::IsNull, CompareOp::NotEq)
            };
            if constant.is_null() {
                let same = if negated { Predicate::IsNull } else { Predicate::IsNotNull };
                return Expr::Field(read.path, same);
            }
            let parts = [Expr::Field(read.path.clone(), null), self.compare(read, op, constant)];
            if negated { Expr::all(parts) } else { Expr::any(parts) }
        };
        let op = match binary.op() {
            Operator::IsDistinctFrom => return Some(distinct(false, read, constant)),
            Operator::IsNotDistinctFrom => return Some(distinct(true, read, constant)),
            Operator::Eq => CompareOp::Eq,
            Operator::NotEq => CompareOp::NotEq,
            Operator::Lt => CompareOp::Lt,
            Operator::LtEq => CompareOp::LtEq,
            Operator::Gt => CompareOp::Gt,
            Operator::GtEq => CompareOp::GtEq,
            _ => return None,
        };
        Some(self.compare(read, if swapped { op.swap() } else { op }, constant))
    }

    /// A comparison with DataFusion's semantics: it treats both zeros of plain floats as equal, while the
    /// core orders `-0.0` before `0.0`. (Both compare values with lists by their bits.)
    fn compare(&self, read: FieldRead, op: CompareOp, constant: Scalar) -> Expr {
        let is_exact = read.distinguishes_zeros() && (!self.joins_zeros || op == CompareOp::NotEq);
        let path = read.path;
        let Some((low, high)) = zeros(&constant).filter(|_| !is_exact) else {
            return Expr::compare(path, op, constant);
        };
        match op {
            CompareOp::Lt if self.joins_zeros => Expr::compare(path, CompareOp::LtEq, high),
            CompareOp::Gt if self.joins_zeros => Expr::compare(path, CompareOp::GtEq, low),
            CompareOp::Lt | CompareOp::GtEq => Expr::compare(path, op, low),
            CompareOp::Gt | CompareOp::LtEq => Expr::compare(path, op, high),
            CompareOp::Eq => Expr::Field(path, Predicate::Between(low, high)),
            CompareOp::NotEq => Expr::any([
                Expr::compare(path.clone(), CompareOp::Lt, low),
                Expr::compare(path, CompareOp::Gt, high),
            ]),
        }
    }

    fn in_list(&self, list: &InListExpr) -> Option<Expr> {
        let read = self.read(list.expr())?;
        let values = list
            .list()
            .iter()
            .map(|item| self.constant(&read, item.downcast_ref::<Literal>()?.value()))
            .collect::<Option<Vec<_>>>()?;
        let values: Vec<Scalar> = if self.joins_zeros && !list.negated() {
            values.into_iter().flat_map(with_other_zero).collect()
        } else {
            values
        };
        let list = InList::new(values).with_negated(list.negated());
        Some(Expr::Field(read.path, Predicate::In(Arc::new(list))))
    }

    fn like(&self, like: &LikeExpr) -> Option<Expr> {
        let read = self.read(like.expr())?;
        if !matches!(read.dtype, DType::Utf8(_)) {
            return None;
        }
        let pattern = like.pattern().downcast_ref::<Literal>()?.value().try_as_str()??;
        let like =
            Like::new(pattern).with_negated(like.negated()).with_case_insensitive(like.case_insensitive());
        Some(Expr::Field(read.path, Predicate::Like(like)))
    }

    /// The literal as the core compares it with `read`. Both must have the type in which DataFusion compares
    /// them, else its cast would be lost.
    fn constant(&self, read: &FieldRead, value: &ScalarValue) -> Option<Scalar> {
        let same =
            value.data_type().is_null() || logical(&value.data_type()) == logical(read.field.data_type());
        (same && is_ordered(read.dtype)).then(|| to_core(value, read.dtype).ok().flatten())?
    }

    fn read(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<FieldRead<'a>> {
        if let Some(column) = expr.downcast_ref::<Column>() {
            // If several columns have the same name, both sides use the first.
            let (at, dtype) = self.root.column(column.name())?;
            let field = self.schema.fields().get(at).filter(|field| field.name() == column.name())?;
            return Some(FieldRead { path: FieldPath::from(column.name()), dtype, field: Arc::clone(field) });
        }
        let get = ScalarFunctionExpr::try_downcast_func::<GetFieldFunc>(expr.as_ref())?;
        let (base, names) = get.args().split_first()?;
        let mut read = self.read(base)?;
        for name in names {
            let name = name.downcast_ref::<Literal>()?.value().try_as_str()??;
            let (DType::Struct(inner, _), DataType::Struct(fields)) = (read.dtype, read.field.data_type())
            else {
                return None;
            };
            let (at, field) = fields.find(name)?;
            // If several fields have the same name, both sides use the first.
            if inner.position(name)? != at {
                return None;
            }
            // A field of a null struct reads as null.
            let nullable = field.is_nullable() || read.field.is_nullable();
            let field = Arc::new(field.as_ref().clone().with_nullable(nullable));
            read = FieldRead { path: read.path.child(name), dtype: &inner.dtypes()[at], field };
        }
        Some(read)
    }
}

/// The values that a CASE may have.
pub(super) fn branches(expr: &Arc<dyn PhysicalExpr>) -> Option<impl Iterator<Item = &Arc<dyn PhysicalExpr>>> {
    let case = expr.downcast_ref::<CaseExpr>()?;
    Some(case.when_then_expr().iter().map(|(_, then)| then).chain(case.else_expr()))
}

/// A constant, and the other zero if it is one.
fn with_other_zero(constant: Scalar) -> Vec<Scalar> {
    match zeros(&constant) {
        Some((low, high)) => vec![low, high],
        None => vec![constant],
    }
}

/// Both zeros of the type of a floating-point zero.
fn zeros(constant: &Scalar) -> Option<(Scalar, Scalar)> {
    let (low, high) = match constant.value() {
        Value::F16(zero) if *zero == F16::ZERO => (Value::F16(F16::NEG_ZERO), Value::F16(F16::ZERO)),
        Value::F32(zero) if *zero == 0.0 => (Value::F32(-0.0), Value::F32(0.0)),
        Value::F64(zero) if *zero == 0.0 => (Value::F64(-0.0), Value::F64(0.0)),
        _ => return None,
    };
    let scalar = |value| Scalar::try_new(constant.dtype().clone(), value).ok();
    Some((scalar(low)?, scalar(high)?))
}

/// The logical type, regardless of its Arrow representation.
fn logical(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => logical(values),
        DataType::RunEndEncoded(_, values) => logical(values.data_type()),
        DataType::LargeUtf8 | DataType::Utf8View => &DataType::Utf8,
        DataType::LargeBinary | DataType::BinaryView => &DataType::Binary,
        other => other,
    }
}

/// Whether the core compares values of this type as DataFusion does.
fn is_ordered(dtype: &DType) -> bool {
    matches!(
        dtype.storage(),
        DType::Bool(_) | DType::Primitive(..) | DType::Decimal(..) | DType::Utf8(_) | DType::Binary(_)
    )
}

/// Combines a lower and an upper bound on the same column: `a >= 1` and `a <= 5` become one predicate.
pub(crate) fn fuse_bounds(conjuncts: Vec<Expr>) -> Vec<Expr> {
    let mut fused: Vec<Expr> = Vec::with_capacity(conjuncts.len());
    for conjunct in conjuncts {
        let merged =
            fused.iter().enumerate().find_map(|(at, before)| Some((at, between(before, &conjunct)?)));
        match merged {
            Some((at, both)) => fused[at] = both,
            None => fused.push(conjunct),
        }
    }
    fused
}

fn between(left: &Expr, right: &Expr) -> Option<Expr> {
    let (Expr::Field(path, left), Expr::Field(other, right)) = (left, right) else { return None };
    let (Predicate::Compare(left_op, left), Predicate::Compare(right_op, right)) = (left, right) else {
        return None;
    };
    if path != other || left.is_null() || right.is_null() {
        return None;
    }
    let (low, high) = match (left_op, right_op) {
        (CompareOp::GtEq, CompareOp::LtEq) => (left, right),
        (CompareOp::LtEq, CompareOp::GtEq) => (right, left),
        _ => return None,
    };
    Some(Expr::Field(path.clone(), Predicate::Between(low.clone(), high.clone())))
}

#[cfg(test)]
pub(crate) mod tests;
