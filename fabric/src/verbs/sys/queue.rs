//! Wraps queue pairs, shared receive queues and work requests.
//!
//! Invariants
//! - The bytes of an inline request are copied by the call that posts it; nothing is borrowed past
//!   it.
//! - A queue pair is destroyed before its completion queue.
#![expect(unsafe_code, reason = "calls libibverbs, which takes and returns raw pointers")]

use std::{
    ffi::{c_int, c_uint},
    io,
    mem::MaybeUninit,
    ptr::{NonNull, null_mut},
    sync::Arc,
};

use rdma_sys as ffi;

use super::{MemoryWindow, ProtectionDomain, check, completion::CompletionQueue, made};

/// A place to receive into.
#[derive(Debug, Clone, Copy)]
pub(in crate::verbs) struct Slot {
    /// The id that its completion will carry.
    pub(in crate::verbs) id: u64,
    /// Where, or [`Local::Nothing`].
    pub(in crate::verbs) address: u64,
    pub(in crate::verbs) length: u32,
    pub(in crate::verbs) key: u32,
}

/// Links receive requests for `slots` and hands them to `post`.
fn post_slots(slots: &[Slot], post: impl FnOnce(*mut ffi::ibv_recv_wr) -> c_int) -> io::Result<()> {
    if slots.is_empty() {
        return Ok(());
    }
    let mut places: Vec<_> = slots
        .iter()
        .map(|slot| ffi::ibv_sge { addr: slot.address, length: slot.length, lkey: slot.key })
        .collect();
    let mut requests: Vec<ffi::ibv_recv_wr> = slots
        .iter()
        .zip(&mut places)
        .map(|(slot, place)| ffi::ibv_recv_wr {
            wr_id: slot.id,
            next: null_mut(),
            sg_list: &raw mut *place,
            num_sge: c_int::from(slot.length > 0),
        })
        .collect();
    for at in (1..requests.len()).rev() {
        requests[at - 1].next = &raw mut requests[at];
    }
    check(post(requests.as_mut_ptr()))
}

/// Receive requests that several queue pairs draw from.
#[derive(Debug)]
pub(in crate::verbs) struct SharedReceiveQueue {
    raw: NonNull<ffi::ibv_srq>,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: libibverbs may be called from any thread; the pointer stays valid until `drop`.
unsafe impl Send for SharedReceiveQueue {}
// SAFETY: as above; libibverbs locks what its calls share.
unsafe impl Sync for SharedReceiveQueue {}

impl SharedReceiveQueue {
    pub(in crate::verbs) fn new(domain: Arc<ProtectionDomain>, depth: u32) -> io::Result<Self> {
        let mut wanted = ffi::ibv_srq_init_attr {
            srq_context: null_mut(),
            attr: ffi::ibv_srq_attr { max_wr: depth, max_sge: 1, srq_limit: 0 },
        };
        // SAFETY: the protection domain is alive and the attributes are valid for the call.
        let raw = unsafe { ffi::ibv_create_srq(domain.raw.as_ptr(), &raw mut wanted) };
        Ok(Self { raw: made(raw)?, _domain: domain })
    }

    pub(in crate::verbs) fn post(&self, slots: &[Slot]) -> io::Result<()> {
        let mut bad = null_mut();
        // SAFETY: the queue is alive, and the list of requests and their places lives during the
        // call.
        post_slots(slots, |first| unsafe { ffi::ibv_post_srq_recv(self.raw.as_ptr(), first, &raw mut bad) })
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        // SAFETY: it was made by `new`; queue pairs that draw from it held this wrapper.
        let freed = unsafe { ffi::ibv_destroy_srq(self.raw.as_ptr()) };
        debug_assert_eq!(freed, 0, "a shared receive queue is still in use");
    }
}

/// The local bytes of a work request.
#[derive(Debug, Clone)]
pub(in crate::verbs) enum Local {
    /// No bytes.
    Nothing,
    /// Bytes that travel with the request itself.
    Inline(Box<[u8]>),
    /// Bytes of a registration.
    Registered { address: u64, length: u32, key: u32 },
}

/// What a work request does.
#[derive(Debug, Clone)]
pub(in crate::verbs) enum SendKind {
    /// Writes into the peer's memory, and reports the immediate to it, if there is one.
    Write {
        address: u64,
        key: u32,
        immediate: Option<u32>,
    },
    Read {
        address: u64,
        key: u32,
    },
    FetchAdd {
        address: u64,
        key: u32,
        add: u64,
    },
    CompareSwap {
        address: u64,
        key: u32,
        expected: u64,
        replacement: u64,
    },
    /// Sends an immediate, and bytes if there are any, to a receive request of the peer.
    Send {
        immediate: u32,
    },
    /// Opens the window to the peer of this queue pair.
    Bind {
        window: Arc<MemoryWindow>,
    },
}

/// A work request.
#[derive(Debug, Clone)]
pub(in crate::verbs) struct SendRequest {
    pub(in crate::verbs) id: u64,
    pub(in crate::verbs) kind: SendKind,
    pub(in crate::verbs) local: Local,
    /// Whether it starts only after all reads and atomics before it are complete.
    pub(in crate::verbs) fenced: bool,
    /// Whether its success is reported. A failure always is.
    pub(in crate::verbs) signalled: bool,
}

/// The sizes of a queue pair's queues.
#[derive(Debug, Clone, Copy)]
pub(in crate::verbs) struct Capacity {
    pub(in crate::verbs) sends: u32,
    pub(in crate::verbs) receives: u32,
    pub(in crate::verbs) inline_bytes: u32,
}

/// Everything that two queue pairs must agree on.
#[derive(Debug, Clone, Copy)]
pub(in crate::verbs) struct Path {
    pub(in crate::verbs) port: u8,
    /// Index of our address and the peer's, if packets carry them (always on Ethernet).
    pub(in crate::verbs) global: Option<(u8, [u8; 16])>,
    pub(in crate::verbs) peer_lid: u16,
    pub(in crate::verbs) peer_number: u32,
    pub(in crate::verbs) mtu: u32,
    pub(in crate::verbs) our_first_packet: u32,
    pub(in crate::verbs) peer_first_packet: u32,
    pub(in crate::verbs) reads_served: u8,
    pub(in crate::verbs) reads_started: u8,
    pub(in crate::verbs) timeout: u8,
    pub(in crate::verbs) retries: u8,
    pub(in crate::verbs) not_ready_retries: u8,
    pub(in crate::verbs) not_ready_timer: u8,
}

/// A state that a queue pair is moved to.
#[derive(Debug, Clone, Copy)]
pub(in crate::verbs) enum PairState {
    /// It belongs to a port and can be given receive requests.
    Initialised { port: u8 },
    /// It receives from its peer.
    Receiving(Path),
    /// It sends as well.
    Sending(Path),
    /// It does nothing any more; its requests complete as flushed.
    Failed,
}

/// One end of a reliable connection between adapters.
#[derive(Debug)]
pub(in crate::verbs) struct QueuePair {
    raw: NonNull<ffi::ibv_qp>,
    number: u32,
    inline_bytes_max: usize,
    _completions: Arc<CompletionQueue>,
    _receive_completions: Arc<CompletionQueue>,
    _shared: Option<Arc<SharedReceiveQueue>>,
    _domain: Arc<ProtectionDomain>,
}

// SAFETY: libibverbs may be called from any thread; the pointer stays valid until `drop`.
unsafe impl Send for QueuePair {}
// SAFETY: as above; libibverbs locks what its calls share.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// A queue pair whose requests complete in `completions`. Receives complete in
    /// `receive_completions`; with `shared` they are drawn from there.
    pub(in crate::verbs) fn new(
        domain: Arc<ProtectionDomain>,
        completions: Arc<CompletionQueue>,
        receives: (Arc<CompletionQueue>, Option<Arc<SharedReceiveQueue>>),
        capacity: Capacity,
    ) -> io::Result<Self> {
        let (receive_completions, shared) = receives;
        let mut wanted = ffi::ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: completions.raw.as_ptr(),
            recv_cq: receive_completions.raw.as_ptr(),
            srq: shared.as_ref().map_or(null_mut(), |queue| queue.raw.as_ptr()),
            cap: ffi::ibv_qp_cap {
                max_send_wr: capacity.sends,
                max_recv_wr: capacity.receives,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: capacity.inline_bytes,
            },
            qp_type: ffi::ibv_qp_type::IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: everything that the attributes point to is alive, and held by the queue pair from
        // here on.
        let raw = made(unsafe { ffi::ibv_create_qp(domain.raw.as_ptr(), &raw mut wanted) })?;
        // SAFETY: a queue pair that was just made and is not freed.
        let number = unsafe { raw.as_ref() }.qp_num;
        Ok(Self {
            raw,
            number,
            inline_bytes_max: wanted.cap.max_inline_data as usize,
            _completions: completions,
            _receive_completions: receive_completions,
            _shared: shared,
            _domain: domain,
        })
    }

    pub(in crate::verbs) fn number(&self) -> u32 {
        self.number
    }

    pub(in crate::verbs) fn inline_bytes_max(&self) -> usize {
        self.inline_bytes_max
    }

    pub(in crate::verbs) fn advance(&self, state: PairState) -> io::Result<()> {
        use ffi::ibv_qp_attr_mask as mask;
        // SAFETY: plain numbers, for which zero means "none".
        let mut wanted: ffi::ibv_qp_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        let set = match state {
            PairState::Initialised { port } => {
                wanted.qp_state = ffi::ibv_qp_state::IBV_QPS_INIT;
                wanted.port_num = port;
                wanted.qp_access_flags = ffi::ibv_access_flags::IBV_ACCESS_REMOTE_READ.0
                    | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
                    | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;
                mask::IBV_QP_STATE | mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_ACCESS_FLAGS
            }
            PairState::Receiving(path) => {
                wanted.qp_state = ffi::ibv_qp_state::IBV_QPS_RTR;
                wanted.path_mtu = path.mtu;
                wanted.dest_qp_num = path.peer_number;
                wanted.rq_psn = path.peer_first_packet;
                wanted.max_dest_rd_atomic = path.reads_served;
                wanted.min_rnr_timer = path.not_ready_timer;
                wanted.ah_attr.port_num = path.port;
                wanted.ah_attr.dlid = path.peer_lid;
                if let Some((index, raw)) = path.global {
                    wanted.ah_attr.is_global = 1;
                    wanted.ah_attr.grh.dgid = ffi::ibv_gid { raw };
                    wanted.ah_attr.grh.sgid_index = index;
                    wanted.ah_attr.grh.hop_limit = 64;
                }
                mask::IBV_QP_STATE
                    | mask::IBV_QP_AV
                    | mask::IBV_QP_PATH_MTU
                    | mask::IBV_QP_DEST_QPN
                    | mask::IBV_QP_RQ_PSN
                    | mask::IBV_QP_MAX_DEST_RD_ATOMIC
                    | mask::IBV_QP_MIN_RNR_TIMER
            }
            PairState::Sending(path) => {
                wanted.qp_state = ffi::ibv_qp_state::IBV_QPS_RTS;
                wanted.sq_psn = path.our_first_packet;
                wanted.timeout = path.timeout;
                wanted.retry_cnt = path.retries;
                wanted.rnr_retry = path.not_ready_retries;
                wanted.max_rd_atomic = path.reads_started;
                mask::IBV_QP_STATE
                    | mask::IBV_QP_TIMEOUT
                    | mask::IBV_QP_RETRY_CNT
                    | mask::IBV_QP_RNR_RETRY
                    | mask::IBV_QP_SQ_PSN
                    | mask::IBV_QP_MAX_QP_RD_ATOMIC
            }
            PairState::Failed => {
                wanted.qp_state = ffi::ibv_qp_state::IBV_QPS_ERR;
                mask::IBV_QP_STATE
            }
        };
        // SAFETY: the queue pair is alive, and the attributes that the mask names are set.
        check(unsafe { ffi::ibv_modify_qp(self.raw.as_ptr(), &raw mut wanted, set.0.cast_signed()) })
    }

    pub(in crate::verbs) fn post_receives(&self, slots: &[Slot]) -> io::Result<()> {
        let mut bad = null_mut();
        // SAFETY: the queue pair is alive, and the list of requests and their places lives during
        // the call.
        post_slots(slots, |first| unsafe { ffi::ibv_post_recv(self.raw.as_ptr(), first, &raw mut bad) })
    }

    /// Hands the requests to the adapter as one list. An error means that not all of them were
    /// taken.
    pub(in crate::verbs) fn post(&self, requests: &[SendRequest]) -> io::Result<()> {
        if requests.is_empty() {
            return Ok(());
        }
        let mut places: Vec<_> = requests.iter().map(|request| place_of(&request.local)).collect();
        let mut list: Vec<_> =
            requests.iter().zip(&mut places).map(|(request, place)| raw_request(request, place)).collect();
        for at in (1..list.len()).rev() {
            list[at - 1].next = &raw mut list[at];
        }
        let mut bad = null_mut();
        // SAFETY: the queue pair is alive. The list, its places, the inline bytes and the windows
        // live during the call; other memory is named by keys, which the adapter checks.
        check(unsafe { ffi::ibv_post_send(self.raw.as_ptr(), list.as_mut_ptr(), &raw mut bad) })
    }
}

fn place_of(local: &Local) -> ffi::ibv_sge {
    match local {
        Local::Nothing => ffi::ibv_sge { addr: 0, length: 0, lkey: 0 },
        Local::Inline(bytes) => ffi::ibv_sge {
            addr: bytes.as_ptr().addr() as u64,
            length: u32::try_from(bytes.len()).expect("inline bytes fit a work request"),
            lkey: 0,
        },
        Local::Registered { address, length, key } => {
            ffi::ibv_sge { addr: *address, length: *length, lkey: *key }
        }
    }
}

fn raw_request(request: &SendRequest, place: &mut ffi::ibv_sge) -> ffi::ibv_send_wr {
    use ffi::{ibv_send_flags as flag, ibv_wr_opcode as code};
    // SAFETY: plain numbers and pointers, for which zero means "none".
    let mut raw: ffi::ibv_send_wr = unsafe { MaybeUninit::zeroed().assume_init() };
    raw.wr_id = request.id;
    raw.num_sge = c_int::from(place.length > 0);
    raw.sg_list = &raw mut *place;
    let inline = matches!(request.local, Local::Inline(_));
    let chosen = |set: bool, bit: ffi::ibv_send_flags| -> c_uint { if set { bit.0 } else { 0 } };
    raw.send_flags = chosen(request.signalled, flag::IBV_SEND_SIGNALED)
        | chosen(request.fenced, flag::IBV_SEND_FENCE)
        | chosen(inline, flag::IBV_SEND_INLINE);
    match &request.kind {
        SendKind::Write { address, key, immediate } => {
            raw.opcode = code::IBV_WR_RDMA_WRITE;
            raw.wr.rdma = ffi::rdma_t { remote_addr: *address, rkey: *key };
            if let Some(immediate) = immediate {
                raw.opcode = code::IBV_WR_RDMA_WRITE_WITH_IMM;
                raw.imm_data_invalidated_rkey_union.imm_data = immediate.to_be();
            }
        }
        SendKind::Read { address, key } => {
            raw.opcode = code::IBV_WR_RDMA_READ;
            raw.wr.rdma = ffi::rdma_t { remote_addr: *address, rkey: *key };
        }
        SendKind::FetchAdd { address, key, add } => {
            raw.opcode = code::IBV_WR_ATOMIC_FETCH_AND_ADD;
            raw.wr.atomic = ffi::atomic_t { remote_addr: *address, compare_add: *add, swap: 0, rkey: *key };
        }
        SendKind::CompareSwap { address, key, expected, replacement } => {
            raw.opcode = code::IBV_WR_ATOMIC_CMP_AND_SWP;
            let (compare_add, swap) = (*expected, *replacement);
            raw.wr.atomic = ffi::atomic_t { remote_addr: *address, compare_add, swap, rkey: *key };
        }
        SendKind::Send { immediate } => {
            raw.opcode = code::IBV_WR_SEND_WITH_IMM;
            raw.imm_data_invalidated_rkey_union.imm_data = immediate.to_be();
        }
        SendKind::Bind { window } => {
            raw.opcode = code::IBV_WR_BIND_MW;
            let bind_info = ffi::ibv_mw_bind_info {
                mr: window.memory.raw.as_ptr(),
                addr: window.memory.address(),
                length: window.memory.bytes(),
                mw_access_flags: window.access,
            };
            raw.bind_mw_tso_union.bind_mw =
                ffi::bind_mw_t { mw: window.raw.as_ptr(), rkey: window.key, bind_info };
        }
    }
    raw
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: it was made by `new` and is freed once, before the queues that it holds.
        let freed = unsafe { ffi::ibv_destroy_qp(self.raw.as_ptr()) };
        debug_assert_eq!(freed, 0, "a queue pair could not be destroyed");
    }
}
