//! Tests statements while another program replaces, drops or flushes their table, or creates or
//! drops an index or a view of it. Goal: a statement sees the tables that are published when it
//! begins, and the table that is published afterwards contains every acknowledged write.

use crate::{
    changed::{count, one},
    cluster::{Outcome, TestCluster, options},
};
use rackscan_client::Cluster;
use rackscan_datasets::{
    LoadOptions, TableSpec,
    csv::{self, CsvOptions},
};
use rackscan_engine::{Engine, EngineError, EngineOptions, ExplainMode, FlushOutcome, SqlSession};
use rackscan_fabric::Wire;
use rackscan_planner::Policy;
use std::{
    fmt::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

/// Engines that flush nothing by themselves.
pub(crate) fn by_hand() -> EngineOptions {
    EngineOptions { flush_rows_min: None, ..options(Policy::Auto) }
}

/// Loads `t (k, v)` with ten rows, all with this value; `wide`: with another column more.
pub(crate) async fn load(cluster: &Cluster, value: i64, wide: bool) -> Outcome<()> {
    let mut text = String::from(if wide { "k,v,w\n" } else { "k,v\n" });
    for key in 0..10 {
        writeln!(text, "{key},{value}{}", if wide { ",7" } else { "" })?;
    }
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), text)?;
    let table = TableSpec { name: "t".to_owned(), partition_by: "k".to_owned(), sort_by: None };
    csv::load(cluster, file.path(), &CsvOptions::default(), &table, &LoadOptions::default(), &|_| ()).await?;
    Ok(())
}

/// What another program does to the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Replaced,
    ReplacedByAnother,
    Dropped,
    DroppedAndLoaded,
    Flushed,
    ViewCreated,
    IndexCreated,
    ViewDropped,
}

impl Done {
    const ALL: [Self; 8] = [
        Self::Replaced,
        Self::ReplacedByAnother,
        Self::Dropped,
        Self::DroppedAndLoaded,
        Self::Flushed,
        Self::ViewCreated,
        Self::IndexCreated,
        Self::ViewDropped,
    ];

    async fn to(self, other: &Engine) -> Outcome<()> {
        match self {
            Self::Replaced => load(other.cluster(), 100, false).await?,
            Self::ReplacedByAnother => load(other.cluster(), 100, true).await?,
            Self::Dropped => other.cluster().drop_table("t").await?,
            Self::DroppedAndLoaded => {
                other.cluster().drop_table("t").await?;
                load(other.cluster(), 100, false).await?;
            }
            Self::Flushed => {
                other.sql("update t set v = v where k = 9").await?;
                let outcome = other.flush("t").await?;
                assert!(matches!(outcome, FlushOutcome::Flushed(_)), "{outcome:?}");
            }
            Self::ViewCreated => {
                other.sql("create materialized view s as select k, count(*) as n from t group by k").await?;
            }
            Self::IndexCreated => drop(other.sql("create index i on t (k)").await?),
            Self::ViewDropped => drop(other.sql("drop materialized view there").await?),
        }
        Ok(())
    }

    /// What a transaction is told that wrote to the table before.
    fn refuses(self) -> Option<fn(&EngineError) -> bool> {
        match self {
            Self::Dropped => Some(|error| matches!(error, EngineError::Dropped { table } if table == "t")),
            Self::Replaced | Self::ReplacedByAnother | Self::DroppedAndLoaded => {
                Some(|error| matches!(error, EngineError::Replaced { table } if table == "t"))
            }
            _ => None,
        }
    }
}

const STATEMENTS: [&str; 3] =
    ["insert into t (k, v) values (50, 50)", "update t set v = 50 where k = 5", "delete from t where k = 5"];

/// Rows, and the sum of their values, as somebody sees them who has come just now.
async fn found(cluster: &TestCluster) -> Outcome<(i64, i64)> {
    let late = cluster.engine(Wire::Tcp, by_hand()).await?;
    let mut session = SqlSession::default();
    let rows = one(&late, &mut session, "select count(*) from t").await?;
    Ok((rows, one(&late, &mut session, "select cast(sum(v) as bigint) from t").await?))
}

/// What [`found`] says after a statement over ten rows of this value.
fn after(statement: &str, value: i64) -> (i64, i64) {
    match statement.split(' ').next() {
        Some("insert") => (11, 10 * value + 50),
        Some("update") => (10, 9 * value + 50),
        _ => (9, 9 * value),
    }
}

async fn statements_go_to_what_is_published(done: Done) -> Outcome<()> {
    let cluster = TestCluster::start(2)?;
    let client = cluster.connect(Wire::Shm).await?;
    for statement in STATEMENTS {
        load(&client, 1, false).await?;
        let shell = cluster.engine(Wire::Shm, by_hand()).await?;
        let other = cluster.engine(Wire::Tcp, by_hand()).await?;
        if done == Done::ViewDropped {
            other.sql("create materialized view there as select k, count(*) as n from t group by k").await?;
        }
        let mut session = SqlSession::default();
        assert_eq!(one(&shell, &mut session, "select cast(sum(v) as bigint) from t").await?, 10);
        done.to(&other).await?;
        let outcome = shell.sql(statement).await;
        let sum = one(&shell, &mut session, "select cast(sum(v) as bigint) from t").await;
        if done == Done::Dropped {
            let looked = sum.err().and_then(|error| error.downcast::<EngineError>().ok()).map(|error| *error);
            for error in [outcome.err(), looked] {
                let error = error.ok_or("it answered")?;
                assert_eq!(error.sqlstate(), "42P01", "{done:?}, {statement}: {error}");
            }
            continue;
        }
        assert_eq!(count(&outcome?.batches), 1, "{done:?}, {statement}");
        let value = if done.refuses().is_some() { 100 } else { 1 };
        let expected = after(statement, value);
        assert_eq!(found(&cluster).await?, expected, "{done:?}, {statement}");
        assert_eq!(sum?, expected.1, "{done:?}, {statement}: the shell sees what is there");
    }
    Ok(())
}

async fn transactions_are_whole_or_refused(done: Done) -> Outcome<()> {
    let cluster = TestCluster::start(2)?;
    let client = cluster.connect(Wire::Shm).await?;
    for statement in STATEMENTS {
        load(&client, 1, false).await?;
        let shell = cluster.engine(Wire::Shm, by_hand()).await?;
        let other = cluster.engine(Wire::Tcp, by_hand()).await?;
        if done == Done::ViewDropped {
            other.sql("create materialized view there as select k, count(*) as n from t group by k").await?;
        }
        let mut session = SqlSession::default();
        shell.sql_in(&mut session, "begin").await?;
        shell.sql_in(&mut session, statement).await?;
        done.to(&other).await?;
        let outcome = shell.sql_in(&mut session, "commit").await;
        match done.refuses() {
            Some(is_it) => {
                let error = outcome.err().ok_or_else(|| format!("{done:?}, {statement}: it is committed"))?;
                assert!(is_it(&error), "{done:?}, {statement}: {error}");
                if done != Done::Dropped {
                    assert_eq!(found(&cluster).await?, (10, 1000), "{done:?}, {statement}");
                }
            }
            None => {
                assert!(outcome.is_ok(), "{done:?}, {statement}: {:?}", outcome.err());
                assert_eq!(found(&cluster).await?, after(statement, 1), "{done:?}, {statement}");
            }
        }
        assert!(!session.is_open());
        let next = shell.sql("insert into t (k, v) values (60, 0)").await;
        assert_eq!(next.is_err(), done == Done::Dropped, "{done:?}: the next statement begins anew");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_uses_the_tables_that_are_published_when_it_begins() {
    for done in Done::ALL {
        statements_go_to_what_is_published(done).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_over_a_table_that_is_not_published_any_more_is_refused_and_says_why() {
    for done in Done::ALL {
        transactions_are_whole_or_refused(done).await.unwrap();
    }
}

/// Inserts rows of its own; each that was acknowledged is there, unless the table was replaced
/// meanwhile. `looked`: how many were looked for.
async fn insert_and_look(
    writer: Engine,
    reader: Engine,
    from: i64,
    looked: Arc<AtomicU32>,
    is_over: Arc<AtomicBool>,
) -> Outcome<()> {
    let mut session = SqlSession::default();
    let generation = "select cast(max(v) as bigint) from t where k < 10";
    for key in from.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        reader.refresh().await?;
        let before = one(&reader, &mut session, generation).await?;
        writer.sql(&format!("insert into t (k, v) values ({key}, 0)")).await?;
        reader.refresh().await?;
        let there = one(&reader, &mut session, &format!("select count(*) from t where k = {key}")).await?;
        let after = one(&reader, &mut session, generation).await?;
        if before == after {
            assert_eq!(there, 1, "row {key} was acknowledged and is not in the table, generation {after}");
            looked.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_insert_is_acknowledged_into_a_table_that_nobody_can_see_while_it_is_replaced_and_flushed_again_and_again()
 {
    let cluster = TestCluster::start(2).unwrap();
    let client = cluster.connect(Wire::Shm).await.unwrap();
    load(&client, 1, false).await.unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for writer in 0..2_i64 {
        let engines = [
            cluster.engine(Wire::Shm, by_hand()).await.unwrap(),
            cluster.engine(Wire::Tcp, by_hand()).await.unwrap(),
        ];
        let [writes, reads] = engines;
        let (from, looked) = (1000 + writer * 1_000_000, Arc::new(AtomicU32::new(0)));
        let inserting = insert_and_look(writes, reads, from, Arc::clone(&looked), Arc::clone(&is_over));
        writers.push((tokio::spawn(inserting), looked));
    }
    let flusher = cluster.engine(Wire::Tcp, by_hand()).await.unwrap();
    let all_looked = || {
        writers
            .iter()
            .all(|(inserting, looked)| inserting.is_finished() || looked.load(Ordering::Relaxed) > 0)
    };
    for generation in (2..).take_while(|generation| *generation < 14 || !all_looked()) {
        load(&client, generation, false).await.unwrap();
        // Whoever replaces the table overtakes this, and the other way round.
        let (flushed, loaded) = tokio::join!(flusher.flush("t"), async {
            // By its own number: a row is looked for only if no load came in between.
            if generation % 3 == 0 { load(&client, 1_000_000 + generation, false).await } else { Ok(()) }
        });
        loaded.unwrap();
        if let Err(error) = flushed {
            assert!(error.to_string().contains("load"), "{error}");
        }
    }
    is_over.store(true, Ordering::Relaxed);
    for (inserting, _) in writers {
        inserting.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_is_answered_though_its_table_is_replaced_again_and_again() {
    let cluster = TestCluster::start(2).unwrap();
    let client = cluster.connect(Wire::Shm).await.unwrap();
    load(&client, 1, false).await.unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let loading = tokio::spawn(async move {
        for generation in 2.. {
            load(&client, generation, false).await.unwrap();
            if over.load(Ordering::Relaxed) {
                break;
            }
        }
    });
    let query = "select cast(sum(v) as bigint) from t";
    for policy in Policy::ALL {
        let engine = cluster.engine(Wire::Tcp, by_hand()).await.unwrap();
        engine.set_policy(policy);
        let mut session = SqlSession::default();
        for _ in 0..40 {
            let sum = one(&engine, &mut session, query).await.unwrap();
            assert!(sum > 0 && sum % 10 == 0, "{policy}: {sum} is of no single generation");
        }
        for _ in 0..10 {
            engine.explain(query, ExplainMode::Analyze).await.unwrap();
        }
    }
    is_over.store(true, Ordering::Relaxed);
    loading.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_whose_table_is_dropped_while_it_runs_is_whole_or_an_error() {
    for policy in Policy::ALL {
        let cluster = TestCluster::start(2).unwrap();
        cluster.load(crate::changed::SHAPE).await.unwrap();
        let engine = cluster.engine(Wire::Shm, by_hand()).await.unwrap();
        engine.set_policy(policy);
        let mut session = SqlSession::default();
        let expected = one(&engine, &mut session, "select count(*) from lineitem").await.unwrap();
        let mut stream = engine.stream("select * from lineitem").await.unwrap();
        let mut rows = stream.next().await.unwrap().unwrap().num_rows();
        let client = cluster.connect(Wire::Tcp).await.unwrap();
        client.drop_table("lineitem").await.unwrap();
        let ended = loop {
            match stream.next().await {
                Ok(Some(batch)) => rows += batch.num_rows(),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if let Ok(()) = ended {
            assert_eq!(i64::try_from(rows).unwrap(), expected, "{policy}");
        }
        let error =
            engine.sql("select count(*) from lineitem").await.map(|outcome| outcome.rows()).unwrap_err();
        assert_eq!(error.sqlstate(), "42P01", "{policy}: {error}");
    }
}
