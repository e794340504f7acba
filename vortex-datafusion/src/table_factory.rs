//! `CREATE EXTERNAL TABLE … STORED AS VORTEX`.
//!
//! ```text
//! several files, a folder   created by DataFusion
//! one file                  one read of its end
//! a glob in a URL           a folder whose file names are matched against it
//! ```

use std::sync::Arc;

use arrow::datatypes::DataType;
use async_trait::async_trait;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::datasource::provider::DefaultTableFactory;
use datafusion::execution::session_state::SessionState;
use datafusion_catalog::TableProviderFactory;
use datafusion_common::{Result, plan_datafusion_err, plan_err};
use datafusion_expr::CreateExternalTable;
use datafusion_session::{Session, TableProvider};

use crate::format::EXTENSION;
use crate::globs::{check_kind, check_pattern, listing_url, split_glob};
use crate::one_file::{Found, OneFile};

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
        let globs = table.locations.iter().filter(|location| split_glob(location).is_some()).count();
        match (globs, table.locations.as_slice()) {
            (1, [location]) => listed_table(session, table, listing_url(location)?).await,
            (0, [location]) => match listing_url(location)? {
                // DataFusion requests the metadata of the file three times: to find partitions, which it
                // cannot have, to read its schema, and to read its statistics, which the scan reads as well.
                file if !file.is_collection() => listed_table(session, table, file).await,
                _ => self.others.create(session, table).await,
            },
            (0, _) => self.others.create(session, table).await,
            _ => plan_err!("a table with several locations cannot have globs in URLs"),
        }
    }
}

/// A table of one file, or of those that a glob matches.
async fn listed_table(
    session: &dyn Session,
    table: &CreateExternalTable,
    url: ListingTableUrl,
) -> Result<Arc<dyn TableProvider>> {
    let url = url.with_table_ref(table.name.clone());
    check_pattern(&url, session.config_options())?;
    check_kind(&url)?;
    let format = session
        .as_any()
        .downcast_ref::<SessionState>()
        .and_then(|state| state.get_file_format_factory(EXTENSION))
        .ok_or_else(|| plan_datafusion_err!("the session does not know Vortex files"))?
        .create(session, &table.options)?;
    let declared = table.schema.inner();
    let found = match declared.fields().is_empty() {
        true => Found::at(session, format.as_ref(), &url).await?,
        false => None,
    };
    let mut options = ListingOptions::new(Arc::clone(&format))
        .with_file_extension("")
        .with_file_sort_order(table.order_exprs.clone());
    let mut partitions = table.table_partition_cols.clone();
    let infers = session.config_options().execution.listing_table_factory_infer_partitions;
    if partitions.is_empty() && declared.fields().is_empty() && infers && url.is_collection() {
        partitions = options.infer_partitions(session, &url).await?;
    }
    let column_type = |name: String| match declared.field_with_name(&name) {
        Ok(field) => (name, field.data_type().clone()),
        Err(_) => (name, dictionary_of_names()),
    };
    options = options.with_table_partition_cols(partitions.iter().cloned().map(column_type).collect());
    options.validate_partitions(session, &url).await?;
    let schema = if let Some(found) = &found {
        let store = session.runtime_env().object_store(&url)?;
        format.infer_schema(session, &store, std::slice::from_ref(found.meta())).await?
    } else if declared.fields().is_empty() {
        options.infer_schema(session, &url).await?
    } else {
        let is_stored = |at: &usize| !partitions.contains(declared.field(*at).name());
        let stored: Vec<usize> = (0..declared.fields().len()).filter(is_stored).collect();
        Arc::new(declared.project(&stored)?)
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
        .with_cache(session.runtime_env().cache_manager.get_file_statistic_cache())
        .with_definition(table.definition.clone())
        .with_constraints(table.constraints.clone())
        .with_column_defaults(table.column_defaults.clone());
    Ok(match found {
        Some(found) => Arc::new(OneFile::new(listed, found)),
        None => Arc::new(listed),
    })
}

/// The type of partition columns that are not declared, as in DataFusion.
fn dictionary_of_names() -> DataType {
    DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8))
}
