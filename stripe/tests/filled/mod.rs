//! Fills stripes with bytes: random data, and parities that this module computes from the
//! equations, without the code under test.

use rackscan_stripe::{Cell, Geometry, Lost, Repair};
use std::collections::BTreeMap;

/// Bytes of a cell.
pub(crate) const CELL_BYTES: usize = 24;

/// The bytes of some cells.
pub(crate) type Bytes = BTreeMap<Cell, Vec<u8>>;

/// A stripe full of random data and its parities.
pub(crate) fn filled(geometry: &Geometry, seed: u64) -> Bytes {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = Bytes::new();
    for cell in geometry.data() {
        bytes.insert(*cell, (0..CELL_BYTES).map(|_| random.u8(..)).collect());
    }
    for equation in geometry.equations() {
        let parity = xor(&bytes, &equation.data);
        bytes.insert(equation.parity, parity);
    }
    bytes
}

/// The XOR of cells that all exist.
pub(crate) fn xor(bytes: &Bytes, cells: &[Cell]) -> Vec<u8> {
    let mut sum = vec![0; CELL_BYTES];
    for cell in cells {
        let other = bytes.get(cell).unwrap_or_else(|| panic!("{cell:?} is not there"));
        sum.iter_mut().zip(other).for_each(|(byte, other)| *byte ^= other);
    }
    sum
}

/// What survives a loss.
pub(crate) fn survivors(bytes: &Bytes, lost: Lost) -> Bytes {
    bytes
        .iter()
        .filter(|(cell, _)| !lost.has(cell.column))
        .map(|(cell, bytes)| (*cell, bytes.clone()))
        .collect()
}

/// Does these repairs, one after the other, with only the cells that exist.
pub(crate) fn repaired(mut bytes: Bytes, repairs: &[Repair]) -> Bytes {
    for repair in repairs {
        let sum = xor(&bytes, &repair.from);
        assert_eq!(bytes.insert(repair.cell, sum), None, "{:?} was there", repair.cell);
    }
    bytes
}
