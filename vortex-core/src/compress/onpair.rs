//! OnPair for strings: codes for frequent substrings of up to sixteen bytes.

use std::ops::RangeInclusive;

use super::numbers::{compress_positions, compress_words};
use super::scheme::{Context, Kind, Scheme};
use super::string::{Strings, TRIED_BYTES};
use crate::Result;
use crate::dtype::PType;
use crate::encodings::onpair;
use crate::encodings::shared::coded_text::TextParts;
use crate::wire::WriteNode;

/// Number of bits of a token's code.
const TOKEN_BITS: u8 = 12;

/// With fewer bytes, the full set of tokens, which includes every single byte, does not pay.
const MIN_BYTES: usize = 32 << 10;

/// Number of bytes on which tokens are trained: an eighth of the column, within these bounds.
const TRAINED_BYTES: RangeInclusive<usize> = 256 << 10..=1 << 20;

/// Codes for frequent substrings of up to sixteen bytes.
pub(super) struct OnPair;

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
        if strings.byte_len() < MIN_BYTES {
            return None;
        }
        let parser = tokens(strings)?;
        let tried = strings.sample(TRIED_BYTES);
        let bytes: usize = tried.iter().map(|row| row.len()).sum();
        let column = parser.parse_rows::<_, u32>(&Rows(&tried));
        let codes = column.codes.len() as f64 * strings.byte_len() as f64 / bytes.max(1) as f64;
        let tokens = parser.dict.bytes().len() + 2 * parser.dict.num_tokens();
        let code_bytes = (codes * f64::from(TOKEN_BITS) / 8.0) as usize;
        Some(code_bytes + tokens + strings.row_bytes(codes as usize))
    }

    fn encode(&self, strings: &Strings<'_>, cx: &Context) -> Result<Option<WriteNode>> {
        if u32::try_from(strings.byte_len()).is_err() {
            return Ok(None);
        }
        let Some(parser) = tokens(strings) else { return Ok(None) };
        let (mut codes, mut offsets) = (Vec::new(), Vec::<u32>::new());
        parser.parse_rows_into(&Rows(strings.rows()), &mut codes, &mut offsets);
        let below = cx.below(Kind::OnPair, &[]);
        let no_dictionary = below.without(&[Kind::Dictionary]);
        let count = parser.dict.num_tokens() as u32;
        let (bytes, token_offsets) = parser.dict.clone().into_raw();
        let tokens = onpair::EncodedTokens {
            bytes,
            offsets: compress_positions(&no_dictionary, token_offsets, None)?,
            count,
        };
        let parts = TextParts {
            lengths: compress_positions(&below, strings.lengths()?, None)?,
            offsets: compress_positions(&no_dictionary, offsets, None)?,
            validity: strings.validity(cx)?,
        };
        let code_count = codes.len();
        let codes = compress_words(&no_dictionary, PType::U16, codes.into(), None)?;
        Ok(Some(onpair::encode(tokens, (PType::U16, codes), code_count, parts)))
    }
}

fn tokens<'a>(strings: &'a Strings<'_>) -> Option<&'a ::onpair::Parser> {
    let train = || {
        let max_dict_bits = ::onpair::MaxDictBits::new(TOKEN_BITS).ok()?;
        // By default, training draws a sample of its own, which would be one of the sample.
        let threshold = ::onpair::Threshold::new(1.0).ok()?;
        let config = ::onpair::Config { max_dict_bits, threshold, ..::onpair::DEFAULT_CONFIG };
        let trained = (strings.byte_len() / 8).clamp(*TRAINED_BYTES.start(), *TRAINED_BYTES.end());
        Some(::onpair::Parser::train_rows(&Rows(&strings.sample(trained)), config))
    };
    strings.tokens.get_or_init(train).as_ref()
}
