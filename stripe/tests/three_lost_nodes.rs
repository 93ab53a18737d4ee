//! Tests how many cells are recovered when three nodes are lost. Method: every loss for 3 to 17
//! nodes. The recovery is carried out on random bytes. The expected number was computed once by
//! another program (elimination over all equations), and is written down here.

mod filled;

use filled::{filled, repaired, survivors, xor};
use rackscan_stripe::{Column, Geometry, Lost, Role};

/// Nodes; losses of three; those of which everything is recovered; lost cells, and recovered ones;
/// lost data cells, and recovered ones.
type Share = (usize, usize, usize, usize, usize, usize, usize);

/// No loss is recovered completely: three columns of data and parity are more than the others
/// determine. With a prime number of nodes nothing is recovered at all.
const SHARES: [Share; 15] = [
    (3, 1, 0, 6, 0, 2, 0),
    (4, 4, 0, 39, 4, 18, 2),
    (5, 10, 0, 120, 0, 72, 0),
    (6, 20, 0, 310, 16, 200, 12),
    (7, 35, 0, 630, 0, 450, 0),
    (8, 56, 0, 1239, 142, 882, 110),
    (9, 84, 0, 2072, 130, 1568, 110),
    (10, 120, 0, 3276, 64, 2592, 56),
    (11, 165, 0, 4950, 0, 4050, 0),
    (12, 220, 0, 7315, 100, 6050, 90),
    (13, 286, 0, 10296, 0, 8712, 0),
    (14, 364, 0, 14430, 718, 12168, 650),
    (15, 455, 0, 19292, 478, 16562, 440),
    (16, 560, 0, 25305, 196, 22050, 182),
    (17, 680, 0, 32640, 0, 28800, 0),
];

fn losses(geometry: &Geometry) -> Vec<Lost> {
    let columns: Vec<Column> = geometry.columns().collect();
    let mut losses = Vec::new();
    for (one, first) in columns.iter().enumerate() {
        for (two, second) in columns.iter().enumerate().skip(one + 1) {
            let third = columns[two + 1..].iter();
            losses.extend(
                third.map(|third| geometry.lost(&[*first, *second, *third]).expect("columns of the stripe")),
            );
        }
    }
    losses
}

fn share(geometry: &Geometry) -> Share {
    let bytes = filled(geometry, 0x57_0004 + geometry.nodes() as u64);
    let data = |cell: &_| matches!(geometry.role(*cell), Ok(Role::Data { .. }));
    let losses = losses(geometry);
    let mut share = (geometry.nodes(), losses.len(), 0, 0, 0, 0, 0);
    for lost in losses {
        let recovery = geometry.recovery(lost);
        let surviving = survivors(&bytes, lost);
        let back = repaired(surviving.clone(), &recovery.repairs);
        assert!(back.iter().all(|(cell, back)| bytes[cell] == *back));
        assert_eq!(back.len() + recovery.beyond.len(), bytes.len());
        let degraded = geometry.degraded(lost);
        for (cell, expected) in bytes.iter().filter(|(cell, _)| lost.has(cell.column)) {
            let sources = degraded.sources(*cell).expect("a cell of the stripe");
            assert_eq!(sources.is_none(), recovery.beyond.contains(cell), "a query gets what a rebuild gets");
            assert!(sources.is_none_or(|sources| xor(&surviving, &sources) == *expected));
            share.3 += 1;
            share.4 += usize::from(back.contains_key(cell));
            share.5 += usize::from(data(cell));
            share.6 += usize::from(data(cell) && back.contains_key(cell));
        }
        share.2 += usize::from(recovery.beyond.is_empty());
    }
    share
}

#[test]
fn of_three_lost_nodes_comes_back_what_is_written_here() {
    println!("nodes losses whole  cells   back   data   back  share of data");
    let mut found = Vec::new();
    for nodes in 3..=17 {
        let share = share(&Geometry::new(nodes).unwrap());
        let (nodes, losses, whole, cells, back, data, data_back) = share;
        let percent = 100.0 * data_back as f64 / data as f64;
        println!("{nodes:5} {losses:6} {whole:5} {cells:6} {back:6} {data:6} {data_back:6} {percent:6.2} %");
        found.push(share);
    }
    assert_eq!(found, SHARES);
}

#[test]
fn what_sums_of_several_equations_give_comes_back_too() {
    let geometry = Geometry::new(8).unwrap();
    let by_several = losses(&geometry).into_iter().filter(|lost| {
        let mut known = survivors(&filled(&geometry, 1), *lost);
        let mut more = true;
        while more {
            let before = known.len();
            for equation in geometry.equations() {
                let unknown: Vec<_> = equation.cells().filter(|cell| !known.contains_key(cell)).collect();
                if let [single] = unknown[..] {
                    known.insert(single, Vec::new());
                }
            }
            more = known.len() > before;
        }
        geometry.recovery(*lost).beyond.len() < geometry.cells().count() - known.len()
    });
    assert_eq!(by_several.count(), 1);
}
