//! Tests that every record of a trace becomes requests inside the target's areas, or is counted as
//! left out with a reason.

use std::time::Duration;

use super::*;
use crate::replay::device_map::{Area, Routing, TargetDevice};

const OPTIONS: PlanOptions =
    PlanOptions { offsets: Offsets::Refuse, strict: false, records_max: None, size_bytes: None };

fn record(at_us: u64, operation: Operation, offset_bytes: u64, length_bytes: u64) -> Record {
    Record {
        at: Duration::from_micros(at_us),
        node: 0,
        device: 0,
        offset_bytes,
        length_bytes,
        operation,
        table: None,
        column: None,
        thread: None,
    }
}

fn target(node: u16, device: u16) -> TargetDevice {
    TargetDevice {
        node,
        device,
        reads: Area { offset_bytes: 0, length_bytes: 64 << 20 },
        writes: Some(Area { offset_bytes: 32 << 20, length_bytes: 1 << 20 }),
        align_bytes: 512,
    }
}

fn device_map() -> DeviceMap {
    DeviceMap::new(vec![target(0, 0), target(0, 1), target(2, 0)], Routing::ByNumber).unwrap()
}

fn plan(records: Vec<Record>, options: PlanOptions) -> Result<Plan, ReplayError> {
    Plan::new(records.into_iter().map(Ok), &device_map(), options)
}

#[test]
fn every_record_is_replayed_or_counted_with_its_reason() {
    let mut elsewhere = record(6, Operation::Read, 0, 512);
    elsewhere.node = 9;
    let plan = plan(
        vec![
            record(1, Operation::Read, 4096, 4096),
            record(2, Operation::Read, 64 << 20, 512),
            record(3, Operation::Flush, 0, 0),
            record(4, Operation::Discard, 0, 512),
            record(5, Operation::Write, 8192, 512),
            elsewhere,
        ],
        OPTIONS,
    )
    .unwrap();
    let skipped = [(Skip::Outside, 1), (Skip::NoSuchDevice, 1), (Skip::Flush, 1), (Skip::Discard, 1)];
    assert_eq!(plan.changes().skipped, skipped.into());
    let skipped: u64 = plan.changes().skipped.values().sum();
    assert_eq!((plan.records(), plan.requests(), skipped), (6, 2, 4));
    assert_eq!(plan.trace_ns(), 4000);
    let (node, requests) = &plan.nodes()[0];
    assert_eq!(*node, 0);
    assert_eq!((requests[0].at_ns, requests[1].at_ns), (0, 4000));
    // The write goes into the scratch area.
    assert_eq!((requests[1].offset_bytes, requests[1].operation), ((32 << 20) + 8192, IoOperation::Write));
}

#[test]
fn writes_never_leave_the_scratch_area_and_are_left_out_without_one() {
    let writes = || (0..100).map(|at| record(at, Operation::Write, at << 19, 4096)).collect::<Vec<_>>();
    for offsets in [Offsets::Refuse, Offsets::Wrap, Offsets::ScaleToFit, Offsets::Align(4096)] {
        let plan = plan(writes(), PlanOptions { offsets, ..OPTIONS }).unwrap();
        for request in plan.nodes().iter().flat_map(|(_, requests)| requests) {
            let end = request.offset_bytes + u64::from(request.length_bytes);
            assert!(request.offset_bytes >= 32 << 20 && end <= 33 << 20, "{offsets}: {request:?}");
        }
    }
    let dry =
        DeviceMap::new(vec![TargetDevice { writes: None, ..target(0, 0) }], Routing::AllToFirst).unwrap();
    let error = Plan::new(writes().into_iter().map(Ok), &dry, OPTIONS).unwrap_err();
    assert!(error.to_string().contains("100 writes without a scratch area"), "{error}");
}

#[test]
fn records_go_to_the_node_they_name_or_all_to_one() {
    let on = |node, device| Record { node, device, ..record(0, Operation::Read, 0, 512) };
    let records = || vec![on(0, 1), on(2, 0), on(0, 0)];
    let by_number = plan(records(), OPTIONS).unwrap();
    let devices = |plan: &Plan| -> Vec<(u16, Vec<u16>)> {
        let of = |requests: &[Request]| requests.iter().map(|request| request.device).collect();
        plan.nodes().iter().map(|(node, requests)| (*node, of(requests))).collect()
    };
    assert_eq!(devices(&by_number), [(0, vec![1, 0]), (2, vec![0])]);
    let one = DeviceMap::new(vec![target(7, 3)], Routing::AllToFirst).unwrap();
    let all = Plan::new(records().into_iter().map(Ok), &one, OPTIONS).unwrap();
    assert_eq!(devices(&all), [(7, vec![3, 3, 3])]);
}

#[test]
fn long_records_are_cut_into_pieces_that_cover_them() {
    let plan = plan(vec![record(0, Operation::Read, 4096, (2 << 20) + 512)], OPTIONS).unwrap();
    let pieces: Vec<(u64, u32)> =
        plan.nodes()[0].1.iter().map(|request| (request.offset_bytes, request.length_bytes)).collect();
    assert_eq!(pieces, [(4096, 1 << 20), (4096 + (1 << 20), 1 << 20), (4096 + (2 << 20), 512)]);
    assert_eq!((plan.changes().cut, plan.largest_bytes()), (1, 1 << 20));
}

#[test]
fn records_out_of_order_are_sorted_and_counted() {
    let records = [5, 3, 9, 4].map(|at| record(at, Operation::Read, at * 512, 512));
    let plan = plan(records.to_vec(), OPTIONS).unwrap();
    let times: Vec<u64> = plan.nodes()[0].1.iter().map(|request| request.at_ns).collect();
    assert_eq!(times, [0, 1000, 2000, 6000]);
    assert_eq!(plan.changes().out_of_order, 2);
}

#[test]
fn what_cannot_be_replayed_as_recorded_is_an_error_where_that_is_demanded() {
    let strict = PlanOptions { strict: true, ..OPTIONS };
    let fine = record(0, Operation::Read, 0, 512);
    for (record, words) in [
        (record(1, Operation::Read, 64 << 20, 512), "record 2: a read of 512 bytes at 67108864 does not fit"),
        (record(1, Operation::Read, 100, 512), "record 2: a read of 512 bytes at 100, where"),
        (Record { node: 5, ..fine.clone() }, "record 2: the target has no device 0 of node 5"),
    ] {
        assert!(plan(vec![fine.clone(), record.clone()], OPTIONS).is_ok());
        let error = plan(vec![fine.clone(), record], strict).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn only_the_first_records_are_replayed_if_asked_for() {
    let records = (0..10).map(|at| record(at, Operation::Read, 0, 512)).collect();
    let plan = plan(records, PlanOptions { records_max: Some(3), ..OPTIONS }).unwrap();
    assert_eq!((plan.records(), plan.requests()), (3, 3));
}

#[test]
fn a_trace_of_which_nothing_can_be_replayed_says_why_and_what_to_do() {
    let far = vec![record(0, Operation::Read, 1 << 40, 512), record(1, Operation::Flush, 0, 0)];
    let error = plan(far, OPTIONS).unwrap_err().to_string();
    assert!(
        error.contains("1 outside of the target, 1 flushes") && error.contains("--offsets wrap"),
        "{error}"
    );
}

#[test]
fn requests_of_another_size_begin_at_multiples_of_it() {
    let records =
        || vec![record(1, Operation::Read, 16_384, 16_384), record(2, Operation::Read, 49_152, 512)];
    let of_size = |size| {
        let plan = plan(records(), PlanOptions { size_bytes: Some(size), ..OPTIONS }).unwrap();
        let [(0, requests)] = plan.nodes() else { panic!("one node is read: {plan:?}") };
        assert_eq!((plan.changes().widened, plan.changes().cut), (0, 0));
        requests.iter().map(|request| (request.offset_bytes, request.length_bytes)).collect::<Vec<_>>()
    };
    assert_eq!(of_size(512), [(16_384, 512), (49_152, 512)]);
    assert_eq!(of_size(65_536), [(0, 65_536), (0, 65_536)]);
}
