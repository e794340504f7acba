//! Random trees of numeric encodings, compared with the values they were built from.
//!
//! All trees are nested: the integers within an encoding are stored in any other encoding that can hold
//! them. Everything is seeded, so that failures are reproducible.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray as _, Decimal128Array, Float32Array, Float64Array, Int64Array,
    TimestampMillisecondArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Decimal128Type};

use super::conformance;
use crate::array::build::Tree;
use crate::dtype::arrow::{data_type, primitive};
use crate::dtype::{DType, DecimalType, Extension, PType};
use crate::expr::Predicate;
use crate::kernels::random;
use crate::mask::Mask;

/// Choices that are the same in every run.
struct Random(Box<dyn FnMut() -> u64>);

impl Random {
    fn new(seed: u64) -> Self {
        Self(Box::new(random(seed)))
    }

    fn bits(&mut self) -> u64 {
        (self.0)()
    }

    fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// A column before encoding; `None` is null.
type Rows = Vec<Option<i128>>;

/// Rows of a type within a range, in runs, with nulls if permitted.
fn rows(random: &mut Random, len: usize, nullable: bool, low: i128, high: i128) -> Rows {
    let span = u128::try_from(high - low).unwrap() + 1;
    let span = if random.one_in(2) { span.min(5) } else { span };
    let longest = random.pick(&[1, 4, 60]);
    let mut out = Rows::new();
    while out.len() < len {
        let value = low + i128::try_from(u128::from(random.bits()) % span).unwrap();
        let value = (!nullable || !random.one_in(4)).then_some(value);
        let run = (1 + random.below(longest)).min(len - out.len());
        out.extend(std::iter::repeat_n(value, run));
    }
    out
}

fn len(random: &mut Random) -> usize {
    match random.below(4) {
        0 => random.below(4),
        1 => random.below(40),
        _ => random.below(2200),
    }
}

fn range(ptype: PType) -> (i128, i128) {
    let bits = ptype.bit_width();
    if ptype.is_unsigned() { (0, (1 << bits) - 1) } else { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) }
}

fn fields(fields: &[(u32, u64)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (tag, value) in fields.iter().filter(|(_, value)| *value != 0) {
        prost::encoding::uint64::encode(*tag, value, &mut bytes);
    }
    bytes
}

fn message(tag: u32, message: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::bytes::encode(tag, &message.to_vec(), &mut bytes);
    bytes
}

fn number(ptype: PType) -> u64 {
    ptype as u64
}

/// A serialized integer, or null.
fn scalar(value: Option<i128>, ptype: PType) -> Vec<u8> {
    let mut bytes = Vec::new();
    match value {
        None => bytes.extend([0x08, 0x00]),
        Some(value) if ptype.is_unsigned() => {
            prost::encoding::uint64::encode(4, &u64::try_from(value).unwrap(), &mut bytes);
        }
        Some(value) => prost::encoding::sint64::encode(3, &i64::try_from(value).unwrap(), &mut bytes),
    }
    bytes
}

/// Little-endian bytes of integers, with garbage under nulls.
fn bytes(random: &mut Random, rows: &Rows, width: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for row in rows {
        let value = row.unwrap_or_else(|| i128::from(random.bits()));
        let sign = if value < 0 { 0xff } else { 0 };
        out.extend(value.to_le_bytes().into_iter().chain(std::iter::repeat(sign)).take(width));
    }
    out
}

fn with_validity(tree: Tree, rows: &Rows) -> Tree {
    let valid: Vec<bool> = rows.iter().map(Option::is_some).collect();
    if valid.iter().all(|valid| *valid) { tree } else { tree.child(Tree::bools(&valid)) }
}

/// A tree of integers with randomly chosen encodings.
fn integers(random: &mut Random, ptype: PType, rows: &Rows, depth: usize) -> Tree {
    let is_constant = rows.windows(2).all(|pair| pair[0] == pair[1]);
    match random.below(4) {
        0 if is_constant && !rows.is_empty() => Tree::new("vortex.constant").buffer(scalar(rows[0], ptype)),
        1 if depth > 0 => run_end(random, ptype, rows, depth),
        2 if depth > 0 && !rows.is_empty() => sparse(random, ptype, rows, depth),
        _ => {
            let bytes = bytes(random, rows, ptype.byte_width());
            with_validity(Tree::new("vortex.primitive").buffer(bytes), rows)
        }
    }
}

fn run_end(random: &mut Random, ptype: PType, rows: &Rows, depth: usize) -> Tree {
    let offset = if rows.is_empty() { 0 } else { random.below(3) };
    let (mut ends, mut values) = (Vec::new(), Rows::new());
    for (row, value) in rows.iter().enumerate() {
        if row > 0 && rows[row - 1] == *value && !random.one_in(50) {
            ends.pop();
            values.pop();
        }
        ends.push(Some((row + 1 + offset) as i128));
        values.push(*value);
    }
    if let (Some(last), true) = (ends.last_mut(), random.one_in(4)) {
        *last = last.map(|end| end + 7);
    }
    let ends_ptype = random.pick(&[PType::U16, PType::U32, PType::U64]);
    Tree::new("vortex.runend")
        .metadata(fields(&[(1, number(ends_ptype)), (2, ends.len() as u64), (3, offset as u64)]))
        .child(integers(random, ends_ptype, &ends, depth - 1))
        .child(integers(random, ptype, &values, depth - 1))
}

/// A description of patches, and their indices.
fn patches(random: &mut Random, positions: &[usize], depth: usize) -> (Vec<u8>, Tree) {
    let ptype = random.pick(&[PType::U16, PType::U32, PType::U64]);
    let offset = random.below(3);
    let indices = positions.iter().map(|row| Some((row + offset) as i128)).collect();
    let description = fields(&[(1, positions.len() as u64), (2, offset as u64), (3, number(ptype))]);
    (description, integers(random, ptype, &indices, depth))
}

fn sparse(random: &mut Random, ptype: PType, rows: &Rows, depth: usize) -> Tree {
    let fill = rows[random.below(rows.len())];
    let positions: Vec<usize> =
        (0..rows.len()).filter(|row| rows[*row] != fill || random.one_in(100)).collect();
    let values = positions.iter().map(|row| rows[*row]).collect();
    let (description, indices) = patches(random, &positions, depth - 1);
    Tree::new("vortex.sparse")
        .metadata(message(1, &description))
        .buffer(scalar(fill, ptype))
        .child(indices)
        .child(integers(random, ptype, &values, depth - 1))
}

/// A tree, its type, and the values it represents.
type Case = (Tree, DType, ArrayRef);

type MakeCase = fn(&mut Random) -> Case;

fn integer_case(random: &mut Random) -> Case {
    let ptype = random.pick(&PType::ALL[..8]);
    let nullable = random.one_in(2);
    let (low, high) = range(ptype);
    let len = len(random);
    let rows = rows(random, len, nullable, low, high);
    let tree = integers(random, ptype, &rows, 3);
    let wide: ArrayRef = match ptype {
        PType::U64 => Arc::new(
            rows.iter().map(|v| v.map(|v| u64::try_from(v).unwrap())).collect::<arrow::array::UInt64Array>(),
        ),
        _ => Arc::new(rows.iter().map(|v| v.map(|v| i64::try_from(v).unwrap())).collect::<Int64Array>()),
    };
    let expected = arrow::compute::cast(&wide, &primitive(ptype)).unwrap();
    (tree, DType::Primitive(ptype, nullable), expected)
}

fn decimal_case(random: &mut Random) -> Case {
    let nullable = random.one_in(2);
    let width = random.below(6);
    let bits = [8, 16, 32, 64, 100, 100][width];
    let (low, high) = (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1);
    let len = len(random);
    let rows = rows(random, len, nullable, low, high);
    let precision = 30 + random.below(9) as u8;
    let dtype = DType::Decimal(DecimalType::try_new(precision, 3).unwrap(), nullable);
    let bytes = bytes(random, &rows, 1 << width);
    let tree = Tree::new("vortex.decimal").metadata(fields(&[(1, width as u64)])).buffer(bytes);
    (with_validity(tree, &rows), dtype, decimals(&rows, precision))
}

fn decimals(rows: &Rows, precision: u8) -> ArrayRef {
    let decimals: Decimal128Array = rows.iter().copied().collect();
    Arc::new(decimals.with_data_type(DataType::Decimal128(precision, 3)))
}

fn decimal_byte_parts_case(random: &mut Random) -> Case {
    let nullable = random.one_in(2);
    let ptype = random.pick(&PType::ALL[4..8]);
    let (low, high) = range(ptype);
    let len = len(random);
    let rows = rows(random, len, nullable, low, high);
    let dtype = DType::Decimal(DecimalType::try_new(20, 3).unwrap(), nullable);
    let tree = Tree::new("vortex.decimal_byte_parts")
        .metadata(fields(&[(1, number(ptype))]))
        .child(integers(random, ptype, &rows, 2));
    (tree, dtype, decimals(&rows, 20))
}

fn timestamp_case(random: &mut Random) -> Case {
    let nullable = random.one_in(2);
    let len = len(random);
    let stamps = rows(random, len, nullable, -(1 << 44), 1 << 44);
    let parts: [(PType, Rows); 3] = [
        (PType::I32, stamps.iter().map(|v| v.map(|v| v / 86_400_000)).collect()),
        (PType::I64, stamps.iter().map(|v| Some(v.unwrap_or(0) % 86_400_000 / 1000)).collect()),
        (PType::I16, stamps.iter().map(|v| Some(v.unwrap_or(9) % 1000)).collect()),
    ];
    let ptypes: Vec<(u32, u64)> = (1..).zip(parts.iter().map(|(ptype, _)| number(*ptype))).collect();
    let tree = Tree::new("vortex.datetimeparts").metadata(fields(&ptypes));
    let tree = parts.iter().fold(tree, |tree, (ptype, part)| tree.child(integers(random, *ptype, part, 2)));
    let storage = DType::Primitive(PType::I64, nullable);
    let extension = Extension::try_new("vortex.timestamp", storage, vec![2, 0, 0]).unwrap();
    let expected: TimestampMillisecondArray =
        stamps.iter().map(|v| v.map(|v| i64::try_from(v).unwrap())).collect();
    (tree, DType::Extension(Arc::new(extension)), Arc::new(expected))
}

fn alp_case(random: &mut Random) -> Case {
    let nullable = random.one_in(2);
    let is_double = random.one_in(2);
    let ptype = if is_double { PType::I64 } else { PType::I32 };
    let (low, high) = match random.below(3) {
        0 => range(ptype),
        1 => (-1000, 1000),
        _ => (1 << 20, 1 << 22),
    };
    let len = len(random);
    let rows = rows(random, len, nullable, low, high);
    let (e, f) = (random.below(11), random.below(11));
    let decoded = rows.iter().map(|v| {
        let value = i64::try_from(v.unwrap_or(0)).unwrap();
        if is_double {
            value as f64
                * format!("1e{f}").parse::<f64>().unwrap()
                * format!("1e-{e}").parse::<f64>().unwrap()
        } else {
            let (up, down) = (format!("1e{f}").parse::<f32>(), format!("1e-{e}").parse::<f32>());
            f64::from(value as f32 * up.unwrap() * down.unwrap())
        }
    });
    let mut decoded: Vec<f64> = decoded.collect();
    let positions: Vec<usize> = (0..len).filter(|row| rows[*row].is_some() && random.one_in(30)).collect();
    let special = [f64::NAN, -0.0, f64::INFINITY, f64::NEG_INFINITY, 0.25, -3.5, 0.0];
    let exceptions: Vec<f64> = positions.iter().map(|_| random.pick(&special)).collect();
    for (row, value) in positions.iter().zip(&exceptions) {
        decoded[*row] = *value;
    }
    let mut metadata = fields(&[(1, e as u64), (2, f as u64)]);
    let mut children = vec![integers(random, ptype, &rows, 2)];
    if !positions.is_empty() {
        let (description, indices) = patches(random, &positions, 1);
        metadata.extend(message(3, &description));
        children.push(indices);
        let narrow: Vec<f32> = exceptions.iter().map(|v| *v as f32).collect();
        children.push(if is_double { Tree::primitive(&exceptions) } else { Tree::primitive(&narrow) });
    }
    let tree = children.into_iter().fold(Tree::new("vortex.alp").metadata(metadata), Tree::child);
    (
        tree,
        DType::Primitive(if is_double { PType::F64 } else { PType::F32 }, nullable),
        floats(&decoded, &rows, is_double),
    )
}

fn floats(values: &[f64], rows: &Rows, is_double: bool) -> ArrayRef {
    let nulls = NullBuffer::from_iter(rows.iter().map(Option::is_some));
    let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
    if is_double {
        return Arc::new(Float64Array::new(values.to_vec().into(), nulls));
    }
    Arc::new(Float32Array::new(values.iter().map(|v| *v as f32).collect(), nulls))
}

fn alprd_case(random: &mut Random) -> Case {
    let nullable = random.one_in(2);
    let len = len(random);
    let entries: Vec<u64> = (0..1 + random.below(8)).map(|_| random.bits() & 0xffff).collect();
    let width = 48 + random.below(10);
    let codes = rows(random, len, nullable, 0, entries.len() as i128 - 1);
    let right = rows(random, len, false, 0, (1 << width) - 1);
    let mut left: Vec<u64> = codes.iter().map(|code| entries[code.unwrap_or(0) as usize]).collect();
    let positions: Vec<usize> = (0..len).filter(|row| codes[*row].is_some() && random.one_in(20)).collect();
    let exceptions: Rows = positions.iter().map(|_| Some(i128::from(random.bits() & 0xffff))).collect();
    for (row, part) in positions.iter().zip(&exceptions) {
        left[*row] = part.map_or(0, |part| u64::try_from(part).unwrap());
    }
    let mut metadata = fields(&[(1, width as u64), (2, entries.len() as u64), (4, number(PType::U16))]);
    prost::encoding::uint64::encode_packed(3, &entries, &mut metadata);
    let mut children = vec![integers(random, PType::U16, &codes, 2), integers(random, PType::U64, &right, 2)];
    if !positions.is_empty() {
        let (description, indices) = patches(random, &positions, 1);
        metadata.extend(message(5, &description));
        children.push(indices);
        children.push(integers(random, PType::U16, &exceptions, 1));
    }
    let tree = children.into_iter().fold(Tree::new("vortex.alprd").metadata(metadata), Tree::child);
    let bits = left.iter().zip(&right).map(|(left, right)| left << width | right.unwrap_or(0) as u64);
    let values: Vec<f64> = bits.map(f64::from_bits).collect();
    (tree, DType::Primitive(PType::F64, nullable), floats(&values, &codes, true))
}

const CASES: [(&str, MakeCase); 6] = [
    ("integers", integer_case),
    ("decimals", decimal_case),
    ("decimal byte parts", decimal_byte_parts_case),
    ("timestamps", timestamp_case),
    ("alp", alp_case),
    ("alprd", alprd_case),
];

#[test]
fn random_trees_conform() {
    for (name, case) in CASES {
        for seed in 0..60 {
            let (tree, dtype, expected) = case(&mut Random::new(seed));
            let checked = catch_unwind(AssertUnwindSafe(|| {
                let array = tree.load(&dtype, expected.len()).unwrap();
                conformance::check(&array, &expected);
            }));
            assert!(checked.is_ok(), "{name} of seed {seed}: {tree:?}");
        }
    }
}

#[test]
fn random_damage_does_not_panic() {
    for (name, case) in CASES {
        for seed in 0..400 {
            let random = &mut Random::new(seed);
            let (tree, dtype, expected) = case(random);
            let len = if random.one_in(8) { random.below(3000) } else { expected.len() };
            let damaged = tree.damaged(&mut |end| random.below(end));
            let used = catch_unwind(AssertUnwindSafe(|| exercise(&damaged, &dtype, len, &expected)));
            assert!(used.is_ok(), "{name} of seed {seed}: {damaged:?}");
        }
    }
}

/// Runs all operations; errors and different values are acceptable.
fn exercise(tree: &Tree, dtype: &DType, len: usize, values: &ArrayRef) {
    let Ok(array) = tree.load(dtype, len) else { return };
    let to = data_type(dtype).unwrap();
    for array in [
        Ok(Arc::clone(&array)),
        array.slice(len / 3..len),
        array.filter(&Mask::from_indices(len, (0..len).step_by(3))),
    ] {
        let Ok(array) = array else { continue };
        if let Ok(decoded) = array.decode(&to) {
            decoded.to_data().validate_full().unwrap();
            if let Some(decimals) = decoded.as_primitive_opt::<Decimal128Type>() {
                decimals.validate_decimal_precision(decimals.precision()).unwrap();
            }
            assert_eq!(decoded.len(), array.len());
        }
        let _ = array.validity();
        let _ = array.matches(&Predicate::IsNull);
        if !values.is_empty() {
            let constant = crate::scalar::Scalar::from_arrow(values.as_ref(), 0, dtype).unwrap();
            let _ = array.matches(&Predicate::Compare(crate::expr::CompareOp::LtEq, constant));
        }
        if let Some(last) = array.len().checked_sub(1) {
            let rows = arrow::array::UInt64Array::from(vec![last as u64, 0]);
            let _ = array.take(&rows).and_then(|taken| taken.decode(&to));
        }
    }
}
