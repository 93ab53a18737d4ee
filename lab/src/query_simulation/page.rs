//! Draws the paper's figures 4.32 to 4.40 and its tables 4.5 and 4.6 from the lines of a
//! simulation.

use rackscan_figures::{Axis, Chart, Figure, Kind, Point, Report, Scale, Section, Series, Table, size_name};

use super::line::{CpuShare, QueryLine};
use super::placement::Placement;
use super::queries::SimulatedQuery;
use crate::record::Provenance;

/// The page size that the paper examines in detail.
const CLOSER: u32 = 16 * 1024;

/// A report page of the simulation.
#[must_use]
pub fn report(lines: &[QueryLine], provenance: &Provenance) -> Report {
    let all = Lines(lines);
    let mut sections = vec![Section {
        heading: "Which share of rows passes".to_owned(),
        text: vec![
            "The paper's table 4.5 prints 0.15 for query 15. Its predicate, three months of seven years, lets about 0.038 of \
             generated rows pass, whatever the scale factor."
                .to_owned(),
        ],
        tables: vec![all.selectivities()],
        figures: Vec::new(),
    }];
    for (number, query) in (32..).step_by(3).zip(SimulatedQuery::ALL) {
        if all.of(|line| line.query == query).next().is_some() {
            sections.push(all.query(number, query));
        }
    }
    let cut = lines.iter().filter(|line| line.partial.is_some()).count();
    if let Some(why) = lines.iter().find_map(|line| line.partial.as_deref()) {
        let text = vec![format!("{cut} of {} points have fewer turns than asked for: {why}.", lines.len())];
        sections.push(Section { heading: "What is not here".to_owned(), text, ..Section::default() });
    }
    Report {
        title: "Filters of queries: local, remote-fetch, remote-process".to_owned(),
        provenance: provenance.named(format!("TPC-H lineitem, scale factor {}", provenance.scale)),
        sections,
        points: lines.iter().filter_map(|line| serde_json::to_value(line).ok()).collect(),
    }
}

struct Lines<'a>(&'a [QueryLine]);

fn chart(title: String, kind: Kind, x: Axis, series: Vec<Series>) -> Chart {
    let series = series.into_iter().filter(|series| !series.points.is_empty()).collect();
    Chart { title, kind, x, y: Axis::new("seconds", Scale::Automatic), series }
}

impl<'a> Lines<'a> {
    fn of(&self, wanted: impl Fn(&QueryLine) -> bool) -> impl Iterator<Item = &'a QueryLine> {
        self.0.iter().filter(move |line| wanted(line))
    }

    /// The fastest line.
    fn best(&self, wanted: impl Fn(&QueryLine) -> bool) -> Option<&'a QueryLine> {
        self.of(wanted).min_by(|a, b| a.median_s.total_cmp(&b.median_s))
    }

    /// The measured page sizes, ascending.
    fn page_sizes(&self, query: SimulatedQuery) -> Vec<u32> {
        let mut sizes: Vec<u32> =
            self.of(|line| line.query == query).map(|line| line.page_size_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    fn query(&self, number: u32, query: SimulatedQuery) -> Section {
        let sizes = self.page_sizes(query);
        let closer = sizes.iter().copied().find(|size| *size == CLOSER).or(sizes.first().copied());
        let closer = closer.unwrap_or(CLOSER);
        let mut figures = vec![self.by_workers(number, query, closer)];
        figures.extend(self.by_connections(number + 1, query, closer));
        figures.push(self.by_page_size(number + 2, query, &sizes));
        Section {
            heading: format!("Query {}", query.name()),
            text: remarks(query),
            tables: vec![self.closer(query, closer)],
            figures,
        }
    }

    /// A point for each line, with the fastest and the slowest turn as its error bar.
    fn points(&self, place: fn(&QueryLine) -> u32, wanted: impl Fn(&QueryLine) -> bool) -> Vec<Point> {
        let point = |line: &QueryLine| Point::of_turns(place(line).into(), line.median_s, &line.seconds);
        let mut points: Vec<Point> = self.of(wanted).map(point).collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        points
    }

    fn by_workers(&self, number: u32, query: SimulatedQuery, size: u32) -> Figure {
        let series = Placement::ALL.map(|placement| {
            let points = self.points(
                |line| line.workers,
                |line| (line.query, line.placement, line.page_size_bytes) == (query, placement, size),
            );
            Series::of(placement.name(), points)
        });
        let title =
            format!("{query}: time by threads, pages of {} (figure 4.{number})", size_name(size.into()));
        Figure {
            name: format!("figure-4-{number}"),
            caption:
                "Points of one place differ in connections; bars reach from the quickest turn to the slowest."
                    .to_owned(),
            chart: chart(
                title,
                Kind::Scatter,
                Axis::new("threads of all connections together", Scale::Log2),
                series.into(),
            ),
        }
    }

    /// Returns `None` if nothing crossed a wire.
    fn by_connections(&self, number: u32, query: SimulatedQuery, size: u32) -> Option<Figure> {
        let series = [Placement::RemoteFetch, Placement::RemoteProcess].map(|placement| {
            let points = self.points(
                |line| line.connections,
                |line| (line.query, line.placement, line.page_size_bytes) == (query, placement, size),
            );
            Series::of(placement.name(), points)
        });
        if series.iter().all(|series| series.points.is_empty()) {
            return None;
        }
        let title =
            format!("{query}: time by connections, pages of {} (figure 4.{number})", size_name(size.into()));
        Some(Figure {
            name: format!("figure-4-{number}"),
            caption: "Points of one place differ in threads of each connection.".to_owned(),
            chart: chart(title, Kind::Scatter, Axis::new("connections", Scale::Log2), series.into()),
        })
    }

    fn by_page_size(&self, number: u32, query: SimulatedQuery, sizes: &[u32]) -> Figure {
        let series = Placement::ALL.map(|placement| {
            let best = |size: u32| {
                self.best(|line| {
                    (line.query, line.placement, line.page_size_bytes) == (query, placement, size)
                })
            };
            let places = (0_u32..).zip(sizes);
            let points = places.filter_map(|(place, size)| Some((f64::from(place), best(*size)?.median_s)));
            Series::new(placement.name(), points)
        });
        Figure {
            name: format!("figure-4-{number}"),
            caption: "The quickest of each placement, whatever its connections and threads.".to_owned(),
            chart: chart(
                format!("{query}: least time by size of pages (figure 4.{number})"),
                Kind::Bars(sizes.iter().map(|size| size_name((*size).into())).collect()),
                Axis::new("size of pages", Scale::Linear),
                series.into(),
            ),
        }
    }

    /// Table 4.6: the fastest line of each placement at one page size.
    fn closer(&self, query: SimulatedQuery, size: u32) -> Table {
        let best: Vec<&QueryLine> = Placement::ALL
            .into_iter()
            .filter_map(|placement| {
                self.best(|line| {
                    (line.query, line.placement, line.page_size_bytes) == (query, placement, size)
                })
            })
            .collect();
        let busy = |share: Option<CpuShare>, of: fn(CpuShare) -> Option<f64>| {
            let found = share.map(|share| of(share).map_or("-".to_owned(), |part| format!("{part:.0} %")));
            found.unwrap_or_default()
        };
        type Cell<'c> = Box<dyn Fn(&QueryLine) -> String + 'c>;
        let rows: [(&str, Cell<'_>); 13] = [
            (
                "connections",
                Box::new(
                    |line| if line.connections == 0 { String::new() } else { line.connections.to_string() },
                ),
            ),
            ("threads (of each connection)", Box::new(|line| line.threads.to_string())),
            ("IOPS", Box::new(|line| format!("{:.0}", line.iops))),
            ("CPU here", Box::new(move |line| busy(Some(line.own_cpu), |share| Some(share.percent)))),
            ("CPU here, user", Box::new(move |line| busy(Some(line.own_cpu), |share| share.user_percent))),
            (
                "CPU here, system",
                Box::new(move |line| busy(Some(line.own_cpu), |share| share.system_percent)),
            ),
            ("CPU of the node", Box::new(move |line| busy(line.node_cpu, |share| Some(share.percent)))),
            ("CPU of the node, user", Box::new(move |line| busy(line.node_cpu, |share| share.user_percent))),
            (
                "CPU of the node, system",
                Box::new(move |line| busy(line.node_cpu, |share| share.system_percent)),
            ),
            ("time [s]", Box::new(|line| format!("{:.4}", line.median_s))),
            ("read [MB/s]", Box::new(|line| format!("{:.0}", line.mb_per_s))),
            ("bytes of a page", Box::new(|line| format!("{:.0}", line.page_bytes))),
            ("over the wire [MB]", Box::new(|line| megabytes(line.wire_bytes))),
        ];
        let head = std::iter::once(String::new()).chain(best.iter().map(|line| line.placement.to_string()));
        let row = |(name, cell): (&str, Cell<'_>)| {
            std::iter::once(name.to_owned()).chain(best.iter().map(|line| cell(line))).collect()
        };
        Table {
            caption: format!(
                "The quickest of each placement, pages of {} (table 4.6); processor time in percent of all cores (-: too short to tell the modes apart)",
                size_name(size.into())
            ),
            head: head.collect(),
            rows: rows.into_iter().map(row).collect(),
        }
    }

    fn selectivities(&self) -> Table {
        let rows = SimulatedQuery::ALL.into_iter().filter_map(|query| {
            let line = self.of(|line| line.query == query).next()?;
            let counts = [line.table_rows, line.rows].map(|rows| rows.to_string());
            let [table_rows, rows] = counts;
            let found = format!("{:.4}", line.selectivity);
            Some(vec![query.to_string(), table_rows, rows, found, query.paper_selectivity().to_owned()])
        });
        let head = ["query", "rows", "rows that pass", "share", "paper (table 4.5)"];
        Table {
            caption: "Share of rows that pass".to_owned(),
            head: head.map(str::to_owned).to_vec(),
            rows: rows.collect(),
        }
    }
}

/// Remarks needed to read the figures of a query.
fn remarks(query: SimulatedQuery) -> Vec<String> {
    let mut text = vec![
        "A page holds one column of 1,024 rows or more, whatever its size was to be; the table says how many bytes were \
         read for each. Only the columns of the query are read."
            .to_owned(),
    ];
    if query == SimulatedQuery::Q01 {
        let paper = "The paper (scale factor 1, whole rows in pages of 16 KiB, two hosts and RDMA, its tables 4.4 and 4.6): \
                     local 24.8 s, remote-fetch 15.8 s, remote-process 14.5 s.";
        text.push(paper.to_owned());
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "an amount for people")]
fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}
