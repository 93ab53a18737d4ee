//! Generates values, among them many extremes.

use fastrand::Rng;

/// The days of 0001-01-01 and 9999-12-31.
pub(super) const DAYS: (i64, i64) = (-719_162, 2_932_896);
/// The microseconds of a day.
pub(super) const DAY_MICROS: i64 = 86_400_000_000;

/// Small often, of any size at times, and the extremes.
pub(super) fn integer(random: &mut Rng, min: i64, max: i64) -> i64 {
    let drawn = match random.u8(..10) {
        0 => min,
        1 => max,
        2 => random.i64(min..=max),
        3 => (min / 2).saturating_add(max / 2),
        // Around what a double holds exactly.
        4 => (1 << 53) + random.i64(-2..=2),
        _ => random.i64(-5..100),
    };
    drawn.clamp(min, max)
}

pub(super) fn finite_double(random: &mut Rng) -> f64 {
    match random.u8(..12) {
        0 => *random
            .choice(&[
                0.0,
                -0.0,
                f64::MIN,
                f64::MAX,
                f64::MIN_POSITIVE,
                5e-324,
                -2.225_073_858_507_201e-308,
                0.1 + 0.2,
                1e16,
                9_007_199_254_740_993.0,
                1e22,
                1e23,
            ])
            .expect("one of them"),
        1..4 => loop {
            let any = f64::from_bits(random.u64(..));
            if any.is_finite() {
                break any;
            }
        },
        4..8 => f64::from(random.i32(-100_000..100_000)) / 100.0,
        _ => random.f64() * 1000.0 - 500.0,
    }
}

pub(super) fn double(random: &mut Rng) -> f64 {
    match random.u8(..12) {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => f64::NEG_INFINITY,
        _ => finite_double(random),
    }
}

pub(super) fn day(random: &mut Rng) -> i64 {
    match random.u8(..8) {
        0 => DAYS.0,
        1 => DAYS.1,
        // Beside 1970, and the leap day of 2000.
        2 => random.i64(-2..3),
        3 => 11_016,
        4 => random.i64(10_000..20_000),
        _ => random.i64(DAYS.0..=DAYS.1),
    }
}

/// The microseconds of a day, as people write times or as machines do.
pub(super) fn time_of_day(random: &mut Rng) -> i64 {
    match random.u8(..6) {
        0 => 0,
        1 => DAY_MICROS - 1,
        2 => random.i64(0..86_400) * 1_000_000,
        3 => random.i64(0..86_400_000) * 1000,
        _ => random.i64(0..DAY_MICROS),
    }
}

/// Year, month and day of a day since 1970.
pub(super) fn civil(day: i64) -> (i64, i64, i64) {
    // Of eras of 400 years that begin with March, as leap days are the last of such a year.
    let shifted = day + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// A text: words, numbers that are none, and whatever these parts make.
pub(super) fn text(random: &mut Rng, parts: &[String]) -> String {
    let whole =
        ["", " ", "007", "true", "2024-01-01", "1e999", "NaN", "NULL", "NA", "\\N", "#", "=1+1", "a\tb", "-"];
    match random.u8(..10) {
        0 | 1 => (*random.choice(whole).expect("one")).to_owned(),
        2 => random.choice(parts).expect("one").repeat(random.usize(1..300)),
        _ => (0..random.usize(..14)).map(|_| random.choice(parts).expect("one").as_str()).collect(),
    }
}

#[test]
fn days_are_those_of_the_calendar() {
    let days = [DAYS.0, -1, 0, 11_016, 11_017, 18_505, 19_782, DAYS.1];
    assert_eq!(
        days.map(civil),
        [
            (1, 1, 1),
            (1969, 12, 31),
            (1970, 1, 1),
            (2000, 2, 29),
            (2000, 3, 1),
            (2020, 8, 31),
            (2024, 2, 29),
            (9999, 12, 31)
        ]
    );
}
