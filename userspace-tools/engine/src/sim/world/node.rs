// SPDX-License-Identifier: GPL-2.0

//! A queue pair of a run, and what its observer knows about it.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;

use super::load::XRC_QUEUES;
use super::plan::Params;
use super::work::Buf;
use super::work::Msg;
use crate::sim::Endpoint;
use crate::sim::HostEnv;
use crate::sim::HostMemory;
use crate::sim::VecStore;
use crate::wire::Syndrome;
use crate::Instant;
use crate::Mtu;
use crate::Psn;
use crate::Qp;
use crate::QpConfig;
use crate::QpEvent;
use crate::QpStorage;
use crate::QpType;
use crate::ReadReplay;
use crate::SendWqe;
use crate::Sge;
use crate::WcStatus;

/// Most scatter/gather elements of a work request.
pub const SGES: usize = 8;
/// Most inline bytes.
pub const INLINE: usize = 128;
/// Number of the first queue pair.
pub const FIRST_QPN: u32 = 16;

/// Distance from one PSN to another, negative if it is behind.
pub fn distance(psn: Psn, from: u32) -> i32 {
    ((psn.get().wrapping_sub(from) << 8) as i32) >> 8
}

/// What is known about a queue pair since it left RESET. Offsets count PSNs from the first one of their direction.
#[derive(Default)]
pub struct Life {
    /// First PSN that it sends and first that it expects.
    pub sq_psn: u32,
    /// See `sq_psn`.
    pub rq_psn: u32,
    /// Posted work requests.
    pub msgs: Vec<Msg>,
    /// Those that take a receive, in order.
    pub consumers: Vec<usize>,
    /// Offset that the next posted work request starts at.
    pub posted: u32,

    // The requester.
    /// One past the highest offset sent.
    pub furthest: u32,
    /// How often each offset was covered by a request, and when last.
    pub covers: Vec<(u32, Instant)>,
    /// Everything below is known to have arrived.
    pub acked: u32,
    /// Offsets of responses that came.
    pub got: BTreeSet<u32>,
    /// Work requests that have completed, with or without a completion.
    pub completed: usize,
    /// The first that failed.
    pub failed: Option<(usize, WcStatus)>,
    /// Work requests that may be sent: those started before SQD.
    pub limit: Option<usize>,
    /// A sequence NAK that must be answered at once, by a request with this offset.
    pub resend: Option<u32>,
    /// RNR: nothing may be sent before, something must be sent then.
    pub quiet: Option<Instant>,
    /// When the peer last complained.
    pub complaint: Option<Instant>,
    /// RNR NAKs since something was acknowledged.
    pub rnr: u32,
    /// RNR NAKs in all.
    pub rnrs: u32,

    // The responder.
    /// Offset that comes next.
    pub expected: u32,
    /// (offset, messages) after each message.
    pub msns: Vec<(u32, u32)>,
    /// A receive is taken and not complete.
    pub held: bool,
    /// UD: bytes that it has room for.
    pub held_room: u32,
    /// The gap at `expected` has been complained about.
    pub complained: bool,
    /// A NAK that must be sent.
    pub nak: Option<(Syndrome, u32)>,
    /// An acknowledgement of everything below this offset must be sent.
    pub owed: Option<i32>,
    /// READs and atomics executed: first offset and packets.
    pub fetches: Vec<(u32, u32)>,
    /// Responses that must be sent.
    pub due: BTreeSet<u32>,
    /// How often each response may still be sent.
    pub asked: BTreeMap<u32, u32>,
    /// Ends of the parts of READs that were asked for.
    pub asked_ends: BTreeSet<u32>,
    /// Starts of them.
    pub asked_starts: BTreeSet<u32>,
    /// Messages that took a receive and completed it.
    pub received: usize,
    /// UC: the message in progress and its next packet.
    pub current: Option<(usize, u32)>,
    /// UC and UD: messages whose completion is due now.
    pub arriving: VecDeque<(usize, usize)>,
    /// The responder has failed.
    pub closed: bool,
    /// How the receive in progress ended then.
    pub failed_receive: Option<WcStatus>,
    /// Events seen.
    pub events: Vec<QpEvent>,
}

impl Life {
    /// A life with these first PSNs.
    pub fn new(sq_psn: u32, rq_psn: u32) -> Self {
        Self {
            sq_psn,
            rq_psn,
            ..Self::default()
        }
    }

    /// The posted message that has the packet at `offset`.
    pub fn at(&self, offset: u32) -> Option<usize> {
        let n = self.msgs.partition_point(|msg| msg.end() <= offset);
        (n < self.msgs.len() && self.msgs[n].start <= offset).then_some(n)
    }

    /// Messages completed by the responder when everything below `offset` has arrived.
    pub fn msn(&self, offset: u32) -> u32 {
        let n = self.msns.partition_point(|(end, _)| *end <= offset);
        n.checked_sub(1).map_or(0, |n| self.msns[n].1)
    }

    /// All answers to a READ or atomic have come.
    pub fn answered(&self, msg: &Msg) -> bool {
        self.got.range(msg.start..msg.end()).count() as u32 == msg.packets
    }
}

/// A queue pair of a run.
pub struct Node {
    /// The queue pair and its host's view.
    pub end: Endpoint,
    /// How it was drawn.
    pub plan: Params,
    /// What is known.
    pub life: Life,
    /// What was known of the life before.
    pub past: Life,
    /// Number of its life.
    pub age: u64,
    /// Work requests still to post.
    pub work: VecDeque<Msg>,
    /// Receives still to post.
    pub receives: VecDeque<Buf>,
    /// Receives posted.
    pub bufs: Vec<Buf>,
    /// The next receive completion has this index.
    pub next_buf: usize,
    /// It may have something to send.
    pub busy: bool,
    /// SQD was asked to report, and has not.
    pub drain_report: bool,
}

impl Node {
    /// A queue pair in RESET.
    pub fn new(index: usize, plan: Params, mem: HostMemory) -> Self {
        let cfg = QpConfig {
            qpn: FIRST_QPN + index as u32,
            qp_type: plan.qp_type,
            sq_sig_all: plan.sig_all,
            srq: plan.srq,
            max_send_sge: SGES as u32,
            max_inline: INLINE as u32,
            sq_stride: INLINE as u32,
            window: plan.window,
            check_pkey: true,
        };
        let store = QpStorage::<VecStore> {
            sq: vec![SendWqe::ZERO; plan.sq],
            sq_data: vec![0; plan.sq * INLINE],
            rq_sges: vec![0; SGES * Sge::SIZE],
            replay: vec![ReadReplay::ZERO; 16],
        };
        let mut env = HostEnv {
            mem,
            ..HostEnv::default()
        };
        if plan.qp_type == QpType::XrcTgt {
            env.srqs = XRC_QUEUES.map(|number| (number, VecDeque::new())).into();
        }
        Self {
            end: Endpoint {
                qp: Qp::new(cfg, store),
                env,
            },
            plan,
            life: Life::default(),
            past: Life::default(),
            age: 0,
            work: VecDeque::new(),
            receives: VecDeque::new(),
            bufs: Vec::new(),
            next_buf: 0,
            busy: false,
            drain_report: false,
        }
    }

    /// Its number.
    pub fn qpn(&self) -> u32 {
        self.end.qp.config().qpn
    }

    /// Receives that wait in its own queues.
    pub fn receives(&self) -> usize {
        let env = &self.end.env;
        env.recvs.len() + env.srqs.values().map(VecDeque::len).sum::<usize>()
    }

    /// Payload bytes of a full packet.
    pub fn mtu(&self) -> u32 {
        self.plan.mtu.bytes()
    }

    /// Packets of a message.
    pub fn packets(&self, len: u32) -> u32 {
        let mtu: Mtu = self.plan.mtu;
        len.div_ceil(mtu.bytes()).max(1)
    }
}
