//! Holds: a hold lets a reader read a set of tables until it releases the hold, even if the tables
//! are replaced or dropped meanwhile.
//!
//! Invariants
//! - A hold is of tables that were published when it began. It ends with its connection at the
//!   latest.
//! - A node has at most `HOLDS_MAX` holds, so the extents that only holds keep from being freed are
//!   bounded.

use std::{collections::BTreeMap, sync::Arc};

use rackscan_format::{
    ids::{SegmentId, TableId},
    limits::HELD_TABLES_MAX,
    message::{Refusal, RefusalCode},
    schema::TableDefinition,
};

use super::{allocate::StoredSegment, published::Published, table::Table};
use crate::{ids::ConnectionId, limits::HOLDS_MAX};

/// The holds of a node, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Holds(BTreeMap<u64, Hold>);

#[derive(Debug)]
pub(super) struct Hold {
    connection: ConnectionId,
    tables: Vec<Arc<Table>>,
}

impl Hold {
    /// A hold of these tables.
    pub(super) fn of(
        published: &Published,
        tables: &[TableId],
        connection: ConnectionId,
    ) -> Result<Self, Refusal> {
        if tables.len() > HELD_TABLES_MAX {
            let text = format!("a hold names {} tables, expected at most {HELD_TABLES_MAX}", tables.len());
            return Err(Refusal::new(RefusalCode::Malformed, text));
        }
        let found = tables.iter().map(|id| {
            let found = published.tables.get(id).filter(|table| table.committed);
            found.cloned().ok_or_else(|| {
                let text = format!("table {id} is not published here: it was replaced or dropped");
                Refusal::new(RefusalCode::Replaced, text)
            })
        });
        Ok(Self { connection, tables: found.collect::<Result<_, _>>()? })
    }
}

impl Holds {
    /// Begins a hold. The caller drops the returned hold outside of the lock: it may free many
    /// extents.
    pub(super) fn begin(&mut self, number: u64, hold: Hold) -> Result<Option<Hold>, Refusal> {
        if self.0.len() >= HOLDS_MAX {
            let text = format!(
                "the node has {HOLDS_MAX} holds of tables, the maximum; end some transactions or queries"
            );
            return Err(Refusal::new(RefusalCode::Full, text));
        }
        Ok(self.0.insert(number, hold))
    }

    /// Ends a hold.
    pub(super) fn end(&mut self, number: u64) -> Option<Hold> {
        self.0.remove(&number)
    }

    /// Ends the holds of a connection.
    pub(super) fn connection_closed(&mut self, connection: ConnectionId) -> Vec<Hold> {
        self.0.extract_if(.., |_, hold| hold.connection == connection).map(|(_, hold)| hold).collect()
    }

    /// A segment of a table that is held.
    pub(super) fn segment(
        &self,
        table: TableId,
        segment: SegmentId,
    ) -> Option<(Arc<TableDefinition>, Arc<StoredSegment>)> {
        self.0.values().flat_map(|hold| &hold.tables).find_map(|holder| {
            let found = holder.segments.get(&segment).filter(|found| found.directory().table == table)?;
            Some((Arc::clone(&holder.definition), Arc::clone(found.stored())))
        })
    }
}
