//! Arrays in unusual forms that Arrow permits: they are read back unchanged, or are rejected before
//! anything is written.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BinaryArray, BooleanArray, Decimal128Array, Decimal256Array,
    DictionaryArray, FixedSizeBinaryArray, FixedSizeListArray, Int8Array, Int32Array, Int64Array,
    LargeBinaryArray, LargeListViewArray, ListArray, ListViewArray, PrimitiveArray, RecordBatch, RunArray,
    StringArray, StringViewArray, StringViewBuilder, StructArray, make_array,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Field, Int8Type, Int16Type, Int32Type, Int64Type, SchemaRef, i256};
use arrow::util::display::array_value_to_string;
use futures::TryStreamExt as _;
use vortex_core::Level;
use vortex_core::expr::{Expr, FieldPath, Predicate, RowPredicate};
use vortex_core::io::{LocalSink, MemorySink};
use vortex_core::write::{FileWriter, WriteOptions};

use crate::given::{collect, opened, verified, written};
use crate::random::Random;

fn batch(column: ArrayRef) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([("a", column, true)]).unwrap()
}

/// Reads back written batches, whose file must be valid.
async fn round_trip(batches: &[RecordBatch]) -> RecordBatch {
    let bytes = written(batches, WriteOptions::new()).await;
    assert_eq!(verified(bytes.clone()).await.problems, []);
    collect(opened(bytes).await.scan()).await.unwrap()
}

/// Checks that the column is read back with its type, whichever part of it is written.
async fn comes_back(column: ArrayRef) {
    for (start, len) in [(0, column.len()), (1, column.len() - 1), (2, column.len() - 3), (1, 0)] {
        let part = batch(column.slice(start, len));
        let found = round_trip(std::slice::from_ref(&part)).await;
        assert_eq!(found.schema(), part.schema());
        assert_eq!(&plain(found.column(0)), &plain(part.column(0)), "{start}, {len}");
    }
}

/// Removes dictionary and similar representations, which readers may choose.
fn plain(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Dictionary(_, values) => plain(&cast(array, values).unwrap()),
        DataType::RunEndEncoded(_, values) => plain(&cast(array, values.data_type()).unwrap()),
        DataType::ListView(item) => plain(&cast(array, &DataType::List(Arc::clone(item))).unwrap()),
        DataType::LargeListView(item) => plain(&cast(array, &DataType::LargeList(Arc::clone(item))).unwrap()),
        _ => Arc::clone(array),
    }
}

#[tokio::test]
async fn list_views_may_overlap_run_backwards_and_hide_garbage_under_nulls() {
    let item = Arc::new(Field::new("item", DataType::Int32, true));
    let items: ArrayRef = Arc::new(Int32Array::from_iter((0..100).map(|at| (at % 9 > 0).then_some(at))));
    let starts = vec![90, 0, 5, 5, 3, 100, 7, 0];
    let lengths = vec![10, 100, 5, 5, 0, 0, 93, 1];
    let nulls = NullBuffer::from(vec![true, true, false, true, true, true, false, true]);
    let views =
        ListViewArray::new(item, starts.into(), lengths.into(), Arc::clone(&items), Some(nulls.clone()));
    comes_back(Arc::new(views)).await;

    let item = Arc::new(Field::new("item", DataType::Int32, true));
    let starts: Vec<i64> = vec![0, 50, 10, 10, 99, 0, 60, 20];
    let lengths: Vec<i64> = vec![100, 50, 1, 0, 1, 100, 2, 3];
    let views = LargeListViewArray::new(item, starts.into(), lengths.into(), items, Some(nulls));
    comes_back(Arc::new(views)).await;
}

#[tokio::test]
async fn items_that_are_not_nullable_may_be_null_in_null_lists_of_a_fixed_size() {
    let valid = || Some(NullBuffer::from(vec![true, false, true, false, true]));
    let of_two = |item: ArrayRef| -> ArrayRef {
        let field = Arc::new(Field::new("item", item.data_type().clone(), false));
        Arc::new(FixedSizeListArray::new(field, 2, item, valid()))
    };
    let hidden = [1, 2, 5, 6, 9, 10];
    let number = |at: i32| (at % 4 < 2).then_some(hidden[(at / 4 * 2 + at % 4 % 2) as usize]);
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter((0..10).map(number)));
    comes_back(of_two(Arc::clone(&numbers))).await;
    let field = Field::new("x", DataType::Int32, false);
    let structs = StructArray::new(vec![field].into(), vec![Arc::clone(&numbers)], numbers.nulls().cloned());
    comes_back(of_two(Arc::new(structs))).await;
    let inner = of_two(numbers);
    let field = Field::new("lists", inner.data_type().clone(), false);
    comes_back(Arc::new(StructArray::new(vec![field].into(), vec![inner], valid()))).await;
}

#[tokio::test]
async fn a_small_list_view_of_many_items_is_written_piece_by_piece() {
    // 60 rows of 4 MB each, all with the same million items.
    let item = Arc::new(Field::new("item", DataType::Int32, false));
    let mut random = Random(1);
    let items: ArrayRef = Arc::new(Int32Array::from_iter_values((0..1 << 20).map(|_| random.next() as i32)));
    let (starts, lengths) = (vec![0; 60], vec![1 << 20; 60]);
    let views =
        ListViewArray::new(Arc::clone(&item), starts.into(), lengths.into(), Arc::clone(&items), None);
    let views = batch(Arc::new(views));
    let options = WriteOptions::new().with_memory_budget(16 << 20);
    let mut writer = FileWriter::try_new(MemorySink::new(), views.schema(), options).unwrap();
    writer.write(&views).await.unwrap();
    assert!(writer.bytes_written() > 0, "all of it waits in memory");
    assert!(writer.buffered_bytes() < 24 << 20, "{}", writer.buffered_bytes());
    assert_eq!(writer.finish().await.unwrap().row_count(), 60);
}

#[tokio::test]
async fn dictionaries_may_have_values_that_are_null_equal_or_of_no_row() {
    let words = StringArray::from(vec![Some("unused"), None, Some("b"), Some("b"), Some("c")]);
    let keys = Int32Array::from(vec![Some(1), Some(2), None, Some(3), Some(4), Some(2), Some(1)]);
    comes_back(Arc::new(DictionaryArray::<Int32Type>::new(keys, Arc::new(words)))).await;
    let numbers = Int64Array::from(vec![Some(7), None]);
    let keys = Int8Array::from(vec![Some(1), None, Some(1), None, Some(0)]);
    comes_back(Arc::new(DictionaryArray::<Int8Type>::new(keys, Arc::new(numbers)))).await;
}

#[tokio::test]
async fn what_null_keys_hide_in_fields_that_are_not_nullable_can_be_read() {
    let bytes = FixedSizeBinaryArray::try_from_iter([*b"abc", *b"def"].iter()).unwrap();
    let field = |data_type: &DataType| Field::new("bytes", data_type.clone(), false);
    let fields = vec![field(bytes.data_type())].into();
    let structs = StructArray::new(fields, vec![Arc::new(bytes.clone()) as ArrayRef], None);
    let keys = Int32Array::from(vec![Some(1), None, Some(0)]);
    comes_back(Arc::new(DictionaryArray::<Int32Type>::new(keys.clone(), Arc::new(structs)))).await;
    let dictionary = DictionaryArray::<Int32Type>::new(keys, Arc::new(bytes));
    let fields = vec![field(dictionary.data_type())].into();
    let valid = NullBuffer::from(vec![true, false, true]);
    comes_back(Arc::new(StructArray::new(fields, vec![Arc::new(dictionary)], Some(valid)))).await;
}

#[tokio::test]
async fn dictionaries_of_structs_are_read_with_keys_that_count_all_rows() {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![7, 8]));
    let structs = StructArray::new(vec![Field::new("x", DataType::Int64, false)].into(), vec![numbers], None);
    let rows = |count: i32| -> ArrayRef {
        let keys = Int8Array::from_iter_values((0..count).map(|row| (row % 2) as i8));
        Arc::new(DictionaryArray::<Int8Type>::new(keys, Arc::new(structs.clone())))
    };
    comes_back(rows(100)).await;
    let found = round_trip(&[batch(rows(200))]).await;
    let expected = cast(&rows(200), structs.data_type()).unwrap();
    assert_eq!(&cast(found.column(0), structs.data_type()).unwrap(), &expected);
    let keys = Box::new(DataType::Int32);
    assert_eq!(
        found.column(0).data_type(),
        &DataType::Dictionary(keys, Box::new(structs.data_type().clone()))
    );
}

#[tokio::test]
async fn items_in_runs_are_read_with_ends_that_count_those_of_many_lists() {
    let lists = |rows: usize| -> ArrayRef {
        let ends = PrimitiveArray::<Int16Type>::from_iter_values((1..=rows as i16).map(|row| row * 5));
        let values = Int64Array::from_iter_values(0..rows as i64);
        let items: ArrayRef = Arc::new(RunArray::<Int16Type>::try_new(&ends, &values).unwrap());
        let item = Arc::new(Field::new("item", items.data_type().clone(), true));
        Arc::new(ListArray::new(item, OffsetBuffer::from_lengths(vec![5; rows]), items, None))
    };
    comes_back(lists(100)).await;
    let batches: Vec<_> = (0..14).map(|_| batch(lists(6000))).collect();
    let found = round_trip(&batches).await;
    assert_eq!(found.num_rows(), 14 * 6000);
    let DataType::List(item) = found.column(0).data_type() else { panic!("not lists") };
    let DataType::RunEndEncoded(ends, _) = item.data_type() else { panic!("not runs") };
    assert_eq!(ends.data_type(), &DataType::Int32);
    let items = plain(found.column(0).as_list::<i32>().values());
    let expected = (0..14 * 6000 * 5).map(|at| at / 5 % 6000);
    assert_eq!(items.as_primitive::<Int64Type>(), &Int64Array::from_iter_values(expected));
}

/// A struct in an array, with this name and of this type.
fn struct_of(name: &str, column: ArrayRef) -> ArrayRef {
    let field = Field::new(name, column.data_type().clone(), true);
    Arc::new(StructArray::new(vec![field].into(), vec![column], None))
}

/// One value of a dictionary of structs, of which keys of eight bits can tell 128 rows apart.
fn coded_struct() -> ArrayRef {
    let structs = struct_of("x", Arc::new(Int64Array::from(vec![7])));
    Arc::new(DictionaryArray::<Int8Type>::new(Int8Array::from(vec![0]), structs))
}

/// Views of lists, of which each is the whole of `items`.
fn views_of_all(items: ArrayRef, rows: usize) -> ArrayRef {
    let item = Arc::new(Field::new("item", items.data_type().clone(), true));
    let (offsets, sizes) = (vec![0; rows], vec![i32::try_from(items.len()).unwrap(); rows]);
    Arc::new(ListViewArray::new(item, offsets.into(), sizes.into(), items, None))
}

/// A run of 200 numbers.
fn items_of_seven() -> ArrayRef {
    let ends = PrimitiveArray::<Int16Type>::from_iter_values([200]);
    Arc::new(RunArray::<Int16Type>::try_new(&ends, &Int64Array::from(vec![7])).unwrap())
}

/// 200 rows of a run of the first of 300 lists, with the item `count` times; the others are empty.
fn first_of_many(item: ArrayRef, count: usize) -> ArrayRef {
    let items = take(&item, &Int32Array::from(vec![0; count]), None).unwrap();
    let field = Arc::new(Field::new("item", items.data_type().clone(), true));
    let lengths = std::iter::once(count).chain([0; 299]);
    let lists = ListArray::new(field, OffsetBuffer::from_lengths(lengths), items, None);
    let ends = Int32Array::from_iter_values(1000..1300);
    Arc::new(RunArray::<Int32Type>::try_new(&ends, &lists).unwrap().slice(0, 200))
}

#[tokio::test]
async fn items_between_those_that_views_show_are_not_expanded() {
    let ends = Int64Array::from(vec![1 << 40, (1 << 40) + 5, 1 << 41]);
    let values = Int64Array::from(vec![7, 8, 9]);
    let items: ArrayRef = Arc::new(RunArray::<Int64Type>::try_new(&ends, &values).unwrap());
    let item = Arc::new(Field::new("item", items.data_type().clone(), true));
    let (offsets, sizes) = (vec![(1_i64 << 40) - 2, 0, 1 << 40, 3], vec![3_i64, 0, 7, 1]);
    let views = LargeListViewArray::new(item, offsets.into(), sizes.into(), items, None);
    let shown = |found: &ArrayRef, row| array_value_to_string(found, row).unwrap();
    for (start, len, rows) in [
        (0, 3, vec!["[7, 7, 8]", "[]", "[8, 8, 8, 8, 8, 9, 9]"]),
        (2, 2, vec!["[8, 8, 8, 8, 8, 9, 9]", "[7]"]),
    ] {
        let found = round_trip(&[batch(Arc::new(views.slice(start, len)))]).await;
        let found: Vec<_> = (0..len).map(|row| shown(found.column(0), row)).collect();
        assert_eq!(found, rows);
    }
}

#[tokio::test]
async fn keys_and_ends_below_what_is_repeated_count_it_as_often_as_it_is_shown() {
    let rows = 200;
    let run = |values: &ArrayRef| -> ArrayRef {
        let ends = Int32Array::from(vec![rows]);
        Arc::new(RunArray::<Int32Type>::try_new(&ends, values.as_ref()).unwrap())
    };
    let coded = |values: ArrayRef| -> ArrayRef {
        let keys = Int32Array::from(vec![0; rows as usize]);
        Arc::new(DictionaryArray::<Int32Type>::new(keys, values))
    };
    let ends = PrimitiveArray::<Int16Type>::from_iter_values([200]);
    let items: ArrayRef =
        Arc::new(RunArray::<Int16Type>::try_new(&ends, &Int64Array::from(vec![7])).unwrap());
    let list = {
        let item = Arc::new(Field::new("item", items.data_type().clone(), true));
        Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([200]), Arc::clone(&items), None))
    };
    for column in [
        run(&coded_struct()),
        views_of_all(coded_struct(), rows as usize),
        coded(struct_of("d", coded_struct())),
        coded(struct_of("d", run(&coded_struct()).slice(0, 1))),
        views_of_all(items, rows as usize),
        run(&(Arc::clone(&list) as ArrayRef)),
        first_of_many(coded_struct(), 100),
        first_of_many(items_of_seven(), 100),
    ] {
        let written: Vec<_> = (0..60).map(|_| batch(Arc::clone(&column))).collect();
        let found = round_trip(&written).await;
        assert_eq!(found.num_rows(), 60 * rows as usize);
        let shown = |array: &ArrayRef, row| array_value_to_string(array, row).unwrap();
        for row in [0, 199, 8191, 60 * 200 - 1] {
            assert_eq!(shown(found.column(0), row), shown(&column, 0), "{}", column.data_type());
        }
    }
}

#[tokio::test]
async fn runs_that_dictionaries_and_lists_repeat_may_have_narrow_ends() {
    let ends = PrimitiveArray::<Int16Type>::from_iter_values([150, 200]);
    let numbers = Int64Array::from(vec![Some(7), None]);
    let runs: ArrayRef = Arc::new(RunArray::<Int16Type>::try_new(&ends, &numbers).unwrap());
    let rows = 40_000;
    let keys = |row: i32| (row % 11 != 5).then_some(row % 200);
    let coded = |values: ArrayRef, rows: i32| -> ArrayRef {
        let keys = Int32Array::from_iter((0..rows).map(keys));
        Arc::new(DictionaryArray::<Int32Type>::new(keys, values))
    };
    let expected = |row: i32| keys(row).filter(|key| *key < 150).map(|_| 7);
    let bytes: ArrayRef =
        Arc::new(FixedSizeBinaryArray::try_from_iter(vec![b"abc"; 200].into_iter()).unwrap());
    let fields = vec![
        Field::new("runs", runs.data_type().clone(), true),
        Field::new("bytes", bytes.data_type().clone(), false),
    ];
    let structs: ArrayRef = Arc::new(StructArray::new(fields.into(), vec![Arc::clone(&runs), bytes], None));
    let file = opened(written(&[batch(coded(Arc::clone(&structs), rows))], WriteOptions::new()).await).await;
    // Arrow could not join them.
    let parts: Vec<_> = file.scan().into_stream().unwrap().try_collect().await.unwrap();
    let mut row = 0;
    for part in parts {
        for at in 0..part.num_rows() {
            let number = expected(row).map_or(String::new(), |number| number.to_string());
            let shown = keys(row).map_or(String::new(), |_| format!("{{runs: {number}, bytes: 616263}}"));
            assert_eq!(array_value_to_string(part.column(0), at).unwrap(), shown, "{row}");
            row += 1;
        }
    }
    assert_eq!(row, rows);
    for none in
        [coded(Arc::clone(&structs), 0), coded(structs.slice(0, 0), 0), views_of_all(runs, 9).slice(0, 0)]
    {
        assert_eq!(round_trip(&[batch(none)]).await.num_rows(), 0);
    }
}

#[tokio::test]
async fn batches_whose_columns_have_other_names_are_refused() {
    let of = |names: [&str; 2]| {
        let one: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        RecordBatch::try_from_iter(names.map(|name| (name, Arc::clone(&one)))).unwrap()
    };
    let schema = of(["from", "to"]).schema();
    let mut writer = FileWriter::try_new(MemorySink::new(), schema, WriteOptions::new()).unwrap();
    let error = writer.write(&of(["to", "from"])).await.unwrap_err().to_string();
    assert!(error.contains("column `to` is where the schema has `from`"), "{error}");
}

#[tokio::test]
async fn files_written_from_dictionaries_of_booleans_are_read_as_booleans() {
    // Written before such dictionaries were refused: Arrow cannot make them when reading.
    let bytes = include_bytes!("dictionary_of_booleans.vortex");
    let found = collect(opened(bytes.as_slice()).await.scan()).await.unwrap();
    let expected = BooleanArray::from(vec![Some(true), Some(false), None, Some(true)]);
    assert_eq!(found.column(0).as_boolean(), &expected);
}

#[tokio::test]
async fn runs_come_back_as_runs() {
    let ends = |ends: Vec<i32>| Int32Array::from(ends);
    let words = StringArray::from(vec![Some("a"), None, Some(""), Some("a longer text than views hold")]);
    comes_back(Arc::new(RunArray::<Int32Type>::try_new(&ends(vec![2, 3, 10, 11]), &words).unwrap())).await;
    let numbers = Int64Array::from(vec![1, 2]);
    let ends = arrow::array::Int16Array::from(vec![1, 300]);
    comes_back(Arc::new(RunArray::<Int16Type>::try_new(&ends, &numbers).unwrap())).await;
}

#[tokio::test]
async fn a_long_run_of_a_long_text_takes_no_memory() {
    let text = "0123456789abcdef".repeat(1 << 12);
    let ends = Int64Array::from(vec![50_000, 50_001]);
    let words = StringArray::from(vec![text.as_str(), "end"]);
    let runs = batch(Arc::new(RunArray::<Int64Type>::try_new(&ends, &words).unwrap()));
    let file = opened(written([&runs], WriteOptions::new()).await).await;
    let found = collect(file.scan().with_row_indices([0, 49_999, 50_000])).await.unwrap();
    let found = plain(found.column(0));
    let found = found.as_string::<i32>();
    assert_eq!((found.value(0), found.value(1), found.value(2)), (text.as_str(), text.as_str(), "end"));
}

#[tokio::test]
async fn views_may_have_a_buffer_for_every_row() {
    let mut builder = StringViewBuilder::new();
    for row in 0..10_000u32 {
        let text = format!("text number {row} of ten thousand");
        let block = builder.append_block(Buffer::from(text.as_bytes()));
        builder.try_append_view(block, 0, text.len() as u32).unwrap();
    }
    let views: StringViewArray = builder.finish();
    assert_eq!(views.data_buffers().len(), 10_000);
    comes_back(Arc::new(views)).await;
}

#[tokio::test]
async fn narrow_keys_within_structs_and_lists_get_wider_where_they_must() {
    let nested = |start: usize| {
        let words: StringArray = (start..start + 100).map(|at| Some(format!("word {at}"))).collect();
        let keys = (0..100i8).map(Some).collect();
        let words: ArrayRef = Arc::new(DictionaryArray::<Int8Type>::try_new(keys, Arc::new(words)).unwrap());
        let item = Arc::new(Field::new("item", words.data_type().clone(), true));
        let lists = ListArray::new(item, OffsetBuffer::from_lengths([60, 40]), Arc::clone(&words), None);
        let field = Arc::new(Field::new("lists", lists.data_type().clone(), true));
        let structs = StructArray::from(vec![(field, Arc::new(lists) as ArrayRef)]);
        batch(Arc::new(structs))
    };
    let batches = [nested(0), nested(100), nested(200)];
    let found = round_trip(&batches).await;
    let words = |batch: &RecordBatch| {
        let lists = ArrayRef::clone(batch.column(0).as_struct().column(0));
        plain(lists.as_list::<i32>().values())
    };
    let written = batches.iter().map(words).collect::<Vec<_>>();
    let written: Vec<_> = written.iter().map(AsRef::as_ref).collect();
    assert_eq!(&words(&found), &arrow::compute::concat(&written).unwrap());
    let DataType::Struct(fields) = found.schema().field(0).data_type().clone() else { panic!("a struct") };
    let DataType::List(item) = fields[0].data_type() else { panic!("a list") };
    let wide = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    assert_eq!(item.data_type(), &wide);
}

#[tokio::test]
async fn a_value_of_more_than_2_gib_is_refused_before_anything_is_written() {
    // Zeros that are never touched take no memory, and are not among the allocations that other tests watch.
    let zeros = memmap2::MmapOptions::new().len(3 << 30).map_anon().unwrap().make_read_only().unwrap();
    let bytes = Buffer::from(bytes::Bytes::from_owner(zeros));
    let long = LargeBinaryArray::new(OffsetBuffer::new(vec![0, 10, 3 << 30].into()), bytes.clone(), None);
    // Readers could represent this one, but refuse it by default.
    let just = BinaryArray::new(OffsetBuffer::new(vec![0, 10, i32::MAX - 10].into()), bytes, None);
    let item = Arc::new(Field::new("item", DataType::LargeBinary, false));
    let lists = ListArray::new(item, OffsetBuffer::from_lengths([2]), Arc::new(long.clone()), None);
    for column in [Arc::new(long) as ArrayRef, Arc::new(lists), Arc::new(just)] {
        let folder = tempfile::tempdir().unwrap();
        let sink = LocalSink::create(folder.path().join("x.vortex")).unwrap();
        let batch = batch(column);
        let mut writer = FileWriter::try_new(sink, batch.schema(), WriteOptions::new()).unwrap();
        let error = writer.write(&batch).await.unwrap_err().to_string();
        assert!(error.contains("column `a`") && error.contains("2146435072 allowed"), "{error}");
        // The writer can be used further without that batch.
        writer.write(&batch.slice(0, 0)).await.unwrap();
        assert_eq!(writer.finish().await.unwrap().row_count(), 0);
    }
}

/// The error for a column that the writer rejects; the writer can be used afterwards.
async fn refusal(column: ArrayRef) -> String {
    let refused = batch(column);
    let mut writer = FileWriter::try_new(MemorySink::new(), refused.schema(), WriteOptions::new()).unwrap();
    let error = writer.write(&refused).await.unwrap_err();
    writer.write(&refused.slice(0, 0)).await.unwrap();
    error.to_string()
}

#[tokio::test]
async fn a_row_that_would_take_gigabytes_is_refused_by_its_number() {
    // 1024 views of the same 8 MB, all of them in a single row.
    let item = Arc::new(Field::new("item", DataType::Int64, false));
    let items: ArrayRef = Arc::new(Int64Array::from_value(7, 1 << 20));
    let (starts, lengths) = (vec![0; 1024], vec![1 << 20; 1024]);
    let inner = ListViewArray::new(item, starts.into(), lengths.into(), items, None);
    let item = Arc::new(Field::new("item", inner.data_type().clone(), false));
    let (starts, lengths) = (vec![0, 0], vec![1, 1024]);
    let outer = ListViewArray::new(item, starts.into(), lengths.into(), Arc::new(inner), None);
    let error = refusal(Arc::new(outer)).await;
    assert!(error.contains("row 1 has") && error.contains("2146435072 allowed"), "{error}");
}

#[tokio::test]
async fn a_list_of_more_items_than_a_chunk_takes_is_refused() {
    let items: ArrayRef = Arc::new(arrow::array::NullArray::new(5_000_000_000));
    let item = Arc::new(Field::new("item", DataType::Null, true));
    let offsets = OffsetBuffer::new(vec![0i64, 5_000_000_000].into());
    let list = batch(Arc::new(arrow::array::LargeListArray::new(item, offsets, items, None)));
    let mut writer = FileWriter::try_new(MemorySink::new(), list.schema(), WriteOptions::new()).unwrap();
    let error = match writer.write(&list).await {
        Err(error) => error,
        Ok(()) => writer.finish().await.map(|_| ()).unwrap_err(),
    };
    assert!(error.to_string().contains("row 0 has 40000000000 bytes"), "{error}");
}

#[tokio::test]
async fn what_is_nested_too_deeply_for_readers_is_refused_before_it_is_written() {
    let nested = |depth: usize| {
        (0..depth).fold(Arc::new(Int64Array::from_iter_values(0..10)) as ArrayRef, |inner, _| {
            let field = Arc::new(Field::new("n", inner.data_type().clone(), false));
            Arc::new(arrow::array::StructArray::new(vec![field].into(), vec![inner], None))
        })
    };
    comes_back(nested(29)).await;
    let schema = batch(nested(31)).schema();
    let error = FileWriter::try_new(MemorySink::new(), schema, WriteOptions::new()).err().unwrap();
    assert!(error.to_string().contains("nested too deeply"), "{error}");
}

#[tokio::test]
async fn structs_that_are_the_only_field_of_another_come_back_from_files_for_any_reader() {
    let only = |inner: ArrayRef, step: usize| -> ArrayRef {
        let valid = NullBuffer::from_iter((0..inner.len()).map(|row| row % step > 0));
        let field = Field::new("only", inner.data_type().clone(), true);
        Arc::new(StructArray::new(vec![field].into(), vec![inner], Some(valid)))
    };
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter((0..100_000).map(|n| (n % 7 > 0).then_some(n))));
    let table = batch(only(only(only(numbers, 3), 5), 11));
    for min_reader in ["0.55", "0.85", "0.89", "newest"] {
        let options = WriteOptions::new().with_min_reader(min_reader.parse().unwrap());
        let bytes = written([&table], options.with_column_level(["a", "only"], Level::Compact)).await;
        assert_eq!(verified(bytes.clone()).await.problems, []);
        let file = opened(bytes).await;
        let rows = collect(file.scan()).await.unwrap();
        assert_eq!(rows, table, "{min_reader}");
        let path = ["a", "only", "only"];
        let nulls = collect(file.scan().with_filter(Expr::Field(path.into(), Predicate::IsNull))).await;
        let expected = (0..100_000).filter(|row| row % 11 == 0 || row % 5 == 0 || row % 3 == 0).count();
        assert_eq!(nulls.unwrap().num_rows(), expected, "{min_reader}");
    }
}

/// A table of more rows than the ends of its runs can count.
fn short_runs() -> Vec<RecordBatch> {
    let batch_from = |first: i64| {
        let ends = PrimitiveArray::<Int16Type>::from_iter_values((1..=300).map(|run| run * 100));
        let values = Int64Array::from_iter_values(first..first + 300);
        batch(Arc::new(RunArray::<Int16Type>::try_new(&ends, &values).unwrap()))
    };
    (0..3).map(|at| batch_from(at * 300)).collect()
}

#[derive(Debug)]
struct IsEven(FieldPath, SchemaRef);

impl std::fmt::Display for IsEven {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a is even")
    }
}

impl RowPredicate for IsEven {
    fn columns(&self) -> &[FieldPath] {
        std::slice::from_ref(&self.0)
    }

    fn schema(&self) -> Option<SchemaRef> {
        Some(Arc::clone(&self.1))
    }

    fn evaluate(&self, batch: &RecordBatch) -> vortex_core::Result<BooleanArray> {
        let values = cast(batch.column(0), &DataType::Int64)?;
        Ok(values.as_primitive::<Int64Type>().iter().map(|value| value.map(|value| value % 2 == 0)).collect())
    }
}

#[tokio::test]
async fn runs_whose_ends_cannot_count_all_rows_keep_their_type() {
    let batches = short_runs();
    let schema = batches[0].schema();
    let bytes = written(&batches, WriteOptions::new()).await;
    assert_eq!(verified(bytes.clone()).await.problems, []);
    let file = opened(bytes).await;
    assert_eq!(file.schema().unwrap(), schema);
    let even = || Expr::Rows(Arc::new(IsEven(FieldPath::new(["a"]), Arc::clone(&schema))));
    for batch_size in [8192, 100_000] {
        for (filter, expected) in [(None, 0..900), (Some(even()), 0..450)] {
            let step = if filter.is_some() { 2 } else { 1 };
            let mut scan = file.scan().with_batch_size(batch_size);
            if let Some(filter) = filter {
                scan = scan.with_filter(filter);
            }
            let found: Vec<RecordBatch> = scan.into_stream().unwrap().try_collect().await.unwrap();
            let values = found.iter().flat_map(|batch| {
                assert_eq!(batch.schema(), schema);
                let values = cast(batch.column(0), &DataType::Int64).unwrap();
                values.as_primitive::<Int64Type>().values().to_vec()
            });
            let expected = expected.flat_map(|value| std::iter::repeat_n(value * step, 100));
            assert!(values.eq(expected), "{batch_size}");
        }
    }
}

#[tokio::test]
async fn decimals_that_no_row_shows_may_have_more_digits_than_their_type() {
    let narrow = Decimal128Array::new(vec![1, -(10i128.pow(30)), 2].into(), None);
    let wide = Decimal256Array::new(vec![i256::ONE, i256::MAX, i256::from_i128(2)].into(), None);
    let all: [ArrayRef; 2] = [
        Arc::new(narrow.with_precision_and_scale(3, 2).unwrap()),
        Arc::new(wide.with_precision_and_scale(3, 2).unwrap()),
    ];
    for decimals in all {
        let shown = || Arc::clone(&decimals);
        let nulls = || NullBuffer::from(vec![true, false, true]);
        let item = |nullable| Arc::new(Field::new("item", decimals.data_type().clone(), nullable));
        let each = OffsetBuffer::from_lengths([1, 1, 1]);
        let under_nulls: [ArrayRef; 5] = [
            make_array(shown().to_data().into_builder().nulls(Some(nulls())).build().unwrap()),
            Arc::new(StructArray::new(vec![item(false)].into(), vec![shown()], Some(nulls()))),
            Arc::new(StructArray::new(vec![item(true)].into(), vec![shown()], Some(nulls()))),
            Arc::new(FixedSizeListArray::new(item(false), 1, shown(), Some(nulls()))),
            Arc::new(ListArray::new(item(true), each, shown(), Some(nulls()))),
        ];
        for column in under_nulls {
            let data_type = column.data_type().clone();
            let found = round_trip(&[batch(column)]).await;
            assert_eq!((found.num_rows(), found.column(0).null_count()), (3, 1), "{data_type}");
        }
        let shown = batch(shown());
        let mut writer = FileWriter::try_new(MemorySink::new(), shown.schema(), WriteOptions::new()).unwrap();
        let error = writer.write(&shown).await.unwrap_err().to_string();
        assert!(error.contains("column `a`") && error.contains("more digits"), "{error}");
    }
}
