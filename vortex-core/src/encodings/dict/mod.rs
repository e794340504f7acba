//! Dictionary: each distinct value is stored once, with a code per row.
//!
//! ```text
//! rows  b a - b b      codes   [1, 0, -, 1, 1]
//!                      values  [a, b]
//! ```
//!
//! Metadata: number of values, integer type of the codes, and whether they are nullable. Children:
//! `codes` and `values`. A row is null if its code or its value is; codes under nulls are arbitrary.
//!
//! Slices share the values, including decoded values and outcomes of predicates. Decoding gathers; views
//! of strings are gathered without copying their bytes. A predicate is evaluated once per value and then
//! becomes a comparison of codes, or a lookup by code. Codes in runs are looked up once per run.

mod keys;
mod values;

use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, BooleanArray, DictionaryArray, UInt32Array, UInt64Array};
use arrow::compute::CastOptions;
use arrow::datatypes::DataType;

use self::keys::Keys;
pub(crate) use self::values::SharedValues;
use super::Encoding;
use crate::array::{
    Aggregate, ArrayRef, Decoded, EncodedArray, EncodedRef, Header, Node, Pick, Validity, bytes,
    integer_type, masking, present,
};
use crate::dtype::arrow::{data_type, ptype_of};
use crate::dtype::{DType, PType, match_integer};
use crate::expr::{CompareOp, Predicate};
use crate::limits::Limits;
use crate::scalar::Scalar;
use crate::wire::WriteNode;
use crate::{Error, Result};

/// The `vortex.dict` encoding.
#[derive(Debug)]
pub(super) struct Dict;

const ID: &str = "vortex.dict";

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(uint32, tag = "1")]
    value_count: u32,
    #[prost(int32, tag = "2")]
    codes_ptype: i32,
    /// Absent in files of old writers, where codes are nullable if the array is.
    #[prost(bool, optional, tag = "3")]
    nullable_codes: Option<bool>,
}

impl Encoding for Dict {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let (codes, value_count) = parts(node)?;
        let codes = node.child(0, &codes, node.len())?;
        let values = node.child(1, node.dtype(), value_count)?;
        let values = Arc::new(SharedValues::new(values));
        Ok(Arc::new(DictArray::try_new(codes, values, node.limits())?))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        let (codes, value_count) = parts(node)?;
        let codes = node.child_rows(0, &codes, node.len(), rows)?;
        let (codes, used) = used_values(&codes, value_count)?;
        let values = node.child_rows(1, node.dtype(), value_count, &used)?;
        Ok(Arc::new(DictArray::try_new(codes, Arc::new(SharedValues::new(values)), node.limits())?))
    }
}

/// The type of a node's codes, and the number of values.
fn parts(node: &Node<'_>) -> Result<(DType, usize)> {
    let metadata = node.message::<Metadata>()?;
    node.expect_children(2)?;
    node.expect_buffers(0)?;
    let codes = integer_type(metadata.codes_ptype, "codes")?;
    let nullable = metadata.nullable_codes.unwrap_or(node.dtype().is_nullable());
    if nullable && !node.dtype().is_nullable() {
        return Err(Error::corrupt(format!("nullable codes under the non-nullable type {}", node.dtype())));
    }
    Ok((codes.with_nullable(nullable), metadata.value_count as usize))
}

/// Codes that refer only to the values in use, of the `value_count` values, and the indices of these,
/// ascending.
pub(crate) fn used_values(codes: &EncodedRef, value_count: usize) -> Result<(EncodedRef, Vec<usize>)> {
    let keys = Keys::decode(codes, value_count)?;
    let indices = keys.indices();
    let mut used = if value_count == 0 { Vec::new() } else { indices.clone() };
    used.sort_unstable();
    used.dedup();
    // There are fewer than 2^32 values.
    let place = |index: &usize| used.partition_point(|used| used < index) as u32;
    let narrowed = UInt32Array::new(indices.iter().map(place).collect::<Vec<_>>().into(), keys.nulls);
    let dtype = DType::Primitive(PType::U32, codes.dtype().is_nullable());
    Ok((Arc::new(Decoded::new(dtype, Arc::new(narrowed), codes.limits())), used))
}

/// Codes, and the values that they refer to.
#[derive(Debug)]
pub(crate) struct DictArray {
    header: Header,
    codes: EncodedRef,
    values: Arc<SharedValues>,
}

impl DictArray {
    /// Creates an array of codes of any integer type for these values. It is nullable if either is.
    ///
    /// # Errors
    /// If the codes are not integers.
    pub(crate) fn try_new(codes: EncodedRef, values: Arc<SharedValues>, limits: &Limits) -> Result<Self> {
        let ptype = codes.dtype().ptype()?;
        if !ptype.is_integer() {
            return Err(Error::corrupt(format!("codes are {ptype}, not integers")));
        }
        let dtype = values.array.dtype();
        let dtype = if codes.dtype().is_nullable() { dtype.with_nullable(true) } else { dtype.clone() };
        Ok(Self { header: Header::new(ID, dtype, codes.len(), limits), codes, values })
    }

    fn with_codes(&self, codes: EncodedRef) -> EncodedRef {
        let header = self.header.of_rows(codes.len());
        Arc::new(Self { header, codes, values: Arc::clone(&self.values) })
    }

    /// The same rows as runs, if the codes are runs: values are then looked up once per run.
    fn runs(&self) -> Result<Option<EncodedRef>> {
        self.codes.map_runs(&|codes| Ok(self.with_codes(codes)))
    }

    fn keys(&self) -> Result<Keys> {
        Keys::decode(&self.codes, self.values.array.len())
    }

    /// Decodes by taking only the wanted rows from the encoded values, which for few rows is faster than
    /// decoding all values.
    fn decode_few(&self, to: &DataType) -> Result<ArrayRef> {
        let keys = self.keys()?;
        let indices = UInt64Array::from_iter_values(keys.indices().into_iter().map(|key| key as u64));
        let rows = self.values.array.take(&indices)?.decode(to)?;
        match &keys.nulls {
            Some(valid) => masking::mask(&rows, valid),
            None => Ok(rows),
        }
    }

    fn decode_dictionary(&self, key: &DataType, value: &DataType) -> Result<ArrayRef> {
        let values = self.values.decoded(value)?;
        let keys = self.keys()?;
        // Some readers of dictionaries do not check for nulls among the values.
        let nulls = if values.is_empty() { keys.nulls.clone() } else { keys.null_rows(&values)? };
        let keys = keys.keys.into_array(nulls)?;
        let options = CastOptions { safe: false, ..Default::default() };
        let keys = arrow::compute::cast_with_options(&keys, key, &options)?;
        let ptype = ptype_of(key).ok_or_else(|| Error::invalid(format!("dictionary keys of type {key}")))?;
        match_integer!(ptype, |K| {
            Ok(Arc::new(DictionaryArray::<K>::try_new(keys.as_primitive::<K>().clone(), values)?))
        }, else Err(Error::invalid(format!("dictionary keys of type {key}"))))
    }
}

impl EncodedArray for DictArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        vec![("codes", &self.codes), ("values", &self.values.array)]
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        if let DataType::Dictionary(key, value) = to {
            let capacity = ptype_of(key).filter(|ptype| ptype.is_integer()).map_or(0, |ptype| {
                let bits = ptype.bit_width() as u32 - u32::from(ptype.is_signed());
                1u128 << bits
            });
            // If there are more values than keys can address, those in use may still fit: a cast handles that.
            if self.values.array.len() as u128 <= capacity {
                return if self.values.are_few(self.codes.len(), value) {
                    self.decode_few(to)
                } else {
                    self.decode_dictionary(key, value)
                };
            }
        }
        if let Some(runs) = self.runs()? {
            return runs.decode(to);
        }
        let preferred = data_type(self.values.array.dtype())?;
        // Gathering views is cheap, and so is copying the bytes that they refer to once.
        let are_copied =
            matches!(to, DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary);
        let kept = match to {
            // Fields are decoded as they are wanted.
            DataType::Dictionary(_, values) if values.is_nested() => values,
            DataType::Dictionary(..) => &preferred,
            _ if are_copied => &preferred,
            _ => to,
        };
        if self.values.are_few(self.codes.len(), kept) {
            return self.decode_few(to);
        }
        let rows = self.keys()?.gather(&self.values.decoded(kept)?, self.limits())?;
        if are_copied { bytes::present_views(rows, to, self.limits()) } else { present(rows, to) }
    }

    fn validity(&self) -> Result<Validity> {
        if !self.values.array.dtype().is_nullable() {
            return self.codes.validity();
        }
        match self.values.validity()? {
            Validity::AllValid => self.codes.validity(),
            Validity::AllNull => Ok(Validity::AllNull),
            Validity::Bits(nulls) => Ok(Validity::from_nulls(Some(self.keys()?.with_value_nulls(nulls)?))),
        }
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        Ok(self.with_codes(pick.of(&self.codes)?))
    }

    fn aggregate(&self) -> Result<Aggregate> {
        let value_count = self.values.array.len();
        if let Some(runs) = self.runs()? {
            return runs.aggregate();
        }
        if value_count == 0 || value_count > self.len() {
            return self.aggregate_decoded();
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
        let nulls = Aggregate::of_value(&Scalar::null(self.dtype()), nulls);
        Ok(Aggregate::weighted(&values, self.dtype(), &rows)?.merge(nulls))
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        if let Some(outcome) = self.null_test(predicate)? {
            return Ok(outcome);
        }
        if let Some(runs) = self.runs()? {
            return runs.matches(predicate);
        }
        match predicate {
            // This predicate also has an outcome for null rows, which have no code.
            Predicate::In(list) if list.values().is_empty() => {
                return self.matches_decoded(predicate);
            }
            Predicate::Compare(..) | Predicate::Between(..) | Predicate::In(_) | Predicate::Like(_) => {}
            _ => return self.matches_decoded(predicate),
        }
        let by_value = self.values.outcome(predicate)?;
        if by_value.null_count() == 0
            && let Some(codes) = codes_that_hold(&by_value, self.codes.dtype())
        {
            return self.codes.matches(&codes);
        }
        self.look_up(&by_value)
    }
}

impl DictArray {
    /// The outcome of the value of each row.
    fn look_up(&self, by_value: &BooleanArray) -> Result<BooleanArray> {
        let keys = self.keys()?;
        if by_value.is_empty() {
            return Ok(BooleanArray::new_null(keys.len()));
        }
        let bits = keys.lookup(by_value.values())?;
        let nulls = match by_value.nulls().filter(|nulls| nulls.null_count() > 0) {
            Some(unknown) => Some(keys.with_value_nulls(unknown)?),
            None => keys.nulls,
        };
        Ok(BooleanArray::new(bits, nulls))
    }
}

/// A predicate on codes that is equivalent to a predicate on their values, if the matching values are
/// adjacent, as for equality with a string or ranges of sorted values.
fn codes_that_hold(by_value: &BooleanArray, dtype: &DType) -> Option<Predicate> {
    let runs: Vec<(usize, usize)> = by_value.values().set_slices().take(2).collect();
    let [(first, end)] = runs[..] else { return None };
    // A code that does not fit its own type occurs in no row.
    let code = |at: usize| Scalar::integer(dtype, at as i128);
    let (low, high) = (code(first)?, code(end - 1)?);
    Some(match (first, end) {
        (0, end) if end == by_value.len() => return None,
        (first, end) if end == first + 1 => Predicate::Compare(CompareOp::Eq, low),
        (0, _) => Predicate::Compare(CompareOp::LtEq, high),
        _ => Predicate::Between(low, high),
    })
}

/// A node of codes, which are nullable if `nullable`, and the values that they refer to.
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
mod tests;
