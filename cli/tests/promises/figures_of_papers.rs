//! Tests that the figures of a paper are measured by one command and drawn beside its numbers.

use super::support::Data;

#[test]
fn a_figure_of_a_paper_is_measured_and_drawn_by_one_command() {
    let data = Data::new("paper");
    let all = data.run("lab paper").succeeds();
    for known in ["4.19", "table 4.6", "ramp-with-rdma", "lab parity", "lab inbox"] {
        assert!(all.contains(known), "{known}: {all}");
    }
    data.run("lab paper redundant-writes --figure 5").fails(2, &["has no such figure", "expected 4, 9, 10"]);
    data.run("lab paper nobody").fails(2, &["ramp-with-rdma"]);
    let report = data.path().join("report");
    let report = report.display();
    let redraw = format!("lab paper redundant-writes --figure 9 --report {report} --redraw");
    data.run(&redraw).fails(1, &["there are no lines", "NAME.jsonl"]);
    let measured = data
        .run(&format!("lab paper redundant-writes --figure 9 --effort 0.01 --repeat 1 --report {report}"))
        .succeeds();
    assert!(measured.contains("Here: the best is"), "{measured}");
    let page = std::fs::read_to_string(data.path().join("report/index.html")).expect("a page");
    assert!(page.contains("Figure 9: ") && page.contains("rackscan lab parity"), "{page}");
    for file in ["relay.jsonl", "figures/figure-9.svg"] {
        assert!(data.path().join("report").join(file).exists(), "{file}");
    }
    let left = data.path().join("report").read_dir().expect("the report").flatten();
    let left: Vec<_> =
        left.filter(|entry| entry.file_name().to_string_lossy().starts_with("data-")).collect();
    assert!(left.is_empty(), "{left:?}");
    // The page is drawn again from the lines alone.
    assert!(data.run(&redraw).succeeds().contains("Here: the best is"));
}
