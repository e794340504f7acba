//! Text: its dictionaries, and values that rows share.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BinaryViewBuilder, BooleanArray, DictionaryArray, Int32Array, RecordBatch,
    StringArray,
};
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::{DataType, Int8Type, Int32Type};
use vortex_core::dtype::DType;
use vortex_core::expr::{CompareOp, Expr, FieldPath, Predicate};
use vortex_core::scalar::{Scalar, Value};
use vortex_core::write::WriteOptions;
use vortex_core::{Level, VortexFile};

use crate::given::{collect, opened, read_as, written, written_by};
use crate::random::{Random, scattered};

#[tokio::test]
async fn dictionaries_that_do_not_fit_into_one_come_back_with_wider_keys() {
    let batch = |start: usize| {
        let words = (start..start + 100).map(|at| format!("word {at}"));
        let keys = (0..100i8).map(|key| (key % 7 > 0).then_some(key)).collect();
        let words: ArrayRef = Arc::new(StringArray::from_iter_values(words));
        let column = DictionaryArray::<Int8Type>::try_new(keys, words).unwrap();
        RecordBatch::try_from_iter_with_nullable([("a", Arc::new(column) as ArrayRef, true)]).unwrap()
    };
    let file = opened(written(&[0, 1000, 2000].map(batch), WriteOptions::new()).await).await;
    let wide = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    assert_eq!(*file.schema().unwrap().field(0).data_type(), wide);
    let found = collect(file.scan()).await.unwrap();
    let text = |array: &ArrayRef| cast(array, &DataType::Utf8).unwrap();
    assert_eq!(&text(&found.column(0).slice(100, 100)), &text(batch(1000).column(0)));
}

/// Text with some hundred values in more rows than one chunk has, and text without repetition.
fn words(rows: usize) -> RecordBatch {
    let word = |at: usize| format!("the {}th of the words that are said again and again", at * at % 499);
    let text = StringArray::from_iter((0..rows).map(|at| (at % 13 != 0).then(|| word(at))));
    let unique = StringArray::from_iter_values((0..rows).map(|at| format!("row {at}")));
    RecordBatch::try_from_iter([("word", Arc::new(text) as ArrayRef), ("unique", Arc::new(unique))]).unwrap()
}

#[tokio::test]
async fn text_that_repeats_has_one_dictionary() {
    let batch = words(300_000);
    let file = opened(written([&batch], WriteOptions::new()).await).await;
    let layout = |at| file.footer().layout().field(at).unwrap().unwrap();
    let data = |at| layout(at).children().unwrap()[0].1.id().to_owned();
    assert_eq!((data(0).as_str(), data(1).as_str()), ("vortex.dict", "vortex.chunked"));
    assert_eq!(read_as(&file, batch.schema()).await, batch);
    let word = "the 4th of the words that are said again and again";
    let text = Scalar::try_new(DType::Utf8(false), Value::Utf8(word.into())).unwrap();
    let fourth = Expr::Field(FieldPath::new(["word"]), Predicate::Compare(CompareOp::Eq, text));
    let found = collect(file.scan().with_schema(batch.schema()).with_filter(fourth)).await.unwrap();
    let keep = BooleanArray::from_iter((0..300_000usize).map(|at| Some(at % 13 != 0 && at * at % 499 == 4)));
    assert_eq!(found, filter_record_batch(&batch, &keep).unwrap());
}

/// A file whose rows are written 10,000 at a time, in little memory; those before one of them are flushed.
async fn flushed_at(row: Option<usize>, rows: &RecordBatch) -> VortexFile {
    let options = WriteOptions::new().with_memory_budget(1 << 20);
    let (bytes, _) = written_by(rows.schema(), options, async |writer| {
        for start in (0..rows.num_rows()).step_by(10_000) {
            if row == Some(start) {
                writer.flush().await?;
            }
            writer.write(&rows.slice(start, 10_000)).await?;
        }
        Ok(())
    })
    .await;
    opened(bytes).await
}

/// The layouts that hold the chunks of the first column, one for each dictionary.
fn layouts(file: &VortexFile) -> Vec<String> {
    let zoned = file.footer().layout().field(0).unwrap().unwrap().children().unwrap();
    zoned[0].1.children().unwrap().iter().map(|(_, chunk)| chunk.id().to_owned()).collect()
}

/// Values that change gradually: each dictionary has different ones, including nulls and empty text; late
/// ones are unique.
fn wandering(rows: std::ops::Range<usize>) -> RecordBatch {
    let word = |row: usize| match row {
        row if row % 17 == 0 => None,
        row if row % 19 == 0 => Some(String::new()),
        row if row > 200_000 => Some(format!("only once, row {row}")),
        row => Some(format!("visit {} page {}", row / 20_000, scattered(row as u64) % 3000)),
    };
    let words: Vec<Option<String>> = rows.map(word).collect();
    let bytes = BinaryArray::from_iter(words.iter().map(|word| word.as_ref().map(String::as_bytes)));
    let words: ArrayRef = Arc::new(StringArray::from_iter(words));
    RecordBatch::try_from_iter_with_nullable([("word", words, true), ("bytes", Arc::new(bytes), true)])
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn text_of_many_dictionaries_comes_back_in_the_order_of_rows() {
    let rows = wandering(0..250_000);
    for flushed in [None, Some(10_000), Some(60_000)] {
        let file = flushed_at(flushed, &rows).await;
        assert_eq!(read_as(&file, rows.schema()).await, rows);
        let ids = layouts(&file);
        assert!(ids.iter().filter(|id| *id == "vortex.dict").count() > 1, "{ids:?}");
        assert_eq!(ids.last().unwrap(), "vortex.flat", "{ids:?}");
    }
}

#[tokio::test]
async fn rows_that_are_all_alike_do_not_keep_later_ones_from_a_dictionary() {
    let word = |row: u64| (row >= 150_000).then(|| format!("a page of kind {}", scattered(row) % 300));
    let words: ArrayRef = Arc::new(StringArray::from_iter((0..300_000).map(word)));
    let rows = RecordBatch::try_from_iter_with_nullable([("word", words, true)]).unwrap();
    let file = flushed_at(Some(150_000), &rows).await;
    assert_eq!(read_as(&file, rows.schema()).await, rows);
    let ids = layouts(&file);
    assert_eq!(ids.first().unwrap(), "vortex.flat", "{ids:?}");
    assert_eq!(ids.last().unwrap(), "vortex.dict", "{ids:?}");
}

#[tokio::test]
async fn long_text_is_stored_once_however_many_rows_have_it() {
    let mut random = Random(5);
    for values in [1, 2] {
        let text: Vec<String> =
            (0..values).map(|_| (0..2000).map(|_| format!("{:016x}", random.next())).collect()).collect();
        let keys = Int32Array::from_iter_values((0..9000).map(|row| row % values));
        let column: DictionaryArray<Int32Type> =
            DictionaryArray::new(keys, Arc::new(StringArray::from_iter_values(&text)));
        let batch = RecordBatch::try_from_iter([("a", Arc::new(column) as ArrayRef)]).unwrap();
        for level in [Level::Fast, Level::Default, Level::Compact] {
            let bytes = written([&batch], WriteOptions::new().with_level(level)).await;
            let text_bytes = text.iter().map(String::len).sum::<usize>();
            assert!(bytes.len() < text_bytes + 16_000, "{} bytes, {level}", bytes.len());
            assert_eq!(read_as(&opened(bytes).await, batch.schema()).await, batch);
        }
    }
}

#[tokio::test]
async fn views_that_overlap_are_written_within_the_budget() {
    let mut random = Random(6);
    let bytes: Vec<u8> = (0..9000).flat_map(|_| random.next().to_le_bytes()).collect();
    let mut views = BinaryViewBuilder::new();
    let block = views.append_block(bytes.into());
    (0..400).for_each(|row| views.try_append_view(block, row, 64 << 10).unwrap());
    let batch = RecordBatch::try_from_iter([("a", Arc::new(views.finish()) as ArrayRef)]).unwrap();
    let options = WriteOptions::new().with_memory_budget(1 << 20);
    let (bytes, _) = written_by(batch.schema(), options, async |writer| {
        writer.write(&batch).await?;
        // 25 MiB once they are apart, of which 8 MiB are taken in at a time.
        let held = writer.buffered_bytes();
        assert!(held < 16 << 20, "{held}");
        Ok(())
    })
    .await;
    assert_eq!(read_as(&opened(bytes).await, batch.schema()).await, batch);
}
