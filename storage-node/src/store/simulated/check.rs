//! Checks that all bytes that the simulated nodes report are on their devices, and that every table
//! is complete or absent.
//!
//! Invariants
//! - Checksums that nodes report are not trusted: pages are compared with the pages that were
//!   written, and parity cells with parity that is computed from these pages.

use std::collections::{BTreeMap, BTreeSet};

use rackscan_format::{
    codec,
    ids::{SegmentId, TableId},
    label::DATA_OFFSET_BYTES,
    message::{NodeCatalog, NodeTable},
    segment::{Extent, SegmentDirectory},
    stripe_set::{StripeSet, TableMap},
};
use rackscan_stripe::{Cell, xor};

use super::{
    cluster::Cluster,
    library::segment,
    load::{Outcome, TablePlan},
    node::{DEVICES, Failure, SimNode, id},
    power::Party,
    stripes::{CELL_BYTES, Plans, Stripes, cell_of, parity_of},
};

/// The state of the tables of a run, as its client knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    pub(super) wanted: BTreeMap<TableId, TablePlan>,
    /// The loads in order, and the tables that were dropped or about to be.
    events: Vec<Event>,
}

#[derive(Clone, Debug)]
enum Event {
    Loaded(TableId, Outcome),
    /// Whether that was acknowledged.
    Dropped(TableId, bool),
}

impl Ledger {
    pub(super) fn loaded(&mut self, wanted: &TablePlan, outcome: Outcome) {
        self.wanted.insert(wanted.table, wanted.clone());
        self.events.push(Event::Loaded(wanted.table, outcome));
    }

    pub(super) fn dropped(&mut self, table: TableId, is_known: bool) {
        self.events.push(Event::Dropped(table, is_known));
    }

    /// Which tables may be published under a name; `None` if none may be.
    fn possible(&self, name: &str) -> BTreeSet<Option<TableId>> {
        let mut possible = BTreeSet::from([None]);
        for event in &self.events {
            match event {
                Event::Loaded(table, outcome) if self.wanted[table].name == name => match outcome {
                    Outcome::Acknowledged => possible = BTreeSet::from([Some(*table)]),
                    Outcome::Unknown => drop(possible.insert(Some(*table))),
                    Outcome::GivenUp => {}
                },
                Event::Dropped(table, is_known) if self.wanted[table].name == name => {
                    possible.insert(None);
                    if *is_known {
                        possible.remove(&Some(*table));
                    }
                }
                _ => {}
            }
        }
        possible
    }

    /// Tables of which a part may be gone, because a drop has begun.
    fn is_dropped(&self, table: TableId) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Dropped(dropped, _) if *dropped == table))
    }
}

/// The findings of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) tables: u64,
    pub(super) pages: u64,
    pub(super) stripes: u64,
    pub(super) recovered: u64,
}

/// Checks each node and all of them together. Nodes that are down stay down.
pub(super) fn check(cluster: &mut Cluster, ledger: &Ledger, plans: &mut Plans) -> Found {
    let down = cluster.down();
    let places: Vec<Party> = (0..cluster.nodes.len()).filter(|place| !down.contains(place)).collect();
    let catalogs = up(cluster.complete(&places));
    let mut found = Found::default();
    for (place, catalog) in places.iter().zip(&catalogs) {
        // Of published tables more is checked, below.
        let is_alone = |table: &&NodeTable| !table.committed || ledger.is_dropped(table.definition.id);
        for table in catalog.tables.iter().filter(is_alone) {
            found.pages += check_node(cluster, *place, table);
        }
    }
    let names: BTreeSet<&str> = ledger.wanted.values().map(|wanted| wanted.name).collect();
    for name in names {
        let published: BTreeSet<TableId> = catalogs
            .iter()
            .flat_map(|catalog| &catalog.tables)
            .filter(|table| table.committed && table.definition.name == name)
            .map(|table| table.definition.id)
            .collect();
        let possible = ledger.possible(name);
        let is_possible = |table: &Option<TableId>| possible.contains(table);
        assert!(published.len() <= 1, "{name:?} is {published:?} at once, of {possible:?}");
        let table = published.first().copied();
        assert!(is_possible(&table), "{name:?} is {table:?}, not of {possible:?}");
        if let Some(table) = table.filter(|table| !ledger.is_dropped(*table)) {
            check_table(cluster, (&ledger.wanted[&table], &catalogs), &down, plans, &mut found);
        }
    }
    found
}

/// Checks that the last acknowledged table is known to enough nodes that one of them remains,
/// whichever are lost next.
pub(super) fn check_known(cluster: &mut Cluster, ledger: &Ledger) {
    let Some(Event::Loaded(table, Outcome::Acknowledged)) = ledger.events.last() else { return };
    let down = cluster.down();
    let places: Vec<Party> = (0..cluster.nodes.len()).filter(|place| !down.contains(place)).collect();
    let knows = |catalog: &&NodeCatalog| {
        catalog.tables.iter().any(|known| known.committed && known.definition.id == *table)
    };
    let known = up(cluster.catalogs(&places)).iter().filter(knows).count();
    let lost_max = parity_of(cluster.setting.protection).lost_max();
    assert!(known + down.len() > lost_max, "{known} nodes know table {table}, which was acknowledged");
    assert!(known > 0 || down.len() > lost_max, "nobody knows table {table}, which was acknowledged");
}

fn up<T>(answer: Result<T, Failure>) -> T {
    answer.unwrap_or_else(|failure| panic!("everybody has power: {failure:?}"))
}

fn bytes(cluster: &mut Cluster, place: Party, extent: &Extent) -> Vec<u8> {
    up(cluster.nodes[place].bytes(extent))
}

/// Checks that a node has what it claims of a table, published or only prepared. Returns the
/// numbers of pages and cells.
fn check_node(cluster: &mut Cluster, place: Party, table: &NodeTable) -> u64 {
    let (table_id, node) = (table.definition.id, id(place));
    let map = cluster.nodes[place].map(table_id);
    assert!(map.is_ok(), "node {node} has lost the map of table {table_id}: {map:?}");
    let beside = table.sets.iter().flat_map(|set| &set.beside);
    let directories = table.segments.iter().map(|segment| &segment.directory).chain(beside);
    let mut checked = 0;
    for directory in directories {
        let expected = segment(directory.table, directory.segment, directory.rows);
        let entries = directory.chunks.iter().flat_map(|chunk| &chunk.pages);
        for (entry, page) in entries.zip(&expected.pages) {
            let (found, name) = (bytes(cluster, place, &entry.extent), directory.segment);
            let state = if table.committed { "published" } else { "prepared" };
            assert!(
                found == *page,
                "a page of segment {name} of table {} is not on node {node}, in {state} table {table_id}",
                directory.table
            );
            checked += 1;
        }
    }
    for set in &table.sets {
        for (number, cell) in set.parity.iter().enumerate() {
            let found = codec::checksum(&bytes(cluster, place, &cell.extent));
            assert!(
                found == cell.checksum,
                "cell {number} of parity of set {} is not on node {node}",
                set.id
            );
            checked += 1;
        }
    }
    checked
}

/// Checks that a published table is what was loaded, that its stripes add up, and that every page
/// can be rebuilt without any set of nodes whose loss its parity tolerates.
fn check_table(
    cluster: &mut Cluster,
    (wanted, catalogs): (&TablePlan, &[NodeCatalog]),
    down: &[Party],
    plans: &mut Plans,
    found: &mut Found,
) {
    let maps: BTreeSet<Vec<u8>> = (0..cluster.nodes.len())
        .filter(|place| !down.contains(place))
        .map(|place| up(cluster.nodes[place].map(wanted.table)).to_vec())
        .collect();
    assert_eq!(maps.len(), 1, "nodes have different maps of table {}", wanted.table);
    let map = maps.first().map(|bytes| TableMap::decode_envelope(bytes).unwrap()).unwrap();
    let mut expected: BTreeSet<(Party, TableId, SegmentId)> =
        wanted.appends.iter().map(|append| (append.0, wanted.table, append.1)).collect();
    expected.extend(wanted.keeps.iter().map(|keep| (keep.0, keep.1, keep.2)));
    let parts = map.parts.iter().enumerate();
    let listed = parts.flat_map(|(place, part)| {
        part.segments.iter().map(move |held| (place, held.directory.table, held.directory.segment))
    });
    assert_eq!(listed.collect::<BTreeSet<_>>(), expected, "the segments of table {}", wanted.table);
    for catalog in catalogs {
        let has = catalog.tables.iter().any(|table| table.committed && table.definition == map.definition);
        assert!(has, "node {} does not have its part of table {}", catalog.node, wanted.table);
    }
    let directories: BTreeMap<(TableId, SegmentId), &SegmentDirectory> = map
        .parts
        .iter()
        .flat_map(|part| part.segments.iter().map(|held| &held.directory).chain(&part.beside))
        .map(|directory| ((directory.table, directory.segment), directory))
        .collect();
    for set in &map.sets {
        let streams = set.streams.iter().map(|stream| {
            let mut bytes = Vec::new();
            for named in &stream.segments {
                let rows = directories[&(named.table, named.segment)].rows;
                let segment = segment(named.table, named.segment, rows);
                segment.pages.iter().for_each(|page| bytes.extend_from_slice(page));
            }
            bytes
        });
        let streams: Vec<Vec<u8>> = streams.collect();
        check_set(cluster, (set, &streams), down, plans, found);
    }
    found.tables += 1;
}

/// The cells of a set as they are on the devices: streams and parity of the available nodes.
struct OnDevices {
    streams: Vec<Vec<u8>>,
    parity: Vec<Vec<Vec<u8>>>,
}

impl OnDevices {
    /// Adds a cell to a sum.
    fn add(&self, sum: &mut [u8], stripes: &Stripes, stripe: usize, cell: Cell) {
        let held = stripes.cells[stripe][&cell];
        let bytes = if held.is_parity {
            &self.parity[held.node][held.index]
        } else {
            cell_of(&self.streams[held.node], held.index)
        };
        xor::xor_into(&mut sum[..bytes.len()], bytes).unwrap();
    }
}

fn check_set(
    cluster: &mut Cluster,
    (set, expected): (&StripeSet, &[Vec<u8>]),
    down: &[Party],
    plans: &mut Plans,
    found: &mut Found,
) {
    let mut there = OnDevices { streams: Vec::new(), parity: Vec::new() };
    for (place, stream) in set.streams.iter().enumerate() {
        let is_there = !down.contains(&place);
        let mut read = |extent| if is_there { bytes(cluster, place, &extent) } else { Vec::new() };
        let mut pages = Vec::new();
        stream.extents().for_each(|extent| pages.extend_from_slice(&read(extent)));
        there.streams.push(pages);
        there.parity.push(stream.parity.iter().map(|cell| read(cell.extent)).collect());
        assert!(
            !is_there || there.streams[place] == expected[place],
            "the stream of set {} is not on node {}",
            set.id,
            stream.node
        );
    }
    let lengths: Vec<usize> = expected.iter().map(Vec::len).collect();
    let stripes = Stripes::over(set.protection, &lengths);
    assert_eq!(stripes.cells.len() as u64, set.stripes, "set {}", set.id);
    for stripe in 0..stripes.cells.len() {
        for equation in stripes.geometry.equations().iter().filter(|_| down.is_empty()) {
            let mut sum = vec![0; CELL_BYTES];
            for cell in equation.cells() {
                there.add(&mut sum, &stripes, stripe, cell);
            }
            assert!(sum.iter().all(|byte| *byte == 0), "stripe {stripe} of set {} lies", set.id);
        }
        found.stripes += 1;
        for lost in losses(cluster.nodes.len(), parity_of(set.protection).lost_max(), down) {
            found.recovered += recover(&there, (&stripes, stripe), &lost, expected, plans);
        }
    }
}

/// The nodes that may be lost: those that are down, and others, as many as tolerated.
fn losses(nodes: usize, most: usize, down: &[Party]) -> Vec<Vec<Party>> {
    let mut losses: BTreeSet<BTreeSet<Party>> = BTreeSet::new();
    for one in 0..nodes {
        for other in 0..nodes {
            let lost: BTreeSet<Party> = down.iter().copied().chain([one, other]).collect();
            if lost.len() <= most {
                losses.insert(lost);
            }
        }
    }
    losses.into_iter().map(|lost| lost.into_iter().collect()).collect()
}

/// Rebuilds every data cell of the lost nodes from cells of the others. Returns how many.
fn recover(
    there: &OnDevices,
    (stripes, stripe): (&Stripes, usize),
    lost: &[Party],
    expected: &[Vec<u8>],
    plans: &mut Plans,
) -> u64 {
    let (columns, plan) = plans.of(&stripes.geometry, stripe, lost);
    assert!(plan.beyond.is_empty(), "the parity bears the loss of {lost:?}");
    let mut known: BTreeMap<Cell, Vec<u8>> = BTreeMap::new();
    for repair in &plan.repairs {
        let mut sum = vec![0; CELL_BYTES];
        for cell in &repair.from {
            if columns.has(cell.column) {
                xor::xor_into(&mut sum, &known[cell]).unwrap();
            } else {
                there.add(&mut sum, stripes, stripe, *cell);
            }
        }
        known.insert(repair.cell, sum);
    }
    let data = stripes.cells[stripe].iter().filter(|(_, held)| lost.contains(&held.node) && !held.is_parity);
    let mut recovered = 0;
    for (cell, held) in data {
        let (right, found) = (cell_of(&expected[held.node], held.index), &known[cell]);
        let is_right = found[..right.len()] == *right && found[right.len()..].iter().all(|byte| *byte == 0);
        assert!(is_right, "{cell:?} of stripe {stripe} comes back otherwise without {lost:?}");
        recovered += 1;
    }
    recovered
}

/// Checks that nothing is in use on any node except what tables have, once prepared tables are
/// forgotten.
pub(super) fn check_room(cluster: &mut Cluster) {
    up(cluster.forget_prepared(|_| true));
    for place in 0..cluster.nodes.len() {
        let catalog = up(cluster.nodes[place].catalog());
        let mut extents: BTreeSet<(u8, u64, u32)> = BTreeSet::new();
        let mut add = |extent: &Extent| {
            extents.insert((extent.device.0, extent.offset_bytes, extent.length_bytes));
        };
        for table in &catalog.tables {
            let beside = table.sets.iter().flat_map(|set| &set.beside);
            let directories = table.segments.iter().map(|segment| &segment.directory).chain(beside);
            let pages = directories.flat_map(|directory| &directory.chunks).flat_map(|chunk| &chunk.pages);
            pages.for_each(|page| add(&page.extent));
            table.sets.iter().flat_map(|set| &set.parity).for_each(|cell| add(&cell.extent));
        }
        let scratch = up(cluster.nodes[place].scratch());
        let scratch = scratch.map_or(0, |area| area.length_bytes);
        let tables: u64 = extents.iter().map(|extent| u64::from(extent.2)).sum();
        let expected = DEVICES as u64 * DATA_OFFSET_BYTES + scratch + tables;
        assert_eq!(up(cluster.nodes[place].used_bytes()), expected, "bytes in use at node {}", id(place));
    }
}

/// Checks that the published tables are the same as before.
pub(super) fn published(cluster: &mut Cluster) -> Vec<Vec<TableId>> {
    let of = |node: &mut SimNode| {
        let tables = up(node.catalog()).tables;
        tables.into_iter().filter(|table| table.committed).map(|table| table.definition.id).collect()
    };
    cluster.nodes.iter_mut().map(of).collect()
}
