//! Starts the clusters for the tests of protected tables: real nodes of this process, each with a
//! device and a folder that outlive it.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use rackscan_client::{
    ClientError, Cluster, ClusterCatalog, ClusterOptions, ClusterTable, LoadSession, NodeEndpoint,
    PlacedSegment,
};
use rackscan_fabric::{Address, ClusterKey};
use rackscan_format::{
    chunk::{ChunkInput, ChunkWriter, Values},
    encoding::text::TextValues,
    ids::{ColumnId, DeviceId, NodeId, PageNumber, SegmentId, TableId},
    schema::{ColumnDefinition, ColumnType, Protection, TableDefinition},
    segment::{ChunkDirectory, Extent, PageEntry, SegmentDirectory},
};
use rackscan_scan::PageWanted;
use rackscan_storage_node::{ByteSize, ClusterId, Config, DeviceConfig, Node, NodeHandle, PeerConfig};
use tempfile::TempDir;

/// Longer than anything takes that happens at all, on a machine that has much else to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) struct Rack {
    folder: TempDir,
    device_bytes: u64,
    /// Sockets need short paths.
    sockets: TempDir,
    key: ClusterKey,
    /// Whether nodes have relays.
    relays: bool,
    nodes: Vec<Option<NodeHandle>>,
}

/// What a segment of the tests is made of.
pub(crate) type Pages = Vec<Vec<u8>>;

impl Rack {
    /// So many nodes, started, with ids from 1 on.
    pub(crate) fn new(nodes: usize) -> Self {
        Self::with_devices(nodes, 16 << 20)
    }

    /// The same with devices of so many bytes.
    pub(crate) fn with_devices(nodes: usize, device_bytes: u64) -> Self {
        Self::of(nodes, device_bytes, false)
    }

    /// The same, with nodes that relay stripes to each other.
    pub(crate) fn relaying(nodes: usize, device_bytes: u64) -> Self {
        Self::of(nodes, device_bytes, true)
    }

    fn of(nodes: usize, device_bytes: u64, relays: bool) -> Self {
        // Beside the build, because /tmp may be a tmpfs, where direct IO is refused.
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("the build folder is writable");
        let sockets = TempDir::new().expect("the folder for temporary files is writable");
        let key = ClusterKey::from_bytes([7; 32]);
        std::fs::write(folder.path().join("cluster.key"), key.to_hex()).expect("the folder is writable");
        let nodes_none = (0..nodes).map(|_| None).collect();
        let mut rack = Self { folder, device_bytes, sockets, key, relays, nodes: nodes_none };
        (0..nodes).for_each(|node| rack.start(node));
        rack
    }

    pub(crate) fn ids(&self) -> Vec<NodeId> {
        (0..self.nodes.len()).map(id).collect()
    }

    fn address(&self, node: usize) -> Address {
        Address::Shm { path: self.sockets.path().join(format!("n{node}")) }
    }

    /// Where a node that runs listens on tcp.
    pub(crate) fn tcp(&self, node: usize) -> Address {
        let handle = self.nodes[node].as_ref().expect("it runs");
        let found = handle.addresses().iter().find(|address| matches!(address, Address::Tcp { .. }));
        found.expect("it listens on tcp").clone()
    }

    fn relay(&self, node: usize) -> Vec<Address> {
        let address = Address::Shm { path: self.sockets.path().join(format!("r{node}")) };
        if self.relays { vec![address] } else { Vec::new() }
    }

    pub(crate) fn data(&self, node: usize) -> PathBuf {
        self.folder.path().join(format!("data{node}"))
    }

    pub(crate) fn device(&self, node: usize) -> PathBuf {
        self.folder.path().join(format!("device{node}"))
    }

    pub(crate) fn start(&mut self, node: usize) {
        let size = Some(ByteSize(self.device_bytes));
        let device = DeviceConfig { path: self.device(node), size, reserve: false };
        let key = self.folder.path().join("cluster.key");
        let mut config = Config::new(id(node), ClusterId(99), self.data(node), device, key);
        config.listen = vec![self.address(node), Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 }];
        config.memory_budget = ByteSize(64 << 20);
        config.scan_workers = 1;
        if self.relays {
            config.relay = self.relay(node);
            config.relay_memory = Some(ByteSize(64 << 20));
            config.memory_budget = ByteSize(160 << 20);
            let peer = |node: usize| PeerConfig {
                node: id(node),
                addresses: vec![self.address(node)],
                relay: self.relay(node),
            };
            config.peers = (0..self.nodes.len()).map(peer).collect();
        }
        self.nodes[node] = Some(Node::start(config).expect("the node starts"));
    }

    pub(crate) fn stop(&mut self, node: usize) {
        let Some(handle) = self.nodes[node].take() else { return };
        handle.stop();
        handle.wait().expect("the node had no reason to stop by itself");
    }

    /// Stops and starts a node.
    pub(crate) fn restart(&mut self, node: usize) {
        self.stop(node);
        self.start(node);
    }

    pub(crate) async fn connect(&self, unavailable_max: usize) -> Result<Cluster, ClientError> {
        self.connect_with(unavailable_max, 16 << 20).await
    }

    pub(crate) async fn connect_with(
        &self,
        unavailable_max: usize,
        memory_bytes: usize,
    ) -> Result<Cluster, ClientError> {
        let mut options = self.options();
        (options.memory_bytes, options.unavailable_max) = (memory_bytes, unavailable_max);
        Cluster::connect(options).await
    }

    /// What the cluster is reached with.
    pub(crate) fn options(&self) -> ClusterOptions {
        let endpoint = |node| NodeEndpoint { id: id(node), addresses: vec![self.address(node)] };
        let endpoints = (0..self.nodes.len()).map(endpoint).collect();
        let mut options = ClusterOptions::new(endpoints, self.key.clone());
        (options.memory_bytes, options.request_timeout) = (16 << 20, PATIENCE);
        options
    }

    /// Bytes in use on all devices, as the nodes say.
    pub(crate) async fn used_bytes(&self, cluster: &Cluster) -> u64 {
        let mut used = 0;
        for node in self.ids() {
            let status = cluster.status(node).await.expect("it is there");
            used += status.devices.iter().map(|device| device.used_bytes).sum::<u64>();
        }
        used
    }

    /// Waits until as many bytes are in use as are wanted. What was given up may still be on its
    /// way, and has room as long.
    pub(crate) async fn comes_to_use(&self, cluster: &Cluster, is_wanted: impl Fn(u64) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let used = self.used_bytes(cluster).await;
            if is_wanted(used) {
                return;
            }
            assert!(Instant::now() < deadline, "{used} bytes are in use for ever");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Rack {
    fn drop(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.stop(node));
    }
}

pub(crate) fn id(node: usize) -> NodeId {
    NodeId(u16::try_from(node + 1).expect("a few"))
}

pub(crate) fn definition(id: u32, nodes: &[NodeId], protection: Option<Protection>) -> TableDefinition {
    let column =
        |name: &str, column_type| ColumnDefinition { name: name.to_owned(), column_type, nullable: false };
    TableDefinition {
        id: TableId(id),
        name: format!("t{id}"),
        columns: vec![column("key", ColumnType::Int64), column("text", ColumnType::Text)],
        partition_key: ColumnId(0),
        sorted_by: None,
        page_size: 8192,
        segment_rows: 4096,
        nodes: nodes.to_vec(),
        rows: 0,
        source: "test".to_owned(),
        succeeds: None,
        derived: Vec::new(),
        protection,
    }
}

/// A segment of `rows` rows, before it is stored.
pub(crate) fn segment(definition: &TableDefinition, number: u32, rows: u32) -> (SegmentDirectory, Pages) {
    let keys: Vec<i64> = (0..rows).map(|row| i64::from(number * 10_000 + row)).collect();
    let mut bytes = Vec::new();
    let mut offsets = vec![0];
    for key in &keys {
        let text = format!(
            "row {key} of table {}, {:x}",
            definition.id,
            key * 7_919_101 * i64::from(definition.id.0)
        );
        bytes.extend_from_slice(text.as_bytes());
        offsets.push(u32::try_from(bytes.len()).expect("small"));
    }
    let columns = [Values::Integers(&keys), Values::Text(TextValues { bytes: &bytes, offsets: &offsets })];
    let (mut writer, mut chunks, mut pages) = (ChunkWriter::new(), Vec::new(), Vec::new());
    for (column, values) in (0_u16..).zip(columns) {
        let mut entries = Vec::new();
        let input = ChunkInput {
            table: definition.id,
            segment: SegmentId(number),
            column: ColumnId(column),
            column_type: definition.columns[usize::from(column)].column_type,
            values,
            validity: None,
            page_bytes: definition.page_size,
        };
        let mut keep = |page: rackscan_format::chunk::EncodedPage| {
            let length_bytes = u32::try_from(page.bytes.len()).expect("small");
            let extent = Extent { device: DeviceId(0), offset_bytes: 0, length_bytes };
            entries.push(PageEntry { extent, first_row: page.first_row, rows: page.rows, zone: page.zone });
            pages.push(page.bytes);
        };
        writer.encode(&input, &mut keep).expect("a test's values can be encoded");
        chunks.push(ChunkDirectory { pages: entries });
    }
    (SegmentDirectory { table: definition.id, segment: SegmentId(number), rows, chunks }, pages)
}

/// The `number`-th segment of a table of the tests is of another length than the others.
pub(crate) fn rows_of(number: u32) -> u32 {
    700 + number * 391 % 3000
}

/// Appends segments; of the `at`-th node of the table, as many as it says.
pub(crate) async fn append(load: &LoadSession, first: u32, counts: &[u32]) -> u32 {
    let mut number = first;
    for (at, count) in counts.iter().enumerate() {
        for _ in 0..*count {
            let (directory, pages) = segment(load.definition(), number, rows_of(number));
            load.append(load.definition().nodes[at], &directory, &pages).await.expect("the node takes it");
            number += 1;
        }
    }
    number
}

/// Loads a table with so many segments at each node.
pub(crate) async fn load(cluster: &Cluster, definition: TableDefinition, counts: &[u32]) -> TableDefinition {
    let load = LoadSession::begin(cluster, definition).await.expect("a new table");
    append(&load, 0, counts).await;
    load.publish().await.expect("all nodes are there")
}

/// The table of this id, as a catalog has it.
pub(crate) async fn table(cluster: &Cluster, id: u32) -> ClusterTable {
    let catalog: ClusterCatalog = cluster.catalog().await.expect("enough nodes are there");
    let found = catalog.tables.into_iter().find(|table| table.definition.id == TableId(id));
    found.unwrap_or_else(|| panic!("no table {id}; broken: {:?}", catalog.broken))
}

/// Waits until the nodes that were unavailable are used again, which takes looking at what there is
/// from time to time.
pub(crate) async fn are_back(cluster: &Cluster) {
    let deadline = Instant::now() + PATIENCE;
    while !cluster.unavailable().is_empty() {
        assert!(Instant::now() < deadline, "{:?} are unavailable for ever", cluster.unavailable());
        tokio::time::sleep(rackscan_client::limits::AWAY_LOOK_PERIOD / 10).await;
        cluster.catalog().await.expect("enough nodes are there");
    }
}

pub(crate) fn wanted(placed: &PlacedSegment) -> Vec<PageWanted> {
    let directory: &Arc<SegmentDirectory> = &placed.directory;
    let mut wanted = Vec::new();
    for (column, chunk) in (0..).zip(&directory.chunks) {
        for (page, entry) in (0..).zip(&chunk.pages) {
            wanted.push(PageWanted {
                column: ColumnId(column),
                page: PageNumber(page),
                extent: entry.extent,
            });
        }
    }
    wanted
}

/// That every page of a table comes, byte for byte; how many were reconstructed, from how many
/// bytes.
pub(crate) async fn is_read(cluster: &Cluster, table: &ClusterTable) -> (u32, u64) {
    let (mut reconstructed, mut read) = (0, 0);
    for placed in &table.segments {
        let (written, number) = (placed.directory.table, placed.directory.segment);
        let of = TableDefinition { id: written, ..(*table.definition).clone() };
        let (_, pages) = segment(&of, number.0, placed.directory.rows);
        let fetched = cluster.fetch(placed.node, written, number, &wanted(placed)).await.expect("its pages");
        assert_eq!(fetched.pages.len(), pages.len());
        for (found, expected) in fetched.pages.iter().zip(&pages) {
            assert!(found.bytes() == expected, "a page of segment {number} at node {}", placed.node);
        }
        reconstructed += fetched.reconstructed_pages;
        read += fetched.survivor_bytes;
    }
    (reconstructed, read)
}

/// What a catalog says of a table, to compare.
pub(crate) fn said(table: &ClusterTable) -> Vec<(NodeId, SegmentDirectory, u32)> {
    let of = |placed: &PlacedSegment| (placed.node, (*placed.directory).clone(), placed.withheld.count());
    table.segments.iter().map(of).collect()
}
