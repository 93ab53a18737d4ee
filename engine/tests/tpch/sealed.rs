//! What do statements see while changed rows become segments, and after that? Goal: what they would see if nothing were sealed, whoever seals, however often, and whatever becomes
//! of those who do.

use crate::{
    changed::{CHANGES, SHAPE, alone, change_alone, check_answers, count, one},
    cluster::{Outcome, TestCluster, options},
};
use rackscan_engine::{Engine, EngineError, EngineOptions, SealOutcome, SqlSession};
use rackscan_fabric::Wire;
use rackscan_planner::Policy;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Engines that seal nothing by themselves.
fn by_hand() -> EngineOptions {
    EngineOptions { seal_rows_min: None, ..options(Policy::Auto) }
}

fn changed_rows(engine: &Engine, table: &str) -> u64 {
    engine.describe(table).expect("it is there").info.changed_rows
}

async fn sealed(engine: &Engine, table: &str) -> Outcome<u64> {
    match engine.seal(table).await? {
        SealOutcome::Sealed(sealed) => Ok(sealed.rows),
        other => Err(format!("{table}: {other:?}").into()),
    }
}

/// Bytes and keys that homes hold.
async fn held(cluster: &TestCluster) -> Outcome<(u64, u64)> {
    let cluster = cluster.connect(Wire::Tcp).await?;
    let homes = cluster.statuses().iter().map(|status| status.home);
    Ok(homes.fold((0, 0), |(bytes, keys), home| (bytes + home.used_bytes, keys + home.keys)))
}

async fn sealed_rows_are_as_they_were() -> Outcome<()> {
    let cluster = TestCluster::start(3)?;
    cluster.load(SHAPE).await?;
    let engines = [cluster.engine(Wire::Shm, by_hand()).await?, cluster.engine(Wire::Tcp, by_hand()).await?];
    let alone = alone(&engines[0]).await?;
    let mut most = (0, 0);
    for (turn, change) in CHANGES.iter().enumerate() {
        let expected = change_alone(&alone, change).await?;
        let found = count(&engines[turn % 2].sql(change).await?.batches);
        assert_eq!(found, expected, "{change}");
        most = most.max(held(&cluster).await?);
        if turn % 3 == 2 {
            for table in ["orders", "lineitem"] {
                let outcome = engines[turn / 3 % 2].seal(table).await?;
                assert!(
                    matches!(outcome, SealOutcome::Sealed(_) | SealOutcome::Nothing),
                    "{table}: {outcome:?}"
                );
                assert_eq!(changed_rows(&engines[turn / 3 % 2], table), 0);
            }
        }
        let asked = (turn + 1) % 2;
        check_answers(&engines[asked..=asked], &alone, change).await?;
    }
    for table in ["orders", "lineitem"] {
        engines[0].seal(table).await?;
        assert!(matches!(engines[1].seal(table).await?, SealOutcome::Nothing));
    }
    let late = [cluster.engine(Wire::Shm, by_hand()).await?];
    check_answers(&engines, &alone, "all").await?;
    check_answers(&late, &alone, "all").await?;
    // What has moved is no burden of the homes any more: a few keys are left that say so.
    let (bytes, keys) = held(&cluster).await?;
    assert!(keys < 100 && bytes < most.0 / 4, "{bytes} bytes of {keys} keys, at most there were {most:?}");
    assert_eq!(late[0].sweep().await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sealed_rows_are_in_every_answer_as_they_were_before_and_homes_are_rid_of_them() {
    sealed_rows_are_as_they_were().await.unwrap();
}

const SUM: &str = "select cast(s + c as bigint) from (select sum(s_acctbal) as s from supplier), (select sum(c_acctbal) as c from customer)";

/// Moves amounts between rows of two tables until it is told to stop; how often it was done.
async fn move_amounts(engine: Engine, writer: u32, is_over: Arc<AtomicBool>) -> Result<u32, EngineError> {
    let (mut session, mut moved) = (SqlSession::default(), 0);
    while !is_over.load(Ordering::Relaxed) {
        // Rows of this writer only: RAMP does not keep two writers of a row apart.
        let (row, amount) = (moved % 40 * 2 + writer + 1, moved % 13 + 1);
        let both = [
            "begin".to_owned(),
            format!("update supplier set s_acctbal = s_acctbal - {amount} where s_suppkey = {row}"),
            format!("update customer set c_acctbal = c_acctbal + {amount} where c_custkey = {row}"),
            "commit".to_owned(),
        ];
        let mut outcome = Ok(());
        for statement in &both {
            outcome = engine.sql_in(&mut session, statement).await.map(drop);
            if outcome.is_err() {
                break;
            }
        }
        match outcome {
            Ok(()) => moved += 1,
            // One of the tables was sealed meanwhile: nothing was written. A statement alone waits for the successor.
            Err(EngineError::Sealed) => {
                engine.sql("update supplier set s_comment = 'waited' where s_suppkey = 90").await?;
                engine.sql("update customer set c_comment = 'waited' where c_custkey = 90").await?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(moved)
}

/// Amounts move while tables are sealed, by `seal` for each turn; whoever adds all up finds the same.
async fn sums_stay(turns: u32, give_up: impl Fn(u32) -> Option<Duration>) -> Outcome<()> {
    let cluster = TestCluster::start(3)?;
    cluster.load(SHAPE).await?;
    let engine = Arc::new(cluster.engine(Wire::Shm, by_hand()).await?);
    let mut session = SqlSession::default();
    let expected = one(&engine, &mut session, SUM).await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for writer in 0..2_u32 {
        let own = cluster.engine(Wire::Shm, by_hand()).await?;
        writers.push(tokio::spawn(move_amounts(own, writer, Arc::clone(&is_over))));
    }
    let sealer = Arc::new(cluster.engine(Wire::Tcp, by_hand()).await?);
    let (mut looked, mut done) = (0, 0);
    for turn in 0..turns {
        let (table, sealer) = (["supplier", "customer"][turn as usize / 2 % 2], Arc::clone(&sealer));
        let sealing = tokio::spawn(async move { sealer.seal(table).await });
        let given_up = give_up(turn).map(|after| Instant::now() + after);
        while !sealing.is_finished() {
            if given_up.is_some_and(|when| Instant::now() >= when) {
                sealing.abort();
            }
            engine.set_policy(Policy::ALL[looked % Policy::ALL.len()]);
            assert_eq!(one(&engine, &mut session, SUM).await?, expected, "look {looked} in turn {turn}");
            looked += 1;
        }
        match sealing.await {
            Ok(outcome) => done += u32::from(matches!(outcome?, SealOutcome::Sealed(_))),
            Err(error) => assert!(error.is_cancelled(), "{error}"),
        }
    }
    is_over.store(true, Ordering::Relaxed);
    for writer in writers {
        assert!(writer.await?? > 3, "nothing was moved");
    }
    assert!(done > 0, "nothing was sealed in {turns} turns");
    assert_eq!(one(&engine, &mut session, SUM).await?, expected);
    let late = cluster.engine(Wire::Tcp, by_hand()).await?;
    assert_eq!(one(&late, &mut session, SUM).await?, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_and_transactions_go_on_while_their_tables_are_sealed() {
    sums_stay(16, |_| None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_gives_up_sealing_at_any_moment_loses_nothing_and_writers_go_on() {
    // Every second one, after 3 to 150 ms.
    let after = |turn: u32| Duration::from_millis(u64::from(turn * 37 % 148 + 3));
    sums_stay(16, |turn| turn.is_multiple_of(2).then(|| after(turn))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_who_seal_a_table_one_does_and_nothing_is_there_twice() {
    let cluster = TestCluster::start(3).unwrap();
    cluster.load(SHAPE).await.unwrap();
    let mut engines = Vec::new();
    for wire in [Wire::Shm, Wire::Tcp, Wire::Shm] {
        engines.push(Arc::new(cluster.engine(wire, by_hand()).await.unwrap()));
    }
    let rows = "select count(*) from orders where o_comment = 'twice'";
    let mut session = SqlSession::default();
    for round in 1..=4_i64 {
        let insert = format!(
            "insert into orders values ({}, 37, 'O', 1.5, date '1997-01-02', '1-URGENT', 'Clerk#1', 0, 'twice')",
            700_000 + round
        );
        engines[0].sql(&insert).await.unwrap();
        let sealing: Vec<_> = engines
            .iter()
            .map(|engine| {
                let engine = Arc::clone(engine);
                tokio::spawn(async move { engine.seal("orders").await })
            })
            .collect();
        let mut done = 0;
        for sealing in sealing {
            match sealing.await.unwrap() {
                Ok(SealOutcome::Sealed(_)) => done += 1,
                Ok(SealOutcome::Overtaken | SealOutcome::Nothing) => {}
                // Each forgets what others have prepared under the same name.
                Err(error) => assert!(error.to_string().contains("load"), "{error}"),
            }
        }
        if done == 0 {
            done += usize::from(matches!(engines[1].seal("orders").await, Ok(SealOutcome::Sealed(_))));
        }
        assert!(done >= 1, "round {round}");
        for engine in &engines {
            assert_eq!(one(engine, &mut session, rows).await.unwrap(), round);
            assert_eq!(changed_rows(engine, "orders"), 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_began_before_its_table_was_sealed_is_told_and_has_written_nothing() {
    let cluster = TestCluster::start(2).unwrap();
    cluster.load(SHAPE).await.unwrap();
    let engine = cluster.engine(Wire::Shm, by_hand()).await.unwrap();
    let other = cluster.engine(Wire::Tcp, by_hand()).await.unwrap();
    engine.sql("update nation set n_comment = 'x' where n_nationkey = 3").await.unwrap();
    let mut session = SqlSession::default();
    engine.sql_in(&mut session, "begin").await.unwrap();
    engine.sql_in(&mut session, "update nation set n_comment = 'y'").await.unwrap();
    engine.sql_in(&mut session, "delete from region").await.unwrap();
    assert_eq!(sealed(&other, "nation").await.unwrap(), 1);
    let sees = one(&engine, &mut session, "select count(*) from nation where n_comment = 'y'").await;
    assert_eq!(sees.unwrap(), 25, "it goes on seeing what it saw");
    let error = engine.sql_in(&mut session, "commit").await.map(|outcome| outcome.rows()).unwrap_err();
    assert!(matches!(error, EngineError::Sealed), "{error}");
    for engine in [&engine, &other] {
        let mut session = SqlSession::default();
        let count = one(engine, &mut session, "select count(*) from nation where n_comment = 'x'").await;
        assert_eq!(count.unwrap(), 1);
        assert_eq!(one(engine, &mut session, "select count(*) from region").await.unwrap(), 5);
    }
    engine.sql("update nation set n_comment = 'z' where n_comment = 'x'").await.unwrap();
    let count = one(&other, &mut session, "select count(*) from nation where n_comment = 'z'").await;
    assert_eq!(count.unwrap(), 1, "the next one is written to the successor");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_runs_goes_on_with_what_it_saw_when_its_table_is_sealed_and_written_again() {
    let cluster = TestCluster::start(3).unwrap();
    cluster.load(SHAPE).await.unwrap();
    for (policy, from) in [(Policy::Local, 5000), (Policy::RemoteFetch, 6000), (Policy::RemoteProcess, 7000)]
    {
        let engine = cluster.engine(Wire::Shm, by_hand()).await.unwrap();
        let other = cluster.engine(Wire::Tcp, by_hand()).await.unwrap();
        engine.set_policy(policy);
        let mut session = SqlSession::default();
        let expected = one(&engine, &mut session, "select count(*) from lineitem").await.unwrap();
        let delete = format!("delete from lineitem where l_orderkey between {from} and {}", from + 100);
        let gone = i64::try_from(count(&other.sql(&delete).await.unwrap().batches)).unwrap();
        let mut stream = engine.stream("select * from lineitem").await.unwrap();
        let mut rows = stream.next().await.unwrap().unwrap().num_rows();
        sealed(&other, "lineitem").await.unwrap();
        let more = format!("delete from lineitem where l_orderkey between {} and {}", from + 200, from + 300);
        other.sql(&more).await.unwrap();
        sealed(&other, "lineitem").await.unwrap();
        while let Some(batch) = stream.next().await.unwrap() {
            rows += batch.num_rows();
        }
        assert_eq!(i64::try_from(rows).unwrap(), expected - gone, "{policy}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_is_sealed_in_the_background_when_enough_of_it_has_changed() {
    let cluster = TestCluster::start(2).unwrap();
    cluster.load(SHAPE).await.unwrap();
    let options = EngineOptions { seal_rows_min: Some(300), ..options(Policy::Auto) };
    let engine = cluster.engine(Wire::Shm, options).await.unwrap();
    engine.sql("update orders set o_comment = 'few' where o_orderkey < 100").await.unwrap();
    engine.seal_if_due().await.unwrap();
    engine.rest().await;
    assert_eq!(changed_rows(&engine, "orders"), 54, "27 there and 27 beside them");
    engine.sql("update orders set o_comment = 'many' where o_orderkey < 1000").await.unwrap();
    engine.seal_if_due().await.unwrap();
    engine.rest().await;
    assert_eq!(changed_rows(&engine, "orders"), 0);
    let many = "select count(*) from orders where o_comment = 'many'";
    assert_eq!(one(&engine, &mut SqlSession::default(), many).await.unwrap(), 255);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_rows_of_a_dropped_table_are_swept_out_of_the_homes() {
    let cluster = TestCluster::start(2).unwrap();
    cluster.load(SHAPE).await.unwrap();
    let engine = cluster.engine(Wire::Shm, by_hand()).await.unwrap();
    engine.sql("update orders set o_comment = 'x' where o_orderkey < 10000").await.unwrap();
    let before = held(&cluster).await.unwrap();
    engine.cluster().drop_table("orders").await.unwrap();
    assert_eq!(engine.sweep().await.unwrap(), 1);
    let after = held(&cluster).await.unwrap();
    assert!(before.1 > 2000 && after.1 < 10, "{before:?}, {after:?}");
    assert_eq!(engine.sweep().await.unwrap(), 0);
    assert!(engine.sql("select count(*) from orders").await.is_err());
}
