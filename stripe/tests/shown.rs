//! Tests that the text, the picture and the JSON of a stripe agree with the stripe. Method: the
//! text for five nodes is written down completely; JSON and pictures for several numbers of nodes
//! are parsed.

use rackscan_stripe::{Geometry, Lost, Node, Parity, Rebuild, Schedule, Shown, ShownRebuild, Toward, Way};
use serde_json::Value;

fn shown(nodes: usize, stripe: u64, way: Option<Way>) -> (Geometry, Shown) {
    let geometry = Geometry::new(nodes).expect("a number of nodes");
    let schedule = way.map(|way| Schedule::new(&geometry, way));
    let shown = Shown::new(&geometry, stripe, schedule.as_ref());
    (geometry, shown)
}

#[test]
fn the_text_of_five_nodes_is_the_one_that_is_written_down() {
    let (_, shown) = shown(5, 0, Some(Way::Relay));
    assert_eq!(shown.to_string(), include_str!("golden/five_nodes_relay.txt"));
}

#[test]
fn without_a_schedule_only_the_layout_is_shown() {
    let (_, shown) = shown(4, 1, None);
    let lines: Vec<String> = shown.to_string().lines().map(str::to_owned).collect();
    assert_eq!(
        lines[2..],
        [
            "cell  node 0  node 1  node 2  node 3",
            "   0  D+E     A       B       A+B",
            "   1  F       C       C+D     D",
            "   2  A       E+F     E       F",
            "   3  B+C"
        ]
    );
    assert_eq!(serde_json::to_value(&shown).unwrap()["transfers"], Value::Null);
}

#[test]
fn the_text_of_a_rebuild_is_the_one_that_is_written_down() {
    let geometry = Geometry::new(5).unwrap();
    let rebuild = Rebuild::new(&geometry, geometry.lost_with(0, &[Node(1)]).unwrap()).unwrap();
    let shown = ShownRebuild::new(&geometry, 0, &rebuild);
    assert_eq!(shown.to_string(), include_str!("golden/five_nodes_rebuild.txt"));
    let nothing = ShownRebuild::new(&geometry, 3, &Rebuild::new(&geometry, Lost::NONE).unwrap());
    assert_eq!(nothing.to_string(), "stripe 3 over 5 nodes is whole: nothing is rebuilt\n");
}

#[test]
fn json_of_a_rebuild_has_every_step_and_load_under_the_nodes_of_its_stripe() {
    let geometry = Geometry::new(8).unwrap();
    let rebuild = Rebuild::new(&geometry, geometry.lost_with(3, &[Node(6), Node(2)]).unwrap()).unwrap();
    let json = serde_json::to_value(ShownRebuild::new(&geometry, 3, &rebuild)).unwrap();
    assert_eq!(json["lost"], serde_json::json!([2, 6]));
    let steps = json["steps"].as_array().unwrap();
    assert_eq!(steps.len(), rebuild.steps().len());
    let last: Vec<&Value> = steps.iter().filter(|step| step["rebuilds"] == true).collect();
    assert_eq!(last.len(), rebuild.rebuilt().len());
    assert!(last.iter().all(|step| step["to"]["node"] == 2 || step["to"]["node"] == 6));
    for (number, step) in steps.iter().enumerate() {
        for later in step["forwards"].as_array().unwrap() {
            let inputs = &steps[usize::try_from(later.as_u64().unwrap()).unwrap()]["inputs"];
            assert!(inputs.as_array().unwrap().contains(&Value::from(number)));
        }
    }
    let sent: u64 = json["loads"].as_array().unwrap().iter().map(|load| load["sent"].as_u64().unwrap()).sum();
    assert_eq!(sent, steps.len() as u64);
}

#[test]
fn json_has_every_cell_step_and_load() {
    for (nodes, way) in [(3, Way::Relay), (8, Way::Naive), (17, Way::Relay)] {
        let (geometry, shown) = shown(nodes, 2, Some(way));
        let schedule = Schedule::new(&geometry, way);
        let json = serde_json::to_value(&shown).unwrap();
        let transfers = &json["transfers"];
        assert_eq!(json["cells"].as_array().unwrap().len(), geometry.cells().count());
        let first = &json["cells"][0];
        let owner = geometry.node_of(2, geometry.cells().next().unwrap().column).unwrap();
        assert_eq!((&first["name"], &first["node"]), (&Value::from("A"), &Value::from(owner.0)));
        let steps = transfers["steps"].as_array().unwrap();
        assert_eq!(steps.len(), schedule.steps().len());
        assert_eq!(steps[0]["from"], "client");
        let loads = transfers["loads"].as_array().unwrap();
        assert_eq!(loads.len(), nodes + 1);
        let sum = |of: &str| loads.iter().map(|load| load[of].as_u64().unwrap()).sum::<u64>();
        assert_eq!((sum("sent"), sum("received")), (steps.len() as u64, steps.len() as u64));
        assert_eq!(loads[0]["sent_of_link"], 1.0);
        assert_eq!(transfers["bound"]["client"], schedule.bound().client);
    }
}

/// The elements of an XML text, in the order in which they begin.
///
/// # Panics
/// If it is not well formed: an element that is not ended, an attribute without quotes, a stray
/// mark.
fn elements(xml: &str) -> Vec<String> {
    let mut open: Vec<String> = Vec::new();
    let mut seen = Vec::new();
    for piece in xml.split('<').skip(1) {
        let (tag, words) = piece.split_once('>').expect("a tag ends");
        assert!(!words.contains('>'), "{words}");
        assert!(words.split('&').skip(1).all(|entity| entity.split_once(';').is_some()), "{words}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name));
            continue;
        }
        let (body, is_whole) = tag.strip_suffix('/').map_or((tag, false), |body| (body, true));
        let name = body.split(' ').next().expect("a name").to_owned();
        let quotes: Vec<&str> = body.split('"').collect();
        assert!(quotes.len() % 2 == 1, "{body}");
        let names = quotes.iter().step_by(2).take(quotes.len() / 2);
        assert!(names.clone().all(|name| name.ends_with('=')), "{body}");
        seen.push(name.clone());
        if !is_whole {
            open.push(name);
        }
    }
    assert_eq!(open, [""; 0]);
    seen
}

#[test]
fn a_picture_is_well_formed_and_has_every_cell_and_step() {
    for (nodes, way) in [(3, Way::Relay), (5, Way::Relay), (9, Way::Relay), (7, Way::Naive), (30, Way::Relay)]
    {
        let (geometry, shown) = shown(nodes, 1, Some(way));
        let svg = shown.svg();
        let elements = elements(&svg);
        let count = |name: &str| elements.iter().filter(|element| *element == name).count();
        let schedule = Schedule::new(&geometry, way);
        let drawn = if nodes <= 9 { schedule.steps() } else { &[] };
        assert_eq!(count("polygon"), drawn.len(), "{nodes} nodes");
        // The paper and the marks of the legend are rectangles too.
        let joins = drawn.iter().any(|step| step.toward == Toward::BothParities);
        assert_eq!(count("rect"), geometry.cells().count() + 4 + usize::from(joins));
        assert!(svg.is_ascii());
    }
}

#[test]
fn a_picture_of_a_single_parity_names_no_diagonals() {
    for nodes in [2, 3, 9] {
        let geometry = Geometry::with_parity(nodes, Parity::Xor).unwrap();
        let schedule = Schedule::new(&geometry, Way::Relay);
        let svg = Shown::new(&geometry, 1, Some(&schedule)).svg();
        let elements = elements(&svg);
        let count = |name: &str| elements.iter().filter(|element| *element == name).count();
        assert_eq!((count("rect"), count("polygon")), (nodes + 3, schedule.steps().len()));
        assert!(!svg.contains("diagonal"));
    }
}
