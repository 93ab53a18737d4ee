//! `rackscan explain`: shows where the scans of a query would run and at which price. With
//! `--analyze` it runs the query and shows what its scans did.

use crate::{
    args::{Explain, ExplainFormat},
    failure::Failure,
    session::Session,
};
use rackscan_engine::ExplainMode;

/// Explains a TPC-H query by number, or any SQL.
pub(crate) fn run(session: &Session, explain: &Explain) -> Result<(), Failure> {
    let by_number = rackscan_queries::tpch_by_name(explain.query.trim());
    if by_number.is_some() {
        super::load::ensure_tpch(session)?;
    }
    let sql = by_number.map_or(explain.query.as_str(), |query| query.sql);
    let mode = if explain.analyze { ExplainMode::Analyze } else { ExplainMode::Plan };
    session.engine().set_policy(explain.placement);
    let explanation = session.block_on(session.engine().explain(sql, mode))?;
    let text = match explain.format {
        ExplainFormat::Table => explanation.to_string(),
        ExplainFormat::Json => serde_json::to_string_pretty(&explanation)
            .map_err(|error| Failure::Runtime(format!("cannot write the explanation as JSON: {error}")))?,
    };
    crate::output::print_text(&text)
}
