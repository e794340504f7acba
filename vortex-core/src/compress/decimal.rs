//! Decimals: stored as integers, as narrow as the values allow. Those that exceed 64 bits remain decimals, of which
//! those that repeat are stored once, with codes.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, Hash};

use arrow::array::{Array as _, ArrayRef, ArrowPrimitiveType, AsArray as _, PrimitiveArray};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowNativeType, Decimal128Type, Decimal256Type, i256};

use super::dictionary;
use super::numbers::{Numbers, bits, compress_as, compress_codes, without_garbage};
use super::scheme::{Context, Kind, NODE_OVERHEAD, Plain, Scheme, choose};
use super::text_dictionary::Folded;
use super::{boolean, canonical, one_value};
use crate::dtype::{DType, PType};
use crate::encodings::{decimal, decimal_byte_parts, dict};
use crate::release::since;
use crate::scalar::Value;
use crate::wire::WriteNode;
use crate::{Error, Result};

/// Compresses a column of decimals.
///
/// # Errors
/// If a child cannot be encoded.
pub(super) fn compress(cx: &Context, array: &ArrayRef, dtype: &DType) -> Result<WriteNode> {
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    if let Some(decimals) = array.as_primitive_opt::<Decimal128Type>() {
        let Some(range) = range(decimals) else { return canonical::decimals(array) };
        return within_128_bits(cx, dtype, decimals.values(), nulls, range);
    }
    let Some(decimals) = array.as_primitive_opt::<Decimal256Type>() else {
        return Err(Error::unsupported("decimal type to write", dtype));
    };
    let Some((low, high)) = range(decimals) else { return canonical::decimals(array) };
    let (Some(least), Some(most)) = (low.to_i128(), high.to_i128()) else {
        return wide(cx, decimals.values(), nulls, low == high);
    };
    let narrow = |(row, value): (usize, &i256)| {
        if nulls.is_none_or(|nulls| nulls.is_valid(row)) { value.as_i128() } else { least }
    };
    let values: ScalarBuffer<i128> = decimals.values().iter().enumerate().map(narrow).collect();
    within_128_bits(cx, dtype, &values, nulls, (least, most))
}

/// The minimum and the maximum valid value.
fn range<T: ArrowPrimitiveType>(decimals: &PrimitiveArray<T>) -> Option<(T::Native, T::Native)>
where
    T::Native: Ord,
{
    if decimals.null_count() == 0 {
        let values = decimals.values();
        return values.iter().min().copied().zip(values.iter().max().copied());
    }
    let valid = || decimals.iter().flatten();
    valid().min().zip(valid().max())
}

/// Number of decimal digits that all fit the integer type.
fn digits(ptype: PType) -> u8 {
    match ptype {
        PType::I8 => 2,
        PType::I16 => 4,
        PType::I32 => 9,
        _ => 18,
    }
}

/// Number of digits that the integers must have room for, regardless of the values.
fn least_digits(cx: &Context, dtype: &DType) -> u8 {
    match dtype {
        DType::Decimal(decimal, _) if cx.reader() < since::NARROW_DECIMALS => decimal.precision(),
        _ => 0,
    }
}

/// Whether decimals that fit 64 bits can be stored as integers.
fn can_be_parts(cx: &Context, dtype: &DType) -> bool {
    least_digits(cx, dtype) <= digits(PType::I64)
}

/// Compresses decimals that fit 64 bits.
fn parts(
    cx: &Context,
    dtype: &DType,
    values: &ScalarBuffer<i128>,
    nulls: Option<&NullBuffer>,
    (low, high): (i64, i64),
) -> Result<WriteNode> {
    // Parts are signed.
    let least = least_digits(cx, dtype);
    let fits = |ptype: &PType| digits(*ptype) >= least && ptype.holds(low.into(), high.into());
    let ptype = [PType::I8, PType::I16, PType::I32].into_iter().find(fits).unwrap_or(PType::I64);
    // The cast is lossless for valid values.
    let part = compress_as(cx, ptype, values.iter().map(|value| *value as u64), nulls)?;
    Ok(decimal_byte_parts::encode(part, ptype))
}

/// Compresses decimals that fit 128 bits.
fn within_128_bits(
    cx: &Context,
    dtype: &DType,
    values: &ScalarBuffer<i128>,
    nulls: Option<&NullBuffer>,
    (low, high): (i128, i128),
) -> Result<WriteNode> {
    match (i64::try_from(low), i64::try_from(high)) {
        (Ok(low), Ok(high)) if can_be_parts(cx, dtype) => parts(cx, dtype, values, nulls, (low, high)),
        _ => wide(cx, values, nulls, low == high),
    }
}

/// Compresses decimals that cannot be stored as integers; all valid rows are equal if `is_uniform`.
fn wide<N: Unscaled>(
    cx: &Context,
    values: &ScalarBuffer<N>,
    nulls: Option<&NullBuffer>,
    is_uniform: bool,
) -> Result<WriteNode> {
    let first = nulls.map_or(Some(0), |nulls| nulls.valid_indices().next());
    if let Some(row) = first.filter(|_| is_uniform)
        && let Some(node) = one_value(cx, &Value::Decimal(values[row].into()), nulls)?
    {
        return Ok(node);
    }
    let column = Wide::new(values, nulls);
    let decoded = Plain { rows: values.len(), bytes: size_of_val(&**values) + column.hashes.null_bytes() };
    let plain = || Ok(node(values.clone()).children(boolean::validity(cx, nulls)?));
    choose(&[&Dictionary as &dyn Scheme<Wide<'_, N>>, &Halves], &column, cx, decoded, plain)
}

/// A node of unscaled values, without validity.
fn node<N: Unscaled>(values: ScalarBuffer<N>) -> WriteNode {
    decimal::encode(size_of::<N>().ilog2().cast_signed(), values.into_inner())
}

/// Unscaled values of decimals.
trait Unscaled: ArrowNativeType + Eq + Hash + Into<i256> {}

impl Unscaled for i128 {}
impl Unscaled for i256 {}

/// Decimals that cannot be stored as integers.
struct Wide<'a, N: Unscaled> {
    values: &'a ScalarBuffer<N>,
    /// The validity, if some rows are null; never all of them.
    nulls: Option<&'a NullBuffer>,
    /// Hashes of the values, which repeat as these do.
    hashes: Numbers<u64>,
}

impl<'a, N: Unscaled> Wide<'a, N> {
    fn new(values: &'a ScalarBuffer<N>, nulls: Option<&'a NullBuffer>) -> Self {
        let hasher = BuildHasherDefault::<Folded>::default();
        let hashes: Vec<u64> = values.iter().map(|value| hasher.hash_one(value)).collect();
        let hashes = match nulls {
            Some(nulls) => without_garbage(&hashes, nulls),
            None => hashes,
        };
        Self { values, nulls, hashes: Numbers::new(PType::U64, hashes.into(), nulls.cloned()) }
    }

    /// The upper and the lower half of each value, if all have 128 bits.
    fn halves(&self) -> Option<impl Iterator<Item = (i64, u64)>> {
        let halves = |value: &N| {
            let (lower, _) = (*value).into().to_parts();
            ((lower >> 64) as u64 as i64, lower as u64)
        };
        (size_of::<N>() == size_of::<i128>()).then(|| self.values.iter().map(halves))
    }

    /// The values in order of first appearance, and the code of each row; `None` if there are more than `most`
    /// values. Null rows have arbitrary codes.
    fn distinct(&self, most: usize) -> Option<(Vec<N>, Vec<u32>)> {
        let mut values = Vec::new();
        let mut known: HashMap<N, u32, BuildHasherDefault<Folded>> = HashMap::default();
        let mut codes = Vec::with_capacity(self.values.len());
        for (row, value) in self.values.iter().enumerate() {
            if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
                codes.push(0);
                continue;
            }
            codes.push(*known.entry(*value).or_insert_with(|| {
                values.push(*value);
                values.len() as u32 - 1
            }));
            if values.len() > most {
                return None;
            }
        }
        Some((values, codes))
    }
}

/// Decimals of 128 bits as two integers, each of which is compressed.
struct Halves;

impl<N: Unscaled> Scheme<Wide<'_, N>> for Halves {
    fn kind(&self) -> Kind {
        Kind::Halves
    }

    fn estimate(&self, column: &Wide<'_, N>, _: &Context) -> Option<usize> {
        let valid = |row: usize| column.nulls.is_none_or(|nulls| nulls.is_valid(row));
        let halves = column.halves()?.enumerate().filter(|(row, _)| valid(*row));
        let (mut least, mut most, mut ones) = (i64::MAX, i64::MIN, 0);
        for (_, (upper, lower)) in halves {
            (least, most, ones) = (least.min(upper), most.max(upper), ones | lower);
        }
        // Values that have been scaled up to more digits than they need are multiples of a power of two, too.
        let lower = bits(ones).saturating_sub(ones.trailing_zeros() as usize);
        let row_bits = bits(most.abs_diff(least)) + lower;
        Some(column.values.len() * row_bits / 8 + column.hashes.null_bytes() + 2 * NODE_OVERHEAD)
    }

    fn encode(&self, column: &Wide<'_, N>, cx: &Context) -> Result<Option<WriteNode>> {
        let Some(halves) = column.halves() else { return Ok(None) };
        let (mut upper, mut lower): (Vec<u64>, Vec<u64>) =
            halves.map(|(upper, lower)| (upper.cast_unsigned(), lower)).unzip();
        if let Some(nulls) = column.nulls {
            (upper, lower) = (without_garbage(&upper, nulls), without_garbage(&lower, nulls));
        }
        let signed = || upper.iter().map(|half| half.cast_signed());
        let ptype = PType::for_signed(signed().min().unwrap_or(0), signed().max().unwrap_or(0));
        let cx = &cx.below(Kind::Halves, &[]);
        let upper = compress_as(cx, ptype, upper.into_iter(), column.nulls)?;
        let lower = compress_as(cx, PType::U64, lower.into_iter(), None)?;
        Ok(Some(decimal_byte_parts::encode_halves(upper, ptype, lower)))
    }
}

/// Decimals encoded by codes. The values are in order of first appearance, so that codes of runs ascend: they take
/// the place of runs of decimals, which old readers do not support.
struct Dictionary;

impl<N: Unscaled> Scheme<Wide<'_, N>> for Dictionary {
    fn kind(&self) -> Kind {
        Kind::Dictionary
    }

    fn estimate(&self, column: &Wide<'_, N>, cx: &Context) -> Option<usize> {
        if column.nulls.is_some() && cx.reader() < since::NULLABLE_CODES {
            return None;
        }
        let hashes = &column.hashes;
        let distinct = hashes.distinct();
        if distinct > dictionary::most_values(hashes.len()) {
            return None;
        }
        let values = distinct * size_of::<N>();
        Some(dictionary::code_cost(hashes, distinct, cx) + values + hashes.null_bytes() + NODE_OVERHEAD)
    }

    fn encode(&self, column: &Wide<'_, N>, cx: &Context) -> Result<Option<WriteNode>> {
        let most = dictionary::most_values(column.values.len());
        let Some((values, codes)) = column.distinct(most) else { return Ok(None) };
        // At most as many as two-byte codes can distinguish.
        let count = values.len() as u32;
        let (ptype, codes) = compress_codes(&cx.below(Kind::Dictionary, &[]), codes, count, column.nulls)?;
        Ok(Some(dict::encode(codes, ptype, column.nulls.is_some(), node(values.into()), count)))
    }
}
