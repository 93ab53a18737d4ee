//! Tests that the kernel measurement returns a line for each kernel, and that it can end early or
//! be refused.

use super::*;
use std::collections::BTreeSet;

fn kernels(only: &[&str], scale: f64, rounds: u32) -> Kernels {
    let only = only.iter().map(|name| (*name).to_owned()).collect();
    let (turn, provenance) = (Duration::from_micros(100), Provenance::now("scan", scale));
    Kernels { rounds, turn, levels: Level::available(), only, provenance }
}

#[test]
fn every_kernel_has_a_line_for_each_level_that_makes_a_difference() {
    let outcome = kernels(&[], 0.001, 1).run(&AtomicBool::new(false), &mut |_| ());
    assert!(outcome.failure.is_none() && !outcome.stopped, "{:?}", outcome.failure);
    let found: BTreeSet<&str> = outcome.lines.iter().map(|line| line.kernel).collect();
    assert_eq!(found, names().into_iter().collect());
    let levels = Level::available().len();
    for kernel in ["unpack", "q1", "rows-half"] {
        let lines = outcome.lines.iter().filter(|line| line.kernel == kernel).count();
        let details = if kernel == "unpack" { WIDTHS.len() } else { 1 };
        assert_eq!(lines, levels * details, "{kernel}");
    }
    assert_eq!(outcome.lines.iter().filter(|line| line.kernel == "wire-decode").count(), 1);
    for line in &outcome.lines {
        let name = (line.kernel, &line.detail);
        assert!(line.gb_per_s > 0.0 && line.mrows_per_s > 0.0 && line.over_copy > 0.0, "{name:?}");
        assert!(line.rows_out > 0 && line.checksum_ms <= line.median_ms, "{name:?}");
        assert!(line.ms.len() == 1 && line.partial.is_none(), "{name:?}");
    }
    let eight = outcome.lines.iter().find(|line| line.detail == "8 bits").unwrap();
    // The values, 128 bytes of header for each page, and the padding.
    assert!((1_048_576..1_200_000).contains(&eight.bytes) && eight.rows == 1_048_576, "{}", eight.bytes);
    let page = report(&outcome.lines, &Provenance::now("scan", 0.001));
    assert_eq!(page.sections[0].tables[0].rows.len(), outcome.lines.len());
    assert_eq!(page.points.len(), outcome.lines.len());
    let folder = tempfile::tempdir().unwrap();
    page.write(folder.path()).unwrap();
}

#[test]
fn scans_give_the_rows_that_their_names_promise() {
    let only = ["rows", "rows-half", "rows-few", "group-direct", "q1", "q6", "checksum"];
    let outcome = kernels(&only, 0.01, 1).run(&AtomicBool::new(false), &mut |_| ());
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    let share = |kernel: &str| {
        let line = outcome.lines.iter().find(|line| line.kernel == kernel).unwrap();
        line.rows_out as f64 / line.rows as f64
    };
    let out = |kernel| outcome.lines.iter().find(|line| line.kernel == kernel).unwrap().rows_out;
    assert_eq!((out("q1"), out("q6"), out("group-direct")), (4, 1, 7));
    assert!((share("rows") - 1.0).abs() < 1e-9 && (share("checksum") - 1.0).abs() < 1e-9);
    assert!((share("rows-half") - 0.5).abs() < 0.02 && (share("rows-few") - 0.02).abs() < 0.005);
}

#[test]
fn what_cannot_be_measured_is_said_before_anything_is_made() {
    let stop = AtomicBool::new(false);
    let told = |kernels: &Kernels| {
        let mut steps = 0;
        let failure = kernels.run(&stop, &mut |_| steps += 1).failure.unwrap().to_string();
        assert_eq!(steps, 0, "{failure}");
        failure
    };
    let unknown = told(&kernels(&["q1", "speed"], 0.01, 1));
    assert!(unknown.contains("\"speed\"") && unknown.contains("like-dictionary"), "{unknown}");
    assert!(told(&kernels(&[], 1e6, 1)).contains("scale factor 1000000"));
    assert!(told(&kernels(&[], f64::NAN, 1)).contains("scale factor NaN"));
    assert!(told(&kernels(&[], 0.01, 0)).contains("0 turns"));
}

#[test]
fn what_was_measured_before_the_end_was_asked_for_is_kept() {
    let stop = AtomicBool::new(false);
    let mut steps = 0;
    let outcome = kernels(&["unpack"], 0.01, 2).run(&stop, &mut |step| {
        steps += 1;
        stop.store(step.done == 2, Ordering::Relaxed);
    });
    assert!(outcome.stopped && outcome.failure.is_none() && steps == 3);
    let whole = outcome.lines.iter().filter(|line| line.partial.is_none()).count();
    assert_eq!(whole, 2 * Level::available().len());
    assert_eq!(outcome.lines.last().map(|line| (line.ms.len(), line.partial.is_some())), Some((1, true)));
}
