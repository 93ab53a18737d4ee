//! Merges the events of all processors in the order in which they happened.
//!
//! Each processor has a file whose events are in order. They are merged by time, then by sequence
//! number, then by file.
//!
//! Invariants
//! - One event of each file is in memory.
//! - Reading a file stops at bytes that are not an event, because the position of the next event is
//!   then unknown.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::{
    binary::{ByteOrder, EVENT_BYTES, Event, byte_order},
    event::{Kind, units},
};
use crate::{
    Defect, DetectedUnits, Fault, Format, NamedDevice, OffsetUnit, Place, Record, Source, TimeUnit,
    TraceError,
    devices::Numbers,
    input::{Input, InputReader},
    limits::PART_BUFFER_BYTES,
};

/// The file of one processor.
struct Part {
    path: Arc<PathBuf>,
    order: ByteOrder,
    reader: BufReader<InputReader>,
    position_bytes: u64,
}

/// The next entry of a part.
enum Next {
    Event(Event, u64),
    End,
}

impl Part {
    fn new(input: Input) -> Result<Self, TraceError> {
        let path = Arc::clone(&input.path);
        let Some(order) = byte_order(&input.head) else {
            let begin: Vec<String> = input.head.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
            return Err(TraceError::NotOfFormat {
                path: path.to_path_buf(),
                format: Format::Blktrace,
                reason: format!(
                    "begins with the bytes {}, expected 07 74 61 65 or 65 61 74 07",
                    begin.join(" ")
                ),
            });
        };
        let reader = BufReader::with_capacity(PART_BUFFER_BYTES, input.into_reader());
        Ok(Self { path, order, reader, position_bytes: 0 })
    }

    /// Reads an event and skips its payload.
    fn read(&mut self) -> Result<Next, Fault> {
        let begin = self.position_bytes;
        let mut bytes = [0; EVENT_BYTES];
        let read = read_up_to(&mut self.reader, &mut bytes).map_err(|error| self.failed(error))?;
        self.position_bytes += read as u64;
        if read == 0 {
            return Ok(Next::End);
        }
        if read < EVENT_BYTES {
            return Err(
                self.defect(begin, format!("the file ends after {read} of an event's {EVENT_BYTES} bytes"))
            );
        }
        let event = Event::parse(&bytes, self.order).map_err(|reason| self.defect(begin, reason))?;
        let payload = u64::from(event.payload_bytes);
        let passed = io::copy(&mut self.reader.by_ref().take(payload), &mut io::sink());
        let passed = passed.map_err(|error| self.failed(error))?;
        self.position_bytes += passed;
        if passed < payload {
            return Err(self.defect(
                begin,
                format!("the file ends after {passed} of an event's {payload} bytes of payload"),
            ));
        }
        Ok(Next::Event(event, begin))
    }

    fn defect(&self, byte: u64, reason: String) -> Fault {
        Fault::Defect(Defect { file: Arc::clone(&self.path), place: Place::Byte(byte), reason })
    }

    fn failed(&self, error: io::Error) -> Fault {
        let (path, position_bytes) = (self.path.to_path_buf(), self.position_bytes);
        Fault::End(TraceError::Read { path, position_bytes, error })
    }
}

fn read_up_to(reader: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match reader.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The events that are completely in the head of a file.
fn events_of_head(head: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    let Some(order) = byte_order(head) else { return events };
    let mut rest = head;
    while let Some((bytes, behind)) = rest.split_first_chunk::<EVENT_BYTES>()
        && let Ok(event) = Event::parse(bytes, order)
    {
        events.push(event);
        rest = behind.get(usize::from(event.payload_bytes)..).unwrap_or(&[]);
    }
    events
}

/// The next event of each part, the earliest first: time, sequence, part.
type Heads = BinaryHeap<Reverse<(u64, u32, usize)>>;

/// The source of a trace with one file per processor.
pub(crate) struct BlktraceSource {
    parts: Vec<Part>,
    /// The event of each part that is in `heads`, and its offset in the file.
    waiting: BTreeMap<usize, (Event, u64)>,
    heads: Heads,
    kind: Kind,
    units: DetectedUnits,
    /// The time of the first event that is not a notice. Times count from it, as in the output of
    /// blkparse; notices may be seconds earlier.
    begin_ns: Option<u64>,
    numbers: Numbers,
    named: Vec<NamedDevice>,
    /// Faults found while reading ahead.
    faults: VecDeque<Fault>,
    is_begun: bool,
}

impl BlktraceSource {
    pub(crate) fn new(path: &Path, inputs: Vec<Input>) -> Result<Self, TraceError> {
        if inputs.is_empty() {
            return Err(TraceError::Empty { path: path.to_owned() });
        }
        let heads = inputs.iter().flat_map(|input| events_of_head(&input.head));
        let kind = Kind::chosen(heads.filter_map(|event| event.kind()));
        Ok(Self {
            parts: inputs.into_iter().map(Part::new).collect::<Result<_, _>>()?,
            waiting: BTreeMap::new(),
            heads: BinaryHeap::new(),
            kind,
            units: units(TimeUnit::Nanoseconds, kind),
            begin_ns: None,
            numbers: Numbers::default(),
            named: Vec::new(),
            faults: VecDeque::new(),
            is_begun: false,
        })
    }

    /// Reads the part's next event.
    fn advance(&mut self, part: usize) {
        match self.parts[part].read() {
            Ok(Next::Event(event, begin)) => {
                self.heads.push(Reverse((event.time_ns, event.sequence, part)));
                self.waiting.insert(part, (event, begin));
            }
            Ok(Next::End) => {}
            Err(fault) => self.faults.push_back(fault),
        }
    }

    fn record(&mut self, event: &Event) -> Result<Option<Record>, String> {
        if event.is_notice() {
            return Ok(None);
        }
        let begin_ns = *self.begin_ns.get_or_insert(event.time_ns);
        if event.kind() != Some(self.kind) {
            return Ok(None);
        }
        let Some(operation) = event.operation() else { return Ok(None) };
        let name = event.device_name();
        let (device, is_new) = self.numbers.of(&name)?;
        if is_new {
            self.named.push(NamedDevice { node: 0, device, name });
        }
        let offset_bytes = event.sector.checked_mul(OffsetUnit::Sectors.bytes());
        let record = Record {
            at: Duration::from_nanos(event.time_ns.saturating_sub(begin_ns)),
            node: 0,
            device,
            offset_bytes: offset_bytes.ok_or_else(|| format!("no device has a sector {}", event.sector))?,
            length_bytes: u64::from(event.length_bytes),
            operation,
            table: None,
            column: None,
            thread: Some(event.pid),
        };
        record.verify().map(|()| Some(record))
    }
}

impl Source for BlktraceSource {
    fn next(&mut self) -> Option<Result<Record, Fault>> {
        if !std::mem::replace(&mut self.is_begun, true) {
            (0..self.parts.len()).for_each(|part| self.advance(part));
        }
        loop {
            if let Some(fault) = self.faults.pop_front() {
                return Some(Err(fault));
            }
            let Reverse((_, _, part)) = self.heads.pop()?;
            let Some((event, begin)) = self.waiting.remove(&part) else { continue };
            self.advance(part);
            match self.record(&event) {
                Ok(Some(record)) => return Some(Ok(record)),
                Ok(None) => {}
                Err(reason) => return Some(Err(self.parts[part].defect(begin, reason))),
            }
        }
    }

    fn units(&self) -> &DetectedUnits {
        &self.units
    }

    fn devices(&self) -> &[NamedDevice] {
        &self.named
    }
}
