//! Tests that recorded files of blktrace, blkparse and fio are read completely: the counts are
//! those that these programs report. How they were recorded: `tests/recorded/README.md`.

use std::path::Path;

use rackscan_trace::{
    Format,
    Operation::{self, Discard, Flush, Read, Write},
    ReadOptions, Record, TraceReader,
};

fn recorded(name: &str, format: Format) -> Vec<Record> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded").join(name);
    let mut reader = TraceReader::open(&path, &ReadOptions::default()).expect("a recorded trace");
    let records: Vec<Record> = reader.by_ref().map(|record| record.expect("a record")).collect();
    assert_eq!((reader.format(), reader.defects().count()), (format, 0), "{}", reader.defects());
    records
}

/// The number of records of an operation, and their bytes.
fn count(records: &[Record], operation: Operation) -> (usize, u64) {
    let of_it = records.iter().filter(|record| record.operation == operation);
    of_it.fold((0, 0), |(count, bytes), record| (count + 1, bytes + record.length_bytes))
}

#[test]
fn the_files_of_blktrace_hold_what_blkparse_and_fio_counted() {
    let records = recorded("mix.blktrace.0", Format::Blktrace);
    // fio: "issued rwts: total=58,32,0,11"; blkdiscard: 1 MiB.
    assert_eq!(count(&records, Read), (58, 1984 << 10));
    assert_eq!(count(&records, Write), (32, 1100 << 10));
    assert_eq!(count(&records, Flush), (11, 0));
    assert_eq!(count(&records, Discard), (1, 1 << 20));
    // blkparse: "Total (trace): Reads Queued: 58, 1984KiB, Writes Queued: 44, 2124KiB".
    let written = [Write, Flush, Discard].map(|operation| count(&records, operation));
    assert_eq!(written.iter().map(|(count, _)| count).sum::<usize>(), 44);
    assert_eq!(written.iter().map(|(_, bytes)| bytes).sum::<u64>(), 2124 << 10);
}

#[test]
fn a_text_of_blkparse_is_the_same_trace_as_the_files_that_it_printed() {
    let (binary, text) =
        (recorded("mix.blktrace.0", Format::Blktrace), recorded("mix.blkparse", Format::Blkparse));
    assert_eq!(binary.len(), 102);
    assert_eq!(binary, text);
}

#[test]
fn an_iolog_of_fio_holds_what_fio_counted() {
    let records = recorded("mix.iolog", Format::Fio);
    // fio's JSON: 14 reads of 114688 bytes, 18 writes of 147456 bytes, 5 syncs, 97 ms: so the times
    // are microseconds.
    assert_eq!(count(&records, Read), (14, 114_688));
    assert_eq!(count(&records, Write), (18, 147_456));
    assert_eq!(count(&records, Flush).0, 5);
    let took = records.last().map(|last| last.at.as_millis());
    assert!(took.is_some_and(|took| (90..=97).contains(&took)), "{took:?}");
}
