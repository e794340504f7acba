//! The `vortex` binary, started as a user starts it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use arrow::array::RecordBatch;
use arrow::ipc::reader::FileReader;
use arrow::util::pretty::pretty_format_batches;
use serde_json::Value;
use tempfile::TempDir;

fn golden(name: &str) -> String {
    format!("{}/../vortex-core/tests/files/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The binary, away from the settings and history of whoever runs the tests.
fn vortex(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vortex"));
    let home = std::env::temp_dir().join("vortex-cli-tests");
    command.args(arguments).stdin(Stdio::null()).env("HOME", &home).env("XDG_STATE_HOME", &home);
    command
}

fn run(arguments: &[&str]) -> Output {
    vortex(arguments).output().expect("the binary starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Output of a run that must succeed and has nothing to complain about.
fn ok(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{arguments:?}");
    stdout(&output)
}

/// The one line that a failing run complains with.
fn complaint(output: &Output, status: i32) -> String {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

fn csv(sql: &str) -> String {
    ok(&["sql", "--quiet", "--format", "csv", "-c", sql])
}

fn with_input(arguments: &[&str], input: &str) -> Output {
    let mut command = vortex(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

mod sql {
    use super::*;

    #[test]
    fn a_file_a_folder_and_a_glob_are_tables() {
        let file = golden("0.91.0/tpch_orders.vortex");
        assert_eq!(csv(&format!("SELECT count(*) AS n FROM '{file}'")), "n\n1500\n");
        let folder = TempDir::new().unwrap();
        for name in ["a", "b"] {
            fs::copy(&file, folder.path().join(name).with_extension("vortex")).unwrap();
        }
        let folder = folder.path().display();
        assert_eq!(csv(&format!("SELECT count(*) AS n FROM '{folder}/'")), "n\n3000\n");
        assert_eq!(csv(&format!("SELECT count(*) AS n FROM '{folder}/*.vortex'")), "n\n3000\n");
    }

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
        let output = run(&["sql", "-c", &create("nosuchoption '1'")]);
        let line = complaint(&output, 1);
        assert!(line.contains("nosuchoption") && line.contains("predicate_pushdown"), "{line}");
    }

    #[test]
    fn results_are_tables_unless_said_otherwise() {
        let sql =
            format!("SELECT o_orderkey FROM '{}' ORDER BY 1 LIMIT 2", golden("0.91.0/tpch_orders.vortex"));
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
    fn piped_statements_are_a_script() {
        let file = golden("0.91.0/tpch_orders.vortex");
        let script = format!(
            "\\pset format csv\nCREATE EXTERNAL TABLE orders STORED AS VORTEX LOCATION '{file}';\n\\d\n\
             SELECT count(*) AS n\nFROM orders;\n\\q\nSELECT 'not reached';\n"
        );
        let output = with_input(&["sql", "-q"], &script);
        let out = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(out.contains("datafusion,public,orders,BASE TABLE\n") && out.ends_with("n\n1500\n"), "{out}");
    }

    #[test]
    fn an_error_ends_a_script_and_names_its_line() {
        let output = with_input(&["sql", "-q", "-f", "-"], "SELECT 1;\n\nSELECT nosuch;\nSELECT 2;\n");
        let line = complaint(&output, 1);
        assert!(line.starts_with("vortex: standard input:3: ") && line.contains("nosuch"), "{line}");
        assert!(!stdout(&output).contains('2'));
    }

    #[test]
    fn errors_name_the_file() {
        for (name, sql) in [
            ("nosuch.vortex", "SELECT * FROM '{}'"),
            ("corrupt/0.45.0_root_i64.cut_half.vortex", "SELECT * FROM '{}'"),
            (
                "corrupt/0.45.0_root_i64.cut_half.vortex",
                "CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION '{}'",
            ),
        ] {
            let output = run(&["sql", "-c", &sql.replace("{}", &golden(name))]);
            let line = complaint(&output, 1);
            assert!(line.contains(Path::new(name).file_name().unwrap().to_str().unwrap()), "{line}");
        }
    }

    #[test]
    fn files_over_http_are_read_in_ranges() {
        let port = serve(golden("0.91.0/tpch_orders.vortex"));
        let url = format!("http://127.0.0.1:{port}/orders.vortex");
        let sql = format!("SELECT count(*) AS n, max(o_clerk) AS clerk FROM '{url}' WHERE o_orderkey < 100");
        let expected = sql.replace(&url, &golden("0.91.0/tpch_orders.vortex"));
        assert_eq!(csv(&sql), csv(&expected));
        let create = format!("CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION '{url}'");
        let out = ok(&["sql", "-q", "--format", "csv", "-c", &create, "-c", "SELECT count(*) AS n FROM t"]);
        assert_eq!(out, "n\n1500\n");
        assert!(ok(&["inspect", &url]).contains("1,500 rows"));
    }
}

mod inspect {
    use super::*;

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
    fn json_holds_the_same_for_programs() {
        let out = ok(&["inspect", "--json", &golden("0.91.0/tpch_lineitem_1k.vortex")]);
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(report["rows"], 1500);
        assert_eq!(report["columns"].as_array().unwrap().len(), 16);
        assert_eq!(report["columns"][0]["name"], "l_orderkey");
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
        assert!(complaint(&output, 1).contains("nosuch.vortex"));
        assert!(stdout(&output).contains("rows_1.vortex: 1 row,"));
    }
}

mod convert {
    use super::*;

    fn read_arrow(path: impl AsRef<Path>) -> Vec<RecordBatch> {
        FileReader::try_new(File::open(path).unwrap(), None).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn arrow_files_hold_what_is_expected() {
        let folder = TempDir::new().unwrap();
        for case in ["tpch_lineitem_1k", "strings", "timestamps", "floats_special", "rows_0"] {
            let target = folder.path().join(case).with_extension("arrow");
            ok(&["convert", &golden(&format!("0.91.0/{case}.vortex")), target.to_str().unwrap()]);
            let expected = read_arrow(golden(&format!("0.91.0/{case}.arrow")));
            let shown = |batches: &[RecordBatch]| pretty_format_batches(batches).unwrap().to_string();
            let rows = |batches: &[RecordBatch]| batches.iter().map(RecordBatch::num_rows).sum::<usize>();
            let converted = read_arrow(&target);
            assert_eq!(rows(&converted), rows(&expected), "{case}");
            assert!(rows(&expected) == 0 || shown(&converted) == shown(&expected), "{case}");
        }
    }

    #[test]
    fn other_formats_hold_the_same_rows() {
        let folder = TempDir::new().unwrap();
        let source = golden("0.91.0/tpch_lineitem_1k.vortex");
        let sql = "SELECT count(*) AS n, sum(l_orderkey) AS keys, max(l_comment) AS comment,
            sum(CAST(l_tax AS DECIMAL(15, 2))) AS tax FROM '{}'";
        let expected = csv(&sql.replace("{}", &source));
        for extension in ["parquet", "csv", "json"] {
            let target = folder.path().join("lineitem").with_extension(extension);
            let target = target.to_str().unwrap();
            ok(&["convert", &source, target]);
            assert_eq!(csv(&sql.replace("{}", target)), expected, "{extension}");
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
    }

    #[test]
    fn columns_and_rows_can_be_chosen() {
        let source = golden("0.91.0/tpch_orders.vortex");
        let arguments =
            ["convert", "--to", "csv", "--columns", "o_orderstatus,o_orderkey", "--limit", "2", &source, "-"];
        assert_eq!(ok(&arguments), "o_orderstatus,o_orderkey\nO,1\nO,2\n");
        let output = run(&["convert", "--columns", "nosuch", &source, "x.csv"]);
        assert!(complaint(&output, 1).contains("nosuch"));
        assert!(!Path::new("x.csv").exists());
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
        let target = folder.path().join("out.csv");
        fs::write(&target, "old").unwrap();
        let nested = golden("0.91.0/struct_nested.vortex");
        let line = complaint(&run(&["convert", &nested, target.to_str().unwrap()]), 1);
        assert!(line.contains("out.csv") && line.contains("CSV cannot hold"), "{line}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "old");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn writing_vortex_is_said_to_be_missing() {
        let source = golden("0.91.0/tpch_orders.vortex");
        let line = complaint(&run(&["convert", &source, "copy.vortex"]), 1);
        assert!(line.contains("writing Vortex files is not supported yet"), "{line}");
    }

    #[test]
    fn wrong_usage_has_a_status_of_its_own() {
        let source = golden("0.91.0/tpch_orders.vortex");
        assert!(complaint(&run(&["convert", &source, "out.unheardof"]), 2).contains("--to"));
        assert!(
            complaint(&run(&["convert", "--to", "csv", &source, &source]), 2)
                .contains("input and the output")
        );
        for arguments in [vec![], vec!["nosuch"], vec!["convert", "a"], vec!["sql", "--format", "nosuch"]] {
            assert_eq!(run(&arguments).status.code(), Some(2), "{arguments:?}");
        }
    }
}

#[test]
fn damaged_files_end_in_a_line_or_in_values() {
    let files = files_in(&golden("corrupt"), |_| true);
    assert!(files.len() > 10);
    for file in files {
        let select = format!("SELECT * FROM '{file}'");
        for arguments in [
            vec!["inspect", &file],
            vec!["convert", "--to", "json", &file, "-"],
            vec!["sql", "-q", "--format", "csv", "-c", &select],
        ] {
            let output = run(&arguments);
            match output.status.code() {
                Some(0) => assert_eq!(stderr(&output), "", "{arguments:?}"),
                _ => drop(complaint(&output, 1)),
            }
        }
    }
}

#[test]
fn a_closed_pipe_ends_a_command_quietly() {
    let source = golden("0.91.0/tpch_lineitem_1k.vortex");
    let select = format!("SELECT a.* FROM '{source}' a, '{source}' b");
    for arguments in [
        vec!["convert", "--to", "json", &source, "-"],
        vec!["convert", "--to", "csv", &source, "-"],
        vec!["convert", "--to", "arrow", &source, "-"],
        vec!["inspect", &source, &source, &source, &source, &source, &source],
        vec!["sql", "--format", "csv", "-c", &select],
    ] {
        let mut child = vortex(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut few = [0; 10];
        let mut out = child.stdout.take().unwrap();
        out.read_exact(&mut few).unwrap();
        drop(out);
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{arguments:?}");
    }
}

fn files_in(folder: &str, wanted: impl Fn(&str) -> bool + Copy) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        let text = path.to_string_lossy().into_owned();
        if path.is_dir() {
            files.extend(files_in(&text, wanted));
        } else if text.ends_with(".vortex") && wanted(&text) {
            files.push(text);
        }
    }
    files.sort();
    files
}

/// Serves one file under every name, as web servers do: lengths, ranges, nothing else.
fn serve(file: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let bytes = fs::read(file).unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let (bytes, connection) = (bytes.clone(), connection.unwrap());
            std::thread::spawn(move || answer(connection, &bytes));
        }
    });
    port
}

fn answer(mut connection: TcpStream, bytes: &[u8]) {
    let mut lines = BufReader::new(connection.try_clone().unwrap()).lines().map_while(Result::ok);
    while let Some(request) = lines.next() {
        let headers: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let range = headers.iter().find_map(|line| {
            let (start, end) =
                line.to_lowercase().strip_prefix("range: bytes=")?.split_once('-').map(|(a, b)| {
                    (a.parse::<usize>().unwrap(), b.parse().map_or(bytes.len(), |last: usize| last + 1))
                })?;
            Some(start..end.min(bytes.len()))
        });
        let mut head = "Accept-Ranges: bytes\r\nLast-Modified: Sat, 01 Jan 2022 00:00:00 GMT\r\n".to_owned();
        let (status, body) = match range {
            Some(range) => {
                let (start, last) = (range.start, range.end - 1);
                head.push_str(&format!("Content-Range: bytes {start}-{last}/{}\r\n", bytes.len()));
                ("206 Partial Content", &bytes[range])
            }
            None => ("200 OK", bytes),
        };
        let reply = format!("HTTP/1.1 {status}\r\n{head}Content-Length: {}\r\n\r\n", body.len());
        let body = if request.starts_with("HEAD ") { &[][..] } else { body };
        if connection.write_all(reply.as_bytes()).and_then(|()| connection.write_all(body)).is_err() {
            return;
        }
    }
}
