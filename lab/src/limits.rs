//! Defines the limits of this crate.

use std::time::Duration;

use rackscan_device::limits::{IO_BYTES_MAX, RING_DEPTH_MAX};
use rackscan_format::limits::{RAW_BYTES_MAX, RAW_TRANSFERS_MAX};

/// Maximum depth of a target: one thread cannot keep more in flight on its ring.
pub const DEPTH_MAX: u32 = RING_DEPTH_MAX;

/// Maximum size of a single IO of a target, in bytes.
pub const IO_BYTES_LARGEST: u32 = 1 << 20;

/// Maximum messages in flight on one connection to a node.
pub const MESSAGES_MAX: u32 = 128;

/// Maximum blocking reader threads of one target, or of one serving thread of a node.
pub const IO_THREADS_MAX: u16 = 256;

/// Maximum blocking reader threads of all targets of a process, or of a node. Each takes four
/// mappings of memory; the kernel permits 65,530 to a process (`vm.max_map_count`), and Rust aborts
/// a process whose thread gets none.
pub const PROCESS_THREADS_MAX: u64 = 8192;

/// Maximum threads of a node that serve connections.
pub const SERVING_MAX: u16 = 64;

/// Maximum samples of core use.
pub const CORE_SAMPLES_MAX: usize = 10_000;

/// Maximum intervals of one run that are counted apart.
pub const INTERVALS_MAX: usize = 100_000;

/// Maximum cases of one experiment.
pub const CASES_MAX: usize = 5000;

/// How long a node that owes replies may be silent before an experiment gives up.
pub const NODE_PATIENCE: Duration = Duration::from_secs(10);

/// Minimum size of a single IO of a target, in bytes: the smallest logical block of a device.
pub const IO_BYTES_LEAST: u32 = 512;

/// Maximum connections (threads, targets) of one load.
pub const CONNECTIONS_MAX: u32 = 1024;

/// Maximum connections of a query simulation, each with a thread that drives it.
pub const QUERY_CONNECTIONS_MAX: u32 = 128;

/// Maximum threads that scan over one of them.
pub const QUERY_THREADS_MAX: u32 = 256;

/// Maximum scale factor of the table that kernels run over: its pages are in memory.
pub const KERNEL_SCALE_MAX: f64 = 10.0;

/// Maximum turns of a kernel.
pub const KERNEL_ROUNDS_MAX: u32 = 1000;

/// Minimum block size of the XOR measurement, in bytes.
pub const XOR_BLOCK_BYTES_MIN: usize = 1 << 10;
/// Maximum block size, in bytes; several pairs of blocks are in memory.
pub const XOR_BLOCK_BYTES_MAX: usize = 16 << 20;

/// Maximum memory of one load's targets, in bytes.
pub const LOAD_MEMORY_BYTES_MAX: u64 = 8 << 30;

/// The longest latency that is told apart from longer ones.
pub const LATENCY_MAX: Duration = Duration::from_secs(600);

/// Significant decimal digits of a latency.
pub const LATENCY_DIGITS: u8 = 3;

/// An IO of an open loop that is issued this much after its intended time counts as late.
pub const LATE_AFTER: Duration = Duration::from_millis(1);

/// Minimum rate of an open loop: an IO in a quarter of an hour.
pub const RATE_MIN: f64 = 0.001;

/// Maximum rate of an open loop, in IOs per second of one connection.
pub const RATE_MAX: f64 = 1e8;

/// Maximum threads, each with a session, of one run of transactions.
pub const SESSIONS_MAX: u32 = 256;

/// Maximum keys of one measured transaction.
pub const TRANSACTION_KEYS_MAX: u32 = 256;

/// Maximum keys that transactions draw from, including those that a run inserts.
pub const KEYS_MAX: u32 = 1 << 26;

/// Minimum length of a value, in bytes: a word that identifies its writer.
pub const VALUE_BYTES_LEAST: u32 = 8;

/// Maximum length of a value, in bytes.
pub const VALUE_BYTES_MOST: u32 = 1 << 18;

/// Maximum names of keys that a session caches.
pub const NAMES_KEPT_MAX: usize = 1 << 16;

/// Reads and writes that all sessions together record before the history so far is checked.
pub const RECORDED_OPERATIONS_MAX: usize = 2 << 20;

/// Maximum transactions of unknown outcome, which may still become visible, that a check carries
/// over.
pub const UNKNOWN_MAX: usize = 1 << 16;

/// Maximum violations and failures kept as text; further ones are only counted.
pub const WORDS_KEPT_MAX: usize = 20;

/// Maximum points of one sweep of transactions: each is measured with every series.
pub const SWEEP_POINTS_MAX: usize = 1000;

/// Maximum series of one sweep of transactions.
pub const SWEEP_SERIES_MAX: usize = 64;

/// Maximum rounds of one sweep of transactions.
pub const SWEEP_ROUNDS_MAX: u32 = 1000;

/// Pause of a session after a failed transaction, so that an unavailable node is not asked as fast
/// as possible.
pub const FAILURE_PAUSE: Duration = Duration::from_millis(1);

const _: () = assert!(MESSAGES_MAX as usize <= rackscan_client::limits::DIRECT_DEPTH_MAX);
// The deepest target fits into the messages of a connection.
const _: () = assert!(DEPTH_MAX as usize <= MESSAGES_MAX as usize * RAW_TRANSFERS_MAX);
const _: () = assert!(IO_BYTES_LARGEST <= RAW_BYTES_MAX);
const _: () = assert!(IO_BYTES_LARGEST as usize <= IO_BYTES_MAX && IO_BYTES_LEAST <= IO_BYTES_LARGEST);
// One target of the maximum size must be possible.
const _: () = assert!(LOAD_MEMORY_BYTES_MAX >= DEPTH_MAX as u64 * IO_BYTES_LARGEST as u64);
// Every measured transaction and its values fit the limits of the algorithms.
const _: () = assert!(TRANSACTION_KEYS_MAX as usize <= rackscan_ramp::limits::READ_KEYS_MAX);
const _: () = assert!(TRANSACTION_KEYS_MAX as usize <= rackscan_ramp::limits::WRITE_KEYS_MAX);
const _: () = assert!(VALUE_BYTES_MOST as usize <= rackscan_ramp::limits::VALUE_BYTES_MAX);
const _: () =
    assert!(VALUE_BYTES_LEAST as usize == size_of::<u64>() && VALUE_BYTES_LEAST <= VALUE_BYTES_MOST);
// Each session can record several transactions of the maximum size.
const _: () = assert!(RECORDED_OPERATIONS_MAX / SESSIONS_MAX as usize >= 16 * TRANSACTION_KEYS_MAX as usize);
// hdrhistogram: at most five digits, and the highest value is at least twice the lowest.
const _: () = assert!(LATENCY_DIGITS <= 5 && LATENCY_MAX.as_nanos() < u64::MAX as u128 / 2);
