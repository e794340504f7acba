//! Batches that are ready to be returned; the small ones of selective scans are joined.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::BatchCoalescer;
use arrow::datatypes::FieldRef;

use super::late::LatePiece;
use crate::Result;
use crate::array::row_bytes::{copied_bytes, max_rows, reserved_bytes};
use crate::array::without_dictionaries;
use crate::scan::plan::Plan;

/// Batches are not joined if Arrow would reserve more bytes than this for their rows.
const MAX_RESERVED_BYTES: u64 = 1 << 30;

/// Rows that wait to be joined take at most about this many bytes, which no budget accounts for. Each element of a
/// list counts, so that there are never too many for the offsets of one array.
const MAX_WAITING_BYTES: u64 = 16 << 20;

/// Batches that are ready to be returned.
pub(in crate::scan) struct Ready {
    batches: VecDeque<RecordBatch>,
    /// Rows after these batches that are decoded when they are taken; no rows wait to be joined meanwhile.
    late: VecDeque<LatePiece>,
    /// Joins small batches, if there may be many.
    joining: Option<BatchCoalescer>,
    /// The first batch to be joined, until there is another: often there is none, as for a look-up. It holds about as
    /// many bytes as its rows take.
    first: Option<RecordBatch>,
    /// Approximate bytes of the rows that wait to be joined.
    waiting_bytes: u64,
    batch_size: usize,
}

impl Ready {
    pub(in crate::scan) fn new(plan: &Plan) -> Self {
        let joins = plan.is_selective() && may_be_joined(plan);
        Self {
            batches: VecDeque::new(),
            late: VecDeque::new(),
            joining: joins.then(|| BatchCoalescer::new(Arc::clone(&plan.schema), plan.batch_size)),
            first: None,
            waiting_bytes: 0,
            batch_size: plan.batch_size,
        }
    }

    /// Whether no batch can be returned; rows may still wait to be joined.
    pub(in crate::scan) fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.late.is_empty()
    }

    /// Number of rows, including those that wait to be joined.
    pub(in crate::scan) fn row_count(&self) -> u64 {
        let ready: usize = self.batches.iter().map(RecordBatch::num_rows).sum();
        let first = self.first.as_ref().map_or(0, RecordBatch::num_rows);
        let waiting = self.joining.as_ref().map_or(0, BatchCoalescer::get_buffered_rows);
        let late: usize = self.late.iter().map(LatePiece::len).sum();
        (ready + first + waiting + late) as u64
    }

    /// The next batch, decoded if it was not yet.
    ///
    /// # Errors
    /// If rows cannot be decoded.
    pub(in crate::scan) fn pop(&mut self) -> Result<Option<RecordBatch>> {
        if self.batches.is_empty()
            && let Some(piece) = self.late.pop_front()
        {
            self.batches.extend(piece.decode()?);
        }
        Ok(self.batches.pop_front())
    }

    /// Adds rows that are decoded when they are taken.
    pub(in crate::scan) fn push_late(&mut self, pieces: Vec<LatePiece>) -> Result<()> {
        self.finish()?;
        self.late.extend(pieces);
        Ok(())
    }

    /// Adds decoded rows; there are none that are decoded late.
    pub(in crate::scan) fn push(&mut self, batch: RecordBatch) -> Result<()> {
        debug_assert!(self.late.is_empty(), "these would come later");
        if self.joining.is_none() {
            self.batches.push_back(batch);
            return Ok(());
        }
        if batch.num_rows() == 0 {
            return Ok(());
        }
        // A small remainder that waits would cause every following large batch to be copied.
        if batch.num_rows() > self.batch_size / 2 {
            return self.push_alone(batch);
        }
        let bytes =
            batch.columns().iter().fold(0, |sum: u64, column| sum.saturating_add(copied_bytes(column)));
        if bytes > MAX_WAITING_BYTES {
            return self.push_alone(batch);
        }
        if self.waiting_bytes.saturating_add(bytes) > MAX_WAITING_BYTES {
            self.finish()?;
        }
        self.waiting_bytes += bytes;
        self.join_first()?;
        match &mut self.joining {
            Some(joining) if joining.get_buffered_rows() > 0 || holds_much(&batch, bytes) => {
                joining.push_batch(batch)?;
            }
            _ => self.first = Some(batch),
        }
        self.take_joined()
    }

    fn join_first(&mut self) -> Result<()> {
        if let (Some(joining), Some(first)) = (&mut self.joining, self.first.take()) {
            joining.push_batch(first)?;
        }
        Ok(())
    }

    /// Adds a batch that is not joined with others, after the rows that wait.
    fn push_alone(&mut self, batch: RecordBatch) -> Result<()> {
        self.finish()?;
        self.batches.push_back(batch);
        Ok(())
    }

    /// Joins the rows that wait, no matter how few.
    pub(in crate::scan) fn finish(&mut self) -> Result<()> {
        if let Some(first) = self.first.take() {
            self.waiting_bytes = 0;
            self.batches.push_back(first);
            return Ok(());
        }
        if let Some(joining) = &mut self.joining {
            joining.finish_buffered_batch()?;
        }
        self.take_joined()
    }

    pub(in crate::scan) fn clear(&mut self) {
        self.batches.clear();
        self.late.clear();
        self.first = None;
        self.joining = None;
    }

    fn take_joined(&mut self) -> Result<()> {
        let Some(joining) = &mut self.joining else { return Ok(()) };
        while let Some(batch) = joining.next_completed_batch() {
            let waiting = joining.get_buffered_rows() as u64;
            // All rows count the same: which of them still wait does not matter much.
            let rows = waiting + batch.num_rows() as u64;
            self.waiting_bytes = self.waiting_bytes / rows.max(1) * waiting;
            let is_small = batch.num_rows() < self.batch_size / 2;
            self.batches.push_back(if is_small { without_room(batch)? } else { batch });
        }
        Ok(())
    }
}

/// Whether a batch whose rows take this many bytes keeps much more in memory: the rows may share buffers with others.
fn holds_much(batch: &RecordBatch, row_bytes: u64) -> bool {
    let allowed = row_bytes.saturating_mul(2).saturating_add(512 * batch.num_columns() as u64);
    batch.get_array_memory_size() as u64 > allowed
}

/// The same rows, without the room that Arrow has reserved for a batch of the usual size: operators keep batches, and
/// count what their columns have reserved.
fn without_room(batch: RecordBatch) -> Result<RecordBatch> {
    let (schema, mut columns, rows) = batch.into_parts();
    columns.iter_mut().for_each(ArrayRef::shrink_to_fit);
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
}

/// Whether rows can be joined to batches of the usual size. Arrow joins dictionaries by adding up their lengths, and
/// panics if the sum exceeds what keys can tell; until then, each would be kept as a whole for a few rows.
fn may_be_joined(plan: &Plan) -> bool {
    let fields = plan.schema.fields();
    let row_bytes = fields.iter().map(|field| reserved_bytes(field.data_type(), 1));
    let reserved = row_bytes.fold(0, u64::saturating_add).saturating_mul(plan.batch_size as u64);
    let has_room = |field: &FieldRef| max_rows(field.data_type()).is_none_or(|most| most >= plan.batch_size);
    let is_plain = |field: &FieldRef| without_dictionaries(field.data_type()) == *field.data_type();
    let is_joined = |field: &FieldRef| has_room(field) && is_plain(field);
    !fields.is_empty() && reserved <= MAX_RESERVED_BYTES && fields.iter().all(is_joined)
}

#[cfg(test)]
mod tests {
    use arrow::array::{BooleanArray, Int64Array, ListArray, NullArray, StringArray, StringViewArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::{Field, Schema};

    use super::*;

    fn joining(column: &ArrayRef) -> Ready {
        joining_of(vec![Field::new("c", column.data_type().clone(), true)])
    }

    fn joining_of(fields: Vec<Field>) -> Ready {
        let joining = Some(BatchCoalescer::new(Arc::new(Schema::new(fields)), 8192));
        let (batches, late) = (VecDeque::new(), VecDeque::new());
        Ready { batches, late, joining, first: None, waiting_bytes: 0, batch_size: 8192 }
    }

    /// The rows of the batches that come out if batches of this column are pushed ten times.
    fn rows_out(column: &ArrayRef) -> Vec<usize> {
        let mut ready = joining(column);
        for _ in 0..10 {
            ready.push(RecordBatch::try_from_iter([("c", Arc::clone(column))]).unwrap()).unwrap();
        }
        ready.finish().unwrap();
        std::iter::from_fn(|| ready.pop().unwrap()).map(|batch| batch.num_rows()).collect()
    }

    #[test]
    fn small_batches_are_joined_until_they_take_many_bytes() {
        // 16 MiB have room for five batches of 3.1 MB each.
        let text = vec!["x".repeat(10_000); 300];
        let views: ArrayRef = Arc::new(StringViewArray::from_iter_values(&text));
        assert_eq!(rows_out(&views), [1500, 1500]);
        let copied: ArrayRef = Arc::new(StringArray::from_iter_values(&text));
        assert_eq!(rows_out(&copied), [1500, 1500]);
        let longer: ArrayRef = Arc::new(StringArray::from_iter_values(vec!["x".repeat(1 << 20); 20]));
        assert_eq!(rows_out(&longer), [20; 10]);
    }

    #[test]
    fn joined_rows_never_have_more_elements_than_offsets_can_tell() {
        let items: ArrayRef = Arc::new(NullArray::new(1 << 30));
        let field = Arc::new(Field::new("item", items.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths([1 << 29, 1 << 29]);
        let lists: ArrayRef = Arc::new(ListArray::new(field, offsets, items, None));
        assert_eq!(rows_out(&lists), [2; 10]);
    }

    #[test]
    fn a_few_joined_rows_take_as_little_memory_as_they_need() {
        let long = "longer than what lies in a view itself";
        let columns: [ArrayRef; 5] = [
            Arc::new(Int64Array::from_iter((0..100).map(|at| (at != 3).then_some(at)))),
            Arc::new(BooleanArray::from(vec![true; 100])),
            Arc::new(StringArray::from(vec![long; 100])),
            Arc::new(StringViewArray::from(vec![long; 100])),
            Arc::new(StringViewArray::from(vec!["short"; 100])),
        ];
        for column in columns {
            let mut ready = joining(&column);
            for at in [3, 50] {
                let row = RecordBatch::try_from_iter([("c", column.slice(at, 1))]).unwrap();
                ready.push(row).unwrap();
            }
            ready.finish().unwrap();
            let joined = ready.pop().unwrap().unwrap();
            assert_eq!(joined.num_rows(), 2);
            let bytes = joined.get_array_memory_size();
            assert!(bytes < 1000, "{}: {bytes} bytes", column.data_type());
        }
    }

    #[test]
    fn a_single_batch_is_copied_only_if_it_keeps_other_rows_in_memory() {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
        let address = |array: &ArrayRef| array.to_data().buffers()[0].as_ptr();
        for (rows, is_copied) in [(0..1000, false), (0..100, true)] {
            let column = numbers.slice(rows.start, rows.len());
            let mut ready = joining(&column);
            ready.push(RecordBatch::try_from_iter([("c", Arc::clone(&column))]).unwrap()).unwrap();
            assert_eq!((ready.row_count(), ready.is_empty()), (rows.len() as u64, true));
            ready.finish().unwrap();
            let batch = ready.pop().unwrap().unwrap();
            assert_eq!(batch.column(0), &column);
            assert_eq!(address(batch.column(0)) != address(&column), is_copied);
            ready.finish().unwrap();
            assert!(ready.is_empty() && ready.row_count() == 0);
        }
    }

    #[test]
    fn rows_without_columns_are_counted_when_they_are_joined() {
        let nothing = |rows| {
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options).unwrap()
        };
        let mut ready = joining_of(Vec::new());
        ready.push(nothing(3)).unwrap();
        ready.push(nothing(4)).unwrap();
        ready.finish().unwrap();
        let rows: usize = std::iter::from_fn(|| ready.pop().unwrap()).map(|batch| batch.num_rows()).sum();
        assert_eq!(rows, 7);
    }

    #[test]
    fn few_rows_wait_for_others() {
        let words: ArrayRef = Arc::new(StringArray::from(vec!["one", "two"]));
        assert_eq!(rows_out(&words), [20]);
    }
}
