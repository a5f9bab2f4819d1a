// SPDX-License-Identifier: GPL-2.0

//! Execution of a request packet that is next in order (sections 9.4 and 9.7.4.1).

use super::attrs::access_flags;
use super::responder::refusal;
use super::responder::Message;
use super::responder::Refusal;
use super::sgl;
use super::wire::Feth;
use super::wire::NakCode;
use super::wire::Operation;
use super::wire::Reth;
use super::Access;
use super::AtomicOp;
use super::Completion;
use super::Count;
use super::Env;
use super::MemError;
use super::Memory;
use super::Packet;
use super::Qp;
use super::QpType;
use super::RecvWr;
use super::Store;
use super::WcOpcode;
use super::WcStatus;

const INVALID: Refusal = Refusal::Nak(NakCode::InvalidRequest);

/// Longest message (section 9.7.7).
const MAX_MESSAGE: u32 = 1 << 31;

impl<S: Store> Qp<S> {
    /// Executes the packet and returns how many PSNs it takes. When it is refused nothing has changed, so that it can
    /// come again.
    pub(super) fn execute(&mut self, pkt: &Packet<'_>, env: &mut impl Env) -> Result<u32, Refusal> {
        let op = pkt.opcode.op;
        let in_order = match self.resp.message {
            Message::None => op.starts(),
            Message::Send { .. } => op.is_send() && !op.starts(),
            Message::Write { .. } => op.is_write() && !op.starts(),
        };
        if !in_order || !self.size_fits(pkt) {
            return Err(INVALID);
        }
        if self.cfg.qp_type == QpType::XrcTgt {
            self.select_srq(pkt, env)?;
        }
        if op.is_send() {
            self.receive(pkt, env)
        } else if op.is_write() {
            self.write(pkt, env)
        } else if op == Operation::ReadRequest {
            self.read(pkt, env)
        } else if op == Operation::Flush {
            self.flush_memory(pkt, env)
        } else if op == Operation::AtomicWrite {
            self.atomic_write(pkt, env)
        } else {
            self.atomic(pkt, env)
        }
    }

    /// XRC: the shared receive queue that a request names, the same for all packets of a message (section A14.4).
    fn select_srq(&mut self, pkt: &Packet<'_>, env: &mut impl Env) -> Result<(), Refusal> {
        let number = pkt.xrc_srq.ok_or(INVALID)?;
        let changed = self.resp.message != Message::None && number != self.resp.srq;
        if changed || !env.select_srq(number) {
            return Err(INVALID);
        }
        self.resp.srq = number;
        Ok(())
    }

    /// Packets but the last are full, and the last of several is not empty (section 9.7.4.1.6).
    fn size_fits(&self, pkt: &Packet<'_>) -> bool {
        let op = pkt.opcode.op;
        let (len, mtu) = (pkt.payload.len(), self.attrs.path_mtu.bytes() as usize);
        if op == Operation::AtomicWrite {
            len == size_of::<u64>()
        } else if !op.is_send() && !op.is_write() {
            len == 0
        } else if !op.ends() {
            len == mtu
        } else {
            len <= mtu && (op.starts() || len > 0)
        }
    }

    /// The receive for the current message: the one in progress, or a new one from the queue.
    pub(super) fn take_recv(&mut self, env: &mut impl Env) -> Option<RecvWr> {
        if self.resp.recv.is_none() {
            self.resp.recv = env.next_recv(&mut self.store.rq_sges);
        }
        self.resp.recv
    }

    /// Scatter list of the receive in progress.
    pub(super) fn recv_list(&self, recv: &RecvWr) -> &[u8] {
        let len = recv.num_sge as usize * sgl::Sge::SIZE;
        self.store.rq_sges.get(..len).unwrap_or(&[])
    }

    /// A SEND packet.
    fn receive(&mut self, pkt: &Packet<'_>, env: &mut impl Env) -> Result<u32, Refusal> {
        let before = match self.resp.message {
            Message::Send { len } => len,
            _ => 0,
        };
        let recv = self.take_recv(env).ok_or(Refusal::NotReady)?;
        let here = pkt.payload.len() as u32;
        let len = before.saturating_add(here);
        if len > recv.total {
            return Err(Refusal::Receive(
                WcStatus::LocLenErr,
                NakCode::InvalidRequest,
            ));
        }
        let failed = Refusal::Receive(WcStatus::LocProtErr, NakCode::RemoteOperational);
        let list = self.recv_list(&recv);
        match sgl::scatter(env.mem(), list, before, pkt.payload) {
            Ok(()) => (),
            Err(MemError::Absent) => {
                // The rest of the buffer will be wanted next. Whether it may be is seen then.
                let _ = sgl::check(env.mem(), list, Access::LocalWrite);
                return Err(Refusal::Absent);
            }
            Err(_) => return Err(failed),
        }
        if !pkt.opcode.op.ends() {
            self.resp.message = Message::Send { len };
            return Ok(1);
        }
        if let Some(key) = pkt.ieth {
            let refused = Refusal::Receive(WcStatus::LocAccessErr, NakCode::RemoteAccess);
            env.mem().invalidate(key).map_err(|_| refused)?;
        }
        self.received(WcOpcode::Recv, len, pkt, env);
        Ok(1)
    }

    /// A message that takes a receive is complete.
    pub(super) fn received(
        &mut self,
        opcode: WcOpcode,
        len: u32,
        pkt: &Packet<'_>,
        env: &mut impl Env,
    ) {
        self.finish_message();
        let Some(recv) = self.resp.recv.take() else {
            return;
        };
        env.count(Count::Received);
        env.complete_recv(Completion {
            wr_id: recv.wr_id,
            byte_len: len,
            imm: pkt.imm,
            invalidated_rkey: pkt.ieth,
            solicited: pkt.bth.solicited,
            ..self.recv_completion(opcode)
        });
    }

    fn finish_message(&mut self) {
        self.resp.message = Message::None;
        self.resp.msn = self.resp.msn.wrapping_add(1);
    }

    /// An RDMA WRITE packet. Key and range are checked once for the whole message, and by the memory for each packet.
    fn write(&mut self, pkt: &Packet<'_>, env: &mut impl Env) -> Result<u32, Refusal> {
        let (va, rkey, done, total) = match (self.resp.message, pkt.reth) {
            (
                Message::Write {
                    va,
                    rkey,
                    done,
                    total,
                },
                _,
            ) => (va, rkey, done, total),
            (_, Some(reth)) => {
                self.remote_check(&reth, access_flags::REMOTE_WRITE, Access::RemoteWrite, env)?;
                (reth.va, reth.rkey, 0, reth.len)
            }
            _ => return Err(INVALID),
        };
        let after = done.saturating_add(pkt.payload.len() as u32);
        let ends = pkt.opcode.op.ends();
        if ends && after != total || !ends && after >= total {
            return Err(INVALID);
        }
        if pkt.imm.is_some() {
            self.take_recv(env).ok_or(Refusal::NotReady)?;
        }
        if !pkt.payload.is_empty() {
            let at = va.wrapping_add(u64::from(done));
            env.mem()
                .write(rkey, at, pkt.payload, Access::RemoteWrite)
                .map_err(refusal)?;
        }
        if !ends {
            self.resp.message = Message::Write {
                va,
                rkey,
                done: after,
                total,
            };
        } else if pkt.imm.is_some() {
            self.received(WcOpcode::RecvRdmaWithImm, total, pkt, env);
        } else {
            self.finish_message();
        }
        Ok(1)
    }

    /// Whether the peer may do to memory what a RETH says. The key of an empty message is not looked at
    /// (section 9.7.4.1.5).
    fn remote_check(
        &self,
        reth: &Reth,
        enabled: u32,
        access: Access,
        env: &impl Env,
    ) -> Result<(), Refusal> {
        if self.attrs.access & enabled == 0 || reth.len > MAX_MESSAGE {
            return Err(INVALID);
        }
        if reth.len == 0 {
            return Ok(());
        }
        let len = u64::from(reth.len);
        if reth.va.checked_add(len).is_none() {
            return Err(Refusal::Nak(NakCode::RemoteAccess));
        }
        env.mem()
            .check(reth.rkey, reth.va, len, access)
            .map_err(refusal)
    }

    /// An RDMA READ request: its answer goes out when polled for.
    fn read(&mut self, pkt: &Packet<'_>, env: &impl Env) -> Result<u32, Refusal> {
        let reth = pkt.reth.ok_or(INVALID)?;
        self.remote_check(&reth, access_flags::REMOTE_READ, Access::RemoteRead, env)?;
        if !self.replay_room() {
            return Err(INVALID);
        }
        let packets = self.attrs.path_mtu.packets(reth.len);
        self.finish_message();
        self.remember_read(pkt.bth.psn, &reth, packets, self.resp.msn);
        Ok(packets)
    }

    /// A FLUSH request: all before it has been placed already.
    fn flush_memory(&mut self, pkt: &Packet<'_>, env: &impl Env) -> Result<u32, Refusal> {
        let (feth, reth) = pkt.feth.zip(pkt.reth).ok_or(INVALID)?;
        let wants = |bit, access| feth.placement & bit == 0 || self.attrs.access & access != 0;
        let enabled = wants(Feth::GLOBAL, access_flags::FLUSH_GLOBAL)
            && wants(Feth::PERSISTENT, access_flags::FLUSH_PERSISTENT);
        if !feth.is_valid() || !enabled || !self.answer_room() {
            return Err(INVALID);
        }
        let range = (feth.selectivity == Feth::RANGE).then_some((reth.va, u64::from(reth.len)));
        env.mem()
            .flush(reth.rkey, range, feth.placement)
            .map_err(refusal)?;
        self.finish_message();
        self.remember_placement(pkt.bth.psn, self.resp.msn);
        Ok(1)
    }

    /// An ATOMIC WRITE request.
    fn atomic_write(&mut self, pkt: &Packet<'_>, env: &impl Env) -> Result<u32, Refusal> {
        let reth = pkt.reth.ok_or(INVALID)?;
        let data = *pkt.payload.first_chunk().ok_or(INVALID)?;
        let enabled = self.attrs.access & access_flags::REMOTE_WRITE != 0;
        let fits = reth.len == 8 && reth.va & 7 == 0;
        if !enabled || !fits || !self.answer_room() {
            return Err(INVALID);
        }
        env.mem()
            .atomic_write(reth.rkey, reth.va, data)
            .map_err(refusal)?;
        self.finish_message();
        self.remember_placement(pkt.bth.psn, self.resp.msn);
        Ok(1)
    }

    /// An atomic request.
    fn atomic(&mut self, pkt: &Packet<'_>, env: &impl Env) -> Result<u32, Refusal> {
        let eth = pkt.atomic.ok_or(INVALID)?;
        let enabled = self.attrs.access & access_flags::REMOTE_ATOMIC != 0;
        if !enabled || eth.va & 7 != 0 || !self.replay_room() {
            return Err(INVALID);
        }
        let op = match pkt.opcode.op {
            Operation::CompareSwap => AtomicOp::CompareSwap {
                compare: eth.compare,
                swap: eth.swap_add,
            },
            _ => AtomicOp::FetchAdd { add: eth.swap_add },
        };
        let old = env.mem().atomic(eth.rkey, eth.va, op).map_err(refusal)?;
        self.finish_message();
        self.remember_atomic(pkt.bth.psn, old, self.resp.msn);
        Ok(1)
    }
}
