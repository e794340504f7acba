//! The bytes of a file, from the magic to the end-of-file record.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};

use super::WriteOptions;
use crate::bloom::BLOOM_FILTERS_KEY;
use crate::dtype::DType;
use crate::file::{ARROW_SCHEMA_KEY, MAGIC, SegmentCompression, VERSION, VERSION_KEY};
use crate::io::Sink;
use crate::segments::checksums::{CHECKSUMS_KEY, Checksums, checksum, checksum_of};
use crate::stats::FieldStats;
use crate::wire::{
    FooterTables, Ids, MAX_USER_METADATA, Postscript, PostscriptSegment, SegmentSpec, WriteLayout, WriteNode,
    dtype_to_bytes, file_statistics_to_bytes,
};
use crate::{Error, Result};

/// The alignment stated in postscript entries; the actual positions may be arbitrary.
const PART_ALIGNMENT_EXPONENT: u8 = 3;

/// A file being written.
#[derive(Debug)]
pub(super) struct Container {
    sink: Box<dyn Sink>,
    position: u64,
    segments: Vec<SegmentSpec>,
    ids: Ids,
    compression: Option<SegmentCompression>,
    /// Checksums of the segments, if requested.
    checksums: Option<Vec<u64>>,
}

/// The end of a finished file, which starts at `start` and describes the file.
#[derive(Debug)]
pub(super) struct Tail {
    pub(super) start: u64,
    pub(super) bytes: Bytes,
}

impl Container {
    pub(super) fn new(sink: Box<dyn Sink>, options: &WriteOptions) -> Self {
        Self {
            sink,
            position: 0,
            segments: Vec::new(),
            ids: Ids::default(),
            compression: options.segment_compression,
            checksums: options.checksums.then(Vec::new),
        }
    }

    pub(super) fn sink(&self) -> &dyn Sink {
        self.sink.as_ref()
    }

    /// Number of bytes written so far.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    async fn append(&mut self, bytes: Bytes) -> Result<()> {
        self.position += bytes.len() as u64;
        self.sink.write(bytes).await
    }

    /// Writes zeros up to a multiple of `1 << exponent`.
    async fn pad(&mut self, exponent: u8) -> Result<()> {
        static ZEROS: [u8; 1 << 15] = [0; 1 << 15];
        if self.position == 0 {
            self.append(Bytes::from_static(MAGIC)).await?;
        }
        let padding = self.position.next_multiple_of(1 << exponent) - self.position;
        match padding {
            0 => Ok(()),
            // The padding is shorter than the alignment, which is at most that of the widest values.
            padding => self.append(Bytes::from_static(&ZEROS[..padding as usize])).await,
        }
    }

    /// Writes an array as the next segment; returns its id and length.
    pub(super) async fn segment(&mut self, node: &WriteNode) -> Result<(u32, u32)> {
        let mut blob = node.to_blob(&mut self.ids)?;
        if let Some(scheme) = self.compression {
            blob = scheme.compress(&blob)?;
        }
        let length = u32::try_from(blob.len())
            .map_err(|_| Error::limit(format!("a segment of {} bytes, 2^32 - 1 allowed", blob.len())))?;
        let id = u32::try_from(self.segments.len()).map_err(|_| Error::limit("more than 2^32 segments"))?;
        let alignment_exponent = node.alignment_exponent();
        self.pad(alignment_exponent).await?;
        let offset = self.position;
        let compression = self.compression.map_or(0, |scheme| scheme as u8);
        self.segments.push(SegmentSpec { offset, length, alignment_exponent, compression, encryption: 0 });
        if let Some(checksums) = &mut self.checksums {
            checksums.push(checksum(&blob));
        }
        self.append(blob.into()).await?;
        Ok((id, length))
    }

    /// Writes bytes that are no segment; returns their position.
    pub(super) async fn unlisted(&mut self, bytes: Bytes) -> Result<u64> {
        self.pad(PART_ALIGNMENT_EXPONENT).await?;
        let offset = self.position;
        self.append(bytes).await?;
        Ok(offset)
    }

    /// Writes the description of the file, and completes it.
    pub(super) async fn finish(
        &mut self,
        dtype: &DType,
        layout: &WriteLayout,
        statistics: &[FieldStats],
        metadata: &[(Arc<str>, Bytes)],
    ) -> Result<Tail> {
        self.pad(PART_ALIGNMENT_EXPONENT).await?;
        let start = self.position;
        let mut tail = BytesMut::new();
        let mut part = |bytes: &[u8]| -> Result<PostscriptSegment> {
            let offset = start + tail.len() as u64;
            let length = u32::try_from(bytes.len())
                .map_err(|_| Error::limit(format!("a description of {} bytes", bytes.len())))?;
            tail.put_slice(bytes);
            Ok(PostscriptSegment { offset, length, alignment_exponent: PART_ALIGNMENT_EXPONENT })
        };
        let mut layout_ids = Ids::default();
        let layout = layout.to_bytes(&mut layout_ids)?;
        let tables = FooterTables {
            array_ids: std::mem::take(&mut self.ids).into_table(),
            layout_ids: layout_ids.into_table(),
            segments: std::mem::take(&mut self.segments),
        };
        let (dtype, tables) = (dtype_to_bytes(dtype), tables.to_bytes());
        let statistics = file_statistics_to_bytes(statistics);
        let description = [dtype.as_slice(), &layout, &statistics, &tables];
        let entries = metadata_entries(metadata, self.checksums.take(), description);
        let metadata = entries.iter().map(|(key, value)| {
            let entry = PostscriptSegment { alignment_exponent: 0, ..part(value)? };
            Ok((key.to_string(), entry))
        });
        let mut metadata = metadata.collect::<Result<Vec<_>>>()?;
        metadata.sort_by(|(left, _), (right, _)| left.cmp(right));
        let postscript = Postscript {
            dtype: Some(part(&dtype)?),
            layout: part(&layout)?,
            statistics: Some(part(&statistics)?),
            footer: part(&tables)?,
            metadata,
        };
        let postscript = postscript.to_bytes();
        let length = u16::try_from(postscript.len())
            .map_err(|_| Error::limit(format!("a postscript of {} bytes", postscript.len())))?;
        tail.put_slice(&postscript);
        tail.put_u16_le(VERSION);
        tail.put_u16_le(length);
        tail.put_slice(MAGIC);
        let bytes = tail.freeze();
        self.append(bytes.clone()).await?;
        self.sink.finish().await?;
        Ok(Tail { start, bytes })
    }

    /// Aborts the file; nothing of it remains.
    pub(super) async fn abort(&mut self) -> Result<()> {
        self.sink.abort().await
    }
}

/// The metadata of a file in the order in which it is written, with the version of this crate if there is room, and
/// with the checksums of all parts if those of the segments are given.
fn metadata_entries(
    metadata: &[(Arc<str>, Bytes)],
    segments: Option<Vec<u64>>,
    description: [&[u8]; 4],
) -> Vec<(Arc<str>, Bytes)> {
    let mut entries = metadata.to_vec();
    if entries.len() + usize::from(segments.is_some()) < MAX_USER_METADATA {
        entries.push((VERSION_KEY.into(), Bytes::from_static(env!("CARGO_PKG_VERSION").as_bytes())));
    }
    entries.sort();
    if let Some(segments) = segments {
        let checksums = Checksums {
            description: checksum_of(description),
            segments,
            entries: entries.iter().map(|(_, value)| checksum(value)).collect(),
        };
        entries.push((CHECKSUMS_KEY.into(), checksums.to_bytes().into()));
        entries.sort();
    }
    // What is read when opening the file is written last.
    entries.sort_by_key(|(key, _)| [ARROW_SCHEMA_KEY, BLOOM_FILTERS_KEY].contains(&&**key));
    entries
}
