//! `rackscan calibrate`: measures the constants of the price model and stores them next to the
//! cluster file.

use super::load::ensure_tpch;
use crate::{
    args::Calibrate,
    failure::{Failure, at_path},
    output::{Cell, TextTable, print_text},
    private, progress,
    session::{Session, connect},
};
use rackscan_fabric::Wire;
use std::fs;

/// Measures, stores and prints the constants.
pub(crate) fn run(session: &Session, asked: &Calibrate) -> Result<(), Failure> {
    if asked.table == "lineitem" {
        ensure_tpch(session)?;
    }
    let spinner = progress::steps();
    let calibration = session.block_on(async {
        let mut wires = Vec::new();
        for wire in [Wire::Shm, Wire::Tcp, Wire::Verbs] {
            let listening =
                |addresses: &[rackscan_fabric::Address]| addresses.iter().any(|at| at.wire() == wire);
            if session.file().endpoints().iter().all(|endpoint| listening(&endpoint.addresses)) {
                wires.push((wire, connect(session.file(), Some(wire), 0, 0).await?));
            }
        }
        let catalog = session.cluster().catalog().await?;
        let table = catalog.table(&asked.table)?;
        let mut on_step = |step: &str| spinner.set_message(step.to_owned());
        Ok::<_, Failure>(rackscan_bench::calibrate::run(&wires, table, &mut on_step).await?)
    })?;
    spinner.finish_and_clear();
    let text = calibration.to_toml().map_err(|error| Failure::of(&error))?;
    let path = session.calibration_file();
    let unfinished = path.with_extension("toml.new");
    private::write(&unfinished, &text).map_err(at_path(&unfinished))?;
    fs::rename(&unfinished, &path).map_err(at_path(&path))?;
    let mut table = TextTable::new(&["constant", "value", "measured", "how"]);
    for (name, constant) in calibration.constants() {
        let measured = if constant.measured { "yes" } else { "no" };
        let value = Cell::Number(format!("{:.3}", constant.value));
        table.push(vec![Cell::from(name), value, Cell::from(measured), Cell::from(constant.how.as_str())]);
    }
    print_text(&table.render(crate::args::Format::Table))?;
    note!("stored in {}; queries with --placement auto use it from now on", path.display());
    Ok(())
}
