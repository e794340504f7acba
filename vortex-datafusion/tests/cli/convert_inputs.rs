//! `vortex convert`: what is read, and what is refused.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::writer;

use crate::*;

#[test]
fn other_bytes_are_not_taken_for_arrow_files() {
    let folder = TempDir::new().unwrap();
    for (bytes, told) in [
        (b"".as_slice(), "is empty"),
        (b"neither a file nor a stream of batches", "is not an Arrow IPC file"),
        (b"ARROW1\0\0, and nothing else of the format", "is not an Arrow IPC file"),
    ] {
        let source = path(&folder, "in.arrow");
        fs::write(&source, bytes).unwrap();
        let line = fails(&["convert", &source, &path(&folder, "out.vortex")], 1);
        assert!(line.contains("in.arrow") && line.contains(told) && !line.contains("bug"), "{line}");
    }
    assert_eq!(names(&folder), ["in.arrow"]);
}

#[test]
fn standard_input_is_read_like_a_file() {
    let folder = TempDir::new().unwrap();
    let temporary = TempDir::new().unwrap();
    let file = golden("0.91.0/tpch_orders.vortex");
    let piped = |arguments: &[&str], input: &str| {
        let mut command = vortex(&[&["convert"], arguments].concat());
        command.stdin(File::open(input).unwrap()).env("TMPDIR", temporary.path()).output().unwrap()
    };
    for (extension, format) in
        [("csv", "csv"), ("jsonl", "json"), ("parquet", "parquet"), ("vortex", "vortex")]
    {
        let input = path(&folder, &format!("in.{extension}"));
        ok(&["convert", "--limit", "3", &file, &input]);
        let output = piped(&["--from", format, "--to", "csv", "-", "-"], &input);
        assert_eq!(stdout(&output), ok(&["convert", "--to", "csv", &input, "-"]), "{}", stderr(&output));
    }
    let input = path(&folder, "in.csv");
    assert_eq!(piped(&["--from", "csv", "-", &path(&folder, "out/")], &input).status.code(), Some(0));
    assert_eq!(names(folder.path().join("out")), ["stdin.vortex"]);
    let output = piped(&["--from", "csv", "--to", "csv", "/dev/stdin", "/dev/stdout"], &input);
    assert_eq!(stdout(&output), fs::read_to_string(&input).unwrap());
    let line = complaint(&piped(&["-", "-", "--to", "csv"], &input), 2);
    assert!(line.contains("standard input") && line.contains("--from"), "{line}");
    let line = complaint(&piped(&["-", "-", "x.vortex"], &input), 2);
    assert!(line.contains("standard input can be read only once"), "{line}");
    let line = complaint(&piped(&["--from", "parquet", "-", &path(&folder, "x.vortex")], &input), 1);
    assert!(line.contains("standard input"), "{line}");
    assert_eq!(names(&temporary), [""; 0]);
}

#[test]
fn inputs_follow_each_other_as_given() {
    let folder = TempDir::new().unwrap();
    for extension in ["csv", "jsonl", "parquet", "vortex", "arrow"] {
        let inputs = ["c", "a", "b"].map(|name| {
            let file = path(&folder, &format!("{name}.{extension}"));
            let source = path(&folder, "one.csv");
            fs::write(&source, format!("x\n{name}1\n{name}2\n")).unwrap();
            ok(&["convert", &source, &file]);
            file
        });
        let inputs = inputs.each_ref().map(String::as_str);
        for limit in [&[][..], &["--limit", "5"]] {
            let output = ok(&[&["convert", "--to", "csv"], limit, &inputs, &["-"]].concat());
            let rows =
                if limit.is_empty() { "x\nc1\nc2\na1\na2\nb1\nb2\n" } else { "x\nc1\nc2\na1\na2\nb1\n" };
            assert_eq!(output, rows, "{extension}");
        }
    }
}

#[test]
fn the_first_rows_of_many_inputs_are_those_of_the_first_ones() {
    let folder = TempDir::new().unwrap();
    // Files of different columns are read by DataFusion, which would do with any files that have enough rows.
    let inputs: Vec<String> = (0..40)
        .rev()
        .map(|at| {
            let (source, file) = (path(&folder, "one.csv"), path(&folder, &format!("{at:02}.vortex")));
            fs::write(&source, format!("x,c{at}\n{at},1\n{at},2\n")).unwrap();
            ok(&["convert", &source, &file]);
            file
        })
        .collect();
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    for _ in 0..5 {
        let output =
            ok(&[&["convert", "--to", "csv", "--columns", "x", "--limit", "3"], &inputs[..], &["-"]]
                .concat());
        assert_eq!(output, "x\n39\n39\n38\n");
    }
}

#[test]
fn folders_named_after_values_are_read_as_a_whole_or_not_at_all() {
    let folder = TempDir::new().unwrap();
    for (name, rows) in [
        ("q1/day=1/x", "a\n1\n"),
        ("q2/day=2/x", "a,b\n2,3\n"),
        ("q3/hour=3/x", "a\n4\n"),
        ("q4/sub/day=4/x", "a\n5\n"),
    ] {
        let (source, file) = (path(&folder, "one.csv"), path(&folder, &format!("{name}.vortex")));
        fs::write(&source, rows).unwrap();
        fs::create_dir_all(std::path::Path::new(&file).parent().unwrap()).unwrap();
        ok(&["convert", &source, &file]);
    }
    let [q1, q2, q3, q4] = ["q1/", "q2/", "q3/", "q4/"].map(|name| path(&folder, name));
    for places in [[&q1, &q2], [&q2, &q1]] {
        let output = ok(&["convert", "--to", "csv", "--sort-by", "a", places[0], places[1], "-"]);
        assert!(["a,b,day\n1,,1\n2,3,2\n", "a,day,b\n1,1,\n2,2,3\n"].contains(&output.as_str()), "{output}");
    }
    let line = fails(&["convert", "--to", "csv", &q1, &q3, "-"], 2);
    assert!(line.contains("hour") && line.contains("day"), "{line}");
    let line = fails(&["convert", "--to", "csv", &q4, "-"], 2);
    assert!(line.contains("convert that folder by itself"), "{line}");
}

#[test]
fn excluded_columns_are_left_out_of_files_and_folders() {
    let folder = TempDir::new().unwrap();
    for (name, rows) in [("p/day=1/x.csv", "a,b,c\n1,2,3\n"), ("p/day=2/x.csv", "a,b,c\n4,5,6\n")] {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, rows).unwrap();
    }
    let (all, one) = (path(&folder, "p/"), path(&folder, "p/day=2/x.csv"));
    let to_csv = |excluded: &str, place: &str| {
        ok(&["convert", "--to", "csv", "--exclude", excluded, "--sort-by", "a", place, "-"])
    };
    assert_eq!(to_csv("b", &all), "a,c,day\n1,3,1\n4,6,2\n");
    assert_eq!(to_csv("day, c", &all), "a,b\n1,2\n4,5\n");
    assert_eq!(to_csv("a,b", &one), "c\n6\n");
    let refused =
        |excluded: &str, code| fails(&["convert", "--exclude", excluded, &one, "-", "--to", "csv"], code);
    assert!(refused("A", 1).contains("no column `A` to exclude; there are: a, b, c"));
    assert!(refused("a,b,c", 2).contains("no column is left"));
    let both = run(&["convert", "--exclude", "a", "--columns", "b", &one, "-"]);
    assert!(both.status.code() == Some(2) && stderr(&both).contains("cannot be used with"), "{both:?}");
}

#[test]
fn files_of_subfolders_that_sql_leaves_out_are_told() {
    let folder = TempDir::new().unwrap();
    for name in ["mix/a.csv", "mix/sub/b.csv", "mix/sub/c.csv", "days/day=1/d.csv", "days/day=2/e.csv"] {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "a\n1\n").unwrap();
    }
    let (mix, days) = (path(&folder, "mix"), path(&folder, "days/"));
    let (all, parts) = (path(&folder, "all.vortex"), path(&folder, "parts/"));
    let told = format!(
        "vortex: {mix}: 2 of 3 files are in subfolders, which SQL over this folder leaves out; a pattern like \
         '{mix}/*.csv' does, too\n"
    );
    assert_eq!(complaint(&run(&["convert", &mix, &all]), 0), told);
    assert_eq!(csv(&format!("SELECT count(*) AS n FROM '{all}'")), "n\n3\n");
    assert_eq!(complaint(&run(&["convert", "--target-file-size", "1m", &mix, &parts]), 0), told);
    // Each file into its own, at the same relative path; and what SQL reads as well.
    ok(&["convert", &mix, &path(&folder, "out/")]);
    ok(&["convert", &days, &all]);
    ok(&["convert", &format!("{mix}/*.csv"), &all]);
    assert_eq!(csv(&format!("SELECT count(*) AS n FROM '{all}'")), "n\n1\n");
    assert_eq!(csv(&format!("SELECT count(*) AS n FROM '{mix}/'")), "n\n1\n");
}

#[test]
fn columns_of_the_same_name_are_refused() {
    let folder = TempDir::new().unwrap();
    let fields = ["a", "b", "a"].map(|name| Field::new(name, DataType::Int64, false));
    let schema = Arc::new(Schema::new(fields.to_vec()));
    let columns = (0..3).map(|at| Arc::new(Int64Array::from(vec![at])) as _).collect();
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
    let (file, stream) = (path(&folder, "file.arrow"), path(&folder, "stream.arrow"));
    let mut writer = writer::FileWriter::try_new(File::create(&file).unwrap(), &schema).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let mut writer = writer::StreamWriter::try_new(File::create(&stream).unwrap(), &schema).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    for source in [file, stream] {
        for target in ["out.vortex", "out.csv"] {
            let line = fails(&["convert", &source, &path(&folder, target)], 1);
            assert!(line.contains("duplicate column `a`") && line.contains(&source), "{line}");
        }
        let line = complaint(&run(&["sql", &format!("SELECT b FROM '{source}'")]), 1);
        assert!(line.contains("duplicate column `a`") && line.contains(&source), "{line}");
    }
}

#[test]
fn a_column_is_either_in_the_files_or_in_the_names_of_folders() {
    let folder = TempDir::new().unwrap();
    for extension in ["csv", "json", "parquet", "vortex"] {
        let file = format!("{extension}/a=1/x.{extension}");
        copy("SELECT 5 AS a, 6 AS b", &path(&folder, &file));
        let one = path(&folder, "one.arrow");
        let line = fails(&["convert", &path(&folder, &format!("{extension}/")), &one], 1);
        assert!(line.contains(&file) && line.contains("column `a`") && line.contains("`a=…`"), "{line}");
        let glob = path(&folder, &format!("{extension}/**/*.{extension}"));
        assert_eq!(ok(&["convert", "--to", "csv", &glob, "-"]), "a,b\n5,6\n", "{extension}");
    }
}

#[test]
fn names_of_files_and_folders_are_taken_literally() {
    let folder = TempDir::new().unwrap();
    let source = golden("0.91.0/tpch_orders.vortex");
    for extension in ["csv", "jsonl", "parquet", "arrow", "vortex"] {
        let (plain, odd) = (format!("a.{extension}"), format!("b%2Fc #1%.{extension}"));
        let (plain, odd) = (path(&folder, &plain), path(&folder, &odd));
        ok(&["convert", "--limit", "2", &source, &plain]);
        fs::rename(plain, &odd).unwrap();
        for sort in [&[][..], &["--sort-by", "o_orderkey"]] {
            let options = ["convert", "--to", "csv", "--columns", "o_orderkey"];
            let rows = ok(&[&options, sort, &[&odd, "-"]].concat());
            assert_eq!(rows, "o_orderkey\n1\n2\n", "{extension} {sort:?}");
        }
    }
    for format in ["csv", "parquet", "vortex"] {
        let (values, one) =
            (path(&folder, &format!("{format}/")), path(&folder, &format!("{format}.vortex")));
        let copy = format!(
            "COPY (VALUES (1, 'x/y'), (2, '50%'), (3, 'z')) TO '{values}'
             STORED AS {format} PARTITIONED BY (column2)"
        );
        ok(&["sql", "-q", "-c", &copy]);
        ok(&["convert", &values, &one]);
        let rows = csv(&format!("SELECT column1 AS a, column2 AS b FROM '{one}' ORDER BY a"));
        assert_eq!(rows, "a,b\n1,x/y\n2,50%\n3,z\n", "{format}");
    }
}

#[test]
fn a_file_that_exists_is_not_a_glob() {
    let folder = TempDir::new().unwrap();
    for (name, row) in [("x[1].csv", 1), ("x1.csv", 2), ("x?y.csv", 3), ("x#y.csv", 4), ("x*.csv", 5)] {
        fs::write(folder.path().join(name), format!("a\n{row}\n")).unwrap();
    }
    for (name, rows) in [("x[1].csv", "1"), ("x?y.csv", "3"), ("x*.csv", "5"), ("x[#]y.csv", "4")] {
        let out = ok(&["convert", "--to", "csv", &path(&folder, name), "-"]);
        assert_eq!(out, format!("a\n{rows}\n"), "{name}");
    }
    let odd = path(&folder, "x[1].csv");
    assert!(fails(&["convert", &odd, &odd], 2).contains("the input and the output"));
    let relative = vortex(&["convert", "--to", "csv", "../x[1].csv", "-"])
        .current_dir({
            fs::create_dir(folder.path().join("below")).unwrap();
            folder.path().join("below")
        })
        .output();
    assert_eq!(stdout(&relative.unwrap()), "a\n1\n");
}

#[test]
fn columns_that_some_files_lack_are_null_there() {
    let folder = TempDir::new().unwrap();
    for extension in ["vortex", "parquet"] {
        copy("SELECT 1 AS a, 'x' AS b", &path(&folder, &format!("{extension}/1.{extension}")));
        copy("SELECT 2 AS a, true AS c", &path(&folder, &format!("{extension}/2.{extension}")));
        let one = path(&folder, &format!("{extension}.vortex"));
        ok(&["convert", &path(&folder, extension), &one]);
        let rows = csv(&format!("SELECT a, b, c FROM '{one}' ORDER BY a"));
        assert_eq!(rows, "a,b,c\n1,x,\n2,,true\n", "{extension}");
    }
}

#[test]
fn columns_in_another_order_are_not_mixed_up() {
    let folder = TempDir::new().unwrap();
    for name in ["csv/p=1", "csv/p=2", "arrow"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    fs::write(folder.path().join("csv/p=1/1.csv"), "a,b\n1,2\n").unwrap();
    fs::write(folder.path().join("csv/p=2/2.csv"), "b,a\n20,10\n").unwrap();
    copy("SELECT 1 AS a, 2 AS b", &path(&folder, "arrow/1.arrow"));
    copy("SELECT 20 AS b, 10 AS a", &path(&folder, "arrow/2.arrow"));
    for (from, file) in [("csv/", "2.csv"), ("arrow/", "2.arrow")] {
        let line = fails(&["convert", &path(&folder, from), "-", "--to", "json"], 1);
        assert!(line.contains(file) && line.contains("b Int64, a Int64"), "{line}");
    }
    let select = format!("SELECT a, b FROM '{}'", path(&folder, "csv/"));
    let line = fails(&["sql", &select], 1);
    assert!(line.contains("1.csv") && line.contains("2.csv") && line.contains("column 1 is"), "{line}");
    // One by one, each keeps its own.
    ok(&["convert", &path(&folder, "csv/"), &path(&folder, "out/")]);
    let rows = format!("SELECT a, b FROM '{}'", path(&folder, "out/p=2/2.vortex"));
    assert_eq!(csv(&rows), "a,b\n10,20\n");
}

#[test]
fn files_of_a_table_are_merged_as_in_sql() {
    let folder = TempDir::new().unwrap();
    copy("SELECT arrow_cast(1, 'Int32') AS x, 'a' AS y", &path(&folder, "t/1.vortex"));
    copy("SELECT arrow_cast(2, 'Int64') AS x, 1 AS y", &path(&folder, "t/2.vortex"));
    let from = path(&folder, "t/");
    let line = fails(&["convert", &from, "-", "--to", "csv"], 1);
    assert!(line.contains("column `y`") && line.contains("1.vortex") && line.contains("2.vortex"), "{line}");
    assert_eq!(ok(&["convert", &from, "-", "--to", "csv", "--columns", "x"]), "x\n1\n2\n");
    fs::write(folder.path().join("1.csv"), "n\n1\n").unwrap();
    fs::write(folder.path().join("2.csv"), "n\n1.5\n").unwrap();
    let files = [path(&folder, "1.csv"), path(&folder, "2.csv")];
    assert_eq!(ok(&["convert", &files[0], &files[1], "-", "--to", "csv"]), "n\n1.0\n1.5\n");
    fs::write(folder.path().join("0.csv"), "").unwrap();
    let empty = path(&folder, "0.csv");
    assert_eq!(ok(&["convert", &empty, &files[1], "-", "--to", "csv"]), "n\n1.5\n", "without a header");
}

#[test]
fn keys_that_come_late_are_columns_too() {
    let folder = TempDir::new().unwrap();
    let lines = "{\"a\":1}\n".repeat(100_001) + "{\"a\":1,\"z\":5}\n";
    fs::write(folder.path().join("l.json"), lines).unwrap();
    ok(&["convert", &path(&folder, "l.json"), &path(&folder, "l.vortex")]);
    assert_eq!(csv(&format!("SELECT sum(z) AS z FROM '{}'", path(&folder, "l.vortex"))), "z\n5\n");
}

#[test]
fn json_columns_keep_the_order_of_the_first_line() {
    let folder = TempDir::new().unwrap();
    let lines = "{\"z\":1,\"a\":{\"y\":2},\"m\":\"x\"}\n{\"b\":1.5,\"a\":null,\"z\":3}\n";
    fs::write(folder.path().join("k.json"), lines).unwrap();
    ok(&["convert", &path(&folder, "k.json"), &path(&folder, "k.vortex")]);
    let types = csv(&format!("DESCRIBE '{}'", path(&folder, "k.vortex")));
    let order: Vec<&str> = types.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(order, ["z", "a", "m", "b"]);
}

#[test]
fn what_is_wrong_with_an_input_is_told() {
    let folder = TempDir::new().unwrap();
    let out = path(&folder, "out.vortex");
    let zipped = path(&folder, "zip.parquet.gz");
    fs::write(&zipped, "zipped").unwrap();
    for from in [&[][..], &["--from", "parquet"]] {
        let line = fails(&[&["convert"], from, &[&zipped, &out]].concat(), 2);
        assert!(line.contains("is compressed (gz)") && line.contains("decompress it first"), "{line}");
    }
    let damaged = path(&folder, "damaged.csv.gz");
    fs::write(&damaged, "zipped").unwrap();
    let line = fails(&["convert", &damaged, &out], 1);
    assert!(line.matches("damaged.csv.gz").count() == 1, "{line}");
    // Nor are they silently left out of a folder.
    fs::create_dir(folder.path().join("logs")).unwrap();
    fs::write(folder.path().join("logs/1.parquet.gz"), "zipped").unwrap();
    fs::write(folder.path().join("logs/2.csv"), "a\n1\n").unwrap();
    let output = run(&["convert", &path(&folder, "logs/"), &path(&folder, "logs.vortex")]);
    assert!(stderr(&output).contains("left out 1 file of unknown format"), "{}", stderr(&output));
    let twice = path(&folder, "twice.csv");
    for lines in ["a,a\n1,2\n", "a,b,a\n1,2,3\n"] {
        fs::write(&twice, lines).unwrap();
        let line = fails(&["convert", &twice, &out], 1);
        assert!(line.contains("twice.csv: duplicate column `a`"), "{line}");
    }
    let source = golden("0.91.0/tpch_orders.vortex");
    for extension in ["parquet", "arrow", "csv", "json", "vortex"] {
        let file = path(&folder, &format!("orders.{extension}"));
        ok(&["convert", "--limit", "5", "--columns", "o_orderkey,o_clerk", &source, &file]);
        let line = fails(&["convert", "--columns", "o_clerk,nope", &file, &out], 1);
        let told = "no column `nope`; there are: o_orderkey, o_clerk\n";
        assert!(line.starts_with(&format!("vortex: {file}: ")) && line.ends_with(told), "{line}");
    }
    assert!(!Path::new(&out).exists());
}

#[test]
fn files_of_web_servers_without_ranges_are_read() {
    let folder = TempDir::new().unwrap();
    for (name, text) in [("a.json", "{\"a\":1}\n"), ("a.csv", "a\n1\n")] {
        fs::write(folder.path().join(name), text).unwrap();
        let url = format!("http://127.0.0.1:{}/{name}", serve_with(path(&folder, name), false));
        assert_eq!(ok(&["convert", "--to", "csv", &url, "-"]), "a\n1\n");
    }
}

#[test]
fn arrow_files_of_remote_stores_are_read() {
    let folder = TempDir::new().unwrap();
    let (mine, copied) = (path(&folder, "mine.arrow"), path(&folder, "copied.arrow"));
    copy("SELECT value AS a, 'x' AS b FROM generate_series(1, 2)", &copied);
    ok(&["convert", &copied, &mine]);
    for file in [mine, copied] {
        let url = format!("http://127.0.0.1:{}/a.arrow", serve_with(file, true));
        assert_eq!(ok(&["convert", "--to", "csv", &url, "-"]), "a,b\n1,x\n2,x\n");
        assert_eq!(csv(&format!("SELECT * FROM '{url}'")), "a,b\n1,x\n2,x\n");
    }
}

#[cfg(unix)]
#[test]
fn there_may_be_more_files_than_can_be_open() {
    let folder = TempDir::new().unwrap();
    for extension in ["vortex", "parquet", "csv"] {
        let one = path(&folder, &format!("one.{extension}"));
        copy("SELECT 1 AS a", &one);
        let many = path(&folder, extension);
        fs::create_dir(&many).unwrap();
        for at in 0..300 {
            fs::copy(&one, format!("{many}/{at}.{extension}")).unwrap();
        }
        for (options, rows) in [(&[][..], 300), (&["--limit", "5"], 5), (&["--sort-by", "a"], 300)] {
            let output = Command::new("sh")
                .args(["-c", "ulimit -n 150; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_vortex"), "convert"])
                .args(options)
                .args(["--to", "csv", &many, "-"])
                .output()
                .unwrap();
            assert_eq!(stderr(&output), "", "{extension} {options:?}");
            assert_eq!(stdout(&output), "a\n".to_owned() + &"1\n".repeat(rows), "{extension} {options:?}");
        }
    }
}

#[test]
fn files_without_bytes_are_errors_unless_others_have_columns() {
    let folder = TempDir::new().unwrap();
    for name in ["e.csv", "e.json", "e.parquet", "e.arrow"] {
        fs::write(folder.path().join(name), "").unwrap();
        let line = fails(&["convert", &path(&folder, name), &path(&folder, "out.vortex")], 1);
        assert!(line.contains(name), "{line}");
    }
    fs::write(folder.path().join("h.csv"), "a,b\n").unwrap();
    assert_eq!(ok(&["convert", "--to", "csv", &path(&folder, "h.csv"), "-"]), "a,b\n");
}

#[test]
fn advice_fits_the_command() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("1.csv"), "a,b\n1,2\n").unwrap();
    fs::write(folder.path().join("2.csv"), "a,b\n1,x\n").unwrap();
    let (one, two) = (path(&folder, "1.csv"), path(&folder, "2.csv"));
    let line = fails(&["convert", &one, &two, &path(&folder, "3.vortex")], 1);
    assert!(line.contains("column `b`") && line.contains("CREATE EXTERNAL TABLE"), "{line}");
    let line = fails(&["convert", "--columns", "a,a", &one, "x.csv"], 2);
    assert!(line.contains("--columns: `a` is named twice"), "{line}");
    let line = fails(&["convert", "--sort-by", "a descending", &one, "x.csv"], 1);
    assert!(line.contains("`a descending`") && line.contains("asc, desc, nulls first, nulls last"), "{line}");
}

/// Row groups that are sorted, each by itself, which they state.
fn sorted_groups(path: &str) {
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::SortingColumn;
    use parquet::file::properties::WriterProperties;

    let by = SortingColumn { column_idx: 0, descending: false, nulls_first: false };
    let properties = WriterProperties::builder().set_sorting_columns(Some(vec![by])).build();
    let column = |from: i64| Arc::new(Int64Array::from_iter_values(from..from + 100)) as ArrayRef;
    let groups = [1000, 0, 500].map(|from| RecordBatch::try_from_iter([("a", column(from))]).unwrap());
    let mut writer =
        ArrowWriter::try_new(File::create(path).unwrap(), groups[0].schema(), Some(properties)).unwrap();
    for group in &groups {
        writer.write(group).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
}

#[test]
fn an_order_that_rows_do_not_have_is_not_recorded() {
    let folder = TempDir::new().unwrap();
    let [groups, kept, sorted] =
        ["x.parquet", "kept.vortex", "sorted.vortex"].map(|name| path(&folder, name));
    sorted_groups(&groups);
    ok(&["convert", &groups, &kept]);
    ok(&["convert", "--sort-by", "a", &groups, &sorted]);
    for file in [&kept, &sorted] {
        assert!(ok(&["verify", file]).contains(": fine; "));
        assert_eq!(csv(&format!("SELECT a FROM '{file}' ORDER BY a LIMIT 2 OFFSET 99")), "a\n99\n500\n");
    }
    assert_eq!(csv(&format!("SELECT a FROM '{kept}' LIMIT 1")), "a\n1000\n");
    assert_eq!(csv(&format!("SELECT a FROM '{sorted}' LIMIT 1")), "a\n0\n");
    let explain =
        |file: &str| ok(&["sql", "-c", &format!("EXPLAIN FORMAT INDENT SELECT a FROM '{file}' ORDER BY a")]);
    assert!(explain(&kept).contains("SortExec") && !explain(&sorted).contains("SortExec"));
}

#[test]
fn partitions_of_files_with_another_extension_of_their_format_are_read_without_what_is_beside_them() {
    let folder = TempDir::new().unwrap();
    for day in ["1", "2"] {
        fs::create_dir_all(folder.path().join(format!("ev/day={day}"))).unwrap();
        fs::write(folder.path().join(format!("ev/day={day}/a.jsonl")), format!("{{\"n\":{day}}}\n")).unwrap();
    }
    fs::write(folder.path().join("ev/README.md"), "about").unwrap();
    fs::write(folder.path().join("ev/day=1/README.md"), "about").unwrap();
    let output = run(&["convert", "--to", "csv", &path(&folder, "ev/"), "-"]);
    assert_eq!(stdout(&output), "n,day\n1,1\n2,2\n");
    assert!(stderr(&output).contains("README.md, day=1/README.md"), "{}", stderr(&output));
}

/// A small file next to this one.
fn beside(name: &str) -> String {
    format!("{}/tests/cli/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn intervals_of_parquet_files_whose_months_would_be_lost_are_refused() {
    // Written by DuckDB: 14 months; 1 month, 2 days and 3 seconds; 50 days.
    let line = fails(&["convert", &beside("intervals.parquet"), "x.vortex"], 1);
    assert!(line.contains("column `i` has intervals") && line.contains("--exclude"), "{line}");
}

#[test]
fn timestamps_of_96_bits_may_be_any_day() {
    // Without a schema of Arrow, as Spark writes them: nanoseconds end in 2262.
    let file = beside("int96.parquet");
    let days = "t\n9999-12-31T00:00:00\n0001-01-01T00:00:00\n2020-01-01T00:00:00\n";
    assert_eq!(ok(&["convert", "--to", "csv", &file, "-"]), days);
    assert_eq!(csv(&format!("FROM '{file}'")), days);
}

#[test]
fn an_input_that_is_named_twice_is_refused_whatever_its_format() {
    let folder = TempDir::new().unwrap();
    let (csv, vortex) = (path(&folder, "a.csv"), path(&folder, "a.vortex"));
    fs::write(&csv, "a\n1\n").unwrap();
    ok(&["convert", &csv, &vortex]);
    let pattern = path(&folder, "*.csv");
    for inputs in [[&csv, &csv], [&vortex, &vortex], [&pattern, &csv]] {
        let line = fails(&["convert", inputs[0], inputs[1], &path(&folder, "out.vortex")], 2);
        assert!(line.contains("is among the inputs twice"), "{line}");
    }
}

#[test]
fn dictionaries_of_values_of_fixed_length_are_read_back_from_parquet() {
    let folder = TempDir::new().unwrap();
    let (from, to) = (path(&folder, "a.vortex"), path(&folder, "a.parquet"));
    for (value, values) in [
        ("arrow_cast('abcd', 'Binary')", "FixedSizeBinary(4)"),
        ("1.25", "Decimal128(5, 2)"),
        ("1.5", "Float16"),
        ("'a'", "Utf8"),
        ("7", "Int32"),
    ] {
        let plain = format!("arrow_cast({value}, '{values}')");
        let coded = format!("arrow_cast({plain}, 'Dictionary(Int32, {values})') AS a");
        copy(&format!("SELECT {coded}"), &from);
        ok(&["convert", &from, &to]);
        assert_eq!(csv(&format!("SELECT {plain} = a AS b FROM '{to}'")), "b\ntrue\n", "{values}");
        fs::remove_file(&to).unwrap();
    }
}

/// A Parquet file whose Arrow schema makes dictionaries of its columns, as those of PyArrow do.
fn with_dictionaries(path: &str, batch: &RecordBatch) {
    use parquet::arrow::{
        ARROW_SCHEMA_META_KEY, ArrowWriter, arrow_writer::ArrowWriterOptions, encode_arrow_schema,
    };
    use parquet::file::metadata::KeyValue;
    use parquet::file::properties::WriterProperties;

    let schema = batch.schema();
    let fields = schema.fields().iter().map(|field| {
        let values = Box::new(field.data_type().clone());
        Field::new(field.name(), DataType::Dictionary(Box::new(DataType::Int32), values), true)
    });
    let told = encode_arrow_schema(&Schema::new(fields.collect::<Vec<_>>()));
    let told = vec![KeyValue::new(ARROW_SCHEMA_META_KEY.to_owned(), told)];
    let properties = WriterProperties::builder().set_key_value_metadata(Some(told)).build();
    let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new_with_options(file, batch.schema(), options).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn dictionaries_of_decimals_that_others_wrote_are_read() {
    use arrow::array::Decimal128Array;

    let folder = TempDir::new().unwrap();
    let source = path(&folder, "a.parquet");
    let decimals = |digits| {
        let values = Decimal128Array::from(vec![Some(125), None, Some(-250)]);
        Arc::new(values.with_precision_and_scale(digits, 2).unwrap()) as ArrayRef
    };
    let columns = [("short", decimals(9)), ("long", decimals(25))];
    with_dictionaries(
        &source,
        &RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap(),
    );
    let expected = "short,long\n1.25,1.25\n,\n-2.50,-2.50\n";
    assert_eq!(ok(&["convert", "--to", "csv", &source, "-"]), expected);
    assert_eq!(
        ok(&["convert", "--to", "csv", "--columns", "long", &source, "-"]),
        "long\n1.25\n\"\"\n-2.50\n"
    );
}

#[test]
fn a_late_value_of_a_csv_file_is_told_with_its_column_and_line() {
    let folder = TempDir::new().unwrap();
    let source = path(&folder, "a.csv");
    fs::write(&source, format!("a,b\n{}7,x\n", "7,8\n".repeat(100_000))).unwrap();
    let line = complaint(&run(&["convert", &source, &path(&folder, "b.vortex")]), 1);
    assert!(line.contains("value 'x' as type 'Int64' for column `b` at line 100002."), "{line}");
}

#[test]
fn a_stream_of_arrow_that_is_cut_short_is_told() {
    let folder = TempDir::new().unwrap();
    let source = path(&folder, "a.arrows");
    ok(&["convert", &golden("0.91.0/tpch_lineitem_1k.vortex"), &source]);
    let bytes = fs::read(&source).unwrap();
    fs::write(&source, &bytes[..bytes.len() - 1000]).unwrap();
    let line = complaint(&run(&["convert", &source, &path(&folder, "b.vortex")]), 1);
    assert!(line.contains("a.arrows: ") && line.contains("the file is damaged or cut short"), "{line}");
}

#[test]
fn files_of_a_folder_that_are_left_out_are_told() {
    let folder = TempDir::new().unwrap();
    let (from, to) = (path(&folder, "from/"), path(&folder, "to/"));
    fs::create_dir(&from).unwrap();
    for name in ["part-0", "a.csv", "b.log", "_SUCCESS", ".hidden"] {
        fs::write(folder.path().join("from").join(name), "a\n1\n").unwrap();
    }
    let output = run(&["convert", &from, &to]);
    assert_eq!(output.status.code(), Some(0));
    let told = stderr(&output);
    assert!(told.contains("left out 2 files of unknown format") && told.contains("b.log, part-0"), "{told}");
    assert_eq!(names(&to), ["a.vortex"]);
    ok(&["convert", "--from", "csv", &from, &path(&folder, "all/")]);
    assert_eq!(names(path(&folder, "all/")), ["a.vortex", "b.log.vortex", "part-0.vortex"]);
}

#[test]
fn checksums_of_the_input_are_verified() {
    let folder = TempDir::new().unwrap();
    let (file, out) = (path(&folder, "a.vortex"), path(&folder, "out.vortex"));
    ok(&["convert", "--checksums", &golden("0.91.0/tpch_orders.vortex"), &file]);
    ok(&["convert", &file, &out]);
    let mut bytes = fs::read(&file).unwrap();
    bytes[5000] ^= 1;
    fs::write(&file, bytes).unwrap();
    for sorted in [&[][..], &["--sort-by", "o_orderkey"]] {
        let line = fails(&[&["convert"], sorted, &[&file, &out]].concat(), 1);
        assert!(line.contains("checksum") && line.contains("a.vortex"), "{line}");
    }
}

/// A file compressed with bzip2, twice the same rows, in two streams.
fn of_two_streams(folder: &TempDir) -> String {
    let file = path(folder, "a.csv.bz2");
    let options = "STORED AS CSV OPTIONS ('format.compression' 'bzip2', 'format.has_header' 'false')";
    ok(&["sql", "-q", "-c", &format!("COPY (SELECT 1 AS a UNION ALL SELECT 2) TO '{file}' {options}")]);
    let stream = fs::read(&file).unwrap();
    fs::write(&file, [stream.as_slice(), stream.as_slice()].concat()).unwrap();
    file
}

#[test]
fn all_streams_of_a_compressed_file_are_read_wherever_it_is() {
    let folder = TempDir::new().unwrap();
    let file = of_two_streams(&folder);
    let url = format!("http://127.0.0.1:{}/a.csv.bz2", serve(file.clone()));
    for place in [&file, &url] {
        let rows = ok(&["convert", "--no-header", "--to", "csv", place, "-"]);
        assert_eq!(rows.lines().count(), 5, "{place}: {rows}");
    }
}

#[test]
fn files_of_several_stores_are_read_or_refused() {
    let folder = TempDir::new().unwrap();
    let (lines, array, out) = (path(&folder, "a.json"), path(&folder, "b.json"), path(&folder, "out.csv"));
    fs::write(&lines, "{\"a\":1}\n").unwrap();
    fs::write(&array, "[{\"a\":2}]").unwrap();
    let url = format!("http://127.0.0.1:{}/a.json", serve(lines.clone()));
    let line = fails(&["convert", &lines, &url, &out], 2);
    assert!(line.contains("is in another store than"), "{line}");
    // A copy is made of the array, and of what is merged with it.
    ok(&["convert", &array, &url, &out]);
    assert_eq!(fs::read_to_string(&out).unwrap(), "a\n2\n1\n");
}

#[test]
fn folders_of_values_hold_no_other_files_with_the_extension() {
    let folder = TempDir::new().unwrap();
    fs::create_dir_all(folder.path().join("in/d=1")).unwrap();
    let (place, out) = (path(&folder, "in/"), path(&folder, "out.csv"));
    fs::rename(of_two_streams(&folder), folder.path().join("in/d=1/a.csv.bz2")).unwrap();
    fs::write(folder.path().join("in/d=1/b.txt.bz2"), "other").unwrap();
    let output = run(&["convert", "--no-header", &place, &out]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(&out).unwrap().lines().count(), 5);
    fs::write(folder.path().join("in/d=1/c.CSV"), "3\n").unwrap();
    fs::remove_file(folder.path().join("in/d=1/a.csv.bz2")).unwrap();
    fs::write(folder.path().join("in/d=1/d.csv"), "4\n").unwrap();
    let line = fails(&["convert", "--no-header", &place, &out], 2);
    assert!(line.contains("b.txt.bz2: is of another format than other files"), "{line}");
}

#[test]
fn outputs_have_names_that_they_can_be_read_by() {
    let folder = TempDir::new().unwrap();
    let source = golden("0.91.0/tpch_orders.vortex");
    for name in ["a.csv.gz", "a.tsv"] {
        let line = fails(&["convert", "--to", "csv", &source, &path(&folder, name)], 2);
        assert!(line.contains("give it another name"), "{line}");
    }
    assert!(names(&folder).is_empty());
}
