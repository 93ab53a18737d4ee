//! Writes the HTML page of a report.
//!
//! Invariant: the page is self-contained: it has no script, and loads no style, font or picture
//! from elsewhere.

use std::fmt::Write as _;

use crate::escape::escape;
use crate::report::{Figure, Report, Section, Table};

/// The style has a light and a dark scheme; pictures always have a white background, because they
/// are also made for paper.
const STYLE: &str = "
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1f2328; --faint: #59636e; --rule: #d1d9e0; --band: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #0d1117; --ink: #e6edf3; --faint: #9198a1; --rule: #3d444d; --band: #151b23; }
}
body { background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 62rem; padding: 1rem 1.5rem 4rem; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; border-bottom: 1px solid var(--rule); }
nav ul { columns: 18rem; padding-left: 1.2rem; } a { color: inherit; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; margin: 1rem 0; }
caption { text-align: left; color: var(--faint); padding-bottom: .3rem; }
th, td { border: 1px solid var(--rule); padding: .25rem .6rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } thead { background: var(--band); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; font-size: .9rem; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; font-family: ui-monospace, monospace; }
figure { margin: 1.5rem 0; } figure svg { width: 100%; height: auto; border: 1px solid var(--rule); border-radius: 6px; }
figcaption { color: var(--faint); font-size: .9rem; }
";

/// A figure with its drawn picture.
pub(crate) struct Drawn<'a> {
    pub(crate) figure: &'a Figure,
    pub(crate) svg: String,
}

/// The page of `report`; `sections` are its sections with their drawn pictures.
pub(crate) fn html(report: &Report, sections: &[(&Section, Vec<Drawn<'_>>)]) -> String {
    let mut out = String::new();
    let title = escape(&report.title);
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    );
    if !report.provenance.is_empty() {
        out.push_str("<dl>\n");
        for (name, value) in &report.provenance {
            let _ = writeln!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
        }
        out.push_str("</dl>\n");
    }
    if sections.len() > 2 {
        out.push_str("<nav><ul>\n");
        for (at, (section, _)) in sections.iter().enumerate() {
            let _ = writeln!(out, "<li><a href=\"#s{at}\">{}</a></li>", escape(&section.heading));
        }
        out.push_str("</ul></nav>\n");
    }
    for (at, (section, figures)) in sections.iter().enumerate() {
        let _ = writeln!(out, "<section id=\"s{at}\">\n<h2>{}</h2>", escape(&section.heading));
        for paragraph in &section.text {
            let _ = writeln!(out, "<p>{}</p>", escape(paragraph));
        }
        for table in &section.tables {
            table_of(&mut out, table);
        }
        for drawn in figures {
            figure_of(&mut out, drawn);
        }
        out.push_str("</section>\n");
    }
    if !report.points.is_empty() {
        let _ = writeln!(
            out,
            "<p>All {} points: <a href=\"points.jsonl\">points.jsonl</a></p>",
            report.points.len()
        );
    }
    out.push_str("</body>\n</html>\n");
    out
}

fn table_of(out: &mut String, table: &Table) {
    let row = |cells: &[String], tag: &str| -> String {
        cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect()
    };
    out.push_str("<div class=\"scroll\"><table>\n");
    if !table.caption.is_empty() {
        let _ = writeln!(out, "<caption>{}</caption>", escape(&table.caption));
    }
    let _ = writeln!(out, "<thead><tr>{}</tr></thead>\n<tbody>", row(&table.head, "th"));
    for cells in aligned(&table.rows) {
        let _ = writeln!(out, "<tr>{}</tr>", row(&cells, "td"));
    }
    out.push_str("</tbody>\n</table></div>\n");
}

/// The rows with their numbers aligned by decimal point: a number with fewer decimals than others
/// of its column gets as much space behind it.
fn aligned(rows: &[Vec<String>]) -> Vec<Vec<String>> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let most: Vec<usize> = (0..columns)
        .map(|column| match column {
            // The first column is aligned at its left.
            0 => 0,
            _ => rows.iter().filter_map(|row| decimals(row.get(column)?)).max().unwrap_or(0),
        })
        .collect();
    let cell = |(text, most): (&String, &usize)| match decimals(text) {
        Some(found) if found < *most => {
            let point = if found == 0 { SPACE_OF_A_POINT } else { "" };
            let end = text.find(|c: char| !(c.is_ascii_digit() || "+-.".contains(c))).unwrap_or(text.len());
            let (number, unit) = text.split_at(end);
            format!("{number}{point}{}{unit}", SPACE_OF_A_DIGIT.repeat(most - found))
        }
        _ => text.clone(),
    };
    rows.iter().map(|row| row.iter().zip(&most).map(cell).collect()).collect()
}

/// How many decimals a number has, which a unit may follow; `None` for other texts.
fn decimals(text: &str) -> Option<usize> {
    let number = text.split(' ').next()?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.trim_start_matches(['+', '-']);
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (!whole.is_empty() && is_digits(whole) && is_digits(decimals)).then_some(decimals.len())
}

/// U+2007, as wide as a digit where all digits are equally wide.
const SPACE_OF_A_DIGIT: &str = "\u{2007}";
/// U+2008, as wide as a point.
const SPACE_OF_A_POINT: &str = "\u{2008}";

fn figure_of(out: &mut String, drawn: &Drawn<'_>) {
    let name = escape(&drawn.figure.name);
    let _ = writeln!(
        out,
        "<figure>\n{}<figcaption>{} (<a href=\"figures/{name}.svg\">SVG</a>, \
         <a href=\"figures/{name}.png\">PNG</a>)</figcaption>\n</figure>",
        drawn.svg,
        escape(&drawn.figure.caption)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_column_are_aligned_by_their_decimal_point() {
        let rows = [["1.5", "1.25"], ["1", "10"], ["b", "3.5 %"], ["c", "-"], ["d", "1e-3"]];
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(ToString::to_string).collect()).collect();
        let found = aligned(&rows);
        let second: Vec<&str> = found.iter().map(|row| row[1].as_str()).collect();
        assert_eq!(second, ["1.25", "10\u{2008}\u{2007}\u{2007}", "3.5\u{2007} %", "-", "1e-3"]);
        assert_eq!(found[1][0], "1", "the first column is as it was");
    }
}
