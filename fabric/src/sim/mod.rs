//! Simulates a network, to test whether a protocol survives everything that this crate's guarantees
//! allow.
//!
//! A [`SimNet`] is a network inside one process. Its connections are ordinary
//! [`crate::Connection`]s and its memory is ordinary [`crate::Region`]s, so any protocol above this
//! crate runs on it unchanged. It is as hostile as the crate's guarantees allow. A [`Seed`] decides
//! every random choice, so a failure can be repeated.
//!
//! # One thread, virtual time
//!
//! Time is virtual and moves by *steps*: one step executes the event that is due first, on
//! whichever connection, and sets the clock to its time. Posting never takes a step. Steps are
//! taken
//!
//! - by [`SimNet::step`], [`SimNet::run_until`] and [`SimNet::run_until_idle`];
//! - by [`crate::Connection::poll`], exactly one if nothing has arrived for that connection, none
//!   if something has;
//! - by [`crate::Connection::wait`] until something arrives for that connection. If the network is
//!   idle, which means that nothing can come before this thread does something, it returns 0 at
//!   once, whatever its deadline. Give it a deadline in the far future: deadlines are in real time,
//!   so one that passes makes the test depend on the machine.
//!
//! Connecting, accepting, registering and crashing take no time.
//!
//! Between two steps the owner of a region sees what the network has done to it so far, torn writes
//! included. With everything in one thread and the same calls in the same order, equal seeds give
//! equal histories ([`SimNet::digest`]). [`Threads::Many`] lets several threads use one network.
//! That is safe, behind one lock, but then their races decide what happens, and an owner may see
//! part of a piece while it is being copied. [`crate::Connection::wait_fd`] becomes readable when
//! an event is entered for that connection; the thread that wakes takes the steps.
//!
//! # What the network does
//!
//! - **Delays.** Every operation takes a while to arrive, and so does its completion. Delays of
//!   different connections are independent.
//! - **Order.** Operations of one connection are executed and complete in the order of posting. A
//!   message, immediate, read or atomic comes after every byte written before it.
//! - **Tearing and reordering.** The bytes of a write become visible in pieces of whole words of 8
//!   or of 64 bytes: at different times, in any order, mixed with other writes of the same
//!   connection, before or after the completion of the write. A read reads its pieces at different
//!   times. See [`Tearing`] and [`Order`].
//! - **Weak atomics.** A remote atomic loads first and stores later. Other remote atomics on that
//!   word wait meanwhile, but a store of the owner or a remote write in between is overwritten. See
//!   [`Atomicity`].
//! - **Bounded queues.** If a receiver does not poll, its sender's messages wait, and so does
//!   everything that was posted after them.
//! - **Loss and crash** between any two steps: [`SimNet::crash`], [`SimNet::cut`], [`SimNet::plan`]
//!   for a given step, post or time, [`Chance`] for random ones. Bytes that have landed stay. The
//!   others are lost, except those of writes that were already reported complete: they land, unless
//!   the place that owns the memory crashed. Survivors learn of the fault after a while.
//!
//! # A failing seed
//!
//! A test takes its seeds from [`Seed::each`]. When one fails, the seed, the command that replays
//! it and the last steps are printed. `RACKSCAN_SEED=... cargo test ...` runs the test with that
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
//!
//! # Files
//!
//! ```text
//! net       the handle SimNet                 registry  networks by number
//! connect   listening and connecting          queue     one end of a connection
//! world     all state; one step               agenda    what is due, by time
//! link      one connection's state            place     places, listeners, cuts
//! execute   operations at the peer            transfer  reads and writes in pieces
//! fault     faults that can be planned        fail      carries faults out
//! region    granted regions                   history   digest and trace
//! config    what the network does             seed      random choices and their replay
//! ```

mod agenda;
mod config;
mod connect;
mod execute;
mod fail;
mod fault;
mod history;
mod link;
mod net;
mod place;
mod queue;
mod region;
mod registry;
mod seed;
mod transfer;
mod world;

pub use self::{
    config::{Atomicity, Chance, Order, SimConfig, Tearing, Threads},
    fault::{Fault, Moment},
    net::SimNet,
    place::ANONYMOUS,
    seed::{Random, Replay, SEED_VARIABLE, Seed, SeedError},
};

pub(crate) use self::connect::{SimListener, bind, call};
