//! The cache of footers between queries, which is DataFusion's cache of file metadata.
//!
//! An entry is valid for one version of an object in one store, identified by its size, modification time and, if the
//! store provides one, e-tag, and for the limits and the registry that it was opened with; until an answer of the store
//! tells of another version, which a listing may not. The size of an entry is that of the parsed footer, not of its
//! bytes in the file.
//!
//! DataFusion keeps entries by path, whatever the store. If several stores have an object of one path, as those of
//! several customers may, the first one has the entry of that path, and each of the others an entry that is named after
//! its store.

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use arrow::buffer::Buffer;
use datafusion_common::HashMap;
use datafusion_execution::cache::cache_manager::{
    CacheManager, CachedFileMetadataEntry, FileMetadata, FileMetadataCache,
};
use datafusion_execution::runtime_env::RuntimeEnv;
use object_store::ObjectMeta;
use object_store::path::Path;
use vortex_core::file::Footer;
use vortex_core::io::{FirstAnswer, StoreId};

use super::Terms;
use crate::statistics::kept::FileStatistics;

/// Parsed footers of small files take up at most about one part in this many of the footer cache; further
/// footers are kept as the bytes of their files.
const PARSED_SHARE: usize = 3;
/// Bytes of small files take up at most about one part in this many; of further files, only the bytes of the footer are
/// kept. Otherwise, the second look at as many files would find none of them in the cache.
const STORED_SHARE: usize = 2;
/// Footers of files larger than this many bytes are always kept parsed.
const MAX_STORED: usize = 64 << 10;

/// The footers that a session keeps, of files that it opens on these terms.
#[derive(Clone)]
pub(crate) struct FooterCache {
    cache: Arc<FileMetadataCache>,
    /// Statistics are outdated with the footer that they are from.
    statistics: FileStatistics,
    terms: Terms,
}

impl FooterCache {
    pub(super) fn new(runtime: &RuntimeEnv, terms: Terms) -> Self {
        let statistics = FileStatistics::new(&runtime.cache_manager);
        Self { cache: runtime.cache_manager.get_file_metadata_cache(), statistics, terms }
    }

    /// Whether the footer of any version of this object is cached.
    pub(crate) fn has_any(&self, store: StoreId, location: &Path) -> bool {
        self.entry(store, location).is_some()
    }

    /// Whether the footer of exactly this version is cached.
    pub(crate) fn has(&self, store: StoreId, meta: &ObjectMeta) -> bool {
        self.entry(store, &meta.location).is_some_and(|entry| same_version(&entry.meta, meta))
    }

    /// The footer of this version of the object at this path, if it is kept parsed. The store is not compared, so it
    /// may be that of another one: for planning, which it cannot make wrong.
    pub(crate) fn parsed(&self, meta: &ObjectMeta) -> Option<Arc<Footer>> {
        let entry = self.cache.get(&meta.location).filter(|entry| same_version(&entry.meta, meta))?;
        let known = entry.file_metadata.as_any().downcast_ref::<CachedFooter>()?;
        match &known.form {
            Form::Parsed(footer) if !known.first.is_contradicted() => Some(Arc::clone(footer)),
            _ => None,
        }
    }

    /// The footer of exactly this version, and what the store answered when it was read. With `verify`, it must verify
    /// the checksums that it has.
    pub(super) fn get(
        &self,
        store: StoreId,
        meta: &ObjectMeta,
        verify: bool,
    ) -> Option<(Arc<Footer>, FirstAnswer)> {
        let entry = self.entry(store, &meta.location)?;
        let known = self.known(store, &entry)?;
        let footer = same_version(&entry.meta, meta).then(|| known.footer()).flatten()?;
        let verifies = verify && footer.has_checksums();
        (footer.verifies_checksums() == verifies).then(|| (footer, known.first.clone()))
    }

    /// The statistics that are kept of files; of the one at this path, only those that are not outdated.
    pub(super) fn statistics(&self, store: StoreId, location: &Path) -> FileStatistics {
        self.forget_outdated(store, location);
        self.statistics.clone()
    }

    /// Removes the statistics of a file that has turned out to be replaced, although listings do not tell.
    fn forget_outdated(&self, store: StoreId, location: &Path) {
        let places = [location.clone(), self.own_place(store, location)];
        let is_outdated = |entry: &CachedFileMetadataEntry| {
            self.known(store, entry).is_some_and(|known| known.first.is_contradicted())
        };
        if places.iter().filter_map(|place| self.cache.get(place)).any(|entry| is_outdated(&entry)) {
            self.statistics.remove(&[location].into());
        }
    }

    /// Caches a footer; as the bytes of its file, if the file is small and parsed footers of this size would
    /// take up too much of the cache.
    pub(super) fn put(&self, store: StoreId, meta: &ObjectMeta, footer: Arc<Footer>, first: FirstAnswer) {
        self.forget_outdated(store, &meta.location);
        let would_take = |bytes: usize| bytes.saturating_mul(self.cache.len() + 1);
        let limit = self.cache.cache_limit();
        let whole =
            footer.whole_file().filter(|file| file.len() <= MAX_STORED && !footer.verifies_checksums());
        let form = match whole {
            Some(file) if would_take(footer.memory_size()) > limit / PARSED_SHARE => {
                let end = if would_take(file.len()) > limit / STORED_SHARE {
                    // A copy, so that the rest can be freed.
                    Buffer::from(&file[file.len() - footer.description_len() as usize..])
                } else {
                    file
                };
                Form::Stored { end, counts: Counts::of(&footer) }
            }
            _ => Form::Parsed(footer),
        };
        let footer = CachedFooter { store, terms: self.terms.clone(), first, form };
        let is_taken =
            self.cache.get(&meta.location).is_some_and(|entry| self.known(store, &entry).is_none());
        let place = if is_taken { self.own_place(store, &meta.location) } else { meta.location.clone() };
        self.cache.put(&place, CachedFileMetadataEntry::new(meta.clone(), Arc::new(footer)));
    }

    /// What is cached of an object, in whichever version.
    fn entry(&self, store: StoreId, location: &Path) -> Option<CachedFileMetadataEntry> {
        let is_known = |entry: &CachedFileMetadataEntry| {
            self.known(store, entry).is_some_and(|known| !known.first.is_contradicted())
        };
        let own = || self.cache.get(&self.own_place(store, location));
        self.cache.get(location).filter(is_known).or_else(own).filter(is_known)
    }

    /// The place of an object whose path is that of an entry of another store, or on other terms. Registries, and
    /// limits that have the same hash, take turns there: entries state theirs.
    fn own_place(&self, store: StoreId, location: &Path) -> Path {
        let limits = BuildHasherDefault::<DefaultHasher>::default().hash_one(self.terms.limits);
        Path::from(format!("{store} {limits:016x}/{location}"))
    }

    /// What is cached of an object, if it is in this store and was opened on the same terms.
    fn known<'e>(&self, store: StoreId, entry: &'e CachedFileMetadataEntry) -> Option<&'e CachedFooter> {
        let known = entry.file_metadata.as_any().downcast_ref::<CachedFooter>()?;
        (known.store == store && known.terms == self.terms).then_some(known)
    }
}

/// Removes the footers of objects at these paths, in whichever store.
pub(crate) fn forget_footers(caches: &CacheManager, paths: &HashSet<&Path>) {
    let cache = caches.get_file_metadata_cache();
    for (place, entry) in cache.list_entries() {
        if paths.contains(&entry.value.meta.location) {
            cache.remove(&place);
        }
    }
}

impl fmt::Debug for FooterCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FooterCache").field(&self.cache.len()).finish()
    }
}

pub(crate) fn same_version(left: &ObjectMeta, right: &ObjectMeta) -> bool {
    // Listings do not tell versions.
    let versions = left.version.as_ref().zip(right.version.as_ref());
    left.size == right.size
        && left.last_modified == right.last_modified
        && left.e_tag == right.e_tag
        && versions.is_none_or(|(left, right)| left == right)
}

/// A footer as DataFusion's cache holds it.
struct CachedFooter {
    store: StoreId,
    terms: Terms,
    /// Listings do not always tell when an object was replaced; its other bytes must be of the same version.
    first: FirstAnswer,
    form: Form,
}

enum Form {
    Parsed(Arc<Footer>),
    /// The bytes of a small file, or its last ones, parsed on every use: slower, but a fraction of the size.
    Stored {
        end: Buffer,
        counts: Counts,
    },
}

/// What DataFusion shows of an entry.
#[derive(Clone, Copy)]
struct Counts {
    rows: u64,
    columns: u64,
    segments: u64,
    file_size: u64,
}

impl Counts {
    fn of(footer: &Footer) -> Self {
        let columns = footer.dtype().as_struct().map_or(1, |fields| fields.len());
        Self {
            rows: footer.row_count(),
            columns: columns as u64,
            segments: footer.segments().len() as u64,
            file_size: footer.file_size(),
        }
    }
}

impl CachedFooter {
    fn footer(&self) -> Option<Arc<Footer>> {
        match &self.form {
            Form::Parsed(footer) => Some(Arc::clone(footer)),
            Form::Stored { end, counts } => {
                self.terms.options().parse_end(end.clone(), counts.file_size).ok().map(Arc::new)
            }
        }
    }
}

impl FileMetadata for CachedFooter {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn memory_size(&self) -> usize {
        match &self.form {
            Form::Parsed(footer) => footer.memory_size(),
            Form::Stored { end, .. } => size_of::<Self>() + end.len(),
        }
    }

    fn extra_info(&self) -> HashMap<String, String> {
        let Counts { rows, columns, segments, .. } = match &self.form {
            Form::Parsed(footer) => Counts::of(footer),
            Form::Stored { counts, .. } => *counts,
        };
        [("row_count", rows), ("columns", columns), ("segments", segments)]
            .into_iter()
            .map(|(name, count)| (name.to_owned(), count.to_string()))
            .collect()
    }
}
