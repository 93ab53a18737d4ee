//! Promises about forbidden operations: each is refused with an error that names the reason, and
//! the memory stays as it was.

use rackscan_fabric::{
    Access, Connection, Ending, Event, Listener, Operation, OperationError, OutOfBounds, PostError, Region,
    RegisterError, RemoteRegion,
    limits::{MESSAGE_BYTES_MAX, REGISTRATIONS_MAX, SEND_BYTES_MAX},
};

use crate::pair::{TestWire, events, hear, listen, meet, pair, run, soon, tell};

const BYTES: usize = 8192;

struct Target {
    wire: TestWire,
    listener: Listener,
    ours: Connection,
    theirs: Connection,
    region: Region,
    remote: RemoteRegion,
    local: Region,
}

fn target(wire: TestWire, access: Access) -> Target {
    let mut listener = listen(wire);
    let (mut ours, mut theirs) = meet(&mut listener);
    let region = Region::allocate(BYTES).expect("allocate");
    region.copy_in(0, &[0x11; BYTES]).expect("copy in");
    let remote = theirs.register(&region, access).expect("register");
    tell(&mut theirs, &remote);
    let remote = hear(&mut ours);
    let local = Region::allocate(BYTES).expect("allocate");
    local.copy_in(0, &[0x22; BYTES]).expect("copy in");
    Target { wire, listener, ours, theirs, region, remote, local }
}

/// Every kind of operation that touches a peer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Touch {
    Write,
    WriteBytes,
    WriteWithImmediate,
    Read,
    FetchAdd,
    CompareSwap,
}

impl Touch {
    const ALL: [Self; 6] = [
        Self::Write,
        Self::WriteBytes,
        Self::WriteWithImmediate,
        Self::Read,
        Self::FetchAdd,
        Self::CompareSwap,
    ];

    fn needed(self) -> Access {
        match self {
            Self::Write | Self::WriteBytes | Self::WriteWithImmediate => Access::Write,
            Self::Read => Access::Read,
            Self::FetchAdd | Self::CompareSwap => Access::ReadWrite,
        }
    }

    /// It touches the first 8 bytes of `target`.
    fn operation(self, target: RemoteRegion, local: &Region) -> Operation<'static> {
        let eight = local.slice(0, 8).expect("slice");
        let target_offset = 0;
        match self {
            Self::Write => Operation::Write { source: eight, target, target_offset },
            Self::WriteBytes => Operation::WriteBytes { bytes: &[0x33; 8], target, target_offset },
            Self::WriteWithImmediate => {
                Operation::WriteWithImmediate { source: eight, target, target_offset, immediate: 7 }
            }
            Self::Read => Operation::Read { source: target, source_offset: 0, target: eight },
            Self::FetchAdd => Operation::FetchAdd { target, target_offset, add: 1 },
            Self::CompareSwap => {
                let (expected, replacement) = (0x1111_1111_1111_1111, 0);
                Operation::CompareSwap { target, target_offset, expected, replacement }
            }
        }
    }
}

impl Target {
    /// Runs an operation that must be refused without effect. Where the wire reports a reason, it
    /// must be `expected`.
    fn assert_refused(mut self, touch: Touch, remote: RemoteRegion, expected: &OperationError) {
        let operation = touch.operation(remote, &self.local);
        self.ours.post(4711, operation).expect("post");
        let mut found = events(&mut self.ours);
        let Event::Completed { id: 4711, outcome: Err(refusal) } = found.remove(0) else {
            panic!("{touch:?} of {remote:?} was not refused: {found:?}")
        };
        let is_status = matches!(refusal, OperationError::Status { .. });
        assert!(refusal == *expected || (is_status && !self.wire.outlives_refusal()), "{touch:?}: {refusal}");
        if self.wire.outlives_refusal() || !is_status {
            assert_eq!(found, [], "{touch:?}");
            self.assert_unharmed();
        } else {
            self.assert_failed_and_unharmed(found);
        }
    }

    fn assert_memory(&self) {
        assert!(self.region.to_vec(0, BYTES).expect("copy out") == vec![0x11; BYTES], "the target changed");
        assert!(self.local.to_vec(0, BYTES).expect("copy out") == vec![0x22; BYTES], "our memory changed");
    }

    fn assert_unharmed(&mut self) {
        self.assert_memory();
        assert!(run(&mut self.ours, Operation::Send { bytes: b"alive" }).is_ok(), "the connection goes on");
        assert_eq!(events(&mut self.theirs), [Event::Message { bytes: b"alive".to_vec() }]);
    }

    /// On a wire whose connections end with a refusal: both sides learn it, and nothing but the
    /// connection is lost.
    fn assert_failed_and_unharmed(mut self, mut found: Vec<Event>) {
        while self.ours.ended().is_none() {
            found.extend(events(&mut self.ours));
        }
        assert!(matches!(found.as_slice(), [Event::Closed(Ending::Failed { .. })]), "{found:?}");
        let refusal = self.ours.post(1, Operation::Send { bytes: b"x" });
        assert!(matches!(refusal, Err(PostError::Closed(Ending::Failed { .. }))), "{refusal:?}");
        let mut heard = Vec::new();
        while self.theirs.ended().is_none() {
            assert!(self.theirs.wait(&mut heard, soon()) > 0, "the peer is not told");
        }
        assert!(
            matches!(heard.as_slice(), [Event::Closed(Ending::Failed { .. } | Ending::Lost { .. })]),
            "{heard:?}"
        );
        self.assert_memory();
        (self.ours, self.theirs) = meet(&mut self.listener);
        self.assert_unharmed();
    }
}

pub(crate) fn an_unknown_key_is_refused_and_harms_nothing(wire: TestWire) {
    for touch in Touch::ALL {
        for change in [|_| 0, |key: u64| !key, |key| key ^ 1, |key| key ^ 0x100, |key| key ^ 1 << 32] {
            let target = target(wire, Access::ReadWrite);
            let key = change(target.remote.key);
            let remote = RemoteRegion { key, ..target.remote };
            target.assert_refused(touch, remote, &OperationError::UnknownKey { key });
        }
    }
}

pub(crate) fn an_access_beyond_the_region_is_refused_and_harms_nothing(wire: TestWire) {
    for touch in Touch::ALL {
        // A forged name: it claims bytes that were not registered, after the region or before it.
        for offset in [BYTES as u64, BYTES as u64 - 4, 1 << 32, u64::MAX - 15] {
            if touch.needed() == Access::ReadWrite && !offset.is_multiple_of(8) {
                continue;
            }
            let target = target(wire, Access::ReadWrite);
            let address = target.remote.address.wrapping_add(offset);
            let lie = RemoteRegion { address, length: 8, ..target.remote };
            let fault = OutOfBounds { offset: address, length: 8, region_bytes: BYTES as u64 };
            target.assert_refused(touch, lie, &OperationError::OutOfBounds(fault));
        }
    }
}

pub(crate) fn an_access_that_was_not_granted_is_refused_and_harms_nothing(wire: TestWire) {
    for granted in [Access::Read, Access::Write] {
        for touch in Touch::ALL {
            let (mut target, needed) = (target(wire, granted), touch.needed());
            if needed == granted {
                assert!(run(&mut target.ours, touch.operation(target.remote, &target.local)).is_ok());
                continue;
            }
            let remote = target.remote;
            target.assert_refused(touch, remote, &OperationError::AccessDenied { needed, granted });
        }
    }
}

pub(crate) fn a_deregistered_region_is_refused(wire: TestWire) {
    for touch in Touch::ALL {
        let mut target = target(wire, Access::ReadWrite);
        let remote = target.remote;
        assert!(run(&mut target.ours, Touch::Read.operation(remote, &target.local)).is_ok());
        target.local.copy_in(0, &[0x22; 8]).expect("copy in");
        target.theirs.deregister(&remote).expect("deregister");
        assert_eq!(target.theirs.registered_count(), 0);
        let key = remote.key;
        let again = target.theirs.deregister(&remote);
        assert!(
            matches!(again, Err(RegisterError::UnknownKey { key: unknown }) if unknown == key),
            "{again:?}"
        );
        target.assert_refused(touch, remote, &OperationError::UnknownKey { key });
    }
}

pub(crate) fn a_key_of_one_connection_opens_nothing_on_another(wire: TestWire) {
    for touch in Touch::ALL {
        // The region is registered with the other connection, too, under another key.
        let mut others = target(wire, Access::ReadWrite);
        let (_ours, mut theirs) = meet(&mut others.listener);
        let remote = theirs.register(&others.region, Access::ReadWrite).expect("register");
        let key = remote.key;
        assert_ne!(key, others.remote.key);
        others.assert_refused(touch, remote, &OperationError::UnknownKey { key });
    }
}

pub(crate) fn a_malformed_operation_is_never_sent(wire: TestWire) {
    let mut target = target(wire, Access::ReadWrite);
    let (remote, ours) = (target.remote, &mut target.ours);
    let fault = OutOfBounds { offset: BYTES as u64 - 1, length: 2, region_bytes: BYTES as u64 };
    let write = Operation::WriteBytes { bytes: b"ab", target: remote, target_offset: BYTES as u64 - 1 };
    assert_eq!(ours.post(0, write), Err(PostError::OutOfBounds(fault)));
    let add = Operation::FetchAdd { target: remote, target_offset: 4, add: 1 };
    assert_eq!(ours.post(0, add), Err(PostError::Misaligned { address: remote.address + 4 }));
    let long = vec![0; SEND_BYTES_MAX + 1];
    let refusal = PostError::MessageTooLong { bytes: SEND_BYTES_MAX + 1, bytes_max: SEND_BYTES_MAX };
    assert_eq!(ours.post(0, Operation::Send { bytes: &long }), Err(refusal));
    let longer = Region::allocate(MESSAGE_BYTES_MAX + 4096).expect("allocate");
    let (bytes, bytes_max) = (MESSAGE_BYTES_MAX + 1, MESSAGE_BYTES_MAX);
    let source = longer.slice(0, bytes).expect("slice");
    let send = Operation::SendRegion { source, report: rackscan_fabric::Report::PerMessage };
    assert_eq!(ours.post(0, send), Err(PostError::MessageTooLong { bytes, bytes_max }));
    assert_eq!(ours.in_flight(), 0);
    target.assert_unharmed();
}

pub(crate) fn registrations_have_a_limit_and_leave_nothing_behind(wire: TestWire) {
    let (mut ours, mut theirs) = pair(wire);
    let region = Region::allocate(4096).expect("allocate");
    let mut names = Vec::new();
    while names.len() < REGISTRATIONS_MAX {
        match theirs.register(&region, Access::Read) {
            Ok(name) => names.push(name),
            // On shm the kernel buffers the announcements; the peer processes them when it polls or
            // posts.
            Err(RegisterError::PeerBusy) => {
                ours.poll(&mut Vec::new());
            }
            Err(error) => panic!("{error}"),
        }
    }
    let refusal = theirs.register(&region, Access::Read);
    assert!(
        matches!(refusal, Err(RegisterError::TooMany { registered: 1024, registered_max: 1024 })),
        "{refusal:?}"
    );
    assert_eq!(theirs.registered_count(), REGISTRATIONS_MAX);
    for name in names {
        while let Err(RegisterError::PeerBusy) = theirs.deregister(&name) {
            ours.poll(&mut Vec::new());
        }
    }
    assert_eq!((theirs.registered_count(), region.holders()), (0, 1));
}
