//! `vortex verify`.

use crate::*;

#[test]
fn golden_files_are_fine() {
    let files = files_in(&golden("0.91.0"), |_| true);
    let mut arguments = vec!["verify"];
    arguments.extend(files.iter().map(String::as_str));
    let out = ok(&arguments);
    assert_eq!(out.lines().filter(|line| line.contains(": fine; ")).count(), files.len(), "{out}");
}

#[test]
fn files_in_folders_are_found() {
    let folder = TempDir::new().unwrap();
    let below = folder.path().join("a/b");
    fs::create_dir_all(&below).unwrap();
    fs::copy(golden("0.91.0/rows_1.vortex"), below.join("one.vortex")).unwrap();
    fs::write(folder.path().join("notes.txt"), "no table").unwrap();
    let place = folder.path().to_str().unwrap();
    let out = ok(&["verify", place]);
    assert!(out.starts_with(below.join("one.vortex").to_str().unwrap()), "{out}");
    assert_eq!(out.lines().count(), 1);
    assert!(ok(&["inspect", place]).contains("one.vortex: 1 row"));
    fs::remove_file(below.join("one.vortex")).unwrap();
    assert!(fails(&["verify", place], 1).contains("no file there ends in .vortex"));
}

#[cfg(unix)]
#[test]
fn linked_folders_are_followed_unless_they_lead_back() {
    use std::os::unix::fs::symlink;

    let (folder, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::copy(golden("0.91.0/rows_1.vortex"), other.path().join("one.vortex")).unwrap();
    fs::create_dir(folder.path().join("data")).unwrap();
    symlink(other.path(), folder.path().join("data/linked")).unwrap();
    symlink(folder.path(), folder.path().join("data/back")).unwrap();
    let out = ok(&["verify", folder.path().to_str().unwrap()]);
    assert!(out.contains("data/linked/one.vortex: fine") && out.lines().count() == 1, "{out}");
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_read_is_named_and_does_not_hide_others() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = TempDir::new().unwrap();
    let locked = folder.path().join("locked");
    fs::create_dir(&locked).unwrap();
    fs::copy(golden("0.91.0/rows_1.vortex"), folder.path().join("one.vortex")).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o0)).unwrap();
    if fs::read_dir(&locked).is_ok() {
        // Nothing is locked for this user.
        return;
    }
    for command in ["verify", "inspect"] {
        let output = run(&[command, folder.path().to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stdout(&output).contains("one.vortex: "), "{}", stdout(&output));
        let told = stderr(&output);
        assert!(told.starts_with(&format!("vortex: {}: ", locked.display())), "{told}");
    }
}

#[test]
fn patterns_match_names_of_files() {
    let folder = TempDir::new().unwrap();
    let place = |name: &str| path(&folder, name);
    fs::create_dir(place("c.vortex")).unwrap();
    for name in ["a1.vortex", "a2.vortex", "b[1].vortex", "c.vortex/a3.vortex"] {
        fs::copy(golden("0.91.0/rows_1.vortex"), place(name)).unwrap();
    }
    fs::write(place("a4.txt"), "no table").unwrap();
    for (pattern, count) in
        [("a*", 2), ("*.vortex", 3), ("a?.vortex", 2), ("*/a*", 1), ("**/*.vortex", 4), ("b[1].vortex", 1)]
    {
        for command in ["verify", "inspect"] {
            let out = ok(&[command, &place(pattern)]);
            assert_eq!(out.matches(".vortex: ").count(), count, "{command} {pattern}: {out}");
        }
    }
    for pattern in ["x*.vortex", "a*.txt", "none/*.vortex"] {
        for place in [place(pattern), format!("file://{}", place(pattern))] {
            let line = fails(&["verify", &place], 1);
            assert!(line.contains(&format!("{place}: no file there ends in .vortex")), "{line}");
        }
    }
    assert!(fails(&["verify", "a***.vortex"], 1).contains("a***.vortex"));
}

#[test]
fn a_changed_bit_is_found_and_placed() {
    let folder = TempDir::new().unwrap();
    let copy = path(&folder, "orders.vortex");
    let copy = copy.as_str();
    ok(&["convert", "--checksums", &golden("0.91.0/tpch_orders.vortex"), copy]);
    let out = ok(&["verify", copy]);
    assert!(out.contains("1,500 rows, 9 columns, checksums of "), "{out}");
    let whole = fs::read(copy).unwrap();
    let problems_of = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        fs::write(copy, bytes).unwrap();
        let output = run(&["verify", copy]);
        (output.status.code() != Some(0)).then(|| {
            assert!(complaint(&output, 1).contains("1 file with problems"));
            stdout(&output)
        })
    };
    let found = problems_of(whole.len() / 3).unwrap();
    assert!(found.starts_with(&format!("{copy}: segment ")) && found.contains("checksum"), "{found}");
    // In the description at the end; some of its bytes only fill gaps.
    let at_end = (1..=30).filter_map(|step| problems_of(whole.len() - 50 * step));
    assert!(at_end.filter(|found| found.starts_with(&format!("{copy}: "))).count() > 15);
}

#[test]
fn damaged_files_have_problems_and_missing_ones_are_errors() {
    let cut = golden("corrupt/0.36.0_dict_input.cut_tail1.vortex");
    let output = run(&["verify", "--quiet", &cut, &golden("0.91.0/rows_1.vortex")]);
    assert_eq!(complaint(&output, 1), "vortex: 1 file with problems\n");
    let problems = stdout(&output);
    assert!(problems.starts_with(&format!("{cut}: postscript: corrupt file: ")), "{problems}");
    assert_eq!(problems.lines().count(), 1, "{problems}");
    assert!(fails(&["verify", "nosuch.vortex"], 1).contains("nosuch.vortex"));
    assert_eq!(run(&["verify"]).status.code(), Some(2));
}

#[test]
fn every_file_that_cannot_be_read_is_named() {
    let cut = golden("corrupt/0.36.0_dict_input.cut_tail1.vortex");
    for command in ["verify", "inspect"] {
        let output = run(&[command, &cut, "no1.vortex", "no2.vortex", &golden("0.91.0/rows_1.vortex")]);
        let told = stderr(&output);
        assert!(told.contains("no1.vortex") && told.contains("no2.vortex"), "{told}");
        assert!(told.ends_with("3 files with problems\n"), "{told}");
        assert!(stdout(&output).contains("rows_1.vortex"));
    }
}

#[test]
fn problems_name_their_file_and_column_once() {
    let damaged = golden("corrupt/0.36.0_dict_input.array_fblen.vortex");
    let found = stdout(&run(&["verify", &damaged]));
    assert!(found.starts_with(&format!("{damaged}: column `plain`: segment 0: ")), "{found}");
}

#[test]
fn rows_that_contradict_the_recorded_order_are_found() {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};
    use vortex_core::io::LocalSink;
    use vortex_core::write::{FileWriter, WriteOptions};

    let folder = TempDir::new().unwrap();
    let verified = |name: &str, values: Vec<i64>| {
        let path = folder.path().join(name);
        let column = Arc::new(Int64Array::from(values)) as ArrayRef;
        let rows = RecordBatch::try_from_iter([("a", column)]).unwrap();
        let order = ("vortex-datafusion.order", "asc,nulls_last,1:a");
        let options = WriteOptions::new().with_user_metadata(order.0, order.1).unwrap();
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let sink = LocalSink::create(&path).unwrap();
            let mut writer = FileWriter::try_new(sink, rows.schema(), options).unwrap();
            writer.write(&rows).await.unwrap();
            writer.finish().await.unwrap();
        });
        stdout(&run(&["verify", path.to_str().unwrap()]))
    };
    let sorted: Vec<i64> = (0..20_000).collect();
    let mut swapped = sorted.clone();
    swapped.swap(8_191, 8_192);
    assert!(verified("sorted.vortex", sorted).contains(": fine; "));
    let found = verified("swapped.vortex", swapped);
    assert!(found.contains("recorded order: row 8192 is not in the order a@0 ASC"), "{found}");
}

#[cfg(unix)]
#[test]
fn names_of_any_letters_are_found() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    let folder = TempDir::new().unwrap();
    let odd = folder.path().join(OsStr::from_bytes(b"odd\xff.vortex"));
    for file in [folder.path().join("A.VORTEX"), folder.path().join("b.vortex"), odd.clone()] {
        if fs::copy(golden("0.91.0/rows_1.vortex"), file).is_err() {
            // A file system of Unicode names.
            return;
        }
    }
    for command in ["verify", "inspect"] {
        let out = ok(&[command, folder.path().to_str().unwrap()]);
        assert_eq!(out.to_lowercase().matches(".vortex: ").count(), 3, "{out}");
        let out = ok(&[command, &path(&folder, "odd*")]);
        assert_eq!(out.matches(".vortex: ").count(), 1, "{out}");
        assert!(vortex(&[command]).arg(&odd).output().unwrap().status.success());
    }
    let output = vortex(&["convert"]).arg(&odd).arg("x.csv").output().unwrap();
    assert!(complaint(&output, 2).contains("is not Unicode"));
}

#[test]
fn files_that_are_not_verified_since_nobody_reads_are_no_success() {
    let source = golden("0.91.0/tpch_lineitem_1k.vortex");
    let run = |files: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = vortex(&[&["verify"], files].concat());
        let output = command.stdout(writer).stderr(Stdio::piped()).output().unwrap();
        (output.status.code(), stderr(&output))
    };
    assert_eq!(run(&[&source]), (Some(0), String::new()));
    let (status, message) = run(&[source.as_str(); 3]);
    assert_eq!(status, Some(1));
    assert!(message.contains("no longer read; 2 files not verified"), "{message}");
}
