//! When are the changed rows of an engine's tables sealed, and by whom?
//!
//! By hand, table by table; or in the background, as soon as enough has changed and somebody looks.

use super::Engine;
use crate::{error::EngineError, sealing::SealOutcome};
use futures::future::BoxFuture;

impl Engine {
    /// Makes segments of a table's changed rows, while others read and write; for a moment writers
    /// of the table wait.
    ///
    /// # Errors
    /// A node that is away or has no room: then nothing has changed, or the table takes no writes
    /// until it is sealed.
    pub fn seal<'a>(&'a self, table: &'a str) -> BoxFuture<'a, Result<SealOutcome, EngineError>> {
        Box::pin(async move {
            if !self.now().await?.view.contains_key(table) {
                self.refresh().await?;
            }
            if !self.tables.view().contains_key(table) {
                return Err(self.unknown_table(table));
            }
            self.sealer.seal(table).await
        })
    }

    /// Lets homes forget changed rows of tables that were dropped or loaded anew; of how many.
    ///
    /// # Errors
    /// A node that is away.
    pub fn sweep<'a>(&'a self) -> BoxFuture<'a, Result<usize, EngineError>> {
        Box::pin(async move { self.sealer.sweep().await })
    }

    /// Learns what has changed, and begins to seal the table in the background that has most
    /// changed rows, if those are enough.
    ///
    /// # Errors
    /// As [`Engine::sql`].
    pub fn seal_if_due<'a>(&'a self) -> BoxFuture<'a, Result<(), EngineError>> {
        Box::pin(async move {
            self.now().await?;
            self.seal_what_is_due();
            Ok(())
        })
    }

    pub(super) fn seal_what_is_due(&self) {
        if let Some(rows_min) = self.options.seal_rows_min {
            self.sealer.seal_if_due(rows_min);
        }
    }

    /// Whether a table is being sealed in the background.
    #[must_use]
    pub fn is_sealing(&self) -> bool {
        self.sealer.is_at_work()
    }

    /// Waits until nothing is being sealed in the background.
    pub fn rest<'a>(&'a self) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.sealer.rest().await;
        })
    }
}
