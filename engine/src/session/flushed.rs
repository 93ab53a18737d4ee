//! Starts flushes of an engine: of a table on request, or in the background when enough rows of a
//! table have changed.

use super::Engine;
use crate::{error::EngineError, flushing::FlushOutcome};
use futures::future::BoxFuture;

impl Engine {
    /// Flushes a table: writes its changed rows into segments while others read and write. Writers
    /// of the table wait for a short time.
    ///
    /// # Errors
    /// A node is unavailable or has no room. Then nothing has changed, or the table takes no writes
    /// until it is flushed.
    pub fn flush<'a>(&'a self, table: &'a str) -> BoxFuture<'a, Result<FlushOutcome, EngineError>> {
        Box::pin(async move {
            if !self.now().await?.view.contains_key(table) {
                self.refresh().await?;
            }
            if !self.tables.view().contains_key(table) {
                return Err(self.unknown_table(table));
            }
            self.flusher.flush(table).await
        })
    }

    /// Makes participants drop the changed rows of tables that were dropped or loaded anew. Returns
    /// the number of tables.
    ///
    /// # Errors
    /// A node is unavailable.
    pub fn sweep<'a>(&'a self) -> BoxFuture<'a, Result<usize, EngineError>> {
        Box::pin(async move { self.flusher.sweep().await })
    }

    /// Reads the changed rows, and begins to flush the table with the most of them in the
    /// background, if they are enough.
    ///
    /// # Errors
    /// As [`Engine::sql`].
    pub fn flush_if_due<'a>(&'a self) -> BoxFuture<'a, Result<(), EngineError>> {
        Box::pin(async move {
            self.now().await?;
            self.flush_what_is_due();
            Ok(())
        })
    }

    pub(super) fn flush_what_is_due(&self) {
        if let Some(rows_min) = self.options.flush_rows_min {
            self.flusher.flush_if_due(rows_min);
        }
    }

    /// Whether a table is being flushed in the background.
    #[must_use]
    pub fn is_flushing(&self) -> bool {
        self.flusher.is_at_work()
    }

    /// Waits until no flush runs in the background.
    pub fn rest<'a>(&'a self) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.flusher.rest().await;
        })
    }
}
