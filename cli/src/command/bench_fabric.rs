//! `rackscan lab fabric` and `rackscan lab inbox`: measure the wires between two processes of this
//! program, without nodes and data. `inbox` compares receive memory that all senders share with a
//! private ring for each sender.

use super::bench::write_lines;
use crate::{
    args::{BenchFabric, BenchInbox, BenchWires},
    failure::Failure,
    output::{Cell, TextTable},
    progress,
};
use rackscan_bench::{
    fabric::{self, FabricLine, FabricOptions, Place, Shape},
    inbox::{self, InboxLine, InboxOptions, PatternLine, SIZES},
};
use rackscan_fabric::{Address, Wire};
use std::process::Command;

/// Measures one-sided transfers and round trips.
pub(crate) fn fabric(asked: &BenchFabric) -> Result<(), Failure> {
    let BenchWires { repeat, effort, json, .. } = &asked.common;
    let options = FabricOptions { places: places(&asked.common)?, repeat: *repeat, effort: *effort };
    let spinner = progress::steps();
    let lines = fabric::run(&options, &second_process, &mut |step| spinner.set_message(step.to_owned()))?;
    spinner.finish_and_clear();
    write_lines(&lines, json.as_deref(), &figures(&lines))
}

/// Measures messages, and the memory that receives them.
pub(crate) fn inbox(asked: &BenchInbox) -> Result<(), Failure> {
    let BenchWires { repeat, effort, json, .. } = &asked.common;
    let shape =
        Shape { ring_bytes: asked.ring_bytes, packet_bytes: asked.packet_bytes, private: !asked.shared };
    let places = places(&asked.common)?;
    let spinner = progress::steps();
    let mut on_step = |step: &str| spinner.set_message(step.to_owned());
    if !asked.memory_only {
        let sizes = if asked.sizes.is_empty() { SIZES.to_vec() } else { asked.sizes.clone() };
        let options = InboxOptions { places: places.clone(), sizes, shape, repeat: *repeat, effort: *effort };
        let lines = inbox::side_by_side(&options, &second_process, &mut on_step)?;
        spinner.suspend(|| write_lines(&lines, json.as_deref(), &side_by_side(&lines)))?;
    }
    // On verbs all senders share the adapter's queue: there are no rings to compare.
    let Some(place) = places.iter().find(|place| place.wire() != "verbs") else { return Ok(()) };
    for &senders in &asked.senders {
        let lines =
            inbox::patterns(&place.ours, senders, shape, &mut |step| spinner.set_message(step.to_owned()))?;
        spinner.suspend(|| write_lines(&lines, json.as_deref(), &memory(&lines)))?;
    }
    spinner.finish_and_clear();
    Ok(())
}

/// This program again, as the second process of the measurement.
fn second_process() -> Command {
    let program = std::env::current_exe().unwrap_or_else(|_| "rackscan".into());
    let mut command = Command::new(program);
    command.args(["lab", "answer"]);
    command
}

/// Where the two processes connect on each wire.
fn places(asked: &BenchWires) -> Result<Vec<Place>, Failure> {
    let address = |text: String| text.parse::<Address>().map_err(|error| Failure::Usage(error.to_string()));
    let place = |wire: &Wire| match wire {
        Wire::Shm => {
            let path = Address::Shm { path: std::env::temp_dir().join("rackscan-bench") };
            Ok(Place { ours: path.clone(), theirs: path })
        }
        Wire::Tcp => {
            let loopback = address("tcp:127.0.0.1:0".to_owned())?;
            Ok(Place { ours: loopback.clone(), theirs: loopback })
        }
        Wire::Verbs => match asked.verbs.as_slice() {
            [ours, theirs] => Ok(Place {
                ours: address(format!("verbs:{ours}:0"))?,
                theirs: address(format!("verbs:{theirs}:0"))?,
            }),
            other => Err(Failure::Usage(format!(
                "--wires verbs needs --verbs with two ends as DEVICE@ADDRESS,DEVICE@ADDRESS; found {}",
                other.len()
            ))),
        },
        Wire::Sim => unreachable!("no option names the simulated wire"),
    };
    asked.wires.iter().map(place).collect()
}

fn figures(lines: &[FabricLine]) -> TextTable {
    let mut table = TextTable::new(&["what", "wire", "bytes", "best", "unit", "ratio", "against"]);
    for line in lines {
        table.push(vec![
            Cell::from(line.what),
            Cell::from(line.wire.as_str()),
            Cell::from(line.bytes),
            Cell::Number(format!("{:.2}", line.best)),
            Cell::from(line.unit),
            Cell::Number(format!("{:.2}", line.ratio)),
            Cell::from(line.against),
        ]);
    }
    table
}

fn side_by_side(lines: &[InboxLine]) -> TextTable {
    let mut table = TextTable::new(&[
        "wire",
        "bytes",
        "push us",
        "inbox us",
        "ratio",
        "push GB/s",
        "inbox GB/s",
        "ratio",
    ]);
    let best = |runs: &[f64], greatest: bool| {
        let pick = |a: f64, b: f64| if greatest { a.max(b) } else { a.min(b) };
        let first = if greatest { 0.0 } else { f64::INFINITY };
        Cell::Number(format!("{:.3}", runs.iter().copied().fold(first, pick)))
    };
    for line in lines {
        table.push(vec![
            Cell::from(line.wire.as_str()),
            Cell::from(line.bytes),
            best(&line.push_us, false),
            best(&line.inbox_us, false),
            Cell::Number(format!("{:.2}", line.latency_ratio)),
            best(&line.push_gb_per_s, true),
            best(&line.inbox_gb_per_s, true),
            Cell::Number(format!("{:.2}", line.bandwidth_ratio)),
        ]);
    }
    table
}

fn memory(lines: &[PatternLine]) -> TextTable {
    let mut table = TextTable::new(&[
        "pattern",
        "senders",
        "partners",
        "private rings for all",
        "inbox rings",
        "saving %",
        "with overhead %",
        "paper %",
        "messages",
        "partners private",
        "others private",
    ]);
    for line in lines {
        table.push(vec![
            Cell::from(line.pattern.name),
            Cell::from(usize::from(line.senders)),
            Cell::from(usize::from(line.pattern.partners)),
            Cell::Bytes(line.push_bytes),
            Cell::Bytes(line.inbox_bytes),
            Cell::Number(format!("{:.1}", line.saving_percent)),
            Cell::Number(format!("{:.1}", line.saving_with_overhead_percent)),
            Cell::Number(if line.senders == 64 {
                format!("{:.1}", line.pattern.paper_percent)
            } else {
                String::new()
            }),
            Cell::Count(line.messages),
            Cell::from(usize::from(line.partners_private)),
            Cell::from(usize::from(line.others_private)),
        ]);
    }
    table
}
