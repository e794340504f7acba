//! Listings of folders, which DataFusion keeps, by default forever.
//!
//! A listing that is being made while files appear may lack them, or name files that are gone by then; DataFusion 55
//! would keep it nevertheless. Therefore folders are listed here, before DataFusion looks for their listing, and a
//! listing is kept only if no statement of this process has changed the folder in the meantime. A listing is also
//! dropped once a file that it names turns out to be gone or replaced, so that the next query makes another one.

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::datasource::listing::ListingTableUrl;
use datafusion_common::{DataFusionError, Result};
use datafusion_execution::cache::TableScopedPath;
use datafusion_execution::cache::cache_manager::{CacheManager, ListFilesCache};
use datafusion_session::Session;
use futures::TryStreamExt as _;
use object_store::path::Path;
use object_store::{Error, ObjectMeta};
use parking_lot::Mutex;

/// Changes of folders in this process, whatever the store, so that listings under way can be compared with them.
static CHANGES: Mutex<Changes> = Mutex::new(Changes { count: 0, last: VecDeque::new() });

/// Paths that are remembered. Of changes before these, any folder may have been changed.
const MAX_REMEMBERED: usize = 4096;

struct Changes {
    count: u64,
    last: VecDeque<Path>,
}

impl Changes {
    fn add(&mut self, path: &Path) {
        self.count += 1;
        self.last.push_back(path.clone());
        if self.last.len() > MAX_REMEMBERED {
            self.last.pop_front();
        }
    }

    /// Whether a path in the folder may have been changed after so many changes.
    fn affect(&self, folder: &Path, before: u64) -> bool {
        let since = usize::try_from(self.count - before).unwrap_or(usize::MAX);
        since > self.last.len() || self.last.iter().rev().take(since).any(|path| path.prefix_matches(folder))
    }
}

/// The listings that a session keeps; by default, none.
#[derive(Clone, Default)]
pub(crate) struct Listings(Option<Arc<ListFilesCache>>);

impl Listings {
    pub(crate) fn of(caches: &CacheManager) -> Self {
        Self(caches.get_list_files_cache())
    }

    /// Removes the listings that contain files at these paths, which have appeared, were replaced, or are gone.
    pub(crate) fn forget(&self, paths: &[Path]) {
        let mut changes = CHANGES.lock();
        paths.iter().for_each(|path| changes.add(path));
        let Some(listings) = &self.0 else { return };
        for listing in listings.list_entries().into_keys() {
            if paths.iter().any(|path| path.prefix_matches(&listing.path)) {
                listings.remove(&listing);
            }
        }
    }

    /// Removes the listings that contain a file, if the error says that it is not what they name.
    pub(crate) fn forget_if_gone(&self, path: &Path, error: &DataFusionError) {
        if is_gone(error) {
            self.forget(std::slice::from_ref(path));
        }
    }

    /// Lists the folders of a table, unless their listings are kept. What cannot be kept, DataFusion lists itself.
    ///
    /// # Errors
    /// If the store does not list a folder.
    pub(crate) async fn make(&self, session: &dyn Session, places: &[ListingTableUrl]) -> Result<Made> {
        let Some(listings) = &self.0 else { return Ok(Made::Kept) };
        let mut made = Made::Kept;
        for url in places.iter().filter(|url| url.is_collection()) {
            let key = key(url);
            if listings.contains_key(&key) {
                continue;
            }
            let store = session.runtime_env().object_store(url)?;
            let before = CHANGES.lock().count;
            let files: Result<Vec<ObjectMeta>, _> = store.list(Some(&key.path)).try_collect().await;
            let mut files = files.map_err(|error| DataFusionError::from(error).context(url.to_string()))?;
            // The unused capacity would count.
            files.shrink_to_fit();
            let changes = CHANGES.lock();
            if changes.affect(&key.path, before) {
                made = Made::Changing;
            } else if !files.is_empty() {
                listings.put(&key, files.into());
                if !listings.contains_key(&key) && made == Made::Kept {
                    made = Made::TooLong;
                }
            }
        }
        Ok(made)
    }

    /// The bytes that all listings may take.
    pub(crate) fn limit(&self) -> usize {
        self.0.as_ref().map_or(0, |listings| listings.cache_limit())
    }

    /// Removes the listings of a table.
    pub(crate) fn remove(&self, places: &[ListingTableUrl]) {
        let Some(listings) = &self.0 else { return };
        places.iter().for_each(|url| _ = listings.remove(&key(url)));
    }
}

/// Whether an error says that an object is gone, or was replaced.
pub(crate) fn is_gone(error: &DataFusionError) -> bool {
    let DataFusionError::ObjectStore(error) = error.find_root() else { return false };
    matches!(**error, Error::NotFound { .. } | Error::Precondition { .. })
}

/// Where DataFusion looks for the listing of a folder.
fn key(url: &ListingTableUrl) -> TableScopedPath {
    TableScopedPath { table: url.get_table_ref().clone(), path: url.prefix().clone() }
}

/// What has become of the listings of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    /// All are kept, but for empty ones, which DataFusion does not keep either; or the session keeps none.
    Kept,
    /// One is longer than what the session keeps.
    TooLong,
    /// A folder has changed while it was listed: DataFusion lists it again, and it may do so again.
    Changing,
}

impl std::fmt::Debug for Listings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Listings").field(&self.0.as_ref().map(|listings| listings.len())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_affect_the_folders_that_they_are_in() {
        let mut changes = Changes { count: 0, last: VecDeque::new() };
        changes.add(&"a/b/1.vortex".into());
        changes.add(&"c/2.vortex".into());
        for (folder, before, expected) in [
            ("a", 0, true),
            ("a/b", 0, true),
            ("a", 1, false),
            ("c", 1, true),
            ("c", 2, false),
            ("", 1, true),
        ] {
            assert_eq!(changes.affect(&folder.into(), before), expected, "{folder} {before}");
        }
        (0..MAX_REMEMBERED).for_each(|_| changes.add(&"d/3.vortex".into()));
        assert!(changes.affect(&"e".into(), 0) && !changes.affect(&"e".into(), changes.count - 1));
    }
}
