//! Writes datasets for every profile of readers, for the interop test in `interop/`.
//!
//! `interop OUT` reads the golden files of this crate and makes tables of its own; each becomes
//! `OUT/<profile>/<dataset>.vortex`, with what it must read as in a `.arrow` file beside.
//! Columns that a profile cannot hold are left out of both.

mod tables;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Schema};
use arrow::ipc::reader::FileReader;
use arrow::ipc::writer::FileWriter as ArrowWriter;
use vortex_core::io::LocalSink;
use vortex_core::write::{WriteOptions, can_write, write_stream};
use vortex_core::{Level, Release, VortexFile};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Who must read the files.
const PROFILES: [Release; 6] = [
    Release::OLDEST,
    Release::new(0, 54),
    Release::new(0, 59),
    Release::new(0, 76),
    Release::new(0, 85),
    Release::NEWEST,
];

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
        for (name, table) in [
            ("plain", tables::plain()),
            ("numbers", tables::numbers()),
            ("nested", tables::nested()),
            ("odd", tables::odd()),
            ("edges", tables::edges()),
        ] {
            // Batches of odd lengths, so that chunks and zones do not follow them.
            let starts = (0..table.num_rows()).step_by(7001);
            let batches: Vec<_> = starts.map(|at| table.slice(at, 7001.min(table.num_rows() - at))).collect();
            for level in [Level::Fast, Level::Default, Level::Compact] {
                let name = format!("random-{name}-{level:?}").to_lowercase();
                write_at(&folder, &name, batches.clone(), profile, level).await?;
            }
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
            let file = VortexFile::open_path(path.with_extension("vortex")).await?;
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
    let mut options = WriteOptions::new().with_min_reader(profile).with_level(level);
    // No reader may stumble over them.
    for field in schema.fields().iter().filter(|field| level == Level::Default && has_bloom_filter(field)) {
        options = options.with_bloom_filter(field.name().as_str());
    }
    let stream = futures::stream::iter(batches.into_iter().map(Ok::<_, vortex_core::Error>));
    write_stream(sink, schema, stream, options).await?;
    Ok(())
}

fn has_bloom_filter(field: &FieldRef) -> bool {
    field.data_type().is_integer() || matches!(field.data_type(), DataType::Utf8 | DataType::Utf8View)
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
