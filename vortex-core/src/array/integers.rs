//! Children that contain integers of any width: offsets, codes, lengths, indices.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, PrimitiveArray, UInt64Array};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::ArrowNativeType;

use super::{Decoded, EncodedRef};
use crate::dtype::{DType, PType, match_integer, match_ptype};
use crate::kernels::joined::{Follow, Joined, Views, total_len};
use crate::kernels::rising::positions;
use crate::limits::Limits;
use crate::{Error, Result};

/// The type of a child of integers, none of them null, from its number in the metadata; `what` is their name in errors.
///
/// # Errors
/// If it is another type.
pub(crate) fn integer_type(number: i32, what: &str) -> Result<DType> {
    type_of(number, what, PType::is_integer, "integers")
}

/// As [`integer_type`], of a child of unsigned integers.
///
/// # Errors
/// If it is another type.
pub(crate) fn unsigned_type(number: i32, what: &str) -> Result<DType> {
    type_of(number, what, PType::is_unsigned, "unsigned integers")
}

fn type_of(number: i32, what: &str, fits: fn(PType) -> bool, wanted: &str) -> Result<DType> {
    let ptype = PType::try_from_number(number.into())?;
    if fits(ptype) {
        Ok(DType::Primitive(ptype, false))
    } else {
        Err(Error::corrupt(format!("{what} are {ptype}, not {wanted}")))
    }
}

/// Wraps offsets or lengths as the child of an array with these limits.
pub(crate) fn integers_child(integers: Vec<u64>, limits: &Limits) -> EncodedRef {
    let array = UInt64Array::from(integers);
    Arc::new(Decoded::new(DType::Primitive(PType::U64, false), Arc::new(array), limits))
}

/// Decodes a primitive child into its raw values and its nulls. `N` is any type of the same width as the
/// child's: an unsigned integer type can represent the bits of a signed integer or a float.
pub(crate) fn decode_raw<N: ArrowNativeType>(
    child: &EncodedRef,
) -> Result<(ScalarBuffer<N>, Option<NullBuffer>)> {
    let ptype = child.dtype().ptype()?;
    if ptype.byte_width() != size_of::<N>() {
        return Err(Error::corrupt(format!(
            "values have type {ptype}, expected {} bytes per value",
            size_of::<N>()
        )));
    }
    let data = child.decode_preferred()?.into_data();
    let values = data.buffers().first().cloned().unwrap_or_default();
    let (offset, len) = (data.offset(), data.len());
    let nulls = data.nulls().cloned();
    // Only after this can the values be the sole owner of their bytes.
    drop(data);
    Ok((ScalarBuffer::new(values, offset, len), nulls))
}

/// The inverse of [`decode_raw`]: raw values as an Arrow array of `ptype`.
pub(crate) fn array_of_raw<N: ArrowNativeType>(
    ptype: PType,
    values: ScalarBuffer<N>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    debug_assert_eq!(ptype.byte_width(), size_of::<N>());
    numbers(ptype, &values.into_inner(), nulls)
}

/// Numbers of `ptype` as an Arrow array; their bytes must be suitably aligned. Unlike building an array
/// from `ArrayData`, this does not count the nulls again.
pub(crate) fn numbers(ptype: PType, bytes: &Buffer, nulls: Option<NullBuffer>) -> Result<ArrayRef> {
    match_ptype!(ptype, |T| Ok(Arc::new(PrimitiveArray::<T>::try_new(bytes.clone().into(), nulls)?)))
}

/// Evaluates `$body` with `$integers` bound to a decoded array as one of its own integer type. In the error for arrays
/// of other types, `$what` is their name.
macro_rules! with_integers {
    ($array:expr, $what:expr, |$integers:ident| $body:expr) => {{
        let $integers: &dyn arrow::array::Array = &$array;
        arrow::array::downcast_integer_array!(
            $integers => Ok($body),
            other => Err($crate::Error::corrupt(format!("{} are {other}, not integers", $what)))
        )
    }};
}

pub(crate) use with_integers;

/// Decodes integers of any width and converts each of them. Null rows are converted from 0.
pub(crate) fn decode_integers<R>(
    child: &EncodedRef,
    what: &str,
    convert: impl Fn(i128) -> Result<R>,
) -> Result<Vec<R>> {
    child.limits().count::<R>(child.len())?;
    integers_of(&child.decode_preferred()?, what, convert)
}

/// Converts each of some integers. Null rows are converted from 0.
pub(crate) fn integers_of<R>(
    decoded: &ArrayRef,
    what: &str,
    convert: impl Fn(i128) -> Result<R>,
) -> Result<Vec<R>> {
    let nulls = decoded.logical_nulls().filter(|nulls| nulls.null_count() > 0);
    with_integers!(decoded, what, |integers| {
        let values = integers.values().iter();
        match nulls {
            None => values.map(|value| convert(i128::from(*value))).collect(),
            Some(nulls) => values
                .zip(nulls.iter())
                .map(|(value, valid)| convert(if valid { i128::from(*value) } else { 0 }))
                .collect(),
        }
    })?
}

/// The number of offsets of so many rows.
///
/// # Errors
/// If there are too many rows.
pub(crate) fn one_more(rows: usize) -> Result<usize> {
    rows.checked_add(1).ok_or_else(|| Error::limit(format!("{rows} rows with offsets")))
}

/// Decodes offsets, which must not decrease or exceed `end`. There are [`one_more`] of them than rows.
pub(crate) fn decode_offsets(child: &EncodedRef, what: &str, end: usize) -> Result<Vec<usize>> {
    child.limits().count::<usize>(child.len())?;
    let decoded = child.decode_preferred()?;
    if decoded.null_count() > 0 {
        return Err(Error::corrupt(format!("{what} have nulls")));
    }
    let offsets = with_integers!(decoded, what, |integers| positions::<false, _>(integers.values()))?;
    let offsets = offsets.ok_or_else(|| Error::corrupt(format!("{what} decrease")))?;
    match offsets.last() {
        Some(last) if *last > end => Err(Error::corrupt(format!("{what} end at {last}, beyond {end}"))),
        _ => Ok(offsets),
    }
}

/// Lengths of consecutive values.
pub(crate) struct Lengths {
    decoded: ArrayRef,
    ptype: PType,
    total: usize,
}

impl Lengths {
    /// Decodes the lengths; `what` is their name in errors.
    ///
    /// # Errors
    /// If they are not integers, have nulls, or some are negative.
    pub(crate) fn decode(child: &EncodedRef, what: &str) -> Result<Self> {
        let ptype = child.dtype().ptype()?;
        let decoded = child.decode_preferred()?;
        if decoded.null_count() > 0 {
            return Err(Error::corrupt(format!("{what} have nulls")));
        }
        let total = with_integers!(decoded, what, |integers| total_len(integers.values()))?;
        let total = total.ok_or_else(|| Error::corrupt(format!("{what} are negative")))?;
        Ok(Self { decoded, ptype, total })
    }

    /// Their sum, saturated at `usize::MAX`.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// The ends of the values: one more entry than there are lengths, starting with 0.
    pub(crate) fn ends(&self) -> Vec<usize> {
        let mut ends = Vec::with_capacity(self.decoded.len() + 1);
        ends.push(0);
        match_integer!(self.ptype, |T| {
            let mut end = 0usize;
            ends.extend(self.decoded.as_primitive::<T>().values().iter().map(|len| {
                end = end.saturating_add(len.as_usize());
                end
            }));
        }, else ());
        ends
    }

    /// Views of the values that `decode` joins, as [`Joined::into_views`]; `None` if it fails.
    pub(crate) fn views(
        &self,
        nulls: Option<&NullBuffer>,
        is_text: bool,
        decode: impl FnOnce(&mut dyn Follow) -> Option<Joined>,
    ) -> Option<Result<ArrayRef, Joined>> {
        match_integer!(self.ptype, |T| {
            let mut views = Views::new(self.decoded.as_primitive::<T>().values());
            let joined = decode(&mut views)?;
            Some(joined.into_views(views, nulls, is_text))
        }, else Some(Err(decode(&mut ())?)))
    }
}

/// The single integer in row `at` of a child, decoding only that row.
pub(crate) fn integer_at(child: &EncodedRef, at: usize, what: &str) -> Result<usize> {
    let row = child.slice(at..at + 1)?;
    let value = decode_integers(&row, what, |value| {
        usize::try_from(value).map_err(|_| Error::corrupt(format!("{what} {value} is out of range")))
    })?;
    value.first().copied().ok_or_else(|| Error::corrupt(format!("{what} are missing")))
}
