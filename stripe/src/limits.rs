//! How large may a stripe be?

/// The fewest nodes of a stripe with two parities: one for data, two for parities.
pub const NODES_MIN: usize = 3;

/// The fewest nodes of a stripe with one parity: one for data, one for the parity.
pub const XOR_NODES_MIN: usize = 2;

/// The most nodes of a stripe.
pub const NODES_MAX: usize = 64;

/// The smallest prime that is not below [`NODES_MAX`]: no stripe has a larger grid.
pub const PRIME_MAX: usize = 67;

/// The most cells of a stripe.
pub const CELLS_MAX: usize = (NODES_MAX - 1) * (NODES_MAX - 1) + PRIME_MAX - 1;

/// How many nodes may be lost at once without losing anything, with two parities.
pub const LOST_MAX: usize = 2;

/// How many nodes may be lost at once without losing anything, with one parity.
pub const XOR_LOST_MAX: usize = 1;

/// The most sums of equations that say nothing of two lost columns: the widest gap between a number
/// of nodes and its prime.
pub const IDLE_MAX: usize = 5;

// A set of columns is one word.
const _: () = assert!(NODES_MAX <= u64::BITS as usize);
// Columns, rows and diagonals are counted in bytes, cells and steps in two.
const _: () = assert!(PRIME_MAX <= u8::MAX as usize);
const _: () = assert!(4 * CELLS_MAX <= u16::MAX as usize);
const _: () = assert!(NODES_MIN > LOST_MAX && XOR_NODES_MIN > XOR_LOST_MAX);
