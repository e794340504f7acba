//! Scans of selected rows of files, as table formats plan them.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::ScalarValue;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::prelude::SessionContext;
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutPayload};
use test_store::TestStore;
use vortex_core::VortexFile;
use vortex_datafusion::{RowSelection, VortexSource};

use crate::counting::over;
use crate::files::{file, numbers, session};

/// The order keys and the partition values of the rows of some files.
async fn scan(files: Vec<PartitionedFile>) -> Vec<(i64, i64)> {
    let groups = files.into_iter().map(|file| vec![file].into()).collect();
    scan_of(&session(), ObjectStoreUrl::local_filesystem(), groups).await
}

async fn scan_of(context: &SessionContext, store: ObjectStoreUrl, groups: Vec<FileGroup>) -> Vec<(i64, i64)> {
    let path = file("tpch_orders");
    let schema = VortexFile::open_path(&path).await.unwrap().schema().unwrap();
    let part = Arc::new(Field::new("part", DataType::Int64, false));
    let table = TableSchema::builder(schema).with_table_partition_cols(vec![part]).build();
    let last = table.table_schema().fields().len() - 1;
    let source = VortexSource::new(table).with_session(&context.state());
    let config = FileScanConfigBuilder::new(store, Arc::new(source))
        .with_file_groups(groups)
        .with_projection_indices(Some(vec![0, last]))
        .unwrap()
        .build();
    let plan = DataSourceExec::from_data_source(config);
    let batches = datafusion::physical_plan::collect(plan, context.task_ctx()).await.unwrap();
    let rows = batches.iter().flat_map(|batch| numbers(batch, 0).into_iter().zip(numbers(batch, 1)));
    let mut rows: Vec<_> = rows.collect();
    rows.sort_unstable();
    rows
}

fn part(value: i64) -> PartitionedFile {
    let path = file("tpch_orders");
    let size = path.metadata().unwrap().len();
    let path = path.canonicalize().unwrap();
    PartitionedFile::new(path.to_str().unwrap(), size).with_partition_values(vec![ScalarValue::from(value)])
}

#[tokio::test]
async fn only_selected_rows_are_read() {
    let all = scan(vec![part(1)]).await;
    assert_eq!(all.len(), 1500);
    let only = scan(vec![part(1).with_extension(RowSelection::only([0, 7, 1499]).unwrap())]).await;
    assert_eq!(only, [all[0], all[7], all[1499]]);
    let except = scan(vec![part(1).with_extension(RowSelection::except([0, 7, 1499]).unwrap())]).await;
    assert_eq!(except.len(), 1497);
    assert!(only.iter().all(|row| !except.contains(row)));
}

#[tokio::test]
async fn one_file_in_two_places_keeps_them_apart() {
    let rows = scan(vec![part(1).with_extension(RowSelection::only([3]).unwrap()), part(2)]).await;
    assert_eq!(rows.len(), 1501);
    assert_eq!(rows.iter().filter(|(_, part)| *part == 1).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_file_in_two_places_is_read_once_for_each() {
    let bytes = std::fs::read(file("tpch_orders")).unwrap();
    let size = bytes.len() as u64;
    let store = TestStore::new();
    store.put(&Path::from("a.vortex"), PutPayload::from(bytes)).await.unwrap();
    let context = over(&store, None);
    let part = |value: i64| {
        PartitionedFile::new("a.vortex", size).with_partition_values(vec![ScalarValue::from(value)])
    };
    // One partition, so that whatever is behind the first file is opened early.
    let group = vec![part(1), part(2).with_extension(RowSelection::only([3, 4]).unwrap()), part(3)];
    let url = ObjectStoreUrl::parse("counting://store").unwrap();
    let rows = scan_of(&context, url, vec![group.into()]).await;
    let of = |wanted: i64| rows.iter().filter(|(_, part)| *part == wanted).count();
    assert_eq!([of(1), of(2), of(3)], [1500, 2, 1500]);
}
