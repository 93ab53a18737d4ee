//! Which functions of SQL are ours, because DataFusion's give other answers than PostgreSQL's?

mod now;

use std::sync::Arc;

use chrono::{DateTime, SubsecRound, Utc};
use datafusion::logical_expr::ScalarUDF;

/// They take the places of DataFusion's functions of the same names.
pub(crate) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![Arc::new(ScalarUDF::from(now::Now::default()))]
}

/// The time of a statement or transaction that begins now, to the microsecond.
pub(crate) fn time() -> DateTime<Utc> {
    Utc::now().trunc_subsecs(6)
}
