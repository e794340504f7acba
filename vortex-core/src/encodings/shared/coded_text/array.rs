//! Arrays of text that is stored as codes. Encodings differ in what codes are, and what they stand for.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::DataType;

use super::{answers, as_long, matches_none};
use crate::array::{
    ArrayRef, EncodedArray, EncodedRef, Header, Lengths, Pick, Validity, ValidityChild, bytes,
    decode_offsets, integer_at, integers_child,
};
use crate::encodings::shared::offsets::Places;
use crate::expr::Predicate;
use crate::kernels::joined::{Follow, Joined};
use crate::limits::Limits;
use crate::{Error, Result};

/// What errors call the offsets.
pub(in crate::encodings) const OFFSETS: &str = "codes offsets";

/// The codes of many rows, one row after the other, and what they stand for.
pub(in crate::encodings) trait Codes: Debug + Clone + Send + Sync + 'static {
    /// Maximum number of bytes that a code stands for.
    const MAX_BYTES_PER_CODE: usize;

    /// Adjacent codes that can be read.
    type Window<'a>;

    /// Number of codes.
    fn len(&self) -> usize;

    /// The children of an array but its validity, among which are the offsets and the lengths of its rows.
    fn children<'a>(
        &'a self,
        offsets: &'a EncodedRef,
        lengths: &'a EncodedRef,
    ) -> Vec<(&'static str, &'a EncodedRef)>;

    fn buffer_bytes(&self) -> usize;

    /// The codes at these places, which exist.
    ///
    /// # Errors
    /// If they are corrupt, or exceed the limits.
    fn window(&self, places: Range<usize>, limits: &Limits) -> Result<Self::Window<'_>>;

    /// The concatenated codes of some rows, and the end of each row.
    ///
    /// # Errors
    /// If they are corrupt, or exceed the limits.
    fn gather(&self, places: &Places, limits: &Limits) -> Result<(Self, Vec<u64>)>;

    /// What codes stand for; `None` unless that is `len` bytes.
    fn decode(window: &Self::Window<'_>, len: usize, follow: &mut dyn Follow) -> Option<Joined>;

    /// As [`matches`](super::matches), of rows whose codes lie between two offsets in the window.
    fn matches(
        window: &Self::Window<'_>,
        offsets: &[usize],
        among: Option<&BooleanBuffer>,
        nulls: Option<NullBuffer>,
        predicate: &Predicate,
    ) -> Option<BooleanArray>;
}

/// Rows of codes.
#[derive(Debug)]
pub(in crate::encodings) struct CodedTextArray<C> {
    pub(in crate::encodings) header: Header,
    pub(in crate::encodings) codes: C,
    /// The start of each row's codes, and the end of the last row's.
    pub(in crate::encodings) offsets: EncodedRef,
    /// Decoded bytes per row.
    pub(in crate::encodings) lengths: EncodedRef,
    pub(in crate::encodings) validity: ValidityChild,
}

impl<C: Codes> CodedTextArray<C> {
    /// Where the codes of all rows of this slice are.
    fn places(&self) -> Result<Range<usize>> {
        let start = integer_at(&self.offsets, 0, OFFSETS)?;
        let end = integer_at(&self.offsets, self.len(), OFFSETS)?;
        if start > end || end > self.codes.len() {
            return Err(Error::corrupt(format!("codes at {start}..{end} of {}", self.codes.len())));
        }
        Ok(start..end)
    }

    /// The codes of these rows, one row after the other.
    fn gather(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let places = Places::of(&self.offsets, OFFSETS, pick, self.codes.len())?;
        let (codes, ends) = self.codes.gather(&places, self.limits())?;
        Ok(Arc::new(Self {
            header: self.header.of_rows(pick.row_count()),
            codes,
            offsets: integers_child(ends, self.limits()),
            lengths: pick.of(&self.lengths)?,
            validity: self.validity.pick(pick)?,
        }))
    }
}

impl<C: Codes> EncodedArray for CodedTextArray<C> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        let own = self.codes.children(&self.offsets, &self.lengths).into_iter();
        own.chain(self.validity.named()).collect()
    }

    fn buffer_bytes(&self) -> usize {
        self.codes.buffer_bytes()
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        bytes::count_rows(self.dtype(), to, self.len(), self.limits())?;
        let nulls = self.validity()?.to_nulls(self.len());
        let lengths = Lengths::decode(&self.lengths, "uncompressed lengths")?;
        let (total, places) = (lengths.total(), self.places()?);
        // This also limits the memory that is reserved.
        if total > places.len().saturating_mul(C::MAX_BYTES_PER_CODE) {
            return Err(Error::corrupt(format!("{} codes for {total} bytes", places.len())));
        }
        self.limits().count_bytes(total as u64)?;
        let window = self.codes.window(places, self.limits())?;
        let decode = |follow: &mut dyn Follow| C::decode(&window, total, follow);
        bytes::from_codes(self.dtype(), to, &lengths, nulls, self.limits(), decode)
    }

    fn validity(&self) -> Result<Validity> {
        self.validity.decode()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let Pick::Slice(rows) = pick else { return self.gather(pick) };
        Ok(Arc::new(Self {
            header: self.header.of_rows(rows.len()),
            codes: self.codes.clone(),
            offsets: self.offsets.slice(rows.start..rows.end + 1)?,
            lengths: pick.of(&self.lengths)?,
            validity: self.validity.pick(pick)?,
        }))
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        if let Some(outcome) = self.null_test(predicate)? {
            return Ok(outcome);
        }
        if answers(predicate) {
            let among = as_long(&self.lengths, predicate)?;
            let nulls = self.validity()?.to_nulls(self.len());
            if let Some(outcome) = matches_none(among.as_ref(), nulls.as_ref(), predicate) {
                return Ok(outcome);
            }
            let mut offsets = decode_offsets(&self.offsets, OFFSETS, self.codes.len())?;
            let (start, end) =
                offsets.first().zip(offsets.last()).map_or((0, 0), |(start, end)| (*start, *end));
            let window = self.codes.window(start..end, self.limits())?;
            offsets.iter_mut().for_each(|offset| *offset -= start);
            if let Some(outcome) = C::matches(&window, &offsets, among.as_ref(), nulls, predicate) {
                return Ok(outcome);
            }
        }
        self.matches_decoded(predicate)
    }
}
