//! Tests that all cells are recovered after the loss of any one or two nodes. Method: every loss
//! for 3 to 17 nodes, on random bytes: parities are computed from the layout, the lost cells are
//! discarded, the plan is carried out, and all cells are compared.

mod filled;

use filled::{filled, repaired, survivors, xor};
use rackscan_stripe::{Column, Geometry, Lost, Node};

/// Every loss of one or two columns.
fn losses(geometry: &Geometry) -> Vec<Lost> {
    let pairs = geometry.columns().flat_map(|one| geometry.columns().map(move |other| [one, other]));
    pairs
        .filter(|[one, other]| one <= other)
        .map(|pair| geometry.lost(&pair).expect("columns of the stripe"))
        .collect()
}

fn geometries() -> impl Iterator<Item = Geometry> {
    (3..=17).map(|nodes| Geometry::new(nodes).expect("a number of nodes"))
}

#[test]
fn all_cells_of_one_or_two_lost_nodes_come_back() {
    for geometry in geometries() {
        let bytes = filled(&geometry, 0x57_0001 + geometry.nodes() as u64);
        let losses = losses(&geometry);
        assert_eq!(losses.len(), geometry.nodes() * (geometry.nodes() + 1) / 2);
        for lost in losses {
            let recovery = geometry.recovery(lost);
            assert_eq!(recovery.beyond, []);
            assert_eq!(repaired(survivors(&bytes, lost), &recovery.repairs), bytes, "{lost:?}");
        }
    }
}

#[test]
fn a_rebuild_gives_all_cells_and_reads_what_it_says() {
    for geometry in geometries() {
        let bytes = filled(&geometry, 0x57_0002 + geometry.nodes() as u64);
        for lost in losses(&geometry) {
            let rebuild = geometry.rebuild(lost);
            assert_eq!(rebuild.beyond, []);
            let mut read = survivors(&bytes, lost);
            read.retain(|cell, _| rebuild.reads.contains(cell));
            assert_eq!(read.len(), rebuild.reads.len(), "each is a survivor and counted once");
            let rebuilt = repaired(read, &rebuild.repairs);
            let expected = bytes.iter().filter(|(cell, _)| lost.has(cell.column));
            assert!(expected.clone().all(|(cell, bytes)| rebuilt.get(cell) == Some(bytes)), "{lost:?}");
            assert_eq!(rebuild.repairs.len(), expected.count());
        }
    }
}

#[test]
fn every_single_cell_is_the_xor_of_the_survivors_that_a_query_reads() {
    for geometry in geometries() {
        let bytes = filled(&geometry, 0x57_0003 + geometry.nodes() as u64);
        for lost in losses(&geometry) {
            let surviving = survivors(&bytes, lost);
            let degraded = geometry.degraded(lost);
            for (cell, expected) in &bytes {
                let sources = degraded.sources(*cell).unwrap().unwrap();
                assert_eq!(xor(&surviving, &sources), *expected, "{cell:?} without {lost:?}");
                assert!(lost.has(cell.column) || sources == [*cell]);
            }
        }
    }
}

#[test]
fn any_two_of_64_nodes_may_be_lost() {
    let geometry = Geometry::new(64).unwrap();
    for lost in losses(&geometry) {
        assert_eq!(geometry.recovery(lost).beyond, []);
    }
}

#[test]
fn a_lost_node_is_another_column_in_each_stripe() {
    let geometry = Geometry::new(6).unwrap();
    for stripe in 0..6_u8 {
        let lost = geometry.lost_with(u64::from(stripe), &[Node(2), Node(3), Node(2)]).unwrap();
        let mut expected = [(8 - stripe) % 6, (9 - stripe) % 6].map(Column);
        expected.sort_unstable();
        assert_eq!(lost.columns().collect::<Vec<_>>(), expected);
        assert_eq!(lost.count(), 2);
    }
}
