//! Decoded and checked codes of rows, and lookups through them.

use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, BooleanArray, UInt32Array, new_empty_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowNativeType, DataType};

use crate::array::{ArrayRef, EncodedRef, fixed_width, match_width, take_within};
use crate::encodings::shared::any_keys::{AnyKeys, with_keys};
use crate::kernels::gather::{Key, gather, in_range};
use crate::kernels::nulls::null_buffer;
use crate::kernels::views::gather_views;
use crate::kernels::within::not_zero;
use crate::limits::Limits;
use crate::scalar::null_rows;
use crate::{Error, Result};

/// Codes of rows, which are in range of the values.
pub(super) struct Keys {
    pub(super) keys: AnyKeys,
    pub(super) nulls: Option<NullBuffer>,
}

impl Keys {
    /// Decodes codes of any integer type for this many values.
    pub(super) fn decode(codes: &EncodedRef, values: usize) -> Result<Self> {
        // Codes of constants take no bytes; their positions do.
        codes.limits().count::<usize>(codes.len())?;
        // There are fewer than 2^32 values; any larger code is out of range, just as `u32::MAX` is.
        let (keys, nulls) = AnyKeys::decode(codes, |code| Ok(u32::try_from(code).unwrap_or(u32::MAX)))?;
        Keys { keys, nulls }.in_range_of(values)
    }

    /// The keys of all rows, including null rows.
    pub(super) fn indices(&self) -> Vec<usize> {
        with_keys!(&self.keys, |keys| keys.iter().map(|key| key.index()).collect())
    }

    pub(super) fn len(&self) -> usize {
        with_keys!(&self.keys, |keys| keys.len())
    }

    /// Checks all keys against the number of values. If a key is out of range, keys under nulls are
    /// replaced with 0, which still is out of range if there are no values.
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

    /// The values at the keys, for any Arrow type.
    pub(super) fn gather(self, values: &ArrayRef, limits: &Limits) -> Result<ArrayRef> {
        let len = self.len();
        if len == 0 {
            return Ok(new_empty_array(values.data_type()));
        }
        if values.is_empty() || values.data_type() == &DataType::Null {
            return null_rows(values.data_type(), len, limits);
        }
        let nulls = self.null_rows(values)?;
        let missing = || Error::corrupt("a code has no value");
        match values.data_type() {
            DataType::Utf8View => with_keys!(&self.keys, |keys| {
                limits.count::<u128>(len)?;
                let views = gather_views(values.as_string_view(), keys, nulls);
                Ok(Arc::new(views.ok_or_else(missing)?) as ArrayRef)
            }),
            DataType::BinaryView => with_keys!(&self.keys, |keys| {
                limits.count::<u128>(len)?;
                let views = gather_views(values.as_binary_view(), keys, nulls);
                Ok(Arc::new(views.ok_or_else(missing)?) as ArrayRef)
            }),
            DataType::Boolean => {
                let bits = self.lookup(values.as_boolean().values())?;
                Ok(Arc::new(BooleanArray::new(bits, nulls)))
            }
            other => match_width!(other.primitive_width(), |N| {
                limits.count::<N>(len)?;
                fixed_width(other.clone(), len, self.words::<N>(values).ok_or_else(missing)?, nulls)
            }, else self.copy(values, limits)),
        }
    }

    /// The values at the keys, as words of the values' width.
    fn words<T: ArrowNativeType>(&self, values: &ArrayRef) -> Option<Buffer> {
        let data = values.to_data();
        let values = data.buffers().first()?.typed_data::<T>().get(data.offset()..)?.get(..data.len())?;
        with_keys!(&self.keys, |keys| gather(values, keys)).map(Buffer::from_vec)
    }

    /// The bits at the keys, from one bit per value.
    pub(super) fn lookup(&self, by_value: &BooleanBuffer) -> Result<BooleanBuffer> {
        let missing = || Error::corrupt("a code has no value");
        with_keys!(&self.keys, |keys| {
            if keys.len() < by_value.len() {
                // The time must depend on the keys only: a few runs can be hundreds of millions of values.
                let at = |row: usize| by_value.value(keys[row].index());
                let known = in_range(keys, by_value.len());
                return known.then(|| BooleanBuffer::collect_bool(keys.len(), at)).ok_or_else(missing);
            }
            // Bytes are gathered faster than bits.
            let bytes: Vec<u8> = by_value.iter().map(u8::from).collect();
            let rows = gather(&bytes, keys).ok_or_else(missing)?;
            Ok(not_zero(&rows))
        })
    }

    /// The validity of the rows, from the codes and the values that they refer to.
    pub(super) fn null_rows(&self, values: &ArrayRef) -> Result<Option<NullBuffer>> {
        // Arrow would create a bit for each of the values, which take no bytes.
        if values.data_type() == &DataType::Null {
            return Ok(Some(NullBuffer::new_null(self.len())));
        }
        let Some(of_values) = values.logical_nulls().filter(|nulls| nulls.null_count() > 0) else {
            return Ok(self.nulls.clone());
        };
        self.with_value_nulls(&of_values).map(Some)
    }

    pub(super) fn with_value_nulls(&self, of_values: &NullBuffer) -> Result<NullBuffer> {
        let bits = self.lookup(of_values.inner())?;
        Ok(null_buffer(match &self.nulls {
            Some(nulls) => &bits & nulls.inner(),
            None => bits,
        }))
    }

    /// Copies values of all other types: lists, structs, strings with offsets.
    fn copy(&self, values: &ArrayRef, limits: &Limits) -> Result<ArrayRef> {
        let indices: Vec<u32> = with_keys!(&self.keys, |keys| {
            // Codes are below the number of values, which fits `u32`.
            keys.iter().map(|key| key.index() as u32).collect()
        });
        take_within(values, &UInt32Array::new(indices.into(), self.nulls.clone()), limits)
    }
}
