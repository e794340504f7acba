//! The zone maps of a filter's columns, and the rows they rule out.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::datatypes::Schema;

use super::bloom_filters::Answers;
use super::column::Column;
use super::fetch::fetch;
use super::plan::{Plan, Split};
use crate::expr::{Expr, FieldPath, Predicate};
use crate::file::Footer;
use crate::io::{Urgency, runtime};
use crate::layout::{SegmentSet, ZoneMap, Zones};
use crate::limits::Work;
use crate::mask::Mask;
use crate::pruning::{self, Holding, Known, RowBlocks, Span, Verdict};
use crate::row_ranges::RowRanges;
use crate::{Error, Result, VortexFile};

/// Maximum number of splits that are attributed to what ruled them out; a file may claim any number of
/// splits.
const MAX_COUNTED: u64 = 1 << 16;

/// What tells whether dynamic filters have tightened; none without any.
fn generation(plan: &Plan) -> Option<u64> {
    let filters = plan.conjuncts.iter().filter_map(|conjunct| match conjunct {
        Expr::Dynamic(filter) => Some(filter.generation()),
        _ => None,
    });
    // Mixed, so that changes of several filters do not cancel each other out.
    filters.fold(None, |all, one| {
        Some(all.unwrap_or(0u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(one))
    })
}

impl VortexFile {
    /// Reads a zone table of this file, found through [`Layout::zones`](crate::layout::Layout::zones).
    /// Needs a tokio runtime.
    ///
    /// # Errors
    /// If the table cannot be read.
    pub async fn zone_map(&self, zones: &Zones) -> Result<ZoneMap> {
        runtime()?;
        // Columns without an Arrow type have zones, too.
        let no_rows = self.scan().with_projection::<FieldPath>([]).with_schema(Arc::new(Schema::empty()));
        let plan = Plan::new(&no_rows)?;
        let mut have = SegmentSet::new(plan.table());
        fetch(&plan, Urgency::ZONE_MAPS, &mut have, |have, want| zones.request(have, want)).await?;
        zones.read(&have)
    }
}

/// The zone maps of a scan, and the verdict on each conjunct of its filter.
#[derive(Debug, Default)]
pub(super) struct ZoneMaps {
    maps: HashMap<FieldPath, Arc<ZoneMap>>,
    /// What Bloom filters have answered.
    answers: Answers,
    /// The verdict on each conjunct, if anything is known.
    verdicts: Vec<Option<Verdict>>,
    /// The verdicts before any filter tightened, if one has.
    first_verdicts: Option<Vec<Option<Verdict>>>,
    /// Generation of the dynamic filters when they were last checked.
    generation: Option<u64>,
}

impl ZoneMaps {
    /// Reads the zone maps of the filter's columns all at once, and judges the filter; then asks Bloom filters about
    /// what is left.
    pub(super) async fn read(plan: &Plan) -> Result<Self> {
        let mut zone_maps = Self::default();
        if plan.prune {
            zone_maps.load(plan).await?;
        }
        zone_maps.generation = generation(plan);
        zone_maps.judge_all(plan, &plan.rows)?;
        let mut by_filters = 0;
        if plan.prune {
            let possible = zone_maps.possible(plan, 0);
            zone_maps.answers = Answers::read(plan, &possible).await?;
            if !zone_maps.answers.is_empty() {
                let by_statistics = zone_maps.count(plan).0;
                zone_maps.judge_all(plan, &plan.rows)?;
                by_filters = zone_maps.count(plan).0.saturating_sub(by_statistics);
            }
            let wanted = zone_maps.may_answer(plan).then(|| plan.wanted_columns()).into_iter().flatten();
            let stated = wanted
                .filter(|(column, measures)| column.zones().is_some_and(|zones| zones.may_state(*measures)));
            zone_maps.load_columns(plan, stated.map(|(column, _)| column)).await?;
        }
        let (pruned, matched) = zone_maps.count(plan);
        plan.metrics.zones_pruned.add(pruned - by_filters);
        plan.metrics.zones_pruned_bloom.add(by_filters);
        plan.metrics.zones_fully_matched.add(matched);
        Ok(zone_maps)
    }

    /// Judges every conjunct of the filter.
    fn judge_all(&mut self, plan: &Plan, rows: &RowRanges) -> Result<()> {
        let judge = |conjunct| if plan.prune { self.judge(conjunct, plan, rows) } else { Ok(None) };
        self.verdicts = plan.conjuncts.iter().map(judge).collect::<Result<_>>()?;
        Ok(())
    }

    async fn load(&mut self, plan: &Plan) -> Result<()> {
        let best_first = plan.best_first.as_ref().map(|order| &order.column);
        let bounded = plan.wanted_columns().filter(|(column, measures)| {
            !measures.adds_up() && column.zones().is_some_and(|zones| zones.has_bounds())
        });
        let bounded = bounded.map(|(column, _)| column).filter(|_| plan.has_several_splits());
        self.load_columns(plan, plan.filter_columns.values().chain(best_first).chain(bounded)).await?;
        Ok(())
    }

    /// Loads the zone maps of columns, except for those that are loaded.
    async fn load_columns(&mut self, plan: &Plan, columns: impl Iterator<Item = &Column>) -> Result<()> {
        let footer = plan.file.footer();
        let mut unknown: Vec<(&Column, &Zones)> = Vec::new();
        let mut asked = HashSet::new();
        for column in columns {
            let Some(zones) = column.zones() else { continue };
            if self.maps.contains_key(&column.path) || asked.contains(&column.path) {
                continue;
            }
            match footer.zone_maps.get(&column.path) {
                Some(map) => drop(self.maps.insert(column.path.clone(), map)),
                None => {
                    asked.insert(&column.path);
                    unknown.push((column, zones));
                }
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        for (path, map) in read_tables(plan, unknown).await? {
            footer.zone_maps.keep(&path, &map);
            self.maps.insert(path, map);
        }
        Ok(())
    }

    /// Whether zones may answer splits: there are several, and in some blocks, as far as single conjuncts tell, all
    /// rows pass the filter, as in all of them without a filter.
    fn may_answer(&self, plan: &Plan) -> bool {
        let some_match =
            |verdict: &Option<Verdict>| verdict.as_ref().is_some_and(Verdict::has_certain_blocks);
        plan.has_several_splits() && self.verdicts.iter().all(some_match)
    }

    /// The zone map of a column of the file.
    pub(super) fn of_field(&self, plan: &Plan, column: &Column) -> Option<&ZoneMap> {
        column.position_in_file(plan.file.footer()).and_then(|_| self.of(column))
    }

    /// The zone map of a column, if it has one that was read.
    pub(super) fn of(&self, column: &Column) -> Option<&ZoneMap> {
        self.maps.get(&column.path).map(Arc::as_ref)
    }

    /// Approximate share of rows that pass the filter, if statistics tell.
    pub(super) fn expected_share(&self, plan: &Plan) -> Option<f64> {
        // There may be millions of zones, and many comparisons of one column.
        let known: RefCell<HashMap<FieldPath, Option<Span>>> = RefCell::default();
        let span = |path: &FieldPath| {
            let of_zones = || self.maps.get(path).and_then(|map| Span::of(map));
            *known.borrow_mut().entry(path.clone()).or_insert_with(of_zones)
        };
        let share = |expr| pruning::expected_share(expr, &span);
        plan.conjuncts.iter().try_fold(1.0, |all, conjunct| Some(all * share(conjunct)?))
    }

    /// What is known about a filter without reading rows; `None` if nothing. Of blocks with none of `rows`, anything
    /// may be said.
    fn judge(&self, expr: &Expr, plan: &Plan, rows: &RowRanges) -> Result<Option<Verdict>> {
        let mut columns = expr.columns();
        columns.extend(super::conjunct::dynamic_columns(expr));
        let of_column = |path: &FieldPath| {
            let zone_len = self.maps.get(path).map(|map| map.zone_len);
            zone_len.into_iter().chain(self.answers.zone_len(path))
        };
        let block_len = columns.iter().flat_map(of_column).min();
        let row_count = plan.file.row_count();
        if row_count == 0 || (block_len.is_none() && plan.file.footer().statistics().is_none()) {
            return Ok(None);
        }
        // Without zones, the file is a single one.
        let blocks = RowBlocks { row_count, block_len: block_len.unwrap_or(row_count) };
        Verdict::new(expr, blocks, rows, &OfFile { zone_maps: self, footer: plan.file.footer() }).map(Some)
    }

    /// Numbers of pruned zones and of zones that match as a whole, over all conjuncts of the filter.
    fn count(&self, plan: &Plan) -> (u64, u64) {
        let counts = self.verdicts.iter().flatten().map(|verdict| verdict.count(&plan.rows));
        counts.fold((0, 0), |(pruned, matched), counts| (pruned + counts.0, matched + counts.1))
    }

    /// Judges filters again that have tightened since the last check; returns whether there were any. A file may have
    /// millions of zones, so only those are judged that hold rows at or after `from` and are not ruled out yet: rows
    /// that a dynamic filter has rejected once may be dropped, whatever it becomes.
    pub(super) fn refresh(&mut self, plan: &Plan, from: u64) -> Result<bool> {
        let generation = generation(plan);
        if !plan.prune || generation.is_none() || generation == self.generation {
            return Ok(false);
        }
        self.generation = generation;
        self.first_verdicts.get_or_insert_with(|| self.verdicts.clone());
        for (at, conjunct) in plan.conjuncts.iter().enumerate() {
            let (Expr::Dynamic(_), Some(before)) = (conjunct, &self.verdicts[at]) else { continue };
            // Blocks are ruled out as a whole, so they are judged as a whole.
            let rows = self.possible(plan, before.start_of_block(from));
            let now = self.judge(conjunct, plan, &rows)?;
            if let (Some(now), Some(before)) = (now, &mut self.verdicts[at]) {
                plan.metrics.zones_pruned_dynamic.add(before.tighten(now, &rows));
            }
        }
        Ok(true)
    }

    /// The rows at or after `from` in blocks that are not ruled out.
    pub(super) fn possible(&self, plan: &Plan, from: u64) -> RowRanges {
        let rest = plan.rows.intersection(&(from..plan.rows.bounds().end).into());
        self.verdicts.iter().flatten().fold(rest, |rows, verdict| verdict.possible(&rows))
    }

    /// The first of these rows in a block that may match; their end if there is no such row.
    pub(super) fn first_possible(&self, rows: &Range<u64>) -> u64 {
        first_possible(&self.verdicts, rows)
    }

    /// Counts splits in a range of rows none of which may match: those known from the start, and those
    /// ruled out only by a filter that tightened.
    pub(super) fn count_ruled_out(&self, plan: &Plan, rows: &Range<u64>) -> (u64, u64) {
        let all = plan.count_splits(rows);
        let Some(verdicts) = &self.first_verdicts else { return (all, 0) };
        if all > MAX_COUNTED {
            return (0, all);
        }
        let (mut row, mut from_start) = (rows.start, 0);
        // Rows that the scan leaves out are skipped in one step, no matter how many there are.
        while let Some(next) = plan.requested_from(row).filter(|next| *next < rows.end) {
            let possible = match first_possible(verdicts, &(next..rows.end)) {
                found if found < rows.end => plan.split_start(found).max(row),
                end => end,
            };
            from_start += plan.count_splits(&(row..possible));
            row = (possible / plan.split_step).saturating_add(1).saturating_mul(plan.split_step);
        }
        (from_start, all.saturating_sub(from_start))
    }

    /// The rows of a split that may match.
    pub(super) fn prune(&self, split: &Split) -> Mask {
        let verdicts = self.verdicts.iter().flatten();
        verdicts.fold(split.live.clone(), |live, verdict| verdict.prune(live, &split.rows))
    }

    /// The conjuncts of the filter that are not certain to hold for every row of the split.
    pub(super) fn open_conjuncts(&self, split: &Split) -> Vec<usize> {
        let verdicts = self.verdicts.iter().enumerate();
        let is_open =
            |verdict: &Option<Verdict>| !verdict.as_ref().is_some_and(|it| it.is_certain(&split.rows));
        verdicts.filter(|(_, verdict)| is_open(verdict)).map(|(at, _)| at).collect()
    }
}

/// What is known about the columns of a file: the zone maps of a scan and the answers of Bloom filters, and of other
/// columns the statistics of the file, as a map of a single zone.
struct OfFile<'a> {
    zone_maps: &'a ZoneMaps,
    footer: &'a Footer,
}

impl Known for OfFile<'_> {
    fn zone_map(&self, path: &FieldPath) -> Option<Arc<ZoneMap>> {
        if let Some(map) = self.zone_maps.maps.get(path) {
            return Some(Arc::clone(map));
        }
        let ([name], Some(fields)) = (path.names(), self.footer.dtype().as_columns()) else { return None };
        let at = fields.position(name)?;
        let stats = self.footer.statistics()?.get(at)?;
        ZoneMap::of_file(stats, &fields.dtypes()[at], self.footer.row_count()).ok().map(Arc::new)
    }

    fn holding(&self, path: &FieldPath, predicate: &Predicate) -> Option<Holding> {
        self.zone_maps.answers.holding(path, predicate)
    }
}

/// The first of these rows in a block that may match; their end if there is no such row.
fn first_possible(verdicts: &[Option<Verdict>], rows: &Range<u64>) -> u64 {
    let mut row = rows.start;
    loop {
        let before = row;
        for verdict in verdicts.iter().flatten() {
            row = verdict.first_possible(&(row..rows.end));
        }
        if row == before {
            return row;
        }
    }
}

/// Reads the zone tables of columns all at once. Statistics are optional, so a table that cannot be read, or that
/// exceeds the limits together with those before it, is left out: it prunes nothing.
///
/// # Errors
/// If storage fails, or if a table is corrupt and checksums are verified: whoever asks for that wants to know.
async fn read_tables(
    plan: &Plan,
    mut columns: Vec<(&Column, &Zones)>,
) -> Result<Vec<(FieldPath, Arc<ZoneMap>)>> {
    let footer = plan.file.footer();
    let mut have = SegmentSet::new(&footer.table);
    let ignore = |column: &Column, error: &Error| {
        tracing::debug!(column = %column.path, %error, "zone map ignored");
    };
    fetch(plan, Urgency::ZONE_MAPS, &mut have, |have, want| {
        columns.retain(|(column, zones)| {
            let mut segments = Vec::new();
            let known = zones
                .request(have, &mut segments)
                .and_then(|()| segments.iter().try_for_each(|id| footer.segment(*id).map(drop)));
            want.extend(segments);
            known.inspect_err(|error| ignore(column, error)).is_ok()
        });
        Ok(())
    })
    .await?;
    let (start, verifies) = (Instant::now(), footer.verifies_checksums());
    // All of them are held at once, so that they are limited together.
    let _work = Work::begin();
    let mut maps = Vec::with_capacity(columns.len());
    for (column, zones) in columns {
        match zones.read(&have) {
            Ok(map) => maps.push((column.path.clone(), Arc::new(map))),
            Err(error) if verifies && matches!(error.root(), Error::Corrupt(_)) => return Err(error),
            Err(error) => ignore(column, &error),
        }
    }
    plan.metrics.filter_nanos.add_since(start);
    Ok(maps)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, RecordBatch};

    use super::*;
    use crate::expr::{SharedFilter, column};
    use crate::file::OpenOptions;
    use crate::given::{file_of, written};
    use crate::limits::Limits;
    use crate::write::WriteOptions;

    #[tokio::test]
    async fn zone_tables_that_are_held_together_are_limited_together() {
        let noise = |name: &str| {
            let numbers = Int64Array::from_iter_values((0..40 << 13).map(|row: i64| row * row % 10_007));
            (name.to_owned(), Arc::new(numbers) as _)
        };
        let table = RecordBatch::try_from_iter(["a", "b", "c"].map(noise)).unwrap();
        let bytes = written([table], WriteOptions::new()).await;
        let maps = async |limits: Limits, columns: &[&str]| {
            let file = OpenOptions::new().with_limits(limits).open_bytes(bytes.clone()).unwrap();
            let filter = columns.iter().map(|name| column(*name).gt(10_000)).reduce(Expr::and);
            let plan = Plan::new(&file.scan().with_filter(filter.unwrap())).unwrap();
            ZoneMaps::read(&plan).await.unwrap().maps.len()
        };
        let all = ["a", "b", "c"];
        assert_eq!(maps(Limits::new(), &all).await, 3);
        let mut few = Limits::new().with_max_decoded_bytes(500);
        while maps(few, &["a"]).await == 0 {
            few = few.with_max_decoded_bytes(few.max_decoded_bytes + 100);
        }
        for name in all {
            assert_eq!(maps(few, &[name]).await, 1, "{name}");
        }
        assert_eq!(maps(few, &all).await, 1);
    }

    #[tokio::test]
    async fn zones_that_are_done_or_ruled_out_are_not_judged_again() {
        const ZONE: i64 = 8192;
        let numbers = Int64Array::from_iter_values(0..5 * ZONE);
        let table = RecordBatch::try_from_iter([("number", Arc::new(numbers) as _)]).unwrap();
        let file = file_of([table]).await;
        let below = Arc::new(SharedFilter::new(["number"]));
        below.set(column("number").lt(5 * ZONE));
        let scan = file.scan().with_filter(Expr::Dynamic(Arc::clone(&below) as _));
        let plan = Plan::new(&scan).unwrap();
        let mut zone_maps = ZoneMaps::read(&plan).await.unwrap();
        // The limit, the first row that is not done, and the zones that may match then.
        for (limit, from, expected) in [
            (4 * ZONE, 0, [true, true, true, true, false]),
            (5 * ZONE, 0, [true, true, true, true, false]),
            (1, 2 * ZONE + 5, [true, true, false, false, false]),
            (0, ZONE, [true, false, false, false, false]),
        ] {
            below.set(column("number").lt(limit));
            assert!(zone_maps.refresh(&plan, from as u64).unwrap());
            let outcomes = zone_maps.verdicts[0].as_ref().unwrap().outcomes();
            assert_eq!(outcomes.may.iter().collect::<Vec<_>>(), expected, "{limit}, from {from}");
        }
        assert_eq!(plan.metrics.zones_pruned_dynamic.get(), 4);
    }
}
