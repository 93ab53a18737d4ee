//! Tests transactions that change the same rows at the same time. Goal: the first one commits, and
//! the second one runs again or fails with a conflict; a flush never aborts a transaction.

use crate::{
    changed::one,
    cluster::{Outcome, TestCluster},
    replaced::{by_hand, load},
};
use rackscan_engine::{Engine, EngineError, Isolation, SqlSession};
use rackscan_fabric::Wire;
use rackscan_planner::Policy;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

const WRITERS: i64 = 4;
const TURNS: usize = 12;

/// What one writer does; how often it was acknowledged.
type Write = fn(usize) -> Vec<String>;

/// Statements until they are acknowledged; what is in conflict is begun again.
async fn acknowledged(engine: &Engine, statements: &[String]) -> Outcome<()> {
    let mut session = SqlSession::default();
    loop {
        let mut outcome = Ok(());
        for statement in statements {
            outcome = engine.sql_in(&mut session, statement).await.map(drop);
            if outcome.is_err() {
                break;
            }
        }
        match outcome {
            Err(error @ EngineError::Conflict { .. }) => {
                assert!(statements.len() > 1, "a statement alone is done again by itself: {error}");
                assert_eq!(error.sqlstate(), "40001");
                assert!(!session.is_open());
            }
            other => return Ok(other?),
        }
    }
}

async fn increments(write: Write, before: &[&str], flushes: bool) -> Outcome<()> {
    let cluster = TestCluster::start(2)?;
    load(&cluster.connect(Wire::Shm).await?, 0, false).await?;
    let late = cluster.engine(Wire::Tcp, by_hand()).await?;
    for statement in before {
        late.sql(statement).await?;
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let flusher = cluster.engine(Wire::Shm, by_hand()).await?;
    let over = Arc::clone(&is_over);
    let flushing = tokio::spawn(async move {
        let mut done = 0;
        while flushes && !over.load(Ordering::Relaxed) {
            let begun = Instant::now();
            flusher.flush("t").await?;
            done += 1;
            // A statement that takes longer than the time between two flushes is never written.
            tokio::time::sleep(begun.elapsed()).await;
        }
        Ok::<u32, EngineError>(done)
    });
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let wire = [Wire::Shm, Wire::Tcp][usize::try_from(writer)? % 2];
        let engine = cluster.engine(wire, by_hand()).await?;
        writers.push(tokio::spawn(async move {
            for turn in 0..TURNS {
                acknowledged(&engine, &write(turn)).await?;
            }
            Outcome::Ok(())
        }));
    }
    for writer in writers {
        writer.await??;
    }
    is_over.store(true, Ordering::Relaxed);
    assert_eq!(flushing.await?? > 0, flushes);
    let all = WRITERS * i64::try_from(TURNS)?;
    let mut session = SqlSession::default();
    late.refresh().await?;
    let found = one(&late, &mut session, "select cast(sum(v) as bigint) from t where k = 3").await?;
    assert_eq!(found, all, "each acknowledgement counts once");
    assert_eq!(one(&late, &mut session, "select count(*) from t").await?, 10);
    if !before.is_empty() {
        let view = "select count(*) from s join (select v, count(*) as m from t group by v) as q on s.v = q.v and s.n = q.m";
        let groups = one(&late, &mut session, "select count(distinct v) from t").await?;
        assert_eq!(one(&late, &mut session, view).await?, groups, "the view is what its query would find");
    }
    Ok(())
}

fn one_statement(_: usize) -> Vec<String> {
    vec!["update t set v = v + 1 where k = 3".to_owned()]
}

fn a_block(_: usize) -> Vec<String> {
    ["begin", "update t set v = v + 1 where k = 3", "commit"].map(str::to_owned).into()
}

/// The row is deleted and another one inserted in its place.
fn moved(_: usize) -> Vec<String> {
    let insert = "insert into t (k, v) select k, v + 1 from t where k = 3";
    let delete = "delete from t where k = 3 and v < (select max(v) from t where k = 3)";
    ["begin", insert, delete, "commit"].map(str::to_owned).into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acknowledged_increment_of_a_row_counts() {
    increments(one_statement, &[], false).await.unwrap();
    increments(a_block, &[], false).await.unwrap();
    increments(moved, &[], false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acknowledged_increment_counts_while_the_table_is_flushed_again_and_again() {
    increments(one_statement, &[], true).await.unwrap();
    increments(a_block, &[], true).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acknowledged_increment_counts_in_a_view_and_an_index_too() {
    let derived = [
        "create materialized view s as select v, count(*) as n from t group by v",
        "create index i on t (k)",
    ];
    increments(one_statement, &derived, false).await.unwrap();
    increments(a_block, &derived, true).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_several_insert_that_they_have_read_of_the_same_table_is_read_by_the_next() {
    let cluster = TestCluster::start(2).unwrap();
    load(&cluster.connect(Wire::Shm).await.unwrap(), 0, false).await.unwrap();
    let mut writers = Vec::new();
    for _ in 0..WRITERS {
        let engine = cluster.engine(Wire::Shm, by_hand()).await.unwrap();
        writers.push(tokio::spawn(async move {
            for _ in 0..6 {
                engine.sql("insert into t (k, v) select max(k) + 1, 0 from t").await?;
            }
            Ok::<(), EngineError>(())
        }));
    }
    for writer in writers {
        writer.await.unwrap().unwrap();
    }
    let engine = cluster.engine(Wire::Tcp, by_hand()).await.unwrap();
    let mut session = SqlSession::default();
    let keys = one(&engine, &mut session, "select count(distinct k) from t").await.unwrap();
    assert_eq!(keys, 10 + WRITERS * 6);
    assert_eq!(one(&engine, &mut session, "select count(*) from t").await.unwrap(), keys);
}

/// Two transactions change one row; how the second one ends.
async fn second(isolation: Isolation) -> Outcome<(Result<(), EngineError>, i64)> {
    let cluster = TestCluster::start(2)?;
    load(&cluster.connect(Wire::Shm).await?, 0, false).await?;
    let engines = [cluster.engine(Wire::Shm, by_hand()).await?, cluster.engine(Wire::Tcp, by_hand()).await?];
    let mut sessions = [SqlSession::with_isolation(isolation), SqlSession::with_isolation(isolation)];
    for ((engine, session), value) in engines.iter().zip(&mut sessions).zip([1, 2]) {
        engine.sql_in(session, "begin").await?;
        engine.sql_in(session, &format!("update t set v = v + {value} where k = 3")).await?;
        engine.sql_in(session, &format!("insert into t (k, v) values ({value}00, 0)")).await?;
    }
    engines[0].sql_in(&mut sessions[0], "commit").await?;
    let outcome = engines[1].sql_in(&mut sessions[1], "commit").await.map(drop);
    let value = one(&engines[0], &mut sessions[0], "select cast(sum(v) + count(*) as bigint) from t").await?;
    Ok((outcome, value))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_transactions_that_change_a_row_the_second_is_told_unless_both_are_read_atomic() {
    let (outcome, value) = second(Isolation::Snapshot).await.unwrap();
    let error = outcome.unwrap_err();
    assert!(matches!(&error, EngineError::Conflict { table } if table == "t"), "{error}");
    assert_eq!((error.sqlstate(), value), ("40001", 1 + 11), "nothing of it is written");
    let (outcome, value) = second(Isolation::ReadAtomic).await.unwrap();
    outcome.unwrap();
    assert_eq!(value, 2 + 12, "the later one stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_reads_and_writes_what_it_began_with_however_often_the_table_is_flushed() {
    let cluster = TestCluster::start(2).unwrap();
    load(&cluster.connect(Wire::Shm).await.unwrap(), 0, false).await.unwrap();
    let other = cluster.engine(Wire::Shm, by_hand()).await.unwrap();
    other.sql("create materialized view s as select v, count(*) as n from t group by v").await.unwrap();
    other.sql("create index i on t (k)").await.unwrap();
    let sum = "select cast(sum(v) as bigint) from t";
    let used = || async {
        let mut used = 0;
        for node in other.cluster().nodes() {
            let status = other.cluster().status(node).await.unwrap();
            used += status.devices.iter().map(|device| device.used_bytes).sum::<u64>();
        }
        used
    };
    for policy in [Policy::RemoteProcess, Policy::RemoteFetch, Policy::Local] {
        let engine = cluster.engine(Wire::Shm, by_hand()).await.unwrap();
        engine.set_policy(policy);
        let mut session = SqlSession::default();
        engine.sql_in(&mut session, "begin").await.unwrap();
        let before = one(&engine, &mut session, sum).await.unwrap();
        for turn in 0..5 {
            other.sql("update t set v = v + 1").await.unwrap();
            other.flush("t").await.unwrap();
            assert_eq!(one(&engine, &mut session, sum).await.unwrap(), before, "{policy}, flush {turn}");
            let of_key = "select v from t where k = 3";
            let outcome = engine.sql_in(&mut session, of_key).await;
            assert!(outcome.is_ok(), "{policy}, flush {turn}: {:?}", outcome.err());
        }
        engine.sql_in(&mut session, "insert into t (k, v) values (1000, 0)").await.unwrap();
        let held = used().await;
        engine.sql_in(&mut session, "commit").await.unwrap();
        // What was held is free once the transaction is over.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while used().await >= held {
            assert!(std::time::Instant::now() < deadline, "{policy}: {held} bytes stay in use");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_aborts_no_transaction() {
    let cluster = TestCluster::start(2).unwrap();
    load(&cluster.connect(Wire::Shm).await.unwrap(), 0, false).await.unwrap();
    let engine = cluster.engine(Wire::Shm, by_hand()).await.unwrap();
    let other = cluster.engine(Wire::Tcp, by_hand()).await.unwrap();
    for isolation in [Isolation::Snapshot, Isolation::ReadAtomic] {
        for turn in 0..12_i64 {
            let mut session = SqlSession::with_isolation(isolation);
            // Rows of a segment, of none, and ones that were changed before and flushed in between,
            // once or several times.
            for statement in [
                "begin",
                "update t set v = v + 1 where k = 1",
                "delete from t where k = 50",
                "insert into t (k, v) values (50, 0)",
                "update t set v = v + 1 where k = 50",
            ] {
                engine.sql_in(&mut session, statement).await.unwrap();
            }
            for flush in 0..=turn % 3 {
                other.sql(&format!("update t set v = v + 1 where k = {}", 2 + flush)).await.unwrap();
                other.flush("t").await.unwrap();
            }
            let outcome = engine.sql_in(&mut session, "commit").await;
            assert!(outcome.is_ok(), "{isolation:?}, turn {turn}: {:?}", outcome.err());
            let sum = "select cast(sum(v) as bigint) from t where k = 1 or k = 50";
            let expected = turn + 2 + if isolation == Isolation::ReadAtomic { 12 } else { 0 };
            assert_eq!(one(&other, &mut SqlSession::default(), sum).await.unwrap(), expected);
            assert_eq!(one(&other, &mut SqlSession::default(), "select count(*) from t").await.unwrap(), 11);
        }
    }
}
