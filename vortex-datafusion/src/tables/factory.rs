//! `CREATE EXTERNAL TABLE … STORED AS VORTEX`.
//!
//! ```text
//! a file       one read of its end
//! a folder     the visible files in it that end in .vortex, and those in folders below it named key=value
//! a pattern    a folder whose file names are matched against it, in a URL, too
//! several      each of them, in one store
//! ```
//!
//! DataFusion's own factory takes the names of some folders for patterns, reads everything in a folder if columns are
//! declared, and asks for the metadata of a file three times.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use async_trait::async_trait;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::execution::session_state::SessionState;
use datafusion_catalog::TableProviderFactory;
use datafusion_common::{Result, plan_datafusion_err, plan_err};
use datafusion_expr::CreateExternalTable;
use datafusion_session::{Session, TableProvider};
use futures::TryStreamExt as _;

use super::one_file::{Found, OneFile};
use super::places::{check_place, if_folder, listing_url};
use crate::convert::schema::merge;
use crate::format::EXTENSION;

/// The names of the files that a folder contains; with [`EXTENSION`].
const IN_FOLDER: &str = "[!._]*.vortex";

/// Creates tables of files.
#[derive(Debug, Default)]
pub(crate) struct VortexTableFactory;

#[async_trait]
impl TableProviderFactory for VortexTableFactory {
    async fn create(
        &self,
        session: &dyn Session,
        table: &CreateExternalTable,
    ) -> Result<Arc<dyn TableProvider>> {
        if table.unbounded {
            return plan_err!(
                "{}: Vortex files have an end, so a table of them cannot be unbounded",
                table.name
            );
        }
        let mut urls = Vec::with_capacity(table.locations.len());
        for location in &table.locations {
            urls.push(files_at(session, location).await?);
        }
        listed_table(session, table, urls).await
    }
}

/// The Vortex files at a place. Of a folder, not those that are hidden: whose names begin with `.` or `_`, as in Hive and
/// Spark.
async fn files_at(session: &dyn Session, place: &str) -> Result<ListingTableUrl> {
    let url = if_folder(listing_url(place)?, session).await?;
    // Names of folders like `_key=value` are not compared with it.
    match url.is_collection() && url.get_glob().is_none() {
        true => url.with_glob(IN_FOLDER),
        false => Ok(url),
    }
}

/// Whether the table contains whatever Vortex files there are in a folder.
fn lists_vortex(url: &ListingTableUrl) -> bool {
    url.get_glob().as_ref().is_some_and(|glob| glob.as_str() == IN_FOLDER)
}

/// Refuses places that a table cannot have together: it reads all of them from one store, each once.
fn check_together(urls: &[ListingTableUrl]) -> Result<()> {
    let Some((first, others)) = urls.split_first() else { return plan_err!("a table needs a location") };
    for (at, url) in others.iter().enumerate() {
        if url.object_store() != first.object_store() {
            return plan_err!(
                "{first} and {url} are in different stores; create a table for each, and a view of both"
            );
        }
        if urls[..=at].contains(url) {
            return plan_err!("{url} is named twice");
        }
    }
    Ok(())
}

async fn listed_table(
    session: &dyn Session,
    table: &CreateExternalTable,
    urls: Vec<ListingTableUrl>,
) -> Result<Arc<dyn TableProvider>> {
    check_together(&urls)?;
    let urls: Vec<_> = urls.into_iter().map(|url| url.with_table_ref(table.name.clone())).collect();
    let format = session
        .as_any()
        .downcast_ref::<SessionState>()
        .and_then(|state| state.get_file_format_factory(EXTENSION))
        .ok_or_else(|| plan_datafusion_err!("the session does not know Vortex files"))?
        .create(session, &table.options)?;
    let found = match urls.as_slice() {
        [url] if !declares_columns(table) => Found::at(session, format.as_ref(), url).await?,
        _ => None,
    };
    if found.is_none() {
        for url in &urls {
            check_place(url, session, true).await?;
        }
    }
    // Files that are named may be called anything. A pattern is compared with the names of subfolders, but not with those
    // of what they contain.
    let extension = if urls.iter().all(lists_vortex) { format!(".{EXTENSION}") } else { String::new() };
    let options = ListingOptions::new(format)
        .with_file_extension(extension)
        .with_file_sort_order(table.order_exprs.clone());
    let partitions = partitions_of(session, table, &urls, &options).await?;
    let options = options.with_table_partition_cols(partitions);
    for url in &urls {
        options.validate_partitions(session, url).await?;
    }
    if !options.table_partition_cols.is_empty() {
        check_folders(session, &urls, &options).await?;
    }
    let schema = match &found {
        Some(found) => found.schema(session, options.format.as_ref(), &urls[0]).await?,
        None => stored_schema(session, table, &urls, &options).await?,
    };
    let is_column = |name: &str| {
        schema.index_of(name).is_ok() || options.table_partition_cols.iter().any(|(column, _)| column == name)
    };
    for order in table.order_exprs.iter().flatten() {
        if let Some(column) = order.expr.column_refs().into_iter().find(|at| !is_column(at.name())) {
            return plan_err!("Column {column} is not in schema");
        }
    }
    let config =
        ListingTableConfig::new_with_multi_paths(urls).with_listing_options(options).with_schema(schema);
    let listed = ListingTable::try_new(config)?
        .with_definition(table.definition.clone())
        .with_constraints(table.constraints.clone())
        .with_column_defaults(table.column_defaults.clone());
    Ok(match found {
        Some(found) => Arc::new(OneFile::new(listed, found)),
        None => Arc::new(listed),
    })
}

/// Whether columns of the files are declared: partition columns with a type are among those that a statement declares.
fn declares_columns(table: &CreateExternalTable) -> bool {
    table.schema.fields().iter().any(|field| !table.table_partition_cols.contains(field.name()))
}

/// The partition columns: those that are declared or, if no columns are, those that the names of folders state.
async fn partitions_of(
    session: &dyn Session,
    table: &CreateExternalTable,
    urls: &[ListingTableUrl],
    options: &ListingOptions,
) -> Result<Vec<(String, DataType)>> {
    let mut names = table.table_partition_cols.clone();
    let infers = session.config_options().execution.listing_table_factory_infer_partitions;
    if names.is_empty() && !declares_columns(table) && infers {
        names = inferred_partitions(session, urls, options).await?;
    }
    let declared = table.schema.inner();
    let column_type = |name: String| match declared.field_with_name(&name) {
        Ok(field) => Ok((name, field.data_type().clone())),
        Err(_) if declares_columns(table) => {
            plan_err!("PARTITIONED BY names {name}, which is not among the columns")
        }
        Err(_) => Ok((name, dictionary_of_names())),
    };
    names.into_iter().map(column_type).collect()
}

/// The partition columns that the names of folders state, which must be the same at each place: DataFusion leaves out
/// files whose paths lack some of the columns of a table.
async fn inferred_partitions(
    session: &dyn Session,
    urls: &[ListingTableUrl],
    options: &ListingOptions,
) -> Result<Vec<String>> {
    let mut first: Option<(&ListingTableUrl, Vec<String>)> = None;
    for url in urls {
        let names = match url.is_collection() {
            true => options.infer_partitions(session, url).await?,
            false => Vec::new(),
        };
        match &first {
            None => first = Some((url, names)),
            Some((_, same)) if *same == names => {}
            Some((other, others)) => {
                return plan_err!(
                    "the folders of {other} name the columns {others:?}, those of {url} {names:?}; create a table for \
                     each, and a view of both"
                );
            }
        }
    }
    Ok(first.map(|(_, names)| names).unwrap_or_default())
}

/// Refuses places of which all files are in folders without names of columns: DataFusion leaves them out, so that the
/// table would be empty.
async fn check_folders(
    session: &dyn Session,
    urls: &[ListingTableUrl],
    options: &ListingOptions,
) -> Result<()> {
    for url in urls {
        if !options.infer_partitions(session, url).await?.is_empty() {
            continue;
        }
        let store = session.runtime_env().object_store(url)?;
        let mut files = url.list_all_files(session, store.as_ref(), &options.file_extension).await?;
        if let Some(file) = files.try_next().await? {
            let column = &options.table_partition_cols[0].0;
            return plan_err!("{url}: {} is not in a folder named {column}=…", file.location);
        }
    }
    Ok(())
}

/// The columns that files contain: those that are declared, without partition columns, or else those of the files.
async fn stored_schema(
    session: &dyn Session,
    table: &CreateExternalTable,
    urls: &[ListingTableUrl],
    options: &ListingOptions,
) -> Result<SchemaRef> {
    let is_partition = |name: &str| options.table_partition_cols.iter().any(|(column, _)| column == name);
    if !declares_columns(table) {
        let mut schemas = Vec::with_capacity(urls.len());
        for url in urls {
            schemas.push((url.to_string(), options.infer_schema(session, url).await?));
        }
        return match schemas.as_slice() {
            [(_, only)] => without(only, is_partition),
            _ => without(&Arc::new(merge(&schemas)?), is_partition),
        };
    }
    without(table.schema.inner(), is_partition)
}

/// The fields without those that `leaves_out`: the names of folders give their columns, whether files contain them as
/// well or not, as in Hive and Spark.
pub(super) fn without(schema: &SchemaRef, leaves_out: impl Fn(&str) -> bool) -> Result<SchemaRef> {
    let kept: Vec<usize> =
        (0..schema.fields().len()).filter(|at| !leaves_out(schema.field(*at).name())).collect();
    match kept.len() == schema.fields().len() {
        true => Ok(Arc::clone(schema)),
        false => Ok(Arc::new(schema.project(&kept)?)),
    }
}

/// The type of partition columns that are not declared, as in DataFusion.
fn dictionary_of_names() -> DataType {
    DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8))
}
