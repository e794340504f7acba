//! The columns of a file as they are stored: fields of structs are stored separately.
//!
//! ```text
//! root struct ── a                       leaf 0
//!             ├─ s: struct, nullable ──  leaf 1: which rows of s are valid
//!             │                      └─  leaf 2: s.x, with arbitrary values in null rows of s
//!             └─ l: list                 leaf 3
//! ```
//!
//! For releases before 0.89, a struct whose only field is a struct that may be null is a leaf.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, BooleanArray};
use arrow::buffer::BooleanBuffer;

use crate::Release;
use crate::compress::Levels;
use crate::dtype::{DType, StructType};
use crate::expr::FieldPath;
use crate::layout::ids;
use crate::release::since;
use crate::wire::WriteLayout;

/// A separately stored column.
#[derive(Debug)]
pub(super) struct Leaf {
    /// Names from the root down, joined by dots, for use in errors.
    pub(super) path: String,
    pub(super) dtype: DType,
    pub(super) levels: Levels,
    /// The root field it is part of.
    pub(super) root: usize,
    /// Whether its statistics are those of the root field.
    pub(super) is_root: bool,
    /// Names from the root down; none of what readers see no column of.
    pub(super) names: Option<FieldPath>,
    /// Whether the rows are exactly those that readers see. Below a nullable struct they are not, and
    /// statistics would include values under null rows.
    pub(super) is_visible: bool,
}

/// How leaves form a column.
#[derive(Debug)]
enum Shape {
    Leaf,
    /// If nullable, preceded by a leaf that tells which of its rows are valid.
    Struct {
        nullable: bool,
        fields: Vec<Shape>,
    },
}

/// The columns of a file.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) leaves: Vec<Leaf>,
    fields: Vec<Shape>,
}

impl Columns {
    /// For `min_reader` and all later releases.
    pub(super) fn new(root: &StructType, levels: &Levels, min_reader: Release) -> Self {
        let mut leaves = Vec::with_capacity(root.len());
        let fields = root.fields().enumerate();
        let fields = fields.map(|(at, (name, dtype))| {
            let leaf = Leaf {
                path: name.to_string(),
                names: Some(name.as_ref().into()),
                dtype: dtype.clone(),
                levels: levels.field(name),
                root: at,
                is_root: true,
                is_visible: true,
            };
            shape(leaf, min_reader, &mut leaves)
        });
        Self { fields: fields.collect(), leaves }
    }

    /// Splits the root fields into the arrays of all leaves.
    pub(super) fn take_apart(&self, columns: &[ArrayRef]) -> Vec<ArrayRef> {
        let mut leaves = Vec::with_capacity(self.leaves.len());
        for (shape, column) in self.fields.iter().zip(columns) {
            take_apart(shape, column, &mut leaves);
        }
        leaves
    }

    /// Assembles the layout of the root from those of the leaves.
    pub(super) fn layout(&self, row_count: u64, leaves: Vec<WriteLayout>) -> WriteLayout {
        let mut leaves = leaves.into_iter();
        let fields = self.fields.iter().map(|shape| layout(shape, row_count, &mut leaves)).collect();
        WriteLayout::new(ids::STRUCT, row_count, fields)
    }
}

fn shape(leaf: Leaf, min_reader: Release, leaves: &mut Vec<Leaf>) -> Shape {
    let may_be_apart =
        |fields: &&Arc<StructType>| min_reader >= since::LONE_STRUCTS || !holds_lone_struct(fields);
    let Some(fields) = leaf.dtype.as_struct().filter(may_be_apart) else {
        leaves.push(leaf);
        return Shape::Leaf;
    };
    let nullable = leaf.dtype.is_nullable();
    if nullable {
        leaves.push(Leaf {
            path: format!("{} (validity)", leaf.path),
            names: None,
            dtype: DType::Bool(false),
            levels: leaf.levels.level.into(),
            root: leaf.root,
            is_root: false,
            is_visible: false,
        });
    }
    let fields = fields.fields().map(|(name, dtype)| {
        let field = Leaf {
            path: format!("{}.{name}", leaf.path),
            names: leaf.names.as_ref().map(|names| names.child(name)),
            dtype: dtype.clone(),
            levels: leaf.levels.field(name),
            root: leaf.root,
            is_root: false,
            is_visible: leaf.is_visible && !nullable,
        };
        shape(field, min_reader, leaves)
    });
    let fields = fields.collect();
    Shape::Struct { nullable, fields }
}

/// Whether the only field is a struct that may be null.
fn holds_lone_struct(fields: &StructType) -> bool {
    matches!(fields.dtypes(), [DType::Struct(_, true)])
}

fn take_apart(shape: &Shape, column: &ArrayRef, leaves: &mut Vec<ArrayRef>) {
    let Shape::Struct { nullable, fields } = shape else {
        return leaves.push(ArrayRef::clone(column));
    };
    if *nullable {
        let valid = match column.nulls() {
            Some(nulls) => nulls.inner().clone(),
            None => BooleanBuffer::new_set(column.len()),
        };
        leaves.push(Arc::new(BooleanArray::new(valid, None)));
    }
    for (shape, field) in fields.iter().zip(column.as_struct().columns()) {
        take_apart(shape, field, leaves);
    }
}

fn layout(shape: &Shape, row_count: u64, leaves: &mut impl Iterator<Item = WriteLayout>) -> WriteLayout {
    let mut next = || leaves.next().expect("one layout per leaf");
    match shape {
        Shape::Leaf => next(),
        Shape::Struct { nullable, fields } => {
            let mut children: Vec<_> = nullable.then(next).into_iter().collect();
            children.extend(fields.iter().map(|shape| layout(shape, row_count, leaves)));
            WriteLayout::new(ids::STRUCT, row_count, children)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::PType;

    fn of(name: &str, dtype: DType, nullable: bool) -> DType {
        DType::Struct(Arc::new(StructType::new([(name.into(), dtype)])), nullable)
    }

    #[test]
    fn structs_that_older_readers_would_take_apart_wrongly_stay_whole() {
        let number = || DType::Primitive(PType::I32, true);
        let root = StructType::new([
            ("lone".into(), of("a", of("b", number(), true), false)),
            ("deep".into(), of("a", of("b", of("c", number(), true), false), false)),
            ("never_null".into(), of("a", of("b", number(), false), true)),
        ]);
        let leaves = |release| {
            let columns = Columns::new(&root, &Levels::default(), release);
            columns.leaves.into_iter().map(|leaf| leaf.path).collect::<Vec<_>>()
        };
        let apart = ["lone.a (validity)", "lone.a.b", "deep.a.b (validity)", "deep.a.b.c"];
        let never_null = ["never_null (validity)", "never_null.a.b"];
        assert_eq!(leaves(since::LONE_STRUCTS), [&apart[..], &never_null].concat());
        assert_eq!(leaves(Release::new(0, 88)), [&["lone", "deep.a"][..], &never_null].concat());
    }
}
