//! Conversion of logical types to Arrow fields and back.
//!
//! Several Arrow types can represent the same logical type (`Utf8`, `LargeUtf8`, `Utf8View`, a dictionary of
//! any of these). [`field`] returns the one that decoding prefers; a scan can request another one that
//! [`presents`] accepts.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{
    DECIMAL32_MAX_PRECISION, DECIMAL64_MAX_PRECISION, DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION,
    DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit as ArrowUnit, UnionFields, UnionMode,
};

use super::{
    DType, DecimalType, Extension, MapType, Meaning, PType, ROOT_COLUMN, StructType, TimeUnit, UnionType,
};
use crate::error::ResultExt as _;
use crate::{Error, Result};

/// Arrow's metadata key that names an extension type.
const EXTENSION_NAME: &str = "ARROW:extension:name";
/// Arrow's metadata key for the parameters of an extension type.
const EXTENSION_METADATA: &str = "ARROW:extension:metadata";
const UUID: &str = "arrow.uuid";
const JSON: &str = "arrow.json";
const VARIANT: &str = "arrow.parquet.variant";

/// The Arrow schema of a file: one field per column. A root that is not a struct, or is nullable, is
/// presented as one column called [`ROOT_COLUMN`].
///
/// # Errors
/// If a type has no Arrow equivalent.
pub fn schema(dtype: &DType) -> Result<SchemaRef> {
    let fields = match dtype {
        DType::Struct(fields, false) => struct_fields(fields)?,
        other => Fields::from(vec![field(ROOT_COLUMN, other)?]),
    };
    Ok(Arc::new(Schema::new(fields)))
}

/// The Arrow field of a column in the type that decoding prefers.
///
/// # Errors
/// If the type has no Arrow equivalent.
pub fn field(name: &str, dtype: &DType) -> Result<Field> {
    let field = Field::new(name, data_type(dtype)?, dtype.is_nullable());
    let extension = match dtype {
        DType::Extension(extension) => match extension.meaning() {
            Meaning::Uuid => Some((UUID, None)),
            Meaning::Json => Some((JSON, None)),
            Meaning::Unknown => Some((extension.id(), Some(extension.metadata()))),
            Meaning::Date(_) | Meaning::Time(_) | Meaning::Timestamp(..) => None,
        },
        DType::Variant(_) => Some((VARIANT, None)),
        _ => None,
    };
    let Some((name, parameters)) = extension else { return Ok(field) };
    let mut metadata = HashMap::from([(EXTENSION_NAME.to_owned(), name.to_owned())]);
    if let Some(Ok(text)) = parameters.filter(|bytes| !bytes.is_empty()).map(std::str::from_utf8) {
        metadata.insert(EXTENSION_METADATA.to_owned(), text.to_owned());
    }
    Ok(field.with_metadata(metadata))
}

/// The Arrow type that decoding prefers for `dtype`.
///
/// # Errors
/// If the type has no Arrow equivalent.
pub fn data_type(dtype: &DType) -> Result<DataType> {
    Ok(match dtype {
        DType::Null => DataType::Null,
        DType::Bool(_) => DataType::Boolean,
        DType::Primitive(ptype, _) => primitive(*ptype),
        DType::Decimal(decimal, _) => decimal_type(*decimal),
        DType::Utf8(_) => DataType::Utf8View,
        DType::Binary(_) => DataType::BinaryView,
        DType::Struct(fields, _) => DataType::Struct(struct_fields(fields)?),
        DType::List(element, _) => DataType::List(item(element)?),
        DType::FixedSizeList(element, size, _) => {
            let size =
                i32::try_from(*size).map_err(|_| Error::unsupported("fixed-size list length", size))?;
            DataType::FixedSizeList(item(element)?, size)
        }
        DType::Map(map, _) => {
            let entries = match data_type(&map.entry())? {
                DataType::Struct(fields) => DataType::Struct(with_plain_key(&fields)),
                other => other,
            };
            DataType::Map(Arc::new(Field::new("entries", entries, false)), map.keys_sorted())
        }
        DType::Extension(extension) => match extension.meaning() {
            Meaning::Date(TimeUnit::Days) => DataType::Date32,
            Meaning::Date(_) => DataType::Date64,
            Meaning::Time(unit @ (TimeUnit::Seconds | TimeUnit::Milliseconds)) => {
                DataType::Time32(arrow_unit(*unit))
            }
            Meaning::Time(unit) => DataType::Time64(arrow_unit(*unit)),
            Meaning::Timestamp(unit, zone) => DataType::Timestamp(arrow_unit(*unit), zone.clone()),
            Meaning::Uuid => DataType::FixedSizeBinary(16),
            Meaning::Json | Meaning::Unknown => data_type(extension.storage())?,
        },
        DType::Variant(_) => DataType::Struct(Fields::from(vec![
            Field::new("metadata", DataType::BinaryView, false),
            Field::new("value", DataType::BinaryView, true),
        ])),
        DType::Union(union, _) => {
            let fields = struct_fields(union.variants())?;
            let fields = UnionFields::try_new(union_ids(union)?, fields.iter().cloned())?;
            DataType::Union(fields, UnionMode::Sparse)
        }
    })
}

/// The entries of maps with strings as offset-based keys. Query engines compare keys with literals, which are
/// no views, and Arrow does not compare the one with the other.
fn with_plain_key(entries: &Fields) -> Fields {
    let plain = |(at, field): (usize, &FieldRef)| match (at, field.data_type()) {
        (0, DataType::Utf8View) => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8)),
        (0, DataType::BinaryView) => Arc::new(field.as_ref().clone().with_data_type(DataType::Binary)),
        _ => Arc::clone(field),
    };
    entries.iter().enumerate().map(plain).collect()
}

/// Arrow's ids of the variants of a union: those of the file, or the positions of the variants if an id
/// exceeds 127, which is the largest that Arrow allows.
fn union_ids(union: &UnionType) -> Result<Vec<i8>> {
    let own: Option<Vec<i8>> = union.type_ids().iter().map(|id| i8::try_from(*id).ok()).collect();
    let ids = own.or_else(|| (0..union.type_ids().len()).map(|at| i8::try_from(at).ok()).collect());
    ids.ok_or_else(|| Error::unsupported("number of union variants", union.type_ids().len()))
}

/// Whether `to` represents the same values as `dtype`, so that decoding can produce it directly. Nested types
/// are compared by position; field names and nullability do not matter.
pub fn presents(dtype: &DType, to: &DataType) -> bool {
    match (dtype, to) {
        (_, DataType::Dictionary(keys, values)) => {
            keys.is_integer() && can_be_packed(values) && presents(dtype, values)
        }
        (DType::Utf8(_), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
        | (DType::Binary(_), DataType::Binary | DataType::LargeBinary | DataType::BinaryView) => true,
        (DType::Decimal(decimal, _), to) => match to {
            DataType::Decimal32(p, s)
            | DataType::Decimal64(p, s)
            | DataType::Decimal128(p, s)
            | DataType::Decimal256(p, s) => (*p, *s) == (decimal.precision(), decimal.scale()),
            _ => false,
        },
        (
            DType::List(element, _),
            DataType::List(to)
            | DataType::LargeList(to)
            | DataType::ListView(to)
            | DataType::LargeListView(to),
        ) => presents(element, to.data_type()),
        (DType::FixedSizeList(element, size, _), DataType::FixedSizeList(to, len)) => {
            i64::from(*size) == i64::from(*len) && presents(element, to.data_type())
        }
        (DType::Struct(fields, _), DataType::Struct(to)) => {
            fields.len() == to.len()
                && fields.dtypes().iter().zip(to).all(|(dtype, to)| presents(dtype, to.data_type()))
        }
        (DType::Map(map, _), DataType::Map(entries, _)) => presents(&map.entry(), entries.data_type()),
        (DType::Extension(extension), to)
            if matches!(extension.meaning(), Meaning::Json | Meaning::Unknown) =>
        {
            presents(extension.storage(), to)
        }
        (dtype, to) => data_type(dtype).is_ok_and(|preferred| preferred == *to),
    }
}

/// Whether Arrow makes dictionaries of values of this type.
pub(crate) fn can_be_packed(values: &DataType) -> bool {
    match values {
        DataType::Boolean | DataType::Duration(_) | DataType::Interval(_) => false,
        DataType::Struct(_) => true,
        other => !other.is_nested(),
    }
}

/// The logical type of an Arrow schema: a non-nullable struct.
///
/// # Errors
/// If a column has a type without logical equivalent; the error names it.
pub fn from_schema(schema: &Schema) -> Result<DType> {
    Ok(DType::Struct(Arc::new(from_fields(schema.fields())?), false))
}

/// The logical type of an Arrow field.
///
/// # Errors
/// If the type has no logical equivalent.
pub fn from_field(field: &Field) -> Result<DType> {
    let nullable = field.is_nullable();
    let extension = |id: &str, storage: DType, metadata: Vec<u8>| {
        Extension::try_new(id, storage, metadata).map(|built| DType::Extension(Arc::new(built)))
    };
    match (field.extension_type_name(), field.data_type()) {
        (Some(UUID), DataType::FixedSizeBinary(16)) => {
            let bytes = Arc::new(DType::Primitive(PType::U8, false));
            return extension("vortex.uuid", DType::FixedSizeList(bytes, 16, nullable), vec![]);
        }
        (Some(JSON), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => {
            return extension("vortex.json", DType::Utf8(nullable), vec![]);
        }
        (Some(VARIANT), _) => return Ok(DType::Variant(nullable)),
        _ => {}
    }
    let temporal = |id: &str, ptype: PType, metadata: Vec<u8>| {
        extension(id, DType::Primitive(ptype, nullable), metadata)
    };
    let decimal = |precision: u8, scale: i8, most: u8| {
        if precision > most {
            let data_type = field.data_type();
            return Err(Error::invalid(format!(
                "{data_type} has {precision} digits, at most {most} allowed"
            )));
        }
        Ok(DType::Decimal(DecimalType::try_new(precision, scale)?, nullable))
    };
    Ok(match field.data_type() {
        DataType::Null => DType::Null,
        DataType::Boolean => DType::Bool(nullable),
        DataType::Decimal32(p, s) => decimal(*p, *s, DECIMAL32_MAX_PRECISION)?,
        DataType::Decimal64(p, s) => decimal(*p, *s, DECIMAL64_MAX_PRECISION)?,
        DataType::Decimal128(p, s) => decimal(*p, *s, DECIMAL128_MAX_PRECISION)?,
        DataType::Decimal256(p, s) => decimal(*p, *s, DECIMAL256_MAX_PRECISION)?,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DType::Utf8(nullable),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => DType::Binary(nullable),
        DataType::Date32 => return temporal("vortex.date", PType::I32, vec![4]),
        DataType::Date64 => return temporal("vortex.date", PType::I64, vec![2]),
        DataType::Time32(unit) => return temporal("vortex.time", PType::I32, vec![unit_number(*unit)]),
        DataType::Time64(unit) => return temporal("vortex.time", PType::I64, vec![unit_number(*unit)]),
        DataType::Timestamp(unit, zone) => {
            let zone = zone.as_deref().unwrap_or_default();
            let len = u16::try_from(zone.len())
                .map_err(|_| Error::invalid(format!("time zone of {} bytes", zone.len())))?;
            let mut metadata = vec![unit_number(*unit)];
            metadata.extend(len.to_le_bytes());
            metadata.extend(zone.bytes());
            return temporal("vortex.timestamp", PType::I64, metadata);
        }
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::ListView(element)
        | DataType::LargeListView(element) => DType::List(Arc::new(from_field(element)?), nullable),
        DataType::FixedSizeList(element, size) => {
            let size = u32::try_from(*size)
                .map_err(|_| Error::invalid(format!("fixed-size list of length {size}")))?;
            DType::FixedSizeList(Arc::new(from_field(element)?), size, nullable)
        }
        DataType::Struct(fields) => DType::Struct(Arc::new(from_fields(fields)?), nullable),
        DataType::Map(entries, keys_sorted) => {
            let [key, value] = key_and_value(entries)?;
            let key = from_field(key)?.with_nullable(false);
            DType::Map(Arc::new(MapType::try_new(key, from_field(value)?, *keys_sorted)?), nullable)
        }
        DataType::Dictionary(_, values) => {
            return from_field(&Field::new(field.name(), values.as_ref().clone(), nullable));
        }
        DataType::RunEndEncoded(_, values) => {
            return from_field(&Field::new(field.name(), values.data_type().clone(), nullable));
        }
        DataType::Union(fields, _) => {
            let variants = fields
                .iter()
                .map(|(_, field)| Ok((Arc::from(field.name().as_str()), from_field(field)?)))
                .collect::<Result<Vec<_>>>()?;
            let type_ids: Vec<u8> = fields.iter().map(|(id, _)| id.to_le_bytes()[0]).collect();
            DType::Union(Arc::new(UnionType::try_new(StructType::new(variants), type_ids)?), nullable)
        }
        other => match ptype_of(other) {
            Some(ptype) => DType::Primitive(ptype, nullable),
            None => {
                return Err(Error::invalid(format!("Vortex cannot store Arrow type {other}")));
            }
        },
    })
}

/// The machine type of an Arrow primitive number type.
pub(crate) fn ptype_of(data_type: &DataType) -> Option<PType> {
    PType::ALL.into_iter().find(|ptype| primitive(*ptype) == *data_type)
}

/// The two fields of the entries of a map.
pub(super) fn key_and_value(entries: &FieldRef) -> Result<&[FieldRef; 2]> {
    let DataType::Struct(fields) = entries.data_type() else {
        return Err(Error::invalid("map without entries"));
    };
    fields.as_ref().try_into().map_err(|_| {
        Error::invalid(format!("map entries of {} fields, expected key and value", fields.len()))
    })
}

/// The Arrow number type of a machine type.
pub fn primitive(ptype: PType) -> DataType {
    match ptype {
        PType::U8 => DataType::UInt8,
        PType::U16 => DataType::UInt16,
        PType::U32 => DataType::UInt32,
        PType::U64 => DataType::UInt64,
        PType::I8 => DataType::Int8,
        PType::I16 => DataType::Int16,
        PType::I32 => DataType::Int32,
        PType::I64 => DataType::Int64,
        PType::F16 => DataType::Float16,
        PType::F32 => DataType::Float32,
        PType::F64 => DataType::Float64,
    }
}

fn decimal_type(decimal: DecimalType) -> DataType {
    let (precision, scale) = (decimal.precision(), decimal.scale());
    if precision <= DECIMAL128_MAX_PRECISION {
        DataType::Decimal128(precision, scale)
    } else {
        DataType::Decimal256(precision, scale)
    }
}

fn struct_fields(fields: &StructType) -> Result<Fields> {
    fields.fields().map(|(name, dtype)| field(name, dtype)).collect()
}

fn from_fields(fields: &Fields) -> Result<StructType> {
    let fields = fields.iter().map(|field| {
        let dtype = from_field(field).at(|| format!("column `{}`", field.name()))?;
        Ok((Arc::from(field.name().as_str()), dtype))
    });
    Ok(StructType::new(fields.collect::<Result<Vec<_>>>()?))
}

fn item(element: &DType) -> Result<FieldRef> {
    Ok(Arc::new(field("item", element)?))
}

fn arrow_unit(unit: TimeUnit) -> ArrowUnit {
    match unit {
        TimeUnit::Nanoseconds => ArrowUnit::Nanosecond,
        TimeUnit::Microseconds => ArrowUnit::Microsecond,
        TimeUnit::Milliseconds => ArrowUnit::Millisecond,
        TimeUnit::Seconds | TimeUnit::Days => ArrowUnit::Second,
    }
}

fn unit_number(unit: ArrowUnit) -> u8 {
    let unit = match unit {
        ArrowUnit::Nanosecond => TimeUnit::Nanoseconds,
        ArrowUnit::Microsecond => TimeUnit::Microseconds,
        ArrowUnit::Millisecond => TimeUnit::Milliseconds,
        ArrowUnit::Second => TimeUnit::Seconds,
    };
    unit as u8
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array as _, AsArray as _, UnionArray};
    use arrow::datatypes::{Int32Type, IntervalUnit};

    use super::*;
    use crate::array::ArrayRef;
    use crate::array::build::Tree;
    use crate::scalar::{Scalar, Value};

    fn round_trips(data_type: DataType) {
        let before = Field::new("c", data_type, true);
        let dtype = from_field(&before).unwrap();
        assert_eq!(field("c", &dtype).unwrap(), before);
    }

    #[test]
    fn preferred_types_round_trip() {
        for ptype in PType::ALL {
            round_trips(primitive(ptype));
        }
        round_trips(DataType::Boolean);
        round_trips(DataType::Utf8View);
        round_trips(DataType::BinaryView);
        round_trips(DataType::Decimal128(38, -3));
        round_trips(DataType::Decimal256(76, 10));
        round_trips(DataType::Date32);
        round_trips(DataType::Date64);
        round_trips(DataType::Time32(ArrowUnit::Millisecond));
        round_trips(DataType::Time64(ArrowUnit::Nanosecond));
        round_trips(DataType::Timestamp(ArrowUnit::Second, Some("Europe/Berlin".into())));
        let item = Arc::new(Field::new("item", DataType::Int8, true));
        round_trips(DataType::List(Arc::clone(&item)));
        round_trips(DataType::FixedSizeList(Arc::clone(&item), 3));
        round_trips(DataType::Struct(Fields::from(vec![Field::new("a", DataType::Utf8View, false)])));
        round_trips(data_type(&union(&[127, 3])).unwrap());
    }

    fn union(ids: &[u8]) -> DType {
        let variants = ids.iter().map(|id| (format!("v{id}").into(), DType::Primitive(PType::I32, true)));
        DType::Union(Arc::new(UnionType::try_new(StructType::new(variants), ids).unwrap()), true)
    }

    #[test]
    fn a_union_keeps_its_ids_unless_arrow_lacks_one() {
        let ids = |ids: &[u8]| match data_type(&union(ids)).unwrap() {
            DataType::Union(fields, UnionMode::Sparse) => fields.iter().map(|(id, _)| id).collect::<Vec<_>>(),
            other => panic!("{other}"),
        };
        assert_eq!(ids(&[127, 3]), [127, 3]);
        assert_eq!(ids(&[5, 128, 3]), [0, 1, 2]);
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(ids(&all[128..]), (0..=127).collect::<Vec<i8>>());
        let error = data_type(&union(&all[127..])).unwrap_err().to_string();
        assert!(error.contains("129"), "{error}");
    }

    #[test]
    fn rows_of_a_renumbered_union_select_the_same_variants() {
        let dtype = union(&[5, 200]);
        let to = data_type(&dtype).unwrap();
        let rows = |array: ArrayRef| {
            let array = array.as_any().downcast_ref::<UnionArray>().unwrap();
            let value = |row: usize| array.value(row).as_primitive::<Int32Type>().value(0);
            (0..array.len()).map(|row| (array.type_id(row), value(row))).collect::<Vec<_>>()
        };
        let ids = Tree::primitive(&[200u8, 5, 200]);
        let tree = Tree::new("vortex.union").child(ids);
        let tree = tree.child(Tree::primitive(&[1i32, 2, 3])).child(Tree::primitive(&[4i32, 5, 6]));
        let array = tree.load(&dtype, 3).unwrap();
        assert_eq!(rows(array.decode(&to).unwrap()), [(1, 4), (0, 2), (1, 6)]);
        let value = Scalar::try_new(dtype, Value::Union(200, Arc::new(Value::Int(7)))).unwrap();
        assert_eq!(rows(value.to_arrow(&to, 2).unwrap()), [(1, 7), (1, 7)]);
    }

    #[test]
    fn keys_of_maps_are_no_views() {
        let map = |key: DType| {
            let map = MapType::try_new(key, DType::Utf8(true), false).unwrap();
            data_type(&DType::Map(Arc::new(map), true)).unwrap()
        };
        let of = |key: DataType| {
            let fields = vec![Field::new("key", key, false), Field::new("value", DataType::Utf8View, true)];
            DataType::Map(Arc::new(Field::new("entries", DataType::Struct(fields.into()), false)), false)
        };
        for (key, plain) in [(DType::Utf8(false), DataType::Utf8), (DType::Binary(false), DataType::Binary)] {
            assert_eq!(map(key), of(plain.clone()));
            round_trips(of(plain));
        }
        assert_eq!(map(DType::Primitive(PType::I32, false)), of(DataType::Int32));
    }

    #[test]
    fn other_presentations_store_the_same_type() {
        let utf8 = from_field(&Field::new("c", DataType::LargeUtf8, true)).unwrap();
        assert_eq!(utf8, DType::Utf8(true));
        let dictionary = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        assert_eq!(from_field(&Field::new("c", dictionary.clone(), true)).unwrap(), utf8);
        assert!(presents(&utf8, &dictionary));
        assert!(!presents(&utf8, &DataType::Binary));
    }

    #[test]
    fn an_unstorable_type_names_its_column() {
        let interval = Field::new("wait", DataType::Interval(IntervalUnit::DayTime), true);
        let message = from_schema(&Schema::new(vec![interval])).unwrap_err().to_string();
        assert!(message.contains("`wait`") && message.contains("Interval"), "{message}");
    }
}
