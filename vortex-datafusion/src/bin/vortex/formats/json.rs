//! The columns of files of JSON lines.
//!
//! Arrow takes integers from 2^63 on for floating-point numbers, of which many would become equal. Here, a column of
//! integers that has such a number is one of unsigned integers. Arrow also refuses null beside lists or objects in a
//! list, which it reads once the type is known.

use std::collections::HashSet;
use std::io::BufReader;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::reader::{ValueIter, infer_json_schema_from_iterator};
use datafusion::common::Result;
use datafusion::config::JsonOptions;
use serde_json::Value;

use super::LINES_FOR_TYPES;
use super::text::Files;

/// The columns of files, with types that fit their first rows.
pub(super) async fn schema(options: &JsonOptions, files: &Files<'_>) -> Result<SchemaRef> {
    let mut left = options.schema_infer_max_rec.unwrap_or(LINES_FOR_TYPES);
    let (mut schemas, mut unsigned) = (Vec::new(), HashSet::new());
    for object in files.objects {
        let (schema, names, read) = files
            .text
            .read(object, move |file| {
                let (mut names, mut read) = (HashSet::new(), 0);
                let rows = ValueIter::new(BufReader::new(file), Some(left));
                let rows = rows.map(|row| {
                    read += 1;
                    let mut row = row.map_err(|error| in_row(read, &error))?;
                    remove_nulls(&mut row);
                    without_large(row, &mut names)
                });
                let schema = infer_json_schema_from_iterator(rows)?;
                Ok((schema, names, read))
            })
            .await?;
        schemas.push(schema);
        unsigned.extend(names);
        left = left.saturating_sub(read);
        if left == 0 {
            break;
        }
    }
    let schema = Schema::try_merge(schemas)?;
    let fields = schema.fields().iter().map(|field| {
        let is_unsigned = *field.data_type() == DataType::Int64 && unsigned.contains(field.name());
        let data_type = if is_unsigned { DataType::UInt64 } else { field.data_type().clone() };
        Field::new(field.name(), data_type, field.is_nullable())
    });
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

/// An error about a row, which Arrow parses by itself: as the first line.
fn in_row(row: usize, error: &ArrowError) -> ArrowError {
    let message = match error {
        ArrowError::JsonError(message) => message.clone(),
        other => other.to_string(),
    };
    ArrowError::JsonError(message.replace("at line 1 column", &format!("in row {row} at column")))
}

/// Leaves null out of lists of lists or objects in a value, where it tells nothing about types.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Array(values) => {
            if values.iter().any(|value| value.is_array() || value.is_object()) {
                values.retain(|value| !value.is_null());
            }
            values.iter_mut().for_each(remove_nulls);
        }
        Value::Object(values) => values.values_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// A row in which other integers replace those that only unsigned integers can hold; adds the names of their columns.
fn without_large(mut row: Value, names: &mut HashSet<String>) -> Result<Value, ArrowError> {
    for (name, value) in row.as_object_mut().into_iter().flatten() {
        let Some(large) = large(value) else { continue };
        if !value.is_number() {
            return Err(ArrowError::JsonError(format!(
                "column `{name}` holds {large}, which its inferred type cannot; set types in SQL: CREATE EXTERNAL \
                 TABLE t (name TYPE, ...) STORED AS JSON LOCATION '...'"
            )));
        }
        names.insert(name.clone());
        *value = 0.into();
    }
    Ok(row)
}

/// The first integer in a value that only unsigned integers can hold.
fn large(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) if !number.is_i64() => number.as_u64(),
        Value::Array(values) => values.iter().find_map(large),
        Value::Object(values) => values.values().find_map(large),
        _ => None,
    }
}
