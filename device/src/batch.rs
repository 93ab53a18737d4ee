//! Reads many ranges of devices in one call ([`read_all`]), with as many reads in flight as the
//! queue depth allows.

use crate::error::ReadAllError;
use crate::fault::IoFault;
use crate::io::DeviceIo;
use crate::request::{Completion, IoMemory, Read, Token, Wait};

/// Performs all reads and returns their memories in the order of the requests. The tokens of the
/// requests are overwritten.
///
/// # Errors
/// [`ReadAllError::RingBusy`] unless the ring is idle; otherwise the first refused or failed read,
/// after all submitted reads have ended (so that no memory is lost).
pub fn read_all(io: &mut dyn DeviceIo, reads: Vec<Read>) -> Result<Vec<IoMemory>, ReadAllError> {
    if io.in_flight() > 0 || io.watches() > 0 {
        return Err(ReadAllError::RingBusy { in_flight: io.in_flight(), watches: io.watches() });
    }
    let mut done: Vec<Option<IoMemory>> = reads.iter().map(|_| None).collect();
    let mut failed: Option<ReadAllError> = None;
    let mut waiting = reads.into_iter().enumerate();
    let mut exhausted = false;
    loop {
        while !exhausted && failed.is_none() && io.in_flight() < io.depth() {
            let Some((index, read)) = waiting.next() else {
                exhausted = true;
                break;
            };
            let refused = io.submit_read(Read { token: Token(index as u64), ..read }).err();
            failed = refused.map(|refused| ReadAllError::Refused { index, reason: refused.reason });
        }
        if io.in_flight() == 0 {
            break;
        }
        let mut first_fault = None;
        io.reap(Wait::ForOne, &mut |completion| {
            if let Some(fault) = keep(completion, &mut done) {
                first_fault.get_or_insert(fault);
            }
        })?;
        if let Some((index, fault)) = first_fault {
            failed.get_or_insert(ReadAllError::Fault { index, fault });
        }
    }
    match failed {
        Some(failed) => Err(failed),
        None => Ok(done.into_iter().flatten().collect()),
    }
}

/// Stores the memory of a finished read at its index, or returns the fault.
fn keep(completion: Completion, done: &mut [Option<IoMemory>]) -> Option<(usize, Box<IoFault>)> {
    let Completion::Read { token: Token(token), memory, outcome } = completion else { return None };
    let index = usize::try_from(token).ok()?;
    if let Err(fault) = outcome {
        return Some((index, fault));
    }
    *done.get_mut(index)? = Some(memory);
    None
}
