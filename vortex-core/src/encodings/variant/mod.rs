//! Self-describing values, in any encoding that can hold them.
//!
//! Metadata: optionally the dtype of a typed projection. No buffers. Children: the core storage, of the
//! same variant type, and the projection if there is a dtype for it. The core storage carries the nulls.
//! The projection may duplicate values of the core or add to them: a value of the core is never replaced,
//! but one that it lacks (a variant null, or a missing field of an object) is taken from the projection.

mod parquet;
mod shredded;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, StructArray};
use arrow::datatypes::DataType;

pub(super) use self::parquet::ParquetVariant;
use super::Encoding;
use crate::array::{ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, present};
use crate::dtype::DType;
use crate::dtype::arrow::data_type;
use crate::limits::Work;
use crate::scalar::{Scalar, Value};
use crate::variant::{self, Names};
use crate::wire::{dtype_from_proto, proto};
use crate::{Error, Result};

/// The `vortex.variant` encoding.
#[derive(Debug)]
pub(super) struct Variant;

const ID: &str = "vortex.variant";

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(message, optional, tag = "1")]
    shredded_dtype: Option<proto::DType>,
}

impl Encoding for Variant {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let DType::Variant(_) = node.dtype() else {
            return Err(Error::corrupt(format!("holds variants, not {}", node.dtype())));
        };
        let metadata = node.message::<Metadata>()?;
        node.expect_buffers(0)?;
        node.expect_children(1 + usize::from(metadata.shredded_dtype.is_some()))?;
        let shredded = metadata.shredded_dtype.map(|dtype| {
            let dtype = dtype_from_proto(&dtype, node.limits())?;
            node.child(1, &dtype, node.len())
        });
        let core = node.child(0, node.dtype(), node.len())?;
        Ok(Arc::new(VariantArray { header: node.header(ID), core, shredded: shredded.transpose()? }))
    }
}

#[derive(Debug)]
struct VariantArray {
    header: Header,
    core: EncodedRef,
    shredded: Option<EncodedRef>,
}

impl VariantArray {
    /// The core, completed with values from the projection.
    fn completed(&self, shredded: &EncodedRef) -> Result<ArrayRef> {
        let _work = Work::begin();
        let preferred = data_type(self.dtype())?;
        let core = self.core.decode(&preferred)?;
        let (DataType::Struct(fields), Some(core)) = (&preferred, core.as_struct_opt()) else {
            return Err(Error::corrupt(format!("variants decode to {}", core.data_type())));
        };
        let (metadata, values) = (core.column(0).as_binary_view(), core.column(1).as_binary_view());
        let dtype = shredded.dtype();
        let typed = shredded.decode(&data_type(dtype)?)?;
        let (metadata, values) =
            shredded::reassemble(metadata, core.nulls(), self.limits(), |row, out, names| {
                let typed = Scalar::from_decoded(typed.as_ref(), row, dtype, self.limits())?;
                fill(values.value(row), dtype, typed.value(), out, names)?;
                Ok(true)
            })?;
        Ok(Arc::new(StructArray::try_new(fields.clone(), vec![metadata, values], core.nulls().cloned())?))
    }
}

/// Appends a value; parts that it lacks are taken from a typed value.
fn fill(core: &[u8], dtype: &DType, typed: &Value, out: &mut Vec<u8>, names: &mut Names) -> Result<()> {
    let lacks = core == variant::NULL;
    match (dtype, typed) {
        (_, Value::Null) => out.extend_from_slice(core),
        (DType::Struct(types, _), Value::List(values)) if lacks || variant::is_object(core) => {
            let mut fields = if lacks { Vec::new() } else { variant::object_fields(core, names)? };
            let places = fields.iter().enumerate().map(|(at, (name, _))| (name.clone(), at));
            let places: HashMap<_, _> = places.collect();
            for ((name, dtype), value) in types.fields().zip(values.iter()) {
                if matches!(value, Value::Null) {
                    continue;
                }
                let known = places.get(&**name).copied();
                let before = known.map_or(&variant::NULL[..], |at| fields[at].1.as_ref());
                let mut bytes = Vec::new();
                fill(before, dtype, value, &mut bytes, names)?;
                match known {
                    Some(at) => fields[at].1 = bytes.into(),
                    None => fields.push((name.as_ref().into(), bytes.into())),
                }
            }
            variant::push_object(out, fields, names)?;
        }
        _ if lacks => variant::push_value(out, dtype, typed, names)?,
        _ => out.extend_from_slice(core),
    }
    Ok(())
}

impl EncodedArray for VariantArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        let shredded = self.shredded.iter().map(|child| ("shredded", child));
        std::iter::once(("core", &self.core)).chain(shredded).collect()
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        match &self.shredded {
            None => self.core.decode(to),
            Some(shredded) => present(self.completed(shredded)?, to),
        }
    }

    fn validity(&self) -> Result<Validity> {
        self.core.validity()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let shredded = self.shredded.as_ref().map(|child| pick.of(child)).transpose()?;
        let header = self.header.of_rows(pick.row_count());
        Ok(Arc::new(Self { header, core: pick.of(&self.core)?, shredded }))
    }

    fn as_constant(&self) -> Option<Scalar> {
        if self.shredded.is_some() { None } else { self.core.as_constant() }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array as _, AsArray as _};

    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::arrow::data_type;
    use crate::limits::Limits;
    use crate::mask::Mask;

    /// A variant scalar: dtype i8, value 3.
    fn three() -> Tree {
        let scalar = [0x5au8, 10, 0x0a, 4, 0x1a, 2, 0x08, 4, 0x12, 2, 0x18, 6];
        Tree::new("vortex.constant").buffer(scalar.to_vec())
    }

    #[test]
    fn shows_its_core_storage() {
        let array = Tree::new(ID).child(three()).load(&DType::Variant(false), 3).unwrap();
        let decoded = array.decode(&data_type(array.dtype()).unwrap()).unwrap();
        assert_eq!(decoded.len(), 3);
        assert_eq!(decoded.as_struct().column(0).as_binary_view().value(2), [1, 0, 0]);
        assert_eq!(decoded.as_struct().column(1).as_binary_view().value(2), [0x0c, 3]);
        assert_eq!(array.filter(&Mask::from_indices(3, [0])).unwrap().len(), 1);
    }

    fn typed(kind: proto::dtype::Kind) -> Tree {
        Tree::new(ID).message(&Metadata { shredded_dtype: Some(proto::DType { kind: Some(kind) }) })
    }

    fn values(array: &EncodedRef) -> Vec<Vec<u8>> {
        let decoded = array.decode(&data_type(array.dtype()).unwrap()).unwrap();
        decoded.to_data().validate_full().unwrap();
        decoded.as_struct().column(1).as_binary_view().iter().map(|value| value.unwrap().to_vec()).collect()
    }

    #[test]
    fn a_projection_needs_its_dtype_and_replaces_nothing() {
        assert!(Tree::new(ID).child(three()).child(three()).load(&DType::Variant(false), 3).is_err());
        let bools = typed(proto::dtype::Kind::Bool(proto::Nullable { nullable: false }));
        let tree = bools.child(three()).child(Tree::bools(&[true, false, true]));
        let array = tree.load(&DType::Variant(false), 3).unwrap();
        assert_eq!(values(&array.slice(1..3).unwrap()), [[0x0c, 3], [0x0c, 3]]);
    }

    #[test]
    fn what_the_core_lacks_is_in_the_projection() {
        // A variant scalar of type null.
        let null = [0x5au8, 8, 0x0a, 2, 0x0a, 0, 0x12, 2, 0x08, 0];
        let core = || Tree::new("vortex.constant").buffer(null.to_vec());
        let byte = proto::dtype::Kind::Primitive(proto::Primitive { ptype: 4, nullable: true });
        let column = || Tree::primitive(&[7i8, 8]).child(Tree::bools(&[true, false]));
        let array = typed(byte.clone()).child(core()).child(column());
        let array = array.load(&DType::Variant(false), 2).unwrap();
        assert_eq!(values(&array), [vec![0x0c, 7], vec![0x00]]);

        let fields = proto::Struct {
            names: vec!["a".into()],
            dtypes: vec![proto::DType { kind: Some(byte) }],
            nullable: false,
        };
        let fields = typed(proto::dtype::Kind::Struct(fields));
        let array = fields.child(core()).child(Tree::new("vortex.struct").child(column()));
        let array = array.load(&DType::Variant(false), 2).unwrap();
        assert_eq!(values(&array), [vec![0x02, 1, 0, 0, 2, 0x0c, 7], vec![0x02, 0, 0]]);
    }

    #[test]
    fn objects_are_filled_field_by_field() {
        let byte = DType::Primitive(crate::dtype::PType::I8, true);
        let types = crate::dtype::StructType::new([("a".into(), byte.clone()), ("b".into(), byte)]);
        let dtype = DType::Struct(Arc::new(types), false);
        let typed = Value::List([Value::Int(1), Value::Int(2)].into());
        // {b: 9} stays unchanged, and an `a` is added.
        let mut names = Names::parse(&[1, 1, 0, 1, b'b'], &Limits::new()).unwrap();
        let mut out = Vec::new();
        fill(&[0x02, 1, 0, 0, 2, 0x0c, 9], &dtype, &typed, &mut out, &mut names).unwrap();
        assert_eq!(out, [0x02, 2, 1, 0, 0, 2, 4, 0x0c, 1, 0x0c, 9]);
    }
}
