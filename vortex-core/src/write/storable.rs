//! Checks what can be stored before anything is written: first the schema, then each batch.

use std::collections::HashSet;

use arrow::array::{Array as _, RecordBatch, new_empty_array};
use arrow::datatypes::{DataType, Field, Schema};
use bytes::Bytes;

use super::carry::carry;
use super::own_bytes::{check_lengths, check_rows};
use crate::array::restore::restore;
use crate::dtype::stored::{carrier, plain_carrier, stored_schema};
use crate::dtype::{DType, StructType};
use crate::error::ResultExt as _;
use crate::file::MAX_SCHEMA_BYTES;
use crate::limits::Limits;
use crate::wire::{arrow_schema_from_bytes, arrow_schema_to_bytes, dtype_from_bytes, dtype_to_bytes};
use crate::{Error, Release, Result};

/// How deep the nodes of compressed numbers or text may nest: three schemes, of which each may have parts, and patches.
const MAX_LEAF_DEPTH: u32 = 8;

/// Whether a column can be written for `min_reader` and all later releases.
///
/// # Errors
/// If it cannot; the error names the column and the reason.
pub fn can_write(field: &Field, min_reader: Release) -> Result<()> {
    let schema = Schema::new(vec![field.clone()]);
    let dtype = stored_schema(&schema, min_reader)?;
    check_depth(&dtype)?;
    arrow_schema(&schema, &dtype)?;
    dtype.as_columns().map_or(Ok(()), |fields| {
        check_names(fields, "")?;
        carriers(&schema, fields).map(drop)
    })
}

/// Checks that types do not nest deeper than readers accept, and neither do the arrays in which they are stored.
pub(crate) fn check_depth(dtype: &DType) -> Result<()> {
    let limits = Limits::default();
    dtype_from_bytes(&dtype_to_bytes(dtype), &limits)
        .map_err(|error| Error::invalid(format!("readers do not accept this schema: {error}")))?;
    // The table that holds the root of the array counts as well.
    let depth = node_depth(dtype) + 1;
    if depth > limits.max_depth {
        return Err(Error::invalid(format!(
            "readers do not accept this schema: its arrays nest up to {depth} levels deep, {} allowed; maps take three",
            limits.max_depth
        )));
    }
    Ok(())
}

/// How deep the nodes of an array may nest.
fn node_depth(dtype: &DType) -> u32 {
    match dtype {
        DType::Struct(fields, _) => 1 + fields.dtypes().iter().map(node_depth).max().unwrap_or(0),
        DType::List(element, _) | DType::FixedSizeList(element, ..) => 1 + node_depth(element),
        // A list of entries, which are structs, within the map itself.
        DType::Map(map, _) => 3 + node_depth(map.key()).max(node_depth(map.value())),
        DType::Extension(extension) => 1 + node_depth(extension.storage()),
        _ => MAX_LEAF_DEPTH,
    }
}

/// The Arrow schema as a file of type `dtype` contains it, if readers would otherwise present other types.
///
/// # Errors
/// If it takes more bytes than readers accept, or would be read as another one.
pub(super) fn arrow_schema(schema: &Schema, dtype: &DType) -> Result<Option<Bytes>> {
    if *crate::dtype::arrow::schema(dtype)? == *schema {
        return Ok(None);
    }
    let bytes = arrow_schema_to_bytes(schema)?;
    let too_long = |error: Error| {
        let remedy = "shorten the metadata of the schema and of its fields, or write fewer columns";
        Error::invalid(format!("readers do not accept this schema: {error}; {remedy}"))
    };
    if bytes.len() as u64 > u64::from(MAX_SCHEMA_BYTES) {
        let len = bytes.len();
        return Err(too_long(Error::limit(format!(
            "{len} bytes when compressed, {MAX_SCHEMA_BYTES} allowed"
        ))));
    }
    let read = arrow_schema_from_bytes(&bytes, &Limits::default()).map_err(too_long)?;
    if let Some((written, _)) = schema.fields().iter().zip(read.fields()).find(|(of, read)| of != read) {
        let place = || format!("column `{}`", written.name());
        return Err(Error::unsupported("type in the schema of a file", written.data_type())).at(place);
    }
    Ok(Some(bytes.into()))
}

/// The types in which columns are taken in, provided that all can be stored and read back.
pub(super) fn carriers(schema: &Schema, fields: &StructType) -> Result<Vec<DataType>> {
    let columns = schema.fields().iter().zip(fields.dtypes());
    let carriers = columns.map(|(field, dtype)| {
        check_readable(field.data_type(), dtype).at(|| format!("column `{}`", field.name()))
    });
    carriers.collect()
}

/// The type in which a column is taken in, provided that it can be read back as `data_type`.
fn check_readable(data_type: &DataType, dtype: &DType) -> Result<DataType> {
    let unreadable = || Error::unsupported("type to write", data_type);
    let read = carrier(dtype, data_type).ok_or_else(unreadable)?;
    restore(&new_empty_array(&read), data_type, &Limits::default())?;
    let taken = plain_carrier(dtype, data_type).ok_or_else(unreadable)?;
    carry(&new_empty_array(data_type), &taken)?;
    Ok(taken)
}

/// Structs are stored field by field, and fields are looked up by name, so names must be unique.
pub(super) fn check_names(fields: &StructType, within: &str) -> Result<()> {
    let mut names = HashSet::new();
    for (name, dtype) in fields.fields() {
        if !names.insert(name) {
            return Err(Error::invalid(format!("duplicate column `{within}{name}`")));
        }
        if let DType::Struct(inner, _) = dtype {
            check_names(inner, &format!("{within}{name}."))?;
        }
    }
    Ok(())
}

/// Checks that rows have the schema of the file, and values that can be stored.
pub(super) fn check_batch(batch: &RecordBatch, schema: &Schema) -> Result<()> {
    if batch.num_columns() != schema.fields().len() {
        return Err(Error::invalid(format!(
            "batch has {} columns, expected {}",
            batch.num_columns(),
            schema.fields().len()
        )));
    }
    for ((column, field), found) in
        batch.columns().iter().zip(schema.fields()).zip(batch.schema_ref().fields())
    {
        if found.name() != field.name() {
            let (found, expected) = (found.name(), field.name());
            return Err(Error::invalid(format!("column `{found}` is where the schema has `{expected}`")));
        }
        let refused = |what: String| Err(Error::invalid(what).at(format!("column `{}`", field.name())));
        if column.data_type() != field.data_type() {
            return refused(format!("array has type {}, expected {}", column.data_type(), field.data_type()));
        }
        if !field.is_nullable() && column.logical_null_count() > 0 {
            return refused(format!(
                "{} nulls in a column that is not nullable",
                column.logical_null_count()
            ));
        }
        check_lengths(column)
            .and_then(|()| check_rows(column))
            .at(|| format!("column `{}`", field.name()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::TimeUnit;

    use super::*;

    #[test]
    fn maps_that_nest_deeper_than_readers_accept_are_refused() {
        let nested = |depth: usize, wrap: fn(Field) -> DataType| {
            (0..depth).fold(DataType::Int32, |inner, _| wrap(Field::new("value", inner, true)))
        };
        let map = |value: Field| {
            let key = Field::new("key", DataType::Int32, false);
            DataType::Map(Arc::new(Field::new_struct("entries", vec![key, value], false)), false)
        };
        let can_be_opened = |data_type| can_write(&Field::new("a", data_type, true), Release::NEWEST);
        assert!(can_be_opened(nested(18, map)).is_ok());
        let error = can_be_opened(nested(21, map)).unwrap_err().to_string();
        assert!(error.contains("nest up to") && error.contains("64 allowed"), "{error}");
        assert!(can_be_opened(nested(29, |item| DataType::List(Arc::new(item)))).is_ok());
    }

    #[test]
    fn a_schema_that_readers_would_ignore_is_refused() {
        let duration = Field::new("a", DataType::Duration(TimeUnit::Second), false);
        let with_metadata = |bytes: usize| {
            let metadata = [("k".to_owned(), "v".repeat(bytes))].into();
            let schema = Schema::new_with_metadata(vec![duration.clone()], metadata);
            arrow_schema(&schema, &stored_schema(&schema, Release::NEWEST)?)
        };
        assert!(with_metadata(1 << 20).unwrap().is_some());
        let error = with_metadata(17 << 20).unwrap_err().to_string();
        assert!(error.contains("shorten the metadata"), "{error}");
    }
}
