//! Tests queries that use an index. Goal: they find exactly the rows that they find without one,
//! wherever segments are scanned, beside changes and flushes; and segments without a matching row
//! are not scanned. Method: queries beside DataFusion's tables in memory.

use crate::{
    changed::{SHAPE, alone, change_alone, count, one},
    cluster::{Outcome, Shape, TestCluster},
    derived::by_hand,
};
use datafusion::{arrow::util::pretty::pretty_format_batches, datasource::MemTable};
use rackscan_engine::{Engine, EngineError, ExplainMode, FlushOutcome, SqlSession};
use rackscan_fabric::Wire;
use rackscan_planner::{Placement, Policy};
use std::sync::Arc;

/// What `explain` says of the only scan of a query, how many stored segments the index has spared
/// it, and how many it has scanned.
async fn explained(engine: &Engine, query: &str) -> Outcome<(String, u64, u64)> {
    let explanation = engine.explain(query, ExplainMode::Analyze).await?;
    let [scan] = explanation.scans.as_slice() else { return Err(format!("not one scan: {query}").into()) };
    let actual = scan.actual.as_ref().ok_or("it has not run")?;
    let ran = Placement::ALL.iter().map(|placement| actual.segments.of(*placement)).sum();
    Ok((explanation.to_string(), actual.passed_over, ran))
}

/// Queries that ask an index on `o_custkey` or `o_clerk`, and what they ask beside.
const LOOKUPS: [&str; 8] = [
    "select * from orders where o_custkey = 37 order by 1",
    "select count(*), sum(o_totalprice) as total from orders where o_custkey in (1, 2, 4, 5, 7, 8, 61, 700) and o_orderdate < date '1996-01-01'",
    "select o_orderstatus, count(*) from orders where o_custkey = 61 or o_custkey = 37 or 100 = o_custkey group by 1 order by 1",
    "select count(*) from orders where o_custkey = 3",
    "select max(o_orderkey) as last from orders where o_clerk = 'Clerk#000000005' and o_custkey > 700",
    "select count(*) from orders, customer where o_custkey = c_custkey and c_custkey = 64",
    "select o_orderkey from orders where o_custkey = 64 order by o_totalprice desc limit 3",
    "select count(*) from orders where o_clerk = 'nobody' or o_clerk = 'Clerk#1'",
];

/// Changes that touch what is looked up: rows that were loaded, that were inserted, and values that
/// become others.
const MOVES: [&str; 7] = [
    "update orders set o_custkey = 37 where o_orderkey between 100 and 400",
    "insert into orders select o_orderkey + 700000, 61, o_orderstatus, o_totalprice, o_orderdate, o_orderpriority, 'Clerk#1', 3, o_comment \
     from orders where o_orderkey < 1000",
    "delete from orders where o_custkey = 37 and o_orderkey < 200",
    "update orders set o_custkey = 3 where o_custkey = 61 and o_orderkey > 700500",
    "update orders set o_clerk = 'nobody' where o_custkey in (64, 65)",
    "delete from orders where o_clerk = 'nobody' and o_orderkey % 3 = 0",
    "insert into orders values (800001, 64, 'O', 1.5, date '1997-01-02', '1-URGENT', 'Clerk#1', 0, 'new')",
];

async fn lookups_change_no_answer() -> Outcome<()> {
    let cluster = TestCluster::start(3)?;
    cluster.load(Shape { segment_rows: 1024, ..SHAPE }).await?;
    let plain = cluster.engine(Wire::Shm, by_hand()).await?;
    plain.sql("delete from orders where o_orderkey % 50 = 1").await?;
    let alone = alone(&plain).await?;
    let customers = plain.sql("select * from customer").await?;
    let customers = MemTable::try_new(Arc::clone(&customers.schema), vec![customers.batches])?;
    alone.register_table("customer", Arc::new(customers))?;
    plain.sql("create index by_customer on orders (o_custkey)").await?;
    plain.sql("create index by_clerk on orders (o_clerk)").await?;
    let engines = [plain, cluster.engine(Wire::Tcp, by_hand()).await?];
    let (text, spared, _) = explained(&engines[0], LOOKUPS[0]).await?;
    assert!(text.contains("index by_customer") && spared > 3, "{spared} of 15 segments: {text}");
    assert!(text.contains(&format!("{spared} segments: their index has no such row")), "{text}");
    let mut flushed = 0;
    for (turn, change) in ["select 1"].iter().chain(&MOVES).enumerate() {
        if turn > 0 {
            assert_eq!(
                count(&engines[turn % 2].sql(change).await?.batches),
                change_alone(&alone, change).await?,
                "{change}"
            );
        }
        if turn % 3 == 2 {
            flushed +=
                u32::from(matches!(engines[turn / 3 % 2].flush("orders").await?, FlushOutcome::Flushed(_)));
        }
        for (at, query) in LOOKUPS.into_iter().enumerate() {
            let expected = alone.sql(query).await?.collect().await?;
            let (engine, policy) = (&engines[(turn + 1) % 2], Policy::ALL[(at + turn) % Policy::ALL.len()]);
            engine.set_policy(policy);
            let found = engine.sql(query).await?.batches;
            let (found, expected) =
                (pretty_format_batches(&found)?.to_string(), pretty_format_batches(&expected)?.to_string());
            assert_eq!(found, expected, "{policy}, after {change}: {query}");
        }
    }
    assert_eq!(flushed, 2);
    // The index knows what was flushed, too: only the segments with such rows are scanned.
    engines[0].flush("orders").await?;
    let (text, spared, ran) =
        explained(&engines[0], "select count(*) from orders where o_clerk = 'Clerk#7'").await?;
    assert!(spared > 10 && ran == 0, "there is no such row: {text}");
    // Nobody sees it, and it goes with its name or its table.
    assert!(engines[0].tables().iter().all(|table| !table.name.starts_with("rackscan")));
    engines[0].sql("drop index by_customer").await?;
    let (text, spared, _) = explained(&engines[0], LOOKUPS[0]).await?;
    assert!(!text.contains("index by") && spared == 0, "{text}");
    assert_eq!(hidden(&engines[0]).await?, ["rackscan index by_clerk"]);
    cluster.load(SHAPE).await?;
    engines[1].sweep().await?;
    assert!(hidden(&engines[1]).await?.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_for_values_of_an_indexed_column_reads_only_the_segments_that_have_them_and_answers_as_ever()
{
    lookups_change_no_answer().await.unwrap();
}

/// Segments of the index.
async fn parts(engine: &Engine) -> Outcome<usize> {
    let catalog = engine.cluster().catalog().await?;
    let index = catalog.tables.iter().find(|table| table.definition.name == "rackscan index by_customer");
    Ok(index.ok_or("no index")?.segments.len())
}

async fn parts_are_put_together() -> Outcome<()> {
    let cluster = TestCluster::start(2)?;
    cluster.load(SHAPE).await?;
    let engine = cluster.engine(Wire::Shm, by_hand()).await?;
    engine.sql("create index by_customer on orders (o_custkey)").await?;
    let (begun, mut session, mut most) = (parts(&engine).await?, SqlSession::default(), 0);
    for turn in 1..=20_i64 {
        let key = 900_000 + turn;
        engine
            .sql(&format!(
                "insert into orders values ({key}, 7777, 'O', 1.5, date '1997-01-02', '1-URGENT', 'Clerk#1', 0, ''), \
                 ({key}, {key}, 'O', 1.5, date '1997-01-02', '1-URGENT', 'Clerk#1', 0, '')"
            ))
            .await?;
        assert!(matches!(engine.flush("orders").await?, FlushOutcome::Flushed(_)));
        most = most.max(parts(&engine).await?);
        let found = |key: i64| format!("select count(*) from orders where o_custkey = {key}");
        assert_eq!(one(&engine, &mut session, &found(7777)).await?, turn);
        assert_eq!(one(&engine, &mut session, &found(900_001)).await?, 1);
        let (text, spared, ran) = explained(&engine, &found(key)).await?;
        assert!(spared > 0 && ran == 1, "the index knows all of them: {text}");
    }
    assert!((begun + 4..=begun + 9).contains(&most), "{most} parts of {begun}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_flushed_again_and_again_is_in_few_parts_of_an_index_which_knows_all_of_it() {
    parts_are_put_together().await.unwrap();
}

/// Tables that nobody sees.
async fn hidden(engine: &Engine) -> Outcome<Vec<String>> {
    let catalog = engine.cluster().catalog().await?;
    let names = catalog.tables.into_iter().map(|table| table.definition.name.clone());
    Ok(names.filter(|name| name.starts_with("rackscan")).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_writers_and_flushers_do_to_a_table_is_seen_by_its_index_all_the_time() {
    let cluster = TestCluster::start(3).unwrap();
    cluster.load(SHAPE).await.unwrap();
    let engine = cluster.engine(Wire::Shm, by_hand()).await.unwrap();
    engine.sql("create index by_balance on supplier (s_nationkey)").await.unwrap();
    let writer = cluster.engine(Wire::Tcp, by_hand()).await.unwrap();
    let mut session = SqlSession::default();
    // A third of the suppliers is of nation 30 or 31 at any time.
    let all = "update supplier set s_nationkey = 30 where s_suppkey % 3 = 0";
    writer.sql(all).await.unwrap();
    let writing = tokio::spawn(async move {
        for turn in 0..24 {
            let (from, to) = (30 + turn % 2, 31 - turn % 2);
            writer.sql(&format!("update supplier set s_nationkey = {to} where s_nationkey = {from}")).await?;
            if turn % 3 == 2 {
                writer.flush("supplier").await?;
            }
        }
        Ok::<_, EngineError>(())
    });
    let mut looked = 0;
    while !writing.is_finished() || looked < 8 {
        engine.set_policy(Policy::ALL[looked % Policy::ALL.len()]);
        let found =
            one(&engine, &mut session, "select count(*) from supplier where s_nationkey in (30, 31)").await;
        assert_eq!(found.unwrap(), 33, "look {looked}");
        looked += 1;
    }
    writing.await.unwrap().unwrap();
    let late = cluster.engine(Wire::Tcp, by_hand()).await.unwrap();
    assert_eq!(
        one(&late, &mut session, "select count(*) from supplier where s_nationkey = 30").await.unwrap(),
        33
    );
}
