//! `rackscan lab xor`: measures the cost of a XORed byte on one core, next to a plain kernel that
//! reads and writes as much.

use super::bench::write_lines;
use crate::{
    args::BenchXor,
    failure::Failure,
    output::{Cell, TextTable},
    progress,
};
use az::SaturatingAs;
use rackscan_lab::{
    Provenance,
    xor::{XorLine, XorSpeed, report, table},
};
use std::time::Duration;

/// Measures every block size.
pub(crate) fn run(asked: &BenchXor) -> Result<(), Failure> {
    let blocks = asked.blocks.iter().map(|bytes| (*bytes).saturating_as::<usize>());
    let speed = XorSpeed {
        blocks: blocks.collect(),
        rounds: asked.repeat,
        turn: Duration::from_millis(asked.turn_ms),
        // Scale 0: no table is read.
        provenance: Provenance::now("xor", 0.0),
    };
    let steps = progress::steps();
    let lines = speed.run(&mut |block| steps.set_message(format!("blocks of {} KiB", block >> 10)));
    steps.finish_and_clear();
    let lines = lines.map_err(|error| Failure::Usage(error.to_string()))?;
    write_lines(&lines, asked.json.as_deref(), &shown(&lines))?;
    if let Some(folder) = &asked.report {
        let page = report(&lines, &speed.provenance).write(folder)?;
        note!("figures: {}", page.display());
    }
    Ok(())
}

/// The table.
fn shown(lines: &[XorLine]) -> String {
    let table = table(lines);
    let heads: Vec<&str> = table.head.iter().map(String::as_str).collect();
    let mut text = TextTable::new(&heads);
    for row in table.rows {
        // The second column is text.
        let cell = |(place, cell)| if place == 1 { Cell::Text(cell) } else { Cell::Number(cell) };
        text.push(row.into_iter().enumerate().map(cell).collect());
    }
    format!("{}.\n{}", table.caption, text.render(crate::args::Format::Table))
}
