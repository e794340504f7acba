//! Hashes of values: 64-bit XXH3 of their bytes. Integers, and what is stored as integers, have 8 bytes, the lowest
//! first, whatever their width; unscaled decimals 32. All that equal each other have the same hash.

use arrow::array::{Array, ArrayRef, AsArray as _};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{ArrowNativeType, DataType, i256};

use crate::array::values_of;
use crate::dtype::{DType, Meaning, PType};
use crate::scalar::{Scalar, Value};
use crate::segments::checksums::checksum;
use crate::{Error, Result};

/// Whether values of a type have hashes. Those of floats would be of little use: hardly anyone looks for one of them.
pub(crate) fn can_hash(dtype: &DType) -> bool {
    if is_uuid(dtype) {
        return true;
    }
    match dtype.storage() {
        DType::Primitive(ptype, _) => ptype.is_integer(),
        DType::Decimal(..) | DType::Utf8(_) | DType::Binary(_) => true,
        _ => false,
    }
}

fn is_uuid(dtype: &DType) -> bool {
    matches!(dtype, DType::Extension(extension) if *extension.meaning() == Meaning::Uuid)
}

/// The hash of a value that is not null, if its type has hashes.
pub(crate) fn hash_of(value: &Scalar) -> Option<u64> {
    Some(match value.value() {
        Value::Int(value) => of_integer(*value),
        Value::UInt(value) => of_integer(value.cast_signed()),
        Value::Decimal(value) => of_decimal(*value),
        Value::Utf8(text) => checksum(text.as_bytes()),
        Value::Binary(bytes) => checksum(bytes),
        Value::List(bytes) if is_uuid(value.dtype()) => {
            let byte = |value: &Value| match value {
                Value::UInt(byte) => u8::try_from(*byte).ok(),
                _ => None,
            };
            checksum(&bytes.iter().map(byte).collect::<Option<Vec<u8>>>()?)
        }
        _ => return None,
    })
}

fn of_integer(value: i64) -> u64 {
    checksum(&value.to_le_bytes())
}

fn of_decimal(value: i256) -> u64 {
    checksum(&value.to_le_bytes())
}

/// The hashes of the values of an array, which presents a type [that has hashes](can_hash), without nulls.
///
/// # Errors
/// If the values have none: no filter may lack a value.
pub(crate) fn hashes_of(array: &ArrayRef, dtype: &DType) -> Result<Vec<u64>> {
    let nulls = array.nulls();
    let unsupported = || Err(Error::unsupported("Bloom filter of a column of type", array.data_type()));
    macro_rules! integers {
        ($native:ty) => {
            numbers::<$native>(array, nulls, |value| of_integer(value as i64))
        };
    }
    macro_rules! decimals {
        ($native:ty) => {
            numbers::<$native>(array, nulls, |value| of_decimal(i256::from_i128(value.into())))
        };
    }
    if let DType::Primitive(ptype, _) = dtype.storage() {
        return Ok(match ptype {
            PType::U8 => integers!(u8),
            PType::U16 => integers!(u16),
            PType::U32 => integers!(u32),
            PType::U64 => integers!(u64),
            PType::I8 => integers!(i8),
            PType::I16 => integers!(i16),
            PType::I32 => integers!(i32),
            PType::I64 => integers!(i64),
            PType::F16 | PType::F32 | PType::F64 => return unsupported(),
        });
    }
    Ok(match array.data_type() {
        DataType::Decimal32(..) => decimals!(i32),
        DataType::Decimal64(..) => decimals!(i64),
        DataType::Decimal128(..) => decimals!(i128),
        DataType::Decimal256(..) => numbers(array, nulls, of_decimal),
        DataType::Utf8 => texts(array.as_string::<i32>().iter()),
        DataType::LargeUtf8 => texts(array.as_string::<i64>().iter()),
        DataType::Utf8View => texts(array.as_string_view().iter()),
        DataType::Binary => texts(array.as_binary::<i32>().iter()),
        DataType::LargeBinary => texts(array.as_binary::<i64>().iter()),
        DataType::BinaryView => texts(array.as_binary_view().iter()),
        DataType::FixedSizeBinary(_) => texts(array.as_fixed_size_binary().iter()),
        _ => return unsupported(),
    })
}

fn numbers<T: ArrowNativeType>(
    array: &dyn Array,
    nulls: Option<&NullBuffer>,
    hash: impl Fn(T) -> u64,
) -> Vec<u64> {
    let values = values_of::<T>(array);
    let is_valid = |at: &usize| nulls.is_none_or(|nulls| nulls.is_valid(*at));
    (0..values.len()).filter(is_valid).map(|at| hash(values[at])).collect()
}

fn texts<T: AsRef<[u8]>>(values: impl Iterator<Item = Option<T>>) -> Vec<u64> {
    values.flatten().map(|value| checksum(value.as_ref())).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        BinaryViewArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Float64Array, Int8Array,
        StringArray, StringViewArray, UInt64Array,
    };
    use arrow::datatypes::{Field, Schema};

    use super::*;
    use crate::Release;
    use crate::dtype::stored::stored_schema;

    /// The type that a column is stored as.
    fn stored(field: Field) -> DType {
        let schema = Schema::new(vec![field]);
        let root = stored_schema(&schema, Release::NEWEST).unwrap();
        root.as_columns().unwrap().dtypes()[0].clone()
    }

    #[test]
    fn a_constant_has_the_hash_of_the_values_that_equal_it() {
        let uuids = [Some([7u8; 16]), None, Some([0; 16])].into_iter();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int8Array::from(vec![Some(-1), None, Some(7)])),
            Arc::new(UInt64Array::from(vec![Some(u64::MAX), None, Some(0)])),
            Arc::new(Date32Array::from(vec![Some(-1), None, Some(20_000)])),
            Arc::new(Decimal128Array::from(vec![Some(-5), None, Some(1 << 100)])),
            Arc::new(StringArray::from(vec![Some(""), None, Some("an example")])),
            Arc::new(StringViewArray::from(vec![Some("ä"), None, Some("a longer example than that")])),
            Arc::new(BinaryViewArray::from(vec![Some(&b"\xff"[..]), None, Some(b"")])),
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(uuids, 16).unwrap()),
        ];
        for column in columns {
            let mut field = Field::new("a", column.data_type().clone(), true);
            if matches!(column.data_type(), DataType::FixedSizeBinary(_)) {
                let name = ("ARROW:extension:name".to_owned(), "arrow.uuid".to_owned());
                field = field.with_metadata([name].into());
            }
            let dtype = stored(field);
            assert!(can_hash(&dtype), "{dtype}");
            let hashes = hashes_of(&column, &dtype).unwrap();
            let of_row = |row| hash_of(&Scalar::from_arrow(&column, row, &dtype).unwrap());
            assert_eq!(
                [of_row(0), of_row(1), of_row(2)],
                [Some(hashes[0]), None, Some(hashes[1])],
                "{dtype}"
            );
            assert_eq!(hashes_of(&column.slice(1, 1), &dtype).unwrap(), [0; 0]);
            assert_eq!(hashes_of(&column.slice(2, 1), &dtype).unwrap(), hashes[1..]);
        }
    }

    #[test]
    fn integers_of_all_widths_have_the_same_hash() {
        let of = |value: Scalar| hash_of(&value).unwrap();
        assert_eq!(of(Scalar::from(7i8)), of(Scalar::from(7u64)));
        assert_eq!(of(Scalar::from(-7i16)), of(Scalar::from(-7i64)));
    }

    #[test]
    fn values_without_a_hash_are_an_error() {
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
        let dtype = stored(Field::new("a", DataType::Float64, true));
        assert!(!can_hash(&dtype) && hashes_of(&floats, &dtype).is_err());
    }
}
