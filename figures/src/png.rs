//! Paints the shapes of a picture as PNG, the same on every machine.
//!
//! Letters are outlines of a font that is compiled in; installed fonts are not used.

use tiny_skia::{Color, FillRule, LineCap, Paint, Path, PathBuilder, Pixmap, Rect, StrokeDash, Transform};
use ttf_parser::{Face, OutlineBuilder};

use crate::error::FigureError;
use crate::limits::{HEIGHT_PX, PNG_SCALE, WIDTH_PX};
use crate::scene::{Anchor, BAR_HALF_PX, CHARACTER, DOT_PX, Shape, Stroke, Text};
use crate::svg::INK;

/// The bytes of a PNG file with these shapes; errors contain `title`.
pub(crate) fn to_bytes(title: &str, shapes: &[Shape]) -> Result<Vec<u8>, FigureError> {
    let failed = |reason: String| FigureError::Raster { chart: title.to_owned(), reason };
    let face =
        Face::parse(epaint_default_fonts::HACK_REGULAR, 0).map_err(|error| failed(error.to_string()))?;
    let (width, height) = (pixels(WIDTH_PX), pixels(HEIGHT_PX));
    let Some(sheet) = Pixmap::new(width, height) else {
        return Err(failed(format!("no memory for {width} x {height} pixels")));
    };
    let mut painter = Painter { sheet, face, scale: Transform::from_scale(PNG_SCALE, PNG_SCALE) };
    for shape in shapes {
        painter.paint(shape);
    }
    painter.sheet.encode_png().map_err(|error| failed(error.to_string()))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "pictures are small, and constants"
)]
fn pixels(length: f64) -> u32 {
    (length * f64::from(PNG_SCALE)).round() as u32
}

#[expect(clippy::cast_possible_truncation, reason = "a picture's coordinates need no more than 24 bits")]
fn to_f32(value: f64) -> f32 {
    value as f32
}

struct Painter {
    sheet: Pixmap,
    face: Face<'static>,
    scale: Transform,
}

impl Painter {
    fn paint(&mut self, shape: &Shape) {
        match shape {
            Shape::Series(_) => {}
            Shape::Line { points, stroke } => self.stroke(polyline(points, false), stroke, LineCap::Butt),
            Shape::Area { points, fill } => self.fill(polyline(points, true), fill, self.scale),
            Shape::Rectangle { corner: (x, y), size: (width, height), fill } => {
                let rect = Rect::from_xywh(to_f32(*x), to_f32(*y), to_f32(*width), to_f32(*height));
                self.fill(rect.map(PathBuilder::from_rect), fill, self.scale);
            }
            Shape::Circle { centre: (x, y), radius, fill, stroke } => {
                let path = PathBuilder::from_circle(to_f32(*x), to_f32(*y), to_f32(*radius));
                self.fill(path.clone(), fill, self.scale);
                if let Some(stroke) = stroke {
                    self.stroke(path, stroke, LineCap::Butt);
                }
            }
            Shape::Dots { points, colour } => {
                let mut path = PathBuilder::new();
                for (x, y) in points {
                    path.push_circle(to_f32(*x), to_f32(*y), to_f32(DOT_PX / 2.0));
                }
                self.fill(path.finish(), colour, self.scale);
            }
            Shape::Bar { x, ends: (low, high), stroke } => {
                let (left, right) = (x - BAR_HALF_PX, x + BAR_HALF_PX);
                for points in [
                    [(left, *high), (right, *high)],
                    [(*x, *high), (*x, *low)],
                    [(left, *low), (right, *low)],
                ] {
                    self.stroke(polyline(&points, false), stroke, LineCap::Butt);
                }
            }
            Shape::Text(text) => self.text(text),
        }
    }

    fn fill(&mut self, path: Option<Path>, colour: &str, transform: Transform) {
        // A shape without extent has no path.
        if let Some(path) = path {
            self.sheet.fill_path(&path, &paint(colour), FillRule::Winding, transform, None);
        }
    }

    fn stroke(&mut self, path: Option<Path>, stroke: &Stroke, line_cap: LineCap) {
        let Some(path) = path else { return };
        let dash = StrokeDash::new(stroke.dashes.to_vec(), 0.0);
        let style = tiny_skia::Stroke { width: to_f32(stroke.width), line_cap, dash, ..Default::default() };
        self.sheet.stroke_path(&path, &paint(stroke.colour), &style, self.scale, None);
    }

    fn text(&mut self, text: &Text) {
        let Text { at: (x, y), size, anchor, upwards, words } = text;
        let advance = CHARACTER * size;
        let width = words.chars().count() as f64 * advance;
        let start = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => -width / 2.0,
            Anchor::End => -width,
        };
        let mut line = self.scale.pre_translate(to_f32(*x), to_f32(*y));
        if *upwards {
            line = line.pre_rotate(-90.0);
        }
        let em = to_f32(*size) / f32::from(self.face.units_per_em());
        for (at, character) in words.chars().enumerate() {
            let Some(glyph) = self.face.glyph_index(character).or_else(|| self.face.glyph_index('?')) else {
                continue;
            };
            let mut outline = Outline(PathBuilder::new());
            self.face.outline_glyph(glyph, &mut outline);
            // The y axis of a font points up, that of a picture down.
            let place = line.pre_translate(to_f32(start + at as f64 * advance), 0.0).pre_scale(em, -em);
            self.fill(outline.0.finish(), INK, place);
        }
    }
}

fn polyline(points: &[(f64, f64)], closed: bool) -> Option<Path> {
    let mut path = PathBuilder::new();
    for (at, (x, y)) in points.iter().enumerate() {
        if at == 0 {
            path.move_to(to_f32(*x), to_f32(*y));
        } else {
            path.line_to(to_f32(*x), to_f32(*y));
        }
    }
    if closed {
        path.close();
    }
    path.finish()
}

/// The paint of a colour `#rrggbb`.
fn paint(colour: &str) -> Paint<'static> {
    let part = |at: usize| {
        colour.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok()).unwrap_or_default()
    };
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color(Color::from_rgba8(part(1), part(3), part(5), 255));
    paint
}

/// Collects the outline of a letter as a path.
struct Outline(PathBuilder);

impl OutlineBuilder for Outline {
    fn move_to(&mut self, x: f32, y: f32) {
        self.0.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.0.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.0.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.0.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_width_of_a_character_is_the_fonts() {
        let face = Face::parse(epaint_default_fonts::HACK_REGULAR, 0).unwrap();
        let width = |letter| face.glyph_hor_advance(face.glyph_index(letter).unwrap()).unwrap();
        assert_eq!(width('i'), width('M'), "monospaced");
        let share = f64::from(width('M')) / f64::from(face.units_per_em());
        assert!((share - CHARACTER).abs() < 0.001, "{share}");
    }
}
