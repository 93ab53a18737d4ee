//! `rackscan bench rebuild`: how fast does a node that has lost everything get it back?

use super::{bench::write_lines, load};
use crate::{
    args::{BenchRebuild, Format, Global, Wire},
    cluster::{ClusterFile, NarrowWire, Shape, create},
    failure::{Failure, at_path},
    output::{Cell, TextTable, bytes},
    progress,
    session::Session,
};
use rackscan_client::{MendProgress, RebuildReport, ScrubOptions};
use rackscan_format::ids::NodeId;
use rackscan_lab::{
    Stream, move_bytes,
    rebuild::{RebuildLine, RebuildSetting, RebuildTurn, line},
};
use std::{fs, path::PathBuf, time::Instant};

/// Where the pages of a device begin, roughly: behind its label.
const DATA_FROM: u64 = 1 << 20;

/// Loads, loses, rebuilds, and sets it beside what the devices and the wire give.
pub(crate) fn run(global: &Global, asked: &BenchRebuild) -> Result<(), Failure> {
    if asked.node >= asked.nodes {
        let last = asked.nodes - 1;
        return Err(Failure::Usage(format!("--node {}: the nodes are 0 to {last}", asked.node)));
    }
    let narrow = match asked.wire_rate {
        // Starts this command anew: nothing that lasts may be done before.
        Some(_) => Some(NarrowWire::enter().map_err(|problem| {
            Failure::Runtime(format!("the wire cannot be made narrow: {problem}; leave out --wire-rate"))
        })?),
        None => None,
    };
    let mut nodes = Nodes::start(global, asked)?;
    let mut turns = Vec::new();
    for turn in 1..=asked.repeat {
        let bar = progress::mending(&format!("turn {turn} of {}", asked.repeat));
        nodes.lose(asked.node)?;
        if let Some(narrow) = &narrow {
            narrow.set(asked.wire_rate).map_err(Failure::Runtime)?;
        }
        let started = Instant::now();
        let rebuilt = nodes.rebuild(asked.node, &bar.listener());
        let seconds = started.elapsed().as_secs_f64();
        if let Some(narrow) = &narrow {
            narrow.set(None).map_err(Failure::Runtime)?;
        }
        bar.end();
        let rebuilt = rebuilt?;
        nodes.check()?;
        let devices_seconds = nodes.devices_alone(asked.node, &rebuilt)?;
        let (rebuilt_bytes, survivor_bytes) = (rebuilt.rebuilt_bytes(), rebuilt.survivor_bytes());
        turns.push(RebuildTurn { rebuilt_bytes, survivor_bytes, seconds, devices_seconds });
    }
    let setting = RebuildSetting {
        scale: asked.scale,
        nodes: asked.nodes.into(),
        wire: nodes.global.wire.map_or("shm", |_| "tcp").to_owned(),
        wire_mb_per_s: asked.wire_rate,
        node: asked.node,
    };
    let lines: Vec<RebuildLine> =
        line(&setting, &turns).map_err(|error| Failure::of(&error))?.into_iter().collect();
    write_lines(&lines, asked.json.as_deref(), &shown(&lines))
}

/// Nodes of our own with TPC-H, which are gone afterwards.
struct Nodes {
    session: Option<Session>,
    global: Global,
    file: ClusterFile,
}

impl Nodes {
    fn start(global: &Global, asked: &BenchRebuild) -> Result<Self, Failure> {
        fs::create_dir_all(&asked.folder).map_err(at_path(&asked.folder))?;
        let folder = fs::canonicalize(&asked.folder).map_err(at_path(&asked.folder))?;
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

    /// A node loses all it had.
    fn lose(&mut self, node: u16) -> Result<(), Failure> {
        let global = self.global.clone();
        let folder = self.folder(node)?;
        let session = self.session.as_mut().ok_or_else(ended)?;
        session.lose(&global, node, true)?;
        fs::remove_dir_all(&folder).map_err(at_path(&folder))?;
        session.lose(&global, node, false)
    }

    fn rebuild(
        &self,
        node: u16,
        listener: &(dyn Fn(&MendProgress) + Sync),
    ) -> Result<RebuildReport, Failure> {
        let session = self.session()?;
        let options = ScrubOptions::default();
        let report = session.block_on(session.cluster().rebuild(NodeId(node), &options, listener))?;
        match report.left.first() {
            None => Ok(report),
            Some((table, problem)) => Err(Failure::Runtime(format!("{table} was not rebuilt: {problem}"))),
        }
    }

    /// Everything is whole, or there is no line.
    fn check(&self) -> Result<(), Failure> {
        let session = self.session()?;
        let options = ScrubOptions { repair: false, ..ScrubOptions::default() };
        for info in session.engine().tables() {
            let id = session.engine().describe(&info.name)?.definition.id;
            let report = session.block_on(session.cluster().scrub(id, &options, &|_| ()))?;
            if !report.is_clean() {
                let name = info.name;
                return Err(Failure::Runtime(format!("{name} is not whole after the rebuild: {report:?}")));
            }
        }
        Ok(())
    }

    /// How long the devices take for the same bytes if nothing is done with them.
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
        folder.ok_or_else(|| Failure::Runtime(format!("node {node} is not one of ours")))
    }
}

fn ended() -> Failure {
    Failure::Runtime("the nodes have ended".to_owned())
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.session = None;
        if let Err(error) = fs::remove_dir_all(&self.global.data) {
            tracing::warn!("{}: cannot be removed: {error}", self.global.data.display());
        }
    }
}

/// What was measured.
fn shown(lines: &[RebuildLine]) -> String {
    let columns = [
        "nodes",
        "wire",
        "MB/s of it",
        "rebuilt",
        "read per byte",
        "predicted",
        "s",
        "MB/s",
        "of devices",
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
            Cell::Number(bytes(line.rebuilt_bytes)),
            figure(line.read_per_byte, 3),
            figure(line.predicted_per_byte, 3),
            figure(taken, 2),
            figure(line.mb_per_s, 0),
            figure(line.of_devices, 2),
            Cell::Number(line.of_wire.map_or_else(String::new, |of| format!("{of:.2}"))),
        ]);
    }
    table.render(Format::Table)
}
