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

/// The plan with the files of its scans, or the parts of them, in the order of `files`, one partition after the other.
/// Scans keep the order of rows; those that change have none that is known.
pub(super) fn in_given_order(
    plan: Arc<dyn ExecutionPlan>,
    files: &[Found],
) -> Result<Arc<dyn ExecutionPlan>> {
    let places: HashMap<&Path, usize> =
        files.iter().enumerate().map(|(at, file)| (&file.meta.location, at)).collect();
    let place = |file: &PartitionedFile| {
        let start = file.range.as_ref().map(|range| range.start);
        (places.get(&file.object_meta.location).copied(), start)
    };
    plan.transform_up(|node| {
        let config = node.downcast_ref::<DataSourceExec>();
        let config = config.and_then(|exec| exec.data_source().downcast_ref::<FileScanConfig>());
        let Some(config) = config else { return Ok(Transformed::no(node)) };
        let mut files: Vec<_> = config.file_groups.iter().flat_map(FileGroup::iter).cloned().collect();
        let mut ordered = FileScanConfigBuilder::from(config.clone()).with_preserve_order(true);
        if !files.is_sorted_by_key(place) {
            files.sort_by_key(place);
            let mut files = files.into_iter();
            let groups = config.file_groups.iter().map(|group| files.by_ref().take(group.len()).collect());
            ordered = ordered
                .with_file_groups(groups.map(FileGroup::new).collect())
                .with_output_ordering(Vec::new());
        }
        Ok(Transformed::yes(DataSourceExec::from_data_source(ordered.build()) as _))
    })
    .data()
}
