//! Tests that the folder of a report contains everything that the report shows.

use std::fs;

use rackscan_figures::{Axis, Chart, Figure, FigureError, Kind, Report, Scale, Section, Series, Table};
use serde_json::json;

fn figure(name: &str) -> Figure {
    let chart = Chart {
        title: "title".to_owned(),
        kind: Kind::Lines,
        x: Axis::of_bytes("size", Scale::Log2),
        y: Axis::new("IOPS", Scale::Linear),
        series: vec![Series::new("local", [(512.0, 1.0), (4096.0, 2.0)])],
    };
    Figure { name: name.to_owned(), caption: "what <b>one</b> sees".to_owned(), chart }
}

fn report(figures: Vec<Figure>) -> Report {
    let table = Table {
        caption: "best".to_owned(),
        head: vec!["size".to_owned(), "IOPS".to_owned()],
        rows: vec![vec!["4 KiB".to_owned(), "<2>".to_owned()]],
    };
    Report {
        title: "A & B".to_owned(),
        provenance: vec![("machine".to_owned(), "2 cores".to_owned())],
        sections: vec![Section {
            heading: "Reads".to_owned(),
            text: vec!["Words.".to_owned()],
            tables: vec![table],
            figures,
        }],
        points: vec![json!({"iops": 1}), json!({"iops": 2, "note": "a\nb"})],
    }
}

#[test]
fn a_report_has_a_page_pictures_in_two_forms_and_its_points() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("deep/report");
    let page = report(vec![figure("fig-4.2")]).write(&target).unwrap();
    assert_eq!(page, target.join("index.html"));
    let html = fs::read_to_string(&page).unwrap();
    for part in
        ["A &amp; B", "<dt>machine</dt><dd>2 cores</dd>", "<td>&lt;2&gt;</td>", "what &lt;b&gt;one", "<svg"]
    {
        assert!(html.contains(part), "no {part}");
    }
    let svg = fs::read_to_string(target.join("figures/fig-4.2.svg")).unwrap();
    assert!(html.contains(&svg), "the page shows the picture that lies beside it");
    assert!(fs::read(target.join("figures/fig-4.2.png")).unwrap().starts_with(b"\x89PNG"));
    let points = fs::read_to_string(target.join("points.jsonl")).unwrap();
    assert_eq!(points, "{\"iops\":1}\n{\"iops\":2,\"note\":\"a\\nb\"}\n");
}

#[test]
fn the_page_asks_for_nothing_from_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let page = report(vec![figure("a")]).write(folder.path()).unwrap();
    let html = fs::read_to_string(page).unwrap().replace("http://www.w3.org/2000/svg", "");
    for outside in ["http:", "https:", "<script", "<link", "@import", "url(", "src="] {
        assert!(!html.contains(outside), "the page has {outside}");
    }
    assert!(html.contains("prefers-color-scheme: dark"));
}

#[test]
fn names_that_leave_the_folder_or_meet_twice_are_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("report");
    for name in ["", "../a", "a/b", ".hidden", "A", "a b", &"a".repeat(101)] {
        let result = report(vec![figure(name)]).write(&target);
        assert!(matches!(result, Err(FigureError::BadName { .. })), "{name:?}");
    }
    let twice = report(vec![figure("a"), figure("a")]).write(&target);
    assert!(matches!(twice, Err(FigureError::NameTwice { name }) if name == "a"));
    let mut broken = figure("a");
    broken.chart.series[0].points[0].y = f64::NAN;
    assert!(matches!(report(vec![broken]).write(&target), Err(FigureError::NotFinite { .. })));
    assert!(!target.exists());
}

#[test]
fn a_row_that_does_not_fit_its_head_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut report = report(Vec::new());
    report.sections[0].tables[0].rows.push(vec!["alone".to_owned()]);
    let error = report.write(folder.path()).unwrap_err();
    assert!(matches!(error, FigureError::RaggedTable { row: 1, found: 1, expected: 2, .. }), "{error}");
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let error = report(Vec::new()).write(&file).unwrap_err();
    assert!(error.to_string().contains("file/figures"), "{error}");
}
