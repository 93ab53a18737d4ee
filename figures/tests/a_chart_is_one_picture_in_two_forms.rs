//! Tests that a chart is drawn completely as SVG and as PNG, or refused if it cannot be drawn.

use rackscan_figures::{Axis, Chart, FigureError, Kind, POINTS_MAX, Point, SERIES_MAX, Scale, Series};

fn chart(kind: Kind, series: Vec<Series>) -> Chart {
    Chart {
        title: "remote reads of 4 KiB".to_owned(),
        kind,
        x: Axis::new("connections", Scale::Log2),
        y: Axis::new("IOPS", Scale::Linear),
        series,
    }
}

fn groups(names: &[&str]) -> Kind {
    Kind::Bars(names.iter().map(|name| (*name).to_owned()).collect())
}

/// The number of occurrences of `part` in `text`.
fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

/// Width and height according to the file's header.
fn png_size(png: &[u8]) -> (u32, u32) {
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    let word = |at: usize| u32::from_be_bytes([png[at], png[at + 1], png[at + 2], png[at + 3]]);
    (word(16), word(20))
}

#[test]
fn lines_have_a_title_labels_a_legend_a_polyline_and_a_mark_for_each_point() {
    let svg = chart(
        Kind::Lines,
        vec![
            Series::new("reactor", [(1.0, 10_000.0), (2.0, 20_000.0), (4.0, 30_000.0)]),
            Series::new("static", [(1.0, 5_000.0), (2.0, 9_000.0)]),
        ],
    )
    .svg()
    .unwrap();
    for words in ["remote reads of 4 KiB", "connections", "IOPS", "reactor", "static", "30k"] {
        assert!(svg.contains(&format!(">{words}</text>")), "no {words} in {svg}");
    }
    // A dashed line, and a line for the second series, both also in the legend; the other lines are
    // grid and axes.
    assert_eq!(count(&svg, "stroke-width=\"1.8\""), 4);
    // Circles mark the first series: three points and its entry in the legend.
    assert_eq!(count(&svg, "<circle"), 4);
}

#[test]
fn the_same_chart_gives_the_same_bytes() {
    let chart = chart(Kind::Scatter, vec![Series::new("a", [(1.0, 1.0), (8.0, 3.0)])]);
    assert_eq!(chart.svg().unwrap(), chart.svg().unwrap());
    assert_eq!(chart.png().unwrap(), chart.png().unwrap());
}

#[test]
fn a_png_shows_text_and_marks_not_an_empty_sheet() {
    let full = chart(Kind::Lines, vec![Series::new("a", [(1.0, 1.0), (8.0, 3.0)])]);
    let mut wordless = full.clone();
    wordless.title.clear();
    let mut pointless = full.clone();
    pointless.series[0].points.clear();
    let (full, wordless, pointless) =
        (full.png().unwrap(), wordless.png().unwrap(), pointless.png().unwrap());
    assert_eq!(png_size(&full), (1440, 810));
    assert_ne!(full, wordless, "the title was not drawn");
    assert_ne!(full, pointless, "the points were not drawn");
}

#[test]
fn bars_stand_in_their_groups_and_carry_error_bars() {
    let point = |x, y| Point { x, y, bar: Some((y - 1.0, y + 1.0)) };
    let local = Series::of("local", vec![point(0.0, 5.0), point(1.0, 7.0)]);
    let remote = Series::of("remote", vec![point(0.0, 4.0), point(1.0, 6.0)]);
    let svg = chart(groups(&["512 B", "4 KiB"]), vec![local, remote]).svg().unwrap();
    assert!(svg.contains(">512 B</text>") && svg.contains(">4 KiB</text>"));
    // The background, four bars and two squares of the legend.
    assert_eq!(count(&svg, "<rect"), 7);
    // Each error bar also has its light line.
    assert_eq!(count(&svg, "class=\"bar\""), 8);
}

#[test]
fn a_bar_outside_of_the_groups_is_refused() {
    for x in [2.0, -1.0, 0.5] {
        let result = chart(groups(&["a", "b"]), vec![Series::new("s", [(x, 1.0)])]).svg();
        assert!(matches!(result, Err(FigureError::NoSuchGroup { value, groups: 2, .. }) if value == x));
    }
}

#[test]
fn charts_without_points_or_with_one_are_drawn() {
    for scale in [Scale::Linear, Scale::Log2, Scale::Log10] {
        for series in [vec![], vec![Series::new("none", [])], vec![Series::new("one", [(3.0, 5.0)])]] {
            let mut chart = chart(Kind::Lines, series);
            (chart.x.scale, chart.y.scale) = (scale, scale);
            let svg = chart.svg().unwrap();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            let empty = chart.series.iter().all(|series| series.points.is_empty());
            assert_eq!(svg.contains("no points"), empty);
            assert!(chart.png().is_ok());
        }
    }
}

#[test]
fn a_value_without_a_place_is_refused_by_name() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let error = chart(Kind::Lines, vec![Series::new("s", [(1.0, 1.0), (2.0, value)])]).svg().unwrap_err();
        assert!(error.to_string().contains("series \"s\": point 1 has y"), "{error}");
    }
    let error = chart(Kind::Lines, vec![Series::new("s", [(0.0, 1.0)])]).svg().unwrap_err();
    assert!(matches!(error, FigureError::NotPositive { what: "x", value: 0.0, .. }));
    let outside = Point { x: 1.0, y: 5.0, bar: Some((6.0, 7.0)) };
    let series = Series::of("s", vec![outside]);
    assert!(matches!(chart(Kind::Lines, vec![series]).svg(), Err(FigureError::OutsideItsBar { .. })));
}

#[test]
fn ten_thousand_points_are_drawn_small_and_more_are_refused() {
    let points = |count: usize| (1..=count).map(|at| (at as f64, (at % 97) as f64));
    let svg = chart(Kind::Scatter, vec![Series::new("s", points(POINTS_MAX))]).svg().unwrap();
    assert!(svg.len() < 400_000, "{} bytes", svg.len());
    assert!(count(&svg, "h.01") == POINTS_MAX);
    let error = chart(Kind::Scatter, vec![Series::new("s", points(POINTS_MAX + 1))]).svg().unwrap_err();
    assert!(matches!(error, FigureError::TooManyPoints { found, .. } if found == POINTS_MAX + 1));
}

#[test]
fn series_that_could_not_be_told_apart_are_refused() {
    let series = |count| (0..count).map(|at| Series::new(format!("{at}"), [(1.0, 1.0)])).collect();
    assert!(chart(Kind::Lines, series(SERIES_MAX)).svg().is_ok());
    let error = chart(Kind::Lines, series(SERIES_MAX + 1)).svg().unwrap_err();
    assert!(matches!(error, FigureError::TooManySeries { found, .. } if found == SERIES_MAX + 1));
}

#[test]
fn names_cannot_become_markup() {
    let evil = "</text><script>alert('1')</script>\u{0}&";
    let mut chart = chart(groups(&[evil]), vec![Series::new(evil, [(0.0, 1.0)])]);
    (chart.title, chart.x.label, chart.y.label) = (evil.to_owned(), evil.to_owned(), evil.to_owned());
    let svg = chart.svg().unwrap();
    assert!(!svg.contains("<script") && !svg.contains('\u{0}'));
    assert!(chart.png().is_ok(), "the picture is still well-formed XML");
}
