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

mod merge;
mod physical;
mod presented;

use std::cell::OnceCell;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use datafusion_common::HashMap;

pub use merge::merge;
pub(crate) use physical::physical;
pub(crate) use presented::{with_nullable_fields, with_strings};

/// The schema without the fields of the names that it `leaves_out`.
pub(crate) fn without(schema: &SchemaRef, leaves_out: impl Fn(&str) -> bool) -> SchemaRef {
    let kept: Fields = schema.fields().iter().filter(|field| !leaves_out(field.name())).cloned().collect();
    if kept.len() == schema.fields().len() {
        Arc::clone(schema)
    } else {
        Arc::new(Schema::new_with_metadata(kept, schema.metadata().clone()))
    }
}

/// The field with another type.
pub(super) fn retyped(field: &Field, to: DataType) -> Field {
    field.clone().with_data_type(to)
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vortex_core::dtype::arrow::{from_schema, schema};

    use super::merge::{has_same_fields, merge_types};
    use super::presented::VARIANT;
    use super::*;

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

    pub(super) fn variant(name: &str) -> Field {
        let parts = vec![
            Field::new("metadata", DataType::BinaryView, false),
            Field::new("value", DataType::BinaryView, true),
        ];
        let extension = [("ARROW:extension:name".to_owned(), VARIANT.to_owned())];
        Field::new(name, DataType::Struct(parts.into()), true).with_metadata(extension.into())
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
}
