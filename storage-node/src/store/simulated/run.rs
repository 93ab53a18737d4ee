//! Runs a scenario with a fault, and checks the tables afterwards.
//!
//! Invariants
//! - The tables are checked at these times: by the nodes that still run, before the others restart;
//!   when all have restarted; when all have lost power once more, and with it everything that was
//!   not durable; and, in some runs, after other tables were written to the free space.

use rackscan_format::{
    ids::{SegmentId, TableId},
    withheld::WithheldRows,
};

use super::{
    check::{Found, Ledger, check, check_known, check_room, published},
    cluster::{Cluster, Crash, Setting},
    folder::{Image, StorageDefect},
    load::{Defect, Outcome, TablePlan, load},
    node::{Media, SimNode},
    stripes::{Plans, parity_of},
};

/// In one of this many runs, other tables are written to the free space at the end.
const FILLED: u64 = 4;

/// An action of a scenario.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Load(TablePlan),
    Drop(TableId),
}

/// The actions, and the nodes that they run on.
pub(super) struct Scenario {
    setting: Setting,
    actions: Vec<Action>,
    seed: u64,
    /// The content of all nodes when it begins.
    media: Vec<Media>,
    ledger: Ledger,
}

/// The result of a run.
#[derive(Debug)]
pub(super) struct Ran {
    /// Of all, and of each: nodes, then the client.
    pub(super) steps: (u64, Vec<u64>),
    pub(super) restarts: u64,
    pub(super) found: Found,
    /// Of the loads.
    pub(super) outcomes: Vec<Outcome>,
}

/// Prints which crash it was, if a check fails.
struct Replay<'c>(&'c Crash);

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("after {:?}", self.0);
        }
    }
}

impl Scenario {
    /// Nodes with earlier actions, and the actions to run.
    pub(super) fn new(setting: &Setting, before: &[Action], actions: Vec<Action>, seed: u64) -> Self {
        let honest = Setting { lies: StorageDefect::default(), ..setting.clone() };
        let blank = vec![Media::blank(); setting.nodes];
        let (mut cluster, mut ledger) = (Cluster::over(&honest, &blank, seed), Ledger::default());
        cluster.start_all();
        for action in before {
            perform(&mut cluster, action, &mut ledger);
        }
        let media = cluster.stop();
        Self { setting: setting.clone(), actions, seed, media, ledger }
    }

    /// Nodes that have never started.
    pub(super) fn blank(setting: &Setting, actions: Vec<Action>, seed: u64) -> Self {
        let media = vec![Media::blank(); setting.nodes];
        Self { setting: setting.clone(), actions, seed, media, ledger: Ledger::default() }
    }

    /// Steps of a run in which nothing goes wrong: of all, and of each.
    pub(super) fn steps(&self, plans: &mut Plans) -> (u64, Vec<u64>) {
        self.run(&Crash::none(), plans).steps
    }

    /// Runs all actions, with this crash.
    pub(super) fn run(&self, crash: &Crash, plans: &mut Plans) -> Ran {
        let _replay = Replay(crash);
        let mut ledger = self.ledger.clone();
        let mut cluster = Cluster::over(&self.setting, &self.media, self.seed);
        cluster.begin(crash);
        cluster.recover();
        let mut outcomes = Vec::new();
        for action in &self.actions {
            outcomes.extend(perform(&mut cluster, action, &mut ledger));
            let restarts = cluster.restarts;
            look_at_who_is_left(&mut cluster, &ledger, plans);
            cluster.start_all();
            cluster.power.hold(true);
            check_known(&mut cluster, &ledger);
            cluster.power.hold(false);
            cluster.recover();
            if cluster.restarts > restarts {
                cluster.power.hold(true);
                check(&mut cluster, &ledger, plans);
                cluster.power.hold(false);
            }
        }
        let (steps, restarts) = (cluster.power.steps(), cluster.restarts);
        cluster.begin(&Crash { cuts: Vec::new(), ..crash.clone() });
        let before = published(&mut cluster);
        cluster.lose_all(Image::OnlySynced);
        assert_eq!(published(&mut cluster), before, "what was published was not durable");
        let found = check(&mut cluster, &ledger, plans);
        check_room(&mut cluster);
        if crash.seed.is_multiple_of(FILLED) {
            fill(&mut cluster, &mut ledger, plans);
        }
        Ran { steps, restarts, found, outcomes }
    }
}

/// Checks that the nodes that are left know what was acknowledged, and have all bytes of it, if the
/// parity tolerates the loss of the others.
fn look_at_who_is_left(cluster: &mut Cluster, ledger: &Ledger, plans: &mut Plans) {
    let down = cluster.down().len();
    let is_borne = down <= parity_of(cluster.setting.protection).lost_max();
    if down == 0 || !is_borne || !cluster.power.is_on(cluster.client()) {
        return;
    }
    cluster.power.hold(true);
    check_known(cluster, ledger);
    check(cluster, ledger, plans);
    cluster.power.hold(false);
}

/// Writes a table to the lowest free space, and checks that no published table has anything there.
fn fill(cluster: &mut Cluster, ledger: &mut Ledger, plans: &mut Plans) {
    let appends =
        (0..cluster.nodes.len()).map(|place| (place, SegmentId(u32::try_from(place).unwrap()), 1300));
    let wanted = TablePlan { appends: appends.collect(), ..TablePlan::named(TableId(90), "filling") };
    let outcome = load(cluster, &wanted);
    assert_eq!(outcome, Outcome::Acknowledged, "there is room, and everybody is there");
    ledger.loaded(&wanted, outcome);
    check(cluster, ledger, plans);
}

fn perform(cluster: &mut Cluster, action: &Action, ledger: &mut Ledger) -> Option<Outcome> {
    match action {
        Action::Load(wanted) => {
            let outcome = load(cluster, wanted);
            ledger.loaded(wanted, outcome);
            Some(outcome)
        }
        Action::Drop(table) => {
            let dropped = cluster.drop_table(*table);
            ledger.dropped(*table, dropped.is_ok());
            None
        }
    }
}

impl Cluster {
    /// Stops all nodes cleanly. Returns the content of their media.
    fn stop(mut self) -> Vec<Media> {
        self.nodes
            .iter_mut()
            .for_each(|node| node.crash(Image::OnlySynced, &mut fastrand::Rng::with_seed(0)));
        self.nodes.iter().map(SimNode::media).collect()
    }
}

impl TablePlan {
    /// A table without segments so far.
    pub(super) fn named(table: TableId, name: &'static str) -> Self {
        Self {
            table,
            name,
            succeeds: None,
            appends: Vec::new(),
            keeps: Vec::new(),
            protect_after: None,
            is_relayed: false,
            is_given_up: false,
            defect: None,
        }
    }

    /// The same, with segments from this number on: so many at each node, of different lengths.
    pub(super) fn with(mut self, first: u32, counts: &[u32]) -> Self {
        let mut number = first;
        for (place, count) in counts.iter().enumerate() {
            for _ in 0..*count {
                self.appends.push((place, SegmentId(number), 300 + number * 391 % 900));
                number += 1;
            }
        }
        self
    }

    /// The same, taking the place of a table and keeping of it what is chosen, one row less of
    /// some.
    pub(super) fn over(mut self, before: &Self, is_kept: impl Fn(u32) -> bool) -> Self {
        self.succeeds = Some(before.table);
        let had = before.appends.iter().map(|(place, number, rows)| (*place, before.table, *number, *rows));
        let kept = before.keeps.iter().map(|keep| (keep.0, keep.1, keep.2, keep.3));
        for (place, table, number, rows) in had.chain(kept).filter(|had| is_kept(had.2.0)) {
            let withheld =
                if number.0 % 2 == 0 { WithheldRows::of([7]).unwrap() } else { WithheldRows::NONE };
            self.keeps.push((place, table, number, rows, withheld));
        }
        self
    }

    pub(super) fn protected_after(mut self, segments: usize) -> Self {
        self.protect_after = Some(segments);
        self
    }

    pub(super) fn relayed(mut self) -> Self {
        self.is_relayed = true;
        self
    }

    pub(super) fn given_up(mut self) -> Self {
        self.is_given_up = true;
        self
    }

    pub(super) fn wrong(mut self, defect: Defect) -> Self {
        self.defect = Some(defect);
        self
    }
}
