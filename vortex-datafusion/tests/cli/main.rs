//! The `vortex` binary, started as a user starts it.

mod convert;
mod convert_inputs;
mod failed_copies;
mod inspect;
#[cfg(unix)]
mod interrupts;
mod places;
mod sql;
mod text_formats;
mod verify;

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

/// The binary, isolated from the settings, environment and history of the user who runs the tests.
fn vortex(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vortex"));
    let home = std::env::temp_dir().join("vortex-cli-tests");
    command.args(arguments).stdin(Stdio::null()).env("HOME", &home).env("XDG_STATE_HOME", &home);
    let of_others = ["DATAFUSION_", "AWS_", "AZURE_", "GOOGLE_"];
    for (name, _) in std::env::vars_os() {
        if of_others.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
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

/// The output of a run that must succeed and print nothing on stderr.
fn ok(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{arguments:?}");
    stdout(&output)
}

/// The one line that a failing run prints on stderr.
fn complaint(output: &Output, status: i32) -> String {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(status), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

/// The one line that a run prints on stderr which ends with a status.
fn fails(arguments: &[&str], status: i32) -> String {
    complaint(&run(arguments), status)
}

/// Writes the rows of a query to a file.
fn copy(rows: &str, to: &str) {
    ok(&["sql", "-q", "-c", &format!("COPY ({rows}) TO '{to}'")]);
}

/// The path of a file in a folder.
fn path(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).to_str().unwrap().to_owned()
}

/// The sorted names of what is in a folder.
fn names(folder: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The rows of a query as CSV.
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
                _ => {
                    let line = complaint(&output, 1);
                    let name = file.rsplit('/').next().unwrap();
                    assert!(line.contains(name), "{arguments:?}: {line}");
                }
            }
        }
    }
}

#[test]
fn the_help_tells_how_to_configure_stores_and_what_the_status_means() {
    for command in
        [&["--help"][..], &["sql", "--help"], &["convert", "--help"], &["verify", "-h"], &["inspect", "-h"]]
    {
        let help = ok(command);
        for told in ["AWS_ENDPOINT", "AZURE_STORAGE_ACCOUNT_NAME", "2 for wrong usage"] {
            assert!(help.contains(told), "{command:?}: {help}");
        }
    }
    let help = ok(&["convert", "--help"]);
    assert!(
        help.contains("vortex convert [OPTIONS] <INPUT>... <OUTPUT>") && help.contains("01234"),
        "{help}"
    );
    assert!(help.contains("`compact`: smallest, slowest to decode"), "{help}");
    assert!(ok(&["sql", "--help"]).contains("[default: disabled]"));
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

/// Serves one file under every name, like a plain web server: with lengths and ranges only.
fn serve(file: String) -> u16 {
    serve_with(file, true)
}

/// Serves one file under every name, with or without ranges.
fn serve_with(file: String, ranges: bool) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let bytes = fs::read(file).unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let (bytes, connection) = (bytes.clone(), connection.unwrap());
            std::thread::spawn(move || answer(connection, &bytes, ranges));
        }
    });
    port
}

/// A web server without files, which cannot list them either.
fn serve_nothing() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            std::thread::spawn(move || {
                let mut connection = connection.unwrap();
                let lines = BufReader::new(connection.try_clone().unwrap()).lines().map_while(Result::ok);
                let mut is_list = false;
                for line in lines {
                    is_list |= line.starts_with("PROPFIND ");
                    let status = if is_list { "501 Not Implemented" } else { "404 Not Found" };
                    let reply = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
                    if line.is_empty() && connection.write_all(reply.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

fn answer(mut connection: TcpStream, bytes: &[u8], ranges: bool) {
    let mut lines = BufReader::new(connection.try_clone().unwrap()).lines().map_while(Result::ok);
    while let Some(request) = lines.next() {
        let headers: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let range = headers.iter().filter(|_| ranges).find_map(|line| {
            let line = line.to_lowercase();
            let (first, last) = line.strip_prefix("range: bytes=")?.split_once('-')?;
            let (first, last) = (first.parse::<usize>().ok(), last.parse::<usize>().ok());
            Some(match (first, last) {
                (Some(first), last) => first..last.map_or(bytes.len(), |last| bytes.len().min(last + 1)),
                (None, last) => bytes.len().saturating_sub(last?)..bytes.len(),
            })
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
