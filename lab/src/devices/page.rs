//! Draws the figures of devices: IOs per second by IOs in flight, latency over rate, and rate over
//! time.

use rackscan_figures::{Axis, Chart, Figure, Kind, Report, Scale, Section, Series};

use super::line::{DeviceLine, IntervalLine, Measurement};

/// The report page.
#[must_use]
pub fn report(measurements: &[Measurement]) -> Report {
    let Some(first) = measurements.first() else { return Report::default() };
    let mut sections = Vec::new();
    for measurement in measurements {
        let heading = heading(&measurement.line);
        if sections.iter().any(|section: &Section| section.heading == heading) {
            continue;
        }
        let of: Vec<&Measurement> =
            measurements.iter().filter(|other| self::heading(&other.line) == heading).collect();
        sections.push(section(heading, sections.len(), &of));
    }
    let line = &first.line;
    let devices = format!("{}, {:.2} GiB of each", line.devices.join(", "), line.provenance.scale);
    Report {
        title: "Devices of this host".to_owned(),
        provenance: line.provenance.named(devices),
        sections,
        points: measurements.iter().filter_map(|one| serde_json::to_value(&one.line).ok()).collect(),
    }
}

fn heading(line: &DeviceLine) -> String {
    let load = format!("{}, {}, {} bytes", line.workload, line.pattern, line.size_bytes);
    line.job.as_ref().map_or_else(|| load.clone(), |job| format!("{job}: {load}"))
}

/// Names of the series of a section, in their order: engine and threads.
fn series_name(line: &DeviceLine) -> String {
    format!("{}, {} threads", line.engine, line.threads)
}

fn section(heading: String, number: usize, of: &[&Measurement]) -> Section {
    let mut names: Vec<String> = Vec::new();
    for measurement in of {
        let name = series_name(&measurement.line);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let series = |point: &dyn Fn(&DeviceLine) -> (f64, f64)| {
        let lines = |name: &String| {
            let of = of.iter().filter(|one| series_name(&one.line) == *name);
            Series::new(name, of.map(|one| point(&one.line)).collect::<Vec<_>>())
        };
        names.iter().map(lines).collect::<Vec<_>>()
    };
    let (line, seconds) = (&of[0].line, of[0].line.seconds);
    let about = format!(
        "{} turns of {seconds} s each; {} loop; devices {}.",
        line.iops.len(),
        line.loop_kind,
        line.layout
    );
    let in_flight = |line: &DeviceLine| f64::from(line.depth) * f64::from(line.threads);
    let mut figures = vec![
        Figure {
            name: format!("rate-{number}"),
            caption: "Medians of turns.".to_owned(),
            chart: Chart {
                title: format!("{heading}: rate by IOs in flight"),
                kind: Kind::Lines,
                x: Axis::new("IOs in flight, of all threads", Scale::Log2),
                y: Axis::new("IOs per second", Scale::Automatic),
                series: series(&|line| (in_flight(line), line.median_iops)),
            },
        },
        Figure {
            name: format!("latency-{number}"),
            caption: "Each point is one number of IOs in flight.".to_owned(),
            chart: Chart {
                title: format!("{heading}: 99th percentile of latency over rate"),
                kind: Kind::Lines,
                x: Axis::new("IOs per second", Scale::Linear),
                y: Axis::new("microseconds", Scale::Automatic),
                series: series(&|line| (line.median_iops, line.latency.p99_us)),
            },
        },
    ];
    figures.extend(over_time(&heading, number, of));
    Section { heading, text: vec![about], figures, ..Section::default() }
}

/// Rates over the time of the first turn, if intervals were counted.
fn over_time(heading: &str, number: usize, of: &[&Measurement]) -> Option<Figure> {
    let first = |lines: &[IntervalLine]| {
        let turn = lines.iter().filter(|line| line.turn == 0);
        turn.map(|line| (line.at_ms / 1e3, line.iops)).collect::<Vec<_>>()
    };
    let series: Vec<Series> = of
        .iter()
        .filter(|one| !one.intervals.is_empty())
        .map(|one| {
            let name = format!("{}, depth {}", series_name(&one.line), one.line.depth);
            Series::new(name, first(&one.intervals))
        })
        .take(SERIES_OVER_TIME_MAX)
        .collect();
    (!series.is_empty()).then(|| Figure {
        name: format!("time-{number}"),
        caption: "The first turn.".to_owned(),
        chart: Chart {
            title: format!("{heading}: rate over time"),
            kind: Kind::Lines,
            x: Axis::new("seconds", Scale::Linear),
            y: Axis::new("IOs per second", Scale::Automatic),
            series,
        },
    })
}

/// More curves over time cannot be told apart.
const SERIES_OVER_TIME_MAX: usize = 8;
