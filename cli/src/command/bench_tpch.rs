//! `rackscan lab tpch`: measures the 22 TPC-H queries under each placement, next to other engines.

use super::{bench::publish, load, query::selected};
use crate::{
    args::{BenchTpch, Global},
    failure::Failure,
    output::{Cell, TextTable, bytes},
    progress,
    session::{Session, threads},
};
use rackscan_bench::{
    Peer, PeerEngine, cold,
    tpch::{self, Caches, TpchLine, TpchOptions},
};
use std::{collections::BTreeMap, fmt::Write as _};

/// The peers that the printed times are divided by. The JSON lines have all peers.
const REFERENCES: [PeerEngine; 2] = [PeerEngine::DuckDbNative, PeerEngine::DataFusion];

/// Loads TPC-H at the requested scale if the cluster has other data, then measures.
pub(crate) fn run(global: &Global, asked: &BenchTpch) -> Result<(), Failure> {
    let queries =
        if asked.queries.is_empty() { rackscan_queries::tpch().collect() } else { selected(&asked.queries)? };
    if asked.cold {
        check_cold(global)?;
    }
    let session = Session::open_with_cache(global, if asked.cold { Some(0) } else { asked.cache })?;
    load::ensure_tpch_at(&session, asked.scale)?;
    let options = TpchOptions {
        scale: asked.scale,
        repeat: asked.repeat,
        warm_up: if asked.cold { 0 } else { asked.warm_up.unwrap_or(1) },
        queries,
        policies: asked.placements.clone(),
        threads: threads(global),
        wire: global.wire.map_or_else(|| "as configured".to_owned(), |wire| wire.to_string()),
        caches: if asked.cold { Caches::Cold } else { Caches::Warm },
    };
    let spinner = progress::steps();
    let mut peers = Vec::with_capacity(asked.peers.len());
    for &engine in &asked.peers {
        spinner.set_message(format!("getting {} and its files ready", engine.name()));
        let data = session.data().join(format!("parquet-{}", asked.scale));
        peers.push(Peer::start(engine, asked.scale, options.threads, &data)?);
    }
    spinner.finish_and_clear();
    let bar = progress::turns();
    let lines = session.block_on(tpch::run(session.engine(), &mut peers, &options, &mut |step| {
        progress::show(&bar, step);
    }))?;
    bar.finish_and_clear();
    let files = (asked.json.as_deref(), asked.report.as_deref());
    publish(&lines, &shown(&lines, &options), files, &|| tpch::report(&lines))
}

/// Checks that a cold measurement is possible.
fn check_cold(global: &Global) -> Result<(), Failure> {
    if global.engine_cache > 0 {
        let text =
            "--cold and --engine-cache: an engine with a page cache is not cold; give only one of them";
        return Err(Failure::Usage(text.to_owned()));
    }
    Ok(cold::may_drop_caches()?)
}

/// The table, and a summary.
fn shown(lines: &[TpchLine], options: &TpchOptions) -> String {
    let cache = lines.first().map_or(0, |line| line.node_cache_bytes);
    let caches = match options.caches {
        Caches::Warm => format!(
            "warm: {} turn(s) before did not count, and the nodes keep up to {} of pages in memory",
            options.warm_up,
            bytes(cache)
        ),
        Caches::Cold => "cold: before each run peers opened their files anew and the kernel's caches were dropped; the nodes keep \
                         no pages and read past the kernel's caches"
            .to_owned(),
    };
    let mut text = format!(
        "TPC-H at scale factor {}, wire {}, {} threads: milliseconds, medians of {} turns, and their ratios.\nCaches are {caches}.\n",
        options.scale, options.wire, options.threads, options.repeat
    );
    text.push_str(&times(lines, options).to_string());
    for line in lines.iter().filter(|line| line.is_ours()) {
        let mut words = vec![format!("{} read from devices", bytes(line.disk_bytes))];
        if let Some(best) = &line.over_best_forced {
            words.push(format!(
                "over the best forced placement of each query {:.3} (geometric mean), at worst {:.3} ({}, where {} is best)",
                best.geometric_mean, best.worst, best.worst_query, best.best[&best.worst_query]
            ));
        }
        // Writing to a string cannot fail.
        let _written = writeln!(text, "{}: {}", line.name, words.join("; "));
    }
    text
}

/// A column of the table: its header, a cell per query, that of the totals and that of the
/// geometric means.
struct Column {
    head: String,
    of: BTreeMap<String, String>,
    total: String,
    mean: String,
}

/// The table with a row per query.
fn times(lines: &[TpchLine], options: &TpchOptions) -> TextTable {
    let columns: Vec<Column> = lines.iter().flat_map(columns).collect();
    let heads: Vec<&str> =
        std::iter::once("query").chain(columns.iter().map(|column| column.head.as_str())).collect();
    let mut table = TextTable::new(&heads);
    let mut row = |name: String, cell: &dyn Fn(&Column) -> String| {
        let cells = columns.iter().map(|column| Cell::Number(cell(column)));
        table.push(std::iter::once(Cell::from(name)).chain(cells).collect());
    };
    for query in &options.queries {
        let name = query.name();
        row(name.clone(), &|column| column.of.get(&name).cloned().unwrap_or_default());
    }
    row("total".to_owned(), &|column| column.total.clone());
    row("geometric mean".to_owned(), &|column| column.mean.clone());
    table
}

/// The times of one engine and placement, then their ratios.
fn columns(line: &TpchLine) -> Vec<Column> {
    let ratios = |of: &BTreeMap<String, f64>| {
        of.iter().map(|(query, ratio)| (query.clone(), format!("{ratio:.2}"))).collect::<BTreeMap<_, _>>()
    };
    let mut columns = vec![Column {
        head: line.name.clone(),
        of: line.median_ms.iter().map(|(query, ms)| (query.clone(), format!("{ms:.1}"))).collect(),
        total: format!("{:.1}", line.total_median_ms),
        mean: String::new(),
    }];
    for reference in REFERENCES {
        if let Some(over) = line.over.get(reference.name()) {
            columns.push(Column {
                head: format!("/ {}", reference.name()),
                of: ratios(&over.of),
                total: format!("{:.2}", over.of_totals),
                mean: format!("{:.2}", over.geometric_mean),
            });
        }
    }
    if let Some(best) = &line.over_best_forced {
        columns.push(Column {
            head: "/ best forced".to_owned(),
            of: ratios(&best.of),
            total: String::new(),
            mean: format!("{:.2}", best.geometric_mean),
        });
    }
    columns
}
