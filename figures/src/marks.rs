//! Defines the colours, shapes and dashes that distinguish the series of a chart, in colour and in
//! grey.
//!
//! Invariant: any two series of one chart differ in colour, and also in shape or dashes.

use crate::scene::{Shape, Stroke};

/// The appearance of one series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mark {
    pub(crate) colour: &'static str,
    /// Alternating lengths of dashes and gaps; empty for a solid line.
    pub(crate) dashes: &'static [f32],
    pub(crate) form: Form,
}

/// The shape that marks a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Circle,
    Square,
    Triangle,
    Diamond,
    Downward,
    Cross,
    Plus,
    Ring,
}

/// Colours that people with any kind of colour vision can distinguish (after Okabe and Ito),
/// ordered so that neighbours also differ in lightness.
const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#882255", "#56b4e9", "#d55e00", "#009e73", "#000000", "#999999"];

const FORMS: [Form; 8] = [
    Form::Circle,
    Form::Square,
    Form::Triangle,
    Form::Diamond,
    Form::Downward,
    Form::Cross,
    Form::Plus,
    Form::Ring,
];

const DASHES: [&[f32]; 4] = [&[], &[7.0, 3.0], &[2.0, 2.0], &[9.0, 3.0, 2.0, 3.0]];

/// The appearance of the series with this index.
pub(crate) fn mark_of(series: usize) -> Mark {
    let round = series / COLOURS.len();
    Mark {
        colour: COLOURS[series % COLOURS.len()],
        dashes: DASHES[(series + round) % DASHES.len()],
        form: FORMS[(series + 2 * round) % FORMS.len()],
    }
}

/// The shapes of a mark at (`x`, `y`).
pub(crate) fn shapes_of(mark: Mark, (x, y): (f64, f64)) -> Vec<Shape> {
    let fill = mark.colour;
    let stroke = Stroke::solid(mark.colour, 2.0);
    let around = |offsets: &[(f64, f64)]| offsets.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
    let area = |offsets: &[(f64, f64)]| vec![Shape::Area { points: around(offsets), fill }];
    let cross = |a: [(f64, f64); 2], b: [(f64, f64); 2]| {
        [a, b].map(|offsets| Shape::Line { points: around(&offsets), stroke }).to_vec()
    };
    match mark.form {
        Form::Circle => vec![Shape::Circle { centre: (x, y), radius: 4.0, fill, stroke: None }],
        Form::Ring => {
            vec![Shape::Circle { centre: (x, y), radius: 4.0, fill: "#ffffff", stroke: Some(stroke) }]
        }
        Form::Square => {
            vec![Shape::Rectangle { corner: (x - 3.5, y - 3.5), size: (7.0, 7.0), fill }]
        }
        Form::Triangle => area(&[(0.0, -5.0), (5.0, 3.5), (-5.0, 3.5)]),
        Form::Downward => area(&[(0.0, 5.0), (5.0, -3.5), (-5.0, -3.5)]),
        Form::Diamond => area(&[(0.0, -5.0), (5.0, 0.0), (0.0, 5.0), (-5.0, 0.0)]),
        Form::Cross => cross([(-4.0, -4.0), (4.0, 4.0)], [(-4.0, 4.0), (4.0, -4.0)]),
        Form::Plus => cross([(-5.0, 0.0), (5.0, 0.0)], [(0.0, -5.0), (0.0, 5.0)]),
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
                assert!(a.colour != b.colour || (a.form != b.form && a.dashes != b.dashes), "{a:?} {b:?}");
                assert!(a.form != b.form || a.dashes != b.dashes, "alike in grey: {a:?} {b:?}");
            }
        }
    }
}
