//! A report for programs. Keys are stable; parts that were not requested are absent.

use arrow::array::{Array, ArrayRef, UInt64Array};
use serde_json::{Map, Value, json};
use vortex_core::file::Examination;
use vortex_core::layout::ZoneMap;
use vortex_core::scalar::Scalar;
use vortex_core::stats::{FieldStats, Precision};
use vortex_core::{Error, Excerpt};

use super::print::scalar;
use super::report::{Node, Report};
use super::{Arguments, Part};
use crate::text::value;

/// The requested parts as one object.
pub(super) fn report(report: &Report<'_>, arguments: &Arguments) -> Value {
    let footer = report.footer;
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| drop(object.insert(key.to_owned(), value));
    put("file", json!(report.place));
    put("bytes", json!(footer.file_size()));
    put("rows", json!(footer.row_count()));
    put("dtype", json!(footer.dtype().to_string()));
    let metadata = footer.user_metadata().iter();
    let metadata = metadata.map(|it| {
        let text = it.value.as_deref().and_then(|value| std::str::from_utf8(value).ok());
        json!({"key": &*it.key, "offset": it.range.start, "end": it.range.end, "text": text})
    });
    put("metadata", metadata.collect());
    let filters = footer.bloom_filter_columns();
    let filters = filters.map(|(column, bytes)| json!({"column": column.to_string(), "bytes": bytes}));
    put("bloom_filters", filters.collect());
    if arguments.wants(Part::Schema) {
        let columns = report.columns.iter().zip(report.encodings_of_columns()).map(|(column, encodings)| {
            let segments = || column.segments.iter().map(|id| id.0).collect::<Vec<_>>();
            json!({
                "name": column.name,
                "dtype": column.dtype.to_string(),
                "bytes": column.byte_len,
                "encodings": encodings,
                // Those of the whole file, if it has no layouts of single columns.
                "segments": column.is_apart.then(segments),
            })
        });
        put("columns", columns.collect());
    }
    if arguments.wants(Part::Statistics) {
        let stats = report.statistics().map(|(column, stats)| statistics(column.name, stats));
        let stats: Vec<_> = stats.collect();
        put("statistics", if stats.is_empty() { Value::Null } else { json!(stats) });
    }
    if arguments.wants(Part::Layout) {
        put("layout", node(report, &report.layout));
    }
    if arguments.wants(Part::Zones) {
        put("zones", report.zones.iter().map(|(path, map)| zones(path, map)).collect());
    }
    if arguments.wants(Part::Segments) {
        let segments = footer.segments().iter().map(
            |it| json!({"offset": it.offset, "bytes": it.length, "alignment_exponent": it.alignment_exponent}),
        );
        put("segments", segments.collect());
    }
    put("problems", json!(report.problems));
    Value::Object(object)
}

/// The readable parts of a file that cannot be opened.
pub(super) fn examination(place: &str, examination: &Examination, error: &Error) -> Value {
    let parts = examination.parts.iter().map(|part| {
        json!({
            "name": part.name,
            "offset": part.range.as_ref().map(|range| range.start),
            "end": part.range.as_ref().map(|range| range.end),
            "found": part.found.as_ref().ok(),
            "problem": part.found.as_ref().err().map(ToString::to_string),
        })
    });
    json!({
        "file": place,
        "bytes": examination.file_size,
        "starts_with_magic": examination.starts_with_magic,
        "parts": Value::from_iter(parts),
        "problems": [error.to_string()],
    })
}

fn statistics(column: &str, stats: &FieldStats) -> Value {
    json!({
        "column": column,
        "min": bound(&stats.min),
        "max": bound(&stats.max),
        "sum": stats.sum.as_ref().map(scalar),
        "null_count": stats.null_count,
        "nan_count": stats.nan_count,
        "is_constant": stats.is_constant,
        "is_sorted": stats.is_sorted,
        "is_strict_sorted": stats.is_strict_sorted,
        "uncompressed_bytes": stats.uncompressed_size,
    })
}

fn bound(bound: &Precision<Scalar>) -> Value {
    bound
        .value()
        .map_or(Value::Null, |value| json!({"value": scalar(value), "exact": bound.exact().is_some()}))
}

fn node(report: &Report<'_>, layout: &Node) -> Value {
    let arrays = layout.segments.iter().map(|id| {
        let encodings = report.encodings.get(id).into_iter().flatten();
        let encodings = encodings.map(|(depth, id)| json!({"depth": depth, "encoding": id.as_ref()}));
        json!({"segment": id.0, "encodings": Value::from_iter(encodings)})
    });
    json!({
        "name": layout.name,
        "layout": layout.id,
        "dtype": Excerpt(&layout.dtype).to_string(),
        "rows": layout.row_count,
        "arrays": Value::from_iter(arrays),
        "children": Value::from_iter(layout.children.iter().map(|child| node(report, child))),
    })
}

fn zones(path: &str, map: &ZoneMap) -> Value {
    let counts = |counts: &Option<UInt64Array>| -> Value {
        counts.as_ref().map_or(Value::Null, |counts| counts.iter().map(|count| json!(count)).collect())
    };
    json!({
        "column": path,
        "zone_rows": map.zone_len,
        "zones": map.zone_count,
        "min": values(&map.min),
        "max": values(&map.max),
        "sum": values(&map.sum),
        "null_count": counts(&map.null_count),
        "nan_count": counts(&map.nan_count),
    })
}

fn values(array: &Option<ArrayRef>) -> Value {
    let Some(array) = array else { return Value::Null };
    let text = |at| array.is_valid(at).then(|| value(array, at)).flatten();
    (0..array.len()).map(|at| json!(text(at))).collect()
}
