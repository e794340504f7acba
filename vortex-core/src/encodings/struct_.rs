//! Named fields, with a child for each.
//!
//! ```text
//! validity  1 0 1            optional, and first
//! a         1 7 3            each with its own type and encoding; 7 is meaningless
//! b         x y z
//! ```
//!
//! No metadata, no buffers. Fields match by position; names may be duplicated. A null row makes all its
//! fields null: stored fields have arbitrary values there, which decoding replaces with nulls if the
//! field is nullable, so that readers of a single child see the same.

use std::sync::Arc;

use arrow::array::StructArray;
use arrow::datatypes::DataType;

use super::Encoding;
use super::masked::masked;
use crate::array::{
    ArrayRef, EncodedArray, EncodedRef, Header, Node, Pick, Validity, ValidityChild, masking, present,
};
use crate::dtype::DType;
use crate::limits::{Limits, Work};
use crate::wire::WriteNode;
use crate::{Error, Result};

/// The `vortex.struct` encoding.
#[derive(Debug)]
pub(super) struct Struct;

const ID: &str = "vortex.struct";

impl Encoding for Struct {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let Some(types) = node.dtype().as_struct() else {
            return Err(Error::corrupt(format!("holds structs, not {}", node.dtype())));
        };
        node.no_metadata()?;
        node.expect_buffers(0)?;
        let first = node.child_count().saturating_sub(types.len());
        // No `?` before all are loaded: see `load_rows`.
        let validity = node.leading_validity(types.len());
        let fields = types.dtypes().iter().enumerate();
        let fields: Vec<_> = fields.map(|(at, dtype)| node.child(first + at, dtype, node.len())).collect();
        Ok(Arc::new(Fields {
            header: node.header(ID),
            fields: fields.into_iter().collect::<Result<_>>()?,
            validity: validity?,
        }))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        self.load(&node.of_rows(rows))
    }
}

/// A struct of these fields, null where the bool array `validity` is false.
pub(crate) fn struct_of(
    dtype: DType,
    fields: Vec<EncodedRef>,
    validity: ValidityChild,
    len: usize,
    limits: &Limits,
) -> EncodedRef {
    Arc::new(Fields { header: Header::new(ID, dtype, len, limits), fields, validity })
}

#[derive(Debug)]
struct Fields {
    header: Header,
    fields: Vec<EncodedRef>,
    validity: ValidityChild,
}

impl EncodedArray for Fields {
    fn header(&self) -> &Header {
        &self.header
    }

    fn children(&self) -> Vec<(&'static str, &EncodedRef)> {
        let validity = self.validity.named();
        validity.into_iter().chain(self.fields.iter().map(|field| ("field", field))).collect()
    }

    fn decode(&self, to: &DataType) -> Result<ArrayRef> {
        let wanted = match to {
            DataType::Struct(wanted) => wanted,
            DataType::Dictionary(_, values) => return present(self.decode(values)?, to),
            _ => return Err(Error::invalid(format!("cannot convert {} to {to}", self.dtype()))),
        };
        if wanted.len() != self.fields.len() {
            return Err(Error::invalid(format!("cannot convert {} to {to}", self.dtype())));
        }
        let _work = Work::begin();
        let nulls = self.validity()?.to_nulls(self.len());
        let columns = self.fields.iter().zip(wanted).map(|(field, wanted)| {
            let column = field.decode(wanted.data_type())?;
            match &nulls {
                Some(valid) => masking::mask(&column, valid),
                None => Ok(column),
            }
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(StructArray::try_new_with_length(wanted.clone(), columns, nulls, self.len())?))
    }

    fn validity(&self) -> Result<Validity> {
        self.validity.decode()
    }

    fn pick(&self, pick: Pick<'_>) -> Result<EncodedRef> {
        Ok(Arc::new(Self {
            header: self.header.of_rows(pick.row_count()),
            fields: self.fields.iter().map(|field| pick.of(field)).collect::<Result<_>>()?,
            validity: self.validity.pick(pick)?,
        }))
    }

    fn field(&self, at: usize) -> Result<EncodedRef> {
        let dtype = masking::field_dtype(self.dtype(), at)?;
        let field = self.fields.get(at).ok_or_else(|| Error::invalid(format!("no field {at}")))?;
        Ok(masked(Arc::clone(field), &self.validity, dtype))
    }
}

/// A node of fields, which are null where `validity` is false.
pub(crate) fn encode(fields: Vec<WriteNode>, validity: Option<WriteNode>) -> WriteNode {
    WriteNode::new(ID).children(validity).children(fields)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array as _, AsArray as _, Decimal128Array, Int32Array, StringArray, UInt64Array};
    use arrow::datatypes::{Field, Int32Type};

    use super::*;
    use crate::array::Decoded;
    use crate::array::build::Tree;
    use crate::dtype::arrow::data_type;
    use crate::dtype::{DecimalType, PType, StructType};
    use crate::encodings::shared::conformance;
    use crate::expr::{CompareOp, Predicate};
    use crate::scalar::{Scalar, Value};

    const ROWS: usize = 100;

    fn pair(nullable_field: bool, nullable: bool) -> DType {
        let number = DType::Primitive(PType::I32, nullable_field);
        let fields = [("a".into(), number), ("b".into(), DType::Primitive(PType::U8, false))];
        DType::Struct(Arc::new(StructType::new(fields)), nullable)
    }

    fn numbers() -> Vec<i32> {
        (0..ROWS as i32).collect()
    }

    fn valid() -> Vec<bool> {
        (0..ROWS).map(|at| at % 3 != 0).collect()
    }

    fn tree() -> Tree {
        let fields = Tree::new(ID).child(Tree::bools(&valid()));
        fields.child(Tree::primitive(&numbers())).child(Tree::primitive(&[9u8; ROWS]))
    }

    #[test]
    fn conforms() {
        let plain = Tree::new(ID).child(Tree::primitive(&numbers())).child(Tree::primitive(&[9u8; ROWS]));
        for (nulls, array) in [
            (None, plain.load(&pair(true, false), ROWS).unwrap()),
            (Some(valid().into()), tree().load(&pair(true, true), ROWS).unwrap()),
        ] {
            let DataType::Struct(fields) = data_type(array.dtype()).unwrap() else { unreachable!() };
            let a: ArrayRef = Arc::new(Int32Array::new(numbers().into(), nulls.clone()));
            let b: ArrayRef = Arc::new(arrow::array::UInt8Array::from(vec![9; ROWS]));
            let expected: ArrayRef = Arc::new(StructArray::new(fields, vec![a, b], nulls));
            conformance::check(&array, &expected);
        }
    }

    #[test]
    fn fields_under_a_null_struct_are_null() {
        let array = tree().load(&pair(true, true), ROWS).unwrap();
        let decoded = array.decode(&data_type(array.dtype()).unwrap()).unwrap();
        let nulls = decoded.null_count();
        assert_eq!(nulls, ROWS.div_ceil(3));
        assert_eq!(decoded.as_struct().column(0).null_count(), nulls);
        assert_eq!(decoded.as_struct().column(1).null_count(), nulls, "although it is not nullable");
        decoded.to_data().validate_full().unwrap();
    }

    #[test]
    fn a_field_alone_is_null_where_the_struct_is() {
        let array = tree().load(&pair(false, true), ROWS).unwrap();
        let field = array.field(0).unwrap();
        assert_eq!(field.dtype(), &DType::Primitive(PType::I32, true));
        let expected: ArrayRef = Arc::new(Int32Array::new(numbers().into(), Some(valid().into())));
        conformance::check(&field, &expected);
        let zero = Scalar::try_new(DType::Primitive(PType::I32, false), Value::Int(0)).unwrap();
        let outcome = field.matches(&Predicate::Compare(CompareOp::Eq, zero)).unwrap();
        assert_eq!(outcome.true_count(), 0, "row 0 is null");
        assert!(array.field(2).is_err());

        let decoded = array.to_decoded().unwrap();
        assert_eq!(&decoded.field(0).unwrap().decode(&DataType::Int32).unwrap(), &expected);
    }

    #[test]
    fn fields_come_in_the_type_asked_for() {
        let dtype = DType::Struct(Arc::new(StructType::new([("s".into(), DType::Utf8(false))])), false);
        let text = Tree::new("vortex.constant").buffer(b"\x3a\x01x".to_vec());
        let array = Tree::new(ID).child(text).load(&dtype, 2).unwrap();
        let to = DataType::Struct(vec![Field::new("other name", DataType::Utf8, true)].into());
        let decoded = array.decode(&to).unwrap();
        assert_eq!(decoded.data_type(), &to);
        assert_eq!(decoded.as_struct().column(0).as_string::<i32>(), &StringArray::from(vec!["x", "x"]));
    }

    #[test]
    fn dictionaries_of_structs_have_the_fields_asked_for() {
        // What is under a null is garbage, which a narrower decimal cannot hold.
        let decimals = Decimal128Array::new(vec![7, 1 << 40].into(), Some(vec![true, false].into()));
        let decimals = decimals.with_precision_and_scale(5, 2).unwrap();
        let decimal = DType::Decimal(DecimalType::try_new(5, 2).unwrap(), true);
        let number = DType::Primitive(PType::I32, true);
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
        let limits = Limits::default();
        let fields = vec![
            Arc::new(Decoded::new(decimal.clone(), Arc::new(decimals), &limits)) as EncodedRef,
            Arc::new(Decoded::new(number.clone(), numbers, &limits)),
        ];
        let dtype = StructType::new([("a".into(), decimal), ("b".into(), number)]);
        let dtype = DType::Struct(Arc::new(dtype), false);
        let array = struct_of(dtype, fields, ValidityChild::default(), 2, &limits);
        // Fields are told apart by their position, not by their name.
        let wanted = [("b", DataType::Decimal32(5, 2)), ("a", DataType::Int32)];
        let wanted = wanted.map(|(name, data_type)| Field::new(name, data_type, true));
        let wanted = DataType::Struct(wanted.to_vec().into());
        let to = DataType::Dictionary(Box::new(DataType::Int8), Box::new(wanted.clone()));
        let decoded = array.decode(&to).unwrap();
        assert_eq!(decoded.data_type(), &to);
        let rows = arrow::compute::cast(&decoded, &wanted).unwrap();
        assert_eq!(&rows, &array.decode(&wanted).unwrap());
    }

    #[test]
    fn a_struct_without_fields_has_rows() {
        let dtype = DType::Struct(Arc::new(StructType::new([])), true);
        let array = Tree::new(ID).child(Tree::bools(&[true, false])).load(&dtype, 2).unwrap();
        let decoded = array.decode(&data_type(&dtype).unwrap()).unwrap();
        assert_eq!((decoded.len(), decoded.null_count()), (2, 1));
        assert_eq!(array.take(&UInt64Array::from(vec![1, 1, 0])).unwrap().len(), 3);
    }

    #[test]
    fn nested_fields_are_masked_by_every_parent() {
        let inner = pair(true, true);
        let dtype = DType::Struct(Arc::new(StructType::new([("inner".into(), inner)])), true);
        let outer_valid: Vec<bool> = (0..ROWS).map(|at| at % 2 != 0).collect();
        let array = Tree::new(ID).child(Tree::bools(&outer_valid)).child(tree()).load(&dtype, ROWS).unwrap();
        let leaf = array.field(0).unwrap().field(0).unwrap().decode(&DataType::Int32).unwrap();
        let alone = array.decode(&data_type(&dtype).unwrap()).unwrap();
        let alone = alone.as_struct().column(0).as_struct().column(0);
        for row in 0..ROWS {
            assert_eq!(leaf.is_valid(row), row % 2 != 0 && row % 3 != 0);
        }
        assert_eq!(leaf.as_primitive::<Int32Type>(), alone.as_primitive::<Int32Type>());
    }

    #[test]
    fn children_must_be_as_many_as_fields() {
        assert!(tree().load(&pair(true, false), ROWS).is_err(), "validity of a non-nullable struct");
        assert!(tree().child(Tree::primitive(&[0u8; ROWS])).load(&pair(true, true), ROWS).is_err());
        assert!(Tree::new(ID).child(Tree::primitive(&numbers())).load(&pair(true, true), ROWS).is_err());
    }

    #[test]
    fn null_tests_of_rows_that_take_no_bytes_are_limited() {
        let empty = DType::Struct(Arc::new(StructType::new([])), true);
        let array = Tree::new(ID).load(&empty, 1 << 40).unwrap();
        assert!(array.matches(&Predicate::IsNull).is_err());
        let limits = Limits::new().with_max_decoded_bytes(10);
        let array = Tree::new(ID).load_within(&empty, 1000, &limits).unwrap();
        assert!(array.matches(&Predicate::IsNull).is_err(), "125 bytes");
        assert_eq!(array.slice(0..3).unwrap().matches(&Predicate::IsNotNull).unwrap().true_count(), 3);
    }
}
