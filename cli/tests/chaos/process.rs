//! Runs the program, measures its time, and kills it while it runs if the test asks for that.
//!
//! Invariants
//! - Every process is a child of this one, and is killed by its own process id only.
//! - A process that does not end by itself in [`HUNG_AFTER`] is killed and reported as hung.

use super::planted::Defect;
use std::{
    io::Read as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

/// No command may take this long, whatever the faults.
pub(crate) const HUNG_AFTER: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The library that gives a process another clock, at its path in Debian.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// Whether processes can be given other clocks, or what is missing for that.
pub(crate) fn clocks_can_be_wrong() -> Result<(), String> {
    if Path::new(FAKETIME).exists() {
        return Ok(());
    }
    Err(format!("{FAKETIME} is not there; install Debian's package faketime"))
}

/// The offset of a clock, as libfaketime takes it: `+3600`.
pub(crate) type Skew = String;

/// How clients reach a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    pub(crate) data: PathBuf,
    /// The network namespace of clients, if the cluster has a network of its own.
    pub(crate) namespace: Option<String>,
    /// The deliberate defect of clients, in tests of these tests.
    pub(crate) defect: Option<Arc<Defect>>,
}

impl Reach {
    /// The command with these arguments, not yet started.
    pub(crate) fn command(&self, skew: Option<&Skew>) -> Command {
        let mut command = in_namespace(self.namespace.as_deref());
        command.arg("--data").arg(&self.data);
        give_clock(&mut command, skew);
        command
    }

    /// Runs the command to its end, or kills it after the given time.
    pub(crate) fn run(&self, words: &[String], killed_after: Option<Duration>, skew: Option<&Skew>) -> Ran {
        let really = |words: &[String]| self.really_run(words, killed_after, skew);
        self.defect.as_ref().map_or_else(|| really(words), |defect| defect.run(words, really))
    }

    fn really_run(&self, words: &[String], killed_after: Option<Duration>, skew: Option<&Skew>) -> Ran {
        let mut command = self.command(skew);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let begun = Instant::now();
        let exit = loop {
            if let Some(status) = child.try_wait().expect("a child can be waited for") {
                break status.code().map_or(Exit::Crashed, Exit::Code);
            }
            let elapsed = begun.elapsed();
            let exit = match killed_after {
                Some(after) if elapsed >= after => Exit::Killed,
                _ if elapsed >= HUNG_AFTER => Exit::Hung,
                _ => {
                    std::thread::sleep(LOOK_EVERY);
                    continue;
                }
            };
            end(&mut child);
            break exit;
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        // The output of these commands fits into a pipe.
        child.stdout.take().map(|mut pipe| pipe.read_to_end(&mut out));
        child.stderr.take().map(|mut pipe| pipe.read_to_end(&mut err));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ran { exit, out: text(&out), err: text(&err) }
    }
}

/// The program, to be started in a network namespace or in this one.
pub(crate) fn in_namespace(namespace: Option<&str>) -> Command {
    let program = env!("CARGO_BIN_EXE_rackscan");
    let mut command = match namespace {
        None => Command::new(program),
        Some(name) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", name, program]);
            command
        }
    };
    command.env_remove("RUST_LOG");
    command
}

/// Gives a process a wrong clock.
pub(crate) fn give_clock(command: &mut Command, skew: Option<&Skew>) {
    if let Some(skew) = skew {
        command.env("LD_PRELOAD", FAKETIME).env("FAKETIME", skew).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
}

/// Kills a child and waits for its end.
pub(crate) fn end(child: &mut Child) {
    // It may have just ended by itself.
    let _ = child.kill();
    child.wait().expect("a killed child ends");
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Code(i32),
    /// By a signal that this test did not send.
    Crashed,
    /// Killed by this test, because the round wanted it.
    Killed,
    /// Killed by this test, because it did not end.
    Hung,
}

/// One run of the program.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) exit: Exit,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// A result that no fault excuses: a crash, a panic, a hang.
    pub(crate) fn outrage(&self) -> Option<String> {
        match self.exit {
            Exit::Crashed => Some(format!("it was ended by a signal: {}", self.err)),
            Exit::Hung => Some(format!("it did not end in {HUNG_AFTER:?}: {}", self.err)),
            Exit::Code(code) if !(0..=2).contains(&code) => Some(format!("exit code {code}: {}", self.err)),
            _ => self.err.contains("panicked").then(|| self.err.clone()),
        }
    }

    /// The error message: the last line that is not part of the program's log.
    pub(crate) fn message(&self) -> &str {
        self.err.lines().rfind(|line| line.starts_with("error")).or(self.err.lines().last()).unwrap_or("")
    }
}
