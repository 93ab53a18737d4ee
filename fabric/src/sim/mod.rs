//! Does a protocol survive everything that the promises of this crate allow a network to do?
//!
//! A [`SimNet`] is a network inside of one process. Its connections are ordinary [`Connection`]s,
//! its memory is ordinary [`crate::Region`]s, so any protocol above this crate runs on it
//! unchanged. It is as hostile as the crate's promises allow and a [`Seed`] decides every choice,
//! so what once failed fails again.
//!
//! # One thread, virtual time
//!
//! Time is virtual and moves by *steps*: one step does the first thing that is due, for whichever
//! connection, and sets the clock to its time. Posting never takes a step. Steps are taken
//!
//! - by [`SimNet::step`], [`SimNet::run_until`] and [`SimNet::run_until_idle`];
//! - by [`Connection::poll`], exactly one if nothing has arrived for that connection, none if
//!   something has;
//! - by [`Connection::wait`] until something arrives for that connection. If the network is idle,
//!   which means that nothing can come before this thread does something, it returns 0 at once,
//!   whatever its deadline. Give it a deadline far away: one that passes meanwhile is real time,
//!   and depends on the machine.
//!
//! Connecting, accepting, registering and crashing take no time.
//!
//! Between two steps the owner of a region sees what the network has done to it so far, torn writes
//! included. With everything in one thread and the same calls in the same order, equal seeds give
//! equal histories ([`SimNet::digest`]). [`Threads::Many`] lets several threads use one network:
//! safe, behind one lock, but then their races decide what happens, and an owner may see a piece of
//! a write while it is being copied. [`Connection::wait_fd`] becomes readable when something is
//! entered for that connection; whoever wakes takes the steps.
//!
//! # What the network does
//!
//! - **Delays.** Every operation travels for a while, and so does its completion. Connections know
//!   nothing of each other.
//! - **Order.** Operations of one connection are executed and complete in the order of posting. A
//!   message, immediate, read or atomic comes after every byte written before it.
//! - **Tearing and reordering.** The bytes of a write become visible in pieces of whole words of 8
//!   or of 64 bytes, at different times, in any order, mixed with other writes of the same
//!   connection; before or after the completion of the write. A read takes its pieces at different
//!   times. See [`Tearing`] and [`Order`].
//! - **Weak atomics.** A remote atomic loads, and stores later. Other remote atomics on that word
//!   wait; a store of the owner or a remote write in between is overwritten. See [`Atomicity`].
//! - **Bounded queues.** A receiver that does not poll holds the messages of its sender, and all
//!   that was posted after them.
//! - **Loss and crash** between any two steps: [`SimNet::crash`], [`SimNet::cut`], [`SimNet::plan`]
//!   for a given step, post or time, [`Chance`] for random ones. What has landed stays. What has
//!   not is lost, but for writes that were already reported as done: those land, unless the
//!   memory's own place crashed. Survivors learn of it after a while.
//!
//! # A failing seed
//!
//! A test takes its seeds from [`Seed::each`]. When one fails, its number, the command that replays
//! it and the last steps are printed; `RACKSCAN_SEED=... cargo test ...` runs the test with that
//! seed only.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use rackscan_fabric::{Access, ClusterKey, Operation, Region, RemoteRegion, Event};
//! use rackscan_fabric::sim::{Seed, SimConfig, SimNet};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let key = ClusterKey::from_bytes([7; 32]);
//! let mut torn = 0;
//! Seed::each(50, |seed| {
//!     let net = SimNet::new(seed, SimConfig::default());
//!     let mut listener = net.listen("server", &key).expect("listen");
//!     let mut client = net.connect("client", listener.address(), &key).expect("connect");
//!     let mut server = listener.accept().expect("accept").expect("the client called");
//!
//!     // The server lets the client write two words, and watches them.
//!     let words = Region::allocate(4096).expect("allocate");
//!     let name = server.register(&words, Access::Write).expect("register");
//!     let write = Operation::WriteBytes { bytes: &[0xFF; 16], target: name, target_offset: 0 };
//!     client.post(1, write).expect("post");
//!     client.post(2, Operation::Send { bytes: b"written" }).expect("post");
//!     let mut events = Vec::new();
//!     while server.poll(&mut events) == 0 {
//!         let [first, second] = [0, 8].map(|at| words.load_u64(at).expect("load"));
//!         torn += u32::from(first != second);
//!     }
//!     // Once the message is there, so are the bytes before it, whatever the seed.
//!     assert_eq!(events, [Event::Message { bytes: b"written".to_vec() }]);
//!     assert_eq!([0, 8].map(|at| words.load_u64(at).expect("load")), [u64::MAX; 2]);
//! })?;
//! # if Seed::from_environment()?.is_none() {
//! assert!(torn > 0, "some seed shows half of the write");
//! # }
//! # Ok(())
//! # }
//! ```

mod agenda;
mod config;
mod connect;
mod execute;
mod fault;
mod history;
mod link;
mod place;
mod queue;
mod region;
mod seed;
mod transfer;
mod world;

use std::{fmt, sync::Arc, time::Duration};

pub(crate) use self::connect::{SimListener, bind, call};
pub use self::{
    config::{Atomicity, Chance, Order, SimConfig, Tearing, Threads},
    fault::{Fault, Moment},
    seed::{Random, Replay, SEED_VARIABLE, Seed, SeedError},
};
use self::{link::Owner, world::World};
use crate::{
    address::Address,
    connection::Connection,
    error::{ConnectError, ListenError},
    guarded::Guarded,
    key::ClusterKey,
    listener::Listener,
};

/// The place that plain [`crate::connect`] calls from.
pub const ANONYMOUS: &str = "anonymous";

/// What the handles of a network share.
#[derive(Debug)]
pub(crate) struct SimShared {
    number: u64,
    seed: Seed,
    world: Guarded<World>,
}

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
        let shared = connect::publish(|number| SimShared { number, seed, world: Guarded::new(world) });
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

    /// The address of a place, to listen at and to connect to.
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

    /// Connects from one place to the listener at an address. Plain [`crate::connect`] calls from
    /// [`ANONYMOUS`].
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

    /// Does the first thing that is due and moves the clock there; false if the network is idle.
    pub fn step(&self) -> bool {
        self.world(World::step)
    }

    /// Does everything that is due until `time`, and sets the clock to it.
    pub fn run_until(&self, time: Duration) {
        let until_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.world(|world| {
            while world.next_ns().is_some_and(|due_ns| due_ns <= until_ns) {
                world.step();
            }
            world.agenda.pass_time(until_ns);
        });
    }

    /// Takes steps until the network is idle, and says how many.
    pub fn run_until_idle(&self) -> u64 {
        self.world(|world| (0..).find(|_| !world.step()).unwrap_or(0))
    }

    /// Whether nothing will happen before somebody posts, closes or connects.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.world(World::is_idle)
    }

    /// Lets something go wrong now.
    pub fn fail(&self, fault: &Fault) {
        self.world(|world| world.fail(fault));
    }

    /// Lets something go wrong at a moment; now, if that is past.
    pub fn plan(&self, moment: Moment, fault: Fault) {
        self.world(|world| world.plan(moment, fault));
    }

    /// Crashes a place now. Its connections end for it at once and for their peers after a while;
    /// its listener accepts nobody any more; what was on the way to its memory is lost. It can
    /// listen and connect again.
    pub fn crash(&self, place: &str) {
        self.fail(&Fault::Crash { place: place.to_owned() });
    }

    /// Cuts two places off from each other: their connections are lost and new ones refused until
    /// [`SimNet::repair`].
    pub fn cut(&self, one: &str, other: &str) {
        self.fail(&Fault::Cut { one: one.to_owned(), other: other.to_owned() });
    }

    /// Lets two places reach each other again.
    pub fn repair(&self, one: &str, other: &str) {
        self.fail(&Fault::Repair { one: one.to_owned(), other: other.to_owned() });
    }

    /// How often a place has crashed, by chance or not.
    #[must_use]
    pub fn crashes(&self, place: &str) -> u64 {
        self.world(|world| {
            let place = world.places.find(place);
            place.and_then(|place| world.places.get(place)).map_or(0, |place| place.crashes)
        })
    }

    /// Connections of which somebody holds an end.
    #[must_use]
    pub fn connections(&self) -> usize {
        let held = |end: &link::End| end.owner != Owner::Gone;
        self.world(|world| world.links.values().filter(|link| link.ends.iter().any(held)).count())
    }

    /// Regions that are registered, on all connections.
    #[must_use]
    pub fn registrations(&self) -> usize {
        let ends = |world: &World| {
            world.links.values().flat_map(|link| &link.ends).map(|end| end.grants.count()).sum()
        };
        self.world(|world| ends(world))
    }

    /// A digest of everything that has happened: when, between which places, and with which bytes.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.world(|world| world.history.digest())
    }

    /// The last things that have happened, oldest first, a line each.
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
