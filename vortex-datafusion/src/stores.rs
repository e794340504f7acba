//! Which store an object is in. What the caches of a session keep of an object says its path, but not its store.

use std::ptr::addr_eq;
use std::sync::{Arc, Weak};

use object_store::ObjectStore;
use parking_lot::Mutex;

/// A number that is unique to a store: different stores often have the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreNumber(u64);

/// The stores that have numbers, and the last number. As long as an entry exists, no other store can have its address.
struct Numbered {
    known: Vec<(StoreNumber, Weak<dyn ObjectStore>)>,
    last: u64,
}

impl StoreNumber {
    pub(crate) fn of(store: &Arc<dyn ObjectStore>) -> Self {
        static STORES: Mutex<Numbered> = Mutex::new(Numbered { known: Vec::new(), last: 0 });
        let mut stores = STORES.lock();
        let is_it = |known: &Weak<dyn ObjectStore>| addr_eq(known.as_ptr(), Arc::as_ptr(store));
        if let Some((number, _)) = stores.known.iter().find(|(_, known)| is_it(known)) {
            return *number;
        }
        stores.known.retain(|(_, known)| known.strong_count() > 0);
        stores.last += 1;
        let number = Self(stores.last);
        stores.known.push((number, Arc::downgrade(store)));
        number
    }

    /// The number as text that no table is named by.
    pub(crate) fn name(self) -> String {
        format!("vortex store {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[test]
    fn each_store_has_its_own_number_however_it_is_named() {
        let new = || Arc::new(InMemory::new()) as Arc<dyn ObjectStore>;
        let (one, other) = (new(), new());
        assert_eq!(StoreNumber::of(&one), StoreNumber::of(&Arc::clone(&one)));
        assert_ne!(StoreNumber::of(&one), StoreNumber::of(&other));
        let gone = StoreNumber::of(&new());
        assert!((0..100).all(|_| StoreNumber::of(&new()) != gone));
    }
}
