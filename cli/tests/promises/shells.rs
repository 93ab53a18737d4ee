//! Runs a shell of the program that waits for the next statement, for other tests.

use super::support::Data;
use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, ChildStdout, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// A shell that waits for the next statement.
pub(crate) struct OpenShell {
    child: Child,
    lines: Receiver<String>,
}

impl OpenShell {
    /// `words` are options of the shell.
    pub(crate) fn start(data: &Data, words: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rackscan"));
        command.arg("--data").arg(data.path().join("data")).args(["shell", "--format", "csv"]).args(words);
        command.env_remove("RUST_LOG").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let stdout: ChildStdout = child.stdout.take().expect("it has a standard output");
        let (told, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if told.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    pub(crate) fn say(&mut self, sql: &str) {
        let stdin = self.child.stdin.as_mut().expect("it listens");
        // A shell that has ended says why on its standard error.
        let _ = writeln!(stdin, "{sql};").and_then(|()| stdin.flush());
    }

    /// Reads the next line of an answer, which must contain `part`.
    #[track_caller]
    pub(crate) fn answers(&self, part: &str) {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            if line.unwrap_or_else(|error| panic!("{part:?}: {error}")).contains(part) {
                return;
            }
        }
    }

    /// Ends the shell. Returns its error, if it failed.
    pub(crate) fn end(mut self) -> Option<String> {
        drop(self.child.stdin.take());
        let mut text = String::new();
        let read = self.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut text));
        read.expect("it has a standard error").expect("text");
        let status = self.child.wait().expect("it ends");
        assert!(!text.contains("panicked"), "{text}");
        (!status.success()).then_some(text)
    }
}

impl Drop for OpenShell {
    fn drop(&mut self) {
        // It has ended already, unless the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
