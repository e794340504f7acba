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
//! a comparison of codes, or a lookup by code. Codes in runs are looked up once per run.

mod keys;
mod values;

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, BooleanArray, DictionaryArray, UInt32Array, UInt64Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::CastOptions;
use arrow::datatypes::DataType;

use self::keys::{AnyKeys, Keys};
pub(crate) use self::values::SharedValues;
use super::Encoding;
use crate::array::{Aggregate, ArrayRef, ArrowRef, Decoded, EncodedArray, Node, Validity, bytes, present};
use crate::dtype::arrow::{data_type, ptype_of};
use crate::dtype::{DType, PType};
use crate::expr::{CompareOp, Predicate};
use crate::limits::Limits;
use crate::mask::Mask;
use crate::scalar::{Scalar, Value};
use crate::wire::WriteNode;
use crate::{Error, Result, match_integer};

/// The `vortex.dict` encoding.
#[derive(Debug)]
pub(super) struct Dict;

const ID: &str = "vortex.dict";

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
        let (codes, value_count) = parts(node)?;
        let codes = node.child(0, &codes, node.len())?;
        let values = node.child(1, node.dtype(), value_count)?;
        let values = Arc::new(SharedValues::new(values));
        Ok(Arc::new(DictArray::try_new(codes, values, *node.limits())?))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<ArrayRef> {
        let (codes, value_count) = parts(node)?;
        let codes = node.child_rows(0, &codes, node.len(), rows)?;
        let (codes, used) = used_values(&codes, value_count)?;
        let values = node.child_rows(1, node.dtype(), value_count, &used)?;
        Ok(Arc::new(DictArray::try_new(codes, Arc::new(SharedValues::new(values)), *node.limits())?))
    }
}

/// The type of a node's codes, and how many values there are.
fn parts(node: &Node<'_>) -> Result<(DType, usize)> {
    let metadata = node.message::<Metadata>()?;
    node.expect_children(2)?;
    node.expect_buffers(0)?;
    let ptype = PType::try_from_number(metadata.codes_ptype.into())?;
    let nullable = metadata.nullable_codes.unwrap_or(node.dtype().is_nullable());
    if nullable && !node.dtype().is_nullable() {
        return Err(Error::corrupt(format!("nullable codes under the non-nullable type {}", node.dtype())));
    }
    Ok((DType::Primitive(ptype, nullable), metadata.value_count as usize))
}

/// Codes for only those of `value_count` values that they use, and which those are, rising.
pub(crate) fn used_values(codes: &ArrayRef, value_count: usize) -> Result<(ArrayRef, Vec<usize>)> {
    let keys = Keys::decode(codes, value_count)?;
    let indices = keys.indices();
    let mut used = if value_count == 0 { Vec::new() } else { indices.clone() };
    used.sort_unstable();
    used.dedup();
    // There are fewer than 2^32 values.
    let place = |index: &usize| used.partition_point(|used| used < index) as u32;
    let narrowed = UInt32Array::new(indices.iter().map(place).collect::<Vec<_>>().into(), keys.nulls);
    let dtype = DType::Primitive(PType::U32, codes.dtype().is_nullable());
    Ok((Arc::new(Decoded::new(dtype, Arc::new(narrowed))), used))
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

    /// The same rows as runs, if the codes are: values are then looked up once per run.
    fn runs(&self) -> Result<Option<ArrayRef>> {
        self.codes.map_runs(&|codes| Ok(self.with_codes(codes)))
    }

    fn keys(&self) -> Result<Keys> {
        Keys::decode(&self.codes, self.values.array.len())
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
        let indices = UInt64Array::from_iter_values(keys.indices().into_iter().map(|key| key as u64));
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
        if let Some(runs) = self.runs()? {
            return runs.decode(to);
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

    fn aggregate(&self) -> Result<Aggregate> {
        let value_count = self.values.array.len();
        if let Some(runs) = self.runs()? {
            return runs.aggregate();
        }
        if value_count == 0 || value_count > self.len() {
            return Aggregate::of(self.decode_natural()?.arrow(), &self.dtype);
        }
        let keys = self.keys()?;
        let mut rows = vec![0u64; value_count];
        match &keys.nulls {
            None => keys.indices().into_iter().for_each(|key| rows[key] += 1),
            Some(nulls) => {
                let indices = keys.indices();
                nulls.valid_indices().for_each(|row| rows[indices[row]] += 1);
            }
        }
        let values = self.values.decoded(&data_type(self.values.array.dtype())?)?;
        let nulls = keys.nulls.as_ref().map_or(0, |nulls| nulls.null_count() as u64);
        let nulls = Aggregate::of_value(&Scalar::null(&self.dtype), nulls);
        Ok(Aggregate::weighted(&values, &self.dtype, &rows)?.merge(nulls))
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        if let Some(outcome) = self.validity()?.null_test(predicate, self.len()) {
            return Ok(outcome);
        }
        if let Some(runs) = self.runs()? {
            return runs.matches(predicate);
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
    use arrow::datatypes::{ArrowNativeType, Int32Type};

    use super::*;
    use crate::array::build::Tree;
    use crate::encodings::conformance;
    use crate::encodings::run_end::tests::runs;

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
    fn codes_in_runs_conform() {
        let words = [Some("a longer string of 26 bytes"), None, Some("ab%"), Some("e")];
        let (ends, codes) = ([3, 40, 41, 90, 120, 150], [2u8, 0, 1, 3, 0, 2]);
        let coded = || {
            let tree = runs(&ends, 0, Tree::primitive(&codes));
            tree.load(&DType::Primitive(PType::U8, false), 150).unwrap()
        };
        let rows = |at: u16| usize::from(codes[ends.partition_point(|end| *end <= at)]);
        let values: ArrowRef = Arc::new(StringViewArray::from(words.to_vec()));
        let array = dict(coded(), plain(DType::Utf8(true), values));
        let expected = (0..150).map(|at| words[rows(at)]).collect::<StringViewArray>();
        conformance::check(&array, &(Arc::new(expected) as ArrowRef));

        let numbers = vec![5i64, -7, 1 << 40, 0];
        let values: ArrowRef = Arc::new(Int64Array::from(numbers.clone()));
        let array = dict(coded(), plain(DType::Primitive(PType::I64, false), values));
        let expected = Int64Array::from_iter_values((0..150).map(|at| numbers[rows(at)]));
        conformance::check(&array, &(Arc::new(expected) as ArrowRef));

        let values: ArrowRef = Arc::new(Int64Array::from(vec![1]));
        let array = dict(coded(), plain(DType::Primitive(PType::I64, false), values));
        assert!(array.decode(&DataType::Int64).is_err(), "codes out of range");
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
