// SPDX-License-Identifier: GPL-2.0

//! A whole run from a seed: hosts with many queue pairs, a network with weather, work, trouble, and an observer that
//! knows what the specification demands and sees every packet and every completion.
//!
//! The observer does not share code with the engine: it gives out PSNs, counts messages and acknowledgements, and
//! judges by what it has seen arrive. Where a rule needs a quiet network it is applied in calm runs only.

mod agenda;
mod answers;
mod arrivals;
mod completions;
mod cover;
mod draw;
mod ending;
mod fabric;
mod frame;
mod heap;
mod load;
mod must;
mod node;
mod numbers;
mod plan;
mod requests;
mod work;

use std::collections::BTreeMap;
use std::collections::VecDeque;

pub use cover::Cover;
pub use plan::Plan;

use self::agenda::Action;
use self::cover::opcode_name;
use self::fabric::Fabric;
use self::fabric::Fault;
use self::fabric::Flight;
use self::node::Node;
use self::work::Buf;
use super::Endpoint;
use super::HostMemory;
use super::Rng;
use crate::Instant;
use crate::Packet;
use crate::Sge;

/// Most turns of a run.
const TURNS: usize = 400_000;

/// A host: its memory and its shared receive queue.
struct Host {
    mem: HostMemory,
    /// Next free byte of the memory that everything is in, and of the memory that may be revoked.
    free: u64,
    spare: u64,
    /// The shared receive queue, and all receives ever posted to it.
    srq: VecDeque<(u64, Vec<Sge>)>,
    srq_bufs: Vec<Buf>,
}

/// A run.
pub struct World {
    /// The clock.
    now: Instant,
    plan: Plan,
    hosts: Vec<Host>,
    nodes: Vec<Node>,
    fabric: Fabric,
    agenda: BTreeMap<(Instant, u64), Action>,
    actions: u64,
    rng: Rng,
    /// Keys given to regions that are to be invalidated.
    keys: u32,
    /// Kinds of message that a queue pair may not send, because its peer refuses them.
    banned: &'static [u64],
    /// Memory that may have been written.
    touched: Vec<ending::Touched>,
    /// What was met.
    cover: Cover,
    /// What was sent, as frames with times.
    frames: Option<Vec<(Instant, Vec<u8>)>>,
    /// Tell everything.
    tell: bool,
    /// The first breach of a rule.
    breach: Option<String>,
}

/// What came of a run.
pub struct Outcome {
    /// What it met.
    pub cover: Cover,
    /// Its frames, if they were kept.
    pub frames: Vec<(Instant, Vec<u8>)>,
    /// The first breach of a rule.
    pub breach: Option<String>,
}

impl World {
    /// The run of a seed; `tell` prints it while it goes, `keep` keeps its frames.
    pub fn run(seed: u64, tell: bool, keep: bool) -> Outcome {
        let plan = Plan::new(seed);
        let mut world = Self::new(plan, tell, keep);
        world.start();
        world.go();
        if world.breach.is_none() {
            world.ending();
        }
        world.cover.runs = 1;
        Outcome {
            cover: world.cover,
            frames: world.frames.unwrap_or_default(),
            breach: world.breach,
        }
    }

    fn new(plan: Plan, tell: bool, keep: bool) -> Self {
        let host = |_| {
            let mem = HostMemory::default();
            mem.register(Endpoint::KEY, Endpoint::VA, Endpoint::LEN);
            Host {
                mem,
                free: 0,
                spare: 0,
                srq: VecDeque::new(),
                srq_bufs: Vec::new(),
            }
        };
        let hosts: Vec<Host> = (0..plan.hosts).map(host).collect();
        let nodes = plan.nodes.iter().enumerate();
        let nodes = nodes.map(|(n, params)| Node::new(n, *params, hosts[params.host].mem.clone()));
        Self {
            now: Instant(1_000_000),
            fabric: Fabric::new(plan.weather, plan.family),
            nodes: nodes.collect(),
            hosts,
            agenda: BTreeMap::new(),
            actions: 0,
            rng: Rng::new(plan.seed),
            keys: 0,
            banned: &[],
            touched: Vec::new(),
            cover: Cover::default(),
            frames: keep.then(Vec::new),
            tell,
            breach: None,
            plan,
        }
    }

    /// A rule is broken.
    fn breach(&mut self, node: usize, what: impl Into<String>) {
        let text = format!("qp{node} at {}: {}", self.clock(), what.into());
        self.note(|| format!("BREACH {text}"));
        self.breach.get_or_insert(text);
    }

    fn clock(&self) -> String {
        let ns = self.now.0 - 1_000_000;
        format!("{}.{:03} µs", ns / 1000, ns % 1000)
    }

    /// A line of the trace.
    fn note(&self, text: impl FnOnce() -> String) {
        if self.tell {
            println!("{:>14}  {}", self.clock(), text());
        }
    }

    /// Runs until nothing is left to happen.
    fn go(&mut self) {
        for _ in 0..TURNS {
            if self.breach.is_some() || !self.turn() {
                return;
            }
        }
        self.breach(0, format!("the run is still busy after {TURNS} turns"));
    }

    /// Sends, then moves the clock to what comes next and lets that happen. `false` if nothing will.
    fn turn(&mut self) -> bool {
        for node in 0..self.nodes.len() {
            if self.nodes[node].busy {
                self.transmit(node);
            }
        }
        let timeouts = self.nodes.iter().filter_map(|n| n.end.qp.poll_timeout());
        let planned = self.agenda.keys().next().map(|key| key.0);
        let Some(at) = timeouts.chain(planned).chain(self.fabric.next()).min() else {
            return false;
        };
        self.now = self.now.max(at);
        while let Some(flight) = self.fabric.arrive(self.now) {
            self.arrive(flight);
            if self.breach.is_some() {
                return false;
            }
        }
        for node in 0..self.nodes.len() {
            let due = self.nodes[node].end.qp.poll_timeout();
            // A call that comes too early must do no harm.
            if due.is_some_and(|at| at <= self.now) || self.rng.per_mille(10) {
                self.note(|| format!("qp{node} timer"));
                self.with(node, |end, now| end.qp.handle_timeout(now, &mut end.env));
            }
        }
        while let Some(entry) = self.agenda.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let action = entry.remove();
            self.act(action);
        }
        true
    }

    /// Calls a queue pair with its host's shared receives at hand, then looks at what it has reported. Returns whether
    /// it took a receive.
    fn with(&mut self, node: usize, call: impl FnOnce(&mut Endpoint, Instant)) -> bool {
        let now = self.now;
        let here = &mut self.nodes[node];
        let host = here.plan.host;
        if here.plan.srq {
            std::mem::swap(&mut self.hosts[host].srq, &mut here.end.env.recvs);
        }
        let before = here.receives();
        call(&mut here.end, now);
        here.end.flush();
        let taken = here.receives() < before;
        if here.plan.srq {
            std::mem::swap(&mut self.hosts[host].srq, &mut here.end.env.recvs);
        }
        here.busy = true;
        here.life.held |= taken;
        self.collect(node);
        taken
    }

    /// Sends all that a queue pair has to send.
    fn transmit(&mut self, node: usize) {
        self.nodes[node].busy = false;
        let mut asked = false;
        loop {
            let max = 1 + self.rng.below(20) as usize;
            let mut next = None;
            self.with(node, |end, now| {
                next = end.qp.poll_transmit(now, max, &mut end.env)
            });
            let Some(t) = next else { break };
            if !(1..=max).contains(&t.count()) {
                self.breach(node, format!("a run of {} packets", t.count()));
                return;
            }
            let mut run = Vec::new();
            let mut error = None;
            for i in 0..t.count() {
                if t.packet_len(i) > t.packet_len(0)
                    || t.packet_len(i) < t.packet_len(0) && i + 1 < t.count()
                {
                    self.breach(node, "a run of unequal packets");
                }
                let end = &self.nodes[node].end;
                let mut body = vec![0xee; t.packet_len(i)];
                match end.qp.write_packet(&t, i, &mut body, &end.env.mem) {
                    Ok(()) => run.push(body),
                    Err(why) => error = error.or(Some(why)),
                }
            }
            if let Some(error) = error {
                self.with(node, |end, _| {
                    end.qp.transmit_failed(&t, error, &mut end.env)
                });
                continue;
            }
            for body in run {
                asked |= self.emit(node, t.ah(), t.dest_qpn(), &body);
                if self.breach.is_some() {
                    return;
                }
            }
        }
        self.nodes[node].busy = false;
        self.drained(node, asked);
    }

    /// Judges a packet and puts it on its way; returns whether it is a request.
    fn emit(&mut self, node: usize, ah: Option<u64>, dest_qpn: u32, body: &[u8]) -> bool {
        let Ok(pkt) = Packet::parse(body) else {
            self.breach(node, format!("sends nonsense: {body:02x?}"));
            return false;
        };
        let request = !pkt.opcode.op.is_response();
        if pkt.bth.dest_qpn != dest_qpn || !pkt.bth.migrated || pkt.bth.pkey != 0xffff {
            self.breach(node, format!("header bits are wrong: {:?}", pkt.bth));
        }
        if request {
            self.judge_request(node, &pkt);
        } else {
            self.judge_answer(node, &pkt);
        }
        let plan = self.nodes[node].plan;
        let to = match ah {
            Some(host) => host as usize,
            None => self.nodes[Plan::peer(node)].plan.host,
        };
        let way = (plan.host, to, plan.pair);
        let (frame, fault) = self.fabric.send(self.now, way, body, &mut self.rng);
        self.note(|| format!("qp{node} -> {}{}", describe(&pkt), befell(fault)));
        if matches!(fault, Fault::Loss | Fault::Partition | Fault::Corrupt) {
            self.cover_packet(pkt.bth.opcode, fault, pkt.bth.dest_qpn);
        }
        if let Some(frames) = &mut self.frames {
            frames.push((self.now, frame));
        }
        request
    }

    fn cover_packet(&mut self, opcode: u8, fault: Fault, dest_qpn: u32) {
        let dest = dest_qpn.wrapping_sub(node::FIRST_QPN) as usize;
        if let Some(there) = self.nodes.get(dest) {
            self.cover.packet(opcode, fault, there.end.qp.state());
        }
    }
}

fn befell(fault: Fault) -> String {
    match fault {
        Fault::None => String::new(),
        other => format!("  [{}]", other.name()),
    }
}

/// A packet in a line.
fn describe(pkt: &Packet<'_>) -> String {
    let mut text = format!(
        "qp{} {} psn {:#08x}",
        pkt.bth.dest_qpn.wrapping_sub(node::FIRST_QPN),
        opcode_name(pkt.bth.opcode),
        pkt.bth.psn.get()
    );
    if let Some(reth) = &pkt.reth {
        text += &format!(" va {:#x} key {:#x} len {}", reth.va, reth.rkey, reth.len);
    }
    if let Some(aeth) = &pkt.aeth {
        text += &format!(" {:?} msn {}", aeth.syndrome, aeth.msn);
    }
    if !pkt.payload.is_empty() {
        text += &format!(" {} bytes", pkt.payload.len());
    }
    for (set, word) in [
        (pkt.bth.ack_req, "ackreq"),
        (pkt.bth.solicited, "solicited"),
    ] {
        if set {
            text += " ";
            text += word;
        }
    }
    text
}

/// A frame that arrives: what the host makes of it.
impl World {
    fn arrive(&mut self, flight: Flight) {
        let opened = frame::open(self.fabric.family, flight.to, &flight.frame);
        let Some(opened) = opened else {
            if flight.fault != Fault::Corrupt {
                self.breach(0, "an intact frame was not understood");
            }
            return;
        };
        let Ok(mut pkt) = Packet::parse(&opened.body) else {
            self.breach(
                0,
                format!("an intact packet does not parse: {:02x?}", opened.body),
            );
            return;
        };
        pkt.grh = pkt.deth.map(|_| opened.grh);
        if flight.fault != Fault::Corrupt {
            self.cover_packet(pkt.bth.opcode, flight.fault, pkt.bth.dest_qpn);
        }
        let node = pkt.bth.dest_qpn.wrapping_sub(node::FIRST_QPN) as usize;
        if self
            .nodes
            .get(node)
            .is_none_or(|n| n.plan.host != flight.to)
        {
            self.breach(0, format!("a packet for qp{node} at host {}", flight.to));
            return;
        }
        self.note(|| format!("        {} arrives{}", describe(&pkt), befell(flight.fault)));
        self.hand(node, &pkt);
        if self.rng.per_mille(500) {
            self.transmit(node);
        }
    }
}
