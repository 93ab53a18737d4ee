//! Runs a round: clients work, faults begin and end, all transactions in doubt are resolved, and
//! the history is checked.

use super::{
    answers,
    cluster::Cluster,
    faults::{Plan, Running},
    history::{Cell, Number, Read},
    kinds::{Fault, Operation},
    process::{Exit, Ran},
    workload::Client,
    world::{COUNTER, Table, World, keys},
};
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::{Duration, Instant},
};

const CLIENTS: usize = 3;
const TURNS: u64 = 5;
/// Maximum time for nodes to settle everything. They need seconds.
const SETTLED_AFTER_MAX: Duration = Duration::from_secs(90);
/// Maximum attempts of a rebuild whose error says that nodes do not answer.
const REBUILD_ATTEMPTS_MAX: usize = 3;
const REPEATED_AFTER: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs a round; its violations become problems of the world.
pub(crate) fn round(world: &World, cluster: &mut Cluster, plan: &Plan, random: &mut fastrand::Rng) {
    let nodes = cluster.nodes.len();
    world.log("round", &format!("{plan:?}"));
    let mut running = Running { world, cluster, plan, to_rebuild: Vec::new(), to_scrub: false };
    if let Err(problem) = running.prepare() {
        return world.problem(problem);
    }
    let reach = running.cluster.reach();
    let busy = AtomicUsize::new(CLIENTS);
    let clients = (0..CLIENTS).map(|client| Client {
        name: format!("client {client}"),
        world,
        reach: reach.clone(),
        random: random.fork(),
        faults: &plan.faults,
        nodes,
        shell: None,
        has_shell: client > 0,
    });
    let clients: Vec<Client<'_>> = clients.collect();
    std::thread::scope(|scope| {
        for mut client in clients {
            let busy = &busy;
            scope.spawn(move || {
                (0..TURNS).for_each(|_| client.turn());
                busy.fetch_sub(1, Relaxed);
            });
        }
        // Faults begin, and nodes are restarted, when clients have begun a given number of
        // operations.
        let begun = world.begun();
        let total = TURNS * CLIENTS as u64;
        let mut at = 0;
        for fault in &plan.faults {
            at += random.u64(0..total / 2);
            wait(|| world.begun() >= begun + at || busy.load(Relaxed) == 0);
            running.begin(*fault, random);
            if random.bool() {
                at += random.u64(0..total / 2);
                wait(|| world.begun() >= begun + at || busy.load(Relaxed) == 0);
                if let Err(problem) = running.start_some() {
                    world.problem(problem);
                }
            }
        }
    });
    if let Err(problem) = running.end().and_then(|()| settle(&mut running)) {
        world.problem(problem);
    }
}

fn wait(is_so: impl Fn() -> bool) {
    // Clients end by themselves, in a bounded time each.
    while !is_so() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until nothing is in doubt, reads everything, and checks the history.
fn settle(running: &mut Running<'_>) -> Result<(), String> {
    let (world, reach) = (running.world, running.cluster.reach());
    let run = |line: &str| {
        let words: Vec<String> = line.split('|').map(str::to_owned).collect();
        let ran = reach.run(&words, None, None);
        let said = format!("{} {}", ran.out.trim_end().replace('\n', " "), ran.message());
        world.log("settle", &format!("{:?} of {line}: {said:.600}", ran.exit));
        if let Some(outrage) = ran.outrage() {
            world.problem(format!("rackscan {line}: {outrage}"));
        }
        ran
    };
    let quiet = || {
        until_quiet(
            || {
                reach.run(
                    &["cluster".into(), "status".into(), "--format".into(), "ndjson".into()],
                    None,
                    None,
                )
            },
            running.cluster.nodes.len(),
        )
    };
    let rebuild = |node: &usize| {
        let mut ran = run(&format!("rebuild|{node}"));
        // Where many programs share a processor a node may be slow. The command's error says so,
        // and its user repeats it.
        for _ in 1..REBUILD_ATTEMPTS_MAX {
            if ran.exit == Exit::Code(0) || !ran.err.contains("cannot be reached; start them") {
                break;
            }
            std::thread::sleep(REPEATED_AFTER);
            ran = run(&format!("rebuild|{node}"));
        }
        // A drop that failed may have begun. What is said of its table says to repeat it.
        if ran.exit != Exit::Code(0) && repeat_drops(world, &ran.err, &run) {
            ran = run(&format!("rebuild|{node}"));
        }
        world.did(Operation::Rebuild, ran.exit == Exit::Code(0));
        if ran.exit == Exit::Code(0) {
            return Ok(());
        }
        Err(format!("node {node} cannot be rebuilt while all nodes run: {} {}", ran.out, ran.err))
    };
    quiet()?;
    running.to_rebuild.iter().try_for_each(rebuild)?;
    if running.to_scrub {
        let ran = run("scrub");
        world.did(Operation::Scrub, ran.exit == Exit::Code(0));
        if ran.exit != Exit::Code(0) {
            return Err(format!(
                "what was flipped is not repaired while all nodes run: {} {}",
                ran.out, ran.err
            ));
        }
    }
    quiet()?;
    let (last, present) = look(world, &run)?;
    look_at_counter(world, &run)?;
    let mut state = world.state();
    let mut history = std::mem::take(&mut state.history);
    history.read(last.clone());
    let violations = history.check();
    let (in_doubt, surfaced) = history.in_doubt();
    state.counts.surfaced += surfaced;
    state.counts.decided += in_doubt - surfaced;
    history.settle(&last, present);
    state.history = history;
    drop(state);
    violations.iter().for_each(|violation| world.problem(violation.to_string()));
    Ok(())
}

/// Repeats the drops that failed and that `said` says to repeat. Returns whether there are any.
fn repeat_drops(world: &World, said: &str, run: &impl Fn(&str) -> Ran) -> bool {
    let tables = world.state().tables.clone();
    let mut again: Vec<&Table> = tables.iter().filter(|table| !table.is_there).collect();
    again.retain(|table| said.contains(&format!("repeat that: `rackscan drop {}`", table.name)));
    for table in &again {
        run(&format!("drop|{}", table.name));
    }
    !again.is_empty()
}

/// Waits until all nodes are up, have all log replicas, and nothing in doubt.
fn until_quiet(status: impl Fn() -> Ran, nodes: usize) -> Result<(), String> {
    let deadline = Instant::now() + SETTLED_AFTER_MAX;
    loop {
        let Ran { out, err, .. } = status();
        let rows: Vec<serde_json::Value> =
            out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        // Two nodes may lose everything only once all others know which replicas are valid.
        let is_known = |row: &serde_json::Value| {
            row["log replicas"].as_str().is_some_and(|state| {
                state.contains("generation ")
                    && !state.contains("generation 0")
                    && !state.contains("not known")
            })
        };
        let is_quiet = |row: &serde_json::Value| {
            row["state"] == "up" && row["in doubt"] == 0 && row["log copies"] == 2 && is_known(row)
        };
        if rows.len() == nodes && rows.iter().all(is_quiet) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!(
                "all nodes run, and after {SETTLED_AFTER_MAX:?} this is their state: {out}{err}"
            ));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Reads everything, while nobody writes.
fn look(world: &World, run: &impl Fn(&str) -> Ran) -> Result<(Read, Vec<Cell>), String> {
    let from = world.now();
    let asked = keys().collect::<Vec<_>>().join("|");
    let ran = run(&format!("kv|multi-get|--format|ndjson|{asked}"));
    let failed = |what: &str, ran: &Ran| format!("{what} cannot be read while all nodes run: {}", ran.err);
    if ran.exit != Exit::Code(0) {
        return Err(failed("keys", &ran));
    }
    let mut found: BTreeMap<Cell, Number> = answers::pairs(&ran.out, keys())?;
    let (mut kept, mut present) = (Vec::new(), Vec::new());
    let tables: Vec<Table> = world.state().tables.clone();
    for mut table in tables {
        let read = || run(&format!("sql|--format|ndjson|select k, v from {}", table.name));
        let mut ran = read();
        // A drop that failed may have begun. The error says to repeat it.
        if !table.is_there && ran.err.contains("is incomplete") && ran.err.contains("drop it") {
            run(&format!("drop|{}", table.name));
            ran = read();
        }
        match ran.exit {
            Exit::Code(0) => {
                found.extend(answers::rows(&ran.out, &table, None)?);
                present.push(table.name.clone());
                table.is_there = true;
                kept.push(table);
            }
            Exit::Code(_) if ran.err.contains("there is no table") => {
                found.insert(table.name.clone(), 0);
                // The next load creates tables that clients write to again.
                if table.is_written {
                    table.is_there = false;
                    kept.push(table);
                }
            }
            _ => return Err(failed(&table.name, &ran)),
        }
    }
    world.state().tables = kept;
    Ok((Read { found, from, to: world.now(), is_sql: false, is_settled: true }, present))
}

/// Each acknowledged increment counts once, each one in doubt once or not at all, and no other.
fn look_at_counter(world: &World, run: &impl Fn(&str) -> Ran) -> Result<(), String> {
    let ran = run(&format!("sql|--format|ndjson|select k, v from {COUNTER}"));
    if ran.exit != Exit::Code(0) {
        return Err(format!("{COUNTER} cannot be read while all nodes run: {}", ran.err));
    }
    let found = answers::counter(&ran.out)?;
    let (least, in_doubt) = std::mem::replace(&mut world.state().number, (found, 0));
    if !(least..=least + in_doubt).contains(&found) {
        world.problem(format!(
            "additions were lost or made twice: {COUNTER} is {found}, expected {least} to {}",
            least + in_doubt
        ));
    }
    Ok(())
}

/// Loads the tables that clients write to, before the first round.
pub(crate) fn begin(world: &World, cluster: &Cluster, random: &mut fastrand::Rng) {
    let faults: [Fault; 0] = [];
    let nodes = cluster.nodes.len();
    let mut client = Client {
        name: "first".to_owned(),
        world,
        reach: cluster.reach(),
        random: random.fork(),
        faults: &faults,
        nodes,
        shell: None,
        has_shell: false,
    };
    for table in ["t0", "t1"] {
        client.load(Operation::Load, table, true);
    }
    client.load_counter();
    let state = world.state();
    let loaded = state.counts.operations.get(&Operation::Load).map_or(0, |ends| ends.acknowledged);
    drop(state);
    if loaded != 2 {
        world.problem("the first tables cannot be loaded".to_owned());
    }
}
