//! Promises about operations that must not happen: each is refused by name, and the memory stays as it was.

use rackscan_fabric::{
    Access, Connection, Operation, OperationError, OutOfBounds, PostError, Region, RegisterError,
    RemoteRegion,
    limits::{REGISTRATIONS_MAX, SEND_BYTES_MAX},
};

use crate::pair::{TestWire, hear, listen, meet, pair, run, tell};

const BYTES: usize = 8192;

struct Target {
    ours: Connection,
    theirs: Connection,
    region: Region,
    remote: RemoteRegion,
    local: Region,
}

fn target(wire: TestWire, access: Access) -> Target {
    let (mut ours, mut theirs) = pair(wire);
    let region = Region::allocate(BYTES).expect("allocate");
    region.copy_in(0, &[0x11; BYTES]).expect("copy in");
    let remote = theirs.register(&region, access).expect("register");
    tell(&mut theirs, &remote);
    let remote = hear(&mut ours);
    let local = Region::allocate(BYTES).expect("allocate");
    local.copy_in(0, &[0x22; BYTES]).expect("copy in");
    Target { ours, theirs, region, remote, local }
}

impl Target {
    /// Every kind of operation that touches 8 bytes at `offset` of `remote`.
    fn try_all(&mut self, remote: RemoteRegion, offset: u64) -> Vec<(Access, Result<(), OperationError>)> {
        let eight = self.local.slice(0, 8).expect("slice");
        let operations = [
            (
                Access::Write,
                Operation::Write { source: eight.clone(), target: remote, target_offset: offset },
            ),
            (
                Access::Write,
                Operation::WriteBytes { bytes: &[0x33; 8], target: remote, target_offset: offset },
            ),
            (Access::Read, Operation::Read { source: remote, source_offset: offset, target: eight }),
            (Access::ReadWrite, Operation::FetchAdd { target: remote, target_offset: offset, add: 1 }),
            (
                Access::ReadWrite,
                Operation::CompareSwap {
                    target: remote,
                    target_offset: offset,
                    expected: 0x1111_1111_1111_1111,
                    replacement: 0,
                },
            ),
        ];
        operations.map(|(needed, operation)| (needed, run(&mut self.ours, operation).map(|_| ()))).to_vec()
    }

    fn assert_unharmed(&mut self) {
        assert!(self.region.to_vec(0, BYTES).expect("copy out") == vec![0x11; BYTES], "the target changed");
        assert!(self.local.to_vec(0, BYTES).expect("copy out") == vec![0x22; BYTES], "our memory changed");
        assert!(run(&mut self.ours, Operation::Send { bytes: b"alive" }).is_ok(), "the connection goes on");
    }
}

pub(crate) fn an_unknown_key_is_refused_and_harms_nothing(wire: TestWire) {
    let mut target = target(wire, Access::ReadWrite);
    for key in [0, !target.remote.key, target.remote.key ^ 1] {
        for (_, outcome) in target.try_all(RemoteRegion { key, ..target.remote }, 0) {
            assert_eq!(outcome, Err(OperationError::UnknownKey { key }));
        }
    }
    target.assert_unharmed();
}

pub(crate) fn an_access_beyond_the_region_is_refused_and_harms_nothing(wire: TestWire) {
    let mut target = target(wire, Access::ReadWrite);
    // The name is a lie: it claims more than was registered.
    for address in [BYTES as u64, BYTES as u64 - 8 + 8, 1 << 32, u64::MAX - 15] {
        let lie = RemoteRegion { address, length: 8, ..target.remote };
        let fault = OutOfBounds { offset: address, length: 8, region_bytes: BYTES as u64 };
        for (_, outcome) in target.try_all(lie, 0) {
            assert_eq!(outcome, Err(OperationError::OutOfBounds(fault.clone())));
        }
    }
    let straddling = RemoteRegion { address: BYTES as u64 - 4, length: 8, ..target.remote };
    let write = Operation::WriteBytes { bytes: &[0; 8], target: straddling, target_offset: 0 };
    assert!(matches!(run(&mut target.ours, write), Err(OperationError::OutOfBounds(_))));
    target.assert_unharmed();
}

pub(crate) fn an_access_that_was_not_granted_is_refused_and_harms_nothing(wire: TestWire) {
    for granted in [Access::Read, Access::Write] {
        let mut target = target(wire, granted);
        // Allowed operations would change something; try only what is not allowed.
        for (needed, outcome) in target.try_all(target.remote, 0) {
            if needed == granted {
                assert_eq!(outcome, Ok(()));
            } else {
                assert_eq!(outcome, Err(OperationError::AccessDenied { needed, granted }));
            }
        }
        let expected = if granted == Access::Write { [0x33; 8] } else { [0x11; 8] };
        assert_eq!(target.region.to_vec(0, 8).expect("copy out"), expected);
    }
}

pub(crate) fn a_deregistered_region_is_refused(wire: TestWire) {
    let mut target = target(wire, Access::ReadWrite);
    target.theirs.deregister(&target.remote).expect("deregister");
    assert_eq!(target.theirs.registered_count(), 0);
    let key = target.remote.key;
    for (_, outcome) in target.try_all(target.remote, 0) {
        assert_eq!(outcome, Err(OperationError::UnknownKey { key }));
    }
    let again = target.theirs.deregister(&target.remote);
    assert!(matches!(again, Err(RegisterError::UnknownKey { key: unknown }) if unknown == key), "{again:?}");
    target.assert_unharmed();
}

pub(crate) fn a_key_of_one_connection_opens_nothing_on_another(wire: TestWire) {
    let mut listener = listen(wire);
    let (_ours, mut theirs) = meet(&mut listener);
    let (mut others, _their_other) = meet(&mut listener);
    let region = Region::allocate(BYTES).expect("allocate");
    let remote = theirs.register(&region, Access::ReadWrite).expect("register");
    let write = Operation::WriteBytes { bytes: b"x", target: remote, target_offset: 0 };
    assert_eq!(run(&mut others, write), Err(OperationError::UnknownKey { key: remote.key }));
    assert_eq!(region.to_vec(0, 1).expect("copy out"), [0]);
}

pub(crate) fn a_malformed_operation_is_never_sent(wire: TestWire) {
    let mut target = target(wire, Access::ReadWrite);
    let (remote, ours) = (target.remote, &mut target.ours);
    let fault = OutOfBounds { offset: BYTES as u64 - 1, length: 2, region_bytes: BYTES as u64 };
    let write = Operation::WriteBytes { bytes: b"ab", target: remote, target_offset: BYTES as u64 - 1 };
    assert_eq!(ours.post(0, write), Err(PostError::OutOfBounds(fault)));
    let add = Operation::FetchAdd { target: remote, target_offset: 4, add: 1 };
    assert_eq!(ours.post(0, add), Err(PostError::Misaligned { address: 4 }));
    let long = vec![0; SEND_BYTES_MAX + 1];
    let refusal = PostError::MessageTooLong { bytes: SEND_BYTES_MAX + 1, bytes_max: SEND_BYTES_MAX };
    assert_eq!(ours.post(0, Operation::Send { bytes: &long }), Err(refusal));
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
            // On shm the kernel holds so many announcements; the peer takes them in when it does anything.
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
