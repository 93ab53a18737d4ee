//! `rackscan kv`: reads and writes keys of the cluster in transactions.
//!
//! Invariants
//! - Users' keys never begin with a zero byte, because such keys belong to the system. A command
//!   line argument cannot contain a zero byte.

use crate::{
    args::{Format, Global, Isolation, Kv, KvGet, KvPut, KvScan},
    cluster::{SharedNodes, find_or_create},
    failure::{Failure, at_path},
    output::{Cell, TextTable, print_text},
};
use rackscan_client::{LinesOptions, Session, SessionOptions, limits::SESSION_MEMORY_BYTES_MIN};
use rackscan_ramp::{
    item::{Key, Value, Version},
    message::KeyRange,
};
use std::{
    collections::BTreeMap,
    io::{Read, Write},
    time::Duration,
};

/// Runs the subcommand.
pub(crate) fn run(global: &Global, kv: &Kv) -> Result<(), Failure> {
    match kv {
        Kv::Put(put) => {
            let items = items(put)?;
            write(&mut Open::new(global, &put.isolation)?.session, items, "written")
        }
        Kv::Delete(delete) => {
            let keys = keys(&delete.keys)?;
            let items = keys.into_iter().map(|key| (key, Value::DELETED)).collect();
            write(&mut Open::new(global, &delete.isolation)?.session, items, "deleted")
        }
        Kv::Get(get) => print_value(global, get),
        Kv::MultiGet(get) => {
            let keys = keys(&get.keys)?;
            let mut open = Open::new(global, &get.isolation)?;
            let read = open.session.read(&keys).map_err(|error| Failure::of(&error))?;
            print(&read.items, get.format)
        }
        Kv::Scan(scan) => print_range(global, scan),
    }
}

/// A session, and the nodes it uses.
struct Open {
    session: Session,
    _nodes: SharedNodes,
}

impl Open {
    fn new(global: &Global, isolation: &Isolation) -> Result<Self, Failure> {
        let file = find_or_create(global)?;
        let nodes = SharedNodes::start(&file, 0)?;
        let timeout = Duration::from_secs_f64(isolation.timeout);
        let lines = LinesOptions {
            nodes: file.endpoints(),
            key: file.key()?,
            wire: global.wire,
            memory_bytes: SESSION_MEMORY_BYTES_MIN,
            patience: timeout,
            posts: false,
        };
        let options =
            SessionOptions { algorithm: isolation.algorithm, timeout, ..SessionOptions::new(lines) };
        Ok(Self { session: Session::open(options)?, _nodes: nodes })
    }
}

fn key(text: &str) -> Result<Key, Failure> {
    Key::new(text.as_bytes()).map_err(|error| Failure::Usage(format!("the key '{text:.40}': {error}")))
}

fn keys(texts: &[String]) -> Result<Vec<Key>, Failure> {
    texts.iter().map(|text| key(text)).collect()
}

fn items(put: &KvPut) -> Result<Vec<(Key, Value)>, Failure> {
    let pairs = put.items.chunks_exact(2);
    if let [lone] = pairs.remainder() {
        return Err(Failure::Usage(format!(
            "the key '{lone}' has no value, expected keys and values alternating"
        )));
    }
    let mut items = BTreeMap::new();
    for pair in pairs {
        let [name, text] = pair else { continue };
        let bytes = match text.strip_prefix('@') {
            Some("-") => {
                let mut bytes = Vec::new();
                let read = std::io::stdin().lock().read_to_end(&mut bytes);
                read.map_err(|error| Failure::Runtime(format!("cannot read standard input: {error}")))?;
                bytes
            }
            Some(path) => std::fs::read(path).map_err(at_path(path.as_ref()))?,
            None => text.clone().into_bytes(),
        };
        let value =
            Value::new(&bytes).map_err(|error| Failure::Usage(format!("the value of '{name}': {error}")))?;
        if items.insert(key(name)?, value).is_some() {
            return Err(Failure::Usage(format!("the key '{name}' is given twice, expected each once")));
        }
    }
    Ok(items.into_iter().collect())
}

fn write(session: &mut Session, items: Vec<(Key, Value)>, verb: &str) -> Result<(), Failure> {
    let count = items.len();
    let written = session.write(items).map_err(|error| Failure::of(&error))?;
    for participant in &written.untold {
        note!("{participant} does not know the outcome yet, and learns it when it is available");
    }
    session.rest();
    note!("{count} {} {verb} by transaction {}", if count == 1 { "key" } else { "keys" }, written.timestamp);
    Ok(())
}

fn print_value(global: &Global, get: &KvGet) -> Result<(), Failure> {
    let key = key(&get.key)?;
    let mut open = Open::new(global, &get.isolation)?;
    let read = open.session.read(std::slice::from_ref(&key)).map_err(|error| Failure::of(&error))?;
    let Some(bytes) = read.items.first().and_then(|(_, version)| version.value.bytes()) else {
        return Err(Failure::Runtime(format!("the key {key} has no value")));
    };
    let mut out = std::io::stdout().lock();
    let end: &[u8] = if get.raw { b"" } else { b"\n" };
    match out.write_all(bytes).and_then(|()| out.write_all(end)).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(Failure::ClosedPipe),
        Err(error) => Err(Failure::Runtime(format!("cannot write to standard output: {error}"))),
        Ok(()) => Ok(()),
    }
}

fn print_range(global: &Global, scan: &KvScan) -> Result<(), Failure> {
    let after = scan.after.as_deref().map(key).transpose()?;
    let prefix = if scan.prefix.is_empty() { Vec::new() } else { key(&scan.prefix)?.bytes().to_vec() };
    let mut open = Open::new(global, &scan.isolation)?;
    let range = KeyRange { prefix, after, most: scan.limit, values: true };
    let found = open.session.scan(&range).map_err(|error| Failure::of(&error))?;
    // Keys that begin with a zero byte are the system's.
    let of_users: Vec<_> =
        found.items.into_iter().filter(|(key, _)| !key.bytes().starts_with(&[0])).collect();
    print(&of_users, scan.format)?;
    if let Some(last) = found.goes_on {
        note!("there may be more: --after {last}");
    }
    Ok(())
}

/// Prints a row for each key.
fn print(items: &[(Key, Version)], format: Format) -> Result<(), Failure> {
    let mut table = TextTable::new(&["key", "value", "bytes", "transaction"]);
    for (key, version) in items {
        let (value, bytes) = match version.value.bytes() {
            Some(bytes) => (text(bytes), Cell::from(bytes.len())),
            None => (String::new(), Cell::from("")),
        };
        let timestamp = if version.timestamp == Version::first().timestamp {
            String::new()
        } else {
            version.timestamp.to_string()
        };
        table.push(vec![Cell::from(text(key.bytes())), Cell::from(value), bytes, Cell::from(timestamp)]);
    }
    print_text(&table.render(format))
}

/// Bytes as text; invalid UTF-8 is escaped.
fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Arguments;
    use clap::Parser;

    fn put(words: &[&str]) -> Result<Vec<(Key, Value)>, Failure> {
        let words = ["rackscan", "kv", "put"].iter().chain(words);
        let arguments =
            Arguments::try_parse_from(words).map_err(|error| Failure::Usage(error.to_string()))?;
        let crate::args::Command::Kv(Kv::Put(put)) = arguments.command else {
            return Err(Failure::Usage("not a put".to_owned()));
        };
        items(&put)
    }

    #[test]
    fn keys_and_values_come_by_turns_and_each_key_once() {
        let found = put(&["b", "2", "a", "1"]).unwrap();
        let shown: Vec<_> = found.iter().map(|(key, value)| (text(key.bytes()), value.len())).collect();
        assert_eq!(shown, [("a".to_owned(), 1), ("b".to_owned(), 1)]);
        for (words, message) in
            [(&["a", "1", "b"][..], "has no value"), (&["a", "1", "a", "2"], "twice"), (&["", "1"], "key")]
        {
            let error = put(words).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        let long = "k".repeat(2000);
        assert!(put(&[&long, "1"]).unwrap_err().to_string().contains("1024"));
        assert!(put(&["a", "@no/such/file"]).unwrap_err().to_string().contains("no/such/file"));
    }

    #[test]
    fn bytes_that_are_no_text_are_escaped() {
        assert_eq!(text("blue \u{e4}".as_bytes()), "blue \u{e4}");
        assert_eq!(text(&[0xFF, b'a', b'\n']), "\\xffa\\n");
    }
}
