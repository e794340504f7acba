//! One value in most rows, and patches for the others.
//!
//! ```text
//! rows  0 0 7 0 0 0 . 0      fill [0]   patches: indices [2, 6]
//!       (`.` is null)                            values  [7, .]
//! ```
//!
//! Metadata: the patches. Buffer: the fill value as a serialized scalar, which may be null. Children:
//! `indices` and `values` of the patches. Nulls are either patches or the fill value.
//!
//! Every operation is applied to the patches, and once to the fill value.

use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, BooleanArray, UInt32Array};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::{ArrowNativeType, DataType};

use super::Encoding;
use super::constant::ConstantArray;
use super::shared::patches::{EncodedPatches, Located, Patches, PatchesMessage};
use crate::array::{
    Aggregate, ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, concat, fixed_width,
    match_width, take_within, values_of,
};
use crate::expr::Predicate;
use crate::kernels::runs::repeat_one;
use crate::scalar::{Scalar, Value};
use crate::wire::{WriteNode, value_to_bytes};
use crate::{Error, Result};

/// The `vortex.sparse` encoding.
#[derive(Debug)]
pub(super) struct Sparse;

const ID: &str = "vortex.sparse";

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(message, optional, tag = "1")]
    patches: Option<PatchesMessage>,
}

impl Encoding for Sparse {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let message = node.message::<Metadata>()?.patches;
        let message = message.ok_or_else(|| Error::corrupt("sparse values without patches"))?;
        node.expect_buffers(1)?;
        node.expect_children(message.child_count())?;
        // No `?` before all are loaded: see `load_rows`.
        let (fill, patches) = (node.buffer(0), Patches::load(node, &message, 0, node.dtype()));
        Ok(Arc::new(SparseArray {
            header: node.header(ID),
            fill: node.scalar(&fill?, node.dtype())?,
            patches: patches?,
        }))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        self.load(&node.of_rows(rows))
    }
}

#[derive(Debug)]
struct SparseArray {
    header: Header,
    fill: Scalar,
    patches: Patches,
}

impl SparseArray {
    /// Rows with the same fill value, except those in `patches`.
    fn with(&self, patches: Option<Patches>, len: usize) -> EncodedRef {
        let fill = self.fill.clone();
        match patches {
            Some(patches) => Arc::new(Self { header: self.header.of_rows(len), fill, patches }),
            None => Arc::new(ConstantArray::new(fill, len, self.limits())),
        }
    }

    fn decode_native<N: ArrowNativeType>(
        &self,
        located: &Located<'_>,
        values: &ArrayRef,
        fill: &ArrayRef,
    ) -> Result<ArrayRef> {
        self.limits().count::<N>(self.len())?;
        let nulls = spread_nulls(located, self.len(), values.nulls(), fill.is_null(0));
        let mut out = repeat_one(values_of::<N>(fill)[0], self.len());
        for (row, value) in located.rows().zip(values_of::<N>(values).iter()) {
            out[row] = *value;
        }
        fixed_width(values.data_type().clone(), self.len(), Buffer::from_vec(out), nulls)
    }

    fn decode_gathered(&self, located: &Located<'_>, values: &ArrayRef, fill: &ArrayRef) -> Result<ArrayRef> {
        self.limits().count::<u32>(self.len())?;
        let count =
            u32::try_from(located.len()).map_err(|_| Error::limit(format!("{} patches", located.len())))?;
        let mut indices = vec![count; self.len()];
        for (row, number) in located.rows().zip(0..count) {
            indices[row] = number;
        }
        let values = concat(&[Arc::clone(values), Arc::clone(fill)], values.data_type(), self.limits())?;
        take_within(&values, &UInt32Array::from(indices), self.limits())
    }
}

/// The validity of all rows, given that of the patches and whether all other rows are null.
fn spread_nulls(
    located: &Located<'_>,
    len: usize,
    patches: Option<&NullBuffer>,
    fill_is_null: bool,
) -> Option<NullBuffer> {
    let patches = patches.filter(|nulls| nulls.null_count() > 0);
    let valid = match (patches, fill_is_null) {
        (None, false) => return None,
        (None, true) => located.spread(len, false, std::iter::repeat(true)),
        (Some(nulls), _) => located.spread(len, !fill_is_null, nulls.iter()),
    };
    Some(NullBuffer::new(valid))
}

impl EncodedArray for SparseArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        self.patches.children()
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let located = self.patches.locate()?;
        if located.is_empty() {
            return self.with(None, self.len()).decode(to);
        }
        let values = located.values.decode(to)?;
        let fill = self.with(None, 1).decode(to)?;
        if let (Some(patches), Some(filled)) = (values.as_boolean_opt(), fill.as_boolean_opt()) {
            self.limits().count_rows(self.len(), 1)?;
            let nulls = spread_nulls(&located, self.len(), values.nulls(), fill.is_null(0));
            let bits = located.spread(self.len(), filled.value(0), patches.values().iter());
            return Ok(Arc::new(BooleanArray::new(bits, nulls)));
        }
        match_width!(to.primitive_width(), |N| {
            self.decode_native::<N>(&located, &values, &fill)
        }, else self.decode_gathered(&located, &values, &fill))
    }

    fn validity(&self) -> Result<Validity> {
        if !self.dtype().is_nullable() {
            return Ok(Validity::AllValid);
        }
        let located = self.patches.locate()?;
        let patches = located.values.validity()?;
        Ok(match (patches, self.fill.is_null()) {
            (Validity::AllValid, false) => Validity::AllValid,
            (Validity::AllNull, true) => Validity::AllNull,
            (patches, fill_is_null) => {
                self.limits().count_rows(self.len(), 1)?;
                let patches = patches.to_nulls(located.len());
                Validity::from_nulls(spread_nulls(&located, self.len(), patches.as_ref(), fill_is_null))
            }
        })
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        Ok(self.with(self.patches.pick(pick)?, pick.row_count()))
    }

    fn aggregate(&self) -> Result<Aggregate> {
        let located = self.patches.locate()?;
        let filled = Aggregate::of_value(&self.fill, (self.len() - located.len()) as u64);
        Ok(located.values.aggregate()?.merge(filled))
    }

    fn matches(&self, predicate: &Predicate) -> Result<BooleanArray> {
        self.limits().count_rows(self.len(), 1)?;
        let located = self.patches.locate()?;
        let patches = located.values.matches(predicate)?;
        let fill = predicate.evaluate_scalar(&self.fill)?;
        let bits = located.spread(self.len(), fill == Some(true), patches.values().iter());
        let nulls = spread_nulls(&located, self.len(), patches.nulls(), fill.is_none());
        Ok(BooleanArray::new(bits, nulls))
    }
}

/// A node of rows that are `fill`, except those in `patches`, which are not empty.
///
/// # Errors
/// If the fill value is of a kind that is never written.
pub(crate) fn encode(fill: &Value, patches: EncodedPatches) -> Result<WriteNode> {
    let metadata = Metadata { patches: Some(patches.message) };
    let node = WriteNode::new(ID).message(&metadata).buffer(value_to_bytes(fill)?.into(), 1);
    Ok(node.child(patches.indices).child(patches.values))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, StringViewArray};

    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::{DType, PType};
    use crate::encodings::shared::conformance;

    const I32: DType = DType::Primitive(PType::I32, false);
    const NULL: &[u8] = &[0x08, 0x00];
    /// The scalar 5: a zigzag varint.
    const FIVE: &[u8] = &[0x18, 0x0a];

    fn sparse(fill: &[u8], indices: &[u16], values: Tree) -> Tree {
        let (len, indices_ptype) = (indices.len() as u64, PType::U16 as i32);
        let patches = PatchesMessage { len, indices_ptype, ..Default::default() };
        Tree::new(ID)
            .message(&Metadata { patches: Some(patches) })
            .buffer(fill.to_vec())
            .child(Tree::primitive(indices))
            .child(values)
    }

    fn check(tree: &Tree, dtype: &DType, expected: impl arrow::array::Array + 'static) {
        let array = tree.load(dtype, expected.len()).unwrap();
        conformance::check(&array, &(Arc::new(expected) as ArrayRef));
    }

    #[test]
    fn conforms_for_numbers() {
        let indices: Vec<u16> = (0..300).filter(|row| row % 17 == 3).collect();
        let values: Vec<i32> = indices.iter().map(|row| i32::from(*row) % 4 + 3).collect();
        let valid: Vec<bool> = indices.iter().map(|row| row % 3 != 0).collect();
        let row = |row: usize| indices.iter().position(|index| usize::from(*index) == row);

        let expected = (0..300).map(|at| row(at).map_or(5, |at| values[at]));
        check(
            &sparse(FIVE, &indices, Tree::primitive(&values)),
            &I32,
            Int32Array::from_iter_values(expected),
        );

        let nullable = I32.with_nullable(true);
        let patched = || Tree::primitive(&values).child(Tree::bools(&valid));
        let expected = (0..300).map(|at| row(at).map_or(Some(5), |at| valid[at].then_some(values[at])));
        check(&sparse(FIVE, &indices, patched()), &nullable, Int32Array::from_iter(expected));

        let expected = (0..300).map(|at| row(at).and_then(|at| valid[at].then_some(values[at])));
        check(&sparse(NULL, &indices, patched()), &nullable, Int32Array::from_iter(expected));

        let expected = (0..300).map(|at| row(at).map(|at| values[at]));
        check(&sparse(NULL, &indices, Tree::primitive(&values)), &nullable, Int32Array::from_iter(expected));
    }

    #[test]
    fn conforms_for_booleans() {
        let values = Tree::bools(&[false, true, true]).child(Tree::bools(&[true, true, false]));
        let expected: BooleanArray = (0..50)
            .map(|row| {
                [(7, Some(false)), (20, Some(true)), (49, None)]
                    .iter()
                    .find(|(at, _)| *at == row)
                    .map_or(Some(true), |(_, value)| *value)
            })
            .collect();
        check(&sparse(&[0x10, 0x01], &[7, 20, 49], values), &DType::Bool(true), expected);
    }

    #[test]
    fn conforms_for_strings() {
        let long = "a string of more than twelve bytes";
        let text = |text: &str| [&[0x3a, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        let values = Tree::new("vortex.constant").buffer(text(long));
        let expected = (0..40).map(|row| Some(if [1, 39].contains(&row) { long } else { "abc" }));
        let tree = sparse(&text("abc"), &[1, 39], values.clone());
        check(&tree, &DType::Utf8(true), StringViewArray::from_iter(expected));
        let expected = (0..40).map(|row| [1, 39].contains(&row).then_some(long));
        check(&sparse(NULL, &[1, 39], values), &DType::Utf8(true), StringViewArray::from_iter(expected));

        let array = tree.load(&DType::Utf8(false), 40).unwrap();
        for to in [DataType::Utf8, DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8))] {
            let decoded = array.decode(&to).unwrap();
            assert_eq!(decoded.data_type(), &to);
            let decoded = arrow::compute::cast(&decoded, &DataType::Utf8View).unwrap();
            assert_eq!(decoded.as_string_view().value(39), long);
            assert_eq!(decoded.as_string_view().value(0), "abc");
        }
    }

    #[test]
    fn a_dictionary_of_patches_may_be_full() {
        let indices: Vec<u16> = (0..128).collect();
        let texts = StringViewArray::from_iter_values(indices.iter().map(|at| format!("{at:03}")));
        let decoded = |fill: &str| {
            let values = Tree::new("vortex.varbinview").buffer(texts.views().inner().clone());
            let fill = [&[0x3a, 3], fill.as_bytes()].concat();
            let to = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8View));
            sparse(&fill, &indices, values).load(&DType::Utf8(false), 200).unwrap().decode(&to)
        };
        let found = arrow::compute::cast(&decoded("007").unwrap(), &DataType::Utf8View).unwrap();
        assert_eq!((found.as_string_view().value(127), found.as_string_view().value(199)), ("127", "007"));
        assert!(decoded("abc").is_err(), "129 values");
    }

    #[test]
    fn patches_may_be_none_or_all_rows() {
        check(&sparse(FIVE, &[], Tree::primitive::<i32>(&[])), &I32, Int32Array::from(vec![5, 5]));
        check(&sparse(FIVE, &[0, 1], Tree::primitive(&[1i32, 2])), &I32, Int32Array::from(vec![1, 2]));
        check(&sparse(FIVE, &[], Tree::primitive::<i32>(&[])), &I32, Int32Array::from(Vec::<i32>::new()));
    }

    #[test]
    fn rows_out_of_all_proportion_exceed_the_limit() {
        let array = sparse(FIVE, &[3], Tree::primitive(&[1i32])).load(&I32, 1 << 40).unwrap();
        assert!(array.decode(&DataType::Int32).is_err());
        assert!(array.matches(&Predicate::IsNull).is_err());
        assert_eq!(array.slice(2..6).unwrap().decode(&DataType::Int32).unwrap().len(), 4);
    }

    #[test]
    fn damage_is_refused() {
        let values = || Tree::primitive(&[1i32, 2]);
        assert!(sparse(FIVE, &[1, 2], values()).load(&I32, 3).is_ok());
        assert!(sparse(FIVE, &[1, 3], values()).load(&I32, 3).unwrap().decode(&DataType::Int32).is_err());
        assert!(sparse(FIVE, &[2, 1], values()).load(&I32, 3).unwrap().matches(&Predicate::IsNull).is_err());
        assert!(sparse(FIVE, &[1, 2], values()).child(values()).load(&I32, 3).is_err());
        assert!(sparse(NULL, &[1, 2], values()).load(&I32, 3).is_err(), "null fill of a non-nullable type");
        let bare = Tree::new(ID).buffer(FIVE.to_vec()).child(Tree::primitive(&[1u16])).child(values());
        assert!(bare.load(&I32, 3).is_err(), "no patches described");
    }
}
