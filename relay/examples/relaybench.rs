//! Measures how fast stripes get from one client onto the nodes for each way of writing them, and
//! how many bytes each place sends and receives.
//!
//! ```text
//! cargo run --release -p rackscan-relay --example relaybench -- \
//!     [WIRE] [NODES] [WAYS] [SLICE KIB] [MIB] [TURNS] [FOLDER]
//! ```
//!
//! WIRE is `shm` or `tcp`. WAYS and SLICE KIB are lists with commas (`none,naive,relay`,
//! `4,64,1024`). MIB is the amount of data in a turn. FOLDER is where device files go; without it,
//! nothing is written to disk. Nodes are threads of this process, each with its own listener, as if
//! they were processes. The ways alternate, one turn each; the first turn does not count. The
//! program prints a JSON line for each slice length and way: medians over the turns, and the bytes
//! of slices, per byte of data, at the client and at the busiest node.

use std::{
    error::Error,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rackscan_device::{Access, Device, DeviceIndex, Ring, RingConfig};
use rackscan_fabric::{Address, ClusterKey, Listener, Region, RegionSlice, connect};
use rackscan_format::ids::NodeId;
use rackscan_relay::{
    Area, Counters, Member, Node, NodeConfig, Nowhere, Place, Shape, Store, Stripe, Threads, Writer,
};
use rackscan_stripe::{Geometry, Parity, Way};
use serde_json::json;

const CELL_BYTES: usize = 4 << 20;
const LANES: usize = 4;
/// Bytes of a ring.
const RING_BYTES: usize = 512 << 10;
/// A node's device file.
const AREA_BYTES: u64 = 1 << 30;
const PATIENCE: Duration = Duration::from_secs(120);

type Failed = Box<dyn Error + Send + Sync>;

struct Options {
    wire: String,
    nodes: usize,
    ways: Vec<(String, Way)>,
    slices: Vec<usize>,
    data_bytes: usize,
    turns: usize,
    folder: Option<PathBuf>,
}

impl Options {
    fn read() -> Result<Self, Failed> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let argument =
            |at: usize, default: &str| arguments.get(at).map_or(default, String::as_str).to_owned();
        let way = |name: &str| match name {
            "none" => Ok(("none".to_owned(), Way::Bare)),
            "naive" => Ok(("naive".to_owned(), Way::Naive)),
            "relay" => Ok(("relay".to_owned(), Way::Relay)),
            other => Err(format!("unknown way {other}, expected none, naive or relay")),
        };
        let slice = |kib: &str| kib.parse::<usize>().map(|kib| kib << 10);
        Ok(Self {
            wire: argument(0, "shm"),
            nodes: argument(1, "5").parse()?,
            ways: argument(2, "none,naive,relay").split(',').map(way).collect::<Result<_, _>>()?,
            slices: argument(3, "4,16,64,256,1024").split(',').map(slice).collect::<Result<_, _>>()?,
            data_bytes: argument(4, "512").parse::<usize>()? << 20,
            turns: argument(5, "3").parse()?,
            folder: arguments.get(6).map(PathBuf::from),
        })
    }
}

/// A thread with a relay, and what it last counted.
struct Served {
    member: Member,
    counters: Arc<Mutex<Counters>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

fn start(options: &Options, key: &ClusterKey, folder: &Path) -> Result<Vec<Served>, Failed> {
    let mut listeners = Vec::new();
    for node in 0..options.nodes {
        let address: Address = match options.wire.as_str() {
            "shm" => format!("shm:{}", folder.join(format!("{node}.sock")).display()).parse()?,
            "tcp" => "tcp:127.0.0.1:0".parse()?,
            other => return Err(format!("unknown wire {other}, expected shm or tcp").into()),
        };
        listeners.push(Listener::bind(&address, key)?);
    }
    let member = |(node, listener): (usize, &Listener)| -> Result<Member, Failed> {
        Ok(Member { node: NodeId(u16::try_from(node)?), address: listener.address().clone() })
    };
    let members: Vec<Member> = listeners.iter().enumerate().map(member).collect::<Result<_, _>>()?;
    let mut served = Vec::new();
    for (listener, member) in listeners.into_iter().zip(&members) {
        let (stop, counters) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Counters::default())));
        let config = NodeConfig::new(member.node, members.clone());
        let calls = Threads::new(key.clone());
        let file = options.folder.as_ref().map(|folder| folder.join(format!("relay-{}.device", member.node)));
        let (stop_it, count) = (Arc::clone(&stop), Arc::clone(&counters));
        let thread = std::thread::spawn(move || {
            serve(config, listener, calls, file.as_deref(), &stop_it, &count)
                .map_err(|error| error.to_string())
        });
        served.push(Served { member: member.clone(), counters, stop, thread: Some(thread) });
    }
    Ok(served)
}

fn serve(
    config: NodeConfig,
    listener: Listener,
    calls: Threads,
    file: Option<&Path>,
    stop: &AtomicBool,
    counters: &Mutex<Counters>,
) -> Result<(), Failed> {
    let Some(file) = file else {
        let io = Ring::new(RingConfig { depth: 64, ..RingConfig::default() })?;
        return run(Node::new(config, listener, Box::new(calls), io, Nowhere)?, stop, counters);
    };
    if !file.exists() {
        drop(Device::create(file, AREA_BYTES)?);
    }
    let devices = vec![Arc::new(Device::open(file, Access::ReadWrite)?)];
    let io = Ring::new(RingConfig { depth: 256, devices, ..RingConfig::default() })?;
    let part = Place { device: DeviceIndex(0), offset_bytes: 0, length_bytes: AREA_BYTES };
    run(Node::new(config, listener, Box::new(calls), io, Area::new(part)?)?, stop, counters)
}

/// As [`Node::run`], but shows its counters while nothing moves.
fn run<S: Store>(
    mut node: Node<Ring, S>,
    stop: &AtomicBool,
    counters: &Mutex<Counters>,
) -> Result<(), Failed> {
    let mut last_work = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if node.turn()? {
            last_work = Instant::now();
        } else if last_work.elapsed() < Duration::from_micros(50) {
            std::thread::yield_now();
        } else {
            *counters.lock().map_err(|_| "a thread has failed")? = node.counters();
            node.sleep(Duration::from_millis(50))?;
            last_work = Instant::now();
        }
    }
    Ok(())
}

/// What a turn found.
struct Found {
    mb_per_s: f64,
    client_sent: f64,
    client_xored: f64,
    node_sent_most: f64,
    node_received_most: f64,
    waits: u64,
}

fn turn(
    served: &[Served],
    key: &ClusterKey,
    shape: Shape,
    region: &Region,
    data_bytes: usize,
) -> Result<Found, Failed> {
    let geometry = Geometry::with_parity(served.len(), shape.parity)?;
    let deadline = Instant::now() + PATIENCE;
    let members: Vec<Member> = served.iter().map(|served| served.member.clone()).collect();
    let mut writer = Writer::open(shape, members, |address| connect(address, key, deadline), deadline)?;
    let before = counted(served)?;
    let what = vec![Vec::new(); served.len()];
    let cells = geometry.data().len();
    let stripes = data_bytes.div_ceil(cells * CELL_BYTES).max(served.len()) as u64;
    let start = Instant::now();
    for number in 0..stripes {
        while !writer.has_room() {
            writer.wait(deadline).ok_or("no stripe has ended in time")?.outcome?;
        }
        let from = usize::try_from(number)? % LANES * cells;
        let cell = |at: usize| region.slice((from + at) * CELL_BYTES, CELL_BYTES);
        let data: Vec<RegionSlice> = (0..cells).map(cell).collect::<Result<_, _>>()?;
        writer.write(&Stripe { number, cell_bytes: CELL_BYTES as u64, what: &what, data: &data })?;
    }
    while writer.under_way() > 0 {
        writer.wait(deadline).ok_or("no stripe has ended in time")?.outcome?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let client = writer.counters();
    drop(writer);
    // They count when they rest.
    std::thread::sleep(Duration::from_millis(120));
    let after = counted(served)?;
    let data = (stripes * (cells * CELL_BYTES) as u64) as f64;
    let most = |of: fn(&Counters) -> u64| {
        let each = after.iter().zip(&before).map(|(after, before)| of(after) - of(before));
        each.max().unwrap_or(0) as f64 / data
    };
    Ok(Found {
        mb_per_s: data / seconds / 1e6,
        client_sent: client.sent_bytes as f64 / data,
        client_xored: client.xored_bytes as f64 / data,
        node_sent_most: most(|counters| counters.sent_bytes),
        node_received_most: most(|counters| counters.received_bytes),
        waits: client.waits_for_credit,
    })
}

fn counted(served: &[Served]) -> Result<Vec<Counters>, Failed> {
    let of = |served: &Served| Ok(*served.counters.lock().map_err(|_| "a thread has failed")?);
    served.iter().map(of).collect()
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).map_or(0.0, |number| (number * 1e3).round() / 1e3)
}

fn main() -> Result<(), Failed> {
    let options = Options::read()?;
    let folder = tempfile::tempdir()?;
    let key = ClusterKey::generate()?;
    let mut served = start(&options, &key, folder.path())?;
    let cells = Geometry::new(options.nodes)?.data().len();
    let region = Region::allocate(LANES * cells * CELL_BYTES)?;
    let mut random = fastrand::Rng::with_seed(0x36);
    let mut block = vec![0; 1 << 20];
    for at in (0..region.bytes()).step_by(block.len()) {
        random.fill(&mut block);
        region.copy_in(at, &block)?;
    }
    for slice_bytes in &options.slices {
        let slots = (RING_BYTES / slice_bytes).clamp(2, 64);
        let mut found: Vec<Vec<Found>> = options.ways.iter().map(|_| Vec::new()).collect();
        for round in 0..=options.turns {
            for ((_, way), found) in options.ways.iter().zip(&mut found) {
                let shape = Shape {
                    parity: Parity::TwoD,
                    task: (*way).into(),
                    cell_bytes_max: CELL_BYTES as u64,
                    slice_bytes: *slice_bytes,
                    lanes: LANES,
                    slots,
                };
                let turn = turn(&served, &key, shape, &region, options.data_bytes)?;
                if round > 0 {
                    found.push(turn);
                }
            }
        }
        for ((name, _), found) in options.ways.iter().zip(&found) {
            let of = |of: fn(&Found) -> f64| median(found.iter().map(of).collect());
            let line = json!({
                "wire": options.wire, "nodes": options.nodes, "way": name, "slice_bytes": slice_bytes, "slots": slots,
                "disk": options.folder.is_some(), "turns": options.turns,
                "mb_per_s": of(|found| found.mb_per_s),
                "client_sent": of(|found| found.client_sent),
                "client_xored": of(|found| found.client_xored),
                "node_sent_most": of(|found| found.node_sent_most),
                "node_received_most": of(|found| found.node_received_most),
                "waits_for_credit": of(|found| found.waits as f64),
            });
            println!("{line}");
        }
    }
    for served in &served {
        served.stop.store(true, Ordering::Relaxed);
    }
    for thread in served.iter_mut().filter_map(|served| served.thread.take()) {
        thread.join().map_err(|_| "a thread has failed")??;
    }
    Ok(())
}
