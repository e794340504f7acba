//! Tables of so many rows that their files are read in several splits: golden files have 5,000 rows at most.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array, ListBuilder,
    RecordBatch, StringArray, StringBuilder, StructArray, TimestampMicrosecondArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Fields};
use arrow::ipc::writer::FileWriter;
use datafusion::common::Result;
use datafusion::prelude::{SessionConfig, SessionContext};
use vortex_datafusion::{VortexDataFrameExt as _, VortexOptions, VortexWriteOptions};

/// Rows of `facts`: three splits of narrow columns, and more of all columns.
const FACTS: u64 = 150_000;
/// Rows of `wide`, which take a kilobyte each: four splits.
const WIDE: u64 = 25_000;
/// Rows of a batch in Arrow files.
const BATCH: usize = 8192;

/// Writes the tables as files of a type, `arrow` or `vortex`, into a folder.
pub(crate) async fn write(folder: &Path, extension: &str) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let filters = "noise, code, price, moment, few, place.x";
    for (name, rows, bloom_filters) in [("facts", facts()?, filters), ("wide", wide()?, "")] {
        let path = folder.join(format!("{name}.{extension}"));
        if extension == "arrow" {
            let mut writer = FileWriter::try_new(File::create(path)?, &rows.schema())?;
            for start in (0..rows.num_rows()).step_by(BATCH) {
                writer.write(&rows.slice(start, BATCH.min(rows.num_rows() - start)))?;
            }
            writer.finish()?;
        } else {
            // With one partition, rows keep their order.
            let config = SessionConfig::new().with_target_partitions(1);
            let session = SessionContext::new_with_config(config);
            vortex_datafusion::register(&session)?;
            let rows = session.read_batch(rows)?;
            let options = VortexOptions::default().with(|it| it.bloom_filters = bloom_filters.to_owned());
            let options = VortexWriteOptions::new().with_options(options);
            rows.write_vortex(&path.to_string_lossy(), options).await?;
        }
    }
    Ok(())
}

/// A number that seems random (SplitMix64).
fn mix(row: u64) -> u64 {
    let mut z = (row + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn below(row: u64, end: u64) -> i64 {
    (mix(row) % end).cast_signed()
}

/// Sorted and scattered numbers, few and many texts, nulls, and nested values.
fn facts() -> Result<RecordBatch> {
    let rows = || 0..FACTS;
    let unless = |is_null: bool, value: i64| (!is_null).then_some(value);
    let words = ["amber", "blue", "coral", "dark", "ebony", "fawn", "green"];
    let word = |row: u64| (mix(row) % 9 < 7).then(|| words[(mix(row) % 9) as usize]);
    // Eighths, whose sums are exact in any order.
    let ratio = |row: u64| match row % 1000 {
        7 => Some(f64::NAN),
        8 => Some(-0.0),
        9 => Some(f64::NEG_INFINITY),
        _ if row % 13 == 5 => None,
        _ => Some(below(row, 100_000) as f64 / 8.0 - 5000.0),
    };
    let mut tags = ListBuilder::new(StringBuilder::new());
    for row in rows() {
        (0..mix(row) % 4).for_each(|at| tags.values().append_value(words[((row + at) % 7) as usize]));
        tags.append(row % 17 > 0);
    }
    let prices = Decimal128Array::from_iter_values(rows().map(|row| below(row, 1_000_000).into()));
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(rows().map(u64::cast_signed))), false),
        ("day", Arc::new(Date32Array::from_iter_values(rows().map(|row| (row / 500) as i32))), false),
        (
            "noise",
            Arc::new(Int64Array::from_iter(rows().map(|row| unless(row % 11 == 3, below(row, 1_000_000))))),
            true,
        ),
        ("few", Arc::new(Int32Array::from_iter_values(rows().map(|row| below(row, 100) as i32))), false),
        ("word", Arc::new(StringArray::from_iter(rows().map(word))), true),
        (
            "code",
            Arc::new(StringArray::from_iter_values(rows().map(|row| format!("{:08x}", mix(row) >> 32)))),
            false,
        ),
        ("price", Arc::new(prices.with_precision_and_scale(12, 2)?), false),
        ("ratio", Arc::new(Float64Array::from_iter(rows().map(ratio))), true),
        (
            "moment",
            Arc::new(TimestampMicrosecondArray::from_iter_values(
                rows().map(|row| (row as i64) * 60_000_000 + below(row, 1_000_000)),
            )),
            false,
        ),
        (
            "flag",
            Arc::new(BooleanArray::from_iter(rows().map(|row| (row % 5 > 0).then(|| mix(row) % 5 < 2)))),
            true,
        ),
        ("tags", Arc::new(tags.finish()), true),
        ("place", Arc::new(places()?), true),
    ];
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

fn places() -> Result<StructArray> {
    let x = Int32Array::from_iter((0..FACTS).map(|row| (row % 6 > 0).then(|| below(row, 1000) as i32)));
    let name = StringArray::from_iter_values((0..FACTS).map(|row| format!("place {}", row / 1000)));
    let fields: Fields =
        vec![Field::new("x", DataType::Int32, true), Field::new("name", DataType::Utf8, false)].into();
    let valid = NullBuffer::from_iter((0..FACTS).map(|row| row % 19 > 0));
    Ok(StructArray::try_new(fields, vec![Arc::new(x), Arc::new(name)], Some(valid))?)
}

/// Texts of a kilobyte, of which there are 50.
fn wide() -> Result<RecordBatch> {
    let texts: Vec<String> = (0..50).map(|at| format!("{at:02} ").repeat(334)).collect();
    let text = |row: u64| texts[(mix(row) % 50) as usize].as_str();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values((0..WIDE).map(u64::cast_signed)))),
        ("body", Arc::new(StringArray::from_iter_values((0..WIDE).map(text)))),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}
