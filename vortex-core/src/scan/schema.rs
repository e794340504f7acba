//! The schema of the batches that a scan returns.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};

use super::ScanBuilder;
use super::column::{Column, Selected};
use crate::dtype::ROOT_COLUMN;
use crate::dtype::arrow::field;
use crate::dtype::stored::carrier;
use crate::file::Footer;
use crate::{Error, Result};

/// The schema of batches with these columns, and row numbers if the scan adds them.
pub(super) fn of_batches(scan: &ScanBuilder, columns: &[Column]) -> Result<SchemaRef> {
    let schema = match &scan.schema {
        Some(schema) => checked(schema, columns)?,
        None => of_file(scan.file.footer(), &scan.selected, columns)?,
    };
    Ok(match &scan.row_numbers {
        Some(name) => with_row_numbers(&schema, name),
        None => schema,
    })
}

/// The projected fields of the file's own schema; nullable also if an enclosing struct is.
fn of_file(footer: &Footer, selected: &Selected, columns: &[Column]) -> Result<SchemaRef> {
    let own = footer.schema()?;
    if matches!(selected, Selected::All) {
        return Ok(own);
    }
    let fields = columns.iter().map(|column| {
        let own = match selected {
            Selected::RootField(at) => own.fields().get(*at),
            Selected::All | Selected::Paths(_) => own_field(footer, &own, column.path.names()),
        };
        let field = match own {
            Some(field) => field.as_ref().clone(),
            None => field(column.path.names().last().map_or(ROOT_COLUMN, |name| name), &column.dtype)?,
        };
        Ok(field.with_nullable(column.dtype.is_nullable()))
    });
    let metadata = own.metadata().clone();
    Ok(Arc::new(Schema::new_with_metadata(fields.collect::<Result<Vec<Field>>>()?, metadata)))
}

/// The field at a path, where all on the way are structs. The schema has the fields of the file in
/// their order.
fn own_field<'a>(footer: &Footer, schema: &'a Schema, path: &[Arc<str>]) -> Option<&'a FieldRef> {
    let (first, rest) = path.split_first()?;
    let at = footer.dtype().as_columns().map_or(Some(0), |fields| fields.position(first))?;
    let field = schema.fields().get(at).filter(|field| field.name() == &**first)?;
    rest.iter().try_fold(field, |field, name| match field.data_type() {
        DataType::Struct(fields) => Some(fields.find(name)?.1),
        _ => None,
    })
}

/// The same with a last field of row numbers.
fn with_row_numbers(schema: &Schema, name: &str) -> SchemaRef {
    let number = Arc::new(Field::new(name, DataType::UInt64, false));
    let fields: Vec<FieldRef> = schema.fields().iter().cloned().chain([number]).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The schema that the caller requests, if the columns can be read as it says.
fn checked(schema: &SchemaRef, columns: &[Column]) -> Result<SchemaRef> {
    if schema.fields().len() != columns.len() {
        return Err(Error::invalid(format!(
            "schema has {} fields, but {} columns are projected",
            schema.fields().len(),
            columns.len()
        )));
    }
    for (field, column) in schema.fields().iter().zip(columns) {
        if carrier(&column.dtype, field.data_type()).is_none() {
            return Err(Error::invalid(format!(
                "column `{}` of type {} cannot be read as {}",
                column.path,
                column.dtype,
                field.data_type()
            )));
        }
    }
    Ok(Arc::clone(schema))
}
