//! Reassembling values whose parts are stored as typed columns.
//!
//! ```text
//! value    {b: 2}   -        the part that is not shredded, as bytes
//! typed    {a: 1}   "text"   the same field of all rows
//! row      {a: 1, b: 2}  "text"
//! ```

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array as _, AsArray as _, BinaryViewArray, BinaryViewBuilder, OffsetSizeTrait};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;

use crate::array::{ArrayRef, present};
use crate::dtype::DType;
use crate::limits::{Limits, Work};
use crate::scalar::Scalar;
use crate::variant::{self, Elements, Names};
use crate::{Error, Result};

/// A value split into untyped bytes and a typed column, either of which may be absent.
pub(super) struct Shredded {
    value: Option<BinaryViewArray>,
    typed: Option<Typed>,
    limits: Limits,
}

/// The typed part of a shredded value.
enum Typed {
    Primitive { dtype: DType, values: ArrayRef },
    Object { nulls: Option<NullBuffer>, fields: Vec<(Box<str>, Shredded)> },
    Array { lists: ArrayRef, element: Box<Shredded> },
}

impl Shredded {
    /// Creates it from the parts of all rows; typed parts come with their type.
    pub(super) fn new(
        value: Option<&ArrayRef>,
        typed: Option<(&DType, &ArrayRef)>,
        limits: &Limits,
    ) -> Result<Self> {
        let value = match value {
            Some(bytes) => Some(present(Arc::clone(bytes), &DataType::BinaryView)?.as_binary_view().clone()),
            None => None,
        };
        let typed = typed.map(|(dtype, values)| Typed::new(dtype, values, limits)).transpose()?;
        Ok(Self { value, typed, limits: *limits })
    }

    /// Creates it from a struct of `value` and `typed_value`, the form of the parts of objects and arrays.
    fn part(dtype: &DType, array: &ArrayRef, limits: &Limits) -> Result<Self> {
        let (Some(fields), Some(columns)) = (dtype.as_struct(), array.as_struct_opt()) else {
            return Err(Error::corrupt(format!("a shredded part is {dtype}, not value and typed_value")));
        };
        let column = |name: &str| {
            let at = fields.position(name)?;
            Some((&fields.dtypes()[at], columns.columns().get(at)?))
        };
        let value = match column("value") {
            Some((DType::Binary(_), bytes)) => Some(bytes),
            Some((other, _)) => return Err(Error::corrupt(format!("variant values of type {other}"))),
            None => None,
        };
        Self::new(value, column("typed_value"), limits)
    }

    /// Appends the value of a row; returns false if the row has none.
    pub(super) fn push(&self, row: usize, out: &mut Vec<u8>, names: &mut Names) -> Result<bool> {
        let bytes = self.value.as_ref().filter(|value| value.is_valid(row)).map(|value| value.value(row));
        let typed = self.typed.as_ref().filter(|typed| typed.is_valid(row));
        match (typed, bytes) {
            (None, None) => return Ok(false),
            (None, Some(bytes)) => out.extend_from_slice(bytes),
            (Some(Typed::Object { fields, .. }), bytes) => {
                let mut object = match bytes {
                    Some(bytes) => variant::object_fields(bytes, names)?,
                    None => Vec::new(),
                };
                let mut shredded = HashMap::new();
                for (name, field) in fields {
                    let mut bytes = Vec::new();
                    if field.push(row, &mut bytes, names)? {
                        self.limits.count_bytes(bytes.len() as u64)?;
                        shredded.insert(name, bytes);
                    }
                }
                object.retain(|(name, _)| !shredded.contains_key(name));
                object.extend(shredded.into_iter().map(|(name, bytes)| (name.clone(), bytes.into())));
                variant::push_object(out, object, names)?;
            }
            (Some(_), Some(_)) => {
                return Err(Error::corrupt(format!("variant in row {row} has two values")));
            }
            (Some(Typed::Array { lists, element }), None) => {
                let range = match lists.data_type() {
                    DataType::List(_) => window(lists.as_list::<i32>().value_offsets(), row),
                    _ => window(lists.as_list::<i64>().value_offsets(), row),
                };
                self.limits.count::<usize>(range.len())?;
                let mut elements = Elements::default();
                for at in range {
                    let bytes = elements.add(|out| {
                        if element.push(at, out, names)? {
                            return Ok(());
                        }
                        out.extend(variant::NULL);
                        Ok(())
                    })?;
                    self.limits.count_bytes(bytes as u64)?;
                }
                elements.push_array(out)?;
            }
            (Some(Typed::Primitive { dtype, values }), None) => {
                let scalar = Scalar::from_decoded(values.as_ref(), row, dtype, &self.limits)?;
                variant::push_value(out, dtype, scalar.value(), names)?;
            }
        }
        Ok(true)
    }
}

fn window<O: OffsetSizeTrait>(offsets: &[O], row: usize) -> Range<usize> {
    offsets[row].as_usize()..offsets[row + 1].as_usize()
}

impl Typed {
    fn new(dtype: &DType, values: &ArrayRef, limits: &Limits) -> Result<Self> {
        Ok(match dtype {
            DType::Struct(fields, _) => {
                let columns = fields.fields().zip(values.as_struct().columns());
                let fields = columns.map(|((name, dtype), column)| {
                    Ok((name.as_ref().into(), Shredded::part(dtype, column, limits)?))
                });
                Typed::Object { nulls: values.nulls().cloned(), fields: fields.collect::<Result<_>>()? }
            }
            DType::List(element, _) => {
                let elements = match values.data_type() {
                    DataType::List(_) => values.as_list::<i32>().values(),
                    _ => values.as_list::<i64>().values(),
                };
                let element = Box::new(Shredded::part(element, elements, limits)?);
                Typed::Array { lists: Arc::clone(values), element }
            }
            DType::Null
            | DType::FixedSizeList(..)
            | DType::Map(..)
            | DType::Variant(_)
            | DType::Union(..) => return Err(Error::unsupported("shredded variant of type", dtype)),
            _ => Typed::Primitive { dtype: dtype.clone(), values: Arc::clone(values) },
        })
    }

    fn is_valid(&self, row: usize) -> bool {
        match self {
            Typed::Primitive { values, .. } => values.is_valid(row),
            Typed::Object { nulls, .. } => nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)),
            Typed::Array { lists, .. } => lists.is_valid(row),
        }
    }
}

/// Converts the rows back to one variant each: metadata, to which names may have been added, and values.
/// `push` appends the value of a row, and returns whether it has one. Null rows are left empty.
pub(super) fn reassemble(
    metadata: &BinaryViewArray,
    nulls: Option<&NullBuffer>,
    limits: &Limits,
    mut push: impl FnMut(usize, &mut Vec<u8>, &mut Names) -> Result<bool>,
) -> Result<(ArrayRef, ArrayRef)> {
    let _work = Work::begin();
    let mut out = Vec::new();
    let mut values = BinaryViewBuilder::with_capacity(metadata.len());
    let mut new_metadata: Option<BinaryViewBuilder> = None;
    // Most rows use the same names, so these are parsed again only if the bytes change. All rows may share long ones.
    let mut names: Option<(&[u8], Names)> = None;
    for row in 0..metadata.len() {
        if nulls.is_some_and(|nulls| nulls.is_null(row)) {
            values.append_null();
            if let Some(builder) = &mut new_metadata {
                builder.try_append_value([])?;
            }
            continue;
        }
        let bytes = metadata.value(row);
        let names = match &mut names {
            Some((parsed, names)) if (std::ptr::eq(*parsed, bytes) || *parsed == bytes) && !names.added() => {
                names
            }
            names => &mut names.insert((bytes, Names::parse(bytes, limits)?)).1,
        };
        out.clear();
        if !push(row, &mut out, names)? {
            out.extend(variant::NULL);
        }
        let added = names.added().then(|| names.to_metadata()).transpose()?;
        limits.count_bytes(out.len().saturating_add(added.as_ref().map_or(0, Vec::len)) as u64)?;
        values.try_append_value(&out)?;
        if added.is_some() && new_metadata.is_none() {
            let mut builder = BinaryViewBuilder::with_capacity(metadata.len());
            (0..row).try_for_each(|row| builder.try_append_value(metadata.value(row)))?;
            new_metadata = Some(builder);
        }
        if let Some(builder) = &mut new_metadata {
            builder.try_append_value(added.as_deref().unwrap_or(bytes))?;
        }
    }
    let metadata = match new_metadata {
        Some(mut builder) => Arc::new(builder.finish()),
        None => Arc::new(metadata.clone()),
    };
    Ok((metadata, Arc::new(values.finish())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_count_whenever_they_are_parsed() {
        // Empty names, with offsets of two bytes.
        let empty_names = |count: u16| {
            let offsets = vec![0; 2 * usize::from(count) + 2];
            [&[0x41][..], &count.to_le_bytes(), &offsets].concat()
        };
        let metadata = [empty_names(1000), empty_names(1001)];
        let limits = Limits::new().with_max_decoded_bytes(1 << 20);
        let read = |choose: fn(usize) -> usize| {
            let rows = BinaryViewArray::from_iter_values((0..100).map(|row| &metadata[choose(row)]));
            reassemble(&rows, None, &limits, |_, _, _| Ok(false))
        };
        assert_eq!(read(|row| row / 50).unwrap().1.len(), 100);
        assert!(read(|row| row % 2).is_err(), "100 times 1000 names");
    }
}
