//! Arrow types that present the same values.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};

/// Another type for the values of a type, or the same one. `choose` returns a number below its argument.
pub(crate) fn presentation(data_type: &DataType, choose: &mut dyn FnMut(usize) -> usize) -> DataType {
    use DataType::*;
    let one_of =
        |types: &[DataType], choose: &mut dyn FnMut(usize) -> usize| types[choose(types.len())].clone();
    let plain = match data_type {
        Utf8 | LargeUtf8 | Utf8View => one_of(&[Utf8, LargeUtf8, Utf8View], choose),
        Binary | LargeBinary | BinaryView => one_of(&[Binary, LargeBinary, BinaryView], choose),
        List(item) | LargeList(item) | ListView(item) | LargeListView(item) => {
            let item = field(item, choose);
            one_of(
                &[
                    List(Arc::clone(&item)),
                    LargeList(Arc::clone(&item)),
                    ListView(Arc::clone(&item)),
                    LargeListView(item),
                ],
                choose,
            )
        }
        FixedSizeList(item, size) => FixedSizeList(field(item, choose), *size),
        Struct(fields) => Struct(fields.iter().map(|child| field(child, choose)).collect()),
        other => other.clone(),
    };
    if plain.is_nested() || plain == Null || choose(3) > 0 {
        return plain;
    }
    // Most columns have more values than the narrowest keys distinguish; those of one batch often do not.
    let keys = one_of(&[Int8, UInt8, Int16, UInt32], choose);
    Dictionary(Box::new(keys), Box::new(plain))
}

fn field(field: &FieldRef, choose: &mut dyn FnMut(usize) -> usize) -> FieldRef {
    let data_type = presentation(field.data_type(), choose);
    Arc::new(Field::clone(field).with_data_type(data_type))
}
