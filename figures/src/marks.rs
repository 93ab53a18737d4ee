//! How do series differ in a picture, in colour as in grey?
//!
//! Invariant: any two series of one chart differ in colour, and also in shape or dashes.

/// How one series looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) colour: &'static str,
    /// The value of `stroke-dasharray`; empty for a solid line.
    pub(crate) dashes: &'static str,
    pub(crate) shape: Shape,
}

/// What marks a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Circle,
    Square,
    Triangle,
    Diamond,
    Downward,
    Cross,
    Plus,
    Ring,
}

/// Colours that people with any kind of colour vision can tell apart (after Okabe and Ito), ordered so that
/// neighbours also differ in lightness.
const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#882255", "#56b4e9", "#d55e00", "#009e73", "#000000", "#999999"];

const SHAPES: [Shape; 8] = [
    Shape::Circle,
    Shape::Square,
    Shape::Triangle,
    Shape::Diamond,
    Shape::Downward,
    Shape::Cross,
    Shape::Plus,
    Shape::Ring,
];

const DASHES: [&str; 4] = ["", "7 3", "2 2", "9 3 2 3"];

/// How the series at this index looks.
pub(crate) fn mark_of(series: usize) -> Mark {
    let round = series / COLOURS.len();
    Mark {
        colour: COLOURS[series % COLOURS.len()],
        dashes: DASHES[(series + round) % DASHES.len()],
        shape: SHAPES[(series + 2 * round) % SHAPES.len()],
    }
}

/// The element that marks a point at (`x`, `y`).
pub(crate) fn element(mark: Mark, x: f64, y: f64) -> String {
    let colour = mark.colour;
    let filled = |path: String| format!("<path d=\"{path}\" fill=\"{colour}\"/>");
    let stroked =
        |path: String| format!("<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
    match mark.shape {
        Shape::Circle => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>"),
        Shape::Ring => format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"#ffffff\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        ),
        Shape::Square => filled(format!("M{:.1} {:.1}h7v7h-7z", x - 3.5, y - 3.5)),
        Shape::Triangle => filled(format!("M{x:.1} {:.1}l5 8.5h-10z", y - 5.0)),
        Shape::Downward => filled(format!("M{x:.1} {:.1}l-5 -8.5h10z", y + 5.0)),
        Shape::Diamond => filled(format!("M{x:.1} {:.1}l5 5l-5 5l-5 -5z", y - 5.0)),
        Shape::Cross => stroked(format!("M{:.1} {:.1}l8 8m0 -8l-8 8", x - 4.0, y - 4.0)),
        Shape::Plus => stroked(format!("M{:.1} {y:.1}h10m-5 -5v10", x - 5.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SERIES_MAX;

    #[test]
    fn no_two_series_look_alike_and_those_of_one_colour_differ_in_shape_too() {
        for a in 0..SERIES_MAX {
            for b in 0..a {
                let (a, b) = (mark_of(a), mark_of(b));
                assert_ne!(a, b);
                assert!(a.colour != b.colour || (a.shape != b.shape && a.dashes != b.dashes), "{a:?} {b:?}");
                assert!(a.shape != b.shape || a.dashes != b.dashes, "alike in grey: {a:?} {b:?}");
            }
        }
    }
}
