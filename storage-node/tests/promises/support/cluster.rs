//! Runs several nodes that know each other, each in its own folder, over one wire.

use std::{
    net::TcpListener,
    path::PathBuf,
    time::{Duration, Instant},
};

use rackscan_client::{LinesOptions, NodeEndpoint};
use rackscan_fabric::{Address, Wire};
use rackscan_format::{
    ids::NodeId,
    message::{Answer, NodeStatus, ParticipantStatus, Refusal, Request},
};
use rackscan_ramp::{log::Tail, message::ParticipantId};
use rackscan_storage_node::{ByteSize, ClusterId, Config, LogPatience, PeerConfig};

use super::{
    client::Client,
    node::{NodeFolder, Running, own_host},
};

/// Longer than anything takes that happens at all.
const PATIENCE: Duration = Duration::from_secs(120);

/// Nodes that know each other, with the ids 1, 2, ..; each may be up or down.
pub(crate) struct Cluster {
    node_folders: Vec<NodeFolder>,
    addresses: Vec<Address>,
    wire: Wire,
    nodes: Vec<Option<Running>>,
    /// The most that their logs may take.
    pub(crate) log_bytes_max: Option<u64>,
    /// How long they wait for the rest of a damaged log.
    pub(crate) log_patience: LogPatience,
    /// How many replicas their logs need; by default as nodes have it by default.
    pub(crate) log_replicas_min: Option<u8>,
}

impl Cluster {
    /// So many nodes that talk over this wire; all are down. Each has an empty log, as if it had
    /// been started before: so it keeps keys at once, whoever else is up.
    pub(crate) fn new(nodes: usize, wire: Wire) -> Self {
        let cluster = Self::of_new_nodes(nodes, wire);
        for (salt, node_folder) in (1..).zip(&cluster.node_folders) {
            let (header, _) = Tail::header(0, salt << 16);
            std::fs::create_dir_all(node_folder.path("data")).expect("the folder is writable");
            std::fs::write(node_folder.path("data/transactions.log"), header)
                .expect("the folder is writable");
        }
        cluster
    }

    /// The same with nodes that have never been started.
    pub(crate) fn of_new_nodes(nodes: usize, wire: Wire) -> Self {
        let node_folders: Vec<NodeFolder> = (0..nodes).map(|_| NodeFolder::new()).collect();
        // Held together, so that they differ, and free again when the nodes want them.
        let host = own_host();
        let ports: Vec<TcpListener> =
            (0..nodes).map(|_| TcpListener::bind((&*host, 0)).expect("a free port")).collect();
        let address = |(node_folder, port): (&NodeFolder, &TcpListener)| match wire {
            Wire::Shm => node_folder.config().listen[0].clone(),
            _ => {
                let port = port.local_addr().expect("it is bound").port();
                Address::Tcp { host: host.clone(), port }
            }
        };
        let addresses = node_folders.iter().zip(&ports).map(address).collect();
        Self {
            node_folders,
            addresses,
            wire,
            nodes: (0..nodes).map(|_| None).collect(),
            log_bytes_max: None,
            log_patience: LogPatience::default(),
            log_replicas_min: None,
        }
    }

    /// Starts a node, for the first time or over what it left.
    pub(crate) fn start(&mut self, id: u16) {
        self.start_in(id, ClusterId(99));
    }

    /// The same, as a member of this cluster.
    pub(crate) fn start_in(&mut self, id: u16, cluster: ClusterId) {
        let running = self.node_folders[usize::from(id) - 1].start_with(self.config(id, cluster));
        self.nodes[usize::from(id) - 1] = Some(running.expect("the node starts"));
    }

    /// What a node is told before it starts.
    pub(crate) fn config(&self, id: u16, cluster: ClusterId) -> Config {
        let place = usize::from(id) - 1;
        let mut config = self.node_folders[place].config_with_keys();
        (config.node, config.cluster) = (NodeId(id), cluster);
        config.log_patience = self.log_patience;
        config.log_replicas_min = self.log_replicas_min;
        config.transactions_log = self.log_bytes_max.map(ByteSize);
        if self.wire != Wire::Shm {
            config.listen[1] = self.addresses[place].clone();
        }
        // All of them, as whoever writes configurations may: a node knows which one it is.
        let peer = |(node, address): (u16, &Address)| PeerConfig {
            node: NodeId(node),
            addresses: vec![address.clone()],
            relay: Vec::new(),
        };
        config.peers = (1..).zip(&self.addresses).map(peer).collect();
        config
    }

    /// Starts a node that ends by itself; why it does.
    pub(crate) fn fails(&mut self, id: u16) -> String {
        let place = usize::from(id) - 1;
        let running = self.node_folders[place].start_with(self.config(id, ClusterId(99)));
        let stopped = running.expect("the node starts").handle.wait();
        stopped.expect_err("the node ends by itself").to_string()
    }

    pub(crate) fn start_all(&mut self) {
        for id in 1..=self.nodes.len() {
            self.start(u16::try_from(id).expect("few nodes"));
        }
    }

    /// Stops a node; what it has on its disk stays.
    pub(crate) fn stop(&mut self, id: u16) {
        if let Some(node) = self.nodes[usize::from(id) - 1].take() {
            node.stop();
        }
    }

    pub(crate) fn stop_all(mut self) {
        self.nodes.drain(..).flatten().for_each(Running::stop);
    }

    /// How all nodes are reached, whether they are up or down.
    pub(crate) fn lines(&self) -> LinesOptions {
        let endpoint = |(id, address): (u16, &Address)| NodeEndpoint {
            id: NodeId(id),
            addresses: vec![address.clone()],
        };
        let nodes = (1..).zip(&self.addresses).map(endpoint).collect();
        let key = self.node_folders.first().expect("there are nodes").key.clone();
        let patience = Duration::from_secs(20);
        LinesOptions { nodes, key, wire: None, memory_bytes: 4 << 20, patience, posts: false }
    }

    /// A client of a node, over the wire of this cluster.
    pub(crate) fn client(&self, id: u16) -> Client {
        let node = self.nodes[usize::from(id) - 1].as_ref().expect("the node is up");
        match self.wire {
            Wire::Shm => node.shm(),
            _ => node.tcp(),
        }
    }

    /// A client of a node, as soon as its participant is there.
    pub(crate) fn ready(&self, id: u16) -> Client {
        let deadline = Instant::now() + PATIENCE;
        let mut client = self.client(id);
        while let Err(refusal) = open_participant(&mut client) {
            assert!(Instant::now() < deadline, "node {id}: {refusal:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        client
    }

    /// A file or folder of a node.
    pub(crate) fn path(&self, id: u16, name: &str) -> PathBuf {
        self.node_folders[usize::from(id) - 1].path(name)
    }

    /// Waits until the participant of a node is in that state.
    pub(crate) fn settles(&self, id: u16, settled: impl Fn(&ParticipantStatus) -> bool) -> ParticipantStatus {
        self.comes_to(id, |node| settled(&node.participant)).participant
    }

    /// Waits until a node is in that state.
    pub(crate) fn comes_to(&self, id: u16, settled: impl Fn(&NodeStatus) -> bool) -> NodeStatus {
        let deadline = Instant::now() + PATIENCE;
        let mut client = self.client(id);
        loop {
            let status = client.status();
            if settled(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "node {id}: {status:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Whether a node's participant is there.
pub(crate) fn open_participant(client: &mut Client) -> Result<(), Refusal> {
    match client.ask(Request::OpenParticipant) {
        Ok(Answer::Participant(Some(_))) => Ok(()),
        Ok(other) => panic!("the participant's memory was expected, not {other:?}"),
        Err(refusal) => Err(refusal),
    }
}

pub(crate) fn participants(ids: &[u16]) -> Vec<ParticipantId> {
    ids.iter().map(|id| ParticipantId(*id)).collect()
}
