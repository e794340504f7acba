//! Statistics and orders of files that are kept between queries, in DataFusion's cache for them.
//!
//! From a footer in memory they would be derived as quickly, but of many small files only the bytes are kept
//! (`footers.rs`), and of many large ones not every footer.
//!
//! DataFusion 55 takes files of the same size and modification time for the same, and some stores state times in
//! whole seconds. Here e-tags count as well. Tables of this crate therefore leave the cache to this module.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion_datasource::file_format::FileMeta;
use datafusion_execution::cache::cache_manager::{CacheManager, CachedFileMetadata, FileStatisticsCache};
use datafusion_execution::cache::{SchemaFingerprint, TableScopedPath};
use object_store::ObjectMeta;
use object_store::path::Path;

use crate::footers::same_version;

/// The statistics that a session keeps.
pub(crate) struct FileStatistics(Option<Arc<FileStatisticsCache>>);

impl FileStatistics {
    pub(crate) fn new(caches: &CacheManager) -> Self {
        Self(caches.get_file_statistic_cache())
    }

    /// What is known of exactly this version, in a table with these columns.
    pub(crate) fn get(&self, object: &ObjectMeta, table: &Schema) -> Option<FileMeta> {
        let kept = self.0.as_ref()?.get(&key(object))?;
        let is_same = same_version(&kept.meta, object) && kept.is_valid_for(object, &columns(table));
        is_same.then(|| FileMeta::new(kept.statistics.as_ref().clone()).with_ordering(kept.ordering))
    }

    pub(crate) fn put(&self, object: &ObjectMeta, table: &Schema, known: &FileMeta) {
        let Some(cache) = &self.0 else { return };
        let statistics = Arc::new(known.statistics.clone());
        let kept =
            CachedFileMetadata::new(object.clone(), columns(table), statistics, known.ordering.clone());
        cache.put(&key(object), kept);
    }

    /// Removes what is known of files, by whichever table.
    pub(crate) fn remove(&self, files: &HashSet<&Path>) {
        let Some(cache) = &self.0 else { return };
        for key in cache.list_entries().into_keys().filter(|key| files.contains(&key.path)) {
            cache.remove(&key);
        }
    }
}

/// All tables share what is known of a file.
fn key(object: &ObjectMeta) -> TableScopedPath {
    TableScopedPath { table: None, path: object.location.clone() }
}

/// What statistics depend on besides the file.
fn columns(table: &Schema) -> Arc<SchemaFingerprint> {
    Arc::new(SchemaFingerprint::from_schema(table))
}
