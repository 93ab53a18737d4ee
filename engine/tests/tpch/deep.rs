//! Tests that every statement ends in an answer or an error. Goal: no statement overflows a stack,
//! however it nests. Method: statements of each form at its limit and beyond, over tables in nodes.

use crate::cluster::{Shape, TestCluster, options};
use rackscan_engine::{Engine, THREAD_STACK_BYTES};
use rackscan_fabric::Wire;
use rackscan_planner::Policy;

const SHAPE: Shape = Shape { segment_rows: 8192, page_size: 16 << 10 };

/// What comes out: the number of rows, or the error.
async fn ended(engine: &Engine, sql: &str) -> Result<usize, String> {
    engine.sql(sql).await.map(|outcome| outcome.rows()).map_err(|error| {
        assert!(error.sqlstate() != "XX000", "{error}");
        error.to_string()
    })
}

#[test]
fn statements_of_every_shape_are_answered_up_to_a_limit_and_refused_beyond() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(THREAD_STACK_BYTES)
        .enable_all()
        .build()
        .unwrap();
    let every_shape = async {
        let cluster = TestCluster::start(1).unwrap();
        cluster.load(SHAPE).await.unwrap();
        let engine = cluster.engine(Wire::Shm, options(Policy::Auto)).await.unwrap();
        let keys = |link: &str, times: usize| {
            let rest: String = (1..times).map(|key| format!(" {link} n_nationkey = {key}")).collect();
            format!("select * from nation where n_nationkey = 0{rest}")
        };
        assert_eq!(ended(&engine, &keys("or", 20_000)).await, Ok(25));
        assert_eq!(ended(&engine, &keys("and", 20_000)).await, Ok(0));
        let unions = format!("select 1{}", " union all select 2".repeat(2999));
        assert_eq!(ended(&engine, &unions).await, Ok(3000));
        let distinct = format!("select 1{}", " union select 2".repeat(2999));
        assert_eq!(ended(&engine, &distinct).await, Ok(2));
        let common = |times: usize| {
            let doubled: String = (1..=times)
                .map(|at| format!(", c{at} as (select a.x from c{} a, c{} b)", at - 1, at - 1))
                .collect();
            format!("with c0 as (select 1 x){doubled} select count(*) from c{times}")
        };
        assert_eq!(ended(&engine, &common(8)).await, Ok(1));
        let refused = ended(&engine, &common(60)).await.unwrap_err();
        assert!(refused.contains("at most 1000"), "{refused}");
        for (link, limit, beyond) in
            [(" + n_nationkey", 380, 5000), (" || 'a'", 380, 5000), ("::bigint", 380, 5000)]
        {
            let first = if link.contains('|') { "n_name" } else { "n_nationkey" };
            let sum = |times: usize| format!("select {first}{} as x from nation", link.repeat(times));
            assert_eq!(ended(&engine, &sum(limit)).await, Ok(25), "{link}");
            let refused = ended(&engine, &sum(beyond)).await.unwrap_err();
            assert!(refused.contains("5000") && refused.contains("at most 400"), "{refused}");
        }
        for (begin, end) in [
            ("not (", ")"),
            ("abs(", ")"),
            ("case when n_nationkey < 0 then 1 else ", " end"),
            ("(1 + ", ")"),
        ] {
            let core = if begin.starts_with("not") { "n_nationkey < 100" } else { "n_nationkey" };
            let nested = |times: usize| {
                format!("select {}{core}{} as x from nation", begin.repeat(times), end.repeat(times))
            };
            assert_eq!(ended(&engine, &nested(190)).await, Ok(25), "{begin}");
            let refused = ended(&engine, &nested(5000)).await.unwrap_err();
            assert!(refused.contains("at most 200"), "{refused}");
        }
        let list: String = (0..100_000).map(|key| format!("{key},")).collect();
        assert_eq!(
            ended(&engine, &format!("select * from nation where n_nationkey in ({list}-1)")).await,
            Ok(25)
        );
        let joins = |times: usize| {
            let joined: String =
                (1..times).map(|at| format!(" join region as r{at} using (r_regionkey)")).collect();
            format!("select count(*) from region as r0{joined}")
        };
        assert_eq!(ended(&engine, &joins(40)).await, Ok(1));
        let refused = ended(&engine, &joins(3000)).await.unwrap_err();
        assert!(refused.contains("3000 joined tables"), "{refused}");
    };
    runtime.block_on(runtime.spawn(every_shape)).unwrap();
}
