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

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{Field, SchemaRef};
use async_trait::async_trait;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::execution::session_state::SessionState;
use datafusion_catalog::TableProviderFactory;
use datafusion_common::{Result, plan_datafusion_err, plan_err};
use datafusion_expr::{CreateExternalTable, Expr};
use datafusion_session::{Session, TableProvider};

use super::folders::{FolderColumns, dictionary_of_names, folders_of_files, unquoted};
use super::listed::ListedTable;
use super::one_file::Found;
use super::places::{IN_FOLDER, check_place, if_folder, if_new_folder, listing_url, visible_files};
use crate::convert::schema::{merge, with_nullable_fields, without};
use crate::format::EXTENSION;
use crate::reading::listings::Listings;

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
        let urls = table.locations.iter().map(|location| listing_url(location));
        let folders = table.table_partition_cols.iter().map(|name| unquoted(name).into_owned()).collect();
        let table = CreateExternalTable { table_partition_cols: folders, ..table.clone() };
        listed_table(session, &table, urls.collect::<Result<_>>()?).await
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
    let format = session
        .as_any()
        .downcast_ref::<SessionState>()
        .and_then(|state| state.get_file_format_factory(EXTENSION))
        .ok_or_else(|| plan_datafusion_err!("the session does not know Vortex files"))?
        .create(session, &table.options)?;
    let declares_columns = declares_columns(table);
    let found = match urls.as_slice() {
        [url] if !declares_columns => Found::at(session, format.as_ref(), url).await?,
        _ => None,
    };
    let mut places = Vec::with_capacity(urls.len());
    for url in urls {
        let url = if declares_columns { if_new_folder(url, session).await? } else { url };
        let url = if found.is_none() { visible_files(if_folder(url, session).await?)? } else { url };
        places.push(url.with_table_ref(table.name.clone()));
    }
    check_together(&places)?;
    if found.is_none() {
        for place in &places {
            check_place(place, session, true).await?;
        }
    }
    // Files that are named may be called anything. A pattern is compared with the names of subfolders, but not with
    // those of what they contain.
    let extension = if places.iter().all(lists_vortex) { format!(".{EXTENSION}") } else { String::new() };
    let options = ListingOptions::new(format)
        .with_file_extension(extension)
        .with_file_sort_order(table.order_exprs.clone());
    let folders = folders_of(session, table, declares_columns, &places, &options).await?;
    let options = folders.added_to(options);
    let schema = match &found {
        Some(found) => found.schema(session, options.format.as_ref(), &places[0]).await?,
        None if declares_columns => without(table.schema.inner(), |name| names_folders(table, name)),
        None => schema_of_files(session, table, &places, &options).await?,
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
        ListingTableConfig::new_with_multi_paths(places).with_listing_options(options).with_schema(schema);
    let listed = ListingTable::try_new(config)?
        .with_definition(table.definition.clone())
        .with_constraints(table.constraints.clone())
        .with_column_defaults(column_defaults(table));
    Ok(ListedTable::provider(listed, found, !folders.are_usual))
}

/// The declaration of the column that folders are named after. Names of folders are as they were written, those of
/// columns in lower case unless they were quoted.
fn declaration<'a>(table: &'a CreateExternalTable, folder: &str) -> Option<&'a Field> {
    let columns = table.schema.inner();
    let declared = columns.field_with_name(folder);
    declared.or_else(|_| columns.field_with_name(&folder.to_lowercase())).ok()
}

/// What columns have by default, by the names of folders for those that folders are named after.
fn column_defaults(table: &CreateExternalTable) -> HashMap<String, Expr> {
    let mut defaults = table.column_defaults.clone();
    for folder in &table.table_partition_cols {
        let declared = declaration(table, folder).and_then(|column| defaults.remove(column.name()));
        defaults.extend(declared.map(|default| (folder.clone(), default)));
    }
    defaults
}

/// Whether columns of the files are declared: partition columns with a type are among those that a statement declares.
fn declares_columns(table: &CreateExternalTable) -> bool {
    table.schema.fields().iter().any(|field| !names_folders(table, field.name()))
}

/// Whether a declared column is one that folders are named after.
fn names_folders(table: &CreateExternalTable, column: &str) -> bool {
    let mut declared = table.table_partition_cols.iter().filter_map(|folder| declaration(table, folder));
    declared.any(|field| field.name() == column)
}

/// The columns that folders name: those that are declared or, if no columns are, those that the names of folders state.
async fn folders_of(
    session: &dyn Session,
    table: &CreateExternalTable,
    declares_columns: bool,
    urls: &[ListingTableUrl],
    options: &ListingOptions,
) -> Result<FolderColumns> {
    let infers = session.config_options().execution.listing_table_factory_infer_partitions;
    if table.table_partition_cols.is_empty() && infers && !declares_columns {
        return FolderColumns::inferred(session, urls, options).await;
    }
    let columns = table.table_partition_cols.iter().map(|name| {
        let data_type = match declaration(table, name) {
            Some(field) => field.data_type().clone(),
            None if declares_columns => {
                return plan_err!("PARTITIONED BY names {name}, which is not among the columns");
            }
            None => dictionary_of_names(),
        };
        Ok((name.clone(), data_type))
    });
    FolderColumns::declared(session, urls, options, columns.collect::<Result<_>>()?).await
}

/// The columns that the files of all places contain.
async fn schema_of_files(
    session: &dyn Session,
    table: &CreateExternalTable,
    urls: &[ListingTableUrl],
    options: &ListingOptions,
) -> Result<SchemaRef> {
    let mut schemas = Vec::with_capacity(urls.len());
    Listings::of(&session.runtime_env().cache_manager).make(session, urls).await?;
    for url in urls {
        // Of several places, some may have no files yet.
        if urls.len() > 1 && folders_of_files(session, url, options).await?.is_empty() {
            continue;
        }
        let schema = options.infer_schema(session, url).await.map_err(|error| {
            if table.schema.fields().is_empty() {
                error
            } else {
                error.context("only columns of folders are declared, and those of the files unknown")
            }
        })?;
        schemas.push((url.to_string(), schema));
    }
    match schemas.as_slice() {
        [] => plan_err!("No files found at any of the places; declare the columns of the table"),
        [(_, only)] => Ok(Arc::clone(only)),
        _ => merge(&schemas).map(|merged| Arc::new(with_nullable_fields(&merged))),
    }
}
