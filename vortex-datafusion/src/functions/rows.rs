//! Parts of a file's description as rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, ListBuilder, RecordBatch, StringArray, StringBuilder, UInt32Array,
    UInt32Builder, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion_common::{DataFusionError, Result, resources_err};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use vortex_core::dtype::DType;
use vortex_core::dtype::arrow::data_type;
use vortex_core::file::{Footer, SegmentId};
use vortex_core::layout::{LayoutRef, ZoneMap};
use vortex_core::scalar::Scalar;
use vortex_core::stats::{FieldStats, Precision};
use vortex_core::{Excerpt, VortexFile};

use crate::convert::datafusion_error;

/// Maximum number of bytes of text in the rows of one file. A small file may refer to long names, types and zone tables any
/// number of times.
const MAX_TEXT: usize = 512 << 20;

/// Bytes that a zone without texts counts for.
const ZONE_BYTES: usize = 64;

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
        let mut room = Room { left: MAX_TEXT };
        let columns = match self {
            Self::Columns => columns(file.footer(), &mut room)?,
            Self::Layouts => layouts(file.footer(), &mut room)?,
            Self::Segments => {
                let encodings = match wants("encodings") {
                    true => encodings(file, &mut room).await?,
                    false => BTreeMap::new(),
                };
                segments(file.footer(), &encodings, &mut room)?
            }
            Self::Zones => zones(file, &mut room).await?,
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

fn texts_of<T: AsRef<str>>(values: impl IntoIterator<Item = Option<T>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<StringArray>())
}

fn counts(values: impl IntoIterator<Item = Option<u64>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<UInt64Array>())
}

fn flags(values: impl IntoIterator<Item = Option<bool>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<BooleanArray>())
}

/// The room for text that is left.
struct Room {
    left: usize,
}

impl Room {
    /// A value as text, which is cut if it is long.
    fn text(&mut self, value: impl Display) -> Result<String> {
        let text = Excerpt(value).to_string();
        self.take(text.len())?;
        Ok(text)
    }

    fn take(&mut self, bytes: usize) -> Result<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => {
                return resources_err!(
                    "the description of the file takes more than {MAX_TEXT} bytes of text"
                );
            }
        }
        Ok(())
    }
}

/// A layout of a file and its path: names of fields, `data`, `zones`, chunk numbers.
struct Placed {
    path: String,
    layout: LayoutRef,
}

/// All layouts, parents before children.
fn walk(footer: &Footer, room: &mut Room) -> Result<Vec<Placed>> {
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

/// The number and the bytes of the segments of a layout and those below it.
#[derive(Debug, Clone, Copy)]
struct Used {
    segments: u64,
    bytes: u64,
}

impl Used {
    fn by(layout: &LayoutRef, footer: &Footer) -> Result<Self> {
        let mut used = BTreeSet::new();
        collect_segments(layout, &mut used).map_err(datafusion_error)?;
        let lengths = used.iter().filter_map(|id| footer.segment(*id).ok());
        let bytes = lengths.map(|segment| u64::from(segment.length)).sum();
        Ok(Self { segments: used.len() as u64, bytes })
    }
}

fn collect_segments(layout: &LayoutRef, into: &mut BTreeSet<SegmentId>) -> vortex_core::Result<()> {
    into.extend(layout.segments());
    layout.children()?.iter().try_for_each(|(_, child)| collect_segments(child, into))
}

fn columns(footer: &Footer, room: &mut Room) -> Result<Vec<ArrayRef>> {
    let named: Vec<(&str, &DType)> = footer.columns().collect();
    let mut used: Vec<Used> = Vec::with_capacity(named.len());
    // Columns without layouts of their own are in that of the root.
    let mut of_root = None;
    for at in 0..named.len() {
        let layout = footer.column_layout(at).map_err(datafusion_error)?;
        let of_column = match of_root.filter(|_| Arc::ptr_eq(&layout, footer.layout())) {
            Some(known) => known,
            None => Used::by(&layout, footer)?,
        };
        if Arc::ptr_eq(&layout, footer.layout()) {
            of_root = Some(of_column);
        }
        used.push(of_column);
    }
    let unknown = FieldStats::default();
    let known: Vec<&FieldStats> =
        (0..named.len()).map(|at| footer.column_statistics(at).unwrap_or(&unknown)).collect();
    let exact = |bound: &Precision<Scalar>| bound.value().map(|_| bound.exact().is_some());
    let mut values = |of: fn(&FieldStats) -> Option<&Scalar>| {
        let texts = known.iter().map(|known| of(known).map(|value| room.text(shown(value))).transpose());
        Ok::<_, DataFusionError>(texts_of(texts.collect::<Result<Vec<_>>>()?))
    };
    let (min, max) = (values(|known| known.min.value())?, values(|known| known.max.value())?);
    let sum = values(|known| known.sum.as_ref())?;
    let types = named.iter().map(|(_, dtype)| room.text(dtype).map(Some)).collect::<Result<Vec<_>>>()?;
    Ok(vec![
        texts_of(named.iter().map(|(name, _)| Some(name))),
        texts_of(types),
        counts(named.iter().map(|_| Some(footer.row_count()))),
        counts(used.iter().map(|used| Some(used.segments))),
        counts(used.iter().map(|used| Some(used.bytes))),
        counts(known.iter().map(|known| known.uncompressed_size)),
        counts(known.iter().map(|known| known.null_count)),
        counts(known.iter().map(|known| known.nan_count)),
        min,
        flags(known.iter().map(|known| exact(&known.min))),
        max,
        flags(known.iter().map(|known| exact(&known.max))),
        sum,
        flags(known.iter().map(|known| known.is_constant)),
        flags(known.iter().map(|known| known.is_sorted)),
    ])
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

fn layouts(footer: &Footer, room: &mut Room) -> Result<Vec<ArrayRef>> {
    let all = walk(footer, room)?;
    let mut segments = ListBuilder::new(UInt32Builder::new());
    for placed in &all {
        segments.append_value(placed.layout.segments().iter().map(|id| Some(id.0)));
    }
    let mut texts = |of: fn(&Placed) -> &dyn Display| {
        let texts = all.iter().map(|placed| room.text(of(placed)).map(Some));
        Ok::<_, DataFusionError>(texts_of(texts.collect::<Result<Vec<_>>>()?))
    };
    let ids = texts_of(all.iter().map(|placed| Some(placed.layout.id())));
    let types = texts(|placed| placed.layout.dtype())?;
    Ok(vec![
        texts_of(all.iter().map(|placed| Some(&placed.path))),
        ids,
        types,
        counts(all.iter().map(|placed| Some(placed.layout.row_count()))),
        Arc::new(segments.finish()),
    ])
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

fn segments(
    footer: &Footer,
    encodings: &BTreeMap<SegmentId, Vec<String>>,
    room: &mut Room,
) -> Result<Vec<ArrayRef>> {
    let mut users: BTreeMap<SegmentId, Vec<String>> = BTreeMap::new();
    for placed in walk(footer, room)? {
        for id in placed.layout.segments() {
            users.entry(id).or_default().push(room.text(&placed.path)?);
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

/// A zone of a file, and what is known of its rows.
struct ZoneRow {
    path: String,
    zone: u64,
    first_row: Option<u64>,
    row_count: u64,
    min: Option<String>,
    max: Option<String>,
    sum: Option<String>,
    null_count: Option<u64>,
    nan_count: Option<u64>,
}

impl ZoneRow {
    fn try_new(path: &str, map: &ZoneMap, zone: usize, room: &mut Room) -> Result<Self> {
        room.take(ZONE_BYTES)?;
        let mut value = |values: &Option<ArrayRef>| {
            let text = values.as_ref().and_then(|values| shown_at(values, zone));
            text.map(|text| room.text(text)).transpose()
        };
        let count = |counts: &Option<UInt64Array>| {
            let counts = counts.as_ref().filter(|counts| zone < counts.len() && counts.is_valid(zone));
            counts.map(|counts| counts.value(zone))
        };
        Ok(Self {
            min: value(&map.min)?,
            max: value(&map.max)?,
            sum: value(&map.sum)?,
            path: room.text(path)?,
            zone: zone as u64,
            first_row: (zone as u64).checked_mul(map.zone_len),
            row_count: map.rows_of(zone),
            null_count: count(&map.null_count),
            nan_count: count(&map.nan_count),
        })
    }
}

/// One zone table is in memory at a time.
async fn zones(file: &VortexFile, room: &mut Room) -> Result<Vec<ArrayRef>> {
    let mut rows: Vec<ZoneRow> = Vec::new();
    for placed in walk(file.footer(), room)? {
        let Some(zones) = placed.layout.zones() else { continue };
        let map = file.zone_map(zones).await.map_err(datafusion_error)?;
        for zone in 0..map.zone_count {
            rows.push(ZoneRow::try_new(&placed.path, &map, zone, room)?);
        }
    }
    Ok(vec![
        texts_of(rows.iter().map(|row| Some(&row.path))),
        counts(rows.iter().map(|row| Some(row.zone))),
        counts(rows.iter().map(|row| row.first_row)),
        counts(rows.iter().map(|row| Some(row.row_count))),
        texts_of(rows.iter().map(|row| row.min.as_ref())),
        texts_of(rows.iter().map(|row| row.max.as_ref())),
        texts_of(rows.iter().map(|row| row.sum.as_ref())),
        counts(rows.iter().map(|row| row.null_count)),
        counts(rows.iter().map(|row| row.nan_count)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_and_their_sum_is_limited() {
        let mut room = Room { left: 3000 };
        let long = "x".repeat(5000);
        for _ in 0..2 {
            assert!(room.text(&long).unwrap().len() < 1100);
        }
        let error = room.text(&long).unwrap_err().to_string();
        assert!(error.contains("the description of the file takes more than"), "{error}");
        assert!(room.text("short").is_ok());
    }
}
