//! Determines whether an expression can fail for some rows.
//!
//! SQL lets `b <> 0 AND a / b > 1` protect its division. A scan that splits the conjunction must not evaluate
//! the division on rows that the other part rejects.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion_common::ScalarValue;
use datafusion_common::tree_node::TreeNode as _;
use datafusion_expr::{Operator, SimpleScalarUDF};
use datafusion_physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal,
    NotExpr, TryCastExpr,
};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion_physical_plan::joins::{HashExpr, HashTableLookupExpr};

/// Functions of DataFusion that return a value for every row. They are known by name, since their types are available
/// only if DataFusion is built with them. Functions that applications make of closures are told apart by their type;
/// other implementations under these names are supposed not to fail either.
const TOTAL_FUNCTIONS: &[&str] = &[
    "bit_length",
    "btrim",
    "character_length",
    "coalesce",
    "contains",
    "date_part",
    "ends_with",
    "get_field",
    "lower",
    "ltrim",
    "nullif",
    "octet_length",
    "reverse",
    "rtrim",
    "starts_with",
    "strpos",
    "struct",
    "upper",
];

/// Whether evaluating `expr` over columns of `schema` might fail for some rows. Returns true in case of
/// doubt.
pub(crate) fn is_fallible(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    expr.exists(|node| Ok(!is_total(node, schema))).unwrap_or(true)
}

/// Whether this node always has a value if its children have values.
fn is_total(node: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    let node = node.as_ref();
    if let Some(binary) = node.downcast_ref::<BinaryExpr>() {
        return is_total_operator(binary, schema);
    }
    if let Some(cast) = node.downcast_ref::<CastExpr>() {
        let from = cast.expr().data_type(schema);
        return from.is_ok_and(|from| CastExpr::check_bigger_cast(cast.cast_type(), &from));
    }
    if let Some(function) = node.downcast_ref::<ScalarFunctionExpr>() {
        let function = function.fun();
        return TOTAL_FUNCTIONS.contains(&function.name()) && !function.inner().is::<SimpleScalarUDF>();
    }
    node.is::<Column>()
        || node.is::<Literal>()
        || node.is::<NotExpr>()
        || node.is::<IsNullExpr>()
        || node.is::<IsNotNullExpr>()
        || node.is::<InListExpr>()
        || node.is::<LikeExpr>()
        || node.is::<CaseExpr>()
        || node.is::<TryCastExpr>()
        || node.is::<HashExpr>()
        || node.is::<HashTableLookupExpr>()
}

fn is_total_operator(binary: &BinaryExpr, schema: &Schema) -> bool {
    use Operator::{
        And, BitwiseAnd, BitwiseOr, BitwiseXor, Divide, Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt,
        LtEq, Minus, Modulo, Multiply, NotEq, Or, Plus, StringConcat,
    };
    let result = || binary.data_type(schema);
    match binary.op() {
        And | Or | Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom | BitwiseAnd
        | BitwiseOr | BitwiseXor | StringConcat => true,
        // Integers wrap, unless the application has asked for errors; decimals and times do not.
        Plus | Minus | Multiply => {
            // Only comparing tells whether overflow of this one is an error.
            let wraps = BinaryExpr::new(Arc::clone(binary.left()), *binary.op(), Arc::clone(binary.right()));
            result().is_ok_and(|of| of.is_floating() || of.is_integer() && *binary == wraps)
        }
        Divide | Modulo => result()
            .is_ok_and(|of| of.is_floating() || of.is_unsigned_integer() && is_nonzero(binary.right())),
        _ => false,
    }
}

fn is_nonzero(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let value = expr.downcast_ref::<Literal>().map(Literal::value);
    value.is_some_and(|value| ScalarValue::new_zero(&value.data_type()).is_ok_and(|zero| *value != zero))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
    use datafusion_expr::{ScalarUDF, Volatility, create_udf};
    use datafusion_functions::core::nullif::NullIfFunc;
    use datafusion_physical_expr::expressions::{binary, cast, col, lit, try_cast};

    use super::super::expr::tests::File;
    use super::*;

    #[test]
    fn a_division_can_fail_and_a_sum_cannot() {
        let file = File::sample();
        let with = |op| binary(file.column("i"), op, lit(2i32), &file.schema).unwrap();
        assert!(!is_fallible(&with(Operator::Plus), &file.schema));
        assert!(is_fallible(&with(Operator::Divide), &file.schema));
        let unsigned = Schema::new(vec![Field::new("u", DataType::UInt64, true)]);
        let rest =
            |by: u64| binary(col("u", &unsigned).unwrap(), Operator::Modulo, lit(by), &unsigned).unwrap();
        assert!(!is_fallible(&rest(2), &unsigned) && is_fallible(&rest(0), &unsigned));
        let nested = binary(with(Operator::Divide), Operator::Gt, lit(1i32), &file.schema).unwrap();
        assert!(is_fallible(&nested, &file.schema));
    }

    #[test]
    fn a_sum_can_fail_if_overflow_is_an_error() {
        let file = File::sample();
        let sum =
            |fails| BinaryExpr::new(file.column("i"), Operator::Plus, lit(2i32)).with_fail_on_overflow(fails);
        for fails in [false, true] {
            let sum: Arc<dyn PhysicalExpr> = Arc::new(sum(fails));
            assert_eq!(is_fallible(&sum, &file.schema), fails);
        }
    }

    #[test]
    fn a_function_of_the_user_can_fail_whatever_its_name() {
        let file = File::sample();
        let mine = create_udf(
            "upper",
            vec![DataType::Int32],
            DataType::Int32,
            Volatility::Immutable,
            Arc::new(|arguments| Ok(arguments[0].clone())),
        );
        let theirs = ScalarUDF::from(NullIfFunc::new());
        for (function, arguments, expected) in [(mine, 1, true), (theirs, 2, false)] {
            let arguments = vec![file.column("i"); arguments];
            let call =
                ScalarFunctionExpr::try_new(Arc::new(function), arguments, &file.schema, Arc::default());
            let call: Arc<dyn PhysicalExpr> = Arc::new(call.unwrap());
            assert_eq!(is_fallible(&call, &file.schema), expected);
        }
    }

    #[test]
    fn a_narrowing_cast_can_fail_unless_tried() {
        let file = File::sample();
        let to = |to| cast(file.column("i"), &file.schema, to).unwrap();
        assert!(!is_fallible(&to(DataType::Int64), &file.schema));
        assert!(is_fallible(&to(DataType::Int8), &file.schema));
        let tried = try_cast(file.column("i"), &file.schema, DataType::Int8).unwrap();
        assert!(!is_fallible(&tried, &file.schema));
    }
}
