//! `rackscan sql`: one statement from the command line, a file or standard input.

use super::{compare::compare, query::answer, traced::traced};
use crate::{
    args::Sql,
    failure::{Failure, at_path},
    session::Session,
};
use std::io::Read;

/// Runs the statement.
pub(crate) fn run(session: &Session, sql: &Sql) -> Result<(), Failure> {
    let text = statement(sql)?;
    let text = text.trim().trim_end_matches(';');
    if sql.compare_placements {
        return compare(session, text, 1, sql.running.format);
    }
    traced(session, &sql.tracing, || {
        let elapsed = answer(session, text, &sql.running, true)?;
        if sql.running.timing {
            eprintln!("{:.1} ms", elapsed.as_secs_f64() * 1000.0);
        }
        Ok(())
    })
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
