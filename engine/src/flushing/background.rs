//! Chooses the table that is flushed in the background, and when.
//!
//! At each statement the engine finds the table with the most changed rows. It flushes this table
//! if the number of its changed rows has reached a limit (`flush_rows_min`). An engine flushes one
//! table at a time.

use super::flusher::{Background, Flusher};
use crate::{catalog::Known, limits::FLUSH_RETRY_TIME};
use std::{
    sync::{MutexGuard, PoisonError},
    time::Instant,
};
use tokio::runtime::Handle;

impl Flusher {
    /// Flushes in the background the table with the most changed rows, if those are at least
    /// `rows_min` and this engine is not flushing one already.
    pub(crate) fn flush_if_due(&self, rows_min: u64) {
        // Only programs with a runtime have a background.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut background = self.background();
        if background.task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        background.failed.retain(|_, when| when.elapsed() < FLUSH_RETRY_TIME);
        let view = self.tables.view();
        let due = view.iter().filter_map(|(name, known)| match known {
            Known::Whole(table) => Some((table.changed_rows(), name, table.definition().id)),
            _ => None,
        });
        let due = due.filter(|(rows, _, id)| *rows >= rows_min && !background.failed.contains_key(id)).max();
        let Some((_, name, id)) = due else { return };
        let (flusher, name) = (self.clone(), name.clone());
        background.task = Some(runtime.spawn(async move {
            if let Err(error) = flusher.flush(&name).await {
                tracing::warn!(
                    table = name,
                    %error,
                    "the table could not be flushed in the background; the flush is tried again later"
                );
                let mut background = flusher.background();
                background.failed.insert(id, Instant::now());
            }
        }));
    }

    pub(crate) fn is_at_work(&self) -> bool {
        let background = self.background();
        background.task.as_ref().is_some_and(|task| !task.is_finished())
    }

    /// Waits until no flush runs in the background.
    pub(crate) async fn rest(&self) {
        let task = self.background().task.take();
        if let Some(task) = task {
            // A flush that panicked has already reported it.
            let _ = task.await;
        }
    }

    fn background(&self) -> MutexGuard<'_, Background> {
        self.background.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
