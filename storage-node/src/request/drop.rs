//! How is a published table forgotten? Its extents are free once that is durable and its last
//! reader is done.

use rackscan_format::{ids::TableId, message::Refusal};

use super::publish::Publish;
use crate::{store::Change, task::Work};

/// Begins to serve it.
pub(crate) fn start(table: TableId) -> Result<Box<dyn Work>, Refusal> {
    Publish::of(Change::Drop(table))
}
