//! Copies of tables as folders of several files, each with a recorded order.

use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::{concat_batches, partition};
use datafusion::common::Result;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::Expr;
use datafusion::prelude::{SessionConfig, SessionContext};
use vortex_datafusion::{VortexContextExt as _, VortexDataFrameExt as _, VortexWriteOptions};

use crate::Places;

/// The files of a folder.
const FILES: usize = 4;
/// The most columns that determine an order.
const KEYS: usize = 3;

/// Replaces the golden files and large tables that a statement names by folders with the same rows, in order:
///
/// ```text
/// {files}/0.91.0/strings.vortex   ->   {tables}/sorted/0.91.0/strings.vortex/   0.vortex  1.vortex  2.vortex  3.vortex
/// ```
///
/// # Errors
/// If a file cannot be read, or a folder not be written.
pub(crate) async fn replaced(sql: &str, places: &Places) -> Result<String> {
    let mut sql = sql.to_owned();
    for root in [format!("'{}/", places.files), format!("'{}/large/", places.tables)] {
        let names: Vec<String> = sql.split(&root).skip(1).filter_map(file_name).collect();
        for name in names {
            let (file, folder) =
                (format!("{}{name}", &root[1..]), format!("{}/sorted/{name}/", places.tables));
            if Path::new(&file).is_file() && !Path::new(&folder).exists() {
                write_in_order(&file, &folder).await?;
            }
            if Path::new(&folder).exists() {
                sql = sql.replace(&format!("'{file}'"), &format!("'{folder}'"));
            }
        }
    }
    Ok(sql)
}

/// What precedes the next quote, if it is a file.
fn file_name(text: &str) -> Option<String> {
    let (name, _) = text.split_once('\'')?;
    name.ends_with(".vortex").then(|| name.to_owned())
}

/// Writes the rows of a file into several, sorted by the first columns that can be sorted.
async fn write_in_order(file: &str, folder: &str) -> Result<()> {
    let session = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    vortex_datafusion::register(&session)?;
    let rows = sorted(session.read_vortex(file).await?)?;
    let schema = Arc::clone(rows.schema().inner());
    let rows: RecordBatch = concat_batches(&schema, &rows.collect().await?)?;
    std::fs::create_dir_all(folder)?;
    for (at, part) in parts(&rows)?.into_iter().enumerate() {
        let part = sorted(session.read_batch(part)?)?;
        part.write_vortex(&format!("{folder}{at}.vortex"), VortexWriteOptions::new()).await?;
    }
    Ok(())
}

/// Parts of about the same size, cut where the first column changes: DataFusion only recognizes the order of several
/// files if their bounds do not overlap.
fn parts(rows: &RecordBatch) -> Result<Vec<RecordBatch>> {
    let step = rows.num_rows().div_ceil(FILES);
    let (mut parts, mut start) = (Vec::new(), 0);
    for equal in partition(&rows.columns()[..1])?.ranges() {
        if equal.end - start >= step {
            parts.push(rows.slice(start, equal.end - start));
            start = equal.end;
        }
    }
    if start < rows.num_rows() || parts.is_empty() {
        parts.push(rows.slice(start, rows.num_rows() - start));
    }
    Ok(parts)
}

fn sorted(rows: DataFrame) -> Result<DataFrame> {
    let columns = rows.schema().iter().filter(|(_, field)| !field.data_type().is_nested());
    let keys: Vec<_> = columns.take(KEYS).map(|column| Expr::from(column).sort(true, false)).collect();
    if keys.is_empty() { Ok(rows) } else { rows.sort(keys) }
}
