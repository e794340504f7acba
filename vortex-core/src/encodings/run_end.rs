//! One value per run of equal rows, and the row where each run ends.
//!
//! ```text
//! rows  a a a b b c      ends   [3, 5, 6]  (exclusive)
//!                        values [a, b, c]
//! ```
//!
//! Metadata: integer type of `ends`, number of runs, and offset: the position of the first row in the numbering
//! of `ends`. Children: `ends` (unsigned, never decreasing) and `values`, which carries the nulls.
//!
//! Slicing moves the offset and shares both children and the checked ends; predicates are evaluated once
//! per run; filtering shortens runs and drops empty ones.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array as _, AsArray as _, BooleanArray, UInt32Array, UInt64Array};
use arrow::buffer::{BooleanBuffer, Buffer, ScalarBuffer};
use arrow::datatypes::DataType;

use super::Encoding;
use crate::array::sorted::search;
use crate::array::{
    Aggregate, ArrayRef, Decoded, EncodedArray, EncodedRef, Header, Node, Pick, Validity, decode_offsets,
    fixed_width, match_width, take_within, unsigned_type, values_of,
};
use crate::dtype::{DType, PType};
use crate::expr::Predicate;
use crate::kernels::nulls::null_buffer;
use crate::kernels::runs::{repeat_bits, repeat_runs};
use crate::kernels::views::repeat_views;
use crate::limits::Limits;
use crate::mask::Mask;
use crate::once::get_or_try_init;
use crate::scalar::Scalar;
use crate::wire::WriteNode;
use crate::{Error, Result};

/// The `vortex.runend` encoding.
#[derive(Debug)]
pub(super) struct RunEnd;

const ID: &str = "vortex.runend";

/// A filter that keeps fewer rows than one per this many runs looks up each row.
const RUNS_PER_LOOKUP: usize = 4;

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(int32, tag = "1")]
    ends_ptype: i32,
    #[prost(uint64, tag = "2")]
    run_count: u64,
    #[prost(uint64, tag = "3")]
    offset: u64,
}

impl Encoding for RunEnd {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let parts = Parts::of(node)?;
        let values = node.child(1, node.dtype(), parts.run_count)?;
        let runs = Runs { ends: parts.ends(node)?, values, covers: parts.covers, checked: OnceLock::new() };
        Ok(Arc::new(RunEndArray { header: node.header(ID), runs: Arc::new(runs), offset: parts.offset }))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        let parts = Parts::of(node)?;
        let ends = parts.ends(node)?;
        // Searching for the row after finds the first run that ends after a row.
        let rows: Vec<u64> = rows.iter().map(|row| *row as u64 + parts.offset + 1).collect();
        let runs: Vec<usize> =
            search(&ends, &rows)?.into_iter().map(|found| found.unwrap_or_else(|at| at)).collect();
        let mut wanted = runs.clone();
        // Unsorted ends may lead to arbitrary runs.
        wanted.sort_unstable();
        wanted.dedup();
        let values = node.child_rows(1, node.dtype(), parts.run_count, &wanted)?;
        let places = runs.iter().map(|run| wanted.partition_point(|wanted| wanted < run) as u64);
        values.take(&UInt64Array::from_iter_values(places))
    }
}

/// The properties of the children according to a node's metadata.
struct Parts {
    ends: DType,
    run_count: usize,
    offset: u64,
    /// Number of rows that the ends must cover.
    covers: u64,
}

impl Parts {
    fn of(node: &Node<'_>) -> Result<Self> {
        let metadata: Metadata = node.message()?;
        let ends = unsigned_type(metadata.ends_ptype, "run ends")?;
        node.expect_buffers(0)?;
        node.expect_children(2)?;
        let (offset, len) = (metadata.offset, node.len());
        let covers = offset
            .checked_add(len as u64)
            .ok_or_else(|| Error::corrupt(format!("{len} rows from row {offset}")))?;
        let run_count = usize::try_from(metadata.run_count)
            .map_err(|_| Error::limit(format!("{} runs", metadata.run_count)))?;
        if run_count == 0 && covers > 0 {
            return Err(Error::corrupt(format!("no runs for {len} rows from row {offset}")));
        }
        node.limits().count::<u64>(run_count)?;
        Ok(Self { ends, run_count, offset, covers })
    }

    fn ends(&self, node: &Node<'_>) -> Result<EncodedRef> {
        node.child(0, &self.ends, self.run_count)
    }
}

/// The runs, shared by all slices.
#[derive(Debug)]
struct Runs {
    ends: EncodedRef,
    values: EncodedRef,
    /// Number of rows that the ends must cover.
    covers: u64,
    checked: OnceLock<ScalarBuffer<u64>>,
}

impl Runs {
    /// Runs whose ends are known to be ascending.
    fn of(ends: Vec<u64>, values: EncodedRef, limits: &Limits) -> Self {
        let ends = ScalarBuffer::from(ends);
        let array = Arc::new(UInt64Array::new(ends.clone(), None));
        Self {
            covers: ends.last().copied().unwrap_or(0),
            ends: Arc::new(Decoded::new(DType::Primitive(PType::U64, false), array, limits)),
            values,
            checked: OnceLock::from(ends),
        }
    }

    /// The ends, which never decrease and cover all rows.
    fn ends(&self) -> Result<&ScalarBuffer<u64>> {
        get_or_try_init(&self.checked, || {
            let ends = decode_offsets(&self.ends, "run ends", usize::MAX)?;
            let ends: ScalarBuffer<u64> = ends.into_iter().map(|end| end as u64).collect::<Vec<_>>().into();
            match ends.last().copied().unwrap_or(0) {
                last if last < self.covers => {
                    Err(Error::corrupt(format!("runs end at row {last} of {}", self.covers)))
                }
                _ => Ok(ends),
            }
        })
    }
}

#[derive(Debug)]
struct RunEndArray {
    header: Header,
    runs: Arc<Runs>,
    /// Position of the first row in the numbering of the ends.
    offset: u64,
}

/// The runs that a slice overlaps.
struct Window<'a> {
    runs: Range<usize>,
    ends: &'a [u64],
    offset: u64,
    len: usize,
}

impl Window<'_> {
    /// The end of each run, in rows of the slice.
    fn ends(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        let (offset, len) = (self.offset, self.len as u64);
        // Values limited to `len` fit its type.
        self.ends.iter().map(move |end| (end - offset).min(len) as usize)
    }

    /// Repeats the bit of each run.
    fn repeat_bits(&self, bits: &BooleanBuffer) -> BooleanBuffer {
        let len = self.len as u64;
        repeat_bits(bits, |run| (self.ends[run] - self.offset).min(len) as usize, self.len)
    }
}

impl RunEndArray {
    fn window(&self) -> Result<Window<'_>> {
        let ends = self.runs.ends()?;
        let (offset, len) = (self.offset, self.len());
        let runs = if len == 0 {
            0..0
        } else {
            let first = ends.partition_point(|end| *end <= offset);
            let before_last = ends[first..].partition_point(|end| *end < offset + len as u64);
            first..first + before_last + 1
        };
        Ok(Window { ends: &ends[runs.clone()], runs, offset, len })
    }

    fn values(&self, window: &Window<'_>) -> Result<EncodedRef> {
        self.runs.values.slice(window.runs.clone())
    }

    /// Looks up the run of each row.
    fn look_up(&self, rows: impl Iterator<Item = u64>) -> Result<EncodedRef> {
        let window = self.window()?;
        let runs = rows.map(|row| window.ends.partition_point(|end| *end <= row + self.offset) as u64);
        let runs = UInt64Array::from_iter_values(runs);
        self.values(&window)?.take(&runs)
    }
}

impl EncodedArray for RunEndArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        vec![("ends", &self.runs.ends), ("values", &self.runs.values)]
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let window = self.window()?;
        let values = self.values(&window)?.decode(to)?;
        repeat(&values, &window, self.limits())
    }

    fn validity(&self) -> Result<Validity> {
        let window = self.window()?;
        Ok(match self.values(&window)?.validity()? {
            Validity::Bits(nulls) => {
                self.limits().count_rows(self.len(), 1)?;
                let bits = window.repeat_bits(nulls.inner());
                Validity::from_nulls(Some(null_buffer(bits)))
            }
            uniform => uniform,
        })
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let mask = match pick {
            Pick::Slice(rows) => {
                return Ok(Arc::new(Self {
                    header: self.header.of_rows(rows.len()),
                    runs: Arc::clone(&self.runs),
                    offset: self.offset + rows.start as u64,
                }));
            }
            Pick::Filter(mask) => mask,
            Pick::Take(indices) => return self.look_up(indices.values().iter().copied()),
        };
        let window = self.window()?;
        if mask.true_count() < window.runs.len() / RUNS_PER_LOOKUP {
            return self.look_up(mask.indices().into_iter().map(|row| row as u64));
        }
        let (ends, kept) = shorten(window.ends(), mask);
        let values = self.values(&window)?.filter(&kept)?;
        let runs = Arc::new(Runs::of(ends, values, self.limits()));
        Ok(Arc::new(Self { header: self.header.of_rows(mask.true_count()), runs, offset: 0 }))
    }

    fn aggregate(&self) -> Result<Aggregate> {
        let window = self.window()?;
        let mut start = 0;
        let lengths = window.ends().map(|end| (end - std::mem::replace(&mut start, end)) as u64);
        let lengths: Vec<u64> = lengths.collect();
        let values = self.values(&window)?.decode_preferred()?;
        Aggregate::weighted(&values, self.dtype(), &lengths)
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        self.limits().count_rows(self.len(), 1)?;
        let window = self.window()?;
        let outcome = self.values(&window)?.matches(predicate)?;
        let nulls = outcome.nulls().filter(|nulls| nulls.null_count() > 0);
        let nulls = nulls.map(|nulls| null_buffer(window.repeat_bits(nulls.inner())));
        Ok(BooleanArray::new(window.repeat_bits(outcome.values()), nulls))
    }

    fn map_runs(&self, map: &dyn Fn(EncodedRef) -> Result<EncodedRef>) -> Result<Option<EncodedRef>> {
        // Checked before the runs are shared, so that slices of one array do it only once.
        self.runs.ends()?;
        let values = map(Arc::clone(&self.runs.values))?;
        let header = Header { dtype: values.dtype().clone(), ..self.header.clone() };
        let runs = Runs {
            ends: Arc::clone(&self.runs.ends),
            values,
            covers: self.runs.covers,
            checked: self.runs.checked.clone(),
        };
        Ok(Some(Arc::new(Self { header, runs: Arc::new(runs), offset: self.offset })))
    }

    fn as_constant(&self) -> Option<Scalar> {
        self.runs.values.as_constant()
    }
}

/// The ends of the runs after a filter, without those that keep no rows, and which runs are left.
fn shorten(ends: impl Iterator<Item = usize>, mask: &Mask) -> (Vec<u64>, Mask) {
    let ends = mask.live_below(ends);
    let before = |run: usize| if run == 0 { 0 } else { ends[run - 1] };
    let kept = BooleanBuffer::collect_bool(ends.len(), |run| ends[run] > before(run));
    let mut shortened = vec![0; ends.len()];
    let (mut left, mut total) = (0, 0);
    for end in ends {
        // A run without rows is overwritten by the next one.
        shortened[left] = end as u64;
        left += usize::from(end > total);
        total = end;
    }
    shortened.truncate(left);
    (shortened, Mask::from_bits(kept))
}

/// Repeats each value for the length of its run.
fn repeat(values: &ArrayRef, window: &Window<'_>, limits: &Limits) -> Result<ArrayRef> {
    let rows = window.len;
    let nulls = values.nulls().filter(|nulls| nulls.null_count() > 0);
    let nulls = || nulls.map(|nulls| null_buffer(window.repeat_bits(nulls.inner())));
    if let Some(values) = values.as_boolean_opt() {
        limits.count_rows(rows, 1)?;
        return Ok(Arc::new(BooleanArray::new(window.repeat_bits(values.values()), nulls())));
    }
    if let Some(values) = values.as_string_view_opt() {
        limits.count::<u128>(rows)?;
        return Ok(Arc::new(repeat_views(values, window.ends(), rows, nulls())));
    }
    if let Some(values) = values.as_binary_view_opt() {
        limits.count::<u128>(rows)?;
        return Ok(Arc::new(repeat_views(values, window.ends(), rows, nulls())));
    }
    match_width!(values.data_type().primitive_width(), |N| {
        limits.count::<N>(rows)?;
        let repeated = repeat_runs(&values_of::<N>(values), window.ends(), rows);
        fixed_width(values.data_type().clone(), rows, Buffer::from_vec(repeated), nulls())
    }, else repeat_by_index(values, window, limits))
}

/// Repeats values of any type, gathered by run number.
fn repeat_by_index(values: &ArrayRef, window: &Window<'_>, limits: &Limits) -> Result<ArrayRef> {
    limits.count::<u32>(window.len)?;
    let runs = u32::try_from(values.len()).map_err(|_| Error::limit(format!("{} runs", values.len())))?;
    let runs: Vec<u32> = (0..runs).collect();
    take_within(values, &UInt32Array::from(repeat_runs(&runs, window.ends(), window.len)), limits)
}

/// A node of runs that end at `ends`; the last run ends at the last row.
pub(crate) fn encode(ends: WriteNode, ends_ptype: PType, values: WriteNode, run_count: usize) -> WriteNode {
    let metadata = Metadata { ends_ptype: ends_ptype as i32, run_count: run_count as u64, offset: 0 };
    WriteNode::new(ID).message(&metadata).child(ends).child(values)
}

#[cfg(test)]
pub(crate) mod tests {
    use arrow::array::{Float64Array, Int32Array, StringArray, StringViewArray};

    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::arrow::data_type;
    use crate::encodings::shared::conformance;
    use crate::limits::Work;

    const I32: DType = DType::Primitive(PType::I32, false);

    pub(crate) fn runs(ends: &[u16], offset: u64, values: Tree) -> Tree {
        let run_count = ends.len() as u64;
        Tree::new(ID)
            .message(&Metadata { ends_ptype: PType::U16 as i32, run_count, offset })
            .child(Tree::primitive(ends))
            .child(values)
    }

    fn decode(tree: &Tree, dtype: &DType, len: usize) -> Result<ArrayRef> {
        let array = tree.load(dtype, len)?;
        array.decode(&data_type(dtype)?)
    }

    /// The ends of runs of 1 to 40 rows.
    fn some_ends(count: usize) -> Vec<u16> {
        let lengths = (0..count as u16).map(|run| 1 + run * 7 % 40);
        lengths
            .scan(0, |end, length| {
                *end += length;
                Some(*end)
            })
            .collect()
    }

    fn expand<V: Clone>(ends: &[u16], values: &[V]) -> Vec<V> {
        let mut rows = Vec::new();
        for (end, value) in ends.iter().zip(values) {
            rows.resize(usize::from(*end), value.clone());
        }
        rows
    }

    #[test]
    fn conforms_for_numbers_with_and_without_nulls() {
        let ends = some_ends(30);
        let values: Vec<i32> = (0..30).map(|run| run % 4).collect();
        let rows = expand(&ends, &values);
        let array = runs(&ends, 0, Tree::primitive(&values)).load(&I32, rows.len()).unwrap();
        conformance::check(&array, &(Arc::new(Int32Array::from(rows.clone())) as ArrayRef));

        let valid: Vec<bool> = (0..30).map(|run| run % 5 != 2).collect();
        let tree = runs(&ends, 0, Tree::primitive(&values).child(Tree::bools(&valid)));
        let array = tree.load(&I32.with_nullable(true), rows.len()).unwrap();
        let expected = Int32Array::new(rows.into(), Some(expand(&ends, &valid).into()));
        conformance::check(&array, &(Arc::new(expected) as ArrayRef));
    }

    #[test]
    fn conforms_for_floats_and_booleans() {
        let ends = some_ends(12);
        let values: Vec<f64> = (0..12).map(|run| [0.0, -0.0, f64::NAN, 1.5][run % 4]).collect();
        let rows = expand(&ends, &values);
        let array = runs(&ends, 0, Tree::primitive(&values));
        let array = array.load(&DType::Primitive(PType::F64, false), rows.len()).unwrap();
        conformance::check(&array, &(Arc::new(Float64Array::from(rows)) as ArrayRef));

        let values: Vec<bool> = (0..12).map(|run| run % 3 == 0).collect();
        let rows = expand(&ends, &values);
        let array = runs(&ends, 0, Tree::bools(&values)).load(&DType::Bool(false), rows.len()).unwrap();
        conformance::check(&array, &(Arc::new(BooleanArray::from(rows)) as ArrayRef));
    }

    #[test]
    fn strings_repeat_with_and_without_views() {
        let window = Window { runs: 0..3, ends: &[2, 3, 40], offset: 0, len: 40 };
        let long = "a string of more than twelve bytes";
        let values = [Some("a"), None, Some(long)];
        let expected: Vec<_> = (0..40).map(|row| values[[0, 0, 1].get(row).copied().unwrap_or(2)]).collect();
        let limits = Limits::default();
        let views: ArrayRef = Arc::new(StringViewArray::from(values.to_vec()));
        let repeated = repeat(&views, &window, &limits).unwrap();
        assert_eq!(&repeated, &(Arc::new(StringViewArray::from(expected.clone())) as ArrayRef));
        let strings: ArrayRef = Arc::new(StringArray::from(values.to_vec()));
        let repeated = repeat(&strings, &window, &limits).unwrap();
        assert_eq!(&repeated, &(Arc::new(StringArray::from(expected)) as ArrayRef));
    }

    #[test]
    fn rows_before_the_offset_and_past_the_length_are_cut() {
        let tree = runs(&[3, 5, 9], 4, Tree::primitive(&[1i32, 2, 3]));
        let array = tree.load(&I32, 4).unwrap();
        conformance::check(&array, &(Arc::new(Int32Array::from(vec![2, 3, 3, 3])) as ArrayRef));
        assert!(decode(&tree, &I32, 6).is_err(), "runs end at row 9");
        assert_eq!(decode(&tree, &I32, 0).unwrap().len(), 0);
    }

    #[test]
    fn ends_are_checked_once_for_all_that_share_them() {
        let array = runs(&[3, 5, 9], 0, Tree::primitive(&[1i32, 2, 3])).load(&I32, 9).unwrap();
        let mapped = array.slice(2..8).unwrap().map_runs(&Ok).unwrap().unwrap();
        conformance::check(&mapped, &(Arc::new(Int32Array::from(vec![1, 2, 2, 3, 3, 3])) as ArrayRef));
        let runs = &(array.as_ref() as &dyn std::any::Any).downcast_ref::<RunEndArray>().unwrap().runs;
        assert!(runs.checked.get().is_some());
        let falling =
            super::tests::runs(&[5, 3, 9], 0, Tree::primitive(&[1i32, 2, 3])).load(&I32, 9).unwrap();
        assert!(falling.map_runs(&Ok).is_err());
    }

    #[test]
    fn an_empty_run_has_no_rows() {
        let tree = runs(&[0, 2, 2, 4], 0, Tree::primitive(&[9i32, 1, 2, 3]));
        let array = tree.load(&I32, 4).unwrap();
        conformance::check(&array, &(Arc::new(Int32Array::from(vec![1, 1, 3, 3])) as ArrayRef));
    }

    #[test]
    fn falling_short_or_missing_ends_are_corrupt() {
        let values = || Tree::primitive(&[1i32, 2, 3]);
        assert!(decode(&runs(&[3, 2, 9], 0, values()), &I32, 9).is_err());
        assert!(decode(&runs(&[3, 5, 8], 0, values()), &I32, 9).is_err());
        assert!(runs(&[], 0, Tree::primitive::<i32>(&[])).load(&I32, 1).is_err());
        assert!(runs(&[], 1, Tree::primitive::<i32>(&[])).load(&I32, 0).is_err());
        assert!(runs(&[1], u64::MAX, Tree::primitive(&[1i32])).load(&I32, 1).is_err());
        assert!(runs(&[], 0, Tree::primitive::<i32>(&[])).load(&I32, 0).is_ok());
    }

    #[test]
    fn ends_are_limited_in_the_width_that_they_are_compared_in() {
        let values = Tree::new("vortex.constant").buffer(vec![0x18u8, 14]);
        let tree = runs(&[0; 1000], 0, values);
        let limits = Limits::new().with_max_decoded_bytes(9_000);
        let matches_after = |bytes| {
            let array = tree.load_within(&I32, 0, &limits).unwrap();
            let _work = Work::begin();
            limits.count_bytes(bytes).unwrap();
            array.matches(&Predicate::IsNull)
        };
        assert!(matches_after(1_000).is_ok());
        assert!(matches_after(1_001).is_err(), "8 bytes for each of 1,000 runs");
    }

    #[test]
    fn rows_out_of_all_proportion_exceed_the_limit() {
        let metadata = Metadata { ends_ptype: PType::U64 as i32, run_count: 1, offset: 0 };
        let tree = Tree::new(ID)
            .message(&metadata)
            .child(Tree::primitive(&[u64::MAX]))
            .child(Tree::primitive(&[1i32]));
        let array = tree.load(&I32, 1 << 40).unwrap();
        assert!(matches!(array.decode(&DataType::Int32).unwrap_err().root(), Error::LimitExceeded(_)));
        assert!(array.matches(&Predicate::IsNull).is_err());
        assert_eq!(array.slice(5..8).unwrap().decode(&DataType::Int32).unwrap().len(), 3);
    }
}
