//! Writing logical types as flatbuffers.

use flatbuffers::{FlatBufferBuilder, ForwardsUOffset, Vector, WIPOffset};

use super::generated::dtype::dtype as fb;
use crate::dtype::{DType, StructType};

/// Serializes a dtype as stored in files and IPC streams.
pub(crate) fn dtype_to_bytes(dtype: &DType) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let root = write(&mut builder, dtype);
    builder.finish_minimal(root);
    builder.finished_data().to_vec()
}

/// The number of tables of a serialized dtype: for each type one that tells its kind, and one of that kind.
pub(crate) fn dtype_tables(dtype: &DType) -> usize {
    let of_fields = |fields: &StructType| fields.dtypes().iter().map(dtype_tables).sum::<usize>();
    2 + match dtype {
        DType::Struct(fields, _) => of_fields(fields),
        DType::Union(union, _) => of_fields(union.variants()),
        DType::List(element, _) | DType::FixedSizeList(element, ..) => dtype_tables(element),
        DType::Map(map, _) => dtype_tables(map.key()) + dtype_tables(map.value()),
        DType::Extension(extension) => dtype_tables(extension.storage()),
        _ => 0,
    }
}

fn write<'b>(b: &mut FlatBufferBuilder<'b>, dtype: &DType) -> WIPOffset<fb::DType<'b>> {
    let (kind_type, kind) = match dtype {
        DType::Null => (fb::Type::Null, fb::Null::create(b, &fb::NullArgs {}).as_union_value()),
        DType::Bool(nullable) => {
            (fb::Type::Bool, fb::Bool::create(b, &fb::BoolArgs { nullable: *nullable }).as_union_value())
        }
        DType::Primitive(ptype, nullable) => {
            let args = fb::PrimitiveArgs { ptype: fb::PType(*ptype as u8), nullable: *nullable };
            (fb::Type::Primitive, fb::Primitive::create(b, &args).as_union_value())
        }
        DType::Decimal(decimal, nullable) => {
            let (precision, scale) = (decimal.precision(), decimal.scale());
            let args = fb::DecimalArgs { precision, scale, nullable: *nullable };
            (fb::Type::Decimal, fb::Decimal::create(b, &args).as_union_value())
        }
        DType::Utf8(nullable) => {
            (fb::Type::Utf8, fb::Utf8::create(b, &fb::Utf8Args { nullable: *nullable }).as_union_value())
        }
        DType::Binary(nullable) => (
            fb::Type::Binary,
            fb::Binary::create(b, &fb::BinaryArgs { nullable: *nullable }).as_union_value(),
        ),
        DType::Struct(fields, nullable) => {
            let (names, dtypes) = write_fields(b, fields);
            let args = fb::Struct_Args { names: Some(names), dtypes: Some(dtypes), nullable: *nullable };
            (fb::Type::Struct_, fb::Struct_::create(b, &args).as_union_value())
        }
        DType::List(element, nullable) => {
            let args = fb::ListArgs { element_type: Some(write(b, element)), nullable: *nullable };
            (fb::Type::List, fb::List::create(b, &args).as_union_value())
        }
        DType::FixedSizeList(element, size, nullable) => {
            let element_type = Some(write(b, element));
            let args = fb::FixedSizeListArgs { element_type, size_: *size, nullable: *nullable };
            (fb::Type::FixedSizeList, fb::FixedSizeList::create(b, &args).as_union_value())
        }
        DType::Extension(extension) => {
            let args = fb::ExtensionArgs {
                id: Some(b.create_string(extension.id())),
                storage_dtype: Some(write(b, extension.storage())),
                metadata: Some(b.create_vector(extension.metadata())),
            };
            (fb::Type::Extension, fb::Extension::create(b, &args).as_union_value())
        }
        DType::Variant(nullable) => {
            let args = fb::VariantArgs { nullable: *nullable };
            (fb::Type::Variant, fb::Variant::create(b, &args).as_union_value())
        }
        DType::Union(union, nullable) => {
            let (names, dtypes) = write_fields(b, union.variants());
            let ids: Vec<i8> = union.type_ids().iter().map(|id| i8::from_le_bytes([*id])).collect();
            let args = fb::UnionArgs {
                names: Some(names),
                dtypes: Some(dtypes),
                type_ids: Some(b.create_vector(&ids)),
                nullable: *nullable,
            };
            (fb::Type::Union, fb::Union::create(b, &args).as_union_value())
        }
        DType::Map(map, nullable) => {
            let args = fb::MapArgs {
                key_type: Some(write(b, map.key())),
                value_type: Some(write(b, map.value())),
                keys_sorted: map.keys_sorted(),
                nullable: *nullable,
            };
            (fb::Type::Map, fb::Map::create(b, &args).as_union_value())
        }
    };
    fb::DType::create(b, &fb::DTypeArgs { kind_type, kind: Some(kind) })
}

type Names<'b> = WIPOffset<Vector<'b, ForwardsUOffset<&'b str>>>;
type Types<'b> = WIPOffset<Vector<'b, ForwardsUOffset<fb::DType<'b>>>>;

fn write_fields<'b>(b: &mut FlatBufferBuilder<'b>, fields: &StructType) -> (Names<'b>, Types<'b>) {
    let dtypes: Vec<_> = fields.dtypes().iter().map(|dtype| write(b, dtype)).collect();
    let names: Vec<_> = fields.names().iter().map(|name| b.create_string(name)).collect();
    (b.create_vector(&names), b.create_vector(&dtypes))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::dtype::{DecimalType, Extension, MapType, PType, UnionType};
    use crate::limits::Limits;
    use crate::wire::dtype_from_bytes;

    #[test]
    fn a_type_whose_rows_of_nulls_are_huge_is_refused() {
        let list = |element: DType, size| DType::FixedSizeList(Arc::new(element), size, true);
        let number = DType::Primitive(PType::I64, false);
        let read = |dtype: &DType, limits| dtype_from_bytes(&dtype_to_bytes(dtype), &limits);
        for dtype in [
            list(number.clone(), 1 << 24),
            list(DType::Null, u32::MAX),
            list(list(list(DType::Bool(true), u32::MAX), u32::MAX), u32::MAX),
        ] {
            let error = read(&dtype, Limits::new()).unwrap_err().to_string();
            assert!(error.contains("a row of nulls takes"), "{error}");
        }
        let embedding = list(number, 1 << 20);
        assert_eq!(read(&embedding, Limits::new()).unwrap(), embedding);
        assert!(read(&embedding, Limits::new().with_max_row_bytes(1 << 20)).is_err());
    }

    #[test]
    fn every_type_comes_back_as_it_was_written() {
        let number = DType::Primitive(PType::I64, false);
        let date = Extension::try_new("vortex.date", DType::Primitive(PType::I32, true), vec![4]).unwrap();
        let fields = StructType::new([("a".into(), number.clone()), ("a".into(), DType::Utf8(true))]);
        let map = MapType::try_new(DType::Utf8(false), number.clone(), true).unwrap();
        let union = UnionType::try_new(fields.clone(), [5, 200]).unwrap();
        for dtype in [
            DType::Null,
            DType::Bool(true),
            DType::Primitive(PType::F16, true),
            DType::Decimal(DecimalType::try_new(40, -3).unwrap(), true),
            DType::Binary(false),
            DType::Struct(Arc::new(fields), true),
            DType::List(Arc::new(number.clone()), true),
            DType::FixedSizeList(Arc::new(number), 9, false),
            DType::Extension(Arc::new(date)),
            DType::Variant(true),
            DType::Union(Arc::new(union), false),
            DType::Map(Arc::new(map), true),
        ] {
            let (bytes, tables) = (dtype_to_bytes(&dtype), dtype_tables(&dtype) as u32);
            assert_eq!(dtype_from_bytes(&bytes, &Limits::new().with_max_layouts(tables)).unwrap(), dtype);
            let error = dtype_from_bytes(&bytes, &Limits::new().with_max_layouts(tables - 1)).unwrap_err();
            assert!(error.to_string().contains("too many tables"), "{error}");
        }
    }
}
