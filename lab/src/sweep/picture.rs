//! Draws the figures of a sweep from its lines.

use rackscan_figures::{Axis, Chart, Figure, Kind, Point, Report, Scale, Section, Series, Table, size_name};
use rackscan_format::message::{BridgeKind, IoKind};

use super::cases::{CONNECTIONS_FIXED, DEPTH, SIZES, SMALL, THREADS_FIXED};
use crate::core_use::CoreUse;
use crate::experiment::{Mode, Outcome, PointLine};
use crate::record::Provenance;

/// Share of its local IO that the paper measured with remote IO of static threads.
const PAPER_SHARES: [(u32, &str); 4] = [(512, "85 %"), (4096, "55 %"), (16_384, "55 %"), (65_536, "62 %")];

/// A report page with figures 4.2 to 4.18 and table 4.2.
#[must_use]
pub fn sweep_report(outcome: &Outcome, provenance: &Provenance) -> Report {
    let Outcome { lines, core_use, .. } = outcome;
    let all = Lines(lines);
    let mut sections = vec![
        Section { heading: "The wire alone (4.4.1)".to_owned(), figures: all.wires(), ..Section::default() },
        Section {
            heading: "The device alone (4.4.2)".to_owned(),
            figures: all.locals(),
            ..Section::default()
        },
        Section {
            heading: "Remote reads (4.4.3)".to_owned(),
            figures: all.remotes(core_use),
            ..Section::default()
        },
        Section {
            heading: "The best of each (4.4.4)".to_owned(),
            figures: vec![all.summary()],
            tables: vec![all.shares()],
            ..Section::default()
        },
    ];
    let mut missing = Vec::new();
    for section in &mut sections {
        section.figures.retain(|figure| {
            let drawn =
                figure.chart.series.iter().any(|series| !series.is_level && !series.points.is_empty());
            if !drawn {
                missing.push(figure.chart.title.clone());
            }
            drawn
        });
    }
    let mut named = provenance.named(format!("{} GiB", provenance.scale));
    named.push(("conditions".to_owned(), conditions(lines)));
    let cut = lines.iter().filter(|line| line.partial.is_some()).count();
    let mut text = Vec::new();
    if cut > 0 || !missing.is_empty() {
        text.push(format!(
            "{cut} of {} points are partial. Not measured: {}.",
            lines.len(),
            missing.join(", ")
        ));
    }
    if !text.is_empty() {
        sections.push(Section { heading: "What is not here".to_owned(), text, ..Section::default() });
    }
    Report {
        title: "Random reads: device, wire and storage node".to_owned(),
        provenance: named,
        sections,
        points: lines.iter().filter_map(|line| serde_json::to_value(line).ok()).collect(),
    }
}

/// What all points share: `wire shm, 32 reads in flight on a connection, ...`.
fn conditions(lines: &[PointLine]) -> String {
    let mut wires: Vec<String> = Vec::new();
    for wire in lines.iter().filter_map(|line| line.wire) {
        if !wires.contains(&wire.to_string()) {
            wires.push(wire.to_string());
        }
    }
    let batches = lines.iter().filter_map(|line| line.batch);
    let batch =
        batches.max().map_or_else(String::new, |batch| format!(", reads of a message at most {batch}"));
    let (turns, seconds) = lines.first().map_or((0, 0.0), |line| (line.iops.len(), line.seconds));
    format!(
        "wire {}{batch}, {DEPTH} reads in flight on a connection where the figure names no other number; turns: {turns} of {seconds} s",
        wires.join(", ")
    )
}

/// Figure 4.11: one curve per core.
fn cores(samples: &[CoreUse]) -> Figure {
    let count = samples.iter().map(|sample| sample.busy.len()).max().unwrap_or(0).min(CORES_DRAWN_MAX);
    let series = (0..count).map(|core| {
        let points = samples
            .iter()
            .filter_map(|sample| Some((sample.at.as_secs_f64(), sample.busy.get(core)? * 100.0)));
        Series::new(format!("core {core}"), points)
    });
    let mut drawn = figure(
        11,
        format!("Use of each core, dynamic threads, {}, 1 connection", size_name(SMALL.into())),
        "seconds",
        series.collect(),
        "Of the whole machine: whatever else runs on it shows too.",
    );
    drawn.chart.x = Axis::new("seconds", Scale::Linear);
    drawn.chart.y = Axis::new("busy, in per cent", Scale::Linear);
    drawn
}

/// A chart cannot tell more curves apart.
const CORES_DRAWN_MAX: usize = rackscan_figures::SERIES_MAX;

/// Selects the lines of a series.
type Wanted<'a> = &'a dyn Fn(&PointLine) -> bool;
/// The position of a line on the horizontal axis.
type Place = fn(&PointLine) -> u32;

struct Lines<'a>(&'a [PointLine]);

fn connections(line: &PointLine) -> u32 {
    line.connections
}

fn threads_of_the_node(line: &PointLine) -> u32 {
    u32::from(line.io_threads) * line.connections
}

fn reads_in_flight(line: &PointLine) -> u32 {
    line.connections * line.depth
}

fn figure(number: u32, title: String, x: &str, series: Vec<Series>, caption: &str) -> Figure {
    Figure {
        name: format!("figure-4-{number:02}"),
        caption: caption.to_owned(),
        chart: Chart {
            title: format!("{title} (figure 4.{number})"),
            kind: Kind::Lines,
            x: Axis::new(x, Scale::Log2),
            y: Axis::new("reads per second", Scale::Automatic),
            series,
        },
    }
}

impl Lines<'_> {
    fn of(&self, wanted: Wanted<'_>) -> impl Iterator<Item = &PointLine> {
        self.0.iter().filter(move |line| wanted(line))
    }

    /// A point for each line, ordered by position, with the slowest and the fastest turn as its
    /// error bar.
    fn series(&self, name: impl Into<String>, place: Place, wanted: Wanted<'_>) -> Series {
        let mut points: Vec<Point> = self
            .of(wanted)
            .map(|line| Point::of_turns(place(line).into(), line.median_iops, &line.iops))
            .collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Series::of(name, points)
    }

    fn best(&self, wanted: Wanted<'_>) -> Option<&PointLine> {
        self.of(wanted).max_by(|a, b| a.median_iops.total_cmp(&b.median_iops))
    }

    /// A level line: the best that was measured of a part.
    fn level(&self, name: &str, wanted: Wanted<'_>) -> Option<Series> {
        Some(Series::level(name, self.best(wanted)?.median_iops))
    }

    fn wires(&self) -> Vec<Figure> {
        let draw = |(number, size): (u32, u32)| {
            let is = move |line: &PointLine, pinned| {
                line.mode == Mode::Wire && line.size_bytes == size && line.pinned == pinned
            };
            let mut series = vec![self.series("not pinned", connections, &|line| is(line, false))];
            if size == SMALL {
                series.push(self.series("pinned", connections, &|line| is(line, true)));
            }
            let title = format!("Wire alone, {}", size_name(size.into()));
            figure(number, title, "connections", series, "The node answers at once, without reading.")
        };
        (2..).zip(SIZES).map(draw).collect()
    }

    fn locals(&self) -> Vec<Figure> {
        let draw = |(number, size): (u32, u32)| {
            let is = move |line: &PointLine, io| {
                line.mode == Mode::Local && line.size_bytes == size && line.io == Some(io)
            };
            let series = vec![
                self.series("a thread per read (pread)", reads_in_flight, &|line| is(line, IoKind::Pread)),
                self.series("one thread (io_uring)", reads_in_flight, &|line| {
                    is(line, IoKind::Uring) && line.connections == 1
                }),
                self.series(format!("a ring per thread, {DEPTH} reads each"), reads_in_flight, &|line| {
                    is(line, IoKind::Uring) && line.connections > 1
                }),
            ];
            let title = format!("Local reads, {}", size_name(size.into()));
            let caption = "This process reads. The paper's way is a thread for each read in flight.";
            figure(number, title, "reads in flight", series, caption)
        };
        (6..).zip(SIZES).map(draw).collect()
    }

    fn remotes(&self, core_use: &[CoreUse]) -> Vec<Figure> {
        let remote = |line: &PointLine, bridge| {
            line.mode == Mode::Remote && line.size_bytes == SMALL && line.bridge == Some(bridge)
        };
        let dynamic = |line: &PointLine, pinned| remote(line, BridgeKind::Dynamic) && line.pinned == pinned;
        let small = size_name(SMALL.into());
        let first = figure(
            10,
            format!("Remote reads, dynamic threads, {small}"),
            "connections",
            vec![
                self.series("not pinned", connections, &|line| dynamic(line, false)),
                self.series("pinned", connections, &|line| dynamic(line, true)),
            ],
            "The node makes a thread for each read.",
        );
        let by_threads = self.series("remote, static threads", threads_of_the_node, &|line| {
            remote(line, BridgeKind::Static) && line.connections == CONNECTIONS_FIXED
        });
        let by_connections = self.series("remote, static threads", connections, &|line| {
            remote(line, BridgeKind::Static) && line.io_threads == THREADS_FIXED
        });
        let title = |fixed: String| format!("Remote reads, static threads, {small}, {fixed}");
        let second = figure(
            12,
            title(format!("{CONNECTIONS_FIXED} connections")),
            "threads that read, of the whole node",
            self.beside_limits(SMALL, by_threads),
            "A connection has a read in flight for each of its threads, and one more. Level lines are the best of each part.",
        );
        let third = figure(
            13,
            title(format!("{THREADS_FIXED} threads of each connection")),
            "connections",
            self.beside_limits(SMALL, by_connections),
            "A connection has a read in flight for each of its threads, and one more. Level lines are the best of each part.",
        );
        let all = (14..).zip(SIZES).map(|(number, size)| {
            let cloud = self.series("remote, static threads", threads_of_the_node, &|line| {
                line.mode == Mode::Remote
                    && line.size_bytes == size
                    && line.bridge == Some(BridgeKind::Static)
            });
            let mut drawn = figure(
                number,
                format!("Remote reads, static threads, {}, all combinations", size_name(size.into())),
                "threads that read, of the whole node",
                self.beside_limits(size, cloud),
                "A connection has a read in flight for each of its threads, and one more. Points of one place differ in connections.",
            );
            drawn.chart.kind = Kind::Scatter;
            drawn
        });
        [first, cores(core_use), second, third].into_iter().chain(all).collect()
    }

    fn beside_limits(&self, size: u32, measured: Series) -> Vec<Series> {
        let mode = move |line: &PointLine, mode| line.size_bytes == size && line.mode == mode && !line.pinned;
        let levels = [
            self.level("local, best", &|line| mode(line, Mode::Local)),
            self.level("wire, best", &|line| mode(line, Mode::Wire)),
            self.level("remote, reactor, best", &|line| {
                mode(line, Mode::Remote) && line.bridge == Some(BridgeKind::Reactor)
            }),
        ];
        std::iter::once(measured).chain(levels.into_iter().flatten()).collect()
    }

    /// The best line of a way to read, at one size.
    fn best_of(&self, size: u32, way: Way) -> Option<&PointLine> {
        self.best(&|line| {
            let bridge = |bridge| line.mode == Mode::Remote && line.bridge == Some(bridge);
            line.size_bytes == size
                && match way {
                    Way::Wire => line.mode == Mode::Wire,
                    Way::Local => line.mode == Mode::Local,
                    Way::Bridge(kind) => bridge(kind),
                }
        })
    }

    fn summary(&self) -> Figure {
        let series = WAYS.map(|(name, way)| {
            let places = (0_u32..).zip(SIZES);
            let points = places
                .filter_map(|(place, size)| Some((f64::from(place), self.best_of(size, way)?.mb_per_s)));
            Series::new(name, points)
        });
        let mut drawn = figure(
            18,
            "Greatest throughput of random reads by size".to_owned(),
            "bytes of each read",
            series.into_iter().filter(|series| !series.points.is_empty()).collect(),
            "The best that was measured of each way, whatever its connections and threads.",
        );
        drawn.chart.kind = Kind::Bars(SIZES.map(|size| size_name(size.into())).to_vec());
        drawn.chart.y = Axis::new("MB per second", Scale::Automatic);
        drawn
    }

    fn shares(&self) -> Table {
        let rows = PAPER_SHARES.into_iter().map(|(size, paper)| {
            let local = self.best_of(size, Way::Local).map(|line| line.median_iops);
            let iops =
                |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"));
            let mut row = vec![size_name(size.into()), iops(local)];
            for kind in [BridgeKind::Static, BridgeKind::Dynamic, BridgeKind::Reactor] {
                let remote = self.best_of(size, Way::Bridge(kind)).map(|line| line.median_iops);
                row.push(iops(remote));
                let share = remote.zip(local).filter(|(_, local)| *local > 0.0);
                row.push(share.map_or_else(
                    || "-".to_owned(),
                    |(remote, local)| format!("{:.0} %", remote / local * 100.0),
                ));
            }
            row.push(paper.to_owned());
            row
        });
        let head = [
            "size",
            "local",
            "static",
            "of local",
            "dynamic",
            "of local",
            "reactor",
            "of local",
            "paper (static)",
        ];
        Table {
            caption: "Reads per second, the best of each way (table 4.2)".to_owned(),
            head: head.map(str::to_owned).to_vec(),
            rows: rows.collect(),
        }
    }
}

#[derive(Clone, Copy)]
enum Way {
    Wire,
    Local,
    Bridge(BridgeKind),
}

const WAYS: [(&str, Way); 5] = [
    ("wire", Way::Wire),
    ("local", Way::Local),
    ("remote, dynamic", Way::Bridge(BridgeKind::Dynamic)),
    ("remote, static", Way::Bridge(BridgeKind::Static)),
    ("remote, reactor", Way::Bridge(BridgeKind::Reactor)),
];
