//! Which functions of SQL are ours, because DataFusion's give other answers than PostgreSQL's?

mod average;
mod canonical;
mod date_trunc;
mod now;

use std::sync::Arc;

use chrono::{DateTime, SubsecRound, Utc};
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};

pub(crate) use canonical::{ONE_NAN, canonical, of_double, one_nan};

/// They take the places of DataFusion's functions of the same names.
pub(crate) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        Arc::new(ScalarUDF::from(now::Now::default())),
        canonical(),
        one_nan(),
        Arc::new(ScalarUDF::from(date_trunc::DateTrunc::default())),
    ]
}

/// Likewise.
pub(crate) fn aggregates() -> Vec<Arc<AggregateUDF>> {
    vec![Arc::new(AggregateUDF::from(average::Average::default()))]
}

/// The time of a statement or transaction that begins now, to the microsecond.
pub(crate) fn time() -> DateTime<Utc> {
    Utc::now().trunc_subsecs(6)
}
