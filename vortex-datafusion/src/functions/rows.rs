//! Parts of a file's description as rows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, ListBuilder, RecordBatch, StringArray, StringBuilder, UInt32Array,
    UInt32Builder, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion_common::Result;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use vortex_core::dtype::arrow::data_type;
use vortex_core::file::{Footer, SegmentId, VortexFile};
use vortex_core::layout::{LayoutRef, ZoneMap};
use vortex_core::stats::{FieldStats, Precision};
use vortex_core::{DType, Scalar};

use crate::convert::datafusion_error;

/// Number of segment ends read at the same time.
const READS: usize = 16;

/// The part of the description that a function shows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Columns,
    Layouts,
    Segments,
    Zones,
}

impl Part {
    pub(super) fn schema(self) -> SchemaRef {
        let text = |name: &str| Field::new(name, DataType::Utf8, true);
        let count = |name: &str| Field::new(name, DataType::UInt64, true);
        let flag = |name: &str| Field::new(name, DataType::Boolean, true);
        let file = Field::new("file", DataType::Utf8, false);
        let fields = match self {
            Self::Columns => vec![
                file,
                text("column"),
                text("type"),
                count("row_count"),
                count("segments"),
                count("bytes"),
                count("decoded_bytes"),
                count("null_count"),
                count("nan_count"),
                text("min"),
                flag("min_is_exact"),
                text("max"),
                flag("max_is_exact"),
                text("sum"),
                flag("is_constant"),
                flag("is_sorted"),
            ],
            Self::Layouts => vec![
                file,
                text("path"),
                text("layout"),
                text("type"),
                count("row_count"),
                Field::new("segments", list_of(DataType::UInt32), true),
            ],
            Self::Segments => vec![
                file,
                Field::new("segment", DataType::UInt32, false),
                count("offset"),
                count("bytes"),
                count("alignment"),
                Field::new("paths", list_of(DataType::Utf8), true),
                Field::new("encodings", list_of(DataType::Utf8), true),
            ],
            Self::Zones => vec![
                file,
                text("path"),
                count("zone"),
                count("first_row"),
                count("row_count"),
                text("min"),
                text("max"),
                text("sum"),
                count("null_count"),
                count("nan_count"),
            ],
        };
        Arc::new(Schema::new(fields))
    }

    /// The rows of one file; columns for whose names `wants` is false may be null if they would require reads.
    ///
    /// # Errors
    /// If the file is broken, or storage fails.
    pub(super) async fn rows(
        self,
        name: &str,
        file: &VortexFile,
        wants: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<RecordBatch> {
        let columns = match self {
            Self::Columns => columns(file.footer()).map_err(datafusion_error)?,
            Self::Layouts => layouts(file.footer()).map_err(datafusion_error)?,
            Self::Segments => {
                let encodings = match wants("encodings") {
                    true => encodings(file).await.map_err(datafusion_error)?,
                    false => BTreeMap::new(),
                };
                segments(file.footer(), &encodings).map_err(datafusion_error)?
            }
            Self::Zones => zones(file).await?,
        };
        let rows = columns.first().map_or(0, |column| column.len());
        let mut all: Vec<ArrayRef> = vec![Arc::new(StringArray::from_iter_values((0..rows).map(|_| name)))];
        all.extend(columns);
        Ok(RecordBatch::try_new(self.schema(), all)?)
    }
}

fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

fn texts<T: AsRef<str>>(values: impl IntoIterator<Item = Option<T>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<StringArray>())
}

fn counts(values: impl IntoIterator<Item = Option<u64>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<UInt64Array>())
}

fn flags(values: impl IntoIterator<Item = Option<bool>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<BooleanArray>())
}

/// A layout of a file and its path: names of fields, `data`, `zones`, chunk numbers.
struct Placed {
    path: String,
    layout: LayoutRef,
}

/// All layouts, parents before children.
fn walk(footer: &Footer) -> vortex_core::Result<Vec<Placed>> {
    let mut found = Vec::new();
    let mut open = vec![Placed { path: String::new(), layout: Arc::clone(footer.layout()) }];
    while let Some(placed) = open.pop() {
        let children = placed.layout.children()?.into_iter().rev().map(|(name, layout)| {
            let path = if placed.path.is_empty() { name } else { format!("{}.{name}", placed.path) };
            Placed { path, layout }
        });
        open.extend(children);
        found.push(placed);
    }
    Ok(found)
}

fn columns(footer: &Footer) -> vortex_core::Result<Vec<ArrayRef>> {
    let named: Vec<(&str, &DType)> = footer.columns().collect();
    let mut used: Vec<BTreeSet<SegmentId>> = Vec::with_capacity(named.len());
    for at in 0..named.len() {
        let mut segments = BTreeSet::new();
        collect_segments(&footer.column_layout(at)?, &mut segments)?;
        used.push(segments);
    }
    let bytes = |segments: &BTreeSet<SegmentId>| {
        let lengths = segments.iter().filter_map(|id| footer.segment(*id).ok());
        lengths.map(|segment| u64::from(segment.length)).sum::<u64>()
    };
    let unknown = FieldStats::default();
    let known: Vec<&FieldStats> =
        (0..named.len()).map(|at| footer.column_statistics(at).unwrap_or(&unknown)).collect();
    let exact = |bound: &Precision<Scalar>| bound.value().map(|_| bound.exact().is_some());
    Ok(vec![
        texts(named.iter().map(|(name, _)| Some(name))),
        texts(named.iter().map(|(_, dtype)| Some(dtype.to_string()))),
        counts(named.iter().map(|_| Some(footer.row_count()))),
        counts(used.iter().map(|segments| Some(segments.len() as u64))),
        counts(used.iter().map(|segments| Some(bytes(segments)))),
        counts(known.iter().map(|known| known.uncompressed_size)),
        counts(known.iter().map(|known| known.null_count)),
        counts(known.iter().map(|known| known.nan_count)),
        texts(known.iter().map(|known| known.min.value().map(shown))),
        flags(known.iter().map(|known| exact(&known.min))),
        texts(known.iter().map(|known| known.max.value().map(shown))),
        flags(known.iter().map(|known| exact(&known.max))),
        texts(known.iter().map(|known| known.sum.as_ref().map(shown))),
        flags(known.iter().map(|known| known.is_constant)),
        flags(known.iter().map(|known| known.is_sorted)),
    ])
}

fn collect_segments(layout: &LayoutRef, into: &mut BTreeSet<SegmentId>) -> vortex_core::Result<()> {
    into.extend(layout.segments());
    layout.children()?.iter().try_for_each(|(_, child)| collect_segments(child, into))
}

/// A value as Arrow displays it: dates as dates, decimals with a decimal point.
fn shown(value: &Scalar) -> String {
    let array = data_type(value.dtype()).ok().and_then(|to| value.to_arrow(&to, 1).ok());
    array.and_then(|array| shown_at(&array, 0)).unwrap_or_else(|| value.to_string())
}

fn shown_at(array: &ArrayRef, at: usize) -> Option<String> {
    let options = FormatOptions::new();
    let formatter = ArrayFormatter::try_new(array.as_ref(), &options).ok()?;
    (at < array.len() && array.is_valid(at)).then(|| formatter.value(at).try_to_string().ok()).flatten()
}

fn layouts(footer: &Footer) -> vortex_core::Result<Vec<ArrayRef>> {
    let all = walk(footer)?;
    let mut segments = ListBuilder::new(UInt32Builder::new());
    for placed in &all {
        segments.append_value(placed.layout.segments().iter().map(|id| Some(id.0)));
    }
    Ok(vec![
        texts(all.iter().map(|placed| Some(&placed.path))),
        texts(all.iter().map(|placed| Some(placed.layout.id()))),
        texts(all.iter().map(|placed| Some(placed.layout.dtype().to_string()))),
        counts(all.iter().map(|placed| Some(placed.layout.row_count()))),
        Arc::new(segments.finish()),
    ])
}

/// Encoding ids of the arrays in each segment of the file, from the root down.
async fn encodings(file: &VortexFile) -> vortex_core::Result<BTreeMap<SegmentId, Vec<String>>> {
    let used: BTreeSet<SegmentId> =
        walk(file.footer())?.iter().flat_map(|placed| placed.layout.segments()).collect();
    let reads = stream::iter(used).map(|id| async move {
        let nodes = file.array_encodings(id).await?;
        Ok((id, nodes.into_iter().map(|(_, encoding)| encoding).collect()))
    });
    reads.boxed().buffered(READS).try_collect().await
}

fn segments(
    footer: &Footer,
    encodings: &BTreeMap<SegmentId, Vec<String>>,
) -> vortex_core::Result<Vec<ArrayRef>> {
    let mut users: BTreeMap<SegmentId, Vec<String>> = BTreeMap::new();
    for placed in walk(footer)? {
        for id in placed.layout.segments() {
            users.entry(id).or_default().push(placed.path.clone());
        }
    }
    let ids = || (0u32..).map(SegmentId).zip(footer.segments());
    let lists = |of: &BTreeMap<SegmentId, Vec<String>>| -> ArrayRef {
        let mut lists = ListBuilder::new(StringBuilder::new());
        for (id, _) in ids() {
            lists.append_option(of.get(&id).map(|texts| texts.iter().map(Some)));
        }
        Arc::new(lists.finish())
    };
    Ok(vec![
        Arc::new(UInt32Array::from_iter_values(ids().map(|(id, _)| id.0))),
        counts(ids().map(|(_, segment)| Some(segment.offset))),
        counts(ids().map(|(_, segment)| Some(segment.length.into()))),
        counts(ids().map(|(_, segment)| 1u64.checked_shl(segment.alignment_exponent.into()))),
        lists(&users),
        lists(encodings),
    ])
}

async fn zones(file: &VortexFile) -> Result<Vec<ArrayRef>> {
    let mut maps: Vec<(String, ZoneMap)> = Vec::new();
    for placed in walk(file.footer()).map_err(datafusion_error)? {
        let Some(zones) = placed.layout.zones() else { continue };
        maps.push((placed.path, file.zone_map(zones).await.map_err(datafusion_error)?));
    }
    let all = || maps.iter().flat_map(|(path, map)| (0..map.zone_count).map(move |zone| (path, map, zone)));
    let value = |of: fn(&ZoneMap) -> &Option<ArrayRef>| {
        texts(all().map(|(_, map, zone)| of(map).as_ref().and_then(|values| shown_at(values, zone))))
    };
    let count = |of: fn(&ZoneMap) -> &Option<UInt64Array>| {
        counts(all().map(|(_, map, zone)| {
            let counts = of(map).as_ref().filter(|counts| zone < counts.len() && counts.is_valid(zone));
            counts.map(|counts| counts.value(zone))
        }))
    };
    Ok(vec![
        texts(all().map(|(path, ..)| Some(path))),
        counts(all().map(|(.., zone)| Some(zone as u64))),
        counts(all().map(|(_, map, zone)| (zone as u64).checked_mul(map.zone_len))),
        counts(all().map(|(_, map, zone)| Some(map.rows_of(zone)))),
        value(|map| &map.min),
        value(|map| &map.max),
        value(|map| &map.sum),
        count(|map| &map.null_count),
        count(|map| &map.nan_count),
    ])
}
