//! Promise: a fetch writes exactly the stored bytes into the requester's memory, on every wire, and
//! leaves nothing in the kernel's page cache.

use rackscan_device::resident_bytes;
use rackscan_format::message::{Answer, Request};

use crate::support::{
    node::{BRIDGES, NodeFolder},
    table::Table,
};

#[test]
fn every_page_arrives_as_it_was_appended_on_every_wire() {
    for bridge in BRIDGES {
        let node_folder = NodeFolder::new();
        let node = node_folder.start_over(bridge);
        let table = Table::new(1, "t", 2, 5000);
        table.load(&mut node.shm());
        for (wire, mut client) in node.both() {
            for segment in &table.segments {
                let target = client.target(0, segment.stored_bytes());
                let answer = client.ask(Request::Fetch {
                    table: table.id(),
                    segment: segment.directory.segment,
                    pages: segment.wanted(),
                    target,
                });
                let Ok(Answer::Fetched { cost, .. }) = answer else { panic!("{wire}: {answer:?}") };
                assert_eq!(cost.pages_read as usize, segment.pages.len(), "{wire}");
                assert_eq!(cost.disk_bytes, segment.stored_bytes(), "{wire}");
                let found = client.copy_out(0, segment.stored_bytes());
                assert!(found == segment.pages.concat(), "{wire}: the pages differ");
            }
        }
        node.stop();
    }
}

#[test]
fn tables_loaded_over_tcp_are_the_same_and_pages_go_where_they_are_told() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let table = Table::new(1, "t", 1, 3000);
    table.load(&mut node.tcp());
    let segment = &table.segments[0];
    for (wire, mut client) in node.both() {
        // Backwards and with gaps, so that nothing can be read at once.
        let mut pages = segment.wanted();
        pages.reverse();
        for (place, page) in (0..).zip(&mut pages) {
            page.target_offset_bytes = place * 16_384;
        }
        let target = client.target(8192, 16_384 * pages.len() as u64);
        let (table, segment_id) = (table.id(), segment.directory.segment);
        let answer = client.ask(Request::Fetch { table, segment: segment_id, pages: pages.clone(), target });
        assert!(matches!(answer, Ok(Answer::Fetched { .. })), "{wire}: {answer:?}");
        for page in pages {
            let expected = segment.page(page.column, page.page);
            let found = client.copy_out(8192 + page.target_offset_bytes, expected.len() as u64);
            assert!(found == expected, "{wire}: {page:?}");
        }
    }
    node.stop();
}

#[test]
fn nothing_of_the_devices_is_in_the_page_cache_after_load_fetch_and_process() {
    for bridge in BRIDGES {
        let node_folder = NodeFolder::new();
        let node = node_folder.start_over(bridge);
        let table = Table::new(1, "t", 1, 5000);
        let mut client = node.shm();
        table.load(&mut client);
        let segment = &table.segments[0];
        let target = client.target(0, segment.stored_bytes());
        let (id, segment_id) = (table.id(), segment.directory.segment);
        let fetched =
            client.ask(Request::Fetch { table: id, segment: segment_id, pages: segment.wanted(), target });
        assert!(fetched.is_ok());
        let program = table.program(500);
        let target = client.target(0, 4 << 20);
        let processed = client.ask(Request::Process {
            withheld: None,
            key_filters: Vec::new(),
            table: program.table,
            program,
            segment: segment_id,
            first_block: 0,
            target,
            report_reads: false,
        });
        assert!(matches!(processed, Ok(Answer::Processed { rows, .. }) if rows > 0), "{processed:?}");
        for device in 0..2 {
            assert_eq!(resident_bytes(node_folder.device(device)).unwrap(), 0, "device {device}");
        }
        node.stop();
    }
}

#[test]
fn echo_moves_as_many_bytes_as_asked() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    for (wire, mut client) in node.both() {
        let ones = vec![1; 3 << 20];
        client.region.copy_in(0, &ones).unwrap();
        let target = client.target(0, 2 << 20);
        client.done(Request::Echo { bytes: (1 << 20) + 17, target });
        let found = client.copy_out(0, 2 << 20);
        let echoed = found.iter().filter(|byte| **byte == 0).count();
        assert_eq!(echoed, (1 << 20) + 17, "{wire}");
    }
    node.stop();
}
