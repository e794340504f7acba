//! Arrow types inside other Arrow types.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};

/// Whether something holds for a type directly inside another one, wherever it is: an item, a field, or a value of runs
/// or of a dictionary.
pub(crate) fn any_inner(data_type: &DataType, holds: impl Fn(&DataType) -> bool) -> bool {
    match data_type {
        DataType::List(inner)
        | DataType::LargeList(inner)
        | DataType::ListView(inner)
        | DataType::LargeListView(inner)
        | DataType::FixedSizeList(inner, _)
        | DataType::Map(inner, _)
        | DataType::RunEndEncoded(_, inner) => holds(inner.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| holds(field.data_type())),
        DataType::Union(fields, _) => fields.iter().any(|(_, field)| holds(field.data_type())),
        DataType::Dictionary(_, values) => holds(values),
        _ => false,
    }
}

/// The type with other types for its items, its fields, or the values of its runs. Dictionaries and unions stay as
/// they are.
pub(crate) fn with_inner(data_type: &DataType, to: &mut dyn FnMut(&DataType) -> DataType) -> DataType {
    let mut field = |field: &FieldRef| {
        let inner = to(field.data_type());
        if inner == *field.data_type() {
            Arc::clone(field)
        } else {
            Arc::new(field.as_ref().clone().with_data_type(inner))
        }
    };
    match data_type {
        DataType::List(item) => DataType::List(field(item)),
        DataType::LargeList(item) => DataType::LargeList(field(item)),
        DataType::ListView(item) => DataType::ListView(field(item)),
        DataType::LargeListView(item) => DataType::LargeListView(field(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(field(item), *size),
        DataType::Map(entries, sorted) => DataType::Map(field(entries), *sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(field).collect()),
        DataType::RunEndEncoded(ends, values) => DataType::RunEndEncoded(Arc::clone(ends), field(values)),
        other => other.clone(),
    }
}
