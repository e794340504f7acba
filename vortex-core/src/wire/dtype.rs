//! Logical types as flatbuffers (in files) and as protobuf (in metadata).

use std::sync::Arc;

use super::generated::dtype::dtype as fb;
use super::{aligned, broken, verifier};
use crate::dtype::{DType, DecimalType, Extension, MapType, PType, StructType, UnionType};
use crate::limits::Limits;
use crate::{Error, Result};

/// Messages of the format. Field numbers are fixed; never reuse one.
#[expect(
    unreachable_pub,
    clippy::enum_variant_names,
    reason = "prost derives public items named as the format does"
)]
pub(crate) mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct DType {
        #[prost(oneof = "dtype::Kind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13")]
        pub kind: Option<dtype::Kind>,
    }

    pub mod dtype {
        #[derive(Clone, PartialEq, prost::Oneof)]
        pub enum Kind {
            #[prost(message, tag = "1")]
            Null(super::Null),
            #[prost(message, tag = "2")]
            Bool(super::Nullable),
            #[prost(message, tag = "3")]
            Primitive(super::Primitive),
            #[prost(message, tag = "4")]
            Decimal(super::Decimal),
            #[prost(message, tag = "5")]
            Utf8(super::Nullable),
            #[prost(message, tag = "6")]
            Binary(super::Nullable),
            #[prost(message, tag = "7")]
            Struct(super::Struct),
            #[prost(message, tag = "8")]
            List(Box<super::List>),
            #[prost(message, tag = "9")]
            Extension(Box<super::Extension>),
            #[prost(message, tag = "10")]
            FixedSizeList(Box<super::FixedSizeList>),
            #[prost(message, tag = "11")]
            Variant(super::Nullable),
            #[prost(message, tag = "12")]
            Union(super::Union),
            #[prost(message, tag = "13")]
            Map(Box<super::Map>),
        }
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Null {}

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Nullable {
        #[prost(bool, tag = "1")]
        pub nullable: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Primitive {
        #[prost(int32, tag = "1")]
        pub ptype: i32,
        #[prost(bool, tag = "2")]
        pub nullable: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Decimal {
        #[prost(uint32, tag = "1")]
        pub precision: u32,
        #[prost(int32, tag = "2")]
        pub scale: i32,
        #[prost(bool, tag = "3")]
        pub nullable: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Struct {
        #[prost(string, repeated, tag = "1")]
        pub names: Vec<String>,
        #[prost(message, repeated, tag = "2")]
        pub dtypes: Vec<DType>,
        #[prost(bool, tag = "3")]
        pub nullable: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct List {
        #[prost(message, optional, boxed, tag = "1")]
        pub element_type: Option<Box<DType>>,
        #[prost(bool, tag = "2")]
        pub nullable: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct FixedSizeList {
        #[prost(message, optional, boxed, tag = "1")]
        pub element_type: Option<Box<DType>>,
        #[prost(uint32, tag = "2")]
        pub size: u32,
        #[prost(bool, tag = "3")]
        pub nullable: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Extension {
        #[prost(string, tag = "1")]
        pub id: String,
        #[prost(message, optional, boxed, tag = "2")]
        pub storage_dtype: Option<Box<DType>>,
        #[prost(bytes = "vec", optional, tag = "3")]
        pub metadata: Option<Vec<u8>>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Union {
        #[prost(string, repeated, tag = "1")]
        pub names: Vec<String>,
        #[prost(message, repeated, tag = "2")]
        pub dtypes: Vec<DType>,
        #[prost(int32, repeated, tag = "3")]
        pub type_ids: Vec<i32>,
        #[prost(bool, tag = "4")]
        pub nullable: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Map {
        #[prost(message, optional, boxed, tag = "1")]
        pub key_type: Option<Box<DType>>,
        #[prost(message, optional, boxed, tag = "2")]
        pub value_type: Option<Box<DType>>,
        #[prost(bool, tag = "3")]
        pub keys_sorted: bool,
        #[prost(bool, tag = "4")]
        pub nullable: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Scalar {
        #[prost(message, optional, tag = "1")]
        pub dtype: Option<DType>,
        #[prost(message, optional, tag = "2")]
        pub value: Option<ScalarValue>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ScalarValue {
        #[prost(oneof = "scalar_value::Kind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12")]
        pub kind: Option<scalar_value::Kind>,
    }

    pub mod scalar_value {
        #[derive(Clone, PartialEq, prost::Oneof)]
        pub enum Kind {
            #[prost(int32, tag = "1")]
            NullValue(i32),
            #[prost(bool, tag = "2")]
            BoolValue(bool),
            #[prost(sint64, tag = "3")]
            Int64Value(i64),
            #[prost(uint64, tag = "4")]
            Uint64Value(u64),
            #[prost(float, tag = "5")]
            F32Value(f32),
            #[prost(double, tag = "6")]
            F64Value(f64),
            #[prost(string, tag = "7")]
            StringValue(String),
            #[prost(bytes, tag = "8")]
            BytesValue(Vec<u8>),
            #[prost(message, tag = "9")]
            ListValue(super::ListValue),
            #[prost(uint64, tag = "10")]
            F16Value(u64),
            #[prost(message, tag = "11")]
            VariantValue(Box<super::Scalar>),
            #[prost(message, tag = "12")]
            UnionValue(Box<super::UnionValue>),
        }
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct ListValue {
        #[prost(message, repeated, tag = "1")]
        pub values: Vec<ScalarValue>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct UnionValue {
        #[prost(uint32, tag = "1")]
        pub type_id: u32,
        #[prost(message, optional, boxed, tag = "2")]
        pub value: Option<Box<ScalarValue>>,
    }
}

/// Parses the dtype of a file or of an IPC stream.
pub(crate) fn dtype_from_bytes(bytes: &[u8], limits: &Limits) -> Result<DType> {
    let bytes = aligned(bytes);
    let root = flatbuffers::root_with_opts::<fb::DType<'_>>(&verifier(limits, bytes.len()), &bytes)
        .map_err(broken("dtype"))?;
    let mut reader = Reader { columns_left: limits.max_columns };
    within_row_limit(reader.flatbuffer(root, limits.max_depth)?, limits)
}

/// Converts a dtype in protobuf metadata.
pub(crate) fn dtype_from_proto(dtype: &proto::DType, limits: &Limits) -> Result<DType> {
    let mut reader = Reader { columns_left: limits.max_columns };
    within_row_limit(reader.protobuf(dtype, limits.max_depth)?, limits)
}

/// Checks that a row of nulls takes a reasonable number of bytes.
fn within_row_limit(dtype: DType, limits: &Limits) -> Result<DType> {
    let (bytes, most) = (null_row_bytes(&dtype), limits.max_row_bytes);
    if bytes > most {
        return Err(Error::limit(format!("a row of nulls takes {bytes} bytes, more than {most}")));
    }
    Ok(dtype)
}

/// Bytes of a row of nulls, in which fixed-size lists have all their elements.
fn null_row_bytes(dtype: &DType) -> u64 {
    let sum = |sum: u64, dtype: &DType| sum.saturating_add(null_row_bytes(dtype));
    match dtype.storage() {
        DType::Primitive(ptype, _) => ptype.byte_width() as u64,
        DType::FixedSizeList(element, size, _) => {
            null_row_bytes(element).saturating_mul(u64::from(*size)).saturating_add(1)
        }
        DType::Struct(fields, _) => fields.dtypes().iter().fold(1, sum),
        DType::Union(union, _) => union.variants().dtypes().iter().fold(1, sum),
        DType::Null | DType::Bool(_) => 1,
        _ => 16,
    }
}

/// Counts nodes while reading, since flatbuffers may share one table between many parents.
struct Reader {
    columns_left: u32,
}

impl Reader {
    fn count(&mut self, depth_left: u32) -> Result<()> {
        if depth_left == 0 {
            super::too_deep("dtype")?;
        }
        self.columns_left = self
            .columns_left
            .checked_sub(1)
            .ok_or_else(|| Error::limit("dtype has too many fields for `max_columns`"))?;
        Ok(())
    }

    /// The fields of a struct, or the variants of a union. Flatbuffers may also share names between many
    /// structs, so none is copied before its type has been counted.
    fn fields<'n, T>(
        &mut self,
        names: impl ExactSizeIterator<Item = &'n str>,
        dtypes: impl ExactSizeIterator<Item = T>,
        mut read: impl FnMut(&mut Self, T) -> Result<DType>,
    ) -> Result<StructType> {
        if names.len() != dtypes.len() {
            let (names, dtypes) = (names.len(), dtypes.len());
            return Err(Error::corrupt(format!("struct with {names} names and {dtypes} types")));
        }
        let fields = names.zip(dtypes).map(|(name, dtype)| {
            let dtype = read(self, dtype)?;
            Ok((name.into(), dtype))
        });
        Ok(StructType::new(fields.collect::<Result<Vec<(Arc<str>, DType)>>>()?))
    }

    fn flatbuffer(&mut self, dtype: fb::DType<'_>, depth_left: u32) -> Result<DType> {
        self.count(depth_left)?;
        let missing = || Error::corrupt("dtype without its parameters");
        let depth = depth_left - 1;
        let tag = dtype.kind_type();
        Ok(match tag {
            fb::Type::Null => DType::Null,
            fb::Type::Bool => DType::Bool(dtype.kind_as_bool().ok_or_else(missing)?.nullable()),
            fb::Type::Primitive => {
                let inner = dtype.kind_as_primitive().ok_or_else(missing)?;
                DType::Primitive(PType::try_from_number(inner.ptype().0.into())?, inner.nullable())
            }
            fb::Type::Decimal => {
                let inner = dtype.kind_as_decimal().ok_or_else(missing)?;
                let decimal = DecimalType::try_new(inner.precision(), inner.scale());
                DType::Decimal(decimal.map_err(Error::into_corrupt)?, inner.nullable())
            }
            fb::Type::Utf8 => DType::Utf8(dtype.kind_as_utf_8().ok_or_else(missing)?.nullable()),
            fb::Type::Binary => DType::Binary(dtype.kind_as_binary().ok_or_else(missing)?.nullable()),
            fb::Type::Struct_ => {
                let inner = dtype.kind_as_struct_().ok_or_else(missing)?;
                let (names, dtypes) = (inner.names().unwrap_or_default(), inner.dtypes().unwrap_or_default());
                let fields = self
                    .fields(names.iter(), dtypes.iter(), |reader, field| reader.flatbuffer(field, depth))?;
                DType::Struct(Arc::new(fields), inner.nullable())
            }
            fb::Type::List => {
                let inner = dtype.kind_as_list().ok_or_else(missing)?;
                let element = self.flatbuffer(inner.element_type().ok_or_else(missing)?, depth)?;
                DType::List(Arc::new(element), inner.nullable())
            }
            fb::Type::FixedSizeList => {
                let inner = dtype.kind_as_fixed_size_list().ok_or_else(missing)?;
                let element = self.flatbuffer(inner.element_type().ok_or_else(missing)?, depth)?;
                DType::FixedSizeList(Arc::new(element), inner.size_(), inner.nullable())
            }
            fb::Type::Extension => {
                let inner = dtype.kind_as_extension().ok_or_else(missing)?;
                let id = inner.id().ok_or_else(missing)?;
                let storage = self.flatbuffer(inner.storage_dtype().ok_or_else(missing)?, depth)?;
                let metadata = inner.metadata().map(|bytes| bytes.bytes()).unwrap_or_default();
                DType::Extension(Arc::new(Extension::try_new(id, storage, metadata)?))
            }
            fb::Type::Variant => DType::Variant(dtype.kind_as_variant().ok_or_else(missing)?.nullable()),
            fb::Type::Union => {
                let inner = dtype.kind_as_union().ok_or_else(missing)?;
                let (names, dtypes) = (inner.names().unwrap_or_default(), inner.dtypes().unwrap_or_default());
                let variants = self
                    .fields(names.iter(), dtypes.iter(), |reader, field| reader.flatbuffer(field, depth))?;
                let type_ids = inner.type_ids().unwrap_or_default().iter().map(|id| id.to_le_bytes()[0]);
                union(variants, type_ids.collect(), inner.nullable())?
            }
            fb::Type::Map => {
                let inner = dtype.kind_as_map().ok_or_else(missing)?;
                let key = self.flatbuffer(inner.key_type().ok_or_else(missing)?, depth)?;
                let value = self.flatbuffer(inner.value_type().ok_or_else(missing)?, depth)?;
                map(key, value, inner.keys_sorted(), inner.nullable())?
            }
            other => return Err(Error::unsupported("dtype", other.0)),
        })
    }

    fn protobuf(&mut self, dtype: &proto::DType, depth_left: u32) -> Result<DType> {
        use proto::dtype::Kind;
        self.count(depth_left)?;
        let depth = depth_left - 1;
        let missing = || Error::corrupt("dtype without its parameters");
        let narrow =
            |number: i64| u8::try_from(number).map_err(|_| Error::corrupt("dtype parameter out of range"));
        Ok(match dtype.kind.as_ref().ok_or_else(missing)? {
            Kind::Null(_) => DType::Null,
            Kind::Bool(inner) => DType::Bool(inner.nullable),
            Kind::Primitive(inner) => {
                DType::Primitive(PType::try_from_number(inner.ptype.into())?, inner.nullable)
            }
            Kind::Decimal(inner) => {
                let scale =
                    i8::try_from(inner.scale).map_err(|_| Error::corrupt("decimal scale out of range"))?;
                let decimal = DecimalType::try_new(narrow(inner.precision.into())?, scale);
                DType::Decimal(decimal.map_err(Error::into_corrupt)?, inner.nullable)
            }
            Kind::Utf8(inner) => DType::Utf8(inner.nullable),
            Kind::Binary(inner) => DType::Binary(inner.nullable),
            Kind::Struct(inner) => {
                let names = inner.names.iter().map(String::as_str);
                let fields =
                    self.fields(names, inner.dtypes.iter(), |reader, field| reader.protobuf(field, depth))?;
                DType::Struct(Arc::new(fields), inner.nullable)
            }
            Kind::List(inner) => {
                let element = self.protobuf(inner.element_type.as_ref().ok_or_else(missing)?, depth)?;
                DType::List(Arc::new(element), inner.nullable)
            }
            Kind::FixedSizeList(inner) => {
                let element = self.protobuf(inner.element_type.as_ref().ok_or_else(missing)?, depth)?;
                DType::FixedSizeList(Arc::new(element), inner.size, inner.nullable)
            }
            Kind::Extension(inner) => {
                let storage = self.protobuf(inner.storage_dtype.as_ref().ok_or_else(missing)?, depth)?;
                let metadata = inner.metadata.clone().unwrap_or_default();
                DType::Extension(Arc::new(Extension::try_new(&inner.id, storage, metadata)?))
            }
            Kind::Variant(inner) => DType::Variant(inner.nullable),
            Kind::Union(inner) => {
                let names = inner.names.iter().map(String::as_str);
                let variants =
                    self.fields(names, inner.dtypes.iter(), |reader, field| reader.protobuf(field, depth))?;
                let type_ids = inner.type_ids.iter().map(|id| narrow((*id).into())).collect::<Result<_>>()?;
                union(variants, type_ids, inner.nullable)?
            }
            Kind::Map(inner) => {
                let key = self.protobuf(inner.key_type.as_ref().ok_or_else(missing)?, depth)?;
                let value = self.protobuf(inner.value_type.as_ref().ok_or_else(missing)?, depth)?;
                map(key, value, inner.keys_sorted, inner.nullable)?
            }
        })
    }
}

fn union(variants: StructType, type_ids: Box<[u8]>, nullable: bool) -> Result<DType> {
    let union = UnionType::try_new(variants, type_ids).map_err(Error::into_corrupt)?;
    Ok(DType::Union(Arc::new(union), nullable))
}

fn map(key: DType, value: DType, keys_sorted: bool, nullable: bool) -> Result<DType> {
    let map = MapType::try_new(key, value, keys_sorted).map_err(Error::into_corrupt)?;
    Ok(DType::Map(Arc::new(map), nullable))
}

#[cfg(test)]
mod tests {
    use flatbuffers::FlatBufferBuilder;

    use super::*;

    /// Structs within each other, from the innermost one, each with so many names and one type.
    fn nested(name_counts: &[usize]) -> Vec<u8> {
        let mut b = FlatBufferBuilder::new();
        let kind = Some(fb::Null::create(&mut b, &fb::NullArgs {}).as_union_value());
        let mut dtype = fb::DType::create(&mut b, &fb::DTypeArgs { kind_type: fb::Type::Null, kind });
        let name = b.create_string("x");
        for count in name_counts {
            let (names, dtypes) = (b.create_vector(&vec![name; *count]), b.create_vector(&[dtype]));
            let fields = fb::Struct_Args { names: Some(names), dtypes: Some(dtypes), nullable: false };
            let kind = Some(fb::Struct_::create(&mut b, &fields).as_union_value());
            dtype = fb::DType::create(&mut b, &fb::DTypeArgs { kind_type: fb::Type::Struct_, kind });
        }
        b.finish_minimal(dtype);
        b.finished_data().to_vec()
    }

    #[test]
    fn a_struct_of_more_names_than_types_is_refused_before_its_fields_are_read() {
        let read = |name_counts: &[usize]| dtype_from_bytes(&nested(name_counts), &Limits::default());
        assert_eq!(read(&[1, 1]).unwrap().to_string(), "{x={x=null}}");
        let error = read(&[3, 2]).unwrap_err().to_string();
        assert!(error.contains("struct with 2 names and 1 types"), "{error}");
        assert!(read(&[0]).is_err());
    }

    #[test]
    fn types_that_share_tables_are_limited_by_their_bytes() {
        let mut b = FlatBufferBuilder::new();
        let kind = Some(fb::Null::create(&mut b, &fb::NullArgs {}).as_union_value());
        let null = fb::DType::create(&mut b, &fb::DTypeArgs { kind_type: fb::Type::Null, kind });
        let name = b.create_string(&"x".repeat(1000));
        let (names, dtypes) = (b.create_vector(&[name; 10_000]), b.create_vector(&[null; 10_000]));
        let fields = fb::Struct_Args { names: Some(names), dtypes: Some(dtypes), nullable: false };
        let kind = Some(fb::Struct_::create(&mut b, &fields).as_union_value());
        let root = fb::DType::create(&mut b, &fb::DTypeArgs { kind_type: fb::Type::Struct_, kind });
        b.finish_minimal(root);
        let error = dtype_from_bytes(b.finished_data(), &Limits::default()).unwrap_err();
        assert!(matches!(error.root(), Error::LimitExceeded(_)), "10 MB of names from 80 kB: {error}");
    }
}
