//! The columns that a scan reads: paths of names resolved to layouts.
//!
//! Where a struct is stored as one array, with no layouts for its fields, a field is taken from the arrays of the
//! struct.

use std::ops::Range;
use std::sync::Arc;

use crate::array::EncodedRef;
use crate::dtype::{DType, ROOT_COLUMN};
use crate::error::ResultExt as _;
use crate::expr::FieldPath;
use crate::file::Footer;
use crate::layout::{LayoutRef, PieceSet, SegmentSet, Zones, takes_rounds};
use crate::mask::Mask;
use crate::segments::SegmentId;
use crate::{Error, Result};

/// Upper limit for the bytes per row that a file claims, so that splits still have some rows if the claim is
/// wrong.
const MAX_SAID: u64 = 512 << 10;

/// The columns to read.
#[derive(Debug, Clone)]
pub(super) enum Selected {
    /// All of the root, by position, since names may be duplicated.
    All,
    /// Those at paths.
    Paths(Vec<FieldPath>),
    /// A field of the root, regardless of the names of other fields.
    RootField(usize),
}

impl Selected {
    pub(super) fn columns(&self, footer: &Footer) -> Result<Vec<Column>> {
        match (self, footer.dtype().as_columns()) {
            (Self::All, Some(fields)) => (0..fields.len()).map(|at| Column::of_root(footer, at)).collect(),
            (Self::All, None) => Ok(vec![Column::resolve(footer, &FieldPath::new([ROOT_COLUMN]))?]),
            (Self::Paths(paths), _) => paths.iter().map(|path| Column::resolve(footer, path)).collect(),
            (Self::RootField(at), _) => Ok(vec![Column::of_root(footer, *at)?]),
        }
    }
}

/// A column: its deepest separately stored layout, and the fields to take from the arrays there.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) path: FieldPath,
    pub(super) dtype: DType,
    layout: LayoutRef,
    /// What is read: the layout, or its nulls alone.
    rows: LayoutRef,
    /// The fields to take, one within the other, from structs that are stored as one array.
    within: Vec<usize>,
    /// The position of the column among the fields of the root, if it is one.
    root_field: Option<usize>,
}

impl Column {
    /// Resolves a path in a file. The column's type is nullable if any enclosing struct is.
    pub(super) fn resolve(footer: &Footer, path: &FieldPath) -> Result<Self> {
        let mut layout = Arc::clone(footer.layout());
        let mut dtype = footer.dtype().clone();
        let mut within = Vec::new();
        let mut root_field = None;
        let mut names = path.names();
        // A root without columns is presented as a single column.
        if dtype.as_columns().is_none() {
            names = match names.split_first() {
                Some((name, rest)) if &**name == ROOT_COLUMN => rest,
                _ => {
                    return Err(Error::invalid(format!("no column `{path}`; there is only `{ROOT_COLUMN}`")));
                }
            };
        }
        let first = path.names().len() - names.len();
        for (depth, name) in (first..).zip(names) {
            let fields = dtype.as_struct();
            let found = fields.and_then(|fields| Some((fields, fields.position(name)?)));
            let (fields, at) = found.ok_or_else(|| path.missing(depth, &dtype))?;
            let nullable = dtype.is_nullable();
            let field = fields.dtypes()[at].clone();
            dtype = if nullable { field.with_nullable(true) } else { field };
            // The size of a column is a bound for that of its fields.
            root_field = root_field.or(Some(at));
            let apart = if within.is_empty() { layout.field(at)? } else { None };
            match apart {
                Some(field) => layout = field,
                None => within.push(at),
            }
        }
        Ok(Self { path: path.clone(), dtype, rows: Arc::clone(&layout), layout, within, root_field })
    }

    /// The same column, of whose values nothing matters but whether they are null.
    pub(super) fn with_nulls_alone(mut self) -> Result<Self> {
        if self.within.is_empty()
            && let Some(nulls) = self.layout.nulls().at(|| self.place())?
        {
            self.rows = nulls;
        }
        Ok(self)
    }

    /// Field `at` of the root, regardless of the names of other fields.
    pub(super) fn of_root(footer: &Footer, at: usize) -> Result<Self> {
        let not_there = || Error::invalid(format!("no field {at}"));
        let fields = footer.dtype().as_columns().ok_or_else(not_there)?;
        let name = fields.names().get(at).ok_or_else(not_there)?;
        let dtype = fields.dtypes()[at].clone();
        let path = FieldPath::new([Arc::clone(name)]);
        let (layout, within) = match footer.layout().field(at)? {
            Some(layout) => (layout, Vec::new()),
            None => (Arc::clone(footer.layout()), vec![at]),
        };
        Ok(Self { path, dtype, rows: Arc::clone(&layout), layout, within, root_field: Some(at) })
    }

    /// The place of errors that concern the column.
    pub(super) fn place(&self) -> String {
        format!("column `{}`", self.path)
    }

    /// Approximate number of bytes of a decoded row: according to the file, but at least what is usual for
    /// the type.
    pub(super) fn row_bytes(&self, footer: &Footer) -> u64 {
        let said = || {
            let stats = footer.statistics()?.get(self.root_field?)?;
            stats.uncompressed_size?.checked_div(footer.row_count())
        };
        said().unwrap_or(0).min(MAX_SAID).max(self.dtype.row_bytes_hint() as u64)
    }

    /// Statistics per zone, if the column has them.
    pub(super) fn zones(&self) -> Option<&Zones> {
        if self.within.is_empty() { self.layout.zones() } else { None }
    }

    /// The position of the column among those of the file, if it is the only one or the first of its name.
    pub(super) fn position_in_file(&self, footer: &Footer) -> Option<usize> {
        let [name] = self.path.names() else { return None };
        let first = footer.dtype().as_columns()?.position(name);
        self.root_field.filter(|at| first == Some(*at))
    }

    /// Whether the bytes that rows need become known only while they are fetched.
    pub(super) fn takes_rounds(&self) -> bool {
        // An error will be returned by those who read the column.
        takes_rounds(&self.rows).unwrap_or(true)
    }

    pub(super) fn request(
        &self,
        rows: &Range<u64>,
        have: &SegmentSet<'_>,
        want: &mut Vec<SegmentId>,
    ) -> Result<()> {
        self.rows.request(rows, have, want).at(|| self.place())
    }

    /// Reads single rows in ascending order; returns an error if bytes are missing, which are then recorded
    /// in `have`. Errors name the column.
    pub(super) fn read_rows(&self, rows: &[u64], have: &PieceSet<'_>) -> Result<EncodedRef> {
        self.rows.read_rows(rows, have).and_then(|array| self.field_of(array)).at(|| self.place())
    }

    /// Reads a range of rows. Errors name the column.
    pub(super) fn read(&self, rows: &Range<u64>, have: &SegmentSet<'_>) -> Result<EncodedRef> {
        self.rows.read(rows, have).and_then(|array| self.field_of(array)).at(|| self.place())
    }

    /// Reads the `live` ones of a range of rows. Errors name the column.
    pub(super) fn read_live(
        &self,
        rows: &Range<u64>,
        live: &Mask,
        have: &SegmentSet<'_>,
    ) -> Result<EncodedRef> {
        let array = self.read(rows, have)?;
        if live.is_all() { Ok(array) } else { array.filter(live).at(|| self.place()) }
    }

    /// Takes the column from an array of its layout.
    fn field_of(&self, array: EncodedRef) -> Result<EncodedRef> {
        self.within.iter().try_fold(array, |array, at| array.field(*at))
    }
}
