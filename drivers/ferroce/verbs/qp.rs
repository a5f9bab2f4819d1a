// SPDX-License-Identifier: GPL-2.0

//! Queue pairs: an engine behind a lock, its two rings, its path and its timer.
//!
//! System calls, packets and the timer all do the same: take the lock, let the engine
//! work, drop the lock, send what it has to send ([`super::transmit`]), and then tell the
//! owners of the CQs. Completion handlers and the network run without the lock.

use super::{
    cq::Cq,
    create::{
        Kind,
        Parts,
        QpInit,
        Queues, //
    },
    device::limits,
    due::{
        Due,
        XrcDue, //
    },
    env::Env,
    memory::PdMemory,
    Device,
    Srq, //
};
use crate::{
    engine::{
        self,
        Instant,
        ModifyAttrs,
        QpAttrs,
        QpState, //
    },
    kernel_ext::{
        bh_work::BhWork,
        ib::{
            gid::AhAttr,
            QpHandle,
            QpSink, //
        },
        lock::{
            new_bh_lock,
            new_irq_lock,
            BhLock,
            IrqLock, //
        },
        ring::Ring,
        timer::{
            self,
            Expire,
            Timer, //
        },
    },
    net::{
        Path,
        PathConfig, //
    },
};
use core::sync::atomic::{
    AtomicU32,
    Ordering, //
};
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
};

/// Number of the general services' QP.
const GSI: u32 = 1;
/// BTH and ICRC of a packet without extended headers.
const PACKET_OVERHEAD: usize = 16;

/// Where the engine keeps its queues.
pub(crate) struct Store;

impl engine::Store for Store {
    type Wqes = KVVec<engine::SendWqe>;
    type Bytes = KVVec<u8>;
    type Acks = KVVec<engine::ReadReplay>;
}

/// Who is told of asynchronous events.
pub(crate) enum Sink {
    /// The `ib_qp` of the verbs door.
    Ib(QpSink),
    /// The character device has no events yet.
    Nobody,
}

/// What the lock guards.
pub(super) struct Inner {
    pub(super) engine: Engine,
    pub(super) side: Side,
}

/// The kernel's side of a QP, next to its engine.
#[derive(Default)]
pub(super) struct Side {
    pub(super) path: Option<Arc<Path>>,
    /// What the path was made from.
    pub(super) ah: Option<AhAttr>,
    /// How often it was looked for receives posted in Error.
    pub(super) looks: u32,
    /// Bytes of a full packet from BTH to ICRC.
    pub(super) segment: usize,
    /// Next element of the send ring to be copied in.
    pub(super) sq_next: u32,
    /// Next element of the receive ring.
    pub(super) rq_next: u32,
    /// Somebody is sending, and will look for more before he stops.
    pub(super) sending: bool,
    /// Destroyed: nothing may happen any more.
    closed: bool,
    pub(super) due: Due,
    /// What an XRC target's receives leave to be told.
    pub(super) xrc_due: XrcDue,
    /// The VLAN that the packet at hand came through.
    pub(super) vlan: Option<u16>,
    /// A completion was lost since its CQ was full.
    pub(super) overrun: bool,
}

/// The engine as it runs here.
pub(super) type Engine = engine::Qp<Store>;

/// How far a QP is.
pub(crate) struct Progress {
    /// Sends that are not complete.
    pub(crate) sends: u32,
    /// Receives in its own queue.
    pub(crate) receives: u32,
    /// Bytes that may be on their way.
    pub(crate) window: u32,
}

/// A queue pair.
#[pin_data]
pub(crate) struct Qp {
    /// QP number.
    pub(crate) qpn: u32,
    /// Distinguishes it from all others that the device ever had.
    pub(super) serial: u64,
    pub(crate) dev: Arc<Device>,
    pub(super) pd: u32,
    /// XRC domain of a target.
    pub(super) xrcd: Option<u32>,
    pub(super) send_cq: Option<Arc<Cq>>,
    pub(super) recv_cq: Option<Arc<Cq>>,
    pub(super) sq: Arc<Ring>,
    pub(super) rq: Arc<Ring>,
    /// Where receives come from instead of `rq`.
    pub(super) srq: Option<Arc<Srq>>,
    /// What it got of what was asked for.
    pub(crate) caps: QpInit,
    /// The core's name for it.
    handle: Option<QpHandle>,
    /// The engine's state, for those who may not take its lock.
    pub(super) phase: AtomicU32,
    /// Kernel users that write into the send ring.
    #[pin]
    pub(super) posting_send: IrqLock<()>,
    /// The same for the receive ring.
    #[pin]
    pub(super) posting_recv: IrqLock<()>,
    /// What a kernel user's call leaves to softirq.
    #[pin]
    pub(super) later: BhWork<Qp>,
    #[pin]
    sink: BhLock<Option<Sink>>,
    #[pin]
    pub(super) inner: BhLock<Inner>,
    #[pin]
    pub(super) timer: Timer<Qp>,
}

impl Qp {
    /// A new QP, in state Reset.
    ///
    /// Fails with `EINVAL` for sizes beyond the device's limits, missing parts or an SRQ of
    /// another PD, `EBUSY` for a second GSI QP, or `ENOMEM`.
    pub(crate) fn new(parts: Parts<'_>, init: QpInit, sink: Sink) -> Result<Arc<Self>> {
        parts.check(init.kind)?;
        let queues = Queues::new(&init, parts.srq.as_deref())?;
        let handle = match &sink {
            Sink::Ib(sink) => Some(sink.handle()),
            Sink::Nobody => None,
        };
        let side = Side {
            xrc_due: XrcDue::new(init.kind)?,
            ..Side::default()
        };
        let dev = parts.dev;
        // The number is taken first, since the engine wants to know it.
        let mut next = dev.next.lock();
        let qpn = match init.kind {
            Kind::Gsi => dev.qps.reserve(GSI..GSI + 1, &mut 0)?,
            _ => dev.qps.reserve(limits::QPN, &mut next.qpn)?,
        };
        drop(next);
        let inner = Inner {
            engine: Engine::new(queues.config(qpn, parts.srq.is_some()), queues.storage),
            side,
        };
        let (sq, rq, caps) = (queues.sq, queues.rq, queues.caps);
        let qp = Arc::pin_init(
            pin_init!(Self {
                qpn,
                serial: dev.next_serial.fetch_add(1, Ordering::Relaxed),
                dev: dev.clone(),
                // Numbers of protection domains begin with 1.
                pd: parts.pd.map_or(0, |pd| pd.id),
                xrcd: parts.xrcd,
                send_cq: parts.send_cq,
                recv_cq: parts.recv_cq,
                sq,
                rq,
                srq: parts.srq,
                caps,
                handle,
                phase: AtomicU32::new(QpState::Reset as u32),
                posting_send <- new_irq_lock!((), "Qp::posting_send"),
                posting_recv <- new_irq_lock!((), "Qp::posting_recv"),
                later <- BhWork::new(),
                sink <- new_bh_lock!(Some(sink), "Qp::sink"),
                inner <- new_bh_lock!(inner, "Qp::inner"),
                timer <- Timer::new(),
            }),
            GFP_KERNEL,
        )
        .inspect_err(|_| drop(dev.qps.remove(qpn)))?;
        Timer::bind(&qp, |qp| &qp.timer)
            .and_then(|()| BhWork::bind(&qp, |qp| &qp.later))
            .and_then(|()| dev.qps.fill(qpn, qp.clone()))
            .inspect_err(|_| drop(dev.qps.remove(qpn)))?;
        Ok(qp)
    }

    /// The rings of the send and of the receive queue, if it has them.
    pub(crate) fn rings(&self) -> (Option<&Arc<Ring>>, Option<&Arc<Ring>>) {
        let sq = (self.caps.send_wr > 0).then_some(&self.sq);
        (sq, (self.caps.recv_wr > 0).then_some(&self.rq))
    }

    /// The core's name for it, unless it is the character device's.
    pub(crate) fn handle(&self) -> Option<QpHandle> {
        self.handle
    }

    /// Its state now.
    pub(crate) fn state(&self) -> QpState {
        self.inner.lock().engine.state()
    }

    /// Attributes as they are now.
    pub(crate) fn query(&self) -> QpAttrs {
        self.inner.lock().engine.query()
    }

    /// How far it is.
    pub(crate) fn progress(&self) -> Progress {
        let inner = self.inner.lock();
        let space = inner.engine.sq_space() as u32;
        Progress {
            sends: self.caps.send_wr.saturating_sub(space),
            receives: self.rq.len(),
            window: inner.engine.send_window(),
        }
    }

    /// Where a connected QP's packets go.
    pub(crate) fn ah(&self) -> Option<AhAttr> {
        self.inner.lock().side.ah
    }

    /// Whether requests are in flight in SQD.
    pub(crate) fn is_draining(&self) -> bool {
        let inner = self.inner.lock();
        inner.engine.state() == QpState::Sqd && !inner.engine.is_drained()
    }

    /// Changes attributes; with an address, packets go there from now on.
    ///
    /// Fails with `EINVAL` for a transition or a value that is not allowed, a path MTU above
    /// the port's among them, and with what the routing says when there is no way.
    pub(crate) fn modify(&self, attrs: &ModifyAttrs, ah: Option<&AhAttr>) -> Result {
        if attrs
            .path_mtu
            .is_some_and(|mtu| mtu as u32 > self.dev.mtu())
        {
            return Err(EINVAL);
        }
        let path = match ah.map(|ah| &ah.path) {
            Some(attr) => {
                let peer = attrs.dest_qpn.unwrap_or_else(|| self.query().dest_qpn);
                let config = PathConfig {
                    src: attr.src,
                    dst: attr.dst,
                    sport: source_port(self.qpn, peer),
                    tclass: attr.traffic_class,
                    hop_limit: attr.hop_limit,
                    flow_label: attr.flow_label,
                    interface: attr.interface,
                    station: attr.station,
                };
                Some(Arc::new(self.dev.path(&config)?, GFP_KERNEL)?)
            }
            None => None,
        };
        let mut result = Ok(());
        self.call(|engine, env| {
            result = engine.modify(attrs, env).map_err(|_| EINVAL);
            if result.is_err() {
                return;
            }
            if path.is_some() {
                env.side.path = path;
                env.side.ah = ah.copied();
            }
            if let Some(mtu) = attrs.path_mtu {
                env.side.segment = PACKET_OVERHEAD + mtu.bytes() as usize;
            }
            if attrs.state == Some(QpState::Reset) {
                env.reset_rings();
                (env.side.path, env.side.ah) = (None, None);
            }
        });
        result
    }

    /// New work requests are in the send ring.
    ///
    /// Fails with `EINVAL` before the QP is ready to send; they are forgotten then.
    pub(crate) fn doorbell(&self) -> Result {
        let mut result = Ok(());
        self.run(|engine, env| {
            if matches!(
                engine.state(),
                QpState::Reset | QpState::Init | QpState::Rtr
            ) {
                env.refuse_sends();
                result = Err(EINVAL);
            } else {
                env.take_sends(engine);
            }
        });
        result
    }

    /// Nothing completes and nothing is told after this.
    pub(crate) fn destroy(&self) {
        self.inner.lock().side.closed = true;
        drop(self.dev.qps.remove(self.qpn));
        self.timer.cancel();
        self.later.cancel();
        *self.sink.lock() = None;
    }

    /// Lets the engine work under the lock, then sends, then tells the owners.
    pub(super) fn run(&self, work: impl FnOnce(&mut Engine, &mut Env<'_>)) {
        let rcu = rcu::read_lock();
        self.with_engine(&rcu, work);
        self.finish(&rcu);
    }

    /// The same for a system call or a kernel user's call. A completion handler must not be
    /// called from the latter.
    fn call(&self, work: impl FnOnce(&mut Engine, &mut Env<'_>)) {
        if !self.caps.kernel {
            return self.run(work);
        }
        let rcu = rcu::read_lock();
        self.with_engine(&rcu, work);
        self.send_all(&rcu);
        self.tell_later();
    }

    /// Sends what the engine has to send, then tells the owners.
    pub(super) fn finish(&self, rcu: &rcu::Guard) {
        self.send_all(rcu);
        self.tell();
    }

    /// Lets the engine work under the lock, unless the QP is destroyed.
    pub(super) fn with_engine<R>(
        &self,
        rcu: &rcu::Guard,
        work: impl FnOnce(&mut Engine, &mut Env<'_>) -> R,
    ) -> Option<R> {
        let mut guard = self.inner.lock();
        let Inner { engine, side } = &mut *guard;
        if side.closed {
            return None;
        }
        let mut env = Env {
            qp: self,
            mem: PdMemory::new(&self.dev, self.pd, self.serial, rcu),
            rcu,
            side,
            srq: None,
        };
        let result = work(engine, &mut env);
        env.fail_if_overrun(engine);
        // What is posted after this is flushed by who posts it (`post_recv`).
        self.phase.store(engine.state() as u32, Ordering::SeqCst);
        env.flush(engine);
        env.release_sends(engine);
        Some(result)
    }

    /// Tells the owners of the CQs that an XRC target's receives completed on.
    fn tell_xrc(&self) {
        for _ in 0..XrcDue::MOST {
            let next = self.inner.lock().side.xrc_due.take();
            let Some((cq, due)) = next else {
                break;
            };
            due.tell(&cq);
        }
    }

    /// Tells the owners of the CQs and of the QP what came up since the last time.
    fn tell(&self) {
        let due = core::mem::take(&mut self.inner.lock().side.due);
        if let Some(cq) = &self.send_cq {
            due.send.tell(cq);
        }
        if let Some(cq) = &self.recv_cq {
            due.recv.tell(cq);
        }
        if self.xrcd.is_some() {
            self.tell_xrc();
        }
        if let Some(srq) = due.srq {
            srq.tell();
        }
        let mut events = due.events;
        while events != 0 {
            let event = events.trailing_zeros();
            events &= events - 1;
            match &*self.sink.lock() {
                Some(Sink::Ib(qp)) => qp.event(event),
                Some(Sink::Nobody) | None => {}
            }
        }
    }
}

impl Expire for Qp {
    fn expire(&self) {
        self.run(|engine, env| engine.handle_timeout(Instant(timer::now()), env));
    }
}

/// UDP source port of a connection: the same for both directions, and spread over
/// 0xC000–0xFFFF so that routers and receive queues tell connections apart
/// (IBTA annex A17.9.1).
fn source_port(local: u32, remote: u32) -> u16 {
    let product = u64::from(local) * u64::from(remote);
    let hash = product.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    0xc000 | (hash >> 50) as u16
}
