//! Markdown tables: times, traffic, ratios, geometric means, and whether answers agree.

use std::fmt::Write;
use std::time::Duration;

use crate::engines::Engine;
use crate::run::{QueryOutcome, Verdict};
use crate::store::Traffic;

/// One row per query, and one of means.
///
/// Times are `median (least)` in milliseconds. They are followed by the ratio of medians of each Vortex
/// engine to each engine before it: below 1, the Vortex engine is faster.
pub(crate) fn queries(title: &str, engines: &[Engine], outcomes: &[QueryOutcome]) -> String {
    let mut out = format!("## {title}\n\n");
    let pairs = compared(engines);
    let remote = outcomes.iter().flat_map(|o| &o.outcomes).any(|o| o.traffic.is_some());

    let mut header = vec!["query".to_owned()];
    header.extend(engines.iter().map(|engine| format!("{} ms", engine.name())));
    if remote {
        header.extend(engines.iter().map(|engine| format!("{} MB, reads", engine.name())));
    }
    header.extend(pairs.iter().map(|&(a, b)| format!("{} / {}", engines[a].name(), engines[b].name())));
    header.push("rows".into());
    header.push("agree".into());
    write_head(&mut out, &header);

    for outcome in outcomes {
        let mut row = vec![format!("{} {}", outcome.query.name, outcome.query.title)];
        row.extend(outcome.outcomes.iter().map(|o| time_cell(&o.times)));
        if remote {
            row.extend(outcome.outcomes.iter().map(|o| o.traffic.map_or_else(String::new, traffic_cell)));
        }
        let medians: Vec<Option<f64>> = outcome.outcomes.iter().map(|o| median(&o.times)).collect();
        row.extend(pairs.iter().map(|&(a, b)| ratio_cell(medians[a].zip(medians[b]).map(|(a, b)| a / b))));
        row.push(outcome.row_count.map_or_else(String::new, |count| count.to_string()));
        let agree = outcome.outcomes.iter().all(|o| matches!(o.verdict, Verdict::Agrees));
        row.push(if agree { "yes" } else { "**no**" }.into());
        write_row(&mut out, &row);
    }
    write_row(&mut out, &mean_row(engines.len(), &pairs, outcomes, remote));
    write_objections(&mut out, engines, outcomes);
    out
}

/// A table of measurements side by side: a name and one time per column.
pub(crate) fn times(title: &str, columns: &[String], rows: &[(String, Vec<String>)]) -> String {
    let mut out = format!("## {title}\n\n");
    let mut header = vec![String::new()];
    header.extend(columns.iter().cloned());
    write_head(&mut out, &header);
    for (name, cells) in rows {
        let mut row = vec![name.clone()];
        row.extend(cells.iter().cloned());
        write_row(&mut out, &row);
    }
    out
}

/// `median (least)` in milliseconds.
pub(crate) fn time_cell(times: &[Duration]) -> String {
    match (median(times), times.iter().min()) {
        (Some(median), Some(least)) => format!("{median:.1} ({:.1})", millis(*least)),
        _ => "failed".into(),
    }
}

/// The median in milliseconds; of an even number of times, the mean of the middle two.
pub(crate) fn median(times: &[Duration]) -> Option<f64> {
    let mut sorted = times.to_vec();
    sorted.sort();
    let (low, high) = (sorted.len().checked_sub(1)? / 2, sorted.len() / 2);
    Some((millis(sorted[low]) + millis(sorted[high])) / 2.0)
}

/// Means over the queries that every engine answered, so that all means cover the same queries.
fn mean_row(
    engines: usize,
    pairs: &[(usize, usize)],
    outcomes: &[QueryOutcome],
    remote: bool,
) -> Vec<String> {
    let medians: Vec<Vec<f64>> = outcomes
        .iter()
        .filter_map(|outcome| outcome.outcomes.iter().map(|o| median(&o.times)).collect())
        .collect();
    let mean = |engine: usize| geometric_mean(medians.iter().map(|row| row[engine]));
    let mut row = vec![format!("**geomean of {}**", medians.len())];
    row.extend(
        (0..engines).map(|engine| mean(engine).map_or_else(String::new, |mean| format!("**{mean:.1}**"))),
    );
    if remote {
        row.extend((0..engines).map(|engine| {
            let of_engine = outcomes.iter().filter_map(|outcome| outcome.outcomes[engine].traffic);
            let total = of_engine.fold(Traffic::default(), |sum, traffic| Traffic {
                reads: sum.reads + traffic.reads,
                bytes: sum.bytes + traffic.bytes,
                lookups: sum.lookups + traffic.lookups,
            });
            format!("**{}**", traffic_cell(total))
        }));
    }
    row.extend(pairs.iter().map(|&(a, b)| {
        let ratio = mean(a).zip(mean(b)).map(|(a, b)| a / b);
        format!("**{}**", ratio_cell(ratio))
    }));
    row.extend([String::new(), String::new()]);
    row
}

/// The pairs of engines to compare: each Vortex engine with all engines before it.
fn compared(engines: &[Engine]) -> Vec<(usize, usize)> {
    let is_vortex = |engine: &Engine| engine.format().extension() == "vortex";
    let vortex = engines.iter().enumerate().filter(|(_, engine)| is_vortex(engine));
    vortex.flat_map(|(a, _)| (0..a).map(move |b| (a, b))).collect()
}

fn write_objections(out: &mut String, engines: &[Engine], outcomes: &[QueryOutcome]) {
    for outcome in outcomes {
        for (engine, o) in engines.iter().zip(&outcome.outcomes) {
            let _ = match &o.verdict {
                Verdict::Agrees => Ok(()),
                Verdict::Differs(how) => {
                    write!(out, "\n{} differs on {}: {how}", engine.name(), outcome.query.name)
                }
                Verdict::Failed(why) => {
                    write!(out, "\n{} failed on {}: {why}", engine.name(), outcome.query.name)
                }
            };
        }
    }
    out.push('\n');
}

pub(crate) fn geometric_mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value.ln(), count + 1));
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

fn traffic_cell(traffic: Traffic) -> String {
    format!("{:.1}, {}", traffic.bytes as f64 / 1e6, traffic.reads)
}

fn ratio_cell(ratio: Option<f64>) -> String {
    ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"))
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub(crate) fn write_head(out: &mut String, header: &[String]) {
    write_row(out, header);
    write_row(out, &vec!["---".to_owned(); header.len()]);
}

pub(crate) fn write_row(out: &mut String, cells: &[String]) {
    let _ = writeln!(out, "| {} |", cells.join(" | "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_two_lies_between_them() {
        let times = [Duration::from_millis(4), Duration::from_millis(2)];
        assert_eq!(median(&times), Some(3.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_geometric_mean_weighs_ratios() {
        let mean = geometric_mean([1.0, 100.0].into_iter()).expect("there are values");
        assert!((mean - 10.0).abs() < 1e-9);
    }
}
