//! `vortex_layouts`: the tree of layouts of a file.

use std::sync::Arc;

use datafusion_common::Result;
use vortex_core::file::Footer;
use vortex_core::layout::LayoutRef;

use super::table::Column;
use super::table::Values::{Count, Ids, Text};
use super::text::Room;
use crate::convert::datafusion_error;

/// A layout of a file.
pub(super) struct LayoutRow {
    placed: Placed,
    dtype: String,
}

pub(super) fn columns() -> [Column<LayoutRow>; 5] {
    [
        ("path", Text(|row| Some(&row.placed.path))),
        ("layout", Text(|row| Some(row.placed.layout.id()))),
        ("type", Text(|row| Some(&row.dtype))),
        ("row_count", Count(|row| Some(row.placed.layout.row_count()))),
        ("segments", Ids(|row| row.placed.layout.segments())),
    ]
}

pub(super) fn rows(footer: &Footer, room: &mut Room) -> Result<Vec<LayoutRow>> {
    let all = walk(footer, room)?.into_iter();
    let rows = all.map(|placed| Ok(LayoutRow { dtype: room.text(placed.layout.dtype())?, placed }));
    rows.collect()
}

/// A layout of a file and its path: names of fields, `data`, `zones`, chunk numbers.
pub(super) struct Placed {
    pub(super) path: String,
    pub(super) layout: LayoutRef,
}

/// All layouts, parents before children.
pub(super) fn walk(footer: &Footer, room: &mut Room) -> Result<Vec<Placed>> {
    let mut found = Vec::new();
    let mut open = vec![Placed { path: String::new(), layout: Arc::clone(footer.layout()) }];
    while let Some(placed) = open.pop() {
        for (name, layout) in placed.layout.children().map_err(datafusion_error)?.into_iter().rev() {
            let path = match placed.path.as_str() {
                "" => room.text(name)?,
                parent => room.text(format_args!("{parent}.{name}"))?,
            };
            open.push(Placed { path, layout });
        }
        found.push(placed);
    }
    Ok(found)
}
