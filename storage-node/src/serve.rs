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

/// Finds the counter of a kind of request.
type Counter = fn(&Metrics) -> &AtomicU64;

/// The labels of a request in spans, and its counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) table: Option<TableId>,
    pub(crate) segment: Option<SegmentId>,
    pub(crate) counter: Counter,
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
    let fetches: Counter = |metrics| &metrics.fetch_requests;
    let processes: Counter = |metrics| &metrics.process_requests;
    let appends: Counter = |metrics| &metrics.append_requests;
    let raws: Counter = |metrics| &metrics.raw_requests;
    let others: Counter = |metrics| &metrics.other_requests;
    let (table, segment, counter) = match request {
        Request::Fetch { table, segment, .. } => (Some(*table), Some(*segment), fetches),
        Request::Process { table, segment, .. } => (Some(*table), Some(*segment), processes),
        Request::Append { load, .. } | Request::AppendParity(AppendParity { load, .. }) => {
            (Some(*load), None, appends)
        }
        Request::Keep { load, segment, .. } => (Some(*load), Some(*segment), others),
        Request::ReserveParity(ReserveParity { load, .. })
        | Request::LoadHeld(LoadHeld { load, .. })
        | Request::KeepMap(KeepMap { load, .. })
        | Request::CommitPublish { load }
        | Request::CommitInPlace { load, .. }
        | Request::AbortLoad { load } => (Some(*load), None, others),
        Request::Verify(Verify { set, .. }) | Request::Repair(Repair { set, .. }) => {
            (Some(set.load), None, others)
        }
        Request::ReadMap(ReadMap { table, .. })
        | Request::Adopt(Adopt { table })
        | Request::Drop { table } => (Some(*table), None, others),
        Request::PreparePublish { definition, .. } => (Some(definition.id), None, others),
        Request::ReadRaw { .. } | Request::WriteRaw { .. } => (None, None, raws),
        Request::Status
        | Request::Catalog { .. }
        | Request::Echo { .. }
        | Request::OpenCache
        | Request::CacheUsed { .. }
        | Request::OpenParticipant
        | Request::Transact { .. }
        | Request::OpenPosts { .. }
        | Request::KeepLog(_)
        | Request::CopyOfLog(_)
        | Request::Stop
        | Request::AcceptLoss
        | Request::HoldTables(_)
        | Request::ReleaseTables(_) => (None, None, others),
    };
    Kind { name: request.name(), table, segment, counter }
}
