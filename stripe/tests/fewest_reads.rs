//! Tests that no plan for a rebuild needs fewer reads than the computed one. Method: all plans are
//! tried. Every way to compute a lost cell is a sum of equations in which no other lost cell
//! remains; there are 2^(rows + diagonals) sums. Every rebuild by single equations uses each data
//! cell's row or its diagonal.

use rackscan_stripe::{Cell, Column, Direction, Equation, Geometry, Lost, Role};

/// The bits of cells that are in any order, but the same for all sets of a geometry.
fn bits(geometry: &Geometry, cells: impl Iterator<Item = Cell>) -> u128 {
    let all: Vec<Cell> = geometry.cells().collect();
    cells
        .map(|cell| 1 << all.binary_search(&cell).expect("there is one"))
        .fold(0, |set: u128, bit: u128| set ^ bit)
}

/// For each loss and each of its cells, the fewest survivors of any sum of equations.
fn fewest(geometry: &Geometry, losses: &[Lost]) -> Vec<Vec<u32>> {
    let cells: Vec<Cell> = geometry.cells().collect();
    let masks: Vec<u128> = losses
        .iter()
        .map(|lost| bits(geometry, cells.iter().copied().filter(|cell| lost.has(cell.column))))
        .collect();
    let equations: Vec<u128> =
        geometry.equations().iter().map(|equation| bits(geometry, equation.cells())).collect();
    let mut fewest = vec![vec![u32::MAX; cells.len()]; losses.len()];
    let mut sum = 0;
    // In the order of a Gray code each sum differs from the one before by one equation.
    for number in 1..1_u32 << equations.len() {
        sum ^= equations[number.trailing_zeros() as usize];
        for (mask, fewest) in masks.iter().zip(&mut fewest) {
            let unknown = sum & mask;
            if unknown.is_power_of_two() {
                let fewest = &mut fewest[unknown.trailing_zeros() as usize];
                *fewest = (*fewest).min(sum.count_ones() - 1);
            }
        }
    }
    fewest
}

fn losses(geometry: &Geometry) -> Vec<Lost> {
    let pairs = geometry.columns().flat_map(|one| geometry.columns().map(move |other| [one, other]));
    pairs
        .filter(|[one, other]| one <= other)
        .map(|pair| geometry.lost(&pair).expect("columns of the stripe"))
        .collect()
}

#[test]
fn no_sum_of_equations_gives_a_lost_cell_of_one_or_two_nodes_with_fewer_reads() {
    for nodes in 3..=10 {
        let geometry = Geometry::new(nodes).unwrap();
        let losses = losses(&geometry);
        for (lost, fewest) in losses.iter().zip(fewest(&geometry, &losses)) {
            let degraded = geometry.degraded(*lost);
            for (cell, fewest) in geometry.cells().zip(fewest).filter(|(cell, _)| lost.has(cell.column)) {
                let sources = degraded.sources(cell).unwrap().unwrap();
                assert_eq!(sources.len(), fewest as usize, "{nodes} nodes, {cell:?} without {lost:?}");
            }
        }
    }
}

#[test]
fn with_one_lost_node_a_query_reads_n_minus_2_cells_or_the_diagonal_if_that_is_shorter() {
    for nodes in 3..=64 {
        let geometry = Geometry::new(nodes).unwrap();
        for column in geometry.columns() {
            let degraded = geometry.degraded(geometry.lost(&[column]).unwrap());
            for cell in geometry.cells_of(column) {
                let having = |equation: &&Equation| equation.cells().any(|other| other == cell);
                let shortest = geometry.equations().iter().filter(having).map(|sum| sum.data.len()).min();
                assert_eq!(degraded.sources(cell).unwrap().map(|sources| sources.len()), shortest);
                if matches!(geometry.role(cell), Ok(Role::Data { .. })) {
                    assert!(shortest <= Some(nodes - 2));
                }
            }
        }
    }
}

/// The fewest reads of any choice of rows and diagonals for the cells of a column.
fn fewest_for_a_column(geometry: &Geometry, column: Column) -> usize {
    let lost = bits(geometry, geometry.cells_of(column));
    let of = |cell: Cell, direction: Direction| {
        let mut along = geometry.equations().iter().filter(|equation| equation.direction == direction);
        let equation = along.find(|equation| equation.cells().any(|other| other == cell))?;
        Some(bits(geometry, equation.cells()))
    };
    let sums: Vec<_> = geometry
        .cells_of(column)
        .map(|cell| [of(cell, Direction::Horizontal), of(cell, Direction::Diagonal)])
        .collect();
    let reads = |choice: u32| {
        let sums = sums.iter().enumerate().map(|(at, [row, diagonal])| {
            let wanted = if choice >> at & 1 == 1 { diagonal } else { row };
            wanted.or(*row).or(*diagonal).expect("there is one")
        });
        (sums.fold(0, |reads, sum| reads | sum) & !lost).count_ones()
    };
    (0..1_u32 << sums.len()).map(reads).min().expect("there is one") as usize
}

#[test]
fn no_choice_of_rows_and_diagonals_rebuilds_a_node_with_fewer_reads() {
    for nodes in 3..=11 {
        let geometry = Geometry::new(nodes).unwrap();
        for column in geometry.columns() {
            let rebuild = geometry.rebuild(geometry.lost(&[column]).unwrap());
            let fewest = fewest_for_a_column(&geometry, column);
            assert_eq!(rebuild.reads.len(), fewest, "{nodes} nodes, column {}", column.0);
        }
    }
}

#[test]
fn a_rebuild_reads_as_many_cells_as_are_written_here() {
    // Averages over the columns, which is over the rotation, in hundredths of a cell per rebuilt
    // cell, for 3 to 17 nodes.
    let averages: Vec<usize> = (3..=17)
        .map(|nodes| {
            let geometry = Geometry::new(nodes).unwrap();
            let rebuilds: Vec<_> =
                geometry.columns().map(|one| geometry.rebuild(geometry.lost(&[one]).unwrap())).collect();
            let reads: usize = rebuilds.iter().map(|rebuild| rebuild.reads.len()).sum();
            let rebuilt: usize = rebuilds.iter().map(|rebuild| rebuild.repairs.len()).sum();
            reads * 100 / rebuilt
        })
        .collect();
    assert_eq!(averages, [100, 153, 240, 287, 385, 393, 483, 576, 681, 724, 830, 818, 915, 1020, 1129]);
}
