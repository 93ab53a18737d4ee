//! Draws the figures of a paper from our points, beside the numbers that the paper states.

use std::{cmp::Ordering, collections::BTreeMap};

use rackscan_figures::{Axis, Chart, Figure, Kind, Point, Report, Scale, Section, Series, Table};

use super::catalog::{Comparison, Curve, Marks, Paper, PaperFigure, Quantity, Spacing, Step};
use super::points::{Points, range, value};
use crate::record::Provenance;

/// The lines of each experiment that was measured, by the name of its step.
pub type Measured = BTreeMap<String, Points>;

/// A page with these figures.
#[must_use]
pub fn paper_report(
    paper: &Paper,
    figures: &[&PaperFigure],
    measured: &Measured,
    provenance: &Provenance,
) -> Report {
    let mut sections = vec![Section {
        heading: "The paper".to_owned(),
        text: vec![format!("{}. It measured on: {}.", paper.title, paper.machines)],
        ..Section::default()
    }];
    let mut missing = Vec::new();
    for figure in figures {
        let drawn = Drawn::new(figure, measured);
        if drawn.curves.iter().all(|curve| curve.points.is_empty()) {
            missing.push(figure.number.clone());
        } else {
            sections.push(drawn.section(paper, measured));
        }
    }
    if !missing.is_empty() {
        sections.push(Section {
            heading: "What is not here".to_owned(),
            text: vec![format!("Not measured: {}.", missing.join(", "))],
            ..Section::default()
        });
    }
    let named = provenance.named(String::new()).into_iter();
    // The lines of each experiment say when and where they were measured.
    let mut named: Vec<_> =
        named.filter(|(name, _)| ["command", "measured"].contains(&name.as_str())).collect();
    for (name, _) in named.iter_mut().filter(|(name, _)| name == "measured") {
        "drawn".clone_into(name);
    }
    let is_used = |step: &&String| figures.iter().any(|figure| figure.steps.contains(step));
    Report {
        title: format!("Figures of {}", paper.name),
        provenance: named,
        sections,
        points: measured.keys().filter(is_used).flat_map(|step| measured[step].0.iter().cloned()).collect(),
    }
}

impl PaperFigure {
    /// What the paper concludes from the figure, and what these lines say.
    #[must_use]
    pub fn finding_here(&self, measured: &Measured) -> String {
        Drawn::new(self, measured).finding()
    }
}

/// A number of the paper beside ours.
#[derive(Debug, Clone)]
struct Compared<'f> {
    comparison: &'f Comparison,
    here: f64,
}

struct Drawn<'f> {
    figure: &'f PaperFigure,
    /// Of each curve, its points in the order of the axis.
    curves: Vec<Series>,
    compared: Vec<Compared<'f>>,
}

impl<'f> Drawn<'f> {
    fn new(figure: &'f PaperFigure, measured: &Measured) -> Self {
        let mut points = Points::default();
        figure.steps.iter().filter_map(|step| measured.get(step)).for_each(|of_step| points.add(of_step));
        let curves: Vec<Series> = figure.curve.iter().map(|curve| series(figure, curve, &points)).collect();
        let find = |name: &str| curves.iter().find(|series| series.name == name);
        let mut compared = Vec::new();
        for comparison in &figure.compare {
            let value = |name: &str| value_of(find(name)?, comparison.at, figure.less_is_better);
            let own = value(&comparison.of);
            let over = comparison.over.as_deref().map(value);
            let here = match (own, over) {
                (Some(own), None) => Some(own),
                (Some(own), Some(Some(over))) if over > 0.0 => Some(own / over),
                _ => None,
            };
            compared.extend(here.map(|here| Compared { comparison, here }));
        }
        Self { figure, curves, compared }
    }

    fn section(self, paper: &Paper, measured: &Measured) -> Section {
        let mut text = vec![self.finding()];
        text.extend(self.axes());
        for step in paper.steps.iter().filter(|step| self.figure.steps.contains(&step.name)) {
            text.push(origin(step, measured.get(&step.name)));
        }
        let mut figures = Vec::new();
        let ratios = self.ratios();
        let tables = self.table().into_iter().collect();
        let heading = format!("{}: {}", self.name(), self.figure.title);
        figures.push(self.chart());
        figures.extend(ratios);
        Section { heading, text, tables, figures }
    }

    /// `Figure 4.19`, `Table 4.2`.
    fn name(&self) -> String {
        match self.figure.number.strip_prefix("table ") {
            Some(number) => format!("Table {number}"),
            None => format!("Figure {}", self.figure.number),
        }
    }

    /// The paper's finding, and ours as a sentence.
    fn finding(&self) -> String {
        let here: Vec<String> = self
            .compared
            .iter()
            .map(|Compared { comparison: Comparison { what, paper, over, .. }, here }| {
                let verdict = match over {
                    Some(_) if order(*paper) == order(*here) => match order(*here) {
                        Ordering::Less => ", also below 1",
                        Ordering::Equal => ", also about 1",
                        Ordering::Greater => ", also above 1",
                    },
                    Some(_) => ", not as in the paper",
                    None => "",
                };
                format!("{what} is {} (the paper: {}{verdict})", number(*here), number(*paper))
            })
            .collect();
        let best = self.best();
        let here = match (here.is_empty(), best) {
            (false, _) => here.join("; "),
            (true, Some(_)) if self.figure.has_no_best => "see the figure".to_owned(),
            (true, Some(best)) => best,
            (true, None) => "nothing was measured".to_owned(),
        };
        format!("The paper: {} Here: {here}.", self.figure.finding)
    }

    /// Names the best curve and its place, for figures of which the paper states no number.
    fn best(&self) -> Option<String> {
        let less = self.figure.less_is_better;
        let curves = self.curves.iter().filter(|curve| !curve.is_level);
        let best = curves.filter_map(|curve| Some((curve, best_point(curve, less)?)));
        let (curve, point) = best.reduce(|a, b| if is_better(b.1.y, a.1.y, less) { b } else { a })?;
        let (x, y) = (&self.figure.x.label, &self.figure.y.label);
        let at = place(point.x, self.is_of_bytes());
        Some(format!("the best is {} at {at} ({x}): {} {y}", curve.name, number(point.y)))
    }

    fn axes(&self) -> Option<String> {
        let places = || self.curves.iter().filter(|curve| !curve.is_level).flat_map(|curve| &curve.points);
        let least = places().map(|point| point.x).reduce(f64::min)?;
        let greatest = places().map(|point| point.x).reduce(f64::max)?;
        let PaperFigure { x, paper_axis, .. } = self.figure;
        let place = |at| place(at, self.is_of_bytes());
        let here = format!("{}: here {} to {}", x.label, place(least), place(greatest));
        Some(if paper_axis.is_empty() {
            format!("{here}.")
        } else {
            format!("{here}; the paper: {paper_axis}.")
        })
    }

    fn table(&self) -> Option<Table> {
        let row = |Compared { comparison, here }: &Compared<'_>| {
            let of_paper = here / comparison.paper;
            vec![comparison.what.clone(), number(comparison.paper), number(*here), format!("{of_paper:.2}")]
        };
        (!self.compared.is_empty()).then(|| Table {
            caption: "The numbers that the paper states, or ratios of two of them, and ours".to_owned(),
            head: ["what", "the paper", "here", "here / paper"].map(str::to_owned).to_vec(),
            rows: self.compared.iter().map(row).collect(),
        })
    }

    /// Bars of the paper's ratios beside ours.
    fn ratios(&self) -> Option<Figure> {
        let ratios: Vec<_> =
            self.compared.iter().filter(|compared| compared.comparison.over.is_some()).collect();
        if ratios.is_empty() {
            return None;
        }
        let names = ratios.iter().map(|compared| compared.comparison.what.clone()).collect();
        let bars =
            |of: fn(&Compared<'_>) -> f64| ratios.iter().enumerate().map(move |(at, c)| (at as f64, of(c)));
        let series = vec![
            Series::new("the paper", bars(|compared| compared.comparison.paper)),
            Series::new("here", bars(|compared| compared.here)),
        ];
        Some(Figure {
            name: format!("{}-ratios", self.file()),
            caption: "Ratios of numbers that the paper states, and ours.".to_owned(),
            chart: Chart {
                title: format!("{}: ratios", self.name()),
                kind: Kind::Bars(names),
                x: Axis::new("", Scale::Linear),
                y: Axis::new("times", Scale::Linear),
                series,
            },
        })
    }

    /// Whether the axis at the bottom is one of sizes.
    fn is_of_bytes(&self) -> bool {
        self.figure.x.label.contains("bytes")
    }

    fn file(&self) -> String {
        self.name().to_lowercase().replace(['.', ' '], "-")
    }

    fn chart(self) -> Figure {
        let name = self.file();
        let title = format!("{}: {}", self.name(), self.figure.title);
        let PaperFigure { marks, x, y, spacing, .. } = self.figure;
        let is_bytes = self.is_of_bytes();
        let mut curves: Vec<Series> =
            self.curves.into_iter().filter(|curve| !curve.points.is_empty()).collect();
        let spacing = match spacing {
            Spacing::Linear => Scale::Linear,
            Spacing::Log2 => Scale::Log2,
        };
        let kind = match marks {
            Marks::Lines => Kind::Lines,
            Marks::Scatter => Kind::Scatter,
            Marks::Bars => Kind::Bars(grouped(&mut curves, is_bytes)),
        };
        let bottom = if is_bytes { Axis::of_bytes(&x.label, spacing) } else { Axis::new(&x.label, spacing) };
        let caption = match self.figure.turns {
            Some(_) => "Points are medians of turns; a bar is from the least to the greatest one.",
            None => "Each point is a line of the experiment.",
        };
        let caption = caption.to_owned();
        Figure {
            name,
            caption,
            chart: Chart { title, kind, x: bottom, y: Axis::new(&y.label, Scale::Automatic), series: curves },
        }
    }
}

/// Turns the positions of bars into indices; returns the names of the groups.
fn grouped(curves: &mut [Series], is_bytes: bool) -> Vec<String> {
    let mut places: Vec<f64> = curves.iter().flat_map(|curve| &curve.points).map(|point| point.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    for point in curves.iter_mut().flat_map(|curve| &mut curve.points) {
        let at = places.iter().position(|place| *place == point.x);
        point.x = at.expect("its own place is in the list") as f64;
    }
    places.into_iter().map(|at| place(at, is_bytes)).collect()
}

fn series(figure: &PaperFigure, curve: &Curve, points: &Points) -> Series {
    let (mut x, mut y) = (figure.x.clone(), figure.y.clone());
    if let Some(field) = &curve.x {
        field.clone_into(&mut x.field);
    }
    if let Some(field) = &curve.y {
        field.clone_into(&mut y.field);
    }
    let mut points: Vec<(Point, f64)> = points
        .of(curve)
        .filter_map(|line| {
            let bar = figure.turns.as_deref().and_then(|field| range(line, field, y.times));
            Some((Point { x: value(line, &x)?, y: value(line, &y)?, bar }, rank(figure, line)?))
        })
        // A logarithmic axis has no place for others.
        .filter(|(point, _)| point.y.is_finite() && (figure.spacing == Spacing::Linear || point.x > 0.0))
        .collect();
    points.sort_by(|(a, rank_a), (b, rank_b)| a.x.total_cmp(&b.x).then(rank_a.total_cmp(rank_b)));
    if figure.keep_least.is_some() || figure.keep_greatest.is_some() {
        points.dedup_by(|(a, _), (b, _)| a.x.total_cmp(&b.x).is_eq());
    }
    let series = Series::of(curve.name.clone(), points.into_iter().map(|(point, _)| point).collect());
    if !curve.is_level {
        return series;
    }
    match best_point(&series, figure.less_is_better) {
        Some(point) => Series::level(curve.name.clone(), point.y),
        None => series,
    }
}

/// The order of lines at one position; those that are kept come first.
fn rank(figure: &PaperFigure, line: &serde_json::Value) -> Option<f64> {
    let of =
        |field: &str, times| value(line, &Quantity { field: field.to_owned(), label: String::new(), times });
    match (&figure.keep_least, &figure.keep_greatest) {
        (Some(field), _) => of(field, 1.0),
        (None, Some(field)) => of(field, -1.0),
        (None, None) => Some(0.0),
    }
}

/// What measured the lines of a step, when and where.
fn origin(step: &Step, points: Option<&Points>) -> String {
    let Some(points) = points.filter(|points| !points.is_empty()) else {
        return format!(
            "The experiment `{}` was not measured, or failed: its curves are missing.",
            step.name
        );
    };
    let word = |field| points.word(field).unwrap_or("unknown");
    let prepared: Vec<String> = step.prepare.iter().map(|words| format!("`rackscan {words}`")).collect();
    let after =
        if prepared.is_empty() { String::new() } else { format!(", after {}", prepared.join(" and ")) };
    let cut = if step.cut.is_empty() { String::new() } else { format!(" Cut: {}", step.cut) };
    let (command, commit, machine) = (word("command"), word("commit"), word("machine"));
    format!("Measured by `{command}`{after}; commit {commit}, {machine}.{cut}")
}

/// A place on the axis at the bottom: `8`, `16 KiB`.
fn place(at: f64, is_bytes: bool) -> String {
    match at {
        at if is_bytes && at >= 1_048_576.0 => format!("{} MiB", number(at / 1_048_576.0)),
        at if is_bytes && at >= 1024.0 => format!("{} KiB", number(at / 1024.0)),
        at if is_bytes => format!("{} B", number(at)),
        at => number(at),
    }
}

/// Ratios this close to 1 are of equals.
const EQUAL: f64 = 1.05;

/// Which of the two of a ratio is greater, if one is.
fn order(ratio: f64) -> Ordering {
    match ratio {
        ratio if ratio > EQUAL => Ordering::Greater,
        ratio if ratio < 1.0 / EQUAL => Ordering::Less,
        _ => Ordering::Equal,
    }
}

fn is_better(a: f64, b: f64, less: bool) -> bool {
    if less { a < b } else { a > b }
}

fn best_point(series: &Series, less: bool) -> Option<Point> {
    series.points.iter().copied().reduce(|a, b| if is_better(b.y, a.y, less) { b } else { a })
}

/// The value at a position, or the best one; of several at the position, the best.
fn value_of(series: &Series, at: Option<f64>, less: bool) -> Option<f64> {
    let is_here = |point: &&Point| at.is_none_or(|at| series.is_level || (point.x - at).abs() < 1e-9);
    let points = series.points.iter().filter(is_here).map(|point| point.y);
    points.reduce(|a, b| if is_better(b, a, less) { b } else { a })
}

/// A number with at most four significant digits: `0.85`, `12.3`, `4,370,000` becomes `4.37M`.
fn number(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::super::catalog::papers;
    use super::*;
    use serde_json::json;

    fn paper() -> Paper {
        papers().unwrap().into_iter().find(|paper| paper.name == "ramp-with-rdma").unwrap()
    }

    fn line(operations: &str, wire: &str, size: u32, per_s: f64) -> serde_json::Value {
        json!({
            "algorithm": "ramp-fast", "operations": operations, "wire": wire, "size": size, "read_share": 0.95,
            "command": "rs lab ramp", "commit": "abc", "workload": "micro", "median_per_s": per_s, "per_s": [per_s * 0.9, per_s]
        })
    }

    #[test]
    fn a_figure_has_our_curves_beside_the_numbers_of_the_paper() {
        let paper = paper();
        let figure = paper.figures.iter().find(|figure| figure.number == "5").unwrap();
        let points = Points(vec![
            line("get", "tcp", 4, 1000.0),
            line("get", "tcp", 8, 800.0),
            line("get+", "shm", 4, 1900.0),
            line("get*", "shm", 4, 900.0),
        ]);
        let measured = Measured::from([("sizes".to_owned(), points)]);
        let report = paper_report(&paper, &[figure], &measured, &Provenance::now("paper", 0.0));
        let section = &report.sections[1];
        assert!(section.heading.starts_with("Figure 5: "), "{}", section.heading);
        let rows = &section.tables[0].rows;
        let ours: Vec<&str> = rows.iter().map(|row| row[2].as_str()).collect();
        assert_eq!(ours, ["1.9", "0.9", "0.474"], "{rows:?}");
        let finding = &section.text[0];
        assert!(finding.contains("is 1.9 (the paper: 2.07, also above 1)"), "{finding}");
        assert!(finding.contains("is 0.9 (the paper: 2.78, not as in the paper)"), "{finding}");
        assert!(
            section.text.iter().any(|text| text.contains("Measured by `rs lab ramp`; commit abc")),
            "{:?}",
            section.text
        );
        let chart = &section.figures[0].chart;
        assert_eq!(chart.series.len(), 3, "a curve without points is left out");
        assert_eq!(chart.series[0].points[0].bar, Some((900.0, 1000.0)));
        assert_eq!(section.figures[1].chart.series[0].name, "the paper");
        for figure in &section.figures {
            figure.chart.svg().unwrap();
        }
    }

    #[test]
    fn figures_without_points_are_named() {
        let paper = paper();
        let figures: Vec<_> = paper.figures.iter().collect();
        let report = paper_report(&paper, &figures, &Measured::new(), &Provenance::now("paper", 0.0));
        let last = report.sections.last().unwrap();
        assert_eq!(last.heading, "What is not here");
        assert!(last.text[0].contains('5') && report.sections.len() == 2, "{last:?}");
    }

    #[test]
    fn curves_of_an_experiment_that_failed_are_named_and_odd_points_are_left_out() {
        let papers = papers().unwrap();
        let paper = papers.iter().find(|paper| paper.name == "disaggregated-query").unwrap();
        let figure = paper.figures.iter().find(|figure| figure.number == "4.28").unwrap();
        let read = |connections: u32| {
            json!({
                "mode": "remote", "bridge": "static", "io_threads": 100, "size_bytes": 512, "connections": connections,
                "median_iops": 1000.0, "iops": [1000.0]
            })
        };
        let measured = Measured::from([("reads".to_owned(), Points(vec![read(0), read(2)]))]);
        let report = paper_report(paper, &[figure], &measured, &Provenance::now("paper", 0.0));
        let text = report.sections[1].text.join("\n");
        assert!(text.contains("The experiment `replay` was not measured, or failed"), "{text}");
        let chart = &report.sections[1].figures[0].chart;
        assert_eq!(chart.series[0].points.len(), 1, "no place on a logarithmic axis: {chart:?}");
        chart.svg().unwrap();
        assert_eq!(report.points.len(), 2);
        assert!(report.provenance.iter().any(|(name, _)| name == "drawn"));
    }

    #[test]
    fn numbers_are_short() {
        let short = [0.85, 12.3, 1.0, 4_370_000.0, 23_400.0, 128.0].map(number);
        assert_eq!(short, ["0.85", "12.3", "1", "4.37M", "23.4k", "128"]);
        let places = [512.0, 16_384.0, 1_048_576.0].map(|at| place(at, true));
        assert_eq!(places, ["512 B", "16 KiB", "1 MiB"]);
    }
}
