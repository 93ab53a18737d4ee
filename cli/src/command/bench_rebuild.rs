//! `rackscan lab rebuild`: measures how fast a node that has lost everything is rebuilt.

use super::{bench::write_lines, load};
use crate::{
    args::{BenchRebuild, Format, Global, SCHEDULES, word_of},
    cluster::{ClusterFile, NarrowWire, Shape, SlowDisks, create, own_folder},
    failure::{Failure, at_path},
    output::{Cell, TextTable, bytes},
    progress,
    session::Session,
};
use rackscan_client::{RebuildReport, RepairProgress, ScrubOptions};
use rackscan_fabric::Wire;
use rackscan_format::ids::NodeId;
use rackscan_lab::{
    Stream, move_bytes,
    rebuild::{RebuildLine, RebuildSetting, RebuildTurn, line},
};
use rackscan_stripe::Way;
use std::{fs, path::PathBuf, time::Instant};

/// Approximate start of a device's pages in bytes: after its label.
const DATA_FROM: u64 = 1 << 20;

/// Loads tables, removes a node's data, rebuilds it, and compares that with what the devices and
/// the wire allow.
pub(crate) fn run(global: &Global, asked: &BenchRebuild) -> Result<(), Failure> {
    if asked.node >= asked.nodes {
        let last = asked.nodes - 1;
        return Err(Failure::Usage(format!("--node {}: the nodes are 0 to {last}", asked.node)));
    }
    let narrow = match asked.wire_rate {
        // Restarts this command: nothing permanent may be done before.
        Some(_) => Some(NarrowWire::enter().map_err(|problem| {
            Failure::Runtime(format!(
                "the bandwidth of the wire cannot be limited: {problem}; leave out --wire-rate"
            ))
        })?),
        None => None,
    };
    // Before the nodes start: a user without permission gets an error at once.
    let disks = asked.disk_rate.map(|_| slow_disks(asked)).transpose()?;
    let held = Held { wire: narrow.as_ref(), disks: disks.as_ref() };
    let mut nodes = Nodes::start(global, asked)?;
    let mut turns: Vec<Vec<RebuildTurn>> = vec![Vec::new(); asked.schedule.len()];
    for turn in 1..=asked.repeat {
        for (schedule, turns) in asked.schedule.iter().zip(&mut turns) {
            let name = word_of(&SCHEDULES, schedule);
            let bar = progress::repairing(&format!("turn {turn} of {}, {name}", asked.repeat));
            turns.push(nodes.turn(asked, *schedule, held, &bar.listener())?);
            bar.end();
        }
    }
    let mut lines: Vec<RebuildLine> = Vec::new();
    for (schedule, turns) in asked.schedule.iter().zip(&turns) {
        let setting = RebuildSetting {
            scale: asked.scale,
            nodes: asked.nodes.into(),
            wire: nodes.global.wire.map_or("shm", |_| "tcp").to_owned(),
            schedule: word_of(&SCHEDULES, schedule).to_owned(),
            wire_mb_per_s: asked.wire_rate,
            disk_mb_per_s: asked.disk_rate,
            node: asked.node,
        };
        lines.extend(line(&setting, turns).map_err(|error| Failure::of(&error))?);
    }
    write_lines(&lines, asked.json.as_deref(), &shown(&lines))
}

fn slow_disks(asked: &BenchRebuild) -> Result<SlowDisks, Failure> {
    let folder = own_folder(&asked.folder)?;
    SlowDisks::create(asked.nodes, &folder).map_err(|problem| {
        Failure::Runtime(format!("the rate of the disks cannot be limited: {problem}; leave out --disk-rate"))
    })
}

/// The limits of a rebuild.
#[derive(Clone, Copy)]
struct Held<'h> {
    wire: Option<&'h NarrowWire>,
    disks: Option<&'h SlowDisks>,
}

impl Held<'_> {
    /// Sets the limits that `asked` names, or removes them if it is `None`.
    fn set(self, asked: Option<&BenchRebuild>) -> Result<(), Failure> {
        let wire = self.wire.map_or(Ok(()), |wire| wire.set(asked.and_then(|asked| asked.wire_rate)));
        let disks = self.disks.map_or(Ok(()), |disks| disks.set(asked.and_then(|asked| asked.disk_rate)));
        wire.and(disks).map_err(Failure::Runtime)
    }
}

/// Nodes of this command with TPC-H, removed afterwards.
struct Nodes {
    session: Option<Session>,
    global: Global,
    file: ClusterFile,
}

impl Nodes {
    fn start(global: &Global, asked: &BenchRebuild) -> Result<Self, Failure> {
        let folder = own_folder(&asked.folder)?;
        let data = folder.join(format!("rackscan-rebuild-{}", std::process::id()));
        let shape = Shape { nodes: asked.nodes, devices: 1, ..Shape::default() };
        let file = create(&data, &shape)?;
        let wire = asked.wire_rate.map(|_| Wire::Tcp);
        let global = Global { data, cluster: None, wire, engine_cache: 0, ..global.clone() };
        let mut nodes = Self { session: None, global, file };
        let session = nodes.session.insert(Session::open_to_read(&nodes.global)?);
        load::ensure_tpch_protected(session, asked.scale)?;
        Ok(nodes)
    }

    fn session(&self) -> Result<&Session, Failure> {
        self.session.as_ref().ok_or_else(ended)
    }

    /// Makes a node lose all its data.
    fn lose(&mut self, node: u16) -> Result<(), Failure> {
        let global = self.global.clone();
        let folder = self.folder(node)?;
        let session = self.session.as_mut().ok_or_else(ended)?;
        session.kill_node(&global, node)?;
        fs::remove_dir_all(&folder).map_err(at_path(&folder))?;
        session.start_node(&global, node)
    }

    /// Makes a node lose all its data and rebuilds it, with the wire and disks limited as asked
    /// for.
    fn turn(
        &mut self,
        asked: &BenchRebuild,
        schedule: Way,
        held: Held<'_>,
        listener: &(dyn Fn(&RepairProgress) + Sync),
    ) -> Result<RebuildTurn, Failure> {
        self.lose(asked.node)?;
        let before = self.relayed()?;
        if let Some(disks) = held.disks {
            // The node that lost its data is a new process.
            disks.hold(&self.session()?.pids()).map_err(Failure::Runtime)?;
        }
        held.set(Some(asked))?;
        let started = Instant::now();
        let rebuilt = self.rebuild(asked.node, schedule, listener);
        let seconds = started.elapsed().as_secs_f64();
        let as_before = held.set(None);
        let rebuilt = rebuilt?;
        as_before?;
        // Nodes publish their relay counters when they are idle, which they are after this check.
        self.check()?;
        Ok(RebuildTurn {
            rebuilt_bytes: rebuilt.rebuilt_bytes(),
            survivor_bytes: rebuilt.survivor_bytes(),
            relayed_bytes: self.relayed()? - before,
            seconds,
            devices_seconds: self.devices_alone(asked.node, &rebuilt)?,
        })
    }

    /// Bytes that the relays of all nodes have sent.
    fn relayed(&self) -> Result<u64, Failure> {
        let session = self.session()?;
        let mut sent = 0;
        for node in session.cluster().nodes() {
            let relays = session.block_on(session.cluster().status(node))?.relays;
            sent += relays.iter().map(|relay| relay.written_bytes).sum::<u64>();
        }
        Ok(sent)
    }

    fn rebuild(
        &self,
        node: u16,
        schedule: Way,
        listener: &(dyn Fn(&RepairProgress) + Sync),
    ) -> Result<RebuildReport, Failure> {
        let session = self.session()?;
        let options = ScrubOptions::default();
        let cluster = session.cluster().with_relays(schedule == Way::Relay);
        let report = session.block_on(cluster.rebuild(NodeId(node), &options, listener))?;
        match report.left.first() {
            None => Ok(report),
            Some((table, problem)) => Err(Failure::Runtime(format!("{table} was not rebuilt: {problem}"))),
        }
    }

    /// Checks that everything is intact; otherwise there is no result line.
    fn check(&self) -> Result<(), Failure> {
        let session = self.session()?;
        let options = ScrubOptions { repair: false, ..ScrubOptions::default() };
        for info in session.engine().tables() {
            let id = session.engine().describe(&info.name)?.definition.id;
            let report = session.block_on(session.cluster().scrub(id, &options, &|_| ()))?;
            if !report.is_clean() {
                let name = info.name;
                return Err(Failure::Runtime(format!(
                    "{name} is still damaged after the rebuild: {report:?}"
                )));
            }
        }
        Ok(())
    }

    /// Seconds that the devices take to read or write the same bytes without any other work.
    fn devices_alone(&self, node: u16, rebuilt: &RebuildReport) -> Result<f64, Failure> {
        let others = self.file.members.len() as u64 - 1;
        let statuses = self.session()?.cluster().statuses();
        let mut streams = Vec::new();
        for member in &self.file.members {
            let Some(device) = member.config.devices.first() else { continue };
            if member.config.node.0 == node {
                let path = device.path.with_extension("alone");
                streams.push(Stream::Write { path, bytes: rebuilt.rebuilt_bytes() });
                continue;
            }
            let used = statuses.iter().find(|status| status.node == member.config.node);
            let used = used.and_then(|status| status.devices.first()).map_or(0, |device| device.used_bytes);
            streams.push(Stream::Read {
                path: device.path.clone(),
                from: DATA_FROM,
                part: used.saturating_sub(2 * DATA_FROM).max(DATA_FROM),
                bytes: rebuilt.survivor_bytes() / others,
            });
        }
        let taken = move_bytes(&streams).map_err(|error| Failure::of(&error))?;
        Ok(taken.as_secs_f64())
    }

    fn folder(&self, node: u16) -> Result<PathBuf, Failure> {
        let member = self.file.members.iter().find(|member| member.config.node.0 == node);
        let folder = member.map(|member| member.config.data_dir.clone());
        folder.ok_or_else(|| Failure::Runtime(format!("this command has not started a node {node}")))
    }
}

fn ended() -> Failure {
    Failure::Runtime("the nodes of this command have ended".to_owned())
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.session = None;
        if let Err(error) = fs::remove_dir_all(&self.global.data) {
            tracing::warn!("{}: cannot be removed: {error}", self.global.data.display());
        }
    }
}

/// The table.
fn shown(lines: &[RebuildLine]) -> String {
    let columns = [
        "nodes",
        "wire",
        "MB/s of it",
        "of a disk",
        "schedule",
        "rebuilt",
        "read per byte",
        "predicted",
        "s",
        "MB/s",
        "of devices",
        "of slowest disk",
        "of wire",
    ];
    let mut table = TextTable::new(&columns);
    for line in lines {
        let figure = |value: f64, digits: usize| Cell::Number(format!("{value:.digits$}"));
        let taken = rackscan_lab::median(line.seconds.clone()).unwrap_or_default();
        table.push(vec![
            Cell::from(line.nodes),
            Cell::from(line.wire.as_str()),
            Cell::Number(line.wire_mb_per_s.map_or_else(String::new, |rate| rate.to_string())),
            Cell::Number(line.disk_mb_per_s.map_or_else(String::new, |rate| rate.to_string())),
            Cell::from(line.schedule.as_str()),
            Cell::Number(bytes(line.rebuilt_bytes)),
            figure(line.read_per_byte, 3),
            figure(line.predicted_per_byte, 3),
            figure(taken, 2),
            figure(line.mb_per_s, 0),
            figure(line.of_devices, 2),
            Cell::Number(line.of_disk.map_or_else(String::new, |of| format!("{of:.2}"))),
            Cell::Number(line.of_wire.map_or_else(String::new, |of| format!("{of:.2}"))),
        ]);
    }
    table.render(Format::Table)
}
