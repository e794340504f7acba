//! What must hold of whatever opens: no panic, valid Arrow, and pushed-down operations that
//! return what decode-then-operate returns.

use std::sync::Arc;

use arrow::array::{
    Array as _, AsArray as _, MutableArrayData, RecordBatch, UInt64Array, make_array,
};
use arrow::compute::{cast, concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType};
use futures::TryStreamExt as _;
use vortex_core::array::{ArrayRef, EncodedRef, encoded_bytes};
use vortex_core::dtype::DType;
use vortex_core::dtype::arrow::data_type;
use vortex_core::expr::{CompareOp, Expr, FieldPath, InList, Like, Predicate};
use vortex_core::file::OpenOptions;
use vortex_core::io::MemoryFile;
use vortex_core::scalar::Scalar;
use vortex_core::scan::{Aggregate, Measures, RowAccess, ScanBuilder, WantedAggregates};
use vortex_core::{Mask, Result, VortexFile};

use crate::Choices;
use crate::presentations::presentation;

/// Rows read of files that claim more.
const MAX_ROWS: u64 = 1 << 14;

pub fn valid(array: &ArrayRef) {
    array.to_data().validate_full().expect("what is decoded is valid Arrow");
    has_the_digits_of_its_type(array);
}

/// Arrow's validation does not count the digits of decimals.
fn has_the_digits_of_its_type(array: &ArrayRef) {
    fn check<T: DecimalType>(array: &ArrayRef, digits: u8) {
        let mut values = array.as_primitive::<T>().iter().flatten();
        assert!(values.all(|value| T::is_valid_decimal_precision(value, digits)), "{array:?}");
    }
    match *array.data_type() {
        DataType::Decimal32(digits, _) => check::<Decimal32Type>(array, digits),
        DataType::Decimal64(digits, _) => check::<Decimal64Type>(array, digits),
        DataType::Decimal128(digits, _) => check::<Decimal128Type>(array, digits),
        // Release 0.56 wrote any value as one of the most digits.
        DataType::Decimal256(digits, _) if digits < 76 => check::<Decimal256Type>(array, digits),
        _ => {}
    }
    for child in array.to_data().child_data() {
        has_the_digits_of_its_type(&make_array(child.clone()));
    }
}

/// Text is stored with lengths and with offsets of its codes; where they contradict each other,
/// values depend on which of them is asked.
pub fn may_contradict(id: &str) -> bool {
    matches!(id, "vortex.fsst" | "vortex.onpair")
}

fn may_contradict_itself(array: &EncodedRef) -> bool {
    may_contradict(array.encoding()) || array.children().iter().any(|(_, child)| may_contradict_itself(child))
}

/// Arrow reserves for lists of fixed size by their type, even where there are none.
fn reserves_much(data_type: &DataType) -> bool {
    match data_type {
        DataType::FixedSizeList(item, size) => *size > 1 << 16 || reserves_much(item.data_type()),
        DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
            reserves_much(item.data_type())
        }
        DataType::Struct(fields) => fields.iter().any(|field| reserves_much(field.data_type())),
        DataType::Union(fields, _) => fields.iter().any(|(_, field)| reserves_much(field.data_type())),
        _ => false,
    }
}

/// Decodes an array, and compares every operation with the same one on the decoded values.
pub fn array(array: &EncodedRef, choices: &mut Choices<'_>) -> Result<()> {
    let to = data_type(array.dtype())?;
    encoded_bytes(array.as_ref());
    let whole = array.decode(&to).inspect(valid);
    let len = array.len();
    if len == 0 {
        return whole.map(drop);
    }
    let lenient = may_contradict_itself(array);
    let same = |found: Result<ArrayRef>, expected: &dyn Fn(&ArrayRef) -> ArrayRef, what: &str| {
        if let Ok(found) = &found {
            valid(found);
        }
        if let (Ok(found), Ok(whole), false) = (&found, &whole, lenient) {
            assert_eq!(found, &expected(whole), "{what} of {array:?}");
        }
    };

    let (one, other) = (choices.word() as usize % len, choices.word() as usize % len);
    let rows = one.min(other)..one.max(other);
    same(
        array.slice(rows.clone()).and_then(|part| part.decode(&to)),
        &|whole| whole.slice(rows.start, rows.len()),
        "slice",
    );
    if len > 1 << 20 || reserves_much(&to) {
        return whole.map(drop);
    }
    let bits: Vec<bool> = (0..len).map(|at| at == one || at % 5 == other % 5).collect();
    let mask = Mask::from_bits(bits.into());
    let kept = |whole: &ArrayRef| arrow::compute::filter(whole, &mask.to_filter()).expect("filters");
    same(array.filter(&mask).and_then(|part| part.decode(&to)), &kept, "filter");
    let indices = UInt64Array::from(vec![one as u64, other as u64, 0, one as u64]);
    // Arrow's own kernels lose the rows of lists of size zero.
    let taken = |whole: &ArrayRef| {
        let data = whole.to_data();
        let mut taken = MutableArrayData::new(vec![&data], false, 4);
        for row in [one, other, 0, one] {
            taken.try_extend(0, row, row + 1).expect("rows that are there");
        }
        make_array(taken.freeze())
    };
    same(array.take(&indices).and_then(|part| part.decode(&to)), &taken, "take");

    let other_type = presentation(&to, &mut |end| choices.below(end));
    let back = |found: ArrayRef| {
        valid(&found);
        Ok(cast(&found, &to)?)
    };
    same(array.decode(&other_type).and_then(back), &ArrayRef::clone, "another type");

    if let (Ok(found), Ok(whole), false) = (array.aggregate(), &whole, lenient)
        && let Ok(expected) = Aggregate::of(whole, array.dtype())
    {
        assert_eq!(found, expected, "aggregates of {array:?}");
    }

    let mut predicates = vec![Predicate::IsNull, Predicate::IsNotNull];
    if let Ok(whole) = &whole
        && let Ok(constant) = Scalar::from_arrow(whole.as_ref(), one, array.dtype())
    {
        let op = [CompareOp::Eq, CompareOp::NotEq, CompareOp::Lt, CompareOp::GtEq][choices.below(4)];
        predicates.extend(like(&constant, choices));
        predicates.push(Predicate::Compare(op, constant.clone()));
        predicates.push(Predicate::In(Arc::new(InList::new([constant]).with_negated(choices.flag()))));
    }
    for predicate in predicates {
        let found = array.matches(&predicate);
        if let (Ok(found), Ok(whole), false) = (&found, &whole, lenient)
            && let Ok(expected) = predicate.evaluate(whole)
        {
            let (found, expected) = (found.iter(), expected.iter());
            assert!(found.eq(expected), "{predicate:?} of {array:?}");
        }
    }
    whole.map(drop)
}

/// A pattern made of parts of a text.
fn like(constant: &Scalar, choices: &mut Choices<'_>) -> Option<Predicate> {
    let text = constant.as_str()?;
    let mut part = || text.chars().skip(choices.below(4)).take(choices.below(4)).collect::<String>();
    let pattern = format!("{}%{}%{}", part(), part(), part());
    Some(Predicate::Like(Like::new(pattern).with_negated(choices.flag())))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime starts").block_on(future)
}

pub fn open(bytes: Vec<u8>, dtype: Option<DType>) -> Result<VortexFile> {
    let mut options = OpenOptions::new().with_limits(crate::limits());
    if let Some(dtype) = dtype {
        options = options.with_dtype(dtype);
    }
    block_on(options.open(Arc::new(MemoryFile::new(bytes))))
}

async fn rows_of(scan: ScanBuilder) -> Result<RecordBatch> {
    let stream = scan.into_stream()?;
    let schema = Arc::clone(stream.schema());
    let batches: Vec<_> = stream.try_collect().await?;
    batches.iter().flat_map(RecordBatch::columns).for_each(valid);
    Ok(concat_batches(&schema, &batches)?)
}

/// Walks what describes a file, and reads its first rows.
pub fn file(file: &VortexFile) -> Result<RecordBatch> {
    let mut layouts = vec![Arc::clone(file.footer().layout())];
    // Nodes may be shared, so that few bytes make a large tree.
    for _ in 0..10_000 {
        let Some(layout) = layouts.pop() else { break };
        layouts.extend(layout.children().unwrap_or_default().into_iter().map(|(_, child)| child));
    }
    block_on(rows_of(file.scan().with_row_ranges(0..file.row_count().min(MAX_ROWS))))
}

/// Compares a filtered scan, one of single rows, and aggregates with the scan of everything.
pub fn pushdown(file: &VortexFile, choices: &mut Choices<'_>) -> Result<()> {
    let whole = self::file(file)?;
    let rows = 0..whole.num_rows() as u64;
    let Some(columns) = file.footer().dtype().as_columns().filter(|columns| !columns.is_empty()) else {
        return Ok(());
    };
    if whole.num_rows() == 0 || file.footer().array_ids().iter().any(|id| may_contradict(id)) {
        return Ok(());
    }
    let at = choices.below(columns.len());
    let name = &columns.names()[at];
    if columns.position(name) != Some(at) {
        return Ok(());
    }
    let row = choices.word() as usize % whole.num_rows();
    let predicate = match Scalar::from_arrow(whole.column(at).as_ref(), row, &columns.dtypes()[at]) {
        Ok(constant) if choices.below(4) > 0 => {
            let op = [CompareOp::Eq, CompareOp::NotEq, CompareOp::Lt, CompareOp::GtEq][choices.below(4)];
            let like = like(&constant, choices).filter(|_| choices.flag());
            like.unwrap_or(Predicate::Compare(op, constant))
        }
        _ => Predicate::IsNull,
    };
    let part = Expr::Field(FieldPath::new([Arc::clone(name)]), predicate.clone());
    // Statistics may lie; in this form the filter is evaluated on every row.
    // Statistics cannot evaluate what every row passes.
    let always = Expr::rows("always", [""; 0], |batch| Ok(vec![true; batch.num_rows()].into()));
    let fails = Expr::And(vec![Expr::Not(Box::new(part.clone())), always]);
    let scan = || file.scan().with_row_ranges(rows.clone());
    let _pruned = block_on(rows_of(scan().with_filter(part)));
    let found = block_on(rows_of(scan().with_filter(Expr::Not(Box::new(fails)))));
    if let (Ok(found), Ok(keep)) = (found, predicate.evaluate(whole.column(at))) {
        assert_eq!(found, filter_record_batch(&whole, &keep).expect("filters"), "{predicate:?}");
    }
    for access in [RowAccess::Segments, RowAccess::Single] {
        let picked = file.scan().with_row_indices([row as u64]).with_row_access(access);
        assert_eq!(block_on(rows_of(picked))?, whole.slice(row, 1), "{access:?}");
    }
    let measures = [Measures::ALL, Measures::COUNTS, Measures::MIN, Measures::MAX][choices.below(4)];
    let wanted = WantedAggregates::new(choices.flag(), vec![measures; columns.len()]);
    let _of_statistics = block_on(scan().aggregate_only(wanted));
    if let Ok(found) = block_on(scan().with_pruning(false).aggregate()) {
        for (at, dtype) in columns.dtypes().iter().enumerate() {
            if let Ok(expected) = Aggregate::of(whole.column(at), dtype) {
                assert_eq!(found.columns[at], expected, "aggregates of column {at}");
            }
        }
    }
    Ok(())
}
