//! Tests that stripes get onto the right disks over real wires, with a thread for each node and
//! real device files. Method: the contents are compared with a plain computation.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rackscan_device::{Access, Device, DeviceIndex, Ring, RingConfig};
use rackscan_fabric::{Address, ClusterKey, Listener, Region, RegionSlice, connect};
use rackscan_format::ids::NodeId;
use rackscan_relay::{
    Area, Beginning, Counters, Member, Node, NodeConfig, Nowhere, Place, Places, Refusal, Shape, Store,
    StoredCell, Stripe, StripeName, Threads, Writer,
};
use rackscan_stripe::{Cell, Geometry, Parity, Way};

/// Longer than anything here takes on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(180);

/// An area that remembers which cell it put where.
#[derive(Debug)]
struct Remembering {
    area: Area,
    places: BTreeMap<(u64, Cell), Place>,
}

impl Store for Remembering {
    fn begin(&mut self, beginning: &Beginning<'_>) -> Result<Places, Refusal> {
        let places = self.area.begin(beginning)?;
        for (cell, place) in beginning.kept.iter().zip(places.kept.iter().flatten()) {
            self.places.insert((beginning.name.stripe, *cell), *place);
        }
        Ok(places)
    }

    fn stored(&mut self, _name: StripeName, _cells: &[StoredCell]) -> Result<(), Refusal> {
        Ok(())
    }

    fn given_up(&mut self, _name: StripeName) {}
}

type Kept = (Counters, BTreeMap<(u64, Cell), Place>);

struct Cluster {
    key: ClusterKey,
    members: Vec<Member>,
    stops: Vec<Arc<AtomicBool>>,
    threads: Vec<JoinHandle<Kept>>,
    files: Vec<PathBuf>,
    _folder: tempfile::TempDir,
}

impl Cluster {
    fn start(wire: &str, nodes: usize, device_bytes: u64) -> Self {
        let key = ClusterKey::generate().expect("the machine allows it");
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the machine allows it");
        let address = |node: usize| -> Address {
            match wire {
                "shm" => format!("shm:{}", folder.path().join(format!("{node}.sock")).display())
                    .parse()
                    .expect("the machine allows it"),
                _ => "tcp:127.0.0.1:0".parse().expect("the machine allows it"),
            }
        };
        let listeners: Vec<Listener> = (0..nodes)
            .map(|node| Listener::bind(&address(node), &key).expect("the machine allows it"))
            .collect();
        let member = |(node, listener): (usize, &Listener)| Member {
            node: NodeId(u16::try_from(node).expect("the machine allows it")),
            address: listener.address().clone(),
        };
        let members: Vec<Member> = listeners.iter().enumerate().map(member).collect();
        let stops: Vec<Arc<AtomicBool>> = members.iter().map(|_| Arc::default()).collect();
        let files: Vec<PathBuf> =
            (0..nodes).map(|node| folder.path().join(format!("{node}.device"))).collect();
        let threads = listeners.into_iter().zip(&files).enumerate().map(|(node, (listener, file))| {
            let (stop, calls) = (Arc::clone(&stops[node]), Threads::new(key.clone()));
            let config = NodeConfig::new(members[node].node, members.clone());
            let file = file.clone();
            std::thread::spawn(move || serve(config, listener, calls, &file, device_bytes, &stop))
        });
        let threads = threads.collect();
        Self { key, members, stops, threads, files, _folder: folder }
    }

    fn open(&self, shape: Shape) -> Writer {
        let deadline = Instant::now() + PATIENCE;
        let connect = |address: &Address| connect(address, &self.key, deadline);
        Writer::open(shape, self.members.clone(), connect, deadline).expect("the machine allows it")
    }

    fn stop(self) -> Vec<(Vec<u8>, Kept)> {
        self.stops.iter().for_each(|stop| stop.store(true, Ordering::Relaxed));
        let kept: Vec<Kept> =
            self.threads.into_iter().map(|thread| thread.join().expect("the machine allows it")).collect();
        self.files.iter().map(|file| std::fs::read(file).unwrap_or_default()).zip(kept).collect()
    }
}

/// A node over a device file, or over nothing if that has no bytes.
fn serve(
    config: NodeConfig,
    listener: Listener,
    calls: Threads,
    file: &std::path::Path,
    device_bytes: u64,
    stop: &AtomicBool,
) -> Kept {
    let mut devices = Vec::new();
    if device_bytes > 0 {
        Device::create(file, device_bytes).expect("the machine allows it");
        devices.push(Arc::new(Device::open(file, Access::ReadWrite).expect("the machine allows it")));
    }
    let ring = RingConfig { depth: 64, devices, ..RingConfig::default() };
    let io = Ring::new(ring).expect("the machine allows it");
    if device_bytes == 0 {
        let mut node =
            Node::new(config, listener, Box::new(calls), io, Nowhere).expect("the machine allows it");
        node.run(stop).expect("the machine allows it");
        return (node.counters(), BTreeMap::new());
    }
    let part = Place { device: DeviceIndex(0), offset_bytes: 0, length_bytes: device_bytes };
    let store =
        Remembering { area: Area::new(part).expect("the machine allows it"), places: BTreeMap::new() };
    let mut node = Node::new(config, listener, Box::new(calls), io, store).expect("the machine allows it");
    node.run(stop).expect("the machine allows it");
    (node.counters(), std::mem::take(&mut node.store().places))
}

/// All cells of a stripe whose data cells lie here.
fn cells(geometry: &Geometry, data: &[RegionSlice], cell_bytes: usize) -> BTreeMap<Cell, Vec<u8>> {
    let mut cells = BTreeMap::new();
    for (cell, slice) in geometry.data().iter().zip(data) {
        let mut bytes = slice.region().to_vec(slice.offset(), slice.len()).expect("the machine allows it");
        bytes.resize(cell_bytes, 0);
        cells.insert(*cell, bytes);
    }
    for equation in geometry.equations() {
        let mut sum = vec![0; cell_bytes];
        for cell in &equation.data {
            sum.iter_mut().zip(&cells[cell]).for_each(|(sum, byte)| *sum ^= byte);
        }
        cells.insert(equation.parity, sum);
    }
    cells
}

fn random_region(bytes: usize, seed: u64) -> Region {
    let region = Region::allocate(bytes).expect("the machine allows it");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut block = vec![0; 1 << 20];
    for start in (0..bytes).step_by(block.len()) {
        random.fill(&mut block);
        region.copy_in(start, &block[..block.len().min(bytes - start)]).expect("the machine allows it");
    }
    region
}

/// Writes 64 MiB in stripes whose last cell ends early, and compares every cell on every disk.
fn contents(wire: &str, nodes: usize, way: Way) {
    const CELL_BYTES: usize = 1 << 20;
    const TOTAL: usize = 64 << 20;
    let geometry = Geometry::new(nodes).expect("the machine allows it");
    let per_stripe = geometry.data().len();
    let stripes = TOTAL.div_ceil(per_stripe * CELL_BYTES) as u64;
    let cluster = Cluster::start(wire, nodes, 64 << 20);
    let shape = Shape { lanes: 3, ..Shape::new(Parity::TwoD, way, CELL_BYTES as u64) };
    let mut writer = cluster.open(shape);
    let region = random_region(per_stripe * CELL_BYTES, 7);
    let data_of = |stripe: u64| -> Vec<RegionSlice> {
        // The cells move on with the stripe, and one of them is shorter than the others.
        let cell = |at: usize| {
            let from = (at + usize::try_from(stripe).expect("the machine allows it")) % per_stripe;
            let length = if at == 1 { CELL_BYTES - 70_001 } else { CELL_BYTES };
            region.slice(from * CELL_BYTES, length).expect("the machine allows it")
        };
        (0..per_stripe).map(cell).collect()
    };
    let what = vec![Vec::new(); nodes];
    let deadline = Instant::now() + PATIENCE;
    let mut ended = 0;
    for number in 0..stripes {
        while !writer.has_room() {
            assert_eq!(writer.wait(deadline).expect("the machine allows it").outcome, Ok(()));
            ended += 1;
        }
        let data = data_of(number);
        writer
            .write(&Stripe { number, cell_bytes: CELL_BYTES as u64, what: &what, data: &data })
            .expect("the machine allows it");
    }
    while let Some(end) = writer.wait(deadline) {
        assert_eq!(end.outcome, Ok(()));
        ended += 1;
    }
    assert_eq!(ended, stripes);
    drop(writer);
    let kept = cluster.stop();
    for number in 0..stripes {
        for (cell, expected) in cells(&geometry, &data_of(number), CELL_BYTES) {
            let node = geometry.node_of(number, cell.column).expect("the machine allows it");
            let (disk, (_, places)) = &kept[usize::from(node.0)];
            let start = usize::try_from(places[&(number, cell)].offset_bytes).expect("the machine allows it");
            assert!(disk[start..start + CELL_BYTES] == expected, "stripe {number}, {cell:?}");
        }
    }
}

#[test]
fn over_shm_four_nodes_keep_what_a_client_relays() {
    contents("shm", 4, Way::Relay);
}

#[test]
fn over_shm_five_nodes_keep_what_a_client_relays() {
    contents("shm", 5, Way::Relay);
}

#[test]
fn over_tcp_four_nodes_keep_what_a_client_sends_by_itself() {
    contents("tcp", 4, Way::Naive);
}

#[test]
fn over_tcp_five_nodes_keep_what_a_client_relays() {
    contents("tcp", 5, Way::Relay);
}

#[test]
fn nodes_that_keep_nothing_check_everything_and_a_client_may_come_again() {
    let geometry = Geometry::with_parity(3, Parity::Xor).unwrap();
    let cluster = Cluster::start("shm", 3, 0);
    let region = random_region(2 << 20, 9);
    let what = vec![Vec::new(); 3];
    for round in 0..3 {
        let mut writer = cluster.open(Shape::new(Parity::Xor, Way::Relay, 1 << 20));
        let data: Vec<RegionSlice> =
            (0..geometry.data().len()).map(|at| region.slice(at << 20, 1 << 20).unwrap()).collect();
        writer.write(&Stripe { number: round, cell_bytes: 1 << 20, what: &what, data: &data }).unwrap();
        let ended = writer.wait(Instant::now() + PATIENCE).unwrap();
        assert_eq!((ended.number, ended.outcome), (round, Ok(())));
        assert_eq!(writer.counters().sent_bytes, 2 << 20);
    }
    let kept: u64 = cluster.stop().iter().map(|(_, (counters, _))| counters.kept_bytes).sum();
    assert_eq!(kept, 9 << 20);
}

/// Writes one stripe after the other until the session ends, which a node that stops makes it do.
/// Stripes that were stored before it stopped are told of, too.
fn stops_in_mid_stripe(wire: &str) {
    let nodes = 5;
    let geometry = Geometry::new(nodes).expect("the machine allows it");
    let cluster = Cluster::start(wire, nodes, 0);
    let mut writer = cluster.open(Shape { slots: 2, ..Shape::new(Parity::TwoD, Way::Relay, 8 << 20) });
    let region = random_region(8 << 20, 11);
    let data: Vec<RegionSlice> = geometry.data().iter().map(|_| region.whole()).collect();
    let what = vec![Vec::new(); nodes];
    let deadline = Instant::now() + PATIENCE;
    let (mut written, mut told) = (Vec::new(), Vec::new());
    for number in 0.. {
        if number == 2 {
            cluster.stops[3].store(true, Ordering::Relaxed);
        }
        if writer.end().is_some() {
            break;
        }
        if let Err(error) = writer.write(&Stripe { number, cell_bytes: 8 << 20, what: &what, data: &data }) {
            assert!(matches!(error, rackscan_relay::WriteError::Ended(_)), "{error}");
            break;
        }
        written.push(number);
        while !writer.has_room() && writer.under_way() > 0 {
            told.push(writer.wait(deadline).expect("it hangs").number);
        }
    }
    let end = writer.end().expect("the machine allows it").to_string();
    assert!(end.starts_with("node 3 "), "{end}");
    while let Some(ended) = writer.wait(deadline) {
        told.push(ended.number);
    }
    told.sort_unstable();
    assert_eq!(told, written);
    drop(writer);
    cluster.stop();
}

#[test]
fn over_shm_a_node_that_stops_is_named_and_nothing_hangs() {
    stops_in_mid_stripe("shm");
}

#[test]
fn over_tcp_a_node_that_stops_is_named_and_nothing_hangs() {
    stops_in_mid_stripe("tcp");
}
