//! Tests that the text formats of other programs are read with the meaning that these programs
//! define.

use rackscan_trace::{
    Format, OffsetUnit,
    Operation::{Discard, Flush, Read, Write},
    ReadOptions, TimeUnit,
};

use crate::{briefs, open, records};

const MS: u64 = 1_000_000;
const US: u64 = 1000;

#[test]
fn an_iolog_of_version_2_waits_in_microseconds_since_the_wait_before() {
    let text = "fio version 2 iolog\n/dev/sda add\n/dev/sdb add\n/dev/sda open\n/dev/sdb open\n\
                /dev/sda read 4096 8192\n/dev/sda wait 1500 0\n/dev/sdb write 0 512\n/dev/sda wait 99 0\n\
                /dev/sdb sync 0 0\n/dev/sda wait 100 0\n/dev/sda trim 65536 4096\n/dev/sda datasync 0 0\n\
                /dev/sda close\n/dev/sdb close\n";
    let expected = [
        (0, 0, 0, 4096, 8192, Read),
        (1500 * US, 0, 1, 0, 512, Write),
        (1500 * US, 0, 1, 0, 0, Flush),
        (1600 * US, 0, 0, 65536, 4096, Discard),
        (1600 * US, 0, 0, 0, 0, Flush),
    ];
    assert_eq!(briefs(text.as_bytes(), &ReadOptions::default()), expected);
    let mut reader = open(text.as_bytes(), &ReadOptions::default()).unwrap();
    assert_eq!(reader.by_ref().count(), 5);
    let names: Vec<_> = reader.devices().iter().map(|named| (named.device, named.name.as_str())).collect();
    assert_eq!(names, [(0, "/dev/sda"), (1, "/dev/sdb")]);
    assert_eq!(reader.units().time, TimeUnit::Microseconds);
}

#[test]
fn an_iolog_of_version_3_has_microseconds_unless_another_unit_is_asked_for() {
    let text = "fio version 3 iolog\n0 /dev/nvme0n1 add\n2 /dev/nvme0n1 open\n\
                150 /dev/nvme0n1 read 1048576 131072\n1201 /dev/nvme0n1 write 512 512\n1300 /dev/nvme0n1 close\n";
    let expected = [(150 * US, 0, 0, 1 << 20, 128 << 10, Read), (1201 * US, 0, 0, 512, 512, Write)];
    assert_eq!(briefs(text.as_bytes(), &ReadOptions::default()), expected);
    let in_ms = ReadOptions { time_unit: Some(TimeUnit::Milliseconds), ..ReadOptions::default() };
    assert_eq!(briefs(text.as_bytes(), &in_ms)[1].0, 1201 * MS);
}

#[test]
fn lines_of_an_iolog_that_fio_would_not_take_are_refused() {
    let text = "fio version 3 iolog\n0 /dev/sda add\n5 /dev/sda read 0 4096\n6 /dev/sdb read 0 4096\n\
                7 /dev/sda wait 100 0\n8 /dev/sda copy 0 4096\n9 /dev/sda read 0\n10 /dev/sdc open\n\
                x /dev/sda read 0 4096\n11 /dev/sda read -1 4096\n";
    let mut reader = open(text.as_bytes(), &ReadOptions::default()).unwrap();
    assert_eq!(reader.by_ref().count(), 1);
    let found: Vec<String> = reader.defects().first().iter().map(ToString::to_string).collect();
    let expected = [
        ("t: line 4: ", "\"/dev/sdb\", which no earlier line adds"),
        ("t: line 5: ", "wait, which version 3"),
        ("t: line 6: ", "\"copy\""),
        ("t: line 7: ", "expected TIME FILE ACTION"),
        ("t: line 8: ", "cannot open the file \"/dev/sdc\""),
        ("t: line 9: ", "the time is \"x\""),
        ("t: line 10: ", "the offset is \"-1\""),
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, (place, what)) in found.iter().zip(expected) {
        assert!(found.starts_with(place) && found.contains(what), "{found}");
    }
}

/// As `blktrace -d /dev/sda -o - | blkparse -i -` prints.
const BLKPARSE: &str = "  8,0    3        1     0.000000000   697  A   W 223490 + 8 <- (8,1) 223427
  8,1    3        2     0.000001829   697  Q   W 223490 + 8 [kjournald]
  8,1    3        3     0.000004000   697  G   W 223490 + 8 [kjournald]
  8,1    3        4     0.000005500   697  P   N [kjournald]
  8,1    3        5     0.000009000   697  D   W 223490 + 8 [kjournald]
  8,0    1        6     0.000100000  1021  Q  RA 1000 + 256 [my prog]
  8,0    1        0     0.000150000     0  m   N cfq1021 slice expired t=0
  8,0    1        7     0.000200000  1021  Q FWS [my prog]
  8,0    1        8     0.000300000  1021  Q  DS 4096 + 2048 [fstrim]
  8,0    1        9     1.000000001     0  C   W 223490 + 8 [0]
CPU1 (8,0):
 Reads Queued:           1,      128KiB\t Writes Queued:           1,        4KiB
Throughput (R/W): 0KiB/s / 0KiB/s
Events (8,0): 10 entries
Skips: 0 forward (0 -   0.0%)
";

#[test]
fn blkparse_is_read_by_its_queue_events() {
    let expected = [
        (1829, 0, 0, 223_490 * 512, 4096, Write),
        (100 * US, 0, 1, 512_000, 128 << 10, Read),
        (200 * US, 0, 1, 0, 0, Flush),
        (300 * US, 0, 1, 4096 * 512, 1 << 20, Discard),
    ];
    assert_eq!(briefs(BLKPARSE.as_bytes(), &ReadOptions::default()), expected);
    assert_eq!(records(BLKPARSE.as_bytes(), &ReadOptions::default())[1].thread, Some(1021));
    let mut reader = open(BLKPARSE.as_bytes(), &ReadOptions::default()).unwrap();
    assert_eq!(reader.by_ref().count(), 4);
    assert_eq!(reader.format(), Format::Blkparse);
    let names: Vec<&str> = reader.devices().iter().map(|named| named.name.as_str()).collect();
    assert_eq!(names, ["8,1", "8,0"]);
    assert!(reader.units().to_string().contains("Q event"), "{}", reader.units());
}

#[test]
fn blkparse_without_queue_events_is_read_by_its_issue_events() {
    let text: String =
        BLKPARSE.lines().filter(|line| !line.contains(" Q ")).map(|line| format!("{line}\n")).collect();
    assert_eq!(briefs(text.as_bytes(), &ReadOptions::default()), [(9000, 0, 0, 223_490 * 512, 4096, Write)]);
    let reader = open(text.as_bytes(), &ReadOptions::default()).unwrap();
    assert!(reader.units().to_string().contains("D event"), "{}", reader.units());
}

#[test]
fn an_msr_trace_counts_100_nanoseconds_since_its_first_record() {
    let text = "128166372003061629,hm,0,Read,383496192,32768,31954\r\n\
                128166372003061639,hm,1,Write,4096,512,100\r\n128166372016382155,usr,0,Write,2822144,4096,59051\r\n";
    let expected = [
        (0, 0, 0, 383_496_192, 32768, Read),
        (1000, 0, 1, 4096, 512, Write),
        (13_320_526 * 100, 1, 0, 2_822_144, 4096, Write),
    ];
    assert_eq!(briefs(text.as_bytes(), &ReadOptions::default()), expected);
    let mut reader = open(text.as_bytes(), &ReadOptions::default()).unwrap();
    assert_eq!((reader.by_ref().count(), reader.format()), (3, Format::Msr));
    let names: Vec<&str> = reader.devices().iter().map(|named| named.name.as_str()).collect();
    assert_eq!(names, ["hm 0", "hm 1", "usr 0"]);
}

#[test]
fn an_spc_trace_counts_sectors_in_offsets_and_bytes_in_lengths() {
    let text = "0,20941312,8192,W,0.551706\n0,20939776,8192,W,0.554041\n1,3072,1536,r,0.556202\n";
    let expected = [
        (0, 0, 0, 20_941_312 * 512, 8192, Write),
        (2335 * US, 0, 0, 20_939_776 * 512, 8192, Write),
        (4496 * US, 0, 1, 3072 * 512, 1536, Read),
    ];
    assert_eq!(briefs(text.as_bytes(), &ReadOptions::default()), expected);
    let mut reader = open(text.as_bytes(), &ReadOptions::default()).unwrap();
    assert_eq!((reader.by_ref().count(), reader.format()), (3, Format::Spc));
    let units = reader.units().to_string();
    assert!(units.contains("offsets in sectors") && units.contains("lengths in bytes"), "{units}");
    let bytes = ReadOptions { offset_unit: Some(OffsetUnit::Bytes), ..ReadOptions::default() };
    let error = open(text.as_bytes(), &bytes).err().unwrap().to_string();
    assert!(error.contains("SPC") && error.contains("defines it"), "{error}");
    let cut = "0,20941312,8192,W,0.551706\n0,20939776,8192,W\n";
    let mut reader = open(cut.as_bytes(), &ReadOptions::default()).unwrap();
    assert_eq!((reader.by_ref().filter(Result::is_ok).count(), reader.defects().count()), (1, 1));
}

#[test]
fn a_csv_with_named_columns_is_read_in_the_units_that_it_shows() {
    let text = "\u{feff}ts;disk;lba;nsectors;rw;comment\r\n1700000000.000100;sda;8;16;R;\"a;b\"\r\n\
                1700000000.0002;sdb;17;1;W;\r\n\r\n1700000001.5;sda;0;8;r;x\r\n";
    let expected = [
        (0, 0, 0, 4096, 8192, Read),
        (100 * US, 0, 1, 17 * 512, 512, Write),
        (1_499_900 * US, 0, 0, 0, 4096, Read),
    ];
    assert_eq!(briefs(text.as_bytes(), &ReadOptions::default()), expected);
    let reader = open(text.as_bytes(), &ReadOptions::default()).unwrap();
    let units = reader.units();
    assert_eq!(
        (reader.format(), units.time, units.offset),
        (Format::Generic, TimeUnit::Seconds, OffsetUnit::Sectors)
    );
    assert!(units.to_string().contains("\"lba\""), "{units}");
}

#[test]
fn the_user_names_columns_and_units() {
    let text = "7,x,10,4096,8192,1\n9,x,12,0,512,0\n";
    let options = ReadOptions {
        columns: Some("time=3,offset=4,length=5,op=6,thread=1".parse().unwrap()),
        time_unit: Some(TimeUnit::Milliseconds),
        offset_unit: Some(OffsetUnit::Bytes),
        ..ReadOptions::default()
    };
    assert_eq!(
        briefs(text.as_bytes(), &options),
        [(0, 0, 0, 4096, 8192, Write), (2 * MS, 0, 0, 0, 512, Read)]
    );
    assert_eq!(records(text.as_bytes(), &options)[0].thread, Some(7));
    let error = open(text.as_bytes(), &ReadOptions::default()).err().unwrap().to_string();
    assert!(error.contains("no known format"), "{error}");
}

#[test]
fn a_record_before_the_first_is_at_the_beginning_and_counted() {
    let text = "ts_ms,offset,length,op\n50,0,512,R\n40,512,512,R\n60,1024,512,R\n";
    let mut reader = open(text.as_bytes(), &ReadOptions::default()).unwrap();
    let times: Vec<u64> = reader.by_ref().map(|record| crate::brief(&record.unwrap()).0).collect();
    assert_eq!(times, [0, 0, 10 * MS]);
    assert_eq!(reader.out_of_order(), 0, "at the beginning it is not late");
    let text = "ts_ms,offset,length,op\n50,0,512,R\n70,512,512,R\n60,1024,512,R\n";
    let mut reader = open(text.as_bytes(), &ReadOptions::default()).unwrap();
    assert_eq!((reader.by_ref().count(), reader.out_of_order()), (3, 1));
}
