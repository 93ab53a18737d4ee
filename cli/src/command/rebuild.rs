//! `rackscan rebuild`: rebuilds everything that a node has lost, from the data and parity of the
//! other nodes.

use super::scrub::said;
use crate::{
    args::{Global, Rebuild},
    cluster::{ClusterFile, check_members, move_node, start_one},
    failure::Failure,
    output::{Cell, TextTable, print_text},
    progress,
    session::Reach,
};
use rackscan_client::{RebuildReport, ScrubOptions};
use rackscan_format::ids::NodeId;
use rackscan_storage_node::renew_outdated;
use rackscan_stripe::Way;
use std::time::{Duration, Instant};

/// Gives the node a new folder if asked to, and rebuilds everything that the other nodes have.
pub(crate) fn run(global: &Global, asked: &Rebuild) -> Result<(), Failure> {
    let Some(file) = ClusterFile::find(global)? else {
        let data = global.data.display();
        return Err(Failure::Runtime(format!(
            "there is no cluster in {data}: name another folder with --data"
        )));
    };
    let node = NodeId(asked.node);
    if file.members.iter().all(|member| member.config.node != node) {
        let known: Vec<String> = file.members.iter().map(|member| member.config.node.to_string()).collect();
        let path = file.path.display();
        return Err(Failure::Usage(format!("{path} has no node {node}, only {}", known.join(", "))));
    }
    if let Some(folder) = &asked.onto {
        let moved = move_node(&file, node, folder)?;
        note!("node {node} has its folder in {} from now on ({})", moved.display(), file.path.display());
    }
    let file = ClusterFile::read(&file.path)?;
    check_members(&file, Some(node))?;
    renew(&file, node)?;
    // If the other nodes keep running after this command, so does this one.
    start_one(&file, node)?;
    let reach = Reach::open_to_rebuild(global, Some(node))?;
    let options = ScrubOptions { bytes_per_second: asked.rate, ..ScrubOptions::default() };
    let started = Instant::now();
    let bar = progress::repairing(&format!("node {node}"));
    let listener = bar.listener();
    let rebuilt = {
        let cluster = reach.cluster().with_relays(asked.schedule == Way::Relay);
        reach.block_on(cluster.rebuild(node, &options, &listener))
    };
    bar.end();
    let (report, elapsed) = (rebuilt?, started.elapsed());
    print(&report, asked, elapsed)?;
    judge(&report, node)
}

/// Lets a node whose data folder was found to be outdated start again with what it has.
fn renew(file: &ClusterFile, node: NodeId) -> Result<(), Failure> {
    for member in file.members_here().filter(|member| member.config.node == node) {
        if renew_outdated(&member.config).map_err(|error| Failure::of(&error))? {
            let folder = member.config.data_dir.display();
            note!(
                "node {node}: {folder} is outdated; its transaction log is set aside and restored from the replicas on other nodes"
            );
        }
    }
    Ok(())
}

fn print(report: &RebuildReport, asked: &Rebuild, elapsed: Duration) -> Result<(), Failure> {
    let columns = ["table", "was", "places", "bytes", "rebuilt", "read of others", "read per byte", "state"];
    let mut shown = TextTable::new(&columns);
    for table in &report.tables {
        let (found, said) = (&table.report, said(&table.report));
        let per_byte = found.survivor_bytes as f64 / found.repaired_bytes.max(1) as f64;
        let is_good = found.unreadable.count == 0 && found.corrupt.count == found.repaired;
        shown.push(vec![
            Cell::from(table.name.clone()),
            Cell::from(if table.adopted { "lost" } else { "there" }),
            Cell::from(found.places),
            Cell::Bytes(found.bytes),
            Cell::Bytes(found.repaired_bytes),
            Cell::Bytes(found.survivor_bytes),
            Cell::Number(format!("{per_byte:.3}")),
            Cell::from(if is_good { "whole".to_owned() } else { said.join("; ") }),
        ]);
    }
    for (table, _) in &report.left {
        let mut cells = vec![Cell::from(table.clone()), Cell::from("lost")];
        cells.resize_with(columns.len() - 1, || Cell::from(""));
        cells.push(Cell::from("left"));
        shown.push(cells);
    }
    print_text(&shown.render(asked.format))?;
    for table in &report.dropped {
        note!(
            "{table}: node {} had a version that others have dropped or replaced; it was dropped there, too",
            asked.node
        );
    }
    let (rebuilt, seconds) = (report.rebuilt_bytes(), elapsed.as_secs_f64());
    note!(
        "rebuilt {} in {seconds:.1} s ({:.0} MB/s), {:.3} bytes read from other nodes for each",
        crate::output::bytes(rebuilt),
        rebuilt as f64 / 1e6 / seconds.max(1e-9),
        report.read_per_byte(),
    );
    Ok(())
}

/// Checks that the node has everything that it should have.
fn judge(report: &RebuildReport, node: NodeId) -> Result<(), Failure> {
    let mut problems = Vec::new();
    for (table, problem) in &report.left {
        problems.push(format!("{table}: {problem}"));
    }
    for table in &report.tables {
        let found = &table.report;
        problems.extend(found.unreadable.first.iter().map(|what| format!("{}: {what}", table.name)));
        let more = found.unreadable.count - found.unreadable.first.len() as u64;
        if more > 0 {
            problems.push(format!("{}: and {more} more like these", table.name));
        }
        if !found.unavailable.is_empty() || !found.lost.is_empty() {
            problems.push(format!("{}: {}", table.name, said(found).join("; ")));
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    problems.iter().for_each(|problem| note!("{problem}"));
    Err(Failure::Runtime(format!("some tables of node {node} were not rebuilt completely; see above")))
}
