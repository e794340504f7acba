//! Which store an object is in. Stores tell only a name, which different ones often share.

use std::fmt;
use std::ptr::addr_eq;
use std::sync::{Arc, Weak};

use object_store::ObjectStore;
use parking_lot::Mutex;

/// Identifies an object store within this process. No other store gets the same id, even after it is gone; a store that
/// wraps another one has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreId(u64);

/// The stores that have ids, and the last id. As long as an entry exists, no other store can have its address.
struct Known {
    stores: Vec<(StoreId, Weak<dyn ObjectStore>)>,
    last: u64,
}

impl StoreId {
    /// The id of a store, which is the same for all clones of the reference.
    pub fn of(store: &Arc<dyn ObjectStore>) -> Self {
        static KNOWN: Mutex<Known> = Mutex::new(Known { stores: Vec::new(), last: 0 });
        let mut known = KNOWN.lock();
        let is_it = |other: &Weak<dyn ObjectStore>| addr_eq(other.as_ptr(), Arc::as_ptr(store));
        if let Some((id, _)) = known.stores.iter().find(|(_, other)| is_it(other)) {
            return *id;
        }
        known.stores.retain(|(_, other)| other.strong_count() > 0);
        known.last += 1;
        let id = Self(known.last);
        known.stores.push((id, Arc::downgrade(store)));
        id
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "store {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[test]
    fn each_store_has_its_own_id_however_it_is_named() {
        let new = || Arc::new(InMemory::new()) as Arc<dyn ObjectStore>;
        let (one, other) = (new(), new());
        assert_eq!(StoreId::of(&one), StoreId::of(&Arc::clone(&one)));
        assert_ne!(StoreId::of(&one), StoreId::of(&other));
        let gone = StoreId::of(&new());
        assert!((0..100).all(|_| StoreId::of(&new()) != gone));
    }
}
