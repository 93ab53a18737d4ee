//! Draws charts of measurements and writes reports, for paper and for a browser.
//!
//! ```text
//! Chart    points, axes, kind  -> svg()  one picture as text
//!                              -> png()  the same picture as pixels
//! Report   sections of words, tables and charts, and the points behind them
//!                              -> write() a folder: index.html, figures/*.svg, figures/*.png, points.jsonl
//! ```
//!
//! The crate measures nothing and does not know what the numbers mean.
//!
//! | file | contents |
//! |---|---|
//! | `chart` | the chart as data, and its checks |
//! | `picture` | `Chart::svg` and `Chart::png` |
//! | `axis`, `marks` | ranges and ticks of axes; colours, shapes and dashes of series |
//! | `draw`, `scene` | lays a chart out as a list of shapes; the shapes |
//! | `svg`, `png` | writes and paints shapes |
//! | `report`, `page`, `folder` | the report as data, its HTML page, its folder |
//! | `escape`, `error`, `limits` | escaping of text; errors; all bounds |
//!
//! Invariants
//! - The same chart gives the same text on every machine: the text depends on no clock, random
//!   number or installed font.
//! - Text and names from the caller cannot become markup or paths outside of the report's folder:
//!   text is escaped, and file names are checked.
//! - A value that cannot be drawn on its axis is refused with an error that names its series and
//!   its index; it is never dropped silently.
//! - The page needs no network and no script.

#![forbid(unsafe_code)]

mod axis;
mod chart;
mod draw;
mod error;
mod escape;
mod folder;
mod limits;
mod marks;
mod page;
mod picture;
mod png;
mod report;
mod scene;
mod svg;

pub use chart::{Axis, Chart, Kind, Point, Scale, Series, Ticks};
pub use error::FigureError;
pub use limits::{GROUPS_MAX, POINTS_MAX, SERIES_MAX};
pub use report::{Figure, Report, Section, Table};
