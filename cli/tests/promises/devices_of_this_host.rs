//! Tests that `lab device` measures files and block devices, and overwrites nothing that holds
//! data.

use super::support::Data;
use std::path::PathBuf;
use std::process::Command;

/// A block device over a file, detached with this value.
struct LoopDevice(String);

impl LoopDevice {
    /// `None` without root, or where the kernel has no loop devices.
    fn over(file: &std::path::Path) -> Option<Self> {
        std::fs::File::create(file).expect("a file").set_len(32 << 20).expect("its size");
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output().ok()?;
        let path = String::from_utf8_lossy(&made.stdout).trim().to_owned();
        (made.status.success() && !path.is_empty()).then_some(Self(path))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detached = Command::new("losetup").arg("--detach").arg(&self.0).status();
        assert!(detached.is_ok_and(|status| status.success()) || std::thread::panicking(), "{}", self.0);
    }
}

#[test]
fn a_device_is_measured_under_every_workload_and_its_files_are_readable() {
    let data = Data::new("device");
    let folder = data.path().display().to_string();
    let out = |name: &str| data.path().join(name).display().to_string();
    let ran = data.run(&format!(
        "lab device --folder {folder} --file-size 16MiB --workloads read,write,mix:50 --patterns random,sequential,zipf:0.9 \
         --sizes 4KiB --jobs 2 --depths 4 --engines uring,pread --fsync-every 8 --verify --seconds 0.05 --warm-up 0 --repeat 2 \
         --intervals 10ms --events --p99-below 60s --percentiles {} --report {} --json {}",
        out("percentiles"),
        out("report"),
        out("lines.jsonl")
    ));
    let table = ran.succeeds();
    for known in ["mix:50", "sequential", "zipf:0.9", "pread", "verified", "fsync p99 us", "switches/IO"] {
        assert!(table.contains(known), "{known}: {table}");
    }
    let told = ran.stderr();
    assert!(told.contains("most IOs per second with a 99th percentile below 60s"), "{told}");
    let lines = std::fs::read_to_string(data.path().join("lines.jsonl")).expect("lines");
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    // Three workloads, three patterns, two engines.
    assert_eq!(lines.iter().filter(|line| line["workload"].is_string()).count(), 3 * 3 * 2);
    assert!(lines.iter().any(|line| line["at_ms"].is_number()), "intervals");
    assert!(data.path().join("report/index.html").exists());
    let distribution = data.path().join("percentiles/read-random-4096-2x4-uring.hgrm");
    assert!(std::fs::read_to_string(&distribution).expect("a distribution").contains("#[Max"));
    let left: Vec<PathBuf> = data
        .path()
        .read_dir()
        .expect("the folder")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().contains("rackscan-lab-device"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_block_device_is_overwritten_only_when_told_and_when_it_holds_nothing() {
    let data = Data::new("loops");
    std::fs::create_dir_all(data.path()).expect("a folder");
    let (one, two) = (data.path().join("one"), data.path().join("two"));
    let (Some(one), Some(two)) = (LoopDevice::over(&one), LoopDevice::over(&two)) else {
        eprintln!("skipped: no loop devices here");
        return;
    };
    let devices = format!("{},{}", one.0, two.0);
    let quick = "--depths 4 --seconds 0.05 --warm-up 0 --repeat 1";
    let write = format!("lab device --devices {devices} --workloads write --verify {quick}");
    data.run(&write).fails(2, &["overwrites the devices", "--overwrite"]);
    assert!(data.run(&format!("{write} --overwrite")).succeeds().contains("verified"));
    let read = format!("lab device --devices {devices} --layout per-thread --jobs 2 {quick}");
    assert!(data.run(&read).succeeds().contains("read"));
    let made = Command::new("mkfs.ext4").args(["-q", &two.0]).status().expect("mkfs.ext4");
    assert!(made.success());
    data.run(&format!("{write} --overwrite")).fails(1, &[&two.0, "a filesystem (ext4)", "wipefs"]);
}

#[test]
fn a_job_file_of_fio_is_measured_or_refused_by_its_line() {
    let data = Data::new("job");
    std::fs::create_dir_all(data.path()).expect("a folder");
    let job = data.path().join("read.fio");
    let text = |more: &str| {
        let folder = data.path().display();
        format!(
            "[global]\ndirect=1\nioengine=io_uring\ndirectory={folder}\nsize=8m\n[first]\nrw=randread\n{more}"
        )
    };
    std::fs::write(&job, text("iodepth=4\n[second]\nstonewall\nrw=randwrite\nbs=8k\n")).expect("a job");
    let command = format!("lab device --job {} --repeat 1", job.display());
    let table = data.run(&command).succeeds();
    assert!(table.contains("read") && table.contains("write") && table.contains("8"), "{table}");
    std::fs::write(&job, text("thinktime=10\n")).expect("a job");
    data.run(&command).fails(2, &["line 8", "thinktime", "is not known here"]);
    std::fs::write(&job, text("iodepth=0\n")).expect("a job");
    data.run(&command).fails(2, &["line 8", "iodepth=0"]);
}
