//! Draws the picture of a stripe, in these parts from top to bottom:
//!
//! ```text
//! title, legend
//! the cells: a column for each node, as in the paper's figure 3
//! the transfers: a vertical line for the client and for each column, and an arrow for each step, hop by hop, as in the paper's figure 6
//! for each of these lines: how many cells the place sends, receives and XORs
//! ```
//!
//! Invariants
//! - Texts do not overlap, and stay within the picture (a test checks all of them).
//! - Arrows at one height do not overlap; those of one hop are at adjacent heights.
//! - With more than [`ARROWS_NODES_MAX`] nodes, arrows are left out, and the picture says so.

use super::drawing::{Anchor, Drawing, FAINT, width_of};
use super::{Endpoint, Shown, ShownStep, Transfers};
use crate::cell::Role;
use crate::parity::Parity;
use crate::step::Toward;

/// With more nodes, single arrows cannot be followed by eye.
const ARROWS_NODES_MAX: usize = 9;

const FONT_PX: f64 = 12.0;
const LABEL_PX: f64 = 10.5;
const MARGIN_PX: f64 = 20.0;
const ROW_PX: f64 = 26.0;
/// The distance between levels of arrows, which have their words above them.
const LEVEL_PX: f64 = 21.0;
const HEAD_PX: f64 = 92.0;

const BLUE: (&str, &str) = ("#d6e6f4", "#2b6ca3");
const ORANGE: (&str, &str) = ("#fbe0c6", "#c76a12");
const GREEN: (&str, &str) = ("#d5ecd8", "#2f8a46");
const GREY: (&str, &str) = ("#f1f1ee", "#6b6b6b");

/// The positions in the picture.
struct Frame {
    /// The middle of the client's line.
    client_x: f64,
    /// The middle of node 0's column.
    first_x: f64,
    /// The distance from a node to the next.
    pitch: f64,
    width: f64,
}

impl Frame {
    fn of(shown: &Shown) -> Self {
        let names = shown.cells.iter().map(|cell| width_of(&cell.name, FONT_PX));
        let arrows = shown.arrows().iter().map(|step| width_of(&step.sends, LABEL_PX) + 8.0);
        let pitch = names.chain(arrows).fold(76.0, f64::max) + 14.0;
        let client_x = MARGIN_PX + 92.0;
        let first_x = client_x + pitch;
        let columns = first_x + (shown.nodes as f64 - 0.5) * pitch;
        let lines = shown.captions().into_iter().map(|words| width_of(&words, FONT_PX) + MARGIN_PX);
        Self { client_x, first_x, pitch, width: lines.fold(columns.max(780.0), f64::max) + MARGIN_PX }
    }

    fn node_x(&self, node: usize) -> f64 {
        self.first_x + node as f64 * self.pitch
    }

    fn x(&self, place: Endpoint) -> f64 {
        match place {
            Endpoint::Client => self.client_x,
            Endpoint::Node(node) => self.node_x(usize::from(node.0)),
        }
    }
}

impl Shown {
    /// The picture, as SVG.
    #[must_use]
    pub fn svg(&self) -> String {
        let (drawing, size) = self.drawn();
        drawing.written(&self.summary(), size)
    }

    fn drawn(&self) -> (Drawing, (f64, f64)) {
        let mut drawing = Drawing::default();
        let frame = Frame::of(self);
        for (line, words) in self.captions().into_iter().enumerate() {
            let y = MARGIN_PX + 12.0 + line as f64 * 18.0;
            drawing.words((MARGIN_PX, y), FONT_PX, Anchor::Start, words);
        }
        legend(&mut drawing, self.parity, self.arrows());
        let below = self.draw_layout(&mut drawing, &frame);
        let mut bottom = below;
        if let Some(transfers) = &self.transfers {
            bottom = draw_steps(&mut drawing, &frame, (below, self.nodes), self.arrows());
            bottom = transfers.draw_loads(&mut drawing, &frame, bottom);
        }
        (drawing, (frame.width, bottom + MARGIN_PX))
    }

    /// The lines above the picture.
    fn captions(&self) -> Vec<String> {
        let transfers = self.transfers.as_ref().map(|transfers| transfers.summary(self.data_cells));
        [self.summary()].into_iter().chain(transfers).collect()
    }

    /// The steps that are drawn.
    fn arrows(&self) -> &[ShownStep] {
        match &self.transfers {
            Some(transfers) if self.nodes <= ARROWS_NODES_MAX => &transfers.steps,
            _ => &[],
        }
    }

    /// Draws the cells, a column per node. Returns where they end.
    fn draw_layout(&self, drawing: &mut Drawing, frame: &Frame) -> f64 {
        let top = HEAD_PX + 22.0;
        for node in 0..self.nodes {
            let x = frame.node_x(node);
            drawing.words((x, HEAD_PX + 14.0), FONT_PX, Anchor::Middle, format!("node {node}"));
            for slot in 0..self.slots() {
                let Some(cell) = self.at(node, slot) else { continue };
                let colours = match cell.role {
                    Role::Data { .. } => GREY,
                    Role::HorizontalParity { .. } => BLUE,
                    Role::DiagonalParity { .. } => ORANGE,
                };
                let corner = (x - frame.pitch / 2.0 + 4.0, top + slot as f64 * ROW_PX);
                drawing.rectangle(corner, (frame.pitch - 8.0, ROW_PX - 4.0), colours);
                drawing.words((x, corner.1 + 15.0), FONT_PX, Anchor::Middle, cell.name.clone());
            }
        }
        top + self.slots() as f64 * ROW_PX
    }
}

fn legend(drawing: &mut Drawing, parity: Parity, steps: &[ShownStep]) {
    let mut x = MARGIN_PX;
    let joins = steps.iter().any(|step| step.toward == Toward::BothParities);
    let both = joins.then_some((GREEN, "data, into both parities elsewhere"));
    let entries: &[_] = match parity {
        Parity::Xor => &[(GREY, "data"), (BLUE, "parity")],
        Parity::TwoD => &[(GREY, "data"), (BLUE, "horizontal parity"), (ORANGE, "diagonal parity")],
    };
    for (colours, words) in entries.iter().copied().chain(both) {
        drawing.rectangle((x, 62.0), (14.0, 14.0), colours);
        drawing.words((x + 20.0, 73.0), LABEL_PX, Anchor::Start, words);
        x += 20.0 + width_of(words, LABEL_PX) + 24.0;
    }
}

/// Draws the lines of all places from `top` on, and the arrows between them. Returns where they
/// end.
fn draw_steps(drawing: &mut Drawing, frame: &Frame, (top, nodes): (f64, usize), steps: &[ShownStep]) -> f64 {
    if steps.is_empty() {
        let words =
            format!("single steps are drawn for up to {ARROWS_NODES_MAX} nodes: the text has all of them");
        drawing.words((MARGIN_PX, top + 24.0), FONT_PX, Anchor::Start, words);
        drawing.words((frame.client_x, top + 54.0), FONT_PX, Anchor::Middle, "client");
        return top + 58.0;
    }
    let levels = levels(frame, steps);
    let count = levels.iter().map(|(level, _)| level + 1).max().unwrap_or(0);
    let bottom = top + 44.0 + count as f64 * LEVEL_PX;
    drawing.words((frame.client_x, top + 20.0), FONT_PX, Anchor::Middle, "client");
    drawing.line((frame.client_x, top + 26.0), (frame.client_x, bottom), FAINT, 1.0);
    for node in 0..nodes {
        drawing.line((frame.node_x(node), top), (frame.node_x(node), bottom), FAINT, 1.0);
    }
    let mut hop = None;
    for (level, at) in levels {
        let Some(step) = steps.get(at) else { continue };
        let y = top + 48.0 + level as f64 * LEVEL_PX;
        if hop != Some(step.hop) {
            hop = Some(step.hop);
            drawing.words((MARGIN_PX, y + 3.0), LABEL_PX, Anchor::Start, format!("hop {}", step.hop));
        }
        let (from, to) = (frame.x(step.from), frame.x(step.to));
        let (_, colour) = match step.toward {
            Toward::Data => GREY,
            Toward::BothParities => GREEN,
            Toward::HorizontalParity { .. } => BLUE,
            Toward::DiagonalParity { .. } => ORANGE,
        };
        drawing.arrow(from, to, y, colour);
        // Beside the head, so that the end of the arrow is visible.
        let label = to + (from - to).signum() * frame.pitch / 2.0;
        drawing.words((label, y - 4.0), LABEL_PX, Anchor::Middle, step.sends.clone());
    }
    bottom
}

/// The level on which each step is drawn: hop by hop, each on the first level of its hop with room.
fn levels(frame: &Frame, steps: &[ShownStep]) -> Vec<(usize, usize)> {
    let mut order: Vec<usize> = (0..steps.len()).collect();
    order.sort_by_key(|at| steps[*at].hop);
    let mut placed = Vec::with_capacity(steps.len());
    let mut hop = None;
    let mut first = 0;
    let mut taken: Vec<Vec<(f64, f64)>> = Vec::new();
    for at in order {
        let step = &steps[at];
        if hop != Some(step.hop) {
            hop = Some(step.hop);
            first = taken.len();
        }
        let (from, to) = (frame.x(step.from), frame.x(step.to));
        let span = (from.min(to), from.max(to));
        let is_free =
            |level: &Vec<(f64, f64)>| level.iter().all(|other| span.0 >= other.1 || span.1 <= other.0);
        let level = (first..taken.len()).find(|level| is_free(&taken[*level])).unwrap_or(taken.len());
        if level == taken.len() {
            taken.push(Vec::new());
        }
        taken[level].push(span);
        placed.push((level, at));
    }
    placed.sort_unstable();
    placed
}

impl Transfers {
    /// Draws the numbers below each line. Returns where they end.
    fn draw_loads(&self, drawing: &mut Drawing, frame: &Frame, top: f64) -> f64 {
        let rows = ["sends", "of link", "receives", "of link", "XORs"];
        for (row, words) in rows.into_iter().enumerate() {
            let y = top + 22.0 + row as f64 * 18.0;
            drawing.words((MARGIN_PX, y), LABEL_PX, Anchor::Start, words);
            for shown in &self.loads {
                let words = match row {
                    0 => shown.load.sent.to_string(),
                    1 => format!("{:.3}", shown.sent_of_link),
                    2 => shown.load.received.to_string(),
                    3 => format!("{:.3}", shown.received_of_link),
                    _ => shown.load.xors.to_string(),
                };
                drawing.words((frame.x(shown.place), y), FONT_PX, Anchor::Middle, words);
            }
        }
        let mut y = top + 22.0 + rows.len() as f64 * 18.0 + 8.0;
        for words in self.limits() {
            drawing.words((MARGIN_PX, y), LABEL_PX, Anchor::Start, words);
            y += 17.0;
        }
        y
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::drawing::Words;
    use crate::{Geometry, Schedule, Way};

    /// The left, upper, right and lower edge.
    fn edges(words: &Words) -> [f64; 4] {
        let width = width_of(&words.words, words.size);
        let left = match words.anchor {
            Anchor::Start => words.at.0,
            Anchor::Middle => words.at.0 - width / 2.0,
        };
        [left, words.at.1 - 0.78 * words.size, left + width, words.at.1 + 0.22 * words.size]
    }

    fn pictures() -> Vec<(String, Drawing, (f64, f64))> {
        let mut pictures = Vec::new();
        let two = (3..=13).chain([17, 24, 64]).map(|nodes| Geometry::new(nodes).unwrap());
        let one = (2..=13).chain([64]).map(|nodes| Geometry::with_parity(nodes, Parity::Xor).unwrap());
        for geometry in two.chain(one) {
            let (nodes, parity) = (geometry.nodes(), geometry.parity());
            let ways = [None, Some(Way::Naive), Some(Way::Relay)];
            for (stripe, way) in (nodes as u64 - 1..).zip(ways) {
                let schedule = way.map(|way| Schedule::new(&geometry, way));
                let (drawing, size) = Shown::new(&geometry, stripe, schedule.as_ref()).drawn();
                pictures.push((format!("{parity}, {nodes} nodes, {way:?}"), drawing, size));
            }
        }
        pictures
    }

    #[test]
    fn words_do_not_overlap_and_stay_within_the_picture() {
        for (picture, drawing, (width, height)) in pictures() {
            let mut edges: Vec<([f64; 4], &str)> =
                drawing.words.iter().map(|words| (edges(words), words.words.as_str())).collect();
            edges.sort_by(|(one, _), (other, _)| one[1].total_cmp(&other[1]));
            for (at, (one, words)) in edges.iter().enumerate() {
                let [left, top, right, bottom] = *one;
                assert!(
                    left >= 0.0 && top >= 0.0 && right <= width && bottom <= height,
                    "{picture}: {words}"
                );
                let near = edges[at + 1..].iter().take_while(|(other, _)| other[1] < bottom);
                for (other, beside) in near {
                    let apart = other[2] <= left || other[0] >= right;
                    assert!(apart, "{picture}: {words} and {beside}");
                }
            }
        }
    }

    #[test]
    fn arrows_on_a_level_do_not_overlap_and_hops_go_down_the_picture() {
        let two = (3..=ARROWS_NODES_MAX).map(|nodes| Geometry::new(nodes).unwrap());
        let one = (2..=ARROWS_NODES_MAX).map(|nodes| Geometry::with_parity(nodes, Parity::Xor).unwrap());
        for geometry in two.chain(one) {
            let nodes = geometry.nodes();
            let shown = Shown::new(&geometry, 1, Some(&Schedule::new(&geometry, Way::Relay)));
            let frame = Frame::of(&shown);
            let steps = shown.arrows();
            let placed = levels(&frame, steps);
            assert_eq!(placed.len(), steps.len());
            assert!(placed.iter().map(|(_, at)| steps[*at].hop).is_sorted());
            for (index, (level, at)) in placed.iter().enumerate() {
                let span = |at: usize| [frame.x(steps[at].from), frame.x(steps[at].to)];
                let [low, high] = [span(*at)[0].min(span(*at)[1]), span(*at)[0].max(span(*at)[1])];
                for (_, other) in placed[index + 1..].iter().filter(|(other, _)| other == level) {
                    let apart =
                        span(*other).iter().all(|x| *x <= low) || span(*other).iter().all(|x| *x >= high);
                    assert!(apart, "{nodes} nodes, steps {at} and {other}");
                }
            }
        }
    }
}
