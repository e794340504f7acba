//! Building Arrow strings and byte strings from decoded bytes.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, GenericByteArray, GenericByteViewArray};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{
    ArrowNativeType as _, ByteArrayType, ByteViewType, DataType, GenericBinaryType, GenericStringType,
};

use super::{Lengths, present};
use crate::dtype::DType;
use crate::dtype::arrow::data_type;
use crate::kernels::joined::{Follow, Joined};
use crate::kernels::views::{MAX_INLINE, VIEW_BYTES, binary_views, string_views, view_len, view_of};
use crate::limits::Limits;
use crate::{Error, Result};

/// Views have 32-bit offsets, which Arrow requires to be non-negative as signed integers. Longer bytes
/// are shared through buffers that start this far apart, so that each value is contained in one.
const BUFFER_STEP: usize = 1 << 30;

/// Maximum number of bytes that views may keep alive per byte used.
const MAX_HELD: usize = 4;

/// Whether bytes start at an address divisible by `width`.
pub(crate) fn is_aligned(bytes: &Buffer, width: usize) -> bool {
    bytes.as_ptr().align_offset(width) == 0
}

/// The same bytes at an address divisible by `width`, as Arrow requires; copies them only if necessary.
pub(crate) fn aligned(bytes: Buffer, width: usize) -> Buffer {
    if is_aligned(&bytes, width) { bytes } else { Buffer::from(bytes.as_slice()) }
}

/// Whether values of this type must be valid text.
///
/// # Errors
/// If it is neither text nor bytes.
pub(crate) fn is_text(dtype: &DType) -> Result<bool> {
    match dtype {
        DType::Utf8(_) => Ok(true),
        DType::Binary(_) => Ok(false),
        other => Err(Error::corrupt(format!("holds strings or bytes, not {other}"))),
    }
}

/// The values `bytes[offsets[i]..offsets[i + 1]]`, as Arrow type `to`. Bytes are shared instead of copied
/// if `to` allows it. Values under nulls need not be text.
///
/// Offsets must not decrease, nor exceed the length of the bytes.
///
/// # Errors
/// If a valid value is not text but should be, `to` cannot address the bytes, or views or offsets exceed the limits.
pub(crate) fn from_offsets(
    dtype: &DType,
    to: &DataType,
    bytes: &Buffer,
    offsets: &[usize],
    nulls: Option<NullBuffer>,
    limits: &Limits,
) -> Result<ArrayRef> {
    let (first, last) = match offsets {
        [first, .., last] => (*first, *last),
        _ => (0, 0),
    };
    let bytes = bytes.slice_with_length(first, last - first);
    let direct = match to {
        DataType::Utf8 => with_offsets::<GenericStringType<i32>>(&bytes, offsets, nulls.as_ref(), limits)?,
        DataType::LargeUtf8 => {
            with_offsets::<GenericStringType<i64>>(&bytes, offsets, nulls.as_ref(), limits)?
        }
        DataType::Binary => with_offsets::<GenericBinaryType<i32>>(&bytes, offsets, nulls.as_ref(), limits)?,
        DataType::LargeBinary => {
            with_offsets::<GenericBinaryType<i64>>(&bytes, offsets, nulls.as_ref(), limits)?
        }
        _ => None,
    };
    if let Some(array) = direct {
        return Ok(array);
    }
    // Not a type with offsets, or garbage under nulls, or an error that views report better.
    let whole = i32::try_from(bytes.len()).is_ok();
    let buffers: Vec<Buffer> = if whole {
        vec![bytes.clone()]
    } else {
        let end = |start: usize| bytes.len().min(start + 2 * BUFFER_STEP - 1);
        let starts = (0..bytes.len()).step_by(BUFFER_STEP);
        starts.map(|start| bytes.slice_with_length(start, end(start) - start)).collect()
    };
    limits.count_rows(offsets.len().saturating_sub(1), VIEW_BYTES)?;
    let longest = if whole { i32::MAX as usize } else { BUFFER_STEP };
    let slice = bytes.as_slice();
    let mut views = Vec::with_capacity(offsets.len().saturating_sub(1));
    for pair in offsets.windows(2) {
        let (start, len) = (pair[0] - first, pair[1] - pair[0]);
        if len > longest {
            return Err(Error::limit(format!("a value of {len} bytes")));
        }
        let (buffer, offset) = if whole { (0, start) } else { (start / BUFFER_STEP, start % BUFFER_STEP) };
        // All values are below 2^32: lengths and offsets as just checked, and there is only one buffer per GiB of
        // bytes.
        views.push(view_of(slice, start, len as u32, buffer as u32, offset as u32));
    }
    from_views(dtype, to, views.into(), buffers.into(), nulls, limits)
}

/// Counts what [`from_codes`] makes of each row, a view or the end of its value, before anything is decoded: rows may
/// take no bytes in the file.
///
/// # Errors
/// If it exceeds the limits.
pub(crate) fn count_rows(dtype: &DType, to: &DataType, rows: usize, limits: &Limits) -> Result<usize> {
    let width = if *to == data_type(dtype)? { VIEW_BYTES } else { size_of::<usize>() };
    limits.count_rows(rows, width)
}

/// Concatenated values, as Arrow type `to`. Values under nulls need not be text. `decode` returns `None` if codes do
/// not represent as many bytes as the lengths add up to. Callers have [counted the rows](count_rows).
///
/// # Errors
/// As [`from_offsets`], and if `decode` fails.
pub(crate) fn from_codes(
    dtype: &DType,
    to: &DataType,
    lengths: &Lengths,
    nulls: Option<NullBuffer>,
    limits: &Limits,
    decode: impl FnOnce(&mut dyn Follow) -> Option<Joined>,
) -> Result<ArrayRef> {
    let joined = if *to == data_type(dtype)? {
        match lengths.views(nulls.as_ref(), is_text(dtype)?, decode) {
            Some(Ok(views)) => return present(views, to),
            Some(Err(given_back)) => Some(given_back),
            None => None,
        }
    } else {
        decode(&mut ())
    };
    let joined =
        joined.ok_or_else(|| Error::corrupt(format!("codes do not decode to {} bytes", lengths.total())))?;
    let (bytes, ends) = (Buffer::from_vec(joined.into_bytes()), lengths.ends());
    if ends.last() != Some(&bytes.len()) {
        return Err(Error::corrupt(format!("{} bytes of values in {}", lengths.total(), bytes.len())));
    }
    from_offsets(dtype, to, &bytes, &ends, nulls, limits)
}

/// The values that views refer to, as Arrow type `to`. Only valid rows are checked; others may be garbage.
///
/// # Errors
/// If a valid view does not lie within its buffer, or is not text but should be.
pub(crate) fn from_views(
    dtype: &DType,
    to: &DataType,
    views: ScalarBuffer<u128>,
    buffers: Arc<[Buffer]>,
    nulls: Option<NullBuffer>,
    limits: &Limits,
) -> Result<ArrayRef> {
    let array: ArrayRef = if is_text(dtype)? {
        Arc::new(string_views(views, buffers, nulls)?)
    } else {
        Arc::new(binary_views(views, buffers, nulls)?)
    };
    present_views(array, to, limits)
}

/// Converts an array of views to Arrow type `to`. Views may share bytes, so the size of the copy is
/// checked against the limits.
///
/// # Errors
/// If the copy would be too large.
pub(crate) fn present_views(array: ArrayRef, to: &DataType, limits: &Limits) -> Result<ArrayRef> {
    let views = match array.data_type() {
        DataType::Utf8View => array.as_string_view().views(),
        DataType::BinaryView => array.as_binary_view().views(),
        _ => return present(array, to),
    };
    if array.data_type() != to {
        let bytes = views.iter().fold(0usize, |sum, view| sum.saturating_add(view_len(*view)));
        limits.count_bytes(bytes as u64)?;
        if !matches!(to, DataType::LargeUtf8 | DataType::LargeBinary) && i32::try_from(bytes).is_err() {
            return Err(Error::limit(format!("{bytes} bytes of strings do not fit {to}")));
        }
    }
    present(array, to)
}

/// The same values without buffers that are much larger than what views use of them: otherwise, a few
/// rows would keep the bytes of all rows alive.
pub(crate) fn let_go(array: ArrayRef) -> ArrayRef {
    let_go_if(array, |used, held| held / MAX_HELD > used)
}

/// As [`let_go`], if `wastes` holds for the bytes that views use and the bytes that their buffers hold.
pub(crate) fn let_go_if(array: ArrayRef, wastes: impl Fn(usize, usize) -> bool) -> ArrayRef {
    fn gc<V: ByteViewType>(
        array: &GenericByteViewArray<V>,
        wastes: impl Fn(usize, usize) -> bool,
    ) -> Option<ArrayRef> {
        let held = array.data_buffers().iter().fold(0usize, |sum, buffer| sum.saturating_add(buffer.len()));
        let long = array.views().iter().map(|view| view_len(*view)).filter(|len| *len > MAX_INLINE);
        let used = long.fold(0, usize::saturating_add);
        wastes(used, held).then(|| Arc::new(array.gc()) as ArrayRef)
    }
    let smaller = match array.data_type() {
        DataType::Utf8View => gc(array.as_string_view(), wastes),
        DataType::BinaryView => gc(array.as_binary_view(), wastes),
        _ => None,
    };
    smaller.unwrap_or(array)
}

/// An array with offsets that shares `bytes`; `None` if Arrow rejects it.
///
/// # Errors
/// If the offsets exceed the limits.
fn with_offsets<T: ByteArrayType>(
    bytes: &Buffer,
    offsets: &[usize],
    nulls: Option<&NullBuffer>,
    limits: &Limits,
) -> Result<Option<ArrayRef>> {
    let (Some(first), Some(_)) = (offsets.first(), T::Offset::from_usize(bytes.len())) else {
        return Ok(None);
    };
    limits.count::<T::Offset>(offsets.len())?;
    // No offset exceeds the last one, which fits.
    let offsets: Vec<T::Offset> = offsets.iter().map(|offset| T::Offset::usize_as(offset - first)).collect();
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let array = GenericByteArray::<T>::try_new(offsets, bytes.clone(), nulls.cloned()).ok();
    Ok(array.map(|array| Arc::new(array) as ArrayRef))
}

#[cfg(test)]
mod tests {
    use arrow::array::{BinaryArray, LargeStringArray, StringArray, StringViewArray};

    use super::*;

    fn build(to: &DataType, bytes: &[u8], offsets: &[usize], nulls: Option<Vec<bool>>) -> Result<ArrayRef> {
        let nulls = nulls.map(NullBuffer::from);
        let dtype = if matches!(to, DataType::Binary) { DType::Binary(true) } else { DType::Utf8(true) };
        from_offsets(&dtype, to, &Buffer::from(bytes), offsets, nulls, &Limits::default())
    }

    #[test]
    fn every_target_holds_the_same_values() {
        let (bytes, offsets) = ("..abc, a longer value and ü|".as_bytes(), [2, 5, 5, 28]);
        let words = vec!["abc", "", ", a longer value and ü"];
        let equal = |to: DataType, wanted: ArrayRef| {
            let built = build(&to, bytes, &offsets, None).unwrap();
            built.to_data().validate_full().unwrap();
            assert_eq!(&built, &wanted);
        };
        equal(DataType::Utf8View, Arc::new(StringViewArray::from(words.clone())));
        equal(DataType::Utf8, Arc::new(StringArray::from(words.clone())));
        equal(DataType::LargeUtf8, Arc::new(LargeStringArray::from(words.clone())));
        equal(DataType::Binary, Arc::new(BinaryArray::from_iter_values(words)));
        let dictionary = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        assert_eq!(build(&dictionary, bytes, &offsets, None).unwrap().data_type(), &dictionary);
    }

    #[test]
    fn only_valid_rows_must_be_text() {
        let (bytes, offsets) = (b"good\xFF\xFE, and enough to not lie in the view", [0, 4, 6, 41]);
        for to in [DataType::Utf8View, DataType::Utf8, DataType::LargeUtf8] {
            let built = build(&to, bytes, &offsets, Some(vec![true, false, true])).unwrap();
            built.to_data().validate_full().unwrap();
            assert_eq!(built.null_count(), 1);
            assert!(build(&to, bytes, &offsets, None).is_err());
        }
        assert!(build(&DataType::Binary, bytes, &offsets, None).is_ok());
    }

    #[test]
    fn few_views_let_go_of_many_bytes() {
        let long = "a string of more than twelve bytes";
        let all: ArrayRef = Arc::new(StringViewArray::from(vec![long; 100]));
        let held =
            |array: &ArrayRef| array.as_string_view().data_buffers().iter().map(Buffer::len).sum::<usize>();
        let few = let_go(all.slice(7, 2));
        assert_eq!((held(&few), &few), (2 * long.len(), &all.slice(0, 2)));
        let most = let_go(all.slice(0, 90));
        assert_eq!(held(&most), 100 * long.len());
        let inline: ArrayRef = Arc::new(StringViewArray::from(vec!["short", long]));
        assert_eq!(held(&let_go(inline.slice(0, 1))), 0);
    }

    #[test]
    fn views_and_offsets_of_rows_without_bytes_count() {
        let offsets = [0; 101];
        let within = |to: &DataType, bytes| {
            let limits = Limits::new().with_max_decoded_bytes(bytes);
            from_offsets(&DType::Utf8(false), to, &Buffer::default(), &offsets, None, &limits)
        };
        for (to, bytes) in [(DataType::Utf8View, 1600), (DataType::Utf8, 404), (DataType::LargeUtf8, 808)] {
            assert_eq!(within(&to, bytes).unwrap().len(), 100);
            assert!(matches!(within(&to, bytes - 1), Err(Error::LimitExceeded(_))), "{to}");
        }
    }

    #[test]
    fn no_rows_need_no_offsets() {
        for offsets in [&[][..], &[0], &[3]] {
            for to in [DataType::Utf8View, DataType::Utf8] {
                assert_eq!(build(&to, b"abc", offsets, None).unwrap().len(), 0);
            }
        }
    }
}
