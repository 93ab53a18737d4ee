//! Tests recovery after random losses of any number of nodes, for stripes over any number of nodes:
//! what is recovered is right, and it is all that can be recovered. Method: for cells that are
//! reported as not recoverable, another stripe with the same surviving cells is constructed.

mod filled;

use filled::{filled, repaired, survivors, xor};
use rackscan_stripe::{Cell, Column, Geometry, Lost};
use std::collections::BTreeSet;

const CASES: usize = 300;

fn any_loss(geometry: &Geometry, random: &mut fastrand::Rng) -> Lost {
    let count = random.usize(1..=geometry.nodes().min(6));
    let columns: Vec<Column> = (0..count).map(|_| Column(random.u8(..=geometry.last_column().0))).collect();
    geometry.lost(&columns).expect("columns of the stripe")
}

#[test]
fn what_comes_back_is_right_and_the_same_for_queries_and_rebuilds() {
    let mut random = fastrand::Rng::with_seed(0x57_0020);
    for case in 0..CASES {
        let geometry = Geometry::new(random.usize(3..=24)).unwrap();
        let lost = any_loss(&geometry, &mut random);
        let bytes = filled(&geometry, random.u64(..));
        let surviving = survivors(&bytes, lost);
        for recovery in [geometry.recovery(lost), geometry.rebuild(lost)] {
            let back = repaired(surviving.clone(), &recovery.repairs);
            assert!(back.iter().all(|(cell, back)| bytes[cell] == *back), "case {case}: {lost:?}");
            let missing: Vec<Cell> = bytes.keys().copied().filter(|cell| !back.contains_key(cell)).collect();
            assert_eq!(recovery.beyond, missing, "case {case}: {lost:?}");
        }
        let degraded = geometry.degraded(lost);
        let beyond = geometry.recovery(lost).beyond;
        for cell in geometry.cells() {
            let sources = degraded.sources(cell).unwrap();
            assert_eq!(sources.is_none(), beyond.contains(&cell));
            assert!(sources.is_none_or(|sources| xor(&surviving, &sources) == bytes[&cell]));
        }
    }
}

#[test]
fn cells_that_are_wanted_come_back_from_what_their_plan_reads_and_a_single_one_from_the_fewest() {
    let mut random = fastrand::Rng::with_seed(0x57_0022);
    for case in 0..CASES {
        let geometry = Geometry::new(random.usize(3..=17)).unwrap();
        let lost = any_loss(&geometry, &mut random);
        let bytes = filled(&geometry, random.u64(..));
        let cells: Vec<Cell> = geometry.cells().collect();
        let count = random.usize(1..=8);
        let wanted: Vec<Cell> = (0..count).map(|_| cells[random.usize(..cells.len())]).collect();
        let plan = geometry.recovery_of(lost, &wanted).unwrap();
        let mut read = survivors(&bytes, lost);
        read.retain(|cell, _| plan.reads.contains(cell));
        assert_eq!(read.len(), plan.reads.len());
        let back = repaired(read, &plan.repairs);
        let degraded = geometry.degraded(lost);
        for cell in wanted.iter().filter(|cell| lost.has(cell.column)) {
            assert_eq!(back.contains_key(cell), !plan.beyond.contains(cell), "case {case}");
            assert_eq!(plan.beyond.contains(cell), degraded.sources(*cell).unwrap().is_none());
            assert!(back.get(cell).is_none_or(|back| *back == bytes[cell]), "case {case}");
            let alone = geometry.recovery_of(lost, &[*cell]).unwrap().reads.len();
            assert_eq!(alone, degraded.sources(*cell).unwrap().map_or(0, |sources| sources.len()));
            assert!(alone <= plan.reads.len() || plan.beyond.contains(cell), "several need no less than one");
        }
        assert!(plan.reads.len() <= geometry.recovery(lost).reads.len().max(1), "nor more than all");
    }
}

#[test]
fn neighbours_on_a_chain_share_it() {
    let geometry = Geometry::new(11).unwrap();
    let lost = geometry.lost(&[Column(0), Column(1)]).unwrap();
    let column: Vec<Cell> = geometry.cells_of(Column(0)).collect();
    let plan = |wanted: &[Cell]| geometry.recovery_of(lost, wanted).unwrap();
    let together = plan(&column);
    let alone: Vec<_> = column.iter().map(|cell| plan(&[*cell])).collect();
    let (reads, xors) =
        alone.iter().fold((0, 0), |sum, plan| (sum.0 + plan.reads.len(), sum.1 + plan.xors()));
    assert!(3 * together.reads.len() < reads, "{} reads together, {reads} one by one", together.reads.len());
    // What one cell's plan gave is XORed into the next one.
    assert!(2 * together.xors() < xors, "{} XORs together, {xors} one by one", together.xors());
}

/// Cells which, all changed by the same bytes, leave every equation as it is and no survivor
/// different: a stripe that has them and one that has not cannot be told apart. All such sets are
/// sums of those that this returns.
fn unseen(geometry: &Geometry, lost: Lost) -> Vec<BTreeSet<Cell>> {
    // Data cells are free; each equation's parity follows. What survives asks for an even number of
    // changed data cells.
    let data: Vec<Cell> = geometry.data().iter().copied().filter(|cell| lost.has(cell.column)).collect();
    let mut asked: Vec<BTreeSet<usize>> = Vec::new();
    for equation in geometry.equations().iter().filter(|equation| !lost.has(equation.parity.column)) {
        asked.push((0..data.len()).filter(|at| equation.data.contains(&data[*at])).collect());
    }
    let mut pivots: Vec<(usize, BTreeSet<usize>)> = Vec::new();
    for mut row in asked {
        for (pivot, other) in &pivots {
            if row.contains(pivot) {
                row = row.symmetric_difference(other).copied().collect();
            }
        }
        let Some(pivot) = row.first().copied() else { continue };
        for (_, other) in &mut pivots {
            if other.contains(&pivot) {
                *other = other.symmetric_difference(&row).copied().collect();
            }
        }
        pivots.push((pivot, row));
    }
    let free = (0..data.len()).filter(|at| pivots.iter().all(|(pivot, _)| pivot != at));
    free.map(|free| {
        let follow = pivots.iter().filter(|(_, row)| row.contains(&free)).map(|(pivot, _)| *pivot);
        let changed: BTreeSet<Cell> = follow.chain([free]).map(|at| data[at]).collect();
        let odd = |cells: &[Cell]| cells.iter().filter(|cell| changed.contains(cell)).count() % 2 == 1;
        let parities = geometry.equations().iter().filter(|equation| odd(&equation.data));
        let parities: Vec<Cell> = parities.map(|equation| equation.parity).collect();
        assert!(parities.iter().all(|parity| lost.has(parity.column)), "no survivor changes");
        changed.iter().copied().chain(parities).collect()
    })
    .collect()
}

#[test]
fn what_is_beyond_recovery_differs_in_two_stripes_that_have_the_same_survivors() {
    let mut random = fastrand::Rng::with_seed(0x57_0021);
    for case in 0..CASES {
        let geometry = Geometry::new(random.usize(3..=20)).unwrap();
        let lost = any_loss(&geometry, &mut random);
        let unseen: BTreeSet<Cell> = unseen(&geometry, lost).into_iter().flatten().collect();
        let beyond: BTreeSet<Cell> = geometry.recovery(lost).beyond.into_iter().collect();
        assert_eq!(beyond, unseen, "case {case}: {} nodes, {lost:?}", geometry.nodes());
    }
}
