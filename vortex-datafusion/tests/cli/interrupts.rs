//! Ctrl-C, SIGTERM and SIGHUP.

use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::*;

/// The longest that anything may take here; usually it is some seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process that does not outlive its test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([&format!("-{name}"), &self.0.id().to_string()]).status();
        assert!(kill.unwrap().success());
    }

    /// Waits until something has happened; the process must not end before.
    fn until(&mut self, has_happened: impl Fn() -> bool) {
        while !has_happened() {
            assert_eq!(self.0.try_wait().unwrap(), None, "it was done before it could be interrupted");
            sleep(Duration::from_millis(2));
        }
    }

    /// Waits for the end; returns the exit status, and what stderr says.
    fn end(&mut self) -> (Option<i32>, String) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < PATIENCE, "it does not end");
            sleep(Duration::from_millis(10));
        };
        let mut told = String::new();
        self.0.stderr.as_mut().unwrap().read_to_string(&mut told).unwrap();
        (status.code(), told)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The binary, which does not ignore SIGHUP even if these tests were started with `nohup`.
fn hearing_hangups(arguments: &[&str]) -> Command {
    let plain = vortex(arguments);
    if cfg!(not(target_os = "linux")) {
        return plain;
    }
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP").arg(plain.get_program()).args(plain.get_args()).stdin(Stdio::null());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

#[cfg(target_os = "linux")]
#[test]
fn a_hangup_that_was_ignored_from_the_start_is_ignored() {
    let folder = TempDir::new().unwrap();
    let script = "trap '' HUP; exec \"$0\" convert --from csv --to json - -";
    let mut command = Command::new("sh");
    command
        .args(["-c", script, env!("CARGO_BIN_EXE_vortex")])
        .stdin(Stdio::piped())
        .env("HOME", folder.path());
    let mut process = Running::start(&mut command);
    let mut input = process.0.stdin.take().unwrap();
    input.write_all(b"a\n1\n").unwrap();
    sleep(Duration::from_millis(500));
    process.signal("HUP");
    sleep(Duration::from_millis(100));
    drop(input);
    assert_eq!(process.end(), (Some(0), String::new()));
}

#[test]
fn a_copy_that_is_interrupted_leaves_no_file() {
    for (signal, status) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let folder = TempDir::new().unwrap();
        let copy = format!(
            "COPY (SELECT value, random() AS r FROM generate_series(1, 100000000) t(value)) TO '{}'",
            path(&folder, "x.vortex")
        );
        let mut process = Running::start(&mut hearing_hangups(&["sql", "-c", &copy]));
        process.until(|| fs::read_dir(&folder).unwrap().next().is_some());
        process.signal(signal);
        assert_eq!(process.end(), (Some(status), "vortex: interrupted\n".to_owned()));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "{signal}");
    }
}

#[test]
fn a_killed_conversion_leaves_nothing_under_the_final_name() {
    let folder = TempDir::new().unwrap();
    // Enough inputs to leave time for the kill.
    let inputs = TempDir::new().unwrap();
    let source = path(&inputs, "0.vortex");
    fs::copy(golden("0.91.0/tpch_orders.vortex"), &source).unwrap();
    let links: Vec<_> = (1..3000).map(|at| path(&inputs, &format!("{at}.vortex"))).collect();
    links.iter().for_each(|link| fs::hard_link(&source, link).unwrap());
    let arguments: Vec<&str> = ["convert"].into_iter().chain(links.iter().map(String::as_str)).collect();
    for (signal, format) in
        [("KILL", "vortex"), ("INT", "vortex"), ("TERM", "vortex"), ("INT", "csv"), ("TERM", "parquet")]
    {
        let name = format!("{signal}.{format}");
        let output = path(&folder, &name);
        let is_there = || names(&folder).iter().any(|there| there.contains(&name));
        let mut process = Running::start(&mut vortex(&[&arguments[..], &[&output]].concat()));
        process.until(is_there);
        process.signal(signal);
        let (status, told) = process.end();
        assert_ne!(status, Some(0));
        assert!(!Path::new(&output).exists(), "{name}");
        if signal != "KILL" {
            assert!(told.contains("interrupted"), "{told}");
            assert!(!is_there(), "{:?}", names(&folder));
        }
    }
}

/// A query that keeps every thread busy, and does not yield for hours.
const BUSY: &str = "SELECT count(*) FROM generate_series(1, 300000) a JOIN generate_series(1, 300000) b
    ON a.value * b.value < 0 OR a.value = -b.value";

#[test]
fn signals_end_a_query_that_does_not_yield() {
    for (signal, status) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let arguments = ["sql", "--format", "csv", "-c", "SELECT 1 AS started", "-c", BUSY];
        let mut process = Running::start(&mut hearing_hangups(&arguments));
        let mut started = [0; "started\n1\n".len()];
        process.0.stdout.as_mut().unwrap().read_exact(&mut started).unwrap();
        sleep(Duration::from_millis(500));
        process.signal(signal);
        let (code, told) = process.end();
        assert!(code == Some(status) && told.contains("vortex: interrupted"), "{signal}: {code:?} {told}");
    }
}

/// In a terminal, which `script` of util-linux provides.
#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_interrupts_a_statement_or_else_ends_the_shell() {
    use std::sync::{Arc, Mutex};

    if Command::new("script").arg("--version").stdout(Stdio::null()).status().is_err() {
        return;
    }
    let home = TempDir::new().unwrap();
    let mut shell = Command::new("script");
    shell.args(["-qec", &format!("exec '{}' sql -q", env!("CARGO_BIN_EXE_vortex")), "/dev/null"]);
    shell.env("HOME", home.path()).env("XDG_STATE_HOME", home.path()).env("TERM", "xterm");
    let mut shell = Running::start(shell.stdin(Stdio::piped()));
    let (mut keys, mut screen) = (shell.0.stdin.take().unwrap(), shell.0.stdout.take().unwrap());
    let shown = Arc::<Mutex<String>>::default();
    let all = Arc::clone(&shown);
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = screen.read(&mut bytes) {
            all.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    });
    let mut enter = |text: &str, expected: &str| {
        if !text.is_empty() {
            shown.lock().unwrap().clear();
        }
        keys.write_all(text.as_bytes()).unwrap();
        let start = Instant::now();
        while !shown.lock().unwrap().contains(expected) {
            assert!(start.elapsed() < PATIENCE, "{text}: {}", shown.lock().unwrap());
            sleep(Duration::from_millis(10));
        }
    };
    let run_for_a_while = || sleep(Duration::from_secs(1));
    enter("", "> ");
    // After an error, the next line is another statement.
    enter("SELEC 1;\r", "Expected: an SQL statement");
    enter("SELECT 2 * 21 AS n;\r", " 42 ");
    enter("SELECT count(*) FROM generate_series(1, 1000000000000);\r", "\n");
    run_for_a_while();
    enter("\x03", "> ");
    enter("SELECT 2 * 21 AS n;\r", " 42 ");
    enter(&format!("{};\r", BUSY.replace('\n', " ")), "\n");
    run_for_a_while();
    enter("\x03", "Ctrl-C now ends the shell");
    enter("\x03", "interrupted");
    assert_eq!(shell.end().0, Some(130));
    let history = fs::read_to_string(home.path().join("vortex/history")).unwrap();
    assert!(history.contains("300000"), "{history}");
}

#[test]
fn a_file_that_reaches_the_limit_of_sizes_is_an_error() {
    let folder = TempDir::new().unwrap();
    let source = golden("0.91.0/tpch_orders.vortex");
    for (command, place) in [("convert", path(&folder, "a.csv")), ("sql", path(&folder, "b.csv"))] {
        let copy = format!("COPY (SELECT * FROM '{source}') TO '{place}'");
        let arguments =
            if command == "sql" { vec!["sql", copy.as_str()] } else { vec!["convert", &source, &place] };
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -f 8; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_vortex")]).args(arguments);
        let line = complaint(&limited.output().unwrap(), 1);
        assert!(line.contains("too large") && !line.contains("bug"), "{line}");
    }
    assert_eq!(names(&folder), Vec::<String>::new());
}
