//! Draws the report of a replay as a page.

use rackscan_figures::{Axis, Chart, Figure, Kind, Report, Scale, Section, Series, Table};

use super::compare::compared;
use super::report::{Bin, ReplayReport};

impl ReplayReport {
    /// A page of this replay, compared with an earlier one if there is one. `provenance` describes
    /// the source of the figures.
    #[must_use]
    pub fn page(&self, earlier: Option<&Self>, provenance: Vec<(String, String)>) -> Report {
        let mut sections = vec![self.section(), self.latencies(earlier)];
        if let Some(earlier) = earlier {
            sections.push(comparison(earlier, self));
        }
        let points = earlier.into_iter().chain([self]).filter_map(|report| serde_json::to_value(report).ok());
        Report {
            title: format!("Replay of {}", self.setting.trace),
            provenance,
            sections,
            points: points.collect(),
        }
    }

    fn section(&self) -> Section {
        let rows = self.rows().into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
        let head = vec!["what".to_owned(), "value".to_owned()];
        let mut text = Vec::new();
        text.extend(self.cut_short.as_ref().map(|why| format!("This replay is not complete: {why}.")));
        Section {
            heading: "Figures".to_owned(),
            text,
            tables: vec![Table { caption: String::new(), head, rows }],
            figures: Vec::new(),
        }
    }

    fn latencies(&self, earlier: Option<&Self>) -> Section {
        let mut series = vec![("from issue".to_owned(), self.histogram.as_slice())];
        if let Some(fidelity) = &self.fidelity {
            series.push(("from intended time".to_owned(), &fidelity.histogram));
            series.push(("intended time to issue".to_owned(), &fidelity.lateness_histogram));
        }
        if let Some(earlier) = earlier {
            series.push(("earlier, from issue".to_owned(), &earlier.histogram));
        }
        let chart = |title: &str, y: &str, points: fn(&[Bin]) -> Vec<(f64, f64)>| Chart {
            title: title.to_owned(),
            kind: Kind::Lines,
            x: Axis::new("time [us]", Scale::Log10),
            y: Axis::new(y, Scale::Linear),
            series: series.iter().map(|(name, bins)| Series::new(name.clone(), points(bins))).collect(),
        };
        Section {
            heading: "Latencies".to_owned(),
            figures: vec![
                Figure {
                    name: "latency-histogram".to_owned(),
                    caption: "How often a request took how long; ten bins for each power of ten.".to_owned(),
                    chart: chart("Latency histogram", "share of requests in the bin [%]", shares),
                },
                Figure {
                    name: "latency-cumulative".to_owned(),
                    caption: "The share of requests that took at most so long.".to_owned(),
                    chart: chart("Cumulative latency", "share of requests up to here [%]", cumulated),
                },
            ],
            ..Section::default()
        }
    }
}

fn comparison(a: &ReplayReport, b: &ReplayReport) -> Section {
    let cells = |row: super::compare::Difference| {
        vec![row.what, row.a, row.b, row.ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}"))]
    };
    let table = Table {
        caption: "The second column is the earlier replay, the third is this one.".to_owned(),
        head: ["what", "A", "B", "B / A"].map(str::to_owned).to_vec(),
        rows: compared(a, b).into_iter().map(cells).collect(),
    };
    Section { heading: "Comparison".to_owned(), tables: vec![table], ..Section::default() }
}

fn shares(bins: &[Bin]) -> Vec<(f64, f64)> {
    let all: u64 = bins.iter().map(|bin| bin.count).sum();
    bins.iter().map(|bin| (bin.up_to_us, 100.0 * bin.count as f64 / all as f64)).collect()
}

fn cumulated(bins: &[Bin]) -> Vec<(f64, f64)> {
    let mut below = 0.0;
    let shares = shares(bins).into_iter();
    shares
        .map(|(us, share)| {
            below += share;
            (us, below)
        })
        .collect()
}
