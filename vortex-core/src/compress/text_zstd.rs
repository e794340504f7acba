//! Zstandard for strings.

use super::scheme::{Context, Kind, Scheme};
use super::string::{Strings, TRIED_BYTES};
use super::zstd::level;
use crate::encodings::zstd;
use crate::wire::WriteNode;
use crate::{Level, Result};

/// Bytes of a frame before compression, all of which are decompressed to read a single row, at some 2 ns per
/// byte. Strings such as URLs and titles take 4 to 8 % more space in short frames than in long ones; documents
/// that repeat distant ones take several times as much, and are decompressed more slowly.
const SHORT_FRAME_BYTES: usize = 32 << 10;
const LONG_FRAME_BYTES: usize = 256 << 10;

/// Size in long frames, relative to that in short ones, below which frames are long at the default level.
const LONG_FRAMES_PAY: f64 = 0.75;

/// Size in long frames, relative to that in short ones, below which it hardly ever is.
const LONG_FRAMES_AT_BEST: f64 = 1.0 / 3.0;

/// Zstandard frames.
pub(super) struct Zstd;

impl Zstd {
    /// Bytes of a frame before compression, and the compressed size relative to that of the values.
    fn frames(strings: &Strings<'_>, cx: &Context) -> (usize, f64) {
        *strings.frames.get_or_init(|| {
            let ratio = |enough: usize, frame_bytes| {
                (frame_bytes, Self::ratio(strings, enough, frame_bytes, cx).unwrap_or(f64::INFINITY))
            };
            let few = (strings.byte_len() / 4).clamp(TRIED_BYTES / 8, TRIED_BYTES);
            if cx.level() == Level::Compact {
                return ratio(few, LONG_FRAME_BYTES);
            }
            let short = ratio(few, SHORT_FRAME_BYTES);
            let at_best = (short.1 * LONG_FRAMES_AT_BEST * strings.byte_len() as f64) as usize;
            if strings.byte_len() < 2 * LONG_FRAME_BYTES
                || !cx.may_pay(Kind::Zstd, at_best, strings.decoded())
            {
                return short;
            }
            let long = ratio(LONG_FRAME_BYTES, LONG_FRAME_BYTES);
            if long.1 >= short.1 * LONG_FRAMES_PAY {
                return short;
            }
            // Or are only the rows after the first few shorter?
            let short = ratio(LONG_FRAME_BYTES, SHORT_FRAME_BYTES);
            if long.1 < short.1 * LONG_FRAMES_PAY { long } else { short }
        })
    }

    /// Compressed size of values relative to their size, estimated from adjacent rows of so many bytes or all that
    /// follow.
    fn ratio(strings: &Strings<'_>, enough: usize, frame_bytes: usize, cx: &Context) -> Option<f64> {
        // Adjacent rows are representative, unlike rows far apart.
        let start = strings.len() / 3;
        let mut bytes = 0;
        let mut frames = zstd::FrameWriter::new(level(cx), frame_bytes);
        for row in &strings.rows()[start..] {
            // A row may be far longer.
            let row = &row[..row.len().min(enough - bytes)];
            frames.push(row).ok()?;
            bytes += row.len();
            if bytes == enough {
                break;
            }
        }
        Some(frames.finish(None).ok()?.byte_len() as f64 / bytes.max(1) as f64)
    }
}

impl Scheme<Strings<'_>> for Zstd {
    fn kind(&self) -> Kind {
        Kind::Zstd
    }

    fn estimate(&self, strings: &Strings<'_>, cx: &Context) -> Option<usize> {
        if strings.byte_len() == 0 {
            return None;
        }
        let (_, ratio) = Self::frames(strings, cx);
        ratio.is_finite().then_some((ratio * strings.byte_len() as f64) as usize)
    }

    fn encode(&self, strings: &Strings<'_>, cx: &Context) -> Result<Option<WriteNode>> {
        let mut frames = zstd::FrameWriter::new(level(cx), Self::frames(strings, cx).0);
        for (row, value) in strings.rows().iter().enumerate() {
            if strings.nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                frames.push(value)?;
            }
        }
        frames.finish(strings.validity(cx)?).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::BinaryViewArray;

    use super::*;
    use crate::Release;
    use crate::kernels::random;

    #[test]
    fn a_trial_compresses_no_more_of_a_long_row_than_it_needs() {
        let mut next = random(7);
        // Compresses well at first.
        let mut long = vec![b'x'; TRIED_BYTES];
        long.extend((0..8 << 20).map(|_| next() as u8));
        let rows = BinaryViewArray::from_iter_values([&long]);
        let cx = Context::new(Level::Default, Release::NEWEST);
        let ratio = Zstd::ratio(&Strings::new(&rows, false), TRIED_BYTES, SHORT_FRAME_BYTES, &cx).unwrap();
        assert!(ratio < 0.1, "{ratio}");
    }

    #[test]
    fn long_frames_are_tried_only_if_they_might_beat_other_schemes() {
        let mut next = random(6);
        // Stretches of one long text: any of them comes again 100 KB later.
        let long: Vec<u8> = (0..100_000).map(|_| next() as u8 % 64).collect();
        let rows = (0..2000).map(|row| &long[row * 500 % 100_000..][..500]);
        let rows = BinaryViewArray::from_iter_values(rows);
        let cx = Context::new(Level::Default, Release::NEWEST);
        let frame_bytes = |cx| Zstd::frames(&Strings::new(&rows, false), &cx).0;
        // The values have about a million bytes, of which short frames take three quarters.
        assert_eq!(frame_bytes(cx), LONG_FRAME_BYTES);
        assert_eq!(frame_bytes(cx.limited(600_000.0)), LONG_FRAME_BYTES);
        assert_eq!(frame_bytes(cx.limited(300_000.0)), SHORT_FRAME_BYTES);
    }
}
