// SPDX-License-Identifier: GPL-2.0

//! What a QP is made of: its rings and its engine's storage, sized as was asked for.

use super::{
    device::limits,
    qp::Store,
    wqe,
    Cq,
    Device,
    Pd,
    Srq, //
};
use crate::{
    engine::{
        self,
        QpConfig,
        QpStorage,
        QpType, //
    },
    kernel_ext::ring::Ring, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Service type of a QP.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// The general services' QP: a datagram QP with the number 1.
    Gsi,
    /// Extended reliable connection, the side that sends requests (IBTA annex A14).
    XrcIni,
    /// The same, the side that serves them; it has no queues, protection domain or CQs.
    XrcTgt,
}

impl Kind {
    pub(super) fn service(self) -> QpType {
        match self {
            Self::Rc => QpType::Rc,
            Self::Uc => QpType::Uc,
            Self::Ud | Self::Gsi => QpType::Ud,
            Self::XrcIni => QpType::XrcIni,
            Self::XrcTgt => QpType::XrcTgt,
        }
    }

    /// Whether each request names where it goes.
    pub(crate) fn is_datagram(self) -> bool {
        self.service() == QpType::Ud
    }
}

/// What a QP belongs to, and whom it tells of completions.
pub(crate) struct Parts<'a> {
    /// The device.
    pub(crate) dev: &'a Arc<Device>,
    /// Protection domain; an XRC target has none.
    pub(crate) pd: Option<&'a Pd>,
    /// Completions of sends, for all but XRC targets.
    pub(crate) send_cq: Option<Arc<Cq>>,
    /// Completions of receives, for all but XRC QPs.
    pub(crate) recv_cq: Option<Arc<Cq>>,
    /// Receives come from there, not from a queue of the QP's own.
    pub(crate) srq: Option<Arc<Srq>>,
    /// XRC domain of a target.
    pub(crate) xrcd: Option<u32>,
}

impl Parts<'_> {
    /// `EINVAL` unless there is what a QP of this kind needs, all of one protection domain.
    pub(super) fn check(&self, kind: Kind) -> Result {
        let (pd, send) = (self.pd.is_some(), self.send_cq.is_some());
        let complete = match kind {
            Kind::XrcTgt => self.xrcd.is_some(),
            Kind::XrcIni => pd && send && self.srq.is_none(),
            _ => pd && send && self.recv_cq.is_some(),
        };
        let pd = self.pd.map(|pd| pd.id);
        let foreign = self.srq.as_ref().is_some_and(|srq| Some(srq.pd) != pd);
        match complete && !foreign {
            true => Ok(()),
            false => Err(EINVAL),
        }
    }
}

/// What a QP is created with.
pub(crate) struct QpInit {
    /// Service type.
    pub(crate) kind: Kind,
    /// Work requests in the send queue.
    pub(crate) send_wr: u32,
    /// Work requests in the receive queue.
    pub(crate) recv_wr: u32,
    /// Scatter/gather entries of a send.
    pub(crate) send_sge: u32,
    /// Scatter/gather entries of a receive.
    pub(crate) recv_sge: u32,
    /// Bytes of inline data.
    pub(crate) inline: u32,
    /// Whether every send completes, signaled or not.
    pub(crate) signal_all: bool,
    /// Its user is the kernel, which posts by [`super::Qp::post_send`] and
    /// [`super::Qp::post_recv`].
    pub(crate) kernel: bool,
}

/// The queues of a new QP.
pub(super) struct Queues {
    pub(super) sq: Arc<Ring>,
    pub(super) rq: Arc<Ring>,
    pub(super) storage: QpStorage<Store>,
    /// What was got of what was asked for.
    pub(super) caps: QpInit,
}

fn filled<T: Clone>(value: T, len: usize) -> Result<KVVec<T>> {
    Ok(KVVec::from_elem(value, len, GFP_KERNEL_ACCOUNT)?)
}

impl Queues {
    /// Fails with `EINVAL` for sizes beyond the device's limits, or `ENOMEM`. What `init` says
    /// of receives means nothing with an SRQ.
    pub(super) fn new(init: &QpInit, srq: Option<&Srq>) -> Result<Self> {
        let receives = srq.is_none() && !matches!(init.kind, Kind::XrcIni | Kind::XrcTgt);
        let (recv_wr, recv_sge) = match receives {
            true => (init.recv_wr, init.recv_sge.max(1)),
            false => (0, 0),
        };
        let sends = init.kind != Kind::XrcTgt;
        let (send_wr, send_sge, inline) = match sends {
            true => (init.send_wr, init.send_sge, init.inline),
            false => (0, 0, 0),
        };
        let wrs = send_wr.max(recv_wr);
        let sges = send_sge.max(recv_sge);
        if wrs > limits::QP_WR || sges > limits::SGE || inline > limits::INLINE {
            return Err(EINVAL);
        }
        let stride = (send_sge as usize * wqe::SGE)
            .max(inline as usize)
            .max(wqe::SGE);
        let sq = Ring::new(send_wr.max(1), wqe::SEND_HEADER + stride)?;
        let list = recv_sge as usize * wqe::SGE;
        let rq = Ring::new(recv_wr.max(1), wqe::RECV_HEADER + list)?;
        let recv_list = match init.kind {
            // It takes from any SRQ of its domain.
            Kind::XrcTgt => limits::SGE as usize * wqe::SGE,
            _ => srq.map_or(list, |srq| srq.max_sge as usize * wqe::SGE),
        };
        let slots = sq.capacity() as usize;
        let replays = match init.kind {
            Kind::Rc | Kind::XrcTgt => limits::RD_ATOMIC.into(),
            Kind::Uc | Kind::Ud | Kind::Gsi | Kind::XrcIni => 0,
        };
        let storage = QpStorage {
            sq: filled(engine::SendWqe::default(), slots)?,
            sq_data: filled(0, slots * stride)?,
            rq_sges: filled(0, recv_list)?,
            replay: filled(engine::ReadReplay::default(), replays)?,
        };
        let caps = QpInit {
            send_wr: if sends { sq.capacity() } else { 0 },
            recv_wr: if receives { rq.capacity() } else { 0 },
            send_sge: (stride / wqe::SGE) as u32,
            recv_sge,
            inline: stride as u32,
            ..*init
        };
        Ok(Self {
            sq: Arc::new(sq, GFP_KERNEL)?,
            rq: Arc::new(rq, GFP_KERNEL)?,
            storage,
            caps,
        })
    }

    /// The engine's configuration for a QP with this number.
    pub(super) fn config(&self, qpn: u32, srq: bool) -> QpConfig {
        QpConfig {
            qpn,
            qp_type: self.caps.kind.service(),
            sq_sig_all: self.caps.signal_all,
            srq,
            check_pkey: crate::module_parameters::check_pkey.value(),
            max_send_sge: self.caps.send_sge,
            max_inline: self.caps.inline,
            sq_stride: self.caps.inline,
            window: QpConfig::WINDOW,
        }
    }
}
