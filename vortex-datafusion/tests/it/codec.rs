//! Serialized plans: after a round trip, plans and answers are the same.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr_adapter::DefaultPhysicalExprAdapterFactory;
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion_proto::bytes::{
    physical_plan_from_bytes_with_extension_codec, physical_plan_to_bytes_with_extension_codec,
};
use datafusion_proto::physical_plan::{DefaultPhysicalProtoConverter, PhysicalExtensionCodec as _};
use futures::TryStreamExt as _;
use vortex_core::VortexFile;
use vortex_core::io::{LocalFile, ReadAt};
use vortex_datafusion::{RowSelection, VortexCodec, VortexSource, VortexTable};

use crate::files::{copy, create, file, folder_of, physical, run, session};

fn there_and_back(plan: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let bytes = physical_plan_to_bytes_with_extension_codec(Arc::clone(plan), &VortexCodec).unwrap();
    physical_plan_from_bytes_with_extension_codec(&bytes, &session().task_ctx(), &VortexCodec).unwrap()
}

fn drawn(plan: &Arc<dyn ExecutionPlan>) -> String {
    displayable(plan.as_ref()).indent(false).to_string()
}

async fn answer(plan: Arc<dyn ExecutionPlan>) -> String {
    let batches = collect(plan, session().task_ctx()).await.unwrap();
    pretty_format_batches(&batches).unwrap().to_string()
}

#[tokio::test]
async fn scans_come_back_with_filters_projections_limits_and_options() {
    let path = file("tpch_lineitem");
    let context = session();
    run(&context, "SET vortex.string_type = 'utf8'").await;
    create(&context, "t", path.display()).await;
    for sql in [
        "SELECT l_orderkey, l_comment FROM t WHERE l_quantity > 45 AND l_orderkey % 3 = 1 ORDER BY 1, 2",
        "SELECT l_orderkey + 1 AS next, 7 AS seven FROM t WHERE l_shipmode IN ('AIR', 'RAIL') ORDER BY 1 LIMIT 20",
        "SELECT count(*) FROM t WHERE upper(l_shipmode) = 'AIR'",
        "SELECT count(l_comment) FROM t LIMIT 5",
        "SELECT l_orderkey, l_extendedprice FROM t ORDER BY 2 DESC, 1 LIMIT 7",
        "SELECT count(*), count(l_comment), sum(l_linenumber), avg(l_orderkey), max(l_shipdate) FROM t WHERE l_orderkey > 700",
        "SELECT count(*) FROM t JOIN (SELECT l_orderkey AS k FROM t ORDER BY 1 LIMIT 9) ON l_orderkey = k",
    ] {
        let plan = physical(&context, sql).await;
        let back = there_and_back(&plan);
        assert_eq!(drawn(&back), drawn(&plan), "{sql}");
        assert_eq!(back.schema(), plan.schema());
        assert_eq!(answer(back).await, answer(plan).await, "{sql}");
    }
}

#[tokio::test]
async fn groups_found_by_codes_come_back() {
    let (context, folder) = (session(), tempfile::tempdir().unwrap());
    let place = folder.path().display();
    run(&context, "SET vortex.write_memory = 1048576").await;
    for p in ["x", "y"] {
        let rows = "SELECT value AS n, 'text ' || (value % 7) AS text, value % 5 AS few FROM generate_series(1, 40000)";
        copy(&context, rows, format!("{place}/p={p}/a.vortex")).await;
    }
    create(&context, "t PARTITIONED BY (p)", format!("{place}/")).await;
    for partitions in [1, 3] {
        run(&context, &format!("SET datafusion.execution.target_partitions = {partitions}")).await;
        for sql in [
            "SELECT few, count(*) FROM t GROUP BY few ORDER BY few",
            "SELECT text, few, avg(n), sum(n) FILTER (WHERE n % 3 = 1) FROM t WHERE n > 70 GROUP BY 1, 2 ORDER BY 1, 2",
            "SELECT p, text, max(n) FROM t GROUP BY p, text ORDER BY p, text",
        ] {
            let plan = physical(&context, sql).await;
            assert!(drawn(&plan).contains("CodedAggregateExec"), "{}", drawn(&plan));
            let back = there_and_back(&plan);
            assert_eq!(drawn(&back), drawn(&plan), "{sql}");
            assert_eq!(answer(back).await, answer(plan).await, "{sql}");
        }
    }
}

#[tokio::test]
async fn partitioned_tables_come_back() {
    let path = file("tpch_orders");
    let folder = folder_of(&[(&path, "day=1/a.vortex"), (&path, "day=2/a.vortex")]);
    let context = session();
    create(&context, "t PARTITIONED BY (day)", folder.path().join("").display()).await;
    let sql = "SELECT day, sum(o_custkey) FROM t WHERE o_orderkey > 10 AND (day = '2' OR o_custkey < 9) GROUP BY 1 ORDER BY 1";
    let plan = physical(&context, sql).await;
    assert_eq!(answer(there_and_back(&plan)).await, answer(plan).await);
}

#[tokio::test]
async fn selected_rows_come_back() {
    let (path, context) = (file("tpch_orders"), session());
    create(&context, "t", path.display()).await;
    let plan = physical(&context, "SELECT o_orderkey FROM t").await;
    for (selection, count) in [
        (RowSelection::only([0, 7, 1499]), 3),
        (RowSelection::except([0, 7]), 1498),
        (RowSelection::only([]), 0),
    ] {
        let mut config = scan(&plan).clone();
        let file = PartitionedFile::from(config.file_groups[0][0].object_meta.clone());
        config.file_groups = vec![FileGroup::new(vec![file.with_extension(selection.unwrap())])];
        let selected = DataSourceExec::from_data_source(config) as Arc<dyn ExecutionPlan>;
        let rows = collect(there_and_back(&selected), context.task_ctx()).await.unwrap();
        assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), count);
        assert_eq!(answer(there_and_back(&selected)).await, answer(selected).await);
    }
}

/// The scan below operators that have one input.
fn scan(plan: &Arc<dyn ExecutionPlan>) -> &FileScanConfig {
    match plan.downcast_ref::<DataSourceExec>() {
        Some(exec) => exec.downcast_to_file_source::<VortexSource>().unwrap().0,
        None => scan(plan.children()[0]),
    }
}

#[tokio::test]
async fn files_come_back_in_the_versions_that_were_planned() {
    let path = file("tpch_orders");
    let folder = folder_of(&[(&path, "a.vortex"), (&path, "b.vortex"), (&path, "c.vortex")]);
    let sql = format!("SELECT o_orderkey FROM '{}/'", folder.path().display());
    let plan = physical(&session(), &sql).await;
    let back = there_and_back(&plan);
    let described = |plan| {
        let files = scan(plan).file_groups.iter().flat_map(|group| group.iter());
        files.map(|file| file.object_meta.clone()).collect::<Vec<_>>()
    };
    let files = described(&plan);
    assert!(files.len() >= 3 && files.iter().all(|file| file.e_tag.is_some()), "{files:?}");
    assert_eq!(described(&back), files);
}

#[tokio::test]
async fn copies_of_a_plan_that_run_a_partition_each_read_every_row_once() {
    let path = file("tpch_orders");
    let names = ["a.vortex", "b.vortex", "c.vortex", "d.vortex"];
    let folder = folder_of(&names.map(|name| (path.as_path(), name)));
    for limit in ["", " WHERE o_orderkey > 0 LIMIT 7000"] {
        let context = session();
        let sql = format!("SELECT o_orderkey FROM '{}/'{limit}", folder.path().display());
        let plan = physical(&context, &sql).await;
        let scan = below_limits(&plan);
        let partitions = scan.properties().output_partitioning().partition_count();
        assert_eq!(partitions, 4);
        let mut counts = Vec::new();
        for partition in 0..partitions {
            // Each in a process of its own, where nobody else takes files.
            let rows = there_and_back(scan).execute(partition, session().task_ctx()).unwrap();
            let rows: Vec<RecordBatch> = rows.try_collect().await.unwrap();
            counts.push(rows.iter().map(RecordBatch::num_rows).sum::<usize>());
        }
        assert_eq!(counts.iter().sum::<usize>(), 6000, "{sql}: {counts:?}");
    }
}

/// The scan below operators that have one input.
fn below_limits(plan: &Arc<dyn ExecutionPlan>) -> &Arc<dyn ExecutionPlan> {
    match plan.children()[..] {
        [input] => below_limits(input),
        _ => plan,
    }
}

#[tokio::test]
async fn bytes_of_others_are_no_plan() {
    let plan =
        physical(&session(), &format!("SELECT o_orderkey FROM '{}'", file("tpch_orders").display())).await;
    let mut bytes = Vec::new();
    let converter = DefaultPhysicalProtoConverter {};
    VortexCodec.try_encode(Arc::clone(&plan), &mut bytes, &converter).unwrap();
    let task = session().task_ctx();
    let decoded = |bytes: &[u8]| VortexCodec.try_decode(bytes, &[], &task, &converter);
    assert!(decoded(&bytes).is_ok());
    for (bytes, complaint) in
        [(&b"ballista"[..], "not a plan node"), (&[&bytes[..18], &[0xff; 9]].concat(), "damaged plan node")]
    {
        let error = decoded(bytes).unwrap_err().to_string();
        assert!(error.contains(complaint) && !error.contains("bug in DataFusion"), "{error}");
    }
}

#[tokio::test]
async fn writes_come_back() {
    let path = file("tpch_orders");
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("copy.vortex");
    let context = session();
    let copy = format!(
        "COPY (SELECT * FROM '{}' ORDER BY o_custkey DESC) TO '{}' OPTIONS (level 'fast', 'metadata::a' 'b',
         'level::o_orderkey' 'compact')",
        path.display(),
        target.display()
    );
    let plan = physical(&context, &copy).await;
    let back = there_and_back(&plan);
    assert_eq!(drawn(&back), drawn(&plan));
    assert!(answer(back).await.contains("| 1500  |"));
    let first = format!("SELECT o_custkey FROM '{}' LIMIT 1", target.display());
    let largest = format!("SELECT max(o_custkey) AS o_custkey FROM '{}'", path.display());
    assert_eq!(run(&context, &first).await.column(0), run(&context, &largest).await.column(0));
    let written = VortexFile::open_path(&target).await.unwrap();
    assert_eq!(written.user_metadata("a").await.unwrap().unwrap(), "b");
    let mut slow = Vec::new();
    for at in 0..9 {
        let layout = written.footer().column_layout(at).unwrap();
        for segment in layout.segments() {
            let encodings = written.array_encodings(segment).await.unwrap();
            slow.extend(
                encodings.into_iter().map(|(_, id)| (at, id)).filter(|(_, id)| **id == *"vortex.pco"),
            );
        }
    }
    assert!(!slow.is_empty() && slow.iter().all(|(at, _)| *at == 0), "{slow:?}");
}

#[tokio::test]
async fn what_is_only_in_this_process_has_no_bytes() {
    let path = file("tpch_orders");
    let context = session();
    let source: Arc<dyn ReadAt> = Arc::new(LocalFile::open(&path).unwrap());
    context.register_table("t", Arc::new(VortexTable::open([source]).await.unwrap())).unwrap();
    let plan = physical(&context, "SELECT o_orderkey FROM t").await;
    let error = physical_plan_to_bytes_with_extension_codec(plan, &VortexCodec).unwrap_err().to_string();
    assert!(error.contains("tpch_orders.vortex"), "{error}");
    let plan = physical(&context, &format!("SELECT o_orderkey FROM '{}'", path.display())).await;
    let adapter = Arc::new(DefaultPhysicalExprAdapterFactory);
    let adapted = FileScanConfigBuilder::from(scan(&plan).clone()).with_expr_adapter(Some(adapter)).build();
    let plan = DataSourceExec::from_data_source(adapted);
    let error = physical_plan_to_bytes_with_extension_codec(plan, &VortexCodec).unwrap_err().to_string();
    assert!(error.contains("adapter"), "{error}");
}

#[tokio::test]
async fn scans_that_compute_with_the_result_of_a_subquery_are_refused() {
    let context = session();
    create(&context, "t", file("tpch_lineitem").display()).await;
    for sql in [
        "SELECT count(*) FROM t WHERE l_orderkey > (SELECT avg(l_orderkey) FROM t)",
        "SELECT l_orderkey - (SELECT avg(l_orderkey) FROM t) FROM t",
    ] {
        let plan = physical(&context, sql).await;
        let bytes = physical_plan_to_bytes_with_extension_codec(plan, &VortexCodec);
        let refused = bytes.unwrap_err().to_string();
        assert!(refused.contains("the result of a subquery cannot be serialized"), "{sql}: {refused}");
    }
}

#[tokio::test]
async fn projections_come_back_even_if_none_are_pushed_down() {
    let path = file("tpch_orders");
    let context = session();
    run(&context, "SET vortex.projection_pushdown = false").await;
    create(&context, "t", path.display()).await;
    let sql = "SELECT o_orderkey + 1 AS next, file_row_index() AS at FROM t ORDER BY 1 LIMIT 3";
    let plan = physical(&context, sql).await;
    let back = there_and_back(&plan);
    assert_eq!((drawn(&back), back.schema()), (drawn(&plan), plan.schema()));
    assert_eq!(answer(back).await, answer(plan).await);
}
