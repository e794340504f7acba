//! The columns of a file as they are stored: fields of structs are stored separately.
//!
//! ```text
//! root struct ── a                       leaf 0
//!             ├─ s: struct, nullable ──  leaf 1: which rows of s are valid
//!             │                      └─  leaf 2: s.x, with arbitrary values in null rows of s
//!             └─ l: list                 leaf 3
//! ```

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, BooleanArray};
use arrow::buffer::BooleanBuffer;

use crate::Level;
use crate::compress::Levels;
use crate::dtype::{DType, StructType};
use crate::layout::ids;
use crate::wire::WriteLayout;

/// A separately stored column.
#[derive(Debug)]
pub(super) struct Leaf {
    /// Names from the root down, joined by dots, for use in errors.
    pub(super) path: String,
    pub(super) dtype: DType,
    pub(super) level: Level,
    /// The root field it is part of.
    pub(super) root: usize,
    /// Whether its statistics are those of the root field.
    pub(super) is_root: bool,
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
    pub(super) fn new(root: &StructType, levels: &Levels) -> Self {
        let mut leaves = Vec::with_capacity(root.len());
        let fields = root.fields().enumerate();
        let fields = fields.map(|(at, (name, dtype))| {
            let levels = levels.field(name);
            let leaf = Leaf {
                path: name.to_string(),
                dtype: dtype.clone(),
                level: levels.level,
                root: at,
                is_root: true,
                is_visible: true,
            };
            shape(leaf, &levels, &mut leaves)
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

fn shape(leaf: Leaf, levels: &Levels, leaves: &mut Vec<Leaf>) -> Shape {
    let DType::Struct(fields, nullable) = &leaf.dtype else {
        leaves.push(leaf);
        return Shape::Leaf;
    };
    let nullable = *nullable;
    if nullable {
        leaves.push(Leaf {
            path: format!("{} (validity)", leaf.path),
            dtype: DType::Bool(false),
            level: leaf.level,
            root: leaf.root,
            is_root: false,
            is_visible: false,
        });
    }
    let fields = fields.fields().map(|(name, dtype)| {
        let levels = levels.field(name);
        let field = Leaf {
            path: format!("{}.{name}", leaf.path),
            dtype: dtype.clone(),
            level: levels.level,
            root: leaf.root,
            is_root: false,
            is_visible: leaf.is_visible && !nullable,
        };
        shape(field, &levels, leaves)
    });
    let fields = fields.collect();
    Shape::Struct { nullable, fields }
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
