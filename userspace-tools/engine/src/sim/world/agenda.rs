// SPDX-License-Identifier: GPL-2.0

//! What the programs of the hosts do, and when: connect, post, change states.

use super::heap::SPARE_KEY;
use super::heap::SPARE_VA;
use super::load::ANY_ROOM;
use super::load::DENIED_KEY;
use super::node::Life;
use super::plan::Plan;
use super::plan::Trouble;
use super::plan::US;
use super::work::Buf;
use super::World;
use crate::sim::Endpoint;
use crate::sim::Rng;
use crate::Access;
use crate::ModifyAttrs;
use crate::QpState;
use crate::QpType;
use crate::SendOp;
use crate::Sge;

/// Most receives of a shared queue.
const SHARED: usize = 600;

/// A thing to do.
#[derive(Copy, Clone, Debug)]
pub(super) enum Action {
    /// INIT to RTR.
    Rtr(usize),
    /// RTR to RTS.
    Rts(usize),
    /// Post some work requests.
    Post(usize),
    /// Post some receives.
    Receive(usize),
    /// Post some shared receives.
    Srq(usize),
    /// The trouble of a pair begins.
    Trouble(usize),
    /// SQD or SQE to RTS.
    Resume(usize),
    /// To RESET, with all that is outstanding.
    Reset(usize),
    /// RESET to INIT, with new work.
    Init(usize),
    /// A partition begins or ends.
    Cut(bool),
}

impl World {
    /// Plans something.
    fn plan_at(&mut self, ns: u64, action: Action) {
        self.actions += 1;
        self.agenda
            .insert((self.now.after(ns), self.actions), action);
    }

    fn soon(&mut self, most: u64) -> u64 {
        1 + self.rng.below(most)
    }

    /// Everything that happens by itself.
    pub(super) fn start(&mut self) {
        let mut rng = Rng::new(self.plan.seed ^ 0x6c6f_6164);
        for host in &self.hosts {
            host.mem.register(SPARE_KEY, SPARE_VA, 1 << 20);
            host.mem.register(DENIED_KEY, Endpoint::VA, Endpoint::LEN);
            host.mem.allow_flush(DENIED_KEY, 0);
            for access in [
                Access::RemoteRead,
                Access::RemoteWrite,
                Access::RemoteAtomic,
            ] {
                host.mem.deny(DENIED_KEY, access);
            }
        }
        for node in 0..self.nodes.len() {
            self.add_load(&mut rng, node);
        }
        for host in 0..self.hosts.len() {
            self.plan_at(0, Action::Srq(host));
        }
        for node in 0..self.nodes.len() {
            let plan = self.nodes[node].plan;
            let peer = self.nodes[Plan::peer(node)].plan;
            self.nodes[node].life = Life::new(plan.psn, peer.psn);
            self.enter_init(node);
            self.plan_at(plan.rtr_at, Action::Rtr(node));
            self.plan_at(plan.rts_at, Action::Rts(node));
        }
        for pair in 0..self.plan.trouble.len() {
            if self.plan.trouble[pair] != Trouble::None {
                let at = self.soon(400 * US);
                self.plan_at(at, Action::Trouble(pair));
            }
        }
        if let Some((_, _, at, span)) = self.plan.cut {
            self.plan_at(at, Action::Cut(true));
            self.plan_at(at + span, Action::Cut(false));
        }
    }

    /// Does what was planned.
    pub(super) fn act(&mut self, action: Action) {
        self.note(|| format!("{action:?}"));
        match action {
            Action::Rtr(node) => self.enter_rtr(node),
            Action::Rts(node) => self.enter_rts(node),
            Action::Post(node) => self.post(node),
            Action::Receive(node) => self.post_receives(node),
            Action::Srq(host) => self.post_shared(host),
            Action::Trouble(pair) => self.begin_trouble(pair),
            Action::Resume(node) => self.resume(node),
            Action::Reset(node) => self.enter_reset(node),
            Action::Init(node) => {
                let mut rng = Rng::new(self.rng.next_u64());
                self.add_load(&mut rng, node);
                self.enter_init(node);
                self.plan_at(0, Action::Receive(Plan::peer(node)));
            }
            Action::Cut(on) => {
                let cut = self.plan.cut.map(|(a, b, _, _)| (a, b));
                self.fabric.cut = cut.filter(|_| on);
            }
        }
    }

    pub(super) fn modify(&mut self, node: usize, change: ModifyAttrs) {
        let mut done = Ok(());
        self.with(node, |end, _| done = end.qp.modify(&change, &mut end.env));
        if let Err(error) = done {
            self.breach(node, format!("modify to {:?}: {error:?}", change.state));
        }
        let state = self.nodes[node].end.qp.state();
        self.note(|| format!("qp{node} is in {state:?}"));
    }

    fn enter_init(&mut self, node: usize) {
        let plan = self.nodes[node].plan;
        self.modify(
            node,
            ModifyAttrs {
                state: Some(QpState::Init),
                access: Some(plan.access),
                qkey: Some(plan.qkey),
                ..ModifyAttrs::default()
            },
        );
        self.plan_at(0, Action::Receive(node));
    }

    fn enter_rtr(&mut self, node: usize) {
        let here = &self.nodes[node];
        let peer = Plan::peer(node);
        let there = &self.nodes[peer];
        if here.end.qp.state() != QpState::Init {
            return;
        }
        let connected = here.plan.qp_type != QpType::Ud;
        let change = ModifyAttrs {
            state: Some(QpState::Rtr),
            path_mtu: Some(here.plan.mtu),
            dest_qpn: connected.then_some(there.qpn()),
            rq_psn: connected.then_some(here.life.rq_psn),
            max_dest_rd_atomic: Some(there.plan.rd_atomic),
            min_rnr_timer: Some(here.plan.min_rnr_timer),
            ..ModifyAttrs::default()
        };
        self.modify(node, change);
    }

    fn enter_rts(&mut self, node: usize) {
        let plan = self.nodes[node].plan;
        if self.nodes[node].end.qp.state() != QpState::Rtr {
            self.nodes[node].work.clear();
            return;
        }
        self.modify(
            node,
            ModifyAttrs {
                state: Some(QpState::Rts),
                sq_psn: Some(self.nodes[node].life.sq_psn),
                timeout: Some(plan.timeout),
                retry_cnt: Some(plan.retry_cnt),
                rnr_retry: Some(plan.rnr_retry),
                max_rd_atomic: Some(plan.rd_atomic),
                ..ModifyAttrs::default()
            },
        );
        self.plan_at(0, Action::Post(node));
    }

    fn enter_reset(&mut self, node: usize) {
        let far = 0x0030_0000 + self.rng.below(1000) as u32;
        let peer = Plan::peer(node);
        let first = self.nodes[node].age == self.nodes[peer].age;
        let here = &mut self.nodes[node];
        if !here.plan.srq {
            here.end.env.recvs.clear();
            here.end
                .env
                .srqs
                .values_mut()
                .for_each(|queue| queue.clear());
            here.bufs.iter_mut().for_each(|buf| buf.done = true);
        }
        here.receives.clear();
        here.work.clear();
        here.next_buf = here.bufs.len();
        here.drain_report = false;
        here.age += 1;
        let life = Life::new((here.life.sq_psn + far) & 0x00ff_ffff, 0);
        here.past = std::mem::replace(&mut here.life, life);
        if !first {
            self.nodes[node].life.rq_psn = self.nodes[peer].life.sq_psn;
            self.nodes[peer].life.rq_psn = self.nodes[node].life.sq_psn;
        }
        let change = ModifyAttrs {
            state: Some(QpState::Reset),
            ..ModifyAttrs::default()
        };
        self.modify(node, change);
        let here = &self.nodes[node];
        if here.end.qp.sq_space() != here.plan.sq {
            self.breach(node, "work requests have survived RESET");
        }
    }

    /// Posts some work requests, and plans to post more.
    fn post(&mut self, node: usize) {
        let state = self.nodes[node].end.qp.state();
        if matches!(state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return;
        }
        let before = self.nodes[node].work.len();
        for _ in 0..self.rng.below(8) {
            if self.nodes[node].end.qp.sq_space() == 0 || self.breach.is_some() {
                break;
            }
            if !self.post_one(node) {
                break;
            }
        }
        let left = self.nodes[node].work.len();
        if left > 0 {
            let at = self.soon(if left < before { 20 * US } else { 200 * US });
            self.plan_at(at, Action::Post(node));
        }
    }

    fn post_one(&mut self, node: usize) -> bool {
        let Some(mut msg) = self.nodes[node].work.pop_front() else {
            return false;
        };
        let state = self.nodes[node].end.qp.state();
        let here = &mut self.nodes[node];
        msg.start = here.life.posted;
        msg.packets = match msg.wr.op {
            SendOp::Malformed | SendOp::Local(_) => 0,
            _ => here.packets(msg.len()),
        };
        let index = here.life.msgs.len();
        msg.wr.wr_id = (here.age << 32) | index as u64;
        let data: Vec<u8> = if msg.inline {
            msg.payload.clone()
        } else {
            msg.sges.iter().flat_map(Sge::encode).collect()
        };
        let wr = msg.wr;
        if msg.receive().is_some() {
            here.life.consumers.push(index);
        }
        here.life.posted += msg.packets;
        self.cover
            .met(format!("{} posted in {state:?}", msg.kind()));
        self.remember(node, &msg);
        self.note(|| {
            format!(
                "qp{node} posts {index}: {:?} {:?} {} bytes{}",
                msg.wr.op,
                msg.wr.flags,
                msg.len(),
                msg.flaw
                    .map_or(String::new(), |flaw| format!(" ({flaw:?})"))
            )
        });
        self.nodes[node].life.msgs.push(msg);
        let mut done = Ok(());
        self.with(node, |end, _| done = end.qp.post_send(&wr, &data));
        if let Err(error) = done {
            self.breach(node, format!("posting {wr:?}: {error:?}"));
        }
        true
    }

    fn post_receives(&mut self, node: usize) {
        let here = &self.nodes[node];
        let plan = here.plan;
        if plan.srq || here.end.qp.state() == QpState::Reset {
            return;
        }
        let starves = self.plan.trouble[plan.pair] == Trouble::Starve { side: plan.side };
        let most = if plan.early {
            u64::MAX
        } else {
            self.rng.below(4)
        };
        for _ in 0..most.min(here.receives.len() as u64) {
            let here = &mut self.nodes[node];
            if starves && here.bufs.len() >= usize::from(plan.min_rnr_timer) {
                return;
            }
            let Some(buf) = here.receives.pop_front() else {
                break;
            };
            let (id, sges, queue) = (here.bufs.len() as u64, buf.sges.clone(), buf.queue);
            self.remember_buf(node, &buf);
            self.nodes[node].bufs.push(buf);
            if let Some(queue) = self.nodes[node].end.env.srqs.get_mut(&queue) {
                queue.push_back((id, sges));
            } else {
                self.with(node, |end, _| end.recv(id, &sges));
            }
        }
        if !self.nodes[node].receives.is_empty() {
            let at = self.soon(60 * US);
            self.plan_at(at, Action::Receive(node));
        }
    }

    /// Keeps the shared queue from running dry for good.
    fn post_shared(&mut self, host: usize) {
        let users = |node: &&super::Node| node.plan.srq && node.plan.host == host;
        let some = self.nodes.iter().position(|node| users(&node));
        let Some(some) = some else { return };
        let most = self.rng.below(6) as usize;
        let before = self.hosts[host].srq_bufs.len();
        while self.hosts[host].srq.len() < most && self.hosts[host].srq_bufs.len() < SHARED {
            let sge = self.alloc_shared(some);
            let id = self.hosts[host].srq_bufs.len() as u64;
            let buf = Buf {
                sges: vec![sge],
                queue: 0,
                done: false,
            };
            self.remember_shared(host, &buf);
            self.hosts[host].srq.push_back((id, buf.sges.clone()));
            self.hosts[host].srq_bufs.push(buf);
        }
        let timers = self
            .nodes
            .iter()
            .any(|node| node.end.qp.poll_timeout().is_some());
        let planned = self
            .agenda
            .values()
            .any(|action| !matches!(action, Action::Srq(_)));
        if timers || planned || !self.fabric.idle() {
            let fed = self.hosts[host].srq_bufs.len() > before;
            let at = self.soon(if fed { 60 * US } else { 400 * US });
            self.plan_at(at, Action::Srq(host));
        }
    }

    fn alloc_shared(&mut self, node: usize) -> Sge {
        let host = &mut self.hosts[self.nodes[node].plan.host];
        let addr = Endpoint::VA + host.free;
        host.free += u64::from(ANY_ROOM) + 1;
        Sge {
            addr,
            len: ANY_ROOM,
            lkey: Endpoint::KEY,
        }
    }

    fn begin_trouble(&mut self, pair: usize) {
        let trouble = self.plan.trouble[pair];
        let node = |side: usize| 2 * pair + side;
        self.cover.met(format!("trouble {}", name(trouble)));
        match trouble {
            Trouble::None | Trouble::Flaw { .. } | Trouble::Starve { .. } => (),
            Trouble::Kill { side } => {
                let change = ModifyAttrs {
                    state: Some(QpState::Error),
                    ..ModifyAttrs::default()
                };
                self.nodes[node(side)].life.closed = true;
                self.modify(node(side), change);
            }
            Trouble::Dark => self.fabric.dark.push(pair),
            Trouble::Revoke { side } => {
                let mem = self.nodes[node(side)].end.env.mem.clone();
                mem.revoke(SPARE_KEY);
            }
            Trouble::Drain { side } => self.begin_drain(node(side)),
            Trouble::Rebirth { side } => {
                let (a, b) = (node(side), node(1 - side));
                self.act(Action::Reset(a));
                let mut at = self.soon(300 * US);
                self.plan_at(at, Action::Reset(b));
                for action in [Action::Init, Action::Rtr, Action::Rts] {
                    for node in [a, b] {
                        at += self.soon(150 * US);
                        self.plan_at(at, action(node));
                    }
                }
            }
        }
    }

    fn begin_drain(&mut self, node: usize) {
        if self.nodes[node].end.qp.state() != QpState::Rts {
            return;
        }
        let report = self.rng.per_mille(700);
        let life = &mut self.nodes[node].life;
        life.limit = Some(
            life.msgs
                .iter()
                .rposition(|msg| msg.started)
                .map_or(0, |n| n + 1),
        );
        life.quiet = None;
        self.nodes[node].drain_report = report;
        let change = ModifyAttrs {
            state: Some(QpState::Sqd),
            sqd_event: report,
            ..ModifyAttrs::default()
        };
        self.modify(node, change);
        let at = self.soon(3000 * US);
        self.plan_at(at, Action::Resume(node));
    }

    fn resume(&mut self, node: usize) {
        let state = self.nodes[node].end.qp.state();
        if !matches!(state, QpState::Sqd | QpState::Sqe) {
            return;
        }
        let life = &mut self.nodes[node].life;
        let limit = life.limit.take().unwrap_or(0);
        let open = life.msgs.len() - limit;
        let owed = std::mem::take(&mut self.nodes[node].drain_report);
        let here = &self.nodes[node];
        let drained = here.plan.sq - here.end.qp.sq_space() == open;
        if state == QpState::Sqd && owed && drained {
            self.breach(node, "the drained send queue was not reported");
        }
        if state == QpState::Sqe {
            let life = &mut self.nodes[node].life;
            life.failed = None;
            life.furthest = life.posted;
        }
        let change = ModifyAttrs {
            state: Some(QpState::Rts),
            ..ModifyAttrs::default()
        };
        self.modify(node, change);
    }

    /// A queue pair has come to SQE: its program will notice.
    pub(super) fn plan_recovery(&mut self, node: usize) {
        let at = self.soon(50 * US);
        self.plan_at(at, Action::Resume(node));
    }
}

/// The trouble without its details.
pub(super) fn name(trouble: Trouble) -> &'static str {
    match trouble {
        Trouble::None => "none",
        Trouble::Flaw { .. } => "flaw",
        Trouble::Kill { .. } => "kill",
        Trouble::Rebirth { .. } => "rebirth",
        Trouble::Drain { .. } => "drain",
        Trouble::Starve { .. } => "starve",
        Trouble::Dark => "dark",
        Trouble::Revoke { .. } => "revoke",
    }
}
