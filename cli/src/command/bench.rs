//! What do all benchmarks print? One JSON line for each figure, and a table for people.

use crate::{
    failure::{Failure, at_path},
    output::print_text,
};
use serde::Serialize;
use std::{fmt::Display, fs::File, io::Write, path::Path};

/// Prints the lines as JSON on standard output and the table on standard error. If there is a file, the lines are appended to that, and
/// the table goes to standard output.
pub(super) fn write_lines<L: Serialize>(
    lines: &[L],
    file: Option<&Path>,
    table: &dyn Display,
) -> Result<(), Failure> {
    let texts = lines.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>();
    let text = texts
        .map_err(|error| Failure::Runtime(format!("cannot write the figures as JSON: {error}")))?
        .join("\n");
    let Some(path) = file else {
        print_text(&text)?;
        eprint!("{table}");
        return Ok(());
    };
    let mut file = File::options().create(true).append(true).open(path).map_err(at_path(path))?;
    writeln!(file, "{text}").map_err(at_path(path))?;
    print_text(&table.to_string())
}
