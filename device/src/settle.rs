//! Decides what follows from the kernel's result for a transfer: the transfer is done, continues,
//! or has failed.
//!
//! A transfer continues after a transient refusal, or to move the remaining bytes if only some were
//! moved. The decision is a pure function, the same for rings and for system calls.
//!
//! Invariant: a transfer continues only if it made progress or has retries left, so it always ends.

use rustix::io::Errno;

use crate::fault::{Disposition, IoFault, Operation, verdict};
use crate::limits::RETRIES_MAX;
use crate::transfer::Transfer;

/// What to do with a transfer after a result of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextAction {
    /// Everything was moved.
    Done,
    /// Submit it again with these counters.
    Again { done_bytes: u32, retries: u8 },
    /// It failed.
    Fault(Box<IoFault>),
}

/// Decides from `result`, which is the number of bytes moved or a negated errno. `align_bytes` is
/// the device's offset alignment.
pub(crate) fn settle(
    transfer: &Transfer,
    result: i32,
    align_bytes: u32,
    device: &dyn Fn() -> String,
) -> NextAction {
    let Transfer { operation, offset_bytes, length_bytes, done_bytes, retries, .. } = *transfer;
    let Ok(moved_bytes) = u32::try_from(result) else {
        let source = Errno::from_raw_os_error(result.saturating_neg());
        let verdict = verdict(operation, source);
        if verdict.disposition == Disposition::Retry && retries < RETRIES_MAX {
            return NextAction::Again { done_bytes, retries: retries + 1 };
        }
        return NextAction::Fault(Box::new(transfer.os_fault(device(), source)));
    };
    let total_bytes = done_bytes.saturating_add(moved_bytes);
    if operation == Operation::Fsync || total_bytes >= length_bytes {
        return NextAction::Done;
    }
    // The rest must begin aligned, so a few bytes may be transferred twice.
    let resume_at = total_bytes - total_bytes % align_bytes;
    if resume_at > done_bytes {
        return NextAction::Again { done_bytes: resume_at, retries };
    }
    NextAction::Fault(Box::new(IoFault::Short {
        operation,
        device: device(),
        offset_bytes,
        length_bytes,
        moved_bytes: total_bytes,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{DeviceIndex, Token};

    fn read(done_bytes: u32, retries: u8) -> Transfer {
        Transfer {
            operation: Operation::Read,
            device: DeviceIndex(0),
            offset_bytes: 4096,
            length_bytes: 8192,
            done_bytes,
            retries,
            memory: None,
            token: Token(7),
        }
    }

    fn check(transfer: &Transfer, result: i32) -> NextAction {
        settle(transfer, result, 512, &|| "disk".to_owned())
    }

    #[test]
    fn a_short_transfer_goes_on_where_it_stopped_aligned() {
        assert_eq!(check(&read(0, 0), 8192), NextAction::Done);
        assert_eq!(check(&read(0, 0), 1024), NextAction::Again { done_bytes: 1024, retries: 0 });
        assert_eq!(check(&read(1024, 0), 700), NextAction::Again { done_bytes: 1536, retries: 0 });
        assert_eq!(check(&read(4096, 0), 4096), NextAction::Done);
    }

    #[test]
    fn a_transfer_without_progress_is_a_fault_with_the_bytes_moved() {
        let NextAction::Fault(fault) = check(&read(1024, 0), 0) else { panic!("no progress must end") };
        assert!(matches!(*fault, IoFault::Short { moved_bytes: 1024, length_bytes: 8192, .. }), "{fault}");
    }

    #[test]
    fn transient_errors_are_retried_a_bounded_number_of_times() {
        let again = -Errno::AGAIN.raw_os_error();
        assert_eq!(check(&read(512, 0), again), NextAction::Again { done_bytes: 512, retries: 1 });
        assert!(matches!(check(&read(512, RETRIES_MAX), again), NextAction::Fault(_)));
    }

    #[test]
    fn an_error_names_the_device_the_place_and_the_errno() {
        let NextAction::Fault(fault) = check(&read(0, 0), -Errno::IO.raw_os_error()) else {
            panic!("EIO is a fault")
        };
        let message = fault.to_string();
        assert!(message.contains("read of 8192 bytes at byte 4096 of disk"), "{message}");
        assert!(!fault.must_stop());
    }
}
