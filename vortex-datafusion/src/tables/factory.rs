//! `CREATE EXTERNAL TABLE … STORED AS VORTEX`.
//!
//! ```text
//! several files, a folder   created by DataFusion
//! one file                  one read of its end
//! a glob in a URL           a folder whose file names are matched against it
//! ```

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use async_trait::async_trait;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::datasource::provider::DefaultTableFactory;
use datafusion::execution::session_state::SessionState;
use datafusion_catalog::TableProviderFactory;
use datafusion_common::{Result, plan_datafusion_err, plan_err};
use datafusion_expr::CreateExternalTable;
use datafusion_session::{Session, TableProvider};

use super::one_file::{Found, OneFile};
use super::places::{check_place, listing_url, split_glob};
use crate::format::EXTENSION;

/// Creates tables of files: those of DataFusion, but also over globs in URLs, and with few requests.
#[derive(Debug, Default)]
pub(crate) struct VortexTableFactory {
    others: DefaultTableFactory,
}

#[async_trait]
impl TableProviderFactory for VortexTableFactory {
    async fn create(
        &self,
        session: &dyn Session,
        table: &CreateExternalTable,
    ) -> Result<Arc<dyn TableProvider>> {
        let has_globs = table.locations.iter().any(|location| split_glob(location).is_some());
        if has_globs && table.locations.len() > 1 {
            return plan_err!("a table with several locations cannot have globs in URLs");
        }
        let urls: Vec<ListingTableUrl> =
            table.locations.iter().map(|location| listing_url(location)).collect::<Result<_>>()?;
        match urls.as_slice() {
            // DataFusion requests the metadata of a file three times: to find partitions, which it cannot have, to
            // read its schema, and to read its statistics, which the scan reads as well.
            [url] if has_globs || !url.is_collection() => listed_table(session, table, url.clone()).await,
            _ => {
                for url in &urls {
                    check_place(url, session, true).await?;
                }
                self.create_other(session, table).await
            }
        }
    }
}

impl VortexTableFactory {
    /// A table as DataFusion creates it, but without its cache for statistics: see `file_statistics.rs`.
    async fn create_other(
        &self,
        session: &dyn Session,
        table: &CreateExternalTable,
    ) -> Result<Arc<dyn TableProvider>> {
        let created = self.others.create(session, table).await?;
        let Some(listed) = created.downcast_ref::<ListingTable>() else { return Ok(created) };
        // Creating the table has filled it.
        if let Some(cache) = session.runtime_env().cache_manager.get_file_statistic_cache() {
            cache.drop_table_entries(&table.name)?;
        }
        Ok(Arc::new(listed.clone().with_cache(None)))
    }
}

/// A table of one file, or of those that a glob matches.
async fn listed_table(
    session: &dyn Session,
    table: &CreateExternalTable,
    url: ListingTableUrl,
) -> Result<Arc<dyn TableProvider>> {
    let url = url.with_table_ref(table.name.clone());
    let format = session
        .as_any()
        .downcast_ref::<SessionState>()
        .and_then(|state| state.get_file_format_factory(EXTENSION))
        .ok_or_else(|| plan_datafusion_err!("the session does not know Vortex files"))?
        .create(session, &table.options)?;
    let found = match declares_columns(table) {
        true => None,
        false => Found::at(session, format.as_ref(), &url).await?,
    };
    if found.is_none() {
        check_place(&url, session, true).await?;
    }
    let options =
        ListingOptions::new(format).with_file_extension("").with_file_sort_order(table.order_exprs.clone());
    let partitions = partitions_of(session, table, &url, &options).await?;
    let options = options.with_table_partition_cols(partitions);
    options.validate_partitions(session, &url).await?;
    let schema = match &found {
        Some(found) => found.schema(session, options.format.as_ref(), &url).await?,
        None => stored_schema(session, table, &url, &options).await?,
    };
    for order in table.order_exprs.iter().flatten() {
        if let Some(column) =
            order.expr.column_refs().into_iter().find(|at| schema.index_of(at.name()).is_err())
        {
            return plan_err!("Column {column} is not in schema");
        }
    }
    let config = ListingTableConfig::new(url).with_listing_options(options).with_schema(schema);
    let listed = ListingTable::try_new(config)?
        .with_definition(table.definition.clone())
        .with_constraints(table.constraints.clone())
        .with_column_defaults(table.column_defaults.clone());
    Ok(match found {
        Some(found) => Arc::new(OneFile::new(listed, found)),
        None => Arc::new(listed),
    })
}

fn declares_columns(table: &CreateExternalTable) -> bool {
    !table.schema.fields().is_empty()
}

/// The partition columns: those that are declared or, if no columns are, those that the names of folders state.
async fn partitions_of(
    session: &dyn Session,
    table: &CreateExternalTable,
    url: &ListingTableUrl,
    options: &ListingOptions,
) -> Result<Vec<(String, DataType)>> {
    let mut names = table.table_partition_cols.clone();
    let infers = session.config_options().execution.listing_table_factory_infer_partitions;
    if names.is_empty() && !declares_columns(table) && infers && url.is_collection() {
        names = options.infer_partitions(session, url).await?;
    }
    let declared = table.schema.inner();
    let column_type = |name: String| match declared.field_with_name(&name) {
        Ok(field) => (name, field.data_type().clone()),
        Err(_) => (name, dictionary_of_names()),
    };
    Ok(names.into_iter().map(column_type).collect())
}

/// The columns that files contain: those that are declared, without partition columns, or else those of the files.
async fn stored_schema(
    session: &dyn Session,
    table: &CreateExternalTable,
    url: &ListingTableUrl,
    options: &ListingOptions,
) -> Result<SchemaRef> {
    if !declares_columns(table) {
        return options.infer_schema(session, url).await;
    }
    let declared = table.schema.inner();
    let is_partition = |name: &str| options.table_partition_cols.iter().any(|(column, _)| column == name);
    let is_stored = |at: &usize| !is_partition(declared.field(*at).name());
    let stored: Vec<usize> = (0..declared.fields().len()).filter(is_stored).collect();
    Ok(Arc::new(declared.project(&stored)?))
}

/// The type of partition columns that are not declared, as in DataFusion.
fn dictionary_of_names() -> DataType {
    DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8))
}
