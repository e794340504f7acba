//! Random Arrow types and arrays, generated from a seed.

use std::sync::Arc;

use arrow::array::{ArrayData, BinaryArray};
use arrow::array::{
    ArrayRef, BooleanArray, FixedSizeListArray, LargeListArray, ListArray, MapArray, NullArray, StringArray,
    StructArray, make_array,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Fields, IntervalUnit, TimeUnit};

/// A sequence of numbers (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, or 0 if there is none.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// The number of a row: without an order that an encoding could exploit, and always the same.
pub(crate) fn scattered(row: u64) -> u64 {
    Random(row).next()
}

/// All types without children that can be written.
pub(crate) fn plain_types() -> Vec<DataType> {
    use DataType::*;
    let units = [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];
    let mut types = vec![
        Null,
        Boolean,
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
        Float16,
        Float32,
        Float64,
        Decimal32(7, 2),
        Decimal64(15, -3),
        Decimal128(38, 10),
        Decimal256(60, 5),
        Utf8,
        LargeUtf8,
        Utf8View,
        Binary,
        LargeBinary,
        BinaryView,
        FixedSizeBinary(5),
        FixedSizeBinary(16),
        Date32,
        Date64,
        Time32(units[0]),
        Time32(units[1]),
        Time64(units[2]),
        Time64(units[3]),
        Interval(IntervalUnit::YearMonth),
        Interval(IntervalUnit::DayTime),
        Interval(IntervalUnit::MonthDayNano),
        Dictionary(Box::new(Int16), Box::new(Utf8)),
        Dictionary(Box::new(UInt32), Box::new(Int64)),
        RunEndEncoded(
            Arc::new(Field::new("run_ends", Int32, false)),
            Arc::new(Field::new("values", Utf8, true)),
        ),
    ];
    for unit in units {
        types.extend([
            Timestamp(unit, None),
            Timestamp(unit, Some("+02:00".into())),
            Timestamp(unit, Some("Z".into())),
            Duration(unit),
        ]);
    }
    types
}

/// A type of at most `depth` levels.
pub(crate) fn any_type(random: &mut Random, depth: usize) -> DataType {
    if depth == 0 || random.one_in(3) {
        let types = plain_types();
        return types[random.below(types.len())].clone();
    }
    let field = |name: &str, random: &mut Random| {
        let data_type = any_type(random, depth - 1);
        let nullable = random.one_in(2) || data_type == DataType::Null;
        Field::new(name, data_type, nullable)
    };
    match random.below(7) {
        0 => DataType::List(Arc::new(field("item", random))),
        1 => DataType::LargeList(Arc::new(field("element", random))),
        2 => DataType::FixedSizeList(Arc::new(field("item", random)), random.below(4) as i32),
        3 => DataType::ListView(Arc::new(field("item", random))),
        4 => {
            let value = field("values", random);
            let entries = vec![Field::new("keys", DataType::Utf8, false), value];
            DataType::Map(Arc::new(Field::new_struct("entries", entries, false)), false)
        }
        _ => {
            let count = random.below(4);
            DataType::Struct((0..count).map(|at| field(&format!("f{at}"), random)).collect())
        }
    }
}

fn nulls(random: &mut Random, rows: usize, nullable: bool) -> Option<NullBuffer> {
    if !nullable {
        return None;
    }
    let all = random.one_in(10);
    Some(NullBuffer::from_iter((0..rows).map(|_| !all && !random.one_in(5))))
}

/// Random rows of a type. Adjacent rows are often equal, and numbers are often close.
pub(crate) fn array(random: &mut Random, data_type: &DataType, rows: usize, nullable: bool) -> ArrayRef {
    let lengths = |random: &mut Random| (0..rows).map(|_| random.below(4)).collect::<Vec<_>>();
    let valid = |random: &mut Random| nulls(random, rows, nullable);
    match data_type {
        DataType::Null => Arc::new(NullArray::new(rows)),
        DataType::Boolean => {
            let bits = (0..rows).map(|_| random.one_in(3)).collect();
            Arc::new(BooleanArray::new(bits, valid(random)))
        }
        DataType::Utf8 => {
            let words = ["", "a", "word", "\u{e9}t\u{e9}", "a sentence that no view holds by itself"];
            let long = "\u{10ffff}".repeat(30);
            let mut some = || if random.one_in(20) { long.as_str() } else { words[random.below(5)] };
            let texts: Vec<&str> = (0..rows).map(|_| some()).collect();
            let nulls = valid(random);
            let is_valid = |at: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(at));
            Arc::new(StringArray::from_iter((0..rows).map(|at| is_valid(at).then(|| texts[at]))))
        }
        DataType::Binary => {
            let nulls = valid(random);
            let is_valid = |at: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(at));
            let mut some = || vec![[0, 7, 255][random.below(3)]; random.below(80)];
            let values: Vec<Vec<u8>> = (0..rows).map(|_| some()).collect();
            Arc::new(BinaryArray::from_iter((0..rows).map(|at| is_valid(at).then(|| values[at].as_slice()))))
        }
        DataType::LargeUtf8 | DataType::Utf8View => {
            cast(&array(random, &DataType::Utf8, rows, nullable), data_type).unwrap()
        }
        DataType::LargeBinary | DataType::BinaryView => {
            cast(&array(random, &DataType::Binary, rows, nullable), data_type).unwrap()
        }
        DataType::Dictionary(_, values) => cast(&array(random, values, rows, nullable), data_type).unwrap(),
        DataType::RunEndEncoded(_, values) => {
            cast(&array(random, values.data_type(), rows, nullable), data_type).unwrap()
        }
        DataType::List(item) => {
            let offsets = OffsetBuffer::<i32>::from_lengths(lengths(random));
            let values = array(random, item.data_type(), offsets[rows] as usize, item.is_nullable());
            Arc::new(ListArray::new(Arc::clone(item), offsets, values, valid(random)))
        }
        DataType::LargeList(item) => {
            let offsets = OffsetBuffer::<i64>::from_lengths(lengths(random));
            let values = array(random, item.data_type(), offsets[rows] as usize, item.is_nullable());
            Arc::new(LargeListArray::new(Arc::clone(item), offsets, values, valid(random)))
        }
        DataType::ListView(item) => {
            let lists = DataType::List(Arc::clone(item));
            cast(&array(random, &lists, rows, nullable), data_type).unwrap()
        }
        DataType::FixedSizeList(item, size) => {
            let values = array(random, item.data_type(), rows * *size as usize, item.is_nullable());
            let lists =
                FixedSizeListArray::try_new_with_length(Arc::clone(item), *size, values, valid(random), rows);
            Arc::new(lists.unwrap())
        }
        DataType::Map(entries, sorted) => {
            let offsets = OffsetBuffer::<i32>::from_lengths(lengths(random));
            let values = array(random, entries.data_type(), offsets[rows] as usize, false);
            let values = arrow::array::AsArray::as_struct(&values).clone();
            Arc::new(MapArray::new(Arc::clone(entries), offsets, values, valid(random), *sorted))
        }
        DataType::Struct(fields) => {
            let column = |field: &Arc<Field>| array(random, field.data_type(), rows, field.is_nullable());
            let columns: Vec<ArrayRef> = fields.iter().map(column).collect();
            let nulls = nulls(random, rows, nullable);
            let fields: Fields = fields.clone();
            Arc::new(StructArray::try_new_with_length(fields, columns, nulls, rows).unwrap())
        }
        other => numbers(random, other, rows, nullable),
    }
}

fn numbers(random: &mut Random, data_type: &DataType, rows: usize, nullable: bool) -> ArrayRef {
    let width = match data_type {
        DataType::FixedSizeBinary(width) => *width as usize,
        other => other.primitive_width().unwrap(),
    };
    let mut bytes = Vec::with_capacity(rows * width);
    for _ in 0..rows {
        // Sign-extended, so that decimals keep within their digits and days within their range.
        let value = match (data_type, random.below(4)) {
            (DataType::Decimal32(..) | DataType::Decimal64(..), _) => {
                random.below(9_999_999) as i64 - 5_000_000
            }
            (DataType::Date32 | DataType::Date64 | DataType::Time32(_) | DataType::Time64(_), _) => {
                random.below(86_400) as i64 * if width == 8 { 86_400_000 } else { 1 }
            }
            (_, 0) => random.next() as i64,
            (_, 1) => 42,
            _ => random.below(1000) as i64 - 500,
        };
        let mut wide = [if value < 0 { 0xff } else { 0 }; 32];
        wide[..8].copy_from_slice(&value.to_le_bytes());
        bytes.extend_from_slice(&wide[..width]);
    }
    let data = ArrayData::builder(data_type.clone()).len(rows).add_buffer(Buffer::from(bytes));
    make_array(data.nulls(nulls(random, rows, nullable)).align_buffers(true).build().unwrap())
}

#[test]
fn arrays_have_the_type_and_rows_asked_for() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let data_type = any_type(&mut random, 3);
        let array = array(&mut random, &data_type, 20, true);
        assert_eq!((array.data_type(), array.len()), (&data_type, 20));
    }
}
