//! Converts Arrow arrays to trees of canonical encodings, as stored by a writer that does not compress.
//!
//! | dtype | encoding |
//! |---|---|
//! | null, bool, numbers, decimals | `vortex.null`, `vortex.bool`, `vortex.primitive`, `vortex.decimal` |
//! | strings, byte strings | `vortex.varbinview` |
//! | struct, list, fixed-size list | `vortex.struct`, `vortex.list`, `vortex.fixed_size_list` |
//! | map, extension | `vortex.map` over `vortex.listview`, `vortex.ext` |
//!
//! Validity children are present only if some row is null.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, FixedSizeListArray, StructArray, make_array};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Decimal128Type, Decimal256Type};

use crate::array::restore::{restore, without_nulls};
use crate::array::{fixed_width, shown_items, values_of};
use crate::dtype::arrow::{data_type, field};
use crate::dtype::{DType, Extension, Meaning, PType};
use crate::encodings::{
    bool, decimal, ext, fixed_size_list, list, list_view, map, null, primitive, struct_, varbin_view,
};
use crate::kernels::match_word;
use crate::limits::Limits;
use crate::wire::WriteNode;
use crate::{Error, Result};

/// The encoded tree of an Arrow array that presents `dtype`.
///
/// # Errors
/// If it does not present `dtype`, has nulls although the type has none, or the type is a variant or a union.
pub(crate) fn canonical(array: &ArrayRef, dtype: &DType) -> Result<WriteNode> {
    let array = &restore(array, &data_type(dtype)?, &Limits::of_any_bytes())?;
    if !dtype.is_nullable() && array.null_count() > 0 {
        return Err(Error::invalid(format!("{} nulls in a column of type {dtype}", array.null_count())));
    }
    Ok(match dtype {
        DType::Null => null::encode(),
        DType::Bool(_) => bool::encode(array.as_boolean().values(), validity(array.nulls())),
        DType::Primitive(ptype, _) => {
            match_word!(ptype, |W| primitive::encode(values_of::<W>(array), validity(array.nulls())))
        }
        DType::Decimal(..) => decimals(array)?.children(validity(array.nulls())),
        DType::Utf8(_) => varbin_view::encode(array.as_string_view(), validity(array.nulls())),
        DType::Binary(_) => varbin_view::encode(array.as_binary_view(), validity(array.nulls())),
        DType::Struct(fields, _) => {
            let columns = array.as_struct().columns().iter().zip(fields.dtypes());
            let columns =
                columns.map(|(column, dtype)| canonical(&visible(column, array.nulls(), dtype)?, dtype));
            struct_::encode(columns.collect::<Result<_>>()?, validity(array.nulls()))
        }
        DType::List(element, _) => {
            let (_, offsets, elements, nulls) = array.as_list::<i32>().clone().into_parts();
            let (offsets, elements) = shown_items(offsets, elements);
            let encoded = canonical(&elements, element)?;
            list::encode(encoded, elements.len(), integers(offsets.inner()), validity(nulls.as_ref()))
        }
        DType::FixedSizeList(element, ..) => {
            let lists = array.as_fixed_size_list();
            let items = visible_items(lists, element)?;
            fixed_size_list::encode(canonical(&items, element)?, validity(lists.nulls()))
        }
        DType::Map(map, _) => {
            let (_, offsets, entries, nulls, _) = array.as_map().clone().into_parts();
            let (offsets, entries) = shown_items(offsets, Arc::new(entries));
            let sizes: ScalarBuffer<i32> = offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let (starts, sizes) = (integers(&offsets.inner().slice(0, sizes.len())), integers(&sizes));
            let (len, entries) = (entries.len(), canonical(&entries, &map.entry())?);
            let nulls = validity(nulls.as_ref());
            map::encode(list_view::encode(entries, len, starts, sizes, nulls))
        }
        DType::Extension(extension) => {
            ext::encode(canonical(&storage(array, extension)?, extension.storage())?)
        }
        DType::Variant(_) | DType::Union(..) => return Err(Error::unsupported("type to write", dtype)),
    })
}

fn validity(nulls: Option<&NullBuffer>) -> Option<WriteNode> {
    nulls.filter(|nulls| nulls.null_count() > 0).map(|nulls| bool::encode(nulls.inner(), None))
}

/// The values of a field of structs, of which `hidden` tells those that are null. In Arrow, values that are not
/// nullable may still be null where the struct is; in the format, they may not.
///
/// # Errors
/// If Arrow does not accept the values without these nulls.
pub(super) fn visible(values: &ArrayRef, hidden: Option<&NullBuffer>, dtype: &DType) -> Result<ArrayRef> {
    let (false, Some(nulls), Some(hidden)) = (dtype.is_nullable(), values.nulls(), hidden) else {
        return Ok(Arc::clone(values));
    };
    if !hidden.contains(nulls) {
        return Ok(Arc::clone(values));
    }
    // These nulls may hide others further down, which must be removed as long as it is known where they may be.
    Ok(match (values.data_type(), dtype.storage()) {
        (DataType::Struct(_), DType::Struct(fields, _)) => {
            let structs = values.as_struct();
            let columns = structs.columns().iter().zip(fields.dtypes());
            let columns = columns.map(|(column, dtype)| visible(column, Some(nulls), dtype));
            let (fields, columns) = (structs.fields().clone(), columns.collect::<Result<_>>()?);
            Arc::new(StructArray::try_new_with_length(fields, columns, None, structs.len())?)
        }
        (DataType::FixedSizeList(..), DType::FixedSizeList(element, ..)) => {
            let lists = values.as_fixed_size_list();
            let items = visible_items(lists, element)?;
            let (item, size, ..) = lists.clone().into_parts();
            Arc::new(FixedSizeListArray::try_new_with_length(item, size, items, None, lists.len())?)
        }
        _ => without_nulls(Arc::clone(values))?,
    })
}

/// The items of lists of a fixed size, as [`visible`].
///
/// # Errors
/// As [`visible`].
pub(super) fn visible_items(lists: &FixedSizeListArray, element: &DType) -> Result<ArrayRef> {
    let size = usize::try_from(lists.value_length()).unwrap_or(0);
    let has_hidden = !element.is_nullable() && lists.values().null_count() > 0;
    let hidden = lists.nulls().filter(|_| has_hidden).map(|nulls| nulls.expand(size));
    visible(lists.values(), hidden.as_ref(), element)
}

/// Offsets or sizes of lists.
fn integers(values: &ScalarBuffer<i32>) -> (PType, WriteNode) {
    (PType::I32, primitive::encode::<u32>(values.inner().clone(), None))
}

/// A node of decimals with the width of the Arrow type, without validity.
pub(super) fn decimals(array: &ArrayRef) -> Result<WriteNode> {
    Ok(match array.data_type() {
        DataType::Decimal128(..) => {
            decimal::encode(4, array.as_primitive::<Decimal128Type>().values().inner().clone())
        }
        DataType::Decimal256(..) => {
            decimal::encode(5, array.as_primitive::<Decimal256Type>().values().inner().clone())
        }
        other => return Err(Error::unsupported("decimal type to write", other)),
    })
}

/// Converts an array of an extension type to its storage type.
pub(super) fn storage(array: &ArrayRef, extension: &Extension) -> Result<ArrayRef> {
    let to = data_type(extension.storage())?;
    match extension.meaning() {
        Meaning::Json | Meaning::Unknown => Ok(Arc::clone(array)),
        Meaning::Date(_) | Meaning::Time(_) | Meaning::Timestamp(..) => {
            Ok(make_array(array.to_data().into_builder().data_type(to).build()?))
        }
        Meaning::Uuid => {
            let bytes = array.as_fixed_size_binary();
            // Arrow lets the bytes end with a part of a value.
            let values = Buffer::from(&bytes.value_data()[..bytes.len() * 16]);
            let values = fixed_width(DataType::UInt8, values.len(), values, None)?;
            let DType::FixedSizeList(element, size, _) = extension.storage() else {
                return Err(Error::unsupported("storage to write", extension.storage()));
            };
            let item = Arc::new(field("item", element)?);
            let size = i32::try_from(*size).map_err(Error::limit)?;
            let nulls = bytes.nulls().cloned();
            Ok(Arc::new(FixedSizeListArray::try_new(item, size, values, nulls)?))
        }
    }
}
