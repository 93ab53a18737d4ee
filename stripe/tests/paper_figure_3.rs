//! Tests that the stripe over five nodes is the one of the paper on redundant writes. Goal: figure
//! 3 and its text, cell by cell. Method: the figure's letters are written down here and compared
//! with the equations.

use rackscan_stripe::{Cell, Column, Geometry, Node, Role};

/// The figure: rows from top to bottom, nodes from left to right.
const FIGURE: [[&str; 5]; 4] = [
    ["A", "B", "C", "A+B+C", "F+H+J"],
    ["D", "E", "D+E+F", "F", "I+K+A"],
    ["G", "G+H+I", "H", "I", "L+B+D"],
    ["J+K+L", "J", "K", "L", "C+E+G"],
];

fn cell(column: usize, slot: usize) -> Cell {
    Cell {
        column: Column(u8::try_from(column).expect("a small number")),
        slot: u8::try_from(slot).expect("a small number"),
    }
}

/// The letters of a cell, sorted.
fn letters(geometry: &Geometry, cell: Cell) -> String {
    let letter = |data: Cell| match geometry.role(data).expect("a cell of the stripe") {
        Role::Data { ordinal } => char::from(b'A' + u8::try_from(ordinal).expect("a small number")),
        other => panic!("{data:?} is {other:?}"),
    };
    let mut letters: Vec<char> = match geometry.equations().iter().find(|equation| equation.parity == cell) {
        Some(equation) => equation.data.iter().copied().map(letter).collect(),
        None => vec![letter(cell)],
    };
    letters.sort_unstable();
    letters.into_iter().collect()
}

#[test]
fn five_nodes_store_what_figure_3_shows() {
    let geometry = Geometry::new(5).unwrap();
    assert_eq!(geometry.cells().count(), 20);
    for (slot, row) in FIGURE.iter().enumerate() {
        for (column, expected) in row.iter().enumerate() {
            let mut expected: Vec<char> = expected.chars().filter(|c| *c != '+').collect();
            expected.sort_unstable();
            assert_eq!(letters(&geometry, cell(column, slot)), expected.into_iter().collect::<String>());
            assert_eq!(
                geometry.node_of(0, cell(column, slot).column),
                Ok(Node(u8::try_from(column).unwrap()))
            );
        }
    }
}

#[test]
fn with_nodes_1_and_2_lost_b_comes_from_d_l_and_their_diagonal_and_c_from_its_row() {
    let geometry = Geometry::new(5).unwrap();
    let lost = geometry.lost_with(0, &[Node(1), Node(2)]).unwrap();
    let repairs = geometry.recovery(lost).repairs;
    let from = |wanted: Cell| {
        let mut from = repairs.iter().find(|repair| repair.cell == wanted).unwrap().from.clone();
        from.sort_unstable();
        from
    };
    let (a, b, c, d, l) = (cell(0, 0), cell(1, 0), cell(2, 0), cell(0, 1), cell(3, 3));
    assert_eq!(from(b), [d, l, cell(4, 2)], "D, L and L+B+D");
    assert_eq!(from(c), [a, b, cell(3, 0)], "A, B and A+B+C");
}
