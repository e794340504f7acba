use arrow::array::{Array as _, Int32Array, StringViewArray, UInt64Array};

use super::*;
use crate::array::build::Tree;
use crate::dtype::PType;
use crate::encodings::shared::conformance;

/// A tree of frames of uncompressed bytes with their value counts.
fn tree(frames: &[(Vec<u8>, usize)]) -> Tree {
    let mut tree = Tree::new(ID);
    let mut metadata = Metadata::default();
    for (bytes, count) in frames {
        tree = tree.buffer(zstd::bulk::compress(bytes, 3).unwrap());
        let uncompressed_size = bytes.len() as u64;
        metadata.frames.push(FrameMetadata { uncompressed_size, value_count: *count as u64 });
    }
    tree.message(&metadata)
}

fn text_frame(words: &[&str]) -> (Vec<u8>, usize) {
    let mut bytes = Vec::new();
    for word in words {
        bytes.extend(u32::try_from(word.len()).unwrap().to_le_bytes());
        bytes.extend(word.as_bytes());
    }
    (bytes, words.len())
}

fn number_frame(values: &[i32]) -> (Vec<u8>, usize) {
    (values.iter().flat_map(|value| value.to_le_bytes()).collect(), values.len())
}

#[test]
fn numbers_conform() {
    let values: Vec<i32> = (0..250).map(|at| at * 37 % 91).collect();
    let frames: Vec<_> = values.chunks(60).map(number_frame).collect();
    let array = tree(&frames).load(&DType::Primitive(PType::I32, false), 250).unwrap();
    conformance::check(&array, &(Arc::new(Int32Array::from(values.clone())) as ArrayRef));

    let valid: Vec<bool> = (0..400).map(|at| at % 8 < 5).collect();
    let mut next = values.iter();
    let rows: Int32Array = valid.iter().map(|valid| valid.then(|| *next.next().unwrap())).collect();
    let nullable = tree(&frames).child(Tree::bools(&valid));
    let array = nullable.load(&DType::Primitive(PType::I32, true), 400).unwrap();
    conformance::check(&array, &(Arc::new(rows) as ArrayRef));
}

#[test]
fn strings_conform() {
    let words: Vec<String> = (0..150).map(|at| "longer ü%ae".repeat(at % 20)).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let frames: Vec<_> = words.chunks(40).map(text_frame).collect();
    let array = tree(&frames).load(&DType::Utf8(false), 150).unwrap();
    conformance::check(&array, &(Arc::new(StringViewArray::from(words.clone())) as ArrayRef));

    let valid: Vec<bool> = (0..300).map(|at| at % 4 < 2).collect();
    let mut next = words.iter();
    let rows: StringViewArray = valid.iter().map(|valid| valid.then(|| *next.next().unwrap())).collect();
    let nullable = tree(&frames).child(Tree::bools(&valid));
    let array = nullable.load(&DType::Utf8(true), 300).unwrap();
    conformance::check(&array, &(Arc::new(rows) as ArrayRef));
}

#[test]
fn a_single_frame_may_lack_its_count_and_numbers_always() {
    let (bytes, _) = text_frame(&["ab", "c", ""]);
    let array = tree(&[(bytes.clone(), 0)]).load(&DType::Utf8(false), 3).unwrap();
    conformance::check(&array, &(Arc::new(StringViewArray::from(vec!["ab", "c", ""])) as ArrayRef));
    assert!(tree(&[(bytes.clone(), 0), (bytes, 3)]).load(&DType::Utf8(false), 6).is_err());

    let (bytes, _) = number_frame(&[4, 5]);
    let array = tree(&[(bytes.clone(), 0), (bytes, 0)]).load(&DType::Primitive(PType::I32, false), 4);
    let expected: ArrayRef = Arc::new(Int32Array::from(vec![4, 5, 4, 5]));
    conformance::check(&array.unwrap(), &expected);
}

#[test]
fn no_valid_rows_have_no_frames() {
    let array = tree(&[]).child(Tree::bools(&[false; 5])).load(&DType::Utf8(true), 5).unwrap();
    conformance::check(&array, &(Arc::new(StringViewArray::new_null(5)) as ArrayRef));
    let one = tree(&[]).child(Tree::bools(&[false, true])).load(&DType::Utf8(true), 2).unwrap();
    assert!(one.decode(&DataType::Utf8View).is_err());
}

#[test]
fn frames_may_share_a_dictionary() {
    // Bytes that are not a trained dictionary serve as content to refer to.
    let dictionary = b"sample of the words that both of them use".to_vec();
    let (bytes, count) = text_frame(&["words that both of them use, and x", "x"]);
    let mut compressor = zstd::bulk::Compressor::with_dictionary(3, &dictionary).unwrap();
    let frame = FrameMetadata { uncompressed_size: bytes.len() as u64, value_count: count as u64 };
    let metadata =
        Metadata { dictionary_size: u32::try_from(dictionary.len()).unwrap(), frames: vec![frame] };
    let tree =
        Tree::new(ID).message(&metadata).buffer(dictionary).buffer(compressor.compress(&bytes).unwrap());
    let array = tree.load(&DType::Utf8(false), 2).unwrap();
    let expected = StringViewArray::from(vec!["words that both of them use, and x", "x"]);
    conformance::check(&array, &(Arc::new(expected) as ArrayRef));
}

#[test]
fn a_slice_decompresses_only_its_frames() {
    let good = number_frame(&[1, 2, 3]);
    let mut broken = zstd::bulk::compress(&good.0, 3).unwrap();
    broken.pop();
    let frame = FrameMetadata { uncompressed_size: 12, value_count: 3 };
    let tree = Tree::new(ID)
        .message(&Metadata { dictionary_size: 0, frames: vec![frame.clone(), frame] })
        .buffer(zstd::bulk::compress(&good.0, 3).unwrap())
        .buffer(broken);
    let array = tree.load(&DType::Primitive(PType::I32, false), 6).unwrap();
    assert!(array.decode(&DataType::Int32).is_err());
    assert!(array.slice(0..3).unwrap().decode(&DataType::Int32).is_ok());
    assert!(array.filter(&Mask::from_indices(6, [0, 2])).is_ok());
    assert!(array.take(&UInt64Array::from(vec![2, 0])).is_ok());
    assert!(array.take(&UInt64Array::from(vec![2, 3])).is_err());
}

#[test]
fn frames_that_hold_many_splits_are_decompressed_once() {
    let values: Vec<i32> = (0..LARGE_FRAME_VALUES as i32 + 1).collect();
    let load = |frames: &[(Vec<u8>, usize)], len: usize| {
        tree(frames).load(&DType::Primitive(PType::I32, false), len).unwrap()
    };
    let large = load(&[number_frame(&values)], values.len());
    assert_eq!(large.encoding(), "arrow");
    let slice = large.slice(1000..1003).unwrap().decode(&DataType::Int32).unwrap();
    assert_eq!(slice.as_ref(), &Int32Array::from(vec![1000, 1001, 1002]));
    let several = load(&[number_frame(&values[1..]), number_frame(&values[..1])], values.len());
    assert_eq!(several.encoding(), ID);
}

#[test]
fn frames_that_are_decompressed_often_are_kept() {
    let words: Vec<String> = (0..120).map(|at| "some text, and ü".repeat(at % 4) + &at.to_string()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let frames: Vec<_> = words.chunks(50).map(text_frame).collect();
    let text = tree(&frames).load(&DType::Utf8(false), 120).unwrap();
    let values: Vec<i32> = (0..120).map(|at| at * 37 % 91).collect();
    let frames: Vec<_> = values.chunks(50).map(number_frame).collect();
    let numbers = tree(&frames).load(&DType::Primitive(PType::I32, false), 120).unwrap();
    let (words, values) = (StringViewArray::from(words), Int32Array::from(values));
    let some = Mask::from_indices(120, (0..120).filter(|at| at % 7 < 2));
    let of_some = some.to_filter();
    for start in (0..118).cycle().take(500) {
        let slice = |array: &EncodedRef, to| array.slice(start..start + 3).unwrap().decode(&to).unwrap();
        assert_eq!(slice(&text, DataType::Utf8View).as_ref(), &words.slice(start, 3));
        assert_eq!(slice(&numbers, DataType::Int32).as_ref(), &values.slice(start, 3));
        if start % 50 == 0 {
            let filtered =
                |array: &EncodedRef, to| array.filter(&some).unwrap().decode(&to).unwrap().to_data();
            let expected = arrow::compute::filter(&words, &of_some).unwrap();
            assert_eq!(filtered(&text, DataType::Utf8View), expected.to_data());
            let expected = arrow::compute::filter(&values, &of_some).unwrap();
            assert_eq!(filtered(&numbers, DataType::Int32), expected.to_data());
        }
    }
}

#[test]
fn long_frames_whose_values_are_far_apart_are_decompressed_once() {
    let long = "x".repeat(SPREAD_FRAME_BYTES);
    let load_frames = |frames: usize, len: usize| {
        let valid: Vec<bool> = (0..len).map(|at| at < frames || at >= len - frames).collect();
        let frames = vec![text_frame(&[&long, "y"]); frames];
        tree(&frames).child(Tree::bools(&valid)).load(&DType::Utf8(true), len).unwrap()
    };
    let load = |len: usize| load_frames(1, len);
    assert_eq!(load_frames(2, SPREAD_FRAME_ROWS + 1).encoding(), ID, "half of the rows each");
    assert_eq!(load(SPREAD_FRAME_ROWS).encoding(), ID);
    let spread = load(SPREAD_FRAME_ROWS + 1);
    assert_eq!(spread.encoding(), "arrow");
    assert_eq!(spread.decode(&DataType::Utf8View).unwrap().null_count(), SPREAD_FRAME_ROWS - 1);
}

#[test]
fn sizes_and_lengths_are_checked() {
    let decode = |frames: &[(Vec<u8>, usize)], rows| {
        tree(frames).load(&DType::Utf8(false), rows)?.decode(&DataType::Utf8View)
    };
    let (good, count) = text_frame(&["ab", "c"]);
    assert!(decode(&[(good.clone(), count)], 2).is_ok());
    assert!(decode(&[(good.clone(), 1)], 1).is_err(), "bytes after the last value");
    assert!(decode(&[(good.clone(), 3)], 3).is_err());
    assert!(decode(&[(good.clone(), 2)], 3).is_err());
    assert!(decode(&[(good.clone(), 3)], 2).is_err());
    assert!(decode(&[(good[..3].to_vec(), 1)], 1).is_err());
    let mut long = good.clone();
    long[0] = 200;
    assert!(decode(&[(long, 2)], 2).is_err());
    let mut not_text = good;
    not_text[4] = 0xFF;
    assert!(decode(&[(not_text, 2)], 2).is_err());

    let lying = zstd::bulk::compress(&[0; 100], 3).unwrap();
    assert!(decompress(&lying, 101).is_err());
    assert!(decompress(&lying[..lying.len() - 1], 100).is_err());
    assert!(decompress(b"no frame", 8).is_err());
    assert!(decompress(&lying, 100).is_ok(), "a failure leaves the context usable");
}

#[test]
fn a_frame_too_short_for_its_size_reserves_nothing() {
    // Magic, a descriptor with an eight-byte content size, the window, and the size.
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0xC0, 0x50];
    frame.extend((1u64 << 40).to_le_bytes());
    assert_eq!(zstd::zstd_safe::get_frame_content_size(&frame).unwrap(), Some(1 << 40));
    let error = decompress(&frame, 1 << 40).unwrap_err().to_string();
    assert!(error.contains("cannot hold"), "{error}");
}
