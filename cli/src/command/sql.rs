//! `rackscan sql`: runs statements from the command line, a file or standard input.

use super::{compare::compare, query::answer, traced::traced};
use crate::{
    args::Sql,
    failure::{Failure, at_path},
    session::Session,
};
use rackscan_engine::SqlSession;
use std::io::Read;

/// Runs the statements. A transaction that they begin and do not end is rolled back.
pub(crate) fn run(session: &Session, sql: &Sql) -> Result<(), Failure> {
    let text = statement(sql)?;
    let text = text.trim().trim_end_matches(';');
    if sql.compare_placements {
        if !session.engine().only_reads(text)? {
            let text = "--compare-placements runs a statement several times, expected one query";
            return Err(Failure::Usage(text.to_owned()));
        }
        return compare(session, text, 1, sql.running.format);
    }
    traced(session, &sql.tracing, || {
        let mut sql_session = SqlSession::with_isolation(sql.isolation);
        let elapsed = answer(session, &mut sql_session, text, &sql.running, true)?;
        if sql.running.timing {
            note!("{:.1} ms", elapsed.as_secs_f64() * 1000.0);
        }
        session.rest();
        given_up(&sql_session)
    })
}

/// Returns an error if a transaction is still open: no further statement can commit it.
pub(crate) fn given_up(sql_session: &SqlSession) -> Result<(), Failure> {
    if sql_session.is_open() {
        let text =
            "the transaction was begun and not committed: nothing of it was written; end it with COMMIT";
        return Err(Failure::Runtime(text.to_owned()));
    }
    Ok(())
}

fn statement(sql: &Sql) -> Result<String, Failure> {
    match (&sql.statement, &sql.file) {
        (Some(dash), None) if dash == "-" => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|error| Failure::Runtime(format!("cannot read SQL from standard input: {error}")))?;
            Ok(text)
        }
        (Some(text), _) => Ok(text.clone()),
        (None, Some(file)) => std::fs::read_to_string(file).map_err(at_path(file)),
        (None, None) => Err(Failure::Usage("expected a statement or --file FILE".to_owned())),
    }
}
