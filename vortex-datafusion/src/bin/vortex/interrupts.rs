//! Handling of Ctrl-C, SIGTERM and SIGHUP: incomplete output is removed before the process ends.
//!
//! ```text
//! signal ──> own thread ──> main task: drops its work, which removes what it has written
//!                 └──────> exit, if the main task does not react in time
//! ```
//!
//! The thread has a runtime of its own: a query may keep all threads of the other one busy, and then nothing
//! there receives signals or wakes what sleeps.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};
#[cfg(unix)]
use std::{future::poll_fn, task::Poll};

use tokio::runtime::{self, Runtime};
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::failure::{Failure, Outcome};

/// The exit status for Ctrl-C.
pub(crate) const CTRL_C: u8 = 130;

/// How long the main task may take to react: it may be waiting for input that never comes, or for a query that
/// does not yield.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long dropped tasks may take to remove what they have written, and how often to check.
const LAST_CHANCE: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Runs work that signals interrupt.
pub(crate) struct Interrupts {
    is_shell: bool,
    /// The exit status for the latest signal.
    heard: watch::Receiver<u8>,
    /// When the work to interrupt began, if there is any.
    working: watch::Sender<Option<Instant>>,
}

impl Interrupts {
    /// Receives signals from now on. They end the process; but in a shell, Ctrl-C ends only the current work.
    pub(crate) fn watch(is_shell: bool) -> Outcome<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let signals = {
            let _context = runtime.enter();
            Signals::receive()?
        };
        let (told, heard) = watch::channel(0);
        let (working, working_since) = watch::channel(None);
        let thread = Thread { is_shell, signals, told, working_since, terminal: Terminal::of(is_shell) };
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let status = runtime.block_on(thread.run());
            crate::convert::remove_partial_files(|| {
                let _ = writeln!(io::stderr(), "vortex: interrupted");
                std::process::exit(status.into());
            });
        })?;
        Ok(Self { is_shell, heard, working })
    }

    /// Runs work to its end, or drops it when there is a signal.
    pub(crate) async fn run<T>(&mut self, work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        self.heard.mark_unchanged();
        self.working.send_replace(Some(Instant::now()));
        let outcome = tokio::select! {
            outcome = work => outcome,
            Ok(()) = self.heard.changed() => Err(Failure::Interrupted(*self.heard.borrow())),
        };
        if self.is_shell && matches!(outcome, Err(Failure::Interrupted(CTRL_C))) {
            // Tasks end when they yield. A shell could not run anything else before one of them does.
            let _ = tokio::spawn(async {}).await;
        }
        self.working.send_replace(None);
        outcome
    }
}

/// What the thread knows.
struct Thread {
    is_shell: bool,
    signals: Signals,
    told: watch::Sender<u8>,
    working_since: watch::Receiver<Option<Instant>>,
    terminal: Terminal,
}

impl Thread {
    /// Passes signals on to the main task. Returns the exit status when the process must end at once.
    async fn run(mut self) -> u8 {
        loop {
            let status = self.signals.next().await;
            let work = *self.working_since.borrow();
            self.told.send_replace(status);
            if !self.is_shell || status != CTRL_C {
                if work.is_none() {
                    self.terminal.restore();
                    return status;
                }
                tokio::select! {
                    // The main task is about to end the process.
                    _ = self.working_since.wait_for(|now| *now != work) => sleep(2 * LAST_CHANCE).await,
                    () = sleep(PATIENCE) => {}
                }
                return status;
            }
            if work.is_none() {
                continue;
            }
            tokio::select! {
                _ = self.working_since.wait_for(|now| *now != work) => continue,
                () = sleep(PATIENCE) => {}
            }
            let _ = writeln!(io::stderr(), "the statement has not ended yet; Ctrl-C now ends the shell");
            tokio::select! {
                _ = self.working_since.wait_for(|now| *now != work) => {}
                status = self.signals.next() => return status,
            }
        }
    }
}

/// The signals that ask the process to end.
#[cfg(unix)]
struct Signals(Vec<(Signal, u8)>);

#[cfg(unix)]
impl Signals {
    fn receive() -> io::Result<Self> {
        // A limit of the size of files is then an error of writing, instead of the end of the process.
        drop(signal(SignalKind::from_raw(nix::libc::SIGXFSZ))?);
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        // What `nohup` has started is not to end with the terminal.
        let is_heard = |(kind, _): &(SignalKind, u8)| *kind != SignalKind::hangup() || !ignores_hangup();
        let signals = kinds.into_iter().zip([CTRL_C, 143, 129]).filter(is_heard);
        Ok(Self(signals.map(|(kind, status)| Ok((signal(kind)?, status))).collect::<io::Result<_>>()?))
    }

    /// Waits for a signal, and returns the exit status for it.
    async fn next(&mut self) -> u8 {
        poll_fn(|context| {
            let received =
                |(signal, status): &mut (Signal, u8)| signal.poll_recv(context).is_ready().then_some(*status);
            self.0.iter_mut().find_map(received).map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// Whether the process was started to ignore SIGHUP, as far as the system tells.
#[cfg(unix)]
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ignored >> (SignalKind::hangup().as_raw_value() - 1) & 1 == 1
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn receive() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> u8 {
        match tokio::signal::ctrl_c().await {
            Ok(()) => CTRL_C,
            Err(_) => std::future::pending().await,
        }
    }
}

/// The state of the terminal before a shell changes it, for as long as a line is edited.
#[cfg(unix)]
struct Terminal(Option<nix::sys::termios::Termios>);

#[cfg(unix)]
impl Terminal {
    fn of(is_shell: bool) -> Self {
        Self(is_shell.then(|| nix::sys::termios::tcgetattr(io::stdin()).ok()).flatten())
    }

    fn restore(&self) {
        use nix::sys::termios::{SetArg, tcsetattr};

        if let Some(state) = &self.0 {
            // On a line after the prompt, and without the marks around what is pasted.
            let _ = writeln!(io::stderr(), "\x1b[?2004l");
            let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, state);
        }
    }
}

#[cfg(not(unix))]
struct Terminal;

#[cfg(not(unix))]
impl Terminal {
    fn of(_: bool) -> Self {
        Self
    }

    fn restore(&self) {}
}

/// Waits until the tasks of dropped work have ended and have removed the files they were writing. It blocks,
/// since they may not let other tasks run.
pub(crate) fn let_tasks_end(runtime: &Runtime) {
    let start = Instant::now();
    while runtime.metrics().num_alive_tasks() > 0 && start.elapsed() < LAST_CHANCE {
        std::thread::sleep(LOOK_AGAIN);
    }
    // The last thing they do is have a file removed on another thread.
    std::thread::sleep(LOOK_AGAIN);
}
