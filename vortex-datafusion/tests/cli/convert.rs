//! `vortex convert`.

use crate::*;

fn read_arrow(path: impl AsRef<Path>) -> Vec<RecordBatch> {
    FileReader::try_new(File::open(path).unwrap(), None).unwrap().map(Result::unwrap).collect()
}

#[test]
fn arrow_files_hold_what_is_expected() {
    let folder = TempDir::new().unwrap();
    for case in ["tpch_lineitem_1k", "strings", "timestamps", "floats_special", "rows_0"] {
        let target = path(&folder, &format!("{case}.arrow"));
        ok(&["convert", &golden(&format!("0.91.0/{case}.vortex")), &target]);
        let expected = read_arrow(golden(&format!("0.91.0/{case}.arrow")));
        let shown = |batches: &[RecordBatch]| pretty_format_batches(batches).unwrap().to_string();
        let rows = |batches: &[RecordBatch]| batches.iter().map(RecordBatch::num_rows).sum::<usize>();
        let converted = read_arrow(&target);
        assert_eq!(rows(&converted), rows(&expected), "{case}");
        assert!(rows(&expected) == 0 || shown(&converted) == shown(&expected), "{case}");
    }
}

#[test]
fn columns_and_rows_can_be_chosen() {
    let source = golden("0.91.0/tpch_orders.vortex");
    let arguments =
        ["convert", "--to", "csv", "--columns", "o_orderstatus,o_orderkey", "--limit", "2", &source, "-"];
    assert_eq!(ok(&arguments), "o_orderstatus,o_orderkey\nO,1\nO,2\n");
}

#[test]
fn columns_and_rows_of_parquet_files_can_be_chosen() {
    let folder = TempDir::new().unwrap();
    let source = golden("0.91.0/tpch_orders.vortex");
    for name in ["a.parquet", "b.parquet"] {
        ok(&["convert", "--limit", "3", &source, &path(&folder, name)]);
    }
    let (a, b) = (path(&folder, "a.parquet"), path(&folder, "b.parquet"));
    let columns = ["--columns", "o_orderstatus,o_custkey,o_orderkey"];
    let rows = |source: &[&str], limit: &str| {
        let arguments =
            [&["convert", "--to", "csv", "--limit", limit], &columns[..], source, &["-"]].concat();
        ok(&arguments)
    };
    let all = rows(&[&source], "3");
    assert_eq!(rows(&[&a], "3"), all);
    let both = all.clone() + all.split_inclusive('\n').nth(1).unwrap();
    assert_eq!(rows(&[&a, &b], "4"), both);
    let bytes = fs::read(&a).unwrap();
    fs::write(&b, &bytes[..bytes.len() - 20]).unwrap();
    assert!(fails(&["convert", &a, &b, &path(&folder, "x.csv")], 1).contains("b.parquet"));
    assert_eq!(names(&folder), ["a.parquet", "b.parquet"]);
}

#[test]
fn an_empty_file_has_a_header_and_no_rows() {
    let source = golden("0.91.0/rows_0.vortex");
    let out = ok(&["convert", "--to", "csv", "--columns", "bool,i8", &source, "-"]);
    assert_eq!(out, "bool,i8\n");
}

#[test]
fn a_failure_leaves_the_old_output_alone() {
    let folder = TempDir::new().unwrap();
    let target = path(&folder, "out.csv");
    fs::write(&target, "old").unwrap();
    let nested = golden("0.91.0/struct_nested.vortex");
    let line = fails(&["convert", &nested, &target], 1);
    assert!(line.contains("out.csv") && line.contains("CSV cannot hold"), "{line}");
    assert_eq!(fs::read_to_string(&target).unwrap(), "old");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

/// A summary of a file's rows that does not depend on how its format names types.
fn digest(file: &str) -> String {
    csv(&format!(
        "SELECT count(*) AS n, sum(l_orderkey) AS keys, max(l_comment) AS comment, min(CAST(l_shipdate AS DATE)) AS day,
         sum(CAST(l_tax AS DECIMAL(15, 2))) AS tax FROM '{file}'"
    ))
}

#[test]
fn every_format_becomes_vortex_and_comes_back() {
    let folder = TempDir::new().unwrap();
    let source = golden("0.91.0/tpch_lineitem_1k.vortex");
    let expected = digest(&source);
    for extension in ["parquet", "arrow", "csv", "json", "jsonl", "vortex"] {
        let there = path(&folder, &format!("there.{extension}"));
        let back = path(&folder, &format!("back-{extension}.vortex"));
        ok(&["convert", &source, &there]);
        ok(&["convert", &there, &back]);
        assert_eq!([digest(&there), digest(&back)], [expected.as_str(); 2], "{extension}");
    }
    assert_eq!(names(&folder).len(), 12);
}

#[test]
fn vortex_to_vortex_keeps_the_schema_and_every_row() {
    let folder = TempDir::new().unwrap();
    for case in
        ["strings", "timestamps", "struct_nested", "list_nested", "prims_nullable", "rows_0", "exotic_types"]
    {
        let source = golden(&format!("0.91.0/{case}.vortex"));
        let (copy, before, after) = (
            path(&folder, &format!("{case}.vortex")),
            path(&folder, "before.arrow"),
            path(&folder, "after.arrow"),
        );
        ok(&["convert", "--level", "compact", "--checksums", &source, &copy]);
        ok(&["convert", &source, &before]);
        ok(&["convert", &copy, &after]);
        let (before, after) = (read_arrow(&before), read_arrow(&after));
        let whole = |batches: &[RecordBatch]| {
            batches.first().map(|first| arrow::compute::concat_batches(&first.schema(), batches).unwrap())
        };
        assert_eq!(whole(&before), whole(&after), "{case}");
    }
}

#[test]
fn columns_may_have_levels_of_their_own() {
    let folder = TempDir::new().unwrap();
    let [text, fast, mixed, other] =
        ["a=b.csv", "fast.vortex", "mixed.vortex", "other.parquet"].map(|name| path(&folder, name));
    let lines = (1..20_000u64).map(|at| {
        let climbing = at * 1000 + at * at * 7919 % 1009;
        format!("{climbing},{climbing}\n")
    });
    fs::write(&text, "a=b,c\n".to_owned() + &lines.collect::<String>()).unwrap();
    ok(&["convert", "--level", "fast", &text, &fast]);
    ok(&[
        "convert",
        "--level",
        "fast",
        "--column-level",
        "a=b=Compact",
        "--column-level",
        "C=fast",
        &text,
        &mixed,
    ]);
    let bytes = |file: &str| {
        csv(&format!("SELECT \"column\", bytes FROM vortex_metadata('{file}') ORDER BY 1"))
            .lines()
            .skip(1)
            .map(|line| line.rsplit_once(',').unwrap().1.parse::<u64>().unwrap())
            .collect::<Vec<_>>()
    };
    let (before, after) = (bytes(&fast), bytes(&mixed));
    assert!(after[0] < before[0] / 2 && after[1] > before[1] / 2, "{before:?}, {after:?}");
    let sums = |file: &str| csv(&format!("SELECT sum(\"a=b\") AS a, sum(c) AS c FROM '{file}'"));
    assert_eq!(sums(&mixed), sums(&fast));

    let missing = path(&folder, "missing/");
    let line = complaint(&run(&["convert", "--column-level", "b=fast", &text, &missing]), 1);
    assert!(line.contains("--column-level: no column `b`; there are: a=b, c"), "{line}");
    assert!(!Path::new(&missing).exists());
    let line = complaint(&run(&["convert", "--column-level", "c=fast", &text, &other]), 2);
    assert!(
        line.contains(
            "--column-level, --bloom-filter, --min-reader and --checksums apply to Vortex files only"
        ),
        "{line}"
    );
    for wrong in ["c", "c=quick"] {
        let output = run(&["convert", "--column-level", wrong, &text, &fast]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    }
}

#[test]
fn folders_become_folders_and_files_one_file() {
    let folder = TempDir::new().unwrap();
    let source = golden("0.91.0/tpch_orders.vortex");
    for name in ["in/day=1/a.csv", "in/day=2/a.csv", "in/b.parquet"] {
        let target = folder.path().join(name);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        ok(&["convert", "--limit", "100", &source, target.to_str().unwrap()]);
    }
    fs::write(folder.path().join("in/README.txt"), "not data").unwrap();
    let (from, to) = (path(&folder, "in/"), path(&folder, "out/"));
    let output = run(&["convert", &from, &to]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).ends_with("which --from would set: README.txt\n"), "{}", stderr(&output));
    assert_eq!(names(&to), ["b.vortex", "day=1", "day=2"]);
    assert_eq!(names(folder.path().join("out/day=2")), ["a.vortex"]);
    let sql = format!("SELECT count(*) AS n FROM '{}'", path(&folder, "out/day=1/a.vortex"));
    assert_eq!(csv(&sql), "n\n100\n");

    let one = path(&folder, "one.vortex");
    // Of which day rows are would be lost.
    for inputs in [&["in/day=*/*.csv"][..], &["in/day=1/a.csv", "in/day=2/a.csv"]] {
        let inputs: Vec<String> = inputs.iter().map(|name| path(&folder, name)).collect();
        let mut arguments = vec!["convert"];
        arguments.extend(inputs.iter().map(String::as_str).chain([one.as_str()]));
        let line = fails(&arguments, 2);
        assert!(line.contains("has no column `day`") && line.contains("day=1/a.csv"), "{line}");
    }
    // Columns that are named are all that is wanted.
    let keys =
        ok(&["convert", "--to", "csv", "--columns", "o_orderkey", &path(&folder, "in/day=*/*.csv"), "-"]);
    assert_eq!(keys.lines().count(), 201);
    fs::rename(folder.path().join("in/day=2/a.csv"), folder.path().join("in/day=1/b.csv")).unwrap();
    ok(&["convert", &path(&folder, "in/day=*/*.csv"), &one]);
    assert_eq!(csv(&format!("SELECT count(*) AS n FROM '{one}'")), "n\n200\n");
    let line = fails(&["convert", &from, &one], 2);
    assert!(line.contains("several formats"), "{line}");
}

#[test]
fn sorting_keeps_the_types_that_were_written() {
    let folder = TempDir::new().unwrap();
    let [text, vortex, sorted] = ["a.csv", "a.vortex", "sorted.arrow"].map(|name| path(&folder, name));
    std::fs::write(&text, "a,b\n2,x\n1,y\n").unwrap();
    ok(&["convert", &text, &vortex]);
    ok(&["convert", "--sort-by", "a", &vortex, &sorted]);
    let types = csv(&format!("DESCRIBE '{sorted}'"));
    assert!(types.contains("b,Utf8,"), "{types}");
    // Queries get views.
    let types = csv(&format!("DESCRIBE '{vortex}'"));
    assert!(types.contains("b,Utf8View,"), "{types}");
}

#[test]
fn more_rows_than_memory_holds_are_sorted() {
    let folder = TempDir::new().unwrap();
    let [source, sorted, copied] = ["a.vortex", "b.vortex", "c.vortex"].map(|name| path(&folder, name));
    let digest = |value: &str| format!("md5(cast({value} AS varchar))");
    let text = format!("{} || {}", digest("value"), digest("value + 1"));
    let rows = format!("SELECT value AS n, {text} AS t FROM generate_series(1, 200000)");
    copy(&rows, &source);
    ok(&["convert", "-m", "24m", "--sort-by", "t", &source, &sorted]);
    let sort = format!("COPY (SELECT * FROM '{source}' ORDER BY t) TO '{copied}'");
    ok(&["sql", "-q", "-m", "24m", "-c", &sort]);
    for sorted in [sorted, copied] {
        let numbered = format!("SELECT file_row_index() AS i, t FROM '{sorted}'");
        let behind = format!("SELECT t, lag(t) OVER (ORDER BY i) AS before FROM ({numbered})");
        let counts = format!("SELECT count(*) AS n, sum(cast(t < before AS INT)) AS wrong FROM ({behind})");
        assert_eq!(csv(&counts), "n,wrong\n200000,0\n");
    }
}

#[test]
fn rows_are_sorted_and_cut_into_parts() {
    let folder = TempDir::new().unwrap();
    let source = golden("0.91.0/tpch_orders.vortex");
    let sorted = path(&folder, "sorted.vortex");
    ok(&["convert", "--sort-by", "o_custkey desc,o_orderkey", &source, &sorted]);
    let first =
        |from: &str, order: &str| csv(&format!("SELECT o_custkey, o_orderkey FROM '{from}' {order} LIMIT 3"));
    assert_eq!(first(&sorted, ""), first(&source, "ORDER BY o_custkey DESC, o_orderkey"));
    let explain = format!("EXPLAIN FORMAT INDENT SELECT o_custkey FROM '{sorted}' ORDER BY o_custkey DESC");
    assert!(!ok(&["sql", "-c", &explain]).contains("SortExec"));

    let (parts, whole) = (path(&folder, "parts"), path(&folder, "parts/"));
    let csv_source = path(&folder, "orders.csv");
    ok(&["convert", &source, &csv_source]);
    let copies: Vec<String> = (0..10).map(|at| path(&folder, &format!("copy-{at}.csv"))).collect();
    for copy in &copies {
        fs::copy(&csv_source, copy).unwrap();
    }
    let mut arguments = vec!["convert", "--target-file-size", "200k", "--to", "csv"];
    arguments.extend(copies.iter().map(String::as_str));
    arguments.push(&parts);
    ok(&arguments);
    let cut = names(&parts);
    assert!(cut.len() > 3 && cut[0] == "part-00000.csv", "{cut:?}");
    let rows = cut.iter().map(|name| fs::read_to_string(folder.path().join("parts").join(name)).unwrap());
    assert_eq!(rows.map(|text| text.lines().count() - 1).sum::<usize>(), 15_000);
    let line = fails(&["convert", "--target-file-size", "200k", "--to", "csv", &csv_source, &whole], 1);
    assert!(line.contains("already exists"), "{line}");
}

#[test]
fn parts_have_about_the_size_asked_for_in_parquet_too() {
    let folder = TempDir::new().unwrap();
    let source = path(&folder, "numbers.vortex");
    let rows = "SELECT value AS a, value * 7919 % 1000003 AS b FROM generate_series(1, 400000)";
    copy(rows, &source);
    let parts = path(&folder, "parts/");
    ok(&["convert", "--target-file-size", "1m", "--to", "parquet", &source, &parts]);
    let sizes: Vec<u64> = names(&parts)
        .iter()
        .map(|name| folder.path().join("parts").join(name).metadata().unwrap().len())
        .collect();
    assert!(sizes.len() > 2 && sizes.iter().all(|size| *size < 2 << 20), "{sizes:?}");
    let counted = |from: &str| csv(&format!("SELECT count(*) AS n, sum(b) AS s FROM '{from}'"));
    assert_eq!(counted(&parts), counted(&source));
}

#[test]
fn several_arrow_files_may_have_dictionaries_of_short_keys() {
    let folder = TempDir::new().unwrap();
    let files = ["a", "b"].map(|word| {
        let (vortex, arrows) =
            (path(&folder, &format!("{word}.vortex")), path(&folder, &format!("{word}.arrows")));
        let rows = format!("SELECT arrow_cast('{word}', 'Dictionary(Int8, Utf8)') AS d");
        copy(&rows, &vortex);
        ok(&["convert", &vortex, &arrows]);
        arrows
    });
    let all = path(&folder, "all.vortex");
    ok(&["convert", &files[0], &files[1], &all]);
    assert_eq!(csv(&format!("SELECT d FROM '{all}' ORDER BY d")), "d\na\nb\n");
}

#[test]
fn the_extension_tells_streams_of_arrow_from_files() {
    let folder = TempDir::new().unwrap();
    let source = golden("0.91.0/tpch_orders.vortex");
    for (name, is_file) in [("a.arrow", true), ("a.arrows", false), ("a.feather", true)] {
        let to = path(&folder, name);
        ok(&["convert", &source, &to]);
        assert_eq!(fs::read(&to).unwrap().starts_with(b"ARROW1"), is_file, "{name}");
        assert!(ok(&["sql", "-c", &format!("SELECT count(*) FROM '{to}'")]).contains("| 1500 "), "{name}");
    }
}

#[test]
fn files_of_a_folder_keep_what_is_no_extension_of_a_format() {
    let folder = TempDir::new().unwrap();
    let logs = folder.path().join("logs");
    fs::create_dir(&logs).unwrap();
    for number in 1..3 {
        fs::write(logs.join(format!("app.log.{number}")), format!("{{\"a\":{number}}}\n")).unwrap();
    }
    let out = path(&folder, "out/");
    ok(&["convert", "--from", "json", &path(&folder, "logs/"), &out]);
    assert_eq!(names(&out), ["app.log.1.vortex", "app.log.2.vortex"]);
}

#[test]
fn a_broken_input_leaves_no_output() {
    let folder = TempDir::new().unwrap();
    let source = golden("0.91.0/tpch_orders.vortex");
    let (input, output) = (path(&folder, "in.csv"), path(&folder, "out.vortex"));
    ok(&["convert", &source, &input]);
    let mut text = fs::read_to_string(&input).unwrap();
    text.push_str("not,a,number\n");
    fs::write(&input, text).unwrap();
    let line = fails(&["convert", &input, &output], 1);
    assert!(line.contains("in.csv"), "{line}");
    assert_eq!(names(&folder), ["in.csv"]);
}

#[cfg(unix)]
#[test]
fn a_disk_that_is_full_leaves_no_output() {
    let folder = TempDir::new().unwrap();
    let source = golden("0.91.0/tpch_orders.vortex");
    for name in ["out.vortex", "out.parquet", "out.csv", "out.arrow"] {
        let output = path(&folder, name);
        // Files are limited to 512 bytes, and reaching the limit raises no signal.
        let outcome = std::process::Command::new("sh")
            .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" convert \"$1\" \"$2\""])
            .args([env!("CARGO_BIN_EXE_vortex"), &source, &output])
            .output()
            .unwrap();
        let line = complaint(&outcome, 1);
        assert!(line.contains(name), "{line}");
        assert!(names(&folder).is_empty(), "{:?}", names(&folder));
    }
}

#[test]
fn values_that_are_not_a_number_survive_parquet_files_that_differ() {
    let folder = TempDir::new().unwrap();
    let rows = "(VALUES (1.5::DOUBLE, 1), ('NaN'::DOUBLE, 2)) t(a, b)";
    for (name, columns) in [("1", "a, b"), ("2", "a")] {
        let (source, target) =
            (path(&folder, &format!("{name}.vortex")), path(&folder, &format!("in/{name}.parquet")));
        copy(&format!("SELECT {columns} FROM {rows}"), &source);
        fs::create_dir_all(folder.path().join("in")).unwrap();
        ok(&["convert", &source, &target]);
    }
    let rows = ok(&["convert", "--columns", "a", "--to", "csv", &path(&folder, "in/"), "-"]);
    assert_eq!(rows, "a\n1.5\nNaN\n1.5\nNaN\n");
    let file = path(&folder, "in/1.parquet");
    let aggregates = format!("SELECT max(a) AS max, count(a) AS n, sum(b) AS sum FROM '{file}'");
    assert_eq!(csv(&aggregates), "max,n,sum\nNaN,2,3\n");
    assert_eq!(csv(&format!("SELECT a FROM '{file}'")), "a\n1.5\nNaN\n");
}

#[test]
fn values_in_dictionaries_that_are_not_a_number_survive_parquet_files() {
    let folder = TempDir::new().unwrap();
    let (one, other, all) =
        (path(&folder, "1.parquet"), path(&folder, "2.parquet"), path(&folder, "all.csv"));
    let rows = "arrow_cast(a, 'Dictionary(Int32, Float64)') AS a FROM (VALUES ('NaN'::DOUBLE), (5.0)) t(a)";
    copy(&format!("SELECT {rows}"), &one);
    copy("SELECT 3 AS b", &other);
    assert_eq!(csv(&format!("SELECT a FROM '{one}'")), "a\nNaN\n5.0\n");
    assert_eq!(csv(&format!("SELECT max(a) AS max FROM '{one}'")), "max\nNaN\n");
    ok(&["convert", "--columns", "a", &one, &other, &all]);
    assert_eq!(fs::read_to_string(&all).unwrap(), "a\nNaN\n5.0\n\"\"\n");
}

#[test]
fn folders_named_after_values_become_columns() {
    let folder = TempDir::new().unwrap();
    let (days, one) = (path(&folder, "days/"), path(&folder, "one.vortex"));
    let copy = format!(
        "COPY (SELECT value AS a, value % 3 AS day FROM generate_series(1, 9) t(value))
         TO '{days}' STORED AS VORTEX PARTITIONED BY (day)"
    );
    ok(&["sql", "-q", "-c", &copy]);
    ok(&["convert", &days, &one]);
    let rows = |place: &str| csv(&format!("SELECT a, day FROM '{place}' ORDER BY a"));
    assert_eq!(rows(&one), rows(&days));
    // When converting into a folder, the values remain in the names of folders.
    ok(&["convert", &days, &path(&folder, "again/")]);
    assert_eq!(rows(&path(&folder, "again/")), rows(&days));
}

#[cfg(unix)]
#[test]
fn an_output_that_is_the_input_by_another_name_is_refused() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("real")).unwrap();
    fs::copy(golden("0.91.0/tpch_orders.vortex"), folder.path().join("real/a.vortex")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("real"), folder.path().join("link")).unwrap();
    let (real, link) = (path(&folder, "real/a.vortex"), path(&folder, "link/a.vortex"));
    for (from, to) in [(&link, &link), (&link, &real), (&real, &link)] {
        let line = fails(&["convert", "--limit", "1", from, to], 2);
        assert!(line.contains("input and the output"), "{line}");
    }
}

#[test]
fn wrong_usage_has_a_status_of_its_own() {
    let folder = TempDir::new().unwrap();
    let source = golden("0.91.0/tpch_orders.vortex");
    let (unknown, output) = (path(&folder, "out.unheardof"), path(&folder, "out.vortex"));
    for (arguments, status, told) in [
        (vec!["convert", &source, &unknown], 2, "--to"),
        (vec!["convert", "--target-file-size", "1m", &source, &output], 2, "folder"),
        (vec!["convert", "--to", "csv", &source, &source], 2, "input and the output"),
        (vec!["convert", "nosuch.csv", &output], 1, "nosuch.csv"),
        (vec!["convert", "--sort-by", "nosuch", &source, &output], 1, "`nosuch`; there are: o_orderkey"),
    ] {
        let line = fails(&arguments, status);
        assert!(line.contains(told), "{arguments:?}: {line}");
    }
    // Arguments that cannot be parsed take more than a line.
    for (arguments, told) in [
        (vec![], ""),
        (vec!["nosuch"], ""),
        (vec!["convert", "a"], ""),
        (vec!["sql", "--format", "nosuch"], ""),
        (
            vec!["convert", "--level", "ultra", &source, &output],
            "'ultra' for '--level <LEVEL>'\n  [possible values: fast, default, compact]",
        ),
        (vec!["convert", "--min-reader", "old", &source, &output], "not a release"),
        (vec!["convert", "--min-reader", "0.2", &source, &output], "the oldest is 0.36"),
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(told), "{arguments:?}: {}", stderr(&output));
    }
    assert_eq!(names(&folder), [""; 0]);
}

#[test]
fn levels_trade_time_for_size() {
    let folder = TempDir::new().unwrap();
    let source = golden("0.91.0/tpch_orders.vortex");
    let size = |level: &str| {
        let out = path(&folder, "out.vortex");
        ok(&["convert", "--level", level, &source, &out]);
        fs::metadata(out).unwrap().len()
    };
    assert_eq!(size("Fast"), size("fast"));
    assert!(size("compact") < size("fast"));
}

#[test]
fn a_recorded_order_is_kept() {
    let folder = TempDir::new().unwrap();
    let [sorted, again, part] = ["s.vortex", "a.vortex", "p.vortex"].map(|name| path(&folder, name));
    let rows = "SELECT value AS a, value % 7 AS b FROM generate_series(1, 100)";
    copy(&format!("{rows} ORDER BY b, a"), &sorted);
    ok(&["convert", "--level", "compact", &sorted, &again]);
    ok(&["convert", "--columns", "a", &sorted, &part]);
    let plan = |file: &str, keys: &str| {
        ok(&["sql", &format!("EXPLAIN FORMAT INDENT SELECT * FROM '{file}' ORDER BY {keys}")])
    };
    assert!(plan(&part, "a").contains("SortExec"));
    for file in [&sorted, &again] {
        assert!(!plan(file, "b, a").contains("SortExec"), "{file}");
        assert!(plan(file, "a, b").contains("SortExec"), "{file}");
    }
}

#[test]
fn the_order_of_parquet_files_is_kept() {
    let folder = TempDir::new().unwrap();
    let [one, both] = ["one.vortex", "both.vortex"].map(|name| path(&folder, name));
    let inputs = ["1.parquet", "2.parquet"].map(|name| path(&folder, name));
    for (input, start) in inputs.iter().zip([1, 500]) {
        let rows = format!("SELECT value AS a FROM generate_series({start}, {start} + 400) ORDER BY a");
        copy(&rows, input);
    }
    ok(&["convert", &inputs[0], &one]);
    ok(&["convert", &inputs[0], &inputs[1], &both]);
    for file in [one, both] {
        let plan = ok(&["sql", &format!("EXPLAIN FORMAT INDENT SELECT * FROM '{file}' ORDER BY a")]);
        assert!(!plan.contains("SortExec"), "{file}: {plan}");
    }
}

#[test]
fn what_an_output_cannot_hold_is_refused() {
    let folder = TempDir::new().unwrap();
    let file = golden("0.91.0/rows_1.vortex");
    let parquet = path(&folder, "x.parquet");
    let line = fails(&["convert", "--level", "fast", &file, &parquet], 2);
    assert!(line.contains("Vortex files only"), "{line}");
    let empty = arrow::datatypes::Schema::empty();
    let arrow = fs::File::create(folder.path().join("none.arrow")).unwrap();
    let mut arrow = arrow::ipc::writer::FileWriter::try_new(arrow, &empty).unwrap();
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(3));
    let rows = RecordBatch::try_new_with_options(empty.into(), vec![], &options).unwrap();
    arrow.write(&rows).unwrap();
    arrow.finish().unwrap();
    let line = fails(&["convert", &path(&folder, "none.arrow"), &parquet], 1);
    assert!(line.contains("without columns"), "{line}");
    assert_eq!(names(&folder), ["none.arrow"]);
}

#[test]
fn values_that_an_output_cannot_hold_are_errors() {
    let folder = TempDir::new().unwrap();
    let [file, json, csv] = ["in.arrow", "out.json", "out.csv"].map(|name| path(&folder, name));
    for beyond in [
        "arrow_cast(9223372036854775807, 'Timestamp(Microsecond, Some(\"UTC\"))')",
        "arrow_cast(2147483647, 'Date32')",
        "arrow_cast(arrow_cast(-1, 'Int64'), 'Time64(Nanosecond)')",
        "arrow_cast(9223372036854775807, 'Duration(Second)')",
    ] {
        copy(&format!("SELECT 1 AS a, {beyond} AS tz"), &file);
        let line = fails(&["convert", &file, &json], 1);
        let (start, end) = (
            "out.json: column `tz`, row 1: ",
            "that JSON can hold; filter or cast it in SQL, or leave it out with --exclude\n",
        );
        assert!(line.contains(start) && line.ends_with(end), "{line}");
        assert!(fails(&["convert", &file, &csv], 1).contains("out.csv: "));
        assert_eq!(names(&folder), ["in.arrow"]);
    }
    assert_eq!(ok(&["convert", "--to", "json", "--columns", "a", &file, "-"]), "{\"a\":1}\n");
    let interval = "arrow_cast(INTERVAL '1' MONTH, 'Interval(MonthDayNano)')";
    copy(&format!("SELECT 1 AS a, {interval} AS imdn"), &file);
    let line = fails(&["convert", &file, &path(&folder, "out.parquet")], 1);
    let told =
        "column `imdn` is an Interval(MonthDayNano), which Parquet cannot hold; leave it out with --exclude";
    assert!(line.contains(told), "{line}");
    assert_eq!(names(&folder), ["in.arrow"]);
}

#[test]
fn numbers_that_json_lacks_are_errors() {
    let folder = TempDir::new().unwrap();
    let (file, json) = (path(&folder, "in.vortex"), path(&folder, "out.json"));
    let query = "SELECT arrow_cast('NaN', 'Float64') AS x";
    copy(query, &file);
    let told = "column `x`, row 1: NaN is no number that JSON can hold; filter or cast it in SQL";
    assert!(fails(&["convert", &file, &json], 1).contains(told));
    assert!(fails(&["sql", "--format", "json", query], 1).contains(told));
    assert_eq!(names(&folder), ["in.vortex"]);
}

#[test]
fn parquet_files_hold_times_that_were_in_seconds() {
    let folder = TempDir::new().unwrap();
    let [file, parquet] = ["in.arrow", "out.parquet"].map(|name| path(&folder, name));
    let columns = "arrow_cast(1700000000, 'Timestamp(Second, None)') AS ts,
        arrow_cast(1700000000, 'Timestamp(Second, Some(\"UTC\"))') AS zoned,
        arrow_cast(arrow_cast(3661, 'Int32'), 'Time32(Second)') AS time,
        arrow_cast(arrow_cast(86400000, 'Int64'), 'Date64') AS day";
    copy(&format!("SELECT {columns}"), &file);
    ok(&["convert", &file, &parquet]);
    let types = csv(&format!("DESCRIBE '{parquet}'"));
    for told in
        ["ts,Timestamp(ms),", "zoned,\"Timestamp(ms, \"\"UTC\"\")\",", "time,Time32(ms),", "day,Date32,"]
    {
        assert!(types.contains(told), "{types}");
    }
    let rows = csv(&format!("SELECT ts, time, day FROM '{parquet}'"));
    assert_eq!(rows, "ts,time,day\n2023-11-14T22:13:20,01:01:01,1970-01-02\n");
    for beyond in ["arrow_cast(9223372036854775807, 'Timestamp(Second, None)')", "arrow_cast(1, 'Date64')"] {
        copy(&format!("SELECT {beyond} AS a"), &file);
        let line = fails(&["convert", &file, &parquet], 1);
        assert!(
            line.contains("out.parquet") && line.contains("that Parquet can hold; cast it in SQL"),
            "{line}"
        );
    }
}

/// Twenty small files in a folder `in`.
fn twenty_files() -> TempDir {
    let folder = TempDir::new().unwrap();
    let source = golden("0.91.0/tpch_orders.vortex");
    fs::create_dir(folder.path().join("in")).unwrap();
    for name in 0..20 {
        fs::copy(&source, folder.path().join(format!("in/{name:02}.vortex"))).unwrap();
    }
    folder
}

/// Damages two of the [twenty files](twenty_files), of which the second one comes first.
fn damage_two(folder: &TempDir) {
    for damaged in ["11", "07"] {
        fs::write(folder.path().join(format!("in/{damaged}.vortex")), "x").unwrap();
    }
}

#[test]
fn small_files_are_converted_together_and_their_errors_come_in_order() {
    let folder = twenty_files();
    ok(&["convert", &path(&folder, "in"), &path(&folder, "out/")]);
    assert_eq!(names(folder.path().join("out")).len(), 20);
    damage_two(&folder);
    let line = fails(&["convert", &path(&folder, "in"), &path(&folder, "again/")], 1);
    let converted = names(folder.path().join("again"));
    let told = format!("({} of 20 files were converted)", converted.len());
    assert!(line.contains("07.vortex") && line.contains(&told), "{line}");
    assert!(converted.iter().all(|name| name.ends_with(".vortex") && !name.starts_with('.')));
}

#[test]
fn bad_files_of_a_folder_can_be_passed_over() {
    let folder = twenty_files();
    damage_two(&folder);
    let (input, out) = (path(&folder, "in"), path(&folder, "out/"));
    let output = run(&["convert", "--keep-going", &input, &out]);
    let told = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = told.lines().collect();
    assert!(
        matches!(*lines, [first, second, _] if first.contains("07.vortex: ") && second.contains("11.vortex: ")),
        "{told}"
    );
    assert_eq!(lines[2], "vortex: 2 files with problems (18 of 20 files were converted)");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(names(folder.path().join("out")).len(), 18);
    // Nothing may be missing in a single one.
    let line = fails(&["convert", "-k", &input, &path(&folder, "one.vortex")], 2);
    assert!(line.contains("--keep-going"), "{line}");
    // Arguments may be wrong for some files only.
    for damaged in ["11", "07"] {
        fs::remove_file(folder.path().join(format!("in/{damaged}.vortex"))).unwrap();
    }
    ok(&["sql", "-q", &format!("COPY (SELECT 1 AS o_orderkey) TO '{input}/few.vortex'")]);
    let output = run(&["convert", "-k", "--exclude", "o_orderkey", &input, &path(&folder, "rest/")]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("few.vortex: --exclude: no column is left"), "{told}");
    assert!(told.contains("(18 of 19 files were converted)"), "{told}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn rows_with_equal_keys_are_sorted_in_the_order_of_the_input() {
    let folder = TempDir::new().unwrap();
    let name = |at: usize, extension: &str| path(&folder, &format!("{at}.{extension}"));
    // Not in the order of their names, and enough rows for several batches.
    let order = [3, 0, 4, 1, 2];
    for (place, at) in order.into_iter().enumerate() {
        let rows =
            format!("SELECT value % 3 AS k, {place} * 20000 + value AS n FROM generate_series(1, 20000)");
        ok(&["sql", "-q", &format!("COPY ({rows} ORDER BY n) TO '{}'", name(at, "vortex"))]);
        for extension in ["parquet", "csv", "json", "arrow"] {
            ok(&["convert", &name(at, "vortex"), &name(at, extension)]);
        }
    }
    for extension in ["vortex", "parquet", "csv", "json", "arrow"] {
        let files = order.map(|at| name(at, extension));
        let sorted = |options: &[&str]| {
            let files: Vec<_> = files.iter().map(String::as_str).collect();
            ok(&[&["convert", "--to", "csv", "--sort-by", "k desc"], options, &files, &["-"]].concat())
        };
        let rows = sorted(&[]);
        let rows = rows.lines().skip(1).map(|line| {
            let (key, number) = line.split_once(',').unwrap();
            (-key.parse::<i64>().unwrap(), number.parse::<i64>().unwrap())
        });
        let rows: Vec<_> = rows.collect();
        assert!(rows.len() == 100_000 && rows.is_sorted(), "{extension}");
        assert_eq!(sorted(&["--limit", "2"]), "k,n\n2,2\n2,5\n", "{extension}");
    }
}

#[test]
fn what_parquet_and_csv_cannot_hold_names_the_column_to_leave_out() {
    let folder = TempDir::new().unwrap();
    let source = path(&folder, "a.vortex");
    for (value, told) in [
        (
            "[arrow_cast('1 month', 'Interval(MonthDayNano)')]",
            "column `c`: `item` is an Interval(MonthDayNano)",
        ),
        (
            "arrow_cast(arrow_cast(5, 'Timestamp(Millisecond, None)'), 'Date64')",
            "column `c`: 5 of Date64 is no day",
        ),
    ] {
        ok(&["sql", "-q", &format!("COPY (SELECT {value} AS c) TO '{source}'")]);
        let line = complaint(&run(&["convert", &source, &path(&folder, "b.parquet")]), 1);
        assert!(line.contains(told), "{line}");
        fs::remove_file(&source).unwrap();
    }
}

#[test]
fn parts_go_into_a_new_folder_whose_name_has_no_slash() {
    let folder = TempDir::new().unwrap();
    let source = golden("0.91.0/tpch_orders.vortex");
    let parts = path(&folder, "parts");
    ok(&["convert", "--target-file-size", "1m", &source, &parts]);
    assert_eq!(names(&parts), ["part-00000.vortex"]);
    let line =
        complaint(&run(&["convert", "--target-file-size", "1m", &source, &path(&folder, "a.vortex")]), 2);
    assert!(line.contains("must end with `/`"), "{line}");
}

#[test]
fn rows_are_sorted_without_reading_columns_that_are_not_wanted() {
    let folder = TempDir::new().unwrap();
    let source = path(&folder, "a.vortex");
    copy(
        "SELECT value AS a, -value AS b, sha256(CAST(value AS TEXT)) AS c FROM generate_series(1, 100)",
        &source,
    );
    let place = format!("SELECT offset, bytes FROM vortex_segments('{source}') WHERE array_has(paths, 'c')");
    let place = csv(&place);
    let (offset, bytes) = place.lines().nth(1).and_then(|line| line.split_once(',')).unwrap();
    let (offset, bytes): (usize, usize) = (offset.parse().unwrap(), bytes.parse().unwrap());
    let mut contents = fs::read(&source).unwrap();
    contents[offset..offset + bytes].fill(0xff);
    fs::write(&source, contents).unwrap();
    let sorted = ["convert", "--to", "csv", "--sort-by", "b", "--limit", "2", "--columns"];
    assert_eq!(ok(&[&sorted[..], &["a", &source, "-"]].concat()), "a\n100\n99\n");
    assert!(fails(&[&sorted[..], &["a,c", &source, "-"]].concat(), 1).contains("`c`"));
    assert!(fails(&[&sorted[..], &["a,d", &source, "-"]].concat(), 1).contains("there are: a, b, c"));
}
