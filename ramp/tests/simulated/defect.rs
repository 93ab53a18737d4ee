//! Defects that the simulation adds deliberately, to show that the checker reports them. The
//! simulation adds them from outside; the crate itself contains no code for them.

/// One thing that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// Words that make slots invalid are never written.
    NoInvalidation,
    /// Clients send COMMIT together with PREPARE.
    EarlyCommit,
    /// All clients have one id.
    CollidingTimestamps,
    /// Leases are moved on by a timer, whatever their readers do.
    TimedCollection,
    /// Readers take what they copied for whole, unless a flag says that it is given up.
    BlindOverwrite,
    /// Readers trust the memory of a participant that has crashed.
    DeadMemory,
    /// Participants answer before their logs are durable.
    EarlyAnswers,
    /// Clients hear of timestamps only up to a minute ahead of their clocks, and participants
    /// prepare what is older than what they have: so it was once.
    CappedClocks,
    /// Participants do not look at conditions.
    NoConditions,
}

/// Makes bytes pass for a whole slot: what a reader would see if slots had neither version words
/// nor checksums.
pub(crate) fn without_checks(bytes: &mut [u8]) {
    // A flag that says that it is given up is still looked at.
    if bytes[8..16] == [0; 8] {
        return;
    }
    bytes[..8].copy_from_slice(&2_u64.to_le_bytes());
    bytes[8..16].copy_from_slice(&2_u64.to_le_bytes());
    let payload = u32::from_le_bytes(bytes[16..20].try_into().expect("four bytes"));
    let last = 64 + usize::try_from(payload).expect("a length").next_multiple_of(8);
    if last + 8 > bytes.len() {
        return;
    }
    bytes[last..last + 8].copy_from_slice(&2_u64.to_le_bytes());
    let checksum = crc32c::crc32c(&bytes[..8]);
    let checksum = crc32c::crc32c_append(checksum, &bytes[16..20]);
    let checksum = crc32c::crc32c_append(checksum, &bytes[24..last]);
    bytes[20..24].copy_from_slice(&checksum.to_le_bytes());
}
