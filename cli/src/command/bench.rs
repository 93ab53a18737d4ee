//! `rackscan bench`: measures, one JSON line per contender, and a table.

use super::{load, query::selected};
use crate::{
    args::{BenchTpch, Global, Peer as PeerArgument, Wire},
    failure::{Failure, at_path},
    output::{Cell, TextTable, print_text},
    progress,
    session::{Session, threads},
};
use rackscan_bench::{
    Peer, PeerEngine,
    tpch::{self, TpchLine, TpchOptions},
};
use serde::Serialize;
use std::{fs::File, io::Write, path::Path};

/// Loads TPC-H at the scale asked for if other data is there, then measures.
pub(crate) fn tpch(session: &Session, global: &Global, asked: &BenchTpch) -> Result<(), Failure> {
    let queries =
        if asked.queries.is_empty() { rackscan_queries::tpch().collect() } else { selected(&asked.queries)? };
    load::ensure_tpch_at(session, asked.scale)?;
    let options = TpchOptions {
        scale: asked.scale,
        repeat: asked.repeat,
        queries,
        policies: asked.placements.iter().map(|&placement| placement.into()).collect(),
        threads: threads(global),
        wire: global
            .wire
            .map_or("as configured", |wire| match wire {
                Wire::Shm => "shm",
                Wire::Tcp => "tcp",
                Wire::Verbs => "verbs",
            })
            .to_owned(),
    };
    let spinner = progress::steps();
    let mut peers = Vec::with_capacity(asked.peers.len());
    for peer in &asked.peers {
        let engine = match peer {
            PeerArgument::Datafusion => PeerEngine::DataFusion,
            PeerArgument::Duckdb => PeerEngine::DuckDb,
        };
        spinner.set_message(format!("getting {} and its Parquet files ready", engine.name()));
        let data = session.data().join(format!("parquet-{}", asked.scale));
        peers.push(Peer::start(engine, asked.scale, options.threads, &data)?);
    }
    let lines =
        session.block_on(tpch::run(session.engine(), &mut peers, &options, &mut |contender, query| {
            spinner.set_message(format!("{query} {contender}"));
        }))?;
    spinner.finish_and_clear();
    write_lines(&lines, asked.json.as_deref(), &times(&lines, &options))
}

/// Prints the lines as JSON on standard output and the table on standard error. If there is a file, the lines are appended to that, and
/// the table goes to standard output.
pub(super) fn write_lines<L: Serialize>(
    lines: &[L],
    file: Option<&Path>,
    table: &TextTable,
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

/// A row per query, a column per contender, best times.
fn times(lines: &[TpchLine], options: &TpchOptions) -> TextTable {
    let headers: Vec<String> = std::iter::once("best ms".to_owned())
        .chain(lines.iter().map(|line| format!("{} {}", line.engine, line.placement)))
        .collect();
    let mut table = TextTable::new(&headers.iter().map(String::as_str).collect::<Vec<_>>());
    for query in &options.queries {
        let name = query.name();
        let best = lines
            .iter()
            .map(|line| line.best_ms.get(&name).map_or_else(String::new, |ms| format!("{ms:.1}")));
        table.push(std::iter::once(Cell::from(name.clone())).chain(best.map(Cell::Number)).collect());
    }
    let totals = lines.iter().map(|line| Cell::Number(format!("{:.1}", line.total_best_ms)));
    table.push(std::iter::once(Cell::from("total")).chain(totals).collect());
    table
}
