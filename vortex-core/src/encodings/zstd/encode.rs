//! Compressing strings and numbers into frames.

use std::cell::RefCell;
use std::io::Write as _;

use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use zstd::bulk::Compressor;
use zstd::stream::write::Encoder;
use zstd::zstd_safe::compress_bound;

use super::{FrameMetadata, ID, Metadata};
use crate::kernels::Word;
use crate::wire::WriteNode;
use crate::{Error, Result};

/// Length in bytes of values that are frames of their own.
const LONG_VALUE_BYTES: usize = 1 << 20;

/// Writes rows of strings as frames.
pub(crate) struct FrameWriter {
    level: i32,
    payload: Vec<u8>,
    scratch: Vec<u8>,
    frames: Vec<(Buffer, FrameMetadata)>,
    frame_bytes: usize,
    values: u64,
}

impl FrameWriter {
    /// Writes frames of at least `frame_bytes` bytes before compression.
    pub(crate) fn new(level: i32, frame_bytes: usize) -> Self {
        let (payload, scratch, frames) = (Vec::new(), Vec::new(), Vec::new());
        Self { level, payload, scratch, frames, frame_bytes, values: 0 }
    }

    /// Adds a valid value.
    ///
    /// # Errors
    /// If it is too long, or compression fails.
    pub(crate) fn push(&mut self, value: &[u8]) -> Result<()> {
        let len = u32::try_from(value.len()).map_err(Error::limit)?;
        if value.len() >= LONG_VALUE_BYTES {
            return self.push_long(len, value);
        }
        self.payload.extend_from_slice(&len.to_le_bytes());
        self.payload.extend_from_slice(value);
        self.values += 1;
        if self.payload.len() >= self.frame_bytes { self.end_frame() } else { Ok(()) }
    }

    /// Adds a value as a frame of its own, without a copy of it.
    fn push_long(&mut self, len: u32, value: &[u8]) -> Result<()> {
        if self.values > 0 {
            self.end_frame()?;
        }
        let uncompressed_size = (size_of::<u32>() + value.len()) as u64;
        let frame = || {
            let mut encoder = Encoder::new(Vec::new(), self.level)?;
            encoder.set_pledged_src_size(Some(uncompressed_size))?;
            encoder.write_all(&len.to_le_bytes())?;
            encoder.write_all(value)?;
            encoder.finish()
        };
        let mut frame = frame().map_err(Error::external)?;
        frame.shrink_to_fit();
        self.frames.push((Buffer::from_vec(frame), FrameMetadata { uncompressed_size, value_count: 1 }));
        Ok(())
    }

    fn end_frame(&mut self) -> Result<()> {
        let frame = compress(&self.payload, self.level, &mut self.scratch)?.into();
        let uncompressed_size = self.payload.len() as u64;
        self.frames.push((frame, FrameMetadata { uncompressed_size, value_count: self.values }));
        self.payload.clear();
        self.values = 0;
        Ok(())
    }

    /// A node of the values added.
    ///
    /// # Errors
    /// If compression fails.
    pub(crate) fn finish(mut self, validity: Option<WriteNode>) -> Result<WriteNode> {
        if self.values > 0 {
            self.end_frame()?;
        }
        Ok(node(self.frames, validity))
    }
}

/// Numbers as frames of approximately `frame_bytes` bytes before compression. Those of null rows are left out.
///
/// # Errors
/// If compression fails, as it does at unsupported levels.
pub(crate) fn encode_numbers<W: Word>(
    values: &ScalarBuffer<W>,
    nulls: Option<&NullBuffer>,
    level: i32,
    frame_bytes: usize,
    validity: Option<WriteNode>,
) -> Result<WriteNode> {
    let valid: ScalarBuffer<W> = match nulls {
        Some(nulls) => nulls.valid_indices().map(|row| values[row]).collect(),
        None => values.clone(),
    };
    let step = (frame_bytes / size_of::<W>()).max(1);
    let mut scratch = Vec::new();
    let frames = (0..valid.len()).step_by(step).map(|at| {
        let values = valid.slice(at, step.min(valid.len() - at));
        let frame = compress(values.inner(), level, &mut scratch)?.into();
        let (uncompressed_size, value_count) = (values.inner().len() as u64, values.len() as u64);
        Ok((frame, FrameMetadata { uncompressed_size, value_count }))
    });
    Ok(node(frames.collect::<Result<_>>()?, validity))
}

/// The compressed size of numbers in a single frame.
///
/// # Errors
/// If compression fails, as it does at unsupported levels.
pub(crate) fn byte_len<W: Word>(values: &[W], level: i32) -> Result<usize> {
    let values: ScalarBuffer<W> = values.iter().copied().collect();
    Ok(compress(values.inner(), level, &mut Vec::new())?.len())
}

fn node(frames: Vec<(Buffer, FrameMetadata)>, validity: Option<WriteNode>) -> WriteNode {
    let (frames, metadata): (Vec<_>, Vec<_>) = frames.into_iter().unzip();
    let node = WriteNode::new(ID).message(&Metadata { dictionary_size: 0, frames: metadata });
    frames.into_iter().fold(node, |node, frame| node.buffer(frame, 1)).children(validity)
}

/// Compresses bytes to `scratch`, which takes as much memory as incompressible bytes would; a frame that is kept
/// must thus be copied.
fn compress<'a>(bytes: &[u8], level: i32, scratch: &'a mut Vec<u8>) -> Result<&'a [u8]> {
    thread_local! {
        /// One context per thread: creating one takes longer than compressing a few kilobytes.
        static CONTEXT: RefCell<Option<(i32, Compressor<'static>)>> = const { RefCell::new(None) };
    }
    let failed = |error: std::io::Error| Error::external(error);
    CONTEXT.with_borrow_mut(|context| {
        if context.as_ref().is_none_or(|(of, _)| *of != level) {
            *context = Some((level, Compressor::new(level).map_err(failed)?));
        }
        let (_, compressor) = context.as_mut().expect("was made above");
        scratch.clear();
        scratch.reserve(compress_bound(bytes.len()));
        compressor.compress_to_buffer(bytes, scratch).map_err(failed)?;
        Ok(scratch.as_slice())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_take_no_more_memory_than_they_need() {
        let mut frames = FrameWriter::new(3, 1 << 10);
        frames.push(&[7; 100 << 10]).unwrap();
        let frame = &frames.frames[0].0;
        assert!(frame.capacity() < 1000, "{} of {}", frame.len(), frame.capacity());
    }

    #[test]
    fn a_long_value_is_a_frame_of_its_own_and_is_not_copied() {
        let mut frames = FrameWriter::new(3, 1 << 10);
        let long = vec![7; LONG_VALUE_BYTES];
        for value in [&[1, 2][..], &long, &long, &[3]] {
            frames.push(value).unwrap();
        }
        assert!(frames.payload.capacity() < 2 << 10);
        let counts: Vec<_> = frames.frames.iter().map(|(_, frame)| frame.value_count).collect();
        assert_eq!((counts, frames.values), (vec![1, 1, 1], 1));
        let (frame, metadata) = &frames.frames[1];
        let mut expected = (LONG_VALUE_BYTES as u32).to_le_bytes().to_vec();
        expected.extend(&long);
        assert_eq!(zstd::bulk::decompress(frame, metadata.uncompressed_size as usize).unwrap(), expected);
    }
}
