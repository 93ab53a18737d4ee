//! Parses answers of the program into values of cells.
//!
//! Invariants
//! - Output that cannot be parsed is an error of the program, not a read that found nothing.

use super::{
    history::{Cell, NOTHING, Number},
    world::{Table, row},
};
use serde_json::Value;
use std::collections::BTreeMap;

/// Parses one object per line. An empty result prints a blank line.
fn objects(text: &str) -> Result<Vec<Value>, String> {
    let lines = text.lines().filter(|line| !line.is_empty());
    let parsed = lines.map(|line| serde_json::from_str(line).map_err(|error| format!("{error} in {line:?}")));
    parsed.collect()
}

fn number(text: &str) -> Result<Number, String> {
    text.parse().map_err(|error| format!("the value {text:?} is no number of a write: {error}"))
}

/// The output of `kv get`.
pub(crate) fn value(out: &str) -> Result<Number, String> {
    number(out.trim_end())
}

/// The output of `kv multi-get` or `kv scan`: for these cells, or for all that are found.
pub(crate) fn pairs(out: &str, asked: impl Iterator<Item = Cell>) -> Result<BTreeMap<Cell, Number>, String> {
    let mut found: BTreeMap<Cell, Number> = asked.map(|cell| (cell, NOTHING)).collect();
    for object in objects(out)? {
        let text = |name: &str| object[name].as_str().ok_or_else(|| format!("no {name} in {object}"));
        let value = match text("value")? {
            "" => NOTHING,
            value => number(value)?,
        };
        found.insert(text("key")?.to_owned(), value);
    }
    Ok(found)
}

/// The output of `SELECT k, v`: the rows of a table without other rows, or one row only.
pub(crate) fn rows(out: &str, table: &Table, only: Option<u64>) -> Result<BTreeMap<Cell, Number>, String> {
    let mut found = match only {
        Some(key) => [(table.row(key), NOTHING)].into(),
        None => table.emptiness(),
    };
    for object in objects(out)? {
        let whole = |name: &str| object[name].as_u64().ok_or_else(|| format!("no {name} in {object}"));
        let cell = row(&table.name, whole("k")?);
        let previous = found.insert(cell.clone(), whole("v")?);
        if previous.is_some_and(|previous| previous != NOTHING) {
            return Err(format!("{cell} is there twice: {out}"));
        }
    }
    Ok(found)
}

/// The number in the counter's only row.
pub(crate) fn counter(out: &str) -> Result<u64, String> {
    match objects(out)?.as_slice() {
        [object] => object["v"].as_u64().ok_or_else(|| format!("no v in {object}")),
        other => Err(format!("{} rows, expected one: {out}", other.len())),
    }
}

/// The number of rows that each statement of a script reports as changed.
pub(crate) fn changed(out: &str) -> Result<Vec<u64>, String> {
    let objects = objects(out)?;
    let counts = objects.iter().filter_map(|object| {
        let object = object.as_object()?;
        object.iter().find(|(name, _)| name.starts_with("rows "))?.1.as_u64()
    });
    Ok(counts.collect())
}
