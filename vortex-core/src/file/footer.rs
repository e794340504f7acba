//! The description of a file: parsed once, shared by all its scans.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::buffer::Buffer;
use arrow::datatypes::{FieldRef, Schema, SchemaRef};

use super::description::{DescriptionBytes, DescriptionParts};
use super::zone_maps::KeptZoneMaps;
use super::{OpenOptions, Segment, SegmentId};
use crate::array::can_decode_as;
use crate::bloom::{BLOOM_FILTERS_KEY, BloomFilters};
use crate::dtype::stored::may_be_stored_as;
use crate::dtype::{DType, ROOT_COLUMN, StructType};
use crate::expr::FieldPath;
use crate::layout::{LayoutNode, LayoutRef};
use crate::once::get_or_try_init;
use crate::segments::checksums::CHECKSUMS_KEY;
use crate::segments::{MAX_ALIGNMENT_EXPONENT, SegmentTable};
use crate::stats::FieldStats;
use crate::wire::{
    FooterTables, MAX_USER_KEY_LEN, MAX_USER_METADATA, PostscriptSegment, RawLayout, arrow_schema_from_bytes,
    dtype_from_bytes, file_statistics_from_bytes,
};
use crate::{Error, Result};

/// Longer values of user metadata are not kept in memory.
pub(super) const MAX_KEPT_VALUE_LEN: u32 = 4 << 10;
/// Maximum length of the Arrow schema if it has to be read on its own.
pub(crate) const MAX_SCHEMA_BYTES: u32 = 16 << 20;
/// A longer entry that tells where Bloom filters lie is not read: it has some 10 bytes per column and 8 million rows.
pub(super) const MAX_BLOOM_INDEX_BYTES: u32 = 1 << 20;
/// Key of the user metadata entry with the Arrow schema that a file was written from.
pub(crate) const ARROW_SCHEMA_KEY: &str = "vortex-core.arrow-schema";
/// Key of the user metadata entry with the version of this crate that wrote a file. Statistics of such a file call a
/// bound exact only if it is a value.
pub(crate) const VERSION_KEY: &str = "vortex-core.version";

/// Memory for decoded zone maps that is available regardless of the size of the description.
const MIN_ZONE_MAPS: usize = 64 << 10;

/// Maximum size of the decoded zone maps, as a multiple of the file size.
const ZONE_MAPS_SHARE: u64 = 2;

/// A named value that applications store in a file; opaque to readers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UserMetadata {
    /// The name.
    pub key: Arc<str>,
    /// The position of the value in the file.
    pub range: Range<u64>,
    /// The value, if it has at most 4 KiB and lies within the file.
    /// [`VortexFile::user_metadata`](crate::VortexFile::user_metadata) reads longer ones, too.
    pub value: Option<Arc<[u8]>>,
}

/// The parsed description of a file: type, layout, segments, statistics.
#[derive(Debug)]
pub struct Footer {
    pub(crate) dtype: DType,
    pub(crate) layout: LayoutRef,
    pub(crate) table: SegmentTable,
    statistics: Option<Vec<FieldStats>>,
    user_metadata: Vec<UserMetadata>,
    /// The Arrow schema that the file was written from, as stored.
    stored_schema: Option<Box<[u8]>>,
    schema: OnceLock<SchemaRef>,
    bloom_filters: BloomFilters,
    /// Why there are none although the file has some.
    unusable_bloom_filters: Option<Error>,
    file_size: u64,
    /// Approximate bytes of what the description becomes in memory.
    parsed_bytes: usize,
    pub(crate) zone_maps: KeptZoneMaps,
}

impl Footer {
    /// Parses the description from those of its bytes that were read.
    pub(super) fn parse(
        description: &DescriptionParts,
        bytes: &DescriptionBytes,
        options: &OpenOptions,
    ) -> Result<Self> {
        let OpenOptions { dtype, registry, limits, .. } = options;
        let mut described_bytes = 0;
        let mut part = |segment: &PostscriptSegment| -> Result<&[u8]> {
            described_bytes += segment.length as usize;
            let found = bytes.get(&description.range(segment)?);
            found.ok_or_else(|| Error::corrupt("the description of the file is truncated"))
        };
        let postscript = &description.postscript;
        let dtype = match (&postscript.dtype, dtype) {
            (_, Some(dtype)) => dtype.clone(),
            (Some(segment), None) => dtype_from_bytes(part(segment)?, limits)?,
            (None, None) => return Err(Error::invalid("the file contains no dtype; supply one")),
        };
        let tables = FooterTables::parse(part(&postscript.footer)?, limits)?;
        let raw_layout = RawLayout::parse(part(&postscript.layout)?, limits)?;
        let row_count = raw_layout.row_count;
        if row_count > limits.max_rows {
            return Err(Error::limit(format!("{row_count} rows, at most {} allowed", limits.max_rows)));
        }
        let fields = match &dtype {
            DType::Struct(fields, _) => fields.dtypes(),
            other => std::slice::from_ref(other),
        };
        let statistics = postscript.statistics.as_ref().map(&mut part).transpose()?;
        // Damaged statistics only make scans slower; they must not make a file unreadable.
        let is_ours = description.entry(VERSION_KEY).is_some();
        let statistics = statistics.and_then(|bytes| {
            file_statistics_from_bytes(bytes, fields, row_count, is_ours, limits).ok().flatten()
        });
        let stored_schema =
            description.entry(ARROW_SCHEMA_KEY).and_then(|entry| part(entry).ok()).map(Into::into);
        let bloom_filters = description
            .entry(BLOOM_FILTERS_KEY)
            .map(|entry| BloomFilters::parse(part(entry)?, row_count, description.file_size));
        // Only scans that look for single values miss broken ones.
        let (bloom_filters, unusable_bloom_filters) = match bloom_filters.transpose() {
            Ok(filters) => (filters.unwrap_or_default(), None),
            Err(error) => (BloomFilters::default(), Some(error)),
        };
        let table = SegmentTable::try_new(&tables, &bytes.end, description.file_size, registry, limits)?;
        let user_metadata = user_metadata(description, |entry| part(entry).ok().map(Arc::from))?;
        // A layout that is used takes as much again.
        let parsed_bytes = described_bytes + 2 * raw_layout.memory_size() + field_bytes(&dtype);
        let node =
            LayoutNode::root(Arc::new(raw_layout), &dtype, Arc::clone(&tables.layout_ids), registry, limits);
        let layout = node.load()?;
        let room =
            usize::try_from(description.file_size.saturating_mul(ZONE_MAPS_SHARE)).unwrap_or(usize::MAX);
        Ok(Self {
            dtype,
            layout,
            table,
            statistics,
            user_metadata,
            stored_schema,
            schema: OnceLock::new(),
            bloom_filters,
            unusable_bloom_filters,
            file_size: description.file_size,
            parsed_bytes,
            zone_maps: KeptZoneMaps::new(room.min(MIN_ZONE_MAPS + described_bytes * 4)),
        })
    }

    /// The logical type of the file, usually a non-nullable struct of its columns.
    pub fn dtype(&self) -> &DType {
        &self.dtype
    }

    /// The Arrow schema of the file: the one that it was written from, if the file contains it and it
    /// fits the dtype; otherwise the types that decoding prefers.
    ///
    /// # Errors
    /// If a type has no Arrow equivalent.
    pub fn schema(&self) -> Result<SchemaRef> {
        let schema = get_or_try_init(&self.schema, || match self.written_schema() {
            Ok(Some(schema)) => Ok(Arc::new(schema)),
            Ok(None) | Err(_) => crate::dtype::arrow::schema(&self.dtype),
        });
        schema.map(Arc::clone)
    }

    /// The schema that the file was written from according to its metadata, if it has one.
    ///
    /// # Errors
    /// If it cannot be used: [`schema`](Self::schema) is another one then.
    pub(crate) fn written_schema(&self) -> Result<Option<Schema>> {
        let Some(stored) = &self.stored_schema else {
            return match self.entry(ARROW_SCHEMA_KEY) {
                Some(UserMetadata { range, .. }) => {
                    let bytes = range.end - range.start;
                    Err(Error::limit(format!("{bytes} bytes, at most {MAX_SCHEMA_BYTES} are read")))
                }
                None => Ok(None),
            };
        };
        let schema = arrow_schema_from_bytes(stored, &self.table.limits)?;
        if !may_be_stored_as(&schema, &self.dtype) {
            return Err(Error::corrupt("the types of the file are others"));
        }
        let dtypes = self.dtype.as_columns().map(|columns| columns.dtypes()).unwrap_or_default();
        let decodes = |(dtype, field): &(&DType, &FieldRef)| can_decode_as(dtype, field.data_type());
        match dtypes.iter().zip(schema.fields()).find(|column| !decodes(column)) {
            Some((dtype, field)) => {
                let (name, to) = (field.name(), field.data_type());
                Err(Error::corrupt(format!("column `{name}` of type {dtype} cannot be read as {to}")))
            }
            None => Ok(Some(schema)),
        }
    }

    /// Names and types of the columns. A root that is not a struct, or may be null, is one column called
    /// [`ROOT_COLUMN`].
    pub fn columns(&self) -> impl ExactSizeIterator<Item = (&str, &DType)> {
        let fields = self.dtype.as_columns();
        (0..fields.map_or(1, |fields| fields.len())).map(move |at| match fields {
            Some(fields) => (&*fields.names()[at], &fields.dtypes()[at]),
            None => (ROOT_COLUMN, &self.dtype),
        })
    }

    /// Statistics of column `at` for the whole file, if there are any.
    pub fn column_statistics(&self, at: usize) -> Option<&FieldStats> {
        // A struct that may be null has statistics of its fields, not of itself.
        if self.dtype.as_columns().is_none() && self.dtype.as_struct().is_some() {
            return None;
        }
        self.statistics()?.get(at)
    }

    /// The layout of column `at`.
    ///
    /// # Errors
    /// If the layout is broken.
    pub fn column_layout(&self, at: usize) -> Result<LayoutRef> {
        let field = if self.dtype.as_columns().is_some() { self.layout.field(at)? } else { None };
        Ok(field.unwrap_or_else(|| Arc::clone(&self.layout)))
    }

    /// The Bloom filters of the columns that have some.
    pub(crate) fn bloom_filters(&self) -> &BloomFilters {
        &self.bloom_filters
    }

    /// Why scans use none of the file's Bloom filters, if they are broken.
    pub(crate) fn unusable_bloom_filters(&self) -> Option<&Error> {
        self.unusable_bloom_filters.as_ref()
    }

    /// The columns that have Bloom filters, and the bytes that these take in the file.
    pub fn bloom_filter_columns(&self) -> impl Iterator<Item = (&FieldPath, u64)> {
        self.bloom_filters.iter().map(|(path, filters)| (path, filters.byte_len()))
    }

    /// Number of rows.
    pub fn row_count(&self) -> u64 {
        self.layout.row_count()
    }

    /// Size of the file in bytes.
    pub fn file_size(&self) -> u64 {
        self.file_size
    }

    /// The layout of the root.
    pub fn layout(&self) -> &LayoutRef {
        &self.layout
    }

    /// All segments; a [`SegmentId`] is an index into these.
    pub fn segments(&self) -> &[Segment] {
        self.table.segments()
    }

    /// One segment.
    ///
    /// # Errors
    /// If the table has no such segment.
    pub fn segment(&self, id: SegmentId) -> Result<Segment> {
        self.table.segment(id)
    }

    /// Whether the file has checksums of what it holds.
    pub fn has_checksums(&self) -> bool {
        self.entry(CHECKSUMS_KEY).is_some()
    }

    /// An entry of user metadata.
    pub(super) fn entry(&self, key: &str) -> Option<&UserMetadata> {
        self.user_metadata.iter().find(|entry| &*entry.key == key)
    }

    /// The entries of user metadata that have checksums, if the file has any, in the order of these.
    pub(crate) fn entries_with_checksums(&self) -> Vec<&UserMetadata> {
        let mut entries: Vec<_> =
            self.user_metadata.iter().filter(|entry| &*entry.key != CHECKSUMS_KEY).collect();
        entries.sort_by(|left, right| left.key.cmp(&right.key));
        entries
    }

    /// Whether what is read of the file is checked against its checksums: they are there, and it was
    /// opened [to do so](super::OpenOptions::with_verify_checksums).
    pub fn verifies_checksums(&self) -> bool {
        self.table.checksums.is_some()
    }

    /// Statistics per field of the root if it is a struct, even one that may be null; otherwise of the only
    /// column. See also [`column_statistics`](Self::column_statistics).
    pub fn statistics(&self) -> Option<&[FieldStats]> {
        self.statistics.as_deref()
    }

    /// Values that applications have stored in the file.
    pub fn user_metadata(&self) -> &[UserMetadata] {
        &self.user_metadata
    }

    /// Ids of the array encodings that the file may use; newer writers also list unused ones.
    pub fn array_ids(&self) -> &[Arc<str>] {
        &self.table.array_ids
    }

    /// The whole file, if it is so small that it was read completely when it was opened.
    pub fn whole_file(&self) -> Option<Buffer> {
        self.table.tail.get(&(0..self.file_size))
    }

    /// Bytes at the end of the file that describe it, those of short metadata included: all that follow its data.
    pub fn description_len(&self) -> u64 {
        let segments = self.segments().iter().map(|segment| segment.range().end);
        let filters = self.bloom_filters.iter().flat_map(|(_, filters)| filters.groups());
        let data_end = segments.chain(filters.map(|group| group.end)).max().unwrap_or(0);
        self.file_size.saturating_sub(data_end)
    }

    /// Approximate memory size in bytes, for use by caches: the size of the tables as parsed, not as stored.
    pub fn memory_size(&self) -> usize {
        size_of::<Self>()
            + self.parsed_bytes
            + size_of_val(self.segments())
            + self.statistics.as_ref().map_or(0, |stats| stats.len() * size_of::<FieldStats>())
            + self.table.tail.len()
            + self.bloom_filters.memory_size()
            + self.zone_maps.limit()
    }
}

/// Approximate bytes of each field of a type and of its Arrow schema, without its name.
const FIELD_BYTES: usize = 250;

/// Approximate bytes of a type and its Arrow schema. Stored types may share tables and names, which those in memory
/// do not.
fn field_bytes(dtype: &DType) -> usize {
    let fields = |fields: &StructType| -> usize {
        fields.fields().map(|(name, dtype)| name.len() + field_bytes(dtype)).sum()
    };
    FIELD_BYTES
        + match dtype.storage() {
            DType::Struct(of, _) => fields(of),
            DType::Union(union, _) => fields(union.variants()),
            DType::List(element, _) | DType::FixedSizeList(element, ..) => field_bytes(element),
            DType::Map(map, _) => field_bytes(map.key()) + field_bytes(map.value()),
            _ => 0,
        }
}

/// The entries of user metadata; `read_value` returns values that have already been read.
fn user_metadata(
    description: &DescriptionParts,
    mut read_value: impl FnMut(&PostscriptSegment) -> Option<Arc<[u8]>>,
) -> Result<Vec<UserMetadata>> {
    let entries = &description.postscript.metadata;
    if entries.len() > MAX_USER_METADATA {
        return Err(Error::corrupt(format!(
            "{} user metadata entries, at most {MAX_USER_METADATA}",
            entries.len()
        )));
    }
    let mut read: Vec<UserMetadata> = Vec::with_capacity(entries.len());
    for (key, segment) in entries {
        let range = description.range(segment)?;
        let aligned = segment.alignment_exponent <= MAX_ALIGNMENT_EXPONENT
            && range.start % (1 << segment.alignment_exponent) == 0;
        if !aligned || key.is_empty() || key.len() > MAX_USER_KEY_LEN || read.iter().any(|e| *e.key == **key)
        {
            return Err(Error::corrupt(format!(
                "user metadata entry {key:?} does not conform to the format"
            )));
        }
        let value = if segment.length <= MAX_KEPT_VALUE_LEN { read_value(segment) } else { None };
        read.push(UserMetadata { key: key.as_str().into(), range, value });
    }
    Ok(read)
}
