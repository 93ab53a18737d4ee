//! Mounts a small filesystem for a node's folder, so that a test can fill it. This needs root,
//! mount and mkfs.ext4.
//!
//! Invariants
//! - The filesystem is unmounted at the end.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

const UNMOUNT_TIME_MAX: Duration = Duration::from_secs(30);

/// A filesystem in a file, mounted.
pub(crate) struct Disk {
    image: PathBuf,
    at: PathBuf,
}

fn run(program: &str, words: &[&str]) -> Result<(), String> {
    let output = Command::new(program)
        .args(words)
        .output()
        .map_err(|error| format!("{program} does not start: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

impl Disk {
    /// Creates a filesystem of this size and mounts it, or says what is missing.
    pub(crate) fn new(image: PathBuf, at: PathBuf, bytes: u64) -> Result<Self, String> {
        std::fs::create_dir_all(&at).map_err(|error| error.to_string())?;
        let file = std::fs::File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(bytes).map_err(|error| error.to_string())?;
        run("mkfs.ext4", &["-q", "-F", "-m", "0", text(&image)])?;
        run("mount", &["-o", "loop", text(&image), text(&at)])?;
        Ok(Self { image, at })
    }

    /// Uses all free space except `but_bytes`.
    pub(crate) fn fill(&self, but_bytes: u64) {
        let stat = rustix::fs::statvfs(&self.at).expect("its size");
        let free = stat.f_bavail * stat.f_frsize;
        let file = std::fs::File::create(self.ballast()).expect("a file");
        let bytes = free.saturating_sub(but_bytes);
        // Nodes may use some of it meanwhile, so this may fail; then the disk is full enough.
        let _ = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes.max(1));
    }

    /// Frees the space.
    pub(crate) fn empty(&self) {
        let _ = std::fs::remove_file(self.ballast());
    }

    fn ballast(&self) -> PathBuf {
        self.at.join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The files of a killed process are closed only shortly after its end.
        let deadline = Instant::now() + UNMOUNT_TIME_MAX;
        let mut unmounted = run("umount", &[text(&self.at)]);
        while unmounted.is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(100));
            unmounted = run("umount", &[text(&self.at)]);
        }
        if let Err(problem) = unmounted {
            eprintln!("a filesystem stays mounted at {}: {problem}", self.at.display());
        }
        let _ = std::fs::remove_file(&self.image);
    }
}
