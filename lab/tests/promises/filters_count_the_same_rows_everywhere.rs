//! Tests that simulated queries count the same rows as a plain loop over generated rows, in every
//! placement and for every page size.

use std::sync::atomic::AtomicBool;

use rackscan_client::{Cluster, ClusterOptions, NodeEndpoint};
use rackscan_datasets::{LoadOptions, tpch};
use rackscan_fabric::Wire;
use rackscan_lab::query_simulation::{
    Placement, QueryHost, SimulatedQuery, Simulation, SimulationOutcome, TABLE, report,
};
use rackscan_lab::{NodeHost, Provenance, RunningNode};
use tpchgen::generators::LineItemGenerator;

use crate::support::{NodeFolder, REACTOR};

const SCALE: f64 = 0.01;
const PAGE_SIZES: [u32; 2] = [4096, 65_536];

/// Loads lineitem into a node of this process, and ends the node after a given number of page
/// sizes.
struct Loader {
    node_folder: NodeFolder,
    loads: u32,
    ends: bool,
}

impl Loader {
    fn new() -> Self {
        let mut node_folder = NodeFolder::new();
        node_folder.scratch = None;
        node_folder.device_bytes = 128 << 20;
        Self { node_folder, loads: 0, ends: false }
    }
}

impl QueryHost for Loader {
    fn load(&mut self, page_size_bytes: u32) -> Result<RunningNode, String> {
        let node = self.node_folder.start(&REACTOR)?;
        let (_, address) = node.addresses.first().expect("it listens");
        let endpoint = NodeEndpoint { id: node.node, addresses: vec![address.clone()] };
        let options =
            LoadOptions { page_size: page_size_bytes, segment_rows: 8192, ..LoadOptions::default() };
        let runtime = tokio::runtime::Builder::new_multi_thread().build().expect("threads");
        let loaded = runtime.block_on(async {
            let cluster = Cluster::connect(ClusterOptions::new(vec![endpoint], node.key.clone())).await;
            let cluster = cluster.map_err(|error| error.to_string())?;
            let loaded = tpch::load_some(&cluster, SCALE, &[TABLE], &[], &options, &|_| ()).await;
            loaded.map_err(|error| error.to_string())
        });
        assert_eq!(loaded?.tables.len(), 1);
        self.loads += 1;
        if self.ends && self.loads == 2 {
            let stop = self.node_folder.stopper();
            // The next page size is announced before its node ends, so later turns cannot reach it.
            stop();
        }
        Ok(node)
    }
}

fn simulation() -> Simulation {
    Simulation {
        queries: SimulatedQuery::ALL.to_vec(),
        page_sizes: PAGE_SIZES.to_vec(),
        placements: Placement::ALL.to_vec(),
        connections: vec![1, 2],
        threads: vec![1, 3],
        wire: Wire::Shm,
        rounds: 1,
        provenance: Provenance::now("query-io", SCALE),
    }
}

/// The number of rows of the table, and of those that pass: dates as text, decimals as hundredths.
fn counted() -> (u64, [u64; 3]) {
    let (mut all, mut passing) = (0, [0; 3]);
    for line in LineItemGenerator::new(SCALE, 1, 1).iter() {
        let text = line.to_string();
        let fields: Vec<&str> = text.split('|').collect();
        let hundredths = |field: &str| -> i64 { field.replace('.', "").parse().expect("a decimal") };
        let (quantity, discount, shipped): (i64, i64, &str) =
            (fields[4].parse().expect("a count"), hundredths(fields[6]), fields[10]);
        all += 1;
        passing[0] += u64::from(shipped <= "1998-08-03");
        passing[1] += u64::from(shipped.starts_with("1995-") && (4..=6).contains(&discount) && quantity < 24);
        passing[2] += u64::from(("1993-04-01".."1993-07-01").contains(&shipped));
    }
    (all, passing)
}

fn run(loader: &mut Loader, simulation: &Simulation) -> SimulationOutcome {
    let outcome = simulation.run(loader, &AtomicBool::new(false), &mut |_| ());
    assert!(!outcome.stopped);
    outcome
}

#[test]
fn all_placements_and_page_sizes_count_what_a_plain_loop_counts() {
    let (all, passing) = counted();
    let outcome = run(&mut Loader::new(), &simulation());
    assert_eq!(outcome.failure, None);
    assert_eq!(outcome.lines.len(), 3 * 2 * 3 * 2 * 2);
    for line in &outcome.lines {
        let query = SimulatedQuery::ALL.iter().position(|query| *query == line.query).expect("one of them");
        assert_eq!((line.table_rows, line.rows), (all, passing[query]), "{line:?}");
        assert!(line.pages > 0 && line.read_bytes >= 4096 * line.pages && line.median_s > 0.0, "{line:?}");
        let least_wire = match line.placement {
            Placement::Local => 0,
            // All pages cross the wire, or, for each row, two columns of eight bytes in at least a
            // byte each.
            Placement::RemoteFetch => line.read_bytes,
            Placement::RemoteProcess => 2 * line.rows,
        };
        assert!(line.wire_bytes >= least_wire, "{line:?}");
        assert_eq!(line.wire_bytes == 0, line.placement == Placement::Local, "{line:?}");
        assert_eq!(line.over_local.is_some(), line.placement != Placement::Local, "{line:?}");
    }
    let selectivity =
        |query| outcome.lines.iter().find(|line| line.query == query).expect("a line").selectivity;
    assert!((selectivity(SimulatedQuery::Q01) - 0.97).abs() < 0.01);
    assert!((0.01..0.02).contains(&selectivity(SimulatedQuery::Q06)));
    assert!((0.03..0.045).contains(&selectivity(SimulatedQuery::Q15)));
    // The same pages are read, wherever they are filtered.
    for query in SimulatedQuery::ALL {
        for size in PAGE_SIZES {
            let lines = outcome.lines.iter().filter(|l| (l.query, l.page_size_bytes) == (query, size));
            let mut reads: Vec<(u64, u64)> = lines.map(|line| (line.pages, line.read_bytes)).collect();
            reads.dedup();
            assert_eq!(reads.len(), 1, "{query} {size}: {reads:?}");
        }
    }
}

#[test]
fn a_simulation_becomes_the_papers_figures() {
    let simulation = Simulation { page_sizes: vec![16_384], threads: vec![2], ..simulation() };
    let outcome = run(&mut Loader::new(), &simulation);
    let folder = tempfile::tempdir().expect("a folder");
    let page = report(&outcome.lines, &simulation.provenance).write(folder.path()).expect("it is written");
    let page = std::fs::read_to_string(page).expect("the page");
    for number in 32..=40 {
        assert!(page.contains(&format!("figure 4.{number})")), "figure 4.{number}");
        assert!(folder.path().join(format!("figures/figure-4-{number}.png")).exists());
    }
    assert!(page.contains("table 4.6") && page.contains("CPU of the node, user"));
}

#[test]
fn a_node_that_ends_leaves_the_lines_that_were_measured() {
    let mut loader = Loader { ends: true, ..Loader::new() };
    let simulation = Simulation { placements: vec![Placement::RemoteProcess], ..simulation() };
    let outcome = run(&mut loader, &simulation);
    let failure = outcome.failure.expect("the node ended");
    assert!(failure.contains("node 5"), "{failure}");
    assert_eq!(outcome.lines.len(), 3 * 2 * 2);
    assert!(outcome.lines.iter().all(|line| line.page_size_bytes == PAGE_SIZES[0] && line.partial.is_none()));
}

#[test]
fn a_simulation_that_is_stopped_says_so_and_begins_nothing() {
    let outcome = simulation().run(&mut Loader::new(), &AtomicBool::new(true), &mut |_| ());
    assert!(outcome.stopped && outcome.failure.is_none() && outcome.lines.is_empty());
}
