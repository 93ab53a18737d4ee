//! Defines the handle of a simulated network, which creates connections, takes steps and plans
//! faults.

use std::{fmt, sync::Arc, time::Duration};

use az::SaturatingAs;

use super::{
    config::SimConfig,
    connect::call,
    fault::{Fault, Moment},
    link::{End, Owner},
    registry::{SimShared, publish},
    seed::Seed,
    world::World,
};
use crate::{
    address::Address,
    connection::Connection,
    error::{ConnectError, ListenError},
    guarded::Guarded,
    key::ClusterKey,
    listener::Listener,
};

/// A simulated network. Clones are handles of the same one. When the last handle is dropped by a
/// panic, it prints the seed, the command that replays it, and the last steps.
#[derive(Clone)]
pub struct SimNet {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<SimShared>,
}

impl SimNet {
    /// A network without places, at time zero.
    #[must_use]
    pub fn new(seed: Seed, config: SimConfig) -> Self {
        let world = World::new(seed, config);
        let shared = publish(|number| SimShared { number, seed, world: Guarded::new(world) });
        Self { handle: Arc::new(Handle { shared }) }
    }

    fn world<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        act(&mut self.handle.shared.world.lock())
    }

    /// The seed.
    #[must_use]
    pub fn seed(&self) -> Seed {
        self.handle.shared.seed
    }

    /// The address of a place, for listening and connecting.
    #[must_use]
    pub fn address(&self, place: &str) -> Address {
        self.handle.shared.address(place)
    }

    /// Listens at a place; the same as [`Listener::bind`] at its address.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn listen(&self, place: &str, key: &ClusterKey) -> Result<Listener, ListenError> {
        Listener::bind(&self.address(place), key)
    }

    /// Connects from one place to the listener at an address. [`crate::connect`] connects from a
    /// place that has no name.
    ///
    /// # Errors
    /// When nobody listens there, the places are cut off from each other, or the keys differ.
    pub fn connect(&self, from: &str, to: &Address, key: &ClusterKey) -> Result<Connection, ConnectError> {
        call(from, to, key)
    }

    /// Virtual time since the network was made.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.world(|world| world.agenda.now_ns()))
    }

    /// Steps taken so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.world(|world| world.history.steps())
    }

    /// Operations accepted so far, on all connections.
    #[must_use]
    pub fn posts(&self) -> u64 {
        self.world(|world| world.posts)
    }

    /// Executes the event that is due first and moves the clock to its time. Returns false if the
    /// network is idle.
    pub fn step(&self) -> bool {
        self.world(World::step)
    }

    /// Executes all events that are due until `time`, and sets the clock to it.
    pub fn run_until(&self, time: Duration) {
        let until_ns = time.as_nanos().saturating_as::<u64>();
        self.world(|world| {
            while world.next_ns().is_some_and(|due_ns| due_ns <= until_ns) {
                world.step();
            }
            world.agenda.pass_time(until_ns);
        });
    }

    /// Takes steps until the network is idle. Returns their number.
    pub fn run_until_idle(&self) -> u64 {
        self.world(|world| (0..).find(|_| !world.step()).unwrap_or(0))
    }

    /// Whether nothing will happen before somebody posts, closes or connects.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.world(World::is_idle)
    }

    /// Carries out a fault now.
    pub fn fail(&self, fault: &Fault) {
        self.world(|world| world.fail(fault));
    }

    /// Plans a fault for a moment, or for now if that is past.
    pub fn plan(&self, moment: Moment, fault: Fault) {
        self.world(|world| world.plan(moment, fault));
    }

    /// Crashes a place now. Its connections end for it at once, and for their peers after a while.
    /// Its listener accepts nobody any more, and transfers to its memory are lost. The place can
    /// listen and connect again.
    pub fn crash(&self, place: &str) {
        self.fail(&Fault::Crash { place: place.to_owned() });
    }

    /// Cuts two places off from each other: their connections are lost, and new ones are refused
    /// until [`SimNet::repair`].
    pub fn cut(&self, one: &str, other: &str) {
        self.fail(&Fault::Cut { one: one.to_owned(), other: other.to_owned() });
    }

    /// Lets two places connect to each other again.
    pub fn repair(&self, one: &str, other: &str) {
        self.fail(&Fault::Repair { one: one.to_owned(), other: other.to_owned() });
    }

    /// How often a place has crashed, at random or not.
    #[must_use]
    pub fn crashes(&self, place: &str) -> u64 {
        self.world(|world| {
            let place = world.places.find(place);
            place.and_then(|place| world.places.get(place)).map_or(0, |place| place.crashes)
        })
    }

    /// Number of connections of which somebody holds an end.
    #[must_use]
    pub fn connections(&self) -> usize {
        let held = |end: &End| end.owner != Owner::Gone;
        self.world(|world| world.links.values().filter(|link| link.ends.iter().any(held)).count())
    }

    /// Number of registered regions, on all connections.
    #[must_use]
    pub fn registrations(&self) -> usize {
        let ends = |world: &World| {
            world.links.values().flat_map(|link| &link.ends).map(|end| end.grants.count()).sum()
        };
        self.world(|world| ends(world))
    }

    /// A digest of all events: when, between which places, and with which bytes.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.world(|world| world.history.digest())
    }

    /// The last events, oldest first, one line each.
    #[must_use]
    pub fn trace(&self) -> Vec<String> {
        self.world(|world| world.history.lines(&world.places.names()))
    }
}

impl fmt::Debug for SimNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimNet")
            .field("network", &self.handle.shared.number)
            .field("seed", &self.seed())
            .field("now", &self.now())
            .field("steps", &self.steps())
            .finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let seed = self.shared.seed;
        let world = self.shared.world.lock();
        eprintln!("simulated network, the last steps:");
        for line in world.history.lines(&world.places.names()) {
            eprintln!("  {line}");
        }
        eprintln!("simulated with seed {seed}; to replay: {}", seed.command());
    }
}
