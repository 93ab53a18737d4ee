//! Where does everything in a picture stand?
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
//! Text is set in a monospaced font, so that its width is known without asking a font.

use std::fmt::Write as _;

use crate::axis::{From, Range, Tick};
use crate::chart::{Axis, Chart, Kind, Point, Series};
use crate::escape::{escaped, shortened};
use crate::limits::{
    HEIGHT_PX, LEGEND_LINE_PX, MARKED_POINTS_MAX, NAME_CHARACTERS_MAX, TITLE_CHARACTERS_MAX, WIDTH_PX,
};
use crate::marks::{self, Mark};

const FONT: &str = "Hack, 'DejaVu Sans Mono', Menlo, Consolas, monospace";
const INK: &str = "#222222";
const GRID: &str = "#dddddd";
const FINE_GRID: &str = "#f0f0f0";
/// A character's width as a share of the size of its font.
const CHARACTER: f64 = 0.603;
const LEGEND_FONT_PX: f64 = 12.0;

/// The rectangle between the axes.
#[derive(Debug, Clone, Copy)]
struct Plot {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

/// The picture's parts that every mark needs.
struct Frame {
    plot: Plot,
    x: Range,
    y: Range,
}

impl Frame {
    fn across(&self, value: f64) -> f64 {
        self.plot.left + self.x.place(value) * (self.plot.right - self.plot.left)
    }

    fn up(&self, value: f64) -> f64 {
        self.plot.bottom - self.y.place(value) * (self.plot.bottom - self.plot.top)
    }
}

/// The chart, which has been checked, as SVG text.
pub(crate) fn svg(chart: &Chart) -> String {
    let y = y_range(chart);
    let y_ticks = y.ticks(&chart.y);
    let frame = Frame { plot: plot_of(chart, &y_ticks), x: x_range(chart), y };
    let mut out = String::new();
    let title = shortened(&chart.title, TITLE_CHARACTERS_MAX);
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH_PX} {HEIGHT_PX}\" width=\"{WIDTH_PX}\" \
         height=\"{HEIGHT_PX}\" role=\"img\" font-family=\"{FONT}\"><title>{}</title>\n\
         <rect width=\"{WIDTH_PX}\" height=\"{HEIGHT_PX}\" fill=\"#ffffff\"/>\n",
        escaped(&chart.title)
    );
    text(&mut out, Text { x: WIDTH_PX / 2.0, y: 26.0, size: 14.0, anchor: "middle", bold: true }, &title);
    grid_of_y(&mut out, &frame, &y_ticks);
    match &chart.kind {
        Kind::Bars(groups) => group_names(&mut out, &frame, groups),
        Kind::Lines | Kind::Scatter => grid_of_x(&mut out, &frame, &frame.x.ticks(&chart.x)),
    }
    for (at, series) in chart.series.iter().enumerate() {
        series_of(&mut out, &frame, chart, (at, series));
    }
    axis_labels(&mut out, &frame, chart);
    legend(&mut out, &frame, chart);
    if chart.series.iter().all(|series| series.points.is_empty()) {
        let (x, y) = ((frame.plot.left + frame.plot.right) / 2.0, (frame.plot.top + frame.plot.bottom) / 2.0);
        text(&mut out, Text { x, y, size: 14.0, anchor: "middle", bold: false }, "no points");
    }
    out.push_str("</svg>\n");
    out
}

fn points(chart: &Chart) -> impl Iterator<Item = &Point> {
    chart.series.iter().flat_map(|series| &series.points)
}

fn x_range(chart: &Chart) -> Range {
    match &chart.kind {
        // A group is one wide and stands around its index; the range is not rounded, for it is all groups.
        Kind::Bars(_) => Range::around(crate::Scale::Linear, From::Zero, std::iter::empty()),
        Kind::Lines | Kind::Scatter => {
            Range::around(chart.x.scale, From::Values, points(chart).map(|point| point.x))
        }
    }
}

fn y_range(chart: &Chart) -> Range {
    let ends = points(chart).flat_map(|point| {
        let (low, high) = point.bar.unwrap_or((point.y, point.y));
        [low, high]
    });
    Range::around(chart.y.scale, From::Zero, ends)
}

/// Room for the ticks at the left and the legend at the right; the plot takes the rest.
fn plot_of(chart: &Chart, y_ticks: &[Tick]) -> Plot {
    let widest = y_ticks.iter().filter_map(|tick| tick.label.as_deref()).map(|label| label.chars().count());
    let ticks_px = widest.max().unwrap_or(0) as f64 * 12.0 * CHARACTER;
    let names = chart.series.iter().map(|series| series.name.chars().count().min(NAME_CHARACTERS_MAX));
    let legend_px = match names.max() {
        None | Some(0) => 10.0,
        Some(longest) => 50.0 + longest as f64 * LEGEND_FONT_PX * CHARACTER,
    };
    Plot { left: 44.0 + ticks_px, top: 46.0, right: WIDTH_PX - 20.0 - legend_px, bottom: HEIGHT_PX - 62.0 }
}

struct Text {
    x: f64,
    y: f64,
    size: f64,
    anchor: &'static str,
    bold: bool,
}

fn text(out: &mut String, at: Text, words: &str) {
    let Text { x, y, size, anchor, bold } = at;
    let weight = if bold { " font-weight=\"bold\"" } else { "" };
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{INK}\"{weight}>{}</text>",
        escaped(words)
    );
}

fn line(out: &mut String, ends: [f64; 4], colour: &str) {
    let [x1, y1, x2, y2] = ends;
    let _ = writeln!(
        out,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>"
    );
}

fn grid_of_y(out: &mut String, frame: &Frame, ticks: &[Tick]) {
    let plot = frame.plot;
    for tick in ticks {
        let y = frame.up(tick.value);
        let colour = if tick.label.is_some() { GRID } else { FINE_GRID };
        line(out, [plot.left, y, plot.right, y], colour);
        if let Some(label) = &tick.label {
            text(out, Text { x: plot.left - 6.0, y: y + 4.0, size: 12.0, anchor: "end", bold: false }, label);
        }
    }
}

/// Labels that would touch their neighbour are left out; their lines stay.
fn grid_of_x(out: &mut String, frame: &Frame, ticks: &[Tick]) {
    let plot = frame.plot;
    let mut free_from = f64::NEG_INFINITY;
    for tick in ticks {
        let x = frame.across(tick.value);
        let colour = if tick.label.is_some() { GRID } else { FINE_GRID };
        line(out, [x, plot.top, x, plot.bottom], colour);
        let Some(label) = &tick.label else { continue };
        let half = label.chars().count() as f64 * 12.0 * CHARACTER / 2.0;
        if x - half >= free_from {
            let at = Text { x, y: plot.bottom + 18.0, size: 12.0, anchor: "middle", bold: false };
            text(out, at, label);
            free_from = x + half + 6.0;
        }
    }
}

fn group_width(frame: &Frame, groups: usize) -> f64 {
    (frame.plot.right - frame.plot.left) / groups.max(1) as f64
}

/// Every second name stands a line lower where names are too long for one line.
fn group_names(out: &mut String, frame: &Frame, groups: &[String]) {
    let width = group_width(frame, groups.len());
    let longest = groups.iter().map(|name| name.chars().count()).max().unwrap_or(0) as f64;
    let lines = if longest * 12.0 * CHARACTER > width - 4.0 { 2.0 } else { 1.0 };
    let fitting = lines * width / (12.0 * CHARACTER);
    let characters = (4..TITLE_CHARACTERS_MAX).take_while(|count| *count as f64 <= fitting).count() + 3;
    for (at, name) in groups.iter().enumerate() {
        let x = frame.plot.left + (at as f64 + 0.5) * width;
        let y = frame.plot.bottom + 18.0 + if lines > 1.0 && at % 2 == 1 { 14.0 } else { 0.0 };
        let at = Text { x, y, size: 12.0, anchor: "middle", bold: false };
        text(out, at, &shortened(name, characters));
    }
}

fn axis_labels(out: &mut String, frame: &Frame, chart: &Chart) {
    let plot = frame.plot;
    line(out, [plot.left, plot.bottom, plot.right, plot.bottom], INK);
    line(out, [plot.left, plot.top, plot.left, plot.bottom], INK);
    let words = |axis: &Axis| shortened(&axis.label, TITLE_CHARACTERS_MAX);
    let x = (plot.left + plot.right) / 2.0;
    let at = Text { x, y: HEIGHT_PX - 14.0, size: 13.0, anchor: "middle", bold: false };
    text(out, at, &words(&chart.x));
    let y = (plot.top + plot.bottom) / 2.0;
    let _ = writeln!(
        out,
        "<text transform=\"translate(20 {y:.1}) rotate(-90)\" font-size=\"13\" text-anchor=\"middle\" \
         fill=\"{INK}\">{}</text>",
        escaped(&words(&chart.y))
    );
}

fn series_of(out: &mut String, frame: &Frame, chart: &Chart, (at, series): (usize, &Series)) {
    let mark = marks::mark_of(at);
    let _ = writeln!(out, "<g data-series=\"{}\">", escaped(&series.name));
    match &chart.kind {
        Kind::Bars(groups) => bars(out, frame, (groups.len(), chart.series.len()), (at, series)),
        Kind::Lines => {
            joined(out, frame, mark, series);
            dots(out, frame, (mark, true), series);
        }
        Kind::Scatter => dots(out, frame, (mark, false), series),
    }
    out.push_str("</g>\n");
}

fn joined(out: &mut String, frame: &Frame, mark: Mark, series: &Series) {
    if series.points.len() < 2 {
        return;
    }
    let dashes =
        if mark.dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{}\"", mark.dashes) };
    let _ = write!(
        out,
        "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"{dashes} points=\"",
        mark.colour
    );
    for point in &series.points {
        let _ = write!(out, "{:.1},{:.1} ", frame.across(point.x), frame.up(point.y));
    }
    out.push_str("\"/>\n");
}

/// A mark for each point; of many points only dots, in one path, where no line joins them.
fn dots(out: &mut String, frame: &Frame, (mark, joined): (Mark, bool), series: &Series) {
    let stroke = Stroke { class: "bar", colour: mark.colour, width: 1.0 };
    for point in &series.points {
        error_bar(out, stroke, frame.across(point.x), frame, point);
    }
    if series.points.len() <= MARKED_POINTS_MAX {
        for point in &series.points {
            out.push_str(&marks::element(mark, frame.across(point.x), frame.up(point.y)));
        }
        return;
    }
    if joined {
        return;
    }
    let _ = write!(
        out,
        "<path fill=\"none\" stroke=\"{}\" stroke-width=\"3\" stroke-linecap=\"round\" d=\"",
        mark.colour
    );
    for point in &series.points {
        let _ = write!(out, "M{:.1} {:.1}h.01", frame.across(point.x), frame.up(point.y));
    }
    out.push_str("\"/>\n");
}

/// How an error bar is drawn, and what it is called in the picture's text.
#[derive(Clone, Copy)]
struct Stroke {
    class: &'static str,
    colour: &'static str,
    width: f64,
}

fn error_bar(out: &mut String, stroke: Stroke, x: f64, frame: &Frame, point: &Point) {
    let Stroke { class, colour, width } = stroke;
    let Some((low, high)) = point.bar else { return };
    let (bottom, top) = (frame.up(low), frame.up(high));
    let _ = writeln!(
        out,
        "<path class=\"{class}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" d=\"M{:.1} {top:.1}h8m-4 0V{bottom:.1}m-4 0h8\"/>",
        x - 4.0
    );
}

fn bars(
    out: &mut String,
    frame: &Frame,
    (groups, series_count): (usize, usize),
    (at, series): (usize, &Series),
) {
    let group = group_width(frame, groups);
    let width = group * 0.8 / series_count as f64;
    let plot = frame.plot;
    let foot = plot.bottom - frame.y.foot() * (plot.bottom - plot.top);
    let mark = marks::mark_of(at);
    for point in &series.points {
        let x = plot.left + (point.x + 0.1) * group + at as f64 * width;
        let top = frame.up(point.y);
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\" stroke=\"#ffffff\"/>",
            top.min(foot),
            width,
            (foot - top).abs(),
            mark.colour
        );
        // Dark on light and light on dark: a bar of any colour shows it.
        let halo = Stroke { class: "halo", colour: "#ffffff", width: 3.5 };
        error_bar(out, halo, x + width / 2.0, frame, point);
        error_bar(out, Stroke { class: "bar", colour: INK, width: 1.0 }, x + width / 2.0, frame, point);
    }
}

fn legend(out: &mut String, frame: &Frame, chart: &Chart) {
    let x = frame.plot.right + 16.0;
    let named = chart.series.iter().enumerate().filter(|(_, series)| !series.name.is_empty());
    for (line, (at, series)) in named.enumerate() {
        let y = frame.plot.top + 8.0 + line as f64 * LEGEND_LINE_PX;
        let mark = marks::mark_of(at);
        if matches!(chart.kind, Kind::Bars(_)) {
            let _ = writeln!(
                out,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"14\" height=\"12\" fill=\"{}\"/>",
                x + 5.0,
                y - 6.0,
                mark.colour
            );
        } else {
            if chart.kind == Kind::Lines {
                let _ = writeln!(
                    out,
                    "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"{}\" \
                     stroke-width=\"1.8\" stroke-dasharray=\"{}\"/>",
                    x + 26.0,
                    mark.colour,
                    if mark.dashes.is_empty() { "none" } else { mark.dashes }
                );
            }
            out.push_str(&marks::element(mark, x + 13.0, y));
        }
        let place = Text { x: x + 32.0, y: y + 4.0, size: LEGEND_FONT_PX, anchor: "start", bold: false };
        text(out, place, &shortened(&series.name, NAME_CHARACTERS_MAX));
    }
}
