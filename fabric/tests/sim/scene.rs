//! Sets up a client, a server, and memory of the server that the client may use.

use rackscan_fabric::{
    Access, ClusterKey, Connection, Done, Event, Listener, Operation, OperationError, Region, RemoteRegion,
    sim::{Seed, SimConfig, SimNet},
};

pub(crate) const CLIENT: &str = "client";
pub(crate) const SERVER: &str = "server";

pub(crate) struct Scene {
    pub(crate) net: SimNet,
    pub(crate) listener: Listener,
    pub(crate) client: Connection,
    pub(crate) server: Connection,
    /// Memory of the server.
    pub(crate) memory: Region,
    /// Its name at the client.
    pub(crate) name: RemoteRegion,
}

pub(crate) fn cluster_key() -> ClusterKey {
    ClusterKey::from_bytes([7; 32])
}

/// A further connection to a listener: the caller's end and the listener's.
pub(crate) fn meet(net: &SimNet, from: &str, listener: &mut Listener) -> (Connection, Connection) {
    let caller = net.connect(from, listener.address(), &cluster_key()).expect("connect");
    (caller, listener.accept().expect("accept").expect("a caller"))
}

impl Scene {
    pub(crate) fn new(seed: Seed, config: SimConfig) -> Self {
        let net = SimNet::new(seed, config);
        let mut listener = net.listen(SERVER, &cluster_key()).expect("listen");
        let (client, mut server) = meet(&net, CLIENT, &mut listener);
        let memory = Region::allocate(4096).expect("allocate");
        let name = server.register(&memory, Access::ReadWrite).expect("register");
        Self { net, listener, client, server, memory, name }
    }

    /// Another client, with access to the same memory; the server's end of it comes last.
    pub(crate) fn another(&mut self, place: &str) -> (Connection, RemoteRegion, Connection) {
        let (client, mut server) = meet(&self.net, place, &mut self.listener);
        let name = server.register(&self.memory, Access::ReadWrite).expect("register");
        (client, name, server)
    }

    /// The client writes bytes.
    pub(crate) fn write(&mut self, id: u64, offset: u64, bytes: &[u8]) {
        let write = Operation::WriteBytes { bytes, target: self.name, target_offset: offset };
        self.client.post(id, write).expect("post");
    }

    pub(crate) fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        self.memory.to_vec(offset, length).expect("copy out")
    }
}

/// Everything that has arrived, after the network has become idle.
pub(crate) fn settle(net: &SimNet, connection: &mut Connection) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        net.run_until_idle();
        if connection.poll(&mut events) == 0 {
            return events;
        }
    }
}

/// The completions among events.
pub(crate) fn completions(events: &[Event]) -> Vec<(u64, Result<Done, OperationError>)> {
    let completion = |event: &Event| match event {
        Event::Completed { id, outcome } => Some((*id, outcome.clone())),
        _ => None,
    };
    events.iter().filter_map(completion).collect()
}

/// Runs `body` for seeds. A failing seed ends the loop and is printed.
pub(crate) fn each_seed(count: u64, body: impl FnMut(Seed)) {
    Seed::each(count, body).expect("a seed");
}

/// Whether all seeds are tried and not only a replayed one. Only then must everything that may
/// happen have been seen.
pub(crate) fn all_seeds() -> bool {
    Seed::from_environment().expect("a seed").is_none()
}
