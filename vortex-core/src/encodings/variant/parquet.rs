//! Self-describing values as Parquet variants: names, bytes, and columns shredded from them.
//!
//! ```text
//! validity     1        1        0          optional, and first
//! metadata     {a,b}    {}       ?          the names that the row's objects use
//! value        {b: 2}   -        ?          the part that is not shredded
//! typed_value  {a: 1}   "text"   ?          the same field of all rows, typed
//! rows         {a: 1, b: 2}  "text"  null
//! ```
//!
//! Metadata: whether there is a `value` and whether it is nullable; the dtype of `typed_value` if there
//! is one. Decoding returns metadata and value unchanged if nothing is shredded; otherwise, typed values
//! are converted back to variant bytes, row by row: primitives, objects (`typed_value` is a struct) and
//! arrays (a list), whose parts are in turn a struct of `value` and `typed_value`. A row with neither is
//! the variant null.

use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, StructArray};
use arrow::datatypes::DataType;

use super::shredded::{Shredded, reassemble};
use crate::array::{
    ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, ValidityChild, masking, present,
};
use crate::dtype::DType;
use crate::dtype::arrow::data_type;
use crate::encodings::Encoding;
use crate::limits::Work;
use crate::wire::{dtype_from_proto, proto};
use crate::{Error, Result};

/// The `vortex.parquet.variant` encoding.
#[derive(Debug)]
pub(in crate::encodings) struct ParquetVariant;

const ID: &str = "vortex.parquet.variant";

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(bool, tag = "1")]
    has_value: bool,
    #[prost(message, optional, tag = "2")]
    typed_value_dtype: Option<proto::DType>,
    #[prost(bool, tag = "3")]
    value_nullable: bool,
}

impl Encoding for ParquetVariant {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let DType::Variant(_) = node.dtype() else {
            return Err(Error::corrupt(format!("holds variants, not {}", node.dtype())));
        };
        let message = node.message::<Metadata>()?;
        node.expect_buffers(0)?;
        let typed_dtype = message.typed_value_dtype.map(|dtype| dtype_from_proto(&dtype, node.limits()));
        let typed_dtype = typed_dtype.transpose()?;
        if !message.has_value && typed_dtype.is_none() {
            return Err(Error::corrupt("a variant without values"));
        }
        let others = 1 + usize::from(message.has_value) + usize::from(typed_dtype.is_some());
        let validity = node.leading_validity(others)?;
        let mut next = usize::from(!validity.is_absent());
        let mut child = |dtype: &DType| {
            next += 1;
            node.child(next - 1, dtype, node.len())
        };
        let metadata = child(&DType::Binary(false))?;
        let value = message.has_value.then(|| child(&DType::Binary(message.value_nullable))).transpose()?;
        let typed = typed_dtype.as_ref().map(child).transpose()?;
        Ok(Arc::new(VariantRows { header: node.header(ID), metadata, value, typed, validity }))
    }
}

#[derive(Debug)]
struct VariantRows {
    header: Header,
    metadata: EncodedRef,
    value: Option<EncodedRef>,
    typed: Option<EncodedRef>,
    validity: ValidityChild,
}

impl EncodedArray for VariantRows {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        let own = [
            ("metadata", Some(&self.metadata)),
            ("value", self.value.as_ref()),
            ("typed_value", self.typed.as_ref()),
        ];
        let own = own.into_iter().filter_map(|(name, child)| Some((name, child?)));
        self.validity.named().into_iter().chain(own).collect()
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let preferred = data_type(self.dtype())?;
        let DataType::Struct(fields) = &preferred else {
            return Err(Error::invalid(format!("cannot convert {} to {to}", self.dtype())));
        };
        let nulls = self.validity()?.to_nulls(self.len());
        let _work = Work::begin();
        let metadata = self.metadata.decode(&DataType::BinaryView)?;
        let value = self.value.as_ref().map(|value| value.decode(&DataType::BinaryView)).transpose()?;
        let complete = |value: &ArrayRef| match (value.nulls(), &nulls) {
            (None, _) => true,
            (Some(missing), Some(nulls)) => nulls.contains(missing),
            (Some(missing), None) => missing.null_count() == 0,
        };
        let (metadata, value) = match (&self.typed, value) {
            (None, Some(value)) if complete(&value) => (metadata, value),
            (typed, value) => {
                let typed = match typed {
                    Some(typed) => {
                        let values = typed.decode_preferred()?;
                        Some((typed.dtype(), values))
                    }
                    None => None,
                };
                let typed = typed.as_ref().map(|(dtype, values)| (*dtype, values));
                let rows = Shredded::new(value.as_ref(), typed, self.limits())?;
                reassemble(metadata.as_binary_view(), nulls.as_ref(), self.limits(), |row, out, names| {
                    rows.push(row, out, names)
                })?
            }
        };
        let value = match &nulls {
            Some(valid) => masking::mask(&value, valid)?,
            None => value,
        };
        present(Arc::new(StructArray::try_new(fields.clone(), vec![metadata, value], nulls)?), to)
    }

    fn validity(&self) -> Result<Validity> {
        self.validity.decode()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let optional = |child: &Option<EncodedRef>| child.as_ref().map(|child| pick.of(child)).transpose();
        Ok(Arc::new(Self {
            header: self.header.of_rows(pick.row_count()),
            metadata: pick.of(&self.metadata)?,
            value: optional(&self.value)?,
            typed: optional(&self.typed)?,
            validity: self.validity.pick(pick)?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{BinaryViewArray, UInt64Array};

    use super::*;
    use crate::array::build::Tree;
    use crate::encodings::shared::conformance;
    use proto::dtype::Kind;

    const VARIANT: DType = DType::Variant(false);

    fn dtype(kind: Kind) -> proto::DType {
        proto::DType { kind: Some(kind) }
    }

    fn number(ptype: i32) -> proto::DType {
        dtype(Kind::Primitive(proto::Primitive { ptype, nullable: true }))
    }

    fn binary() -> proto::DType {
        dtype(Kind::Binary(proto::Nullable { nullable: true }))
    }

    fn fields(fields: Vec<(&str, proto::DType)>, nullable: bool) -> proto::DType {
        let (names, dtypes) = fields.into_iter().map(|(name, dtype)| (name.to_owned(), dtype)).unzip();
        dtype(Kind::Struct(proto::Struct { names, dtypes, nullable }))
    }

    /// A column of short byte strings, each in its own chunk; `None` is null.
    fn bytes(values: &[Option<&[u8]>]) -> Tree {
        let offsets: Vec<u64> = (0..=values.len() as u64).collect();
        let chunks = Tree::new("vortex.chunked").child(Tree::primitive(&offsets));
        values.iter().fold(chunks, |chunks, value| {
            let scalar = match value {
                Some(bytes) => [&[0x42, u8::try_from(bytes.len()).unwrap()], *bytes].concat(),
                None => vec![0x08, 0],
            };
            chunks.child(Tree::new("vortex.constant").buffer(scalar))
        })
    }

    fn tree(has_value: bool, typed_value_dtype: Option<proto::DType>) -> Tree {
        Tree::new(ID).message(&Metadata { has_value, typed_value_dtype, value_nullable: has_value })
    }

    fn decoded(array: &EncodedRef) -> StructArray {
        let decoded = array.decode(&data_type(array.dtype()).unwrap()).unwrap();
        decoded.to_data().validate_full().unwrap();
        decoded.as_struct().clone()
    }

    fn values(array: &EncodedRef) -> Vec<Option<Vec<u8>>> {
        let decoded = decoded(array);
        decoded.column(1).as_binary_view().iter().map(|value| value.map(<[u8]>::to_vec)).collect()
    }

    const NONE: &[u8] = &[1, 0, 0];
    /// The names `a` and `b`.
    const AB: &[u8] = &[1, 2, 0, 1, 2, b'a', b'b'];

    #[test]
    fn conforms() {
        let rows = bytes(&[Some(&[0x0c, 1]), Some(&[0x04]), Some(&[9; 5])]);
        let names = bytes(&[Some(NONE), Some(AB), Some(&[])]);
        let valid = Tree::bools(&[true, true, false]);
        let tree = tree(true, None).child(valid).child(names).child(rows);
        let array = tree.load(&DType::Variant(true), 3).unwrap();
        let DataType::Struct(fields) = data_type(array.dtype()).unwrap() else { unreachable!() };
        let names: ArrayRef = Arc::new(BinaryViewArray::from_iter_values([NONE, AB, &[]]));
        let rows: [Option<&[u8]>; 3] = [Some(&[0x0c, 1]), Some(&[0x04]), None];
        let rows: ArrayRef = Arc::new(BinaryViewArray::from_iter(rows));
        let nulls = Some(vec![true, true, false].into());
        let expected: ArrayRef = Arc::new(StructArray::new(fields, vec![names, rows], nulls));
        conformance::check(&array, &expected);
    }

    #[test]
    fn typed_values_are_written_back() {
        let typed = Tree::primitive(&[7i32, 8, 9]).child(Tree::bools(&[true, false, false]));
        let tree = tree(true, Some(number(6)))
            .child(bytes(&[Some(NONE); 3]))
            .child(bytes(&[None, Some(&[0x05, b'x']), None]))
            .child(typed);
        let array = tree.load(&VARIANT, 3).unwrap();
        let wanted = [Some(vec![0x14, 7, 0, 0, 0]), Some(vec![0x05, b'x']), Some(vec![0x00])];
        assert_eq!(values(&array), wanted);
        assert_eq!(values(&array.slice(1..3).unwrap()), wanted[1..]);
        assert_eq!(values(&array.take(&UInt64Array::from(vec![2, 0])).unwrap())[1], wanted[0]);
    }

    #[test]
    fn objects_get_their_shredded_fields_back() {
        // Fields `a` and `c` are shredded, `b` is not; the metadata of the rows lacks `c`.
        let part = || fields(vec![("value", binary()), ("typed_value", number(4))], false);
        let typed_dtype = fields(vec![("a", part()), ("c", part())], true);
        let pair = |value: Tree, typed: Tree| Tree::new("vortex.struct").child(value).child(typed);
        let a = pair(bytes(&[None, None]), Tree::primitive(&[1i8, 0]).child(Tree::bools(&[true, false])));
        let c = pair(
            bytes(&[None, Some(&[0x04])]),
            Tree::primitive(&[3i8, 0]).child(Tree::bools(&[true, false])),
        );
        let residual: &[u8] = &[0x02, 1, 1, 0, 2, 0x0c, 2];
        let tree = tree(true, Some(typed_dtype))
            .child(bytes(&[Some(AB), Some(AB)]))
            .child(bytes(&[Some(residual), None]))
            .child(Tree::new("vortex.struct").child(a).child(c));
        let array = tree.load(&VARIANT, 2).unwrap();
        let first = vec![0x02, 3, 0, 1, 2, 0, 2, 4, 6, 0x0c, 1, 0x0c, 2, 0x0c, 3];
        let second = vec![0x02, 1, 2, 0, 1, 0x04];
        assert_eq!(values(&array), [Some(first), Some(second)]);
        let names = decoded(&array);
        let names = names.column(0).as_binary_view();
        assert_eq!(names.value(1), [1, 3, 0, 1, 2, 3, b'a', b'b', b'c']);
    }

    #[test]
    fn arrays_get_their_elements_back() {
        let part = fields(vec![("value", binary()), ("typed_value", number(4))], false);
        let list =
            dtype(Kind::List(Box::new(proto::List { element_type: Some(Box::new(part)), nullable: true })));
        let elements = Tree::new("vortex.struct")
            .child(bytes(&[None, Some(&[0x04]), None]))
            .child(Tree::primitive(&[5i8, 0, 0]).child(Tree::bools(&[true, false, false])));
        let lists = Tree::new("vortex.list").metadata(vec![0x08, 3]).child(elements);
        let lists = lists.child(Tree::primitive(&[0u8, 3, 3]));
        let tree = tree(false, Some(list)).child(bytes(&[Some(NONE), Some(NONE)])).child(lists);
        let array = tree.load(&VARIANT, 2).unwrap();
        let wanted = [Some(vec![0x03, 3, 0, 2, 3, 4, 0x0c, 5, 0x04, 0x00]), Some(vec![0x03, 0, 0])];
        assert_eq!(values(&array), wanted);
    }

    #[test]
    fn a_row_cannot_have_two_primitive_values() {
        let tree = tree(true, Some(number(6)))
            .child(bytes(&[Some(NONE)]))
            .child(bytes(&[Some(&[0x04])]))
            .child(Tree::primitive(&[7i32]));
        let array = tree.load(&VARIANT, 1).unwrap();
        assert!(array.decode(&data_type(&VARIANT).unwrap()).is_err());
    }

    #[test]
    fn children_follow_the_metadata() {
        let names = || bytes(&[Some(NONE)]);
        assert!(tree(false, None).child(names()).load(&VARIANT, 1).is_err());
        assert!(tree(true, None).child(names()).load(&VARIANT, 1).is_err());
        let all = tree(true, None).child(Tree::bools(&[true])).child(names()).child(names());
        assert!(all.load(&VARIANT, 1).is_err(), "validity of a non-nullable variant");
        assert!(all.load(&DType::Variant(true), 1).is_ok());
    }
}
