//! The table of segments.

use std::ops::Range;
use std::sync::Arc;

use arrow::buffer::Buffer;

use super::SegmentCompression;
use super::checksums::Checksums;
use super::tail::KeptTail;
use crate::Registry;
use crate::limits::Limits;
use crate::wire::FooterTables;
use crate::{Error, Result};

/// Maximum alignment that a part of a file may ask for, as an exponent of two.
pub(crate) const MAX_ALIGNMENT_EXPONENT: u8 = 16;

/// Index of a segment in the file's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId(pub u32);

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

/// The segments of a file, and what it takes to load the arrays in them.
#[derive(Debug)]
pub(crate) struct SegmentTable {
    segments: Box<[Segment]>,
    /// Checksums against which segments are verified.
    pub(crate) checksums: Option<Checksums>,
    /// Ids of the array encodings.
    pub(crate) array_ids: Arc<[Arc<str>]>,
    pub(crate) registry: Registry,
    pub(crate) limits: Limits,
    pub(crate) tail: KeptTail,
}

impl SegmentTable {
    /// The table of a file of `file_size` bytes, the last of which are `end`.
    ///
    /// # Errors
    /// If a segment is not within the file, or is stored in an unknown way.
    pub(crate) fn try_new(
        tables: &FooterTables,
        end: &Buffer,
        file_size: u64,
        registry: &Registry,
        limits: &Limits,
    ) -> Result<Self> {
        let segments = segments(tables, file_size)?;
        Ok(Self {
            checksums: None,
            array_ids: Arc::clone(&tables.array_ids),
            registry: registry.clone(),
            limits: *limits,
            tail: KeptTail::new(&segments, end, file_size - end.len() as u64),
            segments,
        })
    }

    /// All segments.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// One segment.
    ///
    /// # Errors
    /// If the table has no such segment.
    pub(crate) fn segment(&self, id: SegmentId) -> Result<Segment> {
        let segment = self.segments.get(id.0 as usize).copied();
        segment.ok_or_else(|| Error::corrupt(format!("segment {} of {}", id.0, self.segments.len())))
    }

    /// Whether the array of a segment can only be read from all of its bytes.
    pub(crate) fn must_read_whole(&self, id: SegmentId) -> Result<bool> {
        Ok(self.checksums.is_some() || self.segment(id)?.compression.is_some())
    }

    /// Whether there are arrays that can only be read from all bytes of their segments.
    pub(crate) fn any_must_be_read_whole(&self) -> bool {
        self.checksums.is_some() || self.segments.iter().any(|segment| segment.compression.is_some())
    }

    /// The bytes of a segment in the form in which its array is stored: verified against their checksum,
    /// if requested, and decompressed.
    pub(crate) fn unpack(&self, id: SegmentId, bytes: Buffer) -> Result<Buffer> {
        if let Some(checksums) = &self.checksums {
            checksums.check(id, &bytes)?;
        }
        match self.segment(id)?.compression {
            None => Ok(bytes),
            Some(scheme) => {
                let bytes = scheme.decompress(&bytes, self.limits.max_decoded_bytes)?;
                self.limits.count_bytes(bytes.len() as u64)?;
                Ok(bytes.into())
            }
        }
    }
}

fn segments(tables: &FooterTables, file_size: u64) -> Result<Box<[Segment]>> {
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
