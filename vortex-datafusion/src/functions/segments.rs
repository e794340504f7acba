//! `vortex_segments`: the segments of a file, and what they are for.

use std::collections::{BTreeMap, BTreeSet};

use datafusion_common::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use vortex_core::VortexFile;
use vortex_core::file::{Segment, SegmentId};

use super::layouts::walk;
use super::table::Column;
use super::table::Values::{Count, Id, Texts};
use super::text::Room;
use crate::convert::datafusion_error;

/// Number of segment ends read at the same time.
const READS: usize = 16;

/// A segment of a file.
pub(super) struct SegmentRow<'a> {
    id: SegmentId,
    segment: &'a Segment,
    /// The layouts that use it.
    paths: Option<Vec<String>>,
    encodings: Option<Vec<String>>,
}

pub(super) fn columns<'a>() -> [Column<SegmentRow<'a>>; 6] {
    [
        ("segment", Id(|row| row.id)),
        ("offset", Count(|row| Some(row.segment.offset))),
        ("bytes", Count(|row| Some(row.segment.length.into()))),
        ("alignment", Count(|row| 1u64.checked_shl(row.segment.alignment_exponent.into()))),
        ("paths", Texts(|row| row.paths.as_deref())),
        ("encodings", Texts(|row| row.encodings.as_deref())),
    ]
}

/// Encodings are in the segments, and null if they are not wanted.
pub(super) async fn rows<'a>(
    file: &'a VortexFile,
    wants_encodings: bool,
    room: &mut Room,
) -> Result<Vec<SegmentRow<'a>>> {
    let mut encodings = if wants_encodings { encodings(file, room).await? } else { BTreeMap::new() };
    let mut users: BTreeMap<SegmentId, Vec<String>> = BTreeMap::new();
    for placed in walk(file.footer(), room)? {
        for id in placed.layout.segments() {
            users.entry(id).or_default().push(room.text(&placed.path)?);
        }
    }
    let segments = (0u32..).map(SegmentId).zip(file.footer().segments());
    let rows = segments.map(|(id, segment)| SegmentRow {
        id,
        segment,
        paths: users.remove(&id),
        encodings: encodings.remove(&id),
    });
    Ok(rows.collect())
}

/// Encoding ids of the arrays in each segment of the file, from the root down.
async fn encodings(file: &VortexFile, room: &mut Room) -> Result<BTreeMap<SegmentId, Vec<String>>> {
    let used: BTreeSet<SegmentId> =
        walk(file.footer(), room)?.iter().flat_map(|placed| placed.layout.segments()).collect();
    let reads = stream::iter(used).map(|id| async move { Ok((id, file.array_encodings(id).await?)) });
    let mut reads = reads.boxed().buffered(READS);
    let mut found = BTreeMap::new();
    while let Some((id, nodes)) = reads.try_next().await.map_err(datafusion_error)? {
        let texts = nodes.into_iter().map(|(_, encoding)| room.text(encoding));
        found.insert(id, texts.collect::<Result<_>>()?);
    }
    Ok(found)
}
