//! Draws the points of a placement measurement as a report page.

use super::{PlacementLine, ScanQuery, line::GOAL, summary};
use rackscan_figures::{Axis, Chart, Figure, Kind, Report, Scale, Section, Series, Table};
use std::collections::BTreeSet;

/// The report page.
#[must_use]
pub fn report(lines: &[PlacementLine]) -> Report {
    let Some(first) = lines.first() else { return Report::default() };
    let mut sections = vec![overview(lines)];
    let groups: BTreeSet<(ScanQuery, Option<u32>)> =
        lines.iter().map(|line| (line.query, line.wire_mb_per_s)).collect();
    for (query, wire) in groups {
        let of: Vec<&PlacementLine> =
            lines.iter().filter(|line| (line.query, line.wire_mb_per_s) == (query, wire)).collect();
        sections.push(section(query, wire, &of));
    }
    let devices = if first.attached { "attached to the engine's host" } else { "not attached" };
    Report {
        title: "Automatic placement beside the best forced one".to_owned(),
        provenance: first.provenance.named(format!(
            "TPC-H lineitem, scale factor {}, {} nodes, {} threads, devices {devices}",
            first.provenance.scale, first.nodes, first.threads
        )),
        sections,
        points: lines.iter().filter_map(|line| serde_json::to_value(line).ok()).collect(),
    }
}

/// A bandwidth as text.
fn wire_name(wire: Option<u32>) -> String {
    wire.map_or_else(|| "as wide as it is".to_owned(), |rate| format!("{rate} MB/s"))
}

fn overview(lines: &[PlacementLine]) -> Section {
    let text = summary(lines).map(|all| {
        let worst = &lines[all.worst.1];
        format!(
            "{} points. The times of auto over the best forced placement's: median {:.3}, at worst {:.3} ({} with a selectivity of {}, \
             {} % of the processor, wire {}); at most {GOAL} in {} points. The first runs, before medians count: median {:.3}, at \
             worst {:.3}.",
            lines.len(),
            all.median,
            all.worst.0,
            worst.query,
            worst.selectivity,
            worst.cpu_share_percent,
            wire_name(worst.wire_mb_per_s),
            all.within_goal,
            all.first_median,
            all.first_worst,
        )
    });
    Section { heading: "All points".to_owned(), text: text.into_iter().collect(), ..Section::default() }
}

fn shares(lines: &[&PlacementLine]) -> BTreeSet<u32> {
    lines.iter().map(|line| line.cpu_share_percent).collect()
}

/// One query over one wire: ratios by selectivity and processor share, then times.
fn section(query: ScanQuery, wire: Option<u32>, lines: &[&PlacementLine]) -> Section {
    let stem = format!("{query}-{}", wire.map_or_else(|| "unlimited".to_owned(), |rate| rate.to_string()));
    let series = shares(lines).into_iter().map(|share| {
        let of = lines.iter().filter(|line| line.cpu_share_percent == share);
        Series::new(format!("{share} % of the processor"), of.map(|line| (line.selectivity, line.over_best)))
    });
    let mut figures = vec![Figure {
        name: format!("ratio-{stem}"),
        caption: "1 is the best forced placement of each point.".to_owned(),
        chart: chart(
            format!("{query}: auto over the best forced placement, wire {}", wire_name(wire)),
            "ratio",
            Scale::Linear,
            series.collect(),
        ),
    }];
    figures.extend(shares(lines).into_iter().map(|share| times(query, wire, share, lines, &stem)));
    let heading = format!("{query}, wire {}", wire_name(wire));
    Section { heading, tables: vec![table(lines)], figures, ..Section::default() }
}

fn times(query: ScanQuery, wire: Option<u32>, share: u32, lines: &[&PlacementLine], stem: &str) -> Figure {
    let of = || lines.iter().filter(|line| line.cpu_share_percent == share);
    let names: BTreeSet<&String> = of().flat_map(|line| line.median_ms.keys()).collect();
    let series = names.into_iter().map(|name| {
        let points = of().filter_map(|line| Some((line.selectivity, *line.median_ms.get(name)?)));
        // A logarithmic axis has no position for a time of zero.
        Series::new(name.clone(), points.map(|(x, ms)| (x, ms.max(0.001))))
    });
    Figure {
        name: format!("ms-{stem}-{share}"),
        caption: format!("{share} % of the processor, wire {}.", wire_name(wire)),
        chart: chart(
            format!("{query}: time by placement, {share} % of the processor, wire {}", wire_name(wire)),
            "milliseconds",
            Scale::Log10,
            series.collect(),
        ),
    }
}

fn chart(title: String, unit: &str, scale: Scale, series: Vec<Series>) -> Chart {
    let x = Axis::new("share of rows that pass", Scale::Log10);
    Chart { title, kind: Kind::Lines, x, y: Axis::new(unit, scale), series }
}

fn table(lines: &[&PlacementLine]) -> Table {
    let head = [
        "selectivity",
        "processor %",
        "best forced",
        "best ms",
        "auto ms",
        "auto / best",
        "first auto / best",
    ];
    let ms = |line: &PlacementLine, name: &str| {
        line.median_ms.get(name).map_or_else(String::new, |ms| format!("{ms:.1}"))
    };
    let row = |line: &&PlacementLine| {
        vec![
            line.selectivity.to_string(),
            line.cpu_share_percent.to_string(),
            line.best_forced.clone(),
            ms(line, &line.best_forced),
            ms(line, "auto"),
            format!("{:.3}", line.over_best),
            format!("{:.3}", line.first_over_best),
        ]
    };
    Table {
        caption: "Medians".to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows: lines.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Conditions, super::line::tests::blank, *};

    #[test]
    fn every_wire_gets_its_pictures() {
        let mut lines = Vec::new();
        for (wire_mb_per_s, cpu_share_percent) in [(Some(50), 10), (Some(50), 100), (None, 10), (None, 100)] {
            for selectivity in [0.01, 1.0] {
                let conditions = Conditions { cpu_share_percent, wire_mb_per_s };
                let mut line = blank(ScanQuery::Rows, selectivity, conditions);
                line.median_ms = [("auto".to_owned(), 2.0), ("remote-fetch".to_owned(), 1.0)].into();
                line.over_best = 2.0;
                lines.push(line);
            }
        }
        let report = report(&lines);
        let figures: Vec<_> = report.sections.iter().flat_map(|section| &section.figures).collect();
        let names: Vec<_> = figures.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "ratio-rows-unlimited",
                "ms-rows-unlimited-10",
                "ms-rows-unlimited-100",
                "ratio-rows-50",
                "ms-rows-50-10",
                "ms-rows-50-100"
            ]
        );
        assert!(figures.iter().all(|figure| figure.chart.svg().is_ok()));
        assert!(report.sections[0].text[0].contains("8 points"), "{:?}", report.sections[0].text);
    }
}
