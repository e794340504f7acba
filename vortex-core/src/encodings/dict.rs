//! Dictionary: each distinct value once, and a code per row.
//!
//! ```text
//! rows  b a - b b      codes   [1, 0, -, 1, 1]
//!                      values  [a, b]
//! ```
//!
//! Metadata: number of values, integer type of the codes and whether they are nullable. Children:
//! `codes` and `values`. A row is null if its code is, or its value is; codes under nulls are
//! arbitrary.
//!
//! Slices share the values, also decoded ones and outcomes of predicates. Decoding gathers; views
//! of strings are gathered without their bytes. A predicate runs once per value and then becomes
//! a comparison of codes, or a lookup by code.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayData, AsArray as _, BooleanArray, DictionaryArray, UInt32Array, UInt64Array, make_array,
    new_empty_array, new_null_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::compute::CastOptions;
use arrow::datatypes::{ArrowNativeType, DataType, UInt8Type, UInt16Type, i256};
use parking_lot::Mutex;

use super::Encoding;
use crate::array::{ArrayRef, ArrowRef, EncodedArray, Node, Validity, bytes, decode_integers, present};
use crate::dtype::arrow::{data_type, ptype_of};
use crate::dtype::{DType, PType};
use crate::expr::{CompareOp, Predicate};
use crate::kernels::gather::{Key, gather, in_range};
use crate::kernels::views::gather_views;
use crate::limits::Limits;
use crate::mask::Mask;
use crate::scalar::{Scalar, Value};
use crate::wire::WriteNode;
use crate::{Error, Result, match_integer};

/// The `vortex.dict` encoding.
#[derive(Debug)]
pub(super) struct Dict;

const ID: &str = "vortex.dict";

/// Outcomes remembered per dictionary: a query has few predicates on one column.
const MAX_OUTCOMES: usize = 16;

/// Arrow types that decoded values are remembered in.
const MAX_DECODED: usize = 4;

/// Fewer rows than one per this many values do not pay for decoding all values.
const VALUES_PER_ROW: usize = 8;

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(uint32, tag = "1")]
    value_count: u32,
    #[prost(int32, tag = "2")]
    codes_ptype: i32,
    /// Absent in files of old writers: then the codes are nullable if the array is.
    #[prost(bool, optional, tag = "3")]
    nullable_codes: Option<bool>,
}

impl Encoding for Dict {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<ArrayRef> {
        let metadata = node.message::<Metadata>()?;
        node.expect_children(2)?;
        node.expect_buffers(0)?;
        let ptype = PType::try_from_number(metadata.codes_ptype.into())?;
        let nullable = metadata.nullable_codes.unwrap_or(node.dtype().is_nullable());
        if nullable && !node.dtype().is_nullable() {
            return Err(Error::corrupt(format!(
                "nullable codes under the non-nullable type {}",
                node.dtype()
            )));
        }
        let codes = node.child(0, &DType::Primitive(ptype, nullable), node.len())?;
        let values = node.child(1, node.dtype(), metadata.value_count as usize)?;
        let values = Arc::new(SharedValues::new(values));
        Ok(Arc::new(DictArray::try_new(codes, values, *node.limits())?))
    }
}

/// Values of a dictionary, shared by all arrays that have codes for them. What was worked out
/// about them once is remembered.
#[derive(Debug)]
pub(crate) struct SharedValues {
    array: ArrayRef,
    decoded: Mutex<Vec<ArrowRef>>,
    outcomes: Mutex<Vec<(Predicate, BooleanArray)>>,
}

impl SharedValues {
    /// These values, not yet decoded.
    pub(crate) fn new(array: ArrayRef) -> Self {
        Self { array, decoded: Mutex::default(), outcomes: Mutex::default() }
    }

    fn remembered(&self, to: &DataType) -> Option<ArrowRef> {
        self.decoded.lock().iter().find(|array| array.data_type() == to).cloned()
    }

    /// All values as Arrow type `to`. Decodes once; those who ask meanwhile wait for it.
    fn decoded(&self, to: &DataType) -> Result<ArrowRef> {
        let mut all = self.decoded.lock();
        if let Some(found) = all.iter().find(|array| array.data_type() == to) {
            return Ok(Arc::clone(found));
        }
        let decoded = self.array.decode(to)?;
        if all.len() < MAX_DECODED {
            all.push(Arc::clone(&decoded));
        }
        Ok(decoded)
    }

    /// The outcome of a predicate per value.
    fn outcome(&self, predicate: &Predicate) -> Result<BooleanArray> {
        let mut all = self.outcomes.lock();
        if let Some((_, found)) = all.iter().find(|(known, _)| same(known, predicate)) {
            return Ok(found.clone());
        }
        let outcome = match self.remembered(&data_type(self.array.dtype())?) {
            Some(values) => predicate.evaluate(&values)?,
            None => self.array.matches(predicate)?,
        };
        if all.len() == MAX_OUTCOMES {
            all.remove(0);
        }
        all.push((predicate.clone(), outcome.clone()));
        Ok(outcome)
    }
}

/// Whether two predicates are certain to have the same outcome.
fn same(left: &Predicate, right: &Predicate) -> bool {
    // By order, not by `==`: zero and minus zero are different constants.
    let equal = |l: &Scalar, r: &Scalar| l.dtype() == r.dtype() && l.compare(r).is_some_and(|o| o.is_eq());
    match (left, right) {
        (Predicate::Compare(l_op, l), Predicate::Compare(r_op, r)) => l_op == r_op && equal(l, r),
        (Predicate::Between(l_low, l_high), Predicate::Between(r_low, r_high)) => {
            equal(l_low, r_low) && equal(l_high, r_high)
        }
        (Predicate::In(l), Predicate::In(r)) => Arc::ptr_eq(l, r),
        (Predicate::Like(l), Predicate::Like(r)) => l == r,
        _ => false,
    }
}

/// Codes and the values they stand for.
#[derive(Debug)]
pub(crate) struct DictArray {
    dtype: DType,
    codes: ArrayRef,
    values: Arc<SharedValues>,
    limits: Limits,
}

impl DictArray {
    /// Codes of any integer type for these values. The array is nullable if either is.
    ///
    /// # Errors
    /// If codes are not integers.
    pub(crate) fn try_new(codes: ArrayRef, values: Arc<SharedValues>, limits: Limits) -> Result<Self> {
        let ptype = codes.dtype().ptype()?;
        if !ptype.is_integer() {
            return Err(Error::corrupt(format!("codes are {ptype}, not integers")));
        }
        let dtype = values.array.dtype();
        let dtype = if codes.dtype().is_nullable() { dtype.with_nullable(true) } else { dtype.clone() };
        Ok(Self { dtype, codes, values, limits })
    }

    fn with_codes(&self, codes: ArrayRef) -> ArrayRef {
        Arc::new(Self {
            dtype: self.dtype.clone(),
            codes,
            values: Arc::clone(&self.values),
            limits: self.limits,
        })
    }

    fn keys(&self) -> Result<Keys> {
        let decoded = self.codes.decode(&data_type(self.codes.dtype())?)?;
        let nulls = decoded.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
        let keys = match self.codes.dtype().ptype()? {
            PType::U8 => AnyKeys::U8(decoded.as_primitive::<UInt8Type>().values().clone()),
            PType::U16 => AnyKeys::U16(decoded.as_primitive::<UInt16Type>().values().clone()),
            PType::U32 => {
                AnyKeys::U32(decoded.as_primitive::<arrow::datatypes::UInt32Type>().values().clone())
            }
            // There are fewer than 2^32 values; what lies beyond is out of range as `u32::MAX` is.
            _ => AnyKeys::U32(
                decode_integers(&self.codes, "codes", |code| Ok(u32::try_from(code).unwrap_or(u32::MAX)))?
                    .into(),
            ),
        };
        Keys { keys, nulls }.in_range_of(self.values.array.len())
    }

    /// Decodes by picking the wanted ones among encoded values, which beats decoding all of them
    /// for few rows. `None` if it would not, or there are nulls to look after.
    fn decode_few(&self, to: &DataType) -> Result<Option<ArrowRef>> {
        if self.codes.len().saturating_mul(VALUES_PER_ROW) > self.values.array.len()
            || self.codes.dtype().is_nullable()
            || self.values.remembered(to).is_some()
        {
            return Ok(None);
        }
        let keys = self.keys()?;
        let indices: UInt64Array = match &keys.keys {
            AnyKeys::U8(keys) => keys.iter().map(|key| u64::from(*key)).collect(),
            AnyKeys::U16(keys) => keys.iter().map(|key| u64::from(*key)).collect(),
            AnyKeys::U32(keys) => keys.iter().map(|key| u64::from(*key)).collect(),
        };
        Ok(Some(self.values.array.take(&indices)?.decode(to)?))
    }

    fn decode_dictionary(&self, key: &DataType, value: &DataType) -> Result<ArrowRef> {
        let values = self.values.decoded(value)?;
        let keys = self.keys()?;
        // Not all that read dictionaries look for nulls among the values.
        let nulls = if values.is_empty() { keys.nulls.clone() } else { keys.null_rows(&values)? };
        let keys: ArrowRef = match keys.keys {
            AnyKeys::U8(keys) => Arc::new(arrow::array::UInt8Array::new(keys, nulls)),
            AnyKeys::U16(keys) => Arc::new(arrow::array::UInt16Array::new(keys, nulls)),
            AnyKeys::U32(keys) => Arc::new(UInt32Array::new(keys, nulls)),
        };
        let options = CastOptions { safe: false, ..Default::default() };
        let keys = arrow::compute::cast_with_options(&keys, key, &options)?;
        let ptype = ptype_of(key).ok_or_else(|| Error::invalid(format!("dictionary keys of type {key}")))?;
        match_integer!(ptype, |K| {
            Ok(Arc::new(DictionaryArray::<K>::try_new(keys.as_primitive::<K>().clone(), values)?))
        }, else Err(Error::invalid(format!("dictionary keys of type {key}"))))
    }
}

/// Codes of rows, each in range of the values.
struct Keys {
    keys: AnyKeys,
    nulls: Option<NullBuffer>,
}

#[derive(Clone)]
enum AnyKeys {
    U8(ScalarBuffer<u8>),
    U16(ScalarBuffer<u16>),
    U32(ScalarBuffer<u32>),
}

/// Runs `$body` with `$slice` bound to the slice of keys.
macro_rules! with_keys {
    ($keys:expr, |$slice:ident| $body:expr) => {
        match $keys {
            AnyKeys::U8($slice) => $body,
            AnyKeys::U16($slice) => $body,
            AnyKeys::U32($slice) => $body,
        }
    };
}

impl Keys {
    fn len(&self) -> usize {
        with_keys!(&self.keys, |keys| keys.len())
    }

    /// Checks all keys against the number of values. Those under nulls become 0 if one is out of
    /// range, which for no values at all still is.
    fn in_range_of(self, values: usize) -> Result<Self> {
        fn clean<K: Key + ArrowNativeType>(
            keys: ScalarBuffer<K>,
            values: usize,
            nulls: Option<&NullBuffer>,
        ) -> Result<ScalarBuffer<K>> {
            if in_range(&keys, values) {
                return Ok(keys);
            }
            let wrong = |keys: &[K]| {
                let highest = keys.iter().copied().max().map_or(0, Key::index);
                Error::corrupt(format!("code {highest} of {values} values"))
            };
            let Some(nulls) = nulls else { return Err(wrong(&keys)) };
            let keys: Vec<K> =
                keys.iter().zip(nulls).map(|(key, valid)| if valid { *key } else { K::default() }).collect();
            if in_range(&keys, values.max(1)) && (values > 0 || nulls.null_count() == nulls.len()) {
                return Ok(keys.into());
            }
            Err(wrong(&keys))
        }
        let nulls = self.nulls.as_ref();
        let keys = match self.keys {
            AnyKeys::U8(keys) => AnyKeys::U8(clean(keys, values, nulls)?),
            AnyKeys::U16(keys) => AnyKeys::U16(clean(keys, values, nulls)?),
            AnyKeys::U32(keys) => AnyKeys::U32(clean(keys, values, nulls)?),
        };
        Ok(Self { keys, nulls: self.nulls })
    }

    /// The values at the keys, of any Arrow type.
    fn gather(self, values: &ArrowRef, limits: &Limits) -> Result<ArrowRef> {
        let len = self.len();
        if len == 0 {
            return Ok(new_empty_array(values.data_type()));
        }
        if values.is_empty() {
            return Ok(new_null_array(values.data_type(), len));
        }
        let nulls = self.null_rows(values)?;
        let missing = || Error::corrupt("a code has no value");
        match values.data_type() {
            DataType::Utf8View => with_keys!(&self.keys, |keys| {
                let views = gather_views(values.as_string_view(), keys, nulls);
                Ok(Arc::new(views.ok_or_else(missing)?) as ArrowRef)
            }),
            DataType::BinaryView => with_keys!(&self.keys, |keys| {
                let views = gather_views(values.as_binary_view(), keys, nulls);
                Ok(Arc::new(views.ok_or_else(missing)?) as ArrowRef)
            }),
            DataType::Boolean => {
                let bits: Vec<u8> = values.as_boolean().values().iter().map(u8::from).collect();
                let rows = self.lookup(&bits)?;
                let bits = BooleanBuffer::collect_bool(len, |row| rows[row] != 0);
                Ok(Arc::new(BooleanArray::new(bits, nulls)))
            }
            other => match other.primitive_width() {
                Some(width) => {
                    limits.decoded_bytes(len, width)?;
                    let rows = match width {
                        1 => self.words::<u8>(values),
                        2 => self.words::<u16>(values),
                        4 => self.words::<u32>(values),
                        8 => self.words::<u64>(values),
                        16 => self.words::<u128>(values),
                        _ => self.words::<i256>(values),
                    };
                    let data = ArrayData::builder(other.clone()).len(len).nulls(nulls);
                    Ok(make_array(data.add_buffer(rows.ok_or_else(missing)?).build()?))
                }
                None => self.copy(values, limits),
            },
        }
    }

    /// The values, as words of their width, at the keys.
    fn words<T: ArrowNativeType>(&self, values: &ArrowRef) -> Option<Buffer> {
        let data = values.to_data();
        let values = data.buffers().first()?.typed_data::<T>().get(data.offset()..)?.get(..data.len())?;
        with_keys!(&self.keys, |keys| gather(values, keys)).map(Buffer::from_vec)
    }

    /// One byte per value, at the keys.
    fn lookup(&self, by_value: &[u8]) -> Result<Vec<u8>> {
        with_keys!(&self.keys, |keys| gather(by_value, keys))
            .ok_or_else(|| Error::corrupt("a code has no value"))
    }

    /// Nulls of the rows: of the codes, and of the values they stand for.
    fn null_rows(&self, values: &ArrowRef) -> Result<Option<NullBuffer>> {
        let Some(of_values) = values.logical_nulls().filter(|nulls| nulls.null_count() > 0) else {
            return Ok(self.nulls.clone());
        };
        self.with_value_nulls(&of_values).map(Some)
    }

    fn with_value_nulls(&self, of_values: &NullBuffer) -> Result<NullBuffer> {
        let valid: Vec<u8> = of_values.iter().map(u8::from).collect();
        let rows = self.lookup(&valid)?;
        let bits = BooleanBuffer::collect_bool(rows.len(), |row| rows[row] != 0);
        Ok(NullBuffer::new(match &self.nulls {
            Some(nulls) => &bits & nulls.inner(),
            None => bits,
        }))
    }

    /// Copies values of any other type: lists, structs, strings with offsets.
    fn copy(&self, values: &ArrowRef, limits: &Limits) -> Result<ArrowRef> {
        let sizes = row_bytes(values);
        let total = with_keys!(&self.keys, |keys| {
            keys.iter().fold(0u64, |sum, key| sum.saturating_add(sizes[key.index()]))
        });
        limits.decoded_bytes(usize::try_from(total).unwrap_or(usize::MAX), 1)?;
        if matches!(values.data_type(), DataType::Utf8 | DataType::Binary) && i32::try_from(total).is_err() {
            return Err(Error::limit(format!("{total} bytes do not fit {}", values.data_type())));
        }
        let indices: Vec<u32> = with_keys!(&self.keys, |keys| {
            // Codes are below the number of values, which is a `u32`.
            keys.iter().map(|key| key.index() as u32).collect()
        });
        let indices = UInt32Array::new(indices.into(), self.nulls.clone());
        Ok(arrow::compute::take(values, &indices, None)?)
    }
}

/// Bytes that a copy of each row takes, roughly: enough to refuse a dictionary of long lists.
fn row_bytes(values: &ArrowRef) -> Vec<u64> {
    let of_children = |child: &ArrowRef, ranges: &mut dyn Iterator<Item = (usize, usize)>| {
        let mut ends = vec![0u64];
        for size in row_bytes(child) {
            ends.push(ends[ends.len() - 1].saturating_add(size));
        }
        ranges.map(|(start, end)| 8 + ends[end].saturating_sub(ends[start])).collect::<Vec<u64>>()
    };
    let pairs = |offsets: Vec<usize>| offsets.windows(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>();
    let len = values.len();
    match values.data_type() {
        DataType::Utf8 => values.as_string::<i32>().offsets().lengths().map(|len| 4 + len as u64).collect(),
        DataType::LargeUtf8 => {
            values.as_string::<i64>().offsets().lengths().map(|len| 8 + len as u64).collect()
        }
        DataType::Binary => values.as_binary::<i32>().offsets().lengths().map(|len| 4 + len as u64).collect(),
        DataType::LargeBinary => {
            values.as_binary::<i64>().offsets().lengths().map(|len| 8 + len as u64).collect()
        }
        DataType::List(_) => {
            let list = values.as_list::<i32>();
            let offsets = list.value_offsets().iter().map(|offset| *offset as usize).collect();
            of_children(list.values(), &mut pairs(offsets).into_iter())
        }
        DataType::LargeList(_) => {
            let list = values.as_list::<i64>();
            let offsets = list.value_offsets().iter().map(|offset| *offset as usize).collect();
            of_children(list.values(), &mut pairs(offsets).into_iter())
        }
        DataType::Map(..) => {
            let map = values.as_map();
            let offsets = map.value_offsets().iter().map(|offset| *offset as usize).collect();
            let entries: ArrowRef = Arc::new(map.entries().clone());
            of_children(&entries, &mut pairs(offsets).into_iter())
        }
        DataType::FixedSizeList(_, size) => {
            let size = usize::try_from(*size).unwrap_or_default();
            let child = values.as_fixed_size_list().values();
            of_children(child, &mut (0..len).map(|row| (row * size, (row + 1) * size)))
        }
        DataType::Struct(_) => {
            let mut sum = vec![1; len];
            for column in values.as_struct().columns() {
                sum.iter_mut().zip(row_bytes(column)).for_each(|(sum, size)| *sum += size);
            }
            sum
        }
        other => match other.primitive_width() {
            Some(width) => vec![width as u64; len],
            None if matches!(other, DataType::Utf8View | DataType::BinaryView) => vec![16; len],
            None if matches!(other, DataType::Boolean | DataType::Null) => vec![1; len],
            None if matches!(other, DataType::FixedSizeBinary(_)) => vec![64; len],
            // A bound: no row is larger than all of them.
            None => vec![values.get_array_memory_size() as u64; len],
        },
    }
}

impl EncodedArray for DictArray {
    fn encoding(&self) -> &str {
        ID
    }

    fn dtype(&self) -> &DType {
        &self.dtype
    }

    fn len(&self) -> usize {
        self.codes.len()
    }

    fn children(&self) -> Vec<(&'static str, ArrayRef)> {
        vec![("codes", Arc::clone(&self.codes)), ("values", Arc::clone(&self.values.array))]
    }

    fn decode(&self, to: &DataType) -> Result<ArrowRef> {
        if let DataType::Dictionary(key, value) = to {
            let capacity = ptype_of(key).filter(|ptype| ptype.is_integer()).map_or(0, |ptype| {
                let bits = ptype.bit_width() as u32 - u32::from(ptype.is_signed());
                1u128 << bits
            });
            // Fewer keys than values do not mean that the values in use do not fit: cast then.
            if self.values.array.len() as u128 <= capacity {
                return self.decode_dictionary(key, value);
            }
        }
        if let Some(decoded) = self.decode_few(to)? {
            return Ok(decoded);
        }
        let natural = data_type(self.values.array.dtype())?;
        match to {
            // Gathering views is cheap, and so is copying the bytes behind them, once.
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
                let rows = self.keys()?.gather(&self.values.decoded(&natural)?, &self.limits)?;
                bytes::present_views(rows, to, &self.limits)
            }
            DataType::Dictionary(..) => {
                present(self.keys()?.gather(&self.values.decoded(&natural)?, &self.limits)?, to)
            }
            _ => present(self.keys()?.gather(&self.values.decoded(to)?, &self.limits)?, to),
        }
    }

    fn validity(&self) -> Result<Validity> {
        if !self.values.array.dtype().is_nullable() {
            return self.codes.validity();
        }
        match self.values.array.validity()? {
            Validity::AllValid => self.codes.validity(),
            Validity::AllNull => Ok(Validity::AllNull),
            Validity::Bits(nulls) => Ok(Validity::from_nulls(Some(self.keys()?.with_value_nulls(&nulls)?))),
        }
    }

    fn slice(&self, rows: Range<usize>) -> Result<ArrayRef> {
        Ok(self.with_codes(self.codes.slice(rows)?))
    }

    fn filter(&self, mask: &Mask) -> Result<ArrayRef> {
        Ok(self.with_codes(self.codes.filter(mask)?))
    }

    fn take(&self, indices: &UInt64Array) -> Result<ArrayRef> {
        Ok(self.with_codes(self.codes.take(indices)?))
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        if let Some(outcome) = self.validity()?.null_test(predicate, self.len()) {
            return Ok(outcome);
        }
        match predicate {
            // Asks about null rows too, which have no code.
            Predicate::In(list) if list.values().is_empty() => {
                return predicate.evaluate(&self.decode(&data_type(&self.dtype)?)?);
            }
            Predicate::Compare(..) | Predicate::Between(..) | Predicate::In(_) | Predicate::Like(_) => {}
            _ => return predicate.evaluate(&self.decode(&data_type(&self.dtype)?)?),
        }
        let by_value = self.values.outcome(predicate)?;
        if by_value.null_count() == 0
            && let Some(codes) = codes_that_hold(&by_value, self.codes.dtype())?
        {
            return self.codes.matches(&codes);
        }
        self.look_up(&by_value)
    }
}

impl DictArray {
    /// The outcome of each row's value.
    fn look_up(&self, by_value: &BooleanArray) -> Result<BooleanArray> {
        let keys = self.keys()?;
        if by_value.is_empty() {
            return Ok(BooleanArray::new_null(keys.len()));
        }
        let holds: Vec<u8> = by_value.values().iter().map(u8::from).collect();
        let rows = keys.lookup(&holds)?;
        let bits = BooleanBuffer::collect_bool(rows.len(), |row| rows[row] != 0);
        let nulls = match by_value.nulls().filter(|nulls| nulls.null_count() > 0) {
            Some(unknown) => Some(keys.with_value_nulls(unknown)?),
            None => keys.nulls,
        };
        Ok(BooleanArray::new(bits, nulls))
    }
}

/// The predicate on codes that holds where a predicate on their values does, if the values that
/// satisfy it lie side by side; as equality of strings and ranges over sorted values do.
fn codes_that_hold(by_value: &BooleanArray, dtype: &DType) -> Result<Option<Predicate>> {
    let runs: Vec<(usize, usize)> = by_value.values().set_slices().take(2).collect();
    let [(first, end)] = runs[..] else { return Ok(None) };
    let code = |at: usize| {
        let value = match dtype.ptype()?.is_signed() {
            true => Value::Int(i64::try_from(at).map_err(Error::limit)?),
            false => Value::UInt(at as u64),
        };
        // A code that its own type cannot hold is in no row.
        Ok::<_, Error>(Scalar::try_new(dtype.clone(), value).ok())
    };
    let (Some(low), Some(high)) = (code(first)?, code(end - 1)?) else { return Ok(None) };
    Ok(Some(match (first, end) {
        (0, end) if end == by_value.len() => return Ok(None),
        (first, end) if end == first + 1 => Predicate::Compare(CompareOp::Eq, low),
        (0, _) => Predicate::Compare(CompareOp::LtEq, high),
        _ => Predicate::Between(low, high),
    }))
}

/// The node of codes, which are nullable if `nullable`, and of the values that they stand for.
pub(crate) fn encode(
    codes: WriteNode,
    codes_ptype: PType,
    nullable: bool,
    values: WriteNode,
    value_count: u32,
) -> WriteNode {
    let metadata = Metadata { value_count, codes_ptype: codes_ptype as i32, nullable_codes: Some(nullable) };
    WriteNode::new(ID).message(&metadata).child(codes).child(values)
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BooleanArray, Float64Array, Int32Array, Int64Array, ListArray, StringViewArray, UInt8Array,
    };
    use arrow::datatypes::Int32Type;

    use super::*;
    use crate::array::Decoded;
    use crate::array::build::Tree;
    use crate::encodings::conformance;

    fn tree<K: ArrowNativeType>(ptype: PType, codes: &[K], values: Tree, count: u32) -> Tree {
        Tree::new(ID)
            .message(&Metadata { value_count: count, codes_ptype: ptype as i32, nullable_codes: Some(false) })
            .child(Tree::primitive(codes))
            .child(values)
    }

    fn plain(dtype: DType, array: ArrowRef) -> ArrayRef {
        Arc::new(Decoded::new(dtype, array))
    }

    fn dict(codes: ArrayRef, values: ArrayRef) -> ArrayRef {
        Arc::new(DictArray::try_new(codes, Arc::new(SharedValues::new(values)), Limits::default()).unwrap())
    }

    #[test]
    fn conforms() {
        let codes: Vec<u8> = (0..200u8).map(|at| at % 7).collect();
        let values: Vec<i64> = vec![50, -3, 7, 7, 1 << 40, 0, 12];
        let tree = tree(PType::U8, &codes, Tree::primitive(&values), 7);
        let array = tree.load(&DType::Primitive(PType::I64, false), 200).unwrap();
        let expected = Int64Array::from_iter_values(codes.iter().map(|code| values[usize::from(*code)]));
        conformance::check(&array, &(Arc::new(expected) as ArrowRef));
    }

    #[test]
    fn signed_and_wide_codes_conform() {
        let values = [1.5f64, -0.0, f64::NAN, 0.0];
        let expected: ArrowRef = Arc::new(Float64Array::from_iter_values((0..90).map(|at| values[at % 4])));
        let dtype = DType::Primitive(PType::F64, false);
        let signed: Vec<i16> = (0..90).map(|at| at % 4).collect();
        let array = tree(PType::I16, &signed, Tree::primitive(&values), 4).load(&dtype, 90).unwrap();
        conformance::check(&array, &expected);
        let wide: Vec<u64> = (0..90).map(|at| at % 4).collect();
        let array = tree(PType::U64, &wide, Tree::primitive(&values), 4).load(&dtype, 90).unwrap();
        conformance::check(&array, &expected);
        let negative = tree(PType::I16, &[-1i16], Tree::primitive(&values), 4).load(&dtype, 1).unwrap();
        assert!(negative.decode(&DataType::Float64).is_err());
    }

    #[test]
    fn nulls_may_be_in_codes_and_in_values() {
        let words = [Some("a longer string of 26 bytes"), None, Some("ab%"), Some("e")];
        let codes: Vec<Option<u8>> = (0..150u8).map(|at| (at % 6 != 5).then_some(at % 4)).collect();
        let expected: ArrowRef =
            Arc::new(codes.iter().map(|code| words[usize::from((*code)?)]).collect::<StringViewArray>());
        // What lies under a null is out of range.
        let keys: Vec<u8> = codes.iter().map(|code| code.unwrap_or(200)).collect();
        let valid: Vec<bool> = codes.iter().map(Option::is_some).collect();
        let keys = UInt8Array::new(keys.into(), Some(valid.into()));
        let values: ArrowRef = Arc::new(StringViewArray::from(words.to_vec()));
        let array =
            dict(plain(DType::Primitive(PType::U8, true), Arc::new(keys)), plain(DType::Utf8(true), values));
        conformance::check(&array, &expected);

        let keys = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let decoded = array.decode(&keys).unwrap();
        decoded.to_data().validate_full().unwrap();
        assert_eq!(decoded.as_dictionary::<Int32Type>().values().len(), 4);
        let flat = arrow::compute::cast(&decoded, &DataType::Utf8View).unwrap();
        assert_eq!(&flat, &expected);
    }

    #[test]
    fn booleans_lists_and_empty_dictionaries_decode() {
        let codes = || plain(DType::Primitive(PType::U8, false), Arc::new(UInt8Array::from(vec![1, 0, 1])));
        let values: ArrowRef = Arc::new(BooleanArray::from(vec![true, false]));
        let array = dict(codes(), plain(DType::Bool(false), values));
        conformance::check(&array, &(Arc::new(BooleanArray::from(vec![false, true, false])) as ArrowRef));

        let lists = |rows: Vec<Option<Vec<Option<i32>>>>| -> ArrowRef {
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(rows))
        };
        let (one, two) = (Some(vec![Some(1), None]), Some(vec![Some(3)]));
        let dtype = DType::List(Arc::new(DType::Primitive(PType::I32, true)), false);
        let array = dict(codes(), plain(dtype, lists(vec![one.clone(), two.clone()])));
        conformance::check(&array, &lists(vec![two.clone(), one, two]));

        let keys: ArrowRef = Arc::new(UInt8Array::from(vec![None, None]));
        let none = plain(DType::Utf8(true), Arc::new(StringViewArray::from(Vec::<&str>::new())));
        let array = dict(plain(DType::Primitive(PType::U8, true), keys), none);
        let expected: ArrowRef = Arc::new(StringViewArray::new_null(2));
        conformance::check(&array, &expected);
    }

    #[test]
    fn few_rows_do_not_decode_a_large_dictionary() {
        let values: ArrowRef = Arc::new(Int32Array::from_iter_values(0..10_000));
        let keys: ArrowRef = Arc::new(UInt32Array::from(vec![9_999, 0, 5]));
        let values = Arc::new(SharedValues::new(plain(DType::Primitive(PType::I32, false), values)));
        let keys = plain(DType::Primitive(PType::U32, false), keys);
        let array = DictArray::try_new(keys, Arc::clone(&values), Limits::default()).unwrap();
        let decoded = array.decode(&DataType::Int32).unwrap();
        assert_eq!(decoded.as_primitive::<Int32Type>().values(), &[9_999, 0, 5]);
        assert!(values.remembered(&DataType::Int32).is_none());
    }

    #[test]
    fn zero_and_minus_zero_are_different_predicates() {
        let values: ArrowRef = Arc::new(Float64Array::from(vec![0.0, -0.0]));
        let dtype = DType::Primitive(PType::F64, false);
        let keys: ArrowRef = Arc::new(UInt8Array::from(vec![0, 1]));
        let array = dict(plain(DType::Primitive(PType::U8, false), keys), plain(dtype.clone(), values));
        for (constant, wanted) in [(0.0, [true, false]), (-0.0, [false, true])] {
            let constant = Scalar::try_new(dtype.clone(), Value::F64(constant)).unwrap();
            let outcome = array.matches(&Predicate::Compare(CompareOp::Eq, constant)).unwrap();
            assert_eq!(outcome, BooleanArray::from(wanted.to_vec()));
        }
    }

    #[test]
    fn nested_values_are_held_against_the_limits() {
        let row: Vec<Option<i32>> = (0..1000).map(Some).collect();
        let values: ArrowRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some(row)]));
        let dtype = DType::List(Arc::new(DType::Primitive(PType::I32, true)), true);
        let codes = Arc::new(UInt8Array::from(vec![0; 1000]));
        let codes = plain(DType::Primitive(PType::U8, false), codes);
        let values = Arc::new(SharedValues::new(plain(dtype.clone(), values)));
        let to = data_type(&dtype).unwrap();
        let mut limits = Limits { max_decoded_bytes: 1 << 20, ..Limits::default() };
        let array = DictArray::try_new(Arc::clone(&codes), Arc::clone(&values), limits).unwrap();
        assert!(array.decode(&to).is_err());
        limits.max_decoded_bytes <<= 3;
        assert!(DictArray::try_new(codes, values, limits).unwrap().decode(&to).is_ok());
    }

    #[test]
    fn codes_out_of_range_and_wrong_counts_are_corrupt() {
        let dtype = DType::Primitive(PType::I32, false);
        let decode = |tree: &Tree| tree.load(&dtype, 2)?.decode(&DataType::Int32);
        let values = || Tree::primitive(&[1i32, 2]);
        assert!(decode(&tree(PType::U8, &[0u8, 1], values(), 2)).is_ok());
        assert!(decode(&tree(PType::U8, &[0u8, 2], values(), 2)).is_err());
        assert!(decode(&tree(PType::U8, &[0u8, 1], values(), 3)).is_err());
        assert!(decode(&tree(PType::F32, &[0f32, 1.0], values(), 2)).is_err());
        let absent =
            Tree::new(ID).message(&Metadata { value_count: 2, codes_ptype: 0, nullable_codes: None });
        let absent = absent.child(Tree::primitive(&[0u8, 1]).child(Tree::bools(&[true, false])));
        assert!(decode(&absent.clone().child(values())).is_err(), "codes are nullable iff the array is");
        assert!(absent.child(values()).load(&dtype.with_nullable(true), 2).is_ok());
    }
}
