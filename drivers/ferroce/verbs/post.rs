// SPDX-License-Identifier: GPL-2.0

//! Work requests of kernel users: written into the same rings that a process maps, so
//! that from there on all goes one way ([`super::wqe`] reads them).
//!
//! Context: any, also with interrupts off and with locks of the user held. So nothing here
//! calls a completion handler (Documentation/infiniband/core_locking.rst), and where
//! sending is not allowed it is left to softirq ([`Qp::deferred`]).

use super::{
    qp::Qp,
    srq::Srq,
    wqe, //
};
use crate::{
    bindings,
    engine::QpState,
    kernel_ext::{
        bh_work::Defer,
        ib::wr::{
            RecvWr,
            RecvWrs,
            SendWr,
            SendWrs,
            Sge,
            Target, //
        },
        lock,
        ring::Ring, //
    },
};
use core::sync::atomic::{
    fence,
    Ordering, //
};
use kernel::{
    prelude::*,
    sync::rcu, //
};

/// An element of the send ring while it is written.
struct Element {
    header: [u8; wqe::SEND_HEADER],
    payload: wqe::Payload,
    /// Bytes of `payload`.
    len: usize,
}

impl Element {
    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        if let Some(to) = self.header.get_mut(at..at + N) {
            to.copy_from_slice(&bytes);
        }
    }

    fn put_target(&mut self, target: &Target) {
        match *target {
            Target::None => {}
            Target::Rdma { addr, rkey } => {
                self.put(24, addr.to_ne_bytes());
                self.put(32, rkey.to_ne_bytes());
            }
            Target::Atomic {
                addr,
                rkey,
                compare_add,
                swap,
            } => {
                self.put(24, addr.to_ne_bytes());
                self.put(32, compare_add.to_ne_bytes());
                self.put(40, swap.to_ne_bytes());
                self.put(48, rkey.to_ne_bytes());
            }
            Target::Register { mr, key, access } => {
                self.put(24, u64::from(mr).to_ne_bytes());
                self.put(32, key.to_ne_bytes());
                self.put(36, access.to_ne_bytes());
            }
            Target::Datagram {
                ah,
                qpn,
                qkey,
                pkey_index,
            } => {
                self.put(24, qpn.to_ne_bytes());
                self.put(28, qkey.to_ne_bytes());
                self.put(32, pkey_index.to_ne_bytes());
                self.put(36, ah.to_ne_bytes());
            }
        }
    }
}

/// Writes a scatter/gather list as `struct rxe_sge`s; its bytes. `EINVAL` if it is too long.
fn put_list(sges: impl ExactSizeIterator<Item = Sge>, max: u32, out: &mut [u8]) -> Result<usize> {
    if sges.len() > max as usize {
        return Err(EINVAL);
    }
    let mut len = 0;
    for (sge, to) in sges.zip(out.chunks_exact_mut(wqe::SGE)) {
        to[0..8].copy_from_slice(&sge.addr.to_ne_bytes());
        to[8..12].copy_from_slice(&sge.len.to_ne_bytes());
        to[12..16].copy_from_slice(&sge.lkey.to_ne_bytes());
        len += wqe::SGE;
    }
    Ok(len)
}

fn has_room(ring: &Ring) -> Result {
    match ring.len() < ring.capacity() {
        true => Ok(()),
        false => Err(ENOMEM),
    }
}

impl Qp {
    /// Takes send requests of a kernel user, up to the first that fails.
    ///
    /// Fails with `EINVAL` before the QP is ready to send and for a request that does not fit
    /// the QP, `ENOMEM` if the queue is full, `EFAULT` for inline data that is not there.
    pub(crate) fn post_send(&self, wrs: &mut SendWrs<'_>) -> Result {
        if self.phase.load(Ordering::Relaxed) < QpState::Rts as u32 {
            return Err(EINVAL);
        }
        let result = self.fill_sends(wrs);
        self.kick();
        result
    }

    /// Takes receive requests of a kernel user, up to the first that fails.
    ///
    /// Fails with `EINVAL` for a request that does not fit the QP or a QP that takes them from
    /// an SRQ, `ENOMEM` if the queue is full.
    pub(crate) fn post_recv(&self, wrs: &mut RecvWrs<'_>) -> Result {
        if self.srq.is_some() {
            return Err(EINVAL);
        }
        let posting = self.posting_recv.lock();
        let result = fill_recvs(&self.rq, self.caps.recv_sge, wrs);
        drop(posting);
        // Either this sees the error, or who flushes after it sees the requests.
        fence(Ordering::SeqCst);
        if self.phase.load(Ordering::Relaxed) == QpState::Error as u32 {
            self.later.schedule();
        }
        result
    }

    fn fill_sends(&self, wrs: &mut SendWrs<'_>) -> Result {
        let _posting = self.posting_send.lock();
        while let Some(wr) = wrs.peek() {
            has_room(&self.sq)?;
            self.write_send(&wr)?;
            wrs.advance();
        }
        Ok(())
    }

    fn write_send(&self, wr: &SendWr<'_>) -> Result {
        let mut element = Element {
            header: [0; _],
            payload: [0; _],
            len: 0,
        };
        let flags = wr.flags();
        element.put(0, wr.wr_id().to_ne_bytes());
        element.put(12, wr.opcode().to_ne_bytes());
        element.put(16, flags.to_ne_bytes());
        element.put(20, wr.ex());
        element.put_target(&wr.target()?);
        if flags & bindings::ib_send_flags_IB_SEND_INLINE as u32 != 0 {
            let room = (self.caps.inline as usize).min(element.payload.len());
            element.len = wr.copy_inline(&mut element.payload[..room])?;
            element.put(184, (element.len as u32).to_ne_bytes());
        } else {
            let sges = wr.sges();
            element.put(196, (sges.len() as u32).to_ne_bytes());
            element.len = put_list(sges, self.caps.send_sge, &mut element.payload)?;
        }
        let index = self.sq.producer();
        self.sq.write(index, 0, &element.header)?;
        let payload = element.payload.get(..element.len).ok_or(EINVAL)?;
        self.sq.write(index, wqe::SEND_HEADER, payload)?;
        self.sq.set_producer(self.sq.next(index));
        Ok(())
    }

    /// Sends what was posted: now if that is allowed here, else in softirq.
    fn kick(&self) {
        if lock::interrupts_are_off() {
            self.later.schedule();
            return;
        }
        let rcu = rcu::read_lock();
        self.with_engine(&rcu, |engine, env| env.take_sends(engine));
        self.send_all(&rcu);
        self.tell_later();
    }

    /// Tells the owners what came up, in softirq.
    pub(super) fn tell_later(&self) {
        let inner = self.inner.lock();
        let told = inner.side.due.is_empty() && inner.side.xrc_due.is_empty();
        drop(inner);
        if !told {
            self.later.schedule();
        }
    }
}

impl Srq {
    /// Takes receive requests of a kernel user, up to the first that fails.
    ///
    /// Fails as [`Qp::post_recv`] does.
    pub(crate) fn post_recv(&self, wrs: &mut RecvWrs<'_>) -> Result {
        fill_recvs(&self.state.lock().ring, self.max_sge, wrs)
    }
}

/// Writes requests into `ring`, whose lock is held, up to the first that fails.
fn fill_recvs(ring: &Ring, max_sge: u32, wrs: &mut RecvWrs<'_>) -> Result {
    while let Some(wr) = wrs.peek() {
        has_room(ring)?;
        write_recv(ring, max_sge, &wr)?;
        wrs.advance();
    }
    Ok(())
}

fn write_recv(ring: &Ring, max_sge: u32, wr: &RecvWr<'_>) -> Result {
    let mut header = [0; wqe::RECV_HEADER];
    let mut list: wqe::Payload = [0; _];
    let sges = wr.sges();
    header[0..8].copy_from_slice(&wr.wr_id().to_ne_bytes());
    header[28..32].copy_from_slice(&(sges.len() as u32).to_ne_bytes());
    let len = put_list(sges, max_sge, &mut list)?;
    let index = ring.producer();
    ring.write(index, 0, &header)?;
    ring.write(index, wqe::RECV_HEADER, list.get(..len).ok_or(EINVAL)?)?;
    ring.set_producer(ring.next(index));
    Ok(())
}

impl Defer for Qp {
    fn deferred(&self) {
        self.run(|engine, env| {
            if engine.state() as u32 >= QpState::Rts as u32 {
                env.take_sends(engine);
            }
            engine.receive_posted();
        });
    }
}
