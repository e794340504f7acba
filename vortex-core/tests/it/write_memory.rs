//! The memory used for writing depends on the options, not on the amount of data.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use vortex_core::io::ObjectSink;
use vortex_core::write::{FileWriter, WriteOptions};

use crate::allocations;
use crate::random::Random;

/// Tells the child process below how many batches to write.
const BATCHES: &str = "VORTEX_TEST_WRITES_BATCHES";
const BUDGET: usize = 32 << 20;
/// Three parts of 8 MiB: one is being collected while two are in flight.
const PARTS: usize = 24 << 20;

/// 8,192 rows of 100 columns, about 8 MB: numbers that vary, repeat or are constant, and text.
fn batch(seed: u64) -> RecordBatch {
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

async fn write(batches: u64) {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalFileSystem::new_with_prefix(folder.path()).unwrap();
    let sink = ObjectSink::new(Arc::new(store), Path::from("x.vortex"));
    let options = WriteOptions::new().with_memory_budget(BUDGET);
    let mut writer = FileWriter::try_new(sink, batch(0).schema(), options).unwrap();
    let watch = allocations::watch(0);
    let mut said = 0;
    for seed in 0..batches {
        writer.write(&batch(seed)).await.unwrap();
        said = said.max(writer.buffered_bytes());
    }
    writer.finish().await.unwrap();
    println!("peak {} said {said}", watch.peak());
}

/// The peak of a separate process, so that other tests do not count: the memory that was allocated, and
/// the memory that the writer reported.
fn peak_of(batches: u64) -> (usize, usize) {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "write_memory::peaks_do_not_grow_with_the_file"])
        .env(BATCHES, batches.to_string())
        .output()
        .unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let numbers = output.split_once("peak ").and_then(|(_, rest)| rest.lines().next()).unwrap();
    let (peak, said) = numbers.split_once(" said ").unwrap();
    (peak.parse().unwrap(), said.parse().unwrap())
}

#[test]
fn peaks_do_not_grow_with_the_file() {
    if let Ok(batches) = std::env::var(BATCHES) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        return runtime.unwrap().block_on(write(batches.parse().unwrap()));
    }
    let (short, short_said) = peak_of(30);
    let (long, long_said) = peak_of(90);
    // How much is in progress at once also depends on chance.
    assert!(long < short / 4 * 5, "{short} bytes for 30 batches, {long} for 90");
    // Counted: the budget, and the parts of an upload. Not counted: the batch being written, and the
    // working memory of two encoders.
    let counted = BUDGET + PARTS;
    assert!(short_said.max(long_said) <= counted, "{short_said}, {long_said}");
    assert!(long <= counted + (40 << 20), "{long}");
}
