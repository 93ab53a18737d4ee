//! Tests changes of rows: each transaction is applied completely or not at all, and is visible to
//! every later command, whatever happens to the nodes in between.

use super::support::{Data, kill};

/// The only number of a query's answer.
fn number(data: &Data, sql: &str) -> i64 {
    let text = data.run_words(&["sql", sql, "--format", "csv"], "").succeeds();
    text.lines().nth(1).and_then(|line| line.parse().ok()).unwrap_or_else(|| panic!("{sql}: {text}"))
}

fn script(data: &Data, sql: &str) -> String {
    data.run_words(&["sql", sql, "--format", "csv"], "").succeeds()
}

/// The processes of the running nodes.
fn pids(data: &Data) -> Vec<u32> {
    let status = data.run("cluster status --format ndjson").succeeds();
    let rows = status.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    rows.map(|row| row["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a pid")).collect()
}

const ALONE: &str = "select count(*) from orders where o_orderkey not in (select l_orderkey from lineitem)";
const LINES_ALONE: &str =
    "select count(*) from lineitem where l_orderkey not in (select o_orderkey from orders)";

#[test]
fn a_script_changes_rows_together_and_later_commands_see_them() {
    let data = Data::new("changes");
    data.run("load tpch --scale 0.01").succeeds();
    let text = script(
        &data,
        "begin; update orders set o_comment = 'it''s; late' where o_orderkey < 8; delete from lineitem where l_orderkey = 1; commit; \
         select count(*) as left_over from lineitem where l_orderkey = 1",
    );
    assert!(text.contains("rows updated\n7\n") && text.contains("rows deleted\n6\n"), "{text}");
    assert!(text.contains("committed by") && text.contains("left_over\n0\n"), "{text}");
    // The nodes ended with that command.
    assert_eq!(number(&data, "select count(*) from orders where o_comment = 'it''s; late'"), 7);
    assert_eq!(number(&data, "select count(*) from lineitem"), 60_175 - 6);
    // Seven rows were withheld, and seven replaced them.
    assert!(
        data.run("tables --format csv").succeeds().contains(",14,tpch scale 0.01"),
        "rows that have changed are counted"
    );
    let open = "begin; delete from orders where o_orderkey < 100";
    data.run_words(&["sql", open], "").fails_later(1, &["not committed", "nothing of it was written"]);
    let broken = "begin; delete from orders where o_orderkey < 100; delete from moon; commit";
    data.run_words(&["sql", broken], "").fails_later(1, &["moon"]);
    assert_eq!(number(&data, "select count(*) from orders where o_orderkey < 100"), 27);
    let again = ["sql", "delete from orders where o_orderkey = 1", "--compare-placements"];
    data.run_words(&again, "").fails(2, &["several times"]);
    let shell = data.run_words(
        &["shell"],
        "begin;\ndelete from orders\n where o_orderkey = 1;\ncommit;\nselect count(*) from orders;\n",
    );
    assert!(shell.succeeds().contains("14999"), "the shell has transactions, too");
}

#[test]
fn changed_rows_survive_killed_nodes_and_a_lost_log() {
    let data = Data::new("changes-killed");
    data.run("load tpch --scale 0.01").succeeds();
    data.run("cluster start").succeeds();
    script(&data, "update orders set o_shippriority = 9 where o_orderkey <= 400");
    let expected = number(&data, "select sum(o_shippriority) from orders");
    assert_eq!(expected, 9 * 103);
    for pid in pids(&data) {
        kill(pid);
    }
    // One of them has lost its log, of which others have replicas.
    let node = data.path().join("data/node1");
    for file in ["transactions.log", "transactions.life"] {
        let removed = std::fs::remove_file(node.join(file));
        assert!(removed.is_ok(), "{file}: {removed:?}");
    }
    data.run("cluster start").succeeds();
    assert_eq!(number(&data, "select sum(o_shippriority) from orders"), expected);
    data.run("cluster stop").succeeds();
}

#[test]
fn refreshes_insert_and_delete_whole_orders() {
    let data = Data::new("refreshes");
    data.run("load tpch --scale 0.01").succeeds();
    let inserted = data.run("refresh rf1 --streams 2 --format csv").succeeds();
    assert_eq!(inserted.lines().count(), 3, "{inserted}");
    assert_eq!(number(&data, "select count(*) from orders"), 15_030);
    assert_eq!(number(&data, ALONE) + number(&data, LINES_ALONE), 0);
    let lines = number(&data, "select count(*) from lineitem");
    assert!((60_175 + 30..=60_175 + 210).contains(&lines), "{lines}");
    data.run("refresh rf2 --streams 2").succeeds();
    assert_eq!(number(&data, "select count(*) from orders"), 15_000);
    assert_eq!(number(&data, ALONE) + number(&data, LINES_ALONE), 0);
    let again = data.run("refresh rf2 --streams 1 --format csv").succeeds();
    assert!(again.lines().nth(1).is_some_and(|line| line.starts_with("1,0,0,15")), "{again}");
    data.run("refresh rf1 --first 1000").fails(2, &["999"]);
}

#[test]
fn changed_rows_are_flushed_and_survive_killed_nodes_as_segments() {
    let data = Data::new("flushed");
    data.run("load tpch --scale 0.01").succeeds();
    data.run("cluster start").succeeds();
    script(&data, "update orders set o_shippriority = 9 where o_orderkey <= 400");
    script(&data, "delete from lineitem where l_orderkey <= 100; delete from orders where o_orderkey <= 100");
    let sums = "select sum(o_shippriority) + count(*) from orders";
    let (orders, lines) = (number(&data, sums), number(&data, "select count(*) from lineitem"));
    let flushed = data.run("flush --format csv").succeeds();
    let rows: Vec<&str> = flushed.lines().skip(1).map(|line| line.split(',').next().unwrap_or("")).collect();
    assert_eq!(rows, ["lineitem", "orders"], "{flushed}");
    assert!(flushed.lines().skip(1).all(|line| line.ends_with("flushed")), "{flushed}");
    let nothing = data.run("flush orders nation --format csv").succeeds();
    assert!(nothing.lines().skip(1).all(|line| line.ends_with("nothing has changed")), "{nothing}");
    data.run("flush moon").fails(1, &["moon"]);
    for pid in pids(&data) {
        kill(pid);
    }
    data.run("cluster start").succeeds();
    assert_eq!(number(&data, sums), orders);
    assert_eq!(number(&data, "select count(*) from lineitem"), lines);
    let tables = data.run("tables --format csv").succeeds();
    assert!(tables.lines().all(|line| !line.starts_with("orders") || line.contains(",0,tpch")), "{tables}");
    // A new load discards all earlier changes.
    script(&data, "update orders set o_shippriority = 1 where o_orderkey < 10000");
    data.run("load tpch --scale 0.01").succeeds();
    assert_eq!(number(&data, "select sum(o_shippriority) from orders"), 0);
    let status = data.run("cluster status --format ndjson").succeeds();
    let keys = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?["keys"].as_u64();
    let keys: u64 = status.lines().filter_map(keys).sum();
    assert!(keys < 200, "only what says that rows have moved is left: {status}");
    data.run("cluster stop").succeeds();
}
