//! Maps the regions to which the peer has granted access.
//!
//! Invariants
//! - A peer's memory is mapped only if it is a memfd of exactly the announced size whose size is
//!   sealed. Otherwise the peer could shrink it, and our next access would be a fatal signal.
//! - It is not memory of the pool of huge pages (`MFD_HUGETLB`), which can be exhausted: an access
//!   to a page that the peer has not populated would then be a fatal signal, too.
//! - Memory granted for reading is shared by a read-only descriptor and mapped read-only.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::Arc,
};

use rustix::fs::{Mode, OFlags};

use crate::{
    access::Access,
    error::OperationError,
    limits::{REGION_ALIGNMENT_BYTES, REGION_BYTES_MAX, REGISTRATIONS_MAX},
    memory::{Mapping, Protection},
    operation::{RemoteSpan, check_grant},
    region::{Region, SEALS},
};

/// The type of filesystem of an ordinary memfd (`linux/magic.h`).
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// Regions that the peer has granted on one connection.
#[derive(Debug, Default)]
pub(super) struct PeerRegions {
    granted: HashMap<u64, PeerRegion>,
}

#[derive(Debug)]
struct PeerRegion {
    mapping: Arc<Mapping>,
    access: Access,
}

impl PeerRegions {
    /// Maps a region that the peer grants. An error describes what is wrong with the grant.
    pub(super) fn grant(
        &mut self,
        key: u64,
        bytes: u64,
        access: Access,
        memory: &OwnedFd,
    ) -> Result<(), String> {
        if self.granted.len() >= REGISTRATIONS_MAX {
            return Err(format!("more than {REGISTRATIONS_MAX} regions granted"));
        }
        if self.granted.contains_key(&key) {
            return Err(format!("key {key:#018x} granted twice"));
        }
        let refused = |e: io::Error| format!("grant of {bytes} bytes under key {key:#018x}: {e}");
        let length = usize::try_from(bytes).map_err(|e| refused(io::Error::other(e)))?;
        check_memory(memory, length).map_err(refused)?;
        let protection = match access {
            Access::Read => Protection::ReadOnly,
            Access::Write | Access::ReadWrite => Protection::ReadWrite,
        };
        let mapping = Mapping::new(memory.as_fd(), length, protection).map_err(refused)?;
        self.granted.insert(key, PeerRegion { mapping: Arc::new(mapping), access });
        Ok(())
    }

    /// Drops a region that the peer revokes.
    pub(super) fn revoke(&mut self, key: u64) -> Result<(), String> {
        self.granted.remove(&key).map(|_| ()).ok_or_else(|| format!("unknown key {key:#018x} revoked"))
    }

    /// Drops all regions.
    pub(super) fn clear(&mut self) {
        self.granted.clear();
    }

    /// The mapping, and the offset in it, of a span that an operation touches.
    pub(super) fn find(
        &self,
        span: RemoteSpan,
        needed: Access,
    ) -> Result<(&Arc<Mapping>, usize), OperationError> {
        let region = self.granted.get(&span.key).ok_or(OperationError::UnknownKey { key: span.key })?;
        let offset = check_grant(span, needed, region.access, region.mapping.bytes())?;
        Ok((&region.mapping, offset))
    }
}

/// The descriptor of a region to hand to a peer.
pub(super) fn share(region: &Region, access: Access) -> io::Result<OwnedFd> {
    match access {
        Access::Read => {
            // Opening it again gives a descriptor that cannot be mapped writable.
            let path = format!("/proc/self/fd/{}", region.memory().as_raw_fd());
            Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
        }
        Access::Write | Access::ReadWrite => region.memory().try_clone_to_owned(),
    }
}

/// Checks that `memory` is a memfd of exactly `bytes` bytes whose size is sealed.
pub(super) fn check_memory(memory: &OwnedFd, bytes: usize) -> io::Result<()> {
    if bytes == 0 || !bytes.is_multiple_of(REGION_ALIGNMENT_BYTES) || bytes > REGION_BYTES_MAX {
        return Err(io::Error::other(format!("{bytes} bytes is no possible length of a region")));
    }
    let seals = rustix::fs::fcntl_get_seals(memory)
        .map_err(|e| io::Error::other(format!("the descriptor is not sealable memory: {e}")))?;
    if !seals.contains(SEALS) {
        return Err(io::Error::other(format!("seals {seals:?}, expected {SEALS:?}")));
    }
    if rustix::fs::fstatfs(memory)?.f_type != TMPFS_MAGIC {
        return Err(io::Error::other(
            "the memory is of the pool of huge pages or of a filesystem, expected ordinary memory (memfd)",
        ));
    }
    let found = rustix::fs::fstat(memory)?.st_size;
    if u64::try_from(found).ok() != Some(bytes as u64) {
        return Err(io::Error::other(format!("the memory has {found} bytes, expected {bytes}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::HUGE_PAGE_BYTES;
    use rustix::fs::{MemfdFlags, SealFlags};

    fn memory(bytes: u64, seals: SealFlags) -> OwnedFd {
        memory_of(MemfdFlags::CLOEXEC, bytes, seals)
    }

    fn memory_of(kind: MemfdFlags, bytes: u64, seals: SealFlags) -> OwnedFd {
        let memory = rustix::fs::memfd_create("test", kind | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&memory, bytes).unwrap();
        rustix::fs::fcntl_add_seals(&memory, seals).unwrap();
        memory
    }

    #[test]
    fn only_sealed_memory_of_the_announced_size_is_mapped() {
        let mut regions = PeerRegions::default();
        let mut grant = |memory: &OwnedFd, bytes| regions.grant(1, bytes, Access::ReadWrite, memory);
        for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::SHRINK | SealFlags::GROW] {
            let refusal = grant(&memory(4096, seals), 4096).unwrap_err();
            assert!(refusal.contains("seals"), "{refusal}");
        }
        assert!(grant(&memory(4096, SEALS), 8192).unwrap_err().contains("4096 bytes, expected 8192"));
        assert!(grant(&memory(4096, SEALS), 4097).unwrap_err().contains("no possible length"));
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        assert!(grant(&file, 4096).is_err(), "a plain file can be cut off");
        let huge = memory_of(MemfdFlags::HUGETLB, HUGE_PAGE_BYTES as u64, SEALS);
        assert!(grant(&huge, HUGE_PAGE_BYTES as u64).unwrap_err().contains("pool of huge pages"));
        grant(&memory(4096, SEALS), 4096).unwrap();
        assert!(grant(&memory(4096, SEALS), 4096).unwrap_err().contains("twice"));
    }

    #[test]
    fn memory_shared_for_reading_cannot_be_mapped_writable() {
        let region = Region::allocate(4096).unwrap();
        let shared = share(&region, Access::Read).unwrap();
        assert!(Mapping::new(shared.as_fd(), 4096, Protection::ReadWrite).is_err());
        let mut regions = PeerRegions::default();
        regions.grant(1, 4096, Access::Read, &shared).unwrap();
        let span = RemoteSpan { key: 1, address: 0, length: 8 };
        assert!(regions.find(span, Access::Read).is_ok());
        let denied = OperationError::AccessDenied { needed: Access::Write, granted: Access::Read };
        assert_eq!(regions.find(span, Access::Write).unwrap_err(), denied);
    }
}
