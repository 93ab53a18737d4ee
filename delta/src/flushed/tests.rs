//! Tests that every row is in exactly one segment after a flush, whatever changed between its two
//! halves.

use super::*;
use crate::{replica::RowVersion, row::encode};
use rackscan_format::{
    ids::{ColumnId, TableId},
    schema::{ColumnDefinition, ColumnType},
};
use rackscan_ramp::{
    item::Value,
    timestamp::{ClientId, Timestamp},
};

const KEPT: u32 = 3;
const KEPT_ROWS: u32 = 500;

fn new_version() -> Arc<TableDefinition> {
    let column =
        |name: &str, column_type| ColumnDefinition { name: name.to_owned(), column_type, nullable: true };
    Arc::new(TableDefinition {
        id: TableId(8),
        name: "t".to_owned(),
        columns: vec![column("key", ColumnType::Int64), column("name", ColumnType::Text)],
        partition_key: ColumnId(0),
        sorted_by: Some(ColumnId(1)),
        page_size: 4096,
        segment_rows: 1024,
        nodes: vec![NodeId(0), NodeId(3), NodeId(7)],
        rows: 0,
        source: "a test".to_owned(),
        succeeds: Some(TableId(7)),
        derived: Vec::new(),
        protection: None,
    })
}

fn datums(key: i64) -> Vec<Datum> {
    let name = if key % 7 == 0 { Datum::Null } else { Datum::Text(format!("{}", key * 7919 % 1000)) };
    vec![if key % 11 == 0 { Datum::Null } else { Datum::Integer(key) }, name]
}

/// Rows that change at random, and what should exist then.
#[derive(Default)]
struct World {
    rows: TableRows,
    expected: BTreeMap<RowIdentity, i64>,
    stored_gone: BTreeSet<RowIdentity>,
    time: u64,
}

impl World {
    fn change(&mut self, random: &mut fastrand::Rng) {
        let row = if random.bool() {
            RowIdentity::Stored { segment: SegmentId(random.u32(..KEPT)), row: random.u32(..KEPT_ROWS) }
        } else {
            let by = Timestamp { time: random.u64(..4000), client: ClientId(1) };
            RowIdentity::Inserted { by, number: random.u32(..3) }
        };
        self.time += 1;
        let timestamp = Timestamp { time: self.time, client: ClientId(9) };
        let key = random.i64(0..100_000);
        let value = if random.u8(..4) == 0 {
            self.expected.remove(&row);
            Value::DELETED
        } else {
            self.expected.insert(row, key);
            Value::new(&encode(&new_version(), &datums(key)).unwrap()).unwrap()
        };
        if matches!(row, RowIdentity::Stored { .. }) {
            self.stored_gone.insert(row);
        }
        self.rows.insert(row, RowVersion { timestamp, value });
    }
}

#[test]
fn every_row_is_in_one_segment_and_not_withheld_whatever_changed_meanwhile() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut world = World::default();
        // A flush before this one has taken some rows away already.
        let gone_before: Vec<u32> = (0..KEPT_ROWS).filter(|_| random.u8(..10) == 0).collect();
        let flushed = WithheldRows::of(gone_before.iter().copied()).map(Arc::new).unwrap();
        let flushed = Arc::new(BTreeMap::from([(SegmentId(1), flushed)]));
        let was_gone: Vec<RowIdentity> =
            gone_before.iter().map(|row| RowIdentity::Stored { segment: SegmentId(1), row: *row }).collect();
        let mut flushing = Flushing::new(new_version(), SegmentId(KEPT), flushed);
        let mut segments = Vec::new();
        let mut earlier = TableRows::default();
        for changes in [if seed % 4 == 0 { 0 } else { 6000 }, 900, 0] {
            (0..changes).for_each(|_| world.change(&mut random));
            let changed: Vec<_> = world.rows.since(&earlier).collect();
            earlier = world.rows.clone();
            segments.extend(flushing.take(&world.rows, changed).unwrap());
        }
        let mut found = BTreeMap::new();
        for (FlushedSegment { node, run }, number) in segments.iter().zip(KEPT..) {
            assert_eq!(run.segment(), SegmentId(number), "numbers go on after those that are kept");
            run.directory().verify(2, 1).unwrap();
            assert_eq!((run.directory().table, run.rows().len() <= 1024), (TableId(8), true));
            let withheld = flushing.withheld(run.segment()).unwrap();
            withheld.verify(run.directory().rows).unwrap();
            let gone: BTreeSet<u32> = withheld.rows().collect();
            for (row, place) in run.rows().iter().zip(0..).filter(|(_, place)| !gone.contains(place)) {
                assert!(found.insert(*row, place).is_none(), "{row} is in two places");
                let key = datums(world.expected[row]).remove(0);
                assert_eq!(new_version().nodes[key_hash(Some(&key)).position(3)], *node, "{row}");
            }
            let pages: usize = run.directory().chunks.iter().map(|chunk| chunk.pages.len()).sum();
            assert_eq!(run.pages().len(), pages);
        }
        assert!(found.keys().eq(world.expected.keys()), "seed {seed}");
        let mut gone: BTreeSet<RowIdentity> = world.stored_gone.clone();
        gone.extend(was_gone);
        let told = (0..KEPT).map(SegmentId).flat_map(|segment| {
            let rows = flushing.withheld(segment).unwrap();
            rows.rows().map(move |row| RowIdentity::Stored { segment, row }).collect::<Vec<_>>()
        });
        assert_eq!(told.collect::<BTreeSet<_>>(), gone, "seed {seed}");
    }
}

#[test]
fn rows_of_a_new_segment_are_in_the_order_of_the_table_with_missing_values_last() {
    let mut world = World::default();
    let mut random = fastrand::Rng::with_seed(5);
    (0..3000).for_each(|_| world.change(&mut random));
    let mut flushing = Flushing::new(new_version(), SegmentId(KEPT), Arc::default());
    let changed: Vec<_> = world.rows.since(&TableRows::default()).collect();
    let segments = flushing.take(&world.rows, changed).unwrap();
    assert!(segments.len() >= 3);
    for FlushedSegment { run, .. } in &segments {
        let names: Vec<Datum> = run.rows().iter().map(|row| datums(world.expected[row]).remove(1)).collect();
        let is_sorted = names.windows(2).all(|pair| match (&pair[0], &pair[1]) {
            (Datum::Text(one), Datum::Text(other)) => one <= other,
            (_, other) => *other == Datum::Null,
        });
        assert!(is_sorted, "{names:?}");
    }
}

#[test]
fn a_row_that_does_not_fit_its_table_stops_the_flush_and_is_named() {
    let mut rows = TableRows::default();
    let row = RowIdentity::Stored { segment: SegmentId(1), row: 5 };
    let timestamp = Timestamp { time: 1, client: ClientId(1) };
    rows.insert(row, RowVersion { timestamp, value: Value::new(b"\x01\x01").unwrap() });
    let error = Flushing::new(new_version(), SegmentId(KEPT), Arc::default()).take(&rows, [row]).unwrap_err();
    assert!(error.to_string().starts_with("row 5 of segment 1: "), "{error}");
}
