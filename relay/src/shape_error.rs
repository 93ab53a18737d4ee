//! Defines the errors for parameters of a session that are not possible.

use rackscan_stripe::StripeError;

use crate::limits::{
    CELL_BYTES_MAX, LANES_MAX, RINGS_MAX, SECTOR_BYTES, SLICE_BYTES_MAX, SLICES_MAX, SLOTS_MAX,
};

/// Why a session cannot have this shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// There are no stripes over so many nodes.
    #[error(transparent)]
    Stripe(#[from] StripeError),
    /// Slices are not whole sectors, or too long.
    #[error(
        "the slice length is {found} bytes, expected a multiple of {SECTOR_BYTES} up to {SLICE_BYTES_MAX}"
    )]
    Slice {
        /// What was asked for.
        found: usize,
    },
    /// Cells are not whole sectors, too long, or of too many slices.
    #[error(
        "the cell length is {found} bytes, expected a multiple of {SECTOR_BYTES} up to {CELL_BYTES_MAX}, and at most {SLICES_MAX} slices"
    )]
    Cell {
        /// What was asked for.
        found: u64,
    },
    /// No lanes, or too many.
    #[error("the number of lanes (stripes in progress at a time) is {found}, expected 1 to {LANES_MAX}")]
    Lanes {
        /// What was asked for.
        found: usize,
    },
    /// No slots, or too many.
    #[error("the number of slots of each ring is {found}, expected 1 to {SLOTS_MAX}")]
    Slots {
        /// What was asked for.
        found: usize,
    },
    /// A rebuild without a member whose cells are lost.
    #[error("the rebuild names no node whose cells are lost: name at least one")]
    NothingLost,
    /// No schedule is known by which so many nodes compute parities without the client.
    #[error(
        "{nodes} nodes cannot compute parities among themselves: no schedule for so many nodes is known; \
         have the client compute them"
    )]
    NoRelay {
        /// How many.
        nodes: usize,
    },
    /// More rings than a link can have.
    #[error(
        "the session needs {found} rings between two places, expected at most {RINGS_MAX}: ask for fewer lanes"
    )]
    Rings {
        /// What was asked for.
        found: usize,
    },
}
