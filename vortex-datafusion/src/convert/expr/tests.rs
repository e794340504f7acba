use arrow::datatypes::{Field, SchemaRef, TimeUnit};
use datafusion_common::config::ConfigOptions;
use datafusion_expr::ScalarUDF;
use datafusion_physical_expr::expressions::{binary, case, col, in_list, is_null, like, lit, not};
use vortex_core::dtype::arrow::from_schema;

use super::super::chains::tests::chained;
use super::super::simplify;
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
    let shows = |expr: &Arc<dyn PhysicalExpr>| file.translator().weaken(expr).0.unwrap().to_string();
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
    let runs =
        DataType::RunEndEncoded(Arc::clone(&ends), Arc::new(Field::new("values", DataType::Float64, true)));
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
        for op in [Operator::Eq, Operator::NotEq, Operator::Lt, Operator::LtEq, Operator::Gt, Operator::GtEq]
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
            file.translator().weaken(&compared).0.unwrap().to_string()
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
    assert_eq!(file.translator().weaken(&and).0.unwrap().to_string(), "i < 3");
    assert!(file.translator().weaken(&or).0.is_none());
}

/// Expressions of thousands of operands, as deep as DataFusion plans them.
fn long_chains(file: &File) -> Vec<Arc<dyn PhysicalExpr>> {
    const OPERANDS: i32 = 2_500;

    let equal = |value| file.binary("i", Operator::Eq, ScalarValue::Int32(Some(value)));
    let text = || file.binary("t", Operator::Eq, text("x"));
    let [all, any] = [Operator::And, Operator::Or].map(|op| chained(op, (0..OPERANDS).map(equal)));
    let pairs =
        chained(Operator::Or, (0..OPERANDS).map(|value| chained(Operator::And, [equal(value), text()])));
    vec![all, any, pairs]
}

#[test]
fn long_chains_translate_on_the_stack_of_a_worker() {
    let translate = || {
        let file = File::sample();
        let translator = file.translator();
        let sum = binary(file.column("i"), Operator::Plus, lit(1i32), &file.schema).unwrap();
        let foreign = binary(sum, Operator::Lt, lit(3i32), &file.schema).unwrap();
        for long in long_chains(&file) {
            let long = simplify(long, &file.schema).unwrap();
            let shown = file.shows(&long).unwrap();
            assert!(shown.contains("i = 0 ") && shown.contains("i = 2499"), "{shown}");
            assert!(translator.weaken(&long).1);
            let with = |op| chained(op, [Arc::clone(&long), Arc::clone(&foreign)]);
            assert_eq!(translator.weaken(&with(Operator::And)).0.unwrap().to_string(), shown);
            assert!(translator.weaken(&with(Operator::Or)).0.is_none());
            assert!(!translator.weaken(&with(Operator::Or)).1);
        }
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(translate).unwrap().join().unwrap();
}

#[test]
fn a_case_holds_only_if_one_of_its_branches_does() {
    let file = File::sample();
    let branch = |value| file.binary("i", Operator::Eq, ScalarValue::Int32(Some(value)));
    let sum = binary(file.column("i"), Operator::Modulo, lit(2i32), &file.schema).unwrap();
    let by_hash =
        case(Some(sum), vec![(lit(0i32), branch(4)), (lit(1i32), branch(7))], Some(lit(false))).unwrap();
    assert_eq!(file.shows(&by_hash), None);
    assert_eq!(file.translator().weaken(&by_hash).0.unwrap().to_string(), "i = 4 OR i = 7");
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
