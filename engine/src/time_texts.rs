//! Rewrites constant texts of times and intervals to forms that arrow's parsers accept.

/// `2024-01-31 5:00` as `2024-01-31 05:00:00`; `None` for other texts.
pub(crate) fn with_seconds(text: &str) -> Option<String> {
    let (date, time) = text.trim().split_once([' ', 'T'])?;
    let (hours, minutes) = time.trim().split_once(':')?;
    let is_time = is_number(hours) && hours.len() <= 2 && is_number(minutes) && minutes.len() == 2;
    is_time.then(|| format!("{date} {hours:0>2}:{minutes}:00"))
}

/// `1 day 02:03:04.5` as `1 day 2 hours 3 minutes 4.5 seconds`; `None` for other texts.
pub(crate) fn interval(text: &str) -> Option<String> {
    let text = text.trim();
    let (before, time) = text.rsplit_once(' ').unwrap_or(("", text));
    let (sign, digits) = match time.strip_prefix(['-', '+']) {
        Some(digits) if time.starts_with('-') => ("-", digits),
        Some(digits) => ("", digits),
        None => ("", time),
    };
    let mut parts = digits.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next());
    let (whole, fraction) = seconds.unwrap_or("0").split_once('.').unwrap_or((seconds.unwrap_or("0"), "0"));
    let are_numbers = [hours, minutes, whole, fraction].into_iter().all(is_number);
    let is_below_60 = |part: &str| part.parse::<u8>().is_ok_and(|number| number < 60);
    if !are_numbers || parts.next().is_some() || !is_below_60(minutes) || !is_below_60(whole) {
        return None;
    }
    let seconds = seconds.unwrap_or("0");
    let written = format!("{before} {sign}{hours} hours {sign}{minutes} minutes {sign}{seconds} seconds");
    Some(written.trim_start().to_owned())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_constants_get_what_they_lack() {
        for (text, expected) in [
            ("2024-01-31 5:00", Some("2024-01-31 05:00:00")),
            ("2024-01-31T05:00", Some("2024-01-31 05:00:00")),
            ("2024-01-31 05:00:00", None),
            ("2024-01-31", None),
            ("later 5:x0", None),
        ] {
            assert_eq!(with_seconds(text).as_deref(), expected);
        }
        for (text, expected) in [
            ("1 day 02:03:04.5", Some("1 day 02 hours 03 minutes 04.5 seconds")),
            ("-00:30", Some("-00 hours -30 minutes -0 seconds")),
            ("12:00", Some("12 hours 00 minutes 0 seconds")),
            ("1 day", None),
            ("1:2:3:4", None),
            ("1 day 02:x", None),
            ("1 day 25:61", None),
            ("00:00:60", None),
            ("100:00", Some("100 hours 00 minutes 0 seconds")),
        ] {
            assert_eq!(interval(text).as_deref(), expected, "{text}");
        }
    }
}
