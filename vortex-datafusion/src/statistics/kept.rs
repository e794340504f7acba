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
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
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
#[derive(Clone)]
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
        let kept = self.0.as_ref()?.get(&key(store, object, columns))?;
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
        let key = key(store, object, &columns);
        let kept = CachedFileMetadata::new(object.clone(), columns, statistics, known.ordering.clone());
        cache.put(&key, kept);
    }

    /// Removes what is known of files, by whichever table.
    pub(crate) fn remove(&self, files: &HashSet<&Path>) {
        let Some(cache) = &self.0 else { return };
        for key in cache.list_entries().into_keys().filter(|key| files.contains(&key.path)) {
            cache.remove(&key);
        }
    }
}

/// All tables of the same columns share what is known of a file. The place for a table's name holds that of the store,
/// and what stands for the columns; those with the same hash take turns, since entries state theirs.
fn key(store: &Arc<dyn ObjectStore>, object: &ObjectMeta, columns: &SchemaFingerprint) -> TableScopedPath {
    let columns = BuildHasherDefault::<DefaultHasher>::default().hash_one(columns);
    let place = TableReference::bare(format!("vortex {} {columns:016x}", StoreId::of(store)));
    TableScopedPath { table: Some(place), path: object.location.clone() }
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
    use datafusion_common::Statistics;
    use datafusion_common::stats::Precision;
    use datafusion_datasource::PartitionedFile;
    use datafusion_execution::runtime_env::RuntimeEnv;
    use object_store::memory::InMemory;

    use super::*;

    fn schema(name: &str) -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new(name, DataType::Int32, true)]))
    }

    #[test]
    fn tables_of_different_columns_over_the_same_files_keep_their_statistics() {
        let caches = RuntimeEnv::default();
        let kept = FileStatistics::new(&caches.cache_manager);
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let object = PartitionedFile::new("a", 1).object_meta;
        let object = ObjectMeta { e_tag: Some("1".to_owned()), ..object };
        let tables = ["a", "b"].map(|name| Arc::new(SchemaFingerprint::from_schema(&schema(name))));
        for (rows, columns) in tables.iter().enumerate() {
            let known = Statistics { num_rows: Precision::Exact(rows), ..Statistics::default() };
            kept.put(&store, &object, Arc::clone(columns), &FileMeta::new(known));
        }
        let rows = tables.map(|columns| kept.get(&store, &object, &columns).unwrap().statistics.num_rows);
        assert_eq!(rows, [0, 1].map(Precision::Exact));
        kept.remove(&[&object.location].into());
        assert!(kept.get(&store, &object, &Arc::new(SchemaFingerprint::from_schema(&schema("a")))).is_none());
    }

    #[test]
    fn columns_are_described_once_per_schema() {
        let (a, b) = (schema("a"), schema("b"));
        let last = LastColumns::default();
        let first = last.of(&a);
        assert!(Arc::ptr_eq(&first, &last.of(&a)));
        assert_ne!(first, last.of(&b));
        assert_eq!(first, last.of(&a));
    }
}
