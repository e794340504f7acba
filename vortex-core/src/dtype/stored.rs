//! How Arrow types are stored, including types that the format lacks.
//!
//! | Arrow | stored as |
//! |---|---|
//! | types that [`from_field`] maps | the type that it returns |
//! | dictionaries, run-end encoded | their values; the writer decides how to encode them |
//! | durations, intervals of months | integers |
//! | other intervals | structs of their parts |
//! | fixed-size binary; UUIDs before 0.85 | byte strings |
//! | maps before 0.85, fixed-size lists before 0.54 | lists |
//! | extension types other than UUID | their storage types |
//! | timestamps of time zones that are neither names nor offsets | timestamps of UTC |
//!
//! The Arrow schema is stored in the file as well, so that this implementation reads back what was written.
//! One that the writer would have refused is not believed: Arrow has no arrays of some types, and makes null
//! rows of others as large as the type claims.
//! [`carrier`] is the intermediate Arrow type: it represents the stored type, and has the same values as the
//! requested Arrow type.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, IntervalUnit, Schema};

use super::arrow::{from_field, key_and_value, presents};
use super::{DType, MapType, Meaning, PType, StructType, time_zone, with_inner};
use crate::release::since;
use crate::{Error, Release, Result};

/// Bytes that a null row may take because of its Arrow type. Queries make null rows before they read any.
const MAX_NULL_ROW: u64 = 1 << 20;

/// The type of a file with `schema` that `min_reader` and later releases can read.
///
/// # Errors
/// If a column cannot be stored for them; the error names it.
pub(crate) fn stored_schema(schema: &Schema, min_reader: Release) -> Result<DType> {
    let fields = stored_fields(schema.fields(), min_reader)?;
    for (field, dtype) in schema.fields().iter().zip(fields.dtypes()) {
        check_null_row(field.data_type(), dtype)
            .map_err(|error| error.at(format!("column `{}`", field.name())))?;
    }
    Ok(DType::Struct(Arc::new(fields), false))
}

fn stored_fields(fields: &Fields, min_reader: Release) -> Result<StructType> {
    let fields = fields.iter().map(|field| {
        let dtype =
            stored(field, min_reader).map_err(|error| error.at(format!("column `{}`", field.name())))?;
        Ok((Arc::from(field.name().as_str()), dtype))
    });
    Ok(StructType::new(fields.collect::<Result<Vec<_>>>()?))
}

/// The type as which a field is stored.
fn stored(field: &Field, min_reader: Release) -> Result<DType> {
    let nullable = field.is_nullable();
    let of_values = |values: &DataType| stored(&Field::new("", values.clone(), nullable), min_reader);
    let element = |element: &FieldRef| stored(element, min_reader).map(Arc::new);
    let structure = |fields: StructType| {
        if nullable && min_reader < since::NULLABLE_STRUCT_COLUMNS {
            let first = since::NULLABLE_STRUCT_COLUMNS;
            return Err(Error::invalid(format!(
                "structs that may be null need release {first}, but the file is for {min_reader} and later"
            )));
        }
        Ok(DType::Struct(Arc::new(fields), nullable))
    };
    Ok(match field.data_type() {
        DataType::FixedSizeBinary(16)
            if field.extension_type_name() == Some("arrow.uuid") && min_reader >= since::UUIDS =>
        {
            from_field(field)?
        }
        DataType::FixedSizeBinary(_) => DType::Binary(nullable),
        DataType::Dictionary(_, values) if matches!(**values, DataType::Dictionary(..)) => {
            return Err(Error::invalid(format!(
                "the Arrow schema of a file cannot state {}; use a dictionary of plain values",
                field.data_type()
            )));
        }
        DataType::Dictionary(_, values) => of_values(values)?,
        DataType::RunEndEncoded(_, values) => of_values(values.data_type())?,
        DataType::Duration(_) => DType::Primitive(PType::I64, nullable),
        DataType::Interval(unit) => match parts(*unit) {
            None => DType::Primitive(PType::I32, nullable),
            Some(parts) => structure(StructType::new(parts))?,
        },
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => DType::List(element(item)?, nullable),
        DataType::FixedSizeList(item, size) => match u32::try_from(*size) {
            Ok(size) if min_reader >= since::FIXED_SIZE_LISTS => {
                DType::FixedSizeList(element(item)?, size, nullable)
            }
            Ok(_) => DType::List(element(item)?, nullable),
            Err(_) => return Err(Error::invalid(format!("fixed-size list of length {size}"))),
        },
        DataType::Struct(fields) => structure(stored_fields(fields, min_reader)?)?,
        DataType::Map(entries, keys_sorted) => map(entries, *keys_sorted, nullable, min_reader)?,
        DataType::Union(..) => {
            return Err(Error::invalid(format!("Vortex cannot store Arrow type {}", field.data_type())));
        }
        DataType::Timestamp(unit, Some(zone)) if !time_zone::is_known(zone) => {
            from_field(&Field::new("", DataType::Timestamp(*unit, Some(time_zone::UTC.into())), nullable))?
        }
        plain => from_field(&Field::new(field.name(), plain.clone(), nullable))?,
    })
}

fn map(entries: &FieldRef, keys_sorted: bool, nullable: bool, min_reader: Release) -> Result<DType> {
    let [key, value] = key_and_value(entries)?;
    let (key, value) = (stored(key, min_reader)?.with_nullable(false), stored(value, min_reader)?);
    let map = MapType::try_new(key, value, keys_sorted)?;
    if min_reader >= since::MAPS {
        return Ok(DType::Map(Arc::new(map), nullable));
    }
    Ok(DType::List(Arc::new(map.entry()), nullable))
}

/// Refuses a type whose null rows are huge, unless they are as large in the stored type, too.
fn check_null_row(data_type: &DataType, stored: &DType) -> Result<()> {
    let bytes = null_row_bytes(data_type);
    let is_stored = || super::arrow::data_type(stored).is_ok_and(|stored| null_row_bytes(&stored) >= bytes);
    if bytes > MAX_NULL_ROW && !is_stored() {
        return Err(Error::invalid(format!(
            "a null row of type {data_type} takes {bytes} bytes, at most {MAX_NULL_ROW} allowed"
        )));
    }
    Ok(())
}

/// Bytes of a null row, or of a list with one null item. Values of a fixed size have all their bytes even
/// then.
fn null_row_bytes(data_type: &DataType) -> u64 {
    let of_field = |field: &FieldRef| null_row_bytes(field.data_type());
    // A negative size is as bad as a huge one.
    let size = |size: i32| u64::try_from(size).unwrap_or(u64::MAX);
    match data_type {
        DataType::FixedSizeBinary(bytes) => size(*bytes).max(1),
        DataType::FixedSizeList(item, len) => size(*len).saturating_mul(of_field(item)).saturating_add(1),
        DataType::Struct(fields) => {
            fields.iter().fold(1, |sum: u64, field| sum.saturating_add(of_field(field)))
        }
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::Map(item, _) => of_field(item).saturating_add(16),
        DataType::Dictionary(_, values) => null_row_bytes(values),
        DataType::RunEndEncoded(_, values) => of_field(values),
        DataType::Null | DataType::Boolean => 1,
        other => other.primitive_width().unwrap_or(16) as u64,
    }
}

/// The fields of an interval, if it has several.
pub(crate) fn parts(unit: IntervalUnit) -> Option<Vec<(Arc<str>, DType)>> {
    let part = |name: &str, ptype| (Arc::from(name), DType::Primitive(ptype, false));
    match unit {
        IntervalUnit::YearMonth => None,
        IntervalUnit::DayTime => Some(vec![part("days", PType::I32), part("milliseconds", PType::I32)]),
        IntervalUnit::MonthDayNano => {
            Some(vec![part("months", PType::I32), part("days", PType::I32), part("nanoseconds", PType::I64)])
        }
    }
}

/// The first release that reads a type.
pub(crate) fn first_reader(dtype: &DType) -> Release {
    let of_fields =
        |fields: &StructType| fields.dtypes().iter().map(first_reader).max().unwrap_or(Release::OLDEST);
    match dtype {
        DType::Struct(fields, false) => of_fields(fields),
        DType::Struct(fields, true) => of_fields(fields).max(since::NULLABLE_STRUCT_COLUMNS),
        DType::List(element, _) => first_reader(element),
        DType::FixedSizeList(element, ..) => first_reader(element).max(since::FIXED_SIZE_LISTS),
        DType::Map(map, _) => first_reader(map.key()).max(first_reader(map.value())).max(since::MAPS),
        DType::Extension(extension) if *extension.meaning() == Meaning::Uuid => since::UUIDS,
        DType::Null
        | DType::Bool(_)
        | DType::Primitive(..)
        | DType::Decimal(..)
        | DType::Utf8(_)
        | DType::Binary(_)
        | DType::Extension(_) => Release::OLDEST,
        // They are not written.
        DType::Variant(_) | DType::Union(..) => Release::NEWEST,
    }
}

/// Whether a file of type `dtype` may have been written from `schema`, so that reading it as that schema
/// returns what was written.
pub(crate) fn may_be_stored_as(schema: &Schema, dtype: &DType) -> bool {
    // For other releases, a type is stored as for one of these, or not at all.
    [Release::NEWEST, since::NULLABLE_STRUCT_COLUMNS, Release::OLDEST]
        .into_iter()
        .any(|release| stored_schema(schema, release).is_ok_and(|stored| stored == *dtype))
}

/// The Arrow type that decoding `dtype` can produce and that has the values of `to`; this is `to` itself if
/// decoding can produce it. `None` if there is none.
pub(crate) fn carrier(dtype: &DType, to: &DataType) -> Option<DataType> {
    if presents(dtype, to) {
        return Some(to.clone());
    }
    let item = |element: &DType, to: &FieldRef| carried(element, to);
    Some(match (dtype, to) {
        (dtype, DataType::Dictionary(_, values))
            if super::arrow::can_be_packed(values) && !has_runs(values) =>
        {
            carrier(dtype, values)?
        }
        (dtype, DataType::RunEndEncoded(ends, values))
            if can_be_ends(ends) && !has_runs(values.data_type()) =>
        {
            carrier(dtype, values.data_type())?
        }
        (DType::Primitive(PType::I64, _), DataType::Duration(_)) => DataType::Int64,
        (DType::Primitive(PType::I32, _), DataType::Interval(IntervalUnit::YearMonth)) => DataType::Int32,
        (DType::Extension(_), DataType::Timestamp(unit, Some(zone))) if !time_zone::is_known(zone) => {
            let carrier = DataType::Timestamp(*unit, Some(time_zone::UTC.into()));
            presents(dtype, &carrier).then_some(carrier)?
        }
        (DType::Struct(fields, _), DataType::Interval(unit)) => {
            let parts = StructType::new(parts(*unit)?);
            if **fields != parts {
                return None;
            }
            super::arrow::data_type(dtype).ok()?
        }
        (DType::Binary(_), DataType::FixedSizeBinary(_)) => DataType::LargeBinary,
        (DType::List(element, _), DataType::List(to)) => DataType::List(item(element, to)?),
        (DType::List(element, _), DataType::ListView(to)) => DataType::ListView(item(element, to)?),
        (DType::List(element, _), DataType::LargeListView(to)) => DataType::LargeListView(item(element, to)?),
        (DType::List(element, _), DataType::LargeList(to) | DataType::FixedSizeList(to, _)) => {
            DataType::LargeList(item(element, to)?)
        }
        (DType::List(element, _), DataType::Map(entries, _)) => DataType::List(item(element, entries)?),
        (DType::FixedSizeList(element, size, _), DataType::FixedSizeList(to, len))
            if i64::from(*size) == i64::from(*len) =>
        {
            DataType::FixedSizeList(item(element, to)?, *len)
        }
        (DType::Struct(fields, _), DataType::Struct(to)) if fields.len() == to.len() => {
            let fields = fields.dtypes().iter().zip(to).map(|(dtype, to)| carried(dtype, to));
            DataType::Struct(fields.collect::<Option<Fields>>()?)
        }
        (DType::Map(map, _), DataType::Map(entries, sorted)) => {
            DataType::Map(item(&map.entry(), entries)?, *sorted)
        }
        _ => return None,
    })
}

fn has_runs(values: &DataType) -> bool {
    matches!(values, DataType::RunEndEncoded(..))
}

/// Whether Arrow makes arrays of runs with ends of this type.
fn can_be_ends(ends: &Field) -> bool {
    matches!(ends.data_type(), DataType::Int16 | DataType::Int32 | DataType::Int64) && !ends.is_nullable()
}

fn carried(dtype: &DType, to: &FieldRef) -> Option<FieldRef> {
    let carrier = carrier(dtype, to.data_type())?;
    Some(Arc::new(to.as_ref().clone().with_data_type(carrier)))
}

/// Like [`carrier`], but without dictionaries: the form in which a writer collects values.
pub(crate) fn plain_carrier(dtype: &DType, from: &DataType) -> Option<DataType> {
    carrier(dtype, &taken_in_as(from))
}

/// A type with a value of its own for each row, and with items in the order of lists.
fn taken_in_as(data_type: &DataType) -> DataType {
    // Rows with the same value share its bytes.
    let shared = |values: &DataType| match values {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        other => taken_in_as(other),
    };
    match data_type {
        DataType::Dictionary(_, values) => shared(values),
        DataType::RunEndEncoded(_, values) => shared(values.data_type()),
        other => match with_inner(other, &mut taken_in_as) {
            DataType::ListView(item) => DataType::List(item),
            DataType::LargeListView(item) => DataType::LargeList(item),
            plain => plain,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored_type(data_type: DataType, nullable: bool, release: Release) -> Result<String> {
        let schema = Schema::new(vec![Field::new("a", data_type, nullable)]);
        let dtype = stored_schema(&schema, release)?;
        assert!(may_be_stored_as(&schema, &dtype));
        assert!(first_reader(&dtype) <= release, "{dtype}");
        Ok(dtype.as_columns().unwrap().dtypes()[0].to_string())
    }

    #[test]
    fn types_that_the_format_lacks_are_stored_as_others() {
        let newest = |data_type| stored_type(data_type, true, Release::NEWEST).unwrap();
        assert_eq!(newest(DataType::Duration(arrow::datatypes::TimeUnit::Second)), "i64?");
        assert_eq!(newest(DataType::FixedSizeBinary(3)), "binary?");
        assert_eq!(newest(DataType::Interval(IntervalUnit::DayTime)), "{days=i32, milliseconds=i32}?");
        let words = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        assert_eq!(newest(words), "utf8?");
        let time = |zone: &str| DataType::Timestamp(arrow::datatypes::TimeUnit::Second, Some(zone.into()));
        assert_eq!(newest(time("Z")), newest(time("UTC")));
        assert_ne!(newest(time("+01:00")), newest(time("UTC")));
    }

    #[test]
    fn older_readers_get_lists_for_what_they_lack() {
        let item = Arc::new(Field::new("item", DataType::Int8, false));
        let pair = DataType::FixedSizeList(item, 2);
        assert_eq!(stored_type(pair.clone(), false, Release::OLDEST).unwrap(), "list(i8)");
        assert_eq!(stored_type(pair, false, Release::new(0, 54)).unwrap(), "fixed_size_list(i8)[2]");
        let entries = Field::new_struct(
            "entries",
            vec![Field::new("k", DataType::Utf8, false), Field::new("v", DataType::Int8, true)],
            false,
        );
        let map = DataType::Map(Arc::new(entries), false);
        assert_eq!(stored_type(map.clone(), true, Release::OLDEST).unwrap(), "list({key=utf8, value=i8?})?");
        assert_eq!(stored_type(map, true, Release::NEWEST).unwrap(), "map(utf8, i8?)?");
    }

    #[test]
    fn what_cannot_be_stored_is_an_error_that_names_column_and_type() {
        let nullable = DataType::Struct(vec![Field::new("b", DataType::Int8, true)].into());
        let error = stored_type(nullable, true, Release::OLDEST).unwrap_err().to_string();
        assert!(error.contains("column `a`") && error.contains("0.55"), "{error}");
        let fields = arrow::datatypes::UnionFields::try_new([0], [Field::new("x", DataType::Int8, true)]);
        let union = DataType::Union(fields.unwrap(), arrow::datatypes::UnionMode::Dense);
        let error = stored_type(union, true, Release::NEWEST).unwrap_err().to_string();
        assert!(error.contains("column `a`") && error.contains("Union"), "{error}");
    }

    #[test]
    fn dictionaries_of_dictionaries_are_refused_since_a_schema_cannot_state_them() {
        let packed = |values| DataType::Dictionary(Box::new(DataType::Int8), Box::new(values));
        let error = stored_type(packed(packed(DataType::Utf8)), true, Release::NEWEST).unwrap_err();
        assert!(error.to_string().contains("use a dictionary of plain values"), "{error}");
        let fields = vec![Field::new("word", packed(DataType::Utf8), true)];
        assert!(stored_type(packed(DataType::Struct(fields.into())), true, Release::NEWEST).is_ok());
    }

    #[test]
    fn decimals_with_more_digits_than_arrow_has_are_refused() {
        type Decimal = fn(u8, i8) -> DataType;
        let decimals: [(Decimal, u8); 4] = [
            (DataType::Decimal32, 9),
            (DataType::Decimal64, 18),
            (DataType::Decimal128, 38),
            (DataType::Decimal256, 76),
        ];
        for (decimal, most) in decimals {
            assert!(stored_type(decimal(most, 2), true, Release::NEWEST).is_ok());
            for too_many in [most + 1, u8::MAX] {
                let error = stored_type(decimal(too_many, 2), true, Release::NEWEST).unwrap_err().to_string();
                assert!(error.contains("column `a`") && error.contains(&too_many.to_string()), "{error}");
            }
        }
    }

    #[test]
    fn dictionaries_that_arrow_cannot_make_are_not_promised() {
        let of = |values: DataType| DataType::Dictionary(Box::new(DataType::Int8), Box::new(values));
        let list = DataType::new_list(DataType::Int8, true);
        for values in [DataType::Boolean, list, DataType::Duration(arrow::datatypes::TimeUnit::Second)] {
            let dtype = stored(&Field::new("a", of(values.clone()), true), Release::NEWEST).unwrap();
            assert_eq!(carrier(&dtype, &of(values.clone())), None);
            assert!(crate::write::can_write(&Field::new("a", of(values), true), Release::NEWEST).is_err());
        }
        let words = of(DataType::Utf8);
        assert!(carrier(&DType::Utf8(true), &words).is_some());
    }

    #[test]
    fn runs_that_arrow_cannot_make_are_not_promised() {
        let ends = |of, nullable| Arc::new(Field::new("run_ends", of, nullable));
        let runs = |ends, of| DataType::RunEndEncoded(ends, Arc::new(Field::new("values", of, true)));
        let packed = |of| DataType::Dictionary(Box::new(DataType::Int8), Box::new(of));
        let short = || ends(DataType::Int16, false);
        let number = DType::Primitive(PType::I64, true);
        for data_type in [
            runs(ends(DataType::Int8, false), DataType::Int64),
            runs(ends(DataType::UInt32, false), DataType::Int64),
            runs(ends(DataType::Utf8, false), DataType::Int64),
            runs(ends(DataType::Int32, true), DataType::Int64),
            runs(short(), runs(short(), DataType::Int64)),
            runs(short(), packed(runs(short(), DataType::Int64))),
            packed(runs(short(), DataType::Int64)),
        ] {
            let list = DataType::new_list(data_type.clone(), true);
            assert_eq!(carrier(&number, &data_type), None, "{data_type}");
            assert_eq!(carrier(&DType::List(Arc::new(number.clone()), true), &list), None, "{list}");
            assert!(crate::write::can_write(&Field::new("a", data_type, true), Release::NEWEST).is_err());
        }
        for of in [DataType::Int16, DataType::Int32, DataType::Int64] {
            assert_eq!(carrier(&number, &runs(ends(of, false), DataType::Int64)), Some(DataType::Int64));
        }
        assert!(carrier(&DType::Utf8(true), &runs(short(), packed(DataType::Utf8))).is_some());
    }

    #[test]
    fn types_of_huge_null_rows_are_neither_written_nor_believed() {
        let item = |of| Arc::new(Field::new("item", of, true));
        let bytes = DataType::FixedSizeBinary;
        let megabyte = bytes(1 << 20);
        assert_eq!(stored_type(megabyte.clone(), true, Release::NEWEST).unwrap(), "binary?");
        let structure = vec![Field::new("x", megabyte, true)].into();
        let nothing = || DataType::Struct(Fields::empty());
        for (data_type, release) in [
            (bytes(i32::MAX), Release::NEWEST),
            (bytes((1 << 20) + 1), Release::NEWEST),
            (bytes(-1), Release::NEWEST),
            (DataType::new_list(bytes(i32::MAX), true), Release::NEWEST),
            (DataType::Dictionary(Box::new(DataType::Int8), Box::new(bytes(i32::MAX))), Release::NEWEST),
            (DataType::FixedSizeList(item(bytes(1 << 10)), 1 << 11), Release::NEWEST),
            (DataType::Struct(structure), Release::NEWEST),
            (DataType::FixedSizeList(item(DataType::Int8), i32::MAX), Release::OLDEST),
            (
                DataType::FixedSizeList(item(DataType::FixedSizeList(item(bytes(0)), 0)), 1 << 21),
                Release::OLDEST,
            ),
        ] {
            let schema = Schema::new(vec![Field::new("a", data_type.clone(), true)]);
            let error = stored_schema(&schema, release).unwrap_err().to_string();
            assert!(error.contains("column `a`") && error.contains("1048576"), "{data_type}: {error}");
            let dtype = stored(schema.field(0), release).unwrap();
            let dtype = DType::Struct(Arc::new(StructType::new([("a".into(), dtype)])), false);
            assert!(!may_be_stored_as(&schema, &dtype), "{data_type}");
        }
        // The file itself says how many elements these have, whatever its Arrow schema claims.
        let image = |of| DataType::FixedSizeList(item(of), 3 << 20);
        assert_eq!(
            stored_type(image(DataType::Float32), true, Release::NEWEST).unwrap(),
            "fixed_size_list(f32?)[3145728]?"
        );
        assert!(stored_type(image(nothing()), false, Release::NEWEST).is_ok());
    }

    #[test]
    fn a_schema_that_contradicts_the_file_is_not_believed() {
        let schema = Schema::new(vec![Field::new("a", DataType::Int8, false)]);
        let other = |field| DType::Struct(Arc::new(StructType::new([field])), false);
        assert!(!may_be_stored_as(&schema, &other(("a".into(), DType::Primitive(PType::I8, true)))));
        assert!(!may_be_stored_as(&schema, &other(("b".into(), DType::Primitive(PType::I8, false)))));
        assert!(!may_be_stored_as(&schema, &DType::Primitive(PType::I8, false)));
    }
}
