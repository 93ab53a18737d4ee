//! How are measurements shown, on paper and in a browser?
//!
//! ```text
//! Chart    points, axes, kind  -> svg()  one picture as text
//!                              -> png()  the same picture as pixels
//! Report   sections of words, tables and charts, and the points behind them
//!                              -> write() a folder: index.html, figures/*.svg, figures/*.png, points.jsonl
//! ```
//!
//! Invariants
//! - The same chart gives the same text, on every machine: no clock, no random number and no
//!   installed font is asked.
//! - Nothing that a caller names can leave its place: text is escaped, file names are checked.
//! - A value that has no place on its axis is refused with its series and its index, never dropped.
//! - The page needs no network and no script.

#![forbid(unsafe_code)]

mod axis;
mod chart;
mod draw;
mod error;
mod escape;
mod limits;
mod marks;
mod page;
mod png;
mod report;
mod scene;
mod svg;

pub use chart::{Axis, Chart, Kind, Point, Scale, Series, Ticks};
pub use error::FigureError;
pub use limits::{GROUPS_MAX, POINTS_MAX, SERIES_MAX};
pub use report::{Figure, Report, Section, Table};
