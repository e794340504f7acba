//! Compressing strings into frames.

use super::{FrameMetadata, ID, Metadata};
use crate::wire::WriteNode;
use crate::{Error, Result};

/// Rows of strings as frames.
pub(crate) struct FrameWriter {
    compressor: zstd::bulk::Compressor<'static>,
    payload: Vec<u8>,
    frames: Vec<(Vec<u8>, FrameMetadata)>,
    frame_bytes: usize,
    values: u64,
}

impl FrameWriter {
    /// Frames of at least `frame_bytes` bytes before compression.
    ///
    /// # Errors
    /// If there is no such level of compression.
    pub(crate) fn try_new(level: i32, frame_bytes: usize) -> Result<Self> {
        let compressor = zstd::bulk::Compressor::new(level).map_err(|error| Error::External(error.into()))?;
        Ok(Self { compressor, payload: Vec::new(), frames: Vec::new(), frame_bytes, values: 0 })
    }

    /// Adds a valid value.
    ///
    /// # Errors
    /// If it is too long, or compression fails.
    pub(crate) fn push(&mut self, value: &[u8]) -> Result<()> {
        let len = u32::try_from(value.len()).map_err(Error::limit)?;
        self.payload.extend_from_slice(&len.to_le_bytes());
        self.payload.extend_from_slice(value);
        self.values += 1;
        if self.payload.len() >= self.frame_bytes { self.end_frame() } else { Ok(()) }
    }

    fn end_frame(&mut self) -> Result<()> {
        let failed = |error: std::io::Error| Error::External(error.into());
        let frame = self.compressor.compress(&self.payload).map_err(failed)?;
        let uncompressed_size = self.payload.len() as u64;
        self.frames.push((frame, FrameMetadata { uncompressed_size, value_count: self.values }));
        self.payload.clear();
        self.values = 0;
        Ok(())
    }

    /// The node of the values added.
    ///
    /// # Errors
    /// If compression fails.
    pub(crate) fn finish(mut self, validity: Option<WriteNode>) -> Result<WriteNode> {
        if self.values > 0 {
            self.end_frame()?;
        }
        let (frames, metadata): (Vec<_>, Vec<_>) = self.frames.into_iter().unzip();
        let node = WriteNode::new(ID).message(&Metadata { dictionary_size: 0, frames: metadata });
        let node = frames.into_iter().fold(node, |node, frame| node.buffer(frame.into(), 1));
        Ok(node.children(validity))
    }
}
