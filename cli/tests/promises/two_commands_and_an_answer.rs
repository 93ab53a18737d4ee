//! Tests a fresh data folder: one command returns the right rows and leaves nothing behind. The
//! expected value comes from an independent engine (`queries/tpch/answers`).

use super::support::{Data, processes_with};

const Q06_AT_001: &str = "1193053.2253";

#[test]
fn a_query_on_a_fresh_folder_loads_answers_and_leaves_nothing_running() {
    let data = Data::new("fresh");
    data.run("load tpch --scale 0.01").succeeds();
    let ran = data.run("query q06 --placement remote-process");
    assert!(ran.succeeds().contains(Q06_AT_001), "{}", ran.stdout());
    assert!(ran.stderr().contains("remote-process"), "where the scans ran: {}", ran.stderr());
    assert_eq!(processes_with(data.path().to_str().expect("a UTF-8 path")), Vec::<u32>::new());
}

#[test]
fn every_placement_and_wire_and_format_gives_the_same_rows() {
    let data = Data::new("formats");
    data.run("load tpch --scale 0.01 --page-size 16KiB --segment-rows 8192").succeeds();
    data.run("cluster start").succeeds();
    for wire in ["shm", "tcp"] {
        for placement in ["local", "remote-fetch", "remote-process", "auto"] {
            let line = format!("query q06 --wire {wire} --placement {placement} --format csv");
            let ran = data.run(&line);
            assert_eq!(ran.succeeds(), format!("revenue\n{Q06_AT_001}\n"), "{line}");
            let named = placement == "auto" || ran.stderr().contains(placement);
            assert!(named, "{line} ran elsewhere: {}", ran.stderr());
        }
    }
    let ndjson = data.run("query 6 --format ndjson").succeeds();
    let row: serde_json::Value = serde_json::from_str(&ndjson).expect("a JSON object");
    assert!(row["revenue"].to_string().contains(Q06_AT_001), "{ndjson}");
    data.run("cluster stop").succeeds();
}

#[test]
fn placements_are_compared_in_one_table_with_equal_answers() {
    let data = Data::new("compared");
    data.run("load tpch --scale 0.01 --page-size 16KiB --segment-rows 8192").succeeds();
    data.run("cluster start").succeeds();
    let json = data.run("query q01 --compare-placements --format json").succeeds();
    let rows: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let rows = rows.as_array().expect("an array");
    let names: Vec<&str> = rows.iter().filter_map(|row| row["placement"].as_str()).collect();
    assert_eq!(names, ["local", "remote-fetch", "remote-process", "auto"]);
    for row in rows {
        assert_eq!((row["answer"].as_str(), row["rows"].as_u64()), (Some("equal"), Some(4)), "{row}");
        assert!(row["best_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{row}");
    }
    assert_eq!(rows[0]["wire_bytes"], 0);
    assert!(rows[1]["wire_bytes"].as_u64() > rows[2]["wire_bytes"].as_u64());
    assert!(rows[2]["node_cpu_ms"].as_f64() > Some(0.0) && rows[1]["node_cpu_ms"].as_f64() == Some(0.0));
    let table = data.run_words(&["sql", "SELECT count(*) FROM orders", "--compare-placements"], "");
    assert!(table.succeeds().contains("| equal"), "{}", table.stdout());
    data.run("cluster stop").succeeds();
}

#[test]
fn after_scans_the_page_cache_holds_nothing_of_the_devices() {
    let data = Data::new("page-cache");
    data.run("load tpch --scale 0.01").succeeds();
    for placement in ["local", "remote-fetch", "remote-process"] {
        data.run(&format!("query q01 --placement {placement}")).succeeds();
    }
    let mut devices = 0;
    for node in 0..4 {
        for device in 0..2 {
            let path = data.path().join(format!("data/node{node}/device{device}"));
            assert_eq!(rackscan_device::resident_bytes(&path).expect("mincore"), 0, "{}", path.display());
            devices += 1;
        }
    }
    assert_eq!(devices, 8);
}

#[test]
fn a_csv_file_becomes_a_table_and_the_shell_reads_scripts() {
    let data = Data::new("csv");
    let file = data.path().join("cities.csv");
    std::fs::write(&file, "id,name,people\n1,Basel,178120\n2,\"Bad, Homburg\",55197\n3,,\n").expect("a file");
    let file = file.to_str().expect("a UTF-8 path");
    data.run_words(&["load", "csv", file, "--table", "cities", "--partition-by", "id"], "").succeeds();
    let script = "\\timing off\nselect name,\n people from cities\n order by id;\n";
    let rows = data.run_words(&["shell", "--format", "csv"], script).succeeds();
    assert_eq!(rows, "name,people\nBasel,178120\n\"Bad, Homburg\",55197\n,\n");
    assert!(data.run("tables").succeeds().contains("cities"));
    data.run("drop cities").succeeds();
    assert!(!data.run("tables").succeeds().contains("cities"));
}

#[test]
fn the_reads_of_a_query_are_recorded_where_asked() {
    let data = Data::new("trace");
    data.run("load tpch --scale 0.01 --page-size 16KiB --segment-rows 8192").succeeds();
    data.run("cluster start").succeeds();
    let file = |name: &str| data.path().join(name).to_str().expect("a UTF-8 path").to_owned();
    let (csv, iolog) = (file("q06.csv"), file("q06.iolog"));
    let recorded = |said: &str| {
        let text = std::fs::read_to_string(&csv).expect("a trace");
        let reads = text.lines().count() - 1;
        assert!(reads > 0 && said.contains(&format!("q06.csv: {reads} page reads")), "{said}");
        assert!(text.lines().skip(1).all(|line| line.contains(",read,lineitem,l_")), "{text}");
    };
    for placement in ["local", "remote-fetch"] {
        let ran = data.run(&format!("query q06 --placement {placement} --trace {csv}"));
        assert!(ran.succeeds().contains(Q06_AT_001));
        recorded(&ran.stderr());
    }
    // Columns that no query has read before, because pages from a cache are not in a trace.
    let count = "select count(*) from lineitem where l_linenumber < 3";
    let ran = data.run_words(&["sql", count, "--placement", "remote-process", "--trace", &csv], "");
    ran.succeeds();
    recorded(&ran.stderr());
    let count = "select count(*) from lineitem where l_tax < 0.05";
    let words = ["sql", count, "--placement", "remote-fetch", "--trace", &iolog, "--trace-format", "fio"];
    data.run_words(&words, "").succeeds();
    let text = std::fs::read_to_string(&iolog).expect("a trace");
    assert!(text.starts_with("fio version 3 iolog\n") && text.contains("/device-1 read "), "{text}");
    data.run("query q06 --trace-format fio").fails(2, &["--trace <FILE>"]);
    data.run("query q06 --trace /nonexistent/t.csv").fails(1, &["/nonexistent/t.csv", "cannot be opened"]);
    data.run("cluster stop").succeeds();
}
