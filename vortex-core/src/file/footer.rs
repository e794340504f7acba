//! The description of a file: parsed once, shared by all its scans.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::buffer::Buffer;
use arrow::datatypes::{FieldRef, Schema, SchemaRef};

use super::checksums::{CHECKSUMS_KEY, Checksums};
use super::description::DescriptionBytes;
use super::kept::{KeptTail, KeptZoneMaps};
use super::{MAGIC, MAX_USER_KEY_LEN, MAX_USER_METADATA, SegmentCompression, SegmentId, VERSION};
use crate::array::can_decode_as;
use crate::dtype::stored::may_be_stored_as;
use crate::dtype::{DType, ROOT_COLUMN};
use crate::encodings::Registry;
use crate::layout::{LayoutNode, LayoutRef};
use crate::limits::Limits;
use crate::once::get_or_try_init;
use crate::stats::FieldStats;
use crate::wire::{
    FooterTables, Postscript, PostscriptSegment, RawLayout, arrow_schema_from_bytes, dtype_from_bytes,
    file_statistics_from_bytes,
};
use crate::{Error, Result};

/// The last bytes of files written by releases before 0.36.
const LEGACY_MAGIC: &[u8; 4] = b"VRTX";
/// Bytes of the end-of-file record: version, postscript length, magic.
pub(super) const EOF_LEN: u64 = 8;
const MAX_ALIGNMENT_EXPONENT: u8 = 16;
/// Longer values of user metadata are not kept in memory.
const MAX_KEPT_VALUE_LEN: u32 = 4 << 10;
/// Maximum length of the Arrow schema if it has to be read on its own.
const MAX_SCHEMA_BYTES: u32 = 16 << 20;
/// Key of the user metadata entry with the Arrow schema that a file was written from.
pub(crate) const ARROW_SCHEMA_KEY: &str = "vortex-core.arrow-schema";

/// A data segment: its position, and its alignment in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Segment {
    /// Position of the first byte in the file.
    pub offset: u64,
    /// Number of bytes.
    pub length: u32,
    /// Alignment in memory, as an exponent of two. The position in the file need not be aligned.
    pub alignment_exponent: u8,
    /// How the bytes are compressed as a whole, if at all.
    pub compression: Option<SegmentCompression>,
}

impl Segment {
    /// The range of its bytes in the file.
    pub fn range(&self) -> Range<u64> {
        // Checked against the file size when the footer was parsed.
        self.offset..self.offset + u64::from(self.length)
    }
}

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
    /// The value, if it is short and was read together with the description of the file.
    pub value: Option<Arc<[u8]>>,
}

/// The parsed description of a file: type, layout, segments, statistics.
#[derive(Debug)]
pub struct Footer {
    pub(crate) dtype: DType,
    pub(crate) layout: LayoutRef,
    segments: Arc<[Segment]>,
    statistics: Option<Vec<FieldStats>>,
    user_metadata: Vec<UserMetadata>,
    /// Checksums against which segments are verified.
    pub(super) checksums: Option<Checksums>,
    /// The Arrow schema that the file was written from, as stored.
    stored_schema: Option<Box<[u8]>>,
    schema: OnceLock<SchemaRef>,
    pub(crate) array_ids: Arc<[Arc<str>]>,
    layout_ids: Arc<[Arc<str>]>,
    file_size: u64,
    described_bytes: usize,
    pub(crate) registry: Registry,
    pub(crate) limits: Limits,
    pub(crate) tail: KeptTail,
    pub(crate) zone_maps: KeptZoneMaps,
}

/// The postscript of a file, which locates its description.
pub(super) struct Tail {
    postscript: Postscript,
    file_size: u64,
}

impl Tail {
    /// Parses the end-of-file record and the postscript from the last bytes of a file.
    pub(super) fn parse(tail: &[u8], file_size: u64, limits: &Limits) -> Result<Self> {
        let Some((before, eof)) = tail.split_last_chunk::<8>() else {
            return Err(Error::corrupt(format!("{file_size} bytes are too few for a Vortex file")));
        };
        let [v0, v1, l0, l1, magic @ ..] = eof;
        if magic == LEGACY_MAGIC {
            return Err(Error::corrupt(
                "written by a release before 0.36, whose format was not stable; read it with that release and \
                 write it again",
            ));
        }
        if magic != MAGIC {
            return Err(Error::corrupt(format!(
                "not a Vortex file, or cut short: it ends in {:?}, not in \"VTXF\"",
                String::from_utf8_lossy(magic)
            )));
        }
        let version = u16::from_le_bytes([*v0, *v1]);
        if version != VERSION {
            return Err(Error::unsupported("format version", version));
        }
        let len = usize::from(u16::from_le_bytes([*l0, *l1]));
        let start = before
            .len()
            .checked_sub(len)
            .ok_or_else(|| Error::corrupt(format!("postscript of {len} bytes in a file of {file_size}")))?;
        Ok(Self { postscript: Postscript::parse(&before[start..], limits)?, file_size })
    }

    /// The positions of the parts needed for parsing the footer.
    pub(super) fn needed(&self) -> Result<Vec<Range<u64>>> {
        let mut needed = self.parts().map(|part| self.range(part)).collect::<Result<Vec<_>>>()?;
        // Files are readable without the Arrow schema.
        let schema = self.arrow_schema().filter(|part| part.length <= MAX_SCHEMA_BYTES);
        needed.extend(schema.and_then(|part| self.range(part).ok()));
        Ok(needed)
    }

    fn arrow_schema(&self) -> Option<&PostscriptSegment> {
        let mut entries = self.postscript.metadata.iter();
        entries.find(|(key, _)| key == ARROW_SCHEMA_KEY).map(|(_, part)| part)
    }

    fn parts(&self) -> impl Iterator<Item = &PostscriptSegment> {
        self.named_parts().map(|(_, segment)| segment)
    }

    /// The parts that the checksum of the description covers, in order.
    pub(super) fn described(&self) -> impl Iterator<Item = &PostscriptSegment> {
        let Postscript { dtype, layout, statistics, footer, .. } = &self.postscript;
        dtype.iter().chain([layout]).chain(statistics).chain([footer])
    }

    /// The parts that the postscript refers to, with their names.
    pub(super) fn named_parts(&self) -> impl Iterator<Item = (&'static str, &PostscriptSegment)> {
        let Postscript { dtype, layout, statistics, footer, .. } = &self.postscript;
        let dtype = dtype.iter().map(|segment| ("dtype", segment));
        let statistics = statistics.iter().map(|segment| ("statistics", segment));
        dtype.chain([("layout", layout), ("footer", footer)]).chain(statistics)
    }

    pub(super) fn range(&self, segment: &PostscriptSegment) -> Result<Range<u64>> {
        let end = segment.offset.checked_add(segment.length.into());
        match end.filter(|end| *end <= self.file_size) {
            Some(end) => Ok(segment.offset..end),
            None => Err(Error::corrupt(format!(
                "the description lies at {} + {}, beyond the {} bytes of the file",
                segment.offset, segment.length, self.file_size
            ))),
        }
    }
}

impl Footer {
    /// Parses the description from those of its bytes that were read.
    pub(super) fn parse(
        tail: &Tail,
        bytes: &DescriptionBytes,
        dtype: Option<&DType>,
        registry: &Registry,
        limits: &Limits,
    ) -> Result<Self> {
        let mut described_bytes = 0;
        let mut part = |segment: &PostscriptSegment| -> Result<&[u8]> {
            described_bytes += segment.length as usize;
            let found = bytes.get(&tail.range(segment)?);
            found.ok_or_else(|| Error::corrupt("the description of the file is truncated"))
        };
        let postscript = &tail.postscript;
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
        // Damaged statistics only make scans slower; they must not make a file unreadable.
        let fields: Vec<&DType> = match &dtype {
            DType::Struct(fields, _) => fields.dtypes().iter().collect(),
            other => vec![other],
        };
        let statistics = match &postscript.statistics {
            Some(segment) => file_statistics_from_bytes(part(segment)?, limits)
                .ok()
                .filter(|raw| raw.len() == fields.len())
                .map(|raw| {
                    let pairs = raw.iter().zip(&fields);
                    pairs.map(|(raw, dtype)| FieldStats::read(raw, dtype, row_count, limits)).collect()
                }),
            None => None,
        };
        let stored_schema = tail.arrow_schema().and_then(|entry| part(entry).ok()).map(Into::into);
        let segments = segments(&tables, tail.file_size)?;
        let user_metadata = user_metadata(tail, |entry| part(entry).ok().map(Arc::from))?;
        let node =
            LayoutNode::root(Arc::new(raw_layout), &dtype, Arc::clone(&tables.layout_ids), registry, limits);
        let layout = node.load()?;
        let kept = KeptTail::new(&segments, &bytes.end, bytes.start);
        let room = usize::try_from(tail.file_size.saturating_mul(ZONE_MAPS_SHARE)).unwrap_or(usize::MAX);
        Ok(Self {
            dtype,
            layout,
            segments,
            statistics,
            user_metadata,
            checksums: None,
            stored_schema,
            schema: OnceLock::new(),
            array_ids: tables.array_ids,
            layout_ids: tables.layout_ids,
            file_size: tail.file_size,
            described_bytes,
            registry: registry.clone(),
            limits: *limits,
            tail: kept,
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
            Some(schema) => Ok(Arc::new(schema)),
            None => crate::dtype::arrow::schema(&self.dtype),
        });
        schema.map(Arc::clone)
    }

    /// The schema that the file was written from according to its metadata, if it is consistent.
    fn written_schema(&self) -> Option<Schema> {
        let schema = arrow_schema_from_bytes(self.stored_schema.as_ref()?, &self.limits).ok()?;
        if !may_be_stored_as(&schema, &self.dtype) {
            return None;
        }
        let dtypes = self.dtype.as_columns().map(|columns| columns.dtypes()).unwrap_or_default();
        let decodes = |(dtype, field): (&DType, &FieldRef)| can_decode_as(dtype, field.data_type());
        dtypes.iter().zip(schema.fields()).all(decodes).then_some(schema)
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
        &self.segments
    }

    /// One segment.
    ///
    /// # Errors
    /// If the table has no such segment.
    pub fn segment(&self, id: SegmentId) -> Result<Segment> {
        self.segments
            .get(id.0 as usize)
            .copied()
            .ok_or_else(|| Error::corrupt(format!("segment {} of {}", id.0, self.segments.len())))
    }

    /// Whether the file has checksums of what it holds.
    pub fn has_checksums(&self) -> bool {
        self.user_metadata.iter().any(|entry| &*entry.key == CHECKSUMS_KEY)
    }

    /// Whether what is read of the file is checked against its checksums: they are there, and it was
    /// opened [to do so](super::OpenOptions::with_checksums).
    pub fn verifies_checksums(&self) -> bool {
        self.checksums.is_some()
    }

    /// Whether the array of a segment can only be read from all of its bytes.
    pub(crate) fn is_whole(&self, id: SegmentId) -> Result<bool> {
        Ok(self.checksums.is_some() || self.segment(id)?.compression.is_some())
    }

    /// The bytes of a segment in the form in which its array is stored: verified against their checksum,
    /// if requested, and decompressed.
    pub(super) fn unpack(&self, id: SegmentId, bytes: Buffer) -> Result<Buffer> {
        if let Some(checksums) = &self.checksums {
            checksums.check(id, &bytes)?;
        }
        match self.segment(id)?.compression {
            None => Ok(bytes),
            Some(scheme) => {
                let bytes = scheme.decompress(&bytes, self.limits.max_decoded_bytes)?;
                self.limits.decoded_bytes(bytes.len(), 1)?;
                Ok(bytes.into())
            }
        }
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
        &self.array_ids
    }

    /// Ids of the layouts the file uses.
    pub fn layout_ids(&self) -> &[Arc<str>] {
        &self.layout_ids
    }

    /// The whole file, if it is so small that it was read completely when it was opened.
    pub fn whole_file(&self) -> Option<Buffer> {
        self.tail.get(&(0..self.file_size))
    }

    /// Approximate memory size in bytes, for use by caches: the size of the tables as parsed, not as stored.
    pub fn memory_size(&self) -> usize {
        // A stored layout node of about 40 bytes takes about 200 in memory, a segment of 16 takes 24, and
        // a statistic of 80 about 300.
        size_of::<Self>()
            + self.described_bytes * 5
            + self.segments.len() * size_of::<Segment>()
            + self.statistics.as_ref().map_or(0, |stats| stats.len() * size_of::<FieldStats>())
            + self.tail.len()
            + self.zone_maps.limit()
    }
}

fn segments(tables: &FooterTables, file_size: u64) -> Result<Arc<[Segment]>> {
    let mut last = 0;
    let mut segments = Vec::with_capacity(tables.segments.len());
    for (id, spec) in tables.segments.iter().enumerate() {
        if spec.offset < last {
            return Err(Error::corrupt(format!("segment {id} at {} precedes the previous one", spec.offset)));
        }
        last = spec.offset;
        let end = spec.offset.checked_add(spec.length.into());
        if end.is_none_or(|end| end > file_size) {
            return Err(Error::corrupt(format!(
                "segment {id} lies at {} + {}, beyond the {file_size} bytes of the file",
                spec.offset, spec.length
            )));
        }
        if spec.alignment_exponent > MAX_ALIGNMENT_EXPONENT {
            return Err(Error::corrupt(format!("segment {id} is aligned to 2^{}", spec.alignment_exponent)));
        }
        if spec.encryption != 0 {
            return Err(Error::unsupported("segment encryption", spec.encryption));
        }
        segments.push(Segment {
            offset: spec.offset,
            length: spec.length,
            alignment_exponent: spec.alignment_exponent,
            compression: SegmentCompression::try_from_number(spec.compression)?,
        });
    }
    Ok(segments.into())
}

/// The entries of user metadata; `read_value` returns values that have already been read.
fn user_metadata(
    tail: &Tail,
    mut read_value: impl FnMut(&PostscriptSegment) -> Option<Arc<[u8]>>,
) -> Result<Vec<UserMetadata>> {
    let entries = &tail.postscript.metadata;
    if entries.len() > MAX_USER_METADATA {
        return Err(Error::corrupt(format!(
            "{} user metadata entries, at most {MAX_USER_METADATA}",
            entries.len()
        )));
    }
    let mut read: Vec<UserMetadata> = Vec::with_capacity(entries.len());
    for (key, segment) in entries {
        let range = tail.range(segment)?;
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
