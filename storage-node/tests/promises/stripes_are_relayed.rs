//! Tests that nodes relay and store stripes as configured, and report what they did.

use std::{
    fs::File,
    net::TcpListener,
    os::unix::fs::FileExt,
    time::{Duration, Instant},
};

use rackscan_fabric::{Address, ClusterKey, Region, RegionSlice, connect};
use rackscan_format::{
    ids::NodeId,
    message::{NodeStatus, RelayStatus, RelayedTo},
};
use rackscan_relay::{Member, Shape, Stripe, Who, WriteError, Writer};
use rackscan_storage_node::{ByteSize, PeerConfig};
use rackscan_stripe::{Cell, Geometry, Node as Turn, Parity, Way};

use crate::support::node::{NodeFolder, Running, own_host};

const NODES: usize = 5;
const CELL_BYTES: usize = 64 << 10;
const SCRATCH_BYTES: u64 = 8 << 20;
/// Longer than anything takes that happens at all.
const PATIENCE: Duration = Duration::from_secs(120);

/// Nodes that relay over both wires and know each other.
struct Cluster {
    node_folders: Vec<NodeFolder>,
    relays: Vec<[Address; 2]>,
    nodes: Vec<Option<Running>>,
    key: ClusterKey,
}

impl Cluster {
    fn start() -> Self {
        let node_folders: Vec<NodeFolder> = (0..NODES).map(|_| NodeFolder::new()).collect();
        let host = own_host();
        // Held together, so that they differ, and free again when the nodes want them.
        let ports: Vec<TcpListener> =
            node_folders.iter().map(|_| TcpListener::bind((&*host, 0)).expect("a free port")).collect();
        let relay = |(node_folder, port): (&NodeFolder, &TcpListener)| {
            let port = port.local_addr().expect("it is bound").port();
            [node_folder.relay_socket(), Address::Tcp { host: host.clone(), port }]
        };
        let relays: Vec<[Address; 2]> = node_folders.iter().zip(&ports).map(relay).collect();
        drop(ports);
        let key = node_folders[0].key.clone();
        let mut cluster = Self { node_folders, relays, nodes: Vec::new(), key };
        for number in 0..NODES {
            let mut config = cluster.node_folders[number].config();
            config.node = id(number);
            config.relay = cluster.relays[number].to_vec();
            config.relay_memory = Some(ByteSize(32 << 20));
            config.memory_budget = ByteSize(128 << 20);
            config.scratch = Some(ByteSize(SCRATCH_BYTES));
            let peer = |(number, relay): (usize, &[Address; 2])| PeerConfig {
                node: id(number),
                // Nobody asks there: these nodes keep no keys.
                addresses: vec![relay[0].clone()],
                relay: relay.to_vec(),
            };
            config.peers = cluster.relays.iter().enumerate().map(peer).collect();
            config.transactions = Some(ByteSize(0));
            let node = cluster.node_folders[number].start_with(config).expect("the node starts");
            cluster.nodes.push(Some(node));
        }
        cluster
    }

    fn members(&self, wire: usize) -> Vec<Member> {
        let member = |(number, relay): (usize, &[Address; 2])| Member {
            node: id(number),
            address: relay[wire].clone(),
        };
        self.relays.iter().enumerate().map(member).collect()
    }

    fn writer(&self, way: Way, members: Vec<Member>) -> Result<Writer, WriteError> {
        let shape = Shape { slice_bytes: 16 << 10, ..Shape::new(Parity::TwoD, way, CELL_BYTES as u64) };
        let deadline = Instant::now() + PATIENCE;
        Writer::open(shape, members, |address| connect(address, &self.key, deadline), deadline)
    }

    /// What a node says when it has counted everything that is on its way.
    fn status(&self, number: usize, settled: impl Fn(&NodeStatus) -> bool) -> NodeStatus {
        let deadline = Instant::now() + PATIENCE;
        let mut client = self.nodes[number].as_ref().expect("it runs").shm();
        loop {
            let status = client.status();
            if settled(&status) || Instant::now() >= deadline {
                return status;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until no node has a session: the memory of a relay holds two at most, and it hears
    /// some time later that a client has left.
    fn rest(&self) {
        for number in (0..NODES).filter(|number| self.nodes[*number].is_some()) {
            let is_over = |status: &NodeStatus| status.relays.iter().all(|relay| relay.sessions == 0);
            let status = self.status(number, is_over);
            assert!(is_over(&status), "node {number}: {:?}", status.relays);
        }
    }

    fn stop(self) {
        self.nodes.into_iter().flatten().for_each(Running::stop);
    }
}

fn id(number: usize) -> NodeId {
    NodeId(u16::try_from(number).expect("few nodes"))
}

/// The bytes of a data cell.
fn data_of(stripe: u64, index: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(stripe << 32 | index as u64);
    (0..CELL_BYTES).map(|_| random.u8(..)).collect()
}

/// Every cell of a stripe as it has to be.
fn cells_of(geometry: &Geometry, stripe: u64) -> impl Fn(Cell) -> Vec<u8> {
    let data: Vec<(Cell, Vec<u8>)> =
        geometry.data().iter().enumerate().map(|(index, cell)| (*cell, data_of(stripe, index))).collect();
    let equations = geometry.equations().to_vec();
    move |cell| {
        let of = |cell: &Cell| data.iter().find(|(data, _)| data == cell).map(|(_, bytes)| bytes.clone());
        let Some(equation) = equations.iter().find(|equation| equation.parity == cell) else {
            return of(&cell).expect("data or a parity");
        };
        equation.data.iter().filter_map(of).fold(vec![0; CELL_BYTES], |mut sum, bytes| {
            sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte);
            sum
        })
    }
}

fn write(writer: &mut Writer, geometry: &Geometry, stripe: u64, to: RelayedTo) -> Result<(), String> {
    let region = Region::allocate(geometry.data().len() * CELL_BYTES).expect("memory for a test");
    let cell = |index: usize| -> RegionSlice {
        region.copy_in(index * CELL_BYTES, &data_of(stripe, index)).expect("it fits");
        region.slice(index * CELL_BYTES, CELL_BYTES).expect("it fits")
    };
    let data: Vec<RegionSlice> = (0..geometry.data().len()).map(cell).collect();
    let what = vec![to.encode().expect("it is small"); NODES];
    let stripe = Stripe { number: stripe, cell_bytes: CELL_BYTES as u64, what: &what, data: &data };
    writer.write(&stripe).map_err(|error| error.to_string())?;
    let ended = writer.wait(Instant::now() + PATIENCE).expect("a stripe ends in time");
    ended.outcome.map_err(|end| {
        assert!(!matches!(end.who, Who::Client), "{end}");
        end.to_string()
    })
}

#[test]
fn every_cell_is_on_its_nodes_device_and_the_client_sends_each_byte_once() {
    let cluster = Cluster::start();
    let geometry = Geometry::new(NODES).expect("five nodes have stripes");
    let mut stripes = 0..;
    let mut on_disk = vec![[Vec::new(), Vec::new()]; NODES];
    for wire in 0..2 {
        for (way, sent_per_data) in [(Way::Relay, 1.0), (Way::Naive, 20.0 / 12.0), (Way::Bare, 1.0)] {
            let mut writer = cluster.writer(way, cluster.members(wire)).expect("all agree");
            let written = 3;
            for stripe in stripes.by_ref().take(written) {
                write(&mut writer, &geometry, stripe, RelayedTo::Scratch).expect("it is stored");
                let cell_of = cells_of(&geometry, stripe);
                for (number, on_disk) in on_disk.iter_mut().enumerate() {
                    let turn = Turn(u8::try_from(number).expect("few nodes"));
                    let column = geometry.column_of(stripe, turn).expect("it has one");
                    let kept = geometry
                        .cells_of(column)
                        .filter(|cell| way != Way::Bare || geometry.data().contains(cell));
                    on_disk[wire].extend(kept.flat_map(&cell_of));
                }
            }
            let data_bytes = (written * geometry.data().len() * CELL_BYTES) as f64;
            let sent = writer.counters().sent_bytes as f64 / data_bytes;
            assert!((sent - sent_per_data).abs() < 1e-9, "{way:?}: {sent}");
            drop(writer);
            cluster.rest();
        }
    }
    for (number, expected) in on_disk.iter().enumerate() {
        let lengths = [expected[0].len() as u64, expected[1].len() as u64];
        let kept = |status: &NodeStatus| [0, 1].map(|wire| status.relays[wire].kept_bytes);
        let is_whole = |status: &NodeStatus| {
            let counted = |relay: &RelayStatus| relay.stripes == 9 && relay.stored_bytes == relay.kept_bytes;
            kept(status) == lengths && status.relays.iter().all(counted)
        };
        let status = cluster.status(number, is_whole);
        assert!(is_whole(&status), "{:?}, expected {lengths:?} bytes of 9 stripes", status.relays);
        let area = status.devices[0].scratch.expect("it has one");
        let device = File::open(cluster.node_folders[number].device(0)).expect("it is there");
        for (wire, expected) in expected.iter().enumerate() {
            let mut found = vec![0; expected.len()];
            let at = area.offset_bytes + wire as u64 * (SCRATCH_BYTES / 2);
            device.read_exact_at(&mut found, at).expect("the area is there");
            assert!(found == *expected, "node {number}, {wire}");
        }
    }
    cluster.stop();
}

#[test]
fn a_node_that_dies_or_is_unavailable_is_named_and_the_others_relay_without_it() {
    let mut cluster = Cluster::start();
    let geometry = Geometry::new(NODES).expect("five nodes have stripes");
    let mut writer = cluster.writer(Way::Relay, cluster.members(0)).expect("all agree");
    write(&mut writer, &geometry, 0, RelayedTo::Memory).expect("it passes");
    cluster.nodes[2].take().expect("it runs").stop();
    let error = write(&mut writer, &geometry, 1, RelayedTo::Memory).expect_err("a node is gone");
    assert!(error.contains("node 2"), "{error}");
    let error = cluster.writer(Way::Relay, cluster.members(0)).expect_err("a node is gone").to_string();
    assert!(error.contains("node 2"), "{error}");
    drop(writer);
    cluster.rest();
    let four: Vec<Member> = cluster.members(0).into_iter().filter(|member| member.node != id(2)).collect();
    let writer = cluster.writer(Way::Relay, four).expect("four agree");
    assert!(writer.is_open());
    cluster.stop();
}

#[test]
fn nobody_is_called_who_is_not_in_the_configuration() {
    let cluster = Cluster::start();
    let mut members = cluster.members(0);
    members[1].address = Address::Tcp { host: "127.0.0.1".to_owned(), port: 9 };
    let shape = Shape::new(Parity::TwoD, Way::Relay, CELL_BYTES as u64);
    let deadline = Instant::now() + PATIENCE;
    // The client itself reaches the real one.
    let real = cluster.relays[1][0].clone();
    let reach = |address: &Address| match address {
        Address::Tcp { .. } => connect(&real, &cluster.key, deadline),
        address => connect(address, &cluster.key, deadline),
    };
    let error = Writer::open(shape, members, reach, deadline).expect_err("it is not known").to_string();
    assert!(error.contains("127.0.0.1:9"), "{error}");
    cluster.stop();
}

#[test]
fn a_stripe_for_the_disk_of_a_node_without_a_scratch_area_is_refused_with_what_to_do() {
    let node_folder = NodeFolder::new();
    let mut config = node_folder.config();
    let others: Vec<NodeFolder> = (0..2).map(|_| NodeFolder::new()).collect();
    config.relay = vec![node_folder.relay_socket()];
    config.memory_budget = ByteSize(96 << 20);
    config.relay_memory = Some(ByteSize(16 << 20));
    let peer = |(number, node_folder): (usize, &NodeFolder)| PeerConfig {
        node: id(number + 4),
        addresses: vec![node_folder.relay_socket()],
        relay: vec![node_folder.relay_socket()],
    };
    config.peers = others.iter().enumerate().map(peer).collect();
    config.transactions = Some(ByteSize(0));
    let own = PeerConfig { node: config.node, addresses: config.relay.clone(), relay: config.relay.clone() };
    let mut nodes = vec![node_folder.start_with(config.clone()).expect("the node starts")];
    for (number, other) in others.iter().enumerate() {
        let mut config = other.config();
        (config.node, config.relay) = (id(number + 4), vec![other.relay_socket()]);
        (config.memory_budget, config.relay_memory) = (ByteSize(96 << 20), Some(ByteSize(16 << 20)));
        config.peers = others.iter().enumerate().map(peer).chain([own.clone()]).collect();
        config.transactions = Some(ByteSize(0));
        nodes.push(other.start_with(config).expect("the node starts"));
    }
    let mut members = vec![Member { node: NodeId(3), address: node_folder.relay_socket() }];
    members.extend(
        others
            .iter()
            .enumerate()
            .map(|(number, other)| Member { node: id(number + 4), address: other.relay_socket() }),
    );
    let deadline = Instant::now() + PATIENCE;
    let shape = Shape::new(Parity::TwoD, Way::Relay, CELL_BYTES as u64);
    let mut writer =
        Writer::open(shape, members, |address| connect(address, &node_folder.key, deadline), deadline)
            .expect("all agree");
    let geometry = Geometry::new(3).expect("three nodes have stripes");
    let region = Region::allocate(CELL_BYTES * geometry.data().len()).expect("memory for a test");
    let data: Vec<RegionSlice> = (0..geometry.data().len())
        .map(|index| region.slice(index * CELL_BYTES, CELL_BYTES).expect("it fits"))
        .collect();
    let what = vec![RelayedTo::Scratch.encode().expect("it is small"); 3];
    writer
        .write(&Stripe { number: 0, cell_bytes: CELL_BYTES as u64, what: &what, data: &data })
        .expect("it begins");
    let ended = writer.wait(deadline).expect("it ends in time");
    let error = ended.outcome.expect_err("there is no area").to_string();
    assert!(error.contains("scratch ="), "{error}");
    nodes.into_iter().for_each(Running::stop);
}
