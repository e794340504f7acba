//! Random rows: one column per type, in distributions that take different paths through encodings and statistics.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int16Array, Int32Array,
    Int64Array, ListBuilder, RecordBatch, StringViewArray, StructArray, TimestampMicrosecondArray,
    UInt8Array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Fields};
use arrow::error::ArrowError;
use arrow::util::display::array_value_to_string;
use rand::Rng as _;
use rand::rngs::StdRng;

/// How the numbers of a column follow each other.
#[derive(Clone, Copy)]
enum Pattern {
    Constant,
    Rising,
    Runs,
    /// Near each other, at a distance from those before.
    Clusters,
    Scattered,
    /// One value nearly everywhere.
    Sparse,
}

const PATTERNS: [Pattern; 6] = [
    Pattern::Constant,
    Pattern::Rising,
    Pattern::Runs,
    Pattern::Clusters,
    Pattern::Scattered,
    Pattern::Sparse,
];

const WORDS: [&str; 12] = [
    "amber",
    "amberite",
    "Amber",
    "blue",
    "",
    "coral%",
    "dark_",
    "ebony",
    "éclair",
    "fawn",
    "green tea",
    "日本",
];

/// Rows with the ids `first` to `first + count`.
pub(crate) fn random(random: &mut StdRng, first: i64, count: usize) -> Result<RecordBatch, ArrowError> {
    let texts = |random: &mut StdRng, few: bool| -> ArrayRef {
        let numbers = numbers(random, count, if few { 12 } else { 100_000 });
        let valid = valid(random, count);
        let text = |(number, valid): (i64, bool)| {
            let word = WORDS[(number % 12) as usize];
            valid.then(|| if few { word.to_owned() } else { format!("user-{number:06}@{word}.example") })
        };
        Arc::new(StringViewArray::from_iter(numbers.into_iter().zip(valid).map(text)))
    };
    let numbers = |random: &mut StdRng, range: i64| {
        let numbers = numbers(random, count, range);
        let valid = valid(random, count);
        numbers.into_iter().zip(valid).map(|(number, valid)| valid.then_some(number)).collect::<Vec<_>>()
    };
    let range = [3, 100, 5000, 1_000_000][random.random_range(0..4)];
    let extreme = |number: i64| match number % 1000 {
        998 => i64::MIN,
        999 => i64::MAX,
        _ => number * 1_000_003 - 70_000_000,
    };
    let float = |number: i64| match number % 200 {
        0 => f64::NAN,
        1 => -0.0,
        2 => 0.0,
        3 => f64::INFINITY,
        4 => f64::NEG_INFINITY,
        _ => (number - 900) as f64 / 8.0,
    };
    let moment = |number: i64| number * 3_700_000_001 - 400_000_000_000;
    let prices =
        Decimal128Array::from_iter(numbers(random, 100_000).into_iter().map(|it| it.map(|it| it.into())));
    let mut list = ListBuilder::new(Int32Array::builder(0));
    for number in numbers(random, 40) {
        (0..number.unwrap_or(0) % 4)
            .for_each(|at| list.values().append_option((at != 2).then_some(at as i32)));
        list.append(number.is_some());
    }
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(first..first + count as i64)), false),
        ("i", column::<Int32Array, _>(numbers(random, range), |number| number as i32 - 1), true),
        ("j", column::<Int64Array, _>(numbers(random, 1_000_000), extreme), true),
        ("k", column::<Int16Array, _>(numbers(random, 300), |number| number as i16), true),
        ("u", column::<UInt8Array, _>(numbers(random, 256), |number| number as u8), true),
        ("f", column::<Float64Array, _>(numbers(random, 2000), float), true),
        ("s", texts(random, true), true),
        ("x", texts(random, false), true),
        ("d", column::<Date32Array, _>(numbers(random, 900), |number| number as i32 - 400), true),
        ("m", column::<TimestampMicrosecondArray, _>(numbers(random, 1_000_000), moment), true),
        ("p", Arc::new(prices.with_precision_and_scale(12, 2)?), true),
        ("q", column::<BooleanArray, _>(numbers(random, 2), |number| number == 1), true),
        ("n", Arc::new(structs(random, count)?), true),
        ("l", Arc::new(list.finish()), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns)
}

/// A column of what `value` makes of numbers.
fn column<A, T>(numbers: Vec<Option<i64>>, value: impl Fn(i64) -> T) -> ArrayRef
where
    A: Array + FromIterator<Option<T>> + 'static,
{
    Arc::new(numbers.into_iter().map(|number| number.map(&value)).collect::<A>())
}

/// Fields are null where the structs are: DataFusion would find values there in memory.
fn structs(random: &mut StdRng, count: usize) -> Result<StructArray, ArrowError> {
    let fields: Fields =
        vec![Field::new("a", DataType::Int32, true), Field::new("b", DataType::Utf8View, true)].into();
    let present = valid(random, count);
    let (a, a_valid) = (numbers(random, count, 50), valid(random, count));
    let b = numbers(random, count, 12);
    let a: Int32Array = (0..count).map(|at| (present[at] && a_valid[at]).then_some(a[at] as i32)).collect();
    let b: StringViewArray = (0..count).map(|at| present[at].then_some(WORDS[b[at] as usize])).collect();
    StructArray::try_new(fields, vec![Arc::new(a), Arc::new(b)], Some(NullBuffer::from(present)))
}

/// Numbers from 0 to `range`.
fn numbers(random: &mut StdRng, count: usize, range: i64) -> Vec<i64> {
    let pattern = PATTERNS[random.random_range(0..PATTERNS.len())];
    let mut last = random.random_range(0..range);
    let common = last;
    let next = |at: usize| {
        match pattern {
            Pattern::Constant => {}
            Pattern::Rising => last = (at as i64 * range) / count as i64,
            Pattern::Runs if random.random_ratio(1, 20) => last = random.random_range(0..range),
            Pattern::Runs => {}
            Pattern::Clusters if at.is_multiple_of(2000) => last = random.random_range(0..range),
            Pattern::Clusters => last = (last + random.random_range(0..3)) % range,
            Pattern::Scattered => last = random.random_range(0..range),
            Pattern::Sparse if random.random_ratio(1, 50) => last = random.random_range(0..range),
            Pattern::Sparse => last = common,
        }
        last
    };
    (0..count).map(next).collect()
}

/// Which rows are not null: all, none, most, or long stretches.
fn valid(random: &mut StdRng, count: usize) -> Vec<bool> {
    match random.random_range(0..8) {
        0..4 => vec![true; count],
        4 => vec![random.random_ratio(4, 5); count],
        5 => (0..count).map(|at| at / 3000 % 2 == 0).collect(),
        _ => (0..count).map(|_| random.random_ratio(9, 10)).collect(),
    }
}

/// A value of a row as a literal, or `None` if it is null or has no literal.
pub(crate) fn literal(column: &ArrayRef, row: usize) -> Option<String> {
    if column.is_null(row) {
        return None;
    }
    let text = array_value_to_string(column, row).ok()?;
    Some(match column.data_type() {
        DataType::Utf8View => format!("'{}'", text.replace('\'', "''")),
        DataType::Date32 => format!("DATE '{text}'"),
        DataType::Timestamp(..) => format!("TIMESTAMP '{text}'"),
        // DataFusion takes `x BETWEEN -0.0 AND -0.0` for a promise that x is constant.
        DataType::Float64 if text == "-0.0" => "0.0".to_owned(),
        DataType::Float64 => format!("CAST('{text}' AS DOUBLE)"),
        // As text, so that it does not become a float on its way.
        DataType::Decimal128(..) => format!("CAST('{text}' AS DECIMAL(12, 2))"),
        // The least number is no literal, only its negation is.
        DataType::Int64 => format!("CAST('{text}' AS BIGINT)"),
        data_type if data_type.is_nested() => return None,
        _ => text,
    })
}
