//! Defines the limits of the engine: sizes, counts and times.
//!
//! Invariants
//! - The stored pages that a partition of a scan holds are bounded in bytes, however many of its
//!   segments are in flight.
//! - Relations between limits are asserted at compile time.

use rackscan_client::limits::SESSION_MEMORY_BYTES_MIN;
use rackscan_format::limits::{PAGE_BYTES_MAX, PROGRAM_SET_MAX};
use rackscan_ramp::limits::{PART_BYTES_MAX, WRITE_KEYS_MAX};
use rackscan_scan::MEMORY_BYTES_DEFAULT;
use std::time::Duration;

/// Segments of a partition in flight at a time, unless the caller or the number of nodes asks for
/// more.
pub(crate) const SEGMENTS_IN_FLIGHT_DEFAULT: usize = 4;
/// Segments of a node in flight at a time, if there are enough partitions for it: while its workers
/// scan two and one is read, another travels.
pub(crate) const SEGMENTS_PER_NODE: usize = 4;
/// The maximum segments that a partition has in flight because of the number of nodes.
pub(crate) const SEGMENTS_FOR_NODES_MAX: usize = 16;
/// The maximum segments that a partition has in flight, whatever the caller asks for.
pub(crate) const SEGMENTS_IN_FLIGHT_MAX: usize = 64;
/// Stored pages that a partition of a scan holds, in bytes, shared evenly by its segments in
/// flight. Tables of groups may take a quarter of it in addition. Rows that nodes send are bounded
/// by the client's memory for answers.
pub(crate) const PARTITION_PAGE_BYTES_MAX: usize = 256 << 20;

/// Bytes of stored pages that one of `in_flight` segments may hold: its share of the partition's.
pub(crate) fn segment_page_bytes(partition_bytes: usize, in_flight: usize) -> usize {
    let partition_bytes = partition_bytes.min(PARTITION_PAGE_BYTES_MAX);
    (partition_bytes / in_flight.clamp(1, SEGMENTS_IN_FLIGHT_MAX)).min(MEMORY_BYTES_DEFAULT)
}

/// Maximum bytes of texts that one call of a function makes for a batch: they are not counted in
/// the memory that queries share.
pub(crate) const BATCH_TEXT_BYTES_MAX: u64 = 256 << 20;
// Arrow counts the bytes of a batch's texts in 31 bits.
const _: () = assert!(BATCH_TEXT_BYTES_MAX < 1 << 31, "texts fit an array");

/// Maximum bytes of texts in a batch of rows that an operator copies before it reserves memory for
/// them.
pub(crate) const BATCH_COPY_BYTES_MAX: usize = 64 << 20;

/// Maximum bytes of the text that an aggregate makes of the rows of a group or window: as in
/// PostgreSQL.
pub(crate) const COLLECTED_BYTES_MAX: usize = (1 << 30) - 1;

/// Rows of a LIMIT with its OFFSET that a top-k may keep, which cannot write them to disk.
pub(crate) const TOP_ROWS_MAX: usize = 1 << 15;

/// Keys of one column that a join's sketch collects, 8 bytes each. With more keys a Bloom filter of
/// the largest size lets too many rows pass.
pub(crate) const SKETCH_KEYS_MAX: usize = 1 << 20;
/// Maximum keys that are sent as a set, with which nodes skip pages that have none of them.
pub(crate) const SKETCH_SET_MAX: usize = 64;
/// Rows of the smallest table whose scan is narrowed by a join's keys, unless the caller says
/// otherwise.
pub(crate) const NARROWED_ROWS_MIN_DEFAULT: u64 = 16_384;
/// Rows of the largest table whose rows a join collects so soon that scans wait for the keys.
pub(crate) const QUICK_BUILD_ROWS_MAX: u64 = 16_384;
/// The maximum wait for such keys, over all segments of a scan.
pub(crate) const KEYS_AWAITED_MAX: Duration = Duration::from_millis(20);
/// Rows that are tested by key filters before it is decided whether the filters are worth it.
pub(crate) const KEYS_JUDGED: u64 = 32_768;
/// Key filters that keep more than this share of rows (numerator, denominator) are given up.
pub(crate) const KEYS_KEPT_MAX: (u64, u64) = (7, 8);

/// Rows that a transaction may change: they may all belong to one participant.
pub(crate) const TRANSACTION_ROWS_MAX: usize = WRITE_KEYS_MAX;
/// Items that a transaction may write: rows, and what is derived from them.
pub(crate) const TRANSACTION_ITEMS_MAX: usize = WRITE_KEYS_MAX;
/// Bytes of the values of a transaction's rows, which may also belong to one participant. Keys of
/// rows are short.
pub(crate) const TRANSACTION_BYTES_MAX: usize = PART_BYTES_MAX - TRANSACTION_ROWS_MAX * ROW_KEY_BYTES_MAX;
/// Bytes of a row's key: its prefix, table, kind, and the timestamp and number of an inserted row.
const ROW_KEY_BYTES_MAX: usize = 2 + 4 + 1 + 12 + 4;
/// Memory for each node's connection that writes changed rows.
pub(crate) const CHANGES_MEMORY_BYTES: usize = 16 << 20;
/// Memory for each node's connection that reads changed rows. It is allocated by each command that
/// reads a table, so it is as small as it may be.
pub(crate) const FOLLOWER_MEMORY_BYTES: usize = SESSION_MEMORY_BYTES_MIN;
/// The timeout of a transaction, and of reading what others have written.
pub(crate) const CHANGES_TIMEOUT: Duration = Duration::from_secs(10);

/// How often the catalog is read again because it does not fit what participants report.
pub(crate) const RENEWALS_MAX: u32 = 5;
/// The pause between two checks whether transactions of a closed table have ended.
pub(crate) const ENDINGS_POLL_TIME: Duration = Duration::from_millis(5);
/// The maximum wait for them to end. Participants end transactions whose clients are gone by
/// themselves, and ask each other for the outcome for as long.
pub(crate) const ENDINGS_WAIT_MAX: Duration = Duration::from_secs(30);
/// Changed rows of a table from which on it is flushed in the background, unless the caller says
/// otherwise.
pub(crate) const FLUSH_ROWS_DEFAULT: u64 = 1 << 17;
/// After a failed flush, how long the table is not flushed again.
pub(crate) const FLUSH_RETRY_TIME: Duration = Duration::from_secs(30);
/// Segments of a flush in flight to their nodes at a time.
pub(crate) const FLUSHED_IN_FLIGHT: usize = 4;
/// Segments of a table that are carried over to its new version at a time: the node gets a request
/// for each.
pub(crate) const KEPT_IN_FLIGHT: usize = 16;
/// A flush compacts the segments of a node if it has this many that are at most half as large as a
/// full one.
pub(crate) const COMPACTED_SEGMENTS_MIN: usize = 8;
/// A segment is compacted together with smaller ones if it has at most this many times the rows of
/// all of them.
pub(crate) const COMPACTED_STEP: u64 = 2;
/// Rows that one flush compacts at most; they are in memory.
pub(crate) const COMPACTED_ROWS_MAX: u64 = 1 << 18;
/// Groups of a materialised view: all of them are in memory while its table is flushed.
pub(crate) const VIEW_GROUPS_MAX: usize = 1 << 20;
/// The divisor of the queries' memory for one side of a join: a join that cannot spill holds at
/// most this share, by estimate, where another join could write to disk.
pub(crate) const HELD_SIDE_SHARE: usize = 16;
/// The divisor of the queries' memory for what one sort reserves to merge the files it has written.
pub(crate) const SORT_MERGE_SHARE: usize = 128;
/// The queries' memory in bytes for each row of a batch: batches have the full 8,192 rows from 256
/// MiB on.
pub(crate) const BATCH_ROW_SHARE: usize = 32 << 10;
/// How long a query that is planned again waits for the memory that its first plan still holds.
pub(crate) const GIVEN_BACK_WAIT: Duration = Duration::from_millis(500);
/// Memory for the queries of a flush: sums of views, sorted values of indexes. Beyond that they
/// spill.
pub(crate) const FLUSHING_MEMORY_BYTES: usize = 1 << 30;
/// The maximum values that one scan looks up in an index.
pub(crate) const INDEX_VALUES_MAX: usize = 256;
/// The maximum rows that one scan takes from an index; if there are more, the table is scanned.
pub(crate) const INDEX_ROWS_MAX: usize = 1 << 16;
/// The parts of an index are merged if this many segments of it are at most half as large as a full
/// one.
pub(crate) const INDEX_PARTS_MAX: usize = 8;
/// An index is built anew when it has this many times the rows of its table: the excess rows are of
/// segments that are gone.
pub(crate) const INDEX_STALE_TIMES: u64 = 2;
/// Bytes of a page of an index: one page is read for a value.
pub(crate) const INDEX_PAGE_BYTES: u32 = 16 << 10;
/// The pause between two checks for the new version of a table that takes no writes.
pub(crate) const NEW_VERSION_POLL_TIME: Duration = Duration::from_millis(20);
/// After this wait the flush that closed a table is taken for dead, and the engine that wants to
/// write flushes the table itself.
pub(crate) const NEW_VERSION_WAIT: Duration = Duration::from_secs(3);
/// How long a transaction retries its commit on a table that is being closed. Participants end a
/// close whose writer died within that time.
pub(crate) const UNHEARD_CLOSING_WAIT: Duration = Duration::from_secs(20);
/// Attempts of a query whose tables are replaced while it runs.
pub(crate) const QUERY_ATTEMPTS_MAX: u32 = 9;
/// Attempts of a statement whose rows other transactions change meanwhile.
pub(crate) const CONFLICT_ATTEMPTS_MAX: u32 = 256;
/// The maximum pause before another one. It is random, so that two statements do not collide again
/// and again.
pub(crate) const CONFLICT_PAUSE_MAX: Duration = Duration::from_millis(64);
/// The maximum rows, in segments written since a transaction began, among which its rows are
/// searched.
pub(crate) const FOLLOWED_ROWS_MAX: u64 = COMPACTED_ROWS_MAX;
/// Attempts of a statement whose table is flushed meanwhile.
pub(crate) const FLUSHED_ATTEMPTS_MAX: u32 = 16;

/// Characters of a line of an explained plan: longer lines are constants and long lists.
pub(crate) const PLAN_LINE_CHARACTERS_MAX: usize = 4096;

/// Maximum pages, by segment and columns, of which it is remembered that they were read past
/// caches.
pub(crate) const REPEATS_MAX: usize = 1 << 16;

/// How long a query runs before it holds its tables: well below the time between two flushes of a
/// table.
pub(crate) const HOLD_AFTER: Duration = Duration::from_millis(100);
/// How often a transaction tries to hold the tables that it begins with.
pub(crate) const HOLD_ATTEMPTS_MAX: u32 = 8;

const _: () = assert!(CHANGES_MEMORY_BYTES >= SESSION_MEMORY_BYTES_MIN);
const _: () = assert!(SEGMENTS_IN_FLIGHT_DEFAULT <= SEGMENTS_FOR_NODES_MAX);
const _: () = assert!(SEGMENTS_FOR_NODES_MAX <= SEGMENTS_IN_FLIGHT_MAX);
const _: () = assert!(SKETCH_SET_MAX <= PROGRAM_SET_MAX);
// The default number of segments in flight gets the full memory of a lone scan.
const _: () = assert!(SEGMENTS_IN_FLIGHT_DEFAULT * MEMORY_BYTES_DEFAULT <= PARTITION_PAGE_BYTES_MAX);
// The smallest share of a segment holds any page, so that every scan can go on within its share.
const _: () = assert!(PARTITION_PAGE_BYTES_MAX / SEGMENTS_IN_FLIGHT_MAX >= PAGE_BYTES_MAX as usize);

/// Maximum bytes of a text of statements.
pub(crate) const STATEMENT_BYTES_MAX: usize = 16 << 20;
/// How deep expressions may nest, by parentheses and CASE.
pub(crate) const STATEMENT_DEPTH_MAX: usize = 200;
/// How deep expressions may nest that are parsed on the caller's stack.
pub(crate) const SHALLOW_DEPTH_MAX: usize = 12;
/// Bytes of a text that is parsed on the caller's stack: a chain in it is at most half as deep.
pub(crate) const SHALLOW_TEXT_BYTES_MAX: usize = 512;
/// How deep a statement may nest that is planned on the caller's stack.
pub(crate) const PLANNED_DEPTH_MAX: usize = 30;
/// The parser's recursion limit: one level of an expression takes several levels of the parser.
pub(crate) const PARSER_DEPTH_MAX: usize = 5 * STATEMENT_DEPTH_MAX;
/// How deep a function may nest whose name is also a column's: the parser tries both at each level.
pub(crate) const WORDS_DEPTH_MAX: usize = 12;
/// The stack size that threads need which run queries, in bytes: nested expressions are computed
/// recursively.
pub const THREAD_STACK_BYTES: usize = 16 << 20;
/// The stack size on which deep statements are parsed and planned, in bytes.
pub(crate) const STACK_BYTES: usize = 256 << 20;
/// Bytes of stack for each byte of a text: the shortest link of a chain has two bytes, and dropping
/// a link takes less than this for each of them.
pub(crate) const STACK_BYTES_PER_TEXT_BYTE: usize = 256;
/// Maximum length of a chain of operators that are not balanced, such as those of a sum, and
/// maximum levels of a statement in all.
pub(crate) const CHAIN_LENGTH_MAX: usize = 400;
/// Maximum copies of subqueries that one statement may need for its NULLs.
pub(crate) const SUBQUERY_COPIES_MAX: usize = 100;
/// Maximum operators of the outer rows, which a correlated subquery computes a second time.
pub(crate) const DOMAIN_OPERATORS_MAX: usize = 2_000;
/// Maximum uses of WITH queries; those of nested ones are multiplied.
pub(crate) const COMMON_TABLE_USES_MAX: usize = 1_000;
/// How deep subqueries may nest in expressions: the time to plan them doubles with each level.
pub(crate) const SUBQUERIES_DEPTH_MAX: usize = 12;
/// Maximum SELECTs and JOINs in one statement.
pub(crate) const QUERIES_MAX: usize = 10_000;
/// Maximum brackets, or INTERVAL, directly after each other.
pub(crate) const REPEATED_TOKENS_MAX: usize = 8;
/// Operands of AND, OR and UNION in a row from which on they become a balanced tree. The tree is
/// not deeper than this.
pub(crate) const BALANCED_CHAIN_MIN: usize = 32;
/// Maximum tables of one FROM, and queries of one WITH.
pub(crate) const RELATIONS_MAX: usize = 250;

// The balanced tree of as many operands as a text may have is not deep enough to count as a chain.
const _: () = assert!(1_usize << (BALANCED_CHAIN_MIN - 2) > STATEMENT_BYTES_MAX);
const _: () = assert!(SHALLOW_DEPTH_MAX < PLANNED_DEPTH_MAX && PLANNED_DEPTH_MAX < STATEMENT_DEPTH_MAX);
// One level of a computed expression takes less than half of these 32 KiB.
const _: () = assert!(THREAD_STACK_BYTES >= CHAIN_LENGTH_MAX * (32 << 10));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_together_never_hold_more_than_a_partition_may() {
        for in_flight in 1..=SEGMENTS_IN_FLIGHT_MAX {
            let each = segment_page_bytes(usize::MAX, in_flight);
            assert!(each * in_flight <= PARTITION_PAGE_BYTES_MAX, "{in_flight}");
            assert!(each >= PAGE_BYTES_MAX as usize && each <= MEMORY_BYTES_DEFAULT, "{in_flight}");
            assert!(segment_page_bytes(1 << 20, in_flight) * in_flight <= 1 << 20, "{in_flight}");
        }
    }
}
