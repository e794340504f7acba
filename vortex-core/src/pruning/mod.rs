//! Skipping rows without reading them.
//!
//! A filter is evaluated on statistics instead of values: for each block of rows, it may match some,
//! cannot match any, or certainly matches every row. Pruning may keep rows that fail the filter, but
//! never drops one that passes.

mod bounds;
mod share;
mod verdict;

use std::ops::Range;
use std::sync::Arc;

use arrow::array::BooleanBufferBuilder;
use arrow::buffer::BooleanBuffer;
pub(crate) use bounds::may_hold;
pub(crate) use share::{Span, expected_share};
pub(crate) use verdict::Verdict;

use crate::Result;
use crate::expr::{Expr, FieldPath, Predicate};
use crate::layout::ZoneMap;
use crate::mask::Mask;
use crate::row_ranges::RowRanges;

/// Consecutive blocks of rows, all of the same length except the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowBlocks {
    pub(crate) row_count: u64,
    pub(crate) block_len: u64,
}

impl RowBlocks {
    /// The zones of a zone map.
    pub(crate) fn of_zones(map: &ZoneMap) -> Self {
        Self { row_count: map.row_count, block_len: map.zone_len }
    }

    /// Number of blocks.
    pub(crate) fn count(&self) -> usize {
        usize::try_from(self.row_count.div_ceil(self.block_len)).unwrap_or(usize::MAX)
    }

    /// Blocks that overlap `rows`.
    pub(crate) fn overlapping(&self, rows: &Range<u64>) -> Range<usize> {
        let first = rows.start / self.block_len;
        let last = rows.end.div_ceil(self.block_len).max(first);
        usize::try_from(first).unwrap_or(usize::MAX)..usize::try_from(last).unwrap_or(usize::MAX)
    }

    /// The blocks that hold any of these rows, in ascending order.
    pub(crate) fn holding(&self, rows: &RowRanges) -> impl Iterator<Item = usize> {
        let mut done = 0;
        // Two ranges may share a block.
        rows.iter().flat_map(move |rows| {
            let blocks = self.overlapping(&rows);
            let blocks = blocks.start.max(done)..blocks.end;
            done = blocks.end;
            blocks
        })
    }

    /// The first of these rows that lies in a block whose bit is set; their end if there is none.
    pub(crate) fn first_set(&self, bits: &BooleanBuffer, rows: &Range<u64>) -> u64 {
        let blocks = self.overlapping(rows);
        let found = (blocks.start..blocks.end.min(bits.len())).find(|block| bits.value(*block));
        found.map_or(rows.end, |block| self.rows(block).start.max(rows.start)).max(rows.start)
    }

    /// Those of some rows that lie in chosen blocks.
    pub(crate) fn mask(&self, rows: &Range<u64>, is_chosen: impl Fn(usize) -> bool) -> Mask {
        let mut mask = BooleanBufferBuilder::new((rows.end - rows.start) as usize);
        for block in self.overlapping(rows) {
            let part = self.rows(block);
            let (start, end) = (part.start.max(rows.start), part.end.min(rows.end));
            mask.append_n(end.saturating_sub(start) as usize, is_chosen(block));
        }
        Mask::from_bits(mask.finish())
    }

    /// Those of `count` zones of `zone_len` rows that a block overlaps.
    fn zones_of(&self, block: usize, zone_len: u64, count: usize) -> Range<usize> {
        let grid = RowBlocks { row_count: self.row_count, block_len: zone_len };
        let zones = grid.overlapping(&self.rows(block));
        zones.start.min(count)..zones.end.min(count)
    }

    /// The rows of a block.
    pub(crate) fn rows(&self, block: usize) -> Range<u64> {
        let start = block as u64 * self.block_len;
        start..start.saturating_add(self.block_len).min(self.row_count)
    }
}

/// What statistics tell about a filter, one bit per block.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outcomes {
    /// Whether some row may match.
    pub(crate) may: BooleanBuffer,
    /// Whether every row matches.
    pub(crate) all: BooleanBuffer,
}

impl Outcomes {
    fn unknown(len: usize) -> Self {
        Self { may: BooleanBuffer::new_set(len), all: BooleanBuffer::new_unset(len) }
    }

    fn constant(outcome: bool, len: usize) -> Self {
        let bits = if outcome { BooleanBuffer::new_set(len) } else { BooleanBuffer::new_unset(len) };
        Self { may: bits.clone(), all: bits }
    }

    fn and(&self, other: &Self) -> Self {
        Self { may: &self.may & &other.may, all: &self.all & &other.all }
    }

    fn or(&self, other: &Self) -> Self {
        Self { may: &self.may | &other.may, all: &self.all | &other.all }
    }
}

/// What is known about the columns of a file.
pub(crate) trait Known {
    /// The zone map of a column.
    fn zone_map(&self, path: &FieldPath) -> Option<Arc<ZoneMap>>;

    /// Which zones may hold a value of a column that matches, according to Bloom filters.
    fn holding(&self, path: &FieldPath, predicate: &Predicate) -> Option<Holding>;
}

/// Zones that may hold some value.
#[derive(Debug, Clone)]
pub(crate) struct Holding {
    /// Rows per zone.
    pub(crate) zone_len: u64,
    /// One bit per zone.
    pub(crate) zones: BooleanBuffer,
}

/// Evaluates a filter on statistics, one outcome per block. Blocks with none of `rows` may have any.
fn evaluate(expr: &Expr, blocks: RowBlocks, rows: &RowRanges, known: &dyn Known) -> Result<Outcomes> {
    let len = blocks.count();
    Ok(match expr {
        Expr::Literal(Some(true)) => Outcomes::constant(true, len),
        Expr::Literal(_) => Outcomes::constant(false, len),
        Expr::Field(path, predicate) => {
            let outcomes = match known.zone_map(path) {
                Some(map) => spread(&bounds::outcomes(predicate, &map, rows)?, &map, blocks),
                None => Outcomes::unknown(len),
            };
            match known.holding(path, predicate) {
                Some(Holding { zone_len, zones }) => {
                    Outcomes { may: &outcomes.may & &any_of(&zones, zone_len, blocks), ..outcomes }
                }
                None => outcomes,
            }
        }
        Expr::And(parts) => parts.iter().try_fold(Outcomes::constant(true, len), |all, part| {
            evaluate(part, blocks, rows, known).map(|part| all.and(&part))
        })?,
        Expr::Or(parts) => parts.iter().try_fold(Outcomes::constant(false, len), |any, part| {
            evaluate(part, blocks, rows, known).map(|part| any.or(&part))
        })?,
        Expr::Not(inner) => match negate(inner) {
            Some(negated) => evaluate(&negated, blocks, rows, known)?,
            None => Outcomes::unknown(len),
        },
        Expr::InTurn(_) | Expr::Rows(_) => Outcomes::unknown(len),
        // Its current expression holds for all rows that are still relevant, but may be false for rows
        // that are not. So it can rule out rows, but never makes evaluation unnecessary.
        Expr::Dynamic(filter) => match filter.current() {
            Some(current) => {
                let may = evaluate(&current, blocks, rows, known)?.may;
                Outcomes { may, all: BooleanBuffer::new_unset(len) }
            }
            None => Outcomes::unknown(len),
        },
    })
}

/// An expression that is true exactly where `expr` is false, with NOT pushed to the leaves.
fn negate(expr: &Expr) -> Option<Expr> {
    let all = |parts: &[Expr]| parts.iter().map(negate).collect::<Option<Vec<_>>>();
    Some(match expr {
        Expr::Literal(outcome) => Expr::Literal(outcome.map(|outcome| !outcome)),
        Expr::And(parts) => Expr::Or(all(parts)?),
        Expr::Or(parts) => Expr::And(all(parts)?),
        Expr::Not(inner) => inner.as_ref().clone(),
        Expr::Field(path, predicate) => {
            let field = |predicate| Expr::Field(path.clone(), predicate);
            match predicate {
                Predicate::Compare(op, constant) => field(Predicate::Compare(op.negate(), constant.clone())),
                Predicate::Between(low, high) => Expr::Or(vec![
                    field(Predicate::Compare(crate::expr::CompareOp::Lt, low.clone())),
                    field(Predicate::Compare(crate::expr::CompareOp::Gt, high.clone())),
                ]),
                Predicate::In(list) => field(Predicate::In(Arc::new(list.negate()))),
                Predicate::Like(like) => field(Predicate::Like(like.clone().with_negated(!like.negated))),
                Predicate::IsNull => field(Predicate::IsNotNull),
                Predicate::IsNotNull => field(Predicate::IsNull),
            }
        }
        Expr::InTurn(_) | Expr::Rows(_) | Expr::Dynamic(_) => return None,
    })
}

/// Converts outcomes per zone to outcomes per block.
fn spread(zone: &Outcomes, map: &ZoneMap, blocks: RowBlocks) -> Outcomes {
    let len = blocks.count();
    if map.zone_len == blocks.block_len && map.zone_count == len {
        return zone.clone();
    }
    let zones_of = |block| blocks.zones_of(block, map.zone_len, map.zone_count);
    Outcomes {
        may: any_of(&zone.may, map.zone_len, blocks),
        all: (0..len).map(|block| zones_of(block).all(|at| zone.all.value(at))).collect(),
    }
}

/// The blocks that overlap any of some zones of `zone_len` rows.
fn any_of(zones: &BooleanBuffer, zone_len: u64, blocks: RowBlocks) -> BooleanBuffer {
    let len = blocks.count();
    if zone_len == blocks.block_len && zones.len() == len {
        return zones.clone();
    }
    let zones_of = |block| blocks.zones_of(block, zone_len, zones.len());
    (0..len).map(|block| zones_of(block).any(|at| zones.value(at))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_ruled_out_are_passed_in_one_leap() {
        let blocks = RowBlocks { row_count: 1 << 48, block_len: 1 << 44 };
        let bits = (0..16).map(|block| block == 3 || block == 9).collect();
        let end = 1 << 48;
        assert_eq!(blocks.first_set(&bits, &(0..end)), 3 << 44);
        assert_eq!(blocks.first_set(&bits, &((3 << 44) + 5..end)), (3 << 44) + 5);
        assert_eq!(blocks.first_set(&bits, &(4 << 44..end)), 9 << 44);
        assert_eq!(blocks.first_set(&bits, &(4 << 44..8 << 44)), 8 << 44);
        assert_eq!(blocks.first_set(&bits, &(10 << 44..end)), end);
        assert_eq!(blocks.first_set(&bits, &(end..end)), end);
    }
}
