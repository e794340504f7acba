//! A column that a scan reads: a path of names resolved to a layout.

use std::ops::Range;
use std::sync::Arc;

use crate::array::ArrayRef;
use crate::dtype::DType;
use crate::error::ResultExt as _;
use crate::expr::FieldPath;
use crate::file::{Footer, SegmentId};
use crate::layout::{LayoutRef, PieceSet, SegmentSet, Zones};
use crate::{Error, Result};

/// Bytes that a file may say a row has: as many as leave splits some rows, if that is not true.
const MAX_SAID: u64 = 512 << 10;

/// A column: the deepest layout of its own, and the fields to take from the arrays there.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) path: FieldPath,
    pub(super) dtype: DType,
    layout: LayoutRef,
    /// Fields inside structs that are stored as one array.
    within: Vec<usize>,
    /// Which field of the root it is, if it is one.
    root_field: Option<usize>,
}

impl Column {
    /// Finds a path in a file. The column's type is nullable if anything around it is.
    pub(super) fn resolve(footer: &Footer, path: &FieldPath) -> Result<Self> {
        let mut layout = Arc::clone(footer.layout());
        let mut dtype = footer.dtype().clone();
        let mut within = Vec::new();
        let mut root_field = None;
        // A root without columns shows as one column called `value`.
        let is_value = path.names().first().is_some_and(|name| &**name == "value");
        let skip = usize::from(dtype.as_columns().is_none() && is_value);
        if dtype.as_columns().is_none() && !is_value {
            return Err(missing(path, &dtype));
        }
        for name in &path.names()[skip..] {
            let Some(fields) = dtype.as_struct() else {
                return Err(missing(path, &dtype));
            };
            let at = fields.position(name).ok_or_else(|| missing(path, footer.dtype()))?;
            let nullable = dtype.is_nullable();
            let field = fields.dtypes()[at].clone();
            dtype = if nullable { field.with_nullable(true) } else { field };
            root_field = (path.names().len() == 1).then_some(at);
            let apart = if within.is_empty() { layout.field(at)? } else { None };
            match apart {
                Some(field) => layout = field,
                None => within.push(at),
            }
        }
        Ok(Self { path: path.clone(), dtype, layout, within, root_field })
    }

    /// Root field `at`, whatever other fields are called.
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
        Ok(Self { path, dtype, layout, within, root_field: Some(at) })
    }

    /// About how many bytes a decoded row takes: what the file says, or else what is usual.
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

    pub(super) fn request(
        &self,
        rows: &Range<u64>,
        have: &SegmentSet<'_>,
        want: &mut Vec<SegmentId>,
    ) -> Result<()> {
        self.layout.request(rows, have, want).at(|| format!("column `{}`", self.path))
    }

    /// Single rows, which rise; fails for what is missing, which has then been asked for.
    pub(super) fn read_rows(&self, rows: &[u64], have: &PieceSet<'_>) -> Result<ArrayRef> {
        let read = || {
            let mut array = self.layout.read_rows(rows, have)?;
            for at in &self.within {
                array = array.field(*at)?;
            }
            Ok(array)
        };
        read().at(|| format!("column `{}`", self.path))
    }

    pub(super) fn read(&self, rows: &Range<u64>, have: &SegmentSet<'_>) -> Result<ArrayRef> {
        let read = || {
            let mut array = self.layout.read(rows, have)?;
            for at in &self.within {
                array = array.field(*at)?;
            }
            Ok(array)
        };
        read().at(|| format!("column `{}`", self.path))
    }
}

fn missing(path: &FieldPath, dtype: &DType) -> Error {
    let names =
        dtype.as_columns().map(|fields| fields.names().iter().take(20).map(|n| n.to_string()).collect());
    let names: Vec<String> = names.unwrap_or_default();
    let names = if names.is_empty() { "value".to_owned() } else { names.join(", ") };
    Error::invalid(format!("no column `{path}`; there are: {names}"))
}
