//! Writes a stripe as text for a terminal.

use super::{Shown, ShownLoad, Transfers};
use std::fmt::{self, Display, Formatter};

impl Display for Shown {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.summary())?;
        f.write_str(&table(&self.layout()))?;
        let Some(transfers) = &self.transfers else { return Ok(()) };
        writeln!(f, "\n{}\n", transfers.summary(self.data_cells))?;
        f.write_str(&table(&transfers.steps()))?;
        writeln!(f)?;
        f.write_str(&load_table(&transfers.loads))?;
        let [bound, average] = transfers.limits();
        writeln!(f, "\n{bound}\n{average}")
    }
}

impl Shown {
    fn layout(&self) -> Vec<Vec<String>> {
        let head = ["cell".to_owned()].into_iter().chain((0..self.nodes).map(|node| format!("node {node}")));
        let row = |slot: usize| {
            let names =
                (0..self.nodes).map(|node| self.at(node, slot).map_or("", |cell| &cell.name).to_owned());
            [slot.to_string()].into_iter().chain(names).collect()
        };
        [head.collect()].into_iter().chain((0..self.slots()).map(row)).collect()
    }
}

impl Transfers {
    fn steps(&self) -> Vec<Vec<String>> {
        let head =
            ["step", "hop", "from", "to", "sends", "made of", "the receiver"].map(str::to_owned).to_vec();
        let list = |steps: &[u16]| steps.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        let row = |(number, step): (usize, &super::ShownStep)| {
            let keeps = (!step.keeps.is_empty()).then(|| format!("stores {}", step.keeps.join(", ")));
            let forwards =
                (!step.forwards.is_empty()).then(|| format!("forwards by {}", list(&step.forwards)));
            let uses: Vec<String> = keeps.into_iter().chain(forwards).collect();
            let (from, to) = (step.from.to_string(), step.to.to_string());
            let (made_of, hop) = (list(&step.inputs), step.hop.to_string());
            vec![number.to_string(), hop, from, to, step.sends.clone(), made_of, uses.join("; ")]
        };
        [head].into_iter().chain(self.steps.iter().enumerate().map(row)).collect()
    }
}

/// What each place sends, receives and XORs.
pub(super) fn load_table(loads: &[ShownLoad]) -> String {
    let head = ["", "sends", "of link", "receives", "of link", "XORs"].map(str::to_owned).to_vec();
    let row = |shown: &ShownLoad| {
        let (sent, received) = (shown.sent_of_link, shown.received_of_link);
        vec![
            shown.place.to_string(),
            shown.load.sent.to_string(),
            format!("{sent:.3}"),
            shown.load.received.to_string(),
            format!("{received:.3}"),
            shown.load.xors.to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = [head].into_iter().chain(loads.iter().map(row)).collect();
    table(&rows)
}

/// Rows with aligned columns. The first row is the head; numbers are right-aligned.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let is_number = |text: &String| text.parse::<f64>().is_ok();
    let right: Vec<bool> = (0..columns)
        .map(|column| rows.iter().skip(1).filter_map(|row| row.get(column)).all(is_number))
        .collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(widths.iter().zip(&right)).map(|(cell, (width, right))| {
            if *right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}
