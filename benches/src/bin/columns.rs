//! Time to read each column alone: `columns ROUNDS[,COLUMN...] FILE...`, with files side by side.
//!
//! For each file, prints the shortest time of a full scan of the column on one thread, in milliseconds.

use std::error::Error;
use std::time::Instant;

use futures::TryStreamExt as _;
use vortex_core::VortexFile;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let first = args.next().ok_or("columns ROUNDS[,COLUMN...] FILE...")?;
    let mut first = first.split(',');
    let rounds: usize = first.next().unwrap_or_default().parse()?;
    let only: Vec<&str> = first.collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async {
        let mut files = Vec::new();
        for path in args {
            files.push(VortexFile::open_path(&path).await?);
        }
        let Some(first) = files.first() else { return Ok(()) };
        let schema = first.schema()?;
        let mut totals = vec![0.0; files.len()];
        let is_wanted = |name: &str| only.is_empty() || only.contains(&name);
        for field in schema.fields().iter().filter(|field| is_wanted(field.name())) {
            let mut line = format!("{:>24}", field.name());
            for (file, total) in files.iter().zip(&mut totals) {
                let mut least = f64::INFINITY;
                for _ in 0..rounds {
                    let start = Instant::now();
                    let scan = file.scan().with_projection([field.name().as_str()]);
                    let mut batches = scan.into_stream()?;
                    while batches.try_next().await?.is_some() {}
                    least = least.min(start.elapsed().as_secs_f64() * 1e3);
                }
                *total += least;
                line += &format!(" {least:>9.2}");
            }
            println!("{line}");
        }
        print!("{:>24}", "all");
        totals.iter().for_each(|total| print!(" {total:>9.2}"));
        println!();
        Ok(())
    })
}
