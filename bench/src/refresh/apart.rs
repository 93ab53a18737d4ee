//! Runs refresh streams in a process of their own, as sessions next to those of the queries. A
//! stream is a thread that inserts and deletes orders.
//!
//! ```text
//! standard input    a line per command: go or pause; the process ends when the input closes
//! standard output   {"resting":{...}}  at the start, and when the streams rest after `pause`
//!                   {"working":{}}     when the streams work after `go`
//!                   {"failed":{...}}   the last line, if a stream fails
//! ```
//!
//! Invariants
//! - The process ends when its standard input closes, so it does not outlive its parent.
//! - If a stream fails, the parent learns the reason at its next command at the latest.

use super::{RefreshError, Streams, Turn};
use serde::{Deserialize, Serialize};
use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long the process may take to end before it is killed.
const END_TIME_MAX: Duration = Duration::from_secs(10);
const POLL_EVERY: Duration = Duration::from_millis(2);

const GO: &str = "go";
const PAUSE: &str = "pause";

/// The answers of the process, one per line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Answer {
    /// All streams are at work.
    Working {},
    /// All streams rest, with what they did in the previous turn.
    Resting(Turn),
    /// There will be no further answer.
    Failed {
        /// The cause.
        reason: String,
    },
}

/// The process's side: carries out the commands until they end. If it fails, the caller must send
/// the last answer.
///
/// # Errors
/// The first transaction that fails, or an unknown command.
pub fn answer(
    streams: &mut dyn Streams,
    words: impl BufRead,
    answers: &mut dyn FnMut(&Answer) -> std::io::Result<()>,
) -> Result<(), RefreshError> {
    let process = |action| move |source| RefreshError::Process { action, source };
    answers(&Answer::Resting(streams.pause()?)).map_err(process("write its answer"))?;
    for word in words.lines() {
        let said = match word.map_err(process("read its input"))?.trim() {
            GO => streams.go().map(|()| Answer::Working {})?,
            PAUSE => streams.pause().map(Answer::Resting)?,
            other => return Err(RefreshError::Word { found: other.to_owned() }),
        };
        answers(&said).map_err(process("write its answer"))?;
    }
    Ok(())
}

/// The parent's side: a process whose streams work in turns.
#[derive(Debug)]
pub struct StreamsProcess {
    child: Child,
    words: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl StreamsProcess {
    /// Starts `command`, which must call [`answer`]; returns when its streams are ready and rest.
    ///
    /// # Errors
    /// The process cannot be started, or gives up.
    pub fn start(mut command: Command) -> Result<Self, RefreshError> {
        let process = |action| move |source| RefreshError::Process { action, source };
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(process("start it"))?;
        let words = child.stdin.take();
        let gone = || std::io::Error::other("it has no pipe");
        let answers = child.stdout.take().ok_or_else(gone).map_err(process("open its output"))?;
        let mut started = Self { child, words, answers: BufReader::new(answers) };
        started.resting()?;
        Ok(started)
    }

    /// Reads its next answer, which must be that it rests.
    fn resting(&mut self) -> Result<Turn, RefreshError> {
        let expected = "to say that its streams rest";
        match self.hear(expected)? {
            Answer::Resting(turn) => Ok(turn),
            other => Err(RefreshError::Answer { found: format!("said {other:?}"), expected }),
        }
    }

    /// Reads its next answer. If the process has given up, returns its reason as an error.
    fn hear(&mut self, expected: &'static str) -> Result<Answer, RefreshError> {
        let mut line = String::new();
        let heard = self.answers.read_line(&mut line);
        heard.map_err(|source| RefreshError::Process { action: "read its answer", source })?;
        if line.is_empty() {
            let found = match self.end() {
                Ok(status) => format!("has ended ({status})"),
                Err(error) => format!("has ended, and its exit status is not known ({error})"),
            };
            return Err(RefreshError::Answer { found, expected });
        }
        match serde_json::from_str(&line) {
            Ok(Answer::Failed { reason }) => Err(RefreshError::Streams { reason }),
            Ok(answer) => Ok(answer),
            Err(_) => Err(RefreshError::Answer { found: format!("said {:?}", line.trim_end()), expected }),
        }
    }

    /// Sends a command. If the process has ended, its next answer says why.
    fn say(&mut self, word: &str) {
        if let Some(words) = &mut self.words {
            // Fails if the process has closed the pipe.
            drop(words.write_all(format!("{word}\n").as_bytes()).and_then(|()| words.flush()));
        }
    }

    /// Lets the process end, and kills it if it does not.
    fn end(&mut self) -> std::io::Result<std::process::ExitStatus> {
        drop(self.words.take());
        let deadline = Instant::now() + END_TIME_MAX;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(POLL_EVERY);
        }
        self.child.kill()?;
        self.child.wait()
    }
}

impl Streams for StreamsProcess {
    fn go(&mut self) -> Result<(), RefreshError> {
        self.say(GO);
        let expected = "to say that its streams work";
        match self.hear(expected)? {
            Answer::Working {} => Ok(()),
            other => Err(RefreshError::Answer { found: format!("said {other:?}"), expected }),
        }
    }

    fn pause(&mut self) -> Result<Turn, RefreshError> {
        self.say(PAUSE);
        self.resting()
    }
}

impl Drop for StreamsProcess {
    fn drop(&mut self) {
        // If it cannot be ended, it has ended already.
        drop(self.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streams that count the commands they receive.
    #[derive(Default)]
    struct Words {
        gone: u64,
        paused: u64,
    }

    impl Streams for Words {
        fn go(&mut self) -> Result<(), RefreshError> {
            self.gone += 1;
            if self.gone < 3 { Ok(()) } else { Err(RefreshError::Panicked) }
        }

        fn pause(&mut self) -> Result<Turn, RefreshError> {
            self.paused += 1;
            Ok(Turn { inserted: self.gone, deleted: self.paused, seconds: 0.5, next_stream: 7 })
        }
    }

    fn answers(words: &str) -> (Vec<String>, Result<(), RefreshError>) {
        let mut said = Vec::new();
        let ended = answer(&mut Words::default(), words.as_bytes(), &mut |answer| {
            said.push(serde_json::to_string(answer)?);
            Ok(())
        });
        (said, ended)
    }

    #[test]
    fn each_word_is_answered_and_streams_end_with_their_words() {
        let (said, ended) = answers("go\npause\n");
        ended.unwrap();
        let resting = |inserted: u64, deleted: u64| {
            format!(
                r#"{{"resting":{{"inserted":{inserted},"deleted":{deleted},"seconds":0.5,"next_stream":7}}}}"#
            )
        };
        assert_eq!(said, [resting(0, 1), r#"{"working":{}}"#.to_owned(), resting(1, 2)]);
    }

    #[test]
    fn streams_end_with_the_first_failure_and_with_an_unknown_word() {
        let (said, ended) = answers("go\ngo\ngo\ngo\n");
        assert!(matches!(ended, Err(RefreshError::Panicked)), "{ended:?}");
        assert_eq!(said.len(), 3);
        let error = answers("hurry\ngo\n").1.unwrap_err().to_string();
        assert!(error.contains("\"hurry\"") && error.contains("`go`"), "{error}");
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const RESTS: &str = r#"echo '{"resting":{"inserted":2,"deleted":3,"seconds":0.5,"next_stream":2}}'"#;

    #[test]
    fn a_process_is_told_words_and_its_answers_are_heard() {
        let script = format!(
            "{RESTS}; read w; test $w = go || exit; echo '{{\"working\":{{}}}}'; read w; test $w = pause || exit; {RESTS}; read w"
        );
        let mut streams = StreamsProcess::start(shell(&script)).unwrap();
        streams.go().unwrap();
        assert_eq!(streams.pause().unwrap().transactions(), 5);
    }

    #[test]
    fn why_a_process_gives_up_or_how_it_ended_is_told() {
        for (then, expected) in [
            (
                "read w; echo '{\"failed\":{\"reason\":\"node 2 is unavailable\"}}'",
                "streams failed: node 2 is unavailable",
            ),
            ("read w; exit 3", "has ended (exit status: 3), expected to say that its streams work"),
            ("exit 3", "exit status: 3"),
            ("kill -9 $$", "signal: 9"),
            ("read w; echo moon", "said \"moon\""),
            ("read w; echo; read w", "said \"\""),
        ] {
            let mut streams = StreamsProcess::start(shell(&format!("{RESTS}; {then}"))).unwrap();
            let error = streams.go().unwrap_err().to_string();
            assert!(error.contains(expected), "{then}: {error}");
        }
        let unheard = StreamsProcess::start(shell("exit 0")).unwrap_err().to_string();
        assert!(unheard.contains("streams rest"), "{unheard}");
    }
}
