//! Information about a file, collected before anything is printed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::{StreamExt as _, stream};

use vortex_core::dtype::DType;
use vortex_core::file::{Footer, SegmentId};
use vortex_core::layout::{LayoutRef, ZoneMap};
use vortex_core::stats::FieldStats;
use vortex_core::{Excerpt, VortexFile};

use super::{Arguments, Part};

/// Maximum number of array nodes, and bytes of zone tables, that are kept to be shown: a small file may refer to the
/// same ones any number of times.
const MAX_NODES: usize = 4 << 20;
const MAX_ZONE_BYTES: usize = 256 << 20;

/// Number of array trees read at the same time: there may be thousands, and each read waits for the store.
const READS: usize = 64;

/// The parts of a file.
pub(super) struct Report<'a> {
    pub(super) place: &'a str,
    pub(super) footer: &'a Footer,
    pub(super) columns: Vec<Column<'a>>,
    pub(super) layout: Node,
    /// Encodings of the array in a segment, from the root down, with depths.
    pub(super) encodings: BTreeMap<SegmentId, Vec<(usize, Arc<str>)>>,
    /// Statistics per zone, with the path of the layout that has them.
    pub(super) zones: Vec<(String, ZoneMap)>,
    /// Errors about parts that could not be read.
    pub(super) problems: Vec<String>,
}

/// A column of the file, or the only one if the file's root is not a struct.
pub(super) struct Column<'a> {
    pub(super) name: &'a str,
    pub(super) dtype: &'a DType,
    /// Segments of the column, zone tables included; others may share them.
    pub(super) segments: Arc<BTreeSet<SegmentId>>,
    /// Segments of its values.
    pub(super) values: Arc<BTreeSet<SegmentId>>,
    /// Total bytes of `segments`.
    pub(super) byte_len: u64,
    /// Whether it has a layout of its own. Columns without are all in that of the root, and share its segments.
    pub(super) is_apart: bool,
}

/// A layout and those below it.
pub(super) struct Node {
    pub(super) name: String,
    pub(super) id: String,
    pub(super) dtype: DType,
    pub(super) row_count: u64,
    pub(super) segments: Vec<SegmentId>,
    pub(super) children: Vec<Node>,
}

impl<'a> Report<'a> {
    /// The columns that the file has statistics of.
    pub(super) fn statistics(&self) -> impl Iterator<Item = (&Column<'a>, &'a FieldStats)> {
        let footer = self.footer;
        self.columns
            .iter()
            .enumerate()
            .filter_map(move |(at, column)| Some((column, footer.column_statistics(at)?)))
    }

    /// Reads what the arguments request; never fails, but records problems.
    pub(super) async fn read(place: &'a str, file: &'a VortexFile, arguments: &Arguments) -> Self {
        let footer: &Footer = file.footer();
        let mut walk = Walk { problems: Vec::new(), with_zones: Vec::new() };
        let layout = walk.node(String::new(), footer.layout(), &mut Vec::new());
        let columns = columns(footer, &mut walk.problems);
        let mut report = Self {
            place,
            footer,
            columns,
            layout,
            encodings: BTreeMap::new(),
            zones: Vec::new(),
            problems: walk.problems,
        };
        if arguments.wants(Part::Layout) || arguments.wants(Part::Schema) {
            report.read_encodings(file).await;
        }
        if arguments.wants(Part::Zones) {
            report.read_zones(file, walk.with_zones).await;
        }
        report
    }

    /// The distinct encodings of the values of each column, outermost first.
    pub(super) fn encodings_of_columns(&self) -> impl Iterator<Item = Vec<&str>> {
        let mut of_root = None;
        self.columns.iter().map(move |column| {
            if column.is_apart {
                self.encodings_of(column)
            } else {
                of_root.get_or_insert_with(|| self.encodings_of(column)).clone()
            }
        })
    }

    fn encodings_of(&self, column: &Column<'_>) -> Vec<&str> {
        let mut ids: Vec<&str> = Vec::new();
        for (_, id) in column.values.iter().filter_map(|segment| self.encodings.get(segment)).flatten() {
            if !ids.contains(&id.as_ref()) {
                ids.push(id);
            }
        }
        ids
    }

    async fn read_encodings(&mut self, file: &VortexFile) {
        let mut wanted = BTreeSet::new();
        self.layout.collect_segments(&mut wanted);
        let reads = stream::iter(wanted).map(|id| async move { (id, file.array_encodings(id).await) });
        let mut reads = reads.buffered(READS);
        let mut left = MAX_NODES;
        while let Some((id, encodings)) = reads.next().await {
            match encodings {
                Ok(encodings) if encodings.len() > left => {
                    self.problems
                        .push(format!("not all encodings are shown: there are more than {MAX_NODES}"));
                    return;
                }
                Ok(encodings) => {
                    left -= encodings.len();
                    self.encodings.insert(id, encodings);
                }
                Err(error) => self.problems.push(error.to_string()),
            }
        }
    }

    async fn read_zones(&mut self, file: &VortexFile, with_zones: Vec<(String, LayoutRef)>) {
        let mut left = MAX_ZONE_BYTES;
        for (path, layout) in with_zones {
            let Some(zones) = layout.zones() else { continue };
            match file.zone_map(zones).await {
                Ok(map) if map.memory_size() > left => {
                    self.problems
                        .push(format!("not all zones are shown: they take more than {MAX_ZONE_BYTES} bytes"));
                    return;
                }
                Ok(map) => {
                    left -= map.memory_size();
                    self.zones.push((path, map));
                }
                Err(error) => self.problems.push(format!("zones of {path}: {error}")),
            }
        }
    }
}

/// A walk over the layout tree.
struct Walk {
    problems: Vec<String>,
    with_zones: Vec<(String, LayoutRef)>,
}

impl Walk {
    fn node(&mut self, name: String, layout: &LayoutRef, path: &mut Vec<String>) -> Node {
        // Names may be long, and those of one struct occur in each of its chunks.
        let name = Excerpt(name).to_string();
        if let Some(unusable) = layout.unusable_zones() {
            self.problems.push(format!("zones of {}: {unusable}", place_of(path)));
        }
        if layout.zones().is_some() {
            self.with_zones.push((Excerpt(path.join(".")).to_string(), Arc::clone(layout)));
        }
        let children = match layout.children() {
            Ok(children) => children,
            Err(error) => {
                self.problems.push(format!("layout of {}: {error}", place_of(path)));
                Vec::new()
            }
        };
        let is_struct = layout.dtype().as_struct().is_some() && layout.id() == "vortex.struct";
        let children = children
            .into_iter()
            .map(|(name, child)| {
                // Only fields are part of a path; `data` and chunk numbers are not.
                if is_struct {
                    path.push(Excerpt(&name).to_string());
                }
                let node = self.node(name, &child, path);
                if is_struct {
                    path.pop();
                }
                node
            })
            .collect();
        Node {
            name,
            id: layout.id().to_owned(),
            dtype: layout.dtype().clone(),
            row_count: layout.row_count(),
            segments: layout.segments(),
            children,
        }
    }
}

fn place_of(path: &[String]) -> String {
    if path.is_empty() { "the file".to_owned() } else { path.join(".") }
}

impl Node {
    fn collect_segments(&self, into: &mut BTreeSet<SegmentId>) {
        into.extend(&self.segments);
        self.children.iter().for_each(|child| child.collect_segments(into));
    }
}

/// All segments below a layout, and those that hold values rather than statistics.
fn collect_segments(
    layout: &LayoutRef,
    all: &mut BTreeSet<SegmentId>,
    values: &mut BTreeSet<SegmentId>,
) -> vortex_core::Result<()> {
    all.extend(layout.segments());
    values.extend(layout.segments());
    for (_, child) in layout.children()? {
        if layout.zones().is_some_and(|zones| Arc::ptr_eq(zones.table(), &child)) {
            collect_segments(&child, all, &mut BTreeSet::new())?;
        } else {
            collect_segments(&child, all, values)?;
        }
    }
    Ok(())
}

fn columns<'a>(footer: &'a Footer, problems: &mut Vec<String>) -> Vec<Column<'a>> {
    let mut columns: Vec<Column<'a>> = Vec::with_capacity(footer.columns().len());
    let mut of_root: Option<usize> = None;
    for (at, (name, dtype)) in footer.columns().enumerate() {
        let layout = footer.column_layout(at);
        let is_apart = !layout.as_ref().is_ok_and(|layout| Arc::ptr_eq(layout, footer.layout()));
        if !is_apart {
            if let Some(first) = of_root.and_then(|first| columns.get(first)) {
                let (segments, values) = (Arc::clone(&first.segments), Arc::clone(&first.values));
                columns.push(Column { name, dtype, segments, values, byte_len: first.byte_len, is_apart });
                continue;
            }
            of_root = Some(at);
        }
        let (mut segments, mut values) = (BTreeSet::new(), BTreeSet::new());
        if let Err(error) = layout.and_then(|layout| collect_segments(&layout, &mut segments, &mut values)) {
            problems.push(format!("column {name}: {error}"));
        }
        let byte_len = segments
            .iter()
            .filter_map(|id| footer.segments().get(id.0 as usize))
            .map(|segment| u64::from(segment.length))
            .sum();
        let (segments, values) = (Arc::new(segments), Arc::new(values));
        columns.push(Column { name, dtype, segments, values, byte_len, is_apart });
    }
    columns
}
