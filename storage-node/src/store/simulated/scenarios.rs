//! Defines the scenarios of the simulation: which tables are loaded, replaced and dropped.

use rackscan_fabric::sim::Seed;
use rackscan_format::{ids::TableId, schema::Protection};

use super::{
    cluster::Setting,
    folder::StorageDefect,
    load::TablePlan,
    run::{Action, Scenario},
};

/// Honest nodes.
pub(super) fn setting(nodes: usize, protection: Protection) -> Setting {
    Setting { nodes, protection, scratch_bytes: 0, lies: StorageDefect::default() }
}

/// In two stripe sets, with nodes that have nothing or much of it.
pub(super) fn first(nodes: usize) -> TablePlan {
    let counts = [2, 1, 0, 2, 1];
    TablePlan::named(TableId(1), "t").with(0, &counts[..nodes]).protected_after(2)
}

/// Takes the place of the first, without some of its segments, and with new ones here and there.
fn second(nodes: usize) -> TablePlan {
    let counts = [1, 0, 1, 0, 1];
    TablePlan::named(TableId(2), "t")
        .with(20, &counts[..nodes])
        .over(&first(nodes), |number| number % 3 != 0)
        .relayed()
}

/// Takes the place of the first, and keeps nothing.
fn other(nodes: usize) -> TablePlan {
    let counts = [1, 1, 1, 1, 1];
    TablePlan::named(TableId(3), "t").with(30, &counts[..nodes]).over(&first(nodes), |_| false)
}

/// A table of another name, which is written to room that has become free.
fn beside(id: u32, nodes: usize) -> TablePlan {
    let counts = [1, 2, 1, 0, 1];
    TablePlan::named(TableId(id), "u").with(40, &counts[..nodes]).relayed()
}

/// A table is loaded.
pub(super) fn first_load(setting: &Setting, seed: Seed) -> Scenario {
    Scenario::new(setting, &[], vec![Action::Load(first(setting.nodes))], seed.number())
}

/// A table is loaded, whose parity nodes make among themselves.
pub(super) fn relayed_load(setting: &Setting, seed: Seed) -> Scenario {
    Scenario::new(setting, &[], vec![Action::Load(first(setting.nodes).relayed())], seed.number())
}

/// A table is succeeded by one that shares segments and stripe sets with it, and another one is
/// loaded.
pub(super) fn new_version(setting: &Setting, seed: Seed) -> Scenario {
    let nodes = setting.nodes;
    let actions = vec![Action::Load(second(nodes)), Action::Load(beside(4, nodes))];
    Scenario::new(setting, &[Action::Load(first(nodes))], actions, seed.number())
}

/// A table is succeeded by one that shares nothing with it; another one is loaded and given up, and
/// loaded again.
pub(super) fn replaced(setting: &Setting, seed: Seed) -> Scenario {
    let nodes = setting.nodes;
    let actions = vec![
        Action::Load(other(nodes)),
        Action::Load(beside(4, nodes).given_up()),
        Action::Load(beside(5, nodes)),
    ];
    Scenario::new(setting, &[Action::Load(first(nodes))], actions, seed.number())
}

/// A table is dropped, and another one is loaded.
pub(super) fn dropped(setting: &Setting, seed: Seed) -> Scenario {
    let (nodes, table) = (setting.nodes, TableId(1));
    let actions = vec![Action::Drop(table), Action::Load(beside(4, nodes))];
    Scenario::new(setting, &[Action::Load(first(nodes))], actions, seed.number())
}

/// Nodes start for the first time, with a scratch area, and a table is loaded.
pub(super) fn first_start(setting: &Setting, seed: Seed) -> Scenario {
    let setting = Setting { scratch_bytes: 16 << 10, ..setting.clone() };
    Scenario::blank(&setting, vec![Action::Load(beside(4, setting.nodes))], seed.number())
}
