//! A dictionary shared by many chunks: values once, codes per row.
//!
//! Metadata: protobuf, 1 the integer type of the codes, 2 whether codes are nullable (if absent: as the
//! column), 3 whether every value is referenced. Children: values (of the column's type, with their own
//! row count) and codes. Nulls may be in the codes, in the values, or in both.

use std::ops::Range;
use std::sync::Arc;

use super::{Layout, LayoutKind, LayoutNode, LayoutRef, PieceSet, SegmentSet, len_of};
use crate::array::{EncodedRef, integer_type};
use crate::budget::Reservation;
use crate::dtype::{DType, PType};
use crate::encodings::chunked::chunked;
use crate::encodings::dict::{DictArray, SharedValues, used_values};
use crate::segments::SegmentId;
use crate::{Error, Result};

/// The `vortex.dict` layout.
pub(super) struct Dict;

const ID: &str = super::ids::DICT;

/// Wider codes are narrowed to 32 bits when they are decoded.
const MAX_VALUES: u64 = u32::MAX as u64;

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(int32, tag = "1")]
    codes_ptype: i32,
    #[prost(bool, optional, tag = "2")]
    is_nullable_codes: Option<bool>,
    #[prost(bool, tag = "3")]
    all_values_referenced: bool,
}

/// Metadata of a dictionary whose codes are never null and refer to every value.
pub(crate) fn metadata(codes_ptype: PType) -> Vec<u8> {
    let codes_ptype = codes_ptype as i32;
    let metadata = Metadata { codes_ptype, is_nullable_codes: Some(false), all_values_referenced: true };
    prost::Message::encode_to_vec(&metadata)
}

impl LayoutKind for Dict {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &LayoutNode) -> Result<LayoutRef> {
        node.expect_children(2)?;
        let metadata = node.message::<Metadata>()?;
        let codes = integer_type(metadata.codes_ptype, "dictionary codes")?;
        let nullable = metadata.is_nullable_codes.unwrap_or_else(|| node.dtype().is_nullable());
        if nullable && !node.dtype().is_nullable() {
            return Err(Error::corrupt("nullable codes of a non-nullable column"));
        }
        let values = node.child(0, node.dtype())?;
        if values.row_count() > MAX_VALUES {
            let count = values.row_count();
            return Err(Error::limit(format!(
                "{count} values of a dictionary; at most {MAX_VALUES} can be read"
            )));
        }
        Ok(Arc::new(DictLayout {
            dtype: node.dtype().clone(),
            values: values.load()?,
            codes: node.load_child(1, &codes.with_nullable(nullable), node.row_count())?,
        }))
    }
}

#[derive(Debug)]
struct DictLayout {
    dtype: DType,
    values: LayoutRef,
    codes: LayoutRef,
}

/// The values of a dictionary, kept with the first segment that they are in.
struct Kept {
    layout: LayoutRef,
    values: Arc<SharedValues>,
    /// The memory that is charged for other segments whose arrays it holds.
    others: Option<Reservation>,
}

impl DictLayout {
    /// The values, whose decoded form is shared by all splits that use the dictionary. So do other columns with the
    /// same values in one segment, but a segment may also be referred to as values of another type, or as the first of
    /// several.
    fn shared_values(&self, have: &SegmentSet<'_>) -> Result<Arc<SharedValues>> {
        let values = self.values.read(&(0..self.values.row_count()), have)?;
        let Some(segment) = first_segment(&self.values, have)? else {
            return Ok(Arc::new(SharedValues::new(values)));
        };
        let is_one = self.values.segments() == [segment];
        let are_same = |kept: &Kept| {
            Arc::ptr_eq(&kept.layout, &self.values)
                || (is_one && kept.others.is_none() && kept.values.are_values_of(&values))
        };
        // The arrays of other segments would otherwise stay without being charged, as many as there are dictionaries.
        let gives_way = |kept: &Kept| !is_one && kept.others.is_some();
        let keep = |memory: Reservation| {
            let others = (!is_one).then(|| memory.take_more(have.held_bytes(&self.values, segment)));
            let values = Arc::new(SharedValues::new(Arc::clone(&values)).charged_to(memory));
            Arc::new(Kept { layout: Arc::clone(&self.values), values, others })
        };
        Ok(Arc::clone(&have.derived(segment, are_same, gives_way, keep)?.values))
    }
}

/// The first segment that a layout refers to, of those that are available.
fn first_segment(layout: &LayoutRef, have: &SegmentSet<'_>) -> Result<Option<SegmentId>> {
    if let Some(segment) = layout.segments().into_iter().find(|id| have.has(*id)) {
        return Ok(Some(segment));
    }
    for (_, child) in layout.children()? {
        if let Some(segment) = first_segment(&child, have)? {
            return Ok(Some(segment));
        }
    }
    Ok(None)
}

impl Layout for DictLayout {
    fn id(&self) -> &str {
        ID
    }

    fn dtype(&self) -> &DType {
        &self.dtype
    }

    fn row_count(&self) -> u64 {
        self.codes.row_count()
    }

    fn children(&self) -> Result<Vec<(String, LayoutRef)>> {
        Ok(vec![("values".into(), Arc::clone(&self.values)), ("codes".into(), Arc::clone(&self.codes))])
    }

    fn dictionary_values(&self) -> Option<u64> {
        Some(self.values.row_count())
    }

    fn request(&self, rows: &Range<u64>, have: &SegmentSet<'_>, want: &mut Vec<SegmentId>) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        self.codes.request(rows, have, want)?;
        self.values.request(&(0..self.values.row_count()), have, want)
    }

    fn read(&self, rows: &Range<u64>, have: &SegmentSet<'_>) -> Result<EncodedRef> {
        if rows.is_empty() {
            return Ok(chunked(&self.dtype, Vec::new(), have.limits()));
        }
        let codes = self.codes.read(rows, have)?;
        let values = self.shared_values(have)?;
        Ok(Arc::new(DictArray::try_new(codes, values, have.limits())?))
    }

    fn read_rows(&self, rows: &[u64], have: &PieceSet<'_>) -> Result<EncodedRef> {
        let codes = self.codes.read_rows(rows, have)?;
        let (codes, used) = used_values(&codes, len_of(self.values.row_count())?)?;
        let used: Vec<u64> = used.into_iter().map(|at| at as u64).collect();
        let values = Arc::new(SharedValues::new(self.values.read_rows(&used, have)?));
        Ok(Arc::new(DictArray::try_new(codes, values, have.limits())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;
    use crate::limits::Limits;
    use crate::wire::RawLayout;

    fn load(value_count: u64) -> Result<LayoutRef> {
        let flat = |row_count| {
            let segments = [0].into();
            Arc::new(RawLayout { encoding: 1, row_count, metadata: [].into(), children: [].into(), segments })
        };
        let dict = RawLayout {
            encoding: 0,
            row_count: 10,
            metadata: metadata(PType::U64).into(),
            children: [flat(value_count), flat(10)].into(),
            segments: [].into(),
        };
        let ids = [ID.into(), super::super::ids::FLAT.into()].into();
        let dtype = DType::Utf8(false);
        LayoutNode::root(Arc::new(dict), &dtype, ids, &Registry::built_in(), &Limits::new()).load()
    }

    #[test]
    fn more_values_than_32_bits_can_address_are_refused() {
        let most = load(u32::MAX.into()).unwrap();
        assert_eq!((most.row_count(), most.dictionary_values()), (10, Some(u32::MAX.into())));
        let error = load(1 << 32).unwrap_err().to_string();
        assert!(error.contains("vortex.dict: limit exceeded: 4294967296 values of a dictionary"), "{error}");
    }
}
