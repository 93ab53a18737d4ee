//! Defines the bounds of stripes: numbers of nodes, cells and lost nodes.

/// The minimum number of nodes of a stripe with two parities: one for data, two for parities.
pub const NODES_MIN: usize = 3;

/// The minimum number of nodes of a stripe with one parity: one for data, one for the parity.
pub const XOR_NODES_MIN: usize = 2;

/// The maximum number of nodes of a stripe.
pub const NODES_MAX: usize = 64;

/// The smallest prime that is not below [`NODES_MAX`]: no stripe has a larger grid.
pub const PRIME_MAX: usize = 67;

/// The maximum number of cells of a stripe.
pub const CELLS_MAX: usize = (NODES_MAX - 1) * (NODES_MAX - 1) + PRIME_MAX - 1;

/// The number of nodes that may be lost at once without loss of data, with two parities.
pub const LOST_MAX: usize = 2;

/// The number of nodes that may be lost at once without loss of data, with one parity.
pub const XOR_LOST_MAX: usize = 1;

/// The maximum number of independent sums of equations that contain no cell of two lost columns:
/// the widest gap between a number of nodes and its prime.
pub const IDLE_MAX: usize = 5;

// A set of columns is one word.
const _: () = assert!(NODES_MAX <= u64::BITS as usize);
// Columns, rows and diagonals are counted in bytes, cells and steps in two.
const _: () = assert!(PRIME_MAX <= u8::MAX as usize);
const _: () = assert!(4 * CELLS_MAX <= u16::MAX as usize);
const _: () = assert!(NODES_MIN > LOST_MAX && XOR_NODES_MIN > XOR_LOST_MAX);
