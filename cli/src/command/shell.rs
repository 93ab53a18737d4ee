//! `rackscan shell`: an SQL prompt with history, multi-line statements and a few commands of its
//! own.

use super::{query::answer, sql::given_up, tables};
use crate::{
    args::{Format, Running, Shell},
    failure::Failure,
    session::Session,
    shell::{Prompt, Typed},
};
use rackscan_engine::SqlSession;
use std::ops::ControlFlow;

const HELP: &str = "\
SQL ends with a semicolon and may span lines. BEGIN, COMMIT and ROLLBACK put statements together.
  \\d               the tables
  \\d TABLE         the columns of one
  \\placement       where scans run; \\placement local|remote-fetch|remote-process|auto changes it
  \\timing          print how long each statement took; \\timing on|off
  \\?               this
  \\q               leave (or Ctrl-D)";

/// Reads and runs statements until the user quits. After an error, prints it and continues.
pub(crate) fn run(session: &Session, shell: &Shell) -> Result<(), Failure> {
    let mut running = shell.running.clone();
    let mut prompt = Prompt::open(&session.data().join("shell-history"))?;
    if prompt.is_interactive() {
        note!("rackscan {}: \\? for help, \\q to leave", env!("CARGO_PKG_VERSION"));
    }
    let mut sql_session = SqlSession::with_isolation(shell.isolation);
    while let Some(typed) = prompt.read()? {
        match act(session, &mut sql_session, &mut running, typed) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => break,
            Err(Failure::ClosedPipe) => return Err(Failure::ClosedPipe),
            // A script must not continue after a failed statement; a person can try again.
            Err(failure) if prompt.is_interactive() => note!("error: {failure}"),
            Err(failure) => return Err(failure),
        }
    }
    session.rest();
    given_up(&sql_session)
}

fn act(
    session: &Session,
    sql_session: &mut SqlSession,
    running: &mut Running,
    typed: Typed,
) -> Result<ControlFlow<()>, Failure> {
    match typed {
        Typed::Nothing => {}
        Typed::Sql(sql) => {
            let elapsed = answer(session, sql_session, &sql, running, true)?;
            if running.timing {
                note!("{:.1} ms", elapsed.as_secs_f64() * 1000.0);
            }
        }
        Typed::Describe(None) => {
            session.block_on(session.engine().refresh())?;
            tables::list(session, Format::Table)?;
        }
        Typed::Describe(Some(table)) => {
            session.block_on(session.engine().refresh())?;
            tables::columns(session, &table, Format::Table)?;
        }
        Typed::Timing(wanted) => {
            running.timing = wanted.unwrap_or(!running.timing);
            note!("timing is {}", if running.timing { "on" } else { "off" });
        }
        Typed::Placement(wanted) => {
            running.placement = wanted.unwrap_or(running.placement);
            note!("placement is {}", running.placement);
        }
        Typed::Help => note!("{HELP}"),
        Typed::Quit => return Ok(ControlFlow::Break(())),
        Typed::Unknown(message) => return Err(Failure::Usage(message)),
    }
    Ok(ControlFlow::Continue(()))
}
