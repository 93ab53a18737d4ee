//! Tests that views, indexes and foreign keys always agree with the rows of their tables. Goal: a
//! materialised view has exactly the rows of its query, under every placement, beside changes and
//! flushes, and also if one statement reads both; indexes and foreign keys have an entry for each
//! row that needs one. Method: views beside their queries, on clusters of in-process nodes.

use crate::{
    changed::{CHANGES, SHAPE, one},
    cluster::{Outcome, Shape, TestCluster, options},
};
use datafusion::arrow::{datatypes::DataType, util::pretty::pretty_format_batches};
use rackscan_client::{Follower, FollowerOptions, LinesOptions};
use rackscan_delta::{
    derived::{Derived, Family},
    replica::Replica,
    row::Datum,
};
use rackscan_engine::{Engine, EngineError, EngineOptions, FlushOutcome, RowChange, SqlSession};
use rackscan_fabric::Wire;
use rackscan_format::derived::DerivedKind;
use rackscan_planner::Policy;
use rackscan_ramp::item::SYSTEM_PREFIX;
use std::{
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Engines that flush nothing by themselves.
pub(crate) fn by_hand() -> EngineOptions {
    EngineOptions { flush_rows_min: None, ..options(Policy::Auto) }
}

/// A view's name, and its query.
const VIEWS: [(&str, &str); 6] = [
    // Q15's.
    (
        "revenue",
        "select l_suppkey as supplier_no, sum(l_extendedprice * (1 - l_discount)) as total_revenue from lineitem \
         where l_shipdate >= date '1996-01-01' and l_shipdate < date '1996-01-01' + interval '3' month group by l_suppkey",
    ),
    (
        "charged",
        "select l_shipmode, count(*) as \"rows\", sum(l_quantity * l_extendedprice * (1 - l_discount) * (1 + l_tax)) as charged \
         from lineitem group by l_shipmode",
    ),
    ("line_numbers", "select count(*) as n, sum(l_linenumber) as s, l_linestatus from lineitem group by 3"),
    (
        "by_day",
        "select o_orderdate, sum(o_totalprice) as total, count(*) as orders from orders group by o_orderdate",
    ),
    (
        "urgent",
        "select o_orderpriority, count(*) as orders from orders where o_orderkey between 1000 and 39999 group by o_orderpriority",
    ),
    ("by_priority", "select o_shippriority, sum(o_orderkey) as keys from orders group by o_shippriority"),
];

async fn create_views(engine: &Engine) -> Outcome<()> {
    for (name, query) in VIEWS {
        engine.sql(&format!("create materialized view {name} as {query}")).await?;
    }
    Ok(())
}

/// An answer as text. Sums of views are decimals of 38 digits, those of queries of as many as may
/// be.
async fn text(engine: &Engine, query: &str) -> Outcome<String> {
    let outcome = engine.sql(query).await?;
    let kinds = outcome.schema.fields().iter().map(|field| match field.data_type() {
        DataType::Decimal128(_, scale) => format!("decimal of scale {scale}"),
        other => other.to_string(),
    });
    let kinds: Vec<String> = kinds.collect();
    Ok(format!("{}\n{}", kinds.join(", "), pretty_format_batches(&outcome.batches)?))
}

/// How many groups of a view are not those of its query, by one statement.
fn difference(name: &str, query: &str) -> String {
    format!(
        "with one as (select * from {name}), other as ({query}) select cast(a.n + b.n as bigint) from \
         (select count(*) as n from (select * from one except select * from other)) as a, \
         (select count(*) as n from (select * from other except select * from one)) as b"
    )
}

async fn check_views(engines: &[Engine], after: &str) -> Outcome<()> {
    for turn in 0..Policy::ALL.len() {
        check_each_view(engines, turn, after).await?;
    }
    Ok(())
}

/// Each view under one policy, by turns.
async fn check_each_view(engines: &[Engine], turn: usize, after: &str) -> Outcome<()> {
    for (at, (name, query)) in VIEWS.into_iter().enumerate() {
        let policy = Policy::ALL[(at + turn) % Policy::ALL.len()];
        let expected = text(&engines[0], &format!("select * from ({query}) order by 1, 2")).await?;
        for engine in engines {
            engine.set_policy(policy);
            let found = text(engine, &format!("select * from {name} order by 1, 2")).await?;
            assert_eq!(found, expected, "{name}, {policy}, after {after}");
            let both = one(engine, &mut SqlSession::default(), &difference(name, query)).await?;
            assert_eq!(both, 0, "{name}, {policy}, after {after}");
        }
    }
    Ok(())
}

async fn views_are_their_queries() -> Outcome<()> {
    let cluster = TestCluster::start(3)?;
    cluster.load(SHAPE).await?;
    let engines = [cluster.engine(Wire::Shm, by_hand()).await?, cluster.engine(Wire::Tcp, by_hand()).await?];
    // What was changed before is in it.
    engines[0].sql("delete from lineitem where l_orderkey % 100 = 33").await?;
    create_views(&engines[0]).await?;
    check_views(&engines, "their creation").await?;
    for (turn, change) in CHANGES.iter().enumerate() {
        // Each row is written with up to three entries of each view: fewer rows fit into a
        // transaction.
        engines[turn % 2].sql(&change.replace("% 7", "% 35")).await?;
        if turn % 4 == 2 {
            for table in ["orders", "lineitem"] {
                let flushed = engines[turn / 4 % 2].flush(table).await?;
                assert!(matches!(flushed, FlushOutcome::Flushed(_) | FlushOutcome::Nothing), "{flushed:?}");
            }
        }
        let asked = (turn + 1) % 2;
        check_each_view(&engines[asked..=asked], turn, change).await?;
    }
    let late = [cluster.engine(Wire::Shm, by_hand()).await?];
    check_views(&engines, "all").await?;
    check_views(&late, "all").await?;
    let bases = bases(&late[0]).await?;
    assert!(
        (VIEWS.len()..=2 * VIEWS.len()).contains(&bases),
        "{bases}: one for each view, and those of before"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_has_what_its_query_finds_in_every_placement_after_every_change_and_flush() {
    views_are_their_queries().await.unwrap();
}

/// Tables that only views see.
async fn bases(engine: &Engine) -> Outcome<usize> {
    let catalog = engine.cluster().catalog().await?;
    Ok(catalog.tables.iter().filter(|table| table.definition.name.starts_with("rackscan base")).count())
}

/// Deletes orders with their lines, and inserts others, until it is told to stop; how many
/// transactions that were.
async fn refresh(engine: Engine, first: i64, is_over: Arc<AtomicBool>) -> Result<i64, EngineError> {
    let (mut session, mut done) = (SqlSession::default(), 0);
    while !is_over.load(Ordering::Relaxed) {
        let (new, old) = (1_000_000 + first + done * 2, (done * 2 + first) % 15_000 * 4 + 1);
        let both = [
            "begin".to_owned(),
            format!(
                "insert into orders values ({new}, 37, 'O', {done}.25, date '1996-02-03', '1-URGENT', 'Clerk', 0, 'new')"
            ),
            format!(
                "insert into lineitem values ({new}, 1, {}, 1, 3, 100.5, 0.1, 0.02, 'N', 'O', date '1996-02-10', \
                 date '1996-02-10', date '1996-02-10', 'NONE', 'AIR', 'new'), ({new}, 1, 3, 2, 3, {done}.5, 0.1, 0.02, 'N', 'O', \
                 date '1996-01-10', date '1996-02-10', date '1996-02-10', 'NONE', 'AIR', 'new')",
                done % 7 + 1
            ),
            format!("delete from orders where o_orderkey = {old}"),
            format!("update lineitem set l_discount = l_discount + 0.01 where l_orderkey = {}", old + 1),
            format!("delete from lineitem where l_orderkey = {old}"),
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
            Ok(()) => done += 1,
            // Statements alone wait for the new version.
            Err(EngineError::Flushed) => {
                session = SqlSession::default();
                for waits in [
                    "update orders set o_comment = 'waited' where o_orderkey = 3",
                    "update lineitem set l_comment = 'waited' where l_orderkey = 3",
                ] {
                    match engine.sql(waits).await {
                        // It was flushed again and again while it waited.
                        Ok(_) | Err(EngineError::Flushed) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Two writers change tables, while one engine flushes them and another one compares views with
/// their queries, each time in one statement.
async fn views_agree(give_up: impl Fn(u32) -> Option<Duration>) -> Outcome<()> {
    let cluster = TestCluster::start(3)?;
    cluster.load(SHAPE).await?;
    let engine = cluster.engine(Wire::Shm, by_hand()).await?;
    create_views(&engine).await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for writer in 0..2 {
        let own = cluster.engine(Wire::Shm, by_hand()).await?;
        writers.push(tokio::spawn(refresh(own, writer, Arc::clone(&is_over))));
    }
    let flusher = Arc::new(cluster.engine(Wire::Tcp, by_hand()).await?);
    let (mut session, mut looked, mut flushed) = (SqlSession::default(), 0, 0);
    for turn in 0..8_u32 {
        let (table, flusher) = (["orders", "lineitem"][turn as usize / 2 % 2], Arc::clone(&flusher));
        let flushing = tokio::spawn(async move { flusher.flush(table).await });
        let given_up = give_up(turn).map(|after| Instant::now() + after);
        let mut once_more = true;
        while std::mem::replace(&mut once_more, !flushing.is_finished()) {
            if given_up.is_some_and(|when| Instant::now() >= when) {
                flushing.abort();
            }
            let (name, query) = VIEWS[looked % VIEWS.len()];
            engine.set_policy(Policy::ALL[looked / VIEWS.len() % Policy::ALL.len()]);
            assert_eq!(
                one(&engine, &mut session, &difference(name, query)).await?,
                0,
                "{name} in turn {turn}"
            );
            looked += 1;
        }
        match flushing.await {
            Ok(outcome) => flushed += u32::from(matches!(outcome?, FlushOutcome::Flushed(_))),
            Err(error) => assert!(error.is_cancelled(), "{error}"),
        }
    }
    is_over.store(true, Ordering::Relaxed);
    for writer in writers {
        assert!(writer.await?? > 3, "nothing was changed");
    }
    assert!(flushed > 0 && looked > 8, "{looked} looks, {flushed} flushes");
    let late = [cluster.engine(Wire::Tcp, by_hand()).await?];
    check_each_view(&late, 0, "all").await?;
    // What was given up is left until the table is flushed again.
    for table in ["orders", "lineitem"] {
        flusher.sql(&format!("delete from {table} where {}_orderkey = 5", &table[..1])).await?;
        assert!(matches!(flusher.flush(table).await?, FlushOutcome::Flushed(_)), "{table}");
    }
    flusher.sweep().await?;
    let bases = bases(&flusher).await?;
    assert!(
        (VIEWS.len()..=2 * VIEWS.len()).contains(&bases),
        "{bases}: one for each view, and those of before"
    );
    check_each_view(&late, 1, "the end").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_and_their_queries_agree_while_their_tables_are_changed_and_flushed() {
    views_agree(|_| None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_gives_up_flushing_a_table_with_views_leaves_them_right_and_nothing_behind_for_ever() {
    // Every second one, after 3 to 150 ms.
    let after = |turn: u32| Duration::from_millis(u64::from(turn * 37 % 148 + 3));
    views_agree(|turn| turn.is_multiple_of(2).then(|| after(turn))).await.unwrap();
}

/// Views are created and dropped while two writers refresh and another engine flushes; several
/// statements at a time compare them with their queries.
async fn views_come_and_go() -> Outcome<()> {
    let cluster = TestCluster::start(3)?;
    cluster.load(SHAPE).await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let mut others = Vec::new();
    for writer in 0..2 {
        let own = cluster.engine(Wire::Shm, by_hand()).await?;
        others.push(tokio::spawn(refresh(own, writer, Arc::clone(&is_over))));
    }
    let (flusher, told) = (cluster.engine(Wire::Tcp, by_hand()).await?, Arc::clone(&is_over));
    others.push(tokio::spawn(async move {
        let mut done = 0;
        while !told.load(Ordering::Relaxed) {
            // Who creates a view of the table may be faster, or be overtaken and begin again.
            done += i64::from(matches!(flusher.flush("orders").await, Ok(FlushOutcome::Flushed(_))));
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok(done)
    }));
    let engine = Arc::new(cluster.engine(Wire::Shm, by_hand()).await?);
    for turn in 0..4 {
        let mut looks = Vec::new();
        for (name, query) in [VIEWS[0], VIEWS[3]] {
            engine.sql(&format!("create materialized view {name} as {query}")).await?;
            for _ in 0..3 {
                let engine = Arc::clone(&engine);
                looks.push(tokio::spawn(async move {
                    let found = one(&engine, &mut SqlSession::default(), &difference(name, query)).await;
                    (name, found.map_err(|error| error.to_string()))
                }));
            }
        }
        for look in looks {
            let (name, found) = look.await?;
            assert_eq!(found, Ok(0), "{name}, turn {turn}");
        }
        for (name, _) in [VIEWS[0], VIEWS[3]] {
            engine.sql(&format!("drop materialized view {name}")).await?;
        }
    }
    is_over.store(true, Ordering::Relaxed);
    for other in others {
        assert!(other.await?? > 0, "nothing was changed, or nothing flushed");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_that_are_created_beside_writers_and_flushers_lack_nothing() {
    views_come_and_go().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_sees_views_as_of_its_beginning_until_it_changes_their_table() {
    let cluster = TestCluster::start(2).unwrap();
    cluster.load(SHAPE).await.unwrap();
    let engine = cluster.engine(Wire::Shm, by_hand()).await.unwrap();
    let other = cluster.engine(Wire::Tcp, by_hand()).await.unwrap();
    engine
        .sql("create materialized view n as select n_regionkey, count(*) as rows from nation group by n_regionkey")
        .await
        .unwrap();
    let rows = "select rows from n where n_regionkey = 2";
    let (mut mine, mut alone) = (SqlSession::default(), SqlSession::default());
    engine.sql_in(&mut mine, "begin").await.unwrap();
    other.sql("update nation set n_regionkey = 2 where n_regionkey = 1").await.unwrap();
    assert_eq!(one(&engine, &mut mine, rows).await.unwrap(), 5, "what others do meanwhile is not seen");
    assert_eq!(one(&engine, &mut alone, rows).await.unwrap(), 10);
    engine.sql_in(&mut mine, "update region set r_comment = 'x'").await.unwrap();
    assert_eq!(one(&engine, &mut mine, rows).await.unwrap(), 5, "another table's rows are no matter");
    // What a view says may be written, too.
    let copied = "insert into region select 10 + n_regionkey, 'copied', cast(rows as varchar) from n";
    assert_eq!(engine.sql_in(&mut mine, copied).await.unwrap().rows(), 1);
    engine.sql_in(&mut mine, "delete from nation where n_nationkey = 0").await.unwrap();
    let error = engine.sql_in(&mut mine, rows).await.map(|outcome| outcome.rows()).unwrap_err();
    assert!(error.to_string().contains("n after its table was changed in this transaction"), "{error}");
    assert_eq!(one(&engine, &mut mine, "select count(*) from nation").await.unwrap(), 24);
    engine.sql_in(&mut mine, "commit").await.unwrap();
    // Others may flush the table meanwhile.
    engine.sql_in(&mut mine, "begin").await.unwrap();
    assert!(matches!(other.flush("nation").await.unwrap(), FlushOutcome::Flushed(_)));
    let rows_of_all = "select cast(sum(rows) as bigint) from n";
    assert_eq!(one(&engine, &mut mine, rows_of_all).await.unwrap(), 24, "the base of before is still there");
    assert_eq!(one(&engine, &mut mine, "select count(*) from nation").await.unwrap(), 24);
    engine.sql_in(&mut mine, "rollback").await.unwrap();
    let copied = "select count(*) from region where r_name = 'copied' and r_comment = '5'";
    assert_eq!(one(&engine, &mut alone, copied).await.unwrap(), 5);
    assert_eq!(one(&engine, &mut alone, "select cast(sum(rows) as bigint) from n").await.unwrap(), 24);
    let alone_too = "insert into region select 20 + n_regionkey, 'again', cast(rows as varchar) from n";
    other.sql(alone_too).await.unwrap();
    assert_eq!(
        one(&engine, &mut alone, "select count(*) from region where r_name = 'again'").await.unwrap(),
        4
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_change_again_and_again_are_in_their_view_once() {
    let cluster = TestCluster::start(2).unwrap();
    cluster.load(SHAPE).await.unwrap();
    let engine = cluster.engine(Wire::Shm, by_hand()).await.unwrap();
    let other = cluster.engine(Wire::Tcp, by_hand()).await.unwrap();
    let query =
        "select n_regionkey, count(*) as rows, sum(n_nationkey) as keys from nation group by n_regionkey";
    engine.sql(&format!("create materialized view n as {query}")).await.unwrap();
    let insert = "insert into nation values (25, 'ATLANTIS', 0, 'new')";
    let steps = [
        "update nation set n_regionkey = n_nationkey where n_nationkey < 4",
        "update nation set n_regionkey = 3 where n_nationkey in (0, 1)",
        "update nation set n_nationkey = n_regionkey, n_regionkey = n_nationkey where n_regionkey = 3",
        "delete from nation where n_regionkey = 0",
        insert,
        "update nation set n_regionkey = n_regionkey + 1 where n_nationkey > 20",
        "update nation set n_comment = 'same'",
        "delete from nation where n_nationkey = 25",
        insert,
        "update nation set n_nationkey = -3 where n_name = 'ATLANTIS'",
        "delete from nation",
        insert,
    ];
    for (turn, step) in steps.into_iter().enumerate() {
        let engine = [&engine, &other][turn % 2];
        engine.sql(step).await.unwrap();
        if turn == 7 {
            engine.flush("nation").await.unwrap();
        }
        let both = one(engine, &mut SqlSession::default(), &difference("n", query)).await.unwrap();
        assert_eq!(both, 0, "after {step}");
    }
    // In one transaction only the last value counts, of new rows, too.
    let mut session = SqlSession::default();
    for step in [
        "begin",
        "update nation set n_regionkey = 7",
        "insert into nation values (30, 'MU', 1, ''), (31, 'OZ', 1, '')",
        "update nation set n_regionkey = 8 where n_nationkey = 30",
        "delete from nation where n_nationkey = 31",
        "update nation set n_nationkey = 26 where n_nationkey = 25",
        "commit",
    ] {
        engine.sql_in(&mut session, step).await.unwrap();
    }
    assert_eq!(one(&other, &mut session, &difference("n", query)).await.unwrap(), 0);
    assert_eq!(one(&other, &mut session, "select sum(keys) from n where n_regionkey > 6").await.unwrap(), 56);
    // Programs without SQL, too: of a row that was loaded, one that was changed since, and one that
    // was inserted.
    let engine = cluster.engine(Wire::Tcp, by_hand()).await.unwrap();
    engine.sql("delete from region where r_regionkey = 1").await.unwrap();
    engine.flush("nation").await.unwrap();
    engine.sql("update nation set n_regionkey = 9 where n_nationkey = 30").await.unwrap();
    engine.sql("insert into nation values (50, 'MU', 4, '')").await.unwrap();
    let found = engine.rows_with_keys("nation", "n_nationkey", &[26, 30, 50, 77]).await.unwrap();
    assert_eq!(found.len(), 3);
    let mut writer = engine.row_writer().await.unwrap();
    let changes: Vec<RowChange> = found.into_values().flatten().map(RowChange::Delete).collect();
    tokio::task::spawn_blocking(move || writer.write(vec![("nation", changes)])).await.unwrap().unwrap();
    assert_eq!(one(&other, &mut session, &difference("n", query)).await.unwrap(), 0);
    assert_eq!(one(&other, &mut session, "select count(*) from n").await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_whose_changes_cannot_be_heard_says_so_instead_of_leaving_them_out() {
    let mut cluster = TestCluster::start(2).unwrap();
    cluster.load(SHAPE).await.unwrap();
    let engine = cluster.engine(Wire::Shm, by_hand()).await.unwrap();
    engine
        .sql("create materialized view n as select n_regionkey, count(*) as rows from nation group by n_regionkey")
        .await
        .unwrap();
    let mut session = SqlSession::default();
    engine.sql("delete from nation where n_nationkey > 19").await.unwrap();
    let rows = "select cast(sum(rows) as bigint) from n";
    assert_eq!(one(&engine, &mut session, rows).await.unwrap(), 20);
    cluster.stop(1).unwrap();
    let error = engine.sql(rows).await.map(|outcome| outcome.rows()).unwrap_err().to_string();
    assert!(error.contains("participant 1"), "{error}");
    let error = engine.sql_in(&mut session, "begin").await.map(|outcome| outcome.rows()).unwrap_err();
    assert!(error.to_string().contains("participant 1"), "{error}");
}

/// All that participants have of rows and what is derived from them.
async fn replica(cluster: &TestCluster) -> Outcome<Replica> {
    let cluster = cluster.connect(Wire::Tcp).await?;
    let lines: LinesOptions = cluster.lines(16 << 20, Duration::from_secs(10));
    let options = FollowerOptions {
        lines,
        prefix: SYSTEM_PREFIX.to_vec(),
        timeout: Duration::from_secs(10),
        copies: None,
    };
    let caught_up = tokio::task::spawn_blocking(move || {
        let mut replica = Replica::default();
        Follower::open(options)
            .map_err(|error| error.to_string())?
            .catch_up(&mut replica)
            .map_err(|error| error.to_string())?;
        Ok::<Replica, String>(replica)
    });
    Ok(caught_up.await??)
}

async fn derivations(engine: &Engine, table: &str, name: &str) -> Outcome<Derived> {
    engine.refresh().await?;
    let definition = engine.describe(table)?.definition;
    let all = Derived::all_of(&definition).into_iter();
    all.into_iter()
        .find(|derived| derived.name() == name)
        .ok_or_else(|| format!("{table} lacks {name}").into())
}

async fn indexed(cluster: &TestCluster, engine: &Engine, from: i64, to: i64) -> Outcome<Vec<i64>> {
    let index = derivations(engine, "nation", "by_region").await?;
    assert!(matches!(index.kind(), DerivedKind::Index { .. }));
    let replica = replica(cluster).await?;
    let (from, to) = (Datum::Integer(from), Datum::Integer(to));
    let rows = replica.derived().rows_in(&index, Bound::Included(&from), Bound::Included(&to))?;
    let value = |(value, _)| match value {
        Datum::Integer(value) => value,
        other => panic!("{other:?}"),
    };
    Ok(rows.into_iter().map(value).collect())
}

async fn entries_are_those_of_rows() -> Outcome<()> {
    let cluster = TestCluster::start(3)?;
    cluster.load(SHAPE).await?;
    let engine = cluster.engine(Wire::Shm, by_hand()).await?;
    engine.sql("create index by_region on nation (n_regionkey)").await?;
    engine
        .sql("alter table nation add constraint of_region foreign key (n_regionkey) references region (r_regionkey)")
        .await?;
    assert_eq!(indexed(&cluster, &engine, 0, 9).await?, [] as [i64; 0], "loaded rows lie in segments");
    let mut session = SqlSession::default();
    for step in [
        "begin",
        "insert into region values (7, 'ATLANTIS', '')",
        "insert into nation values (30, 'MU', 7, ''), (31, 'OZ', 7, ''), (32, 'ID', 2, '')",
        "update nation set n_regionkey = 7 where n_nationkey = 4",
        "commit",
        "update nation set n_regionkey = 3 where n_nationkey in (4, 31)",
        "delete from nation where n_nationkey = 32",
        "delete from nation where n_nationkey = 5",
    ] {
        engine.sql_in(&mut session, step).await?;
    }
    assert_eq!(indexed(&cluster, &engine, 0, 9).await?, [3, 3, 7]);
    assert_eq!(indexed(&cluster, &engine, 4, 7).await?, [7]);
    let (parent, child) = (
        derivations(&engine, "region", "of_region").await?,
        derivations(&engine, "nation", "of_region").await?,
    );
    let found = replica(&cluster).await?;
    let family = |key| found.derived().family(&parent, &child, &Datum::Integer(key));
    let Family { parents, children } = family(7)?;
    assert_eq!((parents.len(), children.len()), (1, 1));
    let Family { parents, children } = family(3)?;
    assert_eq!((parents.len(), children.len()), (0, 2), "the stored parent is no row beside segments");
    // What is flushed is in segments, and leaves no entry.
    assert!(matches!(engine.flush("nation").await?, FlushOutcome::Flushed(_)));
    assert_eq!(indexed(&cluster, &engine, 0, 9).await?, [] as [i64; 0]);
    engine.sql("update nation set n_regionkey = 5 where n_nationkey = 30").await?;
    assert_eq!(indexed(&cluster, &engine, 0, 9).await?, [5]);
    // Programs without SQL write them, too.
    let found = engine.rows_with_keys("nation", "n_nationkey", &[31]).await?;
    let mut writer = engine.row_writer().await?;
    let values = vec![Datum::Integer(40), Datum::Text("X".into()), Datum::Integer(6), Datum::Text("".into())];
    let delete = RowChange::Delete(found[&31][0].clone());
    tokio::task::spawn_blocking(move || {
        writer.write(vec![("nation", vec![RowChange::Insert(values), delete])])
    })
    .await??;
    assert_eq!(indexed(&cluster, &engine, 0, 9).await?, [5, 6]);
    // Whose derivation is dropped has no entries, and its table goes on.
    engine.sql("drop index by_region").await?;
    engine.sql("alter table nation drop constraint of_region").await?;
    assert!(engine.describe("nation")?.definition.derived.is_empty());
    assert!(engine.describe("region")?.definition.derived.is_empty(), "both sides are gone");
    engine.sql("update nation set n_regionkey = 1 where n_nationkey = 40").await?;
    assert_eq!(one(&engine, &mut session, "select count(*) from nation").await?, 26);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indexes_and_foreign_keys_have_an_entry_for_each_row_beside_segments() {
    entries_are_those_of_rows().await.unwrap();
}

/// What is refused when `VIEW` and an index are there, and why.
const WRONG: [(&str, &str); 28] = [
    (
        "alter table nation add constraint self foreign key (n_nationkey) references nation (n_regionkey)",
        "to itself",
    ),
    (
        "create materialized view v as select n_regionkey, count(*) as n from nation group by n_regionkey",
        "there is a table or view \"v\" already",
    ),
    ("create index i on nation (n_regionkey)", "\"i\" is derived from nation already"),
    ("create index i on region (r_name)", "\"i\" is derived from nation already"),
    ("create index j on moon (x)", "there is no table \"moon\""),
    ("create index j on nation (x)", "no column \"x\"; there are n_nationkey"),
    ("create index j on v (n)", "v is a materialized view: it changes with the rows of nation"),
    ("create unique index j on nation (n_name)", "uniqueness"),
    ("drop index j", "there is no index \"j\""),
    ("drop index v", "there is no index \"v\""),
    ("drop materialized view i", "there is no materialized view \"i\""),
    ("alter table nation drop constraint i", "there is no foreign key \"i\""),
    (
        "alter table nation add constraint k foreign key (n_regionkey) references region (r_name)",
        "expected one type",
    ),
    (
        "create materialized view nation as select r_name, count(*) from region group by r_name",
        "there is a table or view \"nation\" already",
    ),
    (
        "create materialized view w as select n_name, sum(n_comment) as s from nation group by n_name",
        "a factor is a text",
    ),
    (
        "create materialized view w as select l_orderkey, count(*) as n from lineitem where l_quantity < 1.005 group by l_orderkey",
        "1.005 is not exactly a value of a decimal(15,2)",
    ),
    ("create materialized view w as select n_name, max(n_regionkey) as s from nation group by n_name", "max"),
    (
        "create materialized view w as select o_orderkey, count(*) as n from orders where o_orderdate < current_date group by o_orderkey",
        "WHERE",
    ),
    (
        "create materialized view i as select r_name, count(*) as n from region group by r_name",
        "\"i\" is derived from nation already",
    ),
    (
        "alter table nation add constraint i foreign key (n_regionkey) references region (r_regionkey)",
        "\"i\" is derived from nation already",
    ),
    (
        "alter table nation add constraint f foreign key (n_regionkey) references region (r_regionkey)",
        "\"f\" is derived from nation already",
    ),
    (
        "alter table customer add constraint f foreign key (c_nationkey) references nation (n_nationkey)",
        "\"f\" is derived from",
    ),
    ("alter table customer drop constraint f", "there is no foreign key \"f\""),
    ("alter table moon drop constraint f", "there is no table \"moon\""),
    ("create view w as select 1", "MATERIALIZED"),
    ("update v set n = 3", "v is a materialized view"),
    ("insert into v values (1, 2)", "v is a materialized view"),
    ("delete from v", "v is a materialized view"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_derived_is_created_and_dropped_by_name_and_what_cannot_be_is_refused() {
    let cluster = TestCluster::start(2).unwrap();
    cluster.load(Shape { segment_rows: 61_440, ..SHAPE }).await.unwrap();
    let engine = cluster.engine(Wire::Shm, by_hand()).await.unwrap();
    let said =
        |outcome: rackscan_engine::QueryOutcome| pretty_format_batches(&outcome.batches).unwrap().to_string();
    let view = "create materialized view IF_NEW v as select n_regionkey, count(*) as n from nation group by n_regionkey";
    for (statement, expected) in [
        (view.replace("IF_NEW", ""), "done"),
        (view.replace("IF_NEW", "if not exists"), "nothing to do"),
        ("create index i on nation (n_name)".to_owned(), "done"),
        ("create index if not exists i on nation (n_name)".to_owned(), "nothing to do"),
        ("create index if not exists i on region (r_name)".to_owned(), "nothing to do"),
        ("create index if not exists v on region (r_name)".to_owned(), "nothing to do"),
        (
            "create materialized view if not exists v as select r_name, count(*) as n from region group by r_name".to_owned(),
            "nothing to do",
        ),
        (
            "create materialized view if not exists orders as select r_name, count(*) as n from region group by r_name".to_owned(),
            "nothing to do",
        ),
        (
            "alter table nation add constraint f foreign key (n_regionkey) references region (r_regionkey)".to_owned(),
            "done",
        ),
        ("drop index if exists other".to_owned(), "nothing to do"),
        ("drop materialized view if exists other".to_owned(), "nothing to do"),
        ("alter table nation drop constraint if exists other".to_owned(), "nothing to do"),
    ] {
        let found = said(engine.sql(&statement).await.unwrap());
        assert!(found.contains(expected), "{statement}: {found}");
    }
    for (statement, expected) in WRONG {
        let error = match engine.sql(statement).await {
            Ok(outcome) => panic!("{statement}: {}", said(outcome)),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(expected), "{statement}: {error}");
    }
    let long = format!(
        "create materialized view {} as select r_name, count(*) as n from region group by r_name",
        "x".repeat(200)
    );
    let error = engine.sql(&long).await.map(|outcome| outcome.rows()).unwrap_err();
    assert!(error.to_string().contains("a view with a name of 200 bytes, expected at most"), "{error}");
    let mut session = SqlSession::default();
    engine.sql_in(&mut session, "begin").await.unwrap();
    let error = engine.sql_in(&mut session, "drop index i").await.map(|outcome| outcome.rows()).unwrap_err();
    assert!(error.to_string().contains("COMMIT first"), "{error}");
    engine.sql_in(&mut session, "rollback").await.unwrap();
    assert!(matches!(engine.flush("v").await.unwrap(), FlushOutcome::Nothing), "a view goes with its table");
    assert!(engine.describe("region").unwrap().definition.derived.iter().all(|derived| derived.name == "f"));
    for statement in ["drop materialized view v", "drop index i", "alter table region drop constraint f"] {
        engine.sql(statement).await.unwrap();
    }
    assert!(engine.describe("nation").unwrap().definition.derived.is_empty(), "both sides are gone");
    let error = engine.sql("select * from v").await.map(|outcome| outcome.rows()).unwrap_err();
    assert!(error.to_string().contains("there is no table \"v\""), "{error}");
    assert_eq!(bases(&engine).await.unwrap(), 0, "its base went with it");
    assert_eq!(one(&engine, &mut session, "select count(*) from nation").await.unwrap(), 25);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn views_are_listed_with_their_columns_and_go_when_their_table_is_loaded_anew() {
    let cluster = TestCluster::start(2).unwrap();
    cluster.load(SHAPE).await.unwrap();
    let engine = cluster.engine(Wire::Shm, by_hand()).await.unwrap();
    create_views(&engine).await.unwrap();
    let names: Vec<String> = engine.tables().into_iter().map(|info| info.name).collect();
    for (name, _) in VIEWS {
        assert!(names.iter().any(|known| known == name), "{name} among {names:?}");
    }
    assert!(!names.iter().any(|name| name.starts_with("rackscan")), "{names:?}");
    let described = engine.describe("revenue").unwrap();
    let columns: Vec<String> = described
        .columns
        .iter()
        .map(|column| format!("{} {}", column.definition.name, column.definition.column_type))
        .collect();
    assert_eq!(columns, ["supplier_no bigint", "total_revenue decimal(38,4)"]);
    cluster.load(SHAPE).await.unwrap();
    engine.refresh().await.unwrap();
    assert_eq!(engine.tables().len(), 8, "views are of the tables that were");
    engine.sweep().await.unwrap();
    assert_eq!(bases(&engine).await.unwrap(), 0);
}
