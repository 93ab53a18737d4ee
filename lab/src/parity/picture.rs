//! Draws the paper's figures 9 and 10, and the bytes that each link carries, as a report page.
//!
//! Figure 4, how fast cells are XORed, is drawn by the measurement of that kernel (`xor`).

use rackscan_figures::{Axis, Chart, Figure, Kind, Point, Report, Scale, Section, Series, Table, size_name};

use super::{ParityOutcome, line::ParityLine};
use crate::record::Provenance;

/// A report page of the measurement.
#[must_use]
pub fn parity_report(outcome: &ParityOutcome, provenance: &Provenance) -> Report {
    let lines = &outcome.lines;
    let mut sections = Vec::new();
    let mut add = |heading: &str, figures: Vec<Figure>, text: &str| {
        if !figures.is_empty() {
            let (heading, text) = (heading.to_owned(), vec![text.to_owned()]);
            sections.push(Section { heading, text, figures, ..Section::default() });
        }
    };
    add(
        "Over the length of a block (figure 9)",
        groups(lines, "figure-9-blocks", |line| line.block_bytes, |line| (line.nodes, line.on_disk)),
        "Data per second that one client gets onto its nodes. The paper's figure shows a relay over three nodes beside a plain link; here each way is a series.",
    );
    add(
        "By way (figure 10)",
        bars(lines),
        "The paper compares a client that computes the parity with nodes that do, for single parity over three nodes and two lengths of blocks.",
    );
    add(
        "Over the number of nodes",
        groups(lines, "nodes", |line| line.nodes, |line| (line.block_bytes, line.on_disk)),
        "Data per second with more nodes in a stripe.",
    );
    sections.push(Section {
        heading: "Bytes for each byte of data".to_owned(),
        tables: vec![bytes(lines)],
        ..Section::default()
    });
    if !outcome.failures.is_empty() {
        let (heading, text) = ("What failed".to_owned(), outcome.failures.clone());
        sections.push(Section { heading, text, ..Section::default() });
    }
    Report {
        title: "Writing protected stripes".to_owned(),
        provenance: provenance.named(format!("{:.1} GB of data in all turns", written(lines))),
        sections,
        points: lines.iter().filter_map(|line| serde_json::to_value(line).ok()).collect(),
    }
}

fn written(lines: &[ParityLine]) -> f64 {
    lines.iter().map(|line| line.provenance.scale).sum()
}

/// A chart for each condition whose lines have several positions on the axis.
#[expect(clippy::cast_precision_loss, reason = "places of a picture")]
fn groups(
    lines: &[ParityLine],
    name: &str,
    place: fn(&ParityLine) -> usize,
    condition: fn(&ParityLine) -> (usize, bool),
) -> Vec<Figure> {
    let is_size = name.contains("blocks");
    let mut conditions: Vec<(usize, bool)> = lines.iter().map(condition).collect();
    conditions.sort_unstable();
    conditions.dedup();
    let mut figures = Vec::new();
    for at in conditions {
        let here: Vec<&ParityLine> = lines.iter().filter(|line| condition(line) == at).collect();
        let mut places: Vec<usize> = here.iter().map(|line| place(line)).collect();
        places.sort_unstable();
        places.dedup();
        if places.len() < 2 {
            continue;
        }
        let point =
            |line: &ParityLine| Point::of_turns(place(line) as f64, line.median_mb_per_s, &line.mb_per_s);
        let series = Series::grouped(here.into_iter().map(|line| (line.series(), point(line))));
        let x = match is_size {
            true => Axis::of_bytes("bytes of a block", Scale::Log2),
            false => Axis::new("nodes", Scale::Linear),
        };
        let of = if is_size { format!("{} nodes", at.0) } else { format!("blocks of {} bytes", at.0) };
        let to = if at.1 { "disk" } else { "memory" };
        figures.push(Figure {
            name: format!("{name}-{}-{to}", at.0),
            caption: "Medians of turns; bars reach from the slowest to the fastest.".to_owned(),
            chart: Chart {
                title: format!("Data written, {of}, to {to}"),
                kind: Kind::Lines,
                x,
                y: Axis::new("MB/s of data", Scale::Automatic),
                series,
            },
        });
    }
    figures
}

/// Figure 10: bars of each way, grouped by the length of a block.
#[expect(clippy::cast_precision_loss, reason = "places of a picture")]
fn bars(lines: &[ParityLine]) -> Vec<Figure> {
    let mut conditions: Vec<(usize, bool)> = lines.iter().map(|line| (line.nodes, line.on_disk)).collect();
    conditions.sort_unstable();
    conditions.dedup();
    let figure = |(nodes, on_disk): (usize, bool)| {
        let here: Vec<&ParityLine> =
            lines.iter().filter(|line| (line.nodes, line.on_disk) == (nodes, on_disk)).collect();
        let mut blocks: Vec<usize> = here.iter().map(|line| line.block_bytes).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let point = |line: &ParityLine| {
            let group = blocks.iter().position(|block| *block == line.block_bytes)?;
            Some((line.series(), Point { x: group as f64, y: line.median_mb_per_s, bar: None }))
        };
        let series = Series::grouped(here.into_iter().filter_map(point));
        let to = if on_disk { "disk" } else { "memory" };
        Figure {
            name: format!("figure-10-{nodes}-{to}"),
            caption: "Medians of turns.".to_owned(),
            chart: Chart {
                title: format!("Data written by each way, {nodes} nodes, to {to}"),
                kind: Kind::Bars(blocks.iter().map(|block| size_name(*block as u64)).collect()),
                x: Axis::new("bytes of a block", Scale::Linear),
                y: Axis::new("MB/s of data", Scale::Automatic),
                series,
            },
        }
    };
    conditions.into_iter().map(figure).collect()
}

fn bytes(lines: &[ParityLine]) -> Table {
    let most = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
    let row = |line: &ParityLine| {
        vec![
            line.series(),
            line.nodes.to_string(),
            size_name(line.block_bytes as u64),
            if line.on_disk { "disk" } else { "memory" }.to_owned(),
            format!("{:.3}", line.client_sent),
            format!("{:.3}", most(&line.node_sent)),
            format!("{:.3}", most(&line.node_received)),
            format!("{:.3}", line.node_kept.iter().sum::<f64>()),
            format!("{:.0}", line.median_mb_per_s),
        ]
    };
    let head = [
        "series",
        "nodes",
        "block",
        "to",
        "the client sends",
        "the busiest node sends",
        "the busiest node receives",
        "all nodes keep",
        "MB/s",
    ];
    Table {
        caption: "As client and nodes counted it".to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows: lines.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::{
        super::line::{self, tests},
        *,
    };

    #[test]
    fn a_report_has_a_figure_for_every_axis_with_several_places_and_is_written_in_both_forms() {
        let stop = AtomicBool::new(false);
        let plan = tests::plan(&stop);
        let turns = || (1..=3).map(|way| vec![tests::turn(f64::from(way), 1_000_000)]).collect::<Vec<_>>();
        let mut outcome = ParityOutcome::default();
        for nodes in [3, 5] {
            for block in [4096, 1 << 20] {
                outcome.lines.extend(line::lines(&plan, &tests::case(nodes, block), &turns()));
            }
        }
        outcome.failures.push("17 nodes: too many".to_owned());
        let report = parity_report(&outcome, &plan.provenance);
        let figures = |heading: &str| {
            let of = report.sections.iter().filter(|section| section.heading.contains(heading));
            of.map(|section| section.figures.len()).sum::<usize>()
        };
        assert_eq!((figures("figure 9"), figures("figure 10"), figures("number of nodes")), (2, 2, 2));
        assert_eq!(report.points.len(), 12);
        let folder = tempfile::tempdir().expect("the folder for temporary files is writable");
        let page = report.write(folder.path()).expect("it can be drawn");
        let page = std::fs::read_to_string(page).expect("it was written");
        assert!(page.contains("17 nodes: too many"));
        for file in ["figures/figure-9-blocks-5-memory.svg", "figures/figure-10-3-memory.png"] {
            assert!(folder.path().join(file).is_file(), "{file}");
        }
    }
}
