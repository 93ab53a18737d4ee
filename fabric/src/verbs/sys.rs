//! Wraps the calls of libibverbs safely.
//!
//! Invariants
//! - This file and those in `sys/` contain all unsafe code of the wire; what they export is safe to
//!   call in any order.
//! - A wrapper keeps the objects alive from which its own object was made, so nothing is freed
//!   before its users.
//! - An adapter accesses memory of ours only through a [`MemoryRegion`]. That holds the mapping,
//!   and drops it after the adapter has released it, so no work request can reach unmapped memory,
//!   whatever address it names.
#![expect(unsafe_code, reason = "calls libibverbs, which takes and returns raw pointers")]

mod completion;
mod queue;

use std::{
    ffi::{CStr, c_int},
    io,
    mem::MaybeUninit,
    ptr::NonNull,
    sync::Arc,
};

use az::SaturatingAs;
use rdma_sys as ffi;

pub(super) use completion::{Completion, CompletionQueue, Received};
pub(super) use queue::{
    Capacity, Local, PairState, Path, QueuePair, SendKind, SendRequest, SharedReceiveQueue, Slot,
};

use crate::{access::Access, memory::RawSlice, region::Region};

/// The limits of an adapter that this wire uses.
#[derive(Debug, Clone, Copy)]
pub(super) struct AdapterLimits {
    /// Work requests in one queue.
    pub(super) queue_depth_max: u32,
    /// Completions in one queue.
    pub(super) completions_max: u32,
    /// Reads and atomics that one queue pair serves at a time.
    pub(super) reads_served_max: u8,
    /// Reads and atomics that one queue pair has outstanding at a time.
    pub(super) reads_started_max: u8,
    /// Whether it has memory windows that belong to one queue pair.
    pub(super) has_windows: bool,
    /// How many ports it has.
    pub(super) ports: u8,
}

/// The state of a port.
#[derive(Debug, Clone, Copy)]
pub(super) struct Port {
    pub(super) is_active: bool,
    /// The largest packet that it sends, as a verbs number (1 is 256 bytes, 5 is 4,096).
    pub(super) mtu: u32,
    /// Its address in an InfiniBand subnet.
    pub(super) lid: u16,
    /// Whether it is Ethernet (RoCE, iWARP) and not InfiniBand.
    pub(super) is_ethernet: bool,
    /// Entries of its table of addresses.
    pub(super) gids: u32,
}

fn check(answer: c_int) -> io::Result<()> {
    match answer {
        0 => Ok(()),
        // Some calls return an errno, some -1 and set it.
        errno if errno > 0 => Err(io::Error::from_raw_os_error(errno)),
        _ => Err(io::Error::last_os_error()),
    }
}

fn made<T>(pointer: *mut T) -> io::Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(io::Error::last_os_error)
}

/// A number that libibverbs reports; a negative one counts as 0.
fn to_u32(count: c_int) -> u32 {
    count.saturating_as::<u32>()
}

/// The adapters of this machine, as libibverbs lists them.
struct DeviceList {
    first: *mut *mut ffi::ibv_device,
    count: usize,
}

impl DeviceList {
    fn new() -> io::Result<Self> {
        let mut count = 0;
        // SAFETY: `count` is a valid place for the number of entries.
        let first = unsafe { ffi::ibv_get_device_list(&raw mut count) };
        if !first.is_null() {
            // A negative number counts as 0.
            return Ok(Self { first, count: count.saturating_as::<usize>() });
        }
        let error = io::Error::last_os_error();
        // A kernel without RDMA modules is a machine without adapters.
        if error.raw_os_error() == Some(libc::ENOSYS) { Ok(Self { first, count: 0 }) } else { Err(error) }
    }

    fn device(&self, at: usize) -> *mut ffi::ibv_device {
        assert!(at < self.count, "adapter {at} of {}", self.count);
        // SAFETY: `at` is below the number of entries that the list was returned with.
        let place = unsafe { self.first.add(at) };
        // SAFETY: as above, so the entry is initialised; it lives as long as the list.
        unsafe { *place }
    }

    fn name(&self, at: usize) -> String {
        // SAFETY: the device is of this list, which is not freed yet.
        let name = unsafe { ffi::ibv_get_device_name(self.device(at)) };
        if name.is_null() {
            return String::new();
        }
        // SAFETY: libibverbs returns a terminated string that lives as long as the device.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        if !self.first.is_null() {
            // SAFETY: it came from `ibv_get_device_list` and is freed once; open devices do not
            // need it.
            unsafe { ffi::ibv_free_device_list(self.first) };
        }
    }
}

/// The names of this machine's adapters.
pub(super) fn device_names() -> io::Result<Vec<String>> {
    let list = DeviceList::new()?;
    Ok((0..list.count).map(|at| list.name(at)).collect())
}

/// An open adapter.
#[derive(Debug)]
pub(super) struct Context {
    raw: NonNull<ffi::ibv_context>,
}

// SAFETY: libibverbs may be called from any thread; the pointer stays valid until `drop`.
unsafe impl Send for Context {}
// SAFETY: as above; libibverbs locks what its calls share.
unsafe impl Sync for Context {}

impl Context {
    /// Opens the adapter of that name; `None` if there is none.
    pub(super) fn open(name: &str) -> io::Result<Option<Self>> {
        let list = DeviceList::new()?;
        let Some(at) = (0..list.count).find(|at| list.name(*at) == name) else { return Ok(None) };
        // SAFETY: the device is of a list that lives during the call.
        let raw = unsafe { ffi::ibv_open_device(list.device(at)) };
        Ok(Some(Self { raw: made(raw)? }))
    }

    pub(super) fn limits(&self) -> io::Result<AdapterLimits> {
        let mut attributes = MaybeUninit::<ffi::ibv_device_attr>::zeroed();
        // SAFETY: the context is open and the place is large enough for what is written.
        check(unsafe { ffi::ibv_query_device(self.raw.as_ptr(), attributes.as_mut_ptr()) })?;
        // SAFETY: plain numbers, all of them initialised (by zeroes at least).
        let found = unsafe { attributes.assume_init() };
        let windows = ffi::ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2A.0
            | ffi::ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2B.0;
        let small = |count: c_int| count.saturating_as::<u8>();
        Ok(AdapterLimits {
            queue_depth_max: to_u32(found.max_qp_wr),
            completions_max: to_u32(found.max_cqe),
            reads_served_max: small(found.max_qp_rd_atom),
            reads_started_max: small(found.max_qp_init_rd_atom),
            has_windows: found.device_cap_flags & windows != 0,
            ports: found.phys_port_cnt,
        })
    }

    pub(super) fn port(&self, port: u8) -> io::Result<Port> {
        let mut attributes = MaybeUninit::<ffi::ibv_port_attr>::zeroed();
        // SAFETY: the context is open and the place is large enough for what is written.
        check(unsafe { ffi::___ibv_query_port(self.raw.as_ptr(), port, attributes.as_mut_ptr()) })?;
        // SAFETY: plain numbers, all of them initialised (by zeroes at least).
        let found = unsafe { attributes.assume_init() };
        const ETHERNET: u8 = 2;
        Ok(Port {
            is_active: found.state == ffi::ibv_port_state::IBV_PORT_ACTIVE,
            mtu: found.active_mtu,
            lid: found.lid,
            is_ethernet: found.link_layer == ETHERNET,
            gids: to_u32(found.gid_tbl_len),
        })
    }

    /// An entry of a port's table of addresses; all zeros if it is free.
    pub(super) fn gid(&self, port: u8, index: u32) -> io::Result<[u8; 16]> {
        let mut gid = ffi::ibv_gid { raw: [0; 16] };
        // An index that fits no c_int is beyond every table, as the clamped one is.
        let index = index.saturating_as::<c_int>();
        // SAFETY: the context is open and `gid` is a valid place for an entry.
        check(unsafe { ffi::ibv_query_gid(self.raw.as_ptr(), port, index, &raw mut gid) })?;
        // SAFETY: every entry is 16 bytes, whichever way it is looked at.
        Ok(unsafe { gid.raw })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was opened by `open`, and what was made from it held this wrapper.
        let closed = unsafe { ffi::ibv_close_device(self.raw.as_ptr()) };
        debug_assert_eq!(closed, 0, "an adapter could not be closed");
    }
}

/// A protection domain: memory and queue pairs that may be used together.
#[derive(Debug)]
pub(super) struct ProtectionDomain {
    raw: NonNull<ffi::ibv_pd>,
    context: Arc<Context>,
}

// SAFETY: libibverbs may be called from any thread; the pointer stays valid until `drop`.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as above; libibverbs locks what its calls share.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    pub(super) fn new(context: Arc<Context>) -> io::Result<Self> {
        // SAFETY: the context is open.
        let raw = unsafe { ffi::ibv_alloc_pd(context.raw.as_ptr()) };
        Ok(Self { raw: made(raw)?, context })
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: it was made by `new`, and what was made from it held this wrapper.
        let freed = unsafe { ffi::ibv_dealloc_pd(self.raw.as_ptr()) };
        debug_assert_eq!(freed, 0, "a protection domain is still in use");
    }
}

/// A region that the adapter can reach. The registration alone serves only our own requests; a peer
/// reaches the memory through a window.
#[derive(Debug)]
pub(super) struct MemoryRegion {
    raw: NonNull<ffi::ibv_mr>,
    local_key: u32,
    memory: RawSlice,
    domain: Arc<ProtectionDomain>,
    // Counted among the region's holders, as every registration is.
    region: Region,
}

// SAFETY: libibverbs may be called from any thread; the pointer stays valid until `drop`.
unsafe impl Send for MemoryRegion {}
// SAFETY: `&MemoryRegion` gives copies of numbers, and its pointer only to calls that libibverbs
// locks.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    /// Pins the region's memory and registers it with the adapter.
    pub(super) fn register(domain: Arc<ProtectionDomain>, region: &Region) -> io::Result<Self> {
        let memory = region.as_raw_slice(0, region.bytes()).map_err(io::Error::other)?;
        let access =
            ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 | ffi::ibv_access_flags::IBV_ACCESS_MW_BIND.0;
        let (start, length) = (memory.as_ptr().cast(), memory.len());
        // SAFETY: the range is mapped readable and writable, and stays so while `memory` is held,
        // which is until after the deregistration. Others may change it at any time, as they may
        // any region.
        let raw = unsafe { ffi::ibv_reg_mr(domain.raw.as_ptr(), start, length, access.cast_signed()) };
        let raw = made(raw)?;
        // SAFETY: a registration that was just made and is not freed.
        let local_key = unsafe { raw.as_ref() }.lkey;
        Ok(Self { raw, local_key, memory, domain, region: region.clone() })
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// `length` bytes at `offset`, for a work request; they must be inside.
    pub(super) fn local(&self, offset: usize, length: u32) -> Local {
        let end = offset.checked_add(length as usize);
        assert!(
            end.is_some_and(|end| end <= self.memory.len()),
            "{length} bytes at {offset} of a registration"
        );
        Local::Registered { address: self.address() + offset as u64, length, key: self.local_key }
    }

    /// The address of the first byte, for the adapter.
    pub(super) fn address(&self) -> u64 {
        self.memory.as_ptr().addr() as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        self.memory.len() as u64
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: it was made by `register`; windows over it held this wrapper. The memory is let
        // go afterwards.
        let freed = unsafe { ffi::ibv_dereg_mr(self.raw.as_ptr()) };
        debug_assert_eq!(freed, 0, "a memory registration is still in use");
    }
}

/// A window of type 2: it opens a whole registration to the peer of one queue pair, to which it is
/// bound, until it is dropped.
#[derive(Debug)]
pub(super) struct MemoryWindow {
    raw: NonNull<ffi::ibv_mw>,
    key: u32,
    access: u32,
    memory: Arc<MemoryRegion>,
}

// SAFETY: libibverbs may be called from any thread; the pointer stays valid until `drop`.
unsafe impl Send for MemoryWindow {}
// SAFETY: as above; libibverbs locks what its calls share.
unsafe impl Sync for MemoryWindow {}

impl MemoryWindow {
    /// A window that opens nothing until a request of [`SendKind::Bind`] is done.
    pub(super) fn new(memory: Arc<MemoryRegion>, access: Access) -> io::Result<Self> {
        let kind = ffi::ibv_mw_type::IBV_MW_TYPE_2;
        // SAFETY: the protection domain is held by the registration.
        let raw = unsafe { ffi::ibv_alloc_mw(memory.domain.raw.as_ptr(), kind) };
        let raw = made(raw.unwrap_or(std::ptr::null_mut()))?;
        // SAFETY: a window that was just made and is not freed.
        let first_key = unsafe { raw.as_ref() }.rkey;
        // SAFETY: a pure function of its argument.
        let key = unsafe { ffi::ibv_inc_rkey(first_key) };
        let read = ffi::ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
        let write = ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
        let access = match access {
            Access::Read => read,
            Access::Write => write,
            Access::ReadWrite => read | write | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0,
        };
        Ok(Self { raw, key, access, memory })
    }

    /// The key that the peer names once it is bound.
    pub(super) fn key(&self) -> u32 {
        self.key
    }

    pub(super) fn memory(&self) -> &Arc<MemoryRegion> {
        &self.memory
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        // SAFETY: it was made by `new` and is freed once; a window that is bound is closed by this.
        let freed = unsafe { ffi::ibv_dealloc_mw(self.raw.as_ptr()) };
        debug_assert_eq!(freed, 0, "a memory window could not be closed");
    }
}

/// The text of a work completion's status.
pub(super) fn status_text(status: u32) -> String {
    // SAFETY: the function takes any number.
    let text = unsafe { ffi::ibv_wc_status_str(status) };
    if text.is_null() {
        return "unknown".to_owned();
    }
    // SAFETY: libibverbs returns a constant, terminated string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The status of requests that followed a failed one, or whose queue pair was taken down.
pub(super) const STATUS_FLUSHED: u32 = ffi::ibv_wc_status::IBV_WC_WR_FLUSH_ERR;

/// The status of requests that name memory of ours that is not registered with the adapter.
pub(super) const STATUS_LOCAL_PROTECTION: u32 = ffi::ibv_wc_status::IBV_WC_LOC_PROT_ERR;
