//! Tests the errors for files that are damaged, empty or of another format.

use std::{fs, path::Path};

use rackscan_trace::{
    Format, OnDefect, Place, ReadOptions, TraceError, TraceReader,
    limits::{DEFECTS_KEPT_MAX, LINE_BYTES_MAX},
};
use tempfile::TempDir;

use crate::{
    blktrace_bytes::{Event, QUEUE},
    open,
};

const HEADER: &str = "time_ns,node,device,offset_bytes,length_bytes,operation,table,column,thread\n";

fn strict() -> ReadOptions {
    ReadOptions { on_defect: OnDefect::Stop, ..ReadOptions::default() }
}

fn forced(format: Format) -> ReadOptions {
    ReadOptions { format: Some(format), ..ReadOptions::default() }
}

#[test]
fn malformed_lines_are_counted_and_named_and_strictness_stops_at_the_first() {
    let text = format!(
        "{HEADER}1,0,0,0,4096,read,t,c,\n2,0,0,0,0,read,,,\n3,0,0,0,x,read,,,\n4,0,0\n5,0,70000,0,512,read,,,\n\
         6,0,0,0,512,erase,,,\n7,0,0,18446744073709551615,512,read,,,\n8,0,0,0,99999999999,write,,,\n\
         9,0,0,0,512,read,\"t,,\n10,0,0,512,512,write,,,7\n"
    );
    let mut reader = open(text.as_bytes(), &ReadOptions::default()).unwrap();
    assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 2);
    let found: Vec<String> = reader.defects().first().iter().map(ToString::to_string).collect();
    let expected = [
        "t: line 3: a read of 0 bytes",
        "t: line 4: the length is \"x\"",
        "t: line 5: found 3 fields, expected 9",
        "t: line 6: the device is \"70000\"",
        "t: line 7: the operation is \"erase\"",
        "t: line 8: a read of 512 bytes at 18446744073709551615",
        "t: line 9: a write of 99999999999 bytes",
        "t: line 10: found a quote that does not end",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}");
    }
    let mut reader = open(text.as_bytes(), &strict()).unwrap();
    assert!(reader.next().unwrap().is_ok());
    let error = reader.next().unwrap().unwrap_err();
    assert!(matches!(&error, TraceError::Defect(defect) if defect.place == Place::Line(3)), "{error}");
    assert!(reader.next().is_none(), "nothing comes after an error");
    assert_eq!(reader.defects().count(), 1);
}

#[test]
fn many_defects_are_counted_and_few_are_kept() {
    let text = format!("{HEADER}1,0,0,0,4096,read,,,\n{}", "bad\n".repeat(5000));
    let mut reader = open(text.as_bytes(), &ReadOptions::default()).unwrap();
    assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 1);
    assert_eq!((reader.defects().count(), reader.defects().first().len()), (5000, DEFECTS_KEPT_MAX));
    let text = reader.defects().to_string();
    assert!(text.contains("5000 refused, 4990 of them not shown"), "{text}");
}

#[test]
fn a_file_without_any_record_is_an_error() {
    let only_header = open(HEADER.as_bytes(), &ReadOptions::default()).unwrap().next().unwrap().unwrap_err();
    assert!(matches!(only_header, TraceError::NoRecords { .. }), "{only_header}");
    let text = format!("{HEADER}{}", "bad\n".repeat(3));
    let only_bad = open(text.as_bytes(), &ReadOptions::default()).unwrap().next().unwrap().unwrap_err();
    let message = only_bad.to_string();
    assert!(message.contains("none of the first 3") && message.contains("line 2"), "{message}");
}

#[test]
fn a_file_of_another_format_is_given_up_soon() {
    let text = format!("{HEADER}{}", "bad\n".repeat(100_000));
    let mut reader = open(text.as_bytes(), &ReadOptions::default()).unwrap();
    assert!(reader.next().unwrap().is_err());
    assert_eq!(reader.defects().count(), 1000);
}

#[test]
fn a_binary_file_given_as_text_and_text_given_as_binary_are_told() {
    let binary: Vec<u8> = (0..50).flat_map(|time| Event::new(time, QUEUE, 8, 512).encode(false)).collect();
    for format in [Format::Csv, Format::Fio] {
        let error = open(&binary, &forced(format)).err().unwrap().to_string();
        assert!(error.contains("t: is not"), "{format:?}: {error}");
    }
    for format in [Format::Msr, Format::Spc, Format::Blkparse] {
        let error = open(&binary, &forced(format)).unwrap().next().unwrap().unwrap_err().to_string();
        assert!(error.contains("is the file binary?"), "{format:?}: {error}");
    }
    let error = open(&binary, &forced(Format::Generic)).err().unwrap().to_string();
    assert!(error.contains("no column is known"), "{error}");
    let error = open(HEADER.as_bytes(), &forced(Format::Blktrace)).err().unwrap().to_string();
    assert!(error.contains("74 69 6d 65, expected 07 74 61 65"), "{error}");
}

#[test]
fn a_huge_line_is_one_defect() {
    let text = format!("{HEADER}{}\n1,0,0,0,4096,read,,,\n", "x".repeat(5 * LINE_BYTES_MAX));
    let mut reader = open(text.as_bytes(), &ReadOptions::default()).unwrap();
    assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 1);
    assert!(reader.defects().to_string().contains("line 2: a line of 327681 bytes"), "{}", reader.defects());
}

#[test]
fn a_truncated_last_line_is_refused_with_its_number() {
    let text = format!("{HEADER}1,0,0,0,4096,read,,,\n2,0,0,40");
    let mut reader = open(text.as_bytes(), &ReadOptions::default()).unwrap();
    assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 1);
    assert!(reader.defects().to_string().contains("line 3: found 4 fields"), "{}", reader.defects());
}

#[test]
fn times_years_after_the_beginning_are_refused() {
    let text = "ts_s,offset,length,op\n5,0,512,R\n1700000000,0,512,R\n6,0,512,R\n";
    let mut reader = open(text.as_bytes(), &ReadOptions::default()).unwrap();
    assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 2);
    assert!(reader.defects().to_string().contains("line 3: a time of 1699999995 s"), "{}", reader.defects());
}

#[test]
fn folders_and_empty_files_are_told() {
    let folder = TempDir::new().unwrap();
    let open = |path: &Path| TraceReader::open(path, &ReadOptions::default()).err().unwrap().to_string();
    assert!(open(folder.path()).contains("it is a folder"));
    let empty = folder.path().join("empty.csv");
    fs::write(&empty, "").unwrap();
    assert!(open(&empty).contains("empty.csv: the file is empty"));
    let empty = folder.path().join("sda.blktrace.0");
    fs::write(&empty, "").unwrap();
    assert!(open(&empty).contains("sda.blktrace.0: the file is empty"));
}
