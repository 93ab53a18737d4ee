//! Records in the trace which pages a scan reads from devices.
//!
//! Invariants
//! - A page has a record if and only if the scan's figures count its bytes as read from a device.

use crate::{snapshot::TableSnapshot, trace::TraceSink};
use rackscan_format::{
    ids::{ColumnId, NodeId},
    segment::Extent,
};
use rackscan_trace::{Operation, Record};
use std::{sync::Arc, time::Instant};

/// Records the reads of the scans of one table.
#[derive(Debug)]
pub(crate) struct Capture {
    sink: TraceSink,
    table: Arc<str>,
    columns: Vec<Arc<str>>,
}

/// A page that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageRead {
    pub(super) at: Instant,
    pub(super) column: ColumnId,
    pub(super) extent: Extent,
}

impl Capture {
    pub(super) fn new(sink: TraceSink, snapshot: &TableSnapshot) -> Self {
        let definition = &snapshot.definition;
        let columns = definition.columns.iter().map(|column| column.name.as_str().into()).collect();
        Self { sink, table: definition.name.as_str().into(), columns }
    }

    /// Records pages of `node`'s devices. Waits while the trace is not written fast enough.
    pub(super) async fn record(&self, node: NodeId, pages: impl Iterator<Item = PageRead>) {
        let records = pages.map(|page| Record {
            at: self.sink.at(page.at),
            node: node.0,
            device: page.extent.device.0.into(),
            offset_bytes: page.extent.offset_bytes,
            length_bytes: page.extent.length_bytes.into(),
            operation: Operation::Read,
            table: Some(Arc::clone(&self.table)),
            column: self.columns.get(page.column.index()).cloned(),
            thread: None,
        });
        let records: Vec<Record> = records.collect();
        if !records.is_empty() {
            self.sink.put(records).await;
        }
    }
}
