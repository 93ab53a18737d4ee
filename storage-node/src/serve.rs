//! Passes each request to the module of `request` that serves its kind.
//!
//! Only [`start`] chooses that module. Each arm makes the checks that need no waiting, and creates
//! the [`Work`] that the reactor then advances.

use std::sync::atomic::AtomicU64;

use rackscan_format::{
    ids::{SegmentId, TableId},
    message::{
        Adopt, AppendParity, KeepMap, LoadHeld, ReadMap, Refusal, Repair, Request, ReserveParity, Verify,
    },
};

use crate::{
    bridge::Core,
    metrics::Metrics,
    request::{
        append, cache, catalog, copy_of_log, drop, echo, fetch, hold, keep, keep_log, keep_map, participant,
        posts, process, publish, raw, reserve_parity, status, stop, transact, verify,
    },
    task::{Place, Work},
};

/// The labels of a request in spans, and its counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) table: Option<TableId>,
    pub(crate) segment: Option<SegmentId>,
    pub(crate) counter: fn(&Metrics) -> &AtomicU64,
}

/// Begins to serve a request.
pub(crate) fn start(core: &mut Core, place: Place, request: Request) -> Result<Box<dyn Work>, Refusal> {
    match request {
        Request::Status => status::start(core),
        Request::Catalog { from_bytes, target } => catalog::start(core, from_bytes, target),
        Request::Fetch { table, segment, pages, target } => {
            let wanted = fetch::Wanted { table, segment, pages, target };
            fetch::start(core, place, &wanted)
        }
        Request::Process {
            program,
            key_filters,
            table,
            segment,
            withheld,
            first_block,
            target,
            report_reads,
        } => {
            let wanted = process::Wanted {
                program,
                key_filters,
                table,
                segment,
                withheld,
                first_block,
                target,
                report_reads,
            };
            process::start(core, wanted)
        }
        Request::Append { load, directory_bytes, source } => {
            append::start(core, place, load, directory_bytes, source)
        }
        Request::Keep { load, of, segment, withheld_bytes, source } => {
            keep::start(core, place, &keep::Wanted { load, of, segment, withheld_bytes, source })
        }
        Request::AppendParity(request) => append::parity(core, place, request),
        Request::ReserveParity(request) => reserve_parity::start(core, place, &request),
        Request::LoadHeld(request) => catalog::load_held(core, &request),
        Request::KeepMap(request) => keep_map::start(core, place, request),
        Request::ReadMap(request) => catalog::map(core, &request),
        Request::Verify(request) => verify::start(core, &request),
        Request::Repair(request) => append::repair(core, place, &request),
        Request::Adopt(Adopt { table }) => publish::adopt(table),
        Request::PreparePublish { definition, segments } => publish::prepare(definition, segments),
        Request::CommitPublish { load } => publish::commit(load),
        Request::CommitInPlace { load, of } => publish::commit_in_place(load, of),
        Request::AbortLoad { load } => publish::abort(load),
        Request::Drop { table } => drop::start(table),
        Request::Echo { bytes, target } => echo::start(bytes, target),
        Request::OpenCache => cache::open(core, place),
        Request::CacheUsed { places } => cache::used(core, &places),
        Request::ReadRaw { reads, target } => raw::read(core, place, &reads, &target),
        Request::WriteRaw { writes, source } => raw::write(core, place, &writes, &source),
        Request::OpenParticipant => participant::open(core, place),
        Request::Transact { messages, target } => transact::start(core, messages, target),
        Request::OpenPosts { boxes, body_bytes_max, replies } => {
            posts::open(core, place, boxes, body_bytes_max, &replies)
        }
        Request::KeepLog(request) => keep_log::start(core, request),
        Request::CopyOfLog(request) => copy_of_log::start(core, request),
        Request::Stop => stop::start(),
        Request::AcceptLoss => participant::accept_loss(core),
        Request::HoldTables(request) => hold::hold(core, place, &request),
        Request::ReleaseTables(hold) => hold::release(core, hold),
    }
}

/// The labels and the counter of a request.
pub(crate) fn kind(request: &Request) -> Kind {
    let (name, table, segment) = match request {
        Request::Status => ("status", None, None),
        Request::Catalog { .. } => ("catalog", None, None),
        Request::Fetch { table, segment, .. } => ("fetch", Some(*table), Some(*segment)),
        Request::Process { table, segment, .. } => ("process", Some(*table), Some(*segment)),
        Request::Append { load, .. } => ("append", Some(*load), None),
        Request::Keep { load, segment, .. } => ("keep", Some(*load), Some(*segment)),
        Request::AppendParity(AppendParity { load, .. }) => ("append parity", Some(*load), None),
        Request::ReserveParity(ReserveParity { load, .. }) => ("reserve parity", Some(*load), None),
        Request::LoadHeld(LoadHeld { load, .. }) => ("load held", Some(*load), None),
        Request::KeepMap(KeepMap { load, .. }) => ("keep map", Some(*load), None),
        Request::ReadMap(ReadMap { table, .. }) => ("read map", Some(*table), None),
        Request::Verify(Verify { set, .. }) => ("verify", Some(set.load), None),
        Request::Repair(Repair { set, .. }) => ("repair", Some(set.load), None),
        Request::Adopt(Adopt { table }) => ("adopt", Some(*table), None),
        Request::PreparePublish { definition, .. } => ("prepare", Some(definition.id), None),
        Request::CommitPublish { load } | Request::CommitInPlace { load, .. } => {
            ("commit", Some(*load), None)
        }
        Request::AbortLoad { load } => ("abort", Some(*load), None),
        Request::Drop { table } => ("drop", Some(*table), None),
        Request::Echo { .. } => ("echo", None, None),
        Request::OpenCache => ("open cache", None, None),
        Request::CacheUsed { .. } => ("cache used", None, None),
        Request::ReadRaw { .. } => ("read-raw", None, None),
        Request::WriteRaw { .. } => ("write-raw", None, None),
        Request::OpenParticipant => ("open participant", None, None),
        Request::Transact { .. } => ("transact", None, None),
        Request::OpenPosts { .. } => ("open posts", None, None),
        Request::KeepLog(_) => ("keep log", None, None),
        Request::CopyOfLog(_) => ("copy of log", None, None),
        Request::Stop => ("stop", None, None),
        Request::AcceptLoss => ("accept loss", None, None),
        Request::HoldTables(_) => ("hold tables", None, None),
        Request::ReleaseTables(_) => ("release tables", None, None),
    };
    let counter: fn(&Metrics) -> &AtomicU64 = match request {
        Request::Fetch { .. } => |metrics| &metrics.fetch_requests,
        Request::Process { .. } => |metrics| &metrics.process_requests,
        Request::Append { .. } | Request::AppendParity(_) => |metrics| &metrics.append_requests,
        Request::ReadRaw { .. } | Request::WriteRaw { .. } => |metrics| &metrics.raw_requests,
        _ => |metrics| &metrics.other_requests,
    };
    Kind { name, table, segment, counter }
}
