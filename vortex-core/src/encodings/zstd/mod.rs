//! Zstandard frames with the values of valid rows.
//!
//! ```text
//! buffers   [dictionary] frame 0, frame 1, ...
//! frame     numbers: little endian         strings: [u32 length][bytes] ...
//! rows      a  -  b  c  -      values  a b | c     (two frames)
//! ```
//!
//! Metadata: the size of the dictionary (0 if there is none), and the decoded size and value count of
//! each frame; early writers left out the latter. Optional child: the validity. A value never spans
//! several frames.
//!
//! Slices keep track of their rows; decoding, filter and take decompress only frames that contain a
//! wanted value. Views of strings refer to the decompressed frames.

mod encode;
mod frame;

use std::ops::Range;
use std::sync::Arc;

use arrow::buffer::Buffer;
use arrow::datatypes::{ArrowPrimitiveType, DataType};
use zstd::bulk::Decompressor;

use self::frame::{DecodedFrame, Frame, PREFIX, append, broken, check_size, without_dictionary};
use super::Encoding;
use super::shared::part_cache::{Cost, PartCache};
use super::shared::valid_rows::{StoredValues, ValidRows, ValidRowsArray, spread};
use crate::array::{
    ArrayRef, EncodedArray as _, EncodedRef, Node, Pick, bytes, fixed_width, indices, present,
};
use crate::dtype::arrow::primitive;
use crate::dtype::{DType, match_ptype};
use crate::kernels::views::{VIEW_BYTES, append_renumbered};
use crate::limits::Work;
use crate::mask::Mask;
use crate::{Error, Result};

pub(crate) use encode::{FrameWriter, byte_len, encode_numbers};
pub(super) use frame::decompress;

/// The `vortex.zstd` encoding.
#[derive(Debug)]
pub(in crate::encodings) struct Zstd;

pub(crate) const ID: &str = "vortex.zstd";

/// Frames with more values than two splits have rows, or with more bytes than several of them decode to, are large.
const LARGE_FRAME_VALUES: usize = 128 << 10;
const LARGE_FRAME_BYTES: usize = 64 << 20;
/// So are frames of this many bytes whose values are spread over this many rows: many splits have few of them, between
/// nulls.
const SPREAD_FRAME_BYTES: usize = 1 << 20;
const SPREAD_FRAME_ROWS: usize = 1 << 20;

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(uint32, tag = "1")]
    dictionary_size: u32,
    #[prost(message, repeated, tag = "2")]
    frames: Vec<FrameMetadata>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct FrameMetadata {
    #[prost(uint64, tag = "1")]
    uncompressed_size: u64,
    #[prost(uint64, tag = "2")]
    value_count: u64,
}

impl FrameMetadata {
    fn size(&self) -> Result<usize> {
        usize::try_from(self.uncompressed_size).map_err(Error::limit)
    }

    /// The number of values of `width` bytes, or with lengths, in this one of `frame_count` frames, if it
    /// is stated.
    fn count(&self, width: Option<usize>, frame_count: usize) -> Result<Option<usize>> {
        let size = self.size()?;
        match width {
            Some(width) if size % width != 0 => {
                Err(Error::corrupt(format!("frame of {size} bytes for values of {width}")))
            }
            Some(width) => Ok(Some(size / width)),
            // Only a single frame may lack its count.
            None if self.value_count == 0 && frame_count == 1 => Ok(None),
            None if self.value_count == 0 && size > 0 => {
                Err(Error::corrupt(format!("frame of {size} bytes lacks its value count")))
            }
            None => usize::try_from(self.value_count).map_err(Error::limit).map(Some),
        }
    }
}

impl Encoding for Zstd {
    fn id(&self) -> &'static str {
        ID
    }

    /// Large frames are decompressed at once: if each of many slices did so, a file of a few kilobytes took hours.
    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let array = ZstdArray::load(node, None)?;
        if array.has_large_frames() { Ok(Arc::new(array.to_decoded()?)) } else { Ok(Arc::new(array)) }
    }

    /// Loads only the frames that contain values of the rows.
    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        ZstdArray::load(node, Some(rows))?.pick(Pick::Take(&indices(rows)))
    }
}

#[derive(Debug)]
struct Frames {
    all: Vec<Frame>,
    dictionary: Option<Buffer>,
    cache: PartCache,
}

type ZstdArray = ValidRowsArray<Frames>;

impl StoredValues for Frames {
    fn byte_len(&self) -> usize {
        self.all.iter().map(|frame| frame.bytes.len()).sum()
    }

    fn decode_rows(array: &ZstdArray, mask: &Mask, to: &DataType) -> Result<ArrayRef> {
        let (live, nulls) = array.rows.select(mask)?;
        array.limits().count_rows(mask.true_count(), array.dtype().row_bytes_hint())?;
        let wanted = array.wanted(&live)?;
        let count = live.true_count();
        match array.dtype() {
            DType::Primitive(ptype, _) => {
                let width = ptype.byte_width();
                let bytes = array.with_context(|context| array.numbers(context, &wanted, width, count))?;
                let bytes = bytes::aligned(bytes, ptype.byte_width());
                let rows = match &nulls {
                    None => bytes,
                    Some(_) => match_ptype!(*ptype, |T| {
                        let values = bytes.typed_data::<<T as ArrowPrimitiveType>::Native>().to_vec();
                        Buffer::from_vec(spread(values, nulls.as_ref()))
                    }),
                };
                present(fixed_width(primitive(*ptype), mask.true_count(), rows, nulls)?, to)
            }
            dtype => {
                let (values, buffers) =
                    array.with_context(|context| array.strings(context, &wanted, count))?;
                let views = spread(values, nulls.as_ref());
                bytes::from_views(dtype, to, views.into(), buffers.into(), nulls, array.limits())
            }
        }
    }
}

/// A frame with wanted values.
struct Wanted<'a> {
    /// The number of the frame.
    at: usize,
    frame: &'a Frame,
    /// Number of values in the frame.
    count: usize,
    /// Runs of wanted values, relative to the first value of the frame.
    runs: Vec<Range<usize>>,
}

impl Wanted<'_> {
    fn is_whole(&self) -> bool {
        matches!(self.runs.as_slice(), [run] if *run == (0..self.count))
    }
}

impl ZstdArray {
    /// Loads a node, with only those of its frames that contain values of the rows in `asked_for`; `None`
    /// means all rows.
    fn load(node: &Node<'_>, asked_for: Option<&[usize]>) -> Result<Self> {
        let width = match node.dtype() {
            DType::Primitive(ptype, _) => Some(ptype.byte_width()),
            other => bytes::is_text(other).map(|_| None)?,
        };
        let metadata = node.message::<Metadata>()?;
        let first = usize::from(metadata.dictionary_size > 0);
        node.expect_buffers(first + metadata.frames.len())?;
        let rows = ValidRows::new(node.validity_child(0)?, node.len());
        let live = asked_for.map(|asked_for| rows.live(asked_for)).transpose()?;
        let mut places = Vec::with_capacity(metadata.frames.len());
        let mut start = 0usize;
        for frame in &metadata.frames {
            let count = frame.count(width, metadata.frames.len())?;
            let end = start
                .checked_add(count.unwrap_or_default())
                .filter(|end| *end <= node.len())
                .ok_or_else(|| Error::corrupt(format!("frames hold more values than {} rows", node.len())))?;
            places.push(count.map(|_| start..end));
            start = end;
        }
        let wanted = |values: &Option<Range<usize>>| match (&live, values) {
            (None, _) | (_, None) => true,
            (Some(live), Some(values)) => live.any_within(values),
        };
        let dictionary = node.buffers(0, std::iter::repeat_n(true, first));
        let frames = node.buffers(first, places.iter().map(wanted))?.into_iter();
        let frames = frames.zip(metadata.frames).zip(places);
        let frames = frames.map(|((bytes, frame), values)| Ok(Frame { bytes, size: frame.size()?, values }));
        let dictionary = dictionary?.pop();
        let size = dictionary.as_ref().map_or(0, Buffer::len);
        if size != metadata.dictionary_size as usize {
            let claimed = metadata.dictionary_size;
            return Err(Error::corrupt(format!("dictionary of {size} bytes, not {claimed}")));
        }
        let all = frames.collect::<Result<Vec<_>>>()?;
        let size = all.iter().map(|frame| frame.size).fold(0, usize::saturating_add);
        Ok(Self {
            header: node.header(ID),
            stored: Arc::new(Frames { all, dictionary, cache: PartCache::new(size) }),
            rows,
        })
    }

    /// Whether there are frames that hold the values of many splits. Writers make frames of 8,192 values, or of one
    /// chunk.
    fn has_large_frames(&self) -> bool {
        let len = self.len();
        let values = |frame: &Frame| frame.values.as_ref().map_or(len, Range::len);
        let total = self.stored.all.iter().map(values).sum::<usize>().max(1);
        let is_large = |frame: &Frame| {
            let values = values(frame);
            // The rows that these values are spread over, if all rows have as many.
            let rows = values as u128 * len as u128 / total as u128;
            let is_spread = rows > SPREAD_FRAME_ROWS as u128 && frame.size > SPREAD_FRAME_BYTES;
            values > LARGE_FRAME_VALUES || (values > 1 && (frame.size > LARGE_FRAME_BYTES || is_spread))
        };
        self.stored.all.iter().any(is_large)
    }

    /// The frames that contain live values. `live` has one bit per value of these rows.
    fn wanted(&self, live: &Mask) -> Result<Vec<Wanted<'_>>> {
        let total = self.rows.total()?;
        let live_in = self.rows.live_in(live)?;
        let _work = Work::begin();
        let (mut found, mut wanted) = (0, Vec::new());
        for (at, frame) in self.stored.all.iter().enumerate() {
            let own = frame.values.clone().unwrap_or(0..total);
            found += own.len();
            let Some((live, offset)) = live_in(&own) else { continue };
            let runs = live.runs().into_iter().map(|run| run.start + offset..run.end + offset).collect();
            self.limits().count_bytes(frame.size as u64)?;
            check_size(&frame.bytes, frame.size)?;
            wanted.push(Wanted { at, frame, count: own.len(), runs });
        }
        if found != total {
            return Err(Error::corrupt(format!("frames hold {found} values for {total} valid rows")));
        }
        Ok(wanted)
    }

    /// Runs `run` with a context that knows the dictionary.
    fn with_context<R>(&self, run: impl FnOnce(&mut Decompressor<'_>) -> Result<R>) -> Result<R> {
        match self.stored.dictionary.as_deref() {
            Some(dictionary) => {
                // The context copies it.
                self.limits().count_bytes(dictionary.len() as u64)?;
                run(&mut Decompressor::with_dictionary(dictionary).map_err(broken)?)
            }
            None => without_dictionary(run),
        }
    }

    /// All values of a frame of which some are wanted, if it is decompressed often.
    fn kept(
        &self,
        wanted: &Wanted<'_>,
        decode: impl FnOnce() -> Result<DecodedFrame>,
    ) -> Result<Option<Arc<DecodedFrame>>> {
        if wanted.is_whole() {
            return Ok(None);
        }
        let Frame { size, .. } = *wanted.frame;
        let in_memory = size.saturating_add(wanted.count.saturating_mul(VIEW_BYTES));
        self.stored.cache.get(wanted.at, Cost { of_slice: size, in_memory }, decode)
    }

    /// The wanted numbers of all frames, `count` of `width` bytes. A single run of one frame is not copied, nor are
    /// frames of which all are wanted.
    fn numbers(
        &self,
        context: &mut Decompressor<'_>,
        frames: &[Wanted<'_>],
        width: usize,
        count: usize,
    ) -> Result<Buffer> {
        if let [wanted] = frames
            && let [run] = wanted.runs.as_slice()
        {
            let bytes = match self.kept(wanted, || wanted.frame.decode_numbers(context))? {
                Some(kept) => kept.bytes.clone(),
                None => wanted.frame.decode_numbers(context)?.bytes,
            };
            return Ok(bytes.slice_with_length(run.start * width, run.len() * width));
        }
        let (mut bytes, mut scratch) = (Vec::with_capacity(count * width), Vec::new());
        for wanted in frames {
            if wanted.is_whole() {
                append(context, &wanted.frame.bytes, wanted.frame.size, &mut bytes)?;
                continue;
            }
            let kept = self.kept(wanted, || wanted.frame.decode_numbers(context))?;
            let decoded: &[u8] = match &kept {
                Some(kept) => &kept.bytes,
                None => {
                    scratch.clear();
                    append(context, &wanted.frame.bytes, wanted.frame.size, &mut scratch)?;
                    &scratch
                }
            };
            for run in &wanted.runs {
                bytes.extend_from_slice(&decoded[run.start * width..run.end * width]);
            }
        }
        Ok(Buffer::from_vec(bytes))
    }

    /// Views of the wanted strings of all frames, `count` of them, and the decompressed frames that they refer to.
    fn strings(
        &self,
        context: &mut Decompressor<'_>,
        frames: &[Wanted<'_>],
        count: usize,
    ) -> Result<(Vec<u128>, Vec<Buffer>)> {
        // Each string takes at least its length.
        let most = frames.iter().map(|wanted| wanted.frame.size / PREFIX).fold(0, usize::saturating_add);
        let mut views = Vec::with_capacity(count.min(most));
        let mut buffers = Vec::with_capacity(frames.len());
        for wanted in frames {
            let buffer = u32::try_from(buffers.len()).map_err(Error::limit)?;
            let Wanted { frame, count, runs, .. } = wanted;
            buffers.push(match self.kept(wanted, || frame.decode_strings(context, *count))? {
                Some(kept) => {
                    runs.iter()
                        .for_each(|run| append_renumbered(&kept.views[run.clone()], buffer, &mut views));
                    kept.bytes.clone()
                }
                None => frame.append_strings(context, *count, runs, buffer, &mut views)?,
            });
        }
        Ok((views, buffers))
    }
}

#[cfg(test)]
mod tests;
