//! The order of files in a plan: that in which they were given. DataFusion orders them by path.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult as _, TreeNode as _};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use object_store::path::Path;

use super::find::Found;

/// The plan with the files of its scans in the order of `files`. Scans that change have no order of rows.
pub(super) fn in_given_order(
    plan: Arc<dyn ExecutionPlan>,
    files: &[Found],
) -> Result<Arc<dyn ExecutionPlan>> {
    let places: HashMap<&Path, usize> =
        files.iter().enumerate().map(|(at, file)| (&file.meta.location, at)).collect();
    let place = |file: &PartitionedFile| places.get(&file.object_meta.location).copied();
    plan.transform_up(|node| {
        let config = node.downcast_ref::<DataSourceExec>();
        let config = config.and_then(|exec| exec.data_source().downcast_ref::<FileScanConfig>());
        let Some(config) = config else { return Ok(Transformed::no(node)) };
        if config.file_groups.iter().all(|group| group.files().is_sorted_by_key(place)) {
            return Ok(Transformed::no(node));
        }
        let groups = config.file_groups.iter().map(|group| {
            let mut files = group.files().to_vec();
            files.sort_by_key(place);
            FileGroup::new(files)
        });
        let config = FileScanConfigBuilder::from(config.clone())
            .with_file_groups(groups.collect())
            .with_output_ordering(Vec::new());
        Ok(Transformed::yes(DataSourceExec::from_data_source(config.build()) as _))
    })
    .data()
}
