//! Statistics and orders of files that are kept between queries, in DataFusion's cache for them.
//!
//! From a footer in memory they would be derived as quickly, but of many small files only the bytes are kept
//! (`reading/footers.rs`), and of many large ones not every footer.
//!
//! DataFusion 55 takes files of the same size and modification time for the same, and some stores state times in
//! whole seconds. Here e-tags count as well. Tables of this crate therefore leave the cache to this module; tables that
//! applications create with the cache keep everything in it a second time. See `tests/it/upstream/files.rs`:
//! `files_of_one_size_and_time_are_taken_for_the_same`.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion_common::TableReference;
use datafusion_datasource::file_format::FileMeta;
use datafusion_execution::cache::cache_manager::{CacheManager, CachedFileMetadata, FileStatisticsCache};
use datafusion_execution::cache::{SchemaFingerprint, TableScopedPath};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use parking_lot::Mutex;
use vortex_core::io::StoreId;

use crate::reading::footers::same_version;

/// The statistics that a session keeps.
pub(crate) struct FileStatistics(Option<Arc<FileStatisticsCache>>);

impl FileStatistics {
    pub(crate) fn new(caches: &CacheManager) -> Self {
        Self(caches.get_file_statistic_cache())
    }

    /// What is known of exactly this version, in a table with these columns.
    pub(crate) fn get(
        &self,
        store: &Arc<dyn ObjectStore>,
        object: &ObjectMeta,
        columns: &Arc<SchemaFingerprint>,
    ) -> Option<FileMeta> {
        let kept = self.0.as_ref()?.get(&key(store, object))?;
        let is_same = same_version(&kept.meta, object) && kept.is_valid_for(object, columns);
        is_same.then(|| FileMeta::new(kept.statistics.as_ref().clone()).with_ordering(kept.ordering))
    }

    pub(crate) fn put(
        &self,
        store: &Arc<dyn ObjectStore>,
        object: &ObjectMeta,
        columns: Arc<SchemaFingerprint>,
        known: &FileMeta,
    ) {
        let Some(cache) = &self.0 else { return };
        let statistics = Arc::new(known.statistics.clone());
        let kept = CachedFileMetadata::new(object.clone(), columns, statistics, known.ordering.clone());
        cache.put(&key(store, object), kept);
    }

    /// Removes what is known of files, by whichever table.
    pub(crate) fn remove(&self, files: &HashSet<&Path>) {
        let Some(cache) = &self.0 else { return };
        for key in cache.list_entries().into_keys().filter(|key| files.contains(&key.path)) {
            cache.remove(&key);
        }
    }
}

/// All tables share what is known of a file. The place for a table's name holds that of the store.
fn key(store: &Arc<dyn ObjectStore>, object: &ObjectMeta) -> TableScopedPath {
    let store = TableReference::bare(format!("vortex {}", StoreId::of(store)));
    TableScopedPath { table: Some(store), path: object.location.clone() }
}

/// The columns of a table, which statistics depend on besides the file. DataFusion passes the same schema with each
/// of its files.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastColumns(Arc<Mutex<Option<Columns>>>);

/// A schema and what stands for it.
type Columns = (SchemaRef, Arc<SchemaFingerprint>);

impl LastColumns {
    pub(crate) fn of(&self, table: &SchemaRef) -> Arc<SchemaFingerprint> {
        let mut last = self.0.lock();
        if let Some((schema, columns)) = last.as_ref()
            && Arc::ptr_eq(schema, table)
        {
            return Arc::clone(columns);
        }
        let columns = Arc::new(SchemaFingerprint::from_schema(table));
        *last = Some((Arc::clone(table), Arc::clone(&columns)));
        columns
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    #[test]
    fn columns_are_described_once_per_schema() {
        let schema = |name| Arc::new(Schema::new(vec![Field::new(name, DataType::Int32, true)]));
        let (a, b) = (schema("a"), schema("b"));
        let last = LastColumns::default();
        let first = last.of(&a);
        assert!(Arc::ptr_eq(&first, &last.of(&a)));
        assert_ne!(first, last.of(&b));
        assert_eq!(first, last.of(&a));
    }
}
