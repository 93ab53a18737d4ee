//! Holds the state of a user's session: the isolation level, and the open transaction.

use crate::changes::{Isolation, Transaction};
use datafusion::sql::parser::Statement;

/// A sequence of statements, which may open a transaction. Dropping it rolls back an open
/// transaction.
#[derive(Debug, Default)]
pub struct SqlSession {
    pub(super) open: Option<Transaction>,
    pub(super) isolation: Isolation,
}

impl SqlSession {
    /// A session whose transactions have this isolation.
    #[must_use]
    pub fn with_isolation(isolation: Isolation) -> Self {
        Self { open: None, isolation }
    }

    /// Whether a transaction is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }
}

/// One statement from a text that may have several.
#[derive(Clone, Debug)]
pub struct OneStatement(pub(super) Statement);
