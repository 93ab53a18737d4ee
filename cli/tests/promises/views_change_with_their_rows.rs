//! Tests derived objects: a user's views, indexes and foreign keys change with the rows, whatever
//! changes the rows, and whatever happens to the nodes in between.

use super::support::{Data, kill};

const REVENUE: &str = "select l_suppkey as supplier_no, sum(l_extendedprice * (1 - l_discount)) as total_revenue from lineitem \
     where l_shipdate >= date '1993-01-01' and l_shipdate < date '1998-07-01' group by l_suppkey";

fn answer(data: &Data, sql: &str) -> String {
    data.run_words(&["sql", sql, "--format", "csv"], "").succeeds()
}

/// The view's rows; asserts that they equal those of its query.
fn revenue(data: &Data, when: &str) -> String {
    let found = answer(data, "select * from revenue order by 1");
    assert_eq!(found, answer(data, &format!("{REVENUE} order by 1")), "{when}");
    found
}

#[test]
fn views_follow_refreshes_flushes_and_killed_nodes_until_they_are_dropped() {
    let data = Data::new("derived");
    data.run("load tpch --scale 0.01").succeeds();
    data.run("cluster start").succeeds();
    let created = [
        &format!("create materialized view revenue as {REVENUE}"),
        "create index by_customer on orders (o_custkey)",
        "alter table lineitem add constraint lines foreign key (l_orderkey) references orders (o_orderkey)",
    ];
    for statement in created {
        assert_eq!(answer(&data, statement).lines().nth(1), Some("done"), "{statement}");
    }
    let first = revenue(&data, "created");
    data.run("refresh rf1 --streams 1").succeeds();
    let second = revenue(&data, "after RF1");
    assert_ne!(first, second, "new lines are in it");
    data.run("refresh rf2 --streams 1").succeeds();
    assert_ne!(second, revenue(&data, "after RF2"), "old ones are not");
    answer(
        &data,
        "begin; update lineitem set l_discount = 0 where l_orderkey < 200; delete from orders where o_orderkey = 7; \
         delete from lineitem where l_orderkey = 7; commit",
    );
    let last = revenue(&data, "after a transaction");
    let status = data.run("cluster status --format ndjson").succeeds();
    for line in status.lines() {
        let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
        kill(row["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a pid"));
    }
    data.run("cluster start").succeeds();
    assert_eq!(revenue(&data, "after all nodes were killed"), last);
    data.run("flush").succeeds();
    assert_eq!(revenue(&data, "flushed"), last);
    let columns = data.run("tables lineitem --format csv").succeeds();
    for expected in ["key into orders by lines", "groups of view revenue"] {
        assert!(columns.contains(expected), "{columns}");
    }
    let columns = data.run("tables orders --format csv").succeeds();
    assert!(
        columns.contains("index by_customer") && columns.contains("key of lineitem by lines"),
        "{columns}"
    );
    let tables = data.run("tables").succeeds();
    assert!(
        tables.contains("CREATE MATERIALIZED VIEW revenue") && !tables.contains("rackscan base"),
        "{tables}"
    );
    data.run_words(&["sql", "insert into revenue values (1, 2)"], "")
        .fails_later(1, &["revenue is a materialized view", "lineitem"]);
    let file = data.path().join("cities.csv");
    std::fs::write(&file, "a,b\n1,2\n").expect("the folder is writable");
    let load = ["load", "csv", file.to_str().expect("a text"), "--table", "revenue", "--partition-by", "a"];
    data.run_words(&load, "").fails_later(1, &["\"revenue\" is a materialized view of table \"lineitem\""]);
    assert_eq!(revenue(&data, "after a load by its name was refused"), last);
    data.run_words(&["drop", "rackscan index by_customer"], "").fails(2, &["reserved"]);
    answer(
        &data,
        "drop materialized view revenue; drop index by_customer; alter table lineitem drop constraint lines",
    );
    data.run_words(&["sql", "select * from revenue"], "").fails_later(1, &["there is no table \"revenue\""]);
    assert!(!data.run("tables lineitem").succeeds().contains("by lines"), "nothing is derived any more");
    data.run("cluster stop").succeeds();
}
