//! Drops a published table. Its extents are freed once that is durable and its last reader is done.

use rackscan_format::{ids::TableId, message::Refusal};

use super::publish::Publish;
use crate::{store::Change, task::Work};

/// Begins to drop a table.
pub(crate) fn start(table: TableId) -> Result<Box<dyn Work>, Refusal> {
    Publish::of(Change::Drop(table))
}
