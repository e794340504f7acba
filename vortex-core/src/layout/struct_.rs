//! Fields of a struct, each with its own layout.
//!
//! No metadata. Children: the fields in order, preceded by a validity (`bool`, true means valid) if the
//! struct is nullable. Files of 0.36 to 0.54 lack the validity of nullable structs; all of their rows are
//! valid. Fields are loaded when first needed, so that opening a file with many columns is cheap.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::{Layout, LayoutKind, LayoutNode, LayoutRef, PieceSet, SegmentSet, len_of, masked, nulls};
use crate::array::EncodedRef;
use crate::dtype::{DType, StructType};
use crate::encodings::struct_::struct_of;
use crate::error::ResultExt as _;
use crate::once::get_or_try_init;
use crate::segments::SegmentId;
use crate::{Error, Result};

/// The `vortex.struct` layout.
pub(super) struct Struct;

const ID: &str = super::ids::STRUCT;

impl LayoutKind for Struct {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &LayoutNode) -> Result<LayoutRef> {
        let DType::Struct(fields, nullable) = node.dtype() else {
            return Err(Error::corrupt(format!("holds structs, not {}", node.dtype())));
        };
        let with_validity = *nullable && node.child_count() == fields.len() + 1;
        node.expect_children(fields.len() + usize::from(with_validity))?;
        let validity = if with_validity {
            Some(node.load_child(0, &DType::Bool(false), node.row_count())?)
        } else {
            None
        };
        Ok(Arc::new(StructLayout {
            node: node.clone(),
            loaded: fields.names().iter().map(|_| OnceLock::new()).collect(),
            fields: Arc::clone(fields),
            validity,
        }))
    }
}

#[derive(Debug)]
struct StructLayout {
    node: LayoutNode,
    fields: Arc<StructType>,
    validity: Option<LayoutRef>,
    loaded: Box<[OnceLock<LayoutRef>]>,
}

impl StructLayout {
    /// The layout of a field as stored, not yet null where the struct is.
    fn stored_field(&self, at: usize) -> Result<LayoutRef> {
        let slot = self.loaded.get(at).ok_or_else(|| Error::invalid(format!("no field {at}")))?;
        let field = get_or_try_init(slot, || {
            let child = at + usize::from(self.validity.is_some());
            let name = || format!("column `{}`", self.fields.names()[at]);
            self.node.load_child(child, &self.fields.dtypes()[at], self.node.row_count()).at(name)
        });
        field.map(Arc::clone)
    }
}

impl Layout for StructLayout {
    fn id(&self) -> &str {
        ID
    }

    fn dtype(&self) -> &DType {
        self.node.dtype()
    }

    fn row_count(&self) -> u64 {
        self.node.row_count()
    }

    fn children(&self) -> Result<Vec<(String, LayoutRef)>> {
        let validity = self.validity.iter().map(|validity| Ok(("validity".to_owned(), Arc::clone(validity))));
        let fields = self.fields.names().iter().enumerate();
        validity.chain(fields.map(|(at, name)| Ok((name.to_string(), self.stored_field(at)?)))).collect()
    }

    fn field(&self, at: usize) -> Result<Option<LayoutRef>> {
        let field = self.stored_field(at)?;
        Ok(Some(match &self.validity {
            Some(validity) => masked::layout(field, Arc::clone(validity)),
            None => field,
        }))
    }

    fn nulls(&self) -> Result<Option<LayoutRef>> {
        Ok(Some(nulls::layout(self.validity.as_ref(), self.node.row_count())))
    }

    fn request(&self, rows: &Range<u64>, have: &SegmentSet<'_>, want: &mut Vec<SegmentId>) -> Result<()> {
        if let Some(validity) = &self.validity {
            validity.request(rows, have, want)?;
        }
        (0..self.fields.len()).try_for_each(|at| self.stored_field(at)?.request(rows, have, want))
    }

    fn read(&self, rows: &Range<u64>, have: &SegmentSet<'_>) -> Result<EncodedRef> {
        let len = len_of(rows.end - rows.start)?;
        let fields = (0..self.fields.len()).map(|at| self.stored_field(at)?.read(rows, have));
        let validity = self.validity.as_ref().map(|validity| validity.read(rows, have)).transpose()?;
        Ok(struct_of(
            self.dtype().clone(),
            fields.collect::<Result<_>>()?,
            validity.into(),
            len,
            have.limits(),
        ))
    }

    fn read_rows(&self, rows: &[u64], have: &PieceSet<'_>) -> Result<EncodedRef> {
        // No `?` before all are read: see `read_rows`.
        let fields: Vec<_> =
            (0..self.fields.len()).map(|at| self.stored_field(at)?.read_rows(rows, have)).collect();
        let validity = self.validity.as_ref().map(|validity| validity.read_rows(rows, have)).transpose()?;
        let fields = fields.into_iter().collect::<Result<_>>()?;
        Ok(struct_of(self.dtype().clone(), fields, validity.into(), rows.len(), have.limits()))
    }
}
