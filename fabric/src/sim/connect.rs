//! Listens and connects in a simulated network.
//!
//! Invariants
//! - A caller with another cluster key is turned away and the listener gets an error, as on the
//!   other wires. There is no handshake, because both ends are in one process.
//! - Connecting takes no virtual time; only posted operations do.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use super::{
    agenda::EndNumber,
    config::Threads,
    link::Owner,
    place::Listening,
    queue::SimQueue,
    registry::{SimShared, find},
    world::World,
};
use crate::{
    address::{Address, Wire},
    connection::Connection,
    doorbell::Doorbell,
    error::{ConnectError, ListenError},
    handshake,
    key::ClusterKey,
    limits::ACCEPT_QUEUE_MAX,
};

/// The listening side of a place.
#[derive(Debug)]
pub(crate) struct SimListener {
    shared: Arc<SimShared>,
    place: usize,
    number: u64,
    bell: Arc<Doorbell>,
}

/// Listens at a place of a network.
pub(crate) fn bind(network: u64, place: &str, key: &ClusterKey) -> Result<SimListener, ListenError> {
    let address = || format!("sim:{network}/{place}");
    let os = |action| move |source| ListenError::Os { action, address: address(), source };
    let shared = find(network).map_err(os("find"))?;
    let bell = Arc::new(Doorbell::new().map_err(os("make a doorbell for"))?);
    let mut world = shared.world.lock();
    let (number, at) = (world.serial(), world.places.number(place));
    let Some(found) = world.places.get(at).filter(|found| found.listening.is_none()) else {
        return Err(ListenError::InUse { address: address() });
    };
    let (key, arrivals) = (key.clone(), std::collections::VecDeque::new());
    found.listening = Some(Listening { number, key, arrivals, bell: Arc::clone(&bell) });
    drop(world);
    Ok(SimListener { shared, place: at, number, bell })
}

impl SimListener {
    /// The connection to the next caller, if any.
    pub(crate) fn accept(&mut self) -> Result<Option<Connection>, ConnectError> {
        let arrival = {
            let mut world = self.shared.world.lock();
            let Some(listening) = self.listening(&mut world) else { return Ok(None) };
            let arrival = listening.arrivals.pop_front();
            if listening.arrivals.is_empty() {
                listening.bell.drain();
            }
            arrival
        };
        let Some(link) = arrival.transpose()? else { return Ok(None) };
        Ok(self.shared.hand_over(link, 1))
    }

    /// Whether nobody can call before this thread does something else.
    pub(crate) fn nobody_will_call(&self) -> bool {
        self.shared.world.lock().config.threads == Threads::One
    }

    /// Our entry in the network, unless the place crashed.
    fn listening<'a>(&self, world: &'a mut World) -> Option<&'a mut Listening> {
        let listening = world.places.get(self.place)?.listening.as_mut();
        listening.filter(|listening| listening.number == self.number)
    }
}

impl AsFd for SimListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        let mut world = self.shared.world.lock();
        let Some(listening) = self.listening(&mut world) else { return };
        let arrivals = std::mem::take(&mut listening.arrivals);
        if let Some(place) = world.places.get(self.place) {
            place.listening = None;
        }
        for link in arrivals.into_iter().flatten() {
            world.close(link, 1);
        }
    }
}

/// Connects the place `from` to a listener. The address may turn out not to be one of a simulated
/// network.
pub(crate) fn call(from: &str, address: &Address, key: &ClusterKey) -> Result<Connection, ConnectError> {
    let refused = |source| ConnectError::Refused { peer: address.to_string(), source };
    let Address::Sim { network, place } = address else {
        let wanted =
            io::Error::new(io::ErrorKind::InvalidInput, "it is not an address of a simulated network");
        return Err(refused(wanted));
    };
    find(*network).map_err(refused)?.connect(from, place, key)
}

impl SimShared {
    /// Connects two places.
    pub(super) fn connect(
        self: &Arc<Self>,
        from: &str,
        to: &str,
        key: &ClusterKey,
    ) -> Result<Connection, ConnectError> {
        let peer = || self.address(to).to_string();
        let refused = |kind, why: &str| {
            let source = io::Error::new(kind, why.to_owned());
            Err(ConnectError::Refused { peer: peer(), source })
        };
        let os = |source| ConnectError::Os { action: "make a doorbell", peer: peer(), source };
        let bells = [Doorbell::new().map_err(os)?, Doorbell::new().map_err(os)?];
        let link = {
            let mut world = self.world.lock();
            let (from_place, to_place) = (world.places.number(from), world.places.number(to));
            if world.places.is_cut(from_place, to_place) {
                return refused(io::ErrorKind::HostUnreachable, "the two places are cut off from each other");
            }
            let Some(listening) = world.places.get(to_place).and_then(|place| place.listening.as_mut())
            else {
                return refused(io::ErrorKind::ConnectionRefused, "nobody listens there");
            };
            if listening.arrivals.len() >= ACCEPT_QUEUE_MAX {
                return refused(io::ErrorKind::ConnectionRefused, "nobody accepts there");
            }
            if !listening.key.has_secret_of(key) {
                let caller = self.address(from).to_string();
                listening.arrivals.push_back(Err(ConnectError::WrongKey { peer: caller }));
                listening.bell.ring();
                return Err(ConnectError::WrongKey { peer: peer() });
            }
            handshake::demand(key, listening.key.identity(), peer)?;
            let link = world.connect(from_place, to_place, bells);
            if let Some(listening) = world.places.get(to_place).and_then(|place| place.listening.as_mut()) {
                listening.arrivals.push_back(Ok(link));
                listening.bell.ring();
            }
            link
        };
        let gone = || ConnectError::HungUp { peer: peer(), phase: "hello" };
        self.hand_over(link, 0).ok_or_else(gone)
    }

    /// The connection of one end of a link.
    fn hand_over(self: &Arc<Self>, link: u64, end: EndNumber) -> Option<Connection> {
        let queue = SimQueue::new(self, link, end)?;
        let peer = {
            let mut world = self.world.lock();
            let world = &mut *world;
            let link = world.links.get_mut(&link)?;
            if link.ends[end].owner == Owner::Gone {
                return None;
            }
            link.ends[end].owner = Owner::Held;
            self.address(world.places.name(link.ends[1 - end].place)).to_string()
        };
        Some(Connection::new(Box::new(queue), Wire::Sim, peer))
    }
}
