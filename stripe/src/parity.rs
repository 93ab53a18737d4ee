//! Defines the kinds of parity that protect a stripe.
//!
//! Invariant: the names of the kinds are those of the command line: `xor`, `2d-xor`.

use crate::limits::{LOST_MAX, NODES_MIN, XOR_LOST_MAX, XOR_NODES_MIN};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// The parity of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Parity {
    /// One row of cells and their XOR: any one node may be lost. Over two nodes the parity is a
    /// copy.
    #[serde(rename = "xor")]
    Xor,
    /// Rows and diagonals, each with its XOR: any two nodes may be lost.
    #[serde(rename = "2d-xor")]
    TwoD,
}

impl Parity {
    /// The minimum number of nodes of a stripe.
    #[must_use]
    pub fn nodes_min(self) -> usize {
        match self {
            Self::Xor => XOR_NODES_MIN,
            Self::TwoD => NODES_MIN,
        }
    }

    /// The number of nodes that may be lost at once without loss of data.
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
