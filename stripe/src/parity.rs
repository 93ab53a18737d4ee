//! What protects a stripe: one parity or two?
//!
//! Invariants
//! - The names are those that people write: `xor`, `2d-xor`.

use crate::limits::{LOST_MAX, NODES_MIN, XOR_LOST_MAX, XOR_NODES_MIN};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// Which parities a stripe has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Parity {
    /// One row of cells and their XOR: any one node may be lost. Of two nodes it is a copy.
    #[serde(rename = "xor")]
    Xor,
    /// Rows and diagonals, each with its XOR: any two nodes may be lost.
    #[serde(rename = "2d-xor")]
    TwoD,
}

impl Parity {
    /// The fewest nodes of a stripe.
    #[must_use]
    pub fn nodes_min(self) -> usize {
        match self {
            Self::Xor => XOR_NODES_MIN,
            Self::TwoD => NODES_MIN,
        }
    }

    /// How many nodes may be lost at once without losing anything.
    #[must_use]
    pub fn lost_max(self) -> usize {
        match self {
            Self::Xor => XOR_LOST_MAX,
            Self::TwoD => LOST_MAX,
        }
    }
}

impl Display for Parity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Xor => "xor",
            Self::TwoD => "2d-xor",
        })
    }
}
