//! Tests the invariants of the layout for every number of nodes. Method: all cells of each layout
//! are checked.

use rackscan_stripe::{
    Cell, Column, Direction, Geometry, Node, Parity, Role, StripeError,
    limits::{IDLE_MAX, NODES_MAX, NODES_MIN},
};
use std::collections::BTreeSet;

fn geometries() -> impl Iterator<Item = Geometry> {
    (NODES_MIN..=NODES_MAX).map(|nodes| Geometry::new(nodes).expect("a number of nodes"))
}

#[test]
fn each_data_cell_is_in_one_row_and_one_diagonal_and_each_parity_in_its_own() {
    for geometry in geometries() {
        for cell in geometry.cells() {
            let of = |direction: Direction| {
                let along = geometry.equations().iter().filter(|equation| equation.direction == direction);
                along.filter(|equation| equation.cells().any(|other| other == cell)).count()
            };
            let expected = match geometry.role(cell).unwrap() {
                Role::Data { .. } => (1, 1),
                Role::HorizontalParity { .. } => (1, 0),
                Role::DiagonalParity { .. } => (0, 1),
            };
            assert_eq!((of(Direction::Horizontal), of(Direction::Diagonal)), expected, "{cell:?}");
        }
    }
}

#[test]
fn an_equation_has_at_most_one_cell_in_each_column_and_a_parity_of_its_own() {
    for geometry in geometries() {
        let mut parities = BTreeSet::new();
        for equation in geometry.equations() {
            let columns: BTreeSet<Column> = equation.cells().map(|cell| cell.column).collect();
            assert_eq!(columns.len(), equation.cells().count());
            assert!(!equation.data.is_empty() && parities.insert(equation.parity));
        }
    }
}

#[test]
fn every_column_but_the_last_has_one_horizontal_parity() {
    for geometry in geometries() {
        for column in geometry.columns() {
            let parity = |cell: &Cell| matches!(geometry.role(*cell).unwrap(), Role::HorizontalParity { .. });
            let expected = usize::from(column != geometry.last_column());
            assert_eq!(geometry.cells_of(column).filter(parity).count(), expected);
        }
    }
}

#[test]
fn the_clients_bytes_fill_the_data_cells_row_by_row() {
    for geometry in geometries() {
        assert_eq!(geometry.data().len(), (geometry.nodes() - 1) * (geometry.nodes() - 2));
        let places: Vec<(u8, Column)> = geometry.data().iter().map(|cell| (cell.slot, cell.column)).collect();
        assert!(places.is_sorted());
        for (ordinal, cell) in (0..).zip(geometry.data()) {
            assert_eq!(geometry.role(*cell), Ok(Role::Data { ordinal }));
        }
    }
}

#[test]
fn storage_is_the_least_possible_for_primes_and_at_most_8_4_percent_above_it_otherwise() {
    let above: Vec<f64> = geometries()
        .map(|geometry| {
            let nodes = geometry.nodes() as f64;
            geometry.stored_per_data() / (nodes / (nodes - 2.0)) - 1.0
        })
        .collect();
    for (nodes, above) in (NODES_MIN..).zip(&above) {
        let is_prime = (2..nodes).all(|divisor: usize| !nodes.is_multiple_of(divisor));
        assert_eq!(is_prime, *above < 1e-9, "{nodes} nodes: {above}");
        assert!((-1e-9..=0.084).contains(above), "{nodes} nodes: {above}");
    }
    // In thousandths, for 3 to 17 nodes.
    let found: Vec<String> = above.iter().take(15).map(|above| format!("{:.0}", above * 1000.0)).collect();
    assert_eq!(found.join(" "), "0 83 0 33 0 54 28 11 0 8 0 16 10 4 0");
}

#[test]
fn the_gap_to_the_next_prime_is_within_its_limit() {
    let gaps = geometries().map(|geometry| geometry.diagonals() - geometry.rows());
    assert_eq!(gaps.max(), Some(IDLE_MAX));
}

#[test]
fn over_n_stripes_each_node_has_each_column_once() {
    for geometry in geometries() {
        let stripes = geometry.nodes() as u64;
        let first = u64::MAX - stripes;
        for node in (0..=geometry.last_column().0).map(Node) {
            let columns: BTreeSet<Column> =
                (first..first + stripes).map(|stripe| geometry.column_of(stripe, node).unwrap()).collect();
            assert_eq!(columns.len(), geometry.nodes());
            for (stripe, column) in columns.iter().flat_map(|column| (0..stripes).map(move |s| (s, *column)))
            {
                let owner = geometry.node_of(stripe, column).unwrap();
                assert_eq!(geometry.column_of(stripe, owner), Ok(column));
            }
        }
    }
}

#[test]
fn what_a_stripe_does_not_have_is_named() {
    for (nodes, parity) in [(2, Parity::TwoD), (65, Parity::TwoD), (1, Parity::Xor), (65, Parity::Xor)] {
        let error = Geometry::with_parity(nodes, parity).unwrap_err();
        assert_eq!(error, StripeError::Nodes { parity, found: nodes });
        assert!(error.to_string().contains(&format!("{} to 64 nodes, found {nodes}", parity.nodes_min())));
    }
    let geometry = Geometry::new(4).unwrap();
    let beyond = Cell { column: Column(2), slot: 3 };
    let nowhere = Cell { column: Column(200), slot: 0 };
    for (cell, slots) in [(beyond, 3), (nowhere, 0)] {
        let error = StripeError::NoSuchCell { cell, nodes: 4, slots };
        assert_eq!(geometry.role(cell), Err(error.clone()));
        assert_eq!(geometry.degraded(rackscan_stripe::Lost::NONE).sources(cell), Err(error));
    }
    assert!(geometry.lost(&[Column(4)]).unwrap_err().to_string().contains("columns 0 to 3, but column 4"));
    assert!(geometry.lost_with(1, &[Node(4)]).unwrap_err().to_string().contains("nodes 0 to 3, but node 4"));
    assert!(geometry.node_of(0, Column(64)).is_err());
}
