//! Tests that every query with too little memory ends with the right answer, or with an error that
//! names the operator or folder that is full.

use crate::{
    answers::Expected,
    cluster::{Outcome, Shape, TestCluster, options},
};
use rackscan_engine::{Engine, EngineError, EngineOptions, ExplainMode, SpillOptions};
use rackscan_fabric::Wire;
use rackscan_planner::Policy;
use std::fs;
use tempfile::TempDir;

const SHAPE: Shape = Shape { segment_rows: 16_384, page_size: 32_768 };

/// Too little for a side of a join, a window or an answer over [`ROWS`].
const LITTLE: usize = 16 << 20;
/// Three copies of lineitem at scale factor 0.01: 180,525 rows, whose decimals have 16 bytes each.
const ROWS: &str = "WITH rows AS (SELECT *, 1 AS copy FROM lineitem UNION ALL SELECT *, 2 FROM lineitem \
                    UNION ALL SELECT *, 3 FROM lineitem)";
/// Too little for the groups of Q18. Key filters leave the other queries of TPC-H few rows.
const LEAST: usize = 2 << 20;

struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Outcome<Self> {
        Ok(Self { folder: TempDir::new_in(env!("CARGO_TARGET_TMPDIR"))? })
    }

    fn options(&self, memory_bytes: usize, bytes_max: u64) -> EngineOptions {
        let spill = SpillOptions { folder: self.folder.path().join("spill"), bytes_max };
        EngineOptions { memory_bytes: Some(memory_bytes), spill: Some(spill), ..options(Policy::RemoteFetch) }
    }
}

async fn refused(engine: &Engine, sql: &str) -> EngineError {
    match engine.sql(sql).await {
        Ok(outcome) => panic!("{sql}: {} rows, expected an error", outcome.rows()),
        Err(error) => error,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_query_of_tpch_ends_right_in_less_memory_than_it_wants() -> Outcome<()> {
    let cluster = TestCluster::start(2)?;
    cluster.load(SHAPE).await?;
    let place = Place::new()?;
    let engine = cluster.engine(Wire::Shm, place.options(LEAST, 1 << 30)).await?;
    for query in rackscan_queries::tpch() {
        let (sql, query) = (query.sql, query.name());
        let outcome = engine.sql(sql).await.map_err(|error| format!("{query}: {error}"))?;
        let difference = Expected::of_tpch("0.01", &query)?.difference(&outcome);
        assert_eq!(difference, None, "{query}");
        let memory = outcome.report.memory;
        assert!(memory.peak_bytes <= LEAST as u64, "{query}: {memory:?}");
    }
    let folder = place.folder.path().join("spill");
    assert_eq!(fs::read_dir(&folder)?.count(), 1, "the engine's folder");
    drop(engine);
    assert_eq!(fs::read_dir(&folder)?.count(), 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_join_that_does_not_fit_into_memory_gives_the_same_rows_as_one_that_does() -> Outcome<()>
{
    let cluster = TestCluster::start(2)?;
    cluster.load(SHAPE).await?;
    let place = Place::new()?;
    let little = cluster.engine(Wire::Shm, place.options(LITTLE, 1 << 30)).await?;
    let plenty = cluster.engine(Wire::Shm, options(Policy::Auto)).await?;
    let mut planned_again = 0;
    for join in ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"] {
        let is_half = join.contains("SEMI") || join.contains("ANTI");
        let right = if is_half {
            "0"
        } else {
            "count(b.l_tax), max(b.l_tax), max(b.l_discount), sum(b.l_extendedprice), max(b.l_quantity)"
        };
        for condition in ["", " AND a.l_extendedprice < b.l_extendedprice"] {
            let sql = format!(
                "{ROWS} SELECT count(*), count(a.l_tax), min(a.l_tax), max(a.l_discount), \
                 sum(a.l_extendedprice), max(a.l_quantity), {right} FROM rows a {join} rows b ON a.l_orderkey = b.l_orderkey + 1 \
                 AND a.l_linenumber = b.l_linenumber AND a.copy = b.copy{condition}"
            );
            let found = little.sql(&sql).await.map_err(|error| format!("{sql}: {error}"))?;
            let expected = plenty.sql(&sql).await?;
            assert_eq!(found.batches, expected.batches, "{sql}");
            planned_again += u32::from(found.report.memory.plans > 1);
        }
    }
    assert!(planned_again >= 6, "{planned_again} were planned again");
    Ok(())
}

/// DataFusion's fallback returned rows of LEFT JOIN without a partner once for each partition, and
/// panicked where the left side had been repartitioned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nested_loop_joins_that_do_not_fit_into_memory_give_the_same_rows_as_those_that_do() -> Outcome<()> {
    let cluster = TestCluster::start(2)?;
    cluster.load(SHAPE).await?;
    let place = Place::new()?;
    let little = cluster.engine(Wire::Shm, place.options(LEAST, 1 << 30)).await?;
    let plenty = cluster.engine(Wire::Shm, options(Policy::Auto)).await?;
    let mut planned_again = 0;
    let one = "(SELECT x FROM generate_series(1, 300000) g(x)) a";
    let repartitioned = "(SELECT 3 * g.x - h.y AS x FROM generate_series(1, 100000) g(x), generate_series(0, 2) h(y) \
                         WHERE (g.x + h.y) % 1000000 > 0) a";
    let few = "(SELECT y FROM generate_series(1, 100000) g(y) WHERE y % 30000 < 4) b";
    for many in [one, repartitioned] {
        for from in [
            format!("{many} JOIN {few} ON a.x * 1000 < b.y"),
            format!("{many} LEFT JOIN {few} ON a.x * 1000 < b.y"),
            format!("{few} LEFT JOIN {many} ON a.x * 1000 < b.y"),
            format!("{many} FULL JOIN {few} ON a.x * 1000 < b.y"),
            format!("{many} LEFT SEMI JOIN {few} ON a.x * 1000 < b.y"),
            format!("{many} LEFT ANTI JOIN {few} ON a.x * 1000 < b.y"),
            format!("{many} WHERE EXISTS (SELECT 1 FROM {few} WHERE a.x * 1000 < b.y) OR x > 299990"),
            format!("{few} WHERE EXISTS (SELECT 1 FROM {many} WHERE a.x * 1000 < b.y) OR y < 3"),
        ] {
            let sql = format!("SELECT count(*), count(DISTINCT s) FROM (SELECT *, 1 AS s FROM {from}) q");
            let found = little.sql(&sql).await.map_err(|error| format!("{sql}: {error}"))?;
            let expected = plenty.sql(&sql).await?;
            assert_eq!(found.batches, expected.batches, "{sql}");
            planned_again += u32::from(found.report.memory.plans > 1);
        }
    }
    assert!(planned_again >= 6, "{planned_again} were planned again");
    // Each step of WITH RECURSIVE starts the left side again.
    let steps = format!(
        "WITH RECURSIVE r(n, s) AS (SELECT 1, 1 UNION ALL SELECT r.n + 1, max(r.s + b.y) FROM r LEFT JOIN {few} \
         ON r.n < b.y WHERE r.n < 4 GROUP BY r.n) SELECT n, s FROM r"
    );
    assert_eq!(plenty.sql(&steps).await?.rows(), 4);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_write_to_disk_fails_by_name_and_the_next_query_is_answered() -> Outcome<()> {
    let cluster = TestCluster::start(2)?;
    cluster.load(SHAPE).await?;
    let place = Place::new()?;
    let engine = cluster.engine(Wire::Shm, place.options(LITTLE, 1 << 30)).await?;
    for (query, name) in [
        ("SELECT * FROM rows", "the answer"),
        (
            "SELECT max(s), max(l_tax), max(l_extendedprice) FROM (SELECT sum(l_quantity) OVER (ORDER BY l_shipdate \
             ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS s, l_tax, l_extendedprice FROM rows)",
            "WindowAggExec",
        ),
    ] {
        let sql = &format!("{ROWS} {query}");
        let error = refused(&engine, sql).await;
        assert!(matches!(error, EngineError::Memory(_)), "{sql}: {error}");
        assert_eq!(error.sqlstate(), "53200");
        let text = error.to_string();
        assert!(text.contains(name), "{sql}: {text}");
        let groups = "SELECT l_orderkey, count(*) FROM lineitem GROUP BY 1 HAVING count(*) > 6";
        let rows = engine.sql(groups).await?.rows();
        assert!(rows > 1000, "{rows} after {sql}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_folder_is_an_error_of_its_own() -> Outcome<()> {
    let cluster = TestCluster::start(2)?;
    cluster.load(SHAPE).await?;
    let place = Place::new()?;
    let engine = cluster.engine(Wire::Shm, place.options(LITTLE, 64 << 10)).await?;
    let query = "SELECT count(*), max(l_tax), max(l_discount), max(l_quantity), max(l_extendedprice) FROM \
                 (SELECT row_number() OVER (ORDER BY l_shipdate) AS n, * FROM rows) WHERE n > 0";
    let error = refused(&engine, &format!("{ROWS} {query}")).await;
    assert!(matches!(error, EngineError::SpillFull(_)), "{error}");
    assert_eq!(error.sqlstate(), "53100");
    assert!(!error.to_string().contains("datafusion"), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_that_cannot_be_made_is_named_at_once() -> Outcome<()> {
    let cluster = TestCluster::start(1)?;
    let place = Place::new()?;
    fs::write(place.folder.path().join("spill"), "no folder")?;
    let opened = Engine::open(cluster.connect(Wire::Shm).await?, place.options(LITTLE, 1 << 30)).await;
    let error = opened.err().ok_or("an engine without a folder")?;
    assert!(matches!(error, EngineError::SpillFolder(_)) && error.to_string().contains("/spill"), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_analyze_says_what_a_query_held_and_wrote_to_disk() -> Outcome<()> {
    let cluster = TestCluster::start(2)?;
    cluster.load(SHAPE).await?;
    let place = Place::new()?;
    let engine = cluster.engine(Wire::Shm, place.options(LITTLE, 1 << 30)).await?;
    let query = "SELECT count(*), max(a.l_tax), max(b.l_tax), max(a.l_quantity), max(b.l_quantity), max(a.l_discount), \
                 max(b.l_discount), max(a.l_extendedprice), max(b.l_extendedprice) FROM rows a JOIN rows b \
                 ON a.l_orderkey = b.l_orderkey + 1 AND a.copy = b.copy AND a.l_linenumber = b.l_linenumber";
    let sql = &format!("{ROWS} {query}");
    let explanation = engine.explain(sql, ExplainMode::Analyze).await?;
    let memory = explanation.run.as_ref().ok_or("it ran")?.memory;
    assert!(memory.spilled_bytes > 0 && memory.spills > 0 && memory.plans > 1, "{memory:?}");
    let text = explanation.to_string();
    assert!(text.contains("memory above the scans: ") && text.contains("SortMergeJoin"), "{text}");
    assert_eq!(explanation.to_json()?["run"]["memory"]["plans"], memory.plans);
    Ok(())
}
