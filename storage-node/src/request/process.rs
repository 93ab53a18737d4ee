//! Runs a scan on this node, next to its data.
//!
//! The reactor checks that the segment is stored here and that the target, which is memory of the
//! requester, can contain a result. It gets the list of withheld rows (`withheld`), and pulls the
//! key filters if the node does not know the program yet (`key_filters`). Then it queues the scan
//! for a scan worker (`scan_pool`). The worker writes the result directly into the target if the
//! target is mapped here, else into staging memory, from which the reactor sends it.
//!
//! Invariants
//! - If the queue is full or memory is short, the request is refused with [`RefusalCode::Bounced`]
//!   and the reason, and the refusal is counted. The engine then fetches the segment and scans it
//!   itself.

mod key_filters;
mod withheld;

use std::sync::Arc;

use az::SaturatingAs;
use rackscan_fabric::{Access, OperationError};
use rackscan_format::{
    ids::{SegmentId, TableId},
    message::{Answer, BounceReason, Cost, Payload, Refusal, RefusalCode, Target},
    program::{ScanProgram, VerifiedProgram},
    schema::TableDefinition,
};

use crate::{
    bridge::Core,
    limits::{RESULT_BYTES_MAX, RESULT_STAGED_BYTES_MAX},
    message_queue::{Mail, ReplyTo},
    metrics::add,
    scan_pool::{ScanJob, ScanResult, Sink},
    staging::Slot,
    store::StoredSegment,
    task::{Place, Progress, Work, bad_memory, malformed},
};
use key_filters::Pulling;
use withheld::Withheld;

/// The parameters of a scan.
pub(crate) struct Wanted {
    pub(crate) program: ScanProgram,
    pub(crate) key_filters: Vec<Target>,
    pub(crate) table: TableId,
    pub(crate) segment: SegmentId,
    pub(crate) withheld: Option<Payload>,
    pub(crate) first_block: u32,
    pub(crate) target: Target,
    pub(crate) report_reads: bool,
}

enum Stage {
    Asked(Box<Wanted>),
    /// The list of withheld rows is in flight.
    Withholding(Box<Wanted>),
    /// Key filters are in flight.
    Pulling(Box<(Pulling, Wanted)>),
    Scanning,
    Scanned(Box<ScanResult>),
    Sending(Answer),
    Ended(Result<Answer, Refusal>),
    Over,
}

struct Process {
    /// The definition of a table that has the segment.
    definition: Arc<TableDefinition>,
    segment: Arc<StoredSegment>,
    target: Target,
    withheld: Withheld,
    slot: Option<Slot>,
    stage: Stage,
}

/// Begins to serve the request.
pub(crate) fn start(core: &Core, mut wanted: Wanted) -> Result<Box<dyn Work>, Refusal> {
    // The segment is held from now on: the scan continues whatever happens to the tables that have
    // it.
    let (definition, segment) = core.node.store.segment(wanted.table, wanted.segment)?;
    let withheld = Withheld::new(wanted.withheld.take(), segment.directory().rows);
    let target = wanted.target;
    let stage = Stage::Asked(Box::new(wanted));
    Ok(Box::new(Process { definition, segment, target, withheld, slot: None, stage }))
}

impl Process {
    /// Takes the withheld rows, finds or makes the verified program, and queues the scan once its
    /// key filters are here.
    fn prepare(&mut self, core: &mut Core, place: Place, wanted: Wanted) -> Result<Stage, Refusal> {
        if !self.withheld.advance(core, place)? {
            return Ok(Stage::Withholding(Box::new(wanted)));
        }
        if let Some(program) = core.node.programs.known(&wanted.program, &self.definition)? {
            return self.queue(core, place, program, &wanted);
        }
        let verified = wanted.program.clone().verify_columns(&self.definition.columns);
        let verified = verified.map_err(|error| malformed(error.to_string()))?;
        let pulling = Pulling::new(verified, &wanted.key_filters)?;
        self.pull(core, place, pulling, wanted)
    }

    fn pull(
        &mut self,
        core: &mut Core,
        place: Place,
        mut pulling: Pulling,
        wanted: Wanted,
    ) -> Result<Stage, Refusal> {
        if !pulling.advance(core, place)? {
            return Ok(Stage::Pulling(Box::new((pulling, wanted))));
        }
        let program = core.node.programs.keep(pulling.finish()?, &self.definition)?;
        self.queue(core, place, program, &wanted)
    }

    fn queue(
        &mut self,
        core: &mut Core,
        place: Place,
        program: Arc<VerifiedProgram>,
        wanted: &Wanted,
    ) -> Result<Stage, Refusal> {
        let &Wanted { first_block, target, report_reads, .. } = wanted;
        let Some(link) = core.link(place) else { return Err(bad_memory("the connection is gone")) };
        let requester_gone = link.gone();
        let (sink, sink_bytes) = self.sink(core, place, &target)?;
        let job = ScanJob {
            program,
            segment: Arc::clone(&self.segment),
            withheld: self.withheld.rows(),
            first_block,
            sink,
            sink_bytes,
            queued_at: std::time::Instant::now(),
            requester_gone,
            report_reads,
            reply_to: ReplyTo::new(Arc::clone(&core.message_queue), place.task, Mail::Scanned),
        };
        core.node.scans.push(job).map(|()| Stage::Scanning)
    }

    fn sink(&mut self, core: &mut Core, place: Place, target: &Target) -> Result<(Sink, usize), Refusal> {
        let Some(link) = core.link(place) else { return Err(bad_memory("the connection is gone")) };
        if link.maps_memory() {
            let used = Target { length_bytes: target.length_bytes.min(RESULT_BYTES_MAX), ..*target };
            let mapped = link.map(&used, Access::Write);
            let memory = mapped.filter(rackscan_fabric::RawSlice::is_writable).ok_or_else(|| {
                bad_memory(format!(
                    "the target {:#018x}, bytes {}..+{}, is not registered for writing on this connection",
                    target.key, target.offset_bytes, target.length_bytes
                ))
            })?;
            let bytes = memory.len();
            return Ok((Sink::Mapped(memory), bytes));
        }
        let bytes = target.length_bytes.min(RESULT_STAGED_BYTES_MAX).saturating_as::<usize>();
        let slot = core.take_slot(place, bytes).ok_or_else(|| {
            let text = format!(
                "no {bytes} bytes of staging memory are free for a result; fetch the segment or ask again"
            );
            Refusal::new(RefusalCode::Bounced(BounceReason::Memory), text)
        })?;
        let slice = core.staging.slice(&slot, bytes);
        self.slot = Some(slot);
        let slice = slice.map_err(|error| bad_memory(error.to_string()))?;
        Ok((Sink::Staged(slice), bytes))
    }

    fn release(&mut self, core: &mut Core, place: Place) {
        if let Some(slot) = self.slot.take() {
            core.give_back(place, &slot);
        }
    }

    /// Answers if the result is in place, otherwise begins to send it.
    fn deliver(&mut self, core: &mut Core, place: Place, result: ScanResult) -> Stage {
        let ScanResult { outcome, cost, reads } = result;
        let output = match outcome {
            Ok(output) => output,
            Err(refusal) => return Stage::Ended(Err(self.staged_limit(refusal))),
        };
        let written_bytes = output.written_bytes as u64;
        let answer = Answer::Processed {
            written_bytes,
            batches: output.batches,
            rows: output.rows,
            next_block: output.next_block,
            cost: Cost { elapsed_us: 0, ..cost },
            reads,
        };
        let Some(slot) = &self.slot else {
            add(&core.node.metrics.wire_written_bytes, written_bytes);
            return Stage::Ended(Ok(answer));
        };
        if output.written_bytes == 0 {
            return Stage::Ended(Ok(answer));
        }
        let source = core.staging.slice(slot, output.written_bytes);
        let source = source.map_err(|error| bad_memory(error.to_string()));
        match source.and_then(|source| core.send(place, 0, source, &self.target, 0)) {
            Ok(()) => Stage::Sending(answer),
            Err(refusal) => Stage::Ended(Err(refusal)),
        }
    }

    /// Corrects a refusal for a small target: where the result is staged, a larger target does not
    /// help, and the segment must be fetched.
    fn staged_limit(&self, refusal: Refusal) -> Refusal {
        let too_large =
            refusal.code == RefusalCode::TargetTooSmall && refusal.needed_bytes > RESULT_STAGED_BYTES_MAX;
        if self.slot.is_none() || !too_large {
            return refusal;
        }
        let text = format!(
            "the result of one block takes {} bytes, this wire carries at most {RESULT_STAGED_BYTES_MAX}; fetch the segment",
            refusal.needed_bytes
        );
        Refusal::new(RefusalCode::Bounced(BounceReason::Memory), text)
    }
}

fn ended(stage: Result<Stage, Refusal>) -> Stage {
    stage.unwrap_or_else(|refusal| Stage::Ended(Err(refusal)))
}

fn is_bounce(refusal: &Refusal) -> bool {
    matches!(refusal.code, RefusalCode::Bounced(_))
}

impl Work for Process {
    fn advance(&mut self, core: &mut Core, place: Place) -> Progress {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Asked(wanted) | Stage::Withholding(wanted) => ended(self.prepare(core, place, *wanted)),
            Stage::Pulling(pulling) => {
                let (pulling, wanted) = *pulling;
                ended(self.pull(core, place, pulling, wanted))
            }
            Stage::Scanned(result) => self.deliver(core, place, *result),
            stage => stage,
        };
        if let Stage::Ended(_) = self.stage {
            self.release(core, place);
        }
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Ended(outcome) => {
                if matches!(&outcome, Err(refusal) if is_bounce(refusal)) {
                    add(&core.node.metrics.bounced_requests, 1);
                }
                Progress::Finished(outcome)
            }
            stage => {
                self.stage = stage;
                Progress::Working
            }
        }
    }

    fn scanned(&mut self, _core: &mut Core, result: ScanResult) {
        self.stage = Stage::Scanned(Box::new(result));
    }

    fn wire_done(&mut self, core: &mut Core, place: Place, _part: u32, outcome: Result<(), OperationError>) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Sending(answer) => {
                let written = outcome.map_err(|error| bad_memory(format!("writing the target: {error}")));
                Stage::Ended(written.map(|()| answer))
            }
            Stage::Withholding(wanted) => match self.withheld.arrived(core, place, outcome) {
                Ok(()) => Stage::Withholding(wanted),
                Err(refusal) => Stage::Ended(Err(refusal)),
            },
            Stage::Pulling(mut pulling) => match pulling.0.arrived(core, place, outcome) {
                Ok(()) => Stage::Pulling(pulling),
                Err(refusal) => Stage::Ended(Err(refusal)),
            },
            stage => stage,
        };
    }
}
