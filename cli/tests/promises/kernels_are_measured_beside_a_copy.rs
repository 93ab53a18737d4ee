//! Tests that `lab scan` measures kernels on one core next to a plain copy, and reports what is not
//! possible.

use super::support::Data;

#[test]
fn every_kernel_gets_a_rate_beside_a_copy_of_the_same_bytes() {
    let data = Data::new("bench-scan");
    let report = data.path().join("report");
    let ran = data.run(&format!(
        "lab scan --scale 0.001 --repeat 1 --turn-ms 0 --levels all --report {}",
        report.display()
    ));
    let lines: Vec<serde_json::Value> = ran
        .succeeds()
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is an object"))
        .collect();
    let kernels: std::collections::BTreeSet<&str> =
        lines.iter().filter_map(|line| line["kernel"].as_str()).collect();
    assert!(kernels.contains("unpack") && kernels.contains("checksum") && kernels.len() > 6, "{kernels:?}");
    for line in &lines {
        for key in ["bench", "command", "commit", "machine", "scale"] {
            assert!(!line[key].is_null(), "{key} in {line}");
        }
        for key in ["gb_per_s", "mrows_per_s", "copy_gb_per_s", "over_copy"] {
            assert!(line[key].as_f64().is_some_and(|rate| rate > 0.0), "{key} in {line}");
        }
    }
    assert!(ran.stderr().contains("one core") && ran.stderr().contains("over copy"), "{}", ran.stderr());
    assert!(report.join("figures/kernels.svg").exists());
}

#[test]
fn kernels_and_levels_that_are_not_there_are_named() {
    let data = Data::new("bench-scan-wrong");
    for (words, parts) in [
        ("--kernels nothing", ["nothing", "possible values"]),
        ("--levels v9", ["this machine has", "plain"]),
        ("--repeat 0", ["--repeat", "1..=1000"]),
        ("--scale 0", ["--scale", "above 0"]),
        ("--scale 5000", ["scale factor 5000", "at most"]),
    ] {
        data.run(&format!("lab scan {words}")).fails(2, &parts);
    }
    let one = data.run("lab scan --kernels checksum --scale 0.001 --repeat 1").succeeds();
    assert_eq!(one.lines().count(), 1, "{one}");
    let help = data.run("lab scan --help").succeeds();
    assert!(help.contains("Examples:"), "{help}");
}
