//! The schema of a table over files whose schemas differ.

use std::sync::Arc;

use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, FieldRef, Fields, Schema, SchemaRef,
};
use datafusion_common::{HashMap, HashSet, Result, plan_err};

use super::presented::plain_field;
use super::{ByName, item_of, retyped, with_items};
use crate::convert::{digits, is_bytes};

/// The schema of a table over files: columns by name, in order of first occurrence, with numbers widened,
/// nullable if they are in any file or if a file lacks the column. Depends only on the order of `files`.
///
/// Integers of different widths become the narrowest integers that hold the values of both, and so do floating-point
/// numbers; decimals with other decimals or with integers become decimals with all digits of both, 76 at most.
/// Timestamps of one zone take the finer unit; those that are too far away for it are errors when they are read.
/// Dictionaries of several files get keys of 32 bits, also within other types: operators join them, and their values
/// may be too many for narrower ones.
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
    let fields = columns.into_iter().map(|(field, _, count)| {
        let field = if count > 1 { with_wide_keys(&field) } else { field };
        if count < files.len() { Arc::new(field.as_ref().clone().with_nullable(true)) } else { field }
    });
    Ok(Schema::new_with_metadata(fields.collect::<Fields>(), first.metadata().clone()))
}

/// The column with keys of at least 32 bits in its dictionaries, at any depth.
fn with_wide_keys(field: &FieldRef) -> FieldRef {
    let wide = match field.data_type() {
        DataType::Dictionary(keys, values)
            if keys.primitive_width().is_some_and(|bytes| bytes < size_of::<i32>()) =>
        {
            DataType::Dictionary(Box::new(DataType::Int32), values.clone())
        }
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(with_wide_keys).collect()),
        other => match with_items(other, with_wide_keys) {
            Some(wide) => wide,
            None => return Arc::clone(field),
        },
    };
    Arc::new(retyped(field, wide))
}

fn merge_fields(left: &FieldRef, right: &FieldRef) -> Option<FieldRef> {
    if left == right {
        return Some(Arc::clone(left));
    }
    let merged = merge_types(left.data_type(), right.data_type())?;
    let nullable = left.is_nullable() || right.is_nullable();
    Some(Arc::new(retyped(left, merged).with_nullable(nullable)))
}

/// The type that holds the values of both exactly, as [`merge`] describes it.
pub(super) fn merge_types(left: &DataType, right: &DataType) -> Option<DataType> {
    use DataType::{
        BinaryView, Dictionary, FixedSizeList, LargeList, LargeListView, List, ListView, Map, Null, Struct,
        Timestamp, Utf8View,
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
        (left, right) if left.is_string() && right.is_string() => Utf8View,
        (left, right) if is_bytes(left) && is_bytes(right) => BinaryView,
        (Dictionary(_, left), Dictionary(_, right)) => merge_types(left, right)?,
        (Dictionary(_, values), other) | (other, Dictionary(_, values)) => merge_types(values, other)?,
        (Timestamp(left, zone), Timestamp(right, other)) if zone == other => {
            Timestamp(*left.max(right), zone.clone())
        }
        (left, right) if left.is_decimal() || right.is_decimal() => widest_decimal(left, right)?,
        (left, right) => widest_number(left, right)?,
    })
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
    Some(Arc::new(retyped(left, entries)))
}

/// Whether structs at any depth have fields of the same names, in any order.
pub(super) fn has_same_fields(left: &DataType, right: &DataType) -> bool {
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

fn widest_number(left: &DataType, right: &DataType) -> Option<DataType> {
    use DataType::{Float16, Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    // The narrowest comes first.
    const NUMBERS: [DataType; 11] =
        [Int8, UInt8, Int16, UInt16, Int32, UInt32, Int64, UInt64, Float16, Float32, Float64];
    // Each type holds all values of those before it in its row.
    const WIDENINGS: [&[DataType]; 6] = [
        &[Int8, Int16, Int32, Int64],
        &[UInt8, UInt16, UInt32, UInt64],
        &[UInt8, Int16, Int32, Int64],
        &[UInt16, Int32, Int64],
        &[UInt32, Int64],
        &[Float16, Float32, Float64],
    ];
    let holds = |wide: &DataType, narrow: &DataType| {
        WIDENINGS.iter().any(|row| {
            let place = |of: &DataType| row.iter().position(|candidate| candidate == of);
            place(narrow).is_some_and(|narrow| place(wide).is_some_and(|wide| narrow <= wide))
        })
    };
    NUMBERS.iter().find(|wide| holds(wide, left) && holds(wide, right)).cloned()
}

/// Decimals with the digits of both, in 128 bits if these suffice.
fn widest_decimal(left: &DataType, right: &DataType) -> Option<DataType> {
    let ((left_whole, left_fraction), (right_whole, right_fraction)) = (digits(left)?, digits(right)?);
    let (whole, fraction) = (left_whole.max(right_whole), left_fraction.max(right_fraction));
    let (precision, scale) = (u8::try_from(whole + fraction).ok()?, i8::try_from(fraction).ok()?);
    (precision <= DECIMAL256_MAX_PRECISION).then_some(match precision {
        ..=DECIMAL128_MAX_PRECISION => DataType::Decimal128(precision, scale),
        _ => DataType::Decimal256(precision, scale),
    })
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;

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
    fn decimals_take_the_digits_of_both() {
        use DataType::{
            Decimal32, Decimal64, Decimal128, Decimal256, Float64, Int8, Int32, Int64, UInt16, UInt64,
        };
        for (left, right, merged) in [
            (Decimal128(5, 2), Decimal128(9, 3), Some(Decimal128(9, 3))),
            (Decimal128(9, 0), Decimal128(9, 9), Some(Decimal128(18, 9))),
            (Decimal128(5, -2), Decimal128(5, 2), Some(Decimal128(9, 2))),
            (Decimal128(5, -2), Decimal128(4, -3), Some(Decimal128(5, -2))),
            (Decimal32(5, 2), Decimal64(12, 3), Some(Decimal128(12, 3))),
            (Decimal128(38, 0), Decimal128(38, 10), Some(Decimal256(48, 10))),
            (Decimal128(10, 2), Decimal256(12, 1), Some(Decimal128(13, 2))),
            (Decimal256(76, 0), Decimal128(5, 1), None),
            (Int8, Decimal128(5, 2), Some(Decimal128(5, 2))),
            (Int32, Decimal128(5, 2), Some(Decimal128(12, 2))),
            (Decimal128(38, 2), UInt16, Some(Decimal128(38, 2))),
            (Decimal128(38, 30), Int64, Some(Decimal256(49, 30))),
            (UInt64, Decimal128(5, 5), Some(Decimal128(25, 5))),
            (Decimal128(5, 2), Float64, None),
        ] {
            assert_eq!(merge_types(&left, &right), merged, "{left} and {right}");
            assert_eq!(merge_types(&right, &left), merged, "{right} and {left}");
        }
    }

    #[test]
    fn timestamps_of_one_zone_take_the_finer_unit() {
        use arrow::datatypes::TimeUnit::{Microsecond, Second};
        let utc = || Some("UTC".into());
        let merged = |left, right| merge_types(&left, &right);
        for zone in [None, utc()] {
            let (coarse, fine) =
                (DataType::Timestamp(Second, zone.clone()), DataType::Timestamp(Microsecond, zone));
            assert_eq!(merged(coarse.clone(), fine.clone()), Some(fine.clone()));
            assert_eq!(merged(fine.clone(), coarse), Some(fine));
        }
        assert_eq!(merged(DataType::Timestamp(Second, None), DataType::Timestamp(Second, utc())), None);
    }

    #[test]
    fn dictionaries_of_several_files_get_wide_keys() {
        let keyed = |keys: DataType| DataType::Dictionary(Box::new(keys), Box::new(DataType::Utf8));
        let merged = |keys: DataType, files: &[&str]| {
            let files: Vec<_> = files
                .iter()
                .map(|name| file(name, vec![Field::new("d", keyed(keys.clone()), true)]))
                .collect();
            merge(&files).unwrap().field(0).data_type().clone()
        };
        assert_eq!(merged(DataType::Int8, &["1"]), keyed(DataType::Int8));
        assert_eq!(merged(DataType::Int8, &["1", "2"]), keyed(DataType::Int32));
        assert_eq!(merged(DataType::UInt16, &["1", "2"]), keyed(DataType::Int32));
        assert_eq!(merged(DataType::UInt32, &["1", "2"]), keyed(DataType::UInt32));
    }

    #[test]
    fn dictionaries_within_other_types_get_wide_keys_too() {
        let keyed = |keys: DataType| DataType::Dictionary(Box::new(keys), Box::new(DataType::Utf8));
        let field = |name: &str, data_type: DataType| Arc::new(Field::new(name, data_type, true));
        type Nested = Box<dyn Fn(DataType) -> DataType>;
        let nested: [Nested; 5] = [
            Box::new(move |data_type| DataType::Struct(vec![field("a", data_type)].into())),
            Box::new(move |data_type| DataType::List(field("item", data_type))),
            Box::new(move |data_type| DataType::FixedSizeList(field("item", data_type), 2)),
            Box::new(move |data_type| {
                let entries = vec![field("key", DataType::Utf8), field("value", data_type)];
                DataType::Map(field("entries", DataType::Struct(entries.into())), false)
            }),
            Box::new(move |data_type| {
                let inner = DataType::ListView(field("item", data_type));
                DataType::LargeList(field("item", DataType::Struct(vec![field("a", inner)].into())))
            }),
        ];
        for of in nested {
            let column = || vec![Field::new("c", of(keyed(DataType::Int8)), true)];
            let both = merge(&[file("1", column()), file("2", column())]).unwrap();
            assert_eq!(both.field(0).data_type(), &of(keyed(DataType::Int32)));
            let only = merge(&[file("1", column())]).unwrap();
            assert_eq!(only.field(0).data_type(), &of(keyed(DataType::Int8)));
        }
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
