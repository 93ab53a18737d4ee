//! Drops a published table. Its extents are freed when the drop is durable and the last reader has
//! released them.

use rackscan_format::{ids::TableId, message::Refusal};

use super::publish::Publish;
use crate::{store::Change, task::Work};

/// Begins to drop a table.
pub(crate) fn start(table: TableId) -> Result<Box<dyn Work>, Refusal> {
    Publish::of(Change::Drop(table))
}
