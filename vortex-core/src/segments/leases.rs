//! The bytes of segments held by scans of one file, shared as long as they are needed.
//!
//! A chunk that serves several splits, or several scans of the same open file on one runtime, is fetched
//! and parsed once: everything that needs it holds a [`Lease`], and dropping the last lease frees it. Scans on
//! different runtimes share nothing: bytes that a runtime is to deliver may never come if nobody polls it.

use std::any::Any;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};

use arrow::buffer::Buffer;
use parking_lot::Mutex;
use tokio::runtime::{Handle, Id as RuntimeId};

use super::{SegmentId, SegmentTable};
use crate::array::{ArrayParts, EncodedRef};
use crate::budget::{Budget, Reservation};
use crate::dtype::DType;
use crate::error::ResultExt as _;
use crate::io::{PendingBytes, Unsent};
use crate::limits::{Limits, Work};
use crate::metrics::ScanMetrics;
use crate::once::get_or_try_init;
use crate::{Error, Result};

/// Freed segments are forgotten once this many are listed, or twice as many as were left the last time: each takes 280
/// bytes, and looking for them at every request would take longer the more segments are in use.
const MANY_SEGMENTS: usize = 64;

/// A file may refer to a segment as arrays of several types and lengths, of which at most this many are kept. A file
/// that refers to it in more ways, and whose arrays take memory, is refused, since every split would load them again.
const MOST_ARRAYS: usize = 8;

/// Maximum number of layouts that may keep data with the same segment.
const MOST_DERIVED: usize = 1024;

/// The segments of a file that are in use.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    held: Mutex<Held>,
}

/// A segment, and the runtime whose tasks deliver its bytes.
type Key = (SegmentId, Option<RuntimeId>);

/// Segments that are in use, or were.
#[derive(Debug, Default)]
struct Held {
    segments: HashMap<Key, Weak<LeasedSegment>>,
    /// Number of segments that were left when freed ones were forgotten.
    left: usize,
}

/// A handle to a segment that is in use.
pub(crate) type Lease = Arc<LeasedSegment>;

/// A segment: its bytes, in flight or available, and what was derived from them.
#[derive(Debug)]
pub(crate) struct LeasedSegment {
    pub(crate) id: SegmentId,
    len: usize,
    pending: PendingBytes,
    parts: OnceLock<Loaded<ArrayParts>>,
    arrays: Mutex<Vec<Loaded<EncodedRef>>>,
    derived: Mutex<Vec<Derived>>,
    /// The memory charged for its bytes to the scan that requested it first.
    memory: Reservation,
}

/// Data that a layout derived from a segment to share it between splits.
#[derive(Debug)]
struct Derived {
    data: Arc<dyn Any + Send + Sync>,
    /// What it takes of the memory charged for the segment.
    memory: Arc<Budget>,
}

/// What was loaded from a segment, and the bytes that were decompressed or copied for it: possibly many times
/// those of the segment.
#[derive(Debug)]
struct Loaded<T> {
    value: T,
    byte_len: usize,
    _memory: Option<Reservation>,
}

impl<T> Loaded<T> {
    fn by(load: impl FnOnce() -> Result<T>, memory: &Reservation) -> Result<Self> {
        let work = Work::begin();
        let value = load()?;
        let byte_len = work.byte_len();
        let memory = (byte_len > 0).then(|| memory.take_more(byte_len as u64));
        Ok(Self { value, byte_len, _memory: memory })
    }

    /// The value for other work than that which loaded it, which also holds the bytes.
    fn again(&self, limits: &Limits) -> Result<&T> {
        limits.count_bytes(self.byte_len as u64)?;
        Ok(&self.value)
    }
}

impl Leases {
    /// Total bytes of those segments that are not held and must be read.
    pub(crate) fn missing_bytes(&self, ids: &[SegmentId], table: &SegmentTable) -> Result<u64> {
        let runtime = current_runtime();
        let held = self.held.lock();
        let mut bytes = 0u64;
        for id in ids {
            let range = table.segment(*id)?.range();
            if held.held(&(*id, runtime)).is_none() && table.tail.get(&range).is_none() {
                bytes = bytes.saturating_add(range.end - range.start);
            }
        }
        Ok(bytes)
    }

    /// Leases segments. Those that are not held yet are requested in one go, and take up parts of
    /// `memory` until they are no longer held.
    pub(crate) fn lease(
        &self,
        ids: &[SegmentId],
        table: &SegmentTable,
        mut memory: Reservation,
        metrics: &ScanMetrics,
        ask: impl FnOnce(&[(SegmentId, Range<u64>)]) -> (Vec<PendingBytes>, Unsent),
    ) -> Result<Vec<Lease>> {
        let runtime = current_runtime();
        let mut held = self.held.lock();
        let mut leases = Vec::with_capacity(ids.len());
        let mut missing = Vec::new();
        for id in ids {
            let range = table.segment(*id)?.range();
            let lease = held.lease((*id, runtime), &range, table, &mut memory, metrics);
            if lease.is_none() {
                missing.push((*id, range));
            }
            leases.push(lease);
        }
        let mut unsent = None;
        if !missing.is_empty() {
            // Done under the lock, so that another scan joins these reads instead of repeating them.
            let (pending, requests) = ask(&missing);
            unsent = Some(requests);
            let gaps = leases.iter_mut().filter(|lease| lease.is_none());
            for ((gap, (id, range)), pending) in gaps.zip(missing).zip(pending) {
                let memory = memory.split(range.end - range.start);
                *gap = Some(held.add((id, runtime), &range, pending, memory));
            }
        }
        held.forget_freed();
        drop(held);
        if let Some(requests) = unsent {
            requests.send();
        }
        Ok(leases.into_iter().flatten().collect())
    }
}

impl Held {
    /// A lease of a segment that is in use, or whose bytes were kept with the footer.
    fn lease(
        &mut self,
        key: Key,
        range: &Range<u64>,
        table: &SegmentTable,
        memory: &mut Reservation,
        metrics: &ScanMetrics,
    ) -> Option<Lease> {
        if let Some(lease) = self.held(&key) {
            metrics.segments_shared.add(1);
            return Some(lease);
        }
        let bytes = table.tail.get(range)?;
        Some(self.add(key, range, PendingBytes::ready(bytes), memory.split(0)))
    }

    /// The lease of a segment that is in use, unless it could not be read: a later attempt may succeed, although
    /// whoever made the first one still holds it.
    fn held(&self, key: &Key) -> Option<Lease> {
        self.segments.get(key).and_then(Weak::upgrade).filter(|lease| !lease.pending.has_failed())
    }

    fn add(&mut self, key: Key, range: &Range<u64>, pending: PendingBytes, memory: Reservation) -> Lease {
        let lease = Arc::new(LeasedSegment::new(key.0, range, pending, memory));
        self.segments.insert(key, Arc::downgrade(&lease));
        lease
    }

    fn forget_freed(&mut self) {
        if self.segments.len() > MANY_SEGMENTS.max(self.left.saturating_mul(2)) {
            self.segments.retain(|_, segment| segment.strong_count() > 0);
            self.left = self.segments.len();
        }
    }
}

fn current_runtime() -> Option<RuntimeId> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

impl LeasedSegment {
    fn new(id: SegmentId, range: &Range<u64>, pending: PendingBytes, memory: Reservation) -> Self {
        Self {
            id,
            // A segment has less than 2^32 bytes.
            len: (range.end - range.start) as usize,
            pending,
            parts: OnceLock::new(),
            arrays: Mutex::default(),
            derived: Mutex::default(),
            memory,
        }
    }

    /// Bytes of the segment, and those decompressed or copied from it so far.
    pub(crate) fn held_bytes(&self) -> usize {
        self.len.saturating_add(self.loaded_bytes())
    }

    /// Those of them, and of what was derived from them, that are charged to a budget: none, if that of another scan is
    /// charged.
    pub(crate) fn charged_to(&self, budget: &Arc<Budget>) -> u64 {
        self.memory.bytes_of(budget).map_or(0, |bytes| {
            let derived = self.derived.lock().iter().map(|derived| derived.memory.used()).sum();
            bytes.saturating_add(self.loaded_bytes() as u64).saturating_add(derived)
        })
    }

    fn loaded_bytes(&self) -> usize {
        let parts = self.parts.get().map_or(0, |parts| parts.byte_len);
        let arrays = self.arrays.lock();
        arrays.iter().map(|array| array.byte_len).fold(parts, usize::saturating_add)
    }

    /// Waits for the bytes.
    pub(crate) async fn wait(&self) -> Result<Buffer> {
        self.pending.wait().await
    }

    /// The bytes, if they have arrived and were waited for.
    pub(crate) fn bytes(&self) -> Option<Buffer> {
        self.pending.peek()
    }

    /// The segment as an array, which is created once for each type and length.
    ///
    /// # Errors
    /// If it is not such an array, or too many types and lengths are requested.
    pub(crate) fn array(&self, dtype: &DType, len: usize, table: &SegmentTable) -> Result<EncodedRef> {
        let limits = &table.limits;
        let place = || format!("segment {}", self.id.0);
        let parts = match self.parts.get() {
            Some(parts) => parts.again(limits).at(place)?,
            None => {
                &get_or_try_init(&self.parts, || Loaded::by(|| self.parse(table).at(place), &self.memory))?
                    .value
            }
        };
        let fits = |known: &&Loaded<EncodedRef>| known.value.len() == len && known.value.dtype() == dtype;
        if let Some(known) = self.arrays.lock().iter().find(fits) {
            return known.again(limits).at(place).cloned();
        }
        let load = || parts.load(dtype, len, &table.registry, limits).at(place);
        let loaded = Loaded::by(load, &self.memory)?;
        let mut arrays = self.arrays.lock();
        if let Some(known) = arrays.iter().find(fits) {
            return Ok(Arc::clone(&known.value));
        }
        let array = Arc::clone(&loaded.value);
        if arrays.len() < MOST_ARRAYS {
            arrays.push(loaded);
        } else if loaded.byte_len > 0 {
            return Err(Error::limit(format!("more than {MOST_ARRAYS} types and lengths"))).at(place);
        }
        Ok(array)
    }

    fn parse(&self, table: &SegmentTable) -> Result<ArrayParts> {
        let bytes = self.bytes().ok_or_else(|| Error::invalid("the segment is not loaded"))?;
        ArrayParts::parse(table.unpack(self.id, bytes)?, Arc::clone(&table.array_ids), &table.limits)
    }

    /// Data that layouts derive from this segment: the first that `fits`, or else that which `make` returns, in place
    /// of what `gives_way`. What it decodes later is to be charged to the reservation that `make` receives, which is
    /// that of the segment.
    ///
    /// # Errors
    /// If too many layouts do so.
    pub(crate) fn derived<T: Any + Send + Sync>(
        &self,
        fits: impl Fn(&T) -> bool,
        gives_way: impl Fn(&T) -> bool,
        make: impl FnOnce(Reservation) -> Arc<T>,
    ) -> Result<Arc<T>> {
        let mut all = self.derived.lock();
        let mut known = all.iter().filter_map(|derived| Arc::clone(&derived.data).downcast::<T>().ok());
        if let Some(found) = known.find(|data| fits(data)) {
            return Ok(found);
        }
        drop(known);
        all.retain(|derived| !derived.data.downcast_ref().is_some_and(&gives_way));
        if all.len() == MOST_DERIVED {
            let id = self.id.0;
            return Err(Error::limit(format!("more than {MOST_DERIVED} dictionaries begin in segment {id}")));
        }
        let memory = self.memory.part();
        let data = make(memory.take_anyway(0));
        all.push(Derived { data: Arc::clone(&data) as _, memory });
        Ok(data)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use arrow::buffer::ScalarBuffer;
    use futures::FutureExt as _;

    use super::*;
    use crate::Registry;
    use crate::dtype::{PType, StructType};
    use crate::encodings::zstd::encode_numbers;
    use crate::segments::SegmentCompression;
    use crate::wire::{FooterTables, Ids, SegmentSpec, WriteNode};

    /// Number of rows, of a byte each, in a segment of a few bytes.
    pub(crate) const ROWS: usize = 10_000;

    /// A compressed segment whose bytes are available, and the table that it is in.
    pub(crate) fn compressed(budget: &Arc<Budget>, limits: &Limits) -> (Lease, SegmentTable) {
        leased(WriteNode::new("vortex.primitive").buffer(vec![0u8; ROWS].into(), 1), budget, limits)
    }

    /// As [`compressed`], with this array.
    fn leased(array: WriteNode, budget: &Arc<Budget>, limits: &Limits) -> (Lease, SegmentTable) {
        let mut ids = Ids::default();
        let scheme = SegmentCompression::Zstd;
        let file = Buffer::from(scheme.compress(&array.to_blob(&mut ids).unwrap()).unwrap());
        let segment = SegmentSpec {
            offset: 0,
            length: u32::try_from(file.len()).unwrap(),
            alignment_exponent: 0,
            compression: scheme as u8,
            encryption: 0,
        };
        let tables =
            FooterTables { array_ids: ids.into_table(), layout_ids: Arc::new([]), segments: vec![segment] };
        let file_size = file.len() as u64;
        let table = SegmentTable::try_new(&tables, &file, file_size, &Registry::built_in(), limits).unwrap();
        let leases = Leases::default().lease(
            &[SegmentId(0)],
            &table,
            budget.take_anyway(0),
            &ScanMetrics::default(),
            |_| unreachable!("it is kept with the footer"),
        );
        let lease = leases.unwrap().remove(0);
        lease.wait().now_or_never().unwrap().unwrap();
        (lease, table)
    }

    /// Loads the array of that segment.
    pub(crate) fn load(lease: &Lease, table: &SegmentTable) -> Result<EncodedRef> {
        lease.array(&DType::Primitive(PType::U8, false), ROWS, table)
    }

    #[test]
    fn a_segment_that_could_not_be_read_is_read_again_although_its_first_reader_remains() {
        let (mut held, budget) = (Held::default(), Budget::new(0));
        let key = (SegmentId(0), None);
        let mut add = |pending| held.add(key, &(0..0), pending, budget.take_anyway(0));
        let failed = add(PendingBytes::failed(Error::invalid("the store is busy")));
        assert!(held.held(&key).is_none());
        assert!(failed.wait().now_or_never().unwrap().is_err());
        let again = held.add(key, &(0..0), PendingBytes::ready(Buffer::default()), budget.take_anyway(0));
        assert!(held.held(&key).is_some_and(|lease| Arc::ptr_eq(&lease, &again)));
    }

    #[test]
    fn freed_segments_are_looked_for_once_there_are_twice_as_many() {
        let (mut held, budget) = (Held::default(), Budget::new(0));
        let mut add = |ids: Range<u32>| {
            let mut add = |id| {
                let (bytes, memory) = (PendingBytes::ready(Buffer::default()), budget.take_anyway(0));
                held.add((SegmentId(id), None), &(0..0), bytes, memory)
            };
            let leases: Vec<Lease> = ids.map(&mut add).collect();
            held.forget_freed();
            (leases, held.segments.len())
        };
        let (in_use, listed) = add(0..2000);
        assert_eq!(listed, 2000);
        drop(add(2000..3000));
        assert_eq!(add(3000..4000).1, 4000);
        let (_more, listed) = add(4000..4001);
        assert_eq!(listed, in_use.len() + 1);
    }

    #[test]
    fn decompressed_bytes_are_charged_as_long_as_they_are_held() {
        let budget = Budget::new(1 << 20);
        let (lease, table) = compressed(&budget, &Limits::default());
        assert!(lease.held_bytes() < 1000);
        assert_eq!(budget.used(), 0);
        for _ in 0..2 {
            load(&lease, &table).unwrap();
            assert!((ROWS..2 * ROWS).contains(&lease.held_bytes()), "{}", lease.held_bytes());
            assert!((ROWS as u64..2 * ROWS as u64).contains(&budget.used()), "{}", budget.used());
        }
        drop(lease);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn derived_data_is_charged_to_whoever_requested_the_segment() {
        let budget = Budget::new(1 << 20);
        let (lease, _table) = compressed(&budget, &Limits::default());
        for _ in 0..2 {
            let derived = lease.derived(|_| true, |_| false, |memory| Arc::new(memory.take_more(5))).unwrap();
            assert_eq!((budget.used(), Arc::strong_count(&derived)), (5, 2));
            assert_eq!(lease.charged_to(&budget), 5);
        }
        let other = lease.derived(|_| false, |_| false, |memory| Arc::new(memory.take_more(7))).unwrap();
        assert_eq!((budget.used(), Arc::strong_count(&other)), (12, 2));
        lease.derived(|_| false, |_| true, |memory| Arc::new(memory.take_more(1))).unwrap();
        assert_eq!((budget.used(), Arc::strong_count(&other)), (8, 1));
        drop((lease, other));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_segment_is_loaded_once_for_each_of_a_few_types() {
        // Long frames are decompressed when they are loaded.
        let rows = 1 << 18;
        let numbers = encode_numbers(&ScalarBuffer::from(vec![7u32; rows]), None, 3, 4 * rows, None).unwrap();
        let budget = Budget::new(1 << 40);
        let (lease, table) =
            leased(WriteNode::new("vortex.struct").child(numbers), &budget, &Limits::default());
        let named = |at: usize| {
            let field = (at.to_string().into(), DType::Primitive(PType::I32, false));
            DType::Struct(StructType::new([field]).into(), false)
        };
        let load = |at| lease.array(&named(at), rows, &table);
        let first: Vec<_> = (0..MOST_ARRAYS).map(|at| load(at).unwrap()).collect();
        let held = lease.held_bytes();
        assert!(held > MOST_ARRAYS * 4 * rows);
        for (at, first) in first.iter().enumerate() {
            assert!(Arc::ptr_eq(first, &load(at).unwrap()));
        }
        assert_eq!(lease.held_bytes(), held);
        let error = load(MOST_ARRAYS).unwrap_err().to_string();
        assert!(error.contains("segment 0: limit exceeded: more than 8 types and lengths"), "{error}");
    }

    #[test]
    fn decompressed_bytes_count_for_all_work_that_uses_them() {
        let limits = Limits::new().with_max_decoded_bytes(2 * ROWS as u64);
        let (lease, table) = compressed(&Budget::new(1 << 20), &limits);
        for _ in 0..2 {
            let _work = Work::begin();
            load(&lease, &table).unwrap();
            let error = limits.count_bytes(ROWS as u64).unwrap_err();
            assert!(matches!(error, Error::LimitExceeded(_)), "{error}");
        }
    }
}
