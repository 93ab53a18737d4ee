//! Chooses which of the events of an IO becomes its record: the one at which a program requested
//! the IO, or the one at which it was issued to the driver.

use crate::{DetectedUnits, OffsetUnit, TimeUnit};

/// The kinds of events that can become records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A program has requested the IO.
    Queued,
    /// The IO was issued to the driver.
    Issued,
}

impl Kind {
    /// Chooses the kind from the events at the beginning of a trace.
    pub(super) fn chosen(beginning: impl IntoIterator<Item = Self>) -> Self {
        let mut has_issued = false;
        for kind in beginning {
            if kind == Self::Queued {
                return Self::Queued;
            }
            has_issued = true;
        }
        if has_issued { Self::Issued } else { Self::Queued }
    }

    fn why(self) -> &'static str {
        match self {
            Self::Queued => "the IOs are the Q events, at which programs requested them",
            Self::Issued => {
                "the IOs are the D events, at which they were issued to the driver: the trace has no Q event at its beginning"
            }
        }
    }
}

/// The units of both formats.
pub(super) fn units(time: TimeUnit, kind: Kind) -> DetectedUnits {
    DetectedUnits {
        time,
        time_why: "the format says so".to_owned(),
        offset: OffsetUnit::Sectors,
        length: OffsetUnit::Bytes,
        offset_why: "the format says so".to_owned(),
        notes: vec![kind.why().to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queued_events_are_chosen_where_there_are_any() {
        assert_eq!(Kind::chosen([Kind::Issued, Kind::Queued, Kind::Issued]), Kind::Queued);
        assert_eq!(Kind::chosen([Kind::Issued]), Kind::Issued);
        assert_eq!(Kind::chosen([]), Kind::Queued);
    }
}
