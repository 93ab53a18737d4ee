//! Creates an embedded cluster: storage nodes on this host, with device files below the data
//! folder.
//!
//! Invariants
//! - A cluster file is written only if the data folder has none, because people may edit the file.
//!   After that, only `rackscan rebuild --onto` changes it.
//! - The cluster's key is generated here, and only its owner can read it.
//! - Each node relays stripes (forwards their cells to other nodes) over the wires that it listens
//!   on. The relays' memory is part of the node's memory budget.

use super::{ClusterFile, STARTING_LOCK, lock, read_key};
use crate::{
    args::Global,
    failure::{Failure, at_path},
    memory::available,
    private,
};
use az::SaturatingAs;
use rackscan_fabric::{ClusterKey, limits::SOCKET_PATH_BYTES_MAX};
use rackscan_storage_node::limits::{
    ADAPTER_CONNECTION_BYTES, RELAY_BYTES_DEFAULT, RELAY_BYTES_MIN, RELAY_LINKS_SPARE,
};
use std::{
    fmt::Write as _,
    fs::{self, File},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Suffix of a relay's socket, after the name of its node's socket.
pub(super) const RELAY_SUFFIX: &str = ".relay";
/// The longest name of a socket, relative to its folder.
const SOCKET_LONGEST: &str = "/node65535/socket.relay";
/// Longest folder path for sockets: with a longer one, a socket's path does not fit the address of
/// a Unix socket (`sun_path`).
const SOCKET_FOLDER_BYTES_MAX: usize = SOCKET_PATH_BYTES_MAX - SOCKET_LONGEST.len();

// `sun_path` has 108 bytes, and the last one is 0.
const _: () = assert!(SOCKET_PATH_BYTES_MAX < 108);
// A node's number has at most five digits. Names in a separate socket folder have the same length.
const _: () = assert!(SOCKET_LONGEST.len() == "/node".len() + 5 + "/socket".len() + RELAY_SUFFIX.len());
const _: () = assert!(SOCKET_LONGEST.len() == "/node65535.socket.relay".len());

/// Memory of one node in bytes, without its relays: less than the default budget. A node allocates
/// its memory when it starts, so less memory makes commands start faster; queries at scale factor 1
/// do not get slower.
const MEMORY_BYTES: u64 = 304 << 20;
/// The same on a small host.
const MEMORY_BYTES_LEAST: u64 = 112 << 20;
/// The part of it for keys and changed rows: some 50,000 rows of orders and lines.
const TRANSACTIONS_BYTES: u64 = 64 << 20;
const TRANSACTIONS_BYTES_LEAST: u64 = 16 << 20;
/// Maximum share of the memory of the host, or of its control group, for all nodes together
/// (numerator, denominator). Queries get the rest of three fifths ([`crate::memory`]).
const NODES_SHARE: (u64, u64) = (2, 5);
/// Queries run on the same host and have priority for its processors (decision 0040).
const TRANSACTIONS_NICE: u8 = 19;

/// Number of wires that each node listens on and relays stripes over.
const WIRES: u64 = 2;

/// The memory of one node, in bytes. `budget` includes the two others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NodeMemory {
    budget: u64,
    transactions: u64,
    relays: u64,
}

impl NodeMemory {
    /// Divides the available memory among the nodes, up to the default of each.
    fn of(available: u64, nodes: u16) -> Self {
        let (numerator, denominator) = NODES_SHARE;
        let each = available / denominator * numerator / u64::from(nodes.max(1));
        // Links that have not yet said what they are for are counted in addition to the relays'
        // sessions.
        let links = WIRES * (u64::from(nodes) + RELAY_LINKS_SPARE as u64) * ADAPTER_CONNECTION_BYTES;
        let wanted = WIRES * RELAY_BYTES_DEFAULT;
        let is_small = each < MEMORY_BYTES + wanted + links;
        let relays = if is_small { (each / 8).clamp(WIRES * RELAY_BYTES_MIN, wanted) } else { wanted };
        let rest = each.saturating_sub(relays + links).clamp(MEMORY_BYTES_LEAST, MEMORY_BYTES);
        let transactions =
            if is_small { (rest / 8).max(TRANSACTIONS_BYTES_LEAST) } else { TRANSACTIONS_BYTES };
        let whole = |bytes: u64| bytes.div_ceil(1 << 20) << 20;
        Self {
            budget: whole(rest + whole(relays) + links),
            transactions: whole(transactions),
            relays: whole(relays),
        }
    }
}

/// The nodes and devices of a new cluster.
pub(crate) struct Shape {
    pub(crate) nodes: u16,
    pub(crate) devices: u8,
    pub(crate) device_size: String,
}

impl Default for Shape {
    fn default() -> Self {
        Self { nodes: 4, devices: 2, device_size: "64GiB".to_owned() }
    }
}

/// Reads the cluster file that the options name. Creates an embedded cluster in a data folder that
/// has none.
pub(crate) fn find_or_create(global: &Global) -> Result<ClusterFile, Failure> {
    find_or_create_shaped(global, &Shape::default())
}

/// Like [`find_or_create`], with an embedded cluster of this shape. Commands that run at the same
/// time create only one cluster.
pub(crate) fn find_or_create_shaped(global: &Global, shape: &Shape) -> Result<ClusterFile, Failure> {
    if let Some(file) = ClusterFile::find(global)? {
        return Ok(file);
    }
    private::make_folder(&global.data).map_err(at_path(&global.data))?;
    let _starting = lock(&global.data, STARTING_LOCK, File::lock)?;
    match ClusterFile::find(global)? {
        Some(file) => Ok(file),
        None => create(&global.data, shape),
    }
}

/// Creates the data folder, a key and a cluster file. A key left by an interrupted start is reused.
///
/// Two processes must not do this at the same time: see [`find_or_create_shaped`].
pub(crate) fn create(data: &Path, shape: &Shape) -> Result<ClusterFile, Failure> {
    private::make_folder(data).map_err(at_path(data))?;
    let folder = fs::canonicalize(data).map_err(at_path(data))?;
    check_nothing_lost(&folder)?;
    let key_path = folder.join("cluster.key");
    if key_path.exists() {
        read_key(&key_path)?;
    } else {
        let key = ClusterKey::generate()
            .map_err(|error| Failure::Runtime(format!("cannot generate the cluster's key: {error}")))?;
        let unfinished = folder.join("cluster.key.new");
        private::write(&unfinished, &key.to_hex()).map_err(at_path(&unfinished))?;
        fs::rename(&unfinished, &key_path).map_err(at_path(&key_path))?;
    }
    // The cluster's number has randomness of its own: it is public, and must not reveal the key.
    let cluster =
        u64::from_str_radix(&ClusterKey::generate().map_err(at_path(&key_path))?.to_hex()[..15], 16);
    let cluster = cluster
        .map_err(|error| Failure::Runtime(format!("cannot generate the cluster's number: {error}")))?;
    let memory = NodeMemory::of(available()?, shape.nodes);
    let text = text(&folder, cluster, shape, memory)?;
    let path = data.join("cluster.toml");
    let unfinished = data.join("cluster.toml.new");
    private::write(&unfinished, &text).map_err(at_path(&unfinished))?;
    let replaced = fs::rename(&unfinished, &path).and_then(|()| File::open(&folder)?.sync_all());
    replaced.map_err(at_path(&path))?;
    ClusterFile::read(&path)
}

/// Refuses a folder whose nodes have data but whose cluster file is missing: a new cluster would
/// not know them.
fn check_nothing_lost(folder: &Path) -> Result<(), Failure> {
    for entry in fs::read_dir(folder).map_err(at_path(folder))?.filter_map(Result::ok) {
        let node = entry.path();
        if ["catalog", "identity.toml"].iter().any(|name| node.join(name).exists()) {
            return Err(Failure::Runtime(format!(
                "{}: there is no cluster.toml, but {} has the data of a node: restore cluster.toml, or move the folders of the nodes to another place \
                 to begin a new cluster",
                folder.display(),
                node.display()
            )));
        }
    }
    Ok(())
}

fn text(folder: &Path, cluster: u64, shape: &Shape, memory: NodeMemory) -> Result<String, Failure> {
    let sockets = socket_folder(folder, cluster)?;
    let mut text = format!(
        "# The embedded cluster: nodes of this host, started with the commands that need them, or to stay by\n\
         # `rackscan cluster start`. Device files take disk space as pages are written, at most `size`.\n\
         cluster = {cluster}\nkey_file = \"cluster.key\"\n"
    );
    let [budget, transactions, relays] =
        [memory.budget, memory.transactions, memory.relays].map(|bytes| bytes >> 20);
    let mut ports = free_ports("127.0.0.1", 2 * usize::from(shape.nodes))?.into_iter();
    let mut port = || ports.next().unwrap_or_default();
    for node in 0..shape.nodes {
        let socket = match &sockets {
            Some(elsewhere) => elsewhere.join(format!("node{node}.socket")).display().to_string(),
            None => format!("node{node}/socket"),
        };
        let devices: Vec<String> = (0..shape.devices)
            .map(|device| {
                format!("{{ path = \"node{node}/device{device}\", size = \"{}\" }}", shape.device_size)
            })
            .collect();
        let shm = |suffix: &str| toml::Value::String(format!("shm:{socket}{suffix}"));
        let written = write!(
            text,
            "\n[[node]]\nnode = {node}\ndata_dir = \"node{node}\"\ndevices = [{}]\n\
             listen = [{}, \"tcp:127.0.0.1:{}\"]\nrelay = [{}, \"tcp:127.0.0.1:{}\"]\nrelay_memory = \"{}MiB\"\n\
             memory_budget = \"{budget}MiB\"\ntransactions = \"{transactions}MiB\"\n\
             transactions_nice = {TRANSACTIONS_NICE}\n",
            devices.join(", "),
            shm(""),
            port(),
            shm(RELAY_SUFFIX),
            port(),
            relays,
        );
        written.map_err(|error| Failure::Runtime(error.to_string()))?;
    }
    Ok(text)
}

/// Lowest port to use. Well-known ports, and those of services on many hosts, are below.
const PORT_MIN: u16 = 10_000;
const EPHEMERAL_FILE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Returns `count` free ports. Prefers ports outside of the kernel's ephemeral range, which no
/// outgoing connection can occupy.
pub(super) fn free_ports(host: &str, count: usize) -> Result<Vec<u16>, Failure> {
    let text = fs::read_to_string(EPHEMERAL_FILE).unwrap_or_default();
    let mut ports = lasting_ports(ephemeral(&text));
    // A random start, so that concurrent commands try different ports.
    let start = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), count);
    let start = (start % ports.len().max(1) as u64).saturating_as::<usize>();
    ports.rotate_left(start);
    // The sockets stay bound until all ports are known, so that no port is returned twice.
    let mut held: Vec<TcpListener> = Vec::with_capacity(count);
    for port in ports {
        if held.len() < count {
            held.extend(TcpListener::bind((host, port)).ok());
        }
    }
    let no_port = |error: std::io::Error| Failure::Runtime(format!("no free TCP ports on {host}: {error}"));
    while held.len() < count {
        held.push(TcpListener::bind((host, 0)).map_err(no_port)?);
    }
    held.iter().map(|held| Ok(held.local_addr()?.port())).collect::<Result<_, _>>().map_err(no_port)
}

/// Parses the kernel's range of ephemeral ports.
fn ephemeral(text: &str) -> (u16, u16) {
    let mut words = text.split_whitespace().map(str::parse);
    match (words.next(), words.next()) {
        (Some(Ok(first)), Some(Ok(last))) if first <= last => (first, last),
        // The default of Linux.
        _ => (32_768, 60_999),
    }
}

/// Ports outside of the ephemeral range.
fn lasting_ports((first, last): (u16, u16)) -> Vec<u16> {
    (PORT_MIN..=u16::MAX).filter(|port| !(first..=last).contains(port)).collect()
}

/// Returns the folder for sockets if the path of the data folder is too long for them.
pub(super) fn socket_folder(folder: &Path, cluster: u64) -> Result<Option<PathBuf>, Failure> {
    if folder.as_os_str().len() <= SOCKET_FOLDER_BYTES_MAX {
        return Ok(None);
    }
    let base = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let elsewhere = base.join(format!("rackscan-{cluster:x}"));
    if elsewhere.as_os_str().len() > SOCKET_FOLDER_BYTES_MAX {
        return Err(Failure::Runtime(format!(
            "{}: the path of the folder for sockets is {} bytes long, the maximum is {SOCKET_FOLDER_BYTES_MAX}: set \
             XDG_RUNTIME_DIR to a shorter path",
            elsewhere.display(),
            elsewhere.as_os_str().len()
        )));
    }
    private::make_folder(&elsewhere).map_err(at_path(&elsewhere))?;
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o700)).map_err(at_path(&elsewhere))?;
    Ok(Some(elsewhere))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rackscan_fabric::Address;

    #[test]
    fn a_new_cluster_can_be_read_and_its_key_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let file = create(&data, &Shape::default()).unwrap();
        assert_eq!(file.members.len(), 4);
        assert_eq!(file.members_here().count(), 4);
        assert!(file.members.iter().all(|member| member.config.devices.len() == 2));
        let mode = fs::metadata(data.join("cluster.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        file.key().unwrap();
    }

    #[test]
    fn each_node_relays_over_its_wires_and_knows_where_the_others_do() {
        let folder = tempfile::tempdir().unwrap();
        let file = create(&folder.path().join("data"), &Shape::default()).unwrap();
        let mut addresses: Vec<String> = Vec::new();
        for member in &file.members {
            let config = &member.config;
            config.check().unwrap();
            let wires = |addresses: &[Address]| addresses.iter().map(Address::wire).collect::<Vec<_>>();
            assert_eq!(wires(&config.relay), wires(&config.listen));
            for peer in &config.peers {
                let named = file.members.iter().find(|other| other.config.node == peer.node).unwrap();
                assert_eq!(peer.relay, named.config.relay);
            }
            assert_eq!(config.peers.len(), 3);
            addresses.extend(config.listen.iter().chain(&config.relay).map(ToString::to_string));
        }
        let count = addresses.len();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!((addresses.len(), count), (16, 16), "{addresses:?}");
    }

    #[test]
    fn nodes_take_two_fifths_of_a_small_host_at_most_and_what_they_want_of_a_large_one() {
        const MIB: u64 = 1 << 20;
        let large = NodeMemory::of(24 << 30, 4);
        assert_eq!(large, NodeMemory { budget: 447 * MIB, transactions: 64 * MIB, relays: 128 * MIB });
        for (gibibytes, most) in [(2, 206), (3, 309), (4, 411)] {
            let budget = NodeMemory::of(gibibytes << 30, 4).budget / MIB;
            assert!(budget <= most, "{budget} MiB of {gibibytes} GiB");
        }
        let folder = tempfile::tempdir().unwrap();
        let (key, shape) = (folder.path().join("cluster.key"), Shape::default());
        private::write(&key, &"ab".repeat(32)).unwrap();
        let path = folder.path().join("cluster.toml");
        for gibibytes in [1, 2, 3, 4, 5] {
            let memory = NodeMemory::of(gibibytes << 30, shape.nodes);
            fs::write(&path, text(folder.path(), 1, &shape, memory).unwrap()).unwrap();
            let file = ClusterFile::read(&path).unwrap_or_else(|error| panic!("{gibibytes} GiB: {error}"));
            file.members.iter().for_each(|member| member.config.check().unwrap());
        }
    }

    #[test]
    fn a_key_that_an_interrupted_start_has_left_is_used_and_lost_cluster_files_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        private::make_folder(&data).unwrap();
        let key = "ab".repeat(32);
        private::write(&data.join("cluster.key"), &key).unwrap();
        create(&data, &Shape::default()).unwrap();
        assert_eq!(fs::read_to_string(data.join("cluster.key")).unwrap(), key);
        fs::remove_file(data.join("cluster.toml")).unwrap();
        create(&data, &Shape::default()).unwrap();
        fs::remove_file(data.join("cluster.toml")).unwrap();
        fs::create_dir(data.join("node0")).unwrap();
        fs::write(data.join("node0/catalog"), "").unwrap();
        let error = create(&data, &Shape::default()).err().unwrap().to_string();
        assert!(error.contains("node0") && error.contains("restore cluster.toml"), "{error}");
        assert!(!data.join("cluster.toml").exists());
    }

    #[test]
    fn ports_lie_outside_of_those_that_the_kernel_gives_to_connections() {
        assert_eq!(ephemeral("32768\t60999\n"), (32_768, 60_999));
        assert_eq!(ephemeral("nonsense"), (32_768, 60_999));
        let range = ephemeral(&fs::read_to_string(EPHEMERAL_FILE).unwrap_or_default());
        let ports = free_ports("127.0.0.1", 16).unwrap();
        assert_eq!(ports.iter().collect::<std::collections::BTreeSet<_>>().len(), 16);
        if lasting_ports(range).len() > 1000 {
            assert!(ports.iter().all(|port| !(range.0..=range.1).contains(port)), "{ports:?}");
        }
        assert_eq!(lasting_ports((10_000, 65_535)), [0_u16; 0]);
        assert_eq!(lasting_ports((10_002, 65_534)), [10_000, 10_001, 65_535]);
    }

    #[test]
    fn a_long_path_gets_its_sockets_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("d".repeat(120));
        let file = create(&data, &Shape { nodes: 1, devices: 1, device_size: "1GiB".into() }).unwrap();
        let address = file.members[0].config.listen[0].to_string();
        assert!(address.len() < 108 && !address.contains("ddd"), "{address}");
        fs::remove_dir_all(Path::new(address.trim_start_matches("shm:")).parent().unwrap()).unwrap();
    }

    #[test]
    fn a_folder_that_is_not_called_too_long_holds_every_socket() {
        let root = "/".to_owned() + &"f".repeat(SOCKET_FOLDER_BYTES_MAX - 1);
        assert_eq!(socket_folder(Path::new(&root), 1).unwrap(), None);
        let socket = format!("{root}{SOCKET_LONGEST}");
        assert!(std::os::unix::net::SocketAddr::from_pathname(&socket).is_ok(), "{socket}");
        assert_eq!(socket.len(), SOCKET_PATH_BYTES_MAX);
    }
}
