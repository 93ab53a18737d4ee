//! Reads statements: from a terminal with editing, history and continuation lines, or from a
//! script.

use super::{Typed, is_complete, parse};
use crate::failure::Failure;
use rustyline::{
    Completer, Editor, Helper, Highlighter, Hinter,
    error::ReadlineError,
    history::FileHistory,
    validate::{ValidationContext, ValidationResult, Validator},
};
use std::{
    io::{BufRead, IsTerminal, stdin},
    path::{Path, PathBuf},
};

/// Source of statements.
pub(crate) enum Prompt {
    /// Typed by a person.
    Terminal(Box<Editor<Statements, FileHistory>>, PathBuf),
    /// Read from a script.
    Script(Box<dyn BufRead>),
}

/// Tells the editor whether Enter ends the statement.
#[derive(Completer, Helper, Highlighter, Hinter)]
pub(crate) struct Statements;

impl Validator for Statements {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let complete = is_complete(context.input());
        Ok(if complete { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

fn failure(error: &ReadlineError) -> Failure {
    Failure::Runtime(format!("cannot read from the terminal: {error}"))
}

impl Prompt {
    /// Opens a prompt that keeps its history in the file `history`.
    pub(crate) fn open(history: &Path) -> Result<Self, Failure> {
        if !stdin().is_terminal() {
            return Ok(Self::Script(Box::new(stdin().lock())));
        }
        let mut editor = Editor::new().map_err(|error| failure(&error))?;
        editor.set_helper(Some(Statements));
        // There is no history before the first use.
        if history.exists()
            && let Err(error) = editor.load_history(history)
        {
            tracing::warn!("cannot read the history {}: {error}", history.display());
        }
        Ok(Self::Terminal(Box::new(editor), history.to_owned()))
    }

    pub(crate) fn is_interactive(&self) -> bool {
        matches!(self, Self::Terminal(..))
    }

    /// The next input; `None` at the end. Ctrl-C discards the current input.
    pub(crate) fn read(&mut self) -> Result<Option<Typed>, Failure> {
        match self {
            Self::Terminal(editor, history) => match editor.readline("rackscan> ") {
                Ok(text) => {
                    if let Err(error) =
                        editor.add_history_entry(&text).and_then(|_| editor.save_history(history))
                    {
                        tracing::warn!("cannot keep the history in {}: {error}", history.display());
                    }
                    Ok(Some(parse(&text)))
                }
                Err(ReadlineError::Interrupted) => Ok(Some(Typed::Nothing)),
                Err(ReadlineError::Eof) => Ok(None),
                Err(error) => Err(failure(&error)),
            },
            Self::Script(lines) => read_script(lines),
        }
    }
}

fn read_script(lines: &mut dyn BufRead) -> Result<Option<Typed>, Failure> {
    let mut text = String::new();
    loop {
        let read = lines.read_line(&mut text);
        let read = read.map_err(|error| Failure::Runtime(format!("cannot read standard input: {error}")))?;
        if read == 0 {
            return Ok(if text.trim().is_empty() { None } else { Some(parse(&text)) });
        }
        if is_complete(&text) {
            return Ok(Some(parse(&text)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_cut_into_statements_and_commands() {
        let mut script = "select\n 1;\n\n\\timing on\nselect 2".as_bytes();
        let mut next = || read_script(&mut script).unwrap();
        assert_eq!(next(), Some(Typed::Sql("select\n 1".into())));
        assert_eq!(next(), Some(Typed::Nothing));
        assert_eq!(next(), Some(Typed::Timing(Some(true))));
        assert_eq!(next(), Some(Typed::Sql("select 2".into())));
        assert_eq!(next(), None);
    }
}
