//! Promise: a scan names each page that is corrupt or that is another page than the directory
//! lists, and no other page is affected.
//!
//! Method: the test changes the device file directly, without the node and bypassing the page
//! cache.

use std::{fs::OpenOptions, os::unix::fs::FileExt};

use rackscan_format::{
    ids::{ColumnId, PageNumber, SegmentId},
    message::{Answer, Refusal, RefusalCode, Request},
    page::{PageFault, PageView},
    segment::{Extent, SegmentDirectory},
};
use rackscan_storage_node::ByteSize;

use crate::support::{
    client::Client,
    node::NodeFolder,
    table::{Segment, Table},
};

/// Changes the bytes of a device file.
fn change(node_folder: &NodeFolder, extent: Extent, bytes: &[u8], offset_in_page: u64) {
    let file = OpenOptions::new().write(true).open(node_folder.device(extent.device.0.into()));
    let file = file.expect("the device is there");
    file.write_all_at(bytes, extent.offset_bytes + offset_in_page).expect("it can be written");
    file.sync_all().expect("it can be synced");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("the page cache lets go of it");
}

fn extent(directory: &SegmentDirectory, column: u16, page: u16) -> Extent {
    directory.page(ColumnId(column), PageNumber(page)).expect("there is such a page").extent
}

fn process(client: &mut Client, table: &Table, segment: u32) -> Result<Answer, Refusal> {
    let target = client.target(0, 8 << 20);
    client.ask(Request::Process {
        withheld: None,
        key_filters: Vec::new(),
        program: table.program(1000),
        table: table.id(),
        segment: SegmentId(segment),
        first_block: 0,
        target,
        report_reads: false,
    })
}

/// Fetches one page and opens it as its reader does.
fn fetch(client: &mut Client, table: &Table, segment: &Segment, index: usize) -> Result<(), PageFault> {
    let mut wanted = segment.wanted()[index];
    wanted.target_offset_bytes = 0;
    let length = segment.pages[index].len() as u64;
    let target = client.target(0, length);
    let segment_id = segment.directory.segment;
    let answer =
        client.ask(Request::Fetch { table: table.id(), segment: segment_id, pages: vec![wanted], target });
    assert!(matches!(answer, Ok(Answer::Fetched { .. })), "{answer:?}");
    let identity = segment.directory.identity(wanted.column, wanted.page);
    PageView::open(&client.copy_out(0, length), &identity).map(drop)
}

#[test]
fn a_flipped_byte_is_named_by_a_scan_and_seen_by_a_fetch_and_other_pages_are_served() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let mut client = node.shm();
    let table = Table::new(1, "t", 2, 5000);
    table.load(&mut client);
    let directory = client.catalog(1 << 20).tables[0].segments[0].directory.clone();
    let place = extent(&directory, 1, 0);
    let good = table.segments[0].page(ColumnId(1), PageNumber(0))[3000];
    change(&node_folder, place, &[good ^ 1], 3000);

    let refusal = process(&mut client, &table, 0).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Storage);
    for part in ["page 0", "column 1", "segment 0", "table 1", "checksum"] {
        assert!(refusal.text.contains(part), "{part:?} is missing in {:?}", refusal.text);
    }
    assert!(process(&mut client, &table, 1).is_ok(), "the other segment is served");

    let segment = &table.segments[0];
    for (index, (column, page)) in segment.names().into_iter().enumerate() {
        let found = fetch(&mut client, &table, segment, index);
        if (column, page) == (ColumnId(1), PageNumber(0)) {
            assert!(matches!(found, Err(PageFault::Checksum { .. })), "{found:?}");
        } else {
            assert_eq!(found, Ok(()), "column {column}, page {page}");
        }
    }
    node.stop();
}

#[test]
fn a_page_in_the_place_of_another_is_seen_by_its_identity() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let mut client = node.shm();
    let table = Table::new(1, "t", 2, 5000);
    table.load(&mut client);
    let segments = client.catalog(1 << 20).tables[0].segments.clone();
    let (first, second) = (extent(&segments[0].directory, 0, 0), extent(&segments[1].directory, 0, 0));
    assert_eq!(first.length_bytes, second.length_bytes, "the two pages can change places");
    change(&node_folder, first, table.segments[1].page(ColumnId(0), PageNumber(0)), 0);
    change(&node_folder, second, table.segments[0].page(ColumnId(0), PageNumber(0)), 0);
    for segment in 0..2 {
        let refusal = process(&mut client, &table, segment).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::Storage);
        assert!(refusal.text.contains("wrong place"), "{}", refusal.text);
    }
    let found = fetch(&mut client, &table, &table.segments[0], 0);
    assert!(matches!(found, Err(PageFault::Misdirected { .. })), "{found:?}");
    node.stop();
}

#[test]
fn a_changed_page_that_fetches_left_in_the_cache_is_noticed_by_every_scan() {
    let node_folder = NodeFolder::new();
    let mut config = node_folder.config();
    config.cache = Some(ByteSize(8 << 20));
    config.memory_budget = ByteSize(config.memory_budget.0 + (8 << 20));
    let node = node_folder.start_with(config).expect("the node starts");
    let mut client = node.shm();
    let table = Table::new(1, "t", 1, 5000);
    table.load(&mut client);
    let directory = client.catalog(1 << 20).tables[0].segments[0].directory.clone();
    let segment = &table.segments[0];
    let index = segment.names().iter().position(|name| *name == (ColumnId(1), PageNumber(0)));
    let good = segment.page(ColumnId(1), PageNumber(0))[3000];
    change(&node_folder, extent(&directory, 1, 0), &[good ^ 1], 3000);
    // A fetch asks for bytes, whatever they are.
    let found = fetch(&mut client, &table, segment, index.expect("it has that page"));
    assert!(matches!(found, Err(PageFault::Checksum { .. })), "{found:?}");
    for _ in 0..2 {
        let refusal = process(&mut client, &table, 0).unwrap_err();
        assert!(refusal.text.contains("checksum"), "{}", refusal.text);
    }
    assert!(client.status().cache.hits >= 2, "the scans found it in the cache: {:?}", client.status().cache);
    node.stop();
}
