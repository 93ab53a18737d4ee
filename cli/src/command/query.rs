//! `rackscan query`: runs TPC-H queries by number.

use super::{compare::compare, load::ensure_tpch, traced::traced};
use crate::{
    args::{Query, Running},
    failure::Failure,
    output::{RowPrinter, print_text},
    session::Session,
};
use rackscan_engine::{OneStatement, SqlSession};
use std::{
    io::{BufWriter, Write, stdout},
    time::Duration,
};

/// Runs the queries in the given order, and prints each one's rows and where its scans ran.
pub(crate) fn run(session: &Session, query: &Query) -> Result<(), Failure> {
    let queries = selected(&query.queries)?;
    ensure_tpch(session)?;
    traced(session, &query.tracing, || answers(session, query, queries))
}

fn answers(session: &Session, query: &Query, queries: Vec<rackscan_queries::Query>) -> Result<(), Failure> {
    let several = queries.len() > 1;
    for chosen in queries {
        if several && query.running.format == crate::args::Format::Table {
            print_text(&format!("-- {}: {}", chosen.name(), chosen.title()))?;
        }
        if query.compare_placements {
            compare(session, chosen.sql, query.repeat, query.running.format)?;
            continue;
        }
        let mut times = Vec::with_capacity(query.repeat as usize);
        for turn in 0..query.repeat {
            let print = turn + 1 == query.repeat;
            times.push(answer(session, &mut SqlSession::default(), chosen.sql, &query.running, print)?);
        }
        if query.running.timing || query.repeat > 1 {
            report_times(&chosen.name(), &mut times);
        }
    }
    Ok(())
}

/// The queries that the arguments name.
pub(crate) fn selected(words: &[String]) -> Result<Vec<rackscan_queries::Query>, Failure> {
    let mut queries = Vec::new();
    for word in words {
        if word.eq_ignore_ascii_case("all") {
            queries.extend(rackscan_queries::tpch());
            continue;
        }
        queries.push(rackscan_queries::tpch_by_name(word).ok_or_else(|| {
            Failure::Usage(format!(
                "unknown query {word:?}; expected q01 to q22 or all (own SQL: rackscan sql \"...\")"
            ))
        })?);
    }
    Ok(queries)
}

/// Runs the statements of a text in order, up to the first that fails. With `print`, prints the
/// rows of each to standard output, and where its scans ran to standard error.
pub(crate) fn answer(
    session: &Session,
    sql_session: &mut SqlSession,
    sql: &str,
    running: &Running,
    print: bool,
) -> Result<Duration, Failure> {
    session.engine().set_policy(running.placement);
    let mut elapsed = Duration::ZERO;
    for statement in session.engine().statements(sql)? {
        elapsed += answer_one(session, sql_session, statement, running, print)?;
    }
    Ok(elapsed)
}

fn answer_one(
    session: &Session,
    sql_session: &mut SqlSession,
    statement: OneStatement,
    running: &Running,
    print: bool,
) -> Result<Duration, Failure> {
    let elapsed = session.block_on(async {
        let outcome = session.engine().answer(sql_session, statement).await?;
        if print {
            let mut printer =
                RowPrinter::new(running.format, &outcome.schema, BufWriter::new(stdout().lock()));
            for batch in &outcome.batches {
                printer.write(batch)?;
            }
            printer.finish()?;
            note!("{}", outcome.report.summary());
        }
        Ok::<_, Failure>(outcome.report.elapsed)
    })?;
    stdout().flush().map_err(crate::output::PrintError::from)?;
    Ok(elapsed)
}

/// The line of `--timing` and `--repeat`.
fn report_times(name: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    match times {
        [] => {}
        [only] => note!("{name}: {:.1} ms", ms(*only)),
        [best, .., worst] => {
            let (best, worst) = (ms(*best), ms(*worst));
            let median = ms(times[times.len() / 2]);
            note!(
                "{name}: best {best:.1} ms, median {median:.1} ms, worst {worst:.1} ms of {} runs",
                times.len()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str]) -> Vec<String> {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        selected(&words).unwrap().iter().map(rackscan_queries::Query::name).collect()
    }

    #[test]
    fn queries_run_in_the_order_given() {
        assert_eq!(names(&["q06", "1"]), ["q06", "q01"]);
        assert_eq!(names(&["all"]).len(), 22);
    }

    #[test]
    fn an_unknown_query_is_named_with_what_there_is() {
        let failure = selected(&["q23".to_owned()]).unwrap_err();
        assert!(matches!(&failure, Failure::Usage(text) if text.contains("q23") && text.contains("q22")));
    }
}
