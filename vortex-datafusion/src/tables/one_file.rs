//! A single file of a table, found and scanned with few requests.
//!
//! DataFusion requests the file's metadata when it creates the table, again for the schema, and whenever it
//! plans a scan. Here, one read of the end of the file returns its metadata and its footer, and scans planned
//! within a short time rely on them. If the file changes during that time, what was read of it is still answered
//! from: all of a small file, and what statistics tell. The store rejects reads of the rest because of the e-tag, so
//! that the result is that of the earlier version or an error, but never a mix. If a store provides no e-tags, scans do
//! not rely on earlier results.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use datafusion::datasource::listing::{ListingTable, ListingTableUrl};
use datafusion_catalog::ScanArgs;
use datafusion_common::{Result, Statistics};
use datafusion_datasource::file_format::FileFormat;
use datafusion_datasource::file_groups::FileGroup;
use datafusion_datasource::{PartitionedFile, compute_all_files_statistics};
use datafusion_physical_plan::ExecutionPlan;
use datafusion_session::{Session, TableProvider};
use object_store::{Error, ObjectMeta, ObjectStoreExt as _};
use vortex_core::io::StorageProfile;

use crate::format::VortexFormat;
use crate::planning::scan_of;
use crate::reading::SessionResources;

/// How long scans rely on what was found.
const MOMENT: Duration = Duration::from_secs(1);

/// A file found in a remote store, and the time when it was found.
#[derive(Debug)]
pub(super) struct Found {
    meta: ObjectMeta,
    at: Instant,
}

impl Found {
    /// Finds the file at `url`, if the store is remote: by one read of its end, which puts its footer into
    /// the cache, or by a head request if the footer is already there. Returns `None` if the store is local
    /// or the file is not found; DataFusion then determines what is there instead.
    ///
    /// # Errors
    /// If it is not a Vortex file, or the store does not answer.
    pub(super) async fn at(
        session: &dyn Session,
        format: &dyn FileFormat,
        url: &ListingTableUrl,
    ) -> Result<Option<Self>> {
        let Some(format) = format.downcast_ref::<VortexFormat>() else { return Ok(None) };
        let store = session.runtime_env().object_store(url)?;
        if url.is_collection() || !StorageProfile::of(store.as_ref()).remote {
            return Ok(None);
        }
        let at = Instant::now();
        let meta = match format.find(session, &store, url.prefix()).await? {
            Some(meta) => Some(meta),
            None => match store.head(url.prefix()).await {
                Ok(meta) => Some(meta),
                Err(Error::NotFound { .. }) => None,
                // Whatever asks again would wait for as long, and then fail, too.
                Err(error) => return Err(error.into()),
            },
        };
        Ok(meta.map(|meta| Self { meta, at }))
    }

    /// The schema of the file, whose footer is in the cache.
    pub(super) async fn schema(
        &self,
        session: &dyn Session,
        format: &dyn FileFormat,
        url: &ListingTableUrl,
    ) -> Result<SchemaRef> {
        let store = session.runtime_env().object_store(url)?;
        format.infer_schema(session, &store, std::slice::from_ref(&self.meta)).await
    }

    /// Plans a scan like [`ListingTable`], but without requesting the file's metadata.
    /// `None` if what was found is not reliable any more.
    ///
    /// # Errors
    /// If the scan cannot be planned.
    pub(super) async fn scan(
        &self,
        listed: &ListingTable,
        session: &dyn Session,
        args: &ScanArgs<'_>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let (url, meta) = (&listed.table_paths()[0], &self.meta);
        let store = session.runtime_env().object_store(url)?;
        // Writing the file in this process removes its footer from the cache.
        let resources = SessionResources::new(session.runtime_env(), session.config());
        let format = listed.options().format.downcast_ref::<VortexFormat>();
        let Some(format) = format.filter(|_| self.counts() && resources.has_footer(&store, meta)) else {
            return Ok(None);
        };
        let schema = listed.schema();
        let collects = session.config().collect_statistics();
        let mut file = PartitionedFile::new_from_meta(meta.clone());
        if collects {
            let known = format.infer_stats_and_ordering(session, &store, Arc::clone(&schema), meta).await?;
            file = file.with_statistics(Arc::new(known.statistics)).with_ordering(known.ordering);
        } else {
            file = file.with_statistics(Arc::new(Statistics::new_unknown(&schema)));
        }
        let files = vec![FileGroup::new(vec![file])];
        let (files, statistics) = compute_all_files_statistics(files, Arc::clone(&schema), collects, false)?;
        let order = listed.try_create_output_ordering(session.execution_props(), &files)?;
        let scan = scan_of(url.object_store(), &schema)
            .with_file_groups(files)
            .with_constraints(listed.constraints().cloned().unwrap_or_default())
            .with_statistics(statistics)
            .with_output_ordering(order);
        let projection = args.projection().map(<[usize]>::to_vec);
        format.plan_rows(session, scan, projection, args.limit()).map(Some)
    }

    /// Whether this is still reliable: it was found a moment ago, and reads fail if the file has changed
    /// since.
    fn counts(&self) -> bool {
        let is_told_apart = self.meta.e_tag.is_some() || self.meta.version.is_some();
        is_told_apart && self.at.elapsed() < MOMENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_counts_for_a_moment_if_reads_tell_that_it_changed() {
        let found = |e_tag: Option<&str>, version: Option<&str>, age: Duration| Found {
            meta: ObjectMeta {
                location: "a.vortex".into(),
                last_modified: Default::default(),
                size: 10,
                e_tag: e_tag.map(str::to_owned),
                version: version.map(str::to_owned),
            },
            at: Instant::now() - age,
        };
        assert!(found(Some("1"), None, Duration::ZERO).counts());
        assert!(found(None, Some("1"), Duration::ZERO).counts());
        assert!(!found(None, None, Duration::ZERO).counts(), "reads do not check the modification time");
        assert!(!found(Some("1"), Some("1"), MOMENT).counts());
    }
}
