//! FSST: strings as one-byte codes for frequent substrings of up to eight bytes.
//!
//! ```text
//! symbols   0: "http://"   1: "www."   2: "com"
//! codes     0 1 255 'x' 255 '.' 2      = http://www.x.com
//! ```
//!
//! Metadata: integer types of lengths and offsets. Buffers: symbols (8 bytes each), their lengths, the
//! codes of all rows. Children: decoded `lengths`, `codes_offsets` (one more than rows, may start above
//! 0), optionally the validity. Older writers store codes, offsets and validity in a `vortex.varbin`
//! child before the lengths; then there are only two buffers.
//!
//! Slicing slices the children. Decoding decodes all codes between the first and the last offset at once
//! and splits the bytes by lengths. Filter and take gather codes, for which they decode only the offsets of
//! the wanted rows if these are few. Comparisons and LIKE are evaluated on codes.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use fsst::Compressor;

use super::Encoding;
use super::coded_text::{self, CodedRows, CodedTextArray, Codes, OFFSETS, TextParts};
use super::offsets::{Places, ends};
use super::varbin::{self, VarBinArray};
use crate::Result;
use crate::array::{EncodedRef, Node, bytes, integer_type, integers_child, one_more};
use crate::dtype::DType;
use crate::expr::Predicate;
use crate::kernels::automaton::Automaton;
use crate::kernels::fsst::SymbolTable;
use crate::kernels::joined::{Follow, Joined};
use crate::kernels::needle::{Against, Needle};
use crate::limits::Limits;
use crate::wire::WriteNode;

/// The `vortex.fsst` encoding.
#[derive(Debug)]
pub(super) struct Fsst;

const ID: &str = "vortex.fsst";

#[derive(Clone, PartialEq, prost::Message)]
struct Metadata {
    #[prost(int32, tag = "1")]
    lengths_ptype: i32,
    #[prost(int32, tag = "2")]
    offsets_ptype: i32,
}

impl Encoding for Fsst {
    fn id(&self) -> &'static str {
        ID
    }

    fn load(&self, node: &Node<'_>) -> Result<EncodedRef> {
        bytes::is_text(node.dtype())?;
        let metadata = node.message::<Metadata>()?;
        let lengths_dtype = integer_type(metadata.lengths_ptype, "lengths")?;
        let (codes, offsets, lengths, validity) = if node.buffer_count() == 2 {
            node.expect_children(2)?;
            let dtype = DType::Binary(node.dtype().is_nullable());
            let codes = VarBinArray::load(&node.child_of(0, varbin::ID, &dtype, node.len())?)?;
            (codes.bytes, codes.offsets, node.child(1, &lengths_dtype, node.len())?, codes.validity)
        } else {
            node.expect_buffers(3)?;
            (
                node.buffer(2)?,
                node.child(1, &integer_type(metadata.offsets_ptype, OFFSETS)?, one_more(node.len())?)?,
                node.child(0, &lengths_dtype, node.len())?,
                node.validity_child(2)?,
            )
        };
        node.take_bytes(size_of::<SymbolTable>())?;
        let table = Arc::new(SymbolTable::try_new(&node.buffer(0)?, &node.buffer(1)?)?);
        Ok(Arc::new(CodedTextArray {
            dtype: node.dtype().clone(),
            len: node.len(),
            codes: SymbolCodes { table, codes },
            offsets,
            lengths,
            validity,
            limits: *node.limits(),
        }))
    }

    fn load_rows(&self, node: &Node<'_>, rows: &[usize]) -> Result<EncodedRef> {
        if node.buffer_count() == 2 {
            return node.take(rows);
        }
        bytes::is_text(node.dtype())?;
        let metadata = node.message::<Metadata>()?;
        node.expect_buffers(3)?;
        let picked = node.of_rows(rows);
        // All are requested before an error of one of them is returned.
        let offsets = integer_type(metadata.offsets_ptype, OFFSETS)?;
        let ranges = node.ranges(1, &offsets, node.len(), rows, node.buffer_len(2)?);
        let validity = picked.validity_child(2);
        let symbols = (node.buffer(0), node.buffer(1));
        let ranges = ranges?;
        let codes = node.gather(2, ranges.iter().cloned())?;
        node.take_bytes(size_of::<SymbolTable>())?;
        let table = SymbolTable::try_new(&symbols.0?, &symbols.1?)?;
        let offsets = ends(&ranges);
        let lengths =
            coded_text::lengths_of(&codes, &offsets, |codes| table.decoded_len(codes), node.limits())?;
        Ok(Arc::new(CodedTextArray {
            dtype: node.dtype().clone(),
            len: rows.len(),
            codes: SymbolCodes { table: Arc::new(table), codes },
            offsets: integers_child(offsets, node.limits()),
            lengths,
            validity: validity?,
            limits: *node.limits(),
        }))
    }
}

/// The codes of many rows.
#[derive(Debug, Clone)]
struct SymbolCodes {
    table: Arc<SymbolTable>,
    codes: Buffer,
}

impl Codes for SymbolCodes {
    const ID: &'static str = ID;
    const MAX_BYTES_PER_CODE: usize = 8;

    type Window<'a> = (&'a SymbolTable, &'a [u8]);

    fn len(&self) -> usize {
        self.codes.len()
    }

    fn children<'a>(
        &'a self,
        offsets: &'a EncodedRef,
        lengths: &'a EncodedRef,
    ) -> Vec<(&'static str, &'a EncodedRef)> {
        vec![("lengths", lengths), ("codes_offsets", offsets)]
    }

    fn own_bytes(&self) -> usize {
        self.codes.len()
    }

    fn window(&self, places: Range<usize>, _limits: &Limits) -> Result<Self::Window<'_>> {
        Ok((&self.table, &self.codes[places]))
    }

    fn gather(&self, places: &Places, limits: &Limits) -> Result<(Self, Vec<u64>)> {
        let (codes, ends) = places.gather(self.codes.as_slice(), 0, limits)?;
        Ok((Self { table: Arc::clone(&self.table), codes: codes.into() }, ends))
    }

    fn decode((table, codes): &Self::Window<'_>, len: usize, follow: &mut dyn Follow) -> Option<Joined> {
        table.decode(codes, len, follow)
    }

    fn matches(
        (table, codes): &Self::Window<'_>,
        offsets: &[usize],
        among: Option<&BooleanBuffer>,
        nulls: Option<NullBuffer>,
        predicate: &Predicate,
    ) -> Option<BooleanArray> {
        coded_text::matches(&Rows { table, codes, offsets }, among, nulls, predicate)
    }
}

struct Rows<'a> {
    table: &'a SymbolTable,
    codes: &'a [u8],
    offsets: &'a [usize],
}

impl Rows<'_> {
    fn codes(&self, row: usize) -> &[u8] {
        &self.codes[self.offsets[row]..self.offsets[row + 1]]
    }
}

impl CodedRows for Rows<'_> {
    fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    fn against(&self, row: usize, needle: &Needle) -> Against {
        self.table.against(self.codes(row), needle)
    }

    fn accepted(&self, automaton: &Automaton, among: Option<&BooleanBuffer>) -> Option<BooleanBuffer> {
        self.table.accepted(self.codes, self.offsets, automaton, among)
    }
}

/// A node of coded rows: symbols of eight bytes each, the concatenated codes, and the integers that tell
/// where rows start and how long they are.
pub(crate) fn encode(table: &Compressor, codes: Vec<u8>, parts: TextParts) -> WriteNode {
    let symbols: Vec<u64> = table.symbol_table().iter().map(|symbol| symbol.to_u64().to_le()).collect();
    let lengths = Buffer::from_slice_ref(table.symbol_lengths());
    let (lengths_ptype, offsets_ptype) = (parts.lengths.0 as i32, parts.offsets.0 as i32);
    let node = WriteNode::new(ID).buffer(Buffer::from_vec(symbols), 8).buffer(lengths, 1);
    node.buffer(exact(codes), 1)
        .message(&Metadata { lengths_ptype, offsets_ptype })
        .child(parts.lengths.1)
        .child(parts.offsets.1)
        .children(parts.validity)
}

/// As [`encode`], for releases that require the codes as byte strings in a child.
pub(crate) fn encode_legacy(table: &Compressor, codes: Vec<u8>, parts: TextParts) -> WriteNode {
    let TextParts { lengths, offsets, validity } = parts;
    let codes = varbin::encode(exact(codes), offsets.0, offsets.1, validity);
    let symbols: Vec<u64> = table.symbol_table().iter().map(|symbol| symbol.to_u64().to_le()).collect();
    let node = WriteNode::new(ID).buffer(Buffer::from_vec(symbols), 8);
    node.buffer(Buffer::from_slice_ref(table.symbol_lengths()), 1)
        .message(&Metadata { lengths_ptype: lengths.0 as i32, offsets_ptype: 0 })
        .child(codes)
        .child(lengths.1)
}

/// The compressor reserves twice as much memory as the strings take.
fn exact(mut codes: Vec<u8>) -> Buffer {
    codes.shrink_to_fit();
    codes.into()
}

#[cfg(test)]
mod tests {
    use arrow::array::{BinaryViewArray, StringViewArray};
    use arrow::datatypes::DataType;
    use fsst::Symbol;

    use super::*;
    use crate::Error;
    use crate::array::ArrayRef;
    use crate::array::build::Tree;
    use crate::dtype::PType;
    use crate::encodings::conformance;
    use crate::limits::Work;
    use crate::mask::Mask;

    struct Encoded {
        symbols: Vec<u8>,
        symbol_lengths: Vec<u8>,
        codes: Vec<u8>,
        offsets: Vec<i32>,
        lengths: Vec<u16>,
    }

    impl Encoded {
        fn new(rows: &[Option<String>]) -> Self {
            let plain: Vec<&[u8]> = rows.iter().map(|row| row.as_deref().unwrap_or("").as_bytes()).collect();
            let compressor = Compressor::train(&plain);
            let symbols = compressor.symbol_table();
            let mut encoded = Self {
                symbols: symbols.iter().flat_map(|symbol: &Symbol| symbol.to_u64().to_le_bytes()).collect(),
                symbol_lengths: compressor.symbol_lengths().to_vec(),
                codes: vec![7, 7],
                offsets: vec![2],
                lengths: Vec::new(),
            };
            for row in plain {
                encoded.codes.extend(compressor.compress(row));
                encoded.offsets.push(i32::try_from(encoded.codes.len()).unwrap());
                encoded.lengths.push(u16::try_from(row.len()).unwrap());
            }
            encoded.codes.push(9);
            encoded
        }

        fn tree(&self) -> Tree {
            let metadata = Metadata { lengths_ptype: PType::U16 as i32, offsets_ptype: PType::I32 as i32 };
            Tree::new(ID)
                .message(&metadata)
                .buffer(self.symbols.clone())
                .buffer(self.symbol_lengths.clone())
                .buffer(self.codes.clone())
                .child(Tree::primitive(&self.lengths))
                .child(Tree::primitive(&self.offsets))
        }

        fn older_tree(&self, valid: &[bool]) -> Tree {
            let codes = Tree::new(varbin::ID)
                .message(&varbin::Metadata { offsets_ptype: PType::I32 as i32 })
                .buffer(self.codes.clone())
                .child(Tree::primitive(&self.offsets))
                .child(Tree::bools(valid));
            Tree::new(ID)
                .message(&Metadata { lengths_ptype: PType::U16 as i32, offsets_ptype: 0 })
                .buffer(self.symbols.clone())
                .buffer(self.symbol_lengths.clone())
                .child(codes)
                .child(Tree::primitive(&self.lengths))
        }
    }

    fn rows(nulls: bool) -> Vec<Option<String>> {
        (0..300usize)
            .map(|at| {
                let text = match at % 5 {
                    0 => format!("https://www.example.com/page/{}", at % 40),
                    1 => format!("e{}", "longer and longer ".repeat(at % 7)),
                    2 => String::new(),
                    3 => format!("ünïcode {at}"),
                    _ => "a%c".to_owned(),
                };
                (!nulls || at % 4 != 1).then_some(text)
            })
            .collect()
    }

    #[test]
    fn codes_to_write_take_no_more_memory_than_they_need() {
        let mut codes = Vec::with_capacity(1 << 20);
        codes.extend([7; 1000]);
        assert!(exact(codes).capacity() < 2000);
    }

    #[test]
    fn conforms() {
        let plain = rows(false);
        let array = Encoded::new(&plain).tree().load(&DType::Utf8(false), plain.len()).unwrap();
        conformance::check(&array, &(Arc::new(StringViewArray::from_iter(plain)) as ArrayRef));
    }

    #[test]
    fn both_layouts_conform_with_nulls() {
        let sparse = rows(true);
        let valid: Vec<bool> = sparse.iter().map(Option::is_some).collect();
        let encoded = Encoded::new(&sparse);
        let text: ArrayRef = Arc::new(StringViewArray::from_iter(&sparse));
        let bytes: ArrayRef = Arc::new(BinaryViewArray::from_iter(
            sparse.iter().map(|row| row.as_ref().map(|row| row.as_bytes())),
        ));
        let newer = encoded.tree().child(Tree::bools(&valid));
        conformance::check(&newer.load(&DType::Utf8(true), valid.len()).unwrap(), &text);
        let older = encoded.older_tree(&valid);
        conformance::check(&older.load(&DType::Binary(true), valid.len()).unwrap(), &bytes);
    }

    #[test]
    fn searching_agrees_with_decoding() {
        use crate::expr::Like;
        let plain = rows(true);
        let valid: Vec<bool> = plain.iter().map(Option::is_some).collect();
        let tree = Encoded::new(&plain).tree().child(Tree::bools(&valid));
        let array = tree.load(&DType::Utf8(true), plain.len()).unwrap();
        let decoded = array.decode(&DataType::Utf8View).unwrap();
        for pattern in ["%example%", "%longer and%", "%/3%", "ünï%", "https://www.ex%", "a\\%c", "%%", "%ü%"]
        {
            for negated in [false, true] {
                let predicate = Predicate::Like(Like::new(pattern).with_negated(negated));
                assert_eq!(array.matches(&predicate).unwrap(), predicate.evaluate(&decoded).unwrap());
            }
        }
    }

    #[test]
    fn counts_and_sizes_are_checked() {
        let plain = rows(false);
        let decode = |encoded: &Encoded| {
            let array = encoded.tree().load(&DType::Utf8(false), plain.len())?;
            array.matches(&Predicate::IsNull)?;
            array.decode(&DataType::Utf8View)
        };
        let good = || Encoded::new(&plain);
        assert!(decode(&good()).is_ok());
        let mut longer = good();
        longer.lengths[0] += 1;
        assert!(decode(&longer).is_err());
        let mut huge = good();
        huge.lengths.fill(u16::MAX);
        assert!(decode(&huge).is_err());
        let mut falling = good();
        falling.offsets[0] = i32::MAX;
        assert!(decode(&falling).is_err());
        let mut negative = good();
        negative.offsets[0] = -1;
        assert!(decode(&negative).is_err());
        let mut lengthless = good();
        lengthless.symbol_lengths.pop();
        assert!(decode(&lengthless).is_err());
        assert!(good().tree().load(&DType::Bool(false), plain.len()).is_err());
        let hidden = good().older_tree(&[true; 300]);
        assert!(hidden.load(&DType::Utf8(false), 300).is_err(), "validity under a non-nullable type");
    }

    #[test]
    fn few_rows_decode_no_offsets_of_others() {
        let array = Encoded::new(&rows(false)).tree().load(&DType::Utf8(false), 300).unwrap();
        let bytes_of = |rows: &[u64]| {
            let work = Work::begin();
            array.take(&rows.to_vec().into()).unwrap();
            array.filter(&Mask::from_indices(300, rows.iter().map(|row| *row as usize))).unwrap();
            work.byte_len()
        };
        assert!(bytes_of(&[2, 3, 297]) < 500, "{} bytes", bytes_of(&[2, 3, 297]));
        assert!(bytes_of(&(0..299).collect::<Vec<_>>()) > 2 * 300 * size_of::<usize>());
    }

    #[test]
    fn offsets_of_few_rows_are_checked() {
        let plain = rows(false);
        let take = |change: fn(&mut Vec<i32>)| {
            let mut encoded = Encoded::new(&plain);
            change(&mut encoded.offsets);
            encoded.tree().load(&DType::Utf8(false), 300).unwrap().take(&vec![5, 10].into())
        };
        assert!(take(|_| ()).is_ok());
        assert!(take(|offsets| offsets[5] = offsets[7]).is_err(), "row 5 ends before it starts");
        assert!(take(|offsets| offsets[10] = -1).is_err());
        assert!(take(|offsets| offsets[11] = i32::MAX).is_err());
    }

    #[test]
    fn rows_without_bytes_count_as_views() {
        // Scalars of protobuf: uint64 0.
        let zeros = || Tree::new("vortex.constant").buffer([0x20u8, 0]);
        let metadata = Metadata { lengths_ptype: PType::U8 as i32, offsets_ptype: PType::U8 as i32 };
        let tree = Tree::new(ID)
            .message(&metadata)
            .buffer(Buffer::default())
            .buffer(Buffer::default())
            .buffer(Buffer::default());
        let tree = tree.child(zeros()).child(zeros());
        let load = |len| tree.load_within(&DType::Utf8(false), len, &Limits::default()).unwrap();
        assert_eq!(load(1000).decode(&DataType::Utf8View).unwrap().len(), 1000);
        for to in [DataType::Utf8View, DataType::Utf8] {
            let error = load((1 << 31) - 100).decode(&to).unwrap_err();
            assert!(matches!(error, Error::LimitExceeded(_)), "{error}");
            assert!(error.to_string().contains("after 0 bytes"), "nothing is decoded before: {error}");
        }
    }

    #[test]
    fn a_long_row_cannot_be_taken_too_often() {
        let encoded = Encoded::new(&[Some("many words of many letters".repeat(100)), Some(String::new())]);
        let limits = Limits::new().with_max_decoded_bytes(100_000);
        let array = encoded.tree().load_within(&DType::Utf8(false), 2, &limits).unwrap();
        let often = |row: u64| array.take(&vec![row; 1000].into());
        assert!(often(0).is_err());
        assert_eq!(often(1).unwrap().len(), 1000);
    }
}
