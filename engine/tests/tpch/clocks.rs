//! Tests that acknowledged statements are seen when the clocks of engines and nodes are wrong.
//! Goal: rows, views and indexes are as the last acknowledged statement left them; the error of a
//! refused statement names the clocks, and the statement changes nothing. Method: two engines; one
//! of them, or nodes, have clocks that are wrong by up to ten years.

use crate::{
    changed::{SHAPE, one},
    cluster::{Outcome, TestCluster},
    derived::by_hand,
};
use datafusion::arrow::util::pretty::pretty_format_batches;
use rackscan_engine::{Engine, EngineError, SqlSession};
use rackscan_fabric::{WallClock, Wire};
use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

const HOUR_MS: i64 = 3_600_000;
const YEAR_MS: i64 = 8766 * HOUR_MS;
const SKEWS_MS: [i64; 5] = [-10 * YEAR_MS, -HOUR_MS, 30_000, HOUR_MS, 10 * YEAR_MS];
/// Whose clock is wrong: that of one engine, and those of so many nodes.
const WRONG: [(bool, usize); 4] = [(true, 0), (false, 1), (false, 2), (true, 3)];
const VIEW: &str = "select n_regionkey, count(*) as n from nation group by n_regionkey";

/// Pairs of both. The numbers of each have no common divisor: five pairs have every value of both,
/// `RACKSCAN_CASES=20` are all pairs.
fn cases() -> impl Iterator<Item = ((bool, usize), i64)> {
    let cases =
        std::env::var("RACKSCAN_CASES").map_or(5, |text| text.parse().expect("RACKSCAN_CASES is a number"));
    (0..cases).map(|case: usize| (WRONG[case % WRONG.len()], SKEWS_MS[case % SKEWS_MS.len()]))
}

fn clock(skew_ms: &Arc<AtomicI64>) -> WallClock {
    let skew_ms = Arc::clone(skew_ms);
    WallClock::new(move || {
        WallClock::default().now_ms().saturating_add_signed(skew_ms.load(Ordering::SeqCst))
    })
}

/// Whether a statement was done; what was not is a clock that is ahead.
fn is_done<T>(outcome: Result<T, EngineError>, what: &str) -> bool {
    match outcome {
        Ok(_) => true,
        Err(error) => {
            let error = error.to_string();
            assert!(error.contains("because the clocks differ"), "{what}: {error}");
            false
        }
    }
}

async fn text(engine: &Engine, query: &str) -> Outcome<String> {
    Ok(pretty_format_batches(&engine.sql(query).await?.batches)?.to_string())
}

struct Scene {
    /// One with a right clock, and one whose clock may be wrong.
    engines: [Engine; 2],
    engine_ms: Arc<AtomicI64>,
    nodes_ms: Vec<Arc<AtomicI64>>,
    numbers: i64,
}

impl Scene {
    /// All see the same, and it belongs together.
    async fn check(&self, query: &str, expected: i64, what: &str) -> Outcome<()> {
        for engine in &self.engines {
            assert_eq!(one(engine, &mut SqlSession::default(), query).await?, expected, "{what}: {query}");
            let view = text(engine, "select * from by_region order by 1").await?;
            assert_eq!(view, text(engine, &format!("{VIEW} order by 1")).await?, "{what}");
        }
        Ok(())
    }

    /// What one engine says is seen by both at once, or was refused and changes nothing. Whether
    /// all was done.
    async fn statements(&mut self, by: usize, what: &str) -> Outcome<bool> {
        self.numbers += 1;
        let number = self.numbers;
        let engine = &self.engines[by];
        let region = |region: i64| format!("select count(*) from nation where n_regionkey = {region}");
        let before = one(engine, &mut SqlSession::default(), &region(number)).await?;
        assert_eq!(before, 0, "{what}");
        // Rows that were loaded, which others have updated before.
        let update = format!("update nation set n_regionkey = {number} where n_nationkey < 3");
        let mut all = is_done(engine.sql(&update).await, what);
        self.check(&region(number), if all { 3 } else { 0 }, what).await?;
        let insert = format!("insert into nation values ({}, 'X', {number}, 'new')", 1000 + number);
        let inserted = is_done(engine.sql(&insert).await, what);
        let rows = if all { 3 } else { 0 } + i64::from(inserted);
        self.check(&region(number), rows, what).await?;
        let mut session = SqlSession::default();
        engine.sql_in(&mut session, "begin").await?;
        let deleted = format!("delete from nation where n_regionkey = {number} and n_nationkey > 1000");
        engine.sql_in(&mut session, &deleted).await?;
        let moved = format!("update nation set n_regionkey = {} where n_nationkey = 4", -number);
        engine.sql_in(&mut session, &moved).await?;
        let committed = is_done(engine.sql_in(&mut session, "commit").await, what);
        let rows = if committed { rows - i64::from(inserted) } else { rows };
        self.check(&region(number), rows, what).await?;
        self.check(&region(-number), i64::from(committed), what).await?;
        all &= inserted && committed;
        all &= is_done(engine.flush("nation").await, what);
        self.check(&region(number), rows, what).await?;
        self.check(&region(-number), i64::from(committed), what).await?;
        Ok(all)
    }
}

async fn nothing_is_lost() -> Outcome<()> {
    let nodes_ms: Vec<Arc<AtomicI64>> = (0..3).map(|_| Arc::default()).collect();
    let cluster = TestCluster::start_with(3, |config| {
        config.wall = clock(&nodes_ms[usize::from(config.node.0)]);
    })?;
    cluster.load(SHAPE).await?;
    let engine_ms = Arc::default();
    let right = Engine::open(cluster.connect(Wire::Shm).await?, by_hand()).await?;
    let wrong = Engine::open(cluster.connect_by(Wire::Shm, clock(&engine_ms)).await?, by_hand()).await?;
    right.sql(&format!("create materialized view by_region as {VIEW}")).await?;
    right.sql("create index of_region on nation (n_regionkey)").await?;
    let mut scene = Scene { engines: [right, wrong], engine_ms, nodes_ms, numbers: 100 };
    for ((is_engine_wrong, nodes), skew_ms) in cases() {
        let what = format!("engine {is_engine_wrong}, {nodes} nodes, {skew_ms} ms");
        scene.engine_ms.store(if is_engine_wrong { skew_ms } else { 0 }, Ordering::SeqCst);
        scene.nodes_ms[..nodes].iter().for_each(|node| node.store(skew_ms, Ordering::SeqCst));
        for by in [1, 0] {
            let all = scene.statements(by, &format!("{what}, by {by}")).await?;
            let ahead = if by == 1 && is_engine_wrong { skew_ms } else { 0 };
            let behind = if nodes > 0 { skew_ms.min(0) } else { 0 };
            assert!(all || ahead - behind > 45_000, "{what}: no clock is ahead of a node's");
        }
        // All are set right, one after the other: what was written until then is overwritten at
        // once.
        scene.nodes_ms.iter().for_each(|node| node.store(0, Ordering::SeqCst));
        scene.engine_ms.store(0, Ordering::SeqCst);
        for by in [0, 1] {
            assert!(scene.statements(by, &format!("{what}, and all are right")).await?, "{what}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_that_were_acknowledged_are_seen_whatever_the_clocks_say() {
    nothing_is_lost().await.unwrap();
}
