//! Tests that records that were written are read back unchanged.

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;
use rackscan_trace::{
    Operation, ReadOptions, Record, TraceReader, TraceWriter, WriteFormat,
    limits::{LENGTH_BYTES_MAX, OFFSET_BYTES_MAX, TRACE_SECONDS_MAX},
};
use tempfile::TempDir;

fn record() -> impl Strategy<Value = Record> {
    let name = || proptest::option::of("[a-zA-Z0-9_,\" ;\u{e4}]{1,20}");
    let at = (0..=TRACE_SECONDS_MAX, 0_u32..1_000_000_000);
    let extent = (0..OFFSET_BYTES_MAX - LENGTH_BYTES_MAX, 1..=LENGTH_BYTES_MAX);
    let place = (any::<u16>(), any::<u16>(), extent);
    (at, place, 0_usize..4, name(), name(), any::<Option<u32>>()).prop_map(
        |(
            (seconds, nanoseconds),
            (node, device, (offset_bytes, length_bytes)),
            operation,
            table,
            column,
            thread,
        )| {
            Record {
                at: Duration::new(seconds, nanoseconds),
                node,
                device,
                offset_bytes,
                length_bytes,
                operation: Operation::ALL[operation],
                table: table.map(Arc::from),
                column: column.map(Arc::from),
                thread,
            }
        },
    )
}

fn written_and_read(records: &[Record], format: WriteFormat) -> Vec<Record> {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("trace");
    let mut writer = TraceWriter::create(&path, format).expect("a file");
    records.iter().for_each(|record| writer.write(record).expect("room"));
    assert_eq!(writer.finish().expect("room"), records.len() as u64);
    let reader = TraceReader::open(&path, &ReadOptions::default()).expect("a trace");
    reader.collect::<Result<_, _>>().expect("records")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn our_csv_loses_nothing(records in prop::collection::vec(record(), 1..200)) {
        prop_assert_eq!(written_and_read(&records, WriteFormat::Csv), records);
    }

    #[test]
    fn an_iolog_loses_nanoseconds_names_and_threads_and_nothing_else(records in prop::collection::vec(record(), 1..200)) {
        let expected: Vec<Record> = records
            .iter()
            .map(|record| Record {
                at: Duration::from_micros(u64::try_from(record.at.as_micros()).unwrap()),
                table: None,
                column: None,
                thread: None,
                ..record.clone()
            })
            .collect();
        prop_assert_eq!(written_and_read(&records, WriteFormat::Fio), expected);
    }
}

#[test]
fn an_iolog_adds_and_opens_each_file_before_its_first_io_and_closes_it() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("trace");
    let mut writer = TraceWriter::create(&path, WriteFormat::Fio).unwrap();
    let record = |at, device, operation| Record {
        at: Duration::from_micros(at),
        node: 1,
        device,
        offset_bytes: 4096,
        length_bytes: 512,
        operation,
        table: Some("t".into()),
        column: None,
        thread: None,
    };
    for (at, device, operation) in
        [(5, 0, Operation::Read), (9, 2, Operation::Write), (12, 0, Operation::Flush)]
    {
        writer.write(&record(at, device, operation)).unwrap();
    }
    writer.finish().unwrap();
    let expected = "fio version 3 iolog\n5 /rackscan/node-1/device-0 add\n5 /rackscan/node-1/device-0 open\n\
                    5 /rackscan/node-1/device-0 read 4096 512\n9 /rackscan/node-1/device-2 add\n\
                    9 /rackscan/node-1/device-2 open\n9 /rackscan/node-1/device-2 write 4096 512\n\
                    12 /rackscan/node-1/device-0 sync 4096 512\n12 /rackscan/node-1/device-0 close\n\
                    12 /rackscan/node-1/device-2 close\n";
    assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
}

#[test]
fn what_fio_could_not_read_is_not_written() {
    let folder = TempDir::new().unwrap();
    let mut writer = TraceWriter::create(&folder.path().join("trace"), WriteFormat::Fio).unwrap();
    let record = Record {
        at: Duration::ZERO,
        node: 0,
        device: 0,
        offset_bytes: 0,
        length_bytes: 1 << 32,
        operation: Operation::Discard,
        table: None,
        column: None,
        thread: None,
    };
    let error = writer.write(&record).unwrap_err().to_string();
    assert!(error.contains("4294967296") && error.contains("4294967295"), "{error}");
    assert_eq!(writer.finish().unwrap(), 0);
}

#[test]
fn a_full_disk_is_named_with_what_the_file_holds() {
    let mut writer = TraceWriter::create(std::path::Path::new("/dev/full"), WriteFormat::Csv).unwrap();
    let record = Record {
        at: Duration::ZERO,
        node: 0,
        device: 0,
        offset_bytes: 0,
        length_bytes: 4096,
        operation: Operation::Read,
        table: None,
        column: None,
        thread: None,
    };
    let error = (0..100_000).find_map(|_| writer.write(&record).err()).expect("the disk is full").to_string();
    assert!(error.contains("/dev/full") && error.contains("holds the first 0 of"), "{error}");
}
