//! Tests that a running scan learns which rows the operators above it will drop. Goal: the keys of
//! joins and the thresholds of a top-k reach scans under every placement, pages without any of
//! these values are not read, and answers stay the same. Method: joins and top-k over one cluster;
//! the figures of their scans are compared with those of the same scan alone.

use crate::cluster::{Shape, TestCluster, options};
use rackscan_engine::{
    AggregatePushdown, Engine, EngineOptions, ExplainMode, ScanReport,
    arrow::array::{Array, RecordBatch},
};
use rackscan_fabric::Wire;
use rackscan_planner::Policy;

const SHAPE: Shape = Shape { segment_rows: 4096, page_size: 8 << 10 };
/// How often what depends on a moment's wait is tried.
const ATTEMPTS: usize = 5;
const POLICIES: [Policy; 4] = [Policy::Local, Policy::RemoteFetch, Policy::RemoteProcess, Policy::Auto];

async fn scan_of(engine: &Engine, sql: &str, table: &str) -> ScanReport {
    let explanation = engine.explain(sql, ExplainMode::Analyze).await.expect("it runs");
    let scan = explanation.scans.iter().find(|scan| scan.table == table).cloned();
    scan.unwrap_or_else(|| panic!("no scan of {table}: {explanation}"))
}

/// Runs `sql` under every policy; returns the report of a table's scan for each. All give the same
/// rows.
async fn everywhere(cluster: &TestCluster, wire: Wire, sql: &str, table: &str) -> Vec<ScanReport> {
    let rows = EngineOptions { aggregates: AggregatePushdown::Never, ..options(Policy::Local) };
    let engine = cluster.engine(wire, rows).await.expect("an engine");
    let (mut reports, mut answers) = (Vec::new(), Vec::new());
    for policy in POLICIES {
        engine.set_policy(policy);
        answers.push(engine.sql(sql).await.expect("it runs").batches);
        reports.push(scan_of(&engine, sql, table).await);
    }
    assert!(answers.windows(2).all(|two| two[0] == two[1]), "{answers:?}");
    reports
}

/// As [`everywhere`], of a scan of which at most a third of the rows are to be selected. Scans wait
/// only for a short time for the keys of small tables, and on a machine that is busy with something
/// else they come late: then it is tried again.
async fn everywhere_in_time(cluster: &TestCluster, sql: &str, table: &str) -> Vec<ScanReport> {
    let is_narrow = |report: &ScanReport| {
        report.actual.as_ref().is_some_and(|figures| figures.work.rows_selected <= report.rows / 3)
    };
    let mut reports = everywhere(cluster, Wire::Shm, sql, table).await;
    for _ in 1..ATTEMPTS {
        if reports.iter().all(is_narrow) {
            break;
        }
        reports = everywhere(cluster, Wire::Shm, sql, table).await;
    }
    reports
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_a_join_reach_the_scan_of_its_other_side_under_every_placement() {
    let cluster = TestCluster::start(2).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    let sql = "select count(*), sum(l_quantity) from lineitem, orders where l_orderkey = o_orderkey \
               and o_orderdate between date '1995-03-01' and date '1995-03-31' and o_orderpriority = '1-URGENT'";
    for wire in [Wire::Shm, Wire::Tcp] {
        for report in everywhere(&cluster, wire, sql, "lineitem").await {
            let policy = report.policy;
            let figures = report.actual.expect("it ran");
            assert_eq!(report.runtime_filter.sources, ["the keys of a join on l_orderkey"], "{policy}");
            assert_eq!(report.runtime_filter.segments, report.segments, "{policy}: no segment begins before");
            let conjunct = &report.runtime_filter.conjuncts[0];
            assert!(conjunct.sql.starts_with("l_orderkey IN ("), "{policy}: {conjunct:?}");
            // Some 30 of 15,000 orders, and few others by mistake.
            assert!(figures.work.rows_out < report.rows / 100, "{wire:?} {policy}: {figures:?}");
            assert!(figures.work.rows_out > 0, "{wire:?} {policy}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_keys_travel_as_a_filter_that_is_looked_into_and_given_up_when_most_rows_pass() {
    let cluster = TestCluster::start(2).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    let few = "select count(*), sum(l_quantity) from lineitem, orders where l_orderkey = o_orderkey \
               and o_orderpriority = '1-URGENT'";
    for report in everywhere(&cluster, Wire::Tcp, few, "lineitem").await {
        let (policy, work) = (report.policy, report.actual.expect("it ran").work);
        assert!(
            report.runtime_filter.conjuncts[0].sql.ends_with(" keys)"),
            "{policy}: {:?}",
            report.runtime_filter
        );
        assert!(work.keys_tested > report.rows / 2, "{policy}: {work:?}");
        assert!(work.keys_kept * 10 < work.keys_tested * 3, "{policy}: a fifth of the orders: {work:?}");
        assert!(work.rows_out * 10 < report.rows * 3, "{policy}: {work:?}");
        assert!(!report.runtime_filter.keys_given_up, "{policy}");
    }
    let most = "select count(*), sum(l_quantity) from lineitem, orders where l_orderkey = o_orderkey \
                and o_orderpriority <> '9-NEVER' and o_totalprice < 100000000";
    for report in everywhere(&cluster, Wire::Tcp, most, "lineitem").await {
        let (policy, work) = (report.policy, report.actual.expect("it ran").work);
        assert_eq!(work.rows_out, report.rows, "{policy}: every item has its order");
        let looked_up = work.keys_tested;
        assert!(
            looked_up == 0 || report.runtime_filter.keys_given_up || looked_up < report.rows,
            "{policy}: {work:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_table_narrows_the_next_small_one_before_that_is_read() {
    let cluster = TestCluster::start(2).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    // A region names five of 25 nations, those about a fifth of the suppliers, and those a fifth of
    // the lines.
    let sql = "select count(*), sum(l_quantity) from lineitem, supplier, nation, region where l_suppkey = s_suppkey \
               and s_nationkey = n_nationkey and n_regionkey = r_regionkey and r_name = 'ASIA'";
    for table in ["nation", "supplier", "lineitem"] {
        for report in everywhere_in_time(&cluster, sql, table).await {
            let (policy, segments) = (report.policy, report.runtime_filter.segments);
            assert_eq!(segments, report.segments, "{policy} {table}: {:?}", report.runtime_filter);
            let figures = report.actual.expect("it ran");
            let selected = figures.work.rows_selected;
            assert!(
                selected > 0 && selected <= report.rows / 3,
                "{policy} {table}: {selected} of {}",
                report.rows
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_key_of_a_join_narrows_the_table_that_it_comes_from() {
    let cluster = TestCluster::start(2).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    // Suppliers of a fifth of the nations are joined by their number and their nation: with lines,
    // and with customers.
    let sql = "select count(*), sum(l_quantity) from lineitem, orders, customer, supplier, nation, region \
               where l_orderkey = o_orderkey and o_custkey = c_custkey and l_suppkey = s_suppkey and c_nationkey = s_nationkey \
               and s_nationkey = n_nationkey and n_regionkey = r_regionkey and r_name = 'ASIA'";
    for table in ["customer", "lineitem"] {
        for report in everywhere_in_time(&cluster, sql, table).await {
            let (policy, rows) = (report.policy, report.rows);
            let selected = report.actual.expect("it ran").work.rows_selected;
            assert!(selected > 0 && selected <= rows / 3, "{policy} {table}: {selected} of {rows}");
        }
    }
    let engine = cluster.engine(Wire::Shm, options(Policy::Local)).await.expect("an engine");
    let unnarrowed = EngineOptions { narrowed_rows_min: u64::MAX, ..options(Policy::Local) };
    let unnarrowed = cluster.engine(Wire::Shm, unnarrowed).await.expect("an engine");
    let answer = engine.sql(sql).await.expect("it runs").batches;
    assert_eq!(answer, unnarrowed.sql(sql).await.expect("it runs").batches);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keys_of_a_join_go_no_further_than_where_the_first_rows_are_taken() {
    let cluster = TestCluster::start(2).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    // The ten richest customers, wherever they live; were they narrowed by nation, others would
    // take their places.
    let sql = "select count(*) from supplier, nation, \
               (select c_custkey, c_nationkey from customer order by c_acctbal desc, c_custkey limit 10) as richest \
               where s_suppkey = c_custkey % 100 and s_nationkey = c_nationkey and n_nationkey = s_nationkey and n_name = 'CHINA'";
    for report in everywhere(&cluster, Wire::Shm, sql, "customer").await {
        assert!(
            !report.runtime_filter.sources.iter().any(|source| source.contains("c_nationkey")),
            "{report:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_with_nobody_reads_nothing_of_its_other_side() {
    let cluster = TestCluster::start(2).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    let sql = "select count(l_comment) from lineitem, orders where l_orderkey = o_orderkey \
               and o_orderdate = date '1995-03-01' and o_clerk = 'nobody'";
    for report in everywhere(&cluster, Wire::Shm, sql, "lineitem").await {
        let (policy, work) = (report.policy, report.actual.expect("it ran").work);
        assert_eq!((work.rows_out, work.pages_read), (0, 0), "{policy}: {work:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_narrow_a_scan_that_puts_out_groups() {
    let cluster = TestCluster::start(2).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    let sql = "select o_orderkey, total from orders, (select l_orderkey, sum(l_quantity) as total from lineitem \
               group by l_orderkey) as totals where o_orderkey = l_orderkey and o_totalprice > 450000 \
               order by o_orderkey";
    let engine = cluster.engine(Wire::Shm, options(Policy::RemoteProcess)).await.expect("an engine");
    let plain = EngineOptions { aggregates: AggregatePushdown::Never, ..options(Policy::Local) };
    let plain = cluster.engine(Wire::Shm, plain).await.expect("an engine");
    let grouping = EngineOptions { aggregates: AggregatePushdown::Always, ..options(Policy::RemoteProcess) };
    let grouping = cluster.engine(Wire::Shm, grouping).await.expect("an engine");
    let expected = plain.sql(sql).await.expect("it runs");
    assert!(expected.rows() > 0);
    for engine in [&engine, &grouping] {
        assert_eq!(engine.sql(sql).await.expect("it runs").batches, expected.batches);
    }
    let report = scan_of(&grouping, sql, "lineitem").await;
    assert_eq!(report.pushed_keys, ["l_orderkey"]);
    let groups = report.actual.expect("it ran").work.rows_out;
    assert!(groups < 1000, "of 15,000 orders: {groups}, {:?}", report.runtime_filter);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_threshold_of_a_top_k_skips_pages_under_every_placement() {
    let cluster = TestCluster::start(1).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    // Keys ascend from segment to segment, so that the first has all that is wanted.
    let sql = "select l_orderkey, l_comment from lineitem order by l_orderkey, l_linenumber limit 5";
    for report in everywhere(&cluster, Wire::Shm, sql, "lineitem").await {
        let (policy, figures) = (report.policy, report.actual.expect("it ran"));
        assert_eq!(report.runtime_filter.sources.len(), 1, "{policy}");
        assert!(report.runtime_filter.segments > 0, "{policy}: {:?}", report.runtime_filter);
        assert!(figures.work.rows_out < report.rows, "{policy}: {figures:?}");
        assert!(figures.work.pages_skipped_by_zone > 0, "{policy}: {figures:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_that_keep_rows_without_a_partner_are_not_narrowed_by_keys() {
    let cluster = TestCluster::start(1).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    let left = "select count(*), count(o_orderkey) from lineitem left join orders on l_orderkey = o_orderkey \
                and o_orderdate = date '1995-03-01'";
    let anti = "select count(*) from lineitem where not exists (select * from orders where o_orderkey = l_orderkey \
                and o_orderdate < date '1997-03-01')";
    let null_aware = "select count(*) from lineitem where l_orderkey not in (select o_orderkey from orders \
                      where o_orderdate < date '1997-03-01')";
    for sql in [left, anti, null_aware] {
        for report in everywhere(&cluster, Wire::Shm, sql, "lineitem").await {
            let rows = report.actual.expect("it ran").work.rows_out;
            assert_eq!(rows, report.rows, "{}: {sql}", report.policy);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_of_one_name_on_both_sides_of_a_join_are_told_apart() {
    let cluster = TestCluster::start(1).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    let never = EngineOptions { narrowed_rows_min: u64::MAX, ..options(Policy::Local) };
    let plain = cluster.engine(Wire::Shm, never).await.expect("an engine");
    let always = EngineOptions { narrowed_rows_min: 0, ..options(Policy::Local) };
    let runtime_filter = cluster.engine(Wire::Shm, always).await.expect("an engine");
    // Both sides of the inner join put out l_suppkey and l_linenumber; the outer joins are about
    // one or the other.
    let inner =
        "from lineitem a join lineitem b on a.l_orderkey = b.l_orderkey and a.l_linenumber < b.l_linenumber";
    for side in ["a", "b"] {
        for outer in [
            format!(
                "join orders o on o.o_orderkey = a.l_orderkey join supplier s on s.s_suppkey = {side}.l_suppkey"
            ),
            format!(
                "join supplier s on s.s_suppkey = {side}.l_suppkey join orders o on o.o_orderkey = b.l_orderkey"
            ),
        ] {
            let sql = format!(
                "select count(*), sum(a.l_suppkey), sum(b.l_suppkey), sum(a.l_linenumber), sum(b.l_linenumber) \
                 {inner} {outer} where s.s_acctbal < 0 and o.o_orderdate < date '1993-01-01'"
            );
            let expected = plain.sql(&sql).await.expect("it runs");
            let found = runtime_filter.sql(&sql).await.expect("it runs");
            assert_eq!(found.batches, expected.batches, "{sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extremes_of_a_column_do_not_narrow_a_scan_that_others_compute_from() {
    let cluster = TestCluster::start(1).expect("a cluster");
    cluster.load(SHAPE).await.expect("data");
    // The least date of all is found early; the greatest of the expression comes late.
    let sql = "select max(coalesce(l_shipdate, date '1990-01-01')), min(l_shipdate) from lineitem";
    let extremes = "select max(l_shipdate), min(l_shipdate) from lineitem";
    for policy in POLICIES {
        let rows = EngineOptions { aggregates: AggregatePushdown::Never, ..options(policy) };
        let engine = cluster.engine(Wire::Shm, rows).await.expect("an engine");
        let (found, expected) = (engine.sql(sql).await, engine.sql(extremes).await);
        let (found, expected) = (found.expect("it runs").batches, expected.expect("it runs").batches);
        let values = |batches: &[RecordBatch]| -> Vec<_> {
            batches.iter().flat_map(|batch| batch.columns().to_vec()).map(|column| column.to_data()).collect()
        };
        assert_eq!(values(&found), values(&expected), "{policy}");
        let report = scan_of(&engine, sql, "lineitem").await;
        assert!(report.runtime_filter.sources.is_empty(), "{policy}: {:?}", report.runtime_filter);
    }
}
