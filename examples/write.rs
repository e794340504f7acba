//! Write a file batch by batch, and read it back; then the same with SQL.

use std::sync::Arc;

use arrow::array::{Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::prelude::SessionContext;
use vortex_core::Level;
use vortex_core::io::LocalSink;
use vortex_core::write::{FileWriter, WriteOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("vortex-example-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let path = folder.join("readings.vortex");

    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("sensor", DataType::Utf8, false),
        Field::new("celsius", DataType::Float64, true),
    ]));
    let options = WriteOptions::new().with_level(Level::Compact);
    // The file gets its name when it is complete; a writer that is dropped leaves nothing behind.
    let mut writer = FileWriter::try_new(LocalSink::create(&path)?, Arc::clone(&schema), options)?;
    for day in 0..100 {
        let rows = day * 1000..(day + 1) * 1000;
        let batch = RecordBatch::try_new(
            Arc::clone(&schema),
            vec![
                Arc::new(Int64Array::from_iter_values(rows.clone())),
                Arc::new(StringArray::from_iter_values(
                    rows.clone().map(|row| format!("sensor {}", row % 9)),
                )),
                Arc::new(
                    rows.map(|row| (row % 50 != 0).then(|| (row % 400) as f64 / 10.0))
                        .collect::<Float64Array>(),
                ),
            ],
        )?;
        writer.write(&batch).await?;
    }
    let summary = writer.finish().await?;
    println!("{} rows, {} bytes", summary.row_count(), summary.file_size());

    let ctx = SessionContext::new();
    vortex_datafusion::register(&ctx)?;
    vortex_datafusion::enable_url_tables(&ctx);
    let (from, to) = (path.display(), folder.join("by-sensor"));
    let copy = format!(
        "COPY (SELECT * FROM '{from}' ORDER BY id) TO '{}/' STORED AS VORTEX PARTITIONED BY (sensor)
         OPTIONS (level 'fast')",
        to.display()
    );
    ctx.sql(&copy).await?.show().await?;
    let coldest = format!("SELECT min(celsius), count(*) FROM '{from}' WHERE id > 50000");
    ctx.sql(&coldest).await?.show().await?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
