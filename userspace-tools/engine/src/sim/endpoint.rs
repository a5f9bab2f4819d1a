// SPDX-License-Identifier: GPL-2.0

//! One side of the wire: a queue pair, its memory, its queues.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use super::HostMemory;
use crate::Completion;
use crate::Env;
use crate::LocalOp;
use crate::Memory;
use crate::PostError;
use crate::Qp;
use crate::QpEvent;
use crate::ReadReplay;
use crate::RecvWr;
use crate::SendFlags;
use crate::SendOp;
use crate::SendWqe;
use crate::SendWr;
use crate::Sge;
use crate::Store;
use crate::WcStatus;

/// Storage in vectors.
pub struct VecStore;

impl Store for VecStore {
    type Wqes = Vec<SendWqe>;
    type Bytes = Vec<u8>;
    type Acks = Vec<ReadReplay>;
}

/// What a queue pair sees of its host.
#[derive(Default)]
pub struct HostEnv {
    /// Registered memory.
    pub mem: HostMemory,
    /// Posted receives.
    pub recvs: VecDeque<(u64, Vec<Sge>)>,
    /// Shared receive queues of the XRC domain, by number.
    pub srqs: BTreeMap<u32, VecDeque<(u64, Vec<Sge>)>>,
    /// Which of them is in use.
    pub srq: Option<u32>,
    /// Send completions, oldest first.
    pub send_cq: Vec<Completion>,
    /// Send work requests that were said to be left.
    pub sends_left: u32,
    /// How many that was when each of `send_cq` came.
    pub left_then: Vec<u32>,
    /// Receive completions, oldest first.
    pub recv_cq: Vec<Completion>,
    /// Local operations that were done or tried, oldest first.
    pub locals: Vec<LocalOp>,
    /// Asynchronous events, oldest first.
    pub events: Vec<QpEvent>,
}

impl Env for HostEnv {
    type Mem = HostMemory;

    fn mem(&self) -> &HostMemory {
        &self.mem
    }

    fn select_srq(&mut self, number: u32) -> bool {
        self.srq = Some(number);
        self.srqs.contains_key(&number)
    }

    fn next_recv(&mut self, out: &mut [u8]) -> Option<RecvWr> {
        let queue = match self.srq {
            Some(number) => self.srqs.get_mut(&number)?,
            None => &mut self.recvs,
        };
        let (wr_id, sges) = queue.pop_front()?;
        for (to, sge) in out.chunks_exact_mut(Sge::SIZE).zip(&sges) {
            to.copy_from_slice(&sge.encode());
        }
        Some(RecvWr {
            wr_id,
            num_sge: sges.len() as u32,
            total: sges.iter().map(|sge| sge.len).sum(),
        })
    }

    fn receives_waiting(&self) -> Option<u32> {
        Some(self.recvs.len() as u32)
    }

    /// Invalidates keys; windows and registrations go well if their region exists.
    fn local(&mut self, op: &LocalOp) -> Result<(), WcStatus> {
        self.locals.push(*op);
        match *op {
            LocalOp::Invalidate { key } => self.mem.invalidate(key),
            LocalOp::BindWindow { mr, .. } | LocalOp::Register { mr, .. } => self.mem.known(mr),
        }
        .map_err(|_| WcStatus::LocQpOpErr)
    }

    fn sends_left(&mut self, left: u32) {
        self.sends_left = left;
    }

    fn complete_send(&mut self, completion: Completion) {
        self.left_then.push(self.sends_left);
        self.send_cq.push(completion);
    }

    fn complete_recv(&mut self, completion: Completion) {
        self.recv_cq.push(completion);
    }

    fn event(&mut self, event: QpEvent) {
        self.events.push(event);
    }
}

/// One side of the wire.
pub struct Endpoint {
    /// Its queue pair.
    pub qp: Qp<VecStore>,
    /// Its host.
    pub env: HostEnv,
}

impl Endpoint {
    /// Key of the memory that every endpoint has.
    pub const KEY: u32 = 0x1234;
    /// Its address.
    pub const VA: u64 = 0x7f00_0000_0001;
    /// Its size.
    pub const LEN: usize = 4 << 20;

    /// An element of the endpoint's memory.
    pub fn sge(offset: u64, len: u32) -> Sge {
        Sge {
            addr: Self::VA + offset,
            len,
            lkey: Self::KEY,
        }
    }

    /// An RDMA WRITE to the peer's memory, which lies at the same addresses.
    pub fn write(offset: u64) -> SendOp {
        SendOp::Write {
            va: Self::VA + offset,
            rkey: Self::KEY,
        }
    }

    /// An RDMA READ from the peer's memory.
    pub fn read(offset: u64) -> SendOp {
        SendOp::Read {
            va: Self::VA + offset,
            rkey: Self::KEY,
        }
    }

    /// Posts a signalled send work request.
    pub fn send(&mut self, wr_id: u64, op: SendOp, sges: &[Sge]) -> Result<(), PostError> {
        let flags = SendFlags {
            signaled: true,
            ..SendFlags::default()
        };
        self.send_with(wr_id, op, sges, flags)
    }

    /// Posts a send work request.
    pub fn send_with(
        &mut self,
        wr_id: u64,
        op: SendOp,
        sges: &[Sge],
        flags: SendFlags,
    ) -> Result<(), PostError> {
        let data: Vec<u8> = sges.iter().flat_map(Sge::encode).collect();
        self.post(wr_id, op, flags, 0, &data)
    }

    /// Posts a signalled send work request to a shared receive queue of an XRC target.
    pub fn send_to(
        &mut self,
        srq: u32,
        wr_id: u64,
        op: SendOp,
        sges: &[Sge],
    ) -> Result<(), PostError> {
        let flags = SendFlags {
            signaled: true,
            ..SendFlags::default()
        };
        let data: Vec<u8> = sges.iter().flat_map(Sge::encode).collect();
        self.post(wr_id, op, flags, srq, &data)
    }

    fn post(
        &mut self,
        wr_id: u64,
        op: SendOp,
        flags: SendFlags,
        srq: u32,
        data: &[u8],
    ) -> Result<(), PostError> {
        let wr = SendWr {
            wr_id,
            op,
            srq,
            flags,
        };
        let posted = self.qp.post_send(&wr, data);
        self.flush();
        posted
    }

    /// Posts a send work request with its data inline.
    pub fn send_inline(&mut self, wr_id: u64, op: SendOp, data: &[u8]) -> Result<(), PostError> {
        let flags = SendFlags {
            signaled: true,
            inline: true,
            ..SendFlags::default()
        };
        self.post(wr_id, op, flags, 0, data)
    }

    /// Posts a receive.
    pub fn recv(&mut self, wr_id: u64, sges: &[Sge]) {
        self.env.recvs.push_back((wr_id, sges.to_vec()));
        self.qp.receive_posted();
        self.flush();
    }

    /// Flushes what an error has left.
    pub fn flush(&mut self) {
        while self.qp.needs_flush() {
            self.qp.flush(&mut self.env);
        }
    }

    /// Fills memory with a pattern that depends on `seed`.
    pub fn fill(&self, offset: u64, len: usize, seed: u64) -> Vec<u8> {
        let mut rng = super::Rng::new(seed);
        let bytes: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
        self.env.mem.poke(Self::KEY, Self::VA + offset, &bytes);
        bytes
    }

    /// Reads memory.
    pub fn peek(&self, offset: u64, len: usize) -> Vec<u8> {
        self.env.mem.peek(Self::KEY, Self::VA + offset, len)
    }

    /// (wr_id, status) of the send completions.
    pub fn sent(&self) -> Vec<(u64, crate::WcStatus)> {
        let wcs = self.env.send_cq.iter();
        wcs.map(|wc| (wc.wr_id, wc.status)).collect()
    }

    /// (wr_id, status) of the receive completions.
    pub fn received(&self) -> Vec<(u64, crate::WcStatus)> {
        let wcs = self.env.recv_cq.iter();
        wcs.map(|wc| (wc.wr_id, wc.status)).collect()
    }
}
