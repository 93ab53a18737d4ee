//! Of which strokes does a picture consist?
//!
//! A picture is laid out once, as a list of shapes; [`crate::svg`] writes them and [`crate::png`]
//! paints them.

/// Something that is drawn. Coordinates are pixels from the upper left corner.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shape {
    /// What follows belongs to the series of this name, until the next one.
    Series(String),
    /// Straight pieces from point to point.
    Line { points: Vec<(f64, f64)>, stroke: Stroke },
    /// A filled area within straight pieces.
    Area { points: Vec<(f64, f64)>, fill: &'static str },
    /// A filled rectangle.
    Rectangle { corner: (f64, f64), size: (f64, f64), fill: &'static str },
    /// A disc; with a stroke, a ring.
    Circle { centre: (f64, f64), radius: f64, fill: &'static str, stroke: Option<Stroke> },
    /// Small discs of one colour.
    Dots { points: Vec<(f64, f64)>, colour: &'static str },
    /// An error bar: a line between two levels, with a short dash at either end.
    Bar { x: f64, ends: (f64, f64), stroke: Stroke },
    /// Words on a line.
    Text(Text),
}

/// How a line is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stroke {
    pub(crate) colour: &'static str,
    pub(crate) width: f64,
    /// Lengths of dashes and gaps by turns; none for a solid line.
    pub(crate) dashes: &'static [f32],
}

impl Stroke {
    pub(crate) fn solid(colour: &'static str, width: f64) -> Self {
        Self { colour, width, dashes: &[] }
    }
}

/// Words on a line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Text {
    /// Where the line is anchored.
    pub(crate) at: (f64, f64),
    pub(crate) size: f64,
    pub(crate) anchor: Anchor,
    /// Whether it runs upwards.
    pub(crate) upwards: bool,
    pub(crate) words: String,
}

/// Which part of the words stands where they are anchored.
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

/// The width of a character as a share of its size, in the font of the pictures. It is monospaced,
/// so that widths are known where pictures are laid out.
pub(crate) const CHARACTER: f64 = 0.602;
