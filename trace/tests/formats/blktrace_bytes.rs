//! Tests that files of blktrace are read in the layout of the kernel's header.

use std::{fs, path::Path};

use rackscan_trace::{
    Format,
    Operation::{Discard, Flush, Read, Write},
    Place, ReadOptions, Record, TraceError, TraceReader,
};
use tempfile::TempDir;

use crate::{brief, briefs, open, records};

/// `struct blk_io_trace`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) sequence: u32,
    pub(crate) time: u64,
    pub(crate) sector: u64,
    pub(crate) bytes: u32,
    pub(crate) action: u32,
    pub(crate) pid: u32,
    pub(crate) device: u32,
    pub(crate) payload: &'static [u8],
}

pub(crate) const QUEUE: u32 = 1 | 1 << (16 + 4);
pub(crate) const ISSUE: u32 = 7 | 1 << (16 + 6);
const COMPLETE: u32 = 8 | 1 << (16 + 7);
const READ: u32 = 1 << 16;
const WRITE: u32 = 1 << 17;
const FLUSH: u32 = 1 << 18;
const NOTIFY: u32 = 1 << (16 + 10);
const DISCARD: u32 = 1 << (16 + 13);
const CGROUP: u32 = 1 << 8;
const SDA: u32 = 8 << 20;
const NVME: u32 = 259 << 20 | 3;

impl Event {
    pub(crate) fn new(time: u64, action: u32, sector: u64, bytes: u32) -> Self {
        Self { sequence: 0, time, sector, bytes, action, pid: 42, device: SDA, payload: b"" }
    }

    pub(crate) fn encode(&self, big: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |mut bytes: Vec<u8>| {
            if big {
                bytes.reverse();
            }
            out.extend(bytes);
        };
        put(0x6561_7407_u32.to_le_bytes().to_vec());
        put(self.sequence.to_le_bytes().to_vec());
        put(self.time.to_le_bytes().to_vec());
        put(self.sector.to_le_bytes().to_vec());
        put(self.bytes.to_le_bytes().to_vec());
        put(self.action.to_le_bytes().to_vec());
        put(self.pid.to_le_bytes().to_vec());
        put(self.device.to_le_bytes().to_vec());
        put(3_u32.to_le_bytes().to_vec());
        put(0_u16.to_le_bytes().to_vec());
        put(u16::try_from(self.payload.len()).expect("a short payload").to_le_bytes().to_vec());
        out.extend(self.payload);
        out
    }
}

fn bytes(events: &[Event], big: bool) -> Vec<u8> {
    events.iter().flat_map(|event| event.encode(big)).collect()
}

fn sample() -> Vec<Event> {
    vec![
        Event { payload: b"kjournald\0\0\0\0\0\0\0", ..Event::new(900, NOTIFY, 0, 0) },
        Event::new(1000, QUEUE | READ, 8, 4096),
        Event::new(1100, ISSUE | READ, 8, 4096),
        Event { payload: &[1, 2, 3, 4, 5, 6, 7, 8], ..Event::new(1500, QUEUE | WRITE | CGROUP, 16, 512) },
        Event { device: NVME, ..Event::new(1600, QUEUE | WRITE | FLUSH, 0, 0) },
        Event { device: NVME, ..Event::new(1700, QUEUE | WRITE | DISCARD, 2048, 1 << 20) },
        Event::new(1800, QUEUE | WRITE, 0, 0),
        Event::new(2000, COMPLETE | READ, 8, 4096),
    ]
}

#[test]
fn both_byte_orders_are_read_and_payloads_passed_over() {
    let expected = [
        (0, 0, 0, 4096, 4096, Read),
        (500, 0, 0, 8192, 512, Write),
        (600, 0, 1, 0, 0, Flush),
        (700, 0, 1, 1 << 20, 1 << 20, Discard),
    ];
    for big in [false, true] {
        let bytes = bytes(&sample(), big);
        assert_eq!(briefs(&bytes, &ReadOptions::default()), expected, "big: {big}");
        let mut reader = open(&bytes, &ReadOptions::default()).unwrap();
        assert_eq!((reader.by_ref().count(), reader.format()), (4, Format::Blktrace));
        let names: Vec<&str> = reader.devices().iter().map(|named| named.name.as_str()).collect();
        assert_eq!(names, ["8,0", "259,3"]);
        assert_eq!(records(&bytes, &ReadOptions::default())[0].thread, Some(42));
    }
}

#[test]
fn issue_events_are_taken_where_none_was_queued() {
    let events: Vec<Event> = sample().into_iter().filter(|event| event.action & 0xff != 1).collect();
    assert_eq!(briefs(&bytes(&events, false), &ReadOptions::default()), [(0, 0, 0, 4096, 4096, Read)]);
}

#[test]
fn the_files_of_all_processors_are_merged_by_time_and_sequence() {
    let folder = TempDir::new().unwrap();
    let read = |time, sequence, sector| Event { sequence, ..Event::new(time, QUEUE | READ, sector, 512) };
    let parts = [
        vec![read(10, 1, 1), read(40, 2, 4), read(50, 9, 6)],
        Vec::new(),
        vec![read(20, 1, 2), read(30, 2, 3), read(50, 8, 5)],
    ];
    for (processor, events) in parts.iter().enumerate() {
        fs::write(folder.path().join(format!("sda.blktrace.{processor}")), bytes(events, processor == 2))
            .unwrap();
    }
    fs::write(folder.path().join("sdb.blktrace.0"), bytes(&[read(1, 1, 99)], false)).unwrap();
    for name in ["sda.blktrace.0", "sda.blktrace.2", "sda", "sda.blktrace"] {
        let reader = TraceReader::open(&folder.path().join(name), &ReadOptions::default()).unwrap();
        let records = reader.collect::<Result<Vec<Record>, _>>().unwrap();
        let order: Vec<_> =
            records.iter().map(|record| (brief(record).0, record.offset_bytes / 512)).collect();
        assert_eq!(order, [(0, 1), (10, 2), (20, 3), (30, 4), (40, 5), (40, 6)], "{name}");
    }
}

#[test]
fn a_truncated_file_gives_what_is_whole_and_names_the_byte() {
    let whole = bytes(&sample()[1..4], false);
    for (cut, place, what) in
        [(whole.len() - 4, 96, "of payload"), (100, 96, "after 4 of an event's 48"), (47, 0, "47")]
    {
        let mut reader = open(&whole[..cut], &ReadOptions::default()).unwrap();
        let found: Vec<_> = reader.by_ref().collect();
        let defect = reader.defects().first()[0].clone();
        assert_eq!(defect.place, Place::Byte(place), "{defect}");
        assert!(defect.to_string().contains(what), "{defect}");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].is_ok(), cut > 48, "without any record there is an error");
    }
}

#[test]
fn a_wrong_number_or_version_ends_the_file_with_its_place() {
    let mut wrong = bytes(&sample()[1..3], false);
    wrong[48] = 6;
    let mut reader = open(&wrong, &ReadOptions::default()).unwrap();
    assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 1);
    assert!(
        reader.defects().to_string().contains("byte 48: an event is of version 6, expected 7"),
        "{}",
        reader.defects()
    );
    wrong[48..52].copy_from_slice(b"oops");
    let mut reader = open(&wrong, &ReadOptions::default()).unwrap();
    assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 1);
    assert!(
        reader.defects().to_string().contains("byte 48: an event begins with 0x"),
        "{}",
        reader.defects()
    );
}

#[test]
fn a_missing_trace_is_named() {
    let missing = Path::new("/nonexistent/sda");
    let error = TraceReader::open(missing, &ReadOptions::default()).err().unwrap();
    assert!(
        matches!(error, TraceError::Open { .. }) && error.to_string().contains("/nonexistent/sda"),
        "{error}"
    );
}
