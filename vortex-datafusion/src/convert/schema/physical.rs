//! The schema to which a file is decoded, as its table requires it.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use datafusion_common::{HashMap, Result};
use vortex_core::array::can_decode_as;
use vortex_core::dtype::arrow::{data_type, presents};
use vortex_core::dtype::{DType, MapType};

use super::{ByName, item_of, retyped};
use crate::convert::datafusion_error;

/// The schema to which a file of type `root` is decoded for a table with these columns: the table's type,
/// nullability and metadata if the file can be decoded to them, else the file's own.
///
/// # Errors
/// If a stored type has no Arrow equivalent.
pub(crate) fn physical(root: &DType, file: &SchemaRef, table: &Schema) -> Result<SchemaRef> {
    // Names may repeat; the first one counts.
    let wanted: HashMap<&str, &FieldRef> =
        table.fields().iter().rev().map(|field| (field.name().as_str(), field)).collect();
    let fields = file
        .fields()
        .iter()
        .enumerate()
        .map(|(at, field)| {
            let dtype = match root.as_columns() {
                Some(fields) => fields.dtypes().get(at),
                None => Some(root),
            };
            match (wanted.get(field.name().as_str()), dtype) {
                (Some(wanted), Some(dtype)) => adopt(dtype, field, wanted),
                _ => Ok(Arc::clone(field)),
            }
        })
        .collect::<Result<Fields>>()?;
    Ok(Arc::new(Schema::new(fields)))
}

/// The field of a file, as close to `wanted` as decoding allows. If the table declares that a column has no
/// nulls, a null found while reading is an error.
fn adopt(dtype: &DType, field: &FieldRef, wanted: &FieldRef) -> Result<FieldRef> {
    let adopted = adopt_type(dtype, field.data_type(), wanted.data_type())?;
    Ok(Arc::new(
        Field::new(field.name(), adopted, wanted.is_nullable()).with_metadata(wanted.metadata().clone()),
    ))
}

fn adopt_type(dtype: &DType, own: &DataType, wanted: &DataType) -> Result<DataType> {
    Ok(match (dtype, own, wanted) {
        (DType::Struct(inner, _), DataType::Struct(own), DataType::Struct(wanted)) => {
            let wanted = ByName::new(wanted);
            let fields = own.iter().zip(inner.dtypes()).enumerate();
            let fields = fields.map(|(at, (own, dtype))| match wanted.find(at, own.name()) {
                Some(wanted) => adopt(dtype, own, wanted),
                None => Ok(Arc::clone(own)),
            });
            DataType::Struct(fields.collect::<Result<Fields>>()?)
        }
        (
            DType::List(element, _),
            DataType::List(own)
            | DataType::LargeList(own)
            | DataType::ListView(own)
            | DataType::LargeListView(own),
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::ListView(item)
            | DataType::LargeListView(item),
        ) => {
            let item = adopt_item(element, own, item)?;
            match wanted {
                DataType::LargeList(_) => DataType::LargeList(item),
                DataType::ListView(_) => DataType::ListView(item),
                DataType::LargeListView(_) => DataType::LargeListView(item),
                _ => DataType::List(item),
            }
        }
        (
            DType::FixedSizeList(element, ..),
            DataType::FixedSizeList(own, size),
            DataType::FixedSizeList(item, _),
        ) => DataType::FixedSizeList(adopt_item(element, own, item)?, *size),
        (DType::Map(map, _), DataType::Map(own, _), DataType::Map(wanted, sorted)) => {
            DataType::Map(adopt_entries(map, own, wanted)?, *sorted)
        }
        // Types that the format lacks: the schema in the file states that it was written from them.
        (dtype, own, wanted) if own == wanted && can_decode_as(dtype, wanted) => wanted.clone(),
        // Fields of structs must be matched by name, which is done above or not at all.
        (dtype, _, wanted) if presents(dtype, wanted) && !has_structs(wanted) => wanted.clone(),
        // The adapter casts, which may fail for values of a dictionary that no row refers to.
        (dtype, DataType::Dictionary(_, values), _) if can_decode_as(dtype, values) => {
            values.as_ref().clone()
        }
        // The adapter casts what was written, which is not always what is stored.
        (dtype, own, _) if can_decode_as(dtype, own) => own.clone(),
        _ => data_type(dtype).map_err(datafusion_error)?,
    })
}

fn has_structs(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(_) | DataType::Union(..) | DataType::Map(..) => true,
        DataType::Dictionary(_, values) => has_structs(values),
        DataType::RunEndEncoded(_, values) => has_structs(values.data_type()),
        other => item_of(other).is_some_and(|item| has_structs(item.data_type())),
    }
}

/// Entries of maps: keys and values by position, with the names of the table.
fn adopt_entries(map: &MapType, own: &FieldRef, wanted: &FieldRef) -> Result<FieldRef> {
    let (DataType::Struct(own_fields), DataType::Struct(fields)) = (own.data_type(), wanted.data_type())
    else {
        return Ok(Arc::clone(own));
    };
    let types = [map.key(), map.value()];
    let adopted =
        types.iter().zip(own_fields).zip(fields).map(|((dtype, own), wanted)| adopt_item(dtype, own, wanted));
    let entries = DataType::Struct(adopted.collect::<Result<Fields>>()?);
    Ok(Arc::new(retyped(wanted, entries)))
}

/// Elements have no names of their own; they take those of the table.
fn adopt_item(dtype: &DType, own: &FieldRef, wanted: &FieldRef) -> Result<FieldRef> {
    let adopted = adopt(dtype, own, wanted)?;
    Ok(Arc::new(adopted.as_ref().clone().with_name(wanted.name())))
}

#[cfg(test)]
mod tests {
    use vortex_core::dtype::arrow::{from_schema, schema};

    use super::*;

    #[test]
    fn a_file_decodes_into_the_types_of_the_table() {
        let nested = |text: DataType| DataType::Struct(vec![Field::new("t", text, true)].into());
        let list = |text: DataType| DataType::LargeList(Arc::new(Field::new("element", text, true)));
        let stored = from_schema(&Schema::new(vec![
            Field::new("s", DataType::Utf8View, false),
            Field::new("n", nested(DataType::Utf8View), true),
            Field::new("l", list(DataType::Utf8View), true),
            Field::new("i", DataType::Int32, false),
        ]))
        .unwrap();
        let dictionary = DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8));
        let table = Schema::new(vec![
            Field::new("i", DataType::Int64, false),
            Field::new("l", list(DataType::Utf8), true),
            Field::new("n", nested(DataType::LargeUtf8), true),
            Field::new("s", dictionary.clone(), true),
        ]);
        let physical = physical(&stored, &schema(&stored).unwrap(), &table).unwrap();
        assert_eq!(physical.field(0), table.field(3));
        assert_eq!(physical.field(1), table.field(2));
        assert_eq!(physical.field(2), table.field(1));
        // A different stored type is kept: the adapter casts it.
        assert_eq!(physical.field(3), &Field::new("i", DataType::Int32, false));
    }
}
