//! Defines a chart as data, and checks whether it can be drawn.

use crate::error::FigureError;
use crate::limits::{GROUPS_MAX, POINTS_MAX, SERIES_MAX};

/// A chart of some series of points.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// The title of the picture.
    pub title: String,
    /// How points become marks.
    pub kind: Kind,
    /// The axis at the bottom. Bars ignore its scale: their groups stand side by side.
    pub x: Axis,
    /// The axis at the left.
    pub y: Axis,
    /// The series; their order determines colours and shapes.
    pub series: Vec<Series>,
}

/// How points become marks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Points, joined by lines in the given order.
    Lines,
    /// Points without lines.
    Scatter,
    /// A bar for each point. Its `x` is the index of one of these groups.
    Bars(Vec<String>),
}

/// One axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// The measured quantity, with its unit.
    pub label: String,
    /// How values map to positions.
    pub scale: Scale,
    /// How its ticks are labelled.
    pub ticks: Ticks,
}

impl Axis {
    /// An axis whose ticks are labelled with plain numbers.
    #[must_use]
    pub fn new(label: impl Into<String>, scale: Scale) -> Self {
        Self { label: label.into(), scale, ticks: Ticks::Numbers }
    }

    /// An axis of sizes, whose ticks are labelled 512 B, 4 KiB, 1 MiB.
    #[must_use]
    pub fn of_bytes(label: impl Into<String>, scale: Scale) -> Self {
        Self { label: label.into(), scale, ticks: Ticks::Bytes }
    }
}

/// How values map to positions on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equally far apart.
    Linear,
    /// Equal ratios are equally far apart; ticks at powers of two.
    Log2,
    /// Equal ratios are equally far apart; ticks at powers of ten.
    Log10,
}

/// How the ticks of an axis are labelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ticks {
    /// 0.5, 20, 1.5k, 3M.
    Numbers,
    /// 512 B, 4 KiB, 1 MiB.
    Bytes,
}

/// A named list of points.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points.
    pub points: Vec<Point>,
}

impl Series {
    /// A series without error bars.
    #[must_use]
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let points = points.into_iter().map(|(x, y)| Point { x, y, bar: None }).collect();
        Self { name: name.into(), points }
    }
}

/// One point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The value on the axis at the bottom.
    pub x: f64,
    /// The value on the axis at the left.
    pub y: f64,
    /// The lower and upper end of its error bar.
    pub bar: Option<(f64, f64)>,
}

impl Chart {
    /// Checks that every value has a place on its axis and that nothing exceeds the limits.
    pub(crate) fn check(&self) -> Result<(), FigureError> {
        let chart = || self.title.clone();
        if self.series.len() > SERIES_MAX {
            return Err(FigureError::TooManySeries { chart: chart(), found: self.series.len() });
        }
        if let Kind::Bars(groups) = &self.kind
            && groups.len() > GROUPS_MAX
        {
            return Err(FigureError::TooManyGroups { chart: chart(), found: groups.len() });
        }
        for series in &self.series {
            let found = series.points.len();
            if found > POINTS_MAX {
                return Err(FigureError::TooManyPoints {
                    chart: chart(),
                    series: series.name.clone(),
                    found,
                });
            }
            for (at, point) in series.points.iter().enumerate() {
                self.check_point(series, at, point)?;
            }
        }
        Ok(())
    }

    fn check_point(&self, series: &Series, at: usize, point: &Point) -> Result<(), FigureError> {
        let (chart, series) = (|| self.title.clone(), || series.name.clone());
        let (low, high) = point.bar.unwrap_or((point.y, point.y));
        let x_scale = if matches!(self.kind, Kind::Bars(_)) { Scale::Linear } else { self.x.scale };
        let parts = [
            ("x", point.x, x_scale),
            ("y", point.y, self.y.scale),
            ("a bar from", low, self.y.scale),
            ("a bar to", high, self.y.scale),
        ];
        for (what, value, scale) in parts {
            if !value.is_finite() {
                return Err(FigureError::NotFinite {
                    chart: chart(),
                    series: series(),
                    point: at,
                    what,
                    value,
                });
            }
            if scale != Scale::Linear && value <= 0.0 {
                return Err(FigureError::NotPositive {
                    chart: chart(),
                    series: series(),
                    point: at,
                    what,
                    value,
                });
            }
        }
        if low > point.y || high < point.y {
            return Err(FigureError::OutsideItsBar {
                chart: chart(),
                series: series(),
                point: at,
                value: point.y,
                low,
                high,
            });
        }
        if let Kind::Bars(groups) = &self.kind {
            let inside = point.x >= 0.0 && point.x < groups.len() as f64 && point.x.fract() == 0.0;
            if !inside {
                return Err(FigureError::NoSuchGroup {
                    chart: chart(),
                    series: series(),
                    point: at,
                    value: point.x,
                    groups: groups.len(),
                });
            }
        }
        Ok(())
    }
}
