//! Tests that a reader of a feed gets every record once and in order, or an error if it cannot.

use super::*;
use crate::{
    item::{Key, Metadata, Value},
    message::{Guard, Part},
    slot::SlotVector,
    timestamp::{ClientId, Timestamp},
};
use proptest::prelude::*;

const LIFE: u64 = 5;
const MEMORY: usize = FEED_HEADER_BYTES + 4096;

fn feed() -> Feed<SlotVector> {
    Feed::new(SlotVector::zeroed(MEMORY), LIFE).unwrap()
}

fn record(time: u64, bytes: usize) -> Record {
    let timestamp = Timestamp { time, client: ClientId(1) };
    if bytes == 0 {
        return Record::Commit(timestamp);
    }
    let items = vec![(Key::new(b"key").unwrap(), Value::new(&vec![7; bytes]).unwrap())];
    Record::Prepare(Part {
        timestamp,
        participants: Vec::new(),
        guard: Guard::Open,
        metadata: Metadata::Timestamp,
        items,
    })
}

fn header(feed: &Feed<SlotVector>) -> FeedHeader {
    FeedHeader::of(feed.memory().as_slice().first_chunk().unwrap())
}

fn copied(feed: &Feed<SlotVector>, pieces: &Pieces) -> Vec<u8> {
    let memory = feed.memory().as_slice();
    [&memory[pieces.first.clone()], &memory[pieces.second.clone()]].concat()
}

/// All that is new to the reader.
fn read_on(feed: &Feed<SlotVector>, reader: &mut FeedReader) -> Result<Vec<Record>, Behind> {
    let mut records = Vec::new();
    while let Some(pieces) = reader.wanted(header(feed))? {
        let taken = reader.take(&copied(feed, &pieces), header(feed))?;
        assert!(!taken.is_empty(), "bytes before the end are whole records");
        records.extend(taken);
    }
    Ok(records)
}

#[test]
fn a_reader_that_was_unavailable_for_too_long_is_told_so() {
    let mut feed = feed();
    let mut reader = FeedReader::at(feed.mark(), LIFE, MEMORY);
    for time in 0..50 {
        feed.append(&record(time, 200));
        feed.publish();
    }
    let error = read_on(&feed, &mut reader).unwrap_err();
    assert!(matches!(error, Behind::Overwritten { at: 0, .. }), "{error}");
    let mut again = FeedReader::at(feed.mark(), LIFE, MEMORY);
    feed.append(&record(60, 0));
    feed.publish();
    assert_eq!(read_on(&feed, &mut again), Ok(vec![record(60, 0)]));
    let other = FeedReader::at(feed.mark(), LIFE + 1, MEMORY);
    assert_eq!(other.wanted(header(&feed)), Err(Behind::Life { found: LIFE, expected: LIFE + 1 }));
}

#[test]
fn what_is_overwritten_while_it_is_copied_is_not_taken() {
    let mut feed = feed();
    let mut reader = FeedReader::at(feed.mark(), LIFE, MEMORY);
    feed.append(&record(1, 1000));
    feed.publish();
    let pieces = reader.wanted(header(&feed)).unwrap().unwrap();
    let bytes = copied(&feed, &pieces);
    (2..6).for_each(|time| feed.append(&record(time, 800)));
    feed.publish();
    let before = reader;
    assert!(matches!(reader.take(&bytes, header(&feed)), Err(Behind::Overwritten { .. })));
    assert_eq!(reader, before);
}

#[test]
fn a_record_longer_than_the_ring_sends_readers_back_and_later_ones_are_read() {
    let mut feed = feed();
    let mut reader = FeedReader::at(feed.mark(), LIFE, MEMORY);
    feed.append(&record(1, 5000));
    feed.publish();
    assert!(matches!(read_on(&feed, &mut reader), Err(Behind::Overwritten { .. })));
    let mut reader = FeedReader::at(feed.mark(), LIFE, MEMORY);
    let later = [record(2, 300), record(3, 0)];
    later.iter().for_each(|record| feed.append(record));
    feed.publish();
    assert_eq!(read_on(&feed, &mut reader), Ok(later.to_vec()));
}

#[test]
fn memory_without_room_for_a_ring_is_no_feed() {
    assert!(Feed::new(SlotVector::zeroed(FEED_HEADER_BYTES), LIFE).is_none());
    assert!(Feed::new(SlotVector::zeroed(8), LIFE).is_none());
}

proptest! {
    #[test]
    fn a_reader_gets_every_record_once_and_in_order_or_is_told_that_it_cannot(
        steps in prop::collection::vec((prop::collection::vec(0_usize..1500, 0..4), any::<bool>()), 1..60),
    ) {
        let mut feed = feed();
        let mut reader = FeedReader::at(feed.mark(), LIFE, MEMORY);
        let (mut time, mut unread, mut read_to) = (0, Vec::new(), 0);
        for (lengths, reads) in steps {
            for length in lengths {
                time += 1;
                unread.push(record(time, length));
                feed.append(unread.last().unwrap());
            }
            feed.publish();
            if !reads {
                continue;
            }
            match read_on(&feed, &mut reader) {
                Ok(records) => prop_assert_eq!(records, std::mem::take(&mut unread)),
                Err(error) => {
                    let waiting = header(&feed).end - read_to;
                    prop_assert!(waiting + 16 > 4096, "{error}, though only {waiting} bytes were written since");
                    reader = FeedReader::at(feed.mark(), LIFE, MEMORY);
                    unread.clear();
                }
            }
            read_to = header(&feed).end;
        }
    }

    #[test]
    fn torn_words_are_never_taken_for_records(
        lengths in prop::collection::vec(0_usize..300, 1..8),
        torn in any::<prop::sample::Index>(),
    ) {
        let mut feed = feed();
        let mut reader = FeedReader::at(feed.mark(), LIFE, MEMORY);
        let records: Vec<Record> =
            (1..).zip(&lengths).map(|(time, length)| record(time, *length)).collect();
        records.iter().for_each(|record| feed.append(record));
        feed.publish();
        let pieces = reader.wanted(header(&feed)).unwrap().unwrap();
        let mut bytes = copied(&feed, &pieces);
        let word = torn.index(bytes.len().div_ceil(8)) * 8;
        let end = bytes.len().min(word + 8);
        bytes[word..end].iter_mut().for_each(|byte| *byte ^= 0xFF);
        let taken = reader.take(&bytes, header(&feed)).unwrap();
        prop_assert!(taken.len() < records.len() && records.starts_with(&taken));
        // A second copy brings the rest.
        let rest = read_on(&feed, &mut reader).unwrap();
        prop_assert_eq!([taken, rest].concat(), records);
    }
}
