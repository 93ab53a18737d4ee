//! How much fits into one picture?

/// The most series of a chart: more cannot be told apart.
pub const SERIES_MAX: usize = 24;

/// The most points of a series.
pub const POINTS_MAX: usize = 10_000;

/// The most groups of bars.
pub const GROUPS_MAX: usize = 64;

/// From so many points on a series is drawn without the shapes that mark single points: they would
/// be a smear.
pub(crate) const MARKED_POINTS_MAX: usize = 200;

/// Characters of a series' name in the legend; longer ones end in dots.
pub(crate) const NAME_CHARACTERS_MAX: usize = 36;

/// Characters of a title or a label in a picture; longer ones end in dots.
pub(crate) const TITLE_CHARACTERS_MAX: usize = 96;

/// The width of a picture.
pub(crate) const WIDTH_PX: f64 = 960.0;

/// The height of a picture, as long as the legend fits beside it.
pub(crate) const HEIGHT_PX: f64 = 540.0;

/// How many pixels of a PNG stand for one of the picture.
pub(crate) const PNG_SCALE: f32 = 1.5;

/// The height of a line of the legend.
pub(crate) const LEGEND_LINE_PX: f64 = 19.0;

// The legend of the most series fits into the picture, under its title and above its lower edge.
const _: () = assert!(SERIES_MAX as f64 * LEGEND_LINE_PX + 60.0 < HEIGHT_PX);
