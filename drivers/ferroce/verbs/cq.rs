// SPDX-License-Identifier: GPL-2.0

//! Completion queues: the kernel produces into a shared ring, user space consumes, or a
//! kernel user by [`Cq::poll`].

use super::resize::{
    self,
    Content, //
};
use crate::{
    engine::{
        Completion,
        WcStatus, //
    },
    kernel_ext::{
        ib::CqSink,
        lock::{
            new_bh_lock,
            new_irq_lock,
            BhLock,
            IrqLock, //
        },
        ring::Ring,
        wait::WaitQueue, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Bytes of `struct ib_uverbs_wc`, and behind them the VLAN that a datagram came through,
/// if it came through one, plus 1.
const ENTRY: usize = 48 + 4;
const WC_WITH_GRH: u32 = 1;
const WC_WITH_IMM: u32 = 2;
const WC_WITH_INVALIDATE: u32 = 8;

/// Which completions raise an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Armed {
    No,
    Solicited,
    Any,
}

struct State {
    ring: Arc<Ring>,
    /// Number of the next completion, see [`resize`].
    producer: u32,
    armed: Armed,
    /// A completion was lost: its owner has been told, or is about to be.
    overrun: bool,
}

impl State {
    /// Completions that the owner has not taken.
    fn len(&self) -> u32 {
        self.ring.distance(self.ring.consumer(), self.producer)
    }

    fn content(&self) -> Content {
        let count = self.len();
        Content {
            ring: self.ring.clone(),
            first: self.producer.wrapping_sub(count),
            count,
        }
    }
}

/// What became of a completion.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It is in the queue.
    Quiet,
    /// It is, and [`Cq::notify`] is due.
    Notify,
    /// The queue was full: it is lost, which is an error of the QP.
    Lost,
    /// The same for the first time, so that [`Cq::tell_overrun`] is due.
    FirstLost,
}

/// What a queue is now.
pub(crate) struct CqState {
    /// Completions in it.
    pub(crate) waiting: u32,
    /// Completions that fit.
    pub(crate) size: u32,
    /// Which completion raises an event.
    pub(crate) armed: &'static CStr,
    /// A completion was lost.
    pub(crate) overrun: bool,
}

/// Who is told of completion events.
pub(crate) enum Sink {
    /// The `ib_cq` of the verbs door.
    Ib(CqSink),
    /// Tasks of the character device.
    Waiters(Arc<WaitQueue>),
}

/// A completion queue.
#[pin_data]
pub(crate) struct Cq {
    /// Kernel users poll and arm with interrupts off.
    #[pin]
    state: IrqLock<State>,
    /// Gone once the queue is destroyed. Apart from `state`, so that a handler may arm again.
    #[pin]
    sink: BhLock<Option<Sink>>,
}

impl Cq {
    /// A queue for at least `entries` completions. Fails with `ENOMEM`.
    pub(crate) fn new(entries: u32, sink: Sink) -> Result<Arc<Self>> {
        let ring = Arc::new(Ring::new(entries, ENTRY)?, GFP_KERNEL)?;
        let state = State {
            ring,
            producer: 0,
            armed: Armed::No,
            overrun: false,
        };
        Arc::pin_init(
            pin_init!(Self {
                state <- new_irq_lock!(state, "Cq::state"),
                sink <- new_bh_lock!(Some(sink), "Cq::sink"),
            }),
            GFP_KERNEL,
        )
    }

    /// The ring that user space maps.
    pub(crate) fn ring(&self) -> Arc<Ring> {
        self.state.lock().ring.clone()
    }

    /// A ring of another size for [`Self::resize`]. Fails with `ENOMEM`.
    pub(crate) fn larger(&self, entries: u32) -> Result<Arc<Ring>> {
        Ok(Arc::new(Ring::new(entries, ENTRY)?, GFP_KERNEL)?)
    }

    /// Moves what is in the queue into another ring. Fails as [`resize::copy`] does, and then
    /// changes nothing.
    pub(crate) fn resize(&self, ring: Arc<Ring>) -> Result {
        let mut state = resize::copy(&self.state, &ring, State::content)?;
        let old = core::mem::replace(&mut state.ring, ring);
        drop(state);
        // Perhaps the last reference: its memory cannot be freed with interrupts off.
        drop(old);
        Ok(())
    }

    /// Adds a completion of what came through `vlan`, if through one. What is due after it wants no lock held.
    pub(crate) fn push(&self, c: &Completion, vlan: Option<u16>) -> Pushed {
        let mut state = self.state.lock();
        let full = state.len() == state.ring.capacity();
        if full
            || state
                .ring
                .write(state.producer, 0, &encode(c, vlan))
                .is_err()
        {
            return match core::mem::replace(&mut state.overrun, true) {
                true => Pushed::Lost,
                false => Pushed::FirstLost,
            };
        }
        state.producer = state.producer.wrapping_add(1);
        state.ring.set_producer(state.producer);
        let failed = c.status != WcStatus::Success;
        let due = match state.armed {
            Armed::No => false,
            Armed::Solicited => c.solicited || failed,
            Armed::Any => true,
        };
        if !due {
            return Pushed::Quiet;
        }
        state.armed = Armed::No;
        Pushed::Notify
    }

    /// Tells the owner. Any context, without a QP's lock.
    pub(crate) fn notify(&self) {
        match &*self.sink.lock() {
            Some(Sink::Ib(cq)) => cq.notify(),
            Some(Sink::Waiters(queue)) => queue.wake_all(),
            None => {}
        }
    }

    /// Tells the owner that completions were lost (IBTA 11.6.3.1). Any context, without a QP's
    /// lock.
    pub(crate) fn tell_overrun(&self) {
        if let Some(Sink::Ib(cq)) = &*self.sink.lock() {
            cq.overrun();
        }
    }

    /// Asks for an event at the next completion; says whether some are waiting already.
    pub(crate) fn arm(&self, solicited_only: bool) -> bool {
        let mut state = self.state.lock();
        if !solicited_only {
            state.armed = Armed::Any;
        } else if state.armed == Armed::No {
            state.armed = Armed::Solicited;
        }
        state.len() > 0
    }

    /// Takes the oldest completion out, for a kernel user. Any context.
    pub(crate) fn poll(&self) -> Option<Entry> {
        let state = self.state.lock();
        if state.len() == 0 {
            return None;
        }
        let index = state.ring.consumer();
        let mut entry = Entry([0; ENTRY]);
        state.ring.read(index, 0, &mut entry.0).ok()?;
        state.ring.set_consumer(state.ring.next(index));
        Some(entry)
    }

    /// Its state now.
    pub(crate) fn query(&self) -> CqState {
        let state = self.state.lock();
        CqState {
            waiting: state.len(),
            size: state.ring.capacity(),
            armed: match state.armed {
                Armed::No => c"no",
                Armed::Solicited => c"solicited",
                Armed::Any => c"any",
            },
            overrun: state.overrun,
        }
    }

    /// Whether the queue is destroyed.
    pub(crate) fn is_closed(&self) -> bool {
        self.sink.lock().is_none()
    }

    /// Nothing reaches the sink after this.
    pub(crate) fn close(&self) {
        let sink = self.sink.lock().take();
        drop(sink);
    }
}

/// A completion as it stands in the ring.
pub(crate) struct Entry([u8; ENTRY]);

impl Entry {
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        let bytes = self.0.get(at..).and_then(<[u8]>::first_chunk);
        bytes.copied().unwrap_or([0; N])
    }

    fn number(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.bytes(at))
    }

    /// The user's name for the work request.
    pub(crate) fn wr_id(&self) -> u64 {
        u64::from_ne_bytes(self.bytes(0))
    }

    /// `enum ib_wc_status`.
    pub(crate) fn status(&self) -> u32 {
        self.number(8)
    }

    /// `enum ib_wc_opcode`.
    pub(crate) fn opcode(&self) -> u32 {
        self.number(12)
    }

    /// Bytes transferred.
    pub(crate) fn byte_len(&self) -> u32 {
        self.number(20)
    }

    /// Immediate data in network byte order, or a key in the machine's.
    pub(crate) fn ex(&self) -> [u8; 4] {
        self.bytes(24)
    }

    /// The QP that it is of.
    pub(crate) fn qpn(&self) -> u32 {
        self.number(28)
    }

    /// The sender's QP.
    pub(crate) fn src_qp(&self) -> u32 {
        self.number(32)
    }

    /// The VLAN that a datagram came through.
    pub(crate) fn vlan(&self) -> Option<u16> {
        self.number(48).checked_sub(1).map(|id| id as u16)
    }

    /// Whether the buffer begins with a GRH.
    pub(crate) fn with_grh(&self) -> bool {
        self.number(36) & WC_WITH_GRH != 0
    }

    /// Whether immediate data came.
    pub(crate) fn with_imm(&self) -> bool {
        self.number(36) & WC_WITH_IMM != 0
    }

    /// Whether a key was invalidated.
    pub(crate) fn with_invalidate(&self) -> bool {
        self.number(36) & WC_WITH_INVALIDATE != 0
    }
}

/// `struct ib_uverbs_wc` (include/uapi/rdma/ib_user_verbs.h), in the machine's byte order.
fn encode(c: &Completion, vlan: Option<u16>) -> [u8; ENTRY] {
    let mut flags = 0;
    if c.with_grh {
        flags |= WC_WITH_GRH;
    }
    let ex = match (c.imm, c.invalidated_rkey) {
        (Some(imm), _) => {
            flags |= WC_WITH_IMM;
            imm
        }
        (None, Some(rkey)) => {
            flags |= WC_WITH_INVALIDATE;
            rkey.to_ne_bytes()
        }
        (None, None) => [0; 4],
    };
    let mut wc = [0; ENTRY];
    wc[0..8].copy_from_slice(&c.wr_id.to_ne_bytes());
    wc[8..12].copy_from_slice(&(c.status as u32).to_ne_bytes());
    wc[12..16].copy_from_slice(&(c.opcode as u32).to_ne_bytes());
    wc[20..24].copy_from_slice(&c.byte_len.to_ne_bytes());
    wc[24..28].copy_from_slice(&ex);
    wc[28..32].copy_from_slice(&c.qpn.to_ne_bytes());
    wc[32..36].copy_from_slice(&c.src_qp.to_ne_bytes());
    wc[36..40].copy_from_slice(&flags.to_ne_bytes());
    wc[46] = 1;
    let vlan = vlan.map_or(0, |id| u32::from(id) + 1);
    wc[48..52].copy_from_slice(&vlan.to_ne_bytes());
    wc
}
