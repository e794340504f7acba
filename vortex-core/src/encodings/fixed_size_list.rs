//! Lists that all have the same length, with consecutive elements.
//!
//! ```text
//! elements  a b  c d  e f       length 2: row i is elements [2 i, 2 i + 2)
//! validity   1    0    1        null rows own elements too
//! ```
//!
//! No metadata, no buffers. Children: exactly `rows * length` elements, optionally the validity.
//! Selecting rows selects their elements.

use std::sync::Arc;

use arrow::array::FixedSizeListArray as ArrowList;
use arrow::datatypes::DataType;

use super::Encoding;
use super::list::window_of;
use crate::array::{
    ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, ValidityChild, present,
};
use crate::dtype::DType;
use crate::limits::Work;
use crate::mask::Mask;
use crate::wire::WriteNode;
use crate::{Error, Result};

/// The `vortex.fixed_size_list` encoding.
#[derive(Debug)]
pub(super) struct FixedSizeList;

const ID: &str = "vortex.fixed_size_list";

impl Encoding for FixedSizeList {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let (element, size, count) = parts(node)?;
        let validity = node.validity_child(1)?;
        Ok(Arc::new(FixedSizeListArray {
            header: node.header(ID),
            size,
            elements: node.child(0, element, count)?,
            validity,
        }))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        let (element, size, count) = parts(node)?;
        node.limits().count::<usize>(rows.len().saturating_mul(size))?;
        let wanted: Vec<usize> = rows.iter().flat_map(|row| row * size..(row + 1) * size).collect();
        let picked = node.of_rows(rows);
        // No `?` before all are loaded: see `load_rows`.
        let validity = picked.validity_child(1);
        Ok(Arc::new(FixedSizeListArray {
            header: picked.header(ID),
            size,
            elements: node.child_rows(0, element, count, &wanted)?,
            validity: validity?,
        }))
    }
}

/// The type of a node's elements, their number per list, and their number in total.
fn parts<'a>(node: &Node<'a>) -> Result<(&'a DType, usize, usize)> {
    let DType::FixedSizeList(element, size, _) = node.dtype() else {
        return Err(Error::corrupt(format!("holds fixed-size lists, not {}", node.dtype())));
    };
    node.no_metadata()?;
    node.expect_buffers(0)?;
    let size = *size as usize;
    let count = node.len().checked_mul(size);
    let count = count.ok_or_else(|| Error::limit(format!("{} lists of {size} elements", node.len())))?;
    Ok((element, size, count))
}

#[derive(Debug)]
struct FixedSizeListArray {
    header: Header,
    size: usize,
    elements: EncodedRef,
    validity: ValidityChild,
}

impl EncodedArray for FixedSizeListArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        let validity = self.validity.named();
        std::iter::once(("elements", &self.elements)).chain(validity).collect()
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let DataType::FixedSizeList(item, size) = to else {
            return present(self.decode_preferred()?, to);
        };
        if usize::try_from(*size) != Ok(self.size) {
            return Err(Error::invalid(format!("cannot convert {} to {to}", self.dtype())));
        }
        let _work = Work::begin();
        let elements = self.elements.decode(item.data_type())?;
        if elements.data_type() == &DataType::Null {
            // Arrow computes which of them are null.
            self.limits().count_bytes(elements.len().div_ceil(8) as u64)?;
        }
        let nulls = self.validity()?.to_nulls(self.len());
        Ok(Arc::new(ArrowList::try_new_with_length(Arc::clone(item), *size, elements, nulls, self.len())?))
    }

    fn validity(&self) -> Result<Validity> {
        self.validity.decode()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        let elements = match pick {
            Pick::Slice(rows) => window_of(&self.elements, rows.start * self.size..rows.end * self.size)?,
            Pick::Filter(mask) => {
                let count = mask.true_count().saturating_mul(self.size);
                self.limits().count_bytes(Mask::max_bytes(self.elements.len(), count) as u64)?;
                let runs = mask.runs();
                let runs = runs.iter().map(|run| run.start * self.size..run.end * self.size);
                self.elements.filter(&Mask::from_runs(self.elements.len(), runs))?
            }
            Pick::Take(indices) => {
                let width = self.size.saturating_mul(size_of::<u64>());
                let count = self.limits().count_rows(indices.len(), width)?;
                let size = self.size as u64;
                let mut elements = Vec::with_capacity(count / size_of::<u64>());
                for row in indices.values() {
                    elements.extend(row * size..(row + 1) * size);
                }
                self.elements.take(&elements.into())?
            }
        };
        Ok(Arc::new(Self {
            header: self.header.of_rows(pick.row_count()),
            size: self.size,
            elements,
            validity: self.validity.pick(pick)?,
        }))
    }
}

/// A node of lists, given all their elements; the length of a list follows from its type.
pub(crate) fn encode(elements: WriteNode, validity: Option<WriteNode>) -> WriteNode {
    WriteNode::new(ID).child(elements).children(validity)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, UInt64Array};
    use arrow::datatypes::Field;

    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::PType;
    use crate::dtype::arrow::data_type;
    use crate::encodings::shared::conformance;
    use crate::limits::Limits;

    fn lists(size: u32, nullable: bool) -> DType {
        DType::FixedSizeList(Arc::new(DType::Primitive(PType::I32, false)), size, nullable)
    }

    #[test]
    fn conforms() {
        let numbers: Vec<i32> = (0..300).collect();
        let valid: Vec<bool> = (0..100).map(|at| at % 5 != 0).collect();
        let tree = || Tree::new(ID).child(Tree::primitive(&numbers));
        let field = Arc::new(Field::new("item", DataType::Int32, false));
        let elements: ArrayRef = Arc::new(Int32Array::from(numbers.clone()));
        let wanted = ArrowList::new(Arc::clone(&field), 3, Arc::clone(&elements), None);
        conformance::check(&tree().load(&lists(3, false), 100).unwrap(), &(Arc::new(wanted) as ArrayRef));

        let wanted = ArrowList::new(field, 3, elements, Some(valid.clone().into()));
        let array = tree().child(Tree::bools(&valid)).load(&lists(3, true), 100).unwrap();
        conformance::check(&array, &(Arc::new(wanted) as ArrayRef));
    }

    #[test]
    fn lists_of_nulls_are_limited_too() {
        let dtype = DType::FixedSizeList(Arc::new(DType::Null), 1 << 16, false);
        let tree = || Tree::new(ID).child(Tree::new("vortex.null"));
        let array = tree().load(&dtype, 10).unwrap();
        let to = data_type(&dtype).unwrap();
        assert_eq!(array.decode(&to).unwrap().len(), 10);
        let limits = Limits::new().with_max_decoded_bytes(1 << 20);
        let array = tree().load_within(&dtype, 1 << 16, &limits).unwrap();
        assert!(array.decode(&to).is_err(), "Arrow takes a bit for each of 2^32 nulls");
    }

    #[test]
    fn lists_of_nothing_have_rows() {
        let array = Tree::new(ID).child(Tree::primitive::<i32>(&[])).load(&lists(0, false), 7).unwrap();
        let to = data_type(array.dtype()).unwrap();
        assert_eq!(array.decode(&to).unwrap().len(), 7);
        assert_eq!(array.slice(2..5).unwrap().decode(&to).unwrap().len(), 3);
        assert_eq!(array.filter(&Mask::from_indices(7, [1, 6])).unwrap().decode(&to).unwrap().len(), 2);
        assert_eq!(array.take(&UInt64Array::from(vec![6, 6, 0])).unwrap().decode(&to).unwrap().len(), 3);
    }

    #[test]
    fn elements_must_be_rows_times_length() {
        let tree = Tree::new(ID).child(Tree::primitive(&[1i32, 2, 3]));
        assert!(tree.load(&lists(2, false), 2).is_err());
        assert!(tree.load(&lists(u32::MAX, false), usize::MAX).is_err());
    }
}
