//! Settings of DataFusion for limited memory.

use datafusion::config::ConfigOptions;

/// The part of the memory that a sort keeps for merging what it has spilled.
const FOR_MERGING: usize = 8;

/// Makes sorts manage with `limit` bytes as far as DataFusion can, unless a setting is given. By default, it runs a
/// sort per partition and merges their results while they still hold memory, so that often none is left for that.
pub(crate) fn sort_within(limit: usize, options: &mut ConfigOptions, is_given: impl Fn(&str) -> bool) {
    if !is_given("datafusion.optimizer.repartition_sorts") {
        options.optimizer.repartition_sorts = false;
    }
    if !is_given("datafusion.execution.sort_spill_reservation_bytes") {
        let bytes = &mut options.execution.sort_spill_reservation_bytes;
        *bytes = (*bytes).min(limit / FOR_MERGING);
    }
}
