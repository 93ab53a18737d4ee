//! Tests that a copy is always a beginning of its origin's log, whatever bytes are sent, and that
//! bytes of it are discarded only if a shorter log replaces them. Method: the shelves alone, over a
//! folder, with parts of logs in every order.

use std::fs;

use rackscan_format::message::LogKept;
use rackscan_ramp::{
    item::{Key, Metadata, Value},
    log::{LogWriter, Record},
    message::{Guard, Part as Written},
    timestamp::{ClientId, Timestamp},
};

use super::*;

const ORIGIN: NodeId = NodeId(7);
const NUMBER: u32 = 0x0001_0001;

/// A log with so many records, and where each ends.
fn log(number: u32, before: u64, records: u64) -> (Vec<u8>, Vec<Tail>) {
    let (header, start) = Tail::header(before, number);
    let (mut writer, mut ends) = (LogWriter::after(start), vec![start]);
    for time in 1..=records {
        writer.append(&Record::Commit(Timestamp { time, client: ClientId(number) }));
        ends.push(writer.tail());
    }
    let records = writer.take_batch().map_or(Vec::new(), |batch| batch.bytes);
    ([&header[..], &records].concat(), ends)
}

fn part(log: u32, offset: usize, bytes: &[u8], is_whole: bool) -> Part<'_> {
    Part { log, offset_bytes: offset as u64, cut: None, is_whole, bytes }
}

struct Bench {
    folder: tempfile::TempDir,
    shelves: Shelves,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let shelves = Shelves::new(folder.path().join("copies"));
        Self { folder, shelves }
    }

    fn keep(&mut self, part: &Part<'_>) -> LogKept {
        let kept = self.shelves.keep(ORIGIN, part).unwrap();
        self.shelves.sync().unwrap();
        kept
    }

    /// All of a log at once.
    fn keep_whole(&mut self, number: u32, bytes: &[u8]) {
        assert!(self.keep(&part(number, 0, bytes, true)).is_whole);
    }

    /// As after a restart.
    fn again(&mut self) {
        self.shelves = Shelves::new(self.folder.path().join("copies"));
    }

    fn file(&self, what: &str) -> Vec<u8> {
        fs::read(self.folder.path().join(format!("copies/7.log{what}"))).unwrap_or_default()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.folder.path().join("copies"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn copy(&mut self) -> Vec<u8> {
        let (held, bytes) = self.shelves.part(ORIGIN, 0, usize::MAX).unwrap();
        assert_eq!(held.map(|held| held.end.offset_bytes), Some(bytes.len() as u64));
        bytes
    }
}

#[test]
fn pieces_of_any_length_make_the_log_and_a_gap_is_seen() {
    let (bytes, ends) = log(NUMBER, 0, 40);
    for length in [24, 25, 40, 77, 5000] {
        let mut bench = Bench::new();
        let mut at = 0;
        for piece in bytes.chunks(length) {
            // One that does not belong here yet changes nothing.
            let ahead = bench.keep(&part(NUMBER, at + length + 1, &bytes[..10], false));
            let through = if at == 0 { 0 } else { at as u64 };
            assert_eq!(ahead.through_bytes, through);
            let kept = bench.keep(&part(NUMBER, at, piece, at + piece.len() == bytes.len()));
            at += piece.len();
            assert_eq!(kept.through_bytes, at as u64);
            assert_eq!(kept.is_whole, at == bytes.len(), "only what is whole counts");
        }
        assert_eq!(bench.copy(), bytes);
        bench.again();
        let kept = bench.keep(&part(NUMBER, 0, &[], false));
        assert_eq!((kept.end, kept.is_whole), (point(*ends.last().unwrap()), true));
        assert_eq!(bench.copy(), bytes, "and after a restart");
    }
}

#[test]
fn bytes_that_do_not_go_on_with_the_log_are_refused_and_change_nothing() {
    let (bytes, ends) = log(NUMBER, 0, 5);
    let (other, _) = log(NUMBER ^ 2, 0, 9);
    let mut bench = Bench::new();
    let at = usize::try_from(ends[3].offset_bytes).unwrap();
    bench.keep_whole(NUMBER, &bytes[..at]);
    let mut flipped = bytes[at..].to_vec();
    flipped[12] ^= 1;
    for wrong in [&other[at..], &flipped, &[0; 64], &[0xff; 64]] {
        let refused = bench.shelves.keep(ORIGIN, &part(NUMBER, at, wrong, true)).unwrap_err();
        let Trouble::Refused(refusal) = refused else { panic!("{refused:?}") };
        assert!(refusal.text.contains("do not continue"), "{refusal:?}");
    }
    let no_log = bench.shelves.keep(ORIGIN, &part(NUMBER, 0, &[7; 100], true));
    let mistaken = bench.shelves.keep(ORIGIN, &part(NUMBER, 0, &other, true));
    assert!(matches!((no_log, mistaken), (Err(Trouble::Refused(_)), Err(Trouble::Refused(_)))));
    assert_eq!(bench.copy(), bytes[..at]);
    bench.keep(&part(NUMBER, at, &bytes[at..], true));
    assert_eq!(bench.copy(), bytes);
}

#[test]
fn a_copy_with_a_damaged_end_goes_as_far_as_it_is_whole_and_is_completed() {
    let (bytes, ends) = log(NUMBER, 0, 5);
    for damage in [ends[3].offset_bytes + 5, ends[4].offset_bytes - 1] {
        let mut bench = Bench::new();
        bench.keep_whole(NUMBER, &bytes);
        let path = bench.folder.path().join("copies/7.log");
        let mut damaged = fs::read(&path).unwrap();
        damaged[usize::try_from(damage).unwrap()] ^= 1;
        fs::write(&path, &damaged).unwrap();
        bench.again();
        let kept = bench.keep(&part(NUMBER, 0, &[], false));
        assert_eq!(kept.end, point(ends[3]));
        let at = usize::try_from(kept.through_bytes).unwrap();
        bench.keep(&part(NUMBER, at, &bytes[at..], true));
        assert_eq!(bench.copy(), bytes);
        bench.again();
        assert_eq!(bench.copy(), bytes);
    }
}

#[test]
fn a_shorter_log_takes_the_place_of_the_one_it_replaces_when_it_is_whole() {
    let (old, _) = log(NUMBER, 0, 30);
    let (short, _) = log(NUMBER + 1, 30, 8);
    let mut bench = Bench::new();
    bench.keep_whole(NUMBER, &old);
    bench.keep(&part(NUMBER + 1, 0, &short[..60], false));
    assert_eq!(bench.copy(), old, "until then the old one counts");
    bench.again();
    assert_eq!(bench.copy(), old);
    assert_eq!(bench.keep(&part(NUMBER + 1, 60, &short[60..], true)), LogKept::default(), "begin again");
    bench.keep(&part(NUMBER + 1, 0, &short[..60], false));
    bench.keep(&part(NUMBER + 1, 60, &short[60..], true));
    assert_eq!((bench.copy(), bench.names()), (short, vec!["7.log".to_owned()]));
}

#[test]
fn a_log_that_does_not_replace_the_one_there_is_puts_it_aside_and_not_away() {
    let (old, _) = log(NUMBER, 0, 30);
    // Begun anew; of the same row, but with fewer records than were known; the same number, gone on
    // differently.
    let others = [(0x0002_0001, 0, 50), (NUMBER + 1, 0, 9), (NUMBER, 9, 99)];
    for (number, before, records) in others {
        let (other, _) = log(number, before, records);
        let mut bench = Bench::new();
        bench.keep_whole(NUMBER, &old);
        bench.keep_whole(number, &other);
        assert_eq!(bench.copy(), other);
        assert_eq!(bench.names(), ["7.log", "7.log.00010001-30"]);
        assert_eq!(bench.file(".00010001-30")[..old.len()], old);
    }
}

#[test]
fn what_an_origin_has_not_is_cut_off_and_kept_beside() {
    let (bytes, ends) = log(NUMBER, 0, 9);
    let mut bench = Bench::new();
    bench.keep_whole(NUMBER, &bytes);
    let cut = |tail: Tail| Part { cut: Some(point(tail)), ..part(NUMBER, 0, &[], false) };
    let wrong = Tail { checksum: ends[5].checksum ^ 1, ..ends[5] };
    assert_eq!(bench.keep(&cut(wrong)), LogKept::default(), "there is no such point");
    assert_eq!(bench.copy(), bytes);
    let kept = bench.keep(&cut(ends[5]));
    let at = usize::try_from(ends[5].offset_bytes).unwrap();
    assert_eq!((kept.end, kept.through_bytes), (point(ends[5]), at as u64));
    assert_eq!((bench.file(".cut"), bench.copy()), (bytes[at..].to_vec(), bytes[..at].to_vec()));
    bench.again();
    assert_eq!(bench.copy(), bytes[..at], "it does not come back");
}

#[test]
fn what_is_kept_of_cuts_is_bounded_and_the_newest_one_is_there() {
    let (header, start) = Tail::header(0, NUMBER);
    let mut writer = LogWriter::after(start);
    for time in 1..=9 {
        let (timestamp, value) =
            (Timestamp { time, client: ClientId(1) }, Value::new(&vec![7; 1_000_000]).unwrap());
        let items = vec![(Key::new(b"key").unwrap(), value)];
        let (guard, metadata) = (Guard::Open, Metadata::Timestamp);
        writer.append(&Record::Put(Written { timestamp, participants: vec![], guard, metadata, items }));
    }
    let records = writer.take_batch().unwrap().bytes;
    let mut bench = Bench::new();
    bench.keep(&part(NUMBER, 0, &header, true));
    for _ in 0..3 {
        bench.keep(&part(NUMBER, header.len(), &records, true));
        bench.keep(&Part { cut: Some(point(start)), ..part(NUMBER, 0, &[], false) });
        assert!(bench.file(".cut") == records, "twice as much would be too much");
    }
    bench.keep(&part(NUMBER, header.len(), &log(NUMBER, 0, 1).0[header.len()..], true));
    let short = bench.copy()[header.len()..].to_vec();
    bench.keep(&Part { cut: Some(point(start)), ..part(NUMBER, 0, &[], false) });
    assert!(bench.file(".cut") == [records, short].concat(), "what fits stays");
    assert_eq!(bench.names(), ["7.log", "7.log.cut"]);
}

#[test]
fn a_file_that_begins_as_no_log_does_is_put_aside() {
    for bytes in [&b""[..], b"short", &[7; 4096]] {
        let mut bench = Bench::new();
        fs::create_dir_all(bench.folder.path().join("copies")).unwrap();
        fs::write(bench.folder.path().join("copies/7.log"), bytes).unwrap();
        assert_eq!(bench.shelves.part(ORIGIN, 0, 10).unwrap(), (None, Vec::new()));
        let (whole, _) = log(NUMBER, 0, 3);
        bench.keep_whole(NUMBER, &whole);
        assert_eq!((bench.copy(), bench.file(".damaged")), (whole, bytes.to_vec()));
    }
}
