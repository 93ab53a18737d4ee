//! Summarises the turns of a kernel as a line of JSON and as a row of a table.
//!
//! Invariants
//! - A line contains the results of every turn. Its figures are medians of turns.
//! - `over_copy` is the kernel's rate over the copy's rate, as the median of the ratios of each
//!   turn.

use rackscan_figures::{Axis, Chart, Figure, Kind, Report, Scale, Section, Series, Table};
use serde::Serialize;

use crate::record::Provenance;

/// One kernel at one vector level, on one core.
#[derive(Debug, Clone, Serialize)]
pub struct KernelLine {
    /// Source of the figure.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// Name of the kernel, one of [`super::names`].
    pub kernel: &'static str,
    /// Description of what the kernel does.
    pub detail: String,
    /// The vector level; `None` where it makes no difference.
    pub level: Option<String>,
    /// Rows that one run reads.
    pub rows: u64,
    /// Rows or groups that one run returns.
    pub rows_out: u64,
    /// Encoded bytes that one run reads.
    pub bytes: u64,
    /// Milliseconds of one run, per turn, including everything a scan does: its pages' checksums
    /// too.
    pub ms: Vec<f64>,
    /// Median milliseconds.
    pub median_ms: f64,
    /// The part of it that opens pages: CRC-32C and header.
    pub checksum_ms: f64,
    /// Encoded gigabytes (10^9) per second, of the median.
    pub gb_per_s: f64,
    /// Million rows per second, of the median.
    pub mrows_per_s: f64,
    /// Gigabytes per second of a plain copy of the same bytes in the same turns.
    pub copy_gb_per_s: f64,
    /// The kernel's gigabytes per second over those of the copy: 1 is as fast as copying.
    pub over_copy: f64,
    /// Why there are fewer turns than asked for.
    pub partial: Option<String>,
}

/// The lines as a table, in their order.
#[must_use]
pub fn table(lines: &[KernelLine]) -> Table {
    let head =
        ["kernel", "what", "level", "ms", "of it checksum", "GB/s", "Mrows/s", "copy GB/s", "over copy"];
    let row = |line: &KernelLine| {
        vec![
            line.kernel.to_owned(),
            line.detail.clone(),
            line.level.clone().unwrap_or_default(),
            format!("{:.2}", line.median_ms),
            if line.median_ms > 0.0 {
                format!("{:.0} %", line.checksum_ms / line.median_ms * 100.0)
            } else {
                String::new()
            },
            format!("{:.2}", line.gb_per_s),
            format!("{:.0}", line.mrows_per_s),
            format!("{:.2}", line.copy_gb_per_s),
            format!("{:.2}", line.over_copy),
        ]
    };
    Table {
        caption: "Kernels of a scan on one core, pages in memory; GB/s of encoded bytes, beside a plain copy of the same \
                  bytes in the same turns"
            .to_owned(),
        head: head.map(str::to_owned).to_vec(),
        rows: lines.iter().map(row).collect(),
    }
}

/// A report page of the measurement.
#[must_use]
pub fn report(lines: &[KernelLine], provenance: &Provenance) -> Report {
    let mut levels: Vec<Option<&str>> = lines.iter().map(|line| line.level.as_deref()).collect();
    levels.sort_unstable();
    levels.dedup();
    let mut named: Vec<(&str, &str)> = lines.iter().map(|line| (line.kernel, line.detail.as_str())).collect();
    named.dedup();
    let place = |line: &KernelLine| {
        let at = named.iter().position(|name| *name == (line.kernel, line.detail.as_str()));
        at.and_then(|at| u32::try_from(at).ok()).map(f64::from)
    };
    let series = |level: &Option<&str>| {
        let of_level = lines.iter().filter(|line| line.level.as_deref() == *level);
        let points = of_level.filter_map(|line| Some((place(line)?, line.gb_per_s)));
        Series::new(level.unwrap_or("any level"), points)
    };
    let groups = named.iter().map(|(kernel, detail)| match *kernel {
        "unpack" => format!("{kernel} {detail}"),
        _ => (*kernel).to_owned(),
    });
    let chart = Chart {
        title: "Encoded bytes per second, one core".to_owned(),
        kind: Kind::Bars(groups.collect()),
        x: Axis::new("kernel", Scale::Linear),
        y: Axis::new("GB/s", Scale::Automatic),
        series: levels.iter().map(series).filter(|series| !series.points.is_empty()).collect(),
    };
    let caption = "Each scan with its checksums; the table has a plain copy of the same bytes beside each.";
    let figures = if lines.is_empty() {
        Vec::new()
    } else {
        vec![Figure { name: "kernels".to_owned(), caption: caption.to_owned(), chart }]
    };
    let mut text = Vec::new();
    if let Some(why) = lines.iter().find_map(|line| line.partial.as_deref()) {
        text.push(format!("Some kernels have fewer turns than asked for: {why}."));
    }
    let section = Section { heading: "Kernels".to_owned(), text, tables: vec![table(lines)], figures };
    Report {
        title: "What a scanned byte costs".to_owned(),
        provenance: provenance
            .named(format!("TPC-H lineitem, scale factor {}, pages in memory", provenance.scale)),
        sections: vec![section],
        points: lines.iter().filter_map(|line| serde_json::to_value(line).ok()).collect(),
    }
}
