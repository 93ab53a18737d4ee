//! Tests that every row is visible in exactly one place, with its newest values.
//!
//! Method: rows are inserted, updated and deleted at random, in the table's segments and in the
//! delta store. The code that scans segments scans the runs, and the result is compared with a map.

use super::*;
use crate::{replica::RowVersion, row::encode};
use rackscan_format::{
    ids::{ColumnId, NodeId, TableId},
    program::{Input, Node, Output, PROGRAM_VERSION, ScanProgram},
    row_place::RowPlace,
    schema::{ColumnDefinition, ColumnType},
};
use rackscan_ramp::{
    item::Value,
    timestamp::{ClientId, Timestamp},
};
use rackscan_scan::{ScanBatch, ScanLimits, SegmentScan, Step};

const SEGMENTS: u32 = 3;
const SEGMENT_ROWS: u32 = 2000;

fn table() -> Arc<TableDefinition> {
    let column =
        |name: &str, column_type, nullable| ColumnDefinition { name: name.to_owned(), column_type, nullable };
    Arc::new(TableDefinition {
        id: TableId(7),
        name: "t".to_owned(),
        columns: vec![
            column("key", ColumnType::Int64, false),
            column("ratio", ColumnType::Float64, true),
            column("name", ColumnType::Text, true),
        ],
        partition_key: ColumnId(0),
        sorted_by: None,
        page_size: 4096,
        segment_rows: SEGMENT_ROWS,
        nodes: vec![NodeId(0)],
        rows: u64::from(SEGMENTS * SEGMENT_ROWS),
        source: "a test".to_owned(),
        succeeds: None,
        derived: Vec::new(),
        protection: None,
    })
}

/// A row, as text.
fn shown(key: i64, has_ratio: bool) -> String {
    let ratio = if has_ratio { format!("{:?}", key as f64 / 4.0) } else { "-".to_owned() };
    let name = if key % 5 == 0 { "-".to_owned() } else { format!("row {key}") };
    format!("{key} {ratio} {name}")
}

fn value(key: i64, has_ratio: bool) -> Value {
    let ratio = if has_ratio { Datum::Float(key as f64 / 4.0) } else { Datum::Null };
    let name = if key % 5 == 0 { Datum::Null } else { Datum::Text(format!("row {key}")) };
    Value::new(&encode(&table(), &[Datum::Integer(key), ratio, name]).unwrap()).unwrap()
}

/// All rows of the runs, with their identities, as scans of them put them out.
fn scanned(view: &LayerView) -> Vec<(RowIdentity, String)> {
    let definition = table();
    let inputs = (0_u16..).zip(&definition.columns);
    let inputs = inputs.map(|(at, column)| Input { column: ColumnId(at), column_type: column.column_type });
    let program = ScanProgram {
        version: PROGRAM_VERSION,
        table: definition.id,
        inputs: inputs.collect(),
        nodes: vec![Node::Column(0), Node::Column(1), Node::Column(2), Node::RowNumber],
        filter: Vec::new(),
        output: Output::Rows(vec![0, 1, 2, 3]),
        limit_rows: None,
        key_filters: Vec::new(),
    };
    let program = Arc::new(program.verify(&definition).unwrap());
    let mut rows = Vec::new();
    for run in &view.runs {
        run.directory().verify(definition.columns.len(), 1).unwrap();
        let directory = Arc::clone(run.directory());
        let mut scan = SegmentScan::new(Arc::clone(&program), directory, 0, ScanLimits::default()).unwrap();
        if let Some(withheld) = view.withheld.get(&run.segment()) {
            withheld.verify(run.directory().rows).unwrap();
            scan = scan.withholding(Arc::clone(withheld));
        }
        loop {
            match scan.step().unwrap() {
                Step::Read(pages) => {
                    for wanted in pages {
                        let page = run.page(wanted.column, wanted.page).unwrap();
                        scan.supply(wanted.column, wanted.page, page).unwrap();
                    }
                }
                Step::Batch(found) => rows.extend(texts(view, &found)),
                Step::Done => break,
            }
        }
    }
    rows
}

/// The rows of a batch.
fn texts(view: &LayerView, found: &ScanBatch) -> Vec<(RowIdentity, String)> {
    // Arrow shows an array of one value as its type, a bracket, the value with a comma, and a
    // bracket.
    let cell = |column: usize, row: usize| {
        let shown = format!("{:?}", found.batch.column(column).slice(row, 1));
        let value = shown.lines().nth(2).unwrap().trim().trim_end_matches(',').trim_matches('"');
        if value == "null" { "-".to_owned() } else { value.to_owned() }
    };
    let row = |row: usize| {
        let place = RowPlace::of_number(cell(3, row).parse().unwrap());
        let (identity, _) = view.version(place.segment, place.row).unwrap();
        (identity, format!("{} {} {}", cell(0, row), cell(1, row), cell(2, row)))
    };
    (0..found.batch.num_rows()).map(row).collect()
}

/// Rows that change at random, and what must come out of it.
struct World {
    random: fastrand::Rng,
    rows: TableRows,
    expected: BTreeMap<RowIdentity, String>,
    stored_gone: BTreeSet<RowIdentity>,
    time: u64,
}

impl World {
    fn identity(&mut self) -> RowIdentity {
        if self.random.bool() {
            let segment = SegmentId(self.random.u32(..SEGMENTS));
            return RowIdentity::Stored { segment, row: self.random.u32(..SEGMENT_ROWS) };
        }
        let by = Timestamp { time: self.random.u64(..400), client: ClientId(1) };
        RowIdentity::Inserted { by, number: self.random.u32(..4) }
    }

    fn change(&mut self) -> RowIdentity {
        let row = self.identity();
        self.time += 1;
        let timestamp = Timestamp { time: self.time, client: ClientId(9) };
        let (key, has_ratio) = (self.random.i64(..1000), self.random.bool());
        let value = if self.random.u8(..4) == 0 { Value::DELETED } else { value(key, has_ratio) };
        match value.bytes() {
            Some(_) => self.expected.insert(row, shown(key, has_ratio)),
            None => self.expected.remove(&row),
        };
        if matches!(row, RowIdentity::Stored { .. }) {
            self.stored_gone.insert(row);
        }
        self.rows.insert(row, RowVersion { timestamp, value });
        row
    }

    fn check(&self, view: &LayerView) {
        let mut found = scanned(view);
        found.sort();
        let expected: Vec<_> = self.expected.iter().map(|(row, text)| (*row, text.clone())).collect();
        assert_eq!(found, expected);
        let stored = view.withheld.iter().filter(|(segment, _)| **segment < RUNS_FROM);
        let gone = stored.flat_map(|(segment, rows)| {
            rows.rows().map(|row| RowIdentity::Stored { segment: *segment, row })
        });
        assert_eq!(gone.collect::<BTreeSet<_>>(), self.stored_gone);
    }
}

#[test]
fn every_changed_row_comes_out_once_with_its_newest_values_whatever_the_steps() {
    for seed in 0..12 {
        let random = fastrand::Rng::with_seed(seed);
        let (expected, stored_gone) = (BTreeMap::new(), BTreeSet::new());
        let mut world = World { random, rows: TableRows::default(), expected, stored_gone, time: 0 };
        let mut layer = Layer::new(table(), Arc::default());
        for _ in 0..40 {
            let changes = world.random.usize(..if seed % 3 == 0 { 400 } else { 9 });
            let changed: BTreeSet<_> = (0..changes).map(|_| world.change()).collect();
            let before = layer.view();
            let rows_before = scanned(&before);
            layer.apply(&world.rows, changed).unwrap();
            world.check(&layer.view());
            assert_eq!(scanned(&before), rows_before, "a view does not change");
        }
        let live: usize = layer.runs.iter().map(|run| layer.live(run)).sum();
        assert_eq!(live, world.expected.len());
        let most = live.max(1).ilog2() as usize + 2;
        assert!(
            layer.runs.len() <= most,
            "{} runs of {live} rows, expected at most {most}",
            layer.runs.len()
        );
    }
}

#[test]
fn what_lies_over_a_layer_needs_to_know_of_its_own_rows_only() {
    let random = fastrand::Rng::with_seed(3);
    let (expected, stored_gone) = (BTreeMap::new(), BTreeSet::new());
    let mut world = World { random, rows: TableRows::default(), expected, stored_gone, time: 0 };
    let mut below = Layer::new(table(), Arc::default());
    let changed: BTreeSet<_> = (0..300).map(|_| world.change()).collect();
    below.apply(&world.rows, changed).unwrap();
    let before = scanned(&below.view());
    let mut over = below.clone();
    for _ in 0..10 {
        let changed: BTreeSet<_> = (0..20).map(|_| world.change()).collect();
        let mut own = TableRows::default();
        for row in &changed {
            own.insert(*row, world.rows.row(*row).unwrap().clone());
        }
        over.lay_over(&own, changed).unwrap();
        world.check(&over.view());
    }
    assert_eq!(scanned(&below.view()), before, "what lies below does not change");
}

#[test]
fn rows_that_were_flushed_as_gone_stay_gone_beside_those_that_go_later() {
    let flushed = WithheldRows::of([3, 900]).map(Arc::new).unwrap();
    let flushed = Arc::new(BTreeMap::from([(SegmentId(1), Arc::clone(&flushed)), (SegmentId(2), flushed)]));
    let mut layer = Layer::new(table(), flushed);
    let mut rows = TableRows::default();
    let row = RowIdentity::Stored { segment: SegmentId(1), row: 5 };
    let timestamp = Timestamp { time: 1, client: ClientId(1) };
    rows.insert(row, RowVersion { timestamp, value: Value::DELETED });
    layer.apply(&rows, [row]).unwrap();
    let view = layer.view();
    let gone = |segment| view.withheld[&SegmentId(segment)].rows().collect::<Vec<_>>();
    assert_eq!((gone(1), gone(2)), (vec![3, 5, 900], vec![3, 900]));
}

#[test]
fn a_row_that_does_not_fit_its_table_is_named() {
    let mut rows = TableRows::default();
    let row = RowIdentity::Stored { segment: SegmentId(1), row: 5 };
    let timestamp = Timestamp { time: 1, client: ClientId(1) };
    rows.insert(row, RowVersion { timestamp, value: Value::new(b"\x01\x01").unwrap() });
    let error = Layer::new(table(), Arc::default()).apply(&rows, [row]).unwrap_err().to_string();
    assert!(error.starts_with("row 5 of segment 1: "), "{error}");
}
