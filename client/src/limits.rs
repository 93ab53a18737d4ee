//! Defines the bounds of the queues, pools and waits of this crate. Relations between them are
//! asserted at compile time.

use std::time::Duration;

use rackscan_fabric::limits::HUGE_PAGE_BYTES;
use rackscan_format::limits::{
    CELL_BYTES_MAX, CLUSTER_NODES_MAX, FETCH_PAGES_MAX, MAP_PIECE_BYTES_MAX, PAGE_BYTES_MAX, RAW_BYTES_MAX,
    SECTOR_BYTES,
};

/// Default target memory.
pub const MEMORY_BYTES_DEFAULT: usize = 256 << 20;
/// Minimum target memory: two of the largest pages.
pub const MEMORY_BYTES_MIN: usize = 2 * PAGE_BYTES_MAX as usize;
/// Target memory is allocated in whole slots of this many bytes, so that its bookkeeping is a small
/// bitmap.
pub const SLOT_BYTES: usize = 64 << 10;
/// Target memory is allocated in pieces of this many bytes, when spans are first granted from them.
pub const POPULATE_BYTES: usize = 8 * HUGE_PAGE_BYTES;
/// How long a reader of a local device that found a corrupt page waits for the node to say whether
/// it still has the segment.
pub const CORRUPT_LOOK_TIME_MAX: Duration = Duration::from_secs(1);
/// Pause before a registration is tried again while the node is busy with earlier ones.
pub const REGISTER_PAUSE: Duration = Duration::from_millis(1);
/// At most one part in so many of the target memory may be kept for key filters.
pub const KEPT_SHARE: usize = 4;
/// Maximum bytes of one fetch; a larger one is split, so that many fetches share the target memory.
pub const FETCH_BYTES_MAX: usize = 8 << 20;
/// Initial target for a scan's result. A result that does not fit takes a further round trip.
pub const PROCESS_TARGET_BYTES: usize = 2 << 20;
/// Maximum target for a scan's result: what one block of rows may need.
pub const PROCESS_TARGET_BYTES_MAX: usize = 64 << 20;
/// Target for a part of a catalog.
pub const CATALOG_TARGET_BYTES: usize = 1 << 20;
/// Maximum bytes of one node's catalog.
pub const CATALOG_BYTES_MAX: u64 = 1 << 30;
/// How often a catalog that changes while it is read is read again.
pub const CATALOG_ATTEMPTS_MAX: u32 = 8;
/// How long a part of a table must be missing to count as lost; before, it may be being dropped.
pub const LOST_PART_PAUSE: Duration = Duration::from_millis(200);

/// How often a status or catalog request tries an unreachable node again.
pub const AWAY_LOOK_PERIOD: Duration = Duration::from_secs(1);
/// How often other requests try an unreachable node again: pages can be read elsewhere.
pub const AWAY_DATA_PERIOD: Duration = Duration::from_secs(5);
/// Maps of protected tables that are remembered.
pub const MAPS_KNOWN_MAX: usize = 16;
/// Maximum bytes of a part of the list of what a node holds of a load, for a single large segment.
/// Other parts have the size of those of a catalog.
pub const LOAD_HELD_BYTES_MAX: usize = 4 << 20;
/// Maximum bytes of the parity of one stripe while it is computed.
pub const PARITY_BYTES_PER_STRIPE_MAX: usize = 32 << 20;
/// Stripes that nodes relay at a time for a load or a rebuild.
pub const RELAY_LANES: usize = 2;
/// Maximum memory of each node's relay for one such session, where its rings can be made that
/// small: half of the default memory of relays.
pub const RELAY_SESSION_BYTES_MAX: u64 = 32 << 20;
/// How often a relay session looks for another stripe while one is under way.
pub const RELAY_LOOK: Duration = Duration::from_millis(2);
/// Minimum bytes for relaying: of a set whose parity is computed, or of what a node has lost of
/// one. For less, opening a session takes longer than computing it here.
pub const RELAYED_BYTES_MIN: u64 = 1 << 20;
/// Stripes whose parity the client computes at a time.
pub const PARITY_STRIPES_MAX: usize = 2;
/// Cells of each such stripe that are read at a time.
pub const CELLS_READ_MAX: usize = 4;
/// Maximum bytes of parity that one request appends.
pub const PARITY_APPEND_BYTES_MAX: usize = 2 << 20;
/// Reconstructions at a time: rounds of survivors' bytes, or single pages.
pub const RECONSTRUCTIONS_MAX: usize = 8;
/// Maximum rounds of one fetch among them.
pub const GATHERS_MAX: usize = 2;
/// Maximum bytes of survivors in one round, unless a single sector needs more.
pub const GATHER_BYTES: u64 = 4 << 20;
/// Maximum bytes of one request of a round.
pub const GATHER_REQUEST_BYTES: usize = 2 << 20;
/// Maximum bytes of one read of a device in such a request.
pub const GATHER_READ_BYTES: u32 = 1 << 20;
/// Bytes of a tile. Tiles are XORed one after the other, so that a tile and those of some sums stay
/// in the processor's caches.
pub const GATHER_TILE_BYTES: usize = 16 << 10;
/// Ranges of cells that are read at a time for a single page.
pub const RANGES_READ_MAX: usize = 8;
/// Background repairs at a time of corrupt pages that reads have found.
pub const REPAIRS_MAX: usize = 4;
/// Batches of places that one scrub or rebuild repairs at a time.
pub const REPAIR_BATCHES_MAX: usize = 4;
/// Maximum bytes of such a batch, unless a single stripe has more of the node.
pub const REPAIR_BATCH_BYTES: u64 = 4 << 20;
/// Maximum bytes of places that one request repairs, unless a single place has more.
pub const REPAIR_REQUEST_BYTES: usize = 2 << 20;
/// Maximum cells in the remembered plans of a stripe set: 2 MiB.
pub const PLANS_CELLS_MAX: usize = 1 << 20;
/// Maximum bytes that a node verifies for one request.
pub const VERIFY_REQUEST_BYTES: u64 = 8 << 20;
/// Maximum number of findings that a report names; the others are counted.
pub const FINDINGS_MAX: usize = 64;

/// Requests outstanding at one node; further callers wait for their turn.
pub const REQUESTS_PER_NODE_MAX: usize = 64;
/// Requests outstanding on a direct line: as many as a node serves of one connection.
pub const DIRECT_DEPTH_MAX: usize = 128;
/// Default timeout of a request.
pub const REQUEST_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// How long connecting to a node may take, its handshake included.
pub const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a node may then take to report its status. It is alive; its processors and devices may
/// be busy with other work.
pub const GREETING_TIME_MAX: Duration = Duration::from_secs(15);
/// How long connecting and status together may take.
pub const DIAL_TIME_MAX: Duration = CONNECT_TIME_MAX.saturating_add(GREETING_TIME_MAX);
/// How long the first dial of a node is waited for once another node has answered, if the cluster
/// can go without it. A handshake takes milliseconds; the dial goes on in the background.
pub const CONNECT_GRACE: Duration = Duration::from_secs(1);
/// On a slow machine the grace is so many times what the slowest node that has answered took.
pub const CONNECT_GRACE_FACTOR: u32 = 3;
/// A node that owes a reply and has said nothing for so long is sent a keep-alive.
pub const KEEPALIVE_PERIOD: Duration = Duration::from_millis(300);
/// How long a node may take to answer a keep-alive before reads go elsewhere. Its reactor answers
/// between two other requests, which takes microseconds; on a processor that many threads share, a
/// waiting thread runs within some ten milliseconds.
pub const KEEPALIVE_TIME_MAX: Duration = Duration::from_secs(1);
/// The same where no other node can make up for it: for requests that change something, and for
/// reads of tables without parity.
pub const UNRESPONSIVE_TIME_MAX: Duration = Duration::from_secs(10);
/// The same on `Lines`: for participants, and between nodes. Followers that can use replicas of
/// logs take [`KEEPALIVE_TIME_MAX`].
pub const LINES_KEEPALIVE_TIME_MAX: Duration = Duration::from_secs(3);
/// A request is outpaced when it has taken so many times as long as the longest of similar ones ...
pub const OUTPACED_FACTOR: u32 = 4;
/// ... and so much longer: a hiccup of a short request is not worth a reconstruction ...
pub const OUTPACED_ADDED: Duration = Duration::from_millis(50);
/// ... if at least so many similar ones were answered.
pub const OUTPACED_ANSWERS_MIN: usize = 3;
/// Answers of all nodes that are remembered for that comparison.
pub const ANSWERS_KEPT: usize = 64;
/// How often it is checked whether a request is outpaced.
pub const OUTPACED_LOOK_PERIOD: Duration = Duration::from_millis(20);
/// How long a node's pages are reconstructed at once after they came sooner from other nodes.
pub const SLOW_PERIOD: Duration = Duration::from_secs(5);
/// How often a session that waits for a first connection checks whether it has waited too long.
pub const AWAITED_LOOK_PERIOD: Duration = Duration::from_millis(50);
/// All of these times are extended by so many times the recent lateness of this process: if it ran
/// late, nodes may, too.
pub const LATENESS_FACTOR: u32 = 8;
/// The maximum extension.
pub const LATENESS_ADDED_MAX: Duration = Duration::from_secs(8);
/// How long the driver polls before it sleeps in the kernel. Short: the nodes may need this
/// processor.
pub const DRIVER_SPIN: Duration = Duration::from_micros(10);
/// How often deadlines are checked while there is work; a sleeping driver wakes for the next one.
pub const EXPIRY_PERIOD: Duration = Duration::from_millis(10);
/// How long closing a cluster waits for requests that nobody else waits for (aborts of loads).
pub const CLOSE_TIME_MAX: Duration = Duration::from_secs(2);

/// One-sided reads of a node's cache that are posted at a time: two for each page.
pub const READS_POSTED_MAX: usize = 96;
/// A node is told which of its cached pages were used when there are so many uses.
pub const CACHE_USED_TOLD: usize = 64;

/// Minimum memory of each connection of `Lines`: two of the longest messages.
pub const LINES_MEMORY_BYTES_MIN: usize = 128 << 10;
/// Maximum one-sided reads outstanding at one node of `Lines`.
pub const LINES_READS_MAX: usize = 96;
/// Post boxes that `Lines` ask each node for. Hardly more than one request at a time is under way
/// to a participant.
pub const POSTS: usize = 4;
/// Maximum bytes of a message in a post box: an answer with several values of 1 KiB.
pub const POST_BODY_BYTES: usize = 8 << 10;
/// Maximum time that `Lines` poll before they sleep in the kernel (`rackscan_fabric::Spin`); every
/// poll without an event yields the processor.
pub const LINES_SPIN: Duration = Duration::from_micros(20);
/// Initial pause before a lost node is dialled again. Each failure doubles it.
pub const LINES_BACKOFF_MIN: Duration = Duration::from_millis(10);
/// Maximum of that pause.
pub const LINES_BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Minimum memory of a session for each node: three eighths of it hold the answer with the largest
/// value, and three eighths a request with it.
pub const SESSION_MEMORY_BYTES_MIN: usize = 4 << 20;
/// The memory of the session that closes tables: its only messages are short.
pub const CLOSING_MEMORY_BYTES: usize = SESSION_MEMORY_BYTES_MIN;
/// Memory into which a follower reads one piece of a feed, with the feed's header.
pub const FEED_PIECE_MEMORY_BYTES: usize = (rackscan_ramp::limits::FEED_READ_BYTES_MAX
    + rackscan_ramp::limits::FEED_HEADER_BYTES)
    .next_multiple_of(4096);
/// How often a load or a drop starts over because another table version was published in place of
/// the one that it was about to replace or drop.
pub const REPLACE_ATTEMPTS_MAX: u32 = 64;
/// Default timeout of a transaction.
pub const SESSION_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Pause before a busy participant is asked again.
pub const BUSY_PAUSE: Duration = Duration::from_millis(2);
/// Maximum attempts of a write, each with a newer timestamp because others wrote the same keys.
pub const WRITE_ATTEMPTS_MAX: u32 = 64;
/// Maximum attempts of a read that participants interrupted.
pub const SESSION_ATTEMPTS_MAX: u32 = 4;
/// How often a follower begins anew in one call.
pub const FOLLOW_ATTEMPTS_MAX: u32 = 4;
/// How long a follower waits for an unavailable participant to be connected to.
pub const FOLLOW_RETURN_TIME: Duration = Duration::from_millis(500);
/// How often a scan reads a range whose keys change meanwhile.
pub const SESSION_SCANS_MAX: u32 = 8;
/// Maximum committed transactions of which a session still tells participants; of further ones they
/// learn from each other.
pub const SESSION_ENDINGS_MAX: usize = 256;
/// How long a session waits until participants have heard that it rests.
pub const SESSION_REST_TIME_MAX: Duration = Duration::from_millis(500);
/// Default number of places of keys that a session remembers: about 30 MB.
pub const PLACES_MAX_DEFAULT: usize = 1 << 18;
/// A lease is moved on at least so often while its session is active.
pub const LEASE_REFRESH_PERIOD: Duration = Duration::from_millis(100);
/// A participant is told of ended transactions when there are so many, if no other message is sent
/// to it before.
pub const SETTLED_TOLD: usize = 128;
/// Maximum bytes of keys that a session asks for with one message.
pub const PAYLOAD_KEY_BYTES: usize = 32 << 10;

/// Maximum bytes of freed page buffers that are kept for the next fetch.
pub const PAGE_BYTES_KEPT_MAX: usize = 128 << 20;

/// Memory into which local devices are read without a copy.
pub const LOCAL_POOL_BYTES: usize = 128 << 20;
/// The pieces in which the pool is allocated.
pub const LOCAL_PIECE_BYTES: usize = 8 * HUGE_PAGE_BYTES;
/// How long the pool is not grown after the system had no memory for it.
pub const LOCAL_GROWTH_PAUSE: Duration = Duration::from_secs(1);
/// Memory into which they are read when the pool is exhausted; pages are copied out of it at once.
pub const LOCAL_RESERVE_BYTES: usize = 8 << 20;
/// Reads in flight at local devices.
pub const LOCAL_DEPTH: u32 = 128;
/// Batches of reads waiting for the thread that reads local devices; further callers wait.
pub const LOCAL_BATCHES_MAX: usize = 256;

// A caller that can go without a node learns within two seconds that it is unresponsive.
const _: () = assert!(KEEPALIVE_PERIOD.as_millis() + KEEPALIVE_TIME_MAX.as_millis() < 2000);
const _: () = assert!(CONNECT_GRACE.as_millis() < CONNECT_TIME_MAX.as_millis());
const _: () = assert!(UNRESPONSIVE_TIME_MAX.as_secs() < REQUEST_TIMEOUT_DEFAULT.as_secs());
const _: () = assert!(POPULATE_BYTES.is_multiple_of(SLOT_BYTES));
const _: () = assert!(SLOT_BYTES.is_multiple_of(SECTOR_BYTES as usize));
const _: () =
    assert!(MEMORY_BYTES_DEFAULT >= MEMORY_BYTES_MIN && MEMORY_BYTES_MIN.is_multiple_of(SLOT_BYTES));
// Any page fits into a fetch, and any fetch into the minimum memory.
const _: () = assert!(FETCH_BYTES_MAX >= PAGE_BYTES_MAX as usize && FETCH_BYTES_MAX <= MEMORY_BYTES_MIN);
const _: () = assert!(PROCESS_TARGET_BYTES <= MEMORY_BYTES_MIN && CATALOG_TARGET_BYTES <= MEMORY_BYTES_MIN);
const _: () = assert!(FETCH_PAGES_MAX >= 1);
const _: () = assert!(PARITY_APPEND_BYTES_MAX <= MEMORY_BYTES_MIN && LOAD_HELD_BYTES_MAX <= MEMORY_BYTES_MIN);
const _: () = assert!(PARITY_APPEND_BYTES_MAX >= CELL_BYTES_MAX as usize);
const _: () =
    assert!(MAP_PIECE_BYTES_MAX <= MEMORY_BYTES_MIN as u64 && CELL_BYTES_MAX as usize <= MEMORY_BYTES_MIN);
const _: () = assert!(REPAIR_REQUEST_BYTES <= MEMORY_BYTES_MIN);
// A round fits the minimum memory, each of its requests in slots of its own.
const _: () = assert!(GATHER_BYTES + 32 * SLOT_BYTES as u64 <= MEMORY_BYTES_MIN as u64);
const _: () = assert!(CELL_BYTES_MAX as usize <= GATHER_REQUEST_BYTES && GATHER_READ_BYTES <= RAW_BYTES_MAX);
const _: () = assert!(GATHER_READ_BYTES.is_multiple_of(SECTOR_BYTES));
// The connection's queue holds every outstanding request, abandoned ones included.
const _: () =
    assert!(2 * REQUESTS_PER_NODE_MAX + READS_POSTED_MAX <= rackscan_fabric::limits::QUEUE_DEPTH_MAX);
const _: () = assert!(DIRECT_DEPTH_MAX <= rackscan_fabric::limits::QUEUE_DEPTH_MAX);
// A queue of the fabric has room for all messages and all reads of one node.
const _: () = assert!(DIRECT_DEPTH_MAX + LINES_READS_MAX <= rackscan_fabric::limits::QUEUE_DEPTH_MAX);
const _: () = assert!(POSTS <= rackscan_fabric::limits::POST_BOXES_MAX);
const _: () = assert!(POST_BODY_BYTES <= rackscan_fabric::limits::POST_BODY_BYTES_MAX);
const _: () = assert!(LINES_MEMORY_BYTES_MIN >= 2 * rackscan_format::limits::MESSAGE_BYTES_MAX);
// The largest value fits an answer and a request, with its key and the bytes beside it.
const _: () = assert!(
    SESSION_MEMORY_BYTES_MIN / 8 * 3
        >= rackscan_ramp::limits::VALUE_BYTES_MAX + rackscan_ramp::limits::BESIDE_BYTES_MAX + (128 << 10)
);
const _: () = assert!(SESSION_MEMORY_BYTES_MIN >= LINES_MEMORY_BYTES_MIN);
// A follower has room for the largest value beside a piece of a feed.
const _: () = assert!(SESSION_MEMORY_BYTES_MIN - FEED_PIECE_MEMORY_BYTES >= SESSION_MEMORY_BYTES_MIN / 8 * 3);
// A table is closed by a transaction that writes to every node.
const _: () = assert!(CLUSTER_NODES_MAX <= rackscan_ramp::limits::PARTICIPANTS_MAX);
const _: () = assert!(SETTLED_TOLD <= rackscan_ramp::limits::SETTLED_PER_PART_MAX);
const _: () = assert!(PAYLOAD_KEY_BYTES + 4096 <= rackscan_format::limits::TRANSACT_BYTES_MAX);
// The uses that are told at once, with all pages of the call that reached the number, fit one
// message.
const _: () = assert!(CACHE_USED_TOLD + FETCH_PAGES_MAX <= rackscan_format::limits::CACHE_USED_MAX);
// Progress is made with the reserve alone: it holds any page.
const _: () = assert!(LOCAL_RESERVE_BYTES >= PAGE_BYTES_MAX as usize);
const _: () =
    assert!(LOCAL_PIECE_BYTES.is_multiple_of(PAGE_BYTES_MAX as usize) && PAGE_BYTES_MAX.is_power_of_two());
const _: () = assert!(LOCAL_POOL_BYTES.is_multiple_of(LOCAL_PIECE_BYTES));
const _: () = assert!(PAGE_BYTES_MAX as usize <= rackscan_device::limits::BUFFER_BYTES_MAX);
const _: () = assert!(LOCAL_DEPTH <= rackscan_device::limits::RING_DEPTH_MAX);
