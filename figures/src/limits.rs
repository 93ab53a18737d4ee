//! Defines all bounds of this crate: how much fits into one picture.

/// The maximum number of series of a chart: more cannot be distinguished.
pub const SERIES_MAX: usize = 24;

/// The maximum number of points of a series.
pub const POINTS_MAX: usize = 10_000;

/// The maximum number of groups of bars.
pub const GROUPS_MAX: usize = 64;

/// How many times greater the greatest value of one series may be than that of another one before
/// an automatic scale becomes logarithmic.
pub const CRUSHED: f64 = 20.0;

/// The maximum number of points of a series that are drawn with shapes; the shapes of more points
/// would overlap.
pub(crate) const MARKED_POINTS_MAX: usize = 200;

/// Maximum characters of a series' name in the legend; longer names are cut and end in dots.
pub(crate) const NAME_CHARACTERS_MAX: usize = 36;

/// Maximum characters of a title or a label in a picture; longer ones are cut and end in dots.
pub(crate) const TITLE_CHARACTERS_MAX: usize = 96;

/// The width of a picture.
pub(crate) const WIDTH_PX: f64 = 960.0;

/// The height of a picture.
pub(crate) const HEIGHT_PX: f64 = 540.0;

/// Pixels of a PNG per pixel of the picture.
pub(crate) const PNG_SCALE: f32 = 1.5;

/// The height of a line of the legend.
pub(crate) const LEGEND_LINE_PX: f64 = 19.0;

// The legend of the maximum number of series fits into the picture, between the title and the lower
// edge.
const _: () = assert!(SERIES_MAX as f64 * LEGEND_LINE_PX + 60.0 < HEIGHT_PX);
