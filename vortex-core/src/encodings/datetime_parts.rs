//! Timestamps split into days, seconds and fractions of a second.
//!
//! ```text
//! microseconds  86_400_000_003  -1      days        [1, 0]
//!                                       seconds     [0, 0]
//!                                       subseconds  [3, -1]
//! ```
//!
//! Metadata: integer types of the parts. Children: `days`, which carries the nulls, `seconds` and
//! `subseconds`, which are not null. Writers truncate towards zero, so that parts before 1970 are
//! negative, but any combination can be read. A sum beyond 64 bits is corrupt, unless the row is null.
//!
//! Decoding adds the parts block by block; a part that has the same value in all rows is added only once.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array as _, new_null_array};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::DataType;

use super::Encoding;
use crate::array::{
    ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, fixed_width, integer_type, present,
    with_integers,
};
use crate::dtype::arrow::data_type;
use crate::dtype::{DType, Meaning, PType};
use crate::kernels::scaled::add_scaled;
use crate::wire::WriteNode;
use crate::{Error, Result};

/// The `vortex.datetimeparts` encoding.
#[derive(Debug)]
pub(super) struct DateTimeParts;

const ID: &str = "vortex.datetimeparts";

/// The children, in errors.
const WHAT: &str = "parts of timestamps";

const SECONDS_PER_DAY: i64 = 86_400;

/// Number of rows added up at a time: a block of sums stays in the cache for all parts.
const ROWS_AT_A_TIME: usize = 1024;

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(int32, tag = "1")]
    days_ptype: i32,
    #[prost(int32, tag = "2")]
    seconds_ptype: i32,
    #[prost(int32, tag = "3")]
    subseconds_ptype: i32,
}

impl Encoding for DateTimeParts {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let ticks_per_second = match node.dtype() {
            DType::Extension(extension) => match extension.meaning() {
                Meaning::Timestamp(unit, _) => unit.ticks_per_second(),
                _ => None,
            },
            _ => None,
        }
        .ok_or_else(|| Error::corrupt(format!("holds timestamps, not {}", node.dtype())))?;
        let metadata: Metadata = node.message()?;
        node.expect_buffers(0)?;
        node.expect_children(3)?;
        let part = |at: usize, ptype: i32, nullable: bool| {
            let dtype = integer_type(ptype, WHAT)?.with_nullable(nullable);
            node.child(at, &dtype, node.len())
        };
        // No `?` before all are loaded: see `load_rows`.
        let days = part(0, metadata.days_ptype, node.dtype().is_nullable());
        let seconds = part(1, metadata.seconds_ptype, false);
        let subseconds = part(2, metadata.subseconds_ptype, false);
        Ok(Arc::new(DateTimePartsArray {
            header: node.header(ID),
            ticks_per_second,
            parts: [days?, seconds?, subseconds?],
        }))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        self.load(&node.of_rows(rows))
    }
}

#[derive(Debug)]
struct DateTimePartsArray {
    header: Header,
    ticks_per_second: i64,
    /// Days, seconds and subseconds.
    parts: [EncodedRef; 3],
}

impl DateTimePartsArray {
    fn days(&self) -> &EncodedRef {
        &self.parts[0]
    }

    /// Prepares the sum of the parts; `None` if every row is null.
    fn sum(&self) -> Result<Option<Sum>> {
        let second = self.ticks_per_second;
        let mut sum = Sum { constant: 0, varying: Vec::new(), nulls: None };
        for (part, ticks) in self.parts.iter().zip([SECONDS_PER_DAY * second, second, 1]) {
            match part.as_constant() {
                Some(constant) => match constant.as_i128() {
                    Some(value) => sum.constant += value * i128::from(ticks),
                    None => return Ok(None),
                },
                None => {
                    let values = part.decode_preferred()?;
                    if part.dtype().is_nullable() {
                        sum.nulls = values.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
                    }
                    sum.varying.push(Part { values, ticks });
                }
            }
        }
        Ok(Some(sum))
    }
}

/// The summands of each row.
struct Sum {
    constant: i128,
    varying: Vec<Part>,
    nulls: Option<NullBuffer>,
}

/// Integers, each representing a number of ticks.
struct Part {
    values: ArrayRef,
    ticks: i64,
}

impl Sum {
    /// The sums of all rows; arbitrary in null rows.
    fn rows(&self, len: usize) -> Result<Vec<i64>> {
        // Sums wrap, but cannot overflow if the sum of the largest parts fits 64 bits.
        let mut sums = Vec::with_capacity(len);
        let mut magnitudes = vec![0; self.varying.len()];
        let constant = self.constant as i64;
        if self.varying.is_empty() {
            sums.resize(len, constant);
        }
        for first in (0..len).step_by(ROWS_AT_A_TIME) {
            let rows = first..len.min(first + ROWS_AT_A_TIME);
            for (part, magnitude) in self.varying.iter().zip(&mut magnitudes) {
                *magnitude |= part.add(rows.clone(), constant, &mut sums)?;
            }
        }
        let largest = self.varying.iter().zip(&magnitudes);
        let largest = largest.map(|(part, magnitude)| (i128::from(*magnitude) + 1) * i128::from(part.ticks));
        let largest = largest.fold(self.constant.saturating_abs(), i128::saturating_add);
        if largest > i128::from(i64::MAX) {
            self.check_rows(len)?;
        }
        Ok(sums)
    }

    /// Fails if the sum of a row that is not null exceeds 64 bits.
    fn check_rows(&self, len: usize) -> Result<()> {
        for row in (0..len).filter(|row| self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row))) {
            let mut sum = self.constant;
            for part in &self.varying {
                sum += part.value(row)? * i128::from(part.ticks);
            }
            if i64::try_from(sum).is_err() {
                return Err(Error::corrupt(format!("timestamp {sum} in row {row} exceeds 64 bits")));
            }
        }
        Ok(())
    }
}

impl Part {
    /// Adds some rows to their `sums`, which are the last ones, or to `start` if there are none of these rows yet;
    /// wraps. The absolute values of the rows exceed the result by at most one.
    fn add(&self, rows: Range<usize>, start: i64, sums: &mut Vec<i64>) -> Result<u64> {
        let (ticks, start) = (self.ticks, (sums.len() == rows.start).then_some(start));
        with_integers!(self.values, WHAT, |integers| {
            add_scaled(&integers.values()[rows], ticks, start, sums)
        })
    }

    fn value(&self, row: usize) -> Result<i128> {
        with_integers!(self.values, WHAT, |integers| i128::from(integers.value(row)))
    }
}

impl EncodedArray for DateTimePartsArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        ["days", "seconds", "subseconds"].into_iter().zip(&self.parts).collect()
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let len = self.len();
        self.limits().count::<i64>(len)?;
        let preferred = data_type(self.dtype())?;
        let Some(sum) = self.sum()? else { return Ok(new_null_array(to, len)) };
        let sums = Buffer::from_vec(sum.rows(len)?);
        present(fixed_width(preferred, len, sums, sum.nulls)?, to)
    }

    fn validity(&self) -> Result<Validity> {
        self.days().validity()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let [days, seconds, subseconds] = &self.parts;
        Ok(Arc::new(Self {
            header: self.header.of_rows(pick.row_count()),
            ticks_per_second: self.ticks_per_second,
            parts: [pick.of(days)?, pick.of(seconds)?, pick.of(subseconds)?],
        }))
    }
}

/// A node of days, seconds and ticks, each with its integer type.
pub(crate) fn encode(parts: [(PType, WriteNode); 3]) -> WriteNode {
    let [days_ptype, seconds_ptype, subseconds_ptype] = parts.each_ref().map(|(ptype, _)| *ptype as i32);
    let node = WriteNode::new(ID).message(&Metadata { days_ptype, seconds_ptype, subseconds_ptype });
    node.children(parts.map(|(_, part)| part))
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray as _, TimestampMicrosecondArray, TimestampSecondArray};

    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::Extension;
    use crate::encodings::shared::conformance;

    const SECONDS: u8 = 3;
    const MICROSECONDS: u8 = 1;

    fn timestamp(unit: u8, nullable: bool) -> DType {
        let storage = DType::Primitive(PType::I64, nullable);
        let metadata = [&[unit, 3, 0], b"UTC".as_slice()].concat();
        DType::Extension(Arc::new(Extension::try_new("vortex.timestamp", storage, metadata).unwrap()))
    }

    fn tree(ptypes: [PType; 3], parts: [Tree; 3]) -> Tree {
        let [days_ptype, seconds_ptype, subseconds_ptype] = ptypes.map(|ptype| ptype as i32);
        let tree = Tree::new(ID).message(&Metadata { days_ptype, seconds_ptype, subseconds_ptype });
        parts.into_iter().fold(tree, Tree::child)
    }

    fn constant(bytes: &[u8]) -> Tree {
        Tree::new("vortex.constant").buffer(bytes.to_vec())
    }

    #[test]
    fn conforms_before_and_after_1970() {
        let rows = 2500usize;
        let stamps: Vec<i64> = (0..rows as i64).map(|row| (row - 1200) * 7_654_321_987_654).collect();
        let day = SECONDS_PER_DAY * 1_000_000;
        let days: Vec<i32> = stamps.iter().map(|v| i32::try_from(v / day).unwrap()).collect();
        let seconds: Vec<i32> = stamps.iter().map(|v| i32::try_from(v % day / 1_000_000).unwrap()).collect();
        let rest: Vec<i64> = stamps.iter().map(|v| v % 1_000_000).collect();
        let ptypes = [PType::I32, PType::I32, PType::I64];
        let parts = || [Tree::primitive(&days), Tree::primitive(&seconds), Tree::primitive(&rest)];
        let array = tree(ptypes, parts()).load(&timestamp(MICROSECONDS, false), rows).unwrap();
        let expected = TimestampMicrosecondArray::from(stamps.clone()).with_timezone("UTC");
        conformance::check(&array, &(Arc::new(expected) as ArrayRef));

        let valid: Vec<bool> = (0..rows).map(|row| row % 7 != 3).collect();
        let [days, seconds, rest] = parts();
        let parts = [days.child(Tree::bools(&valid)), seconds, rest];
        let array = tree(ptypes, parts).load(&timestamp(MICROSECONDS, true), rows).unwrap();
        let expected = TimestampMicrosecondArray::new(stamps.into(), Some(valid.into())).with_timezone("UTC");
        conformance::check(&array, &(Arc::new(expected) as ArrayRef));
    }

    #[test]
    fn constant_parts_are_added_once() {
        let ptypes = [PType::U16, PType::I8, PType::U8];
        let parts = [Tree::primitive(&[0u16, 1, 65535]), constant(&[0x18, 0x01]), constant(&[0x20, 0x00])];
        let array = tree(ptypes, parts).load(&timestamp(SECONDS, false), 3).unwrap();
        let expected = TimestampSecondArray::from(vec![-1, 86_399, 65_535 * 86_400 - 1]).with_timezone("UTC");
        conformance::check(&array, &(Arc::new(expected) as ArrayRef));

        let parts = [constant(&[0x20, 0x02]), constant(&[0x18, 0x01]), constant(&[0x20, 0x00])];
        let array = tree(ptypes, parts).load(&timestamp(SECONDS, false), 2).unwrap();
        let expected = TimestampSecondArray::from(vec![172_799, 172_799]).with_timezone("UTC");
        conformance::check(&array, &(Arc::new(expected) as ArrayRef));

        let parts = [constant(&[0x08, 0x00]), constant(&[0x18, 0x01]), constant(&[0x20, 0x00])];
        let array = tree(ptypes, parts).load(&timestamp(SECONDS, true), 2).unwrap();
        let expected = TimestampSecondArray::from(vec![None, None]).with_timezone("UTC");
        conformance::check(&array, &(Arc::new(expected) as ArrayRef));
    }

    #[test]
    fn only_null_rows_may_exceed_64_bits() {
        let ptypes = [PType::I64, PType::U64, PType::I64];
        let parts = |valid: &[bool]| {
            let days = Tree::primitive(&[i64::MAX, 0, -1]).child(Tree::bools(valid));
            [days, Tree::primitive(&[u64::MAX, 86_400, 1]), Tree::primitive(&[i64::MIN, 1, i64::MIN])]
        };
        let to = data_type(&timestamp(SECONDS, true)).unwrap();
        let decode =
            |valid| tree(ptypes, parts(valid)).load(&timestamp(SECONDS, true), 3).unwrap().decode(&to);
        assert!(decode(&[true, true, true]).is_err());
        assert!(decode(&[true, true, false]).is_err());
        assert!(decode(&[false, true, true]).is_err());
        let decoded = decode(&[false, true, false]).unwrap();
        assert_eq!(decoded.as_primitive::<arrow::datatypes::TimestampSecondType>().value(1), 86_401);
    }

    #[test]
    fn a_sum_at_the_edge_of_64_bits_is_kept() {
        let ptypes = [PType::I8, PType::U8, PType::I64];
        let parts =
            [Tree::primitive(&[0i8, 0]), constant(&[0x20, 0x00]), Tree::primitive(&[i64::MIN, i64::MAX])];
        let array = tree(ptypes, parts).load(&timestamp(MICROSECONDS, false), 2).unwrap();
        let expected = TimestampMicrosecondArray::from(vec![i64::MIN, i64::MAX]).with_timezone("UTC");
        conformance::check(&array, &(Arc::new(expected) as ArrayRef));
    }

    #[test]
    fn other_types_are_refused() {
        let parts = || [Tree::primitive(&[0u8]), Tree::primitive(&[0u8]), Tree::primitive(&[0u8])];
        let bytes = [PType::U8; 3];
        assert!(tree(bytes, parts()).load(&timestamp(SECONDS, false), 1).is_ok());
        assert!(tree(bytes, parts()).load(&DType::Primitive(PType::I64, false), 1).is_err());
        assert!(
            tree([PType::U8, PType::F32, PType::U8], parts()).load(&timestamp(SECONDS, false), 1).is_err()
        );
        let date = Extension::try_new("vortex.date", DType::Primitive(PType::I64, false), vec![2]).unwrap();
        assert!(tree(bytes, parts()).load(&DType::Extension(Arc::new(date)), 1).is_err());
    }
}
