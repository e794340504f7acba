//! A value of one of several types per row.
//!
//! ```text
//! type ids   0    1    -    0        the variant of each row; null makes the row null
//! variant 0  7    ?    ?    9        as long as the array; only rows with its id matter
//! variant 1  ?    x    ?    ?
//! ```
//!
//! No metadata, no buffers. Children: the type ids, then the variants in the order of the dtype. Arrow's
//! sparse unions have the same layout, but no validity of their own: there, a null row selects a variant
//! that is null in that row.

use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, UnionArray as ArrowUnion};
use arrow::datatypes::{DataType, UInt8Type, UnionMode};

use super::Encoding;
use crate::array::{ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, masking, present};
use crate::dtype::{DType, PType, UnionType};
use crate::limits::Work;
use crate::{Error, Result};

/// The `vortex.union` encoding.
#[derive(Debug)]
pub(super) struct Union;

const ID: &str = "vortex.union";

impl Encoding for Union {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let DType::Union(union, nullable) = node.dtype() else {
            return Err(Error::corrupt(format!("holds unions, not {}", node.dtype())));
        };
        node.no_metadata()?;
        node.expect_buffers(0)?;
        node.expect_children(1 + union.variants().len())?;
        let type_ids = node.child(0, &DType::Primitive(PType::U8, *nullable), node.len())?;
        let variants = union.variants().dtypes().iter().enumerate();
        let variants = variants.map(|(at, dtype)| node.child(at + 1, dtype, node.len()));
        Ok(Arc::new(UnionArray {
            header: node.header(ID),
            union: Arc::clone(union),
            type_ids,
            variants: variants.collect::<Result<_>>()?,
        }))
    }
}

#[derive(Debug)]
struct UnionArray {
    header: Header,
    union: Arc<UnionType>,
    type_ids: EncodedRef,
    variants: Vec<EncodedRef>,
}

impl UnionArray {
    /// The variant that null rows select: a nullable one, if there is any.
    fn null_variant(&self) -> usize {
        self.union.variants().dtypes().iter().position(DType::is_nullable).unwrap_or(0)
    }
}

impl EncodedArray for UnionArray {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        let variants = self.variants.iter().map(|child| ("variant", child));
        std::iter::once(("type_ids", &self.type_ids)).chain(variants).collect()
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let DataType::Union(fields, UnionMode::Sparse) = to else {
            return present(self.decode_preferred()?, to);
        };
        if fields.len() != self.variants.len() {
            return Err(Error::invalid(format!("cannot convert {} to {to}", self.dtype())));
        }
        let mut arrow_ids = [None; 256];
        for (id, (arrow_id, _)) in self.union.type_ids().iter().zip(fields.iter()) {
            arrow_ids[usize::from(*id)] = Some(arrow_id);
        }
        let null_variant = self.null_variant();
        let null_id = self.union.type_ids()[null_variant];

        let type_ids = self.type_ids.decode(&DataType::UInt8)?;
        let nulls = type_ids.nulls().filter(|nulls| nulls.null_count() > 0);
        let ids = type_ids.as_primitive::<UInt8Type>().values().iter().enumerate();
        let ids = ids.map(|(row, id)| {
            let id = if nulls.is_some_and(|nulls| nulls.is_null(row)) { null_id } else { *id };
            arrow_ids[usize::from(id)].ok_or_else(|| Error::corrupt(format!("no union variant has id {id}")))
        });
        let ids = ids.collect::<Result<Vec<i8>>>()?;

        let _work = Work::begin();
        let children = self.variants.iter().zip(fields.iter());
        let children = children.map(|(variant, (_, field))| variant.decode(field.data_type()));
        let mut children = children.collect::<Result<Vec<_>>>()?;
        if let Some(nulls) = nulls {
            children[null_variant] = masking::mask(&children[null_variant], nulls)?;
        }
        Ok(Arc::new(ArrowUnion::try_new(fields.clone(), ids.into(), None, children)?))
    }

    // A row is also null if the variant that it selects is null.
    fn validity(&self) -> Result<Validity> {
        if !self.union.variants().dtypes().iter().any(DType::is_nullable) {
            return self.type_ids.validity();
        }
        let decoded = self.decode_preferred()?;
        Ok(Validity::from_nulls(decoded.logical_nulls()))
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        Ok(Arc::new(Self {
            header: self.header.of_rows(pick.row_count()),
            union: Arc::clone(&self.union),
            type_ids: pick.of(&self.type_ids)?,
            variants: self.variants.iter().map(|child| pick.of(child)).collect::<Result<_>>()?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::build::Tree;
    use crate::dtype::StructType;
    use crate::dtype::arrow::data_type;
    use crate::encodings::shared::conformance;
    use crate::expr::Predicate;
    use arrow::array::{Int32Array, UInt8Array};

    fn either(second_nullable: bool, nullable: bool) -> DType {
        let variants = StructType::new([
            ("number".into(), DType::Primitive(PType::I32, false)),
            ("byte".into(), DType::Primitive(PType::U8, second_nullable)),
        ]);
        DType::Union(Arc::new(UnionType::try_new(variants, [5, 2]).unwrap()), nullable)
    }

    fn tree(ids: Tree) -> Tree {
        let numbers: Vec<i32> = (0..40).collect();
        Tree::new(ID).child(ids).child(Tree::primitive(&numbers)).child(Tree::primitive(&[7u8; 40]))
    }

    fn ids() -> Vec<u8> {
        (0..40).map(|at| if at % 3 == 0 { 2 } else { 5 }).collect()
    }

    fn expected(dtype: &DType, valid: Option<Vec<bool>>) -> ArrayRef {
        let DataType::Union(fields, _) = data_type(dtype).unwrap() else { unreachable!() };
        let ids = ids().into_iter().enumerate().map(|(row, id)| match &valid {
            Some(valid) if !valid[row] => 2,
            _ => id.cast_signed(),
        });
        let numbers: ArrayRef = Arc::new((0..40).collect::<Int32Array>());
        let bytes: ArrayRef = Arc::new(UInt8Array::new(vec![7; 40].into(), valid.clone().map(Into::into)));
        let ids = ids.collect::<Vec<i8>>().into();
        Arc::new(ArrowUnion::try_new(fields, ids, None, vec![numbers, bytes]).unwrap())
    }

    #[test]
    fn conforms() {
        let dtype = either(false, false);
        let array = tree(Tree::primitive(&ids())).load(&dtype, 40).unwrap();
        conformance::check(&array, &expected(&dtype, None));

        let dtype = either(true, true);
        let valid: Vec<bool> = (0..40).map(|at| at % 7 != 0).collect();
        let ids = Tree::primitive(&ids()).child(Tree::bools(&valid));
        conformance::check(&tree(ids).load(&dtype, 40).unwrap(), &expected(&dtype, Some(valid)));
    }

    #[test]
    fn a_null_row_is_null_though_no_variant_may_be() {
        let dtype = either(false, true);
        let valid: Vec<bool> = (0..40).map(|at| at % 7 != 0).collect();
        let ids = Tree::primitive(&ids()).child(Tree::bools(&valid));
        let array = tree(ids).load(&dtype, 40).unwrap();
        let decoded = array.decode(&data_type(&dtype).unwrap()).unwrap();
        assert_eq!(decoded.logical_null_count(), 6);
        assert_eq!(array.validity().unwrap().null_count(40), 6);
    }

    #[test]
    fn rows_are_null_if_the_variant_that_they_select_is() {
        let valid: Vec<bool> = (0..40).map(|at| at % 2 != 0).collect();
        let bytes = Tree::primitive(&[7u8; 40]).child(Tree::bools(&valid));
        let numbers: Vec<i32> = (0..40).collect();
        let union =
            Tree::new(ID).child(Tree::primitive(&ids())).child(Tree::primitive(&numbers)).child(bytes);
        let of = DType::Struct(Arc::new(StructType::new([("either".into(), either(true, false))])), false);
        let array = Tree::new("vortex.struct").child(union).load(&of, 40).unwrap();
        let decoded = array.decode(&data_type(&of).unwrap()).unwrap();
        // Every third row selects a byte, half of which are null.
        assert_eq!(decoded.as_struct().column(0).logical_null_count(), 7);
        let field = array.field(0).unwrap();
        assert!(field.dtype().is_nullable());
        assert_eq!(field.matches(&Predicate::IsNull).unwrap().true_count(), 7);
    }

    #[test]
    fn ids_must_be_listed_unless_null() {
        let mut wrong = ids();
        wrong[3] = 0;
        let to = data_type(&either(true, true)).unwrap();
        let array = tree(Tree::primitive(&wrong)).load(&either(true, true), 40).unwrap();
        assert!(array.decode(&to).is_err());
        let valid: Vec<bool> = (0..40).map(|at| at != 3).collect();
        let masked = Tree::primitive(&wrong).child(Tree::bools(&valid));
        assert!(tree(masked).load(&either(true, true), 40).unwrap().decode(&to).is_ok());
    }
}
