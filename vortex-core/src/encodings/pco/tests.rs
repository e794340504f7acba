use arrow::array::{
    Array as _, AsArray as _, Float64Array, Int32Array, Int64Array, UInt16Array, UInt64Array,
};
use arrow::datatypes::Int64Type;
use pco::wrapped::FileCompressor;
use pco::{ChunkConfig, DeltaSpec, PagingSpec};

use super::*;
use crate::array::build::Tree;
use crate::dtype::DType;
use crate::encodings::shared::conformance;
use crate::limits::Work;

/// Chunks of pages with values.
fn encode<T: Number>(chunks: &[Vec<&[T]>]) -> (Metadata, Vec<Vec<u8>>) {
    encode_with(&ChunkConfig::default(), chunks)
}

fn encode_with<T: Number>(config: &ChunkConfig, chunks: &[Vec<&[T]>]) -> (Metadata, Vec<Vec<u8>>) {
    let file = FileCompressor::default();
    let mut metadata = Metadata::default();
    file.write_header(&mut metadata.header).unwrap();
    let (mut metas, mut pages) = (vec![], vec![]);
    for chunk in chunks {
        let sizes: Vec<usize> = chunk.iter().map(|page| page.len()).collect();
        let config = config.clone().with_paging_spec(PagingSpec::Exact(sizes.clone()));
        let mut compressor = file.chunk_compressor(&chunk.concat(), &config).unwrap();
        let mut meta = Vec::new();
        compressor.write_meta(&mut meta).unwrap();
        metas.push(meta);
        for page in 0..sizes.len() {
            let mut bytes = Vec::new();
            compressor.write_page(page, &mut bytes).unwrap();
            pages.push(bytes);
        }
        let count = |size: &usize| PageMetadata { value_count: u32::try_from(*size).unwrap() };
        metadata.chunks.push(ChunkMetadata { pages: sizes.iter().map(count).collect() });
    }
    metas.extend(pages);
    (metadata, metas)
}

fn tree((metadata, buffers): (Metadata, Vec<Vec<u8>>)) -> Tree {
    buffers.into_iter().fold(Tree::new(ID).message(&metadata), Tree::buffer)
}

#[test]
fn conforms() {
    let values: Vec<i32> = (0..700).map(|at| at * at % 977 - 300).collect();
    let encoded = encode(&[vec![&values[..300], &values[300..310]], vec![&values[310..]]]);
    let array = tree(encoded).load(&DType::Primitive(PType::I32, false), 700).unwrap();
    conformance::check(&array, &(Arc::new(Int32Array::from(values)) as ArrayRef));
}

#[test]
fn pages_that_are_decoded_in_several_pieces_conform() {
    let values: Vec<i64> = (0..2 * PIECE as i64 + 300).map(|at| at * at % 9973 - 70).collect();
    let (first, second) = values.split_at(PIECE + 77);
    let array = tree(encode(&[vec![first, second]]));
    let array = array.load(&DType::Primitive(PType::I64, false), values.len()).unwrap();
    let expected: ArrayRef = Arc::new(Int64Array::from(values));
    conformance::check(&array, &expected);
    let len = expected.len();
    for rows in
        [0..1, PIECE - 1..PIECE + 1, PIECE..PIECE + 78, PIECE + 70..len, 2 * PIECE + 76..len, 5..len - 5]
    {
        let slice = array.slice(rows.clone()).unwrap();
        let expected = expected.slice(rows.start, rows.len());
        assert_eq!(&slice.decode(&DataType::Int64).unwrap(), &expected, "{rows:?}");
        let some = Mask::from_indices(rows.len(), (0..rows.len()).filter(|at| at % 7 == 0 || at % 1000 < 5));
        let found = slice.filter(&some).unwrap().decode(&DataType::Int64).unwrap();
        assert_eq!(&found, &arrow::compute::filter(&expected, &some.to_filter()).unwrap(), "{rows:?}");
    }
}

#[test]
fn memory_is_not_reserved_for_dictionaries_and_windows_that_are_only_claimed() {
    let values: Vec<i64> = (0..300).map(|at| at * at % 7).collect();
    let config = ChunkConfig::default().with_delta_spec(DeltaSpec::TryLookback);
    let (metadata, buffers) = encode_with(&config, &[vec![&values]]);
    let decoded = |meta: Vec<u8>| {
        let buffers = [vec![meta], buffers[1..].to_vec()].concat();
        let limits = Limits::new().with_max_decoded_bytes(1 << 20);
        let array = tree((metadata.clone(), buffers));
        let array = array.load_within(&DType::Primitive(PType::I64, false), 300, &limits).unwrap();
        let _work = Work::begin();
        array.decode(&DataType::Int64)
    };
    let sound = decoded(buffers[0].clone()).unwrap();
    assert_eq!(sound.as_primitive::<Int64Type>().values(), &values);
    // The logarithm of the window, less one, is in five bits behind those of mode and kind of delta.
    let mut window = buffers[0].clone();
    assert_eq!(window[0] >> 4, 2, "lookback");
    window[1] = window[1] & !31 | 23;
    assert!(matches!(decoded(window), Err(Error::LimitExceeded(_))));
    let dictionary = (DICTIONARY_MODE | ((1 << 25) - 1) << 4).to_le_bytes();
    // The crate would return an error, too, but after it has reserved memory.
    let error = decoded(dictionary.to_vec()).unwrap_err().to_string();
    assert!(error.contains("pco dictionary of 33554431 values in 4 bytes"), "{error}");
}

#[test]
fn values_of_null_rows_are_not_stored() {
    let values: Vec<f64> = (0..300).map(|at| f64::from(at) / 4.0 - 7.0).chain([-0.0, f64::NAN]).collect();
    let valid: Vec<bool> = (0..453).map(|at| at % 3 != 1).collect();
    let mut next = values.iter();
    let rows: Float64Array = valid.iter().map(|valid| valid.then(|| *next.next().unwrap())).collect();
    let encoded = encode(&[vec![&values[..100], &values[100..]]]);
    let nullable = tree(encoded).child(Tree::bools(&valid));
    let array = nullable.load(&DType::Primitive(PType::F64, true), 453).unwrap();
    conformance::check(&array, &(Arc::new(rows) as ArrayRef));
}

#[test]
fn no_valid_rows_have_no_chunks() {
    let tree = tree(encode::<u16>(&[])).child(Tree::bools(&[false; 4]));
    let array = tree.load(&DType::Primitive(PType::U16, true), 4).unwrap();
    conformance::check(&array, &(Arc::new(UInt16Array::new_null(4)) as ArrayRef));
}

#[test]
fn a_slice_decodes_only_its_pages() {
    let values: Vec<i64> = (0..40).collect();
    let (metadata, mut buffers) = encode(&[vec![&values[..20], &values[20..]]]);
    buffers[2].clear();
    let array = tree((metadata, buffers)).load(&DType::Primitive(PType::I64, false), 40).unwrap();
    assert!(array.decode(&DataType::Int64).is_err());
    assert!(array.slice(3..20).unwrap().decode(&DataType::Int64).is_ok());
    assert!(array.filter(&Mask::from_indices(40, [7])).is_ok());
    assert!(array.take(&UInt64Array::from(vec![21])).is_err());
}

#[test]
fn a_page_is_decoded_up_to_the_last_wanted_value() {
    let values: Vec<i64> = (0..4096).map(|at| at * 7_919 % 1_009).collect();
    let (metadata, mut buffers) = encode(&[vec![&values[..]]]);
    let half = buffers[1].len() / 2;
    buffers[1].truncate(half);
    let array = tree((metadata, buffers)).load(&DType::Primitive(PType::I64, false), 4096).unwrap();
    let found = array.take(&UInt64Array::from(vec![3, 1000])).unwrap().decode(&DataType::Int64).unwrap();
    assert_eq!(found.as_primitive::<Int64Type>().values(), &[values[3], values[1000]]);
    assert!(array.take(&UInt64Array::from(vec![4000])).is_err());
}

#[test]
fn pages_that_hold_many_splits_are_decompressed_once() {
    let load = |pages: &[usize]| {
        let values: Vec<u16> = vec![7; pages.iter().sum()];
        let pages = pages.iter().map(|len| &values[..*len]).collect();
        tree(encode(&[pages])).load(&DType::Primitive(PType::U16, false), values.len()).unwrap()
    };
    assert_eq!(load(&[LARGE_PAGE, 9]).encoding(), ID);
    let large = load(&[9, LARGE_PAGE + 1]);
    assert_eq!(large.encoding(), "arrow");
    let slice = large.slice(LARGE_PAGE..LARGE_PAGE + 2).unwrap().decode(&DataType::UInt16).unwrap();
    assert_eq!(slice.as_ref(), &UInt16Array::from(vec![7, 7]));
}

#[test]
fn pages_that_are_decoded_often_are_kept() {
    let values: Vec<i64> = (0..4000).map(|at| at * at % 9973 - 70).collect();
    let (first, second) = values.split_at(2500);
    let array = tree(encode(&[vec![first, second]]));
    let array = array.load(&DType::Primitive(PType::I64, false), 4000).unwrap();
    for start in (0..3990).step_by(11).cycle().take(1000) {
        let slice = array.slice(start..start + 10).unwrap();
        let expected = &values[start..start + 10];
        assert_eq!(slice.decode(&DataType::Int64).unwrap().as_primitive::<Int64Type>().values(), expected);
        let few = slice.filter(&Mask::from_indices(10, [2, 3, 9])).unwrap();
        let few = few.decode(&DataType::Int64).unwrap();
        let expected = [expected[2], expected[3], expected[9]];
        assert_eq!(few.as_primitive::<Int64Type>().values(), &expected);
    }
}

#[test]
fn counts_are_checked() {
    let values: Vec<i64> = (0..40).collect();
    let good = || encode(&[vec![&values[..]]]);
    let i64s = DType::Primitive(PType::I64, false);
    assert!(tree(good()).load(&i64s, 39).is_err());
    assert!(tree(good()).load(&i64s, 41).unwrap().decode(&DataType::Int64).is_err());
    assert!(tree(good()).load(&DType::Primitive(PType::U8, false), 40).is_err());
    assert!(tree(good()).buffer(vec![1u8]).load(&i64s, 40).is_err());
}

#[test]
fn damage_does_not_panic() {
    let values: Vec<i64> = (0..500).map(|at| (at * at * 31) % 1009).collect();
    let (metadata, buffers) = encode(&[vec![&values[..]]]);
    for (at, buffer) in buffers.iter().enumerate() {
        for bit in 0..buffer.len() * 8 {
            let mut damaged = buffers.clone();
            damaged[at][bit / 8] ^= 1 << (bit % 8);
            let array = tree((metadata.clone(), damaged)).load(&DType::Primitive(PType::I64, false), 500);
            let _ = array.unwrap().decode(&DataType::Int64);
        }
        for len in 0..buffer.len() {
            let mut damaged = buffers.clone();
            damaged[at].truncate(len);
            let array = tree((metadata.clone(), damaged)).load(&DType::Primitive(PType::I64, false), 500);
            let _ = array.unwrap().decode(&DataType::Int64);
        }
    }
}

#[test]
fn a_panic_of_the_library_is_an_error() {
    let error = caught::<()>(|| panic!("as pco might")).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
}
