//! Accounting of bytes in use against a limit, optionally charged to an external memory pool as well.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An external memory pool, such as that of a query engine, charged in addition to the reader's own
/// limits.
pub trait MemoryPool: Debug + Send + Sync {
    /// Reserves bytes; returns false if the pool refuses.
    fn try_grow(&self, bytes: u64) -> bool;

    /// Returns bytes to the pool.
    fn shrink(&self, bytes: u64);
}

/// A count of bytes in use against a limit. Bytes taken are also charged to the parent, if any.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    used: AtomicU64,
    peak: AtomicU64,
    parent: Option<Arc<Budget>>,
    /// Whether it takes no more of its parent than it leaves free, see [`Budget::share`].
    leaves_half: bool,
    pool: Option<Arc<dyn MemoryPool>>,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        Self::of(limit, None, None, false)
    }

    /// A part of this budget with its own limit, also charged to `pool`.
    pub(crate) fn part(self: &Arc<Self>, limit: u64, pool: Option<Arc<dyn MemoryPool>>) -> Arc<Self> {
        Self::of(limit, Some(Arc::clone(self)), pool, false)
    }

    /// As [`part`](Self::part), for one of several that need about the same: it takes no more than it leaves free. So
    /// those that come later get something, also if the others stand still and return nothing; if all take as much as
    /// they may, all have the same.
    pub(crate) fn share(self: &Arc<Self>, limit: u64, pool: Option<Arc<dyn MemoryPool>>) -> Arc<Self> {
        Self::of(limit, Some(Arc::clone(self)), pool, true)
    }

    fn of(
        limit: u64,
        parent: Option<Arc<Self>>,
        pool: Option<Arc<dyn MemoryPool>>,
        leaves_half: bool,
    ) -> Arc<Self> {
        let (used, peak) = Default::default();
        Arc::new(Self { limit, used, peak, parent, leaves_half, pool })
    }

    /// The limit of the bytes in use.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The peak number of bytes in use.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Takes `bytes` if they fit within this budget, its parents and the pool.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> Option<Reservation> {
        if !self.grow(bytes, false) {
            return None;
        }
        if let Some(pool) = &self.pool
            && bytes > 0
            && !pool.try_grow(bytes)
        {
            self.shrink(bytes);
            return None;
        }
        self.note_peak();
        let pooled = if self.pool.is_some() { bytes } else { 0 };
        Some(Reservation { budget: Arc::clone(self), bytes, pooled })
    }

    /// Bytes that have to be returned before `bytes` can be taken, as far as is known: of a pool that refuses them,
    /// it is not, so that it may have to be all of them.
    pub(crate) fn shortfall(&self, bytes: u64) -> u64 {
        let excess = |budget: &Self| {
            let own = budget.used().saturating_add(bytes).saturating_sub(budget.limit);
            // What is returned counts twice: it is no longer in use, and is left free.
            own.max(budget.not_left(bytes).div_ceil(2))
        };
        match std::iter::successors(Some(self), |budget| budget.parent.as_deref()).map(excess).max() {
            Some(0) if self.pool.is_some() => bytes,
            excess => excess.unwrap_or(0),
        }
    }

    /// By how much this would have more of its parent than it leaves free, if it took `bytes`.
    fn not_left(&self, bytes: u64) -> u64 {
        match &self.parent {
            Some(parent) if self.leaves_half && bytes > 0 => {
                let (own, all) = (self.used().saturating_add(bytes), parent.used().saturating_add(bytes));
                own.saturating_add(all).saturating_sub(parent.limit)
            }
            _ => 0,
        }
    }

    /// Takes `bytes` whether or not they fit, for work that must go on. If the pool refuses them, it is
    /// not charged.
    pub(crate) fn take_anyway(self: &Arc<Self>, bytes: u64) -> Reservation {
        // It fails only if there is no number for the sum; such bytes do not exist, and are not counted.
        let bytes = if self.grow(bytes, true) { bytes } else { 0 };
        let pooled = match &self.pool {
            Some(pool) if bytes > 0 && pool.try_grow(bytes) => bytes,
            _ => 0,
        };
        self.note_peak();
        Reservation { budget: Arc::clone(self), bytes, pooled }
    }

    fn grow(&self, bytes: u64, anyway: bool) -> bool {
        if !anyway && self.not_left(bytes) > 0 {
            return false;
        }
        let fits = |used: u64| used.checked_add(bytes).filter(|next| anyway || *next <= self.limit);
        if self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            return false;
        }
        if let Some(parent) = &self.parent
            && !parent.grow(bytes, anyway)
        {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Notes that the bytes in use now were really taken, also from the pool.
    fn note_peak(&self) {
        self.peak.fetch_max(self.used(), Ordering::Relaxed);
        if let Some(parent) = &self.parent {
            parent.note_peak();
        }
    }

    fn shrink(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(parent) = &self.parent {
            parent.shrink(bytes);
        }
    }
}

/// Bytes taken from a budget, returned to it on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    bytes: u64,
    pooled: u64,
}

impl Reservation {
    /// Adds a reservation of the same budget to this one.
    pub(crate) fn join(&mut self, mut other: Reservation) {
        self.bytes += std::mem::take(&mut other.bytes);
        self.pooled += std::mem::take(&mut other.pooled);
    }

    /// Another reservation of the same budget, regardless of the limit.
    pub(crate) fn take_more(&self, bytes: u64) -> Reservation {
        self.budget.take_anyway(bytes)
    }

    /// A part of its budget without a limit, to count what is taken for one purpose.
    pub(crate) fn part(&self) -> Arc<Budget> {
        self.budget.part(u64::MAX, self.budget.pool.clone())
    }

    /// The bytes of this reservation, if they were taken from `budget`, and not from one that it is a part of.
    pub(crate) fn bytes_of(&self, budget: &Arc<Budget>) -> Option<u64> {
        Arc::ptr_eq(&self.budget, budget).then_some(self.bytes)
    }

    /// Splits off a reservation of `bytes`; if this one holds fewer, they are taken anew, regardless of the
    /// limit.
    pub(crate) fn split(&mut self, bytes: u64) -> Reservation {
        if bytes > self.bytes {
            return self.budget.take_anyway(bytes);
        }
        let pooled = bytes.min(self.pooled);
        self.bytes -= bytes;
        self.pooled -= pooled;
        Reservation { budget: Arc::clone(&self.budget), bytes, pooled }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.shrink(self.bytes);
        if let Some(pool) = &self.budget.pool {
            pool.shrink(self.pooled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool of a fixed size.
    #[derive(Debug)]
    struct Small(AtomicU64);

    impl MemoryPool for Small {
        fn try_grow(&self, bytes: u64) -> bool {
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
        }

        fn shrink(&self, bytes: u64) {
            self.0.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_reservation_goes_back_when_dropped() {
        let budget = Budget::new(100);
        let first = budget.take(80).unwrap();
        assert!(budget.take(30).is_none());
        let more = budget.take_anyway(30);
        assert_eq!(budget.used(), 110);
        drop((first, more));
        assert_eq!((budget.used(), budget.peak()), (0, 110));
    }

    #[test]
    fn a_part_counts_for_the_whole_and_for_the_pool() {
        let whole = Budget::new(100);
        let pool = Arc::new(Small(AtomicU64::new(50)));
        let part = whole.part(60, Some(Arc::clone(&pool) as _));
        let other = whole.part(1000, None);
        let held = other.take(70).unwrap();
        assert!(part.take(40).is_none(), "the whole has only 30 left");
        drop(held);
        let held = part.take(40).unwrap();
        assert_eq!((whole.used(), pool.0.load(Ordering::Relaxed)), (40, 10));
        assert!(part.take(15).is_none(), "the pool has only 10 left");
        assert_eq!((part.peak(), whole.peak()), (40, 70), "what was refused was never in use");
        let forced = part.take_anyway(15);
        assert_eq!((whole.used(), pool.0.load(Ordering::Relaxed)), (55, 10));
        drop((held, forced));
        assert_eq!((whole.used(), part.used(), pool.0.load(Ordering::Relaxed)), (0, 0, 50));
    }

    #[test]
    fn shares_leave_as_much_as_they_take() {
        let whole = Budget::new(160);
        let shares = [(); 3].map(|()| whole.share(64, None));
        let held = shares.iter().zip([64, 48, 24]).map(|(share, most)| {
            assert!(share.take(most + 1).is_none());
            share.take(most).unwrap()
        });
        let held: Vec<Reservation> = held.collect();
        assert_eq!(held.iter().map(|held| held.bytes).sum::<u64>(), 136);
        assert!(shares[2].take(0).is_some() && shares[2].take(1).is_none());
        assert_eq!(shares[2].shortfall(8), 8);
        drop(held);
        drop(shares[0].take_anyway(200));
        assert!(shares[2].take(64).is_some());
    }

    #[test]
    fn a_reservation_is_split_without_changing_the_sum() {
        let budget = Budget::new(100);
        let mut all = budget.take(80).unwrap();
        let part = all.split(50);
        assert_eq!(budget.used(), 80);
        drop(all);
        assert_eq!(budget.used(), 50);
        drop(part);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn threads_take_no_more_than_there_is() {
        let budget = Budget::new(100);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let taken = [budget.take(50), budget.take(51)];
                        assert!(budget.used() <= 100 && taken.len() == 2);
                    }
                });
            }
        });
        assert_eq!((budget.used(), budget.peak() <= 100), (0, true));
    }

    #[test]
    fn sums_never_overflow() {
        let budget = Budget::new(u64::MAX);
        let most = budget.take(u64::MAX).unwrap();
        assert!(budget.take(1).is_none());
        drop(budget.take_anyway(1));
        assert_eq!(budget.used(), u64::MAX);
        drop(most);
        assert_eq!(budget.used(), 0);
    }
}
