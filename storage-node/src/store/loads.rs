//! Which segments have arrived but are not part of a table yet?
//!
//! A load lives in memory only: a crash forgets it, and its extents are free again. It also ends when the last connection
//! that appended to it is gone, so that a loader that dies does not keep the room it filled.
//!
//! Invariants
//! - At most `LOADS_MAX` loads; each segment at most once.
//! - An aborted load takes nothing more, however late an append of it ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use rackscan_format::{
    ids::{SegmentId, TableId},
    message::{Refusal, RefusalCode},
};

use super::allocate::StoredSegment;
use crate::limits::LOADS_MAX;

/// Names a connection for as long as the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId(pub(crate) u64);

/// One load in progress.
#[derive(Debug, Default)]
struct Load {
    segments: BTreeMap<SegmentId, Arc<StoredSegment>>,
    connections: BTreeSet<ConnectionId>,
    appending: usize,
    aborted: bool,
}

/// All loads in progress.
#[derive(Debug, Default)]
pub(super) struct Loads {
    loads: BTreeMap<TableId, Load>,
}

impl Loads {
    /// An append of this load begins.
    pub(super) fn begin(&mut self, load: TableId, from: ConnectionId) -> Result<(), Refusal> {
        let count = self.loads.len();
        if !self.loads.contains_key(&load) && count >= LOADS_MAX {
            let text =
                format!("{count} loads are in progress at this node, at most {LOADS_MAX} are possible");
            return Err(Refusal::new(RefusalCode::Busy, text));
        }
        let entry = self.loads.entry(load).or_default();
        if entry.aborted {
            return Err(aborted(load));
        }
        entry.connections.insert(from);
        entry.appending += 1;
        Ok(())
    }

    /// An append has ended, with a segment or without.
    pub(super) fn end(&mut self, load: TableId, segment: Option<Arc<StoredSegment>>) -> Result<(), Refusal> {
        let Some(entry) = self.loads.get_mut(&load) else { return Err(aborted(load)) };
        entry.appending = entry.appending.saturating_sub(1);
        let outcome = match segment {
            Some(_) if entry.aborted => Err(aborted(load)),
            Some(segment) => {
                let id = segment.directory().segment;
                if let std::collections::btree_map::Entry::Vacant(free) = entry.segments.entry(id) {
                    free.insert(segment);
                    Ok(())
                } else {
                    let text = format!("segment {id} of load {load} has been appended before");
                    Err(Refusal::new(RefusalCode::Malformed, text))
                }
            }
            None => Ok(()),
        };
        if entry.appending == 0 && (entry.aborted || entry.segments.is_empty()) {
            self.loads.remove(&load);
        }
        outcome
    }

    /// Forgets a load; its extents are free once its running appends have ended.
    pub(super) fn abort(&mut self, load: TableId) {
        let Some(entry) = self.loads.get_mut(&load) else { return };
        entry.segments.clear();
        entry.aborted = true;
        if entry.appending == 0 {
            self.loads.remove(&load);
        }
    }

    /// Forgets the loads that only this connection appended to.
    pub(super) fn connection_closed(&mut self, connection: ConnectionId) {
        let orphan = |load: &mut Load| {
            load.connections.remove(&connection) && load.connections.is_empty() && !load.aborted
        };
        let orphans: Vec<TableId> =
            self.loads.iter_mut().filter_map(|(id, load)| orphan(load).then_some(*id)).collect();
        for load in orphans {
            tracing::warn!(%load, "the connections of a load are gone; it is forgotten");
            self.abort(load);
        }
    }

    /// The segments of a load that is complete, if there are as many as expected.
    pub(super) fn complete(
        &self,
        load: TableId,
        expected: usize,
    ) -> Result<BTreeMap<SegmentId, Arc<StoredSegment>>, Refusal> {
        let Some(entry) = self.loads.get(&load).filter(|entry| !entry.aborted) else {
            if expected == 0 {
                return Ok(BTreeMap::new());
            }
            let text =
                format!("load {load} is not known here, expected {expected} segments of it; load anew");
            return Err(Refusal::new(RefusalCode::NotFound, text));
        };
        let found = entry.segments.len();
        if entry.appending > 0 || found != expected {
            let text = format!(
                "load {load} has {found} segments here and {} being appended, expected {expected}; load anew",
                entry.appending
            );
            return Err(Refusal::new(RefusalCode::Malformed, text));
        }
        Ok(entry.segments.clone())
    }

    /// A load has become a table.
    pub(super) fn published(&mut self, load: TableId) {
        self.loads.remove(&load);
    }
}

fn aborted(load: TableId) -> Refusal {
    Refusal::new(
        RefusalCode::NotFound,
        format!("load {load} was aborted or its connection was lost; load anew"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::allocate::{Room, Space};
    use rackscan_format::segment::SegmentDirectory;

    const LOAD: TableId = TableId(9);
    const LOADER: ConnectionId = ConnectionId(1);

    fn segment(id: u32) -> Option<Arc<StoredSegment>> {
        let rooms = vec![Room { path: "d".into(), capacity_bytes: 1 << 20 }];
        let space = Arc::new(Space::new(rooms, 1 << 20, Arc::default()));
        let directory = SegmentDirectory { table: LOAD, segment: SegmentId(id), rows: 1, chunks: vec![] };
        Some(Arc::new(StoredSegment::allocate(directory, &space).unwrap()))
    }

    #[test]
    fn a_load_is_complete_only_with_every_segment_and_nothing_under_way() {
        let mut loads = Loads::default();
        loads.begin(LOAD, LOADER).unwrap();
        loads.begin(LOAD, LOADER).unwrap();
        loads.end(LOAD, segment(1)).unwrap();
        assert_eq!(loads.complete(LOAD, 1).unwrap_err().code, RefusalCode::Malformed);
        assert_eq!(loads.end(LOAD, segment(1)).unwrap_err().code, RefusalCode::Malformed);
        assert_eq!(loads.complete(LOAD, 1).unwrap().len(), 1);
        assert_eq!(loads.complete(LOAD, 2).unwrap_err().code, RefusalCode::Malformed);
        assert_eq!(loads.complete(TableId(10), 1).unwrap_err().code, RefusalCode::NotFound);
        assert!(loads.complete(TableId(10), 0).unwrap().is_empty(), "a node may hold no segment of a table");
    }

    #[test]
    fn an_aborted_load_takes_nothing_more() {
        let mut loads = Loads::default();
        loads.begin(LOAD, LOADER).unwrap();
        loads.abort(LOAD);
        assert_eq!(loads.begin(LOAD, LOADER).unwrap_err().code, RefusalCode::NotFound);
        assert_eq!(loads.end(LOAD, segment(1)).unwrap_err().code, RefusalCode::NotFound);
        assert!(loads.loads.is_empty());
    }

    #[test]
    fn a_load_ends_with_the_last_connection_that_appended_to_it() {
        let mut loads = Loads::default();
        let other = ConnectionId(2);
        for (from, id) in [(LOADER, 1), (other, 2)] {
            loads.begin(LOAD, from).unwrap();
            loads.end(LOAD, segment(id)).unwrap();
        }
        loads.connection_closed(LOADER);
        assert_eq!(loads.complete(LOAD, 2).unwrap().len(), 2);
        loads.connection_closed(other);
        assert!(loads.loads.is_empty());
    }
}
