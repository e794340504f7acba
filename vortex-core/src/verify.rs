//! Verifying that a file is consistent: structure, checksums, values, statistics.
//!
//! [`verify`] opens the file, reads every segment that has a checksum, decodes every column, and compares
//! zone maps and statistics with the values. After a problem it continues if possible. It holds only a
//! few batches at a time.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef as ArrowRef, AsArray as _};
use arrow::compute::{max_binary_view, max_string_view, min_binary_view, min_string_view};
use arrow::datatypes::Schema;
use futures::{StreamExt as _, TryStreamExt as _};

use crate::dtype::arrow::{field, presents};
use crate::dtype::{DType, ROOT_COLUMN, StructType};
use crate::expr::FieldPath;
use crate::file::{OpenOptions, SegmentId, VortexFile, examine, read_checksums};
use crate::io::{ReadAt, read_exact};
use crate::layout::{LayoutRef, ZoneMap};
use crate::limits::Limits;
use crate::scalar::Value;
use crate::scan::ScanBuilder;
use crate::segments::checksums::{CHECKSUMS_KEY, Checksums, compare};
use crate::stats::compute::Summary;
use crate::stats::{FieldStats, Precision, is_float, widen_zero};
use crate::{Error, Result, Scalar};

/// Maximum number of reads in flight.
const READS_AHEAD: usize = 4;

/// The result of verifying a file.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Verification {
    /// Rows of the file.
    pub row_count: u64,
    /// Columns of the file.
    pub column_count: usize,
    /// Segments that were verified against a checksum.
    pub checked_segments: usize,
    /// Zones whose statistics were compared with their values.
    pub checked_zones: u64,
    /// The problems found; empty if there are none.
    pub problems: Vec<Problem>,
}

/// A problem of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The place: a part of the description, a segment, or a column and some of its rows.
    pub place: String,
    /// A description of the problem.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl Verification {
    fn problem(&mut self, place: impl Into<String>, message: impl fmt::Display) {
        self.problems.push(Problem { place: place.into(), message: message.to_string() });
    }
}

/// Verifies a file: its structure, checksums if it has any, all values, statistics and zone maps. Needs a
/// tokio runtime.
///
/// # Errors
/// If storage fails; problems of the file are part of the result.
pub async fn verify(source: Arc<dyn ReadAt>, options: &OpenOptions) -> Result<Verification> {
    let mut found = examined(&source, options).await?;
    for Problem { place, message } in &mut found.problems {
        // Errors name their file, which the caller knows, and their column, which the place names.
        for known in [source.name(), place] {
            if let Some(rest) = message.strip_prefix(known).and_then(|rest| rest.strip_prefix(": ")) {
                *message = rest.to_owned();
            }
        }
    }
    Ok(found)
}

async fn examined(source: &Arc<dyn ReadAt>, options: &OpenOptions) -> Result<Verification> {
    let mut found = Verification::default();
    let Some(file) = open(source, options, &mut found).await? else { return Ok(found) };
    found.row_count = file.row_count();
    found.column_count = file.footer().dtype().as_columns().map_or(1, |columns| columns.len());
    match read_checksums(source.as_ref(), file.footer()).await {
        Ok(Some(checksums)) => check_bytes(&file, &checksums, &mut found).await?,
        Ok(None) => {}
        Err(error) => found.problem("checksums", unless_storage(error)?),
    }
    let whole = |path, at| Column {
        path,
        at,
        is_named: true,
        dtype: file.footer().dtype().clone(),
        layout: Arc::clone(file.footer().layout()),
        is_visible: true,
    };
    let mut columns = Vec::new();
    match file.footer().dtype().as_columns() {
        Some(_) => collect(whole(FieldPath::new([""; 0]), None), &mut columns, &mut found),
        None => columns.push(whole(FieldPath::new([ROOT_COLUMN]), Some(0))),
    }
    for column in &columns {
        if let Err(error) = check_column(&file, column, &mut found).await {
            found.problem(format!("column `{}`", column.path), unless_storage(error)?);
        }
    }
    Ok(found)
}

/// The error as a problem of the file, unless it is a failure of storage.
fn unless_storage(error: Error) -> Result<Error> {
    if matches!(error.root(), Error::Read { .. }) { Err(error) } else { Ok(error) }
}

/// Opens the file, even if the checksum of its description is wrong.
async fn open(
    source: &Arc<dyn ReadAt>,
    options: &OpenOptions,
    found: &mut Verification,
) -> Result<Option<VortexFile>> {
    let strict = options.clone().with_checksums(true);
    let first = match strict.open(Arc::clone(source)).await {
        // Checksums are verified separately; scans need not repeat that.
        Ok(_) => None,
        Err(error) => Some(unless_storage(error)?),
    };
    match (options.clone().with_checksums(false).open(Arc::clone(source)).await, first) {
        (Ok(file), None) => Ok(Some(file)),
        (Ok(file), Some(error)) => {
            found.problem("description", error);
            Ok(Some(file))
        }
        (Err(error), _) => {
            let error = unless_storage(error)?;
            let examination = examine(source.as_ref(), &Limits::default()).await?;
            for part in examination.parts {
                if let Err(error) = part.found {
                    found.problem(part.name, error);
                }
            }
            // Most likely this repeats the error already found.
            if found.problems.is_empty() {
                found.problem("file", error);
            }
            Ok(None)
        }
    }
}

/// Verifies every segment and metadata entry against its checksum.
async fn check_bytes(file: &VortexFile, checksums: &Checksums, found: &mut Verification) -> Result<()> {
    let source = file.source().as_ref();
    let segments = file.footer().segments().iter().enumerate();
    let reads = segments.map(|(at, segment)| async move {
        read_exact(source, segment.range()).await.map(|bytes| (at, bytes))
    });
    let mut reads = std::pin::pin!(futures::stream::iter(reads).buffered(READS_AHEAD));
    while let Some((at, bytes)) = reads.next().await.transpose()? {
        found.checked_segments += 1;
        // The table of segments has less than 2^32 rows.
        if let Err(error) = checksums.check(SegmentId(at as u32), &bytes) {
            found.problem(format!("segment {at}"), error);
        }
    }
    let mut entries = file.footer().user_metadata().to_vec();
    entries.retain(|entry| &*entry.key != CHECKSUMS_KEY);
    entries.sort_by(|left, right| left.key.cmp(&right.key));
    for (entry, expected) in entries.iter().zip(&checksums.entries) {
        let bytes = read_exact(source, entry.range.clone()).await?;
        if let Err(error) = compare("entry", *expected, &bytes) {
            found.problem(format!("metadata `{}`", entry.key), error);
        }
    }
    Ok(())
}

/// A column with its own layout.
struct Column {
    path: FieldPath,
    /// The position among the columns of the file; `None` for a field of one.
    at: Option<usize>,
    /// Whether the path leads to it, and not to a column before it that has the same name.
    is_named: bool,
    dtype: DType,
    layout: LayoutRef,
    /// Whether its statistics describe the values that readers see, which is not so below a nullable struct.
    is_visible: bool,
}

/// Adds a column, or those of its fields if these are stored separately; broken layouts are recorded as problems.
fn collect(column: Column, columns: &mut Vec<Column>, found: &mut Verification) {
    let is_root = column.path.names().is_empty();
    let paths_lead_to_all = |fields: &StructType| {
        let mut names = fields.names().iter().enumerate();
        column.is_named && (is_root || names.all(|(at, name)| fields.position(name) == Some(at)))
    };
    // Fields are stored separately if the first one is, even if its layout is broken.
    let are_apart = || !matches!(column.layout.field(0), Ok(None));
    let fields = column.dtype.as_struct();
    let fields = fields.filter(|fields| !fields.is_empty() && paths_lead_to_all(fields) && are_apart());
    let Some(fields) = fields else { return columns.push(column) };
    let nullable = column.dtype.is_nullable();
    for (at, (name, dtype)) in fields.fields().enumerate() {
        let path = column.path.child(name);
        match column.layout.field(at) {
            Ok(Some(layout)) => {
                let field = Column {
                    path,
                    at: is_root.then_some(at),
                    is_named: fields.position(name) == Some(at),
                    dtype: if nullable { dtype.with_nullable(true) } else { dtype.clone() },
                    layout,
                    is_visible: column.is_visible && !nullable,
                };
                collect(field, columns, found);
            }
            Ok(None) => {}
            Err(error) => found.problem(format!("layout of column `{path}`"), error),
        }
    }
}

/// Properties of the values of some rows.
struct Actual {
    summary: Summary,
    /// Extremes of text, which summaries truncate.
    text: Option<(Value, Value)>,
}

impl Actual {
    fn of(array: &ArrowRef, dtype: &DType) -> Self {
        let text = match dtype.storage() {
            DType::Utf8(_) => array.as_string_view_opt().and_then(|array| {
                let (min, max) = (min_string_view(array)?, max_string_view(array)?);
                Some((Value::Utf8(min.into()), Value::Utf8(max.into())))
            }),
            DType::Binary(_) => array.as_binary_view_opt().and_then(|array| {
                let (min, max) = (min_binary_view(array)?, max_binary_view(array)?);
                Some((Value::Binary(min.into()), Value::Binary(max.into())))
            }),
            _ => None,
        };
        Self { summary: Summary::of(array, dtype), text }
    }

    fn merge(self, next: Self) -> Self {
        let pick = |a: Value, b: Value, low: bool| {
            let first = crate::scalar::compare_values(&a, &b).is_some_and(|order| order.is_lt() == low);
            if first { a } else { b }
        };
        let text = match (self.text, next.text) {
            (Some((a, b)), Some((c, d))) => Some((pick(a, c, true), pick(b, d, false))),
            (text, None) | (None, text) => text,
        };
        Self { summary: self.summary.merge(next.summary), text }
    }

    /// The minimum and the maximum value, if there are any.
    fn extremes(&self, dtype: &DType) -> Option<(Scalar, Scalar)> {
        let (min, max) = match &self.text {
            Some((min, max)) => (min.clone(), max.clone()),
            None => (self.summary.min.bound()?.clone(), self.summary.max.bound()?.clone()),
        };
        let scalar = |value| Scalar::try_new(dtype.with_nullable(true), value).ok();
        Some((scalar(min)?, scalar(max)?))
    }
}

/// Decodes a column and compares its statistics with its values.
async fn check_column(file: &VortexFile, column: &Column, found: &mut Verification) -> Result<()> {
    let place = format!("column `{}`", column.path);
    let zones = match column.layout.zones() {
        Some(zones) if column.is_visible => match file.zone_map(zones).await {
            Ok(map) => Some(map),
            Err(error) => {
                found.problem(format!("zone map of {place}"), unless_storage(error)?);
                None
            }
        },
        _ => None,
    };
    let zone_len = zones.as_ref().map_or(u64::MAX, |map| map.zone_len);
    let (scan, natural, at) = scan_of(file, column)?;
    let mut batches = scan.clone().with_schema(Arc::new(natural)).into_stream()?;
    let (mut whole, mut open): (Option<Actual>, Option<Actual>) = (None, None);
    let mut zone = 0;
    while let Some(batch) = batches.try_next().await? {
        let mut start = 0;
        while start < batch.num_rows() {
            let filled = open.as_ref().map_or(0, |open| open.summary.rows);
            let len = usize::try_from(zone_len - filled).unwrap_or(usize::MAX).min(batch.num_rows() - start);
            let rows = Actual::of(&batch.column(at).slice(start, len), &column.dtype);
            open = Some(match open.take() {
                Some(open) => open.merge(rows),
                None => rows,
            });
            start += len;
            if let Some(done) = open.take_if(|open| open.summary.rows == zone_len) {
                check_zone(&place, zones.as_ref(), zone, &done, found);
                zone += 1;
                whole = Some(join(whole, done));
            }
        }
    }
    if let Some(done) = open {
        check_zone(&place, zones.as_ref(), zone, &done, found);
        whole = Some(join(whole, done));
    }
    check_statistics(file, column, whole.as_ref(), &place, found);
    check_presentation(file, column, &scan).await
}

/// A scan that reads the column, the types of the format for its batches, and the position of the column there.
fn scan_of(file: &VortexFile, column: &Column) -> Result<(ScanBuilder, Schema, usize)> {
    let all = file.footer().dtype().as_columns();
    // Without a projection, scans read columns by their positions.
    if let (false, Some(at), Some(all)) = (column.is_named, column.at, all) {
        let natural = all.fields().map(|(name, dtype)| field(name, dtype)).collect::<Result<Vec<_>>>()?;
        return Ok((file.scan(), Schema::new(natural), at));
    }
    let name = column.path.names().last().map_or(ROOT_COLUMN, |name| name);
    let scan = file.scan().with_projection([column.path.clone()]);
    Ok((scan, Schema::new(vec![field(name, &column.dtype)?]), 0))
}

fn join(whole: Option<Actual>, next: Actual) -> Actual {
    match whole {
        Some(whole) => whole.merge(next),
        None => next,
    }
}

/// Checks values that are read as types that the format lacks, which may be out of range for them.
async fn check_presentation(file: &VortexFile, column: &Column, scan: &ScanBuilder) -> Result<()> {
    let schema = file.schema()?;
    // The schema has the columns of the file in their order.
    let own = column.at.and_then(|at| schema.fields().get(at));
    if own.is_none_or(|own| presents(&column.dtype, own.data_type())) {
        return Ok(());
    }
    scan.clone().into_stream()?.try_for_each(|_| async { Ok(()) }).await
}

fn check_zone(place: &str, map: Option<&ZoneMap>, zone: usize, actual: &Actual, found: &mut Verification) {
    let Some(map) = map.filter(|map| zone < map.zone_count) else { return };
    found.checked_zones += 1;
    let place = format!("zone {zone} of {place}");
    let summary = &actual.summary;
    let count = |counts: &Option<arrow::array::UInt64Array>| {
        counts.as_ref().filter(|counts| counts.is_valid(zone)).map(|counts| counts.value(zone))
    };
    check_count(&place, "nulls", count(&map.null_count), summary.null_count, found);
    check_count(&place, "NaN values", count(&map.nan_count), summary.nan_count, found);
    let bound = |bounds: &Option<ArrowRef>| {
        let bounds = bounds.as_ref().filter(|bounds| bounds.is_valid(zone))?;
        Scalar::from_arrow(bounds.as_ref(), zone, &map.dtype.with_nullable(true)).ok()
    };
    let (min, max) = (bound(&map.min), bound(&map.max));
    check_bounds(&place, min.as_ref(), max.as_ref(), actual, &map.dtype, found);
}

fn check_count(place: &str, what: &str, stated: Option<u64>, actual: u64, found: &mut Verification) {
    if let Some(stated) = stated.filter(|stated| *stated != actual) {
        found.problem(place, format!("{actual} {what}, its statistics say {stated}"));
    }
}

/// Checks bounds against the values. NaN bounds provide no information and are ignored.
fn check_bounds(
    place: &str,
    min: Option<&Scalar>,
    max: Option<&Scalar>,
    actual: &Actual,
    dtype: &DType,
    found: &mut Verification,
) {
    let Some((least, greatest)) = actual.extremes(dtype) else { return };
    if let Some(min) = min.map(|min| widen_zero(min, true)).filter(|min| !min.value().is_nan())
        && least.compare(&min).is_some_and(std::cmp::Ordering::is_lt)
    {
        found.problem(place, format!("{:?} lies below the stated minimum {:?}", least.value(), min.value()));
    }
    if let Some(max) = max.map(|max| widen_zero(max, false)).filter(|max| !max.value().is_nan())
        && greatest.compare(&max).is_some_and(std::cmp::Ordering::is_gt)
    {
        found.problem(
            place,
            format!("{:?} lies above the stated maximum {:?}", greatest.value(), max.value()),
        );
    }
}

fn check_statistics(
    file: &VortexFile,
    column: &Column,
    actual: Option<&Actual>,
    place: &str,
    found: &mut Verification,
) {
    let stated = column.at.and_then(|at| file.footer().column_statistics(at));
    let (Some(stated), Some(actual)) = (stated, actual) else { return };
    let place = format!("statistics of {place}");
    let summary = &actual.summary;
    check_count(&place, "nulls", stated.null_count, summary.null_count, found);
    if is_float(&column.dtype) {
        check_count(&place, "NaN values", stated.nan_count, summary.nan_count, found);
    }
    check_bounds(&place, stated.min.value(), stated.max.value(), actual, &column.dtype, found);
    check_exact(&place, stated, actual, &column.dtype, found);
    // Sums of floats depend on the order of additions.
    if let (false, Some(sum), Some(stated)) =
        (is_float(&column.dtype), summary.sum(&column.dtype), &stated.sum)
        && sum.value() != stated.value()
    {
        found.problem(&place, format!("the sum is {:?}, not {:?}", sum.value(), stated.value()));
    }
    let (unsorted, not_strictly) = summary.contradicts_order();
    if (stated.is_sorted == Some(true) && unsorted) || (stated.is_strict_sorted == Some(true) && not_strictly)
    {
        found.problem(&place, "values are not sorted as stated");
    }
    let differ = actual.extremes(&column.dtype).is_some_and(|(min, max)| {
        widen_zero(&min, true).compare(&widen_zero(&max, true)).is_some_and(std::cmp::Ordering::is_ne)
    });
    let some_null = summary.null_count > 0 && summary.null_count < summary.rows;
    if stated.is_constant == Some(true) && (differ || some_null) {
        found.problem(&place, "values are not all equal as stated");
    }
}

/// Checks that bounds stated as exact are actual extremes.
fn check_exact(place: &str, stated: &FieldStats, actual: &Actual, dtype: &DType, found: &mut Verification) {
    let Some((least, greatest)) = actual.extremes(dtype) else { return };
    for (what, stated, value) in [("minimum", &stated.min, &least), ("maximum", &stated.max, &greatest)] {
        let Precision::Exact(stated) = stated else { continue };
        let same = widen_zero(stated, true).compare(&widen_zero(value, true));
        if !stated.value().is_nan() && same.is_some_and(std::cmp::Ordering::is_ne) {
            found.problem(place, format!("the {what} is {:?}, not {:?}", value.value(), stated.value()));
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, RecordBatch, StringViewArray, StructArray};

    use super::*;
    use crate::io::{MemoryFile, MemorySink};
    use crate::write::{FileWriter, WriteOptions};

    async fn verified(bytes: Vec<u8>) -> Verification {
        verify(Arc::new(MemoryFile::new(bytes)), &OpenOptions::new()).await.unwrap()
    }

    #[tokio::test]
    async fn files_of_released_writers_are_sound() {
        let files = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
        let mut count = 0;
        for release in ["0.36.0", "0.45.0", "0.56.0", "0.68.0", "0.75.0", "0.84.0", "0.87.0", "0.91.0"] {
            for entry in std::fs::read_dir(files.join(release)).unwrap() {
                let path = entry.unwrap().path();
                if path.extension().is_some_and(|end| end == "vortex") {
                    let found = verified(std::fs::read(&path).unwrap()).await;
                    assert_eq!(found.problems, [], "{}", path.display());
                    count += 1;
                }
            }
        }
        assert!(count > 100);
    }

    /// A file of one batch, in which columns called `other` are renamed to `first`.
    async fn with_one_name(rows: &RecordBatch) -> Vec<u8> {
        let sink = MemorySink::new();
        let mut writer = FileWriter::try_new(sink.clone(), rows.schema(), WriteOptions::new()).unwrap();
        writer.write(rows).await.unwrap();
        writer.finish().await.unwrap();
        let mut bytes = sink.bytes().unwrap().to_vec();
        let places: Vec<usize> = (0..bytes.len() - 5).filter(|at| &bytes[*at..*at + 5] == b"other").collect();
        assert!(!places.is_empty());
        for at in places {
            bytes[at..at + 5].copy_from_slice(b"first");
        }
        bytes
    }

    #[tokio::test]
    async fn columns_of_one_name_are_told_apart() {
        let numbers = || Arc::new(Int64Array::from_iter_values(0..20_000)) as ArrowRef;
        let words = StringViewArray::from_iter_values((0..20_000).map(|row| format!("word {row:06}")));
        let words = || Arc::new(words.clone()) as ArrowRef;
        let pair = |left: ArrowRef, right: ArrowRef| {
            RecordBatch::try_from_iter([("first", left), ("other", right)]).unwrap()
        };
        let nested = |left, right| Arc::new(StructArray::from(pair(left, right))) as ArrowRef;
        for (rows, columns) in [
            (pair(numbers(), words()), 2),
            (pair(words(), numbers()), 2),
            (pair(numbers(), nested(numbers(), words())), 2),
            (pair(nested(words(), numbers()), numbers()), 2),
        ] {
            let found = verified(with_one_name(&rows).await).await;
            assert_eq!((found.problems, found.column_count), (vec![], columns));
        }
    }

    #[tokio::test]
    async fn a_file_that_does_not_open_shows_which_part_is_broken() {
        let mut bytes = include_bytes!("../tests/files/0.91.0/tpch_orders.vortex").to_vec();
        bytes.truncate(bytes.len() - 1);
        assert!(!verified(bytes).await.problems.is_empty());
    }
}
