//! Tests that wrong usage exits with 2 and failures with 1, each with what was found and what was
//! expected, and that nothing is lost.

use super::support::Data;

#[test]
fn wrong_words_are_named_before_anything_is_started() {
    let data = Data::new("words");
    data.run("query q23").fails(2, &["q23", "q01 to q22"]);
    data.run("query q06 --placement moon").fails(2, &["moon", "remote-fetch"]);
    data.run("load tpch --page-size 5000").fails(2, &["5000", "4KiB"]);
    data.run("load tpch --segment-rows 1000").fails(2, &["1024"]);
    data.run("frobnicate").fails(2, &["frobnicate"]);
    data.run("query q06 --log rackscan=loud").fails(2, &["rackscan=loud"]);
    assert!(!data.path().join("data").exists(), "nothing was made");
}

#[test]
fn every_command_helps_with_examples() {
    let data = Data::new("help");
    for command in
        ["", "load tpch", "load csv", "load parquet", "query", "sql", "explain", "node", "lab tpch"]
    {
        let help = data.run(&format!("{command} --help")).succeeds();
        assert!(help.contains("Example"), "{command}: {help}");
    }
}

#[test]
fn unknown_tables_and_columns_are_named_with_near_ones() {
    let data = Data::new("names");
    data.run("load tpch --scale 0.01").succeeds();
    let sql = |text: &str| data.run_words(&["sql", text], "");
    sql("select count(*) from linitem").fails(1, &["linitem", "lineitem"]);
    sql("select l_quantty from lineitem").fails(1, &["l_quantty", "l_quantity"]);
    sql("selec 1").fails(1, &["selec"]);
    sql("drop table lineitem").fails(1, &["DROP"]);
    data.run("tables nothing").fails(1, &["nothing"]);
    assert!(sql("select count(*) from lineitem").succeeds().contains("60175"), "nothing was lost");
}

#[test]
fn a_cluster_file_with_wrong_keys_is_named_with_the_key() {
    let data = Data::new("config");
    data.run("cluster start --nodes 1 --devices 1").succeeds();
    data.run("cluster stop").succeeds();
    let path = data.path().join("data/cluster.toml");
    let good = std::fs::read_to_string(&path).expect("the cluster file");
    for (from, to, named) in [
        ("data_dir", "datadir", "datadir"),
        ("key_file", "keyfile", "keyfile"),
        ("node = 0", "node = \"zero\"", "node"),
        ("tcp:", "smoke:", "smoke:"),
    ] {
        std::fs::write(&path, good.replacen(from, to, 1)).expect("the file can be written");
        data.run("tables").fails(1, &["cluster.toml", named]);
    }
    // More memory than any host has: nothing is allocated.
    let line = good.lines().find(|line| line.starts_with("memory_budget")).expect("it has one");
    std::fs::write(&path, good.replace(line, "memory_budget = \"999999TiB\""))
        .expect("the file can be written");
    data.run("tables").fails(1, &["memory_budget: it is 999999TiB, expected at most"]);
    std::fs::write(&path, &good).expect("the file can be written");
    data.run("tables").succeeds();
}

#[test]
fn a_csv_row_that_does_not_parse_is_named_and_the_table_stays_absent() {
    let data = Data::new("bad-csv");
    let file = data.path().join("bad.csv");
    let rows: String =
        (0..20_000).map(|id| format!("{id},{}\n", if id == 17_000 { "x" } else { "7" })).collect();
    std::fs::write(&file, format!("id,count\n{rows}")).expect("a file");
    let file = file.to_str().expect("a UTF-8 path");
    let load = ["load", "csv", file, "--table", "bad", "--partition-by", "id"];
    data.run_words(&load, "").fails(1, &["bad.csv", "17002", "count", "x"]);
    assert!(!data.run("tables").succeeds().contains("bad"));
    data.run_words(&["load", "csv", file, "--table", "bad", "--partition-by", "nothing"], "")
        .fails(1, &["nothing", "id, count"]);
}

#[test]
fn a_folder_without_direct_io_is_refused_with_the_way_out() {
    let data = Data::at(format!("/dev/shm/rackscan-test-{}", std::process::id()).into());
    let ran = data.run("tables");
    ran.fails(1, &["tmpfs", "ext4", "--data"]);
}

#[test]
fn a_stripe_is_shown_with_one_parity_or_two_and_without_the_nodes_that_are_named() {
    let data = Data::new("stripe");
    let cells = |line: &str| {
        let json: serde_json::Value =
            serde_json::from_str(&data.run(line).succeeds()).expect("one JSON object");
        (json["rebuilt_cells"].as_u64(), json["read_cells"].as_u64())
    };
    assert_eq!(
        cells("lab stripe --nodes 5 --rebuild 1,3 --json").0,
        cells("lab stripe --nodes 5 --rebuild 3,1 --json").0
    );
    // Of three nodes with one parity a lost cell is the XOR of two.
    let (rebuilt, read) = cells("lab stripe --nodes 3 --parity xor --rebuild 0 --json");
    assert!(rebuilt > Some(0) && read == rebuilt.map(|cells| 2 * cells), "{rebuilt:?} {read:?}");
    assert!(data.run("lab stripe --nodes 5 --rebuild 2").succeeds().contains("node 2"));
    data.run("lab stripe --nodes 5 --rebuild 1,2,3").fails(2, &["2"]);
    data.run("lab stripe --nodes 5 --parity xor --rebuild 1,2").fails(2, &["1"]);
    data.run("lab stripe --nodes 5 --rebuild 5").fails(2, &["5"]);
    data.run("lab stripe --nodes 2").fails(2, &["3"]);
    data.run("lab stripe --nodes 2 --parity xor").succeeds();
    // Its old name, before there was `lab`.
    let by_old_name = data.run("stripe --nodes 5 --rebuild 2").succeeds();
    assert_eq!(by_old_name, data.run("lab stripe --nodes 5 --rebuild 2").succeeds());
}

#[test]
fn old_names_of_commands_and_options_work_with_a_warning() {
    let data = Data::new("old-names");
    data.run("load tpch --scale 0.001").succeeds();
    for (old, new) in [
        ("seal nation", "`rackscan seal` is called `rackscan flush` now"),
        ("query q06 --away 0", "`--away` is called `--tolerate-unavailable` now"),
        ("query q06 --away=0", "`--away` is called `--tolerate-unavailable` now"),
    ] {
        let ran = data.run(old);
        assert!(ran.stderr().contains(new), "{old}: {}", ran.stderr());
        ran.succeeds();
    }
    let ran = data.run("query q06 --tolerate-unavailable 0");
    assert!(!ran.stderr().contains("is called"), "{}", ran.stderr());
}

#[test]
fn commands_end_as_ever_where_nobody_reads_standard_error() {
    let data = Data::new("unread");
    let ended = |words: &[&str]| {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_rackscan"));
        command.env("RACKSCAN_DATA", data.path().join("data")).args(words).stderr(writer);
        let output = command.output().expect("the program runs");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, _) = ended(&["load", "tpch", "--scale", "0.001"]);
    assert_eq!(code, Some(0));
    let (code, rows) = ended(&["sql", "select count(*) from nation"]);
    assert!(code == Some(0) && rows.contains("25"), "{code:?}: {rows}");
    assert_eq!(ended(&["sql", "select 1 / 0"]).0, Some(1));
    assert_eq!(ended(&["frobnicate"]).0, Some(2));
}
