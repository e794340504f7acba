//! A report for people.
//!
//! Names and values come from the file, so they are shown with control characters escaped.

use std::fmt::Display;
use std::io::{Result, Write};
use std::sync::Arc;

use arrow::array::Array;
use unicode_width::UnicodeWidthStr as _;
use vortex_core::dtype::arrow::data_type;
use vortex_core::file::Examination;
use vortex_core::layout::ZoneMap;
use vortex_core::scalar::Scalar;
use vortex_core::stats::{FieldStats, Precision};

use super::report::{Node, Report};
use super::{Arguments, Part};
use crate::text::{bytes, count, counted, shortened, value, visible};

/// Maximum number of characters shown of a value or type.
const VALUE_LETTERS: usize = 28;
const TYPE_LETTERS: usize = 60;
const METADATA_LETTERS: usize = 200;

/// The text of a short value that is text.
fn text_of(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok().filter(|text| (1..=METADATA_LETTERS).contains(&text.chars().count()))
}

/// Prints the requested parts.
pub(super) fn report(out: &mut impl Write, report: &Report<'_>, arguments: &Arguments) -> Result<()> {
    let footer = report.footer;
    let stored: u64 = footer.segments().iter().map(|segment| u64::from(segment.length)).sum();
    writeln!(
        out,
        "{}: {}, {}, {}, {} of {}",
        report.place,
        counted(footer.row_count(), "row"),
        counted(report.columns.len() as u64, "column"),
        bytes(footer.file_size()),
        counted(footer.segments().len() as u64, "segment"),
        bytes(stored),
    )?;
    for entry in footer.user_metadata() {
        write!(out, "  metadata {}: {}", visible(&entry.key), bytes(entry.range.end - entry.range.start))?;
        match entry.value.as_deref().and_then(text_of) {
            Some(text) => writeln!(out, ", {}", visible(text))?,
            None => writeln!(out)?,
        }
    }
    for (column, len) in footer.bloom_filter_columns() {
        writeln!(out, "  Bloom filter of {}: {}", visible(&column.to_string()), bytes(len))?;
    }
    if arguments.wants(Part::Schema) {
        schema(out, report, stored)?;
    }
    if arguments.wants(Part::Statistics) {
        statistics(out, report)?;
    }
    if arguments.wants(Part::Layout) {
        writeln!(out, "\nLayout")?;
        node(out, report, &report.layout, "  ", "  ")?;
    }
    if arguments.wants(Part::Zones) {
        writeln!(out, "\nZones")?;
        report.zones.iter().try_for_each(|(path, map)| zones(out, path, map, arguments.zones))?;
    }
    if arguments.wants(Part::Segments) {
        segments(out, report)?;
    }
    if !report.problems.is_empty() {
        writeln!(out, "\nProblems")?;
        report.problems.iter().try_for_each(|problem| writeln!(out, "  {}", visible(problem)))?;
    }
    Ok(())
}

/// Prints the readable parts of a file that cannot be opened.
pub(super) fn examination(out: &mut impl Write, place: &str, examination: &Examination) -> Result<()> {
    writeln!(out, "{place}: {}, cannot be opened", bytes(examination.file_size))?;
    if !examination.starts_with_magic {
        writeln!(out, "  does not start with \"VTXF\", which readers ignore")?;
    }
    examination.parts.iter().try_for_each(|part| {
        let mark = if part.found.is_ok() { " " } else { "!" };
        writeln!(out, "{mark} {}", visible(&part.to_string()))
    })
}

fn schema(out: &mut impl Write, report: &Report<'_>, stored: u64) -> Result<()> {
    writeln!(out, "\nSchema")?;
    let rows = report.columns.iter().zip(report.encodings_of_columns()).map(|(column, encodings)| {
        let share = column.byte_len as f64 * 100.0 / stored.max(1) as f64;
        vec![
            visible(column.name),
            shortened(&visible(&column.dtype.to_string()), TYPE_LETTERS),
            bytes(column.byte_len),
            format!("{share:.1}%"),
            short_names(encodings),
        ]
    });
    table(out, &["column", "type", "size", "share", "encodings"], rows.collect(), &[2, 3])
}

/// Encodings without the prefixes of their ids.
fn short_names(encodings: Vec<&str>) -> String {
    let short = |id| str::strip_prefix(id, "vortex.").or_else(|| id.strip_prefix("fastlanes.")).unwrap_or(id);
    let names: Vec<&str> = encodings.into_iter().map(short).collect();
    visible(&names.join(" "))
}

fn statistics(out: &mut impl Write, report: &Report<'_>) -> Result<()> {
    writeln!(out, "\nStatistics of the file")?;
    let rows = report.statistics().map(|(column, stats)| {
        vec![
            visible(column.name),
            bound(&stats.min, "≥ "),
            bound(&stats.max, "≤ "),
            optional(stats.sum.as_ref().map(scalar)),
            optional(stats.null_count.map(count)),
            optional(stats.nan_count.map(count)),
            traits_of(stats),
            optional(stats.uncompressed_size.map(bytes)),
        ]
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return writeln!(out, "  none");
    }
    let heads = ["column", "min", "max", "sum", "nulls", "NaNs", "order", "decoded"];
    table(out, &heads, rows, &[3, 4, 5, 7])
}

fn bound(bound: &Precision<Scalar>, inexact: &str) -> String {
    match bound {
        Precision::Exact(value) => value_text(scalar(value)),
        Precision::Inexact(value) => format!("{inexact}{}", value_text(scalar(value))),
        _ => "-".to_owned(),
    }
}

/// A value as Arrow displays it: dates as dates, decimals with a decimal point.
pub(super) fn scalar(scalar: &Scalar) -> String {
    let shown = || {
        let array = scalar.to_arrow(&data_type(scalar.dtype()).ok()?, 1).ok()?;
        value(&array, 0)
    };
    shown().unwrap_or_else(|| scalar.to_string())
}

fn value_text(value: impl Display) -> String {
    shortened(&visible(&value.to_string()), VALUE_LETTERS)
}

fn optional(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), value_text)
}

fn traits_of(stats: &FieldStats) -> String {
    let facts = [
        (stats.is_constant, "constant"),
        (stats.is_strict_sorted, "strictly ascending"),
        (stats.is_sorted, "ascending"),
    ];
    facts.iter().find(|(fact, _)| *fact == Some(true)).map_or("-", |(_, name)| name).to_owned()
}

/// Prints a layout: its line with the arrays of its segments, then the layouts below.
fn node(out: &mut impl Write, report: &Report<'_>, node: &Node, first: &str, rest: &str) -> Result<()> {
    let name = if node.name.is_empty() { String::new() } else { format!("{}: ", visible(&node.name)) };
    write!(out, "{first}{name}{} {}", visible(&node.id), counted(node.row_count, "row"))?;
    for id in &node.segments {
        let length = report.footer.segments().get(id.0 as usize).map_or(0, |it| u64::from(it.length));
        write!(out, ", segment {} of {}", id.0, bytes(length))?;
        if let Some(encodings) = report.encodings.get(id) {
            write!(out, ": {}", nested(encodings))?;
        }
    }
    writeln!(out)?;
    for (at, child) in node.children.iter().enumerate() {
        let last = at + 1 == node.children.len();
        let (branch, below) = if last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        self::node(out, report, child, &format!("{rest}{branch}"), &format!("{rest}{below}"))?;
    }
    Ok(())
}

/// An array tree in one line: `vortex.dict(vortex.primitive, vortex.varbinview)`.
fn nested(encodings: &[(usize, Arc<str>)]) -> String {
    let mut text = String::new();
    let mut open = 0;
    for (at, (depth, id)) in encodings.iter().enumerate() {
        if at > 0 {
            if *depth > open {
                text.push('(');
            } else {
                text.push_str(&")".repeat(open - depth));
                text.push_str(", ");
            }
        }
        open = *depth;
        text.push_str(&visible(id));
    }
    text.push_str(&")".repeat(open));
    text
}

fn zones(out: &mut impl Write, path: &str, map: &ZoneMap, most: usize) -> Result<()> {
    let path = if path.is_empty() { "value".to_owned() } else { visible(path) };
    let zone_count = counted(map.zone_count as u64, "zone");
    writeln!(out, "  {path}: {zone_count} of {}", counted(map.zone_len, "row"))?;
    let text = |array: &Option<arrow::array::ArrayRef>, zone: usize| -> String {
        let Some(array) = array.as_ref().filter(|array| zone < array.len() && array.is_valid(zone)) else {
            return "-".to_owned();
        };
        value(array, zone).map_or("?".to_owned(), value_text)
    };
    let rows = (0..map.zone_count.min(most)).map(|zone| {
        let number = |counts: &Option<arrow::array::UInt64Array>| {
            let counts = counts.as_ref().filter(|counts| zone < counts.len() && counts.is_valid(zone));
            optional(counts.map(|counts| count(counts.value(zone))))
        };
        let first_row = (zone as u64).saturating_mul(map.zone_len);
        vec![
            format!("  {}", count(first_row)),
            text(&map.min, zone),
            text(&map.max, zone),
            text(&map.sum, zone),
            number(&map.null_count),
            number(&map.nan_count),
        ]
    });
    table(out, &["  from row", "min", "max", "sum", "nulls", "NaNs"], rows.collect(), &[3, 4, 5])?;
    match map.zone_count.saturating_sub(most) {
        0 => Ok(()),
        more => writeln!(out, "    ... {} more", count(more as u64)),
    }
}

fn segments(out: &mut impl Write, report: &Report<'_>) -> Result<()> {
    writeln!(out, "\nSegments")?;
    let mut users: Vec<Vec<&str>> = vec![Vec::new(); report.footer.segments().len()];
    for column in &report.columns {
        for id in column.segments.iter() {
            // More would not be shown.
            if let Some(names) = users.get_mut(id.0 as usize).filter(|names| names.len() < TYPE_LETTERS) {
                names.push(column.name);
            }
        }
    }
    let rows = report.footer.segments().iter().zip(&users).enumerate().map(|(at, (segment, users))| {
        vec![
            at.to_string(),
            count(segment.offset),
            count(segment.length.into()),
            count(1u64 << segment.alignment_exponent.min(63)),
            shortened(&visible(&users.join(" ")), TYPE_LETTERS),
        ]
    });
    table(out, &["segment", "offset", "bytes", "align", "columns"], rows.collect(), &[0, 1, 2, 3])
}

/// Aligns cells under their headings; the columns in `right` are right-aligned.
fn table(out: &mut impl Write, heads: &[&str], rows: Vec<Vec<String>>, right: &[usize]) -> Result<()> {
    let widths: Vec<usize> = (0..heads.len())
        .map(|at| rows.iter().map(|row| row[at].width()).chain([heads[at].width()]).max().unwrap_or(0))
        .collect();
    let line = |out: &mut dyn Write, cells: &mut dyn Iterator<Item = &str>| -> Result<()> {
        let mut text = String::from(" ");
        for (at, cell) in cells.enumerate() {
            let padding = " ".repeat(widths[at] - cell.width());
            text.push(' ');
            if right.contains(&at) {
                text.push_str(&padding);
                text.push_str(cell);
            } else {
                text.push_str(cell);
                text.push_str(&padding);
            }
            text.push(' ');
        }
        writeln!(out, "{}", text.trim_end())
    };
    line(out, &mut heads.iter().copied())?;
    rows.iter().try_for_each(|row| line(out, &mut row.iter().map(String::as_str)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_take_two_places_do_not_shift_the_next_cell() {
        let mut out = Vec::new();
        let row = |name: &str| vec![name.to_owned(), "7".to_owned()];
        table(&mut out, &["name", "rows"], vec![row("東京"), row("Zoé")], &[1]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "  name  rows\n  東京     7\n  Zoé      7\n");
    }

    #[test]
    fn array_trees_read_as_calls() {
        let tree = |nodes: &[(usize, &str)]| {
            nested(&nodes.iter().map(|(depth, id)| (*depth, Arc::from(*id))).collect::<Vec<_>>())
        };
        assert_eq!(tree(&[(0, "a")]), "a");
        assert_eq!(tree(&[(0, "a"), (1, "b"), (2, "c"), (1, "d")]), "a(b(c), d)");
        assert_eq!(tree(&[(0, "a"), (1, "b"), (2, "c"), (3, "d")]), "a(b(c(d)))");
    }

    #[test]
    fn cells_line_up_whatever_they_hold() {
        let mut out = Vec::new();
        let rows = vec![vec!["naïve".to_owned(), "1".to_owned()], vec!["x".to_owned(), "100".to_owned()]];
        table(&mut out, &["name", "n"], rows, &[1]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "  name     n\n  naïve    1\n  x      100\n");
    }
}
