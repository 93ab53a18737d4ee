//! Promise: a scan that needs more processor time or memory than the node gives to one scan is
//! bounced with the reason, and the node continues to serve pages and other scans.

use rackscan_format::{
    ids::SegmentId,
    message::{Answer, BounceReason, Refusal, RefusalCode, Request},
    program::{Node, Output, ScanProgram},
};
use rackscan_storage_node::ByteSize;

use crate::support::{
    client::Client,
    node::{NodeFolder, Running},
    table::Table,
};

fn process(client: &mut Client, program: &ScanProgram) -> Result<Answer, Refusal> {
    let target = client.target(0, 16 << 20);
    let (program, segment) = (program.clone(), SegmentId(0));
    client.ask(Request::Process {
        withheld: None,
        key_filters: Vec::new(),
        table: program.table,
        program,
        segment,
        first_block: 0,
        target,
        report_reads: false,
    })
}

/// The program is bounced on every wire for that reason, and the pages can be fetched.
fn is_bounced(node: &Running, table: &Table, program: &ScanProgram, reason: BounceReason) {
    for (wire, mut client) in node.both() {
        let before = client.status().counters.bounced_requests;
        let refusal = process(&mut client, program).expect_err("more than the quota");
        assert_eq!(refusal.code, RefusalCode::Bounced(reason), "{wire}: {refusal:?}");
        assert_eq!(client.status().counters.bounced_requests - before, 1, "{wire}");
        let segment = &table.segments[0];
        let (target, pages) = (client.target(0, segment.stored_bytes()), segment.wanted());
        let fetched = client.ask(Request::Fetch { table: table.id(), segment: SegmentId(0), pages, target });
        assert!(matches!(fetched, Ok(Answer::Fetched { .. })), "{wire}: {fetched:?}");
    }
}

/// All rows, after a search in each text for every one of 20 pieces that none has.
fn searching(table: &Table) -> ScanProgram {
    let mut program = table.program(1000);
    for piece in 0..20 {
        let pattern = format!("%{piece}z%");
        program.nodes.push(Node::Like { item: 2, pattern, negated: true, case_insensitive: false });
        let node = program.nodes.len() - 1;
        program.filter.push(u16::try_from(node).expect("a few nodes"));
    }
    program
}

#[test]
fn a_scan_that_takes_too_long_is_bounced_and_a_short_one_is_served() {
    let node_folder = NodeFolder::new();
    let table = Table::new(1, "t", 1, 30_000);
    let mut config = node_folder.config();
    config.scan_cpu_ms = 2;
    let node = node_folder.start_with(config.clone()).expect("the node starts");
    table.load(&mut node.shm());
    is_bounced(&node, &table, &searching(&table), BounceReason::CpuQuota);
    for (wire, mut client) in node.both() {
        let nothing = process(&mut client, &table.program(-1));
        assert!(matches!(nothing, Ok(Answer::Processed { rows: 0, .. })), "{wire}: {nothing:?}");
    }
    node.stop();

    config.scan_cpu_ms = 60_000;
    let node = node_folder.start_with(config).expect("the node starts");
    let all = process(&mut node.shm(), &searching(&table));
    assert!(matches!(all, Ok(Answer::Processed { rows: 30_000, .. })), "{all:?}");
    node.stop();
}

#[test]
fn a_scan_that_holds_too_much_is_bounced_and_a_narrow_one_is_served() {
    let node_folder = NodeFolder::new();
    // Pages of 256 KiB: one of each of three columns are more than the quota, one of one column is
    // not.
    let table = Table::with_pages(1, "t", 1, 100_000, 256 << 10);
    let mut config = node_folder.config();
    config.scan_memory = ByteSize(256 << 10);
    let node = node_folder.start_with(config.clone()).expect("the node starts");
    table.load(&mut node.shm());
    is_bounced(&node, &table, &table.program(1000), BounceReason::MemoryQuota);
    let mut narrow = table.program(1000);
    narrow.inputs.truncate(1);
    narrow.nodes.truncate(1);
    (narrow.filter, narrow.output) = (vec![], Output::Rows(vec![0]));
    let served = process(&mut node.shm(), &narrow);
    assert!(matches!(served, Ok(Answer::Processed { .. })), "{served:?}");
    node.stop();

    config.scan_memory = ByteSize(64 << 20);
    let node = node_folder.start_with(config).expect("the node starts");
    let served = process(&mut node.shm(), &table.program(1000));
    assert!(matches!(served, Ok(Answer::Processed { .. })), "{served:?}");
    node.stop();
}
