//! What does a node consist of, and in which order does it start and stop?

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rackscan_fabric::{Address, ClusterKey, Listener};

use crate::{
    config::Config,
    error::{StartError, Stopped},
};

/// A storage node.
#[derive(Debug)]
pub struct Node {}

/// A running node. Dropping the handle stops it.
#[derive(Debug)]
pub struct NodeHandle {
    addresses: Vec<Address>,
    stopping: Arc<(Mutex<bool>, Condvar)>,
    _listeners: Vec<Listener>,
}

impl Node {
    /// Starts a node: takes its memory, opens (or makes) its devices, recovers its catalog, listens.
    ///
    /// # Errors
    /// [`StartError`] names what is in the way.
    pub fn start(config: Config) -> Result<NodeHandle, StartError> {
        config.check()?;
        let file = &config.key_file;
        let text = std::fs::read_to_string(file)
            .map_err(|source| StartError::KeyFile { file: file.clone(), source })?;
        let key: ClusterKey =
            text.parse().map_err(|source| StartError::Key { file: file.clone(), source })?;
        let listeners: Vec<Listener> =
            config.listen.iter().map(|address| Listener::bind(address, &key)).collect::<Result<_, _>>()?;
        let addresses = listeners.iter().map(|listener| listener.address().clone()).collect();
        Ok(NodeHandle { addresses, stopping: Arc::default(), _listeners: listeners })
    }
}

impl NodeHandle {
    /// Where it listens, in the order of the configuration, with the ports that were chosen.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Asks the node to stop: requests in progress are finished, new ones are refused. Returns at once.
    pub fn stop(&self) {
        let (stopping, changed) = &*self.stopping;
        *stopping.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }

    /// Waits until the node has stopped, because it was told to or because it cannot go on.
    ///
    /// # Errors
    /// [`Stopped`] when it stopped by itself.
    pub fn wait(self) -> Result<(), Stopped> {
        let (stopping, changed) = &*self.stopping;
        let mut stopped = stopping.lock().unwrap_or_else(PoisonError::into_inner);
        while !*stopped {
            stopped = changed.wait(stopped).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }
}
