//! Which tables, of which moment, does a statement see?
//!
//! Invariant: views are of the moment of the tables that are seen with them, or are not seen at
//! all.

use super::{CATALOG, SCHEMA};
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

/// Which tables a statement sees.
pub(super) struct Seen {
    pub(super) view: Arc<View>,
    /// The table whose rows' places it asks for.
    pub(super) placed: Option<String>,
    /// Whether it sees these and no newer ones: they are those of a transaction.
    pub(super) is_fixed: bool,
    /// Whether nodes keep its tables before it reads them, and not only if it runs for long.
    pub(super) is_held: bool,
    /// Its time: that of the transaction, if it is in one.
    pub(super) time: DateTime<Utc>,
    /// What changed rows add to views, at the moment of the view; of a statement in no transaction
    /// it is asked for when it is known to need it.
    pub(super) sums: Option<Arc<Sums>>,
    /// Tables that its transaction has written to: their views do not know that.
    pub(super) written: BTreeSet<TableId>,
}

impl Seen {
    /// Tables as they are.
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
/// One of a table that the transaction has changed.
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
                way_out: "ask for a view before that, or after COMMIT",
            });
        }
        views.insert(reference.table().to_owned());
    }
    Ok(views)
}

/// Whether that is one of our tables, and is not there; functions in FROM are none.
pub(super) fn is_missing(reference: &TableReference, view: &View, state: &SessionState) -> bool {
    let ours = reference.schema().is_none_or(|schema| schema == SCHEMA)
        && reference.catalog().is_none_or(|catalog| catalog == CATALOG);
    let name = reference.table();
    ours && !view.contains_key(name) && !state.table_functions().contains_key(name)
}
