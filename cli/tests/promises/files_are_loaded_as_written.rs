//! Tests loads of files: every row is stored as it was written, or an error says where the file
//! cannot be read.

use super::support::Data;
use std::{
    fmt::Write,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

#[test]
fn a_csv_file_is_loaded_in_the_dialect_that_the_user_names_or_refused_with_the_line() {
    let data = Data::new("csv");
    let films = data.path().join("films.tsv");
    let text = "id\ttitle\n1\tplain\n2\t\"Nick\" and Nora\n3\t\"open quote\n4\tfour\n5\tsix\" end\n6\tNA\n";
    std::fs::write(&films, text).expect("a file");
    let file = films.to_str().expect("a path of text");
    let load = ["load", "csv", file, "--table", "films", "--partition-by", "id", "--delimiter", "tab"];
    data.run_words(&load, "").fails(
        1,
        &["line 3, column \"title\"", "the quote that opens here", "--quote none", "SQLSTATE 22P04"],
    );

    let as_written = [&load[..], &["--quote", "none", "--null", "NA"]].concat();
    let loaded = data.run_words(&as_written, "");
    loaded.succeeds();
    assert!(loaded.stderr().contains("loaded films: 6 rows read, 6 stored; "), "{}", loaded.stderr());
    let titles = "select count(*), count(title), sum(length(title)) from films";
    assert_eq!(
        data.run_words(&["sql", titles, "--format", "csv"], "").succeeds().lines().nth(1),
        Some("6,5,43")
    );

    let rejected = data.path().join("rejected.csv");
    let reject = [&load[..], &["--reject", rejected.to_str().expect("a path of text")]].concat();
    let loaded = data.run_words(&reject, "");
    loaded.succeeds();
    assert!(
        loaded.stderr().contains("loaded films: 6 rows read, 4 stored, 2 rejected; "),
        "{}",
        loaded.stderr()
    );
    let told = std::fs::read_to_string(&rejected).expect("rejected rows");
    assert!(told.starts_with("line,column,reason,row\n3,\"title\","), "{told}");
    assert_eq!(told.lines().count(), 3);

    data.run_words(&[&load[..], &["--quote", "xy"]].concat(), "")
        .fails(2, &["expected one ASCII character, or none"]);
    data.run_words(&[&load[..], &["--encoding", "klingon"]].concat(), "").fails(2, &["windows-1252"]);
}

/// Loads a file with little memory. Returns the process's peak of private memory in bytes.
fn peak_of_load(data: &Data, file: &Path) -> u64 {
    let mut load = Command::new(env!("CARGO_BIN_EXE_rackscan"));
    load.arg("--data").arg(data.path().join("data")).args(["--memory", "64MiB", "load", "csv"]).arg(file);
    load.args(["--table", "wide", "--partition-by", "id"]).stderr(Stdio::null());
    let mut load = load.spawn().expect("the program starts");
    let status = format!("/proc/{}/status", load.id());
    let mut peak = 0;
    let ended = loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).map_or(Ok(0), str::parse::<u64>);
        peak = peak.max(kib.expect("a number") << 10);
        if let Some(ended) = load.try_wait().expect("it is waited for") {
            break ended;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(ended.success(), "{ended}");
    peak
}

#[test]
fn a_load_of_wide_rows_holds_no_more_than_the_memory_it_was_given() {
    let data = Data::new("wide-rows");
    let (tiny, wide) = (data.path().join("tiny.csv"), data.path().join("wide.csv"));
    std::fs::write(&tiny, "id,text\n1,a\n2,b\n").expect("a file");
    // Digits that compress badly: 128 MiB.
    let (mut text, mut digits) = (String::from("id,text\n"), 1_u64);
    for id in 0..32_768 {
        write!(text, "{id},").expect("a text");
        for _ in 0..256 {
            digits = digits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            write!(text, "{digits:016x}").expect("a text");
        }
        text.push('\n');
    }
    std::fs::write(&wide, &text).expect("a file");
    let (of_tiny, of_wide) = (peak_of_load(&data, &tiny), peak_of_load(&data, &wide));
    println!("{} and {} MiB", of_tiny >> 20, of_wide >> 20);
    assert!(of_wide < of_tiny + (100 << 20), "{of_wide} bytes, {of_tiny} for two rows");
}
