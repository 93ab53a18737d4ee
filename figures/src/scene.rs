//! Defines the shapes of a picture.
//!
//! A chart is laid out once, as a list of shapes; [`crate::svg`] writes them as text and
//! [`crate::png`] paints them as pixels.

/// A shape. Coordinates are pixels from the upper left corner.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shape {
    /// Marks the following shapes, until the next `Series`, as parts of the series with this name;
    /// an empty name means none.
    Series(String),
    /// A line from point to point.
    Line { points: Vec<(f64, f64)>, stroke: Stroke },
    /// A filled polygon.
    Area { points: Vec<(f64, f64)>, fill: &'static str },
    /// A filled rectangle.
    Rectangle { corner: (f64, f64), size: (f64, f64), fill: &'static str },
    /// A disc; with a stroke it has an outline.
    Circle { centre: (f64, f64), radius: f64, fill: &'static str, stroke: Option<Stroke> },
    /// Small dots of one colour.
    Dots { points: Vec<(f64, f64)>, colour: &'static str },
    /// An error bar: a vertical line between two heights, with a short dash at both ends.
    Bar { x: f64, ends: (f64, f64), stroke: Stroke },
    /// A line of text.
    Text(Text),
}

/// How a line is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stroke {
    pub(crate) colour: &'static str,
    pub(crate) width: f64,
    /// Alternating lengths of dashes and gaps; empty for a solid line.
    pub(crate) dashes: &'static [f32],
}

impl Stroke {
    pub(crate) fn solid(colour: &'static str, width: f64) -> Self {
        Self { colour, width, dashes: &[] }
    }
}

/// A line of text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Text {
    /// The position of the anchor.
    pub(crate) at: (f64, f64),
    pub(crate) size: f64,
    pub(crate) anchor: Anchor,
    /// Whether the text runs upwards.
    pub(crate) upwards: bool,
    pub(crate) words: String,
}

/// Which point of the text is at the anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// The diameter of a dot.
pub(crate) const DOT_PX: f64 = 3.0;

/// Half the width of an error bar's dashes.
pub(crate) const BAR_HALF_PX: f64 = 4.0;

/// The width of a character divided by the font size. The font is monospaced, so the layout knows
/// the widths of texts.
pub(crate) const CHARACTER: f64 = 0.602;
