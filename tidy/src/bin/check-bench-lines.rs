//! Checks that every line of a benchmark's output can be compared with later ones.
//!
//! The program reads JSON lines from standard input. Each line must be an object that contains the
//! commit, the machine and the scale factor. Input without any line is a failure, too. `.ci/run`
//! calls this program, so it needs only the Rust toolchain.

#![forbid(unsafe_code)]

use std::io::{self, BufRead};
use std::process::ExitCode;

use serde_json::Value;

const KEYS: [&str; 3] = ["commit", "machine", "scale"];

fn main() -> ExitCode {
    let mut lines = 0_usize;
    for line in io::stdin().lock().lines() {
        lines += 1;
        if let Err(fault) = line.map_err(|error| error.to_string()).and_then(|line| check(&line)) {
            eprintln!("line {lines}: {fault}");
            return ExitCode::FAILURE;
        }
    }
    if lines == 0 {
        eprintln!("found no line, expected one JSON object per benchmark run");
        return ExitCode::FAILURE;
    }
    println!("{lines} benchmark lines, each with {}", KEYS.join(", "));
    ExitCode::SUCCESS
}

/// What is wrong with a line.
fn check(line: &str) -> Result<(), String> {
    let value: Value = serde_json::from_str(line).map_err(|error| format!("is not JSON: {error}: {line}"))?;
    let missing = |key: &&&str| value.get(**key).is_none_or(|found| found.is_null() || found == "");
    match KEYS.iter().find(missing) {
        Some(key) => Err(format!("has no \"{key}\": {line}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_line_that_cannot_be_compared_later_is_refused() {
        assert_eq!(check(r#"{"commit":"a1","machine":"m","scale":0.01,"ms":[4]}"#), Ok(()));
        for bad in
            ["", "{", "3", "[]", r#"{"commit":"a1","scale":1}"#, r#"{"commit":"","machine":"m","scale":1}"#]
        {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
