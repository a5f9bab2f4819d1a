// SPDX-License-Identifier: GPL-2.0

//! Shared receive queues: receives that several QPs take from one ring (IBTA 10.2.9).
//!
//! QPs take elements in softirq, each under its own lock and then this queue's, on several
//! CPUs at once. The limit event is reported without any of them.

use super::{
    device::limits,
    resize::{
        self,
        Content, //
    },
    wqe,
    Cq,
    Device,
    Pd, //
};
use crate::{
    engine::RecvWr,
    kernel_ext::{
        ib::SrqSink,
        lock::{
            new_bh_lock,
            new_irq_lock,
            BhLock,
            IrqLock, //
        },
        ring::Ring, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

pub(super) struct State {
    pub(super) ring: Arc<Ring>,
    /// Number of the next element to be taken, see [`resize`].
    next: u32,
    /// Below how many elements the event is due; 0: not armed.
    limit: u32,
}

impl State {
    fn len(&self) -> u32 {
        self.ring.distance(self.next, self.ring.producer())
    }

    fn content(&self) -> Content {
        Content {
            ring: self.ring.clone(),
            first: self.next,
            count: self.len(),
        }
    }

    /// Whether the limit event is due, which disarms it.
    fn take_limit(&mut self) -> bool {
        let due = self.len() < self.limit;
        if due {
            self.limit = 0;
        }
        due
    }
}

/// What a queue is now.
pub(crate) struct SrqAttrs {
    /// Work requests that fit.
    pub(crate) max_wr: u32,
    /// Scatter/gather entries of a work request.
    pub(crate) max_sge: u32,
    /// The armed limit, or 0.
    pub(crate) limit: u32,
    /// Receives in it.
    pub(crate) waiting: u32,
}

/// What makes a queue one for XRC targets (IBTA annex A14).
pub(super) struct Xrc {
    /// The XRC domain whose targets may take from it.
    pub(super) xrcd: u32,
    /// Where its receives complete.
    pub(super) cq: Arc<Cq>,
}

/// A shared receive queue.
#[pin_data]
pub(crate) struct Srq {
    /// Its number, by which an XRC peer names it.
    pub(crate) number: u32,
    pub(super) pd: u32,
    pub(super) max_sge: u32,
    pub(super) xrc: Option<Xrc>,
    dev: Arc<Device>,
    /// Kernel users post with interrupts off.
    #[pin]
    pub(super) state: IrqLock<State>,
    /// Gone once the queue is destroyed.
    #[pin]
    sink: BhLock<Option<SrqSink>>,
}

fn new_ring(max_wr: u32, max_sge: u32) -> Result<Arc<Ring>> {
    let element = wqe::RECV_HEADER + max_sge as usize * wqe::SGE;
    Ok(Arc::new(Ring::new(max_wr, element)?, GFP_KERNEL)?)
}

/// A number of work requests that a queue may have.
fn is_size(max_wr: u32) -> bool {
    (1..=limits::QP_WR).contains(&max_wr)
}

impl Srq {
    /// A new queue, with `xrc` for targets of that XRC domain. Fails with `EINVAL` for sizes beyond the device's limits or none at all,
    /// or `ENOMEM`.
    pub(crate) fn new(
        pd: &Pd,
        max_wr: u32,
        max_sge: u32,
        xrc: Option<(u32, Arc<Cq>)>,
        sink: SrqSink,
    ) -> Result<Arc<Self>> {
        if !is_size(max_wr) || max_sge > limits::SGE {
            return Err(EINVAL);
        }
        let max_sge = max_sge.max(1);
        let state = State {
            ring: new_ring(max_wr, max_sge)?,
            next: 0,
            limit: 0,
        };
        let dev = &pd.dev;
        let mut next = dev.next.lock();
        let number = dev.srqs.reserve(limits::SRQ, &mut next.srq)?;
        drop(next);
        let srq = Arc::pin_init(
            pin_init!(Self {
                number,
                pd: pd.id,
                max_sge,
                xrc: xrc.map(|(xrcd, cq)| Xrc { xrcd, cq }),
                dev: dev.clone(),
                state <- new_irq_lock!(state, "Srq::state"),
                sink <- new_bh_lock!(Some(sink), "Srq::sink"),
            }),
            GFP_KERNEL,
        );
        srq.and_then(|srq| dev.srqs.fill(number, srq.clone()).map(|()| srq))
            .inspect_err(|_| drop(dev.srqs.remove(number)))
    }

    /// The ring that a process maps.
    pub(crate) fn ring(&self) -> Arc<Ring> {
        self.state.lock().ring.clone()
    }

    /// Its attributes now.
    pub(crate) fn query(&self) -> SrqAttrs {
        let state = self.state.lock();
        SrqAttrs {
            max_wr: state.ring.capacity(),
            max_sge: self.max_sge,
            limit: state.limit,
            waiting: state.len(),
        }
    }

    /// A ring for [`Self::modify`]. Fails with `EINVAL` for a size beyond the device's limit or
    /// none, or `ENOMEM`.
    pub(crate) fn larger(&self, max_wr: u32) -> Result<Arc<Ring>> {
        if !is_size(max_wr) {
            return Err(EINVAL);
        }
        new_ring(max_wr, self.max_sge)
    }

    /// Puts the receives into another ring, and arms the limit event (0 disarms it), each if
    /// asked for. A limit above what is there reports at once.
    ///
    /// Fails with `EINVAL`, and changes nothing, for a limit that is more than the queue can
    /// hold, and as [`resize::copy`] does.
    pub(crate) fn modify(&self, ring: Option<Arc<Ring>>, limit: Option<u32>) -> Result {
        let mut state = match &ring {
            Some(ring) => resize::copy(&self.state, ring, State::content)?,
            None => self.state.lock(),
        };
        let capacity = ring.as_ref().unwrap_or(&state.ring).capacity();
        let armed = limit.unwrap_or(state.limit);
        if armed > capacity {
            return Err(EINVAL);
        }
        let old = ring.map(|ring| core::mem::replace(&mut state.ring, ring));
        state.limit = armed;
        let due = state.take_limit();
        drop(state);
        // Perhaps the last reference: its memory cannot be freed with interrupts off.
        drop(old);
        if due {
            self.tell();
        }
        Ok(())
    }

    /// Takes the next receive; with it whether [`Self::tell`] is due, if `may_report`.
    pub(super) fn take(&self, sges: &mut [u8], may_report: bool) -> Option<(RecvWr, bool)> {
        let mut state = self.state.lock();
        if state.len() == 0 {
            return None;
        }
        let wr = wqe::read_recv(&state.ring, state.next, sges);
        state.next = state.next.wrapping_add(1);
        state.ring.set_consumer(state.next);
        let due = may_report && state.take_limit();
        Some((wr, due))
    }

    /// Reports that the limit was reached. Any context, without a QP's lock.
    pub(super) fn tell(&self) {
        if let Some(sink) = &*self.sink.lock() {
            sink.limit_reached();
        }
    }

    /// Nothing reaches the sink after this.
    pub(crate) fn destroy(&self) {
        drop(self.dev.srqs.remove(self.number));
        *self.sink.lock() = None;
    }
}
