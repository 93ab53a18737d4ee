//! Tests that the format is recognized from a file's beginning.

use rackscan_trace::{Format, ReadOptions, TraceError};

use crate::{
    blktrace_bytes::{Event, QUEUE},
    open,
};

fn detected(bytes: &[u8]) -> Result<Format, TraceError> {
    open(bytes, &ReadOptions::default()).map(|reader| reader.format())
}

#[test]
fn every_format_is_told_from_its_beginning() {
    let blktrace = Event::new(1, QUEUE, 0, 512).encode(true);
    let cases: [(&[u8], Format); 10] = [
        (b"time_ns,node,device,offset_bytes,length_bytes,operation,table,column,thread\n", Format::Csv),
        (b"\xef\xbb\xbfoperation,length_bytes,offset_bytes,device,node,time_ns\r\n", Format::Csv),
        (b"fio version 2 iolog\n", Format::Fio),
        (b"fio version 3 iolog\r\n", Format::Fio),
        (b"  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n", Format::Blkparse),
        (b"128166372003061629,hm,0,Read,383496192,32768,31954\n", Format::Msr),
        (b"0,20941312,8192,W,0.551706\n", Format::Spc),
        (b"3,20941312,8192,r,10.5,64,7\n", Format::Spc),
        (b"Timestamp,Offset,Size,Type\n", Format::Generic),
        (&blktrace, Format::Blktrace),
    ];
    for (bytes, format) in cases {
        assert_eq!(detected(bytes).unwrap(), format);
    }
}

#[test]
fn what_no_format_begins_with_is_shown() {
    let cases: [(&[u8], &str); 6] = [
        (b"hello world\n", "\"hello world\""),
        (b"\x7fELF\x02\x01\x01\0\0\0\0\0", "7f 45 4c 46"),
        (b"\x1f\x8b\x08\x00", "compressed with gzip"),
        (b"\x28\xb5\x2f\xfd\x00", "compressed with zstd"),
        (b"fio version 4 iolog\n", "\"fio version 4 iolog\""),
        (b"", "the file is empty"),
    ];
    for (bytes, expected) in cases {
        let error = detected(bytes).unwrap_err().to_string();
        assert!(error.contains(expected) && error.starts_with("t: "), "{error}");
    }
}
