//! How a table presents the types of its files: nullable fields, and strings.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Fields, Schema};

use super::{retyped, with_items};
use crate::options::StringType;

/// The Arrow extension type of variants.
pub(super) const VARIANT: &str = "arrow.parquet.variant";

/// The schema with the fields of nullable structs made nullable as well: what DataFusion extracts from a struct has
/// nulls where the struct is null, also where it takes the field for a column as it is declared (`unnest`).
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
    Arc::new(retyped(field, data_type).with_nullable(nullable))
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
    Arc::new(retyped(field, view))
}

/// The field with strings and byte strings as plain arrays with offsets, at any depth.
pub(super) fn plain_field(field: &FieldRef) -> FieldRef {
    let plain = match field.data_type() {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain_field).collect()),
        other => match with_items(other, plain_field) {
            Some(plain) => plain,
            None => return Arc::clone(field),
        },
    };
    Arc::new(retyped(field, plain))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;

    use super::super::tests::variant;
    use super::*;

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
}
