//! Tables of seeded random values, made to meet every scheme of the compressor.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeListArray,
    Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, LargeStringArray, ListArray,
    RecordBatch, StringArray, StructArray, Time32SecondArray, Time64MicrosecondArray,
    TimestampMicrosecondArray, TimestampNanosecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{Field, Schema};

fn noise(seed: u64, rows: usize) -> Vec<u64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    (0..rows).map(|_| next()).collect()
}

fn table(columns: Vec<(String, ArrayRef)>) -> RecordBatch {
    let fields = columns
        .iter()
        .map(|(name, array)| Field::new(name, array.data_type().clone(), array.null_count() > 0));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    RecordBatch::try_new(schema, columns.into_iter().map(|(_, array)| array).collect())
        .expect("columns were made for the schema")
}

/// A table of several zones, most of whose columns differ from zone to zone.
pub(crate) fn plain() -> RecordBatch {
    // Ten zones: enough for sums of zones.
    const ROWS: usize = 80_000;
    let noise = noise(7, ROWS);
    let valid = |at: usize| !noise[at].is_multiple_of(11);
    let rows = 0..ROWS as i64;
    let words = ["alpha", "beta", "gamma", "delta", "a longer value that does not fit into a view"];
    let text = |at: usize| format!("{:06}-{}", at / 3, words[noise[at] as usize % 5]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("rising", Arc::new(Int64Array::from_iter_values(rows.clone()))),
        ("close", Arc::new(Int32Array::from_iter_values(rows.clone().map(|at| (at / 100) as i32 - 250)))),
        ("small", Arc::new(UInt8Array::from_iter_values(noise.iter().map(|n| (n % 200) as u8)))),
        ("large", Arc::new(UInt64Array::from_iter_values(noise.iter().map(|n| u64::MAX - n)))),
        (
            "gaps",
            Arc::new(Int64Array::from_iter((0..ROWS).map(|at| valid(at).then_some(noise[at] as i64 - 77)))),
        ),
        ("float", Arc::new(Float64Array::from_iter_values(rows.clone().map(|at| at as f64 / 100.0)))),
        (
            "nan",
            Arc::new(Float64Array::from_iter((0..ROWS).map(|at| match at % 9000 {
                5 => Some(f64::NAN),
                6 => None,
                _ => Some(-(at as f64) / 3.0),
            }))),
        ),
        ("text", Arc::new(StringArray::from_iter((0..ROWS).map(|at| valid(at).then(|| text(at)))))),
        ("word", Arc::new(StringArray::from_iter_values(noise.iter().map(|n| words[*n as usize % 5])))),
        ("flag", Arc::new(BooleanArray::from_iter(noise.iter().map(|n| Some(n % 17 == 0))))),
        ("date", Arc::new(Date32Array::from_iter_values(rows.clone().map(|at| (at / 50) as i32)))),
        (
            "time",
            Arc::new(TimestampMicrosecondArray::from_iter_values(rows.clone().map(|at| at * 1_000_037))),
        ),
        (
            "price",
            Arc::new(
                Decimal128Array::from_iter_values(noise.iter().map(|n| i128::from(n % 1_000_000)))
                    .with_precision_and_scale(12, 2)
                    .expect("six digits are within twelve"),
            ),
        ),
        ("constant", Arc::new(Int32Array::from_iter_values(rows.clone().map(|_| 42)))),
        ("nothing", Arc::new(Int32Array::from_iter(rows.map(|_| None)))),
    ];
    table(columns.into_iter().map(|(name, array)| (name.to_owned(), array)).collect())
}

/// Values that readers reject in some encodings: times out of range, offsets as time zones, decimals that no row shows.
pub(crate) fn odd() -> RecordBatch {
    const ROWS: usize = 20_000;
    let micros = |at: usize| at as i64 * 1_000_003;
    let all = |value: i64| TimestampMicrosecondArray::from_value(value, ROWS);
    let zoned = |zone: &str| all(1_700_000_000_000_000).with_timezone(zone);
    let hidden = Decimal128Array::from_iter_values((0..ROWS).map(|at| match at % 3 {
        0 => -(10i128.pow(30)),
        _ => at as i128 % 1000,
    }));
    let hidden: ArrayRef =
        Arc::new(hidden.with_precision_and_scale(3, 1).expect("one of three digits is a fraction"));
    let shown = NullBuffer::from_iter((0..ROWS).map(|at| at % 3 != 0));
    let field = Field::new("decimal", hidden.data_type().clone(), false);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("offset_zero", Arc::new(zoned("+00:00"))),
        ("offset", Arc::new(zoned("-03:30"))),
        ("named", Arc::new(zoned("Europe/Oslo"))),
        ("never", Arc::new(all(i64::MAX))),
        (
            "long_ago",
            Arc::new(TimestampMicrosecondArray::from_iter(
                (0..ROWS).map(|at| (at % 7 > 0).then_some(i64::MIN)),
            )),
        ),
        (
            "mostly_never",
            Arc::new(TimestampMicrosecondArray::from_iter_values((0..ROWS).map(|at| match at % 97 {
                0 => micros(at),
                _ => i64::MAX,
            }))),
        ),
        ("midnight", Arc::new(Time64MicrosecondArray::from_value(86_400_000_000, ROWS))),
        (
            "late",
            Arc::new(Time32SecondArray::from_iter_values((0..ROWS).map(|at| 86_400 + (at / 9000) as i32))),
        ),
        ("last_day", Arc::new(Date32Array::from_value(i32::MAX, ROWS))),
        ("hidden", Arc::new(StructArray::new(vec![field].into(), vec![hidden], Some(shown)))),
    ];
    table(columns.into_iter().map(|(name, array)| (name.to_owned(), array)).collect())
}

/// How the numbers of a column lie within the range of their type.
const SHAPES: [&str; 12] = [
    "below",
    "above",
    "both",
    "around",
    "one",
    "one_null",
    "mostly_null",
    "few",
    "runs",
    "rising",
    "equal_null",
    "steps",
];

/// The number in a row of a shape, for a type of the range `least..=most`.
fn number(shape: &str, row: usize, noise: u64, (least, most): (i128, i128)) -> Option<i128> {
    let middle = least + (most - least) / 3;
    let anywhere = least + i128::from(noise).pow(3) % (most - least + 1);
    let bulk = middle + i128::from(noise % 13);
    let rare = noise % 97 == 3;
    Some(match shape {
        "below" if rare => least + i128::from(noise % 3),
        "above" if rare => most - i128::from(noise % 3),
        "both" if rare => anywhere,
        "below" | "above" | "both" => bulk,
        "around" if rare => anywhere,
        "around" => (i128::from(noise % 13) - 6).max(least),
        "one_null" if noise % 89 == 5 => return None,
        "one" | "one_null" if rare => anywhere,
        "one" | "one_null" => middle,
        "mostly_null" if !noise.is_multiple_of(31) => return None,
        "mostly_null" => anywhere,
        "few" if noise.is_multiple_of(41) => return None,
        "few" => middle - i128::from(noise % 5).pow(2),
        "runs" if (row / 50) % 9 == 2 => return None,
        "runs" => middle + (row as i128 / 50).pow(2) % 23,
        "rising" => least + (row as i128) % (most - least),
        "equal_null" if noise.is_multiple_of(3) => return None,
        "equal_null" => middle,
        _ => middle + (row as i128 / 8192) * 3 + i128::from(noise.is_multiple_of(4)),
    })
}

/// Numbers of every width in every shape, over several zones.
pub(crate) fn numbers() -> RecordBatch {
    const ROWS: usize = 20_000;
    let noise = noise(11, ROWS);
    let mut columns: Vec<(String, ArrayRef)> = Vec::new();
    macro_rules! integers {
        ($($native:ident $array:ident),*) => {$(
            let range = ($native::MIN.into(), $native::MAX.into());
            for shape in SHAPES {
                let values = (0..ROWS).map(|row| number(shape, row, noise[row], range));
                // Within the range of the type.
                let array = $array::from_iter(values.map(|value| value.map(|value| value as $native)));
                columns.push((format!("{}_{shape}", stringify!($native)), Arc::new(array)));
            }
        )*};
    }
    macro_rules! floats {
        ($($native:ident $array:ident $digits:literal),*) => {$(
            let range = (-(10i128.pow($digits)), 10i128.pow($digits));
            for shape in SHAPES {
                let values = (0..ROWS).map(|row| number(shape, row, noise[row], range));
                let array = $array::from_iter(values.map(|value| value.map(|value| value as $native / 100.0)));
                columns.push((format!("{}_{shape}", stringify!($native)), Arc::new(array)));
            }
        )*};
    }
    integers!(
        i8 Int8Array, i16 Int16Array, i32 Int32Array, i64 Int64Array,
        u8 UInt8Array, u16 UInt16Array, u32 UInt32Array, u64 UInt64Array
    );
    floats!(f32 Float32Array 6, f64 Float64Array 14);
    table(columns)
}

/// What old readers get wrong in the form in which newer ones read it: dictionaries with as many values as codes, ramps
/// that are longer than the greatest number, and floats in parts below nullable codes.
pub(crate) fn edges() -> RecordBatch {
    const ROWS: usize = 20_000;
    let noise = noise(13, ROWS);
    let code =
        |row: usize, codes: usize| if row % 8192 < codes { row % 8192 } else { noise[row] as usize % codes };
    let some = |row: usize| !noise[row].is_multiple_of(7);
    let digits = |code: usize| (1.0 + (noise[code] % 1_000_003) as f64 / 1_000_003.0).sqrt();
    let parts = |row: usize| match code(row, 6_000) {
        rare if rare % 50 == 0 => (noise[rare] as f64).exp(),
        code => digits(code),
    };
    let full = |row: usize| (code(row, 256) as i64).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.cast_signed());
    table(vec![
        ("full".into(), Arc::new(Int64Array::from_iter_values((0..ROWS).map(full)))),
        (
            "full_null".into(),
            Arc::new(Int64Array::from_iter((0..ROWS).map(|row| some(row).then(|| full(row))))),
        ),
        (
            "full_float".into(),
            Arc::new(Float64Array::from_iter_values((0..ROWS).map(|row| digits(code(row, 256))))),
        ),
        (
            "parts".into(),
            Arc::new(Float64Array::from_iter((0..ROWS).map(|row| some(row).then(|| parts(row))))),
        ),
        (
            "ramp_i16".into(),
            Arc::new(Int16Array::from_iter_values((0..ROWS).map(|row| (row as i32 * 3 - 30_000) as i16))),
        ),
        (
            "ramp_i32".into(),
            Arc::new(Int32Array::from_iter_values(
                (0..ROWS).map(|row| (2_000_000_000 - row as i64 * 200_000) as i32),
            )),
        ),
        (
            "ramp_i64".into(),
            Arc::new(Int64Array::from_iter_values(
                (0..ROWS as i64).map(|row| (row - 10_000) * 600_000_000_000_000),
            )),
        ),
    ])
}

/// Lists and structs of each other, with nulls at every level that old readers know them at.
pub(crate) fn nested() -> RecordBatch {
    const ROWS: usize = 12_000;
    let noise = noise(13, 8 * ROWS);
    let field =
        |array: &ArrayRef| Arc::new(Field::new("item", array.data_type().clone(), array.null_count() > 0));
    let valid = |rows: usize, seed: u64| {
        NullBuffer::from_iter((0..rows).map(|at| !(noise[at] + seed).is_multiple_of(10)))
    };
    // Lists of up to four items; garbage lies under null ones.
    let list = |rows: usize, seed: u64, items: &dyn Fn(usize) -> ArrayRef| -> ArrayRef {
        let offsets =
            OffsetBuffer::<i32>::from_lengths((0..rows).map(|at| ((noise[at] + seed) % 5) as usize));
        let items = items(offsets.last().map_or(0, |last| *last as usize));
        Arc::new(ListArray::new(field(&items), offsets, items, Some(valid(rows, seed))))
    };
    let ints = |rows: usize| -> ArrayRef {
        Arc::new(Int32Array::from_iter(
            (0..rows).map(|at| (!noise[at].is_multiple_of(7)).then_some(noise[at] as i32 % 1000 - 300)),
        ))
    };
    let texts = |rows: usize| -> ArrayRef {
        Arc::new(StringArray::from_iter((0..rows).map(|at| {
            (!noise[at].is_multiple_of(9)).then(|| format!("text number {} of a few", noise[at] % 500))
        })))
    };
    let structs = |rows: usize, nulls: Option<NullBuffer>| -> ArrayRef {
        let columns = [("number", ints(rows)), ("text", texts(rows)), ("list", list(rows, 3, &ints))];
        let fields: Vec<_> =
            columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
        Arc::new(StructArray::new(
            fields.into(),
            columns.into_iter().map(|(_, array)| array).collect(),
            nulls,
        ))
    };
    let lone = |only: ArrayRef, nulls: Option<NullBuffer>| -> ArrayRef {
        let field = Field::new("only", only.data_type().clone(), true);
        Arc::new(StructArray::new(vec![field].into(), vec![only], nulls))
    };
    let fixed = |rows: usize| -> ArrayRef {
        let items: ArrayRef =
            Arc::new(Float32Array::from_iter_values((0..3 * rows).map(|at| noise[at] as f32 / 8.0)));
        Arc::new(FixedSizeListArray::new(field(&items), 3, items, Some(valid(rows, 4))))
    };
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("ints", list(ROWS, 0, &ints)),
        ("texts", list(ROWS, 1, &texts)),
        ("lists", list(ROWS, 2, &|rows| list(rows, 5, &ints))),
        ("plain_struct", structs(ROWS, None)),
        ("structs", list(ROWS, 6, &|rows| structs(rows, None))),
        ("null_struct", structs(ROWS, Some(valid(ROWS, 7)))),
        ("null_structs", list(ROWS, 8, &|rows| structs(rows, Some(valid(rows, 9))))),
        ("lone_struct", lone(structs(ROWS, Some(valid(ROWS, 10))), None)),
        ("null_lone_struct", lone(structs(ROWS, Some(valid(ROWS, 11))), Some(valid(ROWS, 12)))),
        ("lone_structs", lone(lone(structs(ROWS, Some(valid(ROWS, 13))), Some(valid(ROWS, 14))), None)),
        ("fixed", fixed(ROWS)),
        ("lists_of_fixed", list(ROWS, 2, &fixed)),
        (
            "large_text",
            Arc::new(LargeStringArray::from_iter(
                (0..ROWS).map(|at| Some("x".repeat(noise[at] as usize % 40))),
            )),
        ),
        (
            "bytes",
            Arc::new(BinaryArray::from_iter((0..ROWS).map(|at| {
                (!noise[at].is_multiple_of(5))
                    .then(|| noise[at].to_le_bytes()[..noise[at] as usize % 8].to_vec())
            }))),
        ),
        (
            "wide",
            Arc::new(
                Decimal128Array::from_iter(
                    (0..ROWS).map(|at| (!noise[at].is_multiple_of(8)).then(|| i128::from(noise[at]).pow(3))),
                )
                .with_precision_and_scale(38, 6)
                .expect("three times 31 bits are within 38 digits"),
            ),
        ),
        (
            "wide_few",
            Arc::new(
                Decimal128Array::from_iter((0..ROWS).map(|at| {
                    (!noise[at].is_multiple_of(8)).then(|| i128::from(noise[at] % 9) * 10i128.pow(36))
                }))
                .with_precision_and_scale(38, 6)
                .expect("one digit and 36 zeros are within 38 digits"),
            ),
        ),
        (
            "nanos",
            Arc::new(TimestampNanosecondArray::from_iter((0..ROWS).map(|at| {
                (!noise[at].is_multiple_of(6)).then_some(1_600_000_000_000_000_000 + noise[at] as i64)
            }))),
        ),
    ];
    table(columns.into_iter().map(|(name, array)| (name.to_owned(), array)).collect())
}
