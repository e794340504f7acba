//! Places of files in SQL: paths, URLs and globs.

use crate::*;

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
fn errors_name_the_file() {
    for (name, sql) in [
        ("nosuch.vortex", "SELECT * FROM '{}'"),
        ("corrupt/0.45.0_root_i64.cut_half.vortex", "SELECT * FROM '{}'"),
        ("corrupt/0.45.0_root_i64.cut_half.vortex", "CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION '{}'"),
    ] {
        let line = fails(&["sql", "-c", &sql.replace("{}", &golden(name))], 1);
        let name = Path::new(name).file_name().unwrap().to_str().unwrap();
        assert!(line.matches(name).count() == 1 && !line.contains("External error"), "{line}");
    }
}

#[test]
fn a_glob_in_a_url_is_held_against_whole_paths() {
    let folder = tempfile::TempDir::new().unwrap();
    let names = ["a/x1.vortex", "a/x2.vortex", "a/b/x3.vortex", "a/c/x3.vortex"];
    for name in names {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::copy(golden("0.91.0/tpch_orders.vortex"), file).unwrap();
    }
    for (glob, expected) in [
        ("a/*.vortex", vec![0, 1]),
        ("a/x*", vec![0, 1]),
        ("a/*/x3.vortex", vec![2, 3]),
        ("a/*/*", vec![2, 3]),
        ("a/**/*.vortex", vec![0, 1, 2, 3]),
    ] {
        let url = format!("file://{}/{glob}", folder.path().display());
        let out = ok(&["verify", &url]);
        let found: Vec<usize> = (0..names.len()).filter(|at| out.contains(names[*at])).collect();
        assert_eq!(found, expected, "{glob}: {out}");
    }
}

#[cfg(unix)]
#[test]
fn the_environment_may_have_values_that_are_no_unicode() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    let url = format!("http://127.0.0.1:{}/orders.vortex", serve(golden("0.91.0/tpch_orders.vortex")));
    let output = vortex(&["inspect", &url]).env("PLACE", OsStr::from_bytes(b"caf\xe9")).output().unwrap();
    assert!(stdout(&output).contains("1,500 rows"), "{}", stderr(&output));
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
    let glob = url.replace("orders", "*");
    let (create, select) = (create.replace("orders", "*"), format!("SELECT * FROM '{glob}'"));
    let commands: [&[&str]; 4] = [
        &["sql", "-c", &create],
        &["sql", "-c", &select],
        &["verify", &glob],
        &["convert", &glob, "x.arrow"],
    ];
    for command in commands {
        let line = fails(command, 1);
        assert!(line.contains("a web server cannot list files"), "{line}");
    }
}

#[test]
fn files_that_a_web_server_does_not_have_are_told_at_once() {
    let port = serve_nothing();
    for name in ["no.vortex", "no.csv"] {
        let url = format!("http://127.0.0.1:{port}/{name}");
        let create = format!("CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION '{url}'");
        for statement in
            [&format!("SELECT * FROM '{url}'"), &format!("SELECT * FROM vortex_metadata('{url}')"), &create]
        {
            let line = fails(&["sql", statement], 1);
            assert!(line.contains(&format!("no file at {url}")) && !line.contains("PROPFIND"), "{line}");
        }
        let line = fails(&["convert", &url, "x.arrow"], 1);
        assert!(line.contains("no such file") && line.contains(&url), "{line}");
        assert_eq!(fails(&["verify", &url], 1), format!("vortex: no file at {url}\n"));
    }
}

/// The keys of nobody, for a server that gives its file to everybody.
const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "nobody"), ("AWS_SECRET_ACCESS_KEY", "secret")];

/// The output of a run that must succeed with S3 and these variables, and print nothing on stderr.
fn with_s3(settings: &[(&str, &str)], arguments: &[&str]) -> String {
    let mut command = vortex(arguments);
    command.env("AWS_EC2_METADATA_DISABLED", "true").env("AWS_REGION", "nowhere-1");
    let output = command.envs(settings.iter().copied()).output().expect("the binary starts");
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{arguments:?}");
    stdout(&output)
}

#[test]
fn the_first_statement_may_name_a_store_anywhere() {
    let endpoint = format!("http://127.0.0.1:{}", serve(golden("0.91.0/tpch_orders.vortex")));
    let settings = [&KEYS[..], &[("AWS_ENDPOINT", &endpoint), ("AWS_ALLOW_HTTP", "true")]].concat();
    let place = "'s3://bucket/orders.vortex'";
    for (sql, expected) in [
        (format!("SELECT count(*) AS n FROM vortex_metadata({place})"), "n\n9\n"),
        (format!("SELECT count(*) > 0 AS n FROM vortex_segments({place}) WHERE \"offset\" > 0"), "n\ntrue\n"),
        (format!("SELECT count(*) > 0 AS n FROM vortex_layouts({place})"), "n\ntrue\n"),
        (format!("SELECT count(*) > 0 AS n FROM vortex_zones({place})"), "n\ntrue\n"),
        (format!("SELECT (SELECT count(*) FROM {place}) AS n"), "n\n1500\n"),
    ] {
        assert_eq!(with_s3(&settings, &["sql", "--format", "csv", &sql]), expected, "{sql}");
    }
}

#[test]
fn why_a_store_cannot_be_opened_is_told() {
    for command in [&["sql", "SELECT * FROM 'az://c/x.vortex'"][..], &["verify", "az://c/x.vortex"]] {
        let line = fails(command, 1);
        assert!(line.contains("Account must be specified"), "{line}");
    }
}

#[test]
fn what_is_wrong_with_a_place_is_told() {
    let folder = TempDir::new().unwrap();
    let place = |name: &str| path(&folder, name);
    fs::write(place("picture.png"), "x").unwrap();
    fs::create_dir(place("empty")).unwrap();
    let select = |place: &str| fails(&["sql", &format!("SELECT * FROM '{place}'")], 1);
    let line = select(&place("picture.png"));
    assert!(line.contains("png") && !line.contains("datafusion.public"), "{line}");
    for name in ["none.vortex", "none.csv", "none/", "empty", "empty/", "*.vortex", "empty/*.vortex"] {
        for place in [place(name), format!("file://{}", place(name))] {
            let line = select(&place);
            assert!(line.contains(&format!("no file at {place}")) && !line.contains("nternal"), "{line}");
        }
    }
    let line = fails(&["sql", "SELECT * FROM nosuch"], 1);
    assert!(line.contains("table 'datafusion.public.nosuch' not found"), "{line}");
}

#[test]
fn a_file_without_bytes_is_no_table() {
    let folder = TempDir::new().unwrap();
    let file = path(&folder, "zero.vortex");
    fs::write(&file, "").unwrap();
    for statement in [
        format!("SELECT * FROM '{file}'"),
        format!("CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION '{file}'"),
        format!("SELECT * FROM vortex_metadata('{file}')"),
    ] {
        let line = fails(&["sql", &statement], 1);
        let told = "corrupt file: 0 bytes are too few for a Vortex file";
        assert!(line.contains(told) && line.contains("zero.vortex"), "{line}");
    }
}

#[test]
fn names_in_the_current_folder_are_told_from_names_of_tables() {
    let folder = TempDir::new().unwrap();
    let place = folder.path().to_str().unwrap();
    fs::create_dir(folder.path().join("d")).unwrap();
    fs::write(folder.path().join("e.csv"), "a\n1\n").unwrap();
    let sql = |sql: &str| run(&["sql", "--format", "csv", "-p", place, "-c", sql]);
    for (name, told) in [
        ("nope.vortex", "no file at nope.vortex"),
        ("nope.csv", "no file at nope.csv"),
        ("x*.vortex", "no file at x*.vortex"),
        ("d", "table 'd' not found; for the folder, write 'd/'"),
        ("e", "table 'e' not found; for the file, write 'e.csv'"),
        ("nope", "table 'datafusion.public.nope' not found"),
        ("nope.unheardof", "no table and no file 'nope.unheardof'"),
    ] {
        let line = complaint(&sql(&format!("SELECT * FROM '{name}'")), 1);
        assert!(line.ends_with(&format!("{told}\n")), "{line}");
    }
    let line = complaint(&sql("SELECT * FROM nope.vortex"), 1);
    assert!(line.ends_with("table nope.vortex not found; for the file, write 'nope.vortex'\n"), "{line}");
    // Tables may have such names.
    let (create, select) = ("CREATE TABLE \"a.vortex\" AS SELECT 1 AS a", "SELECT * FROM \"a.vortex\"");
    assert_eq!(ok(&["sql", "--format", "csv", "-p", place, "-c", create, "-c", select]), "a\n1\n");
}

#[test]
fn names_that_look_like_globs_are_those_of_files() {
    let folder = TempDir::new().unwrap();
    copy("SELECT 2 AS a", &path(&folder, "sales 2.vortex"));
    for name in ["sales [2024].vortex", "what?.vortex", "star*.csv"] {
        let file = path(&folder, name);
        for value in ["1", "3"] {
            copy(&format!("SELECT {value} AS a"), &file);
            assert_eq!(csv(&format!("SELECT * FROM '{file}'")), format!("a\n{value}\n"));
        }
    }
    assert_eq!(names(&folder), ["sales 2.vortex", "sales [2024].vortex", "star*.csv", "what?.vortex"]);
}

#[test]
fn a_folder_has_the_format_of_its_visible_files() {
    let folder = TempDir::new().unwrap();
    let place = |name: &str| path(&folder, name);
    copy("SELECT 1 AS a", &place("d/l.vortex"));
    for other in [".l.vortex.tmp-3355-0", "README.md", "Makefile", "_metadata.json"] {
        fs::write(folder.path().join("d").join(other), "x").unwrap();
    }
    assert_eq!(csv(&format!("SELECT * FROM '{}'", place("d/"))), "a\n1\n");
    fs::write(folder.path().join("d/k.csv"), "a\n1\n").unwrap();
    for mixed in ["d/", "d/*", "d"] {
        let line = fails(&["sql", &format!("SELECT * FROM '{}'", place(mixed))], 1);
        let told = format!("holds .csv and .vortex files; use '{}'", place("d/*.csv"));
        assert!(line.contains(&told), "{line}");
    }
    assert_eq!(csv(&format!("SELECT * FROM '{}'", place("d/*.vortex"))), "a\n1\n");
    fs::write(folder.path().join(".hidden.csv"), "a\n7\n").unwrap();
    assert_eq!(csv(&format!("SELECT * FROM '{}'", place(".hidden.csv"))), "a\n7\n");
}

#[test]
fn a_folder_of_a_web_server_is_told_like_a_glob() {
    let url = format!("http://127.0.0.1:{}/d/", serve_nothing());
    let select = format!("SELECT * FROM '{url}'");
    for command in [&["sql", &select][..], &["verify", &url], &["convert", &url, "x.arrow"]] {
        let line = fails(command, 1);
        let told = "a web server cannot list files; name each file instead of a folder";
        assert!(line.contains(told) && line.contains(&url), "{line}");
    }
}

#[test]
fn why_a_server_cannot_be_reached_is_told() {
    for name in ["a.vortex", "a.csv"] {
        let url = format!("http://127.0.0.1:9/{name}");
        for command in [&["sql", &format!("SELECT * FROM '{url}'")][..], &["convert", &url, "x.arrow"]] {
            let line = fails(command, 1);
            assert!(line.contains("refused") && line.contains(&url), "{line}");
        }
    }
}

#[test]
fn a_server_without_ranges_is_told() {
    let port = serve_with(golden("0.91.0/tpch_orders.vortex"), false);
    let url = format!("http://127.0.0.1:{port}/orders.vortex");
    for command in [&["sql", &format!("SELECT * FROM '{url}'")][..], &["inspect", &url]] {
        let line = fails(command, 1);
        assert!(line.contains("cannot send parts of a file; download the file first"), "{line}");
    }
}

#[test]
fn an_endpoint_may_be_http_and_need_no_keys() {
    let endpoint = format!("http://127.0.0.1:{}", serve(golden("0.91.0/tpch_orders.vortex")));
    let select = ["sql", "--format", "csv", "SELECT count(*) AS n FROM 's3://bucket/orders.vortex'"];
    for settings in [&KEYS[..], &[("AWS_SKIP_SIGNATURE", "true")]] {
        let settings = [settings, &[("AWS_ENDPOINT", &endpoint)]].concat();
        assert_eq!(with_s3(&settings, &select), "n\n1500\n");
    }
    let create = format!(
        "CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION 's3://bucket/orders.vortex'
         OPTIONS ('aws.endpoint' '{endpoint}', 'aws.skip_signature' 'true')"
    );
    let count = ["sql", "--format", "csv", "-c", &create, "-c", "SELECT count(*) AS n FROM t"];
    assert_eq!(with_s3(&[], &count), "n\n1500\n");
}

#[test]
fn web_servers_are_only_read() {
    let source = golden("0.91.0/tpch_orders.vortex");
    let line = fails(&["convert", &source, "https://example.com/a.vortex"], 2);
    assert!(line.contains("https://example.com/a.vortex: web servers can only be read"), "{line}");
}

#[test]
fn output_may_be_the_url_of_a_local_file() {
    let folder = TempDir::new().unwrap();
    let (source, out) = (golden("0.91.0/tpch_orders.vortex"), path(&folder, "a b.csv"));
    ok(&["convert", "--limit", "3", &source, &format!("file://{}", out.replace(' ', "%20"))]);
    assert_eq!(fs::read_to_string(&out).unwrap().lines().count(), 4);
}

#[test]
fn hidden_files_are_read_only_if_they_are_named() {
    let folder = TempDir::new().unwrap();
    let source = golden("0.91.0/tpch_orders.vortex");
    for sub in ["", "sub/", ".sub/", "_sub/"] {
        fs::create_dir_all(folder.path().join(sub)).unwrap();
        fs::copy(&source, folder.path().join(sub).join("a.vortex")).unwrap();
        fs::write(folder.path().join(sub).join("._a.vortex"), "junk").unwrap();
        fs::write(folder.path().join(sub).join("_b.vortex"), "junk").unwrap();
    }
    let (all, sub, out) = (path(&folder, ""), path(&folder, ".sub/"), path(&folder, "out.csv"));
    let count = |place: &str| csv(&format!("SELECT count(*) AS n FROM '{place}'"));
    let rows = count(&source);
    assert_eq!([count(&format!("{all}*.vortex")), count(&sub)], [rows.as_str(); 2]);
    let files = ok(&["verify", &all]);
    assert!(
        files.contains("/sub/") && !["/._", "/_b", "/.sub", "/_sub"].iter().any(|it| files.contains(it)),
        "{files}"
    );
    assert!(ok(&["verify", &sub]).contains(".sub/a.vortex"));
    assert!(ok(&["verify", &path(&folder, "_sub/")]).contains("_sub/a.vortex"));
    // A folder may have the name of a file.
    fs::rename(folder.path().join("sub"), folder.path().join("sub.vortex")).unwrap();
    assert_eq!(count(&all), rows);
    fs::remove_dir_all(folder.path().join("sub.vortex")).unwrap();
    ok(&["convert", &all, &out]);
    assert_eq!(count(&out), rows);
    let line = fails(&["sql", "-c", &format!("SELECT * FROM '{all}._a.vortex'")], 1);
    assert!(line.contains("._a.vortex"), "{line}");
}

#[test]
fn folders_of_values_are_not_hidden() {
    let folder = TempDir::new().unwrap();
    let (days, out) = (path(&folder, "days/"), path(&folder, "out.csv"));
    let rows = "SELECT value AS a, value % 3 AS _day FROM generate_series(1, 9)";
    ok(&["sql", "-q", "-c", &format!("COPY ({rows}) TO '{days}' STORED AS VORTEX PARTITIONED BY (_day)")]);
    assert_eq!(csv(&format!("SELECT count(*) AS n, min(_day) AS d FROM '{days}'")), "n,d\n9,0\n");
    ok(&["convert", &days, &out]);
    assert_eq!(csv(&format!("SELECT count(*) AS n FROM '{out}'")), "n\n9\n");
    assert_eq!(ok(&["verify", &days]).matches(": fine; ").count(), 3);
}

#[cfg(target_os = "linux")]
#[test]
fn a_name_that_is_not_unicode_is_told_by_queries_of_its_folder() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    let folder = TempDir::new().unwrap();
    fs::copy(golden("0.91.0/tpch_orders.vortex"), folder.path().join("a.vortex")).unwrap();
    fs::write(folder.path().join(OsStr::from_bytes(b"x\xff.txt")), "x").unwrap();
    for place in ["*.vortex", "./"] {
        let output =
            vortex(&["sql", "-c", &format!("SELECT * FROM '{place}'")]).current_dir(&folder).output();
        let line = complaint(&output.unwrap(), 1);
        assert!(line.contains("x%FF.txt") && line.contains("non-unicode"), "{line}");
    }
}

#[test]
fn an_endpoint_that_is_no_url_is_told() {
    for endpoint in ["", "localhost:9000", "http://", "nonsense"] {
        for arguments in [["verify", "s3://b/x.vortex"], ["sql", "SELECT * FROM 's3://b/x.vortex'"]] {
            let output =
                vortex(&arguments).env("AWS_REGION", "us-east-1").env("AWS_ENDPOINT", endpoint).output();
            let line = complaint(&output.unwrap(), 1);
            assert!(line.contains("AWS_ENDPOINT") && line.contains("http://localhost:9000"), "{line}");
        }
    }
}

#[test]
fn errors_name_a_relative_place_once() {
    let folder = TempDir::new().unwrap();
    fs::copy(golden("0.91.0/tpch_orders.vortex"), folder.path().join("t.vortex")).unwrap();
    let arguments = ["convert", "--columns", "nosuch", "t.vortex", "out.csv"];
    let line = complaint(&vortex(&arguments).current_dir(&folder).output().unwrap(), 1);
    assert_eq!(line.matches("t.vortex").count(), 1, "{line}");
}

#[test]
fn the_damaged_file_of_a_folder_is_named() {
    let folder = TempDir::new().unwrap();
    for extension in ["parquet", "arrow"] {
        let whole = path(&folder, &format!("{extension}/a.{extension}"));
        fs::create_dir(folder.path().join(extension)).unwrap();
        ok(&["convert", &golden("0.91.0/tpch_orders.vortex"), &whole]);
        let bytes = fs::read(&whole).unwrap();
        fs::write(whole.replace("/a.", "/b."), &bytes[..bytes.len() / 2]).unwrap();
        let select = format!("SELECT count(*) FROM '{}/'", path(&folder, extension));
        let line = complaint(&run(&["sql", &select]), 1);
        assert!(line.contains(&format!("/b.{extension}: ")), "{line}");
    }
}

#[test]
fn the_folder_of_the_user_is_short_in_statements() {
    let home = TempDir::new().unwrap();
    for sql in [
        "COPY (SELECT 1 AS a) TO '~/x.vortex'",
        "CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION '~/x.vortex'; SELECT a FROM t",
        "SELECT a FROM '~/x.vortex'",
    ] {
        let output = vortex(&["sql", "-q", sql]).env("HOME", home.path()).output().unwrap();
        assert!(output.status.success(), "{sql}: {}", stderr(&output));
    }
    assert_eq!(names(&home), ["x.vortex"]);
}

#[test]
#[cfg(unix)]
fn folders_without_interest_do_not_matter() {
    let folder = TempDir::new().unwrap();
    copy("SELECT 7 AS a", &path(&folder, "a.parquet"));
    for looping in [".hidden", "other"] {
        let place = folder.path().join(looping);
        fs::create_dir(&place).unwrap();
        std::os::unix::fs::symlink("..", place.join("back")).unwrap();
        std::os::unix::fs::symlink(".", place.join("self")).unwrap();
    }
    let place = folder.path().display();
    for place in [format!("{place}/"), format!("{place}/*.parquet")] {
        assert_eq!(csv(&format!("SELECT * FROM '{place}'")), "a\n7\n");
    }
    let copy = path(&folder, "copy.vortex");
    ok(&["convert", &format!("{place}/*.parquet"), &copy]);
    assert_eq!(csv(&format!("SELECT * FROM '{copy}'")), "a\n7\n");
}

#[test]
fn patterns_that_match_folders_read_the_files_in_them() {
    let folder = TempDir::new().unwrap();
    for (at, name) in ["part-0.vortex", "part-1/a.vortex", "part-1/sub/b.vortex"].iter().enumerate() {
        fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
        copy(&format!("SELECT {at} AS v"), &path(&folder, name));
    }
    for (pattern, expected) in
        [("part*", "0,1,2"), ("part-1/*", "1,2"), ("*.vortex", "0"), ("part-1/s*", "2")]
    {
        let sql = "SELECT string_agg(v, ',' ORDER BY v) AS v FROM";
        let file = path(&folder, pattern);
        assert_eq!(csv(&format!("{sql} '{file}'")).replace('"', ""), format!("v\n{expected}\n"), "{pattern}");
        let create = format!("CREATE EXTERNAL TABLE t STORED AS VORTEX LOCATION '{file}'");
        let rows = ok(&["sql", "-q", "--format", "csv", "-c", &create, "-c", &format!("{sql} t")]);
        assert_eq!(rows.replace('"', ""), format!("v\n{expected}\n"), "{pattern}");
    }
}

#[test]
fn files_of_another_format_than_their_name_says_are_told() {
    let folder = TempDir::new().unwrap();
    for name in ["a.parquet", "a.arrow"] {
        let file = path(&folder, name);
        let (sql, out) = (format!("SELECT * FROM '{file}'"), path(&folder, "b.vortex"));
        for content in [&fs::read(golden("0.91.0/tpch_orders.vortex")).unwrap()[..], b"some text"] {
            fs::write(&file, content).unwrap();
            for command in [&["sql", &sql][..], &["convert", &file, &out]] {
                let line = fails(command, 1);
                let is_told = line.contains("--from") && !line.contains("bug");
                assert!(is_told && line.matches(name).count() == 1, "{line}");
            }
        }
        fs::write(&file, "").unwrap();
        let line = fails(&["convert", &file, &out], 1);
        assert!(line.contains("--from") || line.contains("is empty"), "{line}");
    }
}

#[test]
fn queries_may_begin_with_from() {
    let file = golden("0.91.0/tpch_orders.vortex");
    let count = csv(&format!("SELECT count(*) AS n FROM (FROM '{file}' WHERE o_orderkey < 7 LIMIT 3)"));
    assert_eq!(count, "n\n3\n");
    let rows = csv(&format!("FROM '{file}' WHERE o_orderkey = 7"));
    assert_eq!(rows, csv(&format!("SELECT * FROM '{file}' WHERE o_orderkey = 7")));
    let both = csv(&format!("WITH o AS (FROM '{file}' WHERE o_orderkey = 7) FROM o UNION ALL FROM o"));
    assert_eq!(both.lines().count(), 3, "{both}");
    let columns = csv(&format!("DESCRIBE FROM '{file}'"));
    assert_eq!(columns, csv(&format!("DESCRIBE SELECT * FROM '{file}'")));
    let piped = csv(&format!("FROM '{file}' |> WHERE o_orderkey = 7 |> SELECT o_orderkey"));
    assert_eq!(piped, "o_orderkey\n7\n");
}
