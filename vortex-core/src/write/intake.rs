//! Takes in rows as the types in which they are stored.

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};

use super::carry::carry;
use super::own_bytes::Portions;
use super::storable::{carriers, check_batch};
use crate::Result;
use crate::dtype::StructType;
use crate::error::ResultExt as _;

/// Takes in batches of one schema.
#[derive(Debug)]
pub(crate) struct Intake {
    schema: SchemaRef,
    /// The types in which the columns are taken in.
    carriers: Vec<DataType>,
}

impl Intake {
    /// For batches of a schema whose columns are stored as `fields`.
    ///
    /// # Errors
    /// If a column cannot be stored so, or not be read back.
    pub(crate) fn try_new(schema: SchemaRef, fields: &StructType) -> Result<Self> {
        Ok(Self { carriers: carriers(&schema, fields)?, schema })
    }

    /// The schema that batches must have.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Cuts a batch into portions to be taken in one after the other.
    ///
    /// # Errors
    /// If it does not have the schema, or has values that cannot be stored.
    pub(crate) fn portions<'a>(&self, batch: &'a RecordBatch) -> Result<Portions<'a>> {
        check_batch(batch, &self.schema)?;
        Ok(Portions::new(batch))
    }

    /// The columns of a portion, in the types in which they are stored.
    ///
    /// # Errors
    /// If values do not fit.
    pub(crate) fn carry(&self, rows: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let columns = rows.columns().iter().zip(&self.carriers).enumerate();
        columns.map(|(at, (column, to))| carry(column, to).at(|| self.place(at))).collect()
    }

    /// The place of errors that concern a column.
    pub(crate) fn place(&self, column: usize) -> String {
        format!("column `{}`", self.schema.field(column).name())
    }
}
