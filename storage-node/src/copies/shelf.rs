//! Manages the log replicas of all origins (the nodes that own the logs), and decides which copy of
//! each origin is valid.
//!
//! Invariants
//! - A copy that is being written changes nothing until it is complete and durable.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use rackscan_format::{
    ids::NodeId,
    message::{CopyHeld, LogGeneration, LogKept, LogPoint, Refusal, RefusalCode},
};
use rackscan_ramp::{limits::LOG_HEADER_BYTES, log::Tail};

use super::{
    copy::{Copy, Fault, Found},
    generation::GenerationFile,
    is_new_version, point, tail,
};
use crate::{limits::LOG_COPIES, refusals::malformed};

/// A part of a log that is to be appended.
#[derive(Debug)]
pub(super) struct Part<'b> {
    pub(super) log: u32,
    pub(super) offset_bytes: u64,
    pub(super) cut: Option<LogPoint>,
    pub(super) is_whole: bool,
    pub(super) bytes: &'b [u8],
}

/// Why a request was not executed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The requester gets a refusal.
    Refused(Refusal),
    /// The state of the disk is unknown; the text says why.
    Broken(String),
}

/// The copies of one node's log: the valid one, and one that is being made.
#[derive(Debug, Default)]
struct Shelf {
    whole: Option<Box<Copy>>,
    fresh: Option<Box<Copy>>,
}

/// The copies of all nodes' logs.
#[derive(Debug)]
pub(super) struct Shelves {
    folder: PathBuf,
    of: BTreeMap<NodeId, Shelf>,
    generations: BTreeMap<NodeId, GenerationFile>,
}

fn broken<E: fmt::Display>(file: &Path, action: &str) -> impl Fn(E) -> Trouble {
    move |error| Trouble::Broken(format!("copy of a log {}: {action} failed: {error}", file.display()))
}

impl Shelves {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, of: BTreeMap::new(), generations: BTreeMap::new() }
    }

    fn path(&self, origin: NodeId, what: &str) -> PathBuf {
        self.folder.join(format!("{origin}.log{what}"))
    }

    fn generation_file(&mut self, origin: NodeId) -> Result<&mut GenerationFile, Trouble> {
        if !self.generations.contains_key(&origin) {
            let path = self.folder.join(format!("{origin}.generation"));
            let file = GenerationFile::open(path.clone()).map_err(broken(&path, "reading its generation"))?;
            self.generations.insert(origin, file);
        }
        // The entry exists: it was inserted above if it was missing.
        let unknown = || {
            Trouble::Broken(format!(
                "the generation of the log of node {origin} is gone; this is a bug, please report it"
            ))
        };
        self.generations.get_mut(&origin).ok_or_else(unknown)
    }

    /// The newest generation of a log that this node knows.
    pub(super) fn generation(&mut self, origin: NodeId) -> Result<Option<LogGeneration>, Trouble> {
        Ok(self.generation_file(origin)?.newest().cloned())
    }

    /// Records a generation of a log durably if it is newer, and returns the number of the newest
    /// one.
    pub(super) fn know(&mut self, origin: NodeId, told: Option<&LogGeneration>) -> Result<u64, Trouble> {
        let file = self.generation_file(origin)?;
        if let Some(told) = told.filter(|told| told.number > file.number()) {
            let found = told.members.len();
            if found > LOG_COPIES {
                let text = format!("a generation has {found} replicas, expected at most {LOG_COPIES}");
                return Err(Trouble::Refused(malformed(text)));
            }
            let written = file.write(told);
            let name = self.folder.join(format!("{origin}.generation"));
            written.map_err(|error| refused(&name, full_or_broken(error)))?;
        }
        Ok(self.generation_file(origin)?.number())
    }

    /// The copies of an origin, read from the disk at the first call.
    fn of(&mut self, origin: NodeId) -> Result<&mut Shelf, Trouble> {
        if !self.of.contains_key(&origin) {
            let path = self.path(origin, "");
            let whole = match Copy::open(&path).map_err(broken(&path, "reading it"))? {
                Found::Nothing => None,
                Found::Copy(copy) => Some(copy),
                Found::Damaged => {
                    let beside = self.path(origin, ".damaged");
                    fs::rename(&path, &beside).map_err(broken(&path, "putting it aside"))?;
                    tracing::warn!(file = %beside.display(), "a log replica that does not begin like a log was set aside");
                    None
                }
            };
            self.of.insert(origin, Shelf { whole, fresh: None });
        }
        Ok(self.of.entry(origin).or_default())
    }

    /// Appends a part, if it continues a copy, and returns the state of the copy. Nothing is
    /// durable before [`Shelves::sync`].
    pub(super) fn keep(&mut self, origin: NodeId, part: &Part<'_>) -> Result<LogKept, Trouble> {
        self.of(origin)?;
        let begins = part.offset_bytes == 0 && !part.bytes.is_empty();
        let mut bytes = part.bytes;
        if begins {
            bytes = self.begin(origin, part)?;
        }
        let (cut_file, path) = (self.path(origin, ".cut"), self.path(origin, ""));
        let shelf = self.of(origin)?;
        let is_fresh = shelf.fresh.as_ref().is_some_and(|fresh| fresh.number == part.log);
        let kept = if is_fresh { shelf.fresh.as_mut() } else { shelf.whole.as_mut() };
        let Some(copy) = kept.filter(|copy| copy.number == part.log) else { return Ok(LogKept::default()) };
        if let Some(at) = part.cut {
            let (before, was_cut) = (copy.tail(), copy.cut(tail(at), &cut_file));
            if !was_cut.map_err(broken(&path, "cutting it"))? {
                return Ok(LogKept::default());
            }
            tracing::warn!(
                origin = %origin, file = %path.display(), from = at.offset_bytes, end = before.offset_bytes, kept = %cut_file.display(),
                "the end of a log replica was cut off: the log that it copies continues differently"
            );
        }
        let from = if begins { LOG_HEADER_BYTES as u64 } else { part.offset_bytes };
        if from == copy.tail().offset_bytes && from < copy.through_bytes() && !bytes.is_empty() {
            copy.forget_part();
        }
        if from == copy.through_bytes()
            && !bytes.is_empty()
            && let Err(fault) = copy.append(bytes)
        {
            if is_fresh && shelf.whole.is_some() && matches!(fault, Fault::Full(_)) {
                // The valid copy needs the space of the new one.
                shelf.fresh = None;
                let new = self.path(origin, ".new");
                fs::remove_file(&new).map_err(broken(&new, "removing it"))?;
            }
            return Err(refused(&path, fault));
        }
        if is_fresh && part.is_whole && copy.through_bytes() == copy.tail().offset_bytes {
            self.put_in_place(origin)?;
        }
        let shelf = self.of(origin)?;
        let copies = [&mut shelf.fresh, &mut shelf.whole].into_iter().flatten();
        let room_bytes = match copies.into_iter().find(|copy| copy.number == part.log) {
            Some(copy) => copy.reserve_ahead().map_err(broken(&path, "cutting it"))?,
            None => 0,
        };
        Ok(LogKept { room_bytes, ..self.kept(origin, part.log) })
    }

    fn kept(&self, origin: NodeId, log: u32) -> LogKept {
        let Some(Shelf { whole, fresh }) = self.of.get(&origin) else { return LogKept::default() };
        let copies = fresh.iter().map(|copy| (copy, false)).chain(whole.iter().map(|copy| (copy, true)));
        let of_log = copies.into_iter().find(|(copy, _)| copy.number == log);
        of_log.map_or_else(LogKept::default, |(copy, is_whole)| LogKept {
            through_bytes: copy.through_bytes(),
            end: point(copy.tail()),
            is_whole,
            generation: 0,
            room_bytes: 0,
        })
    }

    /// Begins a new copy beside the valid one, and returns the bytes after the header.
    fn begin<'b>(&mut self, origin: NodeId, part: &Part<'b>) -> Result<&'b [u8], Trouble> {
        let start =
            Tail::from_header(part.bytes).map_err(|fault| Trouble::Refused(malformed(fault.to_string())))?;
        let found = Tail::salt(part.bytes).unwrap_or_default();
        if found != part.log {
            let text = format!("the log has number {found:#010x} in its header, expected {:#010x}", part.log);
            return Err(Trouble::Refused(malformed(text)));
        }
        let path = self.path(origin, ".new");
        let (header, rest) = part.bytes.split_at(LOG_HEADER_BYTES);
        let made = fs::create_dir_all(&self.folder).and_then(|()| Copy::create(&path, header, found, start));
        let copy = made.map_err(|error| refused(&path, full_or_broken(error)))?;
        self.of(origin)?.fresh = Some(Box::new(copy));
        Ok(rest)
    }

    /// Makes the new copy the valid one, once it is complete.
    fn put_in_place(&mut self, origin: NodeId) -> Result<(), Trouble> {
        let (path, new) = (self.path(origin, ""), self.path(origin, ".new"));
        let folder = self.folder.clone();
        let shelf = self.of(origin)?;
        let Some(mut fresh) = shelf.fresh.take() else { return Ok(()) };
        fresh.sync().map_err(broken(&new, "the flush"))?;
        let old = shelf.whole.take();
        let stays = old.filter(|old| {
            let is_replaced =
                is_new_version(fresh.number, old.number) && fresh.tail().sequence >= old.tail().sequence;
            !is_replaced
        });
        shelf.whole = Some(fresh);
        if let Some(old) = stays {
            let beside = self.path(origin, &format!(".{:08x}-{}", old.number, old.tail().sequence));
            fs::rename(&path, &beside).map_err(broken(&path, "putting it aside"))?;
            tracing::warn!(
                origin = %origin, kept = %beside.display(), records = old.tail().sequence,
                "a log replica was set aside: its owner continues with a log that lacks records of it; if that is a mistake, its keys are here"
            );
        }
        fs::rename(&new, &path).map_err(broken(&new, "putting it in place"))?;
        let synced = File::open(&folder).and_then(|folder| folder.sync_all());
        synced.map_err(broken(&path, "putting it in place"))
    }

    /// Flushes everything that was appended.
    pub(super) fn sync(&mut self) -> Result<(), Trouble> {
        for (origin, shelf) in &mut self.of {
            for copy in [&mut shelf.whole, &mut shelf.fresh].into_iter().flatten() {
                let file = self.folder.join(format!("{origin}.log"));
                copy.sync().map_err(broken(&file, "the flush"))?;
            }
        }
        Ok(())
    }

    /// The valid copy, and at most `most` of its bytes from `from` on.
    pub(super) fn part(
        &mut self,
        origin: NodeId,
        from: u64,
        most: usize,
    ) -> Result<(Option<CopyHeld>, Vec<u8>), Trouble> {
        let path = self.path(origin, "");
        let Some(copy) = &self.of(origin)?.whole else { return Ok((None, Vec::new())) };
        let bytes = copy.part(from, most).map_err(broken(&path, "reading it"))?;
        Ok((Some(CopyHeld { log: copy.number, end: point(copy.tail()) }), bytes))
    }
}

fn full_or_broken(error: io::Error) -> Fault {
    if crate::participant::is_full(&error) { Fault::Full(error) } else { Fault::Broken("making it", error) }
}

fn refused(file: &Path, fault: Fault) -> Trouble {
    let name = file.display();
    match fault {
        Fault::Foreign(damage) => Trouble::Refused(malformed(format!(
            "the bytes do not continue the copy of a log {name}: {damage}"
        ))),
        Fault::Full(error) => Trouble::Refused(Refusal::new(
            RefusalCode::Full,
            format!("copy of a log {name}: {error}; free some space on that disk"),
        )),
        Fault::Broken(action, error) => {
            Trouble::Broken(format!("copy of a log {name}: {action} failed: {error}"))
        }
    }
}

#[cfg(test)]
mod tests;
