//! Structs, lists and maps: each child is compressed on its own.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, StructArray};

use super::boolean::validity;
use super::canonical::{canonical, visible, visible_items};
use super::compress as compress_child;
use super::numbers::compress_positions;
use super::scheme::{Context, Kind};
use crate::array::{present, shown_items};
use crate::dtype::arrow::data_type;
use crate::dtype::{DType, StructType};
use crate::encodings::{fixed_size_list, list, list_view, map, struct_};
use crate::release::since;
use crate::wire::WriteNode;
use crate::{Error, Result};

/// Compresses a column of a nested type, or of nulls.
///
/// # Errors
/// If a child cannot be encoded, or the oldest release that must read the file does not support the type.
pub(super) fn compress(cx: &Context, array: &ArrayRef, dtype: &DType) -> Result<WriteNode> {
    Ok(match dtype {
        DType::Struct(fields, _) => {
            let compress_field =
                |_: &str, column: &ArrayRef, dtype: &DType| compress_child(cx, column, dtype);
            compress_struct(cx, array.as_struct(), dtype, fields, compress_field)?
        }
        DType::List(element, _) => {
            let (_, offsets, elements, nulls) = array.as_list::<i32>().clone().into_parts();
            let (offsets, elements) = shown_items(offsets, elements);
            let offsets = compress_positions(&positions(cx), unsigned(&offsets), None)?;
            let encoded = compress_child(cx, &elements, element)?;
            list::encode(encoded, elements.len(), offsets, validity(cx, nulls.as_ref())?)
        }
        DType::FixedSizeList(element, ..) => {
            let lists = array.as_fixed_size_list();
            let items = visible_items(lists, element)?;
            fixed_size_list::encode(compress_child(cx, &items, element)?, validity(cx, lists.nulls())?)
        }
        DType::Map(map, _) => {
            let (_, offsets, entries, nulls, _) = array.as_map().clone().into_parts();
            let (offsets, entries) = shown_items(offsets, Arc::new(entries));
            // Keys of maps are decoded to other types than strings elsewhere.
            let entries = present(entries, &data_type(&map.entry())?)?;
            let sizes = offsets.windows(2).map(|pair| (pair[1] - pair[0]).cast_unsigned()).collect();
            let starts = unsigned(&offsets[..offsets.len() - 1]);
            let starts = compress_positions(&positions(cx), starts, None)?;
            let sizes = compress_positions(&positions(cx), sizes, None)?;
            let (len, entries) = (entries.len(), compress_child(cx, &entries, &map.entry())?);
            let nulls = validity(cx, nulls.as_ref())?;
            map::encode(list_view::encode(entries, len, starts, sizes, nulls))
        }
        _ => canonical(array, dtype)?,
    })
}

/// Compresses a struct, field by field.
///
/// # Errors
/// If a field cannot be encoded, or the oldest release that must read the file does not support structs with nulls.
pub(super) fn compress_struct(
    cx: &Context,
    array: &StructArray,
    dtype: &DType,
    fields: &StructType,
    compress_field: impl Fn(&str, &ArrayRef, &DType) -> Result<WriteNode>,
) -> Result<WriteNode> {
    let validity = validity(cx, array.nulls())?;
    if validity.is_some() && cx.reader() < since::NULLABLE_STRUCT_ARRAYS {
        let what = format!("{dtype}, with nulls, which release {} does not read", cx.reader());
        return Err(Error::unsupported("type to write", what));
    }
    let columns = array.columns().iter().zip(fields.fields());
    let columns = columns
        .map(|(column, (name, dtype))| compress_field(name, &visible(column, array.nulls(), dtype)?, dtype));
    Ok(struct_::encode(columns.collect::<Result<_>>()?, validity))
}

/// The context for offsets and sizes of lists.
fn positions(cx: &Context) -> Context {
    cx.below(Kind::Joined, &[Kind::Dictionary])
}

/// Converts offsets, which are not negative.
fn unsigned(offsets: &[i32]) -> Vec<u32> {
    offsets.iter().map(|offset| offset.cast_unsigned()).collect()
}
