//! Schemas: one for a table over many files, and one for each file as the table requires it.
//!
//! Several Arrow types can represent one stored type (`Utf8`, `Utf8View`, a dictionary of either). The table
//! chooses one; files are decoded directly to it, and no cast is planned.
//!
//! ```text
//! files   a: i32   b: utf8            table   a: Int64          (widened, not in all files: nullable)
//!         a: i64            c: bool           b: Utf8View?
//!                                             c: Boolean?
//! ```

use std::cell::OnceCell;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use datafusion_common::{HashMap, HashSet, Result, plan_err};
use vortex_core::DType;
use vortex_core::array::can_decode_as;
use vortex_core::dtype::MapType;
use vortex_core::dtype::arrow::{data_type, presents};

use super::datafusion_error;
use crate::options::StringType;

/// The Arrow extension type of variants.
const VARIANT: &str = "arrow.parquet.variant";

/// The schema of a table over files: columns by name, in order of first occurrence, with numbers widened,
/// nullable if they are in any file or if a file lacks the column. Depends only on the order of `files`.
///
/// # Errors
/// If two files disagree on the type of a column; the error names both files.
pub fn merge(files: &[(String, SchemaRef)]) -> Result<Schema> {
    let Some((_, first)) = files.first() else { return Ok(Schema::empty()) };
    // Field, first file that contains it, number of files that contain it.
    let mut columns: Vec<(FieldRef, &str, usize)> = Vec::new();
    let mut positions: HashMap<&str, usize> = HashMap::new();
    for (name, schema) in files {
        let mut seen: HashSet<&str> = HashSet::new();
        // If several columns have the same name, the first one counts.
        for field in schema.fields().iter().filter(|field| seen.insert(field.name())) {
            let known = positions.get(field.name().as_str()).and_then(|at| columns.get_mut(*at));
            let Some((column, from, count)) = known else {
                positions.insert(field.name(), columns.len());
                columns.push((Arc::clone(field), name, 1));
                continue;
            };
            *count += 1;
            let Some(merged) = merge_fields(column, field) else {
                return plan_err!(
                    "column `{}` is {} in {from} and {} in {name}: declare the schema of the table to choose",
                    field.name(),
                    column.data_type(),
                    field.data_type()
                );
            };
            *column = merged;
        }
    }
    let fields = columns.into_iter().map(|(field, _, count)| match count < files.len() {
        true => Arc::new(field.as_ref().clone().with_nullable(true)),
        false => field,
    });
    Ok(Schema::new_with_metadata(fields.collect::<Fields>(), first.metadata().clone()))
}

fn merge_fields(left: &FieldRef, right: &FieldRef) -> Option<FieldRef> {
    if left == right {
        return Some(Arc::clone(left));
    }
    let merged = merge_types(left.data_type(), right.data_type())?;
    let nullable = left.is_nullable() || right.is_nullable();
    Some(Arc::new(left.as_ref().clone().with_data_type(merged).with_nullable(nullable)))
}

/// The narrowest type that holds the values of both exactly.
fn merge_types(left: &DataType, right: &DataType) -> Option<DataType> {
    use DataType::{
        BinaryView, Dictionary, FixedSizeList, LargeList, LargeListView, List, ListView, Map, Null, Struct,
        Utf8View,
    };
    Some(match (left, right) {
        (left, right) if left == right => left.clone(),
        (Null, other) | (other, Null) => other.clone(),
        (Struct(left), Struct(right)) => {
            let (own, others) = (ByName::new(left), ByName::new(right));
            let optional = |field: &FieldRef| Arc::new(field.as_ref().clone().with_nullable(true));
            let mut fields: Vec<FieldRef> = Vec::with_capacity(left.len());
            for (at, field) in left.iter().enumerate() {
                fields.push(match others.find(at, field.name()) {
                    Some(other) => merge_fields(field, other)?,
                    None => optional(field),
                });
            }
            let added = right.iter().enumerate().filter(|(at, field)| own.find(*at, field.name()).is_none());
            fields.extend(added.map(|(_, field)| optional(field)));
            Struct(fields.into())
        }
        (List(left), List(right)) => List(merge_fields(left, right)?),
        (ListView(left), ListView(right)) => ListView(merge_fields(left, right)?),
        (LargeListView(left), LargeListView(right)) => LargeListView(merge_fields(left, right)?),
        (
            List(left) | LargeList(left) | ListView(left) | LargeListView(left),
            List(right) | LargeList(right) | ListView(right) | LargeListView(right),
        ) => LargeList(merge_fields(left, right)?),
        (Map(left, sorted), Map(right, also)) => Map(merge_entries(left, right)?, *sorted && *also),
        (FixedSizeList(left, size), FixedSizeList(right, other)) if size == other => {
            FixedSizeList(merge_fields(left, right)?, *size)
        }
        // Different Arrow representations of one stored type.
        (left, right) if is_string(left) && is_string(right) => Utf8View,
        (left, right) if is_bytes(left) && is_bytes(right) => BinaryView,
        (Dictionary(_, left), Dictionary(_, right)) => merge_types(left, right)?,
        (Dictionary(_, values), other) | (other, Dictionary(_, values)) => merge_types(values, other)?,
        (left, right) => widest_number(left, right)?,
    })
}

/// The fields of a struct, to be matched with those of another one.
struct ByName<'a> {
    fields: &'a Fields,
    /// The first field of each name, collected once a field is not at the position of the other one.
    first: OnceCell<HashMap<&'a str, &'a FieldRef>>,
}

impl<'a> ByName<'a> {
    fn new(fields: &'a Fields) -> Self {
        Self { fields, first: OnceCell::new() }
    }

    /// The field called `name`: the one at position `at` if that is its name, else the first one. If names
    /// repeat, fields of structs with equal names thus match one by one.
    fn find(&self, at: usize, name: &str) -> Option<&'a FieldRef> {
        self.fields.get(at).filter(|field| field.name() == name).or_else(|| {
            let first = self.first.get_or_init(|| {
                self.fields.iter().rev().map(|field| (field.name().as_str(), field)).collect()
            });
            first.get(name).copied()
        })
    }
}

/// Entries of maps: keys and values by position, whatever their names.
fn merge_entries(left: &FieldRef, right: &FieldRef) -> Option<FieldRef> {
    let (DataType::Struct(own), DataType::Struct(others)) = (left.data_type(), right.data_type()) else {
        return None;
    };
    let merged = own.iter().zip(others).enumerate().map(|(at, (own, other))| {
        // DataFusion does not add fields to structs within maps.
        let merged =
            has_same_fields(own.data_type(), other.data_type()).then(|| merge_fields(own, other))??;
        // It does not compare keys that are views with literals either.
        Some(if at == 0 && own.data_type() != other.data_type() { plain_field(&merged) } else { merged })
    });
    let entries = DataType::Struct(merged.collect::<Option<Fields>>()?);
    Some(Arc::new(left.as_ref().clone().with_data_type(entries)))
}

/// Whether structs at any depth have fields of the same names, in any order.
fn has_same_fields(left: &DataType, right: &DataType) -> bool {
    match (left, right) {
        (DataType::Struct(left), DataType::Struct(right)) => {
            let others = ByName::new(right);
            let same = |(at, field): (usize, &FieldRef)| {
                let other = others.find(at, field.name());
                other.is_some_and(|other| has_same_fields(field.data_type(), other.data_type()))
            };
            left.len() == right.len() && left.iter().enumerate().all(same)
        }
        _ => match (item_of(left), item_of(right)) {
            (Some(left), Some(right)) => has_same_fields(left.data_type(), right.data_type()),
            _ => true,
        },
    }
}

/// The items of lists, or the entries of maps.
fn item_of(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => Some(item),
        _ => None,
    }
}

fn is_string(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_bytes(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

fn widest_number(left: &DataType, right: &DataType) -> Option<DataType> {
    use DataType::{Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    // The narrowest comes first.
    const NUMBERS: [DataType; 10] =
        [Int8, UInt8, Int16, UInt16, Int32, UInt32, Int64, UInt64, Float32, Float64];
    // Each type holds all values of those before it in its row.
    const WIDENINGS: [&[DataType]; 6] = [
        &[Int8, Int16, Int32, Int64],
        &[UInt8, UInt16, UInt32, UInt64],
        &[UInt8, Int16, Int32, Int64],
        &[UInt16, Int32, Int64],
        &[UInt32, Int64],
        &[Float32, Float64],
    ];
    let holds = |wide: &DataType, narrow: &DataType| {
        WIDENINGS.iter().any(|row| {
            let place = |of: &DataType| row.iter().position(|candidate| candidate == of);
            place(narrow).is_some_and(|narrow| place(wide).is_some_and(|wide| narrow <= wide))
        })
    };
    NUMBERS.iter().find(|wide| holds(wide, left) && holds(wide, right)).cloned()
}

/// The schema with the fields of nullable structs made nullable as well. DataFusion extracts a field from a
/// struct without considering the nulls of the struct; only a nullable field reads as null in a null row.
pub(crate) fn with_nullable_fields(schema: &Schema) -> Schema {
    let fields = schema.fields().iter().map(|field| nullable_field(field, false)).collect::<Fields>();
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

fn nullable_field(field: &FieldRef, in_nullable: bool) -> FieldRef {
    let nullable = field.is_nullable() || in_nullable;
    let data_type = match field.data_type() {
        // Variants are decoded in one form only. Another one would require a cast of all that is around them,
        // which cannot tell fields of the same name apart.
        variant if field.extension_type_name() == Some(VARIANT) => variant.clone(),
        DataType::Struct(fields) => {
            DataType::Struct(fields.iter().map(|field| nullable_field(field, nullable)).collect())
        }
        other => with_items(other, |item| nullable_field(item, false)).unwrap_or_else(|| other.clone()),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type).with_nullable(nullable))
}

/// The type of lists or maps, with `map` applied to the items or entries; `None` for other types.
fn with_items(data_type: &DataType, map: impl Fn(&FieldRef) -> FieldRef) -> Option<DataType> {
    Some(match data_type {
        DataType::List(item) => DataType::List(map(item)),
        DataType::LargeList(item) => DataType::LargeList(map(item)),
        DataType::ListView(item) => DataType::ListView(map(item)),
        DataType::LargeListView(item) => DataType::LargeListView(map(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(map(item), *size),
        DataType::Map(entries, sorted) => DataType::Map(map(entries), *sorted),
        _ => return None,
    })
}

/// The schema with strings and byte strings in the types that tables present them in.
pub(crate) fn with_strings(schema: &Schema, strings: StringType) -> Schema {
    let fields = schema.fields().iter().map(|field| match strings {
        StringType::View => view_field(field),
        StringType::Stored => Arc::clone(field),
        StringType::Utf8 => plain_field(field),
    });
    Schema::new_with_metadata(fields.collect::<Fields>(), schema.metadata().clone())
}

/// The field with views instead of offsets; nested strings stay as they are.
fn view_field(field: &FieldRef) -> FieldRef {
    let view = match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        _ => return Arc::clone(field),
    };
    Arc::new(field.as_ref().clone().with_data_type(view))
}

fn plain_field(field: &FieldRef) -> FieldRef {
    let plain = match field.data_type() {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain_field).collect()),
        other => match with_items(other, plain_field) {
            Some(plain) => plain,
            None => return Arc::clone(field),
        },
    };
    Arc::new(field.as_ref().clone().with_data_type(plain))
}

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
        // The adapter casts what was written, which is not always what is stored.
        (dtype, own, _) if can_decode_as(dtype, own) => own.clone(),
        _ => data_type(dtype).map_err(datafusion_error)?,
    })
}

fn has_structs(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(_) | DataType::Union(..) | DataType::Map(..) => true,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _) => has_structs(item.data_type()),
        DataType::Dictionary(_, values) => has_structs(values),
        DataType::RunEndEncoded(_, values) => has_structs(values.data_type()),
        _ => false,
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
    Ok(Arc::new(wanted.as_ref().clone().with_data_type(entries)))
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

    fn file(name: &str, fields: Vec<Field>) -> (String, SchemaRef) {
        (name.to_owned(), Arc::new(Schema::new(fields)))
    }

    #[test]
    fn a_column_that_some_files_lack_is_nullable() {
        let merged = merge(&[
            file("1", vec![Field::new("a", DataType::Int32, false)]),
            file("2", vec![Field::new("b", DataType::Utf8, false), Field::new("a", DataType::Int32, false)]),
        ])
        .unwrap();
        assert_eq!(
            merged,
            Schema::new(vec![Field::new("a", DataType::Int32, false), Field::new("b", DataType::Utf8, true)])
        );
    }

    #[test]
    fn numbers_widen_to_what_holds_both() {
        let pair = |left: DataType, right: DataType| {
            merge(&[
                file("1", vec![Field::new("a", left, false)]),
                file("2", vec![Field::new("a", right, true)]),
            ])
        };
        let merged = pair(DataType::Int16, DataType::Int64).unwrap();
        assert_eq!(merged.field(0), &Field::new("a", DataType::Int64, true));
        assert!(pair(DataType::UInt64, DataType::Int8).is_err());
        assert_eq!(pair(DataType::Int8, DataType::UInt8).unwrap().field(0).data_type(), &DataType::Int16);
        assert_eq!(pair(DataType::UInt16, DataType::Int16).unwrap().field(0).data_type(), &DataType::Int32);
        assert_eq!(pair(DataType::UInt8, DataType::Int32).unwrap().field(0).data_type(), &DataType::Int32);
        let error = pair(DataType::Utf8, DataType::Int8).unwrap_err().to_string();
        assert!(error.contains("`a`") && error.contains("Utf8") && error.contains("Int8"), "{error}");
    }

    #[test]
    fn one_stored_type_may_be_presented_in_several_ways() {
        let merged = |left: &DataType, right: &DataType| merge_types(left, right);
        let keyed = |values: DataType| DataType::Dictionary(Box::new(DataType::Int8), Box::new(values));
        assert_eq!(merged(&DataType::Utf8, &DataType::LargeUtf8), Some(DataType::Utf8View));
        assert_eq!(merged(&keyed(DataType::Utf8), &DataType::Utf8), Some(DataType::Utf8));
        assert_eq!(merged(&DataType::Utf8View, &keyed(DataType::Utf8)), Some(DataType::Utf8View));
        assert_eq!(merged(&DataType::Utf8, &DataType::Binary), None);
    }

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

    fn structure(fields: &[(&str, DataType)]) -> DataType {
        let fields = fields.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true));
        DataType::Struct(fields.collect())
    }

    #[test]
    fn fields_of_structs_are_found_by_name_in_any_order() {
        let left = structure(&[("a", DataType::Int8), ("b", DataType::Utf8), ("c", DataType::Int64)]);
        let right = structure(&[("b", DataType::Utf8), ("d", DataType::Boolean), ("a", DataType::Int16)]);
        let merged = structure(&[
            ("a", DataType::Int16),
            ("b", DataType::Utf8),
            ("c", DataType::Int64),
            ("d", DataType::Boolean),
        ]);
        assert_eq!(merge_types(&left, &right), Some(merged.clone()));
        assert!(!has_same_fields(&left, &right));
        let turned = structure(&[("c", DataType::Int64), ("a", DataType::Int8), ("b", DataType::Utf8)]);
        assert!(has_same_fields(&left, &turned));

        let table = Schema::new(vec![Field::new("x", merged, true)]);
        let stored = from_schema(&Schema::new(vec![Field::new("x", right.clone(), true)])).unwrap();
        let physical = physical(&stored, &schema(&stored).unwrap(), &table).unwrap();
        assert_eq!(physical.field(0).data_type(), &right);
    }

    #[test]
    fn fields_of_the_same_name_are_matched_by_position() {
        let pair = |first: DataType| structure(&[("a", first), ("a", DataType::Utf8)]);
        let merged = merge_types(&pair(DataType::Int8), &pair(DataType::Int16));
        assert_eq!(merged, Some(pair(DataType::Int16)));
        let one = |name| structure(&[(name, DataType::Int8)]);
        let different = structure(&[("a", one("x")), ("a", one("y"))]);
        assert!(has_same_fields(&different, &different));

        let key = |of: &str| Field::new("a", DataType::Int8, false).with_metadata(comment(of));
        let inner = DataType::Struct(vec![key("inner")].into());
        let fields = vec![
            variant("a"),
            key("number"),
            Field::new("a", DataType::List(Arc::new(variant("item"))), true),
            Field::new("a", inner, true),
            Field::new("a", DataType::BinaryView, false),
        ];
        let own = Schema::new(vec![Field::new("x", DataType::Struct(fields.into()), false)]);
        let stored = from_schema(&own).unwrap();
        let table = with_nullable_fields(&own);
        assert_ne!(table, own);
        // No field needs a cast, which would take the first one for all.
        assert_eq!(*physical(&stored, &schema(&stored).unwrap(), &table).unwrap(), table);
    }

    fn comment(text: &str) -> std::collections::HashMap<String, String> {
        [("comment".to_owned(), text.to_owned())].into()
    }

    fn variant(name: &str) -> Field {
        let parts = vec![
            Field::new("metadata", DataType::BinaryView, false),
            Field::new("value", DataType::BinaryView, true),
        ];
        let extension = [("ARROW:extension:name".to_owned(), VARIANT.to_owned())];
        Field::new(name, DataType::Struct(parts.into()), true).with_metadata(extension.into())
    }

    #[test]
    fn a_variant_keeps_its_form_wherever_it_is() {
        let within = Field::new("x", DataType::Struct(vec![variant("v")].into()), true);
        let items = Field::new("l", DataType::List(Arc::new(variant("item"))), true);
        let schema = Schema::new(vec![variant("v"), within, items]);
        assert_eq!(with_nullable_fields(&schema), schema);
    }

    #[test]
    fn a_field_of_a_nullable_struct_is_nullable() {
        let pair = |nullable| {
            let inner = DataType::Struct(vec![Field::new("b", DataType::Int8, nullable)].into());
            vec![Field::new("a", inner, nullable)]
        };
        let before = Schema::new(vec![
            Field::new("s", DataType::Struct(pair(false).into()), true),
            Field::new("t", DataType::Struct(pair(false).into()), false),
        ]);
        let after = Schema::new(vec![
            Field::new("s", DataType::Struct(pair(true).into()), true),
            Field::new("t", DataType::Struct(pair(false).into()), false),
        ]);
        assert_eq!(with_nullable_fields(&before), after);
    }

    #[test]
    fn views_become_plain_strings_at_any_depth() {
        let item = |text: DataType| Arc::new(Field::new("item", text, true));
        let before = Schema::new(vec![
            Field::new("a", DataType::Utf8View, true),
            Field::new("b", DataType::List(item(DataType::BinaryView)), true),
        ]);
        let after = Schema::new(vec![
            Field::new("a", DataType::Utf8, true),
            Field::new("b", DataType::List(item(DataType::Binary)), true),
        ]);
        assert_eq!(with_strings(&before, StringType::Utf8), after);
        assert_eq!(with_strings(&after, StringType::Stored), after);
    }

    #[test]
    fn strings_of_columns_become_views_and_nested_ones_stay() {
        let item = Arc::new(Field::new("item", DataType::Utf8, true));
        let coded = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        let of = |text: &DataType, bytes: &DataType| {
            Schema::new(vec![
                Field::new("a", text.clone(), false),
                Field::new("b", bytes.clone(), true),
                Field::new("c", coded.clone(), true),
                Field::new("d", DataType::List(Arc::clone(&item)), true),
            ])
        };
        let views = of(&DataType::Utf8View, &DataType::BinaryView);
        for (text, bytes) in [
            (DataType::Utf8, DataType::Binary),
            (DataType::LargeUtf8, DataType::LargeBinary),
            (DataType::Utf8View, DataType::BinaryView),
        ] {
            assert_eq!(with_strings(&of(&text, &bytes), StringType::View), views);
        }
    }

    #[test]
    fn fields_below_all_kinds_of_lists_are_nullable_where_their_struct_is() {
        let inner = Arc::new(Field::new("a", DataType::Int64, false));
        let item = Arc::new(Field::new("item", DataType::Struct([inner].into_iter().collect()), true));
        let key = Arc::new(Field::new("keys", DataType::Utf8, false));
        let entries = DataType::Struct([key, Arc::clone(&item)].into_iter().collect());
        let entries = Arc::new(Field::new("entries", entries, false));
        for lists in [
            DataType::List(Arc::clone(&item)),
            DataType::LargeList(Arc::clone(&item)),
            DataType::ListView(Arc::clone(&item)),
            DataType::LargeListView(Arc::clone(&item)),
            DataType::FixedSizeList(Arc::clone(&item), 2),
            DataType::Map(entries, false),
        ] {
            let schema = with_nullable_fields(&Schema::new(vec![Field::new("x", lists, false)]));
            let text = format!("{:?}", schema.field(0).data_type());
            assert!(
                text.contains("\"a\"") && text.contains("name: \"a\", data_type: Int64, nullable: true"),
                "{text}"
            );
        }
    }

    #[test]
    fn keys_of_maps_are_views_only_if_they_are_in_all_files() {
        let map = |key: DataType| {
            let fields = vec![Field::new("key", key, false), Field::new("value", DataType::Utf8View, true)];
            let entries = Field::new("entries", DataType::Struct(fields.into()), false);
            DataType::Map(Arc::new(entries), false)
        };
        let merged = |left: DataType, right: DataType| merge_types(&map(left), &map(right)).unwrap();
        assert_eq!(merged(DataType::LargeUtf8, DataType::Utf8), map(DataType::Utf8));
        assert_eq!(merged(DataType::Utf8, DataType::Utf8View), map(DataType::Utf8));
        assert_eq!(merged(DataType::BinaryView, DataType::Binary), map(DataType::Binary));
        assert_eq!(merged(DataType::Utf8View, DataType::Utf8View), map(DataType::Utf8View));

        let own = Schema::new(vec![Field::new("m", map(DataType::Utf8View), true)]);
        let stored = from_schema(&own).unwrap();
        let inferred = schema(&stored).unwrap();
        assert_eq!(inferred.field(0).data_type(), &map(DataType::Utf8));
        // Files are decoded to the type of the table, without a cast.
        for table in [map(DataType::Utf8), map(DataType::LargeUtf8), map(DataType::Utf8View)] {
            let table = Schema::new(vec![Field::new("m", table, true)]);
            assert_eq!(*physical(&stored, &inferred, &table).unwrap(), table);
        }
    }

    #[test]
    fn maps_and_views_of_lists_are_merged() {
        let map = |value: DataType, names: [&str; 2]| {
            let fields = vec![Field::new(names[0], DataType::Utf8, false), Field::new(names[1], value, true)];
            let entries = Field::new("entries", DataType::Struct(fields.into()), false);
            DataType::Map(Arc::new(entries), false)
        };
        let merged = merge_types(&map(DataType::Int32, ["key", "value"]), &map(DataType::Int64, ["k", "v"]));
        assert_eq!(merged, Some(map(DataType::Int64, ["key", "value"])));
        let item = |data_type| Arc::new(Field::new("item", data_type, true));
        let merged =
            merge_types(&DataType::ListView(item(DataType::Int16)), &DataType::List(item(DataType::Int8)));
        assert_eq!(merged, Some(DataType::LargeList(item(DataType::Int16))));
    }
}
