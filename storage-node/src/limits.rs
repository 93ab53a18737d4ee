//! Defines the limits of a storage node.
//!
//! Invariants
//! - The bounds of the queues, pools and tables of this crate are here. Relations between them are
//!   asserted at compile time. A file has a constant of its own only where no other bound depends
//!   on it.
//! - Nothing that a peer sends makes memory grow beyond these bounds.

use std::time::Duration;

use rackscan_format::limits::{
    FETCH_PAGES_MAX, KEPT_BYTES_MAX, KEY_FILTER_BYTES_MAX, KEY_FILTERS_MAX, PAGE_BYTES_MAX, RAW_BYTES_MAX,
    SECTOR_BYTES, WITHHELD_BYTES_MAX,
};
use rackscan_ramp::limits::{
    KEY_BYTES_MAX, PART_BYTES_MAX, READ_KEYS_MAX, RECORD_BYTES_MAX, REPLY_BYTES_MAX, UNSETTLED_MAX,
    VALUE_BYTES_MAX,
};

/// Fraction of a node's memory budget (one part in so many) for the page cache, unless the
/// configuration says otherwise.
pub const CACHE_SHARE: u64 = 8;
/// The same for the participant of transactions.
pub const TRANSACTIONS_SHARE: u64 = 16;
/// Equal parts into which the remainder of the budget is divided (`memory_plan`).
pub const BUDGET_PARTS: u64 = 16;
/// Parts for staging.
pub const STAGING_PARTS: u64 = 6;
/// Parts for scans.
pub const SCAN_PARTS: u64 = 6;
/// Parts for appends.
pub const APPEND_PARTS: u64 = 1;
/// Parts for metadata.
pub const METADATA_PARTS: u64 = 2;
/// Parts for wires.
pub const WIRE_PARTS: u64 = 1;
/// Reactor threads of a node.
pub const REACTORS_MAX: u16 = 64;
/// Connection pollers of a node; each is a reactor over another kind of IO.
pub const POLLERS_MAX: u16 = REACTORS_MAX;
/// Threads that read devices for one reactor or poller.
pub const IO_THREADS_MAX: u16 = 256;
/// Threads of the whole node that read devices; also the maximum for the bridge `dynamic` at any
/// time.
pub const IO_THREADS_NODE_MAX: usize = 8192;
/// Minimum bytes of the scratch area: one of the largest raw transfers.
pub const SCRATCH_BYTES_MIN: u64 = RAW_BYTES_MAX as u64;
/// Bytes of one write that fills the scratch area.
pub const SCRATCH_PIECE_BYTES: u32 = 1 << 20;
/// Such writes in flight.
pub const SCRATCH_DEPTH: u32 = 8;
/// Scan workers of a node.
pub const SCAN_WORKERS_MAX: u16 = 256;
/// Scans that wait for a worker.
pub const SCAN_QUEUE_MAX: u16 = 4096;
/// Default processor time of one scan of a segment, in milliseconds: hundreds of times what a usual
/// query takes.
pub const SCAN_CPU_MS_DEFAULT: u32 = 5000;
/// Maximum processor time that can be configured: an hour.
pub const SCAN_CPU_MS_MAX: u32 = 3_600_000;
/// Default memory for stored pages and groups of one scan of a segment.
pub const SCAN_MEMORY_BYTES_DEFAULT: u64 = 64 << 20;
/// Minimum that can be configured: some pages of the usual size.
pub const SCAN_MEMORY_BYTES_MIN: u64 = 256 << 10;
/// A scan plans its pages for this fraction (one part in so many) of its memory quota. Its groups,
/// which it emits when they take a quarter of the planned memory, fit in the remainder.
pub const SCAN_MEMORY_SHARE: usize = 2;
/// Default memory for relayed stripes, for each relay address: enough for two sessions of five
/// nodes that protect a load with slices of 64 KiB (`config` tests it).
pub const RELAY_BYTES_DEFAULT: u64 = 64 << 20;
/// Minimum of that memory for each relay address: a session of three nodes with short slices.
pub const RELAY_BYTES_MIN: u64 = 4 << 20;
/// Maximum of that memory.
pub const RELAY_BYTES_MAX: u64 = 1 << 38;
/// Links of a relay that have not identified themselves, beside one for each peer: clients, and
/// strays.
pub const RELAY_LINKS_SPARE: usize = 16;
/// Device operations of a relay in flight.
pub const RELAY_DEPTH: u32 = 128;
/// An idle relay checks at least this often whether the node is stopping.
pub const RELAY_SLEEP_MAX: Duration = Duration::from_millis(200);
/// A busy relay reports its progress once in this many turns.
pub const RELAY_TURNS_PER_REPORT: u64 = 256;
/// Addresses a node listens at.
pub const LISTENERS_MAX: usize = 16;
/// Reads and writes in flight of one thread.
pub const IO_DEPTH_MAX: u32 = 1024;
/// Minimum bytes of a device: labels and one of the largest pages.
pub const DEVICE_BYTES_MIN: u64 = 8 << 20;

/// Connections of one reactor.
pub const CONNECTIONS_PER_REACTOR_MAX: usize = 3840;
/// Default number of connections of a node: three each for 1,100 clients, and those of other nodes.
pub const CONNECTIONS_DEFAULT: u32 = 3600;
/// Senders that a reactor's receive queue can tell apart: its connections, and those that are being
/// set up or closed.
pub const SENDERS_PER_REACTOR_MAX: u16 = 4096;
/// Maximum memory of one connection outside of the pools and the receive queue, in bytes: the reply
/// ring of a `shm` connection, or the staging, answers and stack of a `tcp` responder, plus its
/// state, rounded up. It is allocated as it is used: an idle connection takes a small part of it.
pub const CONNECTION_BYTES: u64 = 96 << 10;
/// The same where a listener uses the wire `verbs`, with the scratch memory of a queue pair, which
/// is allocated at once. A relay counts the same for each of its links.
pub const ADAPTER_CONNECTION_BYTES: u64 = 384 << 10;
/// File descriptors reserved for files, devices, relays and other nodes, beside those of
/// connections and unauthenticated peers.
pub const DESCRIPTORS_RESERVED: u64 = 256;
/// Refused connections that are being told so.
pub const REFUSALS_UNDER_WAY_MAX: usize = 64;
/// Refused connections are logged at most once in this time.
pub const REFUSALS_LOGGED_EVERY: Duration = Duration::from_secs(10);
/// Idle turns of a connection after which the kernel watches it and the reactor no longer polls it.
pub const TURNS_UNTIL_WATCHED: u32 = 4096;
/// Post boxes of one connection at either end; a client that asks for more is refused.
pub const POSTS_MAX: usize = 16;
/// The longest message in a post box, in bytes. A value of some KiB fits.
pub const POST_BODY_BYTES_MAX: usize = 16 << 10;
/// Bytes of all boxes of one connection at one end: for example four of 8 KiB each, with their
/// headers.
pub const POSTS_REGION_BYTES_MAX: usize = 36 << 10;
/// Memory of them here, out of the memory for wires: the boxes, images of what is written into the
/// client's, and a message that is being read.
pub const POSTS_BYTES: u64 = 2 * POSTS_REGION_BYTES_MAX as u64 + POST_BODY_BYTES_MAX as u64;
/// Requests in progress of one connection; a client that asks for more is told [`Busy`].
///
/// [`Busy`]: rackscan_format::message::RefusalCode::Busy
pub const REQUESTS_PER_CONNECTION_MAX: usize = 128;
/// Requests of a client that arrive before its connection is handed to its reactor; one more and
/// the connection is refused.
pub const EARLY_REQUESTS_MAX: usize = REQUESTS_PER_CONNECTION_MAX;
/// Arrivals in a reactor's receive queue between two checks of who sends how much.
pub const ARRIVALS_PER_LOOK: u32 = 256;
/// Arrivals that a reactor takes out of its receive queue before it polls its devices and
/// connections.
pub const ARRIVALS_PER_TURN_MAX: u32 = 64;
/// Completed device operations whose requests a reactor advances before it polls its receive queue
/// again: sending the answers of many reads that end together takes a while, and the device would
/// idle meanwhile.
pub const COMPLETIONS_PER_TURN_MAX: u32 = 4;
/// Private rings of a reactor's receive queue, for clients that ask often.
pub const PRIVATE_RINGS_MAX: u16 = 64;
/// Bytes of each ring of a receive queue.
pub const INBOX_RING_BYTES: usize = 256 << 10;
/// Replies that wait because the peer does not read; one more and the connection is closed.
pub const REPLIES_WAITING_MAX: usize = 2 * REQUESTS_PER_CONNECTION_MAX;
/// Bytes that a reactor posts to one connection before it hands them to the wire. What it posts in
/// one turn goes out together (on `tcp` one system call instead of two for each small answer), but
/// a large answer does not wait for another.
pub const HELD_BYTES_MAX: usize = 64 << 10;
/// Requests in progress of one reactor.
pub const REQUESTS_PER_REACTOR_MAX: usize = 1024;
/// Reads in flight of one fetch, so that a large fetch leaves the queue to others.
pub const READS_PER_FETCH_MAX: u32 = 32;
/// Bytes of one read made of several neighbouring pages.
pub const COALESCED_BYTES_MAX: u32 = 1 << 20;
/// Pages of one append in flight from the source to the device.
pub const PAGES_PER_APPEND_MAX: usize = 32;
/// Reads in flight of one verification: it is a background task.
pub const READS_PER_VERIFY_MAX: usize = 4;
/// Encoded bytes of a segment directory.
pub const DIRECTORY_BYTES_MAX: usize = 4 << 20;
/// Bytes of a load's state that one reply carries.
pub const LOAD_PART_BYTES_MAX: u64 = DIRECTORY_BYTES_MAX as u64;
/// Bytes of a catalog that one reply carries.
pub const CATALOG_PART_BYTES_MAX: u64 = 1 << 20;
/// Memory that echo answers are sent from, in bytes.
pub const ECHO_BYTES: usize = 256 << 10;
/// Writes of one echo in flight.
pub const ECHO_WRITES_MAX: u32 = 4;
/// Bytes of a scan's result on wires where it is staged here before it is sent.
pub const RESULT_STAGED_BYTES_MAX: u64 = 4 << 20;
/// Bytes of a scan's result on wires where it goes directly to the requester.
pub const RESULT_BYTES_MAX: u64 = 64 << 20;
/// Verified programs that are cached for the next segment of the same scan.
pub const PROGRAMS_KEPT_MAX: usize = 64;
/// Bytes of key filters cached with them: at least those of one program.
pub const PROGRAM_FILTERS_BYTES_MAX: usize = 8 << 20;
/// Holds of tables, by transactions and long queries.
pub const HOLDS_MAX: usize = 4096;
/// Loads in progress.
pub const LOADS_MAX: usize = 64;
/// Aborted loads whose ids are remembered, so that their late segments are refused: many more than
/// there are at a time.
pub const ABORTED_LOADS_MAX: usize = 1024;
/// Catalog changes that wait to be made durable.
pub const PUBLISH_QUEUE_MAX: usize = 256;
/// Messages from other threads that wait for a reactor: completed work (bounded by its requests)
/// and new connections.
pub const MESSAGE_QUEUE_MAX: usize = REQUESTS_PER_REACTOR_MAX + CONNECTIONS_PER_REACTOR_MAX;

/// Minimum memory of a participant of transactions, in bytes: it suffices for small values.
pub const TRANSACTIONS_BYTES_MIN: u64 = 1 << 20;
/// Maximum memory of a participant: half of it is at most one region.
pub const TRANSACTIONS_BYTES_MAX: u64 = 1 << 38;
/// The maximum nice value of a thread.
pub const NICE_MAX: u8 = 19;
/// Minimum bound of a participant's log that can be configured.
pub const TRANSACTIONS_LOG_BYTES_MIN: u64 = 1 << 20;
/// Fraction of a participant's memory (one part in so many) that requests in progress may hold ..
pub const TRANSIT_SHARE: u64 = 8;
/// .. but at least this many bytes where half of the memory allows it: the largest request, while
/// it is decoded.
pub const TRANSIT_BYTES_WANTED: u64 = 2 * TRANSACT_PULLED_BYTES_MAX;
/// Fraction of a participant's memory (one part in so many) that the feed has ..
pub const FEED_SHARE: u64 = 8;
/// .. but at least this many bytes ..
pub const FEED_BYTES_MIN: u64 = 64 << 10;
/// .. and at most this many: a follower that was disconnected for longer than it takes to fill them
/// scans the present keys instead.
pub const FEED_BYTES_MAX: u64 = 256 << 20;
/// Minimum that a request takes of the memory for requests in progress.
pub const TRANSIT_BYTES_MIN: u64 = 512;
/// Messages of one request about transactions.
pub const TRANSACT_MESSAGES_MAX: usize = 64;
/// Bytes of a transaction request that is pulled: the largest part of a transaction, and what may
/// be sent with it.
pub const TRANSACT_PULLED_BYTES_MAX: u64 = PART_BYTES_MAX as u64 + (1 << 20);
/// Bytes of a long request or answer that are staged at a time.
pub const TRANSACT_PIECE_BYTES: usize = 1 << 20;
/// Bytes of an answer about transactions.
pub const TRANSACT_ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Bytes of one message of such an answer: a message is encoded whole.
pub const TRANSACT_REPLY_BYTES_MAX: usize = 8 << 20;
/// Clients of transactions whose leases may be taken over one connection.
pub const CLIENTS_PER_CONNECTION_MAX: usize = 64;
/// Transactions without a coordinator that wait to be ended: as many as may be in doubt.
pub const IN_DOUBT_MAX: usize = UNSETTLED_MAX;
/// Transactions that a participant ends at a time by asking their other participants.
pub const ENDINGS_MAX: usize = 64;
/// A transaction that is in doubt for longer is ended even if its client's connection lives: after
/// one to two times this time.
pub const IN_DOUBT_TIME_MAX: Duration = Duration::from_secs(10);
/// How often a participant repeats requests that were not answered, or could not be sent.
pub const PEERS_TICK: Duration = Duration::from_secs(1);
/// How long a node waits before it tries again, if it cannot make connections for another reason
/// than that the other nodes are unavailable.
pub const PEERS_RETRY: Duration = Duration::from_secs(5);
/// Messages of the participant that wait for the peers' thread; one more is dropped, and sent again
/// at the next tick.
pub const ERRANDS_MAX: usize = 1024;
/// How long another node may be silent while replies are outstanding.
pub const PEER_PATIENCE: Duration = Duration::from_secs(10);
/// Registered memory of each connection to another node, in bytes: a piece of the log in either
/// direction, and messages about transactions.
pub const PEER_MEMORY_BYTES: usize = KEPT_BYTES_MAX + rackscan_client::limits::LINES_MEMORY_BYTES_MIN;
/// Replicas of a node's log in other nodes.
pub const LOG_COPIES: usize = 2;
/// How long an acknowledgement waits for a replica; after that the replica is left out until it has
/// caught up.
pub const COPY_PATIENCE: Duration = Duration::from_secs(2);
/// How long a node that has just started waits for a log replica before any set of replicas counts:
/// other nodes start at the same time.
pub const FIRST_COPY_PATIENCE: Duration = Duration::from_secs(5);
/// How long new writes wait for a generation to be known to enough nodes, before they are refused.
pub const GENERATION_PATIENCE: Duration = Duration::from_secs(10);
/// How long a shorter log waits for its replicas. After that it replaces the longer one anyway.
pub const COPY_AHEAD_TIME: Duration = Duration::from_secs(60);
/// How often a node that has lost its log polls the nodes that may have it.
pub const SEEK_PERIOD: Duration = Duration::from_millis(200);
/// How long a node whose log has a damaged end waits for the other nodes that may have the
/// remainder, once one has answered.
pub const LOST_END_OTHERS_TIME: Duration = Duration::from_secs(10);
/// How long it waits if no node answers.
pub const LOST_END_FIRST_TIME: Duration = Duration::from_secs(30);
/// Attempts to ask all nodes, about one a second, while one that has more becomes unavailable or
/// refuses when that is fetched; and attempts to ask a busy node for a piece.
pub const LOST_END_ATTEMPTS_MAX: u32 = 30;
/// Parts of log replicas that wait for their thread.
pub const KEEPING_QUEUE_MAX: usize = 64;
/// Fraction of a participant's memory (one part in so many) for log replication where nodes know
/// each other: half of it for the replicas kept here, half for the participant's own batches that
/// slower nodes do not have yet ..
pub const COPIES_SHARE: u64 = 8;
/// .. but no more than this.
pub const COPIES_BYTES_MAX: u64 = 4 << 20;
/// Commands that wait for the log's thread: a batch in flight, the one before a snapshot, the
/// snapshot, the switch or its cancellation, a generation, a check of the disk space.
pub const LOG_QUEUE_MAX: usize = 7;
/// Bytes of a log below which it is not replaced by a shorter one.
pub const LOG_COMPACT_BYTES: u64 = 64 << 20;
/// A log is replaced when it is this many times as long as the new one will be.
pub const LOG_COMPACT_FACTOR: u64 = 4;
/// How long after a failed replacement the log is not replaced.
pub const LOG_COMPACT_RETRY: Duration = Duration::from_secs(10);
/// Bytes of disk space that a log reserves at a time, and of a new log that are written at a time.
pub const LOG_STEP_BYTES: usize = 1 << 20;
/// Bytes that are punched out of a device file at a time. An allocation that finds no other space
/// waits for the end of that.
pub const PUNCH_BYTES_MAX: u64 = 64 << 20;
/// Freed ranges of a device that are listed for punching; beyond that all free ranges are punched.
pub const FREED_RANGES_MAX: usize = 4096;
/// Bytes of disk space that a log reserves ahead of its end, so that every accepted record has
/// space; half of it is the minimum. A record that would not fit in it is not accepted.
pub const LOG_AHEAD_BYTES: u64 = 12 << 20;
/// How many of these bytes are for the outcomes of prepared transactions.
pub const LOG_ENDS_BYTES: u64 = 1 << 20;
/// Bytes of a log in memory while it is read: more than its longest record.
pub const LOG_WINDOW_BYTES: u64 = 2 * RECORD_BYTES_MAX as u64;
/// Bytes that are kept of the damaged ends cut off a log or its replica: always the newest cut, and
/// as many earlier ones as fit.
pub const LOG_CUT_BYTES: u64 = 16 << 20;
/// How long after a disk was full the write is tried again.
pub const LOG_RETRY: Duration = Duration::from_millis(100);
/// Superseded versions that a turn of the reactor checks.
pub const COLLECTED_PER_TURN: usize = 256;

/// How long a reactor polls after its last work before it sleeps in the kernel. It is long enough
/// for a client that was just answered over shared memory to ask again (10 us were not; 50 us
/// gained nothing in interleaved runs), and short, because on a small host the client needs this
/// processor. It is a maximum: where the next request is far away, the time is shorter
/// (`rackscan_fabric::Spin`).
pub const REACTOR_SPIN: Duration = Duration::from_micros(25);
/// How long stopping waits for requests in progress.
pub const STOP_TIME_MAX: Duration = Duration::from_secs(5);

/// The largest part of staging memory or of a pool that is allocated at once.
pub const BUFFER_BYTES_MAX: usize = PAGE_BYTES_MAX as usize;

const _: () = assert!(LOADS_MAX < ABORTED_LOADS_MAX);
const _: () = assert!(DIRECTORY_BYTES_MAX <= BUFFER_BYTES_MAX);
const _: () = assert!(RESULT_STAGED_BYTES_MAX <= BUFFER_BYTES_MAX as u64);
const _: () = assert!(CATALOG_PART_BYTES_MAX <= BUFFER_BYTES_MAX as u64);
const _: () =
    assert!(COALESCED_BYTES_MAX <= PAGE_BYTES_MAX && COALESCED_BYTES_MAX.is_multiple_of(SECTOR_BYTES));
// Coalesced reads of a fetch are numbered in 32 bits next to a task's number.
const _: () = assert!(FETCH_PAGES_MAX < u32::MAX as usize);
const _: () = assert!(REQUESTS_PER_CONNECTION_MAX <= REQUESTS_PER_REACTOR_MAX);
// A connection that is closing may still be known to the receive queue while the next one arrives,
// and handshakes are assigned before they are counted.
const _: () = assert!(
    CONNECTIONS_PER_REACTOR_MAX + rackscan_fabric::limits::SETUPS_MAX < SENDERS_PER_REACTOR_MAX as usize
);
// Each post box may have a request in progress.
const _: () =
    assert!(POSTS_MAX <= REQUESTS_PER_CONNECTION_MAX && POSTS_MAX <= rackscan_fabric::limits::POST_BOXES_MAX);
const _: () = assert!(POST_BODY_BYTES_MAX <= rackscan_fabric::limits::POST_BODY_BYTES_MAX);
const _: () = assert!(POST_BODY_BYTES_MAX < POSTS_REGION_BYTES_MAX);
const _: () = assert!(IO_DEPTH_MAX <= rackscan_device::limits::RING_DEPTH_MAX);
const _: () = assert!(IO_THREADS_MAX as usize <= rackscan_device::limits::IO_THREADS_MAX);
// A part of a raw request is staged whole.
const _: () = assert!(RAW_BYTES_MAX as usize <= BUFFER_BYTES_MAX);
const _: () = assert!(BUFFER_BYTES_MAX <= rackscan_device::limits::BUFFER_BYTES_MAX);
const _: () = assert!(
    RELAY_BYTES_MIN <= RELAY_BYTES_DEFAULT
        && RELAY_BYTES_DEFAULT * rackscan_format::limits::NODE_RELAYS_MAX as u64 <= RELAY_BYTES_MAX
        && RELAY_DEPTH <= IO_DEPTH_MAX
);
const _: () =
    assert!(STAGING_PARTS + SCAN_PARTS + APPEND_PARTS + METADATA_PARTS + WIRE_PARTS == BUDGET_PARTS);
// A relay keeps no fewer bytes for a link than a node for a connection.
const _: () = assert!(CONNECTION_BYTES <= ADAPTER_CONNECTION_BYTES);
const _: () = assert!(CONNECTIONS_DEFAULT as usize <= CONNECTIONS_PER_REACTOR_MAX);
// A reply ring and the state of the connection fit in what is counted for it.
const _: () = assert!(rackscan_fabric::limits::SHM_RING_BYTES as u64 + (16 << 10) <= CONNECTION_BYTES);
const _: () = assert!(rackscan_relay::limits::LINK_BYTES == ADAPTER_CONNECTION_BYTES);
// A reactor watches its connections, its bell and the listeners.
const _: () = assert!(
    CONNECTIONS_PER_REACTOR_MAX + LISTENERS_MAX < rackscan_device::limits::WATCHES_PER_RING_MAX as usize
);
const _: () = assert!(DEVICE_BYTES_MIN > rackscan_format::label::DATA_OFFSET_BYTES + PAGE_BYTES_MAX as u64);
const _: () = assert!(KEY_FILTERS_MAX * KEY_FILTER_BYTES_MAX <= PROGRAM_FILTERS_BYTES_MAX);
// A key filter is staged whole.
const _: () = assert!(KEY_FILTER_BYTES_MAX <= BUFFER_BYTES_MAX);
// A piece of a transaction message is staged in one slot.
const _: () = assert!(TRANSACT_PIECE_BYTES <= BUFFER_BYTES_MAX);
// An answer with the longest value fits in one message.
const _: () = assert!(VALUE_BYTES_MAX + REPLY_BYTES_MAX + (64 << 10) <= TRANSACT_REPLY_BYTES_MAX);
const _: () = assert!(TRANSACT_REPLY_BYTES_MAX as u64 <= TRANSACT_ANSWER_BYTES_MAX);
// A reader's timestamps and keys fit in a pulled request.
const _: () = assert!(READ_KEYS_MAX as u64 * KEY_BYTES_MAX as u64 <= TRANSACT_PULLED_BYTES_MAX);
// The questions about all of them to one node fit in its connection, together with the outcomes
// that it is told.
const _: () = assert!(2 * ENDINGS_MAX <= REQUESTS_PER_CONNECTION_MAX);
// A piece of a copy is staged whole.
const _: () = assert!(KEPT_BYTES_MAX <= BUFFER_BYTES_MAX && PEER_MEMORY_BYTES.is_multiple_of(4096));
const _: () = assert!(2 * KEPT_BYTES_MAX as u64 <= COPIES_BYTES_MAX);
// By then a silent node was given up, and looked for again.
const _: () = assert!(LOST_END_OTHERS_TIME.as_secs() >= PEER_PATIENCE.as_secs());
const _: () = assert!(LOST_END_FIRST_TIME.as_secs() >= LOST_END_OTHERS_TIME.as_secs());
// The largest part of a transaction fits in the space ahead, beside outcomes.
const _: () = assert!(PART_BYTES_MAX as u64 + 2 * LOG_ENDS_BYTES <= LOG_AHEAD_BYTES / 2);
// A record that begins in one window is whole in the next one.
const _: () =
    assert!(LOG_WINDOW_BYTES > RECORD_BYTES_MAX as u64 && LOG_STEP_BYTES as u64 <= LOG_COMPACT_BYTES);
const _: () = assert!(TRANSACTIONS_BYTES_MAX / 2 <= rackscan_fabric::limits::REGION_BYTES_MAX as u64);
// The minimum memory of a participant leaves something beside its feed and the requests in
// progress, and a feed is one region with room for a ring.
const _: () = assert!(FEED_BYTES_MIN * FEED_SHARE <= TRANSACTIONS_BYTES_MIN && FEED_SHARE > 2);
const _: () = assert!(FEED_BYTES_MIN < FEED_BYTES_MAX);
const _: () = assert!(FEED_BYTES_MAX <= rackscan_fabric::limits::REGION_BYTES_MAX as u64);
const _: () = assert!(
    FEED_BYTES_MIN.is_multiple_of(rackscan_fabric::limits::REGION_ALIGNMENT_BYTES as u64)
        && FEED_BYTES_MIN > rackscan_ramp::limits::FEED_HEADER_BYTES as u64
);
// Withheld rows are staged whole, too.
const _: () = assert!(WITHHELD_BYTES_MAX <= BUFFER_BYTES_MAX);
