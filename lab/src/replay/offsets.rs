//! Maps offsets of the traced device to offsets of the target device.
//!
//! Two ways have fio's names: `scale` divides offsets (fio's `replay_scale`), and `align` moves
//! them to multiples (`replay_align`).
//!
//! Invariants
//! - A mapped request is inside the area, and begins and ends at multiples of the alignment.
//! - It contains all bytes of the original request, and is longer only if the original was not
//!   aligned.
//! - A request whose offset and length are multiples of the alignment keeps its length.

use std::{fmt, str::FromStr};

use az::SaturatingAs;

use super::device_map::Area;

/// How offsets of a trace become offsets of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Offsets {
    /// Unchanged; requests outside of the target are left out.
    #[default]
    Refuse,
    /// Modulo the target's size. A request that would cross the end starts at offset 0 instead.
    Wrap,
    /// Scaled down so that the trace's last byte fits; unchanged if it fits already.
    ScaleToFit,
    /// Divided by this factor; requests that are still outside are left out.
    ScaleBy(u64),
    /// Starts are rounded down to multiples of this power of two, ends up; requests outside are
    /// left out.
    Align(u32),
}

/// The spellings of the options, for messages.
const WORDS: &str = "refuse, wrap, scale, scale:FACTOR or align:BYTES (a power of two from 512 to 1048576)";

impl FromStr for Offsets {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("expected {WORDS}, found {words:?}");
        let (word, number) = match words.split_once(':') {
            Some((word, number)) => (word, Some(number.parse::<u64>().map_err(|_| wrong())?)),
            None => (words, None),
        };
        match (word, number) {
            ("refuse", None) => Ok(Self::Refuse),
            ("wrap", None) => Ok(Self::Wrap),
            ("scale", None) => Ok(Self::ScaleToFit),
            ("scale", Some(factor)) if factor > 0 => Ok(Self::ScaleBy(factor)),
            ("align", Some(bytes)) if bytes.is_power_of_two() && (512..=1 << 20).contains(&bytes) => {
                u32::try_from(bytes).map(Self::Align).map_err(|_| wrong())
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Offsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refuse => f.write_str("refuse"),
            Self::Wrap => f.write_str("wrap"),
            Self::ScaleToFit => f.write_str("scale"),
            Self::ScaleBy(factor) => write!(f, "scale:{factor}"),
            Self::Align(bytes) => write!(f, "align:{bytes}"),
        }
    }
}

/// Maps the requests of one operation to one target device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mapping {
    offsets: Offsets,
    /// The area, cut to a multiple of the alignment.
    area: Area,
    align_bytes: u64,
    /// The end of the trace's last request for this device.
    span_bytes: u64,
}

/// A request on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
    /// Whether it has more or other bytes than the request, because the request was not aligned.
    pub(super) widened: bool,
}

impl Mapping {
    /// Limits `area` to multiples of `align_bytes`, a power of two.
    pub(super) fn new(offsets: Offsets, area: Area, align_bytes: u32, span_bytes: u64) -> Self {
        let align = match offsets {
            Offsets::Align(bytes) => u64::from(bytes.max(align_bytes)),
            _ => u64::from(align_bytes),
        };
        let area = Area { length_bytes: area.length_bytes / align * align, ..area };
        Self { offsets, area, align_bytes: align, span_bytes }
    }

    /// Maps a request; `None` if it is outside of the target. Lengths are at least 1.
    pub(super) fn map(&self, offset_bytes: u64, length_bytes: u64) -> Option<Mapped> {
        let room = self.area.length_bytes;
        let last_start = room.checked_sub(length_bytes)?;
        let align = self.align_bytes;
        let start = match self.offsets {
            Offsets::Refuse | Offsets::Align(_) => offset_bytes,
            Offsets::Wrap => {
                let start = offset_bytes % room;
                if start > last_start { start % align } else { start }
            }
            Offsets::ScaleBy(factor) => scaled(offset_bytes, (1, factor), align),
            Offsets::ScaleToFit if self.span_bytes > room => {
                scaled(offset_bytes, (room, self.span_bytes), align).min(last_start)
            }
            Offsets::ScaleToFit => offset_bytes,
        };
        // A wrapped request that is longer than the remainder of its first block would cross the
        // end again.
        let end = start.checked_add(length_bytes).filter(|end| *end <= room)?;
        let (first, last) = (start / align * align, end.next_multiple_of(align));
        Some(Mapped {
            offset_bytes: self.area.offset_bytes + first,
            length_bytes: last - first,
            widened: (first, last) != (start, end),
        })
    }
}

/// The offset times a fraction of at most 1. Its remainder modulo the alignment is kept.
fn scaled(offset_bytes: u64, (numerator, denominator): (u64, u64), align: u64) -> u64 {
    let product = u128::from(offset_bytes) * u128::from(numerator) / u128::from(denominator.max(1));
    let down = product.saturating_as::<u64>();
    (down / align * align).saturating_add(offset_bytes % align)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AREA: Area = Area { offset_bytes: 8192, length_bytes: 65_536 };

    fn mapped(offsets: Offsets, offset: u64, length: u64) -> Option<(u64, u64, bool)> {
        let mapped = Mapping::new(offsets, AREA, 512, 1 << 20).map(offset, length)?;
        Some((mapped.offset_bytes - AREA.offset_bytes, mapped.length_bytes, mapped.widened))
    }

    #[test]
    fn refused_offsets_stay_or_are_left_out() {
        assert_eq!(mapped(Offsets::Refuse, 4096, 4096), Some((4096, 4096, false)));
        assert_eq!(mapped(Offsets::Refuse, 61_440, 4096), Some((61_440, 4096, false)));
        assert_eq!(mapped(Offsets::Refuse, 61_440, 4097), None);
        assert_eq!(mapped(Offsets::Refuse, u64::MAX, 1), None);
        assert_eq!(mapped(Offsets::Refuse, 0, 65_537), None);
    }

    #[test]
    fn unaligned_requests_grow_to_whole_blocks() {
        assert_eq!(mapped(Offsets::Refuse, 100, 100), Some((0, 512, true)));
        assert_eq!(mapped(Offsets::Refuse, 500, 100), Some((0, 1024, true)));
        assert_eq!(mapped(Offsets::Align(4096), 4608, 512), Some((4096, 4096, true)));
    }

    #[test]
    fn wrapped_offsets_come_around_and_nothing_crosses_the_end() {
        assert_eq!(mapped(Offsets::Wrap, 65_536 * 3 + 4096, 512), Some((4096, 512, false)));
        assert_eq!(mapped(Offsets::Wrap, 65_536 - 512, 1024), Some((0, 1024, false)));
        assert_eq!(mapped(Offsets::Wrap, 0, 65_537), None);
    }

    #[test]
    fn scaled_offsets_keep_their_order_and_fit() {
        assert_eq!(mapped(Offsets::ScaleBy(16), 1 << 19, 4096), Some((32_768, 4096, false)));
        assert_eq!(mapped(Offsets::ScaleBy(2), 1 << 19, 4096), None);
        assert_eq!(mapped(Offsets::ScaleToFit, (1 << 20) - 4096, 4096), Some((61_440, 4096, false)));
        assert_eq!(mapped(Offsets::ScaleToFit, 1 << 19, 512), Some((32_768, 512, false)));
        let fits = Mapping::new(Offsets::ScaleToFit, AREA, 512, 65_536).map(4608, 512);
        assert_eq!(fits.map(|mapped| mapped.offset_bytes), Some(8192 + 4608));
    }

    #[test]
    fn options_are_read_as_they_are_written() {
        for words in ["refuse", "wrap", "scale", "scale:8", "align:4096"] {
            assert_eq!(words.parse::<Offsets>().map(|offsets| offsets.to_string()), Ok(words.to_owned()));
        }
        for words in ["", "Wrap", "scale:0", "scale:", "align", "align:500", "align:2097152", "wrap:3"] {
            assert!(words.parse::<Offsets>().unwrap_err().contains("expected refuse"), "{words}");
        }
    }

    proptest! {
        #[test]
        fn what_is_mapped_is_aligned_inside_and_no_shorter(
            which in 0..5_usize,
            factor in 1..1000_u64,
            align_power in 9..13_u32,
            begin in 0..1000_u64,
            blocks in 0..200_u64,
            offset in 0..u64::MAX / 4,
            near in any::<bool>(),
            length in 1..200_000_u64,
            aligned in any::<bool>(),
        ) {
            let align_bytes = 1_u32 << align_power;
            let block = u64::from(align_bytes);
            let area = Area { offset_bytes: begin * block, length_bytes: blocks * block };
            let offset = if near { offset % (2 * area.length_bytes + 1) } else { offset };
            let (offset, length) =
                if aligned { (offset / block * block, length.next_multiple_of(block)) } else { (offset, length) };
            let offsets = [
                Offsets::Refuse, Offsets::Wrap, Offsets::ScaleToFit, Offsets::ScaleBy(factor), Offsets::Align(4096),
            ][which];
            let mapping = Mapping::new(offsets, area, align_bytes, offset + length);
            let Some(mapped) = mapping.map(offset, length) else {
                // Where offsets are made to fit, only requests that cannot fit are left out.
                let must_fit = matches!(offsets, Offsets::ScaleToFit | Offsets::Wrap);
                prop_assert!(!must_fit || length.next_multiple_of(block) + block > area.length_bytes);
                return Ok(());
            };
            let end = mapped.offset_bytes + mapped.length_bytes;
            prop_assert!(mapped.offset_bytes >= area.offset_bytes && end <= area.offset_bytes + area.length_bytes);
            prop_assert!(mapped.offset_bytes.is_multiple_of(block) && end.is_multiple_of(block));
            prop_assert!(mapped.length_bytes >= length);
            if aligned && !matches!(offsets, Offsets::Align(_)) {
                prop_assert!(!mapped.widened && mapped.length_bytes == length);
            }
        }
    }
}
