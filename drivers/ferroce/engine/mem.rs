// SPDX-License-Identifier: GPL-2.0

//! What the engine asks of its caller: memory, receive buffers, completion queues, storage.

use core::ops::DerefMut;

use super::Completion;
use super::Count;
use super::LocalOp;
use super::ReadReplay;
use super::RecvWr;
use super::SendWqe;
use super::WcStatus;

/// What an access needs of a memory region.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading for a local work request.
    LocalRead,
    /// Writing for a local work request.
    LocalWrite,
    /// The peer's RDMA READ.
    RemoteRead,
    /// The peer's RDMA WRITE.
    RemoteWrite,
    /// The peer's atomic.
    RemoteAtomic,
}

/// Why memory cannot be reached.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum MemError {
    /// No such key in this protection domain.
    Key,
    /// The region does not allow it.
    Access,
    /// Outside the region, or the address wraps.
    Range,
    /// The region is allowed but its memory is not there.
    Fault,
    /// Allowed, but not there yet: the memory is being fetched, and nothing was accessed. The same access may be tried
    /// again in a moment. No answer of [`Memory::check`].
    Absent,
}

/// An atomic on 8 bytes (section 9.4.5).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Stores `swap` if the memory holds `compare`.
    CompareSwap {
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Adds, with wrap-around.
    FetchAdd {
        /// Summand.
        add: u64,
    },
}

/// Registered memory. Keys must belong to the queue pair's protection domain.
pub trait Memory {
    /// Whether `len` bytes at `va` may be accessed. They may soon be, so this is the time to fetch what is not there.
    fn check(&self, key: u32, va: u64, len: u64, access: Access) -> Result<(), MemError>;

    /// Copies out of a region.
    fn read(&self, key: u32, va: u64, dst: &mut [u8], access: Access) -> Result<(), MemError>;

    /// Copies into a region.
    fn write(&self, key: u32, va: u64, src: &[u8], access: Access) -> Result<(), MemError>;

    /// Does an atomic, needing [`Access::RemoteAtomic`], and returns the old value.
    fn atomic(&self, key: u32, va: u64, op: AtomicOp) -> Result<u64, MemError>;

    /// Stores 8 bytes at a multiple of 8, seen whole or not at all, needing [`Access::RemoteWrite`].
    fn atomic_write(&self, key: u32, va: u64, data: [u8; 8]) -> Result<(), MemError>;

    /// Makes what was written to `range` (address and length; `None`: the whole region) visible or persistent. The
    /// region must allow each bit of `placement`: [`super::wire::Feth::GLOBAL`], [`super::wire::Feth::PERSISTENT`].
    fn flush(&self, key: u32, range: Option<(u64, u64)>, placement: u8) -> Result<(), MemError>;

    /// Invalidates a key on behalf of the peer's SEND with invalidate.
    fn invalidate(&self, key: u32) -> Result<(), MemError>;
}

/// Asynchronous events of a queue pair (section 11.6.3).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum QpEvent {
    /// The queue pair failed for a local reason.
    Fatal,
    /// The peer violated a permission; the queue pair is in error.
    AccessError,
    /// The peer sent an invalid request; the queue pair is in error.
    RequestError,
    /// First packet in RTR.
    CommEstablished,
    /// The send queue has drained after SQD.
    SqDrained,
    /// In error, and no more receives will be taken from the shared receive queue.
    LastWqeReached,
}

/// The surroundings of a queue pair, for the time of one call.
pub trait Env {
    /// The registered memory.
    type Mem: Memory;

    /// The registered memory.
    fn mem(&self) -> &Self::Mem;

    /// XRC target: from now on [`Env::next_recv`] takes from this shared receive queue, [`Env::mem`] is that of its
    /// protection domain, and receives complete on its completion queue. `false`: there is no such queue in the XRC
    /// domain (section A14.4).
    fn select_srq(&mut self, _number: u32) -> bool {
        false
    }

    /// Takes the next receive work request and encodes its scatter list into `out` (see [`super::Sge::encode`]);
    /// lists that do not fit never got into the queue. `None`: the queue is empty.
    fn next_recv(&mut self, out: &mut [u8]) -> Option<RecvWr>;

    /// How many receive work requests [`Env::next_recv`] could take now, for the peer to know; `None` if they are not
    /// counted. Not asked with a shared receive queue.
    fn receives_waiting(&self) -> Option<u32> {
        None
    }

    /// Does a local operation, once; in the order of the send queue, and after READs and atomics that it is fenced from.
    /// An error is the status that the work request completes with.
    fn local(&mut self, op: &LocalOp) -> Result<(), WcStatus>;

    /// Hears that all but the last `left` of the send work requests taken so far are complete. Comes before the
    /// completion that tells so: who sees that may post in their place at once.
    fn sends_left(&mut self, left: u32);

    /// Puts a completion into the send completion queue.
    fn complete_send(&mut self, completion: Completion);

    /// Puts a completion into the receive completion queue.
    fn complete_recv(&mut self, completion: Completion);

    /// Reports an asynchronous event.
    fn event(&mut self, event: QpEvent);

    /// Hears of something that may be counted.
    fn count(&mut self, _what: Count) {}
}

/// The kinds of container that hold a queue pair's storage.
pub trait Store {
    /// Holds send queue entries.
    type Wqes: DerefMut<Target = [SendWqe]>;
    /// Holds bytes.
    type Bytes: DerefMut<Target = [u8]>;
    /// Holds READ and atomic replay entries.
    type Acks: DerefMut<Target = [ReadReplay]>;
}

/// Storage of a queue pair; lengths are its capacities and never change.
pub struct QpStorage<S: Store> {
    /// Send queue, one entry a work request.
    pub sq: S::Wqes,
    /// Data of the send queue: `sq_stride` bytes for each entry of `sq`.
    pub sq_data: S::Bytes,
    /// Scatter list of the receive in progress: 16 bytes for each element a receive may have.
    pub rq_sges: S::Bytes,
    /// The peer's READs and atomics, kept for repetition: the most that `max_dest_rd_atomic` may ever be.
    pub replay: S::Acks,
}
