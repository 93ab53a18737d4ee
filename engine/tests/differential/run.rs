//! Runs rounds of cases.
//!
//! A round loads tables and asks many statements of them; it depends only on its seed. Several
//! lanes, which are tasks that run at the same time, process the cases of a round in turn.

use crate::{
    cluster::Outcome,
    counters::Counters,
    draw,
    load::{Cut, load, register},
    query::Query,
    rows::Answer,
    table::Table,
    ways::{Clusters, Ended, Lane},
};
use rackscan_client::Cluster;
use rackscan_fabric::sim::{Random, Seed};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

/// Cases of a round: so few that a short run meets tables of many kinds.
const ROUND_CASES: u64 = 32;
/// Tables of a round.
const TABLES: usize = 3;
/// Statements that are answered at a time.
const LANES: usize = 2;
/// Failures after which a run ends.
const FAILURES_MAX: usize = 8;
/// Attempts to make a failing statement smaller.
const SMALLER_MAX: usize = 300;
/// Cases between two lines of progress.
const PROGRESS_CASES: u64 = 10_000;

/// A run that is asked for.
pub(crate) struct Run {
    first: Seed,
    cases: u64,
    started: Instant,
}

/// What came of it.
pub(crate) struct Report {
    first: Seed,
    seconds: u64,
    counters: Counters,
    pub(crate) failures: Vec<String>,
}

impl Report {
    pub(crate) fn line(&self) -> String {
        format!("seed {}, {} s: {}", self.first, self.seconds, self.counters)
    }

    pub(crate) fn missed(&self) -> Vec<&'static str> {
        self.counters.missed()
    }
}

/// Tables that are loaded, and what is asked of them.
struct Round {
    seed: Seed,
    tables: Vec<Table>,
    cuts: Vec<Cut>,
    next: AtomicU64,
    end: u64,
    counters: Mutex<Counters>,
    failures: Mutex<Vec<String>>,
}

impl Run {
    pub(crate) fn new(cases: u64) -> Outcome<Self> {
        Ok(Self { first: Seed::choose()?, cases, started: Instant::now() })
    }

    /// Runs all cases.
    pub(crate) async fn all(self) -> Outcome<Report> {
        let clusters = Clusters::start()?;
        let loaders = clusters.loaders().await?;
        let mut lanes = Vec::new();
        for _ in 0..LANES {
            lanes.push(Arc::new(Lane::open(&clusters).await?));
        }
        let mut report =
            Report { first: self.first, seconds: 0, counters: Counters::default(), failures: Vec::new() };
        let mut number = 0;
        while report.counters.cases < self.cases && report.failures.len() < FAILURES_MAX {
            let seed = Seed::new(self.first.number().wrapping_add(number));
            let end = (self.cases - report.counters.cases).min(ROUND_CASES);
            let round = Arc::new(Round::load(seed, end, &loaders, &lanes).await?);
            let running =
                lanes.iter().map(|lane| tokio::spawn(lane_of(Arc::clone(lane), Arc::clone(&round))));
            for lane in running.collect::<Vec<_>>() {
                lane.await?;
            }
            let before = report.counters.cases;
            report.counters.merge(&round.counters.lock().expect("no lane panicked"));
            report.failures.append(&mut round.failures.lock().expect("no lane panicked"));
            report.seconds = self.started.elapsed().as_secs();
            if before / PROGRESS_CASES != report.counters.cases / PROGRESS_CASES {
                println!("{}", report.line());
            }
            number += 1;
        }
        Ok(report)
    }
}

impl Round {
    async fn load(seed: Seed, end: u64, loaders: &[Cluster], lanes: &[Arc<Lane>]) -> Outcome<Self> {
        let mut random = Random::new(seed);
        let (mut tables, mut cuts) = (Vec::new(), Vec::new());
        for number in 0..TABLES {
            let table = Table::draw(&mut random, format!("t{number}"), number == 0);
            let cut = Cut::draw(&mut random, &table);
            let rows = table.batch();
            load(loaders, &cut, &rows).await.map_err(|error| format!("seed {seed}, {cut:?}: {error}"))?;
            for lane in lanes {
                register(&lane.alone, &table, &rows)?;
            }
            tables.push(table);
            cuts.push(cut);
        }
        for lane in lanes {
            lane.refresh().await?;
        }
        let (counters, failures) = (Mutex::default(), Mutex::default());
        Ok(Self { seed, tables, cuts, next: AtomicU64::new(0), end, counters, failures })
    }

    fn is_over(&self) -> bool {
        self.failures.lock().expect("no lane panicked").len() >= FAILURES_MAX
    }
}

/// Takes cases until there are none.
async fn lane_of(lane: Arc<Lane>, round: Arc<Round>) {
    loop {
        let case = round.next.fetch_add(1, Ordering::Relaxed);
        if case >= round.end || round.is_over() {
            return;
        }
        let mut random = draw::of_case(round.seed, case);
        let query = Query::draw(&mut random, &round.tables);
        let (expected, ways) = (lane.expected(&query).await, lane.ways(&mut random.clone(), &query).await);
        let Some(wrong) = wrong(&lane, &query, &expected, &ways).await else {
            round.counters.lock().expect("no lane panicked").add(&expected, &ways);
            continue;
        };
        let (query, wrong) = smallest(&lane, &random, query, wrong).await;
        let seed = round.seed;
        let failure = format!(
            "case {case} of seed {seed}: {wrong}\n{}\nexpected: {}\ncuts: {:?}\nto replay: RACKSCAN_SEED={seed} RACKSCAN_CASES={} \
             cargo test -p rackscan-engine --test differential",
            query.sql(),
            query.reference(),
            round.cuts,
            case + 1
        );
        eprintln!("{failure}\n");
        round.failures.lock().expect("no lane panicked").push(failure);
        round.counters.lock().expect("no lane panicked").cases += 1;
    }
}

/// What is wrong with the ways' answers, if anything is.
async fn wrong(
    lane: &Lane,
    query: &Query,
    expected: &Result<Answer, String>,
    ways: &[Ended],
) -> Option<String> {
    if let Some(way) = ways.iter().find(|way| way.panicked) {
        return Some(format!("{} panicked", way.way));
    }
    match expected {
        Ok(expected) => {
            let answers = ways.iter().filter_map(|way| Some((&way.way, way.answer.as_ref().ok()?)));
            let mut wrong = answers.filter_map(|(way, answer)| {
                answer.difference(expected, query).map(|different| format!("{way}: {different}"))
            });
            if let Some(wrong) = wrong.next() {
                return Some(wrong);
            }
            let (way, error) = ways.iter().find_map(|way| Some((&way.way, way.answer.as_ref().err()?)))?;
            if lane.fails_unguarded(query).await {
                return None;
            }
            Some(format!("{way} failed, and DataFusion alone never does: {error}"))
        }
        Err(_) => {
            let mut answers = ways.iter().filter_map(|way| Some((&way.way, way.answer.as_ref().ok()?)));
            let (first, one) = answers.next()?;
            // Without the expected answer nobody knows which rows any so many of them are, or how
            // far sums may be off.
            if !query.is_exact() {
                return None;
            }
            answers.find_map(|(other, two)| {
                two.difference(one, query).map(|different| format!("{other} against {first}: {different}"))
            })
        }
    }
}

/// The smallest statement found that is still wrong.
async fn smallest(lane: &Lane, random: &Random, mut query: Query, mut wrong_now: String) -> (Query, String) {
    let mut attempts = 0;
    'smaller: loop {
        for candidate in query.smaller() {
            attempts += 1;
            if attempts > SMALLER_MAX {
                return (query, wrong_now);
            }
            let expected = lane.expected(&candidate).await;
            let ways = lane.ways(&mut random.clone(), &candidate).await;
            if let Some(still) = wrong(lane, &candidate, &expected, &ways).await {
                (query, wrong_now) = (candidate, still);
                continue 'smaller;
            }
        }
        return (query, wrong_now);
    }
}
