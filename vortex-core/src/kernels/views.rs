//! Views: 16 bytes per string, with the same layout in the file and in Arrow.
//!
//! ```text
//! up to 12 bytes   [u32 length][the bytes, then zeros          ]
//! longer           [u32 length][first 4 bytes][u32 buffer][u32 offset]
//! ```
//!
//! [`string_views`] and [`binary_views`] are the only ways to create Arrow arrays of views that were read: they check
//! every view, in bulk if possible. Text is validated per buffer instead of per string; strings are then
//! valid if they start and end at character boundaries.
#![expect(unsafe_code, reason = "Arrow's own check goes string by string")]

use std::mem::MaybeUninit;
use std::sync::Arc;

use arrow::array::{Array as _, BinaryViewArray, GenericByteViewArray, NullBufferBuilder, StringViewArray};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::ByteViewType;

use super::gather::{Key, gather};
use super::joined::is_ascii;
use super::runs::{repeat_one, repeat_runs};
use super::simd::{Vectorized, vectorized};
use crate::{Error, Result};

/// Bytes of a view.
pub(crate) const VIEW_BYTES: usize = 16;

/// Maximum length of a value that is stored in the view itself.
pub(crate) const MAX_INLINE: usize = 12;

/// Limit of the bytes read when strings are validated one by one: overlapping views could require any amount.
const MAX_CHECKED_BYTES: usize = 1 << 31;

/// The high bits of all twelve inline bytes.
const NOT_ASCII: u128 = 0x8080_8080_8080_8080_8080_8080 << 32;

/// Masks of the bits after an inline value, by its length.
const PADDING: [u128; MAX_INLINE + 1] = {
    let mut masks = [0; MAX_INLINE + 1];
    let mut len = 0;
    while len < MAX_INLINE {
        masks[len] = u128::MAX << (32 + 8 * len);
        len += 1;
    }
    masks
};

/// The view of `bytes[start..start + len]`; a long value is referenced at `offset` in buffer `buffer`.
///
/// # Panics
/// If the range extends beyond the bytes.
#[inline]
pub(crate) fn view_of(bytes: &[u8], start: usize, len: u32, buffer: u32, offset: u32) -> u128 {
    let size = len as usize;
    let head = match bytes[start..].first_chunk::<16>() {
        Some(chunk) => {
            assert!(size <= bytes.len() - start, "value reaches past its buffer");
            u128::from_le_bytes(*chunk)
        }
        None => {
            let mut chunk = [0; 16];
            chunk[..size].copy_from_slice(&bytes[start..start + size]);
            u128::from_le_bytes(chunk)
        }
    };
    if size <= MAX_INLINE {
        u128::from(len) | (head & ((1 << (8 * size)) - 1)) << 32
    } else {
        let prefix = head & 0xFFFF_FFFF;
        u128::from(len) | prefix << 32 | u128::from(buffer) << 64 | u128::from(offset) << 96
    }
}

/// The length of the value that a view represents.
#[inline]
pub(crate) fn view_len(view: u128) -> usize {
    (view & 0xFFFF_FFFF) as usize
}

/// Creates an array of strings from views. Views and bytes of null rows are ignored, and are not
/// preserved unless they happen to be valid.
///
/// # Errors
/// If a valid row extends beyond its buffer, or is not UTF-8.
pub(crate) fn string_views(
    views: ScalarBuffer<u128>,
    buffers: Arc<[Buffer]>,
    nulls: Option<NullBuffer>,
) -> Result<StringViewArray> {
    let views = checked(views, &buffers, nulls.as_ref(), true)?;
    // SAFETY: `checked` returns only views within their buffers, with correct prefixes and zeroed
    // padding, over valid UTF-8, and as many as there are null bits.
    Ok(unsafe { StringViewArray::new_unchecked(views, buffers, nulls) })
}

/// Creates an array of byte strings from views, as [`string_views`].
///
/// # Errors
/// If a valid row extends beyond its buffer.
pub(crate) fn binary_views(
    views: ScalarBuffer<u128>,
    buffers: Arc<[Buffer]>,
    nulls: Option<NullBuffer>,
) -> Result<BinaryViewArray> {
    let views = checked(views, &buffers, nulls.as_ref(), false)?;
    // SAFETY: as in `string_views`; bytes need not be text.
    Ok(unsafe { BinaryViewArray::new_unchecked(views, buffers, nulls) })
}

/// The values at `keys`, as views into the buffers of `values`; no bytes are copied. `None` if a key is
/// out of range, or the number of null bits is not that of keys.
pub(crate) fn gather_views<V: ByteViewType, K: Key>(
    values: &GenericByteViewArray<V>,
    keys: &[K],
    nulls: Option<NullBuffer>,
) -> Option<GenericByteViewArray<V>> {
    if nulls.as_ref().is_some_and(|nulls| nulls.len() != keys.len()) {
        return None;
    }
    let views = gather(values.views(), keys)?;
    // SAFETY: each view is taken from a valid Arrow array with the same buffers.
    Some(unsafe {
        GenericByteViewArray::<V>::new_unchecked(views.into(), values.data_buffers().to_vec(), nulls)
    })
}

/// The rows of several arrays, one after the other; no bytes are copied. `None` if there are more buffers than views
/// can number.
pub(crate) fn concat_views<V: ByteViewType>(
    parts: &[&GenericByteViewArray<V>],
) -> Option<GenericByteViewArray<V>> {
    let rows = parts.iter().map(|part| part.len()).sum();
    let (mut views, mut nulls) = (Vec::with_capacity(rows), NullBufferBuilder::new(rows));
    let (mut buffers, mut last): (Vec<Buffer>, &[Buffer]) = (Vec::new(), &[]);
    for part in parts {
        let own = part.data_buffers();
        // Rows that a dictionary was divided into share its buffers.
        if own.len() != last.len() || !own.iter().zip(last).all(|(own, last)| own.ptr_eq(last)) {
            buffers.extend_from_slice(own);
            last = own;
        }
        u32::try_from(buffers.len()).ok()?;
        match (buffers.len() - own.len()) as u32 {
            0 => views.extend_from_slice(part.views()),
            first => append_renumbered(part.views(), first, &mut views),
        }
        match part.nulls() {
            Some(of_part) => nulls.append_buffer(of_part),
            None => nulls.append_n_non_nulls(part.len()),
        }
    }
    // SAFETY: each view is taken from a valid Arrow array. A long one has the number that the same buffer has among
    // those of all arrays, which are together as many as 32 bits can tell. There is a null bit for each row.
    Some(unsafe { GenericByteViewArray::<V>::new_unchecked(views.into(), buffers, nulls.finish()) })
}

/// Appends views; `first` is added to the buffers that long ones refer to.
pub(crate) fn append_renumbered(views: &[u128], first: u32, to: &mut Vec<u128>) {
    to.reserve(views.len());
    vectorized(Renumber { views, first, out: &mut to.spare_capacity_mut()[..views.len()] });
    // SAFETY: there is capacity for as many views, and all of them were written.
    unsafe { to.set_len(to.len() + views.len()) };
}

/// Writes all of `out`, which is as long as `views`.
struct Renumber<'a> {
    views: &'a [u128],
    first: u32,
    out: &'a mut [MaybeUninit<u128>],
}

impl Vectorized for Renumber<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        assert_eq!(self.views.len(), self.out.len(), "a place for each view");
        for (view, to) in self.views.iter().zip(self.out) {
            let (low, high) = (*view as u64, (*view >> 64) as u64);
            let is_long = low as u32 > MAX_INLINE as u32;
            let high = high.wrapping_add(if is_long { u64::from(self.first) } else { 0 });
            // SAFETY: both halves fit the place, which is aligned at least as they are, and any bits are a number.
            // The compiler vectorizes stores of halves, but not of 128 bits.
            unsafe { to.as_mut_ptr().cast::<[u64; 2]>().write([low, high]) };
        }
    }
}

/// Expands runs to `rows` rows; run `i` repeats `values[i]` up to the `i`th end. No bytes are copied.
///
/// # Panics
/// If the ends decrease, the last end is not `rows`, or there are not as many null bits.
pub(crate) fn repeat_views<V: ByteViewType>(
    values: &GenericByteViewArray<V>,
    ends: impl Iterator<Item = usize>,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> GenericByteViewArray<V> {
    assert!(nulls.as_ref().is_none_or(|nulls| nulls.len() == rows), "as many null bits as rows");
    let views = repeat_runs(values.views(), ends, rows);
    // SAFETY: each view is taken from a valid Arrow array with the same buffers.
    unsafe { GenericByteViewArray::<V>::new_unchecked(views.into(), values.data_buffers().to_vec(), nulls) }
}

/// Repeats the first value of `one` in all of `rows` rows; no bytes are copied. `None` if `one` is empty.
pub(crate) fn repeat_view<V: ByteViewType>(
    one: &GenericByteViewArray<V>,
    rows: usize,
) -> Option<GenericByteViewArray<V>> {
    let views = repeat_one(*one.views().first()?, rows);
    let nulls = one.is_null(0).then(|| NullBuffer::new_null(rows));
    // SAFETY: each view is taken from a valid Arrow array with the same buffers.
    Some(unsafe {
        GenericByteViewArray::<V>::new_unchecked(views.into(), one.data_buffers().to_vec(), nulls)
    })
}

/// Views that are valid for Arrow: the given ones if they are valid, otherwise with null rows and padding
/// zeroed.
fn checked(
    views: ScalarBuffer<u128>,
    buffers: &[Buffer],
    nulls: Option<&NullBuffer>,
    utf8: bool,
) -> Result<ScalarBuffer<u128>> {
    if let Some(nulls) = nulls.filter(|nulls| nulls.len() != views.len()) {
        return Err(Error::corrupt(format!("{} null bits for {} views", nulls.len(), views.len())));
    }
    if all_well_formed(&views, buffers, utf8) {
        return Ok(views);
    }
    let mut left = MAX_CHECKED_BYTES;
    let rewritten: Vec<u128> = views
        .iter()
        .enumerate()
        .map(|(row, view)| {
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                return Ok(0);
            }
            normalized(*view, buffers, utf8, &mut left).map_err(|error| error.at(format!("row {row}")))
        })
        .collect::<Result<_>>()?;
    Ok(rewritten.into())
}

/// Checks a single view, and returns it with zeroed padding.
fn normalized(view: u128, buffers: &[Buffer], utf8: bool, left: &mut usize) -> Result<u128> {
    let len = view_len(view);
    let text = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Err(error) if utf8 => Err(Error::corrupt(format!("string is not UTF-8: {error}"))),
        _ => Ok(()),
    };
    if len <= MAX_INLINE {
        text(&view.to_le_bytes()[4..4 + len])?;
        return Ok(view & u128::MAX >> (8 * (MAX_INLINE - len)));
    }
    let bytes = long_value(view, buffers).ok_or_else(|| {
        let long = Long::of(view);
        Error::corrupt(format!("view of {len} bytes at {} of buffer {}", long.offset, long.buffer))
    })?;
    if bytes[..4] != view.to_le_bytes()[4..8] {
        return Err(Error::corrupt("prefix of a view differs from its value"));
    }
    *left = left
        .checked_sub(len)
        .ok_or_else(|| Error::limit(format!("views share more than {MAX_CHECKED_BYTES} bytes")))?;
    text(bytes)?;
    Ok(view)
}

/// The parts of a view of a value longer than [`MAX_INLINE`].
struct Long {
    len: usize,
    prefix: u32,
    buffer: usize,
    offset: usize,
}

impl Long {
    #[inline]
    fn of(view: u128) -> Self {
        let word = |at: u32| (view >> (32 * at) & 0xFFFF_FFFF) as u32;
        Self { len: word(0) as usize, prefix: word(1), buffer: word(2) as usize, offset: word(3) as usize }
    }
}

/// The bytes that a long view refers to; also checks that Arrow can represent the length.
#[inline]
fn long_value(view: u128, buffers: &[Buffer]) -> Option<&[u8]> {
    let long = Long::of(view);
    let end = long.offset + long.len;
    (long.len <= i32::MAX as usize).then_some(())?;
    buffers.get(long.buffer)?.get(long.offset..end)
}

/// Whether all rows are valid for Arrow, including those under nulls. May return false although a closer
/// check would succeed.
fn all_well_formed(views: &[u128], buffers: &[Buffer], utf8: bool) -> bool {
    // The range of bytes in each buffer that views refer to.
    let mut windows = vec![(usize::MAX, 0usize); buffers.len()];
    let mut long_bytes = 0usize;
    let suspicious = if utf8 { NOT_ASCII } else { 0 };
    for view in views {
        let len = view_len(*view);
        if let Some(padding) = PADDING.get(len) {
            if view & (padding | suspicious) != 0 {
                let text = !utf8 || std::str::from_utf8(&view.to_le_bytes()[4..4 + len]).is_ok();
                if view & padding != 0 || !text {
                    return false;
                }
            }
        } else {
            let long = Long::of(*view);
            let prefix = long_value(*view, buffers).and_then(|value| value.first_chunk::<4>());
            if prefix.is_none_or(|prefix| u32::from_le_bytes(*prefix) != long.prefix) {
                return false;
            }
            let window = &mut windows[long.buffer];
            *window = (window.0.min(long.offset), window.1.max(long.offset + long.len));
            long_bytes = long_bytes.saturating_add(long.len);
        }
    }
    !utf8 || long_bytes == 0 || all_text(views, buffers, &windows, long_bytes)
}

/// Whether the long views contain text, determined by validating whole windows of the buffers. Returns
/// false without validating if the windows are much larger than the strings in them.
fn all_text(views: &[u128], buffers: &[Buffer], windows: &[(usize, usize)], long_bytes: usize) -> bool {
    let reached = || buffers.iter().zip(windows).filter(|(_, window)| window.0 < window.1);
    let window_bytes: usize = reached().map(|(_, window)| window.1 - window.0).sum();
    if window_bytes / 4 > long_bytes {
        return false;
    }
    let mut ascii = true;
    for (buffer, window) in reached() {
        let bytes = &buffer[window.0..window.1];
        if is_ascii(bytes) {
            continue;
        }
        ascii = false;
        if std::str::from_utf8(bytes).is_err() {
            return false;
        }
    }
    ascii
        || views.iter().filter(|view| view_len(**view) > MAX_INLINE).all(|view| {
            let long = Long::of(*view);
            let buffer = buffers[long.buffer].as_slice();
            between_characters(buffer, long.offset) && between_characters(buffer, long.offset + long.len)
        })
}

/// Whether `at` is not inside a character. The end is treated like any other position: the bytes after it
/// were not validated, but a continuation byte there would belong to the preceding character.
#[inline]
fn between_characters(bytes: &[u8], at: usize) -> bool {
    bytes.get(at).is_none_or(|byte| byte & 0xC0 != 0x80)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::BinaryViewType;

    use super::*;

    fn views_of(bytes: &[u8], ranges: &[(usize, u32)]) -> ScalarBuffer<u128> {
        ranges
            .iter()
            .map(|(start, len)| view_of(bytes, *start, *len, 0, u32::try_from(*start).unwrap()))
            .collect()
    }

    fn one(bytes: &[u8]) -> Arc<[Buffer]> {
        vec![Buffer::from(bytes)].into()
    }

    #[test]
    fn views_equal_those_that_arrow_makes() {
        let text = "short|exactly 12 b|thirteen bytes|and one that is quite a bit longer, with ümläuts|";
        let (mut ranges, mut naive, mut start) = (vec![], vec![], 0);
        for part in text.split('|') {
            ranges.push((start, u32::try_from(part.len()).unwrap()));
            naive.push(part);
            start += part.len() + 1;
        }
        ranges.pop();
        naive.pop();
        let built = string_views(views_of(text.as_bytes(), &ranges), one(text.as_bytes()), None).unwrap();
        built.to_data().validate_full().unwrap();
        assert_eq!(built, StringViewArray::from(naive));
    }

    #[test]
    fn repeated_views_are_those_of_each_row_of_a_run() {
        let values =
            StringViewArray::from(vec![Some("short"), None, Some("a string of more than twelve bytes")]);
        let (ends, rows) = ([2usize, 2, 40], 40);
        let nulls = NullBuffer::from_iter((0..rows).map(|row| row != 7));
        let repeated = repeat_views(&values, ends.into_iter(), rows, Some(nulls));
        let row = |row: usize| match row {
            7 => None,
            0 | 1 => Some("short"),
            _ => Some("a string of more than twelve bytes"),
        };
        assert_eq!(repeated, (0..rows).map(row).collect::<StringViewArray>());
        repeated.to_data().validate_full().unwrap();
    }

    #[test]
    fn joined_views_are_the_rows_of_all_arrays() {
        let rows = |at: usize| match at % 4 {
            0 => None,
            1 => Some(format!("short {at}")),
            2 => Some(format!("number {at} of more than twelve bytes")),
            _ => Some(String::new()),
        };
        let array = |rows: &mut dyn Iterator<Item = Option<String>>| rows.collect::<StringViewArray>();
        let (some, valid) = (array(&mut (0..50).map(rows)), array(&mut (1..4).map(rows)));
        let parts = [
            some.slice(3, 20),
            some.slice(23, 0),
            some.slice(23, 27),
            valid.clone(),
            some.slice(0, 9),
            valid,
        ];
        let joined = concat_views(&parts.iter().collect::<Vec<_>>()).unwrap();
        joined.to_data().validate_full().unwrap();
        let naive: StringViewArray = parts.iter().flatten().collect();
        assert_eq!(joined, naive);
        assert_eq!(joined.data_buffers().len(), 4, "adjacent slices share their buffers");
        let bytes: Vec<_> = parts.iter().map(|part| part.clone().to_binary_view()).collect();
        let joined = concat_views(&bytes.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(joined, naive.to_binary_view());
        assert_eq!(concat_views::<BinaryViewType>(&[]).unwrap().len(), 0);
    }

    #[test]
    fn a_string_that_splits_a_character_is_refused() {
        let text = "ääääääääääääääää".as_bytes();
        assert!(string_views(views_of(text, &[(0, 14), (14, 14)]), one(text), None).is_ok());
        assert!(string_views(views_of(text, &[(0, 15)]), one(text), None).is_err());
        assert!(string_views(views_of(text, &[(1, 13)]), one(text), None).is_err());
        assert!(string_views(views_of(text, &[(1, 3)]), one(text), None).is_err());
        assert!(binary_views(views_of(text, &[(1, 13)]), one(text), None).is_ok());
    }

    #[test]
    fn text_is_checked_in_every_buffer_however_views_alternate() {
        let text = "a text of more than twelve bytes, and another".as_bytes();
        let rows = [(2, 0, 32), (0, 1, 20), (2, 13, 31), (0, 22, 23), (1, 5, 40), (0, 0, 13)];
        let views = || {
            rows.iter().map(|&(buffer, start, len)| view_of(text, start, len, buffer, start as u32)).collect()
        };
        let intact: Arc<[Buffer]> = vec![Buffer::from(text); 3].into();
        let array = string_views(views(), Arc::clone(&intact), None).unwrap();
        array.to_data().validate_full().unwrap();
        // Damaged behind the first bytes of all strings, which views repeat.
        for (buffer, at) in [(0, 12), (0, 44), (1, 44), (2, 43)] {
            let mut damaged = text.to_vec();
            damaged[at] = 0xFF;
            let mut buffers = intact.to_vec();
            buffers[buffer] = Buffer::from(damaged);
            assert!(string_views(views(), buffers.into(), None).is_err(), "byte {at} of buffer {buffer}");
        }
    }

    #[test]
    fn garbage_under_nulls_is_replaced_and_elsewhere_refused() {
        let beyond = 20u128 | 7 << 64;
        let views: ScalarBuffer<u128> = vec![beyond, view_of(b"ok", 0, 2, 0, 0)].into();
        let nulls = NullBuffer::from(vec![false, true]);
        let array = string_views(views.clone(), one(b""), Some(nulls)).unwrap();
        array.to_data().validate_full().unwrap();
        assert_eq!(array, StringViewArray::from(vec![None, Some("ok")]));
        assert!(string_views(views.clone(), one(b""), None).is_err());
        assert!(binary_views(views, one(b""), None).is_err());
    }

    #[test]
    fn nonzero_padding_is_zeroed() {
        let padded = view_of(b"abc", 0, 3, 0, 0) | 0xFF << 120;
        let array = string_views(vec![padded].into(), one(b""), None).unwrap();
        array.to_data().validate_full().unwrap();
        assert_eq!(array.value(0), "abc");
    }

    #[test]
    fn a_wrong_prefix_and_a_huge_length_are_refused() {
        let bytes = b"a value of more than twelve bytes";
        let good = view_of(bytes, 0, 33, 0, 0);
        assert!(string_views(vec![good].into(), one(bytes), None).is_ok());
        assert!(string_views(vec![good ^ 1 << 40].into(), one(bytes), None).is_err());
        assert!(string_views(vec![good | 1 << 31].into(), one(bytes), None).is_err());
        assert!(string_views(vec![good | 0xFFFF_FFFF << 96].into(), one(bytes), None).is_err());
    }
}
