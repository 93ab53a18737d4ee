//! Describes the figures of the four papers as data, and draws ours beside their numbers.
//!
//! ```text
//! PAPER.toml        its figures: commands, axes, curves, and the numbers that its text states
//!  | catalog        parsed and checked
//! Paper
//!  | commands       run by the caller; each appends JSON lines to a file of its own
//! points            one JSON object per line
//!  | page
//! Report            our curves, a table and bars of the paper's numbers beside ours, the finding
//! ```
//!
//! Invariants
//! - The numbers of a paper are only those that its text or tables state, or ratios of two of them.
//!   Each is compared with a number that was measured by the command that the page names.
//! - A figure that has no points, and an experiment without lines, are named on the page.

mod catalog;
mod page;
mod points;

pub use catalog::{CatalogError, Paper, PaperFigure, Step, StepOptions, papers};
pub use page::{Measured, paper_report};
pub use points::{PointError, Points};
