//! OnPair: strings as integer codes for frequent substrings of up to sixteen bytes.
//!
//! ```text
//! dictionary  bytes "a" "an" "ana" ...   offsets [0, 1, 3, 6, ...]
//! codes       2 | 0 1 | ...              codes_offsets [0, 1, 3, ...]
//! ```
//!
//! Metadata: integer types of all children, number of tokens and of codes. Buffer: the bytes of the
//! tokens. Children: `dict_offsets` (one more than tokens), `codes`, `codes_offsets` (one more than rows,
//! may start above 0), decoded `lengths`, optionally the validity.
//!
//! Slices share the unpacked tokens. Decoding decodes only the codes of its rows, all at once; filter and
//! take gather codes, and decode no others if they are few; comparisons and LIKE are evaluated on codes.

mod encode;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow::array::BooleanArray;
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};

use super::Encoding;
use super::dict::used_values;
use super::shared::any_keys::{AnyKeys, with_keys};
use super::shared::coded_text::{self, CodedRows, CodedTextArray, Codes, OFFSETS};
use super::shared::offsets::{MIN_PER_TAKEN, Places, ends};
use crate::array::{
    Decoded, EncodedRef, Node, bytes, decode_offsets, integer_type, integers_child, numbers, one_more,
};
use crate::dtype::DType;
use crate::expr::Predicate;
use crate::kernels::automaton::Automaton;
use crate::kernels::gather::Key;
use crate::kernels::joined::{Follow, Joined};
use crate::kernels::needle::{Against, Needle};
use crate::kernels::onpair::Tokens;
use crate::limits::Limits;
use crate::once::get_or_try_init;
use crate::{Error, Result};

pub(crate) use encode::{EncodedTokens, encode};

/// The `vortex.onpair` encoding.
#[derive(Debug)]
pub(in crate::encodings) struct OnPair;

const ID: &str = "vortex.onpair";

/// Maximum number of tokens of a dictionary.
const MAX_TOKENS: u32 = 1 << 16;

/// Maximum number of bytes of a token.
const MAX_TOKEN_BYTES: usize = 16;

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(int32, tag = "1")]
    lengths_ptype: i32,
    #[prost(uint32, tag = "3")]
    token_count: u32,
    #[prost(uint64, tag = "4")]
    code_count: u64,
    #[prost(int32, tag = "5")]
    dict_offsets_ptype: i32,
    #[prost(int32, tag = "6")]
    codes_ptype: i32,
    #[prost(int32, tag = "7")]
    codes_offsets_ptype: i32,
}

impl Encoding for OnPair {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        let parts = Parts::of(node)?;
        let dictionary = parts.dictionary(node)?;
        Ok(Arc::new(CodedTextArray {
            header: node.header(ID),
            codes: TokenCodes { dictionary, codes: node.child(1, &parts.codes, parts.code_count)? },
            offsets: node.child(2, &parts.offsets, one_more(node.len())?)?,
            lengths: node.child(3, &integer_type(parts.lengths_ptype, "lengths")?, node.len())?,
            validity: node.validity_child(4)?,
        }))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        let parts = Parts::of(node)?;
        let picked = node.of_rows(rows);
        // No `?` before all are loaded: see `load_rows`.
        let ranges = node.ranges(2, &parts.offsets, node.len(), rows, parts.code_count);
        let validity = picked.validity_child(4);
        let ranges = ranges?;
        let offsets = ends(&ranges);
        let count = offsets.last().and_then(|end| usize::try_from(*end).ok()).unwrap_or(usize::MAX);
        node.limits().count::<usize>(count)?;
        let wanted: Vec<usize> = ranges.into_iter().flatten().collect();
        let codes = node.child_rows(1, &parts.codes, parts.code_count, &wanted)?;
        let (codes, tokens) = used_values(&codes, parts.token_count)?;
        let dictionary = parts.some_tokens(node, &tokens)?;
        let (tokens, numbers) = (dictionary.tokens()?, keys_of(&codes)?);
        let lengths = with_keys!(&numbers, |codes| {
            coded_text::lengths_of(codes, &offsets, |codes| tokens.decoded_len(codes), node.limits())?
        });
        Ok(Arc::new(CodedTextArray {
            header: picked.header(ID),
            codes: TokenCodes { dictionary, codes },
            offsets: integers_child(offsets, node.limits()),
            lengths,
            validity: validity?,
        }))
    }
}

/// The properties of the children according to a node's metadata.
struct Parts {
    token_count: usize,
    code_count: usize,
    dict_offsets: DType,
    codes: DType,
    offsets: DType,
    /// Those of single rows are computed from their codes.
    lengths_ptype: i32,
}

impl Parts {
    fn of(node: &Node<'_>) -> Result<Self> {
        bytes::is_text(node.dtype())?;
        let metadata = node.message::<Metadata>()?;
        node.expect_buffers(1)?;
        if metadata.token_count > MAX_TOKENS {
            return Err(Error::corrupt(format!("{} tokens, at most {MAX_TOKENS}", metadata.token_count)));
        }
        Ok(Self {
            token_count: metadata.token_count as usize,
            code_count: usize::try_from(metadata.code_count).map_err(Error::limit)?,
            dict_offsets: integer_type(metadata.dict_offsets_ptype, "dictionary offsets")?,
            codes: integer_type(metadata.codes_ptype, "codes")?,
            offsets: integer_type(metadata.codes_offsets_ptype, OFFSETS)?,
            lengths_ptype: metadata.lengths_ptype,
        })
    }

    fn dictionary(&self, node: &Node<'_>) -> Result<Arc<Dictionary>> {
        // Tokens are kept when they are unpacked.
        node.limits().count_rows(self.token_count, Tokens::BYTES)?;
        let (bytes, offsets) = (node.buffer(0), node.child(0, &self.dict_offsets, self.token_count + 1));
        Ok(Arc::new(Dictionary { bytes: bytes?, offsets: offsets?, tokens: OnceLock::new() }))
    }

    /// A dictionary of some tokens, in ascending order.
    fn some_tokens(&self, node: &Node<'_>, tokens: &[usize]) -> Result<Arc<Dictionary>> {
        let ranges = node.ranges(0, &self.dict_offsets, self.token_count, tokens, node.buffer_len(0)?)?;
        let offsets = integers_child(ends(&ranges), node.limits());
        Ok(Arc::new(Dictionary {
            bytes: node.gather(0, ranges.into_iter())?,
            offsets,
            tokens: OnceLock::new(),
        }))
    }
}

/// Tokens, unpacked on first use.
#[derive(Debug)]
struct Dictionary {
    bytes: Buffer,
    offsets: EncodedRef,
    tokens: OnceLock<Tokens>,
}

impl Dictionary {
    fn tokens(&self) -> Result<&Tokens> {
        get_or_try_init(&self.tokens, || {
            let offsets = decode_offsets(&self.offsets, "dictionary offsets", self.bytes.len())?;
            Tokens::try_new(&self.bytes, &offsets)
        })
    }
}

/// The codes of many rows.
#[derive(Debug, Clone)]
struct TokenCodes {
    dictionary: Arc<Dictionary>,
    codes: EncodedRef,
}

/// The codes as numbers of tokens.
fn keys_of(codes: &EncodedRef) -> Result<AnyKeys> {
    let out_of_range = |code| Error::corrupt(format!("code {code} is out of range"));
    let (keys, _) = AnyKeys::decode(codes, |code| u32::try_from(code).map_err(|_| out_of_range(code)))?;
    Ok(keys)
}

impl Codes for TokenCodes {
    const MAX_BYTES_PER_CODE: usize = MAX_TOKEN_BYTES;

    type Window<'a> = (&'a Tokens, AnyKeys);

    fn len(&self) -> usize {
        self.codes.len()
    }

    fn children<'a>(
        &'a self,
        offsets: &'a EncodedRef,
        lengths: &'a EncodedRef,
    ) -> Vec<(&'static str, &'a EncodedRef)> {
        vec![
            ("dict_offsets", &self.dictionary.offsets),
            ("codes", &self.codes),
            ("codes_offsets", offsets),
            ("lengths", lengths),
        ]
    }

    fn buffer_bytes(&self) -> usize {
        self.dictionary.bytes.len()
    }

    fn window(&self, places: Range<usize>, limits: &Limits) -> Result<Self::Window<'_>> {
        limits.count::<u32>(places.len())?;
        let codes = keys_of(&self.codes.slice(places)?)?;
        Ok((self.dictionary.tokens()?, codes))
    }

    /// Decodes only the codes of these rows if they are few of those between the first and the last.
    fn gather(&self, places: &Places, limits: &Limits) -> Result<(Self, Vec<u64>)> {
        let with_codes = |codes| Self { dictionary: Arc::clone(&self.dictionary), codes };
        let (count, span) = (places.value_count(), places.span());
        if count <= span.len() / MIN_PER_TAKEN {
            limits.count::<u64>(count)?;
            let mut positions = Vec::with_capacity(count);
            let ends = places.join(|codes| positions.extend(codes.map(|at| at as u64)));
            return Ok((with_codes(self.codes.take(&positions.into())?), ends));
        }
        limits.count::<u32>(span.len())?;
        let codes = keys_of(&self.codes.slice(span.clone())?)?;
        let ptype = codes.ptype();
        let (codes, ends) = with_keys!(codes, |codes| {
            let (codes, ends) = places.gather(&codes, span.start, limits)?;
            (numbers(ptype, &Buffer::from_vec(codes), None)?, ends)
        });
        let codes = Decoded::new(DType::Primitive(ptype, false), codes, limits);
        Ok((with_codes(Arc::new(codes)), ends))
    }

    fn decode((tokens, codes): &Self::Window<'_>, len: usize, follow: &mut dyn Follow) -> Option<Joined> {
        with_keys!(codes, |codes| tokens.decode(codes, len, follow))
    }

    fn matches(
        (tokens, codes): &Self::Window<'_>,
        offsets: &[usize],
        among: Option<&BooleanBuffer>,
        nulls: Option<NullBuffer>,
        predicate: &Predicate,
    ) -> Option<BooleanArray> {
        with_keys!(codes, |codes| {
            coded_text::matches(&Rows { tokens, codes, offsets }, among, nulls, predicate)
        })
    }
}

struct Rows<'a, K> {
    tokens: &'a Tokens,
    codes: &'a [K],
    offsets: &'a [usize],
}

impl<K: Key> CodedRows for Rows<'_, K> {
    fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    fn against(&self, row: usize, needle: &Needle) -> Against {
        self.tokens.against(&self.codes[self.offsets[row]..self.offsets[row + 1]], needle)
    }

    fn accepted(&self, automaton: &Automaton, among: Option<&BooleanBuffer>) -> Option<BooleanBuffer> {
        self.tokens.accepted(self.codes, self.offsets, automaton, among)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::StringViewArray;
    use arrow::datatypes::DataType;

    use super::*;
    use crate::array::ArrayRef;
    use crate::array::build::Tree;
    use crate::dtype::PType;
    use crate::encodings::shared::conformance;
    use crate::limits::Work;
    use crate::mask::Mask;

    const TOKENS: [&str; 7] = ["a", "e", "longer", "sixteen bytes ok", "%", "ü", "c"];

    /// The codes of row `at`.
    fn codes_of(at: usize) -> Vec<u16> {
        (0..at % 9).map(|k| u16::try_from((at * 5 + k * k) % TOKENS.len()).unwrap()).collect()
    }

    fn text(codes: &[u16]) -> String {
        codes.iter().map(|code| TOKENS[usize::from(*code)]).collect()
    }

    struct Encoded {
        metadata: Metadata,
        dict_offsets: Vec<u32>,
        codes: Vec<u16>,
        offsets: Vec<u64>,
        lengths: Vec<i32>,
        rows: Vec<Option<String>>,
    }

    fn encoded(nulls: bool) -> Encoded {
        let mut dict_offsets = vec![0];
        for token in TOKENS {
            dict_offsets.push(dict_offsets.last().unwrap() + u32::try_from(token.len()).unwrap());
        }
        let (mut codes, mut offsets, mut lengths, mut rows) = (vec![1, 2], vec![2], vec![], vec![]);
        for at in 0..200 {
            let own = if nulls && at % 3 == 0 { vec![] } else { codes_of(at) };
            codes.extend(&own);
            offsets.push(codes.len() as u64);
            lengths.push(i32::try_from(text(&own).len()).unwrap());
            rows.push((!nulls || at % 3 != 0).then(|| text(&own)));
        }
        let metadata = Metadata {
            lengths_ptype: PType::I32 as i32,
            token_count: 7,
            code_count: codes.len() as u64,
            dict_offsets_ptype: PType::U32 as i32,
            codes_ptype: PType::U16 as i32,
            codes_offsets_ptype: PType::U64 as i32,
        };
        Encoded { metadata, dict_offsets, codes, offsets, lengths, rows }
    }

    impl Encoded {
        fn tree(&self) -> Tree {
            Tree::new(ID)
                .message(&self.metadata)
                .buffer(TOKENS.concat().into_bytes())
                .child(Tree::primitive(&self.dict_offsets))
                .child(Tree::primitive(&self.codes))
                .child(Tree::primitive(&self.offsets))
                .child(Tree::primitive(&self.lengths))
        }
    }

    #[test]
    fn conforms() {
        let plain = encoded(false);
        let array = plain.tree().load(&DType::Utf8(false), 200).unwrap();
        conformance::check(&array, &(Arc::new(StringViewArray::from_iter(plain.rows)) as ArrayRef));

        let sparse = encoded(true);
        let valid: Vec<bool> = sparse.rows.iter().map(Option::is_some).collect();
        let array = sparse.tree().child(Tree::bools(&valid)).load(&DType::Utf8(true), 200).unwrap();
        conformance::check(&array, &(Arc::new(StringViewArray::from_iter(sparse.rows)) as ArrayRef));
    }

    #[test]
    fn few_rows_decode_no_codes_of_others() {
        let array = encoded(false).tree().load(&DType::Utf8(false), 200).unwrap();
        let bytes_of = |rows: &[u64]| {
            let work = Work::begin();
            array.take(&rows.to_vec().into()).unwrap();
            array.filter(&Mask::from_indices(200, rows.iter().map(|row| *row as usize))).unwrap();
            work.byte_len()
        };
        assert!(bytes_of(&[2, 3, 197]) < 500, "{} bytes", bytes_of(&[2, 3, 197]));
        // Rows next to each other have no codes of others between them.
        assert!(bytes_of(&[100, 101, 102]) < 700, "{} bytes", bytes_of(&[100, 101, 102]));
        assert!(bytes_of(&(0..199).collect::<Vec<_>>()) > 2 * 200 * (size_of::<usize>() + size_of::<u32>()));
    }

    #[test]
    fn codes_may_have_any_integer_type() {
        let mut wide = encoded(false);
        wide.metadata.codes_ptype = PType::I64 as i32;
        let codes: Vec<i64> = wide.codes.iter().map(|code| i64::from(*code)).collect();
        let tree = Tree::new(ID)
            .message(&wide.metadata)
            .buffer(TOKENS.concat().into_bytes())
            .child(Tree::primitive(&wide.dict_offsets))
            .child(Tree::primitive(&codes))
            .child(Tree::primitive(&wide.offsets))
            .child(Tree::primitive(&wide.lengths));
        let array = tree.load(&DType::Utf8(false), 200).unwrap();
        conformance::check(&array, &(Arc::new(StringViewArray::from_iter(wide.rows)) as ArrayRef));
    }

    #[test]
    fn rows_without_codes_count_as_views() {
        // Scalars of protobuf: uint64 0.
        let zeros = || Tree::new("vortex.constant").buffer([0x20u8, 0]);
        let [u8s, u16s] = [PType::U8 as i32, PType::U16 as i32];
        let metadata = Metadata {
            lengths_ptype: u8s,
            token_count: 0,
            code_count: 0,
            dict_offsets_ptype: u8s,
            codes_ptype: u16s,
            codes_offsets_ptype: u8s,
        };
        let tree = Tree::new(ID).message(&metadata).buffer(Buffer::default());
        let tree = tree.child(zeros()).child(Tree::primitive::<u16>(&[])).child(zeros()).child(zeros());
        let load = |len| tree.load_within(&DType::Utf8(false), len, &Limits::default()).unwrap();
        assert_eq!(load(1000).decode(&DataType::Utf8View).unwrap().len(), 1000);
        let error = load((1 << 31) - 100).decode(&DataType::Utf8View).unwrap_err();
        assert!(matches!(error, Error::LimitExceeded(_)), "{error}");
        assert!(error.to_string().contains("after 0 bytes"), "nothing is decoded before: {error}");
    }

    #[test]
    fn counts_and_codes_are_checked() {
        let decode = |change: fn(&mut Encoded)| {
            let mut encoded = encoded(false);
            change(&mut encoded);
            encoded.tree().load(&DType::Utf8(false), 200)?.decode(&DataType::Utf8View)
        };
        assert!(decode(|_| ()).is_ok());
        assert!(decode(|it| it.codes[9] = 7).is_err(), "there are seven tokens");
        assert!(decode(|it| it.lengths[1] += 1).is_err());
        assert!(decode(|it| it.lengths[1] = -1).is_err());
        assert!(decode(|it| it.offsets[200] += 1).is_err());
        assert!(decode(|it| it.offsets[0] = u64::MAX).is_err());
        assert!(decode(|it| it.dict_offsets[3] = 0).is_err());
        assert!(decode(|it| it.metadata.token_count = 1 << 17).is_err());
        assert!(decode(|it| it.metadata.code_count = u64::MAX).is_err());
    }
}
