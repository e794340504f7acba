//! Writes datasets for every profile of readers, for the interop test in `interop/`.
//!
//! `interop OUT` reads the golden files of this crate and makes a table of its own; each becomes
//! `OUT/<profile>/<dataset>.vortex`, with what it must read as in a `.arrow` file beside.
//! Columns that a profile cannot hold are left out of both.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    RecordBatchOptions, StringArray, TimestampMicrosecondArray, UInt8Array, UInt64Array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use arrow::ipc::reader::FileReader;
use arrow::ipc::writer::FileWriter as ArrowWriter;
use vortex_core::io::{LocalFile, LocalSink};
use vortex_core::write::{WriteOptions, can_write, write_stream};
use vortex_core::{Level, Release, VortexFile};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Who must read the files.
const PROFILES: [Release; 5] =
    [Release::OLDEST, Release::new(0, 54), Release::new(0, 76), Release::new(0, 85), Release::NEWEST];

/// Golden datasets: the newest of each name.
const GOLDEN: [&str; 3] = ["0.91.0", "0.87.0", "0.75.0"];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let out = PathBuf::from(std::env::args().nth(1).ok_or("usage: interop OUT")?);
    for profile in PROFILES {
        let folder = out.join(profile.to_string());
        std::fs::create_dir_all(&folder)?;
        for (name, batches) in golden().await? {
            write(&folder, &name, batches, profile).await?;
        }
        for level in [Level::Fast, Level::Default, Level::Compact] {
            let name = format!("random-{level:?}").to_lowercase();
            let table = random();
            // Batches of odd lengths, so that chunks and zones do not follow them.
            let starts = (0..table.num_rows()).step_by(7001);
            let batches = starts.map(|at| table.slice(at, 7001.min(table.num_rows() - at)));
            write_at(&folder, &name, batches.collect(), profile, level).await?;
        }
    }
    Ok(())
}

/// The golden files, as this crate reads them.
async fn golden() -> Outcome<Vec<(String, Vec<RecordBatch>)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let mut found: Vec<(String, Vec<RecordBatch>)> = Vec::new();
    for release in GOLDEN {
        let mut paths: Vec<_> = std::fs::read_dir(folder.join(release))?
            .map(|entry| Ok(entry?.path()))
            .collect::<Outcome<_>>()?;
        paths.sort();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|end| end == "arrow")) {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if found.iter().any(|(known, _)| *known == name) {
                continue;
            }
            let expected = FileReader::try_new(std::fs::File::open(path)?, None)?;
            let file = VortexFile::open(Arc::new(LocalFile::open(path.with_extension("vortex"))?)).await?;
            let scan = file.scan().with_schema(expected.schema());
            let batches = scan.into_reader()?.collect::<Result<Vec<_>, _>>()?;
            found.push((
                name,
                if batches.is_empty() { vec![RecordBatch::new_empty(expected.schema())] } else { batches },
            ));
        }
    }
    Ok(found)
}

async fn write(folder: &Path, name: &str, batches: Vec<RecordBatch>, profile: Release) -> Outcome<()> {
    write_at(folder, name, batches, profile, Level::Default).await
}

async fn write_at(
    folder: &Path,
    name: &str,
    batches: Vec<RecordBatch>,
    profile: Release,
    level: Level,
) -> Outcome<()> {
    let schema = batches[0].schema();
    let keep: Vec<usize> = (0..schema.fields().len())
        .filter(|at| match can_write(schema.field(*at), profile) {
            Ok(()) => true,
            Err(error) => {
                eprintln!("{profile} {name}: {error}");
                false
            }
        })
        .collect();
    let schema = Arc::new(schema.project(&keep)?);
    let batches = batches.iter().map(|batch| batch.project(&keep)).collect::<Result<Vec<_>, _>>()?;
    let readable = Arc::new(Schema::new(schema.fields().iter().map(without_views).collect::<Vec<_>>()));
    let path = folder.join(format!("{name}.arrow"));
    let mut expected = ArrowWriter::try_new(std::fs::File::create(path)?, &readable)?;
    for batch in &batches {
        let columns = batch.columns().iter().zip(readable.fields());
        let columns = columns.map(|(column, field)| cast(column, field.data_type()));
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = columns.collect::<Result<_, _>>()?;
        expected.write(&RecordBatch::try_new_with_options(Arc::clone(&readable), columns, &options)?)?;
    }
    expected.finish()?;
    let sink = LocalSink::create(folder.join(format!("{name}.vortex")))?;
    let options = WriteOptions::new().with_min_reader(profile).with_level(level);
    let stream = futures::stream::iter(batches.into_iter().map(Ok::<_, vortex_core::Error>));
    write_stream(sink, schema, stream, options).await?;
    Ok(())
}

/// The field in types that Python can compare and filter.
fn without_views(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::List(item) => DataType::List(without_views(item)),
        DataType::LargeList(item) => DataType::LargeList(without_views(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(without_views(item), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(without_views).collect()),
        DataType::Map(entries, sorted) => DataType::Map(without_views(entries), *sorted),
        other => other.clone(),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

/// A table of several zones, most of whose columns differ from zone to zone.
fn random() -> RecordBatch {
    const ROWS: usize = 50_000;
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let noise: Vec<u64> = (0..ROWS).map(|_| next()).collect();
    let valid = |at: usize| !noise[at].is_multiple_of(11);
    let rows = 0..ROWS as i64;
    let words = ["alpha", "beta", "gamma", "delta", "a longer value that does not fit into a view"];
    let text = |at: usize| format!("{:06}-{}", at / 3, words[noise[at] as usize % 5]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("rising", Arc::new(Int64Array::from_iter_values(rows.clone()))),
        ("close", Arc::new(Int32Array::from_iter_values(rows.clone().map(|at| (at / 100) as i32 - 250)))),
        ("small", Arc::new(UInt8Array::from_iter_values(noise.iter().map(|n| (n % 200) as u8)))),
        ("large", Arc::new(UInt64Array::from_iter_values(noise.iter().map(|n| u64::MAX - n)))),
        (
            "gaps",
            Arc::new(Int64Array::from_iter((0..ROWS).map(|at| valid(at).then_some(noise[at] as i64 - 77)))),
        ),
        ("float", Arc::new(Float64Array::from_iter_values(rows.clone().map(|at| at as f64 / 100.0)))),
        (
            "nan",
            Arc::new(Float64Array::from_iter((0..ROWS).map(|at| match at % 9000 {
                5 => Some(f64::NAN),
                6 => None,
                _ => Some(-(at as f64) / 3.0),
            }))),
        ),
        ("text", Arc::new(StringArray::from_iter((0..ROWS).map(|at| valid(at).then(|| text(at)))))),
        ("word", Arc::new(StringArray::from_iter_values(noise.iter().map(|n| words[*n as usize % 5])))),
        ("flag", Arc::new(BooleanArray::from_iter(noise.iter().map(|n| Some(n % 17 == 0))))),
        ("date", Arc::new(Date32Array::from_iter_values(rows.clone().map(|at| (at / 50) as i32)))),
        (
            "time",
            Arc::new(TimestampMicrosecondArray::from_iter_values(rows.clone().map(|at| at * 1_000_037))),
        ),
        (
            "price",
            Arc::new(
                Decimal128Array::from_iter_values(noise.iter().map(|n| i128::from(n % 1_000_000)))
                    .with_precision_and_scale(12, 2)
                    .expect("six digits are within twelve"),
            ),
        ),
        ("constant", Arc::new(Int32Array::from_iter_values(rows.clone().map(|_| 42)))),
        ("nothing", Arc::new(Int32Array::from_iter(rows.map(|_| None)))),
    ];
    let fields = columns
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), array.null_count() > 0));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    RecordBatch::try_new(schema, columns.into_iter().map(|(_, array)| array).collect())
        .expect("columns were made for the schema")
}
