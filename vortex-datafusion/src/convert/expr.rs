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
use vortex_core::expr::{CompareOp, Expr, FieldPath, InList, Like, Predicate};
use vortex_core::scalar::Value;
use vortex_core::{DType, Scalar};

use super::to_core;

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

    /// A filter that holds wherever `expr` is true, or `None` if it would hold everywhere.
    pub(crate) fn weaken(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<Expr> {
        if let Some(exact) = (Self { joins_zeros: true, ..*self }).translate(expr) {
            return Some(exact);
        }
        if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
            let sides = [self.weaken(binary.left()), self.weaken(binary.right())];
            return match (binary.op(), sides) {
                (Operator::And, [Some(left), Some(right)]) => Some(Expr::all([left, right])),
                (Operator::And, [side, None] | [None, side]) => side,
                (Operator::Or, [Some(left), Some(right)]) => Some(Expr::any([left, right])),
                _ => None,
            };
        }
        // One of the branches is taken, regardless of the condition: the filter of a partitioned join.
        branches(expr)?.map(|branch| self.weaken(branch)).collect::<Option<Vec<_>>>().map(Expr::any)
    }

    /// Whether [`weaken`](Self::weaken) leaves nothing out, except which branch of a CASE is taken.
    pub(crate) fn covers(&self, expr: &Arc<dyn PhysicalExpr>) -> bool {
        if self.translate(expr).is_some() {
            return true;
        }
        if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
            let is_split = matches!(binary.op(), Operator::And | Operator::Or);
            return is_split && self.covers(binary.left()) && self.covers(binary.right());
        }
        branches(expr).is_some_and(|mut branches| branches.all(|branch| self.covers(branch)))
    }

    fn binary(&self, binary: &BinaryExpr) -> Option<Expr> {
        let (left, right) = (binary.left(), binary.right());
        match binary.op() {
            Operator::And => return Some(Expr::all([self.translate(left)?, self.translate(right)?])),
            Operator::Or => return Some(Expr::any([self.translate(left)?, self.translate(right)?])),
            _ => {}
        }
        let (read, literal, swapped) = match (self.read(left), right.downcast_ref::<Literal>()) {
            (Some(read), Some(literal)) => (read, literal, false),
            _ => (self.read(right)?, left.downcast_ref::<Literal>()?, true),
        };
        // Whatever the type of the column, DataFusion compares with 0.0 instead of a plain -0.0.
        let constant = self.constant(&read, &normalize_float_zero_scalar(literal.value().clone()))?;
        let distinct = |negated: bool, read: FieldRead, constant: Scalar| {
            let (null, op) = match negated {
                true => (Predicate::IsNotNull, CompareOp::Eq),
                false => (Predicate::IsNull, CompareOp::NotEq),
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
        let values: Vec<Scalar> = match self.joins_zeros && !list.negated() {
            true => values.into_iter().flat_map(with_other_zero).collect(),
            false => values,
        };
        let list = InList::new(values, list.negated());
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
            let (at, dtype) = match self.root.as_columns() {
                Some(fields) => {
                    let at = fields.position(column.name())?;
                    (at, fields.dtypes().get(at)?)
                }
                None => (0, self.root),
            };
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
pub(crate) mod tests {
    use arrow::datatypes::{Field, SchemaRef, TimeUnit};
    use datafusion_common::config::ConfigOptions;
    use datafusion_expr::ScalarUDF;
    use datafusion_physical_expr::expressions::{binary, case, col, in_list, is_null, like, lit, not};
    use vortex_core::dtype::arrow::from_schema;

    use super::*;

    /// The schema and type of a file to translate against.
    pub(crate) struct File {
        pub(crate) schema: SchemaRef,
        pub(crate) dtype: DType,
    }

    impl File {
        pub(crate) fn sample() -> Self {
            let dictionary = DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8));
            let schema = Schema::new(vec![
                Field::new("i", DataType::Int32, true),
                Field::new("t", DataType::Utf8View, true),
                Field::new("d", dictionary, true),
                Field::new("b", DataType::Boolean, true),
                Field::new("ts", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true),
                Field::new("s", DataType::Struct(vec![Field::new("t", DataType::Utf8, false)].into()), true),
            ]);
            let dtype = from_schema(&schema).unwrap();
            Self { schema: Arc::new(schema), dtype }
        }

        pub(crate) fn translator(&self) -> Translator<'_> {
            Translator::new(&self.schema, &self.dtype)
        }

        pub(crate) fn column(&self, name: &str) -> Arc<dyn PhysicalExpr> {
            col(name, &self.schema).unwrap()
        }

        fn binary(&self, column: &str, op: Operator, value: ScalarValue) -> Arc<dyn PhysicalExpr> {
            binary(self.column(column), op, lit(value), &self.schema).unwrap()
        }

        fn shows(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<String> {
            self.translator().translate(expr).map(|expr| expr.to_string())
        }
    }

    pub(crate) fn get_field(file: &File, column: &str, names: &[&str]) -> Arc<dyn PhysicalExpr> {
        let mut args = vec![file.column(column)];
        args.extend(names.iter().map(|name| lit(*name)));
        let get = Arc::new(ScalarUDF::from(GetFieldFunc::new()));
        let config = Arc::new(ConfigOptions::default());
        Arc::new(ScalarFunctionExpr::try_new(get, args, &file.schema, config).unwrap())
    }

    fn text(value: &str) -> ScalarValue {
        ScalarValue::Utf8View(Some(value.into()))
    }

    #[test]
    fn comparisons_translate_from_either_side() {
        let file = File::sample();
        let less = file.binary("i", Operator::Lt, ScalarValue::Int32(Some(3)));
        assert_eq!(file.shows(&less).unwrap(), "i < 3");
        let swapped = binary(lit(3i32), Operator::Lt, file.column("i"), &file.schema).unwrap();
        assert_eq!(file.shows(&swapped).unwrap(), "i > 3");
        assert_eq!(file.shows(&file.binary("t", Operator::Eq, text("x"))).unwrap(), "t = \"x\"");
        let in_dictionary = file.binary("d", Operator::Eq, ScalarValue::Utf8(Some("x".into())));
        assert_eq!(file.shows(&in_dictionary).unwrap(), "d = \"x\"");
    }

    #[test]
    fn both_zeros_are_equal_in_comparisons() {
        let schema = Arc::new(Schema::new(vec![Field::new("f", DataType::Float64, true)]));
        let file = File { dtype: from_schema(&schema).unwrap(), schema };
        let shows = |op, value| file.shows(&file.binary("f", op, ScalarValue::Float64(Some(value)))).unwrap();
        for zero in [0.0, -0.0] {
            assert_eq!(shows(Operator::Eq, zero), "f BETWEEN -0 AND 0");
            assert_eq!(shows(Operator::NotEq, zero), "f < -0 OR f > 0");
            assert_eq!(shows(Operator::Lt, zero), "f < -0");
            assert_eq!(shows(Operator::LtEq, zero), "f <= 0");
            assert_eq!(shows(Operator::Gt, zero), "f > 0");
            assert_eq!(shows(Operator::GtEq, zero), "f >= -0");
        }
        assert_eq!(shows(Operator::Eq, 1.5), "f = 1.5");
    }

    #[test]
    fn what_a_join_or_a_sort_pushes_down_passes_both_zeros() {
        let schema = Arc::new(Schema::new(vec![Field::new("f", DataType::Float64, true)]));
        let file = File { dtype: from_schema(&schema).unwrap(), schema };
        let shows = |expr: &Arc<dyn PhysicalExpr>| file.translator().weaken(expr).unwrap().to_string();
        for zero in [0.0, -0.0] {
            let compared = |op| file.binary("f", op, ScalarValue::Float64(Some(zero)));
            assert_eq!(shows(&compared(Operator::Lt)), "f <= 0");
            assert_eq!(shows(&compared(Operator::Gt)), "f >= -0");
            let keys = in_list(file.column("f"), vec![lit(1.5), lit(zero)], &false, &file.schema).unwrap();
            assert_eq!(shows(&keys), "f IN (-0, 0, 1.5)");
            assert_eq!(shows(&not(compared(Operator::Lt)).unwrap()), "NOT (f < -0)");
        }
    }

    #[test]
    fn zeros_in_dictionaries_and_runs_are_compared_by_total_order() {
        let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Float64));
        let ends = Arc::new(Field::new("run_ends", DataType::Int32, false));
        let runs = DataType::RunEndEncoded(
            Arc::clone(&ends),
            Arc::new(Field::new("values", DataType::Float64, true)),
        );
        let schema = Arc::new(Schema::new(vec![
            Field::new("d", dictionary.clone(), true),
            Field::new("r", runs, true),
            Field::new("s", DataType::Struct(vec![Field::new("d", dictionary, true)].into()), true),
        ]));
        let file = File { dtype: from_schema(&schema).unwrap(), schema };
        let plain = |zero: f64| ScalarValue::Float64(Some(zero));
        let key = |zero| ScalarValue::Dictionary(Box::new(DataType::Int32), Box::new(plain(zero)));
        let shows = |column, op, value| file.shows(&file.binary(column, op, value)).unwrap();
        for (zero, shown) in [(0.0, "0"), (-0.0, "-0")] {
            for op in
                [Operator::Eq, Operator::NotEq, Operator::Lt, Operator::LtEq, Operator::Gt, Operator::GtEq]
            {
                assert_eq!(shows("d", op, key(zero)), format!("d {op} {shown}"));
            }
            let run = ScalarValue::RunEndEncoded(
                Arc::clone(&ends),
                Arc::new(Field::new("values", DataType::Float64, true)),
                Box::new(plain(zero)),
            );
            assert_eq!(shows("r", Operator::Eq, run), format!("r = {shown}"));
            let field = get_field(&file, "s", &["d"]);
            let equal = binary(field, Operator::Eq, lit(key(zero)), &file.schema).unwrap();
            assert_eq!(file.shows(&equal).unwrap(), format!("s.d = {shown}"));
            assert_eq!(shows("d", Operator::IsDistinctFrom, key(zero)), format!("d IS NULL OR d != {shown}"));
            assert_eq!(shows("d", Operator::Eq, plain(zero)), "d = 0", "a plain -0.0 is taken for 0.0");

            // A join may take both zeros for equal.
            let weak = |op| {
                let compared = file.binary("d", op, key(zero));
                file.translator().weaken(&compared).unwrap().to_string()
            };
            assert_eq!(weak(Operator::Eq), "d BETWEEN -0 AND 0");
            assert_eq!(weak(Operator::Lt), "d <= 0");
            assert_eq!(weak(Operator::GtEq), "d >= -0");
            assert_eq!(weak(Operator::NotEq), format!("d != {shown}"));
        }
    }

    #[test]
    fn a_constant_of_another_type_is_left_to_datafusion() {
        let file = File::sample();
        assert_eq!(file.shows(&file.binary("i", Operator::Lt, ScalarValue::Int64(Some(3)))), None);
        let other_zone = ScalarValue::TimestampMicrosecond(Some(0), None);
        assert_eq!(file.shows(&file.binary("ts", Operator::Lt, other_zone)), None);
    }

    #[test]
    fn struct_fields_translate_by_path() {
        let file = File::sample();
        let city = get_field(&file, "s", &["t"]);
        let equal = binary(city, Operator::Eq, lit("x"), &file.schema).unwrap();
        assert_eq!(file.shows(&equal).unwrap(), "s.t = \"x\"");
    }

    #[test]
    fn lists_patterns_nulls_and_booleans_translate() {
        let file = File::sample();
        let list = vec![lit(1i32), lit(ScalarValue::Int32(None))];
        let list = in_list(file.column("i"), list, &true, &file.schema).unwrap();
        assert_eq!(file.shows(&list).unwrap(), "i NOT IN (1, null)");
        let pattern = like(false, true, file.column("t"), lit(text("a%")), &file.schema).unwrap();
        assert_eq!(file.shows(&pattern).unwrap(), "t ILIKE \"a%\"");
        assert_eq!(file.shows(&is_null(file.column("s")).unwrap()).unwrap(), "s IS NULL");
        assert_eq!(file.shows(&not(file.column("b")).unwrap()).unwrap(), "NOT (b = true)");
    }

    #[test]
    fn distinct_from_treats_null_as_a_value() {
        let file = File::sample();
        let shows = |op, value| file.shows(&file.binary("i", op, ScalarValue::Int32(value))).unwrap();
        assert_eq!(shows(Operator::IsDistinctFrom, Some(1)), "i IS NULL OR i != 1");
        assert_eq!(shows(Operator::IsNotDistinctFrom, Some(1)), "i IS NOT NULL AND i = 1");
        assert_eq!(shows(Operator::IsDistinctFrom, None), "i IS NOT NULL");
        assert_eq!(shows(Operator::IsNotDistinctFrom, None), "i IS NULL");
    }

    #[test]
    fn both_sides_of_or_must_translate_but_weakening_drops_parts_of_and() {
        let file = File::sample();
        let known = file.binary("i", Operator::Lt, ScalarValue::Int32(Some(3)));
        let sum = binary(file.column("i"), Operator::Plus, lit(1i32), &file.schema).unwrap();
        let foreign = binary(sum, Operator::Lt, lit(3i32), &file.schema).unwrap();
        let join = |op| binary(Arc::clone(&known), op, Arc::clone(&foreign), &file.schema).unwrap();
        let (and, or) = (join(Operator::And), join(Operator::Or));
        assert_eq!(file.shows(&and), None);
        assert_eq!(file.shows(&or), None);
        assert_eq!(file.translator().weaken(&and).unwrap().to_string(), "i < 3");
        assert!(file.translator().weaken(&or).is_none());
    }

    #[test]
    fn a_case_holds_only_if_one_of_its_branches_does() {
        let file = File::sample();
        let branch = |value| file.binary("i", Operator::Eq, ScalarValue::Int32(Some(value)));
        let sum = binary(file.column("i"), Operator::Modulo, lit(2i32), &file.schema).unwrap();
        let by_hash =
            case(Some(sum), vec![(lit(0i32), branch(4)), (lit(1i32), branch(7))], Some(lit(false))).unwrap();
        assert_eq!(file.shows(&by_hash), None);
        assert_eq!(file.translator().weaken(&by_hash).unwrap().to_string(), "i = 4 OR i = 7");
    }

    #[test]
    fn two_bounds_on_one_column_become_one_predicate() {
        let file = File::sample();
        let bound = |op, value| {
            file.translator().translate(&file.binary("i", op, ScalarValue::Int32(Some(value)))).unwrap()
        };
        let fused = fuse_bounds(vec![bound(Operator::LtEq, 9), bound(Operator::GtEq, 2)]);
        assert_eq!(fused.len(), 1);
        assert_eq!(fused[0].to_string(), "i BETWEEN 2 AND 9");
        assert_eq!(fuse_bounds(vec![bound(Operator::Lt, 9), bound(Operator::GtEq, 2)]).len(), 2);
    }
}
