//! Simulates a client that loads a protected table, step by step.
//!
//! It does the same as `client/load`, `client/protected/protect` and `client/protected/parity`.
//! Requests that the real client has in flight at the same time are executed here one after the
//! other, in an order that the seed determines, and all of them even if one fails.
//!
//! Invariants
//! - The requests to nodes, and their order, are those of the client.

use std::{collections::BTreeSet, sync::Arc};

use rackscan_format::{
    codec,
    ids::{SegmentId, TableId},
    message::ReserveParity,
    schema::TableDefinition,
    segment::SegmentDirectory,
    stripe_set::{NodeStream, ParityCell, SetId, StreamSegment, StripeSet, TableMap, TablePart},
    withheld::WithheldRows,
};

use super::{
    super::ParityCells,
    cluster::Cluster,
    library::{definition, segment},
    node::{Failure, SimNode, id},
    power::Party,
    stripes::{CELL_BYTES, Stripes, cell_of, parity_of},
};

/// A table that is to be loaded.
#[derive(Clone, Debug)]
pub(super) struct TablePlan {
    pub(super) table: TableId,
    pub(super) name: &'static str,
    pub(super) succeeds: Option<TableId>,
    /// Segments to write: at which node, number and rows.
    pub(super) appends: Vec<(Party, SegmentId, u32)>,
    /// Segments to keep: at which node, the table under which it was written, number, rows and
    /// those withheld.
    pub(super) keeps: Vec<(Party, TableId, SegmentId, u32, WithheldRows)>,
    /// After so many segments, parity is computed for those that are there.
    pub(super) protect_after: Option<usize>,
    /// Whether nodes make its parity among themselves, instead of the client.
    pub(super) is_relayed: bool,
    /// Whether it is given up when it is prepared everywhere.
    pub(super) is_given_up: bool,
    pub(super) defect: Option<Defect>,
}

/// A defect of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Defect {
    /// It commits when the first node has prepared.
    CommitsEarly,
    /// It leaves an input out of each sum.
    SumsLess,
    /// It does not wait for the maps, and sends them when all nodes have prepared.
    MapsLate,
}

/// The outcome of a load, as its client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Acknowledged,
    /// It was aborted before it could be committed.
    GivenUp,
    /// Unknown.
    Unknown,
}

/// A load that nobody knows.
const OTHER: TableId = TableId(81);

/// A load under way.
pub(super) struct Load<'c> {
    cluster: &'c mut Cluster,
    wanted: &'c TablePlan,
    definition: TableDefinition,
    before: Vec<StripeSet>,
    own: Vec<StripeSet>,
}

/// Loads a table.
pub(super) fn load(cluster: &mut Cluster, wanted: &TablePlan) -> Outcome {
    let (nodes, protection) = (cluster.setting.nodes, cluster.setting.protection);
    let mut definition = definition(wanted.table, wanted.name, nodes, protection);
    definition.succeeds = wanted.succeeds;
    let mut load = Load { cluster, wanted, definition, before: Vec::new(), own: Vec::new() };
    if load.cluster.forget_left(&load.definition.clone()).is_err() {
        return Outcome::GivenUp;
    }
    if load.prepare().is_err() || wanted.is_given_up {
        load.forget();
        return Outcome::GivenUp;
    }
    load.commit()
}

impl Load<'_> {
    fn prepare(&mut self) -> Result<(), Failure> {
        self.write()?;
        let rows = self.wanted.appends.iter().map(|append| append.2);
        let rows = rows.chain(self.wanted.keeps.iter().map(|keep| keep.3));
        self.definition.rows = rows.map(u64::from).sum();
        let map = self.map()?;
        let is_late = self.wanted.defect == Some(Defect::MapsLate);
        if !is_late {
            self.at_all(|node, load| node.keep_map(load.id, &map))?;
        }
        // Others change the catalog, too, and files that nobody wants are removed.
        self.at_all(|node, _| node.abort(OTHER))?;
        let of = |place| {
            let appends = self.wanted.appends.iter().filter(|append| append.0 == place).count();
            appends + self.wanted.keeps.iter().filter(|keep| keep.0 == place).count()
        };
        let counts: Vec<usize> = (0..self.cluster.nodes.len()).map(of).collect();
        if self.wanted.defect == Some(Defect::CommitsEarly) {
            let (load, count) = (self.definition.clone(), counts[0]);
            self.cluster.ask(0, |node| node.prepare(&load, count))?;
            self.cluster.ask(0, |node| node.commit(load.id))?;
        }
        let mut first = Ok(());
        for place in self.cluster.in_any_order() {
            let (load, count) = (&self.definition, counts[place]);
            first = first.and(self.cluster.ask(place, |node| node.prepare(load, count)));
        }
        first?;
        if is_late { self.at_all(|node, load| node.keep_map(load.id, &map)) } else { Ok(()) }
    }

    /// Runs the same request at all nodes, whether others fail or not.
    fn at_all(
        &mut self,
        what: impl Fn(&mut SimNode, &TableDefinition) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut first = Ok(());
        for place in self.cluster.in_any_order() {
            let load = &self.definition;
            first = first.and(self.cluster.ask(place, |node| what(node, load)));
        }
        first
    }

    /// Writes and keeps segments, and protects those that are there from time to time.
    fn write(&mut self) -> Result<(), Failure> {
        let (load, wanted) = (self.definition.id, self.wanted);
        let mut order: Vec<usize> = (0..wanted.keeps.len() + wanted.appends.len()).collect();
        self.cluster.random.shuffle(&mut order);
        for (done, at) in order.into_iter().enumerate() {
            if wanted.protect_after == Some(done) {
                self.protect_rest()?;
            }
            if let Some((place, _, number, _, withheld)) = wanted.keeps.get(at) {
                let of = wanted.succeeds.expect("it keeps segments of another one");
                self.cluster.ask(*place, |node| node.keep(load, of, *number, withheld.clone()))?;
                continue;
            }
            let (place, number, rows) = wanted.appends[at - wanted.keeps.len()];
            let segment = segment(load, number, rows);
            self.cluster.ask(place, |node| node.append(load, &segment.directory, &segment.pages))?;
        }
        Ok(())
    }

    fn map_before(&mut self) -> Result<Option<TableMap>, Failure> {
        let Some(before) = self.definition.succeeds else { return Ok(None) };
        let bytes = self.cluster.ask(0, |node| node.map(before))?;
        Ok(Some(TableMap::decode_envelope(&bytes).unwrap()))
    }

    /// Makes parity over all segments that lie in no set. Returns what each node has of the load.
    fn protect_rest(&mut self) -> Result<Vec<TablePart>, Failure> {
        self.before = self.map_before()?.map(|map| map.sets).unwrap_or_default();
        let load = self.definition.id;
        let mut parts = Vec::new();
        for place in 0..self.cluster.nodes.len() {
            let segments = self.cluster.ask(place, |node| node.held(load))?;
            parts.push(TablePart { node: id(place), segments, beside: Vec::new() });
        }
        let sets = || self.before.iter().chain(&self.own);
        let is_new =
            |directory: &&SegmentDirectory| !sets().any(|set| set.has(directory.table, directory.segment));
        let stream = |part: &TablePart| {
            let directories = part.segments.iter().map(|segment| &segment.directory);
            let segments = directories.filter(is_new).map(StreamSegment::of).collect();
            NodeStream { node: part.node, segments, parity: Vec::new(), cells: Vec::new() }
        };
        let streams: Vec<NodeStream> = parts.iter().map(stream).collect();
        if streams.iter().any(|stream| !stream.segments.is_empty()) {
            let set = self.store(streams)?;
            self.own.push(set);
        }
        Ok(parts)
    }

    /// Computes the parity over streams from what lies on the devices, and stores it.
    fn store(&mut self, mut streams: Vec<NodeStream>) -> Result<StripeSet, Failure> {
        let (load, protection) = (self.definition.id, self.cluster.setting.protection);
        let number = u32::try_from(self.own.len()).unwrap();
        let mut bytes = Vec::new();
        for (place, stream) in streams.iter().enumerate() {
            let mut here = Vec::new();
            for extent in stream.extents() {
                here.append(&mut self.cluster.ask(place, |node| node.bytes(&extent))?);
            }
            bytes.push(here);
        }
        let lengths: Vec<usize> = bytes.iter().map(Vec::len).collect();
        let stripes = Stripes::over(protection, &lengths);
        if self.wanted.is_relayed {
            self.reserve(number, &stripes, &mut streams)?;
        }
        for stripe in 0..stripes.cells.len() {
            for place in self.cluster.in_any_order() {
                let kept = stripes.parity(stripe, place);
                let Some((_, first)) = kept.first() else { continue };
                let data = |cell| {
                    let held = stripes.cells[stripe][&cell];
                    match self.wanted.defect {
                        Some(Defect::SumsLess) if held.node == 0 => &[],
                        _ => cell_of(&bytes[held.node], held.index),
                    }
                };
                let sums: Vec<Vec<u8>> = kept.iter().map(|(cell, _)| stripes.sum(*cell, data)).collect();
                let (first_cell, cells) = (u32::try_from(first.index).unwrap(), sums.len());
                let parity = ParityCells { load, set: number, first_cell, cells };
                self.keep_parity(place, &parity, &sums, &mut streams[place])?;
            }
        }
        for (stream, bytes) in streams.iter_mut().zip(&bytes) {
            stream.cells =
                (0..bytes.len().div_ceil(CELL_BYTES)).map(|index| checksum_of(bytes, index)).collect();
        }
        let (set, cell_bytes) = (SetId { load, number }, u32::try_from(CELL_BYTES).unwrap());
        Ok(StripeSet { id: set, protection, cell_bytes, stripes: stripes.cells.len() as u64, streams })
    }

    /// Reserves space for all parity at all nodes, before any is made.
    fn reserve(&mut self, set: u32, stripes: &Stripes, streams: &mut [NodeStream]) -> Result<(), Failure> {
        for place in self.cluster.in_any_order() {
            let cells =
                (0..stripes.cells.len()).map(|stripe| stripes.parity(stripe, place).len()).sum::<usize>();
            if cells == 0 {
                continue;
            }
            let (load, cells) = (self.definition.id, u32::try_from(cells).unwrap());
            let cell_bytes = u32::try_from(CELL_BYTES).unwrap();
            let request = ReserveParity { load, set, first_cell: 0, cells, cell_bytes };
            let extents = self.cluster.ask(place, |node| node.reserve_parity(&request))?;
            let cell = |extent| ParityCell { extent, checksum: 0 };
            streams[place].parity = extents.into_iter().map(cell).collect();
        }
        Ok(())
    }

    /// Stores neighbouring parity cells at a node: in reserved space, or wherever the node
    /// allocates some.
    fn keep_parity(
        &mut self,
        place: Party,
        parity: &ParityCells,
        sums: &[Vec<u8>],
        stream: &mut NodeStream,
    ) -> Result<(), Failure> {
        let checksums = sums.iter().map(|sum| codec::checksum(sum));
        if self.wanted.is_relayed {
            self.cluster.ask(place, |node| node.relay_parity(parity, sums))?;
            let reserved = &mut stream.parity[parity.first_cell as usize..];
            reserved.iter_mut().zip(checksums).for_each(|(cell, checksum)| cell.checksum = checksum);
            return Ok(());
        }
        let ParityCells { load, set, first_cell, .. } = *parity;
        let appended = self.cluster.ask(place, |node| node.append_parity(load, set, first_cell, sums));
        let cells = appended?.into_iter().zip(checksums);
        stream.parity.extend(cells.map(|(extent, checksum)| ParityCell { extent, checksum }));
        Ok(())
    }

    /// The encoded map of the table.
    fn map(&mut self) -> Result<Arc<Vec<u8>>, Failure> {
        let mut parts = self.protect_rest()?;
        let sets = self.before.iter().chain(&self.own);
        let has = |set: &StripeSet, part: &TablePart| {
            part.segments.iter().any(|held| set.has(held.directory.table, held.directory.segment))
        };
        let sets: Vec<StripeSet> =
            sets.filter(|set| parts.iter().any(|part| has(set, part))).cloned().collect();
        if let Some(before) = self.map_before()? {
            for part in &mut parts {
                add_beside(part, &sets, &before);
            }
        }
        let map = TableMap { definition: self.definition.clone(), parts, sets };
        map.verify().unwrap();
        Ok(Arc::new(map.encode_envelope().unwrap()))
    }

    fn forget(&mut self) {
        for place in 0..self.cluster.nodes.len() {
            let load = self.definition.id;
            // Who is gone forgets it when it starts.
            let _ = self.cluster.ask(place, |node| node.abort(load));
        }
    }

    /// Commits at the first node, which decides, then at the others.
    fn commit(&mut self) -> Outcome {
        let load = self.definition.id;
        match self.cluster.ask(0, |node| node.commit(load)) {
            Ok(()) => {}
            Err(Failure::Lost) => return Outcome::Unknown,
            Err(Failure::Refused(refusal)) => panic!("the first node does not commit: {refusal:?}"),
        }
        let mut committed = 1;
        for place in self.cluster.in_any_order().into_iter().filter(|place| *place != 0) {
            committed += usize::from(self.cluster.ask(place, |node| node.commit(load)).is_ok());
        }
        let needed = parity_of(self.cluster.setting.protection).lost_max() + 1;
        if committed >= needed { Outcome::Acknowledged } else { Outcome::Unknown }
    }
}

/// The checksum of a cell of a stream, with the zeros behind its end.
fn checksum_of(stream: &[u8], index: usize) -> u32 {
    let mut cell = cell_of(stream, index).to_vec();
    cell.resize(CELL_BYTES, 0);
    codec::checksum(&cell)
}

/// Adds the directories of segments that stripes have of the table before, and the table has no
/// more.
fn add_beside(part: &mut TablePart, sets: &[StripeSet], before: &TableMap) {
    let streams = sets.iter().flat_map(|set| &set.streams).filter(|stream| stream.node == part.node);
    let segments = streams.flat_map(|stream| &stream.segments);
    let mut wanted: BTreeSet<_> = segments.map(|segment| (segment.table, segment.segment)).collect();
    for kept in &part.segments {
        wanted.remove(&(kept.directory.table, kept.directory.segment));
    }
    let Some(old) = before.part(part.node) else { return };
    let had = old.segments.iter().map(|segment| &segment.directory).chain(&old.beside);
    part.beside = had.filter(|old| wanted.contains(&(old.table, old.segment))).cloned().collect();
}
