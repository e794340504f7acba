//! Asking Bloom filters which zones may hold the constants that a filter compares columns with.
//!
//! They are asked after zone maps, and only about columns of which many bytes would still be read: a constant costs a
//! read of 32 bytes per zone.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::buffer::{BooleanBuffer, Buffer};

use super::column::Column;
use super::fetch::{byte_len, fetch_ranges, missing_bytes, wanted};
use super::plan::Plan;
use crate::Result;
use crate::bloom::{ColumnFilters, hash_of};
use crate::dtype::DType;
use crate::error::ResultExt as _;
use crate::expr::{CompareOp, Expr, FieldPath, Predicate};
use crate::io::Urgency;
use crate::layout::SegmentSet;
use crate::pruning::Holding;
use crate::row_ranges::RowRanges;

/// Most constants that are asked about: since one zone in a thousand seems to hold any constant, and chunks have up to
/// 16 zones, more would rule out hardly any chunk.
const MAX_CONSTANTS: usize = 64;

/// Most bytes of filters that are read for a scan: some constants of a billion rows.
const MAX_BYTES: u64 = 16 << 20;

/// Bytes of the column that must be at stake for each byte that is read of its filters.
const BYTES_AT_STAKE: u64 = 2;

/// The same at least: reading the column takes little longer than asking.
const MIN_AT_STAKE_LOCAL: u64 = 64 << 10;
const MIN_AT_STAKE_REMOTE: u64 = 512 << 10;

/// Ranges of rows of which bytes are counted, at most.
const MAX_RANGES: usize = 256;

/// What Bloom filters have answered.
#[derive(Debug, Default)]
pub(super) struct Answers(HashMap<FieldPath, OfColumn>);

#[derive(Debug)]
struct OfColumn {
    dtype: DType,
    zone_len: u64,
    /// The zones that may hold values, by the hash of the value.
    holding: HashMap<u64, BooleanBuffer>,
}

impl Answers {
    /// Asks about the constants of a scan's filter, which may match only `rows`.
    ///
    /// # Errors
    /// If storage fails, or if a Bloom filter is corrupt and checksums are verified.
    pub(super) async fn read(plan: &Plan, rows: &RowRanges) -> Result<Self> {
        let mut answers = Self::default();
        let questions = questions(plan, rows)?;
        if questions.is_empty() {
            return Ok(answers);
        }
        let ranges: Vec<Range<u64>> = questions.iter().flat_map(Question::stripes).collect();
        let _memory = plan.memory.take_anyway(byte_count(ranges.iter().cloned()));
        let start = Instant::now();
        let stripes = fetch_ranges(plan, &ranges, Urgency::ZONE_MAPS).await?;
        plan.metrics.io_wait_nanos.add_since(start);
        let mut stripes = stripes.as_slice();
        for Question { column, filters, groups, hash } in &questions {
            let (of_question, others) = stripes.split_at(groups.len());
            stripes = others;
            let of_question = groups.iter().copied().zip(of_question.iter().map(Buffer::as_slice));
            match filters.holding(*hash, of_question).at(|| column.place()) {
                Ok(zones) => {
                    let of_column = answers.0.entry(column.path.clone());
                    let of_column = of_column.or_insert_with(|| OfColumn {
                        dtype: column.dtype.clone(),
                        zone_len: filters.zone_len(),
                        holding: HashMap::new(),
                    });
                    of_column.holding.insert(*hash, zones);
                }
                Err(error) if plan.file.footer().verifies_checksums() => return Err(error),
                Err(error) => tracing::debug!(column = %column.path, %error, "Bloom filter ignored"),
            }
        }
        Ok(answers)
    }

    /// Whether nothing was asked.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Rows per zone that something is known of.
    pub(super) fn zone_len(&self, path: &FieldPath) -> Option<u64> {
        self.0.get(path).map(|column| column.zone_len)
    }

    /// Which zones may hold a value of a column that matches, if that was asked.
    pub(super) fn holding(&self, path: &FieldPath, predicate: &Predicate) -> Option<Holding> {
        let column = self.0.get(path)?;
        let mut zones: Option<BooleanBuffer> = None;
        for hash in constants(predicate, &column.dtype)? {
            let of_constant = column.holding.get(&hash)?;
            zones = Some(match zones {
                Some(zones) => &zones | of_constant,
                None => of_constant.clone(),
            });
        }
        Some(Holding { zone_len: column.zone_len, zones: zones? })
    }
}

/// Which zones may hold a value of a column?
struct Question<'a> {
    column: &'a Column,
    filters: &'a ColumnFilters,
    /// The groups of zones that are asked about.
    groups: Arc<[usize]>,
    /// The hash of the value.
    hash: u64,
}

impl Question<'_> {
    /// Where the answer lies: a stripe per group.
    fn stripes(&self) -> impl Iterator<Item = Range<u64>> {
        self.filters.stripes_of(self.hash, &self.groups)
    }
}

/// The questions that pay, about constants of a scan's filter.
fn questions<'a>(plan: &'a Plan, rows: &RowRanges) -> Result<Vec<Question<'a>>> {
    let (filters, mut questions) = (plan.file.footer().bloom_filters(), Vec::new());
    if filters.is_empty() || rows.is_empty() {
        return Ok(questions);
    }
    let mut asked: HashMap<FieldPath, BTreeSet<u64>> = HashMap::new();
    for conjunct in &plan.conjuncts {
        for_each_field(conjunct, &mut |path, predicate| {
            let column = plan.filter_columns.get(path).filter(|_| filters.get(path).is_some());
            let hashes = column.and_then(|column| constants(predicate, &column.dtype));
            if let Some(hashes) = hashes.filter(|hashes| hashes.len() <= MAX_CONSTANTS) {
                asked.entry(path.clone()).or_default().extend(hashes);
            }
        });
    }
    let mut bytes = 0u64;
    for (path, hashes) in asked.into_iter().filter(|(_, hashes)| hashes.len() <= MAX_CONSTANTS) {
        let (column, Some(filters)) = (plan.filter_column(&path)?, filters.get(&path)) else { continue };
        let groups: Arc<[usize]> = filters.groups_of(rows).into();
        let question = |hash| Question { column, filters, groups: Arc::clone(&groups), hash };
        let of_column: Vec<Question<'_>> = hashes.into_iter().map(question).collect();
        let more = byte_count(of_column.iter().flat_map(Question::stripes));
        if bytes.saturating_add(more) <= MAX_BYTES && pays(plan, column, more, rows)? {
            bytes += more;
            questions.extend(of_column);
        }
    }
    Ok(questions)
}

fn byte_count(ranges: impl Iterator<Item = Range<u64>>) -> u64 {
    ranges.map(|range| range.end - range.start).fold(0, u64::saturating_add)
}

/// Passes on the predicates that a filter consists of, as far as it is not negated.
fn for_each_field(expr: &Expr, take: &mut impl FnMut(&FieldPath, &Predicate)) {
    match expr {
        Expr::Field(path, predicate) => take(path, predicate),
        Expr::And(parts) | Expr::Or(parts) => parts.iter().for_each(|part| for_each_field(part, take)),
        Expr::Dynamic(filter) => {
            if let Some(current) = filter.current() {
                for_each_field(&current, take);
            }
        }
        _ => {}
    }
}

/// The hashes of the constants of which a value must equal one to match, if that is so.
fn constants(predicate: &Predicate, dtype: &DType) -> Option<Vec<u64>> {
    // One that does not fit the column fails when it is evaluated, not here.
    predicate.check(dtype).ok()?;
    match predicate {
        Predicate::Compare(CompareOp::Eq, constant) => Some(vec![hash_of(constant)?]),
        Predicate::In(list) if !list.negated() && !list.values().is_empty() => {
            list.values().iter().map(hash_of).collect()
        }
        _ => None,
    }
}

/// Whether asking for so many bytes may save enough of those that would be read of a column.
fn pays(plan: &Plan, column: &Column, bytes: u64, rows: &RowRanges) -> Result<bool> {
    let least = if plan.is_remote() { MIN_AT_STAKE_REMOTE } else { MIN_AT_STAKE_LOCAL };
    let least = bytes.saturating_mul(BYTES_AT_STAKE).max(least);
    let (have, mut segments) = (SegmentSet::new(plan.table()), BTreeSet::new());
    let mut at_stake = 0;
    for range in rows.iter().take(MAX_RANGES) {
        let mut want = wanted(&have, |have, want| column.request(&range, have, want))?;
        want.retain(|id| segments.insert(*id));
        at_stake +=
            if plan.is_remote() { missing_bytes(plan, &want)? } else { byte_len(plan.table(), &want)? };
        if at_stake >= least {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Array as _, ArrayRef, Date32Array, Decimal128Array, Int64Array, RecordBatch, StringArray, StructArray,
    };
    use arrow::compute::concat_batches;
    use futures::TryStreamExt as _;

    use super::*;
    use crate::VortexFile;
    use crate::expr::column;
    use crate::file::OpenOptions;
    use crate::given::{Stored, opened, written};
    use crate::io::{Scheduler, StorageProfile};
    use crate::kernels::random;
    use crate::scalar::Scalar;
    use crate::scan::ScanBuilder;
    use crate::write::WriteOptions;

    const ROWS: usize = 300_000;

    fn keys(count: usize, seed: u64) -> Int64Array {
        let mut next = random(seed);
        Int64Array::from_iter_values((0..count).map(|_| next() as i64))
    }

    /// A file of random keys, with numbers of the rows.
    async fn of_keys() -> (Int64Array, bytes::Bytes) {
        let keys = keys(ROWS, 1);
        let rows = Arc::new(Int64Array::from_iter_values(0..ROWS as i64)) as ArrayRef;
        let table =
            RecordBatch::try_from_iter([("key", Arc::new(keys.clone()) as _), ("row", rows)]).unwrap();
        (keys, written([table], WriteOptions::new().with_bloom_filter("key")).await)
    }

    async fn rows_of(scan: ScanBuilder) -> RecordBatch {
        let stream = scan.into_stream().unwrap();
        let schema = Arc::clone(stream.schema());
        let batches: Vec<RecordBatch> = stream.try_collect().await.unwrap();
        concat_batches(&schema, &batches).unwrap()
    }

    /// Scans with a filter; returns the rows, the zones that Bloom filters ruled out, and the bytes read.
    async fn found(file: &VortexFile, filter: Expr) -> (RecordBatch, u64, u64) {
        // What one of its own learns of storage is of no use to other tests.
        let scan = file.scan().with_filter(filter).with_scheduler(Scheduler::new(1 << 30));
        let metrics = Arc::clone(scan.metrics());
        let rows = rows_of(scan).await;
        (rows, metrics.zones_pruned_bloom.get(), metrics.bytes_read.get())
    }

    #[tokio::test]
    async fn a_key_is_found_in_its_zone_alone() {
        let (keys, bytes) = of_keys().await;
        let zones = ROWS.div_ceil(8192) as u64;
        let file = opened(bytes.clone()).await;
        for row in [0, 8191, 8192, 100_000, ROWS - 1] {
            let (rows, pruned, _) = found(&file, column("key").eq(keys.value(row))).await;
            assert_eq!(rows.num_rows(), 1);
            assert_eq!(rows.column(1).as_ref(), &Int64Array::from(vec![row as i64]));
            assert!(pruned + 3 > zones, "{pruned}");
        }
        let (rows, pruned, _) = found(&file, column("key").eq(7i64)).await;
        assert!(rows.num_rows() == 0 && pruned + 2 > zones, "{pruned}");
        let some = [5, 70_000, 70_001].map(|row| keys.value(row));
        let (rows, pruned, _) = found(&file, column("key").is_in(some)).await;
        assert!(rows.num_rows() == 3 && pruned + 5 > zones, "{pruned}");
    }

    #[tokio::test]
    async fn few_bytes_of_a_remote_file_are_read_for_a_key() {
        let (keys, bytes) = of_keys().await;
        let stored = Arc::new(Stored::new(bytes, StorageProfile::REMOTE));
        let file = VortexFile::open(stored as _).await.unwrap();
        let (rows, _, read) = found(&file, column("key").eq(keys.value(200_000))).await;
        assert_eq!(rows.num_rows(), 1);
        assert!(read < (4 << 20), "{read} bytes of 2.4 MB of keys");
        let (rows, _, read) = found(&file, column("key").eq(7i64)).await;
        assert!(rows.num_rows() == 0 && read < (1 << 20), "{read} bytes");
    }

    #[tokio::test]
    async fn filters_are_only_asked_where_it_pays() {
        let (keys, bytes) = of_keys().await;
        let file = opened(bytes).await;
        let pruned = async |filter| found(&file, filter).await.1;
        let key = || column("key");
        assert_eq!(pruned(key().not_eq(keys.value(1))).await, 0);
        assert_eq!(pruned(key().not_in([keys.value(1)])).await, 0);
        assert_eq!(pruned(key().between(keys.value(1), keys.value(1))).await, 0);
        assert_eq!(pruned(key().is_in((0..65).map(|row| keys.value(row)))).await, 0, "too many");
        let many = key().is_in((0..65).map(|row| keys.value(row)));
        assert!(pruned(many.and(key().eq(keys.value(7)))).await > 30, "of the one");
        assert_eq!(pruned(key().eq(keys.value(1)).or(column("row").gt(5))).await, 0);
        assert_eq!(pruned(column("row").eq(5)).await, 0, "no filter, and zones tell");
        let both = key().eq(keys.value(1)).and(column("row").lt(100_000));
        assert!(pruned(both).await > 8);
        let either = key().eq(keys.value(1)).or(key().eq(keys.value(100_000)).and(column("row").gt(5)));
        assert!(pruned(either.clone()).await > 30);
        assert_eq!(found(&file, either).await.0.num_rows(), 2);
    }

    #[tokio::test]
    async fn what_equals_a_constant_is_found_in_columns_of_all_types() {
        let mut next = random(3);
        let mut options = |count: usize| -> Vec<Option<u64>> {
            (0..count).map(|_| (next() % 9 < 8).then(|| next() % 60_000)).collect()
        };
        let count = 50_003;
        let numbers = options(count);
        let text =
            |value: &Option<u64>| value.map(|value| "key ".repeat((value % 5) as usize) + &value.to_string());
        let fields: Vec<(&str, ArrayRef)> = vec![
            ("number", Arc::new(numbers.iter().map(|it| it.map(|it| it as i64)).collect::<Int64Array>())),
            ("text", Arc::new(numbers.iter().map(text).collect::<StringArray>())),
            (
                "date",
                Arc::new(numbers.iter().map(|it| it.map(|it| it as i32 - 30_000)).collect::<Date32Array>()),
            ),
            (
                "decimal",
                Arc::new(numbers.iter().map(|it| it.map(|it| it as i128 - 7)).collect::<Decimal128Array>()),
            ),
        ];
        let nested = StructArray::from(
            RecordBatch::try_from_iter_with_nullable(
                fields.iter().map(|(name, values)| (*name, Arc::clone(values), true)),
            )
            .unwrap(),
        );
        let columns = fields.iter().map(|(name, values)| (*name, Arc::clone(values), true));
        let table = RecordBatch::try_from_iter_with_nullable(columns.chain([(
            "nested",
            Arc::new(nested) as _,
            true,
        )]));
        let table = table.unwrap();
        let paths = || fields.iter().flat_map(|(name, _)| [FieldPath::from(*name), ["nested", *name].into()]);
        let options = paths().fold(WriteOptions::new(), WriteOptions::with_bloom_filter);
        let parts = [0..1, 1..20_000, 20_000..count].map(|rows| table.slice(rows.start, rows.len()));
        let file = opened(written(parts, options).await).await;
        assert_eq!(file.footer().bloom_filter_columns().count(), 8);
        let dtype = file.footer().dtype().clone();
        for path in paths() {
            let values = table.column_by_name(path.names().last().unwrap()).unwrap();
            let dtype = path.dtype_in(&dtype).unwrap();
            let mut pruned = 0;
            for row in (0..count).step_by(5003) {
                let constant = Scalar::from_arrow(values.as_ref(), row, dtype).unwrap();
                let filter = column(path.clone()).eq(constant);
                let (rows, ruled_out, _) = found(&file, filter.clone()).await;
                let all = rows_of(file.scan().with_filter(filter).with_pruning(false)).await;
                assert_eq!(rows, all, "{path}, row {row}");
                assert_eq!(rows.num_rows() > 0, values.is_valid(row), "{path}, row {row}");
                pruned += ruled_out;
            }
            assert!(pruned > 20, "{path}: {pruned}");
        }
    }

    #[tokio::test]
    async fn filters_of_zones_that_are_cut_into_short_chunks_are_as_good_as_others() {
        let long = |row: usize| format!("{row} ").repeat(300);
        let text = StringArray::from_iter_values((0..20_000).map(long));
        let table = RecordBatch::try_from_iter([("text", Arc::new(text) as _)]).unwrap();
        let file = opened(written([table], WriteOptions::new().with_bloom_filter("text")).await).await;
        let mut pruned = 0;
        for absent in 16_500..16_520 {
            pruned += found(&file, column("text").eq(format!("{absent} ").repeat(299) + "x")).await.1;
        }
        assert!(pruned >= 58, "{pruned} of 20 times three zones");
    }

    #[tokio::test]
    async fn damaged_filters_are_ignored_unless_checksums_are_verified() {
        let (keys, bytes) = of_keys().await;
        let file = opened(bytes.clone()).await;
        let groups: Vec<_> = file.footer().bloom_filters().iter().flat_map(|(_, it)| it.groups()).collect();
        assert_eq!(groups.len(), 1);
        let mut bytes = bytes.to_vec();
        bytes[groups[0].start as usize..groups[0].end as usize].fill(0);
        let filter = || column("key").eq(keys.value(5));
        let (rows, pruned, _) = found(&opened(bytes.clone()).await, filter()).await;
        assert_eq!((rows.num_rows(), pruned), (1, 0));
        let options = WriteOptions::new().with_bloom_filter("key").with_checksums(true);
        let table = RecordBatch::try_from_iter([("key", Arc::new(keys.clone()) as _)]).unwrap();
        let mut bytes = written([table], options).await.to_vec();
        let open = |bytes: &[u8]| OpenOptions::new().with_verify_checksums(true).open_bytes(bytes.to_vec());
        let file = open(&bytes).unwrap();
        let group = file.footer().bloom_filters().iter().flat_map(|(_, it)| it.groups()).next().unwrap();
        assert_eq!(found(&file, filter()).await.0.num_rows(), 1);
        bytes[group.start as usize..group.end as usize].fill(0);
        let scan = open(&bytes).unwrap().scan().with_filter(filter());
        let error = scan.into_stream().unwrap().try_collect::<Vec<_>>().await.unwrap_err();
        assert!(
            error.to_string().contains("column `key`: corrupt file: Bloom filters of zones 0..37"),
            "{error}"
        );
    }
}
