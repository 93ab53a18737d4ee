//! Tests what statements see while changed rows are flushed into segments, and afterwards. Goal:
//! they see the same rows as without a flush, whichever engine flushes, however often, and also if
//! an engine aborts its flush.

use crate::{
    changed::{CHANGES, SHAPE, alone, change_alone, check_answers, count, one},
    cluster::{Outcome, Shape, TestCluster, options},
};
use rackscan_engine::{Engine, EngineError, EngineOptions, FlushOutcome, SqlSession};
use rackscan_fabric::Wire;
use rackscan_planner::Policy;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Engines that flush nothing by themselves.
fn by_hand() -> EngineOptions {
    EngineOptions { flush_rows_min: None, ..options(Policy::Auto) }
}

fn changed_rows(engine: &Engine, table: &str) -> u64 {
    engine.describe(table).expect("it is there").info.changed_rows
}

async fn flushed(engine: &Engine, table: &str) -> Outcome<u64> {
    match engine.flush(table).await? {
        FlushOutcome::Flushed(flushed) => Ok(flushed.rows),
        other => Err(format!("{table}: {other:?}").into()),
    }
}

/// Bytes and keys that participants hold.
async fn held(cluster: &TestCluster) -> Outcome<(u64, u64)> {
    let cluster = cluster.connect(Wire::Tcp).await?;
    let participants = cluster.statuses().iter().map(|status| status.participant);
    Ok(participants
        .fold((0, 0), |(bytes, keys), participant| (bytes + participant.used_bytes, keys + participant.keys)))
}

async fn flushed_rows_are_as_they_were() -> Outcome<()> {
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
                let outcome = engines[turn / 3 % 2].flush(table).await?;
                assert!(
                    matches!(outcome, FlushOutcome::Flushed(_) | FlushOutcome::Nothing),
                    "{table}: {outcome:?}"
                );
                assert_eq!(changed_rows(&engines[turn / 3 % 2], table), 0);
            }
        }
        let asked = (turn + 1) % 2;
        check_answers(&engines[asked..=asked], &alone, change).await?;
    }
    for table in ["orders", "lineitem"] {
        engines[0].flush(table).await?;
        if let FlushOutcome::Flushed(again) = engines[1].flush(table).await? {
            assert_eq!((again.rows, again.segments), (0, 0), "{table}: empty segments were left out");
        }
        assert!(matches!(engines[0].flush(table).await?, FlushOutcome::Nothing));
    }
    let late = [cluster.engine(Wire::Shm, by_hand()).await?];
    check_answers(&engines, &alone, "all").await?;
    check_answers(&late, &alone, "all").await?;
    // What has moved is no burden of the participants any more: a few keys are left that say so.
    let (bytes, keys) = held(&cluster).await?;
    assert!(keys < 100 && bytes < most.0 / 4, "{bytes} bytes of {keys} keys, at most there were {most:?}");
    assert_eq!(late[0].sweep().await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_rows_are_in_every_answer_as_they_were_before_and_participants_are_rid_of_them() {
    flushed_rows_are_as_they_were().await.unwrap();
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
            // One of the tables was flushed meanwhile: nothing was written. A statement alone waits
            // for the new version.
            Err(EngineError::Flushed) => {
                engine.sql("update supplier set s_comment = 'waited' where s_suppkey = 90").await?;
                engine.sql("update customer set c_comment = 'waited' where c_custkey = 90").await?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(moved)
}

/// Amounts move while tables are flushed, by `flush` for each turn; whoever adds all up finds the
/// same.
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
    let flusher = Arc::new(cluster.engine(Wire::Tcp, by_hand()).await?);
    let (mut looked, mut done) = (0, 0);
    for turn in 0..turns {
        let (table, flusher) = (["supplier", "customer"][turn as usize / 2 % 2], Arc::clone(&flusher));
        let flushing = tokio::spawn(async move { flusher.flush(table).await });
        let given_up = give_up(turn).map(|after| Instant::now() + after);
        while !flushing.is_finished() {
            if given_up.is_some_and(|when| Instant::now() >= when) {
                flushing.abort();
            }
            engine.set_policy(Policy::ALL[looked % Policy::ALL.len()]);
            assert_eq!(one(&engine, &mut session, SUM).await?, expected, "look {looked} in turn {turn}");
            looked += 1;
        }
        match flushing.await {
            Ok(outcome) => done += u32::from(matches!(outcome?, FlushOutcome::Flushed(_))),
            Err(error) => assert!(error.is_cancelled(), "{error}"),
        }
    }
    is_over.store(true, Ordering::Relaxed);
    for writer in writers {
        assert!(writer.await?? > 3, "nothing was moved");
    }
    assert!(done > 0, "nothing was flushed in {turns} turns");
    assert_eq!(one(&engine, &mut session, SUM).await?, expected);
    let late = cluster.engine(Wire::Tcp, by_hand()).await?;
    assert_eq!(one(&late, &mut session, SUM).await?, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_and_transactions_go_on_while_their_tables_are_flushed() {
    sums_stay(16, |_| None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_gives_up_flushing_at_any_moment_loses_nothing_and_writers_go_on() {
    // Every second one, after 3 to 150 ms.
    let after = |turn: u32| Duration::from_millis(u64::from(turn * 37 % 148 + 3));
    sums_stay(16, |turn| turn.is_multiple_of(2).then(|| after(turn))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_who_flush_a_table_one_does_and_nothing_is_there_twice() {
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
        let flushing: Vec<_> = engines
            .iter()
            .map(|engine| {
                let engine = Arc::clone(engine);
                tokio::spawn(async move { engine.flush("orders").await })
            })
            .collect();
        let mut done = 0;
        for flushing in flushing {
            match flushing.await.unwrap() {
                Ok(FlushOutcome::Flushed(_)) => done += 1,
                Ok(FlushOutcome::Overtaken | FlushOutcome::Nothing) => {}
                // Each forgets what others have prepared under the same name.
                Err(error) => assert!(error.to_string().contains("load"), "{error}"),
            }
        }
        if done == 0 {
            done += usize::from(matches!(engines[1].flush("orders").await, Ok(FlushOutcome::Flushed(_))));
        }
        assert!(done >= 1, "round {round}");
        for engine in &engines {
            assert_eq!(one(engine, &mut session, rows).await.unwrap(), round);
            assert_eq!(changed_rows(engine, "orders"), 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_began_before_its_table_was_flushed_writes_to_the_new_version() {
    let cluster = TestCluster::start(2).unwrap();
    cluster.load(SHAPE).await.unwrap();
    let engine = cluster.engine(Wire::Shm, by_hand()).await.unwrap();
    let other = cluster.engine(Wire::Tcp, by_hand()).await.unwrap();
    engine.sql("update nation set n_comment = 'x' where n_nationkey = 3").await.unwrap();
    let mut session = SqlSession::default();
    engine.sql_in(&mut session, "begin").await.unwrap();
    engine.sql_in(&mut session, "update nation set n_comment = 'y'").await.unwrap();
    engine.sql_in(&mut session, "delete from region").await.unwrap();
    assert_eq!(flushed(&other, "nation").await.unwrap(), 1);
    let sees = one(&engine, &mut session, "select count(*) from nation where n_comment = 'y'").await;
    assert_eq!(sees.unwrap(), 25, "it goes on seeing what it saw");
    engine.sql_in(&mut session, "commit").await.unwrap();
    for engine in [&engine, &other] {
        let mut session = SqlSession::default();
        let count = one(engine, &mut session, "select count(*) from nation where n_comment = 'y'").await;
        assert_eq!(count.unwrap(), 25);
        assert_eq!(one(engine, &mut session, "select count(*) from region").await.unwrap(), 0);
    }
    engine.sql("update nation set n_comment = 'z' where n_nationkey = 3").await.unwrap();
    let count = one(&other, &mut session, "select count(*) from nation where n_comment = 'z'").await;
    assert_eq!(count.unwrap(), 1, "the next one is written to the new version");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_runs_goes_on_with_what_it_saw_when_its_table_is_flushed_and_written_again() {
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
        flushed(&other, "lineitem").await.unwrap();
        let more = format!("delete from lineitem where l_orderkey between {} and {}", from + 200, from + 300);
        other.sql(&more).await.unwrap();
        flushed(&other, "lineitem").await.unwrap();
        while let Some(batch) = stream.next().await.unwrap() {
            rows += batch.num_rows();
        }
        assert_eq!(i64::try_from(rows).unwrap(), expected - gone, "{policy}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_is_flushed_in_the_background_when_enough_of_it_has_changed() {
    let cluster = TestCluster::start(2).unwrap();
    cluster.load(SHAPE).await.unwrap();
    let options = EngineOptions { flush_rows_min: Some(300), ..options(Policy::Auto) };
    let engine = cluster.engine(Wire::Shm, options).await.unwrap();
    engine.sql("update orders set o_comment = 'few' where o_orderkey < 100").await.unwrap();
    engine.flush_if_due().await.unwrap();
    engine.rest().await;
    assert_eq!(changed_rows(&engine, "orders"), 54, "27 there and 27 beside them");
    engine.sql("update orders set o_comment = 'many' where o_orderkey < 1000").await.unwrap();
    engine.flush_if_due().await.unwrap();
    engine.rest().await;
    assert_eq!(changed_rows(&engine, "orders"), 0);
    let many = "select count(*) from orders where o_comment = 'many'";
    assert_eq!(one(&engine, &mut SqlSession::default(), many).await.unwrap(), 255);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_rows_of_a_dropped_table_are_swept_out_of_the_participants() {
    let cluster = TestCluster::start(2).unwrap();
    cluster.load(SHAPE).await.unwrap();
    let engine = cluster.engine(Wire::Shm, by_hand()).await.unwrap();
    engine.sql("update orders set o_comment = 'x' where o_orderkey < 10000").await.unwrap();
    let before = held(&cluster).await.unwrap();
    engine.cluster().drop_table("orders").await.unwrap();
    assert_eq!(engine.sweep().await.unwrap(), 1);
    assert!(before.1 > 2000, "{before:?}");
    // Participants forget a part of them in each turn.
    let deadline = Instant::now() + Duration::from_secs(60);
    while held(&cluster).await.unwrap().1 >= 10 {
        assert!(Instant::now() < deadline, "{before:?}, {:?}", held(&cluster).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(engine.sweep().await.unwrap(), 0);
    assert!(engine.sql("select count(*) from orders").await.is_err());
}

/// Bytes that nodes have stored.
async fn stored(cluster: &TestCluster) -> Outcome<u64> {
    let cluster = cluster.connect(Wire::Tcp).await?;
    let devices = cluster.statuses().iter().flat_map(|status| &status.devices);
    Ok(devices.map(|device| device.used_bytes).sum())
}

async fn small_segments_are_put_together() -> Outcome<()> {
    let cluster = TestCluster::start(2)?;
    cluster.load(SHAPE).await?;
    let engine = cluster.engine(Wire::Shm, by_hand()).await?;
    let mut session = SqlSession::default();
    let sum = "select cast(sum(o_totalprice) as bigint) + count(*) from orders";
    let expected = one(&engine, &mut session, sum).await?;
    let segments = |engine: &Engine| engine.describe("orders").map(|table| table.info.segments);
    let (begun, bytes) = (segments(&engine)?, stored(&cluster).await?);
    let (mut most, mut rewritten) = (0, 0);
    for turn in 0..40 {
        let from = turn * 100 + 1;
        engine
            .sql(&format!(
                "update orders set o_comment = 'turn {turn}' where o_orderkey between {from} and {}",
                from + 99
            ))
            .await?;
        let FlushOutcome::Flushed(flushed) = engine.flush("orders").await? else {
            return Err(format!("turn {turn}: not flushed").into());
        };
        assert!(flushed.rows <= 32, "{flushed:?}: what is written anew has not changed");
        rewritten += flushed.rewritten;
        most = most.max(segments(&engine)?);
        engine.set_policy(Policy::ALL[turn % Policy::ALL.len()]);
        assert_eq!(one(&engine, &mut session, sum).await?, expected, "turn {turn}");
    }
    // Each node has at most seven small ones, what eight each became, and what of them is given
    // back by the next flush.
    assert!(most <= begun + 2 * (7 + 5 + 8), "{most} segments of {begun}, after 40 flushes");
    assert!((500..2500).contains(&rewritten), "{rewritten} rows of 1,000 were written anew");
    for turn in 0..40 {
        let text = format!("select count(*) from orders where o_comment = 'turn {turn}'");
        let found = one(&engine, &mut session, &text).await?;
        assert!((24..=32).contains(&found), "turn {turn}: {found}");
    }
    // Nothing else has become of the table.
    while !matches!(engine.flush("orders").await?, FlushOutcome::Nothing) {}
    let more = stored(&cluster).await?.saturating_sub(bytes);
    assert!(more < bytes / 2, "{more} bytes more than {bytes}");
    let late = cluster.engine(Wire::Tcp, by_hand()).await?;
    assert_eq!(one(&late, &mut session, sum).await?, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_segments_are_put_together_and_what_is_left_of_them_is_given_back() {
    small_segments_are_put_together().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_which_nothing_is_left_has_no_segments_and_takes_rows_again() {
    let cluster = TestCluster::start(2).unwrap();
    cluster.load(SHAPE).await.unwrap();
    let engine = cluster.engine(Wire::Shm, by_hand()).await.unwrap();
    let before = stored(&cluster).await.unwrap();
    engine.sql("delete from customer").await.unwrap();
    assert_eq!(flushed(&engine, "customer").await.unwrap(), 0);
    assert_eq!(flushed(&engine, "customer").await.unwrap(), 0, "what is empty is left out");
    assert!(matches!(engine.flush("customer").await.unwrap(), FlushOutcome::Nothing));
    let mut session = SqlSession::default();
    let count = "select count(*) from customer";
    for policy in Policy::ALL {
        engine.set_policy(policy);
        assert_eq!(one(&engine, &mut session, count).await.unwrap(), 0);
    }
    assert_eq!(engine.describe("customer").unwrap().info.segments, 0);
    assert!(stored(&cluster).await.unwrap() < before, "its pages are free");
    engine
        .sql("insert into customer values (1, 'Customer#1', 'here', 3, '13-1', 1.5, 'BUILDING', 'a')")
        .await
        .unwrap();
    assert_eq!(one(&engine, &mut session, count).await.unwrap(), 1);
    assert_eq!(flushed(&engine, "customer").await.unwrap(), 1);
    let late = cluster.engine(Wire::Tcp, by_hand()).await.unwrap();
    assert_eq!(one(&late, &mut session, count).await.unwrap(), 1);
}

/// Rows of two tables are all written again and flushed, over and over, while others add them up.
async fn whole_segments_come_and_go() -> Outcome<u64> {
    const ALL: &str = "select cast(sum(s_acctbal * c_acctbal) as bigint) from supplier, customer where s_nationkey = c_nationkey";
    let cluster = TestCluster::start(2)?;
    cluster.load(SHAPE).await?;
    let engine = cluster.engine(Wire::Shm, by_hand()).await?;
    let mut session = SqlSession::default();
    let expected = one(&engine, &mut session, ALL).await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let (told, writer) = (Arc::clone(&is_over), cluster.engine(Wire::Tcp, by_hand()).await?);
    let writing = tokio::spawn(async move {
        let mut flushed = 0;
        for turn in 0..20 {
            for table in ["supplier", "customer"] {
                let column = &table[..1];
                writer.sql(&format!("update {table} set {column}_comment = 'turn {turn}'")).await?;
                for _ in 0..2 {
                    flushed += u64::from(matches!(writer.flush(table).await?, FlushOutcome::Flushed(_)));
                }
            }
        }
        told.store(true, Ordering::Relaxed);
        Ok::<u64, EngineError>(flushed)
    });
    let mut looked = 0;
    while !is_over.load(Ordering::Relaxed) && !writing.is_finished() {
        engine.set_policy(Policy::ALL[looked % Policy::ALL.len()]);
        assert_eq!(one(&engine, &mut session, ALL).await?, expected, "look {looked}");
        looked += 1;
    }
    assert!(looked > 3, "nobody looked");
    Ok(writing.await??)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_are_answered_while_all_segments_of_their_tables_come_and_go() {
    assert_eq!(whole_segments_come_and_go().await.unwrap(), 80);
}

/// A condition that holds for every row, and that takes its time: segments are read one after the
/// other.
fn slowly(times: u32) -> String {
    format!("upper(repeat(l_comment, {times})) <> l_comment")
}

/// What became of a query, a change and a transaction that began before the end of their table was
/// deleted and flushed twice.
struct Outlived {
    found: i64,
    deleted: u64,
    /// By the transaction that began before.
    again: i64,
}

async fn outlive(engine: &Arc<Engine>, writer: &Engine, from: i64, times: u32) -> Outcome<Outlived> {
    let mut session = SqlSession::default();
    let slow = format!("select count(*) from lineitem where {}", slowly(times));
    engine.sql_in(&mut session, "begin").await?;
    let (asked, text) = (Arc::clone(engine), slow.clone());
    let query = tokio::spawn(async move {
        let outcome = one(&asked, &mut SqlSession::default(), &text).await;
        outcome.map_err(|error| error.to_string())
    });
    let (asked, text) = (Arc::clone(engine), format!("delete from lineitem where not ({})", slowly(times)));
    let change = tokio::spawn(async move { asked.sql(&text).await.map(|done| count(&done.batches)) });
    tokio::time::sleep(Duration::from_millis(50)).await;
    // The second flush does without the segments that the first one has emptied.
    writer.sql(&format!("delete from lineitem where l_orderkey >= {from}")).await?;
    for _ in 0..2 {
        assert_eq!(flushed(writer, "lineitem").await?, 0);
    }
    let (found, deleted) = (query.await??, change.await??);
    let again = one(engine, &mut session, &slow).await?;
    Ok(Outlived { found, deleted, again })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_outlives_its_segments_is_of_one_moment_and_a_transaction_reads_what_it_began_with() {
    let cluster = TestCluster::start(2).unwrap();
    cluster.load(Shape { segment_rows: 1024, ..SHAPE }).await.unwrap();
    let options = EngineOptions { threads: 1, segments_in_flight: 1, ..by_hand() };
    let engine = Arc::new(cluster.engine(Wire::Shm, options).await.unwrap());
    let writer = cluster.engine(Wire::Tcp, by_hand()).await.unwrap();
    let rows = "select count(*) from lineitem";
    // Each time a segment at least is gone at each node.
    let mut from = 60_001;
    for policy in Policy::ALL {
        for times in [10, 100] {
            from -= 3900;
            let before = one(&writer, &mut SqlSession::default(), rows).await.unwrap();
            engine.set_policy(policy);
            let outlived = outlive(&engine, &writer, from, times).await.unwrap();
            let after = one(&writer, &mut SqlSession::default(), rows).await.unwrap();
            // A query that is run again, because its segments were gone before it held them, is of
            // the later moment.
            let found = outlived.found;
            assert!([before, after].contains(&found), "{policy}: {found} of {before}, then {after}");
            assert_eq!(outlived.deleted, 0, "{policy}");
            assert_eq!(outlived.again, before, "{policy}");
        }
    }
}
