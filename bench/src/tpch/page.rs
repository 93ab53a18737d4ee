//! Draws the times of the 22 queries as a report page.

use super::{Caches, TpchLine};
use rackscan_figures::{Axis, Chart, Figure, Kind, Point, Report, Scale, Section, Series};

/// Maximum queries per figure: more leave no space for a bar of each contender.
const QUERIES_OF_ONE: usize = 11;

/// The report page.
#[must_use]
pub fn report(lines: &[TpchLine]) -> Report {
    let Some(first) = lines.first() else { return Report::default() };
    let queries: Vec<&String> = first.median_ms.keys().collect();
    let caches = match first.caches {
        Caches::Warm => "warm: nothing was dropped between runs",
        Caches::Cold => "cold: dropped before every run",
    };
    let mut sections = vec![Section {
        heading: "All queries".to_owned(),
        text: vec![format!("Caches are {caches}. Medians of {} turns.", first.runs)],
        figures: together(lines, &queries),
        ..Section::default()
    }];
    sections.push(Section {
        heading: "Each query".to_owned(),
        text: vec![
            "Bars are medians; their thin lines reach from the quickest run to the slowest.".to_owned(),
        ],
        figures: queries.iter().map(|query| alone(lines, query)).collect(),
        ..Section::default()
    });
    Report {
        title: "TPC-H: placements and other engines".to_owned(),
        provenance: first.provenance.named(format!(
            "TPC-H, scale factor {}, wire {}, {} threads",
            first.provenance.scale, first.wire, first.threads
        )),
        sections,
        points: lines.iter().filter_map(|line| serde_json::to_value(line).ok()).collect(),
    }
}

fn chart(title: String, groups: Vec<String>, unit: &str, series: Vec<Series>) -> Chart {
    let (x, y) = (Axis::new("", Scale::Linear), Axis::new(unit, Scale::Linear));
    Chart { title, kind: Kind::Bars(groups), x, y, series }
}

/// Times of several queries next to each other, as fractions of the slowest contender of each.
fn together(lines: &[TpchLine], queries: &[&String]) -> Vec<Figure> {
    let part = |(number, queries): (usize, &[&String])| {
        let slowest = |query: &String| {
            let times = lines.iter().filter_map(|line| line.median_ms.get(query));
            times.copied().fold(f64::MIN_POSITIVE, f64::max)
        };
        let series = lines.iter().map(|line| {
            let share = |(place, query): (usize, &&String)| {
                Some((index(place), line.median_ms.get(*query)? / slowest(query)))
            };
            Series::new(line.name.clone(), queries.iter().enumerate().filter_map(share))
        });
        Figure {
            name: format!("queries-{}", number + 1),
            caption: "Each query's times over its slowest contender's.".to_owned(),
            chart: chart(
                "time over that of the slowest contender".to_owned(),
                queries.iter().map(|query| (*query).clone()).collect(),
                "share of the slowest",
                series.collect(),
            ),
        }
    };
    queries.chunks(QUERIES_OF_ONE).enumerate().map(part).collect()
}

/// The times of one query.
fn alone(lines: &[TpchLine], query: &str) -> Figure {
    let groups: Vec<String> = lines.iter().map(|line| line.name.clone()).collect();
    let bars = lines.iter().enumerate().filter_map(|(place, line)| {
        let (y, times) = (*line.median_ms.get(query)?, line.ms.get(query)?);
        Some(Point::of_turns(index(place), y, times))
    });
    let series = vec![Series::of(query, bars.collect())];
    Figure {
        name: query.to_owned(),
        caption: query.to_owned(),
        chart: chart(query.to_owned(), groups, "milliseconds", series),
    }
}

/// The position of a group.
fn index(place: usize) -> f64 {
    f64::from(u32::try_from(place).expect("a chart has few groups"))
}
