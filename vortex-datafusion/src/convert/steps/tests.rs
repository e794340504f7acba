//! Tests of steps: every comparison has the same outcome without them.

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use datafusion_common::config::ConfigOptions;
use datafusion_expr::{ScalarUDF, Volatility, create_udf};
use datafusion_functions::datetime::{
    date_trunc, from_unixtime, to_timestamp, to_timestamp_micros, to_timestamp_millis, to_timestamp_seconds,
};
use datafusion_physical_expr::expressions::{binary, cast, col};

use super::super::boundary::{Values, apply_to_each};
use super::super::simplify;
use super::*;

/// A comparison of column `c` of type `from`, cast to the type of `value`, after simplifying.
fn compared(from: DataType, value: ScalarValue) -> String {
    let schema = Schema::new(vec![Field::new("c", from, true)]);
    let column = cast(col("c", &schema).unwrap(), &schema, value.data_type()).unwrap();
    let expr = binary(column, Operator::Lt, lit(value), &schema).unwrap();
    simplify(expr, &schema).unwrap().to_string()
}

#[test]
fn casts_go_where_literals_are_values_of_the_column() {
    let milliseconds = DataType::Timestamp(TimeUnit::Millisecond, None);
    let decimal = |value, scale| ScalarValue::Decimal128(Some(value), 20, scale);
    for (from, value, expected) in [
        (DataType::Int32, ScalarValue::from(5i64), "c@0 < 5"),
        (DataType::Float32, ScalarValue::from(0.5f64), "c@0 < 0.5"),
        (milliseconds, nanoseconds(2_000_000), "c@0 < 2"),
        (DataType::Decimal128(10, 2), decimal(15_000, 4), "c@0 < 1.50"),
        // Otherwise, with the next value of the column.
        (DataType::Int32, ScalarValue::from(1i64 << 40), "c@0 <= 2147483647"),
        (DataType::Float32, ScalarValue::from(0.1f64), "c@0 < 0.1"),
        (DataType::Decimal128(10, 2), decimal(15_001, 4), "c@0 < 1.51"),
        (DataType::Decimal128(10, 2), decimal(1, 0), "c@0 < 0.50"),
    ] {
        assert_eq!(compared(from, value), expected);
    }
    for (from, value) in [
        // The cast fails for some values, which is an error.
        (DataType::Float64, ScalarValue::from(1i64)),
        (DataType::Int64, ScalarValue::from(1i32)),
        (DataType::Decimal128(3, 0), ScalarValue::from(100i8)),
        (DataType::Decimal128(5, 1), ScalarValue::from(100u32)),
        (DataType::Decimal128(38, 10), ScalarValue::from(1i32)),
        (DataType::UInt64, ScalarValue::Decimal64(Some(1), 18, 4)),
        // It might even panic.
        (DataType::Decimal128(5, -2), ScalarValue::from(0.5)),
        // Some would become -0.0.
        (DataType::Decimal128(38, 10), ScalarValue::Float16(Some(half_zero()))),
        // Those that are not quiet become so.
        (DataType::Float32, ScalarValue::from(f64::NAN)),
    ] {
        assert!(compared(from, value).contains("CAST"), "kept");
    }
}

fn half_zero() -> <arrow::datatypes::Float16Type as arrow::array::ArrowPrimitiveType>::Native {
    Default::default()
}

#[test]
fn several_casts_go_one_after_the_other() {
    let schema = Schema::new(vec![Field::new("c", DataType::Int16, true)]);
    let column = cast(col("c", &schema).unwrap(), &schema, DataType::Int32).unwrap();
    let column = cast(column, &schema, DataType::Int64).unwrap();
    for (value, expected) in [(5i64, "c@0 < 5"), (70_000, "c@0 <= 32767")] {
        let expr = binary(Arc::clone(&column), Operator::Lt, lit(value), &schema).unwrap();
        assert_eq!(simplify(expr, &schema).unwrap().to_string(), expected);
    }
}

fn nanoseconds(value: i64) -> ScalarValue {
    ScalarValue::TimestampNanosecond(Some(value), None)
}

#[test]
fn times_between_two_values_of_the_column_are_compared_with_the_next_one() {
    const DAY: i64 = 86_400_000_000_000;
    use Operator::{Eq, Gt, GtEq, Lt, LtEq};
    let seconds = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Second, zone.map(Into::into));
    let zoned = ScalarValue::TimestampNanosecond(Some(500), Some("UTC".into()));
    for (from, value, next) in [
        (DataType::Date32, nanoseconds(DAY + 5), "1970-01-03"),
        (DataType::Date32, nanoseconds(-5), "1970-01-01"),
        (DataType::Date32, ScalarValue::TimestampSecond(Some(1), None), "1970-01-02"),
        (seconds(None), nanoseconds(2_000_000_500), "1970-01-01T00:00:03"),
        (seconds(None), nanoseconds(-2_000_000_500), "1969-12-31T23:59:58"),
        (seconds(Some("+02:00")), zoned, "1970-01-01T00:00:01Z"),
    ] {
        let schema = Schema::new(vec![Field::new("c", from.clone(), true)]);
        let column = cast(col("c", &schema).unwrap(), &schema, value.data_type()).unwrap();
        let simple = |left: &Arc<dyn PhysicalExpr>, op, right: &Arc<dyn PhysicalExpr>| {
            simplify(binary(Arc::clone(left), op, Arc::clone(right), &schema).unwrap(), &schema).unwrap()
        };
        let literal = lit(value);
        let next = lit(ScalarValue::from(next).cast_to(&from).unwrap());
        for (op, swapped, expected) in [(Lt, Gt, Lt), (LtEq, GtEq, Lt), (Gt, Lt, GtEq), (GtEq, LtEq, GtEq)] {
            let expected = format!("c@0 {expected} {next}");
            assert_eq!(simple(&column, op, &literal).to_string(), expected);
            assert_eq!(simple(&literal, swapped, &column).to_string(), expected);
        }
        let least = ScalarValue::Int64(Some(i64::MIN));
        let least = if from == DataType::Date32 { ScalarValue::Int32(Some(i32::MIN)) } else { least };
        let never = format!("c@0 < {}", lit(least.cast_to(&from).unwrap()));
        assert_eq!(simple(&column, Eq, &literal).to_string(), never);
    }
}

/// Numbers in a fixed, irregular order.
fn random() -> impl FnMut() -> u64 {
    let mut state = 11u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

/// Values of a type: some random ones, and those around its limits and zero.
fn samples(of: &DataType, random: &mut impl FnMut() -> u64) -> ArrayRef {
    let values = Values::of(of).unwrap();
    let [least, greatest] = match of {
        // Functions of DataFusion would overflow.
        DataType::Timestamp(unit, _) => [-9_000_000_000, 9_000_000_000].map(|of| of * per_second(*unit)),
        DataType::Date32 => [-800_000, 800_000],
        _ => values.all,
    };
    let edges = [least, -1000, -2, 0, 1000, greatest - 1];
    let mut numbers: Vec<i128> = edges.into_iter().flat_map(|edge| [edge, edge + 1]).collect();
    for _ in 0..40 {
        numbers.push((i128::from(random()) << 64 | i128::from(random())) >> (random() % 128));
    }
    numbers.retain(|number| (least..=greatest).contains(number));
    values.array(&numbers).unwrap()
}

/// Compares what is made of column `c` of type `from` with constants, with and without the step. Returns how many
/// comparisons do without it, and how many there are.
fn compare_with_and_without(
    operand: &Arc<dyn PhysicalExpr>,
    schema: &Arc<Schema>,
    random: &mut impl FnMut() -> u64,
) -> (usize, usize) {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    let (from, to) = (schema.field(0).data_type(), operand.data_type(schema).unwrap());
    let batch = |values| RecordBatch::try_new(Arc::clone(schema), vec![values]).unwrap();
    let values = samples(from, random);
    let evaluate = |values: &ArrayRef| operand.evaluate(&batch(Arc::clone(values)))?.into_array(values.len());
    let made = apply_to_each(&evaluate, &values, &to).unwrap();
    // The comparison fails for the others.
    let known = arrow::compute::filter(&values, &arrow::compute::is_not_null(&made).unwrap()).unwrap();
    let batch = batch(arrow::compute::concat(&[&known, &new_null_array(from, 1)]).unwrap());
    let (mut without, mut all) = (0, 0);
    for constants in [made, samples(&to, random)] {
        for at in (0..constants.len()).filter(|at| constants.is_valid(*at)) {
            let constant = ScalarValue::try_from_array(&constants, at).unwrap();
            for op in [Eq, NotEq, Lt, LtEq, Gt, GtEq] {
                let expr = binary(Arc::clone(operand), op, lit(constant.clone()), schema).unwrap();
                let simple = simplify(Arc::clone(&expr), schema).unwrap();
                without += usize::from(!simple.to_string().contains(&operand.to_string()));
                all += 1;
                let [expected, found] = [expr, simple]
                    .map(|expr| expr.evaluate(&batch).unwrap().into_array(batch.num_rows()).unwrap());
                assert_eq!(&expected, &found, "{operand} of {from} {op} {constant}");
            }
        }
    }
    (without, all)
}

#[test]
fn comparisons_of_casts_have_the_same_outcome_without_them() {
    use DataType::{
        Date32, Date64, Decimal32, Decimal64, Decimal128, Float16, Float32, Float64, Int8, Int16, Int32,
        Int64, Timestamp, UInt8, UInt32, UInt64,
    };
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    let zone = |unit| Timestamp(unit, Some("+02:00".into()));
    let mut random = random();
    let (mut without, mut all) = (0, 0);
    for (from, to) in [
        (Timestamp(Millisecond, None), Date32),
        (Timestamp(Nanosecond, None), Date32),
        (Timestamp(Microsecond, Some("UTC".into())), Date32),
        (zone(Second), Date32),
        (Timestamp(Second, None), Date64),
        (Timestamp(Microsecond, None), Timestamp(Second, None)),
        (Timestamp(Second, None), Timestamp(Nanosecond, None)),
        (zone(Nanosecond), zone(Millisecond)),
        (Date32, Timestamp(Nanosecond, None)),
        (Date64, Date32),
        (Int64, Float64),
        (UInt64, Float32),
        (Int32, Float16),
        (Int8, Float64),
        (Int16, Int64),
        (UInt8, Int16),
        (UInt32, Decimal128(12, 2)),
        (Int64, Decimal128(38, 5)),
        (Float16, Float64),
        (Float32, Float64),
        (Decimal128(38, 10), Float64),
        (Decimal64(18, 4), Float32),
        (Decimal128(38, 10), Decimal128(38, 15)),
        (Decimal128(20, 4), Decimal128(18, 1)),
        (Decimal32(9, 2), Decimal128(11, 4)),
        (Decimal64(12, 3), Int64),
    ] {
        let schema = Arc::new(Schema::new(vec![Field::new("c", from, true)]));
        let operand = cast(col("c", &schema).unwrap(), &schema, to).unwrap();
        let (some, of) = compare_with_and_without(&operand, &schema, &mut random);
        without += some;
        all += of;
    }
    assert!(without * 10 > all * 9, "{without} of {all}");
}

/// A call of a function of DataFusion.
fn call(
    function: Arc<ScalarUDF>,
    operands: Vec<Arc<dyn PhysicalExpr>>,
    schema: &Schema,
) -> Arc<dyn PhysicalExpr> {
    Arc::new(ScalarFunctionExpr::try_new(function, operands, schema, Arc::default()).unwrap())
}

/// An interval of days and hours.
fn interval(days: i32, hours: i64) -> Arc<dyn PhysicalExpr> {
    let nanoseconds = hours * 3_600_000_000_000;
    lit(ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNanoType::make_value(0, days, nanoseconds))))
}

#[test]
fn comparisons_of_truncated_and_shifted_times_have_the_same_outcome_without_the_function() {
    use DataType::{Date32, Timestamp};
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    let mut random = random();
    let (mut without, mut all) = (0, 0);
    for from in [
        Timestamp(Second, None),
        Timestamp(Millisecond, None),
        Timestamp(Microsecond, Some("UTC".into())),
        Timestamp(Nanosecond, Some("-03:30".into())),
        Date32,
    ] {
        let schema = Arc::new(Schema::new(vec![Field::new("c", from.clone(), true)]));
        let column = col("c", &schema).unwrap();
        let shift = |op, by| binary(Arc::clone(&column), op, by, &schema).unwrap();
        let mut operands = vec![
            shift(Operator::Plus, interval(1, 5)),
            shift(Operator::Minus, interval(30, 0)),
            binary(interval(2, 0), Operator::Plus, Arc::clone(&column), &schema).unwrap(),
        ];
        // They are given dates as times.
        let time = match from {
            Date32 => cast(Arc::clone(&column), &schema, Timestamp(Nanosecond, None)).unwrap(),
            _ => Arc::clone(&column),
        };
        for unit in ["second", "minute", "hour", "day", "week", "month", "quarter", "year"] {
            operands.push(call(date_trunc(), vec![lit(unit), Arc::clone(&time)], &schema));
        }
        let month = call(date_trunc(), vec![lit("month"), time], &schema);
        operands.push(cast(month, &schema, Date32).unwrap());
        for operand in operands {
            let (some, of) = compare_with_and_without(&operand, &schema, &mut random);
            without += some;
            all += of;
        }
    }
    // Constants may be beyond the times that are tried.
    assert!(without * 10 > all * 8, "{without} of {all}");
}

#[test]
fn comparisons_of_numbers_as_times_and_of_quotients_have_the_same_outcome_without_the_function() {
    use DataType::{Int8, Int32, Int64, UInt16, UInt64};
    let mut random = random();
    let (mut without, mut all) = (0, 0);
    let mut compare = |operand: Arc<dyn PhysicalExpr>, schema: &Arc<Schema>| {
        let (some, of) = compare_with_and_without(&operand, schema, &mut random);
        without += some;
        all += of;
    };
    let functions = [to_timestamp, to_timestamp_seconds, to_timestamp_millis, to_timestamp_micros];
    let functions = functions.map(|function| function(&ConfigOptions::default()));
    for from in [Int8, Int32, Int64, UInt16, UInt64] {
        let schema = Arc::new(Schema::new(vec![Field::new("c", from.clone(), true)]));
        let column = col("c", &schema).unwrap();
        for function in &functions {
            compare(call(Arc::clone(function), vec![Arc::clone(&column)], &schema), &schema);
        }
        if from == Int64 {
            compare(call(from_unixtime(), vec![Arc::clone(&column)], &schema), &schema);
        }
        for by in [1i64, 7, 100] {
            let by = lit(ScalarValue::from(by).cast_to(&from).unwrap());
            compare(binary(Arc::clone(&column), Operator::Divide, by, &schema).unwrap(), &schema);
        }
    }
    assert!(without * 10 > all * 9, "{without} of {all}");
}

#[test]
fn what_no_value_can_be_is_none_of_those_that_a_function_fails_for() {
    let schema = Schema::new(vec![Field::new("d", DataType::Date32, true)]);
    let column = col("d", &schema).unwrap();
    let time = cast(column, &schema, DataType::Timestamp(TimeUnit::Nanosecond, None)).unwrap();
    let month = call(date_trunc(), vec![lit("month"), Arc::clone(&time)], &schema);
    let day = cast(Arc::clone(&time), &schema, DataType::Date32).unwrap();
    let within = ScalarValue::from("2024-01-15").cast_to(&time.data_type(&schema).unwrap()).unwrap();
    let beyond = ScalarValue::from("2300-01-01").cast_to(&DataType::Date32).unwrap();
    let all = Values::of(&DataType::Date32).unwrap().extremes().unwrap();
    let (never, always) = (format!("d@0 < {}", all[0]), format!("d@0 <= {}", all[1]));
    for (operand, op, constant, expected) in [
        (&month, Operator::Eq, &within, &never),
        (&month, Operator::NotEq, &within, &always),
        (&day, Operator::Gt, &beyond, &never),
        (&day, Operator::LtEq, &beyond, &always),
        (&day, Operator::Eq, &beyond, &never),
    ] {
        let expr = binary(Arc::clone(operand), op, lit(constant.clone()), &schema).unwrap();
        assert_eq!(&simplify(expr, &schema).unwrap().to_string(), expected, "{operand} {op} {constant}");
    }
}

#[test]
fn lists_are_compared_one_by_one_only_if_that_computes_nothing_again() {
    let schema = Schema::new(vec![
        Field::new("t", DataType::Timestamp(TimeUnit::Second, None), true),
        Field::new("n", DataType::Int64, true),
    ]);
    let column = |name| col(name, &schema).unwrap();
    let day = call(date_trunc(), vec![lit("day"), column("t")], &schema);
    let day = cast(day, &schema, DataType::Date32).unwrap();
    let remainder = binary(column("n"), Operator::Modulo, lit(100_000i64), &schema).unwrap();
    let time = call(to_timestamp_seconds(&ConfigOptions::default()), vec![remainder], &schema);
    let hour = call(date_trunc(), vec![lit("hour"), time], &schema);
    for (operand, is_gone) in [(day, true), (hour, false)] {
        let of = operand.data_type(&schema).unwrap();
        let value = |text: &str| lit(ScalarValue::from(text).cast_to(&of).unwrap());
        let values = vec![value("1970-01-01"), value("1970-01-02")];
        let list = in_list(Arc::clone(&operand), values, &false, &schema).unwrap();
        let simple = simplify(list, &schema).unwrap().to_string();
        assert_eq!(!simple.contains("date_trunc"), is_gone, "{simple}");
    }
}

#[test]
fn what_does_not_keep_the_order_is_kept() {
    let time = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
    let schema = Schema::new(vec![
        Field::new("t", time(None), true),
        Field::new("berlin", time(Some("Europe/Berlin")), true),
        Field::new("n", DataType::Int64, true),
    ]);
    let column = |name| col(name, &schema).unwrap();
    let arithmetic = |left, op, right| binary(left, op, right, &schema).unwrap();
    let month = ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNanoType::make_value(1, 0, 0)));
    let mine = create_udf(
        "date_trunc",
        vec![DataType::Utf8, time(None)],
        time(None),
        Volatility::Immutable,
        Arc::new(|arguments| Ok(arguments[1].clone())),
    );
    for operand in [
        // Months differ in length.
        arithmetic(column("t"), Operator::Plus, lit(month)),
        // The clocks are turned.
        call(date_trunc(), vec![lit("day"), column("berlin")], &schema),
        arithmetic(column("berlin"), Operator::Plus, interval(1, 0)),
        // The unit is not the same for all rows.
        call(date_trunc(), vec![cast(column("n"), &schema, DataType::Utf8).unwrap(), column("t")], &schema),
        // It may do anything.
        call(Arc::new(mine), vec![lit("day"), column("t")], &schema),
        // Sums start again after the greatest number; negative numbers turn the order.
        arithmetic(column("n"), Operator::Plus, lit(1i64)),
        arithmetic(column("n"), Operator::Divide, lit(-2i64)),
        arithmetic(column("n"), Operator::Divide, lit(0i64)),
        arithmetic(lit(100i64), Operator::Divide, column("n")),
    ] {
        let constant = ScalarValue::from("2024-01-01").cast_to(&operand.data_type(&schema).unwrap());
        let constant = constant.unwrap_or(ScalarValue::Int64(Some(20)));
        let expr = binary(Arc::clone(&operand), Operator::Lt, lit(constant), &schema).unwrap();
        assert_eq!(simplify(Arc::clone(&expr), &schema).unwrap().to_string(), expr.to_string());
    }
}

#[test]
fn lists_of_casts_have_the_same_outcome_without_them() {
    let milliseconds = DataType::Timestamp(TimeUnit::Millisecond, None);
    let days = [0, -1, 19_000].map(|day| ScalarValue::Date32(Some(day))).to_vec();
    let floats = [1.0, 2.5, 0.0].map(|value: f64| ScalarValue::from(value)).to_vec();
    const DAY: i64 = 86_400_000;
    for (from, values, list) in [
        (milliseconds, [0, DAY, DAY - 1, -1, -DAY, -DAY - 1, 19_000 * DAY, 19_001 * DAY], days),
        (DataType::Int64, [0, 1, 2, 3, -1, 1 << 53, 5, 4], floats),
    ] {
        let schema = Arc::new(Schema::new(vec![Field::new("c", from.clone(), true)]));
        let values = values.map(|value| ScalarValue::Int64(Some(value)).cast_to(&from).unwrap());
        let values = ScalarValue::iter_to_array(values.into_iter().chain([(&from).try_into().unwrap()]));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![values.unwrap()]).unwrap();
        let to = list[0].data_type();
        for (list, negated) in [(&list, false), (&list, true), (&list[..1].to_vec(), false)] {
            let column = cast(col("c", &schema).unwrap(), &schema, to.clone()).unwrap();
            let list = list.iter().map(|value| lit(value.clone())).collect();
            let expr = in_list(column, list, &negated, &schema).unwrap();
            let simple = simplify(Arc::clone(&expr), &schema).unwrap();
            assert!(!simple.to_string().contains("CAST"), "{simple}");
            let outcome = |expr: Arc<dyn PhysicalExpr>| {
                expr.evaluate(&batch).unwrap().into_array(batch.num_rows()).unwrap()
            };
            assert_eq!(&outcome(expr), &outcome(simple));
        }
    }
    let schema = Schema::new(vec![Field::new("c", DataType::Int64, true)]);
    let column = cast(col("c", &schema).unwrap(), &schema, DataType::Float64).unwrap();
    // 0 is not among the first, and it is faster to look for so many.
    for list in [vec![lit(-0.0), lit(0.5)], (0..50).map(|value| lit(f64::from(value) + 0.5)).collect()] {
        let expr = in_list(Arc::clone(&column), list, &false, &schema).unwrap();
        assert!(simplify(expr, &schema).unwrap().to_string().contains("CAST"));
    }
}

#[test]
fn times_of_other_types_than_the_cast_are_not_rounded() {
    let schema = Schema::new(vec![Field::new("c", DataType::Date32, true)]);
    let seconds = DataType::Timestamp(TimeUnit::Second, None);
    let column = cast(col("c", &schema).unwrap(), &schema, seconds).unwrap();
    for literal in [nanoseconds(0), nanoseconds(5)] {
        let expr: Arc<dyn PhysicalExpr> =
            Arc::new(BinaryExpr::new(Arc::clone(&column), Operator::Lt, lit(literal)));
        assert!(simplify(expr, &schema).unwrap().to_string().contains("CAST"));
    }
}

#[test]
fn a_cast_that_decides_whether_zeros_are_equal_is_kept() {
    let packed = |of: DataType| DataType::Dictionary(Box::new(DataType::Int32), Box::new(of));
    let key = |value| ScalarValue::Dictionary(Box::new(DataType::Int64), Box::new(ScalarValue::from(value)));
    for zero in [0.0f64, -0.0] {
        assert!(compared(packed(DataType::Float64), zero.into()).contains("CAST"));
        assert!(compared(packed(DataType::Float32), zero.into()).contains("CAST"));
        assert!(compared(DataType::Float64, key(zero)).contains("CAST"));
        assert!(!compared(packed(DataType::Float64), key(zero)).contains("CAST"));
        assert!(!compared(DataType::Float32, zero.into()).contains("CAST"));
    }
    assert_eq!(compared(packed(DataType::Float64), 0.5f64.into()), "c@0 < 0.5");
}
