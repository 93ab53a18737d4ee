//! `rackscan load`: loads TPC-H, a Parquet file or a CSV file.

use crate::{
    args::{FileLoad, Load, LoadParity, LoadShape},
    failure::Failure,
    output::{bytes, grouped},
    progress,
    session::Session,
};
use indicatif::ProgressBar;
use rackscan_client::{ClientError, Cluster};
use rackscan_datasets::{
    LoadOptions, LoadSummary, Progress, TableSpec, csv, parquet,
    tpch::{self, SortBy},
};
use rackscan_engine::TableInfo;
use rackscan_format::{
    derived::{DerivedDefinition, DerivedKind},
    limits::{PAGE_SIZE_DEFAULT, SEGMENT_ROWS_DEFAULT},
};
use rackscan_stripe::Way;
use std::collections::BTreeMap;

/// Scale factor to load if a query needs TPC-H and there is none.
const SCALE_DEFAULT: f64 = 0.1;

/// Loads the tables that the arguments name, replacing tables of the same names.
pub(crate) fn run(session: &Session, load: &Load) -> Result<(), Failure> {
    match load {
        Load::Tpch { scale, shape, sort_by } => {
            let sort_by = sort_by.iter().map(|text| text.parse::<SortBy>()).collect::<Result<Vec<_>, _>>();
            let sort_by = sort_by.map_err(|error| Failure::Usage(error.to_string()))?;
            load_tpch(session, *scale, shape, &sort_by)
        }
        Load::Parquet(file) => {
            refuse_view(session, &file.table)?;
            with_bar(session, &file.shape, async |cluster, options, on_progress| {
                parquet::load(cluster, &file.file, &spec(file), options, on_progress).await
            })
        }
        Load::Csv { file, dialect } => {
            refuse_view(session, &file.table)?;
            let csv = dialect.options();
            with_bar(session, &file.shape, async |cluster, options, on_progress| {
                csv::load(cluster, &file.file, &csv, &spec(file), options, on_progress).await
            })
        }
    }
}

/// Loads TPC-H at scale 0.1 if one of its tables is missing; an existing TPC-H of any scale is
/// kept.
pub(crate) fn ensure_tpch(session: &Session) -> Result<(), Failure> {
    let there = session.engine().tables();
    if tpch::TABLES.iter().all(|name| there.iter().any(|table| table.name == *name && table.broken.is_none()))
    {
        return Ok(());
    }
    // A table that cannot be queried may become available again with its node; replacing it would
    // lose it.
    if let Some(broken) =
        there.iter().find(|table| tpch::TABLES.contains(&table.name.as_str()) && table.broken.is_some())
    {
        let reason = broken.broken.as_deref().unwrap_or_default();
        return Err(Failure::Runtime(format!("table {} cannot be queried: {reason}", broken.name)));
    }
    note!("TPC-H is not there yet; loading it at scale {SCALE_DEFAULT} into {}", session.data().display());
    load_tpch(session, SCALE_DEFAULT, &shape(None), &[])
}

/// The scale factor at which TPC-H's orders and lineitem were loaded; loads TPC-H if it is missing.
pub(crate) fn tpch_scale(session: &Session) -> Result<f64, Failure> {
    ensure_tpch(session)?;
    let there = session.engine().tables();
    let source =
        |name: &str| there.iter().find(|table| table.name == name).map(|table| table.source.as_str());
    let both = source("orders").filter(|orders| source("lineitem") == Some(*orders));
    let parsed =
        both.and_then(|source| source.strip_prefix("tpch scale ")).and_then(|scale| scale.parse().ok());
    parsed.ok_or_else(|| {
        Failure::Runtime(
            "tables orders and lineitem do not come from the same load of TPC-H; load it with `rackscan load tpch`"
                .to_owned(),
        )
    })
}

/// Loads TPC-H at `scale` unless it is loaded at that scale and unchanged.
pub(crate) fn ensure_tpch_at(session: &Session, scale: f64) -> Result<(), Failure> {
    let there = session.engine().tables();
    let source = tpch::source(scale);
    // Refreshed tables differ from those that published figures are for.
    let is_it = |table: &TableInfo| table.source == source && table.changed_rows == 0;
    if tpch::TABLES.iter().all(|name| there.iter().any(|table| table.name == *name && is_it(table))) {
        return Ok(());
    }
    // Measurements run without parity, unless it is what they measure.
    load_tpch(session, scale, &shape(Some(LoadParity::None)), &[])
}

/// Loads TPC-H at `scale` with two parities unless exactly that is loaded and unchanged.
pub(crate) fn ensure_tpch_protected(session: &Session, scale: f64) -> Result<(), Failure> {
    let (there, source) = (session.engine().tables(), tpch::source(scale));
    let is_protected = |name: &str| {
        let protection = session.engine().describe(name).map(|table| table.definition.protection);
        protection.is_ok_and(|protection| protection == LoadParity::TwoD.protection())
    };
    let is_it =
        |table: &TableInfo| table.source == source && table.changed_rows == 0 && is_protected(&table.name);
    if tpch::TABLES.iter().all(|name| there.iter().any(|table| table.name == *name && is_it(table))) {
        return Ok(());
    }
    load_tpch(session, scale, &shape(Some(LoadParity::TwoD)), &[])
}

fn shape(parity: Option<LoadParity>) -> LoadShape {
    let schedule = Way::Relay;
    LoadShape { page_size: PAGE_SIZE_DEFAULT, segment_rows: SEGMENT_ROWS_DEFAULT, parity, schedule }
}

fn load_tpch(session: &Session, scale: f64, shape: &LoadShape, sort_by: &[SortBy]) -> Result<(), Failure> {
    with_bar(session, shape, async |cluster, options, on_progress| {
        tpch::load(cluster, scale, sort_by, options, on_progress).await
    })
}

fn spec(file: &FileLoad) -> TableSpec {
    TableSpec {
        name: file.table.clone(),
        partition_by: file.partition_by.clone(),
        sort_by: file.sort_by.clone(),
    }
}

/// Runs a load under a progress bar, makes its tables known to the engine and prints what was
/// loaded.
fn with_bar<E: Into<Failure>>(
    session: &Session,
    shape: &LoadShape,
    load: impl AsyncFnOnce(
        &Cluster,
        &LoadOptions,
        &(dyn Fn(&Progress<'_>) + Send + Sync),
    ) -> Result<LoadSummary, E>,
) -> Result<(), Failure> {
    let nodes = session.cluster().nodes().count();
    let options = LoadOptions {
        page_size: shape.page_size,
        segment_rows: shape.segment_rows,
        protection: shape.parity.unwrap_or(LoadParity::of(nodes)).protection(),
        spill_folder: session.data().to_owned(),
        ..LoadOptions::with_memory(session.load_bytes())
    };
    let derived = derived(session);
    let cluster = session.cluster().with_relays(shape.schedule == Way::Relay);
    let before = session.block_on(pulled_bytes(&cluster)).ok();
    let bar = progress::rows(0);
    let summary = session.block_on(load(&cluster, &options, &|progress| show(&bar, progress)));
    bar.finish_and_clear();
    let summary = summary?;
    let after = session.block_on(pulled_bytes(&cluster)).ok();
    let sent = after.zip(before).map(|(after, before)| after.saturating_sub(before));
    session.block_on(session.engine().refresh())?;
    session.sweep();
    report(&summary, sent);
    for (table, names) in derived {
        if summary.tables.iter().any(|loaded| loaded.name == table) {
            note!("dropped with the replaced table {table}: {}", names.join(", "));
        }
    }
    Ok(())
}

/// Bytes that all nodes have pulled from clients' memory.
async fn pulled_bytes(cluster: &Cluster) -> Result<u64, ClientError> {
    let mut pulled = 0;
    for node in cluster.nodes() {
        pulled += cluster.status(node).await?.counters.wire_read_bytes;
    }
    Ok(pulled)
}

/// Refuses to load a table by the name of a materialized view, which it would hide.
fn refuse_view(session: &Session, name: &str) -> Result<(), Failure> {
    let engine = session.engine();
    let mut described = engine.tables().into_iter().filter_map(|info| engine.describe(&info.name).ok());
    let is_view =
        |derived: &DerivedDefinition| derived.name == name && matches!(derived.kind, DerivedKind::Sum(_));
    match described.find(|table| table.definition.derived.iter().any(is_view)) {
        None => Ok(()),
        Some(table) => Err(Failure::Runtime(format!(
            "{name:?} is a materialized view of table {:?}, and a table cannot have the same name: choose another \
             name, or drop the view first (`rackscan sql \"drop materialized view {name}\"`)",
            table.definition.name
        ))),
    }
}

/// What is derived from each table, by name.
fn derived(session: &Session) -> BTreeMap<String, Vec<String>> {
    let engine = session.engine();
    let described = engine.tables().into_iter().filter_map(|info| engine.describe(&info.name).ok());
    let derived = described.map(|table| {
        let names = table.definition.derived.iter().map(|derived| derived.name.clone());
        (table.definition.name.clone(), names.collect::<Vec<_>>())
    });
    derived.filter(|(_, names)| !names.is_empty()).collect()
}

fn show(bar: &ProgressBar, progress: &Progress<'_>) {
    if bar.message() != progress.table {
        bar.set_message(progress.table.to_owned());
    }
    if let Some(total) = progress.rows_total {
        bar.set_length(total);
    }
    bar.set_position(progress.rows_stored);
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn report(summary: &LoadSummary, sent: Option<u64>) {
    let seconds = summary.elapsed.as_secs_f64().max(1e-9);
    let megabytes = summary.raw_bytes as f64 / 1e6;
    let tables: Vec<&str> = summary.tables.iter().map(|table| table.name.as_str()).collect();
    let per_byte =
        |sent: u64| format!(", {:.2} bytes sent for each", sent as f64 / summary.stored_bytes.max(1) as f64);
    let read = grouped(summary.rows + summary.rows_rejected);
    let rejected = match summary.rows_rejected {
        0 => String::new(),
        rejected => format!(", {} rejected", grouped(rejected)),
    };
    note!(
        "loaded {}: {read} rows read, {} stored{rejected}; {} raw, {} stored{}, {seconds:.1} s ({:.0} MB/s of raw data)",
        tables.join(", "),
        grouped(summary.rows),
        bytes(summary.raw_bytes),
        bytes(summary.stored_bytes),
        sent.map(per_byte).unwrap_or_default(),
        megabytes / seconds,
    );
}
