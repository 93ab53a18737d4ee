//! Tests that a calibration that was written to a file is read back unchanged, and that invalid
//! files are refused.

use rackscan_planner::{Calibration, Constant};

#[test]
fn a_calibration_is_read_as_it_was_written() {
    let mut calibration = Calibration::default();
    calibration.tcp.bytes_per_s = Constant::measured(1.25e9, "echo of 64 MiB, best of 5");
    let text = calibration.to_toml().expect("it can be written");
    assert_eq!(Calibration::from_toml(&text).expect("it can be read"), calibration);
}

#[test]
fn defaults_do_not_claim_to_be_measured() {
    assert!(Calibration::default().constants().iter().all(|(_, constant)| !constant.measured));
}

#[test]
fn unknown_missing_and_impossible_constants_are_named() {
    let text = Calibration::default().to_toml().expect("it can be written");
    for (from, to, named) in [
        ("[shm.round_trip_us]", "[shm.round_trip]", "round_trip"),
        ("value = 12.0", "value = -1.0", "device.page_us is -1"),
        ("value = 12.0", "value = nan", "device.page_us is NaN"),
        ("value = 12.0", "", "value"),
    ] {
        assert!(text.contains(from), "{from} is in {text}");
        let error = Calibration::from_toml(&text.replacen(from, to, 1)).expect_err(to).to_string();
        assert!(error.contains(named) && error.contains("rackscan calibrate"), "{error}");
    }
}
