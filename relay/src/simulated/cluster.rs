//! Simulates a cluster for the tests: nodes, a writer, and the contents that the disks of the nodes
//! should have at the end.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use rackscan_device::{
    DeviceIndex,
    sim::{CrashImage, FaultRates, SimConfig as DiskConfig, SimDisk, SimIo},
};
use rackscan_fabric::{
    Address, ClusterKey, ConnectError, Connection, Region, RegionSlice,
    sim::{Seed, SimConfig, SimNet},
};
use rackscan_format::ids::NodeId;
use rackscan_stripe::{Cell, Geometry, Node as Turn, Way};

use crate::{
    Answered, Beginning, Calls, Ended, Member, Node, NodeConfig, Place, Places, Refusal, Shape, Store,
    StoredCell, Stripe, StripeName, Task, Writer, task::Transfers,
};

/// More turns than any run takes that goes on.
pub(super) const TURNS_MAX: usize = 200_000;

/// Where a client calls from.
pub(super) const CLIENT: &str = "client";

/// Connects at once, with a function that does not wait.
struct Direct<F> {
    connect: F,
    answers: VecDeque<Answered>,
}

impl<F: FnMut(&Address) -> Result<Connection, ConnectError>> Calls for Direct<F> {
    fn call(&mut self, call: u64, address: &Address) {
        let answer = (self.connect)(address);
        self.answers.push_back((call, answer));
    }

    fn answered(&mut self) -> Option<Answered> {
        self.answers.pop_front()
    }

    fn is_waiting(&self) -> bool {
        !self.answers.is_empty()
    }

    fn hang_up(&mut self, connection: Connection) {
        drop(connection);
    }
}

/// Remembers where cells lie, and how stripes ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    next: u64,
    places: BTreeMap<u64, Vec<(Cell, Vec<Place>)>>,
    pub(super) stored: BTreeMap<u64, Vec<StoredCell>>,
    /// Where the cells lie that exist at the beginning.
    held: BTreeMap<(u64, Cell), Vec<Place>>,
    pub(super) given_up: Vec<u64>,
    pub(super) what: BTreeMap<u64, Vec<u8>>,
    /// Nothing is written anywhere.
    pub(super) in_memory: bool,
    /// Stripes from this number on are refused.
    pub(super) full_from: Option<u64>,
}

impl Ledger {
    fn place(&mut self, length_bytes: u64) -> Place {
        let place = Place { device: DeviceIndex(0), offset_bytes: self.next, length_bytes };
        self.next += length_bytes;
        place
    }
}

impl Store for Ledger {
    fn begin(&mut self, beginning: &Beginning<'_>) -> Result<Places, Refusal> {
        let Beginning { name, what, held, kept, cell_bytes } = *beginning;
        if self.full_from.is_some_and(|full| name.stripe >= full) {
            return Err(Refusal("it is full".to_owned()));
        }
        self.what.insert(name.stripe, what.to_vec());
        if self.in_memory {
            return Ok(Places::nowhere(kept.len()));
        }
        let held = held.iter().map(|cell| self.held[&(name.stripe, *cell)].clone()).collect();
        // The first sector of a cell lies apart from the rest, with some of the others between.
        let firsts: Vec<Place> = kept.iter().map(|_| self.place(4096)).collect();
        let places = firsts.into_iter().map(|first| match cell_bytes - 4096 {
            0 => vec![first],
            rest => vec![first, self.place(rest)],
        });
        let places: Vec<Vec<Place>> = places.collect();
        self.places.insert(name.stripe, kept.iter().copied().zip(places.clone()).collect());
        Ok(Places { held, kept: places, guard: None })
    }

    fn stored(&mut self, name: StripeName, cells: &[StoredCell]) -> Result<(), Refusal> {
        assert!(self.stored.insert(name.stripe, cells.to_vec()).is_none(), "stored once");
        Ok(())
    }

    fn given_up(&mut self, name: StripeName) {
        assert!(!self.stored.contains_key(&name.stripe), "given up after it was stored");
        self.given_up.push(name.stripe);
    }
}

/// A stripe as it should be.
pub(super) struct Filled {
    pub(super) data: Vec<RegionSlice>,
    /// All cells that are kept.
    pub(super) cells: BTreeMap<Cell, Vec<u8>>,
}

impl Filled {
    /// Random data; some cells are shorter than the others, and one may be empty.
    pub(super) fn new(geometry: &Geometry, task: Task, stripe: u64, cell_bytes: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(stripe);
        let whole = usize::try_from(cell_bytes).unwrap();
        let region = Region::allocate(geometry.data().len() * whole).unwrap();
        let (mut data, mut cells) = (Vec::new(), BTreeMap::new());
        for (index, cell) in geometry.data().iter().enumerate() {
            let length = match index % 3 {
                1 => random.usize(..=whole),
                _ => whole,
            };
            let mut bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            region.copy_in(index * whole, &bytes).unwrap();
            data.push(region.slice(index * whole, length).unwrap());
            bytes.resize(whole, 0);
            cells.insert(*cell, bytes);
        }
        if task != Task::Write(Way::Bare) {
            for equation in geometry.equations() {
                let mut sum = vec![0; whole];
                for cell in &equation.data {
                    sum.iter_mut().zip(&cells[cell]).for_each(|(sum, byte)| *sum ^= byte);
                }
                cells.insert(equation.parity, sum);
            }
        }
        Self { data, cells }
    }
}

/// Nodes that take turns.
pub(super) struct Cluster {
    pub(super) net: SimNet,
    pub(super) key: ClusterKey,
    pub(super) shape: Shape,
    pub(super) geometry: Geometry,
    pub(super) members: Vec<Member>,
    pub(super) nodes: Vec<Option<Node<SimIo, Ledger>>>,
    /// What dead nodes had, durably.
    pub(super) left: BTreeMap<usize, (Vec<u8>, Ledger)>,
    pub(super) filled: BTreeMap<u64, Filled>,
    pub(super) ended: BTreeMap<u64, Ended>,
    /// How often each node's place had crashed when the node began.
    crashes: Vec<u64>,
    /// What each node has from the beginning, and where.
    images: Vec<(Vec<u8>, Ledger)>,
}

const DISK_BYTES: usize = 2 << 20;

/// What each node has of these stripes at the beginning: cells lie in several extents, one after
/// the other, as far as they have data.
fn images(geometry: &Geometry, task: Task, filled: &BTreeMap<u64, Filled>) -> Vec<(Vec<u8>, Ledger)> {
    let mut images: Vec<(Vec<u8>, Ledger)> =
        (0..geometry.nodes()).map(|_| (vec![0; DISK_BYTES], Ledger::default())).collect();
    if matches!(task, Task::Write(_)) {
        return images;
    }
    for (stripe, filled) in filled {
        let kept = Transfers::of(task, geometry, *stripe).unwrap().kept;
        for (cell, bytes) in &filled.cells {
            if kept.iter().any(|kept| kept.cell == *cell) {
                continue;
            }
            let node = usize::from(geometry.node_of(*stripe, cell.column).unwrap().0);
            let (disk, ledger) = &mut images[node];
            let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            let mut places = Vec::new();
            // Between the parts something else lies.
            for part in bytes[..used.next_multiple_of(4096)].chunks(3 * 4096) {
                let place = ledger.place(part.len() as u64);
                let start = usize::try_from(place.offset_bytes).unwrap();
                disk[start..start + part.len()].copy_from_slice(part);
                disk[start + part.len()..start + part.len() + 4096].fill(0xEE);
                ledger.next += 4096;
                places.push(place);
            }
            ledger.held.insert((*stripe, *cell), places);
        }
    }
    images
}

pub(super) fn place_of(node: usize) -> String {
    format!("node-{node}")
}

impl Cluster {
    pub(super) fn new(seed: Seed, nodes: usize, shape: Shape) -> Self {
        Self::over(seed, nodes, shape, SimConfig::default(), FaultRates::default())
    }

    pub(super) fn over(
        seed: Seed,
        nodes: usize,
        shape: Shape,
        config: SimConfig,
        faults: FaultRates,
    ) -> Self {
        Self::holding(seed, nodes, shape, &[], (config, faults))
    }

    /// With what nodes have of these stripes, if they are to have anything before.
    pub(super) fn holding(
        seed: Seed,
        nodes: usize,
        shape: Shape,
        stripes: &[(u64, u64)],
        (config, faults): (SimConfig, FaultRates),
    ) -> Self {
        let geometry = Geometry::with_parity(nodes, shape.parity).unwrap();
        let fill = |(stripe, cell_bytes): &(u64, u64)| {
            (*stripe, Filled::new(&geometry, shape.task, *stripe, *cell_bytes))
        };
        let filled: BTreeMap<u64, Filled> = stripes.iter().map(fill).collect();
        let net = SimNet::new(seed, config);
        let key = ClusterKey::from_bytes([3; 32]);
        let member = |node: usize| Member {
            node: NodeId(u16::try_from(node * 10).unwrap()),
            address: net.address(&place_of(node)),
        };
        let members: Vec<Member> = (0..nodes).map(member).collect();
        let mut cluster = Self {
            net,
            key,
            shape,
            images: images(&geometry, shape.task, &filled),
            geometry,
            members,
            nodes: Vec::new(),
            left: BTreeMap::new(),
            filled: BTreeMap::new(),
            ended: BTreeMap::new(),
            crashes: vec![0; nodes],
        };
        for node in 0..nodes {
            let disk = DiskConfig { faults, ..DiskConfig::seeded(seed.number() ^ node as u64) };
            let node = cluster.node(node, disk);
            cluster.nodes.push(Some(node));
        }
        cluster
    }

    /// A node as it starts.
    pub(super) fn node(&self, node: usize, disk: DiskConfig) -> Node<SimIo, Ledger> {
        let listener = self.net.listen(&place_of(node), &self.key).unwrap();
        let (net, key, from) = (self.net.clone(), self.key.clone(), place_of(node));
        let connect = move |address: &Address| net.connect(&from, address, &key);
        let calls = Direct { connect, answers: VecDeque::new() };
        let (contents, ledger) = self.images[node].clone();
        let io = SimIo::new(disk, vec![SimDisk::of(contents)]);
        let config = NodeConfig::new(self.members[node].node, self.members.clone());
        Node::new(config, listener, Box::new(calls), io, ledger).unwrap()
    }

    /// Sessions may do nothing for so long.
    pub(super) fn idle_after(&mut self, time: Duration) {
        self.nodes.iter_mut().flatten().for_each(|node| node.config.idle_max = time);
    }

    pub(super) fn turn(&mut self) {
        for node in self.nodes.iter_mut().flatten() {
            node.turn().unwrap();
        }
        for node in 0..self.nodes.len() {
            if self.net.crashes(&place_of(node)) > self.crashes[node] && self.nodes[node].is_some() {
                self.bury(node);
            }
        }
    }

    /// Kills a node's process; its disk keeps what was flushed.
    fn bury(&mut self, node: usize) {
        let Some(dead) = self.nodes[node].take() else { return };
        let (io, ledger) = dead.into_parts();
        let disks = io.crash(CrashImage::OnlySynced);
        self.left.insert(node, (disks[0].contents().to_vec(), ledger));
    }

    /// A dead node's process begins anew, with its disk as it was at first.
    pub(super) fn restart(&mut self, node: usize, seed: u64) {
        self.crashes[node] = self.net.crashes(&place_of(node));
        self.nodes[node] = Some(self.node(node, DiskConfig::seeded(seed)));
    }

    /// A writer whose session is open, or has ended.
    pub(super) fn open(&mut self) -> Writer {
        let (net, key) = (self.net.clone(), self.key.clone());
        let connect = |address: &Address| net.connect(CLIENT, address, &key);
        let mut writer = Writer::ask(self.shape, self.members.clone(), connect).unwrap();
        for _ in 0..TURNS_MAX {
            if writer.is_open() || writer.end().is_some() {
                return writer;
            }
            self.turn();
            writer.turn();
        }
        panic!("the session neither opens nor ends");
    }

    /// Writes stripes of these lengths until all have ended.
    pub(super) fn write(&mut self, writer: &mut Writer, stripes: &[(u64, u64)]) {
        self.write_while(writer, stripes, |_| true);
    }

    /// The same, as long as a condition holds.
    pub(super) fn write_while(
        &mut self,
        writer: &mut Writer,
        stripes: &[(u64, u64)],
        goes_on: impl Fn(&Self) -> bool,
    ) {
        let mut waiting = stripes.iter();
        let mut next = waiting.next();
        for _ in 0..TURNS_MAX {
            while let Some((number, cell_bytes)) = next.filter(|_| writer.has_room()) {
                let filled = Filled::new(&self.geometry, self.shape.task, *number, *cell_bytes);
                let what: Vec<Vec<u8>> =
                    (0..self.members.len()).map(|node| format!("{number} for {node}").into_bytes()).collect();
                let data = match self.shape.task {
                    Task::Write(_) => &filled.data[..],
                    Task::Protect | Task::Rebuild(_) => &[],
                };
                let stripe = Stripe { number: *number, cell_bytes: *cell_bytes, what: &what, data };
                writer.write(&stripe).unwrap();
                self.filled.insert(*number, filled);
                next = waiting.next();
            }
            let is_over = writer.end().is_some() || next.is_none();
            if !goes_on(self) || is_over && writer.under_way() == 0 {
                self.take_ended(writer);
                return;
            }
            self.turn();
            writer.turn();
            self.take_ended(writer);
        }
        panic!("stripes neither get through nor end: {:?}, {writer:?}", self.nodes);
    }

    fn take_ended(&mut self, writer: &mut Writer) {
        while let Some(ended) = writer.next_ended() {
            assert!(self.ended.insert(ended.number, ended).is_none(), "it ended twice");
        }
    }

    /// Turns until the nodes have no sessions any more.
    pub(super) fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            if self.nodes.iter().flatten().all(|node| node.sessions() == 0) {
                return;
            }
            self.turn();
        }
        panic!("sessions do not end: {:?}", self.nodes);
    }

    /// Every stripe that was reported as stored lies on all disks as it should, durably, with its
    /// checksums.
    pub(super) fn assert_stored_is_there(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.bury(node));
        let stored: Vec<u64> =
            self.ended.values().filter(|ended| ended.outcome.is_ok()).map(|ended| ended.number).collect();
        for (node, (disk, ledger)) in &self.left {
            for stripe in &stored {
                self.assert_cells(*node, *stripe, disk, ledger);
            }
        }
    }

    fn assert_cells(&self, node: usize, stripe: u64, disk: &[u8], ledger: &Ledger) {
        let filled = &self.filled[&stripe];
        let kept = Transfers::of(self.shape.task, &self.geometry, stripe).unwrap().kept;
        let turn = Turn(u8::try_from(node).unwrap());
        let column = self.geometry.column_of(stripe, turn).unwrap();
        let mine: BTreeMap<Cell, &Vec<u8>> = filled
            .cells
            .iter()
            .filter(|(cell, _)| cell.column == column && kept.iter().any(|kept| kept.cell == **cell))
            .map(|(cell, bytes)| (*cell, bytes))
            .collect();
        let mut found = BTreeMap::new();
        for (cell, places) in &ledger.places[&stripe] {
            let bytes: Vec<u8> = places
                .iter()
                .flat_map(|place| {
                    let start = usize::try_from(place.offset_bytes).unwrap();
                    disk[start..start + usize::try_from(place.length_bytes).unwrap()].to_vec()
                })
                .collect();
            found.insert(*cell, bytes);
        }
        assert_eq!(found.keys().collect::<Vec<_>>(), mine.keys().collect::<Vec<_>>());
        for (cell, bytes) in &found {
            assert!(bytes == mine[cell], "stripe {stripe}, node {node}: {cell:?} is not what it should be");
        }
        let expected: Vec<StoredCell> = found
            .iter()
            .map(|(cell, bytes)| StoredCell { cell: *cell, checksum: crc32c::crc32c(bytes) })
            .collect();
        assert_eq!(ledger.stored[&stripe], expected);
        assert_eq!(ledger.what[&stripe], format!("{stripe} for {node}").into_bytes());
    }

    /// What clients are told of cells is what these are.
    fn assert_checksums(&self, ended: &Ended) {
        let Some(filled) = self.filled.get(&ended.number) else { return };
        for (cell, checksum) in &ended.checksums {
            assert_eq!(*checksum, crc32c::crc32c(&filled.cells[cell]), "stripe {}, {cell:?}", ended.number);
        }
        // All cells of the stripe are named, except those that no place touched.
        let transfers = Transfers::of(self.shape.task, &self.geometry, ended.number).unwrap();
        let kept = transfers.kept.iter().map(|kept| kept.cell);
        let there = transfers.kept.iter().flat_map(|kept| kept.made_of.iter().copied());
        let expected: BTreeSet<Cell> = kept.chain(there).collect();
        assert!(ended.checksums.iter().map(|(cell, _)| *cell).eq(expected));
    }

    /// Whether every stripe of the run was stored.
    pub(super) fn assert_all_stored(&self) {
        for ended in self.ended.values() {
            assert_eq!(ended.outcome, Ok(()), "stripe {}", ended.number);
            self.assert_checksums(ended);
        }
    }
}
