//! Tracks loads in progress: the segments, parity cells and maps that have arrived and are not part
//! of a table yet.
//!
//! A load exists in memory only: a crash forgets it and frees its extents. It also ends when the
//! last connection that appended to it is closed, so that a client that dies does not keep the
//! space it filled.
//!
//! Invariants
//! - There are at most `LOADS_MAX` loads. Each segment arrives at most once, appended or reused
//!   from the previous table version, and so does each parity cell.
//! - A map counts only when its file is durable.
//! - An aborted load accepts nothing more, even from an append that ends later, and becomes no
//!   table. The last `ABORTED_LOADS_MAX` aborted loads are remembered.

mod parity;

pub(crate) use parity::ParityCells;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Bound,
    sync::Arc,
};

use rackscan_format::{
    codec::{self, CodecError, Envelope},
    ids::{SegmentId, TableId},
    limits::MAP_BYTES_MAX,
    message::{Refusal, RefusalCode},
};

use super::{
    allocate::{MetadataShare, Space, StoredSegment},
    catalog_content::NodeSegmentRef,
    protected::{KeptMap, Parity},
    table_segment::TableSegment,
};
use crate::{
    ids::ConnectionId,
    limits::{ABORTED_LOADS_MAX, LOADS_MAX},
};

/// The maximum overhead of an encoded list, in bytes.
const HELD_OVERHEAD_BYTES: u64 = codec::ENVELOPE_BYTES as u64 + 10;

/// A segment that has arrived.
#[derive(Debug)]
pub(crate) struct Arrived {
    segment: TableSegment,
    /// The table of which it is kept, if any.
    of: Option<TableId>,
}

impl Arrived {
    /// A segment that was written for the load.
    pub(crate) fn appended(stored: Arc<StoredSegment>) -> Self {
        Self { segment: TableSegment::written(stored), of: None }
    }

    /// A segment that is kept of another table.
    pub(crate) fn kept(segment: TableSegment, of: TableId) -> Self {
        Self { segment, of: Some(of) }
    }
}

/// One load in progress.
#[derive(Debug, Default)]
struct Load {
    segments: BTreeMap<SegmentId, Arrived>,
    connections: BTreeSet<ConnectionId>,
    appending: usize,
    aborted: bool,
    parity: Parity,
    map: LoadMap,
}

/// The state of the map of a load's table.
#[derive(Debug, Default)]
enum LoadMap {
    #[default]
    None,
    /// These bytes of it have arrived, of `total_bytes`.
    Arriving { bytes: Vec<u8>, total_bytes: u64, memory: MetadataShare },
    /// Its file is durable.
    Kept(Arc<KeptMap>),
}

impl Load {
    fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.parity.is_empty() && matches!(self.map, LoadMap::None)
    }

    /// Adds a piece of the map. Returns whether it was the last one.
    fn take_piece(
        &mut self,
        load: TableId,
        (from_bytes, total_bytes): (u64, u64),
        piece: &[u8],
        space: &Arc<Space>,
    ) -> Result<bool, Refusal> {
        let malformed = |text: String| Err(Refusal::new(RefusalCode::Malformed, text));
        if from_bytes == 0 {
            if total_bytes == 0 || total_bytes > MAP_BYTES_MAX {
                return malformed(format!(
                    "the map of a table has {total_bytes} bytes, expected 1 to {MAP_BYTES_MAX}"
                ));
            }
            let memory = space.share(total_bytes);
            let memory = memory.map_err(|full| Refusal::new(RefusalCode::Full, full.to_string()))?;
            self.map = LoadMap::Arriving { bytes: Vec::new(), total_bytes, memory };
        }
        let LoadMap::Arriving { bytes, total_bytes: total, .. } = &mut self.map else {
            return malformed(format!(
                "a later piece of the map of load {load} has arrived, expected its first piece"
            ));
        };
        let end = from_bytes.checked_add(piece.len() as u64);
        if *total != total_bytes
            || bytes.len() as u64 != from_bytes
            || end.is_none_or(|end| end > total_bytes)
        {
            return malformed(format!(
                "bytes {from_bytes}..+{} of a map of {total_bytes} bytes do not follow: {} of {total} have arrived",
                piece.len(),
                bytes.len()
            ));
        }
        bytes.extend_from_slice(piece);
        Ok(end == Some(total_bytes))
    }

    /// Withholds rows of a segment that was appended.
    fn withhold(&mut self, load: TableId, arrived: Arrived) -> Result<(), Refusal> {
        let id = arrived.segment.directory().segment;
        match self.segments.get_mut(&id).filter(|known| known.of.is_none()) {
            Some(known) => {
                known.segment = arrived.segment;
                Ok(())
            }
            None => Err(Refusal::new(
                RefusalCode::NotFound,
                format!("load {load} has written no segment {id} here"),
            )),
        }
    }
}

/// All loads in progress.
#[derive(Debug, Default)]
pub(super) struct Loads {
    loads: BTreeMap<TableId, Load>,
    /// The loads that were aborted last.
    aborted: VecDeque<TableId>,
}

impl Loads {
    /// An append of this load begins.
    pub(super) fn begin(&mut self, load: TableId, from: ConnectionId) -> Result<(), Refusal> {
        if self.aborted.contains(&load) {
            return Err(aborted(load));
        }
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

    /// Ends an append, with a segment or without.
    pub(super) fn end(&mut self, load: TableId, arrived: Option<Arrived>) -> Result<(), Refusal> {
        let Some(entry) = self.loads.get_mut(&load) else { return Err(aborted(load)) };
        entry.appending = entry.appending.saturating_sub(1);
        let outcome = match arrived {
            Some(_) if entry.aborted => Err(aborted(load)),
            Some(arrived) => {
                let id = arrived.segment.directory().segment;
                if arrived.of == Some(load) {
                    return entry.withhold(load, arrived);
                }
                if let std::collections::btree_map::Entry::Vacant(free) = entry.segments.entry(id) {
                    free.insert(arrived);
                    Ok(())
                } else {
                    let text = format!("segment {id} of load {load} has been appended or kept before");
                    Err(Refusal::new(RefusalCode::Malformed, text))
                }
            }
            None => Ok(()),
        };
        self.settle(load);
        outcome
    }

    /// Forgets a load without running appends, if it is aborted or empty.
    fn settle(&mut self, load: TableId) {
        let over = |entry: &Load| entry.appending == 0 && (entry.aborted || entry.is_empty());
        if self.loads.get(&load).is_some_and(over) {
            self.loads.remove(&load);
        }
    }

    /// Adds a piece of a map. Returns whether it was the last one.
    pub(super) fn end_map_piece(
        &mut self,
        load: TableId,
        place: (u64, u64),
        piece: &[u8],
        space: &Arc<Space>,
    ) -> Result<bool, Refusal> {
        let Some(entry) = self.loads.get_mut(&load) else { return Err(aborted(load)) };
        entry.appending = entry.appending.saturating_sub(1);
        let outcome =
            if entry.aborted { Err(aborted(load)) } else { entry.take_piece(load, place, piece, space) };
        self.settle(load);
        outcome
    }

    /// Takes the map of a load, all of which has arrived, until [`Loads::map_kept`] returns it.
    pub(super) fn take_map(&mut self, load: TableId) -> Result<KeptMap, Refusal> {
        let Some(entry) = self.loads.get_mut(&load).filter(|entry| !entry.aborted) else {
            return Err(aborted(load));
        };
        match std::mem::take(&mut entry.map) {
            LoadMap::Arriving { bytes, total_bytes, memory } if bytes.len() as u64 == total_bytes => {
                Ok(KeptMap { bytes: Arc::new(bytes), _memory: memory })
            }
            other => {
                entry.map = other;
                let text = format!("the map of load {load} has not arrived completely");
                Err(Refusal::new(RefusalCode::Malformed, text))
            }
        }
    }

    /// Records that the map of a load is durable.
    pub(super) fn map_kept(&mut self, load: TableId, map: KeptMap) -> Result<(), Refusal> {
        let Some(entry) = self.loads.get_mut(&load).filter(|entry| !entry.aborted) else {
            return Err(aborted(load));
        };
        entry.map = LoadMap::Kept(Arc::new(map));
        Ok(())
    }

    /// The durable map of a load, and its cells of parity.
    pub(super) fn protection(&self, load: TableId) -> Result<(Arc<KeptMap>, Parity), Refusal> {
        match self.loads.get(&load).filter(|entry| !entry.aborted) {
            Some(Load { map: LoadMap::Kept(map), parity, .. }) => Ok((Arc::clone(map), parity.clone())),
            _ => {
                let text = format!(
                    "the map of load {load} is not here; a protected table needs it before it is prepared"
                );
                Err(Refusal::new(RefusalCode::Malformed, text))
            }
        }
    }

    /// Whether a load is in progress.
    pub(super) fn has(&self, load: TableId) -> bool {
        self.loads.contains_key(&load)
    }

    /// See [`super::Store::load_held`].
    pub(super) fn held(
        &self,
        load: TableId,
        after: Option<SegmentId>,
        bytes_max: u64,
    ) -> Result<(Vec<u8>, Option<SegmentId>), Refusal> {
        let storage = |error: CodecError| Refusal::new(RefusalCode::Storage, error.to_string());
        let (mut fitting, mut bytes, mut next) = (Vec::new(), HELD_OVERHEAD_BYTES, None);
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let entry = self.loads.get(&load).filter(|entry| !entry.aborted);
        let segments = entry.into_iter().flat_map(|entry| entry.segments.range((from, Bound::Unbounded)));
        for (id, arrived) in segments {
            let told = NodeSegmentRef::of(&arrived.segment);
            bytes += codec::encode(&told).map_err(storage)?.len() as u64;
            if bytes > bytes_max {
                if fitting.is_empty() {
                    let text = format!(
                        "segment {id} of load {load} takes {bytes} bytes, the target has {bytes_max}"
                    );
                    let mut refusal = Refusal::new(RefusalCode::TargetTooSmall, text);
                    refusal.needed_bytes = bytes;
                    return Err(refusal);
                }
                return Ok((codec::encode_envelope(Envelope::LoadHeld, &fitting).map_err(storage)?, next));
            }
            fitting.push(told);
            next = Some(*id);
        }
        Ok((codec::encode_envelope(Envelope::LoadHeld, &fitting).map_err(storage)?, None))
    }

    /// Aborts a load: its extents are freed when its running appends have ended.
    pub(super) fn abort(&mut self, load: TableId) {
        if !self.aborted.contains(&load) {
            self.aborted.push_back(load);
        }
        if self.aborted.len() > ABORTED_LOADS_MAX {
            self.aborted.pop_front();
        }
        self.forget(load);
    }

    fn forget(&mut self, load: TableId) {
        let Some(entry) = self.loads.get_mut(&load) else { return };
        entry.segments.clear();
        entry.parity.clear();
        entry.map = LoadMap::None;
        entry.aborted = true;
        if entry.appending == 0 {
            self.loads.remove(&load);
        }
    }

    /// Forgets the loads that only this connection appended to.
    pub(super) fn connection_closed(&mut self, connection: ConnectionId) {
        let is_abandoned = |load: &mut Load| {
            load.connections.remove(&connection) && load.connections.is_empty() && !load.aborted
        };
        let abandoned: Vec<TableId> =
            self.loads.iter_mut().filter_map(|(id, load)| is_abandoned(load).then_some(*id)).collect();
        for load in abandoned {
            tracing::warn!(%load, "a load is forgotten, because its connections are closed");
            self.forget(load);
        }
    }

    /// The segments of a complete load, if there are as many as expected and kept ones are of the
    /// table that it succeeds.
    pub(super) fn complete(
        &self,
        load: TableId,
        expected: usize,
        succeeds: Option<TableId>,
    ) -> Result<BTreeMap<SegmentId, TableSegment>, Refusal> {
        if self.aborted.contains(&load) {
            return Err(aborted(load));
        }
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
        if let Some((id, of)) = entry
            .segments
            .iter()
            .find_map(|(id, arrived)| Some((id, arrived.of.filter(|of| Some(*of) != succeeds)?)))
        {
            let expected = succeeds.map_or("no table".to_owned(), |table| format!("table {table}"));
            let text = format!(
                "load {load} reuses segment {id} of table {of}, expected {expected}, which the load succeeds (replaces)"
            );
            return Err(Refusal::new(RefusalCode::Malformed, text));
        }
        Ok(entry.segments.iter().map(|(id, arrived)| (*id, arrived.segment.clone())).collect())
    }

    /// A segment that was appended to a load.
    pub(super) fn appended(&self, load: TableId, segment: SegmentId) -> Option<TableSegment> {
        let arrived = self.loads.get(&load)?.segments.get(&segment)?;
        arrived.of.is_none().then(|| arrived.segment.clone())
    }

    /// Forgets a load that has become a table.
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
    use crate::store::free_extents::DeviceCapacity;
    use rackscan_format::segment::SegmentDirectory;

    const LOAD: TableId = TableId(9);
    const LOADER: ConnectionId = ConnectionId(1);

    fn segment(id: u32) -> Option<Arrived> {
        let capacities = vec![DeviceCapacity { path: "d".into(), capacity_bytes: 1 << 20, is_sparse: true }];
        let space = Arc::new(Space::new(capacities, 1 << 20, Arc::default()));
        let directory = SegmentDirectory { table: LOAD, segment: SegmentId(id), rows: 1, chunks: vec![] };
        Some(Arrived::appended(Arc::new(StoredSegment::allocate(directory, &space).unwrap())))
    }

    #[test]
    fn a_load_is_complete_only_with_every_segment_and_nothing_under_way() {
        let mut loads = Loads::default();
        loads.begin(LOAD, LOADER).unwrap();
        loads.begin(LOAD, LOADER).unwrap();
        loads.end(LOAD, segment(1)).unwrap();
        assert_eq!(loads.complete(LOAD, 1, None).unwrap_err().code, RefusalCode::Malformed);
        assert_eq!(loads.end(LOAD, segment(1)).unwrap_err().code, RefusalCode::Malformed);
        assert_eq!(loads.complete(LOAD, 1, None).unwrap().len(), 1);
        assert_eq!(loads.complete(LOAD, 2, None).unwrap_err().code, RefusalCode::Malformed);
        assert_eq!(loads.complete(TableId(10), 1, None).unwrap_err().code, RefusalCode::NotFound);
        assert!(
            loads.complete(TableId(10), 0, None).unwrap().is_empty(),
            "a node may hold no segment of a table"
        );
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
    fn aborted_loads_are_remembered_each_once_and_the_oldest_is_forgotten_first() {
        let mut loads = Loads::default();
        let last = TableId(u32::try_from(ABORTED_LOADS_MAX).unwrap());
        for load in (0..=last.0).flat_map(|load| [load, load]) {
            loads.abort(TableId(load));
        }
        assert_eq!(loads.aborted.len(), ABORTED_LOADS_MAX);
        for remembered in [TableId(1), last] {
            assert_eq!(loads.begin(remembered, LOADER).unwrap_err().code, RefusalCode::NotFound);
            assert_eq!(loads.complete(remembered, 0, None).unwrap_err().code, RefusalCode::NotFound);
        }
        assert!(loads.complete(TableId(0), 0, None).is_ok());
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
        assert_eq!(loads.complete(LOAD, 2, None).unwrap().len(), 2);
        loads.connection_closed(other);
        assert!(loads.loads.is_empty());
    }
}
