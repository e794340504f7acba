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

use arrow::array::{Array as _, ArrayData, AsArray as _, GenericByteViewArray, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{ByteViewType, DataType, Decimal128Type, Decimal256Type};

use super::{ArrowRef, fixed_width, present};
use crate::dtype::arrow::{data_type, field};
use crate::dtype::{DType, Extension, Meaning, PType};
use crate::encodings::decimal;
use crate::wire::WriteNode;
use crate::{Error, Result};

/// Bytes of a view.
const VIEW: usize = 16;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ListMetadata {
    #[prost(uint64, tag = "1")]
    pub(crate) elements_len: u64,
    #[prost(int32, tag = "2")]
    pub(crate) offset_ptype: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ListViewMetadata {
    #[prost(uint64, tag = "1")]
    pub(crate) elements_len: u64,
    #[prost(int32, tag = "2")]
    pub(crate) offset_ptype: i32,
    #[prost(int32, tag = "3")]
    pub(crate) size_ptype: i32,
}

/// The encoded tree of an Arrow array that presents `dtype`.
///
/// # Errors
/// If it does not present `dtype`, has nulls although the type has none, or the type is a variant or a union.
pub(crate) fn canonical(array: &ArrowRef, dtype: &DType) -> Result<WriteNode> {
    let array = &present(Arc::clone(array), &data_type(dtype)?)?;
    if !dtype.is_nullable() && array.null_count() > 0 {
        return Err(Error::invalid(format!("{} nulls in a column of type {dtype}", array.null_count())));
    }
    Ok(match dtype {
        DType::Null => WriteNode::new("vortex.null"),
        DType::Bool(_) => bools(array.as_boolean().values()).children(validity(array.nulls())),
        DType::Primitive(ptype, _) => numbers(array, *ptype).children(validity(array.nulls())),
        DType::Decimal(..) => decimals(array)?.children(validity(array.nulls())),
        DType::Utf8(_) => views(array.as_string_view(), validity(array.nulls())),
        DType::Binary(_) => views(array.as_binary_view(), validity(array.nulls())),
        DType::Struct(fields, _) => {
            let columns = array.as_struct().columns().iter().zip(fields.dtypes());
            let columns = columns.map(|(column, dtype)| canonical(column, dtype));
            let node = WriteNode::new("vortex.struct").children(validity(array.nulls()));
            node.children(columns.collect::<Result<Vec<_>>>()?)
        }
        DType::List(element, _) => {
            let (_, offsets, elements, nulls) = array.as_list::<i32>().clone().into_parts();
            let (offsets, elements) = from_zero(&offsets, &elements);
            let metadata =
                ListMetadata { elements_len: elements.len() as u64, offset_ptype: PType::I32 as i32 };
            let node = WriteNode::new("vortex.list").message(&metadata);
            let node = node.child(canonical(&elements, element)?).child(integers(&offsets));
            node.children(validity(nulls.as_ref()))
        }
        DType::FixedSizeList(element, ..) => {
            let list = array.as_fixed_size_list();
            let node = WriteNode::new("vortex.fixed_size_list").child(canonical(list.values(), element)?);
            node.children(validity(list.nulls()))
        }
        DType::Map(map, _) => {
            let (_, offsets, entries, nulls, _) = array.as_map().clone().into_parts();
            let (offsets, entries) = from_zero(&offsets, &(Arc::new(entries) as ArrowRef));
            let metadata = ListViewMetadata {
                elements_len: entries.len() as u64,
                offset_ptype: PType::I32 as i32,
                size_ptype: PType::I32 as i32,
            };
            let sizes: ScalarBuffer<i32> = offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let starts = offsets.slice(0, sizes.len());
            let node = WriteNode::new("vortex.listview").message(&metadata);
            let node = node.child(canonical(&entries, &map.entry())?);
            let node = node.child(integers(&starts)).child(integers(&sizes));
            WriteNode::new("vortex.map").child(node.children(validity(nulls.as_ref())))
        }
        DType::Extension(extension) => {
            WriteNode::new("vortex.ext").child(canonical(&storage(array, extension)?, extension.storage())?)
        }
        DType::Variant(_) | DType::Union(..) => return Err(Error::unsupported("type to write", dtype)),
    })
}

fn validity(nulls: Option<&NullBuffer>) -> Option<WriteNode> {
    nulls.filter(|nulls| nulls.null_count() > 0).map(|nulls| bools(nulls.inner()))
}

fn bools(bits: &BooleanBuffer) -> WriteNode {
    WriteNode::new("vortex.bool").buffer(bits.sliced(), 1)
}

fn integers(values: &ScalarBuffer<i32>) -> WriteNode {
    WriteNode::new("vortex.primitive").buffer(values.inner().clone(), size_of::<i32>())
}

fn numbers(array: &ArrowRef, ptype: PType) -> WriteNode {
    let width = ptype.byte_width();
    WriteNode::new("vortex.primitive").buffer(values_of(&array.to_data(), width), width)
}

/// The values of a primitive array, restricted to its slice.
fn values_of(data: &ArrayData, width: usize) -> Buffer {
    data.buffers()[0].slice_with_length(data.offset() * width, data.len() * width)
}

/// A node of decimals with the width of the Arrow type, without validity.
pub(crate) fn decimals(array: &ArrowRef) -> Result<WriteNode> {
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

/// A node of strings, with only the bytes that views refer to.
pub(crate) fn views<T: ByteViewType>(
    array: &GenericByteViewArray<T>,
    validity: Option<WriteNode>,
) -> WriteNode {
    let compact = array.gc();
    let node = WriteNode::new("vortex.varbinview");
    let node = compact.data_buffers().iter().fold(node, |node, bytes| node.buffer(bytes.clone(), 1));
    node.buffer(compact.views().inner().clone(), VIEW).children(validity)
}

/// Offsets rebased to start at zero, and the elements between the first and the last.
pub(crate) fn from_zero(offsets: &OffsetBuffer<i32>, elements: &ArrowRef) -> (ScalarBuffer<i32>, ArrowRef) {
    let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
    let elements = elements.slice(first as usize, (last - first) as usize);
    let moved = if first == 0 {
        offsets.inner().clone()
    } else {
        offsets.iter().map(|offset| offset - first).collect()
    };
    (moved, elements)
}

/// Converts an array of an extension type to its storage type.
pub(crate) fn storage(array: &ArrowRef, extension: &Extension) -> Result<ArrowRef> {
    let to = data_type(extension.storage())?;
    match extension.meaning() {
        Meaning::Json | Meaning::Unknown => Ok(Arc::clone(array)),
        Meaning::Date(_) | Meaning::Time(_) | Meaning::Timestamp(..) => {
            Ok(make_array(array.to_data().into_builder().data_type(to).build()?))
        }
        Meaning::Uuid => {
            let bytes = array.as_fixed_size_binary();
            let values = Buffer::from(bytes.value_data());
            let values = fixed_width(DataType::UInt8, values.len(), values, None)?;
            let DType::FixedSizeList(element, size, _) = extension.storage() else {
                return Err(Error::unsupported("storage to write", extension.storage()));
            };
            let item = Arc::new(field("item", element)?);
            let size = i32::try_from(*size).map_err(Error::limit)?;
            let nulls = bytes.nulls().cloned();
            Ok(Arc::new(arrow::array::FixedSizeListArray::try_new(item, size, values, nulls)?))
        }
    }
}
