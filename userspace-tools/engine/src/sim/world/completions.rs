// SPDX-License-Identifier: GPL-2.0

//! Completions and events: in order, none twice, none without what it says (sections 10.8 and 11.6.2).

use super::load::GRH;
use super::node::Life;
use super::node::FIRST_QPN;
use super::plan::Plan;
use super::plan::Trouble;
use super::work::event_of;
use super::work::Msg;
use super::World;
use crate::wire::NakCode;
use crate::Access;
use crate::Completion;
use crate::LocalOp;
use crate::Memory;
use crate::QpEvent;
use crate::QpState;
use crate::QpType;
use crate::SendOp;
use crate::WcOpcode;
use crate::WcStatus;

impl World {
    /// What the peer is known to do in the same life.
    pub(super) fn other(&self, node: usize) -> &Life {
        let there = &self.nodes[Plan::peer(node)];
        if there.age == self.nodes[node].age {
            &there.life
        } else {
            &there.past
        }
    }

    fn trouble(&self, node: usize) -> Trouble {
        self.plan.trouble[self.nodes[node].plan.pair]
    }

    /// Judges what a queue pair has reported since the last time.
    pub(super) fn collect(&mut self, node: usize) {
        let env = &mut self.nodes[node].end.env;
        let sent = std::mem::take(&mut env.send_cq);
        let received = std::mem::take(&mut env.recv_cq);
        let events = std::mem::take(&mut env.events);
        for wc in received {
            self.note(|| {
                format!(
                    "qp{node} recv completion {} {:?} {} bytes",
                    wc.wr_id, wc.status, wc.byte_len
                )
            });
            self.cover.met(format!("receive {:?}", wc.status));
            if let Err(text) = self.judge_received(node, &wc) {
                self.breach(node, format!("receive completion {}: {text}", wc.wr_id));
            }
        }
        for wc in sent {
            self.note(|| {
                format!(
                    "qp{node} send completion {} {:?}",
                    wc.wr_id & 0xffff_ffff,
                    wc.status
                )
            });
            if let Err(text) = self.judge_sent(node, &wc) {
                self.breach(
                    node,
                    format!("send completion {}: {text}", wc.wr_id & 0xffff_ffff),
                );
            }
        }
        for event in events {
            self.note(|| format!("qp{node} event {event:?}"));
            self.cover.met(format!("event {event:?}"));
            if let Err(text) = self.judge_event(node, event) {
                self.breach(node, format!("event {event:?}: {text}"));
            }
        }
    }

    fn judge_sent(&mut self, node: usize, wc: &Completion) -> Result<(), String> {
        let here = &self.nodes[node];
        let (age, index) = (wc.wr_id >> 32, (wc.wr_id & 0xffff_ffff) as usize);
        let life = &here.life;
        if age != here.age || index >= life.msgs.len() {
            return Err("of no work request of this life".into());
        }
        if index < life.completed {
            return Err(format!("{} is next", life.completed));
        }
        let loud = |msg: &Msg| msg.wr.flags.signaled || here.plan.sig_all;
        let skipped = life.completed..index;
        if skipped.clone().any(|n| loud(&life.msgs[n]))
            || life.failed.is_some() && index > life.completed
        {
            return Err(format!("{} has not completed", life.completed));
        }
        for n in skipped {
            self.prove(node, n)?;
        }
        let msg = &self.nodes[node].life.msgs[index];
        let opcode = match msg.wr.op {
            SendOp::Write { .. } | SendOp::WriteImm { .. } => WcOpcode::RdmaWrite,
            SendOp::Read { .. } => WcOpcode::RdmaRead,
            SendOp::CompareSwap { .. } => WcOpcode::CompSwap,
            SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
            SendOp::Flush { .. } => WcOpcode::Flush,
            SendOp::AtomicWrite { .. } => WcOpcode::AtomicWrite,
            SendOp::Local(LocalOp::Invalidate { .. }) => WcOpcode::LocalInv,
            SendOp::Local(LocalOp::BindWindow { .. }) => WcOpcode::BindMw,
            SendOp::Local(LocalOp::Register { .. }) => WcOpcode::RegMr,
            _ => WcOpcode::Send,
        };
        if wc.qpn != here.qpn() || wc.opcode != opcode {
            return Err(format!("says {wc:?}"));
        }
        self.cover
            .met(format!("{} ended {:?}", msg.kind(), wc.status));
        if wc.status == WcStatus::Success {
            if !loud(msg) {
                return Err("was not asked for".into());
            }
            if wc.byte_len != msg.byte_len() {
                return Err(format!(
                    "{} bytes instead of {}",
                    wc.byte_len,
                    msg.byte_len()
                ));
            }
            if life.failed.is_some() {
                return Err("success after a failure".into());
            }
            self.prove(node, index)?;
        } else {
            self.judge_failure(node, index, wc.status)?;
        }
        self.nodes[node].life.completed = index + 1;
        Ok(())
    }

    /// A successful work request has had its effect.
    pub(super) fn prove(&self, node: usize, index: usize) -> Result<(), String> {
        let here = &self.nodes[node];
        let msg = &here.life.msgs[index];
        if !here.plan.reliable() {
            let gone = msg.packets == 0 || here.life.furthest >= msg.end() && msg.started;
            return if gone {
                Ok(())
            } else {
                Err(format!("{index} was not sent"))
            };
        }
        if msg.flaw.is_some() {
            return Err(format!("{index} succeeds in spite of {:?}", msg.flaw));
        }
        let known = if msg.is_local() {
            true
        } else if msg.fetches() {
            here.life.answered(msg)
        } else {
            msg.end() <= here.life.acked
        };
        if !known {
            return Err(format!("{index} succeeds without an answer"));
        }
        let there = self.other(node);
        if msg.receive().is_some() {
            let place = here.life.consumers.partition_point(|n| *n < index);
            if there.received <= place {
                return Err(format!("{index} succeeds before its receive"));
            }
        }
        let good = match (&msg.wr.op, msg.atomic) {
            (SendOp::Write { va, rkey } | SendOp::WriteImm { va, rkey, .. }, _) => {
                let mem = &self.nodes[Plan::peer(node)].end.env.mem;
                msg.len() == 0 || mem.peek(*rkey, *va, msg.payload.len()) == msg.payload
            }
            (SendOp::Flush { va, rkey, len, .. }, _) => {
                let mem = &self.nodes[Plan::peer(node)].end.env.mem;
                mem.flushes(*rkey).contains(&Some((*va, u64::from(*len))))
            }
            (SendOp::AtomicWrite { va, rkey, data }, _) => {
                let mem = &self.nodes[Plan::peer(node)].end.env.mem;
                mem.peek(*rkey, *va, 8) == data
            }
            (SendOp::Local(op), _) => {
                here.end
                    .env
                    .locals
                    .iter()
                    .filter(|done| *done == op)
                    .count()
                    == 1
            }
            (_, Some((old, _))) => self.peek(node, &msg.sges, 8) == old.to_ne_bytes(),
            (SendOp::Read { .. }, _) => self.peek(node, &msg.sges, msg.len()) == msg.payload,
            _ => true,
        };
        if good {
            Ok(())
        } else {
            Err(format!("the data of {index} is not there"))
        }
    }

    fn judge_failure(&mut self, node: usize, index: usize, status: WcStatus) -> Result<(), String> {
        let here = &self.nodes[node];
        if !matches!(
            here.end.qp.state(),
            QpState::Error | QpState::Sqe | QpState::Rts | QpState::Sqd
        ) {
            return Err(format!("{status:?} in {:?}", here.end.qp.state()));
        }
        if here.life.failed.is_some() {
            let flushed = status == WcStatus::WrFlushErr;
            return if flushed {
                Ok(())
            } else {
                Err(format!("{status:?} after a failure"))
            };
        }
        let first = self.may_fail(node, index, status);
        self.nodes[node].life.failed = Some((index, status));
        if !self.nodes[node].plan.reliable() && status != WcStatus::WrFlushErr {
            self.plan_recovery(node);
        }
        if !first {
            return Err(format!("{status:?} with trouble {:?}", self.trouble(node)));
        }
        match status {
            WcStatus::RetryExcErr => self.judge_retries(node, index, false),
            WcStatus::RnrRetryExcErr => self.judge_retries(node, index, true),
            _ => (),
        }
        Ok(())
    }

    /// Whether this may be the first failure of a queue pair.
    fn may_fail(&self, node: usize, index: usize, status: WcStatus) -> bool {
        use WcStatus::*;
        let here = &self.nodes[node];
        let mine = |side: usize| side == here.plan.side;
        let msg = &here.life.msgs[index];
        let quiet = self.plan.weather.calm() && self.plan.cut.is_none();
        match self.trouble(node) {
            Trouble::None | Trouble::Drain { .. } => false,
            Trouble::Flaw { side } if mine(side) => {
                let exact = msg.flaw.is_some_and(|flaw| flaw.status() == status);
                let later = here.life.msgs[index..]
                    .iter()
                    .chain(&here.work)
                    .any(|m| m.flaw.is_some_and(|f| !f.local()));
                exact || !quiet && status == RetryExcErr && later && here.plan.reliable()
            }
            Trouble::Flaw { .. } => match status {
                RetryExcErr => true,
                WrFlushErr => here.life.closed || here.end.qp.state() == QpState::Error,
                _ => false,
            },
            Trouble::Kill { side } if mine(side) => status == WrFlushErr,
            Trouble::Kill { .. } | Trouble::Dark => status == RetryExcErr,
            Trouble::Rebirth { .. } => status == RetryExcErr,
            Trouble::Starve { .. } => matches!(status, RetryExcErr | RnrRetryExcErr),
            Trouble::Revoke { side } if mine(side) => {
                matches!(status, LocProtErr | RetryExcErr | WrFlushErr)
            }
            Trouble::Revoke { .. } => {
                matches!(status, RemAccessErr | RemOpErr | RetryExcErr | WrFlushErr)
            }
        }
    }

    fn judge_received(&mut self, node: usize, wc: &Completion) -> Result<(), String> {
        let here = &mut self.nodes[node];
        let index = wc.wr_id as usize;
        let bufs = if here.plan.srq {
            &mut self.hosts[here.plan.host].srq_bufs
        } else if here.plan.qp_type == QpType::XrcTgt {
            let queue = here.bufs.get(index).map(|buf| buf.queue);
            let next = here
                .bufs
                .iter()
                .position(|buf| !buf.done && Some(buf.queue) == queue);
            if next != Some(index) {
                return Err(format!("{next:?} is next in its queue"));
            }
            &mut here.bufs
        } else {
            if index != here.next_buf {
                return Err(format!("{} is next", here.next_buf));
            }
            here.next_buf += 1;
            &mut here.bufs
        };
        let buf = bufs.get_mut(index).ok_or("of no receive")?;
        if std::mem::replace(&mut buf.done, true) {
            return Err("for the second time".into());
        }
        let buf = buf.clone();
        if wc.qpn != here.qpn() {
            return Err(format!("says {wc:?}"));
        }
        here.life.held = false;
        if wc.status != WcStatus::Success {
            return self.judge_failed_receive(node, wc.status);
        }
        let (from, msg) = if self.nodes[node].plan.reliable() {
            let next = self.nodes[node].life.received;
            let other = self.other(node);
            let msg = other.consumers.get(next).ok_or("nobody sent that")?;
            (Plan::peer(node), other.msgs[*msg].clone())
        } else {
            let (from, msg) = self.nodes[node]
                .life
                .arriving
                .pop_front()
                .ok_or("nothing has arrived")?;
            (from, self.nodes[from].life.msgs[msg].clone())
        };
        self.nodes[node].life.received += 1;
        let datagram = matches!(msg.wr.op, SendOp::Datagram { .. });
        let head = if datagram { GRH } else { 0 };
        let key = match msg.wr.op {
            SendOp::SendInvalidate(key) => Some(key),
            _ => None,
        };
        let wanted = Completion {
            opcode: msg.receive().ok_or("takes no receive")?,
            byte_len: msg.len() + head,
            imm: msg.imm(),
            invalidated_rkey: key,
            solicited: msg.wr.flags.solicited,
            src_qp: FIRST_QPN + from as u32,
            with_grh: datagram,
            ..*wc
        };
        if *wc != wanted {
            return Err(format!("{wc:?} instead of {wanted:?}"));
        }
        if key.is_some_and(|key| {
            self.nodes[node]
                .end
                .env
                .mem
                .check(key, 0x1000, 8, Access::LocalRead)
                .is_ok()
        }) {
            return Err("the key is still valid".into());
        }
        if msg.receive() == Some(WcOpcode::Recv) {
            let bytes = self.peek(node, &buf.sges, msg.len() + head);
            if bytes[head as usize..] != msg.payload {
                return Err("the data is not there".into());
            }
            let host = self.nodes[from].plan.host as u8 + 1;
            let sender = if bytes.first() == Some(&0) { 35 } else { 23 };
            if datagram && bytes[sender] != host {
                return Err("the GRH area is wrong".into());
            }
        }
        Ok(())
    }

    fn judge_failed_receive(&mut self, node: usize, status: WcStatus) -> Result<(), String> {
        let state = self.nodes[node].end.qp.state();
        if state != QpState::Error {
            return Err(format!("{status:?} in {state:?}"));
        }
        if status == WcStatus::WrFlushErr {
            return Ok(());
        }
        self.nodes[node].life.failed_receive.get_or_insert(status);
        let life = &self.nodes[node].life;
        let other = self.other(node);
        let msg = other.consumers.get(life.received).map(|n| &other.msgs[*n]);
        let flaw = msg.and_then(|msg| msg.flaw);
        let plan = &self.nodes[node].plan;
        let revoked = self.trouble(node) == Trouble::Revoke { side: plan.side };
        let good = flaw.and_then(|flaw| flaw.receive()) == Some(status)
            || revoked && status == WcStatus::LocProtErr;
        if good {
            Ok(())
        } else {
            Err(format!("{status:?} for {flaw:?}"))
        }
    }

    fn judge_event(&mut self, node: usize, event: QpEvent) -> Result<(), String> {
        let state = self.nodes[node].end.qp.state();
        let twice = self.nodes[node].life.events.contains(&event);
        self.nodes[node].life.events.push(event);
        if twice && event != QpEvent::SqDrained {
            return Err("twice".into());
        }
        let other = self.other(node);
        let revoked = matches!(self.trouble(node), Trouble::Revoke { .. });
        let flaws = other.msgs.iter().filter_map(|msg| msg.flaw);
        let good = match event {
            QpEvent::CommEstablished => matches!(state, QpState::Rtr | QpState::Error),
            QpEvent::SqDrained => {
                state == QpState::Sqd && std::mem::take(&mut self.nodes[node].drain_report)
            }
            QpEvent::LastWqeReached => {
                self.nodes[node].plan.shares_receives() && state == QpState::Error
            }
            _ => {
                flaws
                    .filter_map(|flaw| flaw.event())
                    .any(|wanted| wanted == event)
                    || revoked && event != event_of(NakCode::InvalidRequest)
            }
        };
        if good {
            Ok(())
        } else {
            Err(format!("in {state:?}"))
        }
    }
}
