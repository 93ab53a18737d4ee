//! Defines the errors of drawing a chart and of writing a report.

use std::path::PathBuf;

use crate::limits::{GROUPS_MAX, POINTS_MAX, SERIES_MAX};

/// Why a chart or a report was not made.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// A coordinate is infinite or not a number.
    #[error(
        "chart \"{chart}\", series \"{series}\": point {point} has {what} {value}, expected a finite \
         number: leave the point out or correct it"
    )]
    NotFinite {
        /// The chart's title.
        chart: String,
        /// The series' name.
        series: String,
        /// The index of the point.
        point: usize,
        /// The coordinate.
        what: &'static str,
        /// The value found.
        value: f64,
    },
    /// A coordinate is zero or less on a logarithmic axis.
    #[error(
        "chart \"{chart}\", series \"{series}\": point {point} has {what} {value}, but a logarithmic axis \
         begins above 0: leave the point out or take a linear axis"
    )]
    NotPositive {
        /// The chart's title.
        chart: String,
        /// The series' name.
        series: String,
        /// The index of the point.
        point: usize,
        /// The coordinate.
        what: &'static str,
        /// The value found.
        value: f64,
    },
    /// An error bar does not enclose its point.
    #[error(
        "chart \"{chart}\", series \"{series}\": point {point} is {value}, outside of its error bar from {low} to {high}"
    )]
    OutsideItsBar {
        /// The chart's title.
        chart: String,
        /// The series' name.
        series: String,
        /// The index of the point.
        point: usize,
        /// The point's value.
        value: f64,
        /// The lower end.
        low: f64,
        /// The upper end.
        high: f64,
    },
    /// The `x` of a bar is not the index of a group.
    #[error(
        "chart \"{chart}\", series \"{series}\": point {point} has x {value}, expected the index of a group \
         of bars: a whole number from 0 to {groups} (exclusive)"
    )]
    NoSuchGroup {
        /// The chart's title.
        chart: String,
        /// The series' name.
        series: String,
        /// The index of the point.
        point: usize,
        /// The value found.
        value: f64,
        /// The number of groups.
        groups: usize,
    },
    /// A series is too long.
    #[error(
        "chart \"{chart}\", series \"{series}\" has {found} points, at most {POINTS_MAX} are drawn: leave some out"
    )]
    TooManyPoints {
        /// The chart's title.
        chart: String,
        /// The series' name.
        series: String,
        /// The number found.
        found: usize,
    },
    /// There are too many series.
    #[error(
        "chart \"{chart}\" has {found} series, at most {SERIES_MAX} can be told apart: make several charts"
    )]
    TooManySeries {
        /// The chart's title.
        chart: String,
        /// The number found.
        found: usize,
    },
    /// There are too many groups of bars.
    #[error(
        "chart \"{chart}\" has {found} groups of bars, at most {GROUPS_MAX} can be read: make several charts"
    )]
    TooManyGroups {
        /// The chart's title.
        chart: String,
        /// The number found.
        found: usize,
    },
    /// The picture could not be painted as PNG.
    #[error("chart \"{chart}\" could not be drawn as PNG: {reason}")]
    Raster {
        /// The chart's title.
        chart: String,
        /// The error of the library.
        reason: String,
    },
    /// A figure's name cannot be used as a file name.
    #[error(
        "figure name {name:?} cannot name a file: use 1 to 100 of the characters a-z, 0-9, '-', '_' and '.', \
         the first a letter or a digit"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// Two figures have the same name.
    #[error("figure name {name:?} is used twice in one report: one picture would replace the other")]
    NameTwice {
        /// The name.
        name: String,
    },
    /// A row of a table does not fit its head.
    #[error("section \"{section}\": row {row} of a table has {found} cells, its head has {expected}")]
    RaggedTable {
        /// The section's heading.
        section: String,
        /// The index of the row.
        row: usize,
        /// The number of cells of the row.
        found: usize,
        /// The number of cells of the head.
        expected: usize,
    },
    /// A file of the report could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}
