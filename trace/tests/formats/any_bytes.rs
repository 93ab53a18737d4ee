//! Tests that no file makes a reader panic, hang or return an impossible record.
//!
//! Method: arbitrary bytes, and valid traces with some bytes changed, are read by every reader, in
//! both modes (stop at the first defect, or skip defects).

use proptest::prelude::*;
use rackscan_trace::{Format, OnDefect, ReadOptions};

use crate::{
    blktrace_bytes::{Event, ISSUE, QUEUE},
    open,
};

const SEEDS: [&str; 5] = [
    "time_ns,node,device,offset_bytes,length_bytes,operation,table,column,thread\n1,0,0,0,4096,read,\"t\",c,1\n2,1,1,8,512,write,,,\n",
    "fio version 3 iolog\n0 /dev/sda add\n1 /dev/sda read 0 4096\n2 /dev/sda wait 0 1\n3 /dev/sda close\n",
    "fio version 2 iolog\n/dev/sda add\n/dev/sda wait 18446744073709551615 0\n/dev/sda read 0 4096\n",
    "  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [k]\n  8,0 3 2 0.1 697  Q F [k]\nCPU0 (8,0):\n x\n",
    "128166372003061629,hm,0,Read,383496192,32768,31954\n128166372003061630,hm,0,Write,0,512,1\n",
];

/// Reads to the end under every format and in both modes.
fn survive(bytes: &[u8]) {
    for format in [None].into_iter().chain(Format::ALL.map(Some)) {
        for on_defect in [OnDefect::Skip, OnDefect::Stop] {
            let columns = (format == Some(Format::Generic))
                .then(|| "time=1,offset=2,length=3,op=4".parse().expect("columns"));
            let options = ReadOptions { format, on_defect, columns, ..ReadOptions::default() };
            let Ok(reader) = open(bytes, &options) else { continue };
            // Each record or error takes at least one byte.
            let entries: Vec<_> = reader.take(bytes.len() + 2).collect();
            assert!(entries.len() <= bytes.len() + 1);
            assert!(entries.iter().flatten().all(|record| record.verify().is_ok()));
            assert!(entries.iter().rev().skip(1).all(Result::is_ok), "an error ends the trace");
        }
    }
}

fn with_changes(
    mut bytes: Vec<u8>,
    changes: &[(prop::sample::Index, u8)],
    cut: prop::sample::Index,
) -> Vec<u8> {
    for (place, byte) in changes {
        let place = place.index(bytes.len());
        bytes[place] = *byte;
    }
    bytes.truncate(cut.index(bytes.len()) + 1);
    bytes
}

fn blktrace() -> Vec<u8> {
    let events = (0..20).map(|time| Event {
        payload: if time % 3 == 0 { b"payload" } else { b"" },
        ..Event::new(time, if time % 2 == 0 { QUEUE } else { ISSUE }, time * 8, 4096)
    });
    events.flat_map(|event| event.encode(false)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        survive(&bytes);
    }

    #[test]
    fn arbitrary_text_is_survived(text in "[0-9a-zR W,;.+\"\\n\\r\\t-]{0,1000}") {
        survive(text.as_bytes());
    }

    #[test]
    fn damaged_texts_are_survived(
        seed in 0..SEEDS.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        survive(&with_changes(SEEDS[seed].as_bytes().to_vec(), &changes, cut));
    }

    #[test]
    fn damaged_binaries_are_survived(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        survive(&with_changes(blktrace(), &changes, cut));
    }
}
