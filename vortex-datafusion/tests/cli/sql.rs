//! `vortex sql`.

use crate::*;

#[test]
fn commands_share_a_session_and_scripts_come_first() {
    let script = TempDir::new().unwrap();
    let script = script.path().join("make.sql");
    let file = golden("0.91.0/tpch_orders.vortex");
    let create = format!("CREATE EXTERNAL TABLE orders\nSTORED AS VORTEX\nLOCATION '{file}';");
    fs::create_dir_all(script.parent().unwrap()).unwrap();
    fs::write(&script, format!("-- makes a table\n{create}\n")).unwrap();
    let script = script.to_string_lossy().into_owned();
    let sql = "SELECT min(o_orderkey) AS low, max(o_orderkey) AS high FROM orders";
    let out = ok(&["sql", "-q", "--format", "csv", "-f", &script, "-c", sql, "-c", "SELECT 1 AS one"]);
    assert_eq!(out, "low,high\n1,5988\none\n1\n");
    let out = ok(&["sql", "-q", "--format", "csv", "-c", "SELECT 1 AS one", "SELECT 2 AS two"]);
    assert_eq!(out, "one\n1\ntwo\n2\n", "without an option, too");
}

#[test]
fn options_of_a_table_reach_the_format() {
    let file = golden("0.91.0/tpch_orders.vortex");
    let create = |options: &str| {
        format!("CREATE EXTERNAL TABLE t STORED AS VORTEX OPTIONS ({options}) LOCATION '{file}'")
    };
    for options in ["predicate_pushdown 'false'", "'vortex.predicate_pushdown' 'false'"] {
        let explain = "EXPLAIN FORMAT INDENT SELECT o_clerk FROM t WHERE o_orderkey > 7";
        let out = ok(&["sql", "-c", &create(options), "-c", explain]);
        assert!(out.contains("FilterExec"), "{options}: {out}");
    }
    let line = fails(&["sql", "-c", &create("nosuchoption '1'")], 1);
    assert!(line.contains("nosuchoption") && line.contains("predicate_pushdown"), "{line}");
}

#[test]
fn minima_of_expressions_over_parquet_files_are_those_of_all_rows() {
    let folder = TempDir::new().unwrap();
    for part in 0..6 {
        let rows = format!("SELECT value + {part} * 100000 AS b FROM generate_series(1, 20000)");
        let file = path(&folder, &format!("{part}.parquet"));
        copy(&format!("SELECT b, 1000000 - b AS c FROM ({rows})"), &file);
    }
    let minima = format!("SELECT min(b) AS b, min(abs(c)) AS c FROM '{}'", path(&folder, ""));
    assert_eq!(csv(&minima), "b,c\n1,480000\n");
}

#[test]
fn results_without_rows_have_what_their_format_begins_with() {
    let none = "SELECT 2 AS z, 'a' AS \"a,b\" WHERE false";
    for (format, expected) in [("csv", "z,\"a,b\"\n"), ("tsv", "z\ta,b\n"), ("json", "[]\n"), ("nd-json", "")]
    {
        assert_eq!(ok(&["sql", "--format", format, "-c", none]), expected);
        // Statements without a result print nothing.
        assert_eq!(ok(&["sql", "--format", format, "-c", "SET vortex.prune = true"]), "");
    }
    assert!(ok(&["sql", "-c", none]).contains("| z | a,b |"));
    let output = with_input(&["sql"], &format!("\\pset format csv\n{none};\n"));
    assert!(stdout(&output).contains("z,\"a,b\"\n0 row(s) fetched"), "{}", stdout(&output));
}

#[test]
fn json_holds_every_key_and_no_text_about_errors() {
    let nulls = "SELECT * FROM (VALUES (1, NULL), (2, 'b')) AS t(a, b) ORDER BY a";
    let rows = r#"{"a":1,"b":null} {"a":2,"b":"b"}"#;
    assert_eq!(ok(&["sql", "--format", "nd-json", nulls]), format!("{}\n", rows.replace("} ", "}\n")));
    assert_eq!(ok(&["sql", "--format", "json", nulls]), format!("[{}]\n", rows.replace("} ", "},")));
    for beyond in [
        "arrow_cast(9223372036854775807, 'Timestamp(Microsecond, Some(\"UTC\"))')",
        "arrow_cast(9223372036854775807, 'Duration(Second)')",
        "arrow_cast(arrow_cast(-1, 'Int64'), 'Time64(Nanosecond)')",
    ] {
        for format in ["json", "nd-json"] {
            let output = run(&["sql", "--format", format, &format!("SELECT {beyond} AS t")]);
            let line = complaint(&output, 1);
            assert!(line.contains("column `t`, row 1: ") && line.contains("that JSON can hold"), "{line}");
            assert_eq!(stdout(&output), "");
        }
    }
}

#[test]
fn help_lists_the_commands_of_this_shell() {
    let help = stdout(&with_input(&["sql"], "\\?\n"));
    assert!(help.starts_with("\\d ") && help.contains("\n\\q ") && !help.contains("datafusion"), "{help}");
    assert!(help.contains("SHOW FUNCTIONS;") && help.contains("second Ctrl-C ends the shell"), "{help}");
    let statements = stdout(&with_input(&["sql"], "\\h\n"));
    assert!(statements.contains("CREATE TABLE AS"), "{statements}");
    assert!(stdout(&with_input(&["sql"], "\\h create table\n")).contains("Syntax:"));
    assert!(complaint(&with_input(&["sql"], "\\h abs\n"), 1).contains("no such statement"));
}

#[test]
fn a_file_is_described_like_a_table() {
    let file = golden("0.91.0/tpch_orders.vortex");
    let columns = stdout(&with_input(&["sql", "-q"], &format!("\\pset format csv\n\\d '{file}'\n")));
    assert!(columns.contains("\no_orderkey,Int64,"), "{columns}");
    let output = with_input(&["sql"], "\\d nosuch\n");
    assert!(complaint(&output, 1).contains("'datafusion.public.nosuch' not found"));
}

#[test]
fn files_of_settings_come_before_piped_statements() {
    let folder = TempDir::new().unwrap();
    let (first, path) = ("CREATE VIEW v AS SELECT 7 AS a;\n", folder.path().join("rc"));
    fs::write(&path, first).unwrap();
    let rc = path.to_str().unwrap();
    let output = with_input(&["sql", "--format", "csv", "-r", rc], "SELECT * FROM v;\n");
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("a\n7\n", ""));
    assert_eq!(run(&["sql", "-r", rc, "-c", "SELECT 1"]).status.code(), Some(2));
}

#[test]
fn a_release_that_is_not_known_is_told() {
    let folder = TempDir::new().unwrap();
    let copy = format!("COPY (SELECT 1 AS a) TO '{}'", path(&folder, "a.vortex"));
    let with_option = format!("{copy} OPTIONS (min_reader '9.99')");
    for commands in [["SET vortex.min_reader = '9.99'", &copy], ["SELECT 1", &with_option]] {
        let output = run(&["sql", "-c", commands[0], "-c", commands[1]]);
        assert!(complaint(&output, 0).contains("release 9.99 is not known"));
    }
    ok(&["sql", "-c", "SET vortex.min_reader = 'newest'", "-c", &copy]);
}

#[test]
fn settings_are_set_back_to_their_defaults() {
    let show = |back: &str| {
        let arguments = ["sql", "-q", "--format", "csv", "-c", "SET vortex.prune = false", "-c", back];
        ok(&[&arguments[..], &["-c", "SHOW vortex.prune"]].concat())
    };
    assert_eq!(show("SELECT 1 WHERE false").lines().last().unwrap(), "vortex.prune,false");
    for back in ["SET vortex.prune = 'default'", "RESET vortex.prune", "RESET VORTEX.prune;"] {
        assert_eq!(show(back).lines().last().unwrap(), "vortex.prune,true", "{back}");
    }
    let line = fails(&["sql", "-c", "RESET vortex.prun"], 1);
    assert!(line.contains("unknown Vortex option `prun`; there are: "), "{line}");
}

#[cfg(unix)]
#[test]
fn output_to_a_link_goes_to_its_target() {
    let folder = TempDir::new().unwrap();
    let place = |name: &str| path(&folder, name);
    fs::write(place("old"), "old").unwrap();
    for target in ["old", "new.vortex"] {
        let link = place("link.vortex");
        std::os::unix::fs::symlink(target, &link).unwrap();
        copy("SELECT 7 AS a", &link);
        assert!(Path::new(&link).is_symlink());
        assert_eq!(csv(&format!("SELECT a FROM '{link}'")), "a\n7\n");
        assert!(ok(&["verify", &place(target)]).contains("1 row,"));
        fs::remove_file(link).unwrap();
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
}

#[test]
fn files_that_come_to_a_folder_are_seen_by_a_session_that_knows_it() {
    let folder = TempDir::new().unwrap();
    let source = golden("0.91.0/tpch_orders.vortex");
    fs::copy(&source, folder.path().join("a.vortex")).unwrap();
    let mut child = vortex(&["sql", "-q", "--format", "csv"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, mut lines) =
        (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
    let table = format!("CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION '{}/';", folder.path().display());
    let mut count = |before: &str| {
        writeln!(input, "{before}\nSELECT count(*) AS n FROM t;").unwrap();
        lines.by_ref().map(Result::unwrap).find(|line| line.parse::<u64>().is_ok_and(|n| n > 0)).unwrap()
    };
    assert_eq!(count(&table), "1500");
    fs::copy(&source, folder.path().join("b.vortex")).unwrap();
    assert_eq!(count(""), "3000");
    drop(input);
    assert!(child.wait().unwrap().success());
}

/// The planner of DataFusion 55.2 divides by zero when a decimal of negative scale is compared.
#[test]
fn a_statement_that_panics_is_an_error() {
    let sql = format!("SELECT 1 FROM '{}' WHERE d128_negscale = 78200", golden("0.91.0/decimals.vortex"));
    let output = run(&["sql", "-c", &sql]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).ends_with("vortex: the statement panicked, which is a bug\n"),
        "{}",
        stderr(&output)
    );
}

#[cfg(unix)]
#[test]
fn nothing_but_files_is_replaced() {
    let folder = TempDir::new().unwrap();
    let socket = path(&folder, "x.csv");
    let _bound = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let copy = format!("COPY (SELECT 1 AS a) TO '{socket}'");
    assert!(fails(&["sql", "-c", &copy], 1).contains("not a regular file"));
    let source = golden("0.91.0/tpch_orders.vortex");
    assert!(fails(&["convert", &source, &socket], 2).contains("not a regular file"));
}

#[test]
fn results_are_tables_unless_said_otherwise() {
    let sql = format!("SELECT o_orderkey FROM '{}' ORDER BY 1 LIMIT 2", golden("0.91.0/tpch_orders.vortex"));
    let table = ok(&["sql", "-q", "-c", &sql]);
    assert!(table.contains("| o_orderkey |") && table.contains("| 2          |"), "{table}");
    assert_eq!(
        ok(&["sql", "-q", "--format", "nd-json", "-c", &sql]),
        "{\"o_orderkey\":1}\n{\"o_orderkey\":2}\n"
    );
    assert_eq!(
        ok(&["sql", "-q", "--format", "json", "-c", &sql]),
        "[{\"o_orderkey\":1},{\"o_orderkey\":2}]\n"
    );
    assert!(ok(&["sql", "-c", &sql]).contains("2 row(s) fetched"));
}

#[test]
fn long_tables_are_cut_and_other_formats_are_not() {
    let sql = format!("SELECT o_orderkey FROM '{}'", golden("0.91.0/tpch_orders.vortex"));
    assert!(ok(&["sql", "--maxrows", "5", "-c", &sql]).contains("First 5 displayed"));
    assert_eq!(ok(&["sql", "-q", "--format", "csv", "--maxrows", "5", "-c", &sql]).lines().count(), 1501);
}

#[test]
fn wide_rows_are_printed_one_column_per_line() {
    let sql = format!("SELECT * FROM '{}' ORDER BY 1", golden("0.91.0/tpch_orders.vortex"));
    let records = ok(&["sql", "-x", "--maxrows", "2", "-c", &sql]);
    let lines: Vec<&str> = records.lines().collect();
    assert_eq!(lines[0], "── row 1 ──");
    assert_eq!(lines[1], "o_orderkey      │ 1");
    assert_eq!(lines[10], "── row 2 ──");
    assert!(lines.len() < 25 && records.contains("First 2 displayed"), "{records}");
    assert!(ok(&["sql", "-qx", "--maxrows", "2", "-c", &sql]).ends_with("\n── 1,498 rows not shown ──\n"));
    let script = "\\x\nSELECT 1 AS a;\n\\x off\nSELECT 2 AS b;\n\\x on\nSELECT 3 AS c;\n";
    let printed = stdout(&with_input(&["sql", "-q"], script));
    assert!(printed.starts_with("── row 1 ──\na │ 1\n+---+") && printed.ends_with("+\n── row 1 ──\nc │ 3\n"));
    let csv = ok(&["sql", "-q", "-x", "--format", "csv", "-c", "SELECT 1 AS a"]);
    assert_eq!(csv, "a\n1\n", "other formats are as they were");
}

#[test]
fn long_cells_are_cut_and_other_formats_are_not() {
    let sql = "SELECT repeat('word ', 60000) AS text, 7 AS n";
    let table = ok(&["sql", "-q", "-c", sql]);
    assert!(
        table.contains("word … (cut") && table.contains("| 7 |") && table.len() < 60_000,
        "{}",
        table.len()
    );
    assert!(ok(&["sql", "-q", "--format", "csv", "-c", sql]).len() > 300_000);
}

#[test]
fn piped_statements_are_a_script() {
    let file = golden("0.91.0/tpch_orders.vortex");
    let script = format!(
        "\\pset format csv\nCREATE EXTERNAL TABLE orders STORED AS VORTEX LOCATION '{file}';\n\\d\n\
         SELECT count(*) AS n\nFROM orders;\n\\q\nSELECT 'not reached';\n"
    );
    let output = with_input(&["sql", "-q"], &script);
    let out = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let listed = "table_catalog,table_schema,table_name,table_type\ndatafusion,public,orders,BASE TABLE\n";
    assert_eq!(out, format!("Output format is Csv.\n{listed}n\n1500\n"));
}

#[test]
fn an_error_ends_a_script_and_names_its_line() {
    let output = with_input(&["sql", "-q", "-f", "-"], "SELECT 1;\n\nSELECT nosuch;\nSELECT 2;\n");
    let line = complaint(&output, 1);
    assert!(line.starts_with("vortex: standard input:3: ") && line.contains("nosuch"), "{line}");
    assert!(!stdout(&output).contains('2'));
}

#[test]
fn a_statement_ends_at_a_semicolon_outside_of_comments_and_quotes() {
    let script = "\u{feff}SELECT 1 AS x, -- first;\n 'a;\nb' AS y; -- the end\n/* no;\n*/ SELECT 2 AS z;\n";
    let output = with_input(&["sql", "--format", "csv"], script);
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("x,y\n1,\"a;\nb\"\nz\n2\n", ""));
}

#[test]
fn text_in_a_script_is_kept_as_it_is() {
    let script = "SELECT length('a   \nb') AS n;\r\n\r\nSELECT length('a\r\nb\u{feff}\n\n') AS n;\r\n";
    let output = with_input(&["sql", "--format", "csv"], script);
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("n\n6\nn\n7\n", ""));
}

#[test]
fn a_comment_may_follow_a_statement_before_a_command() {
    let script = "SELECT 1 AS x; -- the first;\n\\q\nSELECT 2;\n";
    let output = with_input(&["sql", "--format", "csv"], script);
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("x\n1\n", ""));
}

#[test]
fn a_script_that_includes_itself_is_an_error() {
    let folder = TempDir::new().unwrap();
    let (one, other) = (path(&folder, "1.sql"), path(&folder, "2.sql"));
    fs::write(&one, format!("SELECT 1 AS x;\n\\i {other}\n")).unwrap();
    fs::write(&other, format!("\n\\i {one}\n")).unwrap();
    let output = run(&["sql", "-q", "--format", "csv", "-f", &one]);
    let line = complaint(&output, 1);
    assert!(line.contains("2.sql:2: ") && line.contains("1.sql includes itself"), "{line}");
    assert_eq!(stdout(&output), "x\n1\n");
    // A script may be included again.
    fs::write(&other, "SELECT 2 AS y;\n").unwrap();
    let output = with_input(&["sql", "--format", "csv"], &format!("\\i {other}\n\\i {other}\n"));
    assert_eq!(stdout(&output), "y\n2\ny\n2\n");
    let output = with_input(&["sql", "-q"], "\\i -\n");
    assert!(complaint(&output, 1).contains("standard input includes itself"));
}

#[test]
fn what_a_script_has_written_is_read_at_once() {
    let folder = TempDir::new().unwrap();
    let place = folder.path().display();
    let write = |name: &str, rows: u64| {
        format!("COPY (SELECT value FROM generate_series(1, {rows})) TO '{place}/{name}.vortex';\n")
    };
    let count = format!("SELECT count(*) AS n FROM '{place}/';\n");
    let script =
        [&write("a", 1), &count, &write("b", 2), &count, &write("a", 5), &count].map(String::as_str).concat();
    let output = with_input(&["sql", "--format", "csv"], &script);
    let counts: Vec<_> = stdout(&output).lines().map(str::to_owned).collect();
    assert_eq!(counts, ["count", "1", "n", "1", "count", "2", "n", "3", "count", "5", "n", "7"]);
}

#[test]
fn formats_without_nested_values_name_those_that_have_them() {
    for format in ["csv", "tsv"] {
        for rows in ["SELECT [1] AS a, 2 AS b, [3] AS c", "SELECT [1] AS a, [3] AS c WHERE false"] {
            let output = run(&["sql", "--format", format, "-c", rows]);
            let line = complaint(&output, 1);
            assert!(line.contains("EXCEPT (\"a\", \"c\")") && line.contains("--format json"), "{line}");
            assert_eq!(stdout(&output), "");
        }
    }
}

#[test]
fn queries_may_begin_with_from() {
    let file = golden("0.91.0/tpch_orders.vortex");
    let rows = csv(&format!("SELECT * FROM '{file}' ORDER BY o_orderkey LIMIT 3"));
    assert_eq!(csv(&format!("FROM '{file}' ORDER BY o_orderkey LIMIT 3")), rows);
    assert_eq!(csv(&format!("WITH t AS (FROM '{file}' LIMIT 2) SELECT count(*) AS n FROM t")), "n\n2\n");
    let folder = TempDir::new().unwrap();
    let copied = path(&folder, "a.csv");
    copy(&format!("FROM '{file}' ORDER BY o_orderkey LIMIT 3"), &copied);
    assert_eq!(fs::read_to_string(copied).unwrap(), rows);
}

#[test]
fn json_is_printed_as_it_is_computed() {
    let many = "SELECT value AS a FROM generate_series(1, 100000)";
    let rows: Vec<Value> = serde_json::from_str(&ok(&["sql", "--format", "json", many])).unwrap();
    assert_eq!((rows.len(), &rows[99_999]["a"]), (100_000, &Value::from(100_000)));
    let endless = "SELECT value AS a FROM generate_series(1, 9000000000000)";
    let mut command = vortex(&["sql", "--format", "json", endless]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut start = [0; 9];
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"[{\"a\":1},");
    drop(out);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    let limit = ["sql", "-m", "1m", "--maxrows", "inf", endless];
    assert!(fails(&limit, 1).contains("raise --memory-limit"));
}

#[test]
fn results_do_not_steer_the_terminal() {
    let table = ok(&["sql", "-q", "-c", "SELECT concat('a', chr(27), '[31m') AS t"]);
    assert!(table.contains("a\\u{1b}[31m") && !table.contains('\u{1b}'), "{table:?}");
    let line = fails(&["sql", "SELECT cast(concat('a', chr(27), '[31m') AS INT)"], 1);
    assert!(line.contains("a\\u{1b}[31m") && !line.contains('\u{1b}'), "{line:?}");
}

#[test]
fn commands_of_the_shell_may_be_arguments() {
    let file = golden("0.91.0/tpch_orders.vortex");
    let columns = ok(&["sql", "--format", "csv", "-c", &format!("\\d '{file}'")]);
    assert!(columns.contains("o_orderkey,Int64"), "{columns}");
    assert_eq!(ok(&["sql", "--format", "csv", "-c", "\\q", "-c", "SELECT 1"]), "");
}

#[test]
fn expressions_of_thousands_of_terms_are_computed() {
    let sum = vec!["o_custkey"; 3000].join(" + ");
    let orders = golden("0.91.0/tpch_orders.vortex");
    let rows = csv(&format!("SELECT max({sum}) = 3000 * max(o_custkey) AS is_right FROM '{orders}'"));
    assert_eq!(rows, "is_right\ntrue\n");
}

#[test]
fn statements_that_are_not_run_since_nobody_reads_are_no_success() {
    let folder = TempDir::new().unwrap();
    let script = path(&folder, "s.sql");
    let run = |arguments: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = vortex(&[&["sql", "-q", "--format", "csv"], arguments].concat());
        let output = command.stdout(writer).stderr(Stdio::piped()).output().unwrap();
        (output.status.code(), stderr(&output))
    };
    fs::write(&script, "SELECT 1;\n-- the end\n").unwrap();
    for last in [["-c", "SELECT 1"], ["-f", &script]] {
        assert_eq!(run(&last), (Some(0), String::new()));
    }
    fs::write(&script, "SELECT 1;\nSELECT 2;\n").unwrap();
    for (arguments, left) in [
        (["SELECT 1; SELECT 2; SELECT 3", ""], "2 statements"),
        (["-cSELECT 1", "-cSELECT 2"], "1 other argument"),
        (["-f", &script], "the rest of"),
    ] {
        let given: Vec<&str> = arguments.into_iter().filter(|argument| !argument.is_empty()).collect();
        let (status, message) = run(&given);
        assert_eq!(status, Some(1), "{arguments:?}");
        assert!(message.contains("no longer read") && message.contains(left), "{message}");
    }
}

#[test]
fn what_does_not_follow_a_command_is_told() {
    for command in ["\\quiet maybe", "\\pset nope", "\\x maybe"] {
        let line = complaint(&run(&["sql", command]), 1);
        assert!(line.contains("does not take this; \\? lists what it takes"), "{line}");
    }
    assert!(complaint(&run(&["sql", "\\nosuch"]), 1).contains("no such command; \\? lists them"));
}

#[test]
fn compressed_output_needs_a_format() {
    let line = complaint(&run(&["sql", "COPY (SELECT 1 AS a) TO 'y.json.gz'"]), 1);
    assert!(line.contains("STORED AS names the format"), "{line}");
}

#[test]
fn what_would_be_ignored_or_is_misspelled_is_told() {
    let file = golden("0.91.0/tpch_orders.vortex");
    for (sql, told) in [
        (
            format!("SELECT count(*) FROM '{file}' TABLESAMPLE (10 PERCENT)"),
            "instead of TABLESAMPLE, which DataFusion would ignore",
        ),
        ("COPY (SELECT 1 AS a) TO 'q' STORED AS vortx".to_owned(), "formats are VORTEX, PARQUET"),
        ("FROM 'src.parqet'".to_owned(), "no table and no file 'src.parqet'"),
    ] {
        let line = fails(&["sql", &sql], 1);
        assert!(line.contains(told), "{line}");
    }
}
