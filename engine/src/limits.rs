//! How much may a scan have on its way, and hold?
//!
//! Invariants
//! - Stored pages that a partition of a scan holds are bounded in bytes, however many of its
//!   segments are on their way.
//! - Relations between bounds are asserted at compile time.

use rackscan_client::limits::SESSION_MEMORY_BYTES_MIN;
use rackscan_format::limits::{PAGE_BYTES_MAX, PROGRAM_SET_MAX};
use rackscan_ramp::limits::{PART_BYTES_MAX, WRITE_KEYS_MAX};
use rackscan_scan::MEMORY_BYTES_DEFAULT;
use std::time::Duration;

/// Segments of a partition that are on their way at a time, unless the caller or the number of
/// nodes asks for more.
pub(crate) const SEGMENTS_IN_FLIGHT_DEFAULT: usize = 4;
/// Segments of a node that are on their way at a time, if there are enough partitions for it: while
/// its workers scan two and one is read, another travels.
pub(crate) const SEGMENTS_PER_NODE: usize = 4;
/// A partition has no more on their way for that, whatever the number of nodes.
pub(crate) const SEGMENTS_FOR_NODES_MAX: usize = 16;
/// A partition has no more on their way, whatever the caller asks for.
pub(crate) const SEGMENTS_IN_FLIGHT_MAX: usize = 64;
/// Stored pages that a partition of a scan holds, shared evenly by its segments on their way;
/// tables of groups may take a quarter of it again. Rows that nodes send are bounded by the
/// client's memory for answers.
pub(crate) const PARTITION_PAGE_BYTES_MAX: usize = 256 << 20;

/// Bytes of stored pages that one of `in_flight` segments may hold, of what their partition may.
pub(crate) fn segment_page_bytes(partition_bytes: usize, in_flight: usize) -> usize {
    let partition_bytes = partition_bytes.min(PARTITION_PAGE_BYTES_MAX);
    (partition_bytes / in_flight.clamp(1, SEGMENTS_IN_FLIGHT_MAX)).min(MEMORY_BYTES_DEFAULT)
}

/// Bytes of texts that one call of a function makes of a batch: they are outside of the memory that
/// queries share.
pub(crate) const BATCH_TEXT_BYTES_MAX: u64 = 256 << 20;
// Arrow counts the bytes of a batch's texts in 31 bits.
const _: () = assert!(BATCH_TEXT_BYTES_MAX < 1 << 31, "texts fit an array");

/// Bytes of texts in a batch of rows that an operator copies before it reserves memory for them.
pub(crate) const BATCH_COPY_BYTES_MAX: usize = 64 << 20;

/// Bytes of the texts that an aggregate makes of the rows of a group or window: as in PostgreSQL.
pub(crate) const COLLECTED_BYTES_MAX: usize = (1 << 30) - 1;

/// Rows of a LIMIT with its OFFSET that a sort keeps without being able to write them to disk.
pub(crate) const TOP_ROWS_MAX: usize = 1 << 15;

/// Keys of one column that a join's sketch collects, 8 bytes each: beyond them a Bloom filter of
/// the largest size lets too much pass.
pub(crate) const SKETCH_KEYS_MAX: usize = 1 << 20;
/// Keys that are sent one by one, so that pages without any of them are not read.
pub(crate) const SKETCH_SET_MAX: usize = 64;
/// Rows of the smallest table whose scan is narrowed by a join's keys, unless the caller says
/// otherwise.
pub(crate) const NARROWED_ROWS_MIN_DEFAULT: u64 = 16_384;
/// Rows of the largest table whose rows a join collects so soon that scans wait for their keys.
pub(crate) const QUICK_BUILD_ROWS_MAX: u64 = 16_384;
/// How long they wait at most, all segments of a scan together.
pub(crate) const KEYS_AWAITED_MAX: Duration = Duration::from_millis(20);
/// Rows that were looked up in key filters before those are judged.
pub(crate) const KEYS_JUDGED: u64 = 32_768;
/// Key filters that keep more than this share (numerator, denominator) are given up.
pub(crate) const KEYS_KEPT_MAX: (u64, u64) = (7, 8);

/// Rows that a transaction may change: all of them may have one home.
pub(crate) const TRANSACTION_ROWS_MAX: usize = WRITE_KEYS_MAX;
/// Items that it may write with them: rows, and what is derived from rows.
pub(crate) const TRANSACTION_ITEMS_MAX: usize = WRITE_KEYS_MAX;
/// Bytes of their values, likewise. Keys of rows are short.
pub(crate) const TRANSACTION_BYTES_MAX: usize = PART_BYTES_MAX - TRANSACTION_ROWS_MAX * ROW_KEY_BYTES_MAX;
/// Bytes of a row's key: what it begins with, table, kind, and the timestamp and number of an
/// inserted one.
const ROW_KEY_BYTES_MAX: usize = 2 + 4 + 1 + 12 + 4;
/// Memory for each node over which changed rows are followed or written.
pub(crate) const CHANGES_MEMORY_BYTES: usize = 16 << 20;
/// How long a transaction may take, and learning what others have written.
pub(crate) const CHANGES_TIMEOUT: Duration = Duration::from_secs(10);

/// How often the catalog is read again because what homes say does not fit it.
pub(crate) const RENEWALS_MAX: usize = 5;
/// Between two looks at whether transactions of a closed table have ended.
pub(crate) const ENDINGS_POLL_TIME: Duration = Duration::from_millis(5);
/// How long they may take to end. Homes end by themselves what clients have left, and ask each
/// other for as long.
pub(crate) const ENDINGS_WAIT_MAX: Duration = Duration::from_secs(30);
/// Changed rows of a table from which on they are sealed in the background, unless the caller says
/// otherwise.
pub(crate) const SEAL_ROWS_DEFAULT: u64 = 1 << 17;
/// How long a table is left alone that could not be sealed.
pub(crate) const SEAL_RETRY_TIME: Duration = Duration::from_secs(30);
/// Segments of a sealing that are on their way to their nodes at a time.
pub(crate) const SEALED_IN_FLIGHT: usize = 4;
/// Segments of a table that are kept for its new version at a time: a node is told of each.
pub(crate) const KEPT_IN_FLIGHT: usize = 16;
/// Segments of a node, each of at most half as many rows as a full one, from which on they are put
/// together when their table is sealed.
pub(crate) const COMPACTED_SEGMENTS_MIN: usize = 8;
/// A segment goes along with smaller ones if it has at most so many times the rows of all of them.
pub(crate) const COMPACTED_STEP: u64 = 2;
/// Rows that one sealing puts together at most, in memory.
pub(crate) const COMPACTED_ROWS_MAX: u64 = 1 << 18;
/// Groups of a materialised view: all of them are in memory while its table is sealed.
pub(crate) const VIEW_GROUPS_MAX: usize = 1 << 20;
/// The share of the queries' memory that one side of a join takes at most, by estimate, where
/// others write to disk.
pub(crate) const HELD_SIDE_SHARE: usize = 16;
/// The share of the queries' memory that one sort keeps for merging what it has written to disk.
pub(crate) const SORT_MERGE_SHARE: usize = 128;
/// The queries' memory for each row of a batch: 8,192 rows from 256 MiB on.
pub(crate) const BATCH_ROW_SHARE: usize = 32 << 10;
/// How long a query that is planned again waits for what its first plan still holds.
pub(crate) const GIVEN_BACK_WAIT: Duration = Duration::from_millis(500);
/// Memory for queries of sealers: what views add up to, values of indexes in order. Beyond that
/// they go to a disk.
pub(crate) const SEALING_MEMORY_BYTES: usize = 1 << 30;
/// Values that an index is asked for by one scan.
pub(crate) const INDEX_VALUES_MAX: usize = 256;
/// Rows that are taken from an index for one scan; of more, the table is scanned.
pub(crate) const INDEX_ROWS_MAX: usize = 1 << 16;
/// Segments of an index, each of at most half as many rows as a full one, from which on they are
/// put together.
pub(crate) const INDEX_PARTS_MAX: usize = 8;
/// An index is made anew when it has so many times the rows of its table: the others are of
/// segments that are gone.
pub(crate) const INDEX_STALE_TIMES: u64 = 2;
/// Bytes of a page of an index: one is read for a value.
pub(crate) const INDEX_PAGE_BYTES: u32 = 16 << 10;
/// Between two looks for the new version of a table that takes no writes.
pub(crate) const NEW_VERSION_POLL_TIME: Duration = Duration::from_millis(20);
/// After so long nobody seems to be sealing it any more, and who wants to write does.
pub(crate) const NEW_VERSION_WAIT: Duration = Duration::from_secs(3);
/// How long a transaction tries to commit over a table that is being closed, before it hears of
/// that: a closing whose writer died is ended by the participants in that time.
pub(crate) const UNHEARD_CLOSING_WAIT: Duration = Duration::from_secs(20);
/// How often a query is run again whose tables are replaced while it runs.
pub(crate) const QUERY_ATTEMPTS_MAX: usize = 8;
/// How often a statement is begun again because another transaction has changed its rows.
pub(crate) const CONFLICT_ATTEMPTS_MAX: u32 = 256;
/// The longest pause before that. It is drawn, so that two do not meet again and again.
pub(crate) const CONFLICT_PAUSE_MAX: Duration = Duration::from_millis(64);
/// Rows of segments that were written since a transaction began, among which its rows are looked
/// for.
pub(crate) const FOLLOWED_ROWS_MAX: u64 = COMPACTED_ROWS_MAX;
/// How often a statement is begun again because its table was sealed.
pub(crate) const SEALED_ATTEMPTS_MAX: usize = 16;

/// Characters of a line of a plan that is explained: more are constants and long lists.
pub(crate) const PLAN_LINE_CHARACTERS_MAX: usize = 4096;

/// Pages read past caches that are remembered, by segment and columns.
pub(crate) const REPEATS_MAX: usize = 1 << 16;

/// How long a query runs before it holds its tables: well below the time in which two flushes of a
/// table follow each other.
pub(crate) const HOLD_AFTER: Duration = Duration::from_millis(100);
/// How often a transaction tries to hold the tables that it begins with.
pub(crate) const HOLD_ATTEMPTS_MAX: u32 = 8;

const _: () = assert!(CHANGES_MEMORY_BYTES >= SESSION_MEMORY_BYTES_MIN);
const _: () = assert!(SEGMENTS_IN_FLIGHT_DEFAULT <= SEGMENTS_FOR_NODES_MAX);
const _: () = assert!(SEGMENTS_FOR_NODES_MAX <= SEGMENTS_IN_FLIGHT_MAX);
const _: () = assert!(SKETCH_SET_MAX <= PROGRAM_SET_MAX);
// The usual number of segments may take what a scan takes that is alone.
const _: () = assert!(SEGMENTS_IN_FLIGHT_DEFAULT * MEMORY_BYTES_DEFAULT <= PARTITION_PAGE_BYTES_MAX);
// The share of a segment holds any page: what a scan must hold at least is not more than its share
// for want of one.
const _: () = assert!(PARTITION_PAGE_BYTES_MAX / SEGMENTS_IN_FLIGHT_MAX >= PAGE_BYTES_MAX as usize);

/// Bytes of a text of statements.
pub(crate) const STATEMENT_BYTES_MAX: usize = 16 << 20;
/// How deep expressions may be within each other, by parentheses and CASE.
pub(crate) const STATEMENT_DEPTH_MAX: usize = 200;
/// How deep expressions may be that are parsed on the stack of the caller.
pub(crate) const SHALLOW_DEPTH_MAX: usize = 12;
/// Bytes of a text that is parsed on the stack of the caller: a chain in it is at most half as
/// deep.
pub(crate) const SHALLOW_TEXT_BYTES_MAX: usize = 512;
/// How deep a statement may be that is planned on the stack of the caller.
pub(crate) const PLANNED_DEPTH_MAX: usize = 30;
/// How deep the parser may be: several of its levels are one of an expression.
pub(crate) const PARSER_DEPTH_MAX: usize = 5 * STATEMENT_DEPTH_MAX;
/// How deep a function may be whose name is also a column's: the parser tries both at each level.
pub(crate) const WORDS_DEPTH_MAX: usize = 12;
/// Bytes of the stack that threads need which run queries: expressions are computed within each
/// other.
pub const THREAD_STACK_BYTES: usize = 16 << 20;
/// Bytes of the stack on which deep statements are parsed and planned.
pub(crate) const STACK_BYTES: usize = 256 << 20;
/// Bytes of stack for each byte of a text: the shortest link of a chain has two, and dropping one
/// takes less than this for each.
pub(crate) const STACK_BYTES_PER_TEXT_BYTE: usize = 256;
/// Operators in a row that are not balanced, such as those of a sum, and levels of a statement in
/// all.
pub(crate) const CHAIN_LENGTH_MAX: usize = 400;
/// Copies of subqueries that one statement may need for NULL.
pub(crate) const SUBQUERY_COPIES_MAX: usize = 100;
/// Operators of the rows outside, which a correlated subquery computes a second time.
pub(crate) const DOMAIN_OPERATORS_MAX: usize = 2_000;
/// Uses of queries of WITH, those within each other multiplied.
pub(crate) const COMMON_TABLE_USES_MAX: usize = 1_000;
/// Subqueries in expressions within each other: the time to plan them doubles with each.
pub(crate) const SUBQUERIES_DEPTH_MAX: usize = 12;
/// SELECT and JOIN in one statement.
pub(crate) const QUERIES_MAX: usize = 10_000;
/// Brackets, and INTERVAL, right after each other.
pub(crate) const REPEATED_TOKENS_MAX: usize = 8;
/// Operands of AND, OR and UNION in a row from which on they become a balanced tree. It is no
/// longer than such a tree is deep.
pub(crate) const BALANCED_CHAIN_MIN: usize = 32;
/// Tables of one FROM, and queries of one WITH.
pub(crate) const RELATIONS_MAX: usize = 250;

// A tree of as many operands as a text may have is no chain.
const _: () = assert!(1_usize << (BALANCED_CHAIN_MIN - 2) > STATEMENT_BYTES_MAX);
const _: () = assert!(SHALLOW_DEPTH_MAX < PLANNED_DEPTH_MAX && PLANNED_DEPTH_MAX < STATEMENT_DEPTH_MAX);
// A level of an expression that is computed takes less than half of that.
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
