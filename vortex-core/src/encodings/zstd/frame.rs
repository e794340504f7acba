//! Frames, which are decompressed as a whole, and the values in them.

use std::cell::RefCell;
use std::io::Cursor;
use std::ops::Range;

use arrow::buffer::Buffer;
use zstd::bulk::Decompressor;

use crate::kernels::views::view_of;
use crate::{Error, Result};

/// Number of bytes of the length before each string.
pub(super) const PREFIX: usize = 4;

#[derive(Debug)]
pub(super) struct Frame {
    /// Empty if none of its values will be needed.
    pub(super) bytes: Buffer,
    pub(super) size: usize,
    /// The range of its values among those of the array; `None` if unknown, in which case it holds all of them.
    pub(super) values: Option<Range<usize>>,
}

/// All values of a frame.
#[derive(Debug)]
pub(super) struct DecodedFrame {
    /// Views of strings into the bytes.
    pub(super) views: Vec<u128>,
    pub(super) bytes: Buffer,
}

impl Frame {
    pub(super) fn decode_numbers(&self, context: &mut Decompressor<'_>) -> Result<DecodedFrame> {
        let mut bytes = Vec::with_capacity(self.size);
        append(context, &self.bytes, self.size, &mut bytes)?;
        Ok(DecodedFrame { views: Vec::new(), bytes: Buffer::from_vec(bytes) })
    }

    pub(super) fn decode_strings(
        &self,
        context: &mut Decompressor<'_>,
        count: usize,
    ) -> Result<DecodedFrame> {
        let mut views = Vec::new();
        let bytes = self.append_strings(context, count, &[Range { start: 0, end: count }], 0, &mut views)?;
        Ok(DecodedFrame { views, bytes })
    }

    /// Decompresses the frame, of `count` strings, and appends views of those in `runs` to the bytes that it returns,
    /// which have the number `buffer`.
    pub(super) fn append_strings(
        &self,
        context: &mut Decompressor<'_>,
        count: usize,
        runs: &[Range<usize>],
        buffer: u32,
        views: &mut Vec<u128>,
    ) -> Result<Buffer> {
        if i32::try_from(self.size).is_err() {
            return Err(Error::limit(format!("zstd frame of {} bytes of strings", self.size)));
        }
        let mut decompressed = Vec::with_capacity(self.size);
        append(context, &self.bytes, self.size, &mut decompressed)?;
        let (bytes, mut at, mut value) = (decompressed.as_mut_slice(), 0, 0);
        let mut next = |value: &mut usize, wanted: Option<&mut Vec<u128>>| {
            let prefix = bytes[at..].first_chunk_mut::<PREFIX>();
            let prefix =
                prefix.ok_or_else(|| Error::corrupt(format!("length of value {value} is missing")))?;
            let len = u32::from_le_bytes(*prefix);
            // Zero bytes between the strings are also valid text, so that all strings can be validated at once.
            *prefix = [0; PREFIX];
            at += PREFIX;
            if len as usize > bytes.len() - at {
                return Err(Error::corrupt(format!("value {value} has {len} bytes of {}", bytes.len() - at)));
            }
            if let Some(views) = wanted {
                // The frame has less than 2^31 bytes.
                views.push(view_of(bytes, at, len, buffer, at as u32));
            }
            at += len as usize;
            *value += 1;
            Ok(())
        };
        for run in runs {
            while value < run.start {
                next(&mut value, None)?;
            }
            while value < run.end {
                next(&mut value, Some(views))?;
            }
        }
        while value < count {
            next(&mut value, None)?;
        }
        if at != bytes.len() {
            return Err(Error::corrupt(format!("{} bytes after the last value", bytes.len() - at)));
        }
        Ok(Buffer::from_vec(decompressed))
    }
}

/// Decompresses one frame, written without a dictionary, that must have exactly `size` bytes.
///
/// # Errors
/// If it has another size, or is not a frame.
pub(in crate::encodings) fn decompress(frame: &[u8], size: usize) -> Result<Vec<u8>> {
    check_size(frame, size)?;
    let mut decoded = Vec::with_capacity(size);
    without_dictionary(|context| append(context, frame, size, &mut decoded))?;
    Ok(decoded)
}

/// Runs `run` with the context of this thread: creating one takes longer than decompressing a small frame. It must not
/// ask for the context again.
pub(super) fn without_dictionary<R>(run: impl FnOnce(&mut Decompressor<'_>) -> Result<R>) -> Result<R> {
    thread_local! {
        static CONTEXT: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
    }
    CONTEXT.with_borrow_mut(|context| match context {
        Some(context) => run(context),
        None => run(context.insert(Decompressor::new().map_err(broken)?)),
    })
}

/// Checks that a frame claims to have so many bytes, and is long enough for them: space for them may be reserved.
pub(super) fn check_size(frame: &[u8], size: usize) -> Result<()> {
    /// Maximum number of bytes to which a block of a frame can decode, and the minimum size of a block.
    const BLOCK: usize = 128 << 10;
    const SMALLEST_BLOCK: usize = 4;

    let claimed = zstd::zstd_safe::get_frame_content_size(frame);
    if !matches!(claimed, Ok(Some(claimed)) if claimed == size as u64) {
        return Err(Error::corrupt(format!("zstd frame does not claim to hold {size} bytes")));
    }
    if size / BLOCK > frame.len() / SMALLEST_BLOCK + 1 {
        return Err(Error::corrupt(format!("zstd frame of {} bytes cannot hold {size}", frame.len())));
    }
    Ok(())
}

/// Appends the bytes of a frame whose size was checked.
pub(super) fn append(
    context: &mut Decompressor<'_>,
    frame: &[u8],
    size: usize,
    to: &mut Vec<u8>,
) -> Result<()> {
    let start = to.len();
    to.reserve(size);
    let mut end = Cursor::new(&mut *to);
    end.set_position(start as u64);
    let written = context.decompress_to_buffer(frame, &mut end).map_err(broken)?;
    if written != size || to.len() - start != size {
        return Err(Error::corrupt(format!("zstd frame holds {written} bytes instead of {size}")));
    }
    Ok(())
}

pub(super) fn broken(error: std::io::Error) -> Error {
    Error::corrupt(format!("zstd frame: {error}"))
}
