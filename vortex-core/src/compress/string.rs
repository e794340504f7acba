//! Schemes for strings and byte strings.

use std::cell::OnceCell;
use std::collections::HashSet;

use arrow::array::{Array as _, BinaryViewArray};
use arrow::buffer::NullBuffer;

use super::boolean;
use super::numbers::{compress_helpers, compress_words};
use super::sample::{self, Sample};
use super::scheme::{Context, Kind, Plain, Scheme, choose};
use super::text_dictionary::{self, TextDictionary};
use super::zstd::level;
use crate::dtype::{DType, PType};
use crate::encodings::coded_text::TextParts;
use crate::encodings::{constant, fsst, masked, onpair, varbin, varbin_view, zstd};
use crate::kernels::views::{MAX_INLINE, VIEW_BYTES};
use crate::release::since;
use crate::scalar::Value;
use crate::wire::WriteNode;
use crate::{Error, Level, Result};

/// Number of bytes on which symbol tables are trained.
const TRAINED_BYTES: usize = 64 << 10;

/// With fewer bytes, training does not pay if another scheme works well.
const MIN_FSST_BYTES: usize = 64 << 10;

/// Number of bytes that are compressed to estimate the size.
const TRIED_BYTES: usize = 64 << 10;

/// Bytes of a frame before compression, all of which are decompressed to read a single row, at some 2 ns per
/// byte. Strings such as URLs and titles take 4 to 8 % more space in short frames than in long ones; documents
/// that repeat distant ones take several times as much, and are decompressed more slowly.
const SHORT_FRAME_BYTES: usize = 32 << 10;
const LONG_FRAME_BYTES: usize = 256 << 10;

/// Size in long frames, relative to that in short ones, below which frames are long at the default level.
const LONG_FRAMES_PAY: f64 = 0.75;

/// Values of this many bytes are compressed even if they are the only one.
pub(super) const LONG_VALUE: usize = 16 << 10;

/// Bytes of values above which rows that share their bytes are encoded by codes: any other scheme would
/// encode these bytes for each row. Only such rows fill so large a chunk, or a single long one.
const MAX_REPEATED_BYTES: usize = 8 << 20;

/// Number of bits of a token's code.
const TOKEN_BITS: u8 = 12;

/// With fewer bytes, the full set of tokens, which includes every single byte, does not pay.
const MIN_ONPAIR_BYTES: usize = 32 << 10;

/// Number of bytes on which tokens are trained.
const ONPAIR_TRAINED_BYTES: usize = 256 << 10;

/// Strings or byte strings.
pub(super) struct Strings<'a> {
    /// The validity, if some rows are null; never all of them.
    pub(super) nulls: Option<&'a NullBuffer>,
    pub(super) is_text: bool,
    rows: Vec<&'a [u8]>,
    byte_len: usize,
    symbols: OnceCell<::fsst::Compressor>,
    tokens: OnceCell<Option<::onpair::Parser>>,
    distinct: OnceCell<usize>,
    /// How Zstandard does, tried on some of the values.
    frames: OnceCell<(usize, f64)>,
}

impl<'a> Strings<'a> {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The value of each row; empty in null rows.
    pub(super) fn rows(&self) -> &[&'a [u8]] {
        &self.rows
    }

    /// Bytes of all values.
    pub(super) fn byte_len(&self) -> usize {
        self.byte_len
    }

    pub(super) fn value(&self, bytes: &[u8]) -> Result<Value> {
        if !self.is_text {
            return Ok(Value::Binary(bytes.into()));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Error::invalid("text that is not UTF-8"))?;
        Ok(Value::Utf8(text.into()))
    }

    fn validity(&self, cx: &Context) -> Result<Option<WriteNode>> {
        self.nulls.map(|nulls| boolean::validity(cx, nulls)).transpose()
    }

    /// Whether there are many bytes, most of which rows share with other rows.
    fn repeat_bytes(&self) -> bool {
        if self.byte_len <= MAX_REPEATED_BYTES {
            return false;
        }
        let mut places = HashSet::new();
        let apart = self.rows.iter().filter(|row| places.insert((row.as_ptr(), row.len())));
        apart.map(|row| row.len()).sum::<usize>() <= self.byte_len / 2
    }

    /// Approximate number of distinct values.
    pub(super) fn distinct(&self) -> usize {
        *self.distinct.get_or_init(|| {
            let rows = sample::rows(self.len()).flat_map(|rows| &self.rows[rows]);
            Sample::new(rows.map(|row| super::text_dictionary::hash(row)).collect(), self.len()).distinct()
        })
    }

    /// The rows of the sample, up to this many bytes.
    fn sample(&self, bytes: usize) -> Vec<&'a [u8]> {
        let mut left = bytes;
        let rows = sample::rows(self.len()).flat_map(|rows| self.rows[rows].iter().copied());
        rows.take_while(|row| {
            let more = left > 0;
            left = left.saturating_sub(row.len().max(1));
            more
        })
        .collect()
    }

    fn symbols(&self) -> &::fsst::Compressor {
        self.symbols.get_or_init(|| ::fsst::Compressor::train(&self.sample(TRAINED_BYTES)))
    }

    fn tokens(&self) -> Option<&::onpair::Parser> {
        let train = || {
            let max_dict_bits = ::onpair::MaxDictBits::new(TOKEN_BITS).ok()?;
            let config = ::onpair::Config { max_dict_bits, ..::onpair::DEFAULT_CONFIG };
            Some(::onpair::Parser::train_rows(&Rows(&self.sample(ONPAIR_TRAINED_BYTES)), config))
        };
        self.tokens.get_or_init(train).as_ref()
    }

    /// Bytes of the integers that delimit rows: lengths, and offsets into codes.
    fn row_bytes(&self, code_bytes: usize) -> usize {
        let longest = self.rows.iter().map(|row| row.len()).max().unwrap_or_default();
        let bits = |most: usize| (usize::BITS - most.leading_zeros()) as usize;
        self.len() * (bits(longest) + bits(code_bytes)) / 8
    }
}

/// Compresses a column of strings or byte strings.
///
/// # Errors
/// If a child cannot be encoded.
pub(super) fn compress(cx: &Context, array: &BinaryViewArray, dtype: &DType) -> Result<WriteNode> {
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    let rows: Vec<&[u8]> = match nulls {
        None => (0..array.len()).map(|row| array.value(row)).collect(),
        Some(nulls) => {
            let value = |row| if nulls.is_valid(row) { array.value(row) } else { &[] };
            (0..array.len()).map(value).collect()
        }
    };
    let byte_len = rows.iter().map(|row| row.len()).sum();
    let is_text = matches!(dtype, DType::Utf8(_));
    let (symbols, tokens, distinct, frames) = Default::default();
    let strings = Strings { nulls, is_text, rows, byte_len, symbols, tokens, distinct, frames };
    if strings.rows.is_empty() {
        return Ok(varbin_view::encode(array, None));
    }
    if let Some(node) = uniform(cx, &strings)? {
        return Ok(node);
    }
    if strings.repeat_bytes()
        && cx.allows(Kind::Dictionary)
        && let Some(node) = text_dictionary::encode(&strings, cx, strings.len())?
    {
        return Ok(node);
    }
    let long: usize = strings.rows.iter().map(|row| row.len()).filter(|len| *len > MAX_INLINE).sum();
    let plain_bytes = strings.len() * VIEW_BYTES + long + strings.nulls.map_or(0, |nulls| nulls.len() / 8);
    let decoded = Plain { rows: strings.len(), bytes: plain_bytes };
    let plain = || Ok(varbin_view::encode(array, strings.validity(cx)?));
    choose(&schemes(), &strings, cx, decoded, plain)
}

/// The schemes for strings.
fn schemes<'a>() -> [&'a dyn Scheme<Strings<'a>>; 5] {
    [&TextDictionary, &Fsst, &OnPair, &Joined, &Zstd]
}

/// Whether two values are equal, which is obvious if they are the same bytes in memory.
pub(super) fn is_same(left: &[u8], right: &[u8]) -> bool {
    std::ptr::eq(left, right) || left == right
}

/// Encodes a column whose valid rows are all equal. A long value is compressed, as the only one of a
/// dictionary.
fn uniform(cx: &Context, strings: &Strings<'_>) -> Result<Option<WriteNode>> {
    let first = strings.nulls.map_or(Some(0), |nulls| nulls.valid_indices().next());
    let Some(value) = first.and_then(|row| strings.rows.get(row)) else { return Ok(None) };
    let is_valid = |row: usize| strings.nulls.is_none_or(|nulls| nulls.is_valid(row));
    if !strings.rows.iter().enumerate().all(|(row, other)| is_same(other, value) || !is_valid(row)) {
        return Ok(None);
    }
    if value.len() >= LONG_VALUE && strings.len() == 1 {
        return Ok(None);
    }
    if value.len() >= LONG_VALUE && cx.allows(Kind::Dictionary) {
        return text_dictionary::encode(strings, cx, 1);
    }
    let node = constant::encode(&strings.value(value)?)?;
    match strings.validity(cx)? {
        None => Ok(Some(node)),
        Some(validity) if cx.reads(Kind::Masked) => Ok(Some(masked::encode(node, validity))),
        Some(_) => Ok(None),
    }
}

/// Codes for frequent substrings of up to eight bytes.
struct Fsst;

impl Scheme<Strings<'_>> for Fsst {
    fn kind(&self) -> Kind {
        Kind::Fsst
    }

    fn estimate(&self, strings: &Strings<'_>, cx: &Context) -> Option<usize> {
        // Finding symbols takes as long for few bytes as for many; for few bytes, Zstandard is better.
        let is_short = strings.byte_len < MIN_FSST_BYTES && cx.allows(Kind::Zstd);
        if strings.byte_len == 0 || is_short {
            return None;
        }
        let tried = strings.sample(TRIED_BYTES);
        let bytes: usize = tried.iter().map(|row| row.len()).sum();
        let (mut codes, mut ends) = (Vec::new(), Vec::new());
        strings.symbols().compress_bulk_into::<LANES>(&tried, &mut codes, &mut ends);
        let codes = (codes.len() as f64 * strings.byte_len as f64 / bytes.max(1) as f64) as usize;
        let table = 255 * 9;
        Some(codes + table + strings.row_bytes(codes))
    }

    fn encode(&self, strings: &Strings<'_>, cx: &Context) -> Result<Option<WriteNode>> {
        let (mut codes, mut ends) = (Vec::new(), Vec::new());
        let table = strings.symbols();
        table.compress_bulk_into::<LANES>(&strings.rows, &mut codes, &mut ends);
        if u32::try_from(codes.len()).is_err() {
            return Ok(None);
        }
        // All are below 2^32, since the last one is.
        let offsets = std::iter::once(0).chain(ends.into_iter().map(|end| end as u32)).collect();
        let below = cx.below(Kind::Fsst, &[]);
        let parts = TextParts {
            lengths: compress_helpers(&below, lengths(&strings.rows)?, None)?,
            offsets: compress_helpers(&below.below(Kind::Dictionary, &[]), offsets, None)?,
            validity: strings.validity(cx)?,
        };
        Ok(Some(if cx.reader() >= since::FSST_CODES {
            fsst::encode(table, codes, parts)
        } else {
            fsst::encode_legacy(table, codes, parts)
        }))
    }
}

/// Number of rows that are encoded in parallel.
const LANES: usize = ::fsst::Compressor::DEFAULT_BULK_LANES;

fn lengths(rows: &[&[u8]]) -> Result<Vec<u32>> {
    rows.iter().map(|row| u32::try_from(row.len()).map_err(Error::limit)).collect()
}

/// Codes for frequent substrings of up to sixteen bytes.
struct OnPair;

/// Rows in the form that the onpair crate takes.
struct Rows<'a>(&'a [&'a [u8]]);

impl ::onpair::Rows for Rows<'_> {
    fn num_rows(&self) -> usize {
        self.0.len()
    }

    fn total_bytes(&self) -> usize {
        self.0.iter().map(|row| row.len()).sum()
    }

    fn row(&self, at: usize) -> &[u8] {
        self.0[at]
    }
}

impl Scheme<Strings<'_>> for OnPair {
    fn kind(&self) -> Kind {
        Kind::OnPair
    }

    fn estimate(&self, strings: &Strings<'_>, _: &Context) -> Option<usize> {
        if strings.byte_len < MIN_ONPAIR_BYTES {
            return None;
        }
        let parser = strings.tokens()?;
        let tried = strings.sample(TRIED_BYTES);
        let bytes: usize = tried.iter().map(|row| row.len()).sum();
        let column = parser.parse_rows::<_, u32>(&Rows(&tried));
        let codes = column.codes.len() as f64 * strings.byte_len as f64 / bytes.max(1) as f64;
        let tokens = parser.dict.bytes().len() + 2 * parser.dict.num_tokens();
        let code_bytes = (codes * f64::from(TOKEN_BITS) / 8.0) as usize;
        Some(code_bytes + tokens + strings.row_bytes(codes as usize))
    }

    fn encode(&self, strings: &Strings<'_>, cx: &Context) -> Result<Option<WriteNode>> {
        if u32::try_from(strings.byte_len).is_err() {
            return Ok(None);
        }
        let Some(parser) = strings.tokens() else { return Ok(None) };
        let (mut codes, mut offsets) = (Vec::new(), Vec::<u32>::new());
        parser.parse_rows_into(&Rows(&strings.rows), &mut codes, &mut offsets);
        let below = cx.below(Kind::OnPair, &[]);
        let no_dictionary = below.below(Kind::Dictionary, &[]);
        let count = parser.dict.num_tokens() as u32;
        let (bytes, token_offsets) = parser.dict.clone().into_raw();
        let tokens = onpair::EncodedTokens {
            bytes,
            offsets: compress_helpers(&no_dictionary, token_offsets, None)?,
            count,
        };
        let parts = TextParts {
            lengths: compress_helpers(&below, lengths(&strings.rows)?, None)?,
            offsets: compress_helpers(&no_dictionary, offsets, None)?,
            validity: strings.validity(cx)?,
        };
        let code_count = codes.len();
        let codes = compress_words(&no_dictionary, PType::U16, codes.into(), None)?;
        Ok(Some(onpair::encode(tokens, (PType::U16, codes), code_count, parts)))
    }
}

/// Concatenated bytes, split by offsets.
struct Joined;

impl Scheme<Strings<'_>> for Joined {
    fn kind(&self) -> Kind {
        Kind::Joined
    }

    fn estimate(&self, strings: &Strings<'_>, _: &Context) -> Option<usize> {
        let bits = (usize::BITS - strings.byte_len.leading_zeros()) as usize;
        Some(strings.byte_len + strings.len() * bits / 8)
    }

    fn encode(&self, strings: &Strings<'_>, cx: &Context) -> Result<Option<WriteNode>> {
        if u32::try_from(strings.byte_len).is_err() {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(strings.byte_len);
        let mut offsets = Vec::with_capacity(strings.len() + 1);
        for row in &strings.rows {
            // Below 2^32, since the total number of bytes is.
            offsets.push(bytes.len() as u32);
            bytes.extend_from_slice(row);
        }
        offsets.push(bytes.len() as u32);
        let (ptype, offsets) = compress_helpers(&cx.below(Kind::Joined, &[Kind::Dictionary]), offsets, None)?;
        Ok(Some(varbin::encode(bytes.into(), ptype, offsets, strings.validity(cx)?)))
    }
}

/// Zstandard frames.
struct Zstd;

impl Zstd {
    /// Bytes of a frame before compression, and the compressed size relative to that of the values.
    fn frames(strings: &Strings<'_>, cx: &Context) -> (usize, f64) {
        *strings.frames.get_or_init(|| {
            let ratio = |enough: usize, frame_bytes| {
                (frame_bytes, Self::ratio(strings, enough, frame_bytes, cx).unwrap_or(f64::INFINITY))
            };
            let few = (strings.byte_len / 4).clamp(TRIED_BYTES / 8, TRIED_BYTES);
            if cx.level() == Level::Compact {
                return ratio(few, LONG_FRAME_BYTES);
            }
            let short = ratio(few, SHORT_FRAME_BYTES);
            if strings.byte_len < 2 * LONG_FRAME_BYTES {
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

    /// Compressed size of values relative to their size, estimated from rows of at least so many bytes.
    fn ratio(strings: &Strings<'_>, enough: usize, frame_bytes: usize, cx: &Context) -> Option<f64> {
        // Adjacent rows are representative, unlike rows far apart.
        let start = strings.len() / 3;
        let mut bytes = 0;
        let mut frames = zstd::FrameWriter::new(level(cx), frame_bytes);
        for row in &strings.rows[start..] {
            frames.push(row).ok()?;
            bytes += row.len();
            if bytes >= enough {
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
        if strings.byte_len == 0 {
            return None;
        }
        let (_, ratio) = Self::frames(strings, cx);
        ratio.is_finite().then_some((ratio * strings.byte_len as f64) as usize)
    }

    fn encode(&self, strings: &Strings<'_>, cx: &Context) -> Result<Option<WriteNode>> {
        let mut frames = zstd::FrameWriter::new(level(cx), Self::frames(strings, cx).0);
        for (row, value) in strings.rows.iter().enumerate() {
            if strings.nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                frames.push(value)?;
            }
        }
        frames.finish(strings.validity(cx)?).map(Some)
    }
}
