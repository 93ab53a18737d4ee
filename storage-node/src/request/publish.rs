//! Publishes a load as a table in two steps, prepare and commit, so that a crash between them
//! leaves the table complete or absent.
//!
//! The catalog's thread makes the change; the request waits for the result.

use std::sync::Arc;

use rackscan_format::{
    ids::TableId,
    message::{Answer, Refusal},
    schema::TableDefinition,
};

use crate::{
    bridge::Core,
    message_queue::{Mail, ReplyTo},
    store::Change,
    task::{Place, Progress, Work},
};

/// A change of the catalog in progress.
pub(super) struct Publish {
    change: Option<Change>,
    outcome: Option<Result<(), Refusal>>,
}

impl Publish {
    #[expect(clippy::unnecessary_wraps, reason = "every kind of request begins alike")]
    pub(super) fn of(change: Change) -> Result<Box<dyn Work>, Refusal> {
        Ok(Box::new(Self { change: Some(change), outcome: None }))
    }
}

/// Begins to prepare a load for publication.
pub(crate) fn prepare(definition: TableDefinition, segments: u32) -> Result<Box<dyn Work>, Refusal> {
    Publish::of(Change::Prepare { definition, segments: segments as usize })
}

/// Begins to publish a prepared table.
pub(crate) fn commit(load: TableId) -> Result<Box<dyn Work>, Refusal> {
    Publish::of(Change::Commit(load))
}

/// Begins to publish a prepared table as a new version of the table `of`.
pub(crate) fn commit_in_place(load: TableId, of: Option<TableId>) -> Result<Box<dyn Work>, Refusal> {
    Publish::of(Change::CommitInPlace(load, of))
}

/// Begins to abort a load.
pub(crate) fn abort(load: TableId) -> Result<Box<dyn Work>, Refusal> {
    Publish::of(Change::Abort(load))
}

/// Begins to adopt the part of a published table that was lost here.
pub(crate) fn adopt(table: TableId) -> Result<Box<dyn Work>, Refusal> {
    Publish::of(Change::Adopt(table))
}

impl Work for Publish {
    fn advance(&mut self, core: &mut Core, place: Place) -> Progress {
        if let Some(change) = self.change.take() {
            let reply_to = ReplyTo::new(Arc::clone(&core.message_queue), place.task, Mail::Published);
            if let Err(refusal) = core.publisher.submit(change, reply_to) {
                self.outcome = Some(Err(refusal));
            }
        }
        match self.outcome.take() {
            Some(outcome) => Progress::Finished(outcome.map(|()| Answer::Done)),
            None => Progress::Working,
        }
    }

    fn published(&mut self, outcome: Result<(), Refusal>) {
        self.outcome = Some(outcome);
    }
}
