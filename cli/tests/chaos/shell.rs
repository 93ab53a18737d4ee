//! Runs a `rackscan shell` that stays open while other clients load, drop and flush the tables that
//! it uses.
//!
//! Invariants
//! - A shell that reads a script ends with its first error: after that the client opens another
//!   one.
//! - The shell ends when this value is dropped.

use super::process::{Exit, HUNG_AFTER, Ran, Reach, Skew, end};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, ChildStdin, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

/// Column name of the marker statement after each statement: its row says that the one before has
/// been answered.
const MARK: &str = "answered_until_here";

pub(crate) struct Shell {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    is_over: bool,
}

impl Shell {
    pub(crate) fn open(reach: &Reach, skew: Option<&Skew>) -> Self {
        let mut command = reach.command(skew);
        command.args(["shell", "--format", "ndjson"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the shell starts");
        let input = child.stdin.take().expect("it has a standard input");
        let output = child.stdout.take().expect("it has a standard output");
        let (sender, lines) = channel();
        // This thread ends when the shell does.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, input, lines, is_over: false }
    }

    /// Whether it accepts no more statements.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Runs statements, and reports as if the program had been started for them.
    pub(crate) fn ask(&mut self, statements: &str, killed_after: Option<Duration>) -> Ran {
        let text = format!("{statements};\nselect 1 as {MARK};\n");
        // If it has ended, the read below fails.
        let _ = self.input.write_all(text.as_bytes());
        let begun = Instant::now();
        let deadline = begun + killed_after.unwrap_or(HUNG_AFTER);
        let mut out = String::new();
        let exit = loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains(MARK) => {
                    return Ran { exit: Exit::Code(0), out, err: String::new() };
                }
                Ok(line) => out += &(line + "\n"),
                Err(RecvTimeoutError::Timeout) => {
                    end(&mut self.child);
                    break if killed_after.is_some() { Exit::Killed } else { Exit::Hung };
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().expect("a child can be waited for");
                    break status.code().map_or(Exit::Crashed, Exit::Code);
                }
            }
        };
        self.is_over = true;
        let mut err = Vec::new();
        self.child.stderr.take().map(|mut pipe| pipe.read_to_end(&mut err));
        // Then only the marker statement after them has failed.
        if matches!(exit, Exit::Code(_)) && is_answered(statements, &out) {
            return Ran { exit: Exit::Code(0), out, err: String::new() };
        }
        Ran { exit, out, err: String::from_utf8_lossy(&err).into_owned() }
    }
}

/// Whether each statement has been answered. A change is answered by one line, a query by any
/// number.
fn is_answered(statements: &str, out: &str) -> bool {
    let mut statements = statements.split(';').map(str::trim).filter(|statement| !statement.is_empty());
    let is_query = |statement: &str| statement.starts_with("select");
    !statements.clone().any(is_query) && statements.by_ref().count() == out.lines().count()
}

#[test]
fn changes_are_answered_if_each_has_its_line() {
    let (block, lines) = ("begin; update t set v = 1; commit", "begun\nrows updated\ncommitted\n");
    assert!(is_answered(block, lines));
    assert!(!is_answered(block, "begun\nrows updated\n"));
    assert!(!is_answered("select k from t", "one row\n"));
}

impl Drop for Shell {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}
