//! Files that a user loads: every row as it was written, or an error that leads to what cannot be
//! read.

use super::support::Data;

#[test]
fn a_csv_file_is_loaded_in_the_dialect_that_the_user_names_or_refused_with_the_line() {
    let data = Data::new("csv");
    let films = data.path().join("films.tsv");
    let text = "id\ttitle\n1\tplain\n2\t\"Nick\" and Nora\n3\t\"open quote\n4\tfour\n5\tsix\" end\n6\tNA\n";
    std::fs::write(&films, text).expect("a file");
    let file = films.to_str().expect("a path of text");
    let load = ["load", "csv", file, "--table", "films", "--partition-by", "id", "--delimiter", "tab"];
    data.run_words(&load, "")
        .fails(1, &["line 3, column \"title\"", "the quote that opens here", "--quote none"]);

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
