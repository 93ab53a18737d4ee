//! Prints the results of a measurement: one JSON line per figure, and a table for people.

use crate::{
    failure::{Failure, at_path},
    output::{Cell, TextTable, print_text},
};
use rackscan_figures::{Report, Table};
use serde::Serialize;
use std::{fmt::Display, fs::File, io::Write, path::Path};

/// Prints the lines as JSON to standard output and the table to standard error. With a file,
/// appends the lines to it and prints the table to standard output.
pub(super) fn write_lines<L: Serialize>(
    lines: &[L],
    file: Option<&Path>,
    table: &dyn Display,
) -> Result<(), Failure> {
    let Some(path) = file else {
        print_text(&json_lines(lines)?)?;
        note!("{}", table.to_string().trim_end());
        return Ok(());
    };
    append_lines(lines, path)?;
    print_text(&table.to_string())
}

/// Appends the lines as JSON to a file.
pub(super) fn append_lines<L: Serialize>(lines: &[L], path: &Path) -> Result<(), Failure> {
    append(&json_lines(lines)?, path)
}

/// Appends a line to a file.
pub(super) fn append(text: &str, path: &Path) -> Result<(), Failure> {
    let mut file = File::options().create(true).append(true).open(path).map_err(at_path(path))?;
    writeln!(file, "{text}").map_err(at_path(path))
}

fn json_lines<L: Serialize>(lines: &[L]) -> Result<String, Failure> {
    let texts = lines.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>();
    let texts =
        texts.map_err(|error| Failure::Runtime(format!("cannot write the figures as JSON: {error}")))?;
    Ok(texts.join("\n"))
}

/// Prints lines and table, and writes a page of figures if a folder is named. Prints nothing if
/// there are no lines.
pub(super) fn publish<L: Serialize>(
    lines: &[L],
    table: &dyn Display,
    (json, folder): (Option<&Path>, Option<&Path>),
    page: &dyn Fn() -> Report,
) -> Result<(), Failure> {
    if lines.is_empty() {
        return Ok(());
    }
    write_lines(lines, json, table)?;
    if let Some(folder) = folder {
        note!("figures: {}", page().write(folder)?.display());
    }
    Ok(())
}

/// A table of a page as text, with its caption; `is_text` says which columns are no numbers.
pub(super) fn shown(table: Table, is_text: fn(usize) -> bool) -> String {
    let heads: Vec<&str> = table.head.iter().map(String::as_str).collect();
    let mut text = TextTable::new(&heads);
    for row in table.rows {
        let cell = |(place, cell)| if is_text(place) { Cell::Text(cell) } else { Cell::Number(cell) };
        text.push(row.into_iter().enumerate().map(cell).collect());
    }
    format!("{}.\n{text}", table.caption)
}

/// The error of a measurement that was stopped or of which something failed; `what` names the thing
/// that failed.
pub(super) fn ended(failures: &[String], what: &str, stopped: bool) -> Result<(), Failure> {
    if let Some(first) = failures.first() {
        let count = failures.len();
        return Err(Failure::Runtime(format!("{count} {what}; the first: {first}")));
    }
    if stopped {
        let text = "stopped before everything was measured; the figures above are partial";
        return Err(Failure::Runtime(text.to_owned()));
    }
    Ok(())
}
