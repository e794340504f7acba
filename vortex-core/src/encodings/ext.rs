//! An extension type over its storage type.
//!
//! No metadata, no buffers; the only child is the storage, including nulls. Dates, times and timestamps
//! are the stored integers with another Arrow type, and UUIDs are the stored bytes: decoding copies
//! neither. Predicates are passed on to the storage.

use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, BooleanArray, FixedSizeBinaryArray, make_array};
use arrow::datatypes::{DataType, UInt8Type};

use super::Encoding;
use crate::array::{Aggregate, ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, present};
use crate::dtype::arrow::data_type;
use crate::dtype::{DType, Extension, Meaning};
use crate::expr::Predicate;
use crate::scalar::Scalar;
use crate::wire::WriteNode;
use crate::{Error, Result};

/// The `vortex.ext` encoding.
#[derive(Debug)]
pub(super) struct Ext;

const ID: &str = "vortex.ext";

impl Encoding for Ext {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let DType::Extension(extension) = node.dtype() else {
            return Err(Error::corrupt(format!("holds extension types, not {}", node.dtype())));
        };
        node.no_metadata()?;
        node.expect_buffers(0)?;
        node.expect_children(1)?;
        let storage = node.child(0, extension.storage(), node.len())?;
        Ok(Arc::new(ExtArray { header: node.header(ID), extension: Arc::clone(extension), storage }))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        self.load(&node.of_rows(rows))
    }
}

#[derive(Debug)]
struct ExtArray {
    header: Header,
    extension: Arc<Extension>,
    storage: EncodedRef,
}

impl EncodedArray for ExtArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        vec![("storage", &self.storage)]
    }

    fn decompresses(&self) -> bool {
        self.storage.decompresses()
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let preferred = match self.extension.meaning() {
            Meaning::Json | Meaning::Unknown => return self.storage.decode(to),
            Meaning::Uuid => {
                let bytes = self.storage.decode_preferred()?;
                let bytes = bytes.as_fixed_size_list();
                let values = bytes.values().as_primitive::<UInt8Type>().values().inner().clone();
                Arc::new(FixedSizeBinaryArray::try_new(16, values, bytes.nulls().cloned())?) as ArrayRef
            }
            Meaning::Date(_) | Meaning::Time(_) | Meaning::Timestamp(..) => {
                let integers = self.storage.decode_preferred()?;
                let data = integers.to_data().into_builder().data_type(data_type(self.dtype())?);
                make_array(data.build()?)
            }
        };
        present(preferred, to)
    }

    fn validity(&self) -> Result<Validity> {
        self.storage.validity()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let storage = pick.of(&self.storage)?;
        let extension = Arc::clone(&self.extension);
        Ok(Arc::new(Self { header: self.header.of_rows(pick.row_count()), extension, storage }))
    }

    fn aggregate(&self) -> Result<Aggregate> {
        if *self.extension.meaning() != Meaning::Uuid {
            let found = self.storage.aggregate()?.map(self.dtype(), |value| Some(value.clone()));
            if let Some(found) = found {
                return Ok(found);
            }
        }
        self.aggregate_decoded()
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        match self.extension.meaning() {
            _ if predicate.is_null_test() => self.storage.matches(predicate),
            // Arrow can compare fixed-size bytes, but not the lists that store them.
            Meaning::Uuid => self.matches_decoded(predicate),
            _ => self.storage.matches(&predicate.to_storage()),
        }
    }

    fn as_constant(&self) -> Option<Scalar> {
        self.storage.as_constant()?.with_dtype(self.dtype()).ok()
    }
}

/// A node of an extension type over its storage.
pub(crate) fn encode(storage: WriteNode) -> WriteNode {
    WriteNode::new(ID).child(storage)
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Date32Array, Int64Array, StringViewArray, Time32MillisecondArray, TimestampMicrosecondArray,
    };

    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::PType;
    use crate::encodings::shared::conformance;

    const ROWS: usize = 50;

    fn extension(id: &str, storage: DType, metadata: &[u8]) -> DType {
        DType::Extension(Arc::new(Extension::try_new(id, storage, metadata).unwrap()))
    }

    fn of<T: arrow::datatypes::ArrowNativeType>(values: &[T], dtype: &DType) -> EncodedRef {
        Tree::new(ID).child(Tree::primitive(values)).load(dtype, values.len()).unwrap()
    }

    #[test]
    fn conforms() {
        let days: Vec<i32> = (0..ROWS as i32).map(|at| at * 37 - 900).collect();
        let date = extension("vortex.date", DType::Primitive(PType::I32, false), &[4]);
        conformance::check(&of(&days, &date), &(Arc::new(Date32Array::from(days.clone())) as ArrayRef));

        let time = extension("vortex.time", DType::Primitive(PType::I32, false), &[2]);
        let expected = Time32MillisecondArray::from(days.clone());
        conformance::check(&of(&days, &time), &(Arc::new(expected) as ArrayRef));

        let ticks: Vec<i64> = (0..ROWS as i64).map(|at| at * 1_000_003 - 7).collect();
        let valid: Vec<bool> = (0..ROWS).map(|at| at % 4 != 0).collect();
        let stored = DType::Primitive(PType::I64, true);
        let timestamp = extension("vortex.timestamp", stored, b"\x01\x03\x00UTC");
        let tree = Tree::new(ID).child(Tree::primitive(&ticks).child(Tree::bools(&valid)));
        let expected = TimestampMicrosecondArray::new(ticks.into(), Some(valid.into())).with_timezone("UTC");
        conformance::check(&tree.load(&timestamp, ROWS).unwrap(), &(Arc::new(expected) as ArrayRef));
    }

    #[test]
    fn uuids_are_sixteen_bytes() {
        let bytes: Vec<u8> = (0..ROWS as u32 * 16).map(|at| (at % 251) as u8).collect();
        let valid: Vec<bool> = (0..ROWS).map(|at| at % 4 != 0).collect();
        let stored = DType::FixedSizeList(Arc::new(DType::Primitive(PType::U8, false)), 16, true);
        let dtype = extension("vortex.uuid", stored, &[]);
        let list = Tree::new("vortex.fixed_size_list").child(Tree::primitive(&bytes));
        let array = Tree::new(ID).child(list.child(Tree::bools(&valid))).load(&dtype, ROWS).unwrap();
        let expected = FixedSizeBinaryArray::new(16, bytes.into(), Some(valid.into()));
        conformance::check(&array, &(Arc::new(expected) as ArrayRef));
    }

    #[test]
    fn json_and_unknown_ids_show_their_storage() {
        let text = Tree::new("vortex.constant").buffer(b"\x3a\x02{}".to_vec());
        let json = extension("vortex.json", DType::Utf8(false), &[]);
        let array = Tree::new(ID).child(text).load(&json, 3).unwrap();
        conformance::check(&array, &(Arc::new(StringViewArray::from(vec!["{}"; 3])) as ArrayRef));
        assert_eq!(array.decode(&DataType::Utf8).unwrap().data_type(), &DataType::Utf8);
        assert_eq!(array.as_constant().unwrap().dtype(), &json);

        let unknown = extension("acme.units", DType::Primitive(PType::I64, false), &[1, 2]);
        conformance::check(&of(&[1i64, 2], &unknown), &(Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef));
    }

    #[test]
    fn the_storage_must_have_the_type_of_the_extension() {
        let date = extension("vortex.date", DType::Primitive(PType::I32, false), &[4]);
        assert!(Tree::new(ID).child(Tree::primitive(&[0i64])).load(&date, 1).is_err());
        let i32 = DType::Primitive(PType::I32, false);
        assert!(Tree::new(ID).child(Tree::primitive(&[0i32])).load(&i32, 1).is_err());
    }
}
