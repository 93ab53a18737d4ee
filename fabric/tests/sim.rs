//! Goal: the simulated wire is as hostile as the fabric's promises allow, no more, and does the
//! same again for the same seed. Method: a client and a server in one thread, many seeds; whatever
//! may happen is seen on some seed, whatever may not on none.

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
