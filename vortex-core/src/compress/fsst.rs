//! FSST for strings: one-byte codes for frequent substrings of up to eight bytes.

use super::numbers::compress_positions;
use super::scheme::{Context, Kind, Scheme};
use super::string::{Strings, TRIED_BYTES};
use crate::Result;
use crate::encodings::fsst;
use crate::encodings::shared::coded_text::TextParts;
use crate::release::since;
use crate::wire::WriteNode;

/// Number of bytes on which symbol tables are trained.
const TRAINED_BYTES: usize = 64 << 10;

/// With fewer bytes, training does not pay if another scheme works well.
const MIN_BYTES: usize = 64 << 10;

/// Bytes of a full table: each symbol has up to eight bytes, and a length.
const TABLE_BYTES: usize = 255 * (8 + 1);

/// Number of rows that are encoded in parallel.
const LANES: usize = ::fsst::Compressor::DEFAULT_BULK_LANES;

/// Codes for frequent substrings of up to eight bytes.
pub(super) struct Fsst;

impl Scheme<Strings<'_>> for Fsst {
    fn kind(&self) -> Kind {
        Kind::Fsst
    }

    fn estimate(&self, strings: &Strings<'_>, cx: &Context) -> Option<usize> {
        // Finding symbols takes as long for few bytes as for many; for few bytes, Zstandard is better.
        let is_short = strings.byte_len() < MIN_BYTES && cx.allows(Kind::Zstd);
        if strings.byte_len() == 0 || is_short {
            return None;
        }
        let tried = strings.sample(TRIED_BYTES);
        let bytes: usize = tried.iter().map(|row| row.len()).sum();
        let (mut codes, mut ends) = (Vec::new(), Vec::new());
        symbols(strings).compress_bulk_into::<LANES>(&tried, &mut codes, &mut ends);
        let codes = (codes.len() as f64 * strings.byte_len() as f64 / bytes.max(1) as f64) as usize;
        Some(codes + TABLE_BYTES + strings.row_bytes(codes))
    }

    fn encode(&self, strings: &Strings<'_>, cx: &Context) -> Result<Option<WriteNode>> {
        let (mut codes, mut ends) = (Vec::new(), Vec::new());
        let table = symbols(strings);
        table.compress_bulk_into::<LANES>(strings.rows(), &mut codes, &mut ends);
        if u32::try_from(codes.len()).is_err() {
            return Ok(None);
        }
        // All are below 2^32, since the last one is.
        let offsets = std::iter::once(0).chain(ends.into_iter().map(|end| end as u32)).collect();
        let below = cx.below(Kind::Fsst, &[]);
        let parts = TextParts {
            lengths: compress_positions(&below, strings.lengths()?, None)?,
            offsets: compress_positions(&below.without(&[Kind::Dictionary]), offsets, None)?,
            validity: strings.validity(cx)?,
        };
        Ok(Some(if cx.reader() >= since::FSST_CODES {
            fsst::encode(table, codes, parts)
        } else {
            fsst::encode_legacy(table, codes, parts)
        }))
    }
}

fn symbols<'a>(strings: &'a Strings<'_>) -> &'a ::fsst::Compressor {
    strings.symbols.get_or_init(|| ::fsst::Compressor::train(&strings.sample(TRAINED_BYTES)))
}
