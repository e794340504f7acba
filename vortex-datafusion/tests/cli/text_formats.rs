//! CSV and JSON in all commands: rows, types, names.

use crate::*;

/// The names and types of the columns of a file, as SQL and as `convert` read it.
fn types(file: &str) -> [Vec<String>; 2] {
    let folder = TempDir::new().unwrap();
    let copy = path(&folder, "copy.vortex");
    ok(&["convert", file, &copy]);
    [file, &copy].map(|file| {
        let columns = csv(&format!("DESCRIBE '{file}'"));
        let column = |line: &str| line.rsplit_once(',').unwrap().0.replace("Utf8View", "Utf8");
        columns.lines().skip(1).map(column).collect()
    })
}

#[test]
fn line_breaks_within_quotes_do_not_end_rows() {
    let folder = TempDir::new().unwrap();
    let file = path(&folder, "a.csv");
    let rows =
        |range: std::ops::Range<u64>| range.map(|n| format!("\"a\nb, \"\"c\"\"\",{n}\n")).collect::<String>();
    fs::write(&file, format!("t,n\n{}", rows(0..200_000))).unwrap();
    assert_eq!(types(&file), [["t,Utf8", "n,Int64"]; 2]);
    let sql = "SELECT count(*) AS rows, sum(n) AS sum, max(t) AS text FROM";
    let expected = "rows,sum,text\n200000,19999900000,\"a\nb, \"\"c\"\"\"\n";
    assert_eq!(csv(&format!("{sql} '{file}'")), expected);
    let create = format!("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{file}'");
    let partitions = "SET datafusion.execution.target_partitions = 16";
    let select = format!("{sql} t");
    let out = ok(&["sql", "--format", "csv", "-c", partitions, "-c", &create, "-c", &select]);
    assert_eq!(out, expected);
}

#[test]
fn types_are_those_of_the_first_rows_of_compressed_files_too() {
    let folder = TempDir::new().unwrap();
    let file = path(&folder, "a.csv.gz");
    let gzip = "STORED AS CSV OPTIONS ('format.compression' 'gzip')";
    ok(&["sql", "-q", "-c", &format!("COPY (SELECT 1 AS a, 'x' AS b) TO '{file}' {gzip}")]);
    assert_eq!(csv(&format!("SELECT a + 1 AS a, b FROM '{file}'")), "a,b\n2,x\n");
}

#[test]
fn large_integers_of_json_keep_their_digits() {
    let folder = TempDir::new().unwrap();
    let file = path(&folder, "a.json");
    fs::write(&file, "{\"id\":1,\"f\":1.5}\n{\"id\":9223372036854775809,\"f\":9223372036854775809}\n")
        .unwrap();
    let mut expected = ["id,UInt64".to_owned(), "f,Float64".to_owned()];
    let [mut sql, convert] = types(&file);
    assert_eq!(convert, expected);
    sql.sort();
    expected.sort();
    assert_eq!(sql, expected);
    assert_eq!(csv(&format!("SELECT id FROM '{file}'")), "id\n1\n9223372036854775809\n");
    let small = path(&folder, "b.json");
    fs::write(&small, "{\"id\":2,\"f\":3}\n").unwrap();
    let both = ok(&["convert", "--to", "csv", "--columns", "id", &file, &small, "-"]);
    assert_eq!(both, "id\n1\n9223372036854775809\n2\n");
    fs::write(&file, "{\"a\":{\"id\":[9223372036854775809]}}\n").unwrap();
    for command in [&["sql", &format!("SELECT * FROM '{file}'")][..], &["convert", &file, "x.csv"]] {
        let line = fails(command, 1);
        let told =
            line.contains("column `a` holds 9223372036854775809") && line.contains("CREATE EXTERNAL TABLE");
        assert!(told && line.matches("a.json").count() == 1, "{line}");
    }
}

#[test]
fn columns_of_the_same_name_are_told_from_damage() {
    let folder = TempDir::new().unwrap();
    let file = path(&folder, "twice.csv");
    for (header, name) in [("a,b,a", "a"), ("a,,", "")] {
        fs::write(&file, format!("{header}\n1,2,3\n")).unwrap();
        for command in [&["sql", &format!("SELECT * FROM '{file}'")][..], &["convert", &file, "x.vortex"]] {
            let line = fails(command, 1);
            assert!(line.contains(&format!("{file}: ")) && line.matches("twice.csv").count() == 1, "{line}");
            let told = line.contains(&format!("duplicate column `{name}`"))
                && line.contains("CREATE EXTERNAL TABLE");
            assert!(told, "{line}");
        }
    }
    let create = format!("CREATE EXTERNAL TABLE t (x INT, y INT, z INT) STORED AS CSV LOCATION '{file}'");
    assert_eq!(ok(&["sql", "--format", "csv", "-c", &create, "-c", "FROM t SELECT z"]), "z\n3\n");
}

#[test]
fn all_commands_know_the_same_extensions() {
    let folder = TempDir::new().unwrap();
    let source = golden("0.91.0/tpch_orders.vortex");
    for extension in ["csv", "json", "jsonl", "ndjson", "parquet", "pq", "arrow", "ipc", "feather", "vortex"]
    {
        let (converted, copied) =
            (path(&folder, &format!("1.{extension}")), path(&folder, &format!("2.{extension}")));
        ok(&["convert", &source, &converted]);
        copy(&format!("SELECT * FROM '{converted}'"), &copied);
        assert_eq!(
            ok(&["convert", "--to", "csv", "--columns", "o_orderkey", "--limit", "1", &copied, "-"]),
            "o_orderkey\n1\n"
        );
        assert_eq!(csv(&format!("SELECT count(*) AS n FROM '{copied}'")), "n\n1500\n", "{extension}");
    }
    let other = path(&folder, "a.log");
    fs::write(&other, "a\n1\n").unwrap();
    let line = fails(&["sql", &format!("SELECT * FROM '{other}'")], 1);
    assert!(
        line.contains("a.log") && line.contains("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION"),
        "{line}"
    );
}

#[test]
fn advice_on_types_follows_values_that_do_not_fit() {
    let folder = TempDir::new().unwrap();
    let file = path(&folder, "a.csv");
    fs::write(&file, "a\n".to_owned() + &"1\n".repeat(100_001) + "x\n").unwrap();
    let line = fails(&["convert", &file, "x.vortex"], 1);
    assert!(line.contains("'x' as type 'Int64'") && line.contains("CREATE EXTERNAL TABLE"), "{line}");
    let file = path(&folder, "a.json");
    fs::write(&file, "{\"a\":1}\n{\"a\":\"x\"}\n").unwrap();
    let line = fails(&["convert", &file, "x.vortex"], 1);
    assert!(line.contains("field 'a'") && line.contains("one type"), "{line}");
}

#[test]
fn columns_that_are_empty_in_the_first_lines_are_text() {
    let folder = TempDir::new().unwrap();
    let (file, copy) = (path(&folder, "a.csv"), path(&folder, "copy.vortex"));
    fs::write(&file, "id,t\n".to_owned() + &"1,\n".repeat(100_001) + "2,late\n").unwrap();
    assert_eq!(types(&file), [["id,Int64", "t,Utf8"]; 2]);
    ok(&["convert", &file, &copy]);
    for file in [file, copy] {
        assert_eq!(
            csv(&format!("SELECT count(t) AS n, max(t) AS t FROM '{file}'")),
            "n,t\n1,late\n",
            "{file}"
        );
    }
    // Another file may tell the type.
    let (empty, full, both) =
        (path(&folder, "empty.csv"), path(&folder, "full.csv"), path(&folder, "both.vortex"));
    fs::write(&empty, "id,t\n1,\n").unwrap();
    fs::write(&full, "id,t\n2,7\n").unwrap();
    ok(&["convert", &empty, &full, &both]);
    assert_eq!(csv(&format!("SELECT sum(t) AS t FROM '{both}'")), "t\n7\n");
}

#[test]
fn times_that_their_inferred_type_would_cut_off_are_errors() {
    let folder = TempDir::new().unwrap();
    let (file, copy) = (path(&folder, "a.csv"), path(&folder, "copy.vortex"));
    for (first, late) in [
        ("2020-01-01", "2020-01-02T10:30:00"),
        ("2020-01-01T10:30:00", "2020-01-02T10:30:00.0000001"),
        ("2020-01-01", "2020-02-30"),
    ] {
        fs::write(
            &file,
            "id,t\n".to_owned() + &format!("1,{first}\n").repeat(100_001) + &format!("2,{late}\n"),
        )
        .unwrap();
        let line = fails(&["convert", &file, &copy], 1);
        let told = format!("column `t`: `{late}` does not fit");
        assert!(line.contains(&told) && line.contains("CREATE EXTERNAL TABLE"), "{line}");
    }
    fs::write(&file, "day,at\n2020-01-02,2020-01-02T10:30:00\n,\n2021-02-03,2021-02-03T10:30:00.25\n")
        .unwrap();
    assert_eq!(types(&file), [["day,Date32", "at,Timestamp(µs)"]; 2]);
    ok(&["convert", "--sort-by", "day desc", "--columns", "at, day", &file, &copy]);
    let expected = "at,day\n,\n2021-02-03T10:30:00.250,2021-02-03\n2020-01-02T10:30:00,2020-01-02\n";
    assert_eq!(csv(&format!("SELECT * FROM '{copy}'")), expected);
    // A later fraction is kept.
    let times = "2020-01-01T10:30:00\n".repeat(100_001) + "2020-01-02T10:30:00.25\n";
    fs::write(&file, "at\n".to_owned() + &times).unwrap();
    ok(&["convert", &file, &copy]);
    for file in [file, copy] {
        let last = csv(&format!("SELECT max(at) AS at FROM '{file}'"));
        assert_eq!(last, "at\n2020-01-02T10:30:00.250\n", "{file}");
    }
}

#[test]
fn lists_of_lists_or_objects_may_have_nulls_in_json() {
    let folder = TempDir::new().unwrap();
    let source = path(&folder, "a.json");
    let rows = "{\"a\":[[1],null],\"b\":[null,{\"c\":[null,[2]]}]}\n";
    fs::write(&source, rows).unwrap();
    assert_eq!(ok(&["convert", "--to", "json", &source, "-"]), rows);
    assert_eq!(csv(&format!("SELECT a[1][1] AS a, b[2]['c'][2][1] AS b FROM '{source}'")), "a,b\n1,2\n");
}

#[test]
fn declared_columns_are_at_the_places_that_the_header_says() {
    let folder = TempDir::new().unwrap();
    let file = path(&folder, "a.csv");
    fs::write(&file, "id,zip,city\n1,02134,Boston\n").unwrap();
    let select = |columns: &str, options: &str| {
        let create = format!("CREATE EXTERNAL TABLE c ({columns}) STORED AS CSV LOCATION '{file}' {options}");
        run(&["sql", "--quiet", "--format", "csv", "-c", &create, "-c", "SELECT * FROM c"])
    };
    for (columns, told) in [
        (
            "zip VARCHAR, id VARCHAR, city VARCHAR",
            "column 1 of the table is `zip`, which is column 2 of the file",
        ),
        ("zip VARCHAR", "the table has 1 of 3 columns"),
    ] {
        let line = complaint(&select(columns, ""), 1);
        let told = line.contains(told) && line.contains("in the order of the file: id, zip, city");
        assert!(told && line.matches("a.csv").count() == 1, "{line}");
    }
    for (columns, header) in [
        ("\"ID\" INT, zip VARCHAR, city VARCHAR", "ID,zip,city"),
        ("number INT, code VARCHAR, town VARCHAR", "number,code,town"),
    ] {
        assert_eq!(stdout(&select(columns, "")), format!("{header}\n1,02134,Boston\n"));
    }
    let no_header = select("zip VARCHAR, id VARCHAR, city VARCHAR", "OPTIONS ('format.has_header' 'false')");
    assert_eq!(stdout(&no_header), "zip,id,city\nid,zip,city\n1,02134,Boston\n");
    let mixed = path(&folder, "b.csv");
    fs::write(&mixed, "zip,id,city\n02134,1,Boston\n").unwrap();
    let create = format!(
        "CREATE EXTERNAL TABLE c (id INT, zip VARCHAR, city VARCHAR) STORED AS CSV LOCATION '{}/'",
        folder.path().display()
    );
    let line = fails(&["sql", "-q", "-c", &create, "-c", "SELECT * FROM c"], 1);
    assert!(line.contains("b.csv: column 1 of the table is `id`, which is column 2 of the file"), "{line}");
}

#[test]
fn types_are_those_of_many_rows_in_sql_too() {
    let folder = TempDir::new().unwrap();
    let rows = |last: &str| format!("{}{last}\n", "1\n".repeat(50_000));
    let file = path(&folder, "a.csv");
    fs::write(&file, format!("a\n{}", rows("1.5"))).unwrap();
    assert_eq!(types(&file), [["a,Float64"]; 2]);
    let file = path(&folder, "a.json");
    fs::write(&file, rows("1\n").replace("1\n", "{\"a\":1}\n") + "{\"b\":2}\n").unwrap();
    assert_eq!(types(&file), [["a,Int64", "b,Int64"]; 2]);
}

#[test]
fn values_that_do_not_fit_are_told_with_what_to_do() {
    let folder = TempDir::new().unwrap();
    for (name, first, last) in [("a.csv", "a\n1\n", "x\n"), ("a.json", "{\"a\":1}\n", "{\"a\":\"x\"}\n")] {
        let file = path(&folder, name);
        fs::write(&file, format!("{first}{last}")).unwrap();
        let create = format!(
            "CREATE EXTERNAL TABLE t STORED AS {} LOCATION '{file}' OPTIONS ('format.schema_infer_max_rec' '1')",
            &name[2..]
        );
        let line = fails(&["sql", "-q", "-c", &create, "-c", "SELECT * FROM t"], 1);
        assert!(line.contains("declare types that fit: CREATE EXTERNAL TABLE"), "{line}");
    }
}

#[test]
fn text_is_converted_as_its_name_and_the_arguments_say() {
    let folder = TempDir::new().unwrap();
    let converted = |name: &str, text: &str, options: &[&str]| {
        let (file, out) = (path(&folder, name), path(&folder, "out.vortex"));
        if !text.is_empty() {
            fs::write(&file, text).unwrap();
        }
        ok(&[&["convert"], options, &[&file, &out]].concat());
        csv(&format!("FROM '{out}'"))
    };
    assert_eq!(converted("a.tsv", "a\tb\n1\tx,y\n", &[]), "a,b\n1,\"x,y\"\n");
    assert_eq!(converted("a.csv", "a;b\n1;x\n", &["--delimiter", ";"]), "a,b\n1,x\n");
    assert_eq!(
        converted("b.csv", "1|x\n2|y\n", &["--delimiter", "|", "--no-header"]),
        "column_1,column_2\n1,x\n2,y\n"
    );
    assert_eq!(converted("c.csv", "a;b\n1\n", &["--delimiter", ","]), "a;b\n1\n");
    for (extension, name) in [("gz", "gzip"), ("bz2", "bzip2"), ("xz", "xz"), ("zst", "zstd")] {
        let options = format!("OPTIONS ('format.compression' '{name}')");
        let file = path(&folder, &format!("a.csv.{extension}"));
        let rows = "SELECT value AS n, 'x' AS t FROM generate_series(1, 2000)";
        ok(&["sql", "-q", "-c", &format!("COPY ({rows}) TO '{file}' STORED AS CSV {options}")]);
        let sum = |rows: &str| {
            rows.lines()
                .skip(1)
                .map(|row| row.split(',').next().unwrap().parse::<u64>().unwrap())
                .sum::<u64>()
        };
        assert_eq!(sum(&converted(&format!("a.csv.{extension}"), "", &[])), 2_001_000, "{extension}");
        let file = path(&folder, &format!("a.json.{extension}"));
        let rows = "SELECT 1 AS z, 'x' AS a";
        ok(&["sql", "-q", "-c", &format!("COPY ({rows}) TO '{file}' STORED AS JSON {options}")]);
        assert_eq!(converted(&format!("a.json.{extension}"), "", &[]), "z,a\n1,x\n", "{extension}");
    }
    let parts = folder.path().join("parts");
    fs::create_dir(&parts).unwrap();
    for name in ["a.csv.gz", "a.json.gz", "a.tsv"] {
        let to = parts.join(name.replace("a.", &format!("{}.", name.split('.').nth(1).unwrap())));
        fs::copy(path(&folder, name), to).unwrap();
    }
    ok(&["convert", &format!("{}/", parts.display()), &path(&folder, "out/")]);
    assert_eq!(names(folder.path().join("out")), ["csv.vortex", "json.vortex", "tsv.vortex"]);
    let line = fails(&["convert", &path(&folder, "a.csv"), &path(&folder, "out.vortex")], 1);
    assert!(line.contains("its only column is called `a;b`") && line.contains("--delimiter ';'"), "{line}");
    let parquet = path(&folder, "a.parquet");
    copy("SELECT 1 AS a", &parquet);
    let line = fails(&["convert", "--no-header", &parquet, &path(&folder, "out.vortex")], 2);
    assert!(line.contains("apply to CSV files only"), "{line}");
}

#[test]
fn types_of_csv_columns_may_be_given() {
    let folder = TempDir::new().unwrap();
    let (file, out) = (path(&folder, "a.csv"), path(&folder, "out.vortex"));
    fs::write(&file, "zip,price,day,n\n01234,1.50,2020-01-02,7\n,-0.25,2020-01-03,8\n").unwrap();
    let types = ["zip=VARCHAR", "price=DECIMAL(10, 2)", "day=TIMESTAMP"];
    let types: Vec<&str> = types.iter().flat_map(|given| ["--type", given]).collect();
    ok(&[&["convert"], &types[..], &[&file, &out]].concat());
    let rows = csv(&format!("SELECT *, arrow_typeof(price) AS p, arrow_typeof(day) AS d FROM '{out}'"));
    let expected = "zip,price,day,n,p,d\n\
                    01234,1.50,2020-01-02T00:00:00,7,\"Decimal128(10, 2)\",Timestamp(ns)\n\
                    ,-0.25,2020-01-03T00:00:00,8,\"Decimal128(10, 2)\",Timestamp(ns)\n";
    assert_eq!(rows, expected);
    for (given, status, told) in [
        ("price=DECIMAL(10, 1)", 1, "column `price`: `-0.25` does not fit Decimal128(10, 1)"),
        ("price=DECIMAL(2, 2)", 1, "column `price`: `1.50` does not fit Decimal128(2, 2)"),
        ("zip=INT", 0, ""),
        ("n=DATE", 1, "column `n`: `7` does not fit Date32"),
        ("zap=INT", 2, "has no column `zap`; there are: zip, price, day, n"),
        ("zip=MONEY", 2, "`MONEY` is no type of SQL"),
    ] {
        let output = run(&["convert", "--type", given, &file, &out]);
        assert_eq!(output.status.code(), Some(status), "{given}");
        assert!(stderr(&output).contains(told), "{given}: {}", stderr(&output));
    }
}

#[test]
fn an_array_of_json_is_converted_like_lines() {
    let folder = TempDir::new().unwrap();
    let (file, out) = (path(&folder, "a.json"), path(&folder, "out.vortex"));
    fs::write(
        &file,
        "[\n  {\n    \"z\": 1,\n    \"a\": \"x,]\"\n  },\n  {\"z\": 9223372036854775809, \"b\": 2}\n]\n",
    )
    .unwrap();
    let expected = "z,a,b\n1,\"x,]\",\n9223372036854775809,,2\n";
    ok(&["convert", &file, &out]);
    assert_eq!(csv(&format!("FROM '{out}'")), expected);
    let output = with_input(
        &["convert", "--from", "json", "--to", "csv", "-", "-"],
        &fs::read_to_string(&file).unwrap(),
    );
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), (expected, ""));
    let lines = path(&folder, "b.json");
    fs::write(&lines, "{\"z\": 3}\n").unwrap();
    assert_eq!(
        ok(&["convert", "--to", "csv", "--columns", "z", &file, &lines, "-"]),
        "z\n1\n9223372036854775809\n3\n"
    );
    for (text, told) in
        [("[{\"a\":1},{\"a\":2}", "cut short"), ("[{\"a\":1},]", "a value is missing"), ("[1]", "object")]
    {
        fs::write(&file, text).unwrap();
        let line = fails(&["convert", &file, &out], 1);
        assert!(line.contains(told) && line.matches("a.json").count() == 1, "{line}");
    }
    let line = fails(&["convert", &file, &file], 2);
    assert!(line.contains("is the input and the output"), "{line}");
    fs::create_dir(folder.path().join("k=1")).unwrap();
    fs::write(folder.path().join("k=1/a.json"), "[{\"a\":1}]").unwrap();
    assert_eq!(ok(&["convert", "--to", "csv", &path(&folder, "k=1/a.json"), "-"]), "a\n1\n");
    fs::remove_file(&file).unwrap();
    fs::remove_file(&lines).unwrap();
    fs::remove_file(&out).unwrap();
    let line = fails(&["convert", &format!("{}/", folder.path().display()), &out], 1);
    assert!(line.contains("newline_delimited"), "{line}");
}
