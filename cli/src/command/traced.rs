//! Records the reads of a command's queries as a trace.
//!
//! Invariants
//! - A trace is finished even if a query fails: it then contains the reads up to the failure.

use crate::{args::Tracing, failure::Failure, session::Session};
use rackscan_engine::TraceFile;
use std::path::Path;

/// Runs `work` and records its queries' reads, if that is asked for.
pub(crate) fn traced(
    session: &Session,
    tracing: &Tracing,
    work: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(path) = &tracing.trace else { return work() };
    let trace = TraceFile::create(path, tracing.trace_format)?;
    session.engine().set_trace(Some(trace.sink()));
    let outcome = work();
    session.engine().set_trace(None);
    let finished = finish(session, trace, path);
    // A failure of the query takes precedence over one of its trace.
    outcome.and(finished)
}

fn finish(session: &Session, trace: TraceFile, path: &Path) -> Result<(), Failure> {
    let records = session.block_on(trace.finish())?;
    note!("{}: {records} page reads recorded", path.display());
    Ok(())
}
