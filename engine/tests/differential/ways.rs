//! Answers a statement in several ways, to compare the answers.
//!
//! ```text
//! local, remote-fetch, remote-process, auto     over shared memory
//! one of the latter three                       over tcp
//! remote-process or auto                        over nodes that bounce segments
//! DataFusion alone                              over the same rows in memory
//! ```

use crate::{
    cluster::{Outcome, TestCluster, options},
    draw::Draw,
    query::Query,
    rows::Answer,
};
use datafusion::{
    execution::SessionStateBuilder,
    physical_plan::collect,
    prelude::{SessionConfig, SessionContext},
};
use futures::FutureExt;
use rackscan_client::Cluster;
use rackscan_engine::{AggregatePushdown, Engine, EngineOptions, QueryReport, ScanReport, with_answers};
use rackscan_fabric::{Wire, sim::Random};
use rackscan_planner::Policy;
use rackscan_storage_node::{ByteSize, Config};
use std::{panic::AssertUnwindSafe, sync::Arc};

const AGGREGATES: [AggregatePushdown; 2] = [AggregatePushdown::Always, AggregatePushdown::Never];

/// All nodes of a run.
pub(crate) struct Clusters {
    calm: TestCluster,
    bouncing: TestCluster,
}

impl Clusters {
    pub(crate) fn start() -> Outcome<Self> {
        Ok(Self { calm: TestCluster::start(2)?, bouncing: TestCluster::start_with(2, bounce)? })
    }

    /// Connections that load.
    pub(crate) async fn loaders(&self) -> Outcome<Vec<Cluster>> {
        Ok(vec![self.calm.connect(Wire::Shm).await?, self.bouncing.connect(Wire::Shm).await?])
    }
}

/// One node has hardly a queue, the other hardly time or memory for a scan.
fn bounce(config: &mut Config) {
    if config.node.0 == 0 {
        config.scan_queue = 1;
    } else {
        config.scan_cpu_ms = 1;
        config.scan_memory = ByteSize(256 << 10);
    }
}

/// Engines that answer one statement after the other.
pub(crate) struct Lane {
    calm: Vec<Engine>,
    tcp: Engine,
    bouncing: Vec<Engine>,
    pub(crate) alone: SessionContext,
}

/// How one way ended.
pub(crate) struct Ended {
    pub(crate) way: String,
    pub(crate) answer: Result<Answer, String>,
    pub(crate) report: QueryReport,
    pub(crate) scans: Vec<ScanReport>,
    pub(crate) panicked: bool,
}

impl Lane {
    pub(crate) async fn open(clusters: &Clusters) -> Outcome<Self> {
        let (calm_nodes, bouncing_nodes) =
            (clusters.calm.connect(Wire::Shm).await?, clusters.bouncing.connect(Wire::Shm).await?);
        let (mut calm, mut bouncing) = (Vec::new(), Vec::new());
        for aggregates in AGGREGATES {
            let plain = EngineOptions { aggregates, narrowed_rows_min: 0, ..options(Policy::Auto) };
            let all_at_once = EngineOptions { segments_in_flight: 64, ..plain.clone() };
            calm.push(Engine::open(calm_nodes.clone(), plain).await?);
            bouncing.push(Engine::open(bouncing_nodes.clone(), all_at_once).await?);
        }
        // Little memory for pages: a segment is scanned in many windows.
        let narrow =
            EngineOptions { partition_page_bytes: 64 << 10, narrowed_rows_min: 0, ..options(Policy::Auto) };
        let tcp = clusters.calm.engine(Wire::Tcp, narrow).await?;
        // The engine's own choice of what `1.5` is, and its rules for answers; all else is as
        // DataFusion comes.
        let mut config = SessionConfig::new().with_target_partitions(2);
        config.options_mut().sql_parser.parse_float_as_decimal = true;
        let alone = with_answers(SessionStateBuilder::new().with_default_features().with_config(config))?;
        Ok(Self { calm, tcp, bouncing, alone: SessionContext::new_with_state(alone) })
    }

    /// Sees tables that were loaded since.
    pub(crate) async fn refresh(&self) -> Outcome<()> {
        for engine in self.calm.iter().chain(&self.bouncing).chain([&self.tcp]) {
            engine.refresh().await?;
        }
        Ok(())
    }

    /// What DataFusion alone answers.
    pub(crate) async fn expected(&self, query: &Query) -> Result<Answer, String> {
        let sql = query.reference();
        let answer = async {
            let frame = self.alone.sql(&sql).await.map_err(|error| error.strip_backtrace())?;
            // The physical plan's schema: before it is optimised, types of branches may be those
            // that the user wrote.
            let context = frame.task_ctx();
            let plan = frame.create_physical_plan().await.map_err(|error| error.strip_backtrace())?;
            let (schema, running) = (plan.schema(), collect(plan, Arc::new(context)));
            let batches = running.await.map_err(|error| error.strip_backtrace())?;
            let answer = Answer::new(&schema, &batches).map_err(|error| error.to_string())?;
            let wanted = query.cut(answer.rows());
            Ok(answer.part(wanted))
        };
        AssertUnwindSafe(answer)
            .catch_unwind()
            .await
            .unwrap_or_else(|_| Err("DataFusion panicked".to_owned()))
    }

    /// Whether DataFusion alone fails, too, when it computes everything for every row.
    pub(crate) async fn fails_unguarded(&self, query: &Query) -> bool {
        for sql in query.unguarded() {
            let Ok(frame) = self.alone.sql(&sql).await else { continue };
            if AssertUnwindSafe(frame.collect()).catch_unwind().await.is_ok_and(|rows| rows.is_err()) {
                return true;
            }
        }
        false
    }

    /// Every other way, in turn.
    pub(crate) async fn ways(&self, random: &mut Random, query: &Query) -> Vec<Ended> {
        let sql = query.sql();
        let mut ways = Vec::new();
        for policy in Policy::ALL {
            let at = random.index(AGGREGATES.len());
            ways.push((format!("{policy} shm {:?}", AGGREGATES[at]), &self.calm[at], policy));
        }
        let policy = *random.pick(&Policy::ALL[1..]);
        ways.push((format!("{policy} tcp, little memory"), &self.tcp, policy));
        let policy = if random.percent(15) { Policy::Auto } else { Policy::RemoteProcess };
        let at = random.index(AGGREGATES.len());
        ways.push((format!("{policy} bouncing {:?}", AGGREGATES[at]), &self.bouncing[at], policy));
        let mut ended = Vec::with_capacity(ways.len());
        for (way, engine, policy) in ways {
            ended.push(one_way(way, engine, policy, &sql).await);
        }
        ended
    }
}

async fn one_way(way: String, engine: &Engine, policy: Policy, sql: &str) -> Ended {
    engine.set_policy(policy);
    let outcome = AssertUnwindSafe(engine.sql(sql)).catch_unwind().await;
    let panicked = outcome.is_err();
    let (answer, report, scans) = match outcome {
        Ok(Ok(outcome)) => {
            let answer = Answer::new(&outcome.schema, &outcome.batches).map_err(|error| error.to_string());
            let scans = outcome.scans();
            (answer, outcome.report, scans)
        }
        Ok(Err(error)) => (Err(error.to_string()), QueryReport::default(), Vec::new()),
        Err(_) => (Err("it panicked".to_owned()), QueryReport::default(), Vec::new()),
    };
    Ended { way, answer, report, scans, panicked }
}
