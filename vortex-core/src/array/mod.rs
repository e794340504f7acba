//! One column chunk in memory, encoded or not.
//!
//! An [`EncodedArray`] is a validated node of an array tree: it knows its type and length, shares its
//! bytes with the segment that it came from, and answers as much as possible without decoding. Decoding
//! results in Arrow arrays; [`Decoded`] wraps one, so that every operation has a default.

pub(crate) mod aggregate;
#[cfg(test)]
pub(crate) mod build;
pub(crate) mod bytes;
mod concat;
mod decimals;
mod decoded;
mod fixed_width;
mod header;
mod integers;
pub(crate) mod intervals;
mod items;
mod kept;
pub(crate) mod loaded;
pub(crate) mod masking;
mod node;
mod parts;
mod pick;
pub(crate) mod pieces;
pub(crate) mod restore;
pub(crate) mod row_bytes;
mod rows;
pub(crate) mod sorted;
mod taking;
pub(crate) mod validity;

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array as _, BooleanArray, UInt64Array};
use arrow::datatypes::DataType;

pub(crate) use aggregate::{Aggregate, Measures, has_sum, integer};
pub use arrow::array::ArrayRef;
pub(crate) use concat::{concat, without_dictionaries};
pub(crate) use decimals::{from_unscaled, has_digits_of};
pub use decoded::{Decoded, present};
pub(crate) use fixed_width::{fixed_width, into_mutable, into_vec, match_width, values_of};
pub use header::Header;
pub(crate) use integers::{
    Lengths, array_of_raw, decode_integers, decode_offsets, decode_raw, integer_at, integer_type,
    integers_child, integers_of, numbers, one_more, unsigned_type, with_integers,
};
pub(crate) use items::{shown_children, shown_items};
pub(crate) use kept::Kept;
pub use node::Node;
pub use parts::ArrayParts;
pub use pick::Pick;
pub use restore::{can_decode_as, decode_as};
pub(crate) use rows::{TreeRows, all};
pub(crate) use taking::{has_empty_values, indices, take, take_within};
pub use validity::{Validity, ValidityChild};

use crate::Result;
use crate::dtype::DType;
use crate::dtype::arrow::data_type;
use crate::expr::Predicate;
use crate::limits::Limits;
use crate::mask::Mask;

/// A shared [`EncodedArray`].
pub type EncodedRef = Arc<dyn EncodedArray>;

/// One column chunk, encoded or not.
///
/// Implementations are created by [`Encoding::load`](crate::encodings::Encoding::load), which checks
/// counts and lengths; properties of the values (sorted offsets, codes in range) are checked while
/// decoding. Whatever the bytes are, methods return `Ok` or `Err` and never panic, and the arrays they
/// return are valid Arrow.
///
/// `pick`, `matches` and `aggregate` must return exactly what the same operation on the decoded array
/// returns; their defaults do just that. `decode` uses each child once at most: if every node of a
/// tree decoded a child twice, time would double with each level. The others may decode a child once more if what they
/// tried first fails, and may look at a child of integers, such as offsets, several times. If bytes contradict the
/// format, as codes without a value do, one method may return an error where another never looks at them.
pub trait EncodedArray: Any + fmt::Debug + Send + Sync {
    /// The id, the type, the number of rows and the limits.
    fn header(&self) -> &Header;

    /// The id of the encoding, as stored in the file.
    fn encoding(&self) -> &'static str {
        self.header().encoding
    }

    /// The logical type.
    fn dtype(&self) -> &DType {
        &self.header().dtype
    }

    /// Number of rows.
    fn len(&self) -> usize {
        self.header().len
    }

    /// The limits for decoding and copying rows.
    fn limits(&self) -> &Limits {
        &self.header().limits
    }

    /// Whether there are no rows.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The encoded parts, with names, for display and for measuring.
    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        Vec::new()
    }

    /// Bytes of this node's own buffers, without children.
    fn buffer_bytes(&self) -> usize {
        0
    }

    /// Whether decoding a [`slice`](#method.slice) takes about its share of the time. By default, if there are children
    /// and that holds for all of them.
    fn decodes_in_parts(&self) -> bool {
        let children = self.children();
        !children.is_empty() && children.iter().all(|(_, child)| child.decodes_in_parts())
    }

    /// Whether every predicate has the rows decompressed first, which takes longer than to evaluate it: several of them
    /// should share what is decoded.
    fn decompresses(&self) -> bool {
        false
    }

    /// Decodes all rows into exactly the Arrow type `to`, which must
    /// [present](crate::dtype::arrow::presents) the dtype.
    ///
    /// # Errors
    /// If the bytes contradict the format, or a limit is exceeded.
    fn decode(&self, to: &DataType) -> Result<ArrayRef>;

    /// Decodes all rows into the [preferred Arrow type](crate::dtype::arrow::data_type).
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    fn decode_preferred(&self) -> Result<ArrayRef> {
        self.decode(&data_type(self.dtype())?)
    }

    /// The decoded rows as an array, of which every operation is available without decoding again.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    fn to_decoded(&self) -> Result<Decoded> {
        Ok(Decoded::new(self.dtype().clone(), self.decode_preferred()?, self.limits()))
    }

    /// Which rows are null, determined without decoding values if the encoding allows it.
    ///
    /// # Errors
    /// If the bytes contradict the format.
    fn validity(&self) -> Result<Validity> {
        if !self.dtype().is_nullable() {
            return Ok(Validity::AllValid);
        }
        let decoded = self.decode_preferred()?;
        Ok(Validity::from_nulls(decoded.logical_nulls()))
    }

    /// These rows, as [`slice`](#method.slice), [`filter`](#method.filter) and [`take`](#method.take) of an array
    /// return them: those are what to call, this is what to implement. It is never a filter that keeps all rows, which
    /// is a slice. By default, all rows are decoded.
    ///
    /// # Errors
    /// If the bytes contradict the format.
    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        self.to_decoded()?.pick(pick)
    }

    /// Evaluates a predicate per row: true, false, or null where the result is unknown in SQL.
    ///
    /// By default, null tests are answered by [`validity`](Self::validity), so an encoding whose
    /// validity is determined by a null test must override this method. All other predicates are
    /// evaluated on decoded values.
    ///
    /// # Errors
    /// If the bytes contradict the format, or the predicate does not fit the type.
    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        match self.null_test(predicate)? {
            Some(outcome) => Ok(outcome),
            None => self.matches_decoded(predicate),
        }
    }

    /// The outcome of a null test according to the [`validity`](Self::validity); `None` for other
    /// predicates, without determining it.
    ///
    /// # Errors
    /// If a bit per row exceeds the limits, or the bytes contradict the format.
    fn null_test(&self, predicate: &Predicate) -> Result<Option<BooleanArray>> {
        if !predicate.is_null_test() {
            return Ok(None);
        }
        // Rows that take no bytes are limited by nothing else.
        self.limits().count_bytes(self.len().div_ceil(8) as u64)?;
        Ok(self.validity()?.null_test(predicate, self.len()))
    }

    /// Evaluates a predicate on decoded values: what [`matches`](Self::matches) does where an encoding
    /// has no faster way.
    ///
    /// # Errors
    /// As [`matches`](Self::matches).
    fn matches_decoded(&self, predicate: &Predicate) -> Result<BooleanArray> {
        intervals::matches(&self.decode_preferred()?, predicate)
    }

    /// Counts, extremes and sum of all rows.
    ///
    /// # Errors
    /// If the bytes contradict the format.
    fn aggregate(&self) -> Result<Aggregate> {
        self.aggregate_decoded()
    }

    /// Aggregates decoded values: what [`aggregate`](Self::aggregate) does where an encoding has no
    /// faster way.
    ///
    /// # Errors
    /// As [`aggregate`](Self::aggregate).
    fn aggregate_decoded(&self) -> Result<Aggregate> {
        Aggregate::of(&self.decode_preferred()?, self.dtype())
    }

    /// Field `at` of a struct, also null where the struct is: its type is nullable if either type is.
    /// Struct encodings do this without decoding the other fields.
    ///
    /// # Errors
    /// If this is not a struct with such a field, or as [`decode`](Self::decode).
    fn field(&self, at: usize) -> Result<EncodedRef> {
        let dtype = masking::field_dtype(self.dtype(), at)?;
        let field = masking::decoded_field(&self.decode_preferred()?, at)?;
        Ok(Arc::new(Decoded::new(dtype, field, self.limits())))
    }

    /// If the array consists of runs of equal rows: an array of the same runs, with `map` applied to
    /// their values.
    ///
    /// # Errors
    /// As `map`, or if the runs contradict the format.
    fn map_runs(&self, map: &dyn Fn(EncodedRef) -> Result<EncodedRef>) -> Result<Option<EncodedRef>> {
        let _ = map;
        Ok(None)
    }

    /// The value of all rows, if they are known to be equal.
    fn as_constant(&self) -> Option<crate::scalar::Scalar> {
        None
    }
}

/// What to call for some of the rows; [`pick`](EncodedArray::pick) implements all of it.
impl dyn EncodedArray {
    /// The rows of `rows`, which must lie within the array. Shares buffers, unless it has to decode.
    ///
    /// # Errors
    /// If the bytes contradict the format.
    pub fn slice(&self, rows: Range<usize>) -> Result<EncodedRef> {
        self.pick(Pick::Slice(&rows))
    }

    /// The live rows of `mask`, which has one bit per row.
    ///
    /// # Errors
    /// If the bytes contradict the format.
    pub fn filter(&self, mask: &Mask) -> Result<EncodedRef> {
        if mask.is_all() {
            return self.slice(0..self.len());
        }
        self.pick(Pick::Filter(mask))
    }

    /// The rows at `indices`, in that order; all indices are in range and none is null.
    ///
    /// # Errors
    /// If the bytes contradict the format.
    pub fn take(&self, indices: &UInt64Array) -> Result<EncodedRef> {
        self.pick(Pick::Take(indices))
    }
}

/// Number of bytes of an array tree: those of its buffers, including the buffers of all children.
pub fn encoded_bytes(array: &dyn EncodedArray) -> usize {
    array.buffer_bytes()
        + array.children().iter().map(|(_, child)| encoded_bytes(child.as_ref())).sum::<usize>()
}
