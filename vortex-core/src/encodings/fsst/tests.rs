use arrow::array::{BinaryViewArray, StringViewArray};
use arrow::datatypes::DataType;
use fsst::Symbol;

use super::*;
use crate::Error;
use crate::array::ArrayRef;
use crate::array::build::Tree;
use crate::dtype::PType;
use crate::encodings::shared::conformance;
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
    let bytes: ArrayRef =
        Arc::new(BinaryViewArray::from_iter(sparse.iter().map(|row| row.as_ref().map(|row| row.as_bytes()))));
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
    for pattern in ["%example%", "%longer and%", "%/3%", "ünï%", "https://www.ex%", "a\\%c", "%%", "%ü%"] {
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
