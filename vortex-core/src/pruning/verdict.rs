//! What is known about a filter, block by block.

use std::ops::Range;

use arrow::array::BooleanBufferBuilder;

use super::{Known, Outcomes, RowBlocks, evaluate};
use crate::Result;
use crate::expr::Expr;
use crate::mask::Mask;
use crate::row_ranges::RowRanges;

/// The verdict on a filter: its outcomes for the blocks that the rows of a file are divided into.
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    blocks: RowBlocks,
    outcomes: Outcomes,
}

impl Verdict {
    /// Judges a filter by what is known of columns. Of blocks with none of `rows`, anything may be said.
    pub(crate) fn new(expr: &Expr, blocks: RowBlocks, rows: &RowRanges, known: &dyn Known) -> Result<Self> {
        Ok(Self { blocks, outcomes: evaluate(expr, blocks, rows, known)? })
    }

    /// Whether all rows of some block match.
    pub(crate) fn has_certain_blocks(&self) -> bool {
        self.outcomes.all.count_set_bits() > 0
    }

    /// Whether all of these rows match.
    pub(crate) fn is_certain(&self, rows: &Range<u64>) -> bool {
        self.blocks.overlapping(rows).all(|block| self.outcomes.all.value(block))
    }

    /// Of the blocks that hold any of these rows, the number of those ruled out, and of those that match as a whole.
    pub(crate) fn count(&self, rows: &RowRanges) -> (u64, u64) {
        self.blocks.holding(rows).fold((0, 0), |(ruled_out, certain), block| {
            let (may, all) = (self.outcomes.may.value(block), self.outcomes.all.value(block));
            (ruled_out + u64::from(!may), certain + u64::from(all))
        })
    }

    /// The first of these rows that may match; their end if there is none.
    pub(crate) fn first_possible(&self, rows: &Range<u64>) -> u64 {
        self.blocks.first_set(&self.outcomes.may, rows)
    }

    /// Those of the rows that may match.
    pub(crate) fn possible(&self, rows: &RowRanges) -> RowRanges {
        let runs = self.outcomes.may.set_slices();
        let runs = runs.map(|(first, end)| self.blocks.rows(first).start..self.blocks.rows(end - 1).end);
        rows.intersection(&runs.collect())
    }

    /// As [`possible`](Self::possible), of the rows in a range that are in a mask.
    pub(crate) fn prune(&self, live: Mask, rows: &Range<u64>) -> Mask {
        let may = |block| self.outcomes.may.value(block);
        if live.is_none() || self.blocks.overlapping(rows).all(may) {
            live
        } else {
            live.and(&self.blocks.mask(rows, may))
        }
    }

    /// The first row of the block that holds this row.
    pub(crate) fn start_of_block(&self, row: u64) -> u64 {
        row / self.blocks.block_len * self.blocks.block_len
    }

    /// Takes over what is known of the blocks with any of `rows` after the filter has tightened; those that were ruled
    /// out remain so. Returns how many are ruled out now that were not.
    pub(crate) fn tighten(&mut self, now: Self, rows: &RowRanges) -> u64 {
        // The blocks are those of the columns, which should not change.
        if now.blocks.block_len != self.blocks.block_len {
            return 0;
        }
        let mut may = BooleanBufferBuilder::new(self.outcomes.may.len());
        may.append_buffer(&self.outcomes.may);
        let ruled_out = self.blocks.holding(rows).filter(|block| !now.outcomes.may.value(*block));
        let count = ruled_out.map(|block| may.set_bit(block, false)).count();
        *self = Self { blocks: now.blocks, outcomes: Outcomes { may: may.finish(), ..now.outcomes } };
        count as u64
    }

    #[cfg(test)]
    pub(crate) fn outcomes(&self) -> &Outcomes {
        &self.outcomes
    }
}
