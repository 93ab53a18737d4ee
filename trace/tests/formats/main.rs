//! Tests the promises of the crate on files of all formats, one file per promise. Fixtures are made
//! here, according to the sources of the formats, or were recorded.

mod any_bytes;
mod blktrace_bytes;
mod detection;
mod foreign_texts;
mod recorded;
mod round_trips;
mod wrong_files;

use std::path::Path;

use rackscan_trace::{Operation, ReadOptions, Record, TraceError, TraceReader};

/// Reads bytes as a trace with the name `t`.
fn open(bytes: &[u8], options: &ReadOptions) -> Result<TraceReader, TraceError> {
    TraceReader::over(Path::new("t"), Box::new(std::io::Cursor::new(bytes.to_vec())), options)
}

/// The records of a trace without defects.
fn records(bytes: &[u8], options: &ReadOptions) -> Vec<Record> {
    let mut reader = open(bytes, options).expect("a trace of the test");
    let records = reader.by_ref().collect::<Result<Vec<_>, _>>().expect("a trace of the test");
    assert_eq!(reader.defects().count(), 0, "{}", reader.defects());
    records
}

/// The fields that most tests compare: nanoseconds, node, device, offset, length, operation.
type Brief = (u64, u16, u16, u64, u64, Operation);

fn brief(record: &Record) -> Brief {
    let at = u64::try_from(record.at.as_nanos()).expect("a short trace");
    (at, record.node, record.device, record.offset_bytes, record.length_bytes, record.operation)
}

fn briefs(bytes: &[u8], options: &ReadOptions) -> Vec<Brief> {
    records(bytes, options).iter().map(brief).collect()
}
