//! Tests that the simulated wire is as hostile as the fabric's promises allow and not more, and
//! behaves the same for the same seed. Method: a client and a server in one thread, many seeds;
//! everything that is allowed happens for some seed, and nothing else for any.

#[path = "sim/atomics.rs"]
mod atomics;
#[path = "sim/clock.rs"]
mod clock;
#[path = "sim/faults.rs"]
mod faults;
#[path = "sim/message_buffer.rs"]
mod message_buffer;
#[path = "sim/posts.rs"]
mod posts;
#[path = "sim/replay.rs"]
mod replay;
#[path = "sim/scene.rs"]
mod scene;
#[path = "sim/visibility.rs"]
mod visibility;
