//! The memory used for writing depends on the options, not on the amount of data.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, Int64Builder, ListBuilder, RecordBatch,
    StringArray, StringViewBuilder, UInt64Array,
};
use arrow::buffer::{BooleanBuffer, Buffer, ScalarBuffer};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use vortex_core::Level;
use vortex_core::io::ObjectSink;
use vortex_core::write::{FileWriter, WriteOptions};

use crate::allocations;
use crate::random::Random;

/// Tells a child process how many batches of which kind to write.
const TASK: &str = "VORTEX_TEST_WRITES";
/// Three parts of 8 MiB: one is being collected while two are in flight.
const PARTS: usize = 24 << 20;

/// What to write, and how.
struct Load {
    name: &'static str,
    batch: fn(u64) -> RecordBatch,
    level: Level,
    budget: usize,
}

const LOADS: [Load; 9] = [
    Load { name: "columns", batch: columns, level: Level::Default, budget: 32 << 20 },
    Load { name: "log lines", batch: log_lines, level: Level::Compact, budget: 8 << 20 },
    Load { name: "documents", batch: document, level: Level::Compact, budget: 8 << 20 },
    Load { name: "few rows", batch: few_rows, level: Level::Default, budget: 8 << 20 },
    Load { name: "lists of text", batch: lists_of_text, level: Level::Default, budget: 8 << 20 },
    Load { name: "reserved rows", batch: reserved_rows, level: Level::Default, budget: 8 << 20 },
    Load { name: "slices", batch: slices, level: Level::Default, budget: 8 << 20 },
    Load { name: "slices of lists", batch: slices_of_lists, level: Level::Default, budget: 8 << 20 },
    Load { name: "one allocation", batch: one_allocation, level: Level::Default, budget: 8 << 20 },
];

/// 8,192 rows of 100 columns, about 8 MB: numbers that vary, repeat or are constant, and text.
fn columns(seed: u64) -> RecordBatch {
    let mut random = Random(seed);
    let mut column = |at: usize| -> ArrayRef {
        let rows = 0..8192;
        let text = |random: &mut Random, values: usize| {
            let number = random.below(values);
            format!("https://example.org/{number:x}/{}", number * 7919)
        };
        match at % 10 {
            0 | 1 => Arc::new(Int64Array::from_iter_values(rows.map(|_| random.next().cast_signed() >> 20))),
            2 | 3 => Arc::new(Int32Array::from_iter_values(rows.map(|_| random.below(1000) as i32))),
            4 => Arc::new(Int32Array::from_iter_values(rows.map(|row| row / 500))),
            5 => Arc::new(Float64Array::from_iter_values(rows.map(|_| random.below(1 << 20) as f64 / 100.0))),
            6 => Arc::new(StringArray::from_iter_values(rows.map(|_| text(&mut random, 1 << 30)))),
            7 => Arc::new(StringArray::from_iter_values(rows.map(|_| text(&mut random, 300)))),
            8 => Arc::new(StringArray::from_iter_values(rows.map(|_| ""))),
            _ => Arc::new(Int64Array::from_value(0, rows.len())),
        }
    };
    RecordBatch::try_from_iter((0..100).map(|at| (format!("c{at}"), column(at)))).unwrap()
}

/// 4,096 rows of 450 bytes, which compress to a fraction.
fn log_lines(seed: u64) -> RecordBatch {
    let mut random = Random(seed);
    let rest = "the request was accepted, forwarded and answered within the time that was agreed; ".repeat(5);
    let line = |random: &mut Random| format!("{:08} {} {rest}", random.below(1 << 24), random.below(100));
    let lines = StringArray::from_iter_values((0..4096).map(|_| line(&mut random)));
    RecordBatch::try_from_iter([("line", Arc::new(lines) as ArrayRef)]).unwrap()
}

/// A row of 2 MiB, which compresses to a fraction.
fn document(seed: u64) -> RecordBatch {
    let text = format!("document {seed}: what it says is said again. ").repeat(50_000);
    RecordBatch::try_from_iter([("text", Arc::new(StringArray::from(vec![text])) as ArrayRef)]).unwrap()
}

/// 8 rows of 10 columns.
fn few_rows(seed: u64) -> RecordBatch {
    let mut random = Random(seed);
    let mut column = || Arc::new(Int32Array::from_iter_values((0..8).map(|_| random.below(4) as i32)));
    RecordBatch::try_from_iter((0..10).map(|at| (format!("c{at}"), column() as ArrayRef))).unwrap()
}

/// A row with a list of text; the builder of the text reserves 8 KiB for it.
fn lists_of_text(seed: u64) -> RecordBatch {
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    lists.append_value([Some(format!("row {seed} has a text of some eighty bytes, {}", "x".repeat(40)))]);
    RecordBatch::try_from_iter([("lists", Arc::new(lists.finish()) as ArrayRef)]).unwrap()
}

/// A row of 100 columns; the builder of each reserves 8 KiB for it.
fn reserved_rows(seed: u64) -> RecordBatch {
    let column = || {
        let mut numbers = Int64Builder::new();
        numbers.append_value(seed.cast_signed());
        Arc::new(numbers.finish()) as ArrayRef
    };
    RecordBatch::try_from_iter((0..100).map(|at| (format!("c{at}"), column()))).unwrap()
}

/// 2,000 of 65,536 rows.
fn slices(seed: u64) -> RecordBatch {
    let mut random = Random(seed);
    let numbers = Int64Array::from_iter_values((0..1 << 16).map(|_| random.next().cast_signed()));
    RecordBatch::try_from_iter([("number", Arc::new(numbers) as ArrayRef)]).unwrap().slice(1000, 2000)
}

/// 2,000 of 20,000 lists of text.
fn slices_of_lists(seed: u64) -> RecordBatch {
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    for row in 0..20_000 {
        lists.append_value([Some(format!("row {row} of batch {seed} has a text"))]);
    }
    RecordBatch::try_from_iter([("lists", Arc::new(lists.finish()) as ArrayRef)]).unwrap().slice(1000, 2000)
}

/// 2,048 rows of 100 columns that are parts of one allocation, as those of Arrow's IPC streams are, and one that waits
/// for many more rows.
fn one_allocation(seed: u64) -> RecordBatch {
    const ROWS: usize = 2048;
    let mut random = Random(seed);
    let all: Buffer = (0..101 * ROWS).map(|_| random.next()).collect::<Vec<u64>>().into();
    let wide =
        |at| Arc::new(UInt64Array::new(ScalarBuffer::new(all.clone(), at * ROWS, ROWS), None)) as ArrayRef;
    let narrow = Arc::new(BooleanArray::new(BooleanBuffer::new(all.clone(), 100 * 64 * ROWS, ROWS), None));
    let wide = (0..100).map(|at| (format!("c{at}"), wide(at)));
    RecordBatch::try_from_iter(wide.chain([("narrow".to_owned(), narrow as ArrayRef)])).unwrap()
}

async fn write(load: &Load, batches: u64) {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalFileSystem::new_with_prefix(folder.path()).unwrap();
    let sink = ObjectSink::new(Arc::new(store), Path::from("x.vortex"));
    let options = WriteOptions::new().with_memory_budget(load.budget).with_level(load.level);
    let mut writer = FileWriter::try_new(sink, (load.batch)(0).schema(), options).unwrap();
    let watch = allocations::watch(0);
    let mut said = 0;
    for seed in 0..batches {
        writer.write(&(load.batch)(seed)).await.unwrap();
        said = said.max(writer.buffered_bytes());
    }
    writer.finish().await.unwrap();
    println!("peak {} said {said}", watch.peak());
}

/// Writes what this process was started for, if it was.
fn is_child() -> bool {
    let Ok(task) = std::env::var(TASK) else { return false };
    let (name, batches) = task.split_once(':').unwrap();
    let load = LOADS.iter().find(|load| load.name == name).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(write(load, batches.parse().unwrap()));
    true
}

/// The peak of a separate process, so that other tests do not count: the memory that was allocated, and
/// the memory that the writer reported.
fn peak_of(name: &str, batches: u64) -> (usize, usize) {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "write_memory::peaks_do_not_grow_with_the_file"])
        .env(TASK, format!("{name}:{batches}"))
        .output()
        .unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let numbers = output.split_once("peak ").and_then(|(_, rest)| rest.lines().next()).unwrap();
    let (peak, said) = numbers.split_once(" said ").unwrap();
    (peak.parse().unwrap(), said.parse().unwrap())
}

#[test]
fn peaks_do_not_grow_with_the_file() {
    if is_child() {
        return;
    }
    let (mut short, short_said) = peak_of("columns", 30);
    let (mut long, long_said) = peak_of("columns", 90);
    let grows = |short, long| long >= short / 4 * 5;
    // How much is in progress at once also depends on chance.
    if grows(short, long) {
        (short, long) = (short.max(peak_of("columns", 30).0), long.min(peak_of("columns", 90).0));
    }
    assert!(!grows(short, long), "{short} bytes for 30 batches, {long} for 90");
    // Counted: the budget, and the parts of an upload. Not counted: the batch being written, and the
    // working memory of two encoders.
    let counted = (32 << 20) + PARTS;
    assert!(short_said.max(long_said) <= counted, "{short_said}, {long_said}");
    assert!(long <= counted + (40 << 20), "{long}");
}

#[test]
fn text_that_compresses_well_takes_no_more_than_its_compressed_bytes() {
    for (name, batches) in [("log lines", 60), ("documents", 60)] {
        let (peak, _) = peak_of(name, batches);
        // The file is far smaller than a part of an upload. Not counted: the working memory of two encoders.
        assert!(peak <= (8 << 20) + (28 << 20), "{name}: {peak}");
    }
}

#[test]
fn batches_of_few_rows_take_no_more_than_what_is_counted() {
    for (name, batches) in [("few rows", 24_000), ("lists of text", 10_000), ("reserved rows", 100)] {
        let (peak, said) = peak_of(name, batches);
        assert!(said <= 8 << 20, "{name}: {said}");
        assert!(peak <= (8 << 20) + (6 << 20), "{name}: {peak}");
    }
}

#[test]
fn rows_keep_nothing_in_memory_that_is_not_theirs() {
    for (name, batches) in [("slices", 400), ("slices of lists", 60), ("one allocation", 100)] {
        let (peak, said) = peak_of(name, batches);
        // Not counted: the batch being written, and the working memory of two encoders.
        let counted = (8 << 20) + PARTS;
        assert!(said <= counted, "{name}: {said}");
        assert!(peak <= counted + (8 << 20), "{name}: {peak}");
    }
}
