//! `vortex inspect`.

use crate::*;

#[test]
fn shows_every_part_of_a_file() {
    let file = golden("0.91.0/tpch_lineitem_1k.vortex");
    let out = ok(&["inspect", &file]);
    assert!(out.starts_with(&format!("{file}: 1,500 rows, 16 columns, 65.7 KiB")), "{out}");
    for part in ["\nSchema\n", "\nStatistics of the file\n", "\nLayout\n", "\nZones\n", "\nSegments\n"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(
        out.contains("l_shipmode") && out.contains("vortex.zoned") && out.contains("fastlanes.bitpacked")
    );
    let only = ok(&["inspect", "--only", "zones", &file]);
    assert!(only.contains("\nZones\n  l_orderkey: 1 zone of 8,192 rows\n"), "{only}");
    assert!(!only.contains("\nLayout\n"));
}

#[test]
fn statistics_of_fields_are_not_those_of_a_root_that_may_be_null() {
    let file = golden("0.36.0/root_struct_n.vortex");
    let out = ok(&["inspect", "--only", "statistics", &file]);
    assert!(out.ends_with("\nStatistics of the file\n  none\n"), "{out}");
    let report: Value = serde_json::from_str(&ok(&["inspect", "--json", &file])).unwrap();
    assert_eq!(report["statistics"], Value::Null);
}

#[test]
fn the_recorded_order_is_shown() {
    let folder = TempDir::new().unwrap();
    let sorted = path(&folder, "a.vortex");
    copy("SELECT value AS a FROM range(9) ORDER BY a DESC", &sorted);
    let out = ok(&["inspect", "--only", "schema", &sorted]);
    assert!(
        out.lines()
            .any(|line| line.contains("vortex-datafusion.order") && line.ends_with(", desc,nulls_first,1:a")),
        "{out}"
    );
    let report: Value = serde_json::from_str(&ok(&["inspect", "--json", &sorted])).unwrap();
    let metadata = report["metadata"].as_array().unwrap();
    let order = metadata.iter().find(|entry| entry["key"] == "vortex-datafusion.order").unwrap();
    assert!(order["text"].as_str().unwrap().contains("desc"), "{report}");
}

#[test]
fn json_holds_the_same_for_programs() {
    let out = ok(&["inspect", "--json", &golden("0.91.0/tpch_lineitem_1k.vortex")]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["rows"], 1500);
    assert_eq!(report["columns"].as_array().unwrap().len(), 16);
    assert_eq!(report["columns"][0]["name"], "l_orderkey");
    assert_eq!(report["columns"][0]["encodings"][0], "fastlanes.for");
    assert_eq!(report["layout"]["layout"], "vortex.struct");
    assert_eq!(report["statistics"][0]["min"]["value"], "4961");
    assert_eq!(report["zones"][0]["max"][0], "6467");
    let segments = report["segments"].as_array().unwrap();
    let bytes: u64 = segments.iter().map(|segment| segment["bytes"].as_u64().unwrap()).sum();
    assert!(bytes > 0 && bytes < report["bytes"].as_u64().unwrap());
    assert_eq!(report["problems"], Value::Array(vec![]));
}

#[test]
fn every_golden_file_can_be_inspected() {
    let files = files_in(&golden(""), |path| !path.contains("/corrupt/"));
    assert!(files.len() > 50);
    let mut arguments = vec!["inspect", "--json"];
    arguments.extend(files.iter().map(String::as_str));
    let out = ok(&arguments);
    assert_eq!(out.lines().count(), files.len());
}

#[test]
fn a_damaged_file_shows_what_is_left() {
    let file = golden("corrupt/0.36.0_dict_input.footer_flip.vortex");
    let output = run(&["inspect", &file]);
    let line = complaint(&output, 1);
    assert!(line.starts_with(&format!("vortex: {file}: ")), "{line}");
    let out = stdout(&output);
    assert!(out.contains("\n  layout at ") && out.contains(" rows\n"), "{out}");
    assert!(out.contains("\n! footer at "), "{out}");
    let output = run(&["inspect", "--json", &file]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!report["problems"][0].as_str().unwrap().is_empty());
}

#[test]
fn one_bad_file_does_not_hide_the_others() {
    let output = run(&["inspect", &golden("nosuch.vortex"), &golden("0.91.0/rows_1.vortex")]);
    assert!(stderr(&output).contains("nosuch.vortex"));
    assert!(stdout(&output).contains("rows_1.vortex: 1 row,"));
}

#[test]
fn values_that_cannot_be_shown_are_numbers() {
    let folder = TempDir::new().unwrap();
    let file = path(&folder, "x.vortex");
    let sql = "SELECT arrow_cast(9223372036854775807, 'Timestamp(Microsecond, Some(\"UTC\"))') AS t,
        arrow_cast(2147483647, 'Date32') AS d FROM generate_series(1, 20000)";
    copy(sql, &file);
    let report: Value = serde_json::from_str(&ok(&["inspect", "--json", &file])).unwrap();
    assert_eq!(report["statistics"][0]["max"]["value"], "9223372036854775807");
    assert_eq!(report["statistics"][1]["min"]["value"], "2147483647");
    let text = ok(&["inspect", &file]);
    assert!(text.contains(" 2147483647 ") && !text.contains("ERROR"), "{text}");
}
