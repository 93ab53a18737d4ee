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
//!
//! An example: a chart becomes a part of a report; a value without a place on its axis is refused.
//!
//! ```
//! use rackscan_figures::{Axis, Chart, Figure, FigureError, Kind, Report, Scale, Section, Series};
//!
//! let reads = Series::new("io_uring", [(1.0, 9e3), (8.0, 6e4), (64.0, 8.5e4)]);
//! let mut chart = Chart {
//!     title: "Reads of 4 KiB".to_owned(),
//!     kind: Kind::Lines,
//!     x: Axis::new("reads in flight", Scale::Log2),
//!     y: Axis::new("reads per second", Scale::Linear),
//!     series: vec![reads],
//! };
//! assert!(chart.svg()?.contains("reads in flight"));
//!
//! let (name, caption) = ("reads".to_owned(), "More in flight, more per second.".to_owned());
//! let figures = vec![Figure { name, caption, chart: chart.clone() }];
//! let sections = vec![Section { heading: "Depth".to_owned(), figures, ..Section::default() }];
//! let (report, folder) = (Report { sections, ..Report::default() }, tempfile::tempdir()?);
//! assert_eq!(report.write(folder.path())?, folder.path().join("index.html"));
//! assert!(folder.path().join("figures/reads.png").exists());
//!
//! chart.series.push(Series::new("none in flight", [(0.0, 1.0)]));
//! assert!(matches!(chart.svg(), Err(FigureError::NotPositive { what: "x", point: 0, .. })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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

pub use axis::size_name;
pub use chart::{Axis, Chart, Kind, Point, Scale, Series, Ticks};
pub use error::FigureError;
pub use limits::{CRUSHED, GROUPS_MAX, POINTS_MAX, SERIES_MAX};
pub use report::{Figure, Report, Section, Table};
