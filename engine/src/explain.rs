//! Explains how a query would run, or how it ran: as aligned text for people, and with the same
//! facts as JSON for programs.

use crate::{
    exec::ScanExec,
    limits::PLAN_LINE_CHARACTERS_MAX,
    memory::MemoryFigures,
    report::{
        Bytes, Figures, QueryReport, RemainingConjunct, RemainingReason, RuntimeFilterConjunct, ScanFigures,
        ScanReport, plural,
    },
    rewrite::without_marks,
};
use datafusion::physical_plan::{
    ExecutionPlan, coop::CooperativeExec, display::DisplayableExecutionPlan, filter::FilterExec,
};
use rackscan_planner::{Placement, Policy};
use serde::Serialize;
use std::{fmt, sync::Arc};

/// Whether a query is only planned or also run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExplainMode {
    /// Plan it.
    #[default]
    Plan,
    /// Plan it, run it, and report what happened.
    Analyze,
}

/// How a query runs. `Display` gives the text for people.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The operators, one a line, indented by depth.
    pub plan: String,
    /// The scans, in the plan's order, depth first.
    pub scans: Vec<ScanReport>,
    /// What happened, if the query ran.
    pub run: Option<Run>,
}

/// What a run of a query took.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Rows of the answer.
    pub rows: u64,
    /// Milliseconds from the statement to the plan.
    pub planning_ms: f64,
    /// Milliseconds from the statement to the last row.
    pub elapsed_ms: f64,
    /// The figures of all scans together.
    pub total: ScanFigures,
    /// The memory outside of the scans.
    pub memory: MemoryFigures,
}

/// Collects everything that a plan tells, whether it ran or not.
pub(crate) fn explain_plan(plan: &Arc<dyn ExecutionPlan>) -> Explanation {
    let mut scans = Vec::new();
    collect_scans(plan, &mut Vec::new(), &mut scans);
    let text = DisplayableExecutionPlan::new(plan.as_ref()).indent(false).to_string();
    let plan = text.lines().map(|line| shown_line(line) + "\n").collect();
    Explanation { plan, scans, run: None }
}

/// A line of a plan with the names that users know, cut where it is too long: a constant may be a
/// text of megabytes.
fn shown_line(line: &str) -> String {
    let line = without_marks(line);
    match line.char_indices().nth(PLAN_LINE_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}... ({} bytes)", &line[..end], line.len()),
        None => line,
    }
}

/// The sum of the figures of a plan's scans so far.
pub(crate) fn total_of(plan: &Arc<dyn ExecutionPlan>) -> ScanFigures {
    let mut total = ScanFigures::default();
    if let Some(figures) = plan.downcast_ref::<ScanExec>().and_then(ScanExec::figures) {
        total.add(&figures);
    }
    plan.children().into_iter().for_each(|child| total.add(&total_of(child)));
    total
}

impl Explanation {
    /// The explanation as JSON, for programs.
    ///
    /// # Errors
    /// A figure cannot be written as JSON.
    pub fn to_json(&self) -> Result<serde_json::Value, serde_json::Error> {
        serde_json::to_value(self)
    }

    /// Adds the figures of the run.
    pub(crate) fn ran(&mut self, rows: u64, report: &QueryReport) {
        self.run = Some(Run {
            rows,
            planning_ms: report.planning.as_secs_f64() * 1e3,
            elapsed_ms: report.elapsed.as_secs_f64() * 1e3,
            total: report.total.clone(),
            memory: report.memory,
        });
    }
}

/// Finds scans, and the conjuncts of filters directly above them.
fn collect_scans(plan: &Arc<dyn ExecutionPlan>, above: &mut Vec<String>, scans: &mut Vec<ScanReport>) {
    if let Some(scan) = plan.downcast_ref::<ScanExec>() {
        let reason = RemainingReason::ExpressionNotSupported;
        let remaining_filter = above.drain(..).map(|sql| RemainingConjunct { sql, reason }).collect();
        scans.push(ScanReport { remaining_filter, ..scan.report() });
        return;
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        above.push(filter.predicate().to_string());
    } else if !plan.is::<CooperativeExec>() {
        above.clear();
    }
    for child in plan.children() {
        collect_scans(child, above, scans);
        above.clear();
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.plan.trim_end())?;
        for (index, scan) in self.scans.iter().enumerate() {
            writeln!(f)?;
            writeln!(f, "scan {} of {}", index + 1, scan.table)?;
            write_plan(f, scan)?;
            if let Some(figures) = &scan.actual {
                write_figures(f, figures)?;
            }
        }
        if let Some(run) = &self.run {
            writeln!(f)?;
            let rows = plural(run.rows, "row");
            writeln!(
                f,
                "{} {rows} in {:.1} ms, {:.1} ms of them planning",
                run.rows, run.elapsed_ms, run.planning_ms
            )?;
            write_memory(f, &run.memory)?;
        }
        Ok(())
    }
}

fn write_memory(f: &mut fmt::Formatter<'_>, memory: &MemoryFigures) -> fmt::Result {
    let MemoryFigures { peak_bytes, spilled_bytes, spills, plans: _, replanned } = memory;
    write!(f, "memory above the scans: {} at most", Bytes(*peak_bytes))?;
    if *spills > 0 {
        write!(f, ", {} written to disk in {spills} {}", Bytes(*spilled_bytes), plural(*spills, "file"))?;
    }
    if replanned.sorted_joins {
        write!(f, "; hash joins did not fit, so both sides were sorted and merged")?;
    }
    if let Some(rows) = replanned.batch_rows_max {
        write!(f, "; long rows, so a batch had at most {rows} {}", plural(rows as u64, "row"))?;
    }
    writeln!(f)
}

fn field(f: &mut fmt::Formatter<'_>, name: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(f, "  {name:<18} {value}")
}

fn write_plan(f: &mut fmt::Formatter<'_>, scan: &ScanReport) -> fmt::Result {
    let conjuncts =
        |filter: &[String]| if filter.is_empty() { "none".to_owned() } else { filter.join(" AND ") };
    let columns = if scan.columns.is_empty() { "none".to_owned() } else { scan.columns.join(", ") };
    field(f, "columns", columns)?;
    field(f, "pushed filter", conjuncts(&scan.pushed_filter))?;
    for (conjunct, zones) in scan.pushed_filter.iter().zip(&scan.zone_maps) {
        let (rows, pages) = (zones.rows_ruled_out, zones.pages_ruled_out);
        let ruled_out =
            format!("{rows} of {} rows, {pages} {} by {conjunct}", scan.rows, plural(pages, "page"));
        field(f, "  zone maps alone", ruled_out)?;
    }
    if scan.remaining_filter.is_empty() {
        field(f, "remaining filter", "none")?;
    }
    for conjunct in &scan.remaining_filter {
        field(f, "remaining filter", format!("{} (above the scan: {})", conjunct.sql, conjunct.reason))?;
    }
    for source in &scan.runtime_filter.sources {
        field(f, "narrowed by", source)?;
    }
    for RuntimeFilterConjunct { sql, zone_maps } in &scan.runtime_filter.conjuncts {
        field(f, "  at last", sql)?;
        let (rows, pages) = (zone_maps.rows_ruled_out, zone_maps.pages_ruled_out);
        let ruled_out = format!("{rows} of {} rows, {pages} {}", scan.rows, plural(pages, "page"));
        field(f, "  zone maps alone", ruled_out)?;
    }
    if scan.runtime_filter.segments > 0 {
        let given_up =
            if scan.runtime_filter.keys_given_up { "; the lookup of keys was stopped" } else { "" };
        field(
            f,
            "  in time for",
            format!("{} of {} segments{given_up}", scan.runtime_filter.segments, scan.segments),
        )?;
    }
    if !(scan.pushed_aggregates.is_empty() && scan.pushed_keys.is_empty()) {
        field(f, "pushed aggregates", scan.pushed_aggregates.join(", "))?;
        let keys = if scan.pushed_keys.is_empty() { "none".to_owned() } else { scan.pushed_keys.join(", ") };
        field(f, "grouped by", keys)?;
    }
    field(f, "rows", format!("{} of {} estimated to pass", scan.estimated_rows, scan.rows))?;
    if scan.rows_withheld + scan.rows_beside > 0 {
        let changes = format!(
            "{} stored rows withheld, {} changed rows in no segment",
            scan.rows_withheld, scan.rows_beside
        );
        field(f, "  changed", changes)?;
    }
    let planned = Placement::ALL.into_iter().filter(|placement| scan.planned.of(*placement) > 0);
    let planned: Vec<String> = planned
        .map(|placement| {
            let count = scan.planned.of(placement);
            format!("{count} {} {placement}", plural(count, "segment"))
        })
        .collect();
    let planned = if planned.is_empty() { "none can be placed".to_owned() } else { planned.join(", ") };
    let again = if scan.policy == Policy::Auto { ", decided again as each one's turn comes" } else { "" };
    field(f, "placement", format!("{} -> {planned}{again}", scan.policy))?;
    write_prices(f, scan)
}

/// The price of each placement, before and after what the scan has observed.
fn write_prices(f: &mut fmt::Formatter<'_>, scan: &ScanReport) -> fmt::Result {
    for (placement, price) in &scan.prices {
        let text = match (price.milliseconds, &price.why_not) {
            (Some(first), Some(why_not)) => {
                format!("{first:.2} ms at first, cannot apply at last: {why_not}")
            }
            (Some(first), None) => match price.corrected_milliseconds {
                Some(last) => format!("{first:.2} ms at first, {last:.2} ms at last"),
                None => format!("{first:.2} ms"),
            },
            (None, Some(why_not)) => format!("cannot apply: {why_not}"),
            (None, None) => "unknown".to_owned(),
        };
        field(f, &format!("  {placement}"), text)?;
    }
    Ok(())
}

fn write_figures(f: &mut fmt::Formatter<'_>, figures: &ScanFigures) -> fmt::Result {
    let ran = Placement::ALL.map(|placement| format!("{placement} {}", figures.segments.of(placement)));
    field(f, "ran: segments", format!("{}; {} bounced", ran.join(", "), figures.bounced))?;
    for count in &figures.reasons {
        let segments = plural(count.segments, "segment");
        field(f, "  why", format!("{} {segments} {} ({})", count.segments, count.placement, count.reason))?;
    }
    if figures.passed_over > 0 {
        let segments = plural(figures.passed_over, "segment");
        field(
            f,
            "  passed over",
            format!("{} {segments}: their index has no such row", figures.passed_over),
        )?;
    }
    if figures.changed.runs > 0 {
        let (runs, changed) = (plural(figures.changed.runs, "run"), &figures.changed);
        let text = format!(
            "{} {runs} in memory: {} rows scanned, {} selected",
            changed.runs, changed.rows_scanned, changed.rows_selected
        );
        field(f, "  changed rows", text)?;
    }
    for bounce in &figures.bounces {
        let text = format!("segment {} by node {}: {}", bounce.segment, bounce.node, bounce.text);
        field(f, "  bounced", text)?;
    }
    for loss in &figures.losses {
        field(f, "  node lost", format!("node {}: {}", loss.node, loss.text))?;
    }
    write_work(f, "", &figures.work)?;
    if figures.by_placement.len() > 1 {
        for (placement, work) in &figures.by_placement {
            writeln!(f, "  of that, {placement}")?;
            write_work(f, "  ", work)?;
        }
    }
    if let Some(work) = &figures.index_lookup {
        writeln!(f, "  besides, the index lookup")?;
        write_work(f, "  ", work)?;
    }
    Ok(())
}

fn write_work(f: &mut fmt::Formatter<'_>, indent: &str, figures: &Figures) -> fmt::Result {
    let ms = |micros: u64| format!("{}.{:02} ms", micros / 1000, micros % 1000 / 10);
    let skipped = format!(
        "{} by zone maps, {} by empty selections",
        figures.pages_skipped_by_zone, figures.pages_skipped_by_selection
    );
    let useful = format!("{} of values that came out", Bytes(figures.useful_bytes));
    let looked_up = match figures.keys_tested {
        0 => String::new(),
        tested => format!(", {tested} looked up in keys and {} kept", figures.keys_kept),
    };
    let rows = format!(
        "{} scanned{looked_up}, {} selected, {} came out",
        figures.rows_scanned, figures.rows_selected, figures.rows_out
    );
    let engine = format!(
        "{} scanning, {} CPU, {} waiting (overlapped)",
        ms(figures.engine_scan_us),
        ms(figures.engine_cpu_us),
        ms(figures.wait_us)
    );
    let node = format!(
        "{} in all, {} CPU of scans, {} queued",
        ms(figures.node_elapsed_us),
        ms(figures.node_cpu_us),
        ms(figures.node_queued_us)
    );
    let round_trips = format!("{}, {} requests", figures.round_trips, figures.requests);
    for (name, value) in [
        ("pages read", figures.pages_read.to_string()),
        ("pages skipped", skipped),
        ("bytes from disk", Bytes(figures.disk_bytes).to_string()),
        ("bytes on the wire", Bytes(figures.wire_bytes).to_string()),
        ("useful bytes", useful),
        ("round trips", round_trips),
        ("rows", rows),
        ("engine time", engine),
        ("node time", node),
    ] {
        field(f, &format!("{indent}{name}"), value)?;
    }
    if figures.pages_reconstructed > 0 {
        let (pages, from) = (figures.pages_reconstructed, Bytes(figures.survivor_bytes));
        let text = format!("{pages} {} of lost nodes, from {from} of others", plural(pages, "page"));
        field(f, &format!("{indent}reconstructed"), text)?;
    }
    Ok(())
}
