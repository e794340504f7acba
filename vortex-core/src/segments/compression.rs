//! Segments compressed as a whole, as specified in the segment table.
//!
//! The format only names the schemes, and no other implementation writes them. Each is used in its
//! self-delimiting form: an LZ4 frame, a zlib stream, a Zstandard frame.

use std::io::{Read, Write as _};

use crate::{Error, Result};

/// The scheme with which a segment is compressed as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum SegmentCompression {
    /// LZ4.
    Lz4 = 1,
    /// zlib.
    Zlib = 2,
    /// Zstandard.
    Zstd = 3,
}

impl SegmentCompression {
    /// The scheme with this number in the segment table; `None` for 0, which means uncompressed.
    pub(super) fn try_from_number(number: u8) -> Result<Option<Self>> {
        Ok(Some(match number {
            0 => return Ok(None),
            1 => SegmentCompression::Lz4,
            2 => SegmentCompression::Zlib,
            3 => SegmentCompression::Zstd,
            other => return Err(Error::unsupported("segment compression", other)),
        }))
    }

    pub(crate) fn compress(self, bytes: &[u8]) -> Result<Vec<u8>> {
        let failed = |error: std::io::Error| Error::external(error);
        match self {
            SegmentCompression::Lz4 => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
                encoder.write_all(bytes).map_err(failed)?;
                encoder.finish().map_err(Error::external)
            }
            SegmentCompression::Zlib => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(bytes).map_err(failed)?;
                encoder.finish().map_err(failed)
            }
            SegmentCompression::Zstd => zstd::encode_all(bytes, 0).map_err(failed),
        }
    }

    /// Decompresses at most `max_bytes` bytes; memory grows only with the actual output.
    pub(super) fn decompress(self, bytes: &[u8], max_bytes: u64) -> Result<Vec<u8>> {
        match self {
            SegmentCompression::Lz4 => read(lz4_flex::frame::FrameDecoder::new(bytes), max_bytes),
            SegmentCompression::Zlib => read(flate2::read::ZlibDecoder::new(bytes), max_bytes),
            SegmentCompression::Zstd => {
                let decoder = zstd::Decoder::with_buffer(bytes);
                read(decoder.map_err(damaged)?, max_bytes)
            }
        }
    }
}

fn damaged(error: std::io::Error) -> Error {
    Error::corrupt(format!("compressed segment: {error}"))
}

fn read(decoder: impl Read, max_bytes: u64) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    decoder.take(max_bytes.saturating_add(1)).read_to_end(&mut out).map_err(damaged)?;
    if out.len() as u64 > max_bytes {
        return Err(Error::limit(format!("a segment decompresses to more than {max_bytes} bytes")));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [SegmentCompression; 3] =
        [SegmentCompression::Lz4, SegmentCompression::Zlib, SegmentCompression::Zstd];

    #[test]
    fn bytes_come_back_within_their_limit() {
        for scheme in ALL {
            assert_eq!(SegmentCompression::try_from_number(scheme as u8).unwrap(), Some(scheme));
            let bytes = vec![7; 100_000];
            let packed = scheme.compress(&bytes).unwrap();
            assert!(packed.len() < 2000, "{scheme:?}");
            assert_eq!(scheme.decompress(&packed, 100_000).unwrap(), bytes);
            assert!(matches!(scheme.decompress(&packed, 99_999), Err(Error::LimitExceeded(_))));
        }
        assert!(SegmentCompression::try_from_number(4).is_err());
    }

    #[test]
    fn damage_is_an_error_or_other_bytes() {
        for scheme in ALL {
            let packed = scheme.compress(b"some bytes, some bytes, some more bytes").unwrap();
            for len in 0..packed.len() {
                drop(scheme.decompress(&packed[..len], 1000));
            }
            for at in 0..packed.len() {
                let mut packed = packed.clone();
                packed[at] ^= 0x55;
                drop(scheme.decompress(&packed, 1000));
            }
        }
    }
}
