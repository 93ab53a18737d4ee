//! Starts several nodes of one cluster, over one wire, and stops and restarts them.

use std::sync::Arc;

use rackscan_fabric::Address;

use crate::node::{Knobs, Place, TestNode};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Shm,
    Tcp,
}

pub(crate) const WIRES: [Wire; 2] = [Wire::Shm, Wire::Tcp];

pub(crate) struct Scene {
    pub(crate) places: Vec<Place>,
    nodes: Vec<Option<TestNode>>,
    /// The nodes' sockets are in it.
    _folder: tempfile::TempDir,
}

impl Scene {
    pub(crate) fn start(wire: Wire, nodes: u16) -> Self {
        let folder = tempfile::TempDir::new().expect("the folder for temporary files is writable");
        let address = |node: u16| match wire {
            Wire::Shm => Address::Shm { path: folder.path().join(format!("{node}.sock")) },
            Wire::Tcp => Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 },
        };
        // Ids are not positions.
        let mut places: Vec<Place> = (0..nodes).map(|node| Place::new(3 + 2 * node, address(node))).collect();
        let nodes = places.iter_mut().map(|place| Some(place.start())).collect();
        Self { places, nodes, _folder: folder }
    }

    /// Nodes that somebody else starts.
    pub(crate) fn of(places: Vec<Place>) -> Self {
        let folder = tempfile::TempDir::new().expect("the folder for temporary files is writable");
        Self { places, nodes: Vec::new(), _folder: folder }
    }

    pub(crate) fn stop(&mut self, node: usize) {
        self.nodes[node] = None;
    }

    pub(crate) fn start_again(&mut self, node: usize) {
        self.nodes[node] = Some(self.places[node].start());
    }

    pub(crate) fn knobs(&self, node: usize) -> Arc<Knobs> {
        Arc::clone(&self.nodes[node].as_ref().expect("it runs").knobs)
    }
}
