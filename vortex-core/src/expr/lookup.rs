//! Sets of constants in which the values of Arrow arrays are looked up.

use arrow::array::{
    Array as _, ArrayRef, ArrowPrimitiveType, AsArray as _, PrimitiveArray, downcast_primitive_array,
};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{
    BinaryType, BinaryViewType, DataType, LargeBinaryType, LargeUtf8Type, StringViewType, ToByteSlice,
    Utf8Type,
};
use hashbrown::HashSet;

/// A bitmap is used if it has no more bits than this, so that it fits into the fastest cache, or than
/// [`BITS_PER_CONSTANT`] for each constant, which is about the size of a hash set.
const MAX_BITS: u64 = 1 << 18;
const BITS_PER_CONSTANT: u64 = 64;

/// A set of constants of one Arrow type.
#[derive(Debug)]
pub(super) struct Lookup {
    data_type: DataType,
    set: Set,
}

#[derive(Debug)]
enum Set {
    /// Values of up to eight bytes that are close together: bit `at` stands for the value `first + at`.
    Bitmap { first: u64, words: Vec<u64> },
    /// Values of up to eight bytes.
    Words(HashSet<u64>),
    /// Values of any length.
    Bytes(HashSet<Box<[u8]>>),
}

impl Lookup {
    /// The set of the values of `constants`, which are not null; `None` if their type is none that can be
    /// looked up.
    pub(super) fn of(constants: &ArrayRef) -> Option<Self> {
        let data_type = constants.data_type().clone();
        let set = downcast_primitive_array! {
            constants => Set::of_primitive(constants),
            DataType::Utf8 => Set::of_bytes(constants.as_bytes::<Utf8Type>().iter()),
            DataType::LargeUtf8 => Set::of_bytes(constants.as_bytes::<LargeUtf8Type>().iter()),
            DataType::Binary => Set::of_bytes(constants.as_bytes::<BinaryType>().iter()),
            DataType::LargeBinary => Set::of_bytes(constants.as_bytes::<LargeBinaryType>().iter()),
            DataType::Utf8View => Set::of_bytes(constants.as_byte_view::<StringViewType>().iter()),
            DataType::BinaryView => Set::of_bytes(constants.as_byte_view::<BinaryViewType>().iter()),
            _ => return None,
        };
        Some(Self { data_type, set })
    }

    /// The type of arrays whose values can be looked up.
    pub(super) fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Which values of an array of the set's type are in the set; null rows are arbitrary.
    pub(super) fn found(&self, array: &ArrayRef) -> BooleanBuffer {
        debug_assert_eq!(array.data_type(), &self.data_type);
        let len = array.len();
        macro_rules! bytes {
            ($array:expr) => {{
                let array = $array;
                BooleanBuffer::collect_bool(len, |at| self.set.has_bytes(array.value(at).as_ref()))
            }};
        }
        downcast_primitive_array! {
            array => self.set.found(array),
            DataType::Utf8 => bytes!(array.as_bytes::<Utf8Type>()),
            DataType::LargeUtf8 => bytes!(array.as_bytes::<LargeUtf8Type>()),
            DataType::Binary => bytes!(array.as_bytes::<BinaryType>()),
            DataType::LargeBinary => bytes!(array.as_bytes::<LargeBinaryType>()),
            DataType::Utf8View => bytes!(array.as_byte_view::<StringViewType>()),
            DataType::BinaryView => bytes!(array.as_byte_view::<BinaryViewType>()),
            _ => BooleanBuffer::new_unset(len),
        }
    }
}

impl Set {
    /// Values are equal in Arrow's total order if and only if their bytes are equal.
    fn of_primitive<T: ArrowPrimitiveType>(constants: &PrimitiveArray<T>) -> Self {
        let values = constants.values();
        if size_of::<T::Native>() > size_of::<u64>() {
            return Set::Bytes(values.iter().map(|value| value.to_byte_slice().into()).collect());
        }
        let words: Vec<u64> = values.iter().map(|value| word(*value)).collect();
        let first = words.iter().copied().min().unwrap_or_default();
        let last = words.iter().copied().max().unwrap_or_default();
        if last - first >= MAX_BITS.max(BITS_PER_CONSTANT * words.len() as u64) {
            return Set::Words(words.into_iter().collect());
        }
        let mut bitmap = vec![0; ((last - first) / 64 + 1) as usize];
        for word in words {
            let at = word - first;
            bitmap[(at / 64) as usize] |= 1 << (at % 64);
        }
        Set::Bitmap { first, words: bitmap }
    }

    fn of_bytes<V: AsRef<[u8]>>(constants: impl Iterator<Item = Option<V>>) -> Self {
        Set::Bytes(constants.flatten().map(|value| value.as_ref().into()).collect())
    }

    fn found<T: ArrowPrimitiveType>(&self, array: &PrimitiveArray<T>) -> BooleanBuffer {
        let values = array.values();
        match self {
            Set::Bitmap { first, words } => BooleanBuffer::collect_bool(values.len(), |at| {
                let at = word(values[at]).wrapping_sub(*first);
                let bits = usize::try_from(at / 64).ok().and_then(|at| words.get(at));
                bits.is_some_and(|bits| bits >> (at % 64) & 1 == 1)
            }),
            Set::Words(set) => {
                BooleanBuffer::collect_bool(values.len(), |at| set.contains(&word(values[at])))
            }
            Set::Bytes(_) => {
                BooleanBuffer::collect_bool(values.len(), |at| self.has_bytes(values[at].to_byte_slice()))
            }
        }
    }

    fn has_bytes(&self, value: &[u8]) -> bool {
        matches!(self, Set::Bytes(set) if set.contains(value))
    }
}

/// The bytes of a value of up to eight bytes as a number, so that different values are different numbers.
fn word<N: ToByteSlice>(value: N) -> u64 {
    let mut bytes = [0; 8];
    let value = value.to_byte_slice();
    bytes[..value.len()].copy_from_slice(value);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Decimal128Array, Float64Array, Int16Array, Int64Array};

    use super::*;

    fn found(constants: ArrayRef, array: ArrayRef) -> Vec<bool> {
        Lookup::of(&constants).unwrap().found(&array).iter().collect()
    }

    #[test]
    fn close_and_distant_numbers_are_found() {
        let near: ArrayRef = Arc::new(Int16Array::from(vec![5, 70, 300]));
        assert!(matches!(Lookup::of(&near).unwrap().set, Set::Bitmap { .. }));
        let array: ArrayRef = Arc::new(Int16Array::from(vec![4, 5, 70, 71, 300, 301, i16::MIN, -1]));
        assert_eq!(found(near, array), [false, true, true, false, true, false, false, false]);

        let far: ArrayRef = Arc::new(Int64Array::from(vec![i64::MIN, -1, 0, i64::MAX]));
        assert!(matches!(Lookup::of(&far).unwrap().set, Set::Words(_)));
        let array: ArrayRef = Arc::new(Int64Array::from(vec![i64::MIN, -2, -1, 0, 1, i64::MAX]));
        assert_eq!(found(far, array), [true, false, true, true, false, true]);
    }

    #[test]
    fn numbers_around_zero_are_found() {
        let around: ArrayRef = Arc::new(Int16Array::from(vec![-2, 0, 2]));
        let array: ArrayRef = Arc::new(Int16Array::from_iter_values(-3..=3));
        assert_eq!(found(around, array), [false, true, false, true, false, true, false]);
    }

    #[test]
    fn floats_and_wide_values_are_found_by_their_bits() {
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![0.0, f64::NAN]));
        let array: ArrayRef = Arc::new(Float64Array::from(vec![0.0, -0.0, f64::NAN, 1.0]));
        assert_eq!(found(floats, array), [true, false, true, false]);
        let wide: ArrayRef = Arc::new(Decimal128Array::from(vec![1, -1, i128::MAX]));
        let array: ArrayRef = Arc::new(Decimal128Array::from(vec![0, -1, i128::MAX, 1]));
        assert_eq!(found(wide, array), [false, true, true, true]);
    }
}
