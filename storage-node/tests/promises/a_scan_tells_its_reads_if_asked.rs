//! Promise: a node reports the pages that a scan has read, exactly these, to a requester that asks
//! for them, and to no other.

use std::collections::BTreeMap;

use rackscan_format::{
    ids::SegmentId,
    message::{Answer, Cost, PageRead, Request},
};

use crate::support::{client::Client, node::NodeFolder, table::Table};

/// What one answer after the other says it read, and what it says it took.
fn reads(client: &mut Client, table: &Table, limit: i64, report_reads: bool) -> Vec<(Vec<PageRead>, Cost)> {
    let (mut answers, mut first_block) = (Vec::new(), 0);
    loop {
        let (program, target) = (table.program(limit), client.target(0, 256 << 10));
        let answer = client.ask(Request::Process {
            withheld: None,
            key_filters: Vec::new(),
            table: program.table,
            program,
            segment: SegmentId(0),
            first_block,
            target,
            report_reads,
        });
        let Ok(Answer::Processed { next_block, cost, reads, .. }) = answer else { panic!("{answer:?}") };
        answers.push((reads, cost));
        match next_block {
            Some(next) => first_block = next,
            None => return answers,
        }
    }
}

#[test]
fn the_reads_that_are_told_are_the_bytes_that_were_read() {
    let node_folder = NodeFolder::new();
    let node = node_folder.start();
    let table = Table::new(1, "t", 1, 40_000);
    table.load(&mut node.shm());
    for (wire, mut client) in node.both() {
        let catalog = client.catalog(64 << 10);
        let directory = &catalog.tables[0].segments[0].directory;
        let bytes: BTreeMap<_, _> = table.segments[0]
            .names()
            .into_iter()
            .map(|(column, page)| {
                let entry = directory.page(column, page).expect("a page");
                ((column, page), u64::from(entry.extent.length_bytes))
            })
            .collect();
        // All rows, some rows of every page, and no row: then only the filter's column is read.
        for (limit, all) in [(1000, true), (1, false), (-1, false)] {
            let answers = reads(&mut client, &table, limit, true);
            assert_eq!(answers.len() > 1, all, "{wire} {limit}: many rows take several answers");
            for (reads, cost) in &answers {
                let told: u64 = reads.iter().map(|read| bytes[&(read.column, read.page)]).sum();
                assert_eq!(
                    (reads.len() as u64, told),
                    (cost.pages_read.into(), cost.disk_bytes),
                    "{wire} {limit}"
                );
                assert!(reads.windows(2).all(|pair| pair[0].after_us <= pair[1].after_us), "{wire} {limit}");
                assert!(
                    reads.iter().all(|read| u64::from(read.after_us) <= cost.elapsed_us),
                    "{wire} {limit}"
                );
            }
            let told: usize = answers.iter().map(|(reads, _)| reads.len()).sum();
            assert_eq!(told >= bytes.len(), all, "{wire} {limit}: {told} of {}", bytes.len());
        }
        let untold = reads(&mut client, &table, 1000, false);
        assert!(untold.iter().all(|(reads, cost)| reads.is_empty() && cost.pages_read > 0), "{wire}");
    }
    node.stop();
}
