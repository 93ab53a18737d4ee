//! Tests shells that are open while other commands load, drop and flush tables and create derived
//! objects: acknowledged changes are in the table that every command sees.

use super::{shells::OpenShell, support::Data};

const STATEMENTS: [&str; 3] =
    ["insert into t values (50, 50)", "update t set v = 50 where k = 5", "delete from t where k = 5"];

fn sums(data: &Data) -> String {
    let text = data
        .run_words(&["sql", "select count(*) as n, sum(v) as s from t", "--format", "csv"], "")
        .succeeds();
    text.lines().nth(1).unwrap_or_default().to_owned()
}

fn after(statement: &str, value: i64) -> String {
    match statement.split(' ').next() {
        Some("insert") => format!("11,{}", 10 * value + 50),
        Some("update") => format!("10,{}", 9 * value + 50),
        _ => format!("9,{}", 9 * value),
    }
}

/// A running cluster, and a function that loads `t` with ten rows of this value.
fn cluster(name: &str) -> (Data, impl Fn(&Data, i64)) {
    let data = Data::new(name);
    data.run("tables").succeeds();
    data.run("cluster start").succeeds();
    let load = |data: &Data, value: i64| {
        let file = data.path().join("t.csv");
        let rows: String = (0..10).map(|key| format!("{key},{value}\n")).collect();
        std::fs::write(&file, format!("k,v\n{rows}")).expect("a file");
        let words = ["load", "csv", file.to_str().expect("text"), "--table", "t", "--partition-by", "k"];
        data.run_words(&words, "").succeeds();
    };
    (data, load)
}

#[test]
fn an_open_shell_writes_to_the_table_that_others_have_loaded_dropped_or_flushed_or_says_that_it_cannot() {
    let (data, load) = cluster("replaced-alone");
    for statement in STATEMENTS {
        for done in ["load", "drop", "flush", "view"] {
            load(&data, 1);
            let mut shell = OpenShell::start(&data, &[]);
            shell.say("select sum(v) as s from t");
            shell.answers("10");
            match done {
                "load" => load(&data, 100),
                "drop" => drop(data.run("drop t").succeeds()),
                "flush" => {
                    data.run_words(&["sql", "update t set v = v where k = 9"], "").succeeds();
                    data.run("flush t").succeeds();
                }
                _ => {
                    let view = "create materialized view s as select k, count(*) as n from t group by k";
                    data.run_words(&["sql", view], "").succeeds();
                }
            }
            shell.say(statement);
            let failed = shell.end();
            if done == "drop" {
                let text = failed.expect("there is no table");
                assert!(text.contains("no table") && text.contains("42P01"), "{statement}: {text}");
                continue;
            }
            assert_eq!(failed, None, "{done}, {statement}");
            let value = if done == "load" { 100 } else { 1 };
            assert_eq!(sums(&data), after(statement, value), "{done}, {statement}");
        }
    }
}

#[test]
fn a_transaction_of_an_open_shell_is_refused_when_its_table_is_loaded_anew_or_dropped() {
    let (data, load) = cluster("replaced-together");
    for statement in STATEMENTS {
        for done in ["load", "drop"] {
            load(&data, 1);
            let mut shell = OpenShell::start(&data, &[]);
            shell.say("begin");
            shell.say(statement);
            shell.answers("rows");
            shell.answers("1");
            let (part, code) = match done {
                "load" => {
                    load(&data, 100);
                    ("\"t\" was replaced", "40001")
                }
                _ => {
                    data.run("drop t").succeeds();
                    ("\"t\" was dropped", "42P01")
                }
            };
            shell.say("commit");
            let text = shell.end().expect("it cannot be committed");
            assert!(text.contains(part) && text.contains(code), "{done}, {statement}: {text}");
            assert!(text.contains("nothing of the transaction was written"), "{text}");
            if done == "load" {
                assert_eq!(sums(&data), "10,1000", "{statement}");
            }
        }
    }
}
