//! Defines the shapes of which the pictures consist, and writes them as SVG.
//!
//! Invariants
//! - Texts contain only letters, digits and marks without meaning in markup, or they are escaped.
//! - The font is monospaced, so that the widths of texts are known when they are placed.

use std::fmt::Write as _;

/// The width of a character relative to its size.
const CHARACTER: f64 = 0.602;
const FONT: &str = "'DejaVu Sans Mono', Menlo, Consolas, monospace";
/// The colour of words.
pub(super) const INK: &str = "#222222";
/// The colour of secondary things.
pub(super) const FAINT: &str = "#8a8a8a";

/// The alignment of words relative to their position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
}

/// Words on a line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Words {
    pub(super) at: (f64, f64),
    pub(super) size: f64,
    pub(super) anchor: Anchor,
    pub(super) colour: &'static str,
    pub(super) words: String,
}

/// The width of words of this size, in pixels.
pub(super) fn width_of(words: &str, size: f64) -> f64 {
    words.chars().count() as f64 * size * CHARACTER
}

/// A picture in progress: lines and areas first, words over them.
#[derive(Debug, Default)]
pub(super) struct Drawing {
    shapes: String,
    pub(super) words: Vec<Words>,
}

impl Drawing {
    /// A filled rectangle with an edge.
    pub(super) fn rectangle(&mut self, corner: (f64, f64), size: (f64, f64), (fill, edge): (&str, &str)) {
        let _ = writeln!(
            self.shapes,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{fill}\" stroke=\"{edge}\"/>",
            corner.0, corner.1, size.0, size.1
        );
    }

    /// A straight line.
    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
        let _ = writeln!(
            self.shapes,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// A level line with a head at its end.
    pub(super) fn arrow(&mut self, from_x: f64, to_x: f64, y: f64, colour: &str) {
        let back = if to_x > from_x { -7.0 } else { 7.0 };
        self.line((from_x, y), (to_x + back / 2.0, y), colour, 1.4);
        let _ = writeln!(
            self.shapes,
            "<polygon points=\"{to_x:.1},{y:.1} {:.1},{:.1} {:.1},{:.1}\" fill=\"{colour}\"/>",
            to_x + back,
            y - 3.2,
            to_x + back,
            y + 3.2
        );
    }

    /// Words on a line.
    pub(super) fn words(&mut self, at: (f64, f64), size: f64, anchor: Anchor, words: impl Into<String>) {
        self.words.push(Words { at, size, anchor, colour: INK, words: words.into() });
    }

    /// The whole picture, called `title`.
    pub(super) fn written(&self, title: &str, (width, height): (f64, f64)) -> String {
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" role=\"img\" font-family=\"{FONT}\"><title>{}</title>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
            escaped(title)
        );
        out.push_str(&self.shapes);
        for words in &self.words {
            let anchor = match words.anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
            };
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{}\" text-anchor=\"{anchor}\" fill=\"{}\">{}</text>",
                words.at.0,
                words.at.1,
                words.size,
                words.colour,
                escaped(&words.words)
            );
        }
        out.push_str("</svg>\n");
        out
    }
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
