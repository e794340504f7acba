//! `vortex verify`: checks that files are consistent.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::physical_expr::expressions::Column;
use datafusion_cli::object_storage::instrumented::InstrumentedObjectStoreRegistry;
use futures::TryStreamExt as _;
use vortex_core::expr::FieldPath;
use vortex_core::file::OpenOptions;
use vortex_core::verify::Verification;
use vortex_core::{VortexFile, verify};
use vortex_datafusion::{RowOrder, recorded_order};

use crate::failure::{Failure, Failures, Outcome};
use crate::stores::Stores;
use crate::text::{counted, visible};

/// Arguments of `vortex verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The files: files, folders, globs; paths or URLs (s3://, gs://, az://, https://).
    #[arg(required = true)]
    file: Vec<PathBuf>,
    /// Print only problems.
    #[arg(short, long)]
    quiet: bool,
}

/// Verifies the files one after the other; returns an error if any has a problem.
pub(crate) async fn run(arguments: Arguments) -> Outcome {
    let stores = Stores::new(Arc::new(InstrumentedObjectStoreRegistry::new()));
    let (places, unread) = stores.files(&arguments.file).await?;
    let mut failures = Failures::among(places.len() + unread.len());
    unread.into_iter().try_for_each(|failure| failures.report(failure))?;
    for place in &places {
        match verified(place, &stores).await {
            Ok((found, problems)) => {
                failures.count(!problems.is_empty());
                match print(&place.display().to_string(), &found, &problems, arguments.quiet) {
                    // Nobody reads on, but the status must tell what was found.
                    Err(Failure::ClosedPipe) if failures.has_any() => return failures.outcome(),
                    printed => printed?,
                }
            }
            Err(failure) => failures.report(failure)?,
        }
    }
    failures.outcome()
}

/// What was found in a file, and its problems.
async fn verified(path: &Path, stores: &Stores) -> Outcome<(Verification, Vec<String>)> {
    let place = path.display();
    let found = verify(stores.open(path).await?, &OpenOptions::new()).await;
    let found = found.map_err(|error| Failure::at(&place, error))?;
    let mut problems: Vec<String> = found.problems.iter().map(ToString::to_string).collect();
    if found.other_problems > 0 {
        problems.push(format!("and {}", counted(found.other_problems, "other problem")));
    }
    // Rows of a damaged file may be in any order.
    if problems.is_empty()
        && let Some(file) = &found.file
    {
        problems.extend(disorder(file).await.map_err(|failure| Failure::at(&place, failure))?);
    }
    Ok((found, problems))
}

/// The first row that contradicts the recorded order, on which queries rely.
async fn disorder(file: &VortexFile) -> Outcome<Option<String>> {
    let schema = file.schema()?;
    let Some(order) = recorded_order(file.footer(), &schema) else { return Ok(None) };
    let columns = order.iter().filter_map(|key| key.expr.downcast_ref::<Column>());
    let columns = columns.map(|column| FieldPath::new([column.name()]));
    let mut batches = file.scan().with_projection(columns).into_stream()?;
    let (mut so_far, mut start) = (RowOrder::new(&order, &schema), 0);
    while let Some(batch) = batches.try_next().await? {
        let before = so_far.clone();
        if so_far.shorten_to(&batch) {
            let row = start + first_that_breaks(&before, &batch);
            return Ok(Some(format!("recorded order: row {row} is not in the order {order}")));
        }
        start += batch.num_rows();
    }
    Ok(None)
}

/// The first row of a batch before which an order holds, but not with it.
fn first_that_breaks(order: &RowOrder, batch: &RecordBatch) -> usize {
    let (mut holds, mut breaks) = (0, batch.num_rows());
    while breaks - holds > 1 {
        let middle = holds.midpoint(breaks);
        match order.clone().shorten_to(&batch.slice(0, middle)) {
            true => breaks = middle,
            false => holds = middle,
        }
    }
    holds
}

fn print(place: &str, found: &Verification, problems: &[String], quiet: bool) -> Outcome {
    let mut out = std::io::stdout().lock();
    for problem in problems {
        writeln!(out, "{place}: {}", visible(problem))?;
    }
    if problems.is_empty() && !quiet {
        let checksums = match found.checked_segments {
            0 => "no checksums".to_owned(),
            segments => format!("checksums of {}", counted(segments as u64, "segment")),
        };
        writeln!(
            out,
            "{place}: fine; {}, {}, {checksums}, {}",
            counted(found.row_count, "row"),
            counted(found.column_count as u64, "column"),
            counted(found.checked_zones, "zone")
        )?;
    }
    Ok(())
}
