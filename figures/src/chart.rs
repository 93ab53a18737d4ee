//! Defines a chart as data, and checks whether it can be drawn.

use crate::error::FigureError;
use crate::limits::{CRUSHED, GROUPS_MAX, POINTS_MAX, SERIES_MAX};

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
    /// Of the axis at the left: `Linear`, or `Log10` where the greatest value of one series is more
    /// than [`CRUSHED`](crate::CRUSHED) times that of another one, which would lie on the axis
    /// otherwise.
    Automatic,
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
    /// Whether it is a limit that does not depend on `x`: a line across the whole picture at the
    /// height of its first point.
    pub is_level: bool,
}

impl Series {
    /// A series of points.
    #[must_use]
    pub fn of(name: impl Into<String>, points: Vec<Point>) -> Self {
        Self { name: name.into(), points, is_level: false }
    }

    /// A series without error bars.
    #[must_use]
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self::of(name, points.into_iter().map(|(x, y)| Point { x, y, bar: None }).collect())
    }

    /// A line across the whole picture at this height.
    #[must_use]
    pub fn level(name: impl Into<String>, y: f64) -> Self {
        Self { is_level: true, ..Self::new(name, [(0.0, y)]) }
    }

    /// A series for each name, in the order of the names' first points, with points from left to
    /// right.
    #[must_use]
    pub fn grouped(points: impl IntoIterator<Item = (String, Point)>) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for (name, point) in points {
            match all.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push(point),
                None => all.push(Self::of(name, vec![point])),
            }
        }
        all.iter_mut().for_each(|series| series.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
        all
    }

    fn greatest(&self) -> Option<f64> {
        self.points.iter().map(|point| point.y).reduce(f64::max)
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

impl Point {
    /// The median of turns. If there are several, the error bar reaches from the least of them to
    /// the greatest.
    #[must_use]
    pub fn of_turns(x: f64, median: f64, turns: &[f64]) -> Self {
        let least = turns.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = turns.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { x, y: median, bar: (turns.len() > 1).then_some((least, greatest)) }
    }
}

impl Chart {
    /// The scale of the axis at the left: not `Automatic`.
    pub(crate) fn y_scale(&self) -> Scale {
        if self.y.scale != Scale::Automatic {
            return self.y.scale;
        }
        let greatest = || self.series.iter().filter_map(Series::greatest);
        let (most, least) = (greatest().fold(0.0, f64::max), greatest().fold(f64::INFINITY, f64::min));
        let points = || self.series.iter().flat_map(|series| &series.points);
        let all_positive = points().all(|point| point.bar.map_or(point.y, |(low, _)| low) > 0.0);
        if all_positive && least * CRUSHED < most { Scale::Log10 } else { Scale::Linear }
    }

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
        let y_scale = self.y_scale();
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
                self.check_point(series, y_scale, (at, point))?;
            }
        }
        Ok(())
    }

    fn check_point(
        &self,
        series: &Series,
        y_scale: Scale,
        (at, point): (usize, &Point),
    ) -> Result<(), FigureError> {
        let is_level = series.is_level;
        let (chart, series) = (|| self.title.clone(), || series.name.clone());
        let (low, high) = point.bar.unwrap_or((point.y, point.y));
        let has_place = !is_level && !matches!(self.kind, Kind::Bars(_));
        let x_scale = if has_place { self.x.scale } else { Scale::Linear };
        let parts = [
            ("x", point.x, x_scale),
            ("y", point.y, y_scale),
            ("a bar from", low, y_scale),
            ("a bar to", high, y_scale),
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
            if matches!(scale, Scale::Log2 | Scale::Log10) && value <= 0.0 {
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
        if let Kind::Bars(groups) = &self.kind
            && !is_level
        {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(series: Vec<Series>) -> Scale {
        let (x, y) = (Axis::new("x", Scale::Linear), Axis::new("y", Scale::Automatic));
        Chart { title: String::new(), kind: Kind::Lines, x, y, series }.y_scale()
    }

    #[test]
    fn points_of_one_name_are_one_series_from_left_to_right() {
        let point = |x| Point::of_turns(x, 2.0, &[3.0, 1.0, 2.0]);
        let named = |(name, x): (&str, f64)| (name.to_owned(), point(x));
        let series = Series::grouped([("b", 2.0), ("a", 1.0), ("b", 1.0)].map(named));
        let expected = [Series::of("b", vec![point(1.0), point(2.0)]), Series::of("a", vec![point(1.0)])];
        assert_eq!(series, expected);
        assert_eq!((point(1.0).bar, Point::of_turns(1.0, 2.0, &[2.0]).bar), (Some((1.0, 3.0)), None));
    }

    #[test]
    fn an_automatic_scale_is_logarithmic_where_one_series_would_crush_another() {
        let low = || Series::new("low", [(1.0, 3.0), (2.0, 5.0)]);
        assert_eq!(scale(vec![low(), Series::new("high", [(1.0, 90.0)])]), Scale::Linear);
        assert_eq!(scale(vec![low(), Series::new("high", [(1.0, 120.0)])]), Scale::Log10);
        assert_eq!(scale(vec![low(), Series::level("limit", 120.0)]), Scale::Log10);
        assert_eq!(scale(vec![low()]), Scale::Linear);
        assert_eq!(
            scale(vec![Series::new("zero", [(1.0, 0.0)]), Series::level("limit", 9.0)]),
            Scale::Linear
        );
        assert_eq!(scale(Vec::new()), Scale::Linear);
    }
}
