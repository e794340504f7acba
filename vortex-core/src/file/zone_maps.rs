//! Decoded zone maps, kept with the description of a file between scans. Their bytes are bounded, and the
//! bound is accounted for from the start.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::expr::FieldPath;
use crate::layout::ZoneMap;

/// Zone maps decoded by scans, up to a number of bytes.
#[derive(Debug)]
pub(crate) struct KeptZoneMaps {
    limit: usize,
    maps: Mutex<(usize, HashMap<FieldPath, Arc<ZoneMap>>)>,
}

impl KeptZoneMaps {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, maps: Mutex::default() }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn get(&self, path: &FieldPath) -> Option<Arc<ZoneMap>> {
        self.maps.lock().1.get(path).cloned()
    }

    /// Keeps a zone map if there is room.
    pub(crate) fn keep(&self, path: &FieldPath, map: &Arc<ZoneMap>) {
        let mut kept = self.maps.lock();
        let bytes = kept.0.saturating_add(map.memory_size());
        if bytes <= self.limit && kept.1.insert(path.clone(), Arc::clone(map)).is_none() {
            kept.0 = bytes;
        }
    }
}
