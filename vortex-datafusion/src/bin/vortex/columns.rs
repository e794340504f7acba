//! The columns of schemas.

use std::collections::HashSet;

use arrow::datatypes::{DataType, Field, Schema};

/// The first name that another column has, too.
pub(crate) fn repeated_name(schema: &Schema) -> Option<&str> {
    let mut names = HashSet::new();
    schema.fields().iter().map(|field| field.name().as_str()).find(|name| !names.insert(*name))
}

/// The schema with columns of other types.
pub(crate) fn with_types(schema: &Schema, of: impl Fn(&Field) -> DataType) -> Schema {
    let typed = schema.fields().iter().map(|field| field.as_ref().clone().with_data_type(of(field)));
    Schema::new_with_metadata(typed.collect::<Vec<_>>(), schema.metadata().clone())
}
