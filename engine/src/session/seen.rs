//! Defines the tables that a statement sees, and their point in time.
//!
//! Invariant: a statement sees materialised views as of the same point in time as its tables, or is
//! refused.

use super::state::{CATALOG, SCHEMA};
use crate::{
    catalog::{Known, View},
    deriving::Sums,
    error::EngineError,
    functions,
};
use chrono::{DateTime, Utc};
use datafusion::{common::TableReference, execution::SessionState};
use rackscan_format::ids::TableId;
use std::{collections::BTreeSet, sync::Arc};

/// The tables that a statement sees.
pub(super) struct Seen {
    pub(super) view: Arc<View>,
    /// The table whose rows' places the statement asks for.
    pub(super) placed: Option<String>,
    /// Whether it sees these tables and no newer ones, because they belong to a transaction.
    pub(super) is_fixed: bool,
    /// Whether its tables are held before it reads them, rather than only if it runs for long.
    pub(super) is_held: bool,
    /// The time of the statement, or of its transaction.
    pub(super) time: DateTime<Utc>,
    /// What changed rows add to views, at the time of the view. Outside of a transaction it is
    /// computed only for statements that need it.
    pub(super) sums: Option<Arc<Sums>>,
    /// Tables that the transaction has written to: their views do not include that.
    pub(super) written: BTreeSet<TableId>,
}

impl Seen {
    /// A statement that sees the present tables.
    pub(super) fn of(view: Arc<View>) -> Self {
        Self {
            view,
            placed: None,
            is_fixed: false,
            is_held: false,
            time: functions::time(),
            sums: None,
            written: BTreeSet::new(),
        }
    }
}

/// The materialised views that are referred to.
///
/// # Errors
/// A view of a table that the transaction has changed.
pub(super) fn views_among(
    references: &[TableReference],
    seen: &Seen,
) -> Result<BTreeSet<String>, EngineError> {
    let mut views = BTreeSet::new();
    for reference in references {
        let Some(Known::View(view)) = seen.view.get(reference.table()) else { continue };
        if seen.written.contains(&view.table().id) {
            return Err(EngineError::Statement {
                found: format!("{} after its table was changed in this transaction", view.derived().name()),
                way_out: "read the view before that change, or after COMMIT",
            });
        }
        views.insert(reference.table().to_owned());
    }
    Ok(views)
}

/// Whether the reference is to a table of the cluster that does not exist. Functions in FROM are
/// not tables.
pub(super) fn is_missing(reference: &TableReference, view: &View, state: &SessionState) -> bool {
    let ours = reference.schema().is_none_or(|schema| schema == SCHEMA)
        && reference.catalog().is_none_or(|catalog| catalog == CATALOG);
    let name = reference.table();
    ours && !view.contains_key(name) && !state.table_functions().contains_key(name)
}
