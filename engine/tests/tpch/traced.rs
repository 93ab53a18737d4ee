//! Tests that a trace contains the reads that happened. Goal: the pages of a trace are exactly the
//! bytes that the figures of the run count as read from devices. Method: two queries under each
//! placement; the trace is compared with the figures, the segment directories and the devices.

use crate::cluster::{Outcome, Shape, TestCluster, options};
use rackscan_engine::{ExplainMode, TraceFile};
use rackscan_fabric::Wire;
use rackscan_format::segment::Extent;
use rackscan_planner::Policy;
use rackscan_storage_node::ByteSize;
use rackscan_trace::{Format, Operation, ReadOptions, Record, TraceError, TraceReader, WriteFormat};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};
use tempfile::TempDir;

/// Pages small enough that zone maps and selections skip some.
const SHAPE: Shape = Shape { segment_rows: 8192, page_size: 16 << 10 };

/// Runs a query with a trace; gives its records and, for each table, the bytes that its scans say
/// were read.
async fn run(
    cluster: &TestCluster,
    wire: Wire,
    policy: Policy,
    query: &str,
    path: &Path,
    format: WriteFormat,
) -> Outcome<(Vec<Record>, BTreeMap<String, u64>)> {
    let engine = cluster.engine(wire, options(policy)).await?;
    let trace = TraceFile::create(path, format)?;
    engine.set_trace(Some(trace.sink()));
    let sql = rackscan_queries::tpch_by_name(query).ok_or("a query")?.sql;
    let explanation = engine.explain(sql, ExplainMode::Analyze).await?;
    engine.set_trace(None);
    let written = trace.finish().await?;
    let read = TraceReader::open(path, &ReadOptions::default()).and_then(Iterator::collect);
    let records: Vec<Record> = match read {
        Err(TraceError::NoRecords { .. }) => Vec::new(),
        read => read?,
    };
    assert_eq!(written, records.len() as u64);
    let mut disk_bytes = BTreeMap::new();
    for scan in &explanation.scans {
        let actual = scan.actual.clone().ok_or("figures")?;
        *disk_bytes.entry(scan.table.clone()).or_default() += actual.work.disk_bytes;
    }
    Ok((records, disk_bytes))
}

/// Every page of the cluster: node, device, offset, and then its length, table and column.
async fn pages(cluster: &TestCluster) -> Outcome<BTreeMap<(u16, u16, u64), (u64, String, String)>> {
    let catalog = cluster.connect(Wire::Shm).await?.catalog().await?;
    let mut pages = BTreeMap::new();
    for table in catalog.tables {
        for placed in &table.segments {
            for (chunk, column) in placed.directory.chunks.iter().zip(&table.definition.columns) {
                for entry in &chunk.pages {
                    let Extent { device, offset_bytes, length_bytes } = entry.extent;
                    let what = (u64::from(length_bytes), table.definition.name.clone(), column.name.clone());
                    pages.insert((placed.node.0, u16::from(device.0), offset_bytes), what);
                }
            }
        }
    }
    Ok(pages)
}

fn bytes_by_table(records: &[Record]) -> BTreeMap<String, u64> {
    let mut bytes = BTreeMap::new();
    for record in records {
        let table = record.table.as_deref().expect("a table").to_owned();
        *bytes.entry(table).or_default() += record.length_bytes;
    }
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_covers_exactly_the_bytes_read_in_every_placement() -> Outcome<()> {
    // Pages out of a cache are not read.
    let cluster = TestCluster::start_with(2, |config| config.cache = Some(ByteSize(0)))?;
    cluster.load(SHAPE).await?;
    let pages = pages(&cluster).await?;
    let folder = TempDir::new()?;
    for query in ["q06", "q03"] {
        let mut seen = BTreeMap::new();
        for policy in [Policy::Local, Policy::RemoteFetch, Policy::RemoteProcess] {
            let path = folder.path().join("trace.csv");
            let (records, disk_bytes) =
                run(&cluster, Wire::Shm, policy, query, &path, WriteFormat::Csv).await?;
            assert!(!records.is_empty());
            let read = disk_bytes.iter().filter(|(_, bytes)| **bytes > 0);
            let read: BTreeMap<_, _> = read.map(|(table, bytes)| (table.clone(), *bytes)).collect();
            assert_eq!(bytes_by_table(&records), read, "{query} {policy}");
            for record in &records {
                let place = (record.node, record.device, record.offset_bytes);
                let table = record.table.as_deref().unwrap_or("").to_owned();
                let column = record.column.as_deref().unwrap_or("").to_owned();
                assert_eq!(pages.get(&place), Some(&(record.length_bytes, table, column)), "{record:?}");
                assert_eq!(record.operation, Operation::Read);
                let device = &cluster.devices(record.node.into())[usize::from(record.device)];
                assert!(record.offset_bytes + record.length_bytes <= std::fs::metadata(device)?.len());
            }
            assert!(records.windows(2).all(|pair| pair[0].at <= pair[1].at), "in the order of time");
            let places = records.iter().map(|record| (record.node, record.device, record.offset_bytes));
            let places: BTreeSet<_> = places.collect();
            assert!(places.len() < pages.len(), "{query} {policy}: not every page is read");
            seen.insert(policy.to_string(), places);
        }
        let all: BTreeSet<_> = seen.values().cloned().collect();
        assert_eq!(all.len(), 1, "{query}: the placements read the same pages");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_out_of_a_cache_are_not_in_a_trace() -> Outcome<()> {
    let cluster = TestCluster::start_with(2, |config| config.cache = Some(ByteSize(32 << 20)))?;
    cluster.load(SHAPE).await?;
    let path = TempDir::new()?;
    let path = path.path().join("trace.csv");
    let mut counts = Vec::new();
    for _ in 0..4 {
        let ran = run(&cluster, Wire::Shm, Policy::RemoteFetch, "q06", &path, WriteFormat::Csv).await?;
        let (records, disk_bytes) = ran;
        assert_eq!(bytes_by_table(&records).values().sum::<u64>(), disk_bytes.values().sum::<u64>());
        counts.push(records.len());
    }
    assert!(counts[0] > 0 && counts[3] == 0, "{counts:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_for_fio_has_the_same_reads() -> Outcome<()> {
    let cluster = TestCluster::start_with(2, |config| config.cache = Some(ByteSize(0)))?;
    cluster.load(SHAPE).await?;
    let folder = TempDir::new()?;
    let mut extents = Vec::new();
    for (format, read_as) in [(WriteFormat::Csv, Format::Csv), (WriteFormat::Fio, Format::Fio)] {
        let path = folder.path().join("trace");
        let (records, _) = run(&cluster, Wire::Tcp, Policy::RemoteProcess, "q06", &path, format).await?;
        assert_eq!(TraceReader::open(&path, &ReadOptions::default())?.format(), read_as);
        let extent = |record: &Record| (record.node, record.device, record.offset_bytes, record.length_bytes);
        extents.push(records.iter().map(extent).collect::<BTreeSet<_>>());
    }
    assert_eq!(extents[0], extents[1]);
    assert!(!extents[0].is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_that_cannot_be_written_says_how_much_is_missing() -> Outcome<()> {
    let cluster = TestCluster::start(1)?;
    cluster.load(SHAPE).await?;
    let full = Path::new("/dev/full");
    let engine = cluster.engine(Wire::Shm, options(Policy::Local)).await?;
    let trace = TraceFile::create(full, WriteFormat::Csv)?;
    engine.set_trace(Some(trace.sink()));
    engine.sql("select sum(l_quantity) from lineitem").await?;
    let error = trace.finish().await.expect_err("nothing fits").to_string();
    assert!(error.contains("/dev/full") && error.contains("the first 0 of"), "{error}");
    assert!(!error.contains("of 0 records"), "{error}");
    // A trace that has ended is in nobody's way.
    engine.sql("select sum(l_quantity) from lineitem").await?;
    Ok(())
}
