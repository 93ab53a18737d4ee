//! Parses decimal numbers and scales them exactly, without rounding to floating point.

/// A non-negative decimal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    whole: u64,
    /// The digits behind the point, as an integer.
    fraction: u64,
    /// 10 to the power of the number of digits behind the point.
    fraction_scale: u64,
}

/// Digits behind the point that are kept; further digits are dropped.
const FRACTION_DIGITS_MAX: usize = 18;

impl Decimal {
    /// Parses `digits` or `digits.digits`.
    ///
    /// # Errors
    /// A description of what was expected.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "a number of digits, with a point if need be";
        let text = text.trim();
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !is_digits(whole) || !is_digits(fraction) {
            return Err(EXPECTED);
        }
        let whole = if whole.is_empty() { Ok(0) } else { whole.parse::<u64>() };
        let whole = whole.map_err(|_| "a number below 2^64")?;
        let fraction = &fraction[..fraction.len().min(FRACTION_DIGITS_MAX)];
        let fraction_scale = fraction.bytes().fold(1_u64, |scale, _| scale * 10);
        let fraction = fraction.bytes().fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
        Ok(Self { whole, fraction, fraction_scale })
    }

    /// The number as an integer, if all digits behind the point are zero.
    pub(crate) fn whole(self) -> Option<u64> {
        (self.fraction == 0).then_some(self.whole)
    }

    /// Whether the text had digits behind a point.
    pub(crate) fn has_fraction(self) -> bool {
        self.fraction_scale > 1
    }

    /// The number times `factor`, rounded down to an integer. It cannot overflow: both are below
    /// 2^64.
    pub(crate) fn scaled(self, factor: u64) -> u128 {
        let factor = u128::from(factor);
        u128::from(self.whole) * factor + u128::from(self.fraction) * factor / u128::from(self.fraction_scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_kept_exactly() {
        let number = Decimal::parse("12.5").unwrap();
        assert_eq!((number.whole(), number.has_fraction(), number.scaled(10)), (None, true, 125));
        assert_eq!(Decimal::parse("4096.0").unwrap().whole(), Some(4096));
        assert_eq!(Decimal::parse(".25").unwrap().scaled(4), 1);
        assert_eq!(Decimal::parse("18446744073709551615").unwrap().whole(), Some(u64::MAX));
        assert_eq!(Decimal::parse("0.1234567890123456789999").unwrap().scaled(1_000_000_000), 123_456_789);
        assert_eq!(
            Decimal::parse(&format!("{}.9", u64::MAX)).unwrap().scaled(u64::MAX) >> 64,
            u128::from(u64::MAX - 1)
        );
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", ".", "-1", "1e9", "0x10", "1.2.3", "18446744073709551616", "\u{0661}"] {
            assert!(Decimal::parse(text).is_err(), "{text}");
        }
    }
}
