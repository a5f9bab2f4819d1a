// SPDX-License-Identifier: GPL-2.0

//! When nothing is left to happen: everything has ended as it must, and memory holds what it must and nothing else.

use std::collections::BTreeMap;

use super::plan::Plan;
use super::plan::Trouble;
use super::work::Buf;
use super::work::Msg;
use super::World;
use crate::sim::Endpoint;
use crate::QpEvent;
use crate::QpState;
use crate::QpType;
use crate::SendOp;
use crate::Sge;

/// Atomics on a word: which, and what it held before and after.
type Steps = Vec<(usize, u64, u64)>;

/// Memory that may have been written through a region.
pub(super) struct Touched {
    host: usize,
    va: u64,
    len: u32,
    /// At most once.
    once: bool,
}

impl World {
    fn touched(&mut self, host: usize, sge: &Sge, once: bool) {
        if sge.lkey == Endpoint::KEY {
            self.touched.push(Touched {
                host,
                va: sge.addr,
                len: sge.len,
                once,
            });
        }
    }

    /// A posted message may write.
    pub(super) fn remember(&mut self, node: usize, msg: &Msg) {
        let reliable = self.nodes[node].plan.reliable();
        let here = Endpoint::VA..Endpoint::VA + Endpoint::LEN as u64;
        if let Some((va, len)) = msg.target().filter(|(va, _)| here.contains(va)) {
            let host = self.nodes[Plan::peer(node)].plan.host;
            let lkey = Endpoint::KEY;
            self.touched(
                host,
                &Sge {
                    addr: va,
                    len,
                    lkey,
                },
                reliable,
            );
        }
        if msg.brings() {
            let host = self.nodes[node].plan.host;
            for sge in &msg.sges {
                self.touched(host, sge, true);
            }
        }
    }

    /// A posted receive may be written.
    pub(super) fn remember_buf(&mut self, node: usize, buf: &Buf) {
        let plan = self.nodes[node].plan;
        for sge in &buf.sges {
            self.touched(plan.host, sge, plan.reliable());
        }
    }

    /// A receive of the shared queue may be written.
    pub(super) fn remember_shared(&mut self, host: usize, buf: &Buf) {
        for sge in &buf.sges {
            self.touched(host, sge, false);
        }
    }

    /// Judges the end.
    pub(super) fn ending(&mut self) {
        for node in 0..self.nodes.len() {
            if let Err(text) = self.judge_end(node).and_then(|()| self.judge_words(node)) {
                self.breach(node, format!("in the end {text}"));
            }
        }
        for host in 0..self.hosts.len() {
            if let Err(text) = self.judge_memory(host) {
                self.breach(0, format!("memory of host {host}: {text}"));
            }
        }
    }

    fn judge_end(&self, node: usize) -> Result<(), String> {
        let here = &self.nodes[node];
        let life = &here.life;
        let state = here.end.qp.state();
        let trouble = self.plan.trouble[here.plan.pair];
        let reliable = here.plan.reliable();
        let safe = match trouble {
            Trouble::None | Trouble::Drain { .. } => true,
            Trouble::Flaw { .. } => !reliable,
            _ => false,
        };
        if safe && state != QpState::Rts {
            return Err(format!("it is in {state:?}"));
        }
        if !here.work.is_empty() && state != QpState::Reset {
            return Err(format!("{} work requests were not posted", here.work.len()));
        }
        if here.end.qp.sq_space() != here.plan.sq {
            return Err("work requests are left".into());
        }
        for n in life.completed..life.msgs.len() {
            if life.failed.is_some() || life.msgs[n].wr.flags.signaled || here.plan.sig_all {
                return Err(format!("work request {n} has not completed"));
            }
            self.prove(node, n)?;
        }
        if safe
            && life
                .failed
                .is_some_and(|(n, _)| life.msgs[n].flaw.is_none())
            && reliable
        {
            return Err(format!("{:?} happened", life.failed));
        }
        if state == QpState::Error
            && !here.plan.shares_receives()
            && here.next_buf != here.bufs.len()
        {
            return Err(format!("receive {} was not flushed", here.next_buf));
        }
        let last = life.events.contains(&QpEvent::LastWqeReached);
        if state == QpState::Error && here.plan.shares_receives() && !last {
            return Err("the last receive was not reported".into());
        }
        let other = self.other(node);
        if safe && reliable && life.received != other.consumers.len() {
            return Err(format!(
                "{} messages received of {}",
                life.received,
                other.consumers.len()
            ));
        }
        self.judge_flaw(node)
    }

    /// On a quiet network a flawed work request fails as the specification says, and nothing else does.
    fn judge_flaw(&self, node: usize) -> Result<(), String> {
        let here = &self.nodes[node];
        let flawed = here.life.msgs.iter().position(|msg| msg.flaw.is_some());
        let Some(index) = flawed.filter(|_| here.plan.reliable()) else {
            return Ok(());
        };
        let wanted = here.life.msgs[index]
            .flaw
            .map(|flaw| (index, flaw.status()));
        if self.plan.calm() && here.life.failed != wanted {
            return Err(format!("{:?} instead of {wanted:?}", here.life.failed));
        }
        if here.life.failed.is_none() {
            return Err("the flaw was not found".into());
        }
        Ok(())
    }

    /// Words that atomics have changed hold what the last one left there.
    fn judge_words(&self, node: usize) -> Result<(), String> {
        let life = &self.nodes[node].life;
        let mut words: BTreeMap<(u64, u32), Steps> = BTreeMap::new();
        for (n, msg) in life
            .msgs
            .iter()
            .enumerate()
            .filter(|(_, msg)| msg.flaw.is_none())
        {
            if let (
                SendOp::CompareSwap { va, rkey, .. } | SendOp::FetchAdd { va, rkey, .. },
                Some((old, new)),
            ) = (msg.wr.op, msg.atomic)
            {
                words.entry((va, rkey)).or_default().push((n, old, new));
            }
        }
        let mem = &self.nodes[Plan::peer(node)].end.env.mem;
        let failed = life.failed.map_or(life.msgs.len(), |(n, _)| n);
        for ((va, rkey), steps) in words {
            let done = steps.iter().filter(|(n, _, _)| *n < failed).count();
            let bytes = mem.peek(rkey, va, 8);
            let value = u64::from_ne_bytes(*bytes.first_chunk().ok_or("short")?);
            let first = if done == 0 { Some(steps[0].1) } else { None };
            let mut may = first.into_iter().chain(
                steps[done.saturating_sub(1)..]
                    .iter()
                    .map(|(_, _, new)| *new),
            );
            if !may.any(|may| may == value) {
                return Err(format!("the word at {va:#x} holds {value:#x}"));
            }
        }
        Ok(())
    }

    /// Nothing was written where nothing may be, and nothing twice; what came unreliably but whole is there.
    fn judge_memory(&self, host: usize) -> Result<(), String> {
        let len = self.hosts[host].free as usize + 64;
        let counts = self.hosts[host]
            .mem
            .writes(Endpoint::KEY, Endpoint::VA, len);
        let mut most = vec![0_u8; len];
        for touched in self.touched.iter().filter(|touched| touched.host == host) {
            let from = (touched.va - Endpoint::VA) as usize;
            let Some(range) = most.get_mut(from..from + touched.len as usize) else {
                continue;
            };
            range.fill(if touched.once { 1 } else { u8::MAX });
        }
        if let Some(at) = (0..len).find(|&at| counts[at] > most[at]) {
            return Err(format!("byte {at} was written {} times", counts[at]));
        }
        for node in self
            .nodes
            .iter()
            .filter(|node| node.plan.qp_type == QpType::Uc)
        {
            let there = &self.nodes[node.plan.pair * 2 + 1 - node.plan.side];
            if there.plan.host != host {
                continue;
            }
            for msg in node.life.msgs.iter().filter(|msg| msg.arrived) {
                let target = msg.target().filter(|(_, len)| *len > 0);
                if target.is_some_and(|(va, _)| {
                    there.end.env.mem.peek(Endpoint::KEY, va, msg.payload.len()) != msg.payload
                }) {
                    return Err("an unreliable write is not there".into());
                }
            }
        }
        Ok(())
    }
}
