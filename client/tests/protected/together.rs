//! Tests that many pages of lost nodes are reconstructed correctly with few requests.
//!
//! Method: tables of random numbers in pages of 128 KiB, so that a segment needs several rounds of
//! reads from surviving nodes.

use std::time::{Duration, Instant};

use rackscan_client::{Cluster, ClusterTable, LoadSession};
use rackscan_format::{
    chunk::{ChunkInput, ChunkWriter, EncodedPage, Values},
    ids::{ColumnId, DeviceId, SegmentId},
    schema::{ColumnDefinition, ColumnType, Protection, TableDefinition},
    segment::{ChunkDirectory, Extent, PageEntry, SegmentDirectory},
};

use crate::support::{PATIENCE, Pages, Rack, definition, id, table, wanted};

const COLUMNS: u16 = 8;
const ROWS: u32 = 131_072;
const PAGE_BYTES: u64 = 128 << 10;

/// What it took to fetch pages.
#[derive(Debug, Default, Clone, Copy)]
struct Took {
    pages: u64,
    bytes: u64,
    survivor_bytes: u64,
}

fn wide(rack: &Rack) -> TableDefinition {
    let column = |number: u16| ColumnDefinition {
        name: format!("c{number}"),
        column_type: ColumnType::Int64,
        nullable: false,
    };
    TableDefinition {
        columns: (0..COLUMNS).map(column).collect(),
        page_size: u32::try_from(PAGE_BYTES).expect("small"),
        segment_rows: ROWS,
        ..definition(7, &rack.ids(), Some(Protection::TwoD))
    }
}

/// A segment of numbers that look like any.
fn numbers(definition: &TableDefinition, number: u32) -> (SegmentDirectory, Pages) {
    let (mut writer, mut chunks, mut pages) = (ChunkWriter::new(), Vec::new(), Vec::new());
    for column in 0..COLUMNS {
        let seed = u64::from(number) << 32 | u64::from(column) << 24;
        let value = |row: u64| (seed | row).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31) >> 24;
        let values: Vec<i64> = (0..u64::from(ROWS)).map(|row| value(row).cast_signed()).collect();
        let mut entries = Vec::new();
        let input = ChunkInput {
            table: definition.id,
            segment: SegmentId(number),
            column: ColumnId(column),
            column_type: ColumnType::Int64,
            values: Values::Integers(&values),
            validity: None,
            page_bytes: definition.page_size,
        };
        let mut keep = |page: EncodedPage| {
            let length_bytes = u32::try_from(page.bytes.len()).expect("small");
            let extent = Extent { device: DeviceId(0), offset_bytes: 0, length_bytes };
            entries.push(PageEntry { extent, first_row: page.first_row, rows: page.rows, zone: page.zone });
            pages.push(page.bytes);
        };
        writer.encode(&input, &mut keep).expect("numbers can be encoded");
        chunks.push(ChunkDirectory { pages: entries });
    }
    (SegmentDirectory { table: definition.id, segment: SegmentId(number), rows: ROWS, chunks }, pages)
}

/// A rack with a table of large segments, one at each node.
async fn large(nodes: usize, memory_bytes: usize) -> (Rack, Cluster, ClusterTable) {
    let rack = Rack::with_devices(nodes, 64 << 20);
    let cluster = rack.connect_with(2, memory_bytes).await.expect("all nodes are there");
    let load = LoadSession::begin(&cluster, wide(&rack)).await.expect("a new table");
    for number in 0..u32::try_from(nodes).expect("a few") {
        let (directory, pages) = numbers(load.definition(), number);
        load.append(id(number as usize), &directory, &pages).await.expect("the node takes it");
    }
    load.publish().await.expect("all nodes are there");
    let table = table(&cluster, 7).await;
    (rack, cluster, table)
}

/// That all pages of a node's segment come at once and byte for byte; what it took.
async fn is_whole(cluster: &Cluster, table: &ClusterTable, node: usize) -> Took {
    let placed = table.segments.iter().find(|placed| placed.node == id(node)).expect("each node has one");
    let (written, number) = (placed.directory.table, placed.directory.segment);
    let (_, pages) = numbers(&table.definition, number.0);
    let fetched = cluster.fetch(placed.node, written, number, &wanted(placed)).await.expect("its pages");
    assert_eq!(fetched.pages.len(), pages.len());
    for (found, expected) in fetched.pages.iter().zip(&pages) {
        assert!(found.bytes() == expected && found.is_right(), "a page of segment {number}");
    }
    assert!(fetched.reconstructed_pages == 0 || fetched.reconstructed_pages as usize == pages.len());
    let bytes = pages.iter().map(|page| page.len() as u64).sum();
    let (pages, survivor_bytes) = (u64::from(fetched.reconstructed_pages), fetched.survivor_bytes);
    Took { pages, bytes, survivor_bytes }
}

/// Raw requests that nodes have had.
async fn raw_requests(cluster: &Cluster, nodes: &[usize]) -> u64 {
    let mut requests = 0;
    for node in nodes {
        requests += cluster.status(id(*node)).await.expect("it is there").counters.raw_requests;
    }
    requests
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_that_are_wanted_together_are_read_with_few_requests_and_each_survivors_byte_once() {
    let (mut rack, cluster, table) = large(5, 64 << 20).await;
    let placed = table.segments.iter().find(|placed| placed.node == id(0)).expect("each node has one");
    let (written, number) = (placed.directory.table, placed.directory.segment);
    for lost in [0, 1] {
        rack.stop(lost);
        let there: Vec<usize> = (lost + 1..5).collect();
        let before = raw_requests(&cluster, &there).await;
        let together = is_whole(&cluster, &table, 0).await;
        let requests = raw_requests(&cluster, &there).await - before;
        // One by one each asks for a page's length or less.
        let of_each = together.survivor_bytes / requests.max(1);
        assert!(of_each > 2 * PAGE_BYTES, "{requests} requests, {together:?}");
        let mut alone = 0;
        for page in wanted(placed) {
            let fetched = cluster.fetch(id(0), written, number, &[page]).await.expect("its page");
            alone += fetched.survivor_bytes;
        }
        // With one node lost each row gives its cell, and rows share nothing; what two lost ones
        // had is found along chains of cells.
        let is_less =
            if lost == 0 { together.survivor_bytes == alone } else { together.survivor_bytes < alone };
        assert!(is_less, "{lost} lost: {alone} bytes one by one, {together:?}");
        let price = cluster.rebuilt_from(written, number).expect("it is protected");
        let paid = together.survivor_bytes as f64 / together.bytes as f64;
        assert!((paid / price - 1.0).abs() < 0.2, "{paid} bytes for each, expected {price}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_survivor_that_is_lost_unnoticed_is_done_without_and_pages_still_come_together() {
    let (mut rack, cluster, table) = large(5, 64 << 20).await;
    rack.stop(0);
    is_whole(&cluster, &table, 0).await;
    // Nobody has asked it since: the rounds that need it find out.
    rack.stop(3);
    let before = raw_requests(&cluster, &[1, 2, 4]).await;
    assert_eq!(cluster.unavailable(), [id(0)]);
    let unnoticed = is_whole(&cluster, &table, 0).await;
    let requests = raw_requests(&cluster, &[1, 2, 4]).await - before;
    assert_eq!(cluster.unavailable(), [id(0), id(3)]);
    let of_each = unnoticed.survivor_bytes / requests.max(1);
    assert!(of_each > 2 * PAGE_BYTES, "{requests} requests, {unnoticed:?}");
    let known = is_whole(&cluster, &table, 0).await;
    assert!(unnoticed.survivor_bytes <= known.survivor_bytes, "{unnoticed:?}, then {known:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn survivors_that_die_at_any_moment_of_a_fetch_leave_its_pages_right() {
    let (mut rack, cluster, table) = large(4, 64 << 20).await;
    rack.stop(0);
    is_whole(&cluster, &table, 0).await;
    for (moment, dying) in (0..12).zip([1, 2, 3].into_iter().cycle()) {
        let reader = {
            let (cluster, table) = (cluster.clone(), table.clone());
            tokio::spawn(async move { is_whole(&cluster, &table, 0).await })
        };
        tokio::time::sleep(Duration::from_millis(moment)).await;
        tokio::task::block_in_place(|| rack.stop(dying));
        let read = tokio::time::timeout(PATIENCE, reader).await.expect("nobody waits for ever");
        assert!(read.expect("it reads").pages > 0);
        tokio::task::block_in_place(|| rack.start(dying));
        // A node that was not asked meanwhile is not known to have been unavailable.
        let _ = is_whole(&cluster, &table, dying).await;
        only_is_unavailable(&cluster, 0).await;
    }
}

/// Waits until no other node is unavailable.
async fn only_is_unavailable(cluster: &Cluster, node: usize) {
    let deadline = Instant::now() + PATIENCE;
    while cluster.unavailable() != [id(node)] {
        assert!(Instant::now() < deadline, "{:?} are unavailable for ever", cluster.unavailable());
        tokio::time::sleep(rackscan_client::limits::AWAY_LOOK_PERIOD / 10).await;
        cluster.catalog().await.expect("enough nodes are there");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_readers_of_large_lost_segments_with_the_least_memory_all_get_theirs() {
    let (mut rack, cluster, table) = large(4, rackscan_client::limits::MEMORY_BYTES_MIN).await;
    rack.stop(0);
    rack.stop(2);
    let readers = (0..24).map(|reader| {
        let (cluster, table) = (cluster.clone(), table.clone());
        // Whoever reads a node that is there needs memory, too.
        tokio::spawn(async move { is_whole(&cluster, &table, reader % 4).await })
    });
    for reader in readers.collect::<Vec<_>>() {
        let read = tokio::time::timeout(PATIENCE, reader).await.expect("nobody waits for ever");
        read.expect("it reads");
    }
}
