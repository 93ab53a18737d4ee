//! How much may anything in a storage node become?
//!
//! Invariants
//! - Every queue, pool and table of this crate has its bound here; relations are asserted at
//!   compile time.
//! - Nothing grows with what a peer sends beyond these bounds.

use std::time::Duration;

use rackscan_format::limits::{
    FETCH_PAGES_MAX, KEPT_BYTES_MAX, KEY_FILTER_BYTES_MAX, KEY_FILTERS_MAX, PAGE_BYTES_MAX, RAW_BYTES_MAX,
    SECTOR_BYTES, WITHHELD_BYTES_MAX,
};
use rackscan_ramp::limits::{
    KEY_BYTES_MAX, PART_BYTES_MAX, READ_KEYS_MAX, RECORD_BYTES_MAX, REPLY_BYTES_MAX, UNSETTLED_MAX,
    VALUE_BYTES_MAX,
};

/// Reactor threads of a node.
pub const REACTORS_MAX: u16 = 64;
/// Connection pollers of a node, each of which is a reactor over another kind of IO.
pub const POLLERS_MAX: u16 = REACTORS_MAX;
/// Threads that read devices for one reactor or poller.
pub const IO_THREADS_MAX: u16 = 256;
/// Threads that read devices, of the whole node; also the most that the bridge `dynamic` may come
/// to have at a time.
pub const IO_THREADS_NODE_MAX: usize = 8192;
/// Bytes of the smallest scratch area: one of the largest raw transfers.
pub const SCRATCH_BYTES_MIN: u64 = RAW_BYTES_MAX as u64;
/// Scan workers of a node.
pub const SCAN_WORKERS_MAX: u16 = 256;
/// Scans that wait for a worker.
pub const SCAN_QUEUE_MAX: u16 = 4096;
/// Processor time of one scan of a segment unless the configuration says otherwise, in
/// milliseconds: hundreds of times what a query of the usual kind takes.
pub const SCAN_CPU_MS_DEFAULT: u32 = 5000;
/// The most that can be configured: an hour.
pub const SCAN_CPU_MS_MAX: u32 = 3_600_000;
/// Stored pages and groups of one scan of a segment unless the configuration says otherwise.
pub const SCAN_MEMORY_BYTES_DEFAULT: u64 = 64 << 20;
/// The least that can be configured: some pages of the usual size.
pub const SCAN_MEMORY_BYTES_MIN: u64 = 256 << 10;
/// A scan plans its pages for one part in so many of its memory quota. Its groups, which it puts
/// out when they take a quarter of what is planned, find room in the rest.
pub const SCAN_MEMORY_SHARE: usize = 2;
/// Memory for stripes that pass, for each address that they are relayed at, if the configuration
/// does not say how much: two sessions of five nodes in which a load is protected, with slices of
/// 64 KiB (`config` tests it).
pub const RELAY_BYTES_DEFAULT: u64 = 64 << 20;
/// The least of it for each address that stripes are relayed at: a session of three nodes, with
/// short slices.
pub const RELAY_BYTES_MIN: u64 = 4 << 20;
/// The most of it.
pub const RELAY_BYTES_MAX: u64 = 1 << 38;
/// Links of a relay that have not said what they are for, beside one for each peer: clients, and
/// whoever comes by mistake.
pub const RELAY_LINKS_SPARE: usize = 16;
/// Device operations of a relay in flight.
pub const RELAY_DEPTH: u32 = 128;
/// A relay that has nothing to do looks at least so often whether the node stops.
pub const RELAY_SLEEP_MAX: Duration = Duration::from_millis(200);
/// A busy relay says how far it is each time it has done so many turns.
pub const RELAY_TURNS_PER_REPORT: u64 = 256;
/// Addresses a node listens at.
pub const LISTENERS_MAX: usize = 16;
/// Reads and writes in flight of one thread.
pub const IO_DEPTH_MAX: u32 = 1024;
/// Bytes of the smallest device: labels and one of the largest pages.
pub const DEVICE_BYTES_MIN: u64 = 8 << 20;

/// Connections of one reactor.
pub const CONNECTIONS_PER_REACTOR_MAX: usize = 3840;
/// Connections of a node unless the configuration says otherwise: of 1,100 clients three each, and
/// other nodes.
pub const CONNECTIONS_DEFAULT: u32 = 3600;
/// Senders that the inbox of a reactor can tell apart: its connections, and those that come or go
/// at the moment.
pub const SENDERS_PER_REACTOR_MAX: u16 = 4096;
/// Memory that one connection takes at most outside of our pools and the inbox, in bytes: the ring
/// for replies of a `shm` connection, or the staging, answers and stack of a `tcp` responder, and
/// what is known of it, rounded up. It is taken when it is used: an idle connection takes a small
/// part of it.
pub const CONNECTION_BYTES: u64 = 96 << 10;
/// The same where a listener is of the wire `verbs`, with the scratch memory of a queue pair, which
/// is taken at once; also what a relay counts for each of its links.
pub const ADAPTER_CONNECTION_BYTES: u64 = 384 << 10;
/// Descriptors that are left to files, devices, relays and other nodes, beside those of connections
/// and strangers.
pub const DESCRIPTORS_RESERVED: u64 = 256;
/// Connections that were refused and are being told so.
pub const REFUSALS_UNDER_WAY_MAX: usize = 64;
/// The log tells of refused connections once in so much time.
pub const REFUSALS_LOGGED_EVERY: Duration = Duration::from_secs(10);
/// Turns of a reactor in which nothing happens on a connection before it is watched by the kernel
/// and not looked at any more.
pub const TURNS_UNTIL_WATCHED: u32 = 4096;
/// Boxes of one connection at either end; a client that asks for more is refused.
pub const POSTS_MAX: usize = 16;
/// The longest message in a box, in bytes. A value of some KiB fits.
pub const POST_BODY_BYTES_MAX: usize = 16 << 10;
/// Bytes of all boxes of one connection at one end: four for 8 KiB each, say, and what lies around
/// them.
pub const POSTS_REGION_BYTES_MAX: usize = 36 << 10;
/// What they take here, of the memory for connections: boxes, images of what is written into the
/// client's, and a message that is being looked at.
pub const POSTS_BYTES: u64 = 2 * POSTS_REGION_BYTES_MAX as u64 + POST_BODY_BYTES_MAX as u64;
/// Requests in progress of one connection; a client that asks for more is told [`Busy`].
///
/// [`Busy`]: rackscan_format::message::RefusalCode::Busy
pub const REQUESTS_PER_CONNECTION_MAX: usize = 128;
/// Requests of a client that arrive before its connection was handed to its reactor; one more
/// refuses the connection.
pub const EARLY_REQUESTS_MAX: usize = REQUESTS_PER_CONNECTION_MAX;
/// Arrivals in a reactor's inbox between two looks at who sends how much.
pub const ARRIVALS_PER_LOOK: u32 = 256;
/// Arrivals that a reactor takes out of its inbox before it looks at its devices and connections.
pub const ARRIVALS_PER_TURN_MAX: u32 = 64;
/// Ended device operations whose requests a reactor advances before it looks at its inbox again:
/// answers of many reads that end together take a while to send, and the device waits idly for the
/// next requests meanwhile.
pub const COMPLETIONS_PER_TURN_MAX: u32 = 4;
/// Rings of a reactor's inbox for clients that ask often.
pub const PRIVATE_RINGS_MAX: u16 = 64;
/// Bytes of each ring of an inbox.
pub const INBOX_RING_BYTES: usize = 256 << 10;
/// Replies of one connection that wait because its peer does not read; one more ends the
/// connection.
pub const REPLIES_WAITING_MAX: usize = 2 * REQUESTS_PER_CONNECTION_MAX;
/// Bytes that a reactor posts to one connection before it hands them to the wire: what it posts in
/// one turn goes out together, one system call on `tcp` instead of two for each small answer, but a
/// large answer does not wait for another.
pub const HELD_BYTES_MAX: usize = 64 << 10;
/// Requests in progress of one reactor.
pub const REQUESTS_PER_REACTOR_MAX: usize = 1024;
/// Reads that one fetch has in flight, so that a large fetch leaves the queue to others.
pub const READS_PER_FETCH_MAX: u32 = 32;
/// Bytes of one read made of several neighbouring pages.
pub const COALESCED_BYTES_MAX: u32 = 1 << 20;
/// Pages of one append on their way from the source to the device.
pub const PAGES_PER_APPEND_MAX: usize = 32;
/// Reads of one verification in flight: it is in no hurry.
pub const READS_PER_VERIFY_MAX: usize = 4;
/// Encoded bytes of a segment directory.
pub const DIRECTORY_BYTES_MAX: usize = 4 << 20;
/// Bytes of what a load has here that one reply tells.
pub const LOAD_PART_BYTES_MAX: u64 = DIRECTORY_BYTES_MAX as u64;
/// Bytes of a catalog that one reply carries.
pub const CATALOG_PART_BYTES_MAX: u64 = 1 << 20;
/// Memory behind the answers to echo, in bytes.
pub const ECHO_BYTES: usize = 256 << 10;
/// Writes of one echo in flight.
pub const ECHO_WRITES_MAX: u32 = 4;
/// Bytes of a scan's result on wires where it is staged here before it travels.
pub const RESULT_STAGED_BYTES_MAX: u64 = 4 << 20;
/// Bytes of a scan's result on wires where it goes straight to the requester.
pub const RESULT_BYTES_MAX: u64 = 64 << 20;
/// Verified programs kept for the next segment of the same scan.
pub const PROGRAMS_KEPT_MAX: usize = 64;
/// Bytes of key filters kept with them: those of one program at least.
pub const PROGRAM_FILTERS_BYTES_MAX: usize = 8 << 20;
/// Holds of tables, by transactions and long queries.
pub const HOLDS_MAX: usize = 4096;
/// Loads in progress.
pub const LOADS_MAX: usize = 64;
/// Aborted loads whose ids are remembered, so that nothing of them that comes late is taken: many
/// more than there are at a time.
pub const ABORTED_LOADS_MAX: usize = 1024;
/// Catalog changes that wait to be made durable.
pub const PUBLISH_QUEUE_MAX: usize = 256;
/// Messages from other threads that wait for a reactor: finished work (bounded by its requests) and
/// new connections.
pub const MESSAGE_QUEUE_MAX: usize = REQUESTS_PER_REACTOR_MAX + CONNECTIONS_PER_REACTOR_MAX;

/// Memory of a home of transactions that can be configured, in bytes: the least lets small values
/// be kept, the most lets half of it be one region.
pub const TRANSACTIONS_BYTES_MIN: u64 = 1 << 20;
/// The most.
pub const TRANSACTIONS_BYTES_MAX: u64 = 1 << 38;
/// The nicest that a thread can be.
pub const NICE_MAX: u8 = 19;
/// The smallest bound of a home's log that can be configured.
pub const TRANSACTIONS_LOG_BYTES_MIN: u64 = 1 << 20;
/// What requests in progress hold of a home's memory: one part in so many ..
pub const TRANSIT_SHARE: u64 = 8;
/// .. but so many bytes where half of the memory allows it: the largest request, while it is
/// decoded.
pub const TRANSIT_BYTES_WANTED: u64 = 2 * TRANSACT_PULLED_BYTES_MAX;
/// What the feed has of a home's memory: one part in so many ..
pub const FEED_SHARE: u64 = 8;
/// .. but so many bytes at least ..
pub const FEED_BYTES_MIN: u64 = 64 << 10;
/// .. and at most: who was away for longer than it takes to fill them scans what there is instead.
pub const FEED_BYTES_MAX: u64 = 256 << 20;
/// What a request takes of it at least.
pub const TRANSIT_BYTES_MIN: u64 = 512;
/// Messages of one request about transactions.
pub const TRANSACT_MESSAGES_MAX: usize = 64;
/// Bytes of a request about transactions that is pulled: the largest part of a transaction, and
/// what may travel with it.
pub const TRANSACT_PULLED_BYTES_MAX: u64 = PART_BYTES_MAX as u64 + (1 << 20);
/// Bytes of a long request or answer that are staged at a time.
pub const TRANSACT_PIECE_BYTES: usize = 1 << 20;
/// Bytes of an answer about transactions.
pub const TRANSACT_ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Bytes of one message of it: a message is encoded whole.
pub const TRANSACT_REPLY_BYTES_MAX: usize = 8 << 20;
/// Clients of transactions whose leases may be taken over one connection.
pub const CLIENTS_PER_CONNECTION_MAX: usize = 64;
/// Transactions without a coordinator that wait to be ended: all that may be in doubt.
pub const ORPHANS_MAX: usize = UNSETTLED_MAX;
/// Transactions that a home ends at a time by asking their other homes.
pub const ENDINGS_MAX: usize = 64;
/// A transaction that is in doubt for longer is ended even if its client's connection lives:
/// between once and twice this time.
pub const IN_DOUBT_TIME_MAX: Duration = Duration::from_secs(10);
/// How often a home asks again those that have not answered, or could not be reached.
pub const PEERS_TICK: Duration = Duration::from_secs(1);
/// How long a node that cannot make connections to others, for another reason than that they are
/// away, waits before it tries again.
pub const PEERS_RETRY: Duration = Duration::from_secs(5);
/// Messages of the home that wait for the peers' thread; one more is not sent, and said again at
/// the next tick.
pub const ERRANDS_MAX: usize = 1024;
/// How long another node may be silent while it owes replies.
pub const PEER_PATIENCE: Duration = Duration::from_secs(10);
/// Registered memory of each connection to another node, in bytes: a piece of the log on its way
/// there, or back, and what is said about transactions, which fits messages.
pub const PEER_MEMORY_BYTES: usize = KEPT_BYTES_MAX + rackscan_client::limits::LINES_MEMORY_BYTES_MIN;
/// Other nodes that keep a copy of a node's log.
pub const LOG_COPIES: usize = 2;
/// How long an acknowledgement waits for a copy; then it goes without, until the copy has caught
/// up.
pub const COPY_PATIENCE: Duration = Duration::from_secs(2);
/// How long a node that has just started waits for a replica of its log, before any set of replicas
/// counts: others start at the same time.
pub const FIRST_COPY_PATIENCE: Duration = Duration::from_secs(5);
/// How long a generation of a log waits to be known to enough nodes, until new writes are refused
/// and not only waited for.
pub const GENERATION_PATIENCE: Duration = Duration::from_secs(10);
/// How long a shorter log waits until the copies have it. Then it takes the longer one's place all
/// the same.
pub const COPY_AHEAD_TIME: Duration = Duration::from_secs(60);
/// How often a node that has lost its log looks whether those that may have it are there.
pub const SEEK_PERIOD: Duration = Duration::from_millis(200);
/// How long a node whose log has a damaged end waits for the other nodes that may have the rest,
/// once one has said what it has.
pub const LOST_END_OTHERS_TIME: Duration = Duration::from_secs(10);
/// How long it waits if none says anything.
pub const LOST_END_FIRST_TIME: Duration = Duration::from_secs(30);
/// How often it asks all of them again because one that has more went away, or refused, while that
/// was fetched (about once a second), and how often it asks one for a piece again that is busy.
pub const LOST_END_TRIES_MAX: u32 = 30;
/// Parts of copies that wait for their thread.
pub const KEEPING_QUEUE_MAX: usize = 64;
/// Of a home's memory, one part in so many is for copies of logs on their way, where nodes know
/// each other: half of it for those kept here, half for the home's own batches, which slower nodes
/// have yet to get ..
pub const COPIES_SHARE: u64 = 8;
/// .. but no more than this.
pub const COPIES_BYTES_MAX: u64 = 4 << 20;
/// Commands that wait for the thread of the log: a batch under way, the one before a snapshot, the
/// snapshot, the switch or giving it up, a generation, a look at the room.
pub const LOG_QUEUE_MAX: usize = 7;
/// Bytes of a log below which it is not replaced by a shorter one.
pub const LOG_COMPACT_BYTES: u64 = 64 << 20;
/// A log is replaced when it is so many times as long as the new one will be.
pub const LOG_COMPACT_FACTOR: u64 = 4;
/// How long a log that could not be replaced stays as it is.
pub const LOG_COMPACT_RETRY: Duration = Duration::from_secs(10);
/// Bytes of disk space that a log takes at a time, and of a new log that are written at a time.
pub const LOG_STEP_BYTES: usize = 1 << 20;
/// Bytes that are punched out of a device file at a time. Who finds no other room waits for the end
/// of that.
pub const PUNCH_BYTES_MAX: u64 = 64 << 20;
/// Ranges of a device that are listed as freed and not punched yet; beyond it all free ranges are
/// punched.
pub const FREED_RANGES_MAX: usize = 4096;
/// Bytes of disk space that a log has ahead of its end, so that what was taken is never without
/// room; half of it is the least. Nothing is taken that would not fit in it.
pub const LOG_AHEAD_BYTES: u64 = 12 << 20;
/// How many of these are for how transactions end that are prepared already.
pub const LOG_ENDS_BYTES: u64 = 1 << 20;
/// Bytes of a log that are in memory while it is read: more than its longest record.
pub const LOG_WINDOW_BYTES: u64 = 2 * RECORD_BYTES_MAX as u64;
/// Bytes that are kept of what was cut off the ends of a log, or of a copy: the newest cut anyhow,
/// and as many before it as fit.
pub const LOG_CUT_BYTES: u64 = 16 << 20;
/// How long after a disk was full it is tried again.
pub const LOG_RETRY: Duration = Duration::from_millis(100);
/// Superseded versions that a turn of the reactor looks at.
pub const COLLECTED_PER_TURN: usize = 256;

/// How long a reactor that has just worked polls before it sleeps in the kernel. Long enough for a
/// client that was just answered over shared memory to ask again (10 us were not, 50 gained no more
/// in interleaved turns), and short: on a small host the client that it waits for needs this
/// processor. The longest: where what comes next is far away, it is less (`rackscan_fabric::Spin`).
pub const REACTOR_SPIN: Duration = Duration::from_micros(25);
/// How long stopping waits for requests in progress.
pub const STOP_TIME_MAX: Duration = Duration::from_secs(5);

/// The largest part of staging memory or of a pool that is asked for at once.
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
// A connection that goes may still be known to the inbox while the next one comes, and handshakes
// are dealt before they are counted.
const _: () = assert!(
    CONNECTIONS_PER_REACTOR_MAX + rackscan_fabric::limits::SETUPS_MAX < SENDERS_PER_REACTOR_MAX as usize
);
// A request in each box may be in progress.
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
// A relay keeps no fewer bytes for a link than a node for a connection.
const _: () = assert!(CONNECTION_BYTES <= ADAPTER_CONNECTION_BYTES);
const _: () = assert!(CONNECTIONS_DEFAULT as usize <= CONNECTIONS_PER_REACTOR_MAX);
// A ring for replies, and what is known of the connection, fit what is counted for it.
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
// What is staged at a time of transactions is one slot.
const _: () = assert!(TRANSACT_PIECE_BYTES <= BUFFER_BYTES_MAX);
// An answer with the longest value is one message at most.
const _: () = assert!(VALUE_BYTES_MAX + REPLY_BYTES_MAX + (64 << 10) <= TRANSACT_REPLY_BYTES_MAX);
const _: () = assert!(TRANSACT_REPLY_BYTES_MAX as u64 <= TRANSACT_ANSWER_BYTES_MAX);
// A reader's timestamps and keys fit what is pulled.
const _: () = assert!(READ_KEYS_MAX as u64 * KEY_BYTES_MAX as u64 <= TRANSACT_PULLED_BYTES_MAX);
// What is asked about all of them at one node fits its connection, with what they are told in the
// end.
const _: () = assert!(2 * ENDINGS_MAX <= REQUESTS_PER_CONNECTION_MAX);
// A piece of a copy is staged whole.
const _: () = assert!(KEPT_BYTES_MAX <= BUFFER_BYTES_MAX && PEER_MEMORY_BYTES.is_multiple_of(4096));
const _: () = assert!(2 * KEPT_BYTES_MAX as u64 <= COPIES_BYTES_MAX);
// A node that is silent has been given up by then, and looked for again.
const _: () = assert!(LOST_END_OTHERS_TIME.as_secs() >= PEER_PATIENCE.as_secs());
const _: () = assert!(LOST_END_FIRST_TIME.as_secs() >= LOST_END_OTHERS_TIME.as_secs());
// The largest part of a transaction fits in the room ahead, beside ends.
const _: () = assert!(PART_BYTES_MAX as u64 + 2 * LOG_ENDS_BYTES <= LOG_AHEAD_BYTES / 2);
// A record that begins in a window is whole in the next one.
const _: () =
    assert!(LOG_WINDOW_BYTES > RECORD_BYTES_MAX as u64 && LOG_STEP_BYTES as u64 <= LOG_COMPACT_BYTES);
const _: () = assert!(TRANSACTIONS_BYTES_MAX / 2 <= rackscan_fabric::limits::REGION_BYTES_MAX as u64);
// The least memory of a home leaves something beside its feed and what requests hold, and a feed is
// one region with room for a ring.
const _: () = assert!(FEED_BYTES_MIN * FEED_SHARE <= TRANSACTIONS_BYTES_MIN && FEED_SHARE > 2);
const _: () = assert!(FEED_BYTES_MIN < FEED_BYTES_MAX);
const _: () = assert!(FEED_BYTES_MAX <= rackscan_fabric::limits::REGION_BYTES_MAX as u64);
const _: () = assert!(
    FEED_BYTES_MIN.is_multiple_of(rackscan_fabric::limits::REGION_ALIGNMENT_BYTES as u64)
        && FEED_BYTES_MIN > rackscan_ramp::limits::FEED_HEADER_BYTES as u64
);
// And so are withheld rows.
const _: () = assert!(WITHHELD_BYTES_MAX <= BUFFER_BYTES_MAX);
