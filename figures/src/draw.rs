//! Lays out a chart as a list of shapes.
//!
//! ```text
//! +--------------------------------------------+
//! | title                                      |
//! | l +--------------------------+  o legend   |
//! | a |  grid, bars or lines     |  x          |
//! | b |  error bars, marks       |  + ...      |
//! | e +--------------------------+             |
//! | l    ticks                                 |
//! |      label                                 |
//! +--------------------------------------------+
//! ```
//!
//! Text is set in a monospaced font, so its width is known without reading a font.
//!
//! Invariant: values set the range of the axis at the left; ends of error bars extend it by half of
//! the greatest value at most. A bar that ends further away leaves the picture.

use crate::axis::{Range, RangeStart, Tick};
use crate::chart::{Axis, Chart, Kind, Point, Scale, Series};
use crate::escape::shorten;
use crate::limits::{
    HEIGHT_PX, LEGEND_LINE_PX, MARKED_POINTS_MAX, NAME_CHARACTERS_MAX, TITLE_CHARACTERS_MAX, WIDTH_PX,
};
use crate::marks::{self, Mark};
use crate::scene::{Anchor, CHARACTER, Shape, Stroke, Text};
use crate::svg::INK;

const PAPER: &str = "#ffffff";
const GRID: &str = "#dddddd";
const FINE_GRID: &str = "#f0f0f0";
const FONT_PX: f64 = 12.0;
const LINE_PX: f64 = 1.8;

/// The rectangle between the axes.
#[derive(Debug, Clone, Copy)]
struct Plot {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

/// The plot area with its two axes, which map values to pixels.
struct Frame {
    plot: Plot,
    x: Range,
    y: Range,
}

impl Frame {
    fn x_px(&self, value: f64) -> f64 {
        self.plot.left + self.x.position(value) * (self.plot.right - self.plot.left)
    }

    fn y_px(&self, value: f64) -> f64 {
        self.plot.bottom - self.y.position(value) * (self.plot.bottom - self.plot.top)
    }

    fn position(&self, point: &Point) -> (f64, f64) {
        (self.x_px(point.x), self.y_px(point.y))
    }
}

/// The shapes of a checked chart, from back to front.
pub(crate) fn shapes(chart: &Chart) -> Vec<Shape> {
    let y = y_range(chart);
    let y_ticks = y.ticks(&chart.y);
    let frame = Frame { plot: plot_of(chart, &y_ticks), x: x_range(chart), y };
    let mut out = vec![Shape::Rectangle { corner: (0.0, 0.0), size: (WIDTH_PX, HEIGHT_PX), fill: PAPER }];
    let title = shorten(&chart.title, TITLE_CHARACTERS_MAX);
    out.push(text((WIDTH_PX / 2.0, 26.0), 14.0, Anchor::Middle, title));
    grid_of_y(&mut out, &frame, &y_ticks);
    match &chart.kind {
        Kind::Bars(groups) => group_names(&mut out, &frame, groups),
        Kind::Lines | Kind::Scatter => grid_of_x(&mut out, &frame, &frame.x.ticks(&chart.x)),
    }
    for (at, series) in chart.series.iter().enumerate() {
        out.push(Shape::Series(series.name.clone()));
        series_of(&mut out, &frame, chart, (at, series));
    }
    out.push(Shape::Series(String::new()));
    axis_labels(&mut out, &frame, chart);
    legend(&mut out, &frame, chart);
    if chart.series.iter().all(|series| series.points.is_empty()) {
        let Plot { left, top, right, bottom } = frame.plot;
        let middle = ((left + right) / 2.0, (top + bottom) / 2.0);
        out.push(text(middle, 14.0, Anchor::Middle, "no points".to_owned()));
    }
    out
}

fn text(at: (f64, f64), size: f64, anchor: Anchor, words: String) -> Shape {
    Shape::Text(Text { at, size, anchor, upwards: false, words })
}

fn straight_line(from: (f64, f64), to: (f64, f64), colour: &'static str) -> Shape {
    Shape::Line { points: vec![from, to], stroke: Stroke::solid(colour, 1.0) }
}

fn points(chart: &Chart) -> impl Iterator<Item = &Point> {
    chart.series.iter().flat_map(|series| &series.points)
}

fn x_range(chart: &Chart) -> Range {
    match &chart.kind {
        // Groups stand side by side; their positions do not depend on a range.
        Kind::Bars(_) => Range::around(Scale::Linear, RangeStart::Zero, std::iter::empty()),
        Kind::Lines | Kind::Scatter => {
            let placed = chart.series.iter().filter(|series| !series.is_level);
            let values = placed.flat_map(|series| &series.points).map(|point| point.x);
            Range::around(chart.x.scale, RangeStart::Values, values)
        }
    }
}

fn y_range(chart: &Chart) -> Range {
    let values = || points(chart).map(|point| point.y);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    let room = (most.abs() / 2.0, least.abs() / 2.0);
    let ends = points(chart).flat_map(|point| {
        let (low, high) = point.bar.unwrap_or((point.y, point.y));
        [low.max(least - room.1), high.min(most + room.0)]
    });
    Range::around(chart.y_scale(), RangeStart::Zero, ends)
}

/// Reserves space for the labels of ticks at the left and the legend at the right; the plot gets
/// the rest.
fn plot_of(chart: &Chart, y_ticks: &[Tick]) -> Plot {
    let widest = y_ticks.iter().filter_map(|tick| tick.label.as_deref()).map(|label| label.chars().count());
    let ticks_px = widest.max().unwrap_or(0) as f64 * FONT_PX * CHARACTER;
    let names = chart.series.iter().map(|series| series.name.chars().count().min(NAME_CHARACTERS_MAX));
    let legend_px = match names.max() {
        None | Some(0) => 10.0,
        Some(longest) => 50.0 + longest as f64 * FONT_PX * CHARACTER,
    };
    Plot { left: 44.0 + ticks_px, top: 46.0, right: WIDTH_PX - 20.0 - legend_px, bottom: HEIGHT_PX - 62.0 }
}

fn grid_of_y(out: &mut Vec<Shape>, frame: &Frame, ticks: &[Tick]) {
    let plot = frame.plot;
    for tick in ticks {
        let y = frame.y_px(tick.value);
        let colour = if tick.label.is_some() { GRID } else { FINE_GRID };
        out.push(straight_line((plot.left, y), (plot.right, y), colour));
        if let Some(label) = &tick.label {
            out.push(text((plot.left - 6.0, y + 4.0), FONT_PX, Anchor::End, label.clone()));
        }
    }
}

/// Labels that would touch their neighbour are omitted; the grid lines remain.
fn grid_of_x(out: &mut Vec<Shape>, frame: &Frame, ticks: &[Tick]) {
    let plot = frame.plot;
    let mut free_from = f64::NEG_INFINITY;
    for tick in ticks {
        let x = frame.x_px(tick.value);
        let colour = if tick.label.is_some() { GRID } else { FINE_GRID };
        out.push(straight_line((x, plot.top), (x, plot.bottom), colour));
        let Some(label) = &tick.label else { continue };
        let half = label.chars().count() as f64 * FONT_PX * CHARACTER / 2.0;
        if x - half >= free_from {
            out.push(text((x, plot.bottom + 18.0), FONT_PX, Anchor::Middle, label.clone()));
            free_from = x + half + 6.0;
        }
    }
}

fn group_width(frame: &Frame, groups: usize) -> f64 {
    (frame.plot.right - frame.plot.left) / groups.max(1) as f64
}

/// If names are too long for one line, every second name is one line lower.
fn group_names(out: &mut Vec<Shape>, frame: &Frame, groups: &[String]) {
    let width = group_width(frame, groups.len());
    let longest = groups.iter().map(|name| name.chars().count()).max().unwrap_or(0) as f64;
    let lines = if longest * FONT_PX * CHARACTER > width - 4.0 { 2.0 } else { 1.0 };
    let fitting = lines * width / (FONT_PX * CHARACTER);
    let characters = (4..TITLE_CHARACTERS_MAX).take_while(|count| *count as f64 <= fitting).count() + 3;
    for (at, name) in groups.iter().enumerate() {
        let x = frame.plot.left + (at as f64 + 0.5) * width;
        let y = frame.plot.bottom + 18.0 + if lines > 1.0 && at % 2 == 1 { 14.0 } else { 0.0 };
        out.push(text((x, y), FONT_PX, Anchor::Middle, shorten(name, characters)));
    }
}

fn axis_labels(out: &mut Vec<Shape>, frame: &Frame, chart: &Chart) {
    let Plot { left, top, right, bottom } = frame.plot;
    out.push(straight_line((left, bottom), (right, bottom), INK));
    out.push(straight_line((left, top), (left, bottom), INK));
    let words = |axis: &Axis| shorten(&axis.label, TITLE_CHARACTERS_MAX);
    out.push(text(((left + right) / 2.0, HEIGHT_PX - 14.0), 13.0, Anchor::Middle, words(&chart.x)));
    out.push(Shape::Text(Text {
        at: (20.0, (top + bottom) / 2.0),
        size: 13.0,
        anchor: Anchor::Middle,
        upwards: true,
        words: words(&chart.y),
    }));
}

fn series_of(out: &mut Vec<Shape>, frame: &Frame, chart: &Chart, (at, series): (usize, &Series)) {
    let mark = marks::mark_of(at);
    let stroke = Stroke { colour: mark.colour, width: LINE_PX, dashes: mark.dashes };
    match &chart.kind {
        _ if series.is_level => {
            let Plot { left, right, .. } = frame.plot;
            let y = series.points.first().map(|point| frame.y_px(point.y));
            out.extend(y.map(|y| Shape::Line { points: vec![(left, y), (right, y)], stroke }));
        }
        Kind::Bars(groups) => {
            let places = |series: &[Series]| series.iter().filter(|series| !series.is_level).count();
            let (count, place) = (places(&chart.series), places(&chart.series[..at]));
            bars(out, frame, (groups.len(), count), (at, place), series);
        }
        Kind::Lines => {
            if series.points.len() > 1 {
                out.push(Shape::Line { points: positions(frame, series), stroke });
            }
            dots(out, frame, (mark, true), series);
        }
        Kind::Scatter => dots(out, frame, (mark, false), series),
    }
}

fn positions(frame: &Frame, series: &Series) -> Vec<(f64, f64)> {
    series.points.iter().map(|point| frame.position(point)).collect()
}

/// Draws a mark for each point. A series of many points gets small dots instead, or only its line
/// if it has one.
fn dots(out: &mut Vec<Shape>, frame: &Frame, (mark, joined): (Mark, bool), series: &Series) {
    for point in &series.points {
        out.extend(error_bar(Stroke::solid(mark.colour, 1.0), frame.x_px(point.x), frame, point));
    }
    if series.points.len() <= MARKED_POINTS_MAX {
        out.extend(series.points.iter().flat_map(|point| marks::shapes_of(mark, frame.position(point))));
    } else if !joined {
        out.push(Shape::Dots { points: positions(frame, series), colour: mark.colour });
    }
}

/// The bar of a point, with an arrow where it leaves the picture.
fn error_bar(stroke: Stroke, x: f64, frame: &Frame, point: &Point) -> Vec<Shape> {
    let Some((low, high)) = point.bar else { return Vec::new() };
    let Plot { top, bottom, .. } = frame.plot;
    let inside = |value| frame.y_px(value).clamp(top, bottom);
    let mut shapes = vec![Shape::Bar { x, ends: (inside(low), inside(high)), stroke }];
    for (is_cut, edge, inwards) in
        [(frame.y_px(high) < top - 0.5, top, 7.0), (frame.y_px(low) > bottom + 0.5, bottom, -7.0)]
    {
        if is_cut {
            let points = vec![(x, edge), (x - 4.0, edge + inwards), (x + 4.0, edge + inwards)];
            shapes.push(Shape::Area { points, fill: stroke.colour });
        }
    }
    shapes
}

fn bars(
    out: &mut Vec<Shape>,
    frame: &Frame,
    (groups, series_count): (usize, usize),
    (at, place): (usize, usize),
    series: &Series,
) {
    let group = group_width(frame, groups);
    let width = group * 0.8 / series_count as f64;
    let plot = frame.plot;
    let foot = plot.bottom - frame.y.baseline() * (plot.bottom - plot.top);
    let mark = marks::mark_of(at);
    for point in &series.points {
        let x = plot.left + (point.x + 0.1) * group + place as f64 * width;
        let top = frame.y_px(point.y);
        // A thin gap between neighbours, so that they can be distinguished in grey.
        let (corner, size) = ((x + 0.5, top.min(foot)), ((width - 1.0).max(0.5), (foot - top).abs()));
        out.push(Shape::Rectangle { corner, size, fill: mark.colour });
        // A dark line on a light one, so that it is visible on a bar of any colour.
        for stroke in [Stroke::solid(PAPER, 3.5), Stroke::solid(INK, 1.0)] {
            out.extend(error_bar(stroke, x + width / 2.0, frame, point));
        }
    }
}

fn legend(out: &mut Vec<Shape>, frame: &Frame, chart: &Chart) {
    let x = frame.plot.right + 16.0;
    let named = chart.series.iter().enumerate().filter(|(_, series)| !series.name.is_empty());
    for (line, (at, series)) in named.enumerate() {
        let y = frame.plot.top + 8.0 + line as f64 * LEGEND_LINE_PX;
        let mark = marks::mark_of(at);
        let stroke = Stroke { colour: mark.colour, width: LINE_PX, dashes: mark.dashes };
        match &chart.kind {
            _ if series.is_level => out.push(Shape::Line { points: vec![(x, y), (x + 26.0, y)], stroke }),
            Kind::Bars(_) => {
                let (corner, size) = ((x + 5.0, y - 6.0), (14.0, 12.0));
                out.push(Shape::Rectangle { corner, size, fill: mark.colour });
            }
            Kind::Lines => {
                out.push(Shape::Line { points: vec![(x, y), (x + 26.0, y)], stroke });
                out.extend(marks::shapes_of(mark, (x + 13.0, y)));
            }
            Kind::Scatter => out.extend(marks::shapes_of(mark, (x + 13.0, y))),
        }
        let name = shorten(&series.name, NAME_CHARACTERS_MAX);
        out.push(text((x + 32.0, y + 4.0), FONT_PX, Anchor::Start, name));
    }
}
