//! What a table without SQL is told about its files.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion_common::{DFSchema, Result, TableReference, plan_err};
use datafusion_expr::{CreateExternalTable, SortExpr};

use crate::format::EXTENSION;
use crate::options::VortexOptions;

/// What a table is told about its files instead of finding it out: the counterpart of `ParquetReadOptions`, and of the
/// clauses of `CREATE EXTERNAL TABLE`.
#[derive(Debug, Clone, Default)]
pub struct VortexReadOptions {
    schema: Option<SchemaRef>,
    partition_columns: Vec<String>,
    orders: Vec<Vec<SortExpr>>,
    options: Option<VortexOptions>,
}

impl VortexReadOptions {
    /// Finds out everything from the files.
    pub fn new() -> Self {
        Self::default()
    }

    /// The columns of the table, including those that folders are named after. No file is opened to find them; columns
    /// that a file lacks are null in its rows, and types that differ are cast. A schema of only those that folders are
    /// named after states their types; the others are found in the files.
    #[must_use]
    pub fn with_schema(mut self, schema: SchemaRef) -> Self {
        self.schema = Some(schema);
        self
    }

    /// The columns that folders are named after (`day=1/`), beginning with the outermost folders. They have the types
    /// of the schema; without one, they are text. By default, the names of folders state them if there is no schema,
    /// and there are none otherwise.
    #[must_use]
    pub fn with_partition_columns<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.partition_columns = names.into_iter().map(Into::into).collect();
        self
    }

    /// An order that the rows of each file are in, besides those that the files record. This is not checked: if it is
    /// wrong, queries return wrong results.
    #[must_use]
    pub fn with_order(mut self, order: Vec<SortExpr>) -> Self {
        self.orders.push(order);
        self
    }

    /// Options that apply to this table in place of those of the session, but for the segment cache, which its tables
    /// share.
    #[must_use]
    pub fn with_options(mut self, options: VortexOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// The statement that creates this table.
    ///
    /// # Errors
    /// If there is no place, or columns have the same name.
    pub(super) fn statement(self, name: TableReference, places: &[&str]) -> Result<CreateExternalTable> {
        let Some(first) = places.first() else { return plan_err!("a table needs a place of files") };
        let schema = match self.schema {
            Some(schema) => DFSchema::try_from(schema)?,
            None => DFSchema::empty(),
        };
        let texts = self.options.as_ref().map(VortexOptions::texts).into_iter().flatten();
        let of_table = texts.filter(|(name, _)| !name.starts_with("segment_cache"));
        let options: HashMap<_, _> = of_table.map(|(name, text)| (format!("format.{name}"), text)).collect();
        Ok(CreateExternalTable::builder(name, *first, EXTENSION.to_uppercase(), Arc::new(schema))
            .with_locations(places.iter().map(|place| (*place).to_owned()).collect())
            .with_partition_cols(self.partition_columns)
            .with_order_exprs(self.orders)
            .with_options(options)
            .build())
    }
}
