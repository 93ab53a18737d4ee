//! `rackscan scrub` and `rackscan fsck`: check stored data, and repair it.

use crate::{
    args::{Format, Fsck, Scrub},
    failure::Failure,
    output::{Cell, TextTable, print_text},
    progress,
    session::Reach,
};
use rackscan_client::{Findings, ScrubOptions, ScrubReport};
use rackscan_format::ids::{NodeId, TableId};

/// Repairs corrupt pages and cells of protected tables.
pub(crate) fn run(reach: &Reach, asked: &Scrub) -> Result<(), Failure> {
    let options =
        ScrubOptions { repair: !asked.dry_run, equations: asked.equations, bytes_per_second: asked.rate };
    let (tables, left) = tables(reach, &asked.tables)?;
    // A dry run repairs nothing, so it succeeds only if nothing is corrupt.
    let is_good = if asked.dry_run { ScrubReport::is_clean } else { ScrubReport::is_whole };
    look(reach, &tables, &options, asked.format, left, is_good)
}

/// Checks everything and changes nothing.
pub(crate) fn check(reach: &Reach, asked: &Fsck) -> Result<(), Failure> {
    let options = ScrubOptions { repair: false, equations: true, bytes_per_second: asked.rate };
    let (tables, left) = tables(reach, &asked.tables)?;
    look(reach, &tables, &options, asked.format, left, ScrubReport::is_clean)
}

/// A table that can be checked.
struct Protected {
    name: String,
    id: TableId,
}

/// The requested tables, or all: those with parity, and a message about each other one that has a
/// problem.
fn tables(reach: &Reach, asked: &[String]) -> Result<(Vec<Protected>, Vec<String>), Failure> {
    let catalog = reach.block_on(reach.cluster().catalog())?;
    let mut names: Vec<&str> = catalog.tables.iter().map(|table| &table.definition.name[..]).collect();
    names.extend(catalog.broken.iter().map(|table| &table.name[..]));
    if let Some(unknown) = asked.iter().find(|name| !names.contains(&&name[..])) {
        return Err(Failure::Usage(format!("no table {unknown}, only {}", names.join(", "))));
    }
    let is_asked = |name: &String| asked.is_empty() || asked.contains(name);
    let (mut protected, mut left) = (Vec::new(), Vec::new());
    for definition in catalog.tables.iter().map(|table| &table.definition) {
        match definition.protection {
            _ if !is_asked(&definition.name) => {}
            Some(_) => protected.push(Protected { name: definition.name.clone(), id: definition.id }),
            None => note!("{}: not protected by parity, so it is not checked", definition.name),
        }
    }
    for table in catalog.broken.iter().filter(|table| is_asked(&table.name)) {
        left.push(format!("{}: cannot be read: {}", table.name, table.error));
        // What is still stored of it shows which of its bytes are lost.
        protected.extend(table.ids.iter().map(|id| Protected { name: table.name.clone(), id: *id }));
    }
    Ok((protected, left))
}

fn look(
    reach: &Reach,
    tables: &[Protected],
    options: &ScrubOptions,
    format: Format,
    mut problems: Vec<String>,
    is_good: fn(&ScrubReport) -> bool,
) -> Result<(), Failure> {
    let columns = [
        "table",
        "places",
        "bytes",
        "corrupt",
        "repaired",
        "lost for good",
        "equations wrong",
        "seconds",
        "state",
    ];
    let mut shown = TextTable::new(&columns);
    for Protected { name, id } in tables {
        let started = std::time::Instant::now();
        let bar = progress::repairing(name);
        let listener = bar.listener();
        let looked = reach.block_on(reach.cluster().scrub(*id, options, &listener));
        bar.end();
        let report = match looked {
            Ok(report) => report,
            // A table that cannot be checked does not prevent the check of the others.
            Err(failure) => {
                problems.push(format!("{name}: {failure}"));
                continue;
            }
        };
        let said = said(&report);
        if !is_good(&report) {
            problems.push(format!("{name}: {}", said.join("; ")));
        }
        let state = if said.is_empty() { "whole".to_owned() } else { said.join("; ") };
        shown.push(vec![
            Cell::from(name.clone()),
            Cell::from(report.places),
            Cell::Bytes(report.bytes),
            Cell::from(report.corrupt.count),
            Cell::from(report.repaired),
            Cell::from(report.unreadable.count),
            Cell::from(report.unequal.count),
            Cell::Number(format!("{:.2}", started.elapsed().as_secs_f64())),
            Cell::from(state),
        ]);
        for findings in [&report.corrupt, &report.unreadable, &report.unequal] {
            name_first(name, findings);
        }
    }
    print_text(&shown.render(format))?;
    if problems.is_empty() {
        return Ok(());
    }
    problems.iter().for_each(|problem| note!("{problem}"));
    Err(Failure::Runtime(
        "some data is corrupt or lost, see above: `rackscan scrub` repairs what is corrupt, `rackscan rebuild NODE` rebuilds what a node has lost"
            .to_owned(),
    ))
}

/// Prints the findings one by one, as far as the report lists them.
fn name_first(table: &str, findings: &Findings) {
    findings.first.iter().for_each(|found| note!("{table}: {found}"));
    let more = findings.count - findings.first.len() as u64;
    if more > 0 {
        note!("{table}: and {more} more like these");
    }
}

/// Describes what is wrong with a table, or was.
pub(super) fn said(report: &ScrubReport) -> Vec<String> {
    let mut said = Vec::new();
    let mut say = |count: u64, what: &str| {
        if count > 0 {
            said.push(format!("{count} {what}"));
        }
    };
    say(report.repaired, "repaired");
    say(report.corrupt.count - report.repaired.min(report.corrupt.count), "corrupt still");
    say(report.unequal.count, "equations do not hold");
    say(report.stripes_skipped, "stripes could not be checked against their equations");
    let nodes = |nodes: &[NodeId]| nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if !report.maps_lost.is_empty() {
        said.push(format!("no map on node {}", nodes(&report.maps_lost)));
    }
    if !report.lost.is_empty() {
        said.push(format!("nothing of it on node {}", nodes(&report.lost)));
    }
    if !report.unavailable.is_empty() {
        said.push(format!("node {} not reached", nodes(&report.unavailable)));
    }
    said
}
