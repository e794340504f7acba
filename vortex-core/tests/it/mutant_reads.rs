//! All ways to read a file that may be damaged.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array as _, BooleanArray, RecordBatch};
use arrow::compute::{SortOptions, filter_record_batch};
use arrow::datatypes::{DataType, Field, Schema};
use vortex_core::dtype::{DType, StructType};
use vortex_core::expr::{CompareOp, Expr, FieldPath, InList, Like, Predicate, SharedFilter};
use vortex_core::file::OpenOptions;
use vortex_core::io::{MemoryFile, ReadAt, StorageProfile};
use vortex_core::scalar::Scalar;
use vortex_core::scan::{
    Aggregate, Extremes, Measures, RowAccess, ScanBuilder, WantedAggregate, WantedAggregates,
};
use vortex_core::{Error, Limits, VortexFile, verify};

use crate::given::{Stored, collect_cast, collect_valid, is_invalid_arrow};
use crate::presentations::presentation;
use crate::random::Random;

/// Number of rows read of files that claim more, which is legal but takes long.
const MAX_ROWS: u64 = 1 << 17;
/// One in this many files is verified, which reads all rows once more.
const VERIFIED: usize = 4;

/// All rows of a scan. Invalid Arrow data is a failure, an error is not.
async fn rows_of(scan: ScanBuilder) -> Result<Result<RecordBatch, Error>, String> {
    valid_or_error(collect_valid(scan).await)
}

fn valid_or_error(outcome: Result<RecordBatch, Error>) -> Result<Result<RecordBatch, Error>, String> {
    match outcome {
        Err(error) if is_invalid_arrow(&error) => Err(error.to_string()),
        outcome => Ok(outcome),
    }
}

/// Reads a file in every possible way; an error is an acceptable outcome, a string is a failure.
pub(crate) async fn read_all_ways(bytes: Vec<u8>, random: &mut Random) -> Result<bool, String> {
    let limits = Limits::new().with_max_decoded_bytes(64 << 20);
    let source: Arc<dyn ReadAt> = match random.below(2) {
        0 => Arc::new(MemoryFile::new(bytes)),
        _ => Arc::new(Stored::new(bytes, StorageProfile::LOCAL)),
    };
    let options = OpenOptions::new().with_limits(limits);
    let Ok(file) = options.open(Arc::clone(&source)).await else { return Ok(false) };
    let rows = window(&file, random);
    let scan = || file.scan().with_row_ranges(rows.clone());
    let whole = rows_of(scan()).await?;

    let indices: Vec<u64> = rows.clone().filter(|_| random.below(7) == 0).take(1000).collect();
    // Of a single row, short segments are not read as a whole, either.
    let one: Vec<u64> = random.pick(&indices).copied().into_iter().collect();
    let ways = [(&indices, RowAccess::Segments), (&indices, RowAccess::Single), (&one, RowAccess::Single)];
    for (indices, access) in ways {
        let picked = file.scan().with_row_indices(indices.clone()).with_row_access(access);
        let picked = rows_of(picked).await?;
        if let (Ok(whole), Ok(picked)) = (&whole, &picked) {
            let mut keep = vec![false; whole.num_rows()];
            indices.iter().for_each(|index| keep[(index - rows.start) as usize] = true);
            same(picked, whole, &keep.into(), &file, "row indices")?;
        }
    }
    let late = rows_of(scan().with_late_decoding(true).with_batch_size(1 + random.below(100))).await?;
    if let (Ok(whole), Ok(late)) = (&whole, &late) {
        same(late, whole, &vec![true; whole.num_rows()].into(), &file, "late decoding")?;
    }
    as_other_types(&file, &rows, &indices, whole.as_ref().ok(), random).await?;
    if let Some(columns) = file.footer().dtype().as_columns() {
        filtered(&file, columns, rows.clone(), whole.as_ref().ok(), random).await?;
        aggregated(&file, columns, &rows, whole.as_ref().ok(), random).await?;
        first(&file, columns, &rows, whole.as_ref().ok(), random).await?;
    }
    if file.row_count() <= MAX_ROWS && random.below(VERIFIED) == 0 {
        let _problems = verify(source, &options).await;
    }
    Ok(whole.is_ok())
}

/// Reads columns as other types that present them, all rows and some, and compares the values.
async fn as_other_types(
    file: &VortexFile,
    rows: &Range<u64>,
    indices: &[u64],
    whole: Option<&RecordBatch>,
    random: &mut Random,
) -> Result<(), String> {
    let Ok(schema) = file.schema() else { return Ok(()) };
    let choose = &mut |end| random.below(end);
    let fields = schema.fields().iter().map(|field| {
        let data_type = presentation(field.data_type(), choose);
        Field::clone(field).with_data_type(data_type)
    });
    let presented = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let scan = || file.scan().with_schema(Arc::clone(&presented));
    let some = scan().with_row_indices(indices).with_row_access(RowAccess::Single);
    let all = scan().with_row_ranges(rows.clone());
    for (scan, is_kept) in [
        (all, vec![true; (rows.end - rows.start) as usize]),
        (some, rows.clone().map(|row| indices.binary_search(&row).is_ok()).collect()),
    ] {
        let found = valid_or_error(collect_cast(scan, &schema).await)?;
        if let (Some(whole), Ok(found)) = (whole, found) {
            same(&found, whole, &is_kept.into(), file, &format!("columns as {presented:?}"))?;
        }
    }
    Ok(())
}

/// The rows to read: all, or some of those that a file claims.
fn window(file: &VortexFile, random: &mut Random) -> Range<u64> {
    let count = file.row_count();
    if count <= MAX_ROWS {
        return 0..count;
    }
    let start = random.next() % (count - MAX_ROWS);
    let start = if random.below(2) == 0 { 0 } else { start };
    start..start + MAX_ROWS
}

async fn filtered(
    file: &VortexFile,
    columns: &Arc<StructType>,
    rows: Range<u64>,
    whole: Option<&RecordBatch>,
    random: &mut Random,
) -> Result<(), String> {
    let mut parts = Vec::new();
    let mut asked = None;
    for _ in 0..columns.len().min(4) {
        let at = random.below(columns.len());
        let name = &columns.names()[at];
        // A duplicate name refers to its first column.
        if columns.position(name) != Some(at) {
            continue;
        }
        let predicate = predicate(&columns.dtypes()[at], at, whole, random);
        parts.push(Expr::Field(FieldPath::new([Arc::clone(name)]), predicate.clone()));
        asked = Some((at, predicate));
    }
    let scan = || file.scan().with_row_ranges(rows.clone());
    // Statistics of a damaged file may be wrong, so what they rule out proves nothing.
    for filter in [Expr::all(parts.clone()), Expr::Or(parts.clone())] {
        let _whatever_it_is = rows_of(scan().with_filter(filter)).await?;
    }
    // Therefore, the same filter is evaluated in a form that statistics cannot decide.
    let (Some((at, predicate)), Some(part)) = (asked, parts.pop()) else { return Ok(()) };
    // Statistics cannot evaluate what every row passes.
    let always = Expr::rows("always", [""; 0], |batch| Ok(vec![true; batch.num_rows()].into()));
    let fails = Expr::And(vec![Expr::Not(Box::new(part)), always]);
    let filter = Expr::Not(Box::new(fails));
    let found = rows_of(scan().with_filter(filter)).await?;
    if let (Some(whole), Ok(found)) = (whole, &found)
        && !(matches!(columns.dtypes()[at].storage(), DType::Utf8(_) | DType::Binary(_))
            && tells_lengths_twice(file))
        && let Ok(keep) = predicate.evaluate(whole.column(at))
    {
        same(found, whole, &keep, file, &format!("{predicate:?} on {}", columns.dtypes()[at]))?;
    }
    Ok(())
}

/// Aggregates all columns, from whatever statistics state, and from rows.
async fn aggregated(
    file: &VortexFile,
    columns: &StructType,
    rows: &Range<u64>,
    whole: Option<&RecordBatch>,
    random: &mut Random,
) -> Result<(), String> {
    let scan = || file.scan().with_row_ranges(rows.clone());
    let extremes: Vec<_> = (0..columns.len()).map(|_| Arc::new(Extremes::default())).collect();
    let measures = [Measures::ALL, Measures::COUNTS, Measures::MIN, Measures::MAX.with_extremes()];
    let wanted: Vec<_> = columns.dtypes().iter().map(|_| measures[random.below(measures.len())]).collect();
    // Extremes found by the first are shared with the second.
    for counts_rows in [true, false] {
        let columns = wanted.iter().zip(&extremes).map(|(measures, extremes)| WantedAggregate {
            measures: *measures,
            extremes: Arc::clone(extremes),
        });
        let _whatever_it_is = scan().aggregate_only(WantedAggregates::new(counts_rows, columns)).await;
    }
    let (Some(whole), Ok(found)) = (whole, scan().with_pruning(false).aggregate().await) else {
        return Ok(());
    };
    let lenient = tells_lengths_twice(file);
    for (at, (column, dtype)) in whole.columns().iter().zip(columns.dtypes()).enumerate() {
        let Ok(expected) = Aggregate::of(column, dtype) else { continue };
        let found = &found.columns[at];
        if found != &expected && !(lenient && holds_text(column.data_type())) {
            return Err(format!("aggregates of column {at}, {dtype}: {found:?}, expected {expected:?}"));
        }
    }
    Ok(())
}

/// Reads rows until there are enough: in the order of the file, and those first which have the least values.
async fn first(
    file: &VortexFile,
    columns: &Arc<StructType>,
    rows: &Range<u64>,
    whole: Option<&RecordBatch>,
    random: &mut Random,
) -> Result<(), String> {
    let limit = random.below((rows.end - rows.start) as usize + 1);
    let scan = || file.scan().with_row_ranges(rows.clone());
    let found = rows_of(scan().with_limit(limit as u64)).await?;
    if let (Some(whole), Ok(found)) = (whole, found) {
        same(&found, whole, &(0..whole.num_rows()).map(|row| Some(row < limit)).collect(), file, "a limit")?;
    }
    if !columns.is_empty() {
        let at = random.below(columns.len());
        let path = FieldPath::new([Arc::clone(&columns.names()[at])]);
        let options = SortOptions { descending: random.below(2) == 0, nulls_first: random.below(2) == 0 };
        let wanted = SharedFilter::new([path.clone()]);
        wanted.set(Expr::Field(path.clone(), predicate(&columns.dtypes()[at], at, whole, random)));
        let scan = scan().with_filter(Expr::Dynamic(Arc::new(wanted))).with_best_first(path, options);
        let _whatever_it_is = rows_of(scan).await?;
    }
    Ok(())
}

/// Whether text may be stored with both lengths and code offsets. If damage made these contradict each
/// other, values depend on which of them is used.
fn tells_lengths_twice(file: &VortexFile) -> bool {
    file.footer().array_ids().iter().any(|id| matches!(&**id, "vortex.fsst" | "vortex.onpair"))
}

/// Checks that some rows of a file are the expected ones.
fn same(
    found: &RecordBatch,
    whole: &RecordBatch,
    keep: &BooleanArray,
    file: &VortexFile,
    what: &str,
) -> Result<(), String> {
    let expected = filter_record_batch(whole, keep).map_err(|error| error.to_string())?;
    if found.num_rows() != expected.num_rows() {
        return Err(format!("{what}: {} rows, expected {}", found.num_rows(), expected.num_rows()));
    }
    let lenient = tells_lengths_twice(file);
    for (at, (found, expected)) in found.columns().iter().zip(expected.columns()).enumerate() {
        if found == expected || (lenient && holds_text(found.data_type())) {
            continue;
        }
        let differs = |row: &usize| found.slice(*row, 1).as_ref() != expected.slice(*row, 1).as_ref();
        let row = (0..found.len()).find(differs).unwrap_or(0);
        let (found, expected) = (found.slice(row, 1), expected.slice(row, 1));
        return Err(format!("{what}: column {at}, row {row} is {found:?}, expected {expected:?}"));
    }
    Ok(())
}

fn holds_text(data_type: &DataType) -> bool {
    match data_type {
        // Keys of maps are no views.
        DataType::Utf8 | DataType::Utf8View | DataType::Binary | DataType::BinaryView => true,
        DataType::Struct(fields) => fields.iter().any(|field| holds_text(field.data_type())),
        DataType::List(item) | DataType::FixedSizeList(item, _) | DataType::Map(item, _) => {
            holds_text(item.data_type())
        }
        _ => false,
    }
}

/// A predicate that fits a column, with constants from the column's own rows.
fn predicate(dtype: &DType, at: usize, whole: Option<&RecordBatch>, random: &mut Random) -> Predicate {
    let constant = |random: &mut Random| {
        let column = whole?.column(at);
        let row = random.below(column.len());
        Scalar::from_arrow(column.as_ref(), row, dtype).ok().filter(|_| row < column.len())
    };
    let ops =
        [CompareOp::Eq, CompareOp::NotEq, CompareOp::Lt, CompareOp::LtEq, CompareOp::Gt, CompareOp::GtEq];
    let comparable = matches!(
        dtype.storage(),
        DType::Bool(_) | DType::Primitive(..) | DType::Decimal(..) | DType::Utf8(_) | DType::Binary(_)
    );
    let nulls = if random.below(2) == 0 { Predicate::IsNull } else { Predicate::IsNotNull };
    let has_rows = whole.is_some_and(|whole| whole.num_rows() > 0);
    if !comparable || !has_rows || random.below(5) == 0 {
        return nulls;
    }
    let (Some(one), Some(other)) = (constant(random), constant(random)) else { return nulls };
    let negated = random.below(2) == 0;
    match random.below(4) {
        0 => Predicate::Between(one, other),
        1 => Predicate::In(Arc::new(InList::new([one, other]).with_negated(negated))),
        2 if matches!(dtype.storage(), DType::Utf8(_)) => {
            let text: String = one.as_str().unwrap_or("a").chars().take(3).collect();
            let other: String = other.as_str().unwrap_or("b").chars().rev().take(2).collect();
            let pattern = match random.below(4) {
                0 => format!("{text}%"),
                1 => format!("%{text}%"),
                2 => format!("{text}%{other}%"),
                _ => format!("%{text}%{other}"),
            };
            Predicate::Like(Like::new(pattern).with_negated(negated))
        }
        _ => Predicate::Compare(ops[random.below(ops.len())], one),
    }
}
