//! Draws tables and figures from the lines of a sweep.
//!
//! The figures are those of "RAMP with RDMA" (Murata, Kawashima and Tatebe 2017), section 5:
//! throughput over the transaction size (figure 5) and over the read share (figures 6 and 7). For
//! YCSB's core workloads, which the paper does not have, bars are drawn.
//!
//! Invariants
//! - Figures depend on the lines alone: the same lines give the same figures.
//! - All lines of a figure have the same number of threads, number of keys, value length and
//!   distribution. An axis with a single position is left out.
//! - Every line is in a figure: a line that belongs to no axis has bars of its own.
//! - If a chart would have more series than a reader can tell apart, it is divided into several
//!   charts.

use super::line::TransactionLine;
use super::sweep::SweepOutcome;
use super::workload::Core;
use crate::record::Provenance;
use rackscan_figures::{Axis, Chart, Figure, Kind, Point, Report, SERIES_MAX, Scale, Section, Series, Table};
use std::collections::BTreeMap;

/// The paper's results of GET* and PUT+ on its InfiniBand.
const PAPER: &str = "The paper: at 4 keys and 95 % reads, 2.78 times GET and PUT by IPoIB and 1.39 times GET+ and PUT+; at 8 keys and 100 % reads, 2.69 \
    and 1.38 times; with YCSB, 2.67 and 1.29 times.";

/// A report page of the sweep.
#[must_use]
pub fn report(outcome: &SweepOutcome, provenance: &Provenance) -> Report {
    let SweepOutcome { lines, failures, .. } = outcome;
    let mut sections = vec![
        section("Over the transaction size (figure 5)", over_sizes(lines), &[]),
        section("Over the read share (figures 6 and 7)", over_shares(lines), &[]),
        section("YCSB's core workloads", bars(lines), &[]),
        section("Over threads", over_threads(lines), &[]),
        section("At one point", at_one_point(lines), &[]),
        section("Ratios", Vec::new(), &[PAPER]),
        section(
            "All points",
            Vec::new(),
            &["Rates are medians of turns; percentiles and shares are of all turns together."],
        ),
    ];
    sections[5].tables.extend(ratios(lines));
    sections[6].tables.push(points(lines));
    sections.retain(|section| !(section.figures.is_empty() && section.tables.is_empty()));
    let mut missing: Vec<String> = failures.clone();
    missing.extend(lines.iter().filter_map(|line| {
        let checked = line.checked.as_ref().filter(|checked| checked.violated() > 0)?;
        Some(format!("{}: {} violations, {:?}", line.series(), checked.violated(), checked.first.first()))
    }));
    if !missing.is_empty() {
        sections.push(Section { heading: "What went wrong".to_owned(), text: missing, ..Section::default() });
    }
    Report {
        title: "Transactions by algorithm, operations and wire".to_owned(),
        provenance: provenance.named(format!("{} GB of values", provenance.scale)),
        sections,
        points: lines.iter().filter_map(|line| serde_json::to_value(line).ok()).collect(),
    }
}

fn section(heading: &str, figures: Vec<Figure>, text: &[&str]) -> Section {
    let text = text.iter().map(|text| (*text).to_owned()).collect();
    Section { heading: heading.to_owned(), figures, text, ..Section::default() }
}

/// What the lines of a figure share, as text; sorted in the order of the figures.
type Common = Vec<(String, String)>;

/// Groups the lines for which `of` returns their common words and their position on an axis.
fn grouped(lines: &[TransactionLine], of: impl Fn(&TransactionLine) -> Option<(Common, f64)>) -> Groups<'_> {
    let mut groups = Groups::new();
    for line in lines {
        if let Some((common, place)) = of(line) {
            groups.entry(common).or_default().push((place, line));
        }
    }
    // A single position is no axis.
    groups.retain(|_, lines| lines.iter().any(|(place, _)| *place != lines[0].0));
    groups
}

fn word(name: &str, value: impl ToString) -> (String, String) {
    (name.to_owned(), value.to_string())
}

fn common(line: &TransactionLine) -> Common {
    let threads = word("threads", format!("{:04}", line.threads));
    vec![threads, word("keys", line.keys), word("bytes", line.value_bytes), word("", line.distribution)]
}

/// Lines by what they share, each with its position on an axis.
type Groups<'l> = BTreeMap<Common, Vec<(f64, &'l TransactionLine)>>;

/// The mix of a line, as text.
fn mix(line: &TransactionLine) -> (String, String) {
    let share = line.read_share.map(|share| format!("{:.0} % reads", share * 100.0));
    word("", share.unwrap_or_else(|| line.workload.to_owned()))
}

fn size(line: &TransactionLine) -> (String, String) {
    word("size", format!("{:04}", line.size))
}

fn by_size(lines: &[TransactionLine]) -> Groups<'_> {
    grouped(lines, |line| Some(([vec![mix(line)], common(line)].concat(), line.size.into())))
}

fn by_share(lines: &[TransactionLine]) -> Groups<'_> {
    grouped(lines, |line| Some(([vec![size(line)], common(line)].concat(), line.read_share? * 100.0)))
}

fn by_threads(lines: &[TransactionLine]) -> Groups<'_> {
    grouped(lines, |line| {
        let mut common = common(line);
        common[0] = size(line);
        Some(([vec![mix(line)], common].concat(), line.threads.into()))
    })
}

fn over_sizes(lines: &[TransactionLine]) -> Vec<Figure> {
    figures(by_size(lines), "figure-5-size", "Throughput over the transaction size", || {
        Axis::new("keys of each transaction", Scale::Log2)
    })
}

fn over_shares(lines: &[TransactionLine]) -> Vec<Figure> {
    figures(by_share(lines), "figure-6-reads", "Throughput over the read share", || {
        Axis::new("transactions that read, in per cent", Scale::Linear)
    })
}

fn over_threads(lines: &[TransactionLine]) -> Vec<Figure> {
    figures(by_threads(lines), "threads", "Throughput over threads", || Axis::new("threads", Scale::Log2))
}

/// Bars for each point that is on no axis of the other figures.
fn at_one_point(lines: &[TransactionLine]) -> Vec<Figure> {
    let all = [by_size(lines), by_share(lines), by_threads(lines)];
    let is_drawn = |line: &TransactionLine| {
        let drawn = all.iter().flat_map(BTreeMap::values).flatten();
        place_of_core(line).is_some() || drawn.into_iter().any(|(_, other)| std::ptr::eq(*other, line))
    };
    let mut groups = Groups::new();
    for line in lines.iter().filter(|line| !is_drawn(line)) {
        let common = [vec![mix(line), size(line)], common(line)].concat();
        groups.entry(common).or_default().push((0.0, line));
    }
    let mut figures = figures(groups, "point", "Throughput at one point", || Axis::new("", Scale::Linear));
    for figure in &mut figures {
        // The title names the group.
        figure.chart.kind = Kind::Bars(vec![String::new()]);
    }
    figures
}

/// The index of the line's YCSB core workload.
fn place_of_core(line: &TransactionLine) -> Option<u32> {
    let place = Core::ALL.iter().position(|core| core.name() == line.workload)?;
    u32::try_from(place).ok()
}

fn bars(lines: &[TransactionLine]) -> Vec<Figure> {
    let mut groups = Groups::new();
    for line in lines {
        let Some(place) = place_of_core(line) else { continue };
        let mut common = common(line);
        // The core workloads differ in their distributions.
        common[3] = size(line);
        groups.entry(common).or_default().push((place.into(), line));
    }
    let mut figures = figures(groups, "ycsb", "Throughput of YCSB's core workloads", || {
        Axis::new("workload", Scale::Linear)
    });
    for figure in &mut figures {
        figure.chart.kind = Kind::Bars(Core::ALL.map(|core| core.name().to_owned()).to_vec());
    }
    figures
}

fn figures(groups: Groups<'_>, name: &str, title: &str, axis: impl Fn() -> Axis) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (common, lines) in groups {
        let words: Vec<String> = common.iter().map(words).collect();
        let words = words.join(", ");
        let all = series(&lines);
        for part in all.chunks(SERIES_MAX) {
            let chart = Chart {
                title: format!("{title}: {words}"),
                kind: Kind::Lines,
                x: axis(),
                y: Axis::new("transactions per second", Scale::Automatic),
                series: part.to_vec(),
            };
            let caption = "Medians of turns; a bar is from the slowest to the fastest one.".to_owned();
            figures.push(Figure { name: format!("{name}-{:02}", figures.len() + 1), caption, chart });
        }
    }
    figures
}

/// `threads`, `0008` becomes `8 threads`; a value without a name stays as it is.
fn words((name, value): &(String, String)) -> String {
    let plain = value.trim_start_matches('0');
    match name.as_str() {
        "" => value.clone(),
        "size" => format!("{plain} keys each"),
        "bytes" => format!("{plain} bytes"),
        name => format!("{plain} {name}"),
    }
}

fn series(lines: &[(f64, &TransactionLine)]) -> Vec<Series> {
    let point = |(place, line): &(f64, &TransactionLine)| {
        (line.series(), Point::of_turns(*place, line.median_per_s, &line.per_s))
    };
    Series::grouped(lines.iter().map(point))
}

/// A table for each baseline: a row per point, a column per series.
fn ratios(lines: &[TransactionLine]) -> Vec<Table> {
    let mut baselines: Vec<&String> = lines.iter().flat_map(|line| line.over.keys()).collect();
    baselines.sort_unstable();
    baselines.dedup();
    let table = |baseline: &&String| {
        let mut rows: Vec<Vec<String>> = Vec::new();
        for line in lines {
            let Some(ratio) = line.over.get(*baseline) else { continue };
            rows.push(vec![place(line), line.series(), format!("{ratio:.2}")]);
        }
        let head = ["point", "series", "times as many"].map(str::to_owned).to_vec();
        Table { caption: format!("Transactions per second, over {baseline}"), head, rows }
    };
    baselines.iter().map(table).collect()
}

/// The point of a line, as text.
fn place(line: &TransactionLine) -> String {
    let share = line.read_share.map_or_else(String::new, |share| format!(" {:.0} %", share * 100.0));
    let TransactionLine { workload, distribution, size, threads, .. } = line;
    format!("{workload}{share}, {distribution}, {size} keys, {threads} threads")
}

fn points(lines: &[TransactionLine]) -> Table {
    let of = |value: Option<f64>, scale: f64, digits: usize| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{:.digits$}", value * scale))
    };
    let row = |line: &TransactionLine| {
        let failed: u64 = line.failures.values().sum();
        let checked = line.checked.as_ref();
        let found = |checked: &super::Checked| format!("{} in {}", checked.violated(), checked.operations);
        vec![
            place(line),
            line.series(),
            format!("{:.0}", line.median_per_s),
            format!("{:.0} %", line.spread * 100.0),
            format!("{:.1}", line.latency.p50_us),
            format!("{:.1}", line.latency.p99_us),
            of(line.rounds_per_read, 1.0, 3),
            of(line.one_round_share, 100.0, 2),
            of(line.one_sided_share, 100.0, 1),
            of(line.nodes_cpu_ns, 1e-3, 1),
            failed.to_string(),
            checked.map_or_else(|| "-".to_owned(), found),
        ]
    };
    let head = [
        "point",
        "series",
        "per second",
        "spread",
        "p50, us",
        "p99, us",
        "rounds of a read",
        "in one round, %",
        "keys one-sided, %",
        "nodes' CPU, us",
        "failed",
        "violations in operations",
    ];
    Table {
        caption: "Every series at every point".to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows: lines.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::{self, Operations, tests::measured};
    use super::super::workload::Workload;
    use super::*;
    use rackscan_fabric::Wire;
    use rackscan_ramp::algorithm::Algorithm;

    fn outcome(workloads: &[Workload], all: &[line::Series]) -> SweepOutcome {
        let provenance = Provenance::now("ramp", 0.001);
        let mut lines = Vec::new();
        for workload in workloads {
            let point = line::Point { workload: *workload, threads: 8 };
            let turns = |series: &line::Series| {
                let speed = if series.operations == Operations::GetStar { 3.0 } else { 1.0 };
                (*series, vec![(0, measured(1000.0 * speed)), (1, measured(1200.0 * speed))])
            };
            let turns: Vec<_> = all.iter().map(turns).collect();
            let common = line::tests::common(&provenance, &all[..1]);
            lines.extend(turns.iter().filter_map(|of| line::line(&point, of, &turns, &common)));
        }
        SweepOutcome { lines, failures: Vec::new(), stopped: false }
    }

    fn two() -> Vec<line::Series> {
        vec![line::tests::TCP, line::tests::STAR]
    }

    #[test]
    fn each_axis_with_several_places_becomes_a_figure_with_a_line_for_each_series() {
        let mut workloads = Vec::new();
        for size in [2, 4, 8] {
            for share in [0.0, 0.95, 1.0] {
                workloads.push(Workload::micro(share, size, 1000));
            }
        }
        workloads.extend(Core::ALL.map(|core| Workload::ycsb(core, 4, 1000)));
        let report = report(&outcome(&workloads, &two()), &Provenance::now("ramp", 0.001));
        let headings: Vec<&str> = report.sections.iter().map(|section| section.heading.as_str()).collect();
        let expected = [
            "Over the transaction size (figure 5)",
            "Over the read share (figures 6 and 7)",
            "YCSB's core workloads",
            "Ratios",
            "All points",
        ];
        assert_eq!(headings, expected, "there is one number of threads, so no figure over it");
        let figures = |at: usize| &report.sections[at].figures;
        assert_eq!((figures(0).len(), figures(1).len(), figures(2).len()), (3, 3, 1));
        let first = &figures(1)[0].chart;
        assert!(
            first.title.contains("2 keys each, 8 threads, 1000 keys, 1000 bytes, uniform"),
            "{}",
            first.title
        );
        assert_eq!(first.series.len(), 2);
        let star = first.series.iter().find(|series| series.name == "ramp-fast get* shm").unwrap();
        let places: Vec<(f64, f64)> = star.points.iter().map(|point| (point.x, point.y)).collect();
        assert_eq!(places, [(0.0, 3300.0), (95.0, 3300.0), (100.0, 3300.0)]);
        assert_eq!(star.points[0].bar, Some((3000.0, 3600.0)));
        assert_eq!(
            figures(2)[0].chart.kind,
            Kind::Bars(Core::ALL.map(|core| core.name().to_owned()).to_vec())
        );
        assert_eq!(report.sections[4].tables[0].rows.len(), 30);
        let ratio = |row: &&Vec<String>| row[1] == "ramp-fast get* shm" && row[2] == "3.00";
        assert_eq!(report.sections[3].tables[0].rows.iter().filter(ratio).count(), 15);
        assert_eq!(report.points.len(), 30);
    }

    #[test]
    fn a_report_is_written_with_pictures_in_both_forms() {
        let workloads = [Workload::micro(1.0, 4, 1000), Workload::micro(1.0, 8, 1000)];
        let mut of = outcome(&workloads, &two());
        of.failures.push("ramp-fast get verbs: no adapter".to_owned());
        let folder = tempfile::tempdir().unwrap();
        let page = report(&of, &Provenance::now("ramp", 0.001)).write(folder.path()).unwrap();
        let page = std::fs::read_to_string(page).unwrap();
        assert!(page.contains("no adapter") && page.contains("2.78 times"));
        for file in ["figures/figure-5-size-01.svg", "figures/figure-5-size-01.png", "points.jsonl"] {
            assert!(folder.path().join(file).is_file(), "{file}");
        }
    }

    #[test]
    fn a_point_that_lies_on_no_axis_has_bars_of_its_series() {
        let report = |workloads: &[Workload]| {
            let report = report(&outcome(workloads, &two()), &Provenance::now("ramp", 0.001));
            let section = report.sections.into_iter().find(|section| section.heading == "At one point");
            section.map_or_else(Vec::new, |section| section.figures)
        };
        let single = Workload::micro(0.95, 4, 1000);
        for others in [Vec::new(), Core::ALL.map(|core| Workload::ycsb(core, 4, 1000)).to_vec()] {
            let figures = report(&[vec![single], others].concat());
            assert_eq!(figures.len(), 1);
            let chart = &figures[0].chart;
            assert!(chart.title.contains("95 % reads, 4 keys each, 8 threads"), "{}", chart.title);
            assert!(matches!(&chart.kind, Kind::Bars(groups) if groups.len() == 1));
            let heights: Vec<f64> = chart.series.iter().map(|series| series.points[0].y).collect();
            assert_eq!(heights, [1100.0, 3300.0]);
            assert!(chart.svg().is_ok() && chart.png().is_ok());
        }
        assert!(report(&[single, Workload::micro(0.95, 8, 1000)]).is_empty(), "a line shows both");
    }

    #[test]
    fn more_series_than_a_chart_can_show_become_several_charts() {
        let mut all = Vec::new();
        for algorithm in Algorithm::ALL {
            for operations in Operations::ALL {
                for wire in [Wire::Shm, Wire::Tcp] {
                    all.push(line::Series { algorithm, operations, wire, durability: Default::default() });
                }
            }
        }
        let workloads = [Workload::micro(1.0, 4, 1000), Workload::micro(1.0, 8, 1000)];
        let report = report(&outcome(&workloads, &all), &Provenance::now("ramp", 0.001));
        let series: Vec<usize> =
            report.sections[0].figures.iter().map(|figure| figure.chart.series.len()).collect();
        assert_eq!(series, [24, 6]);
        assert!(report.sections[0].figures.iter().all(|figure| figure.chart.svg().is_ok()));
    }
}
