//! Writes the shapes of a picture as SVG text.

use std::fmt::Write as _;

use crate::escape::escape;
use crate::limits::{HEIGHT_PX, WIDTH_PX};
use crate::scene::{Anchor, BAR_HALF_PX, DOT_PX, Shape, Stroke, Text};

const FONT: &str = "Hack, 'DejaVu Sans Mono', Menlo, Consolas, monospace";
/// The colour of text.
pub(crate) const INK: &str = "#222222";

/// The SVG text of these shapes; `title` is the picture's title.
pub(crate) fn to_text(title: &str, shapes: &[Shape]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH_PX} {HEIGHT_PX}\" width=\"{WIDTH_PX}\" \
         height=\"{HEIGHT_PX}\" role=\"img\" font-family=\"{FONT}\"><title>{}</title>",
        escape(title)
    );
    let mut in_series = false;
    for shape in shapes {
        if let Shape::Series(name) = shape {
            out.push_str(if in_series { "</g>\n" } else { "" });
            in_series = !name.is_empty();
            if in_series {
                let _ = writeln!(out, "<g data-series=\"{}\">", escape(name));
            }
            continue;
        }
        element(&mut out, shape);
    }
    out.push_str(if in_series { "</g>\n" } else { "" });
    out.push_str("</svg>\n");
    out
}

fn element(out: &mut String, shape: &Shape) {
    // Writing to a string cannot fail.
    let _ = match shape {
        Shape::Series(_) => Ok(()),
        Shape::Line { points, stroke } => {
            let points = point_list(points);
            writeln!(out, "<polyline fill=\"none\"{} points=\"{points}\"/>", stroke_attributes(stroke))
        }
        Shape::Area { points, fill } => {
            writeln!(out, "<polygon fill=\"{fill}\" points=\"{}\"/>", point_list(points))
        }
        Shape::Rectangle { corner: (x, y), size: (width, height), fill } => writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
        ),
        Shape::Circle { centre: (x, y), radius, fill, stroke } => {
            let stroke = stroke.as_ref().map(stroke_attributes).unwrap_or_default();
            writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\"{stroke}/>")
        }
        Shape::Dots { points, colour } => {
            let path: String = points.iter().map(|(x, y)| format!("M{x:.1} {y:.1}h.01")).collect();
            writeln!(
                out,
                "<path fill=\"none\" stroke=\"{colour}\" stroke-width=\"{DOT_PX}\" stroke-linecap=\"round\" d=\"{path}\"/>"
            )
        }
        Shape::Bar { x, ends: (low, high), stroke } => {
            let (left, half, whole) = (x - BAR_HALF_PX, BAR_HALF_PX, 2.0 * BAR_HALF_PX);
            writeln!(
                out,
                "<path class=\"bar\" fill=\"none\"{} d=\"M{left:.1} {high:.1}h{whole}m-{half} 0V{low:.1}m-{half} 0h{whole}\"/>",
                stroke_attributes(stroke)
            )
        }
        Shape::Text(text) => writeln!(out, "{}", text_element(text)),
    };
}

fn text_element(text: &Text) -> String {
    let Text { at: (x, y), size, anchor, upwards, words } = text;
    let anchor = match anchor {
        Anchor::Start => "start",
        Anchor::Middle => "middle",
        Anchor::End => "end",
    };
    let place = if *upwards {
        format!("transform=\"translate({x:.1} {y:.1}) rotate(-90)\"")
    } else {
        format!("x=\"{x:.1}\" y=\"{y:.1}\"")
    };
    let words = escape(words);
    format!("<text {place} font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{INK}\">{words}</text>")
}

fn stroke_attributes(stroke: &Stroke) -> String {
    let Stroke { colour, width, dashes } = stroke;
    let mut text = format!(" stroke=\"{colour}\" stroke-width=\"{width}\"");
    if !dashes.is_empty() {
        let lengths: Vec<String> = dashes.iter().map(ToString::to_string).collect();
        let _ = write!(text, " stroke-dasharray=\"{}\"", lengths.join(" "));
    }
    text
}

fn point_list(points: &[(f64, f64)]) -> String {
    let mut text = String::with_capacity(points.len() * 12);
    for (at, (x, y)) in points.iter().enumerate() {
        let _ = write!(text, "{}{x:.1},{y:.1}", if at == 0 { "" } else { " " });
    }
    text
}
