// SPDX-License-Identifier: GPL-2.0

//! Memory of the hosts: given out piece by piece, never taken back, so that each byte has one meaning in a run.

use super::node::SGES;
use super::plan::Trouble;
use super::World;
use crate::sim::Endpoint;
use crate::sim::Rng;
use crate::Sge;

/// Key of memory that may be revoked.
pub const SPARE_KEY: u32 = 0x3333;
/// Address of it.
pub const SPARE_VA: u64 = 0x10_0000_0000;
/// Bytes that depend on the generator's state.
pub fn pattern(rng: &mut Rng, len: u32) -> Vec<u8> {
    let words = (0..len.div_ceil(8)).map(|_| rng.next_u64().to_le_bytes());
    let mut bytes: Vec<u8> = words.flatten().collect();
    bytes.truncate(len as usize);
    bytes
}

impl World {
    /// Fresh memory of a node's host, with a gap behind it.
    pub(super) fn alloc(&mut self, node: usize, len: u32) -> Sge {
        let plan = &self.nodes[node].plan;
        let spare = self.plan.trouble[plan.pair] == Trouble::Revoke { side: plan.side };
        let host = &mut self.hosts[plan.host];
        let (free, addr, lkey, most) = if spare {
            (&mut host.spare, SPARE_VA, SPARE_KEY, 1 << 20)
        } else {
            (
                &mut host.free,
                Endpoint::VA,
                Endpoint::KEY,
                Endpoint::LEN as u64,
            )
        };
        let addr = addr + *free;
        *free += u64::from(len) + 1 + (free.wrapping_mul(7) & 7);
        assert!(*free < most, "out of simulated memory");
        Sge { addr, len, lkey }
    }

    /// Fresh memory in pieces.
    pub(super) fn pieces(&mut self, rng: &mut Rng, node: usize, len: u32) -> Vec<Sge> {
        let count = if rng.per_mille(600) {
            1
        } else {
            1 + rng.below(SGES as u64) as usize
        };
        let mut left = len;
        let mut sges = Vec::new();
        for last in (0..count).rev() {
            let here = if last == 0 {
                left
            } else {
                rng.below(u64::from(left) + 1) as u32
            };
            sges.push(self.alloc(node, here));
            left -= here;
        }
        if len == 0 && rng.per_mille(500) {
            sges.clear();
        }
        sges
    }

    /// Writes to a node's memory as its program would.
    pub(super) fn poke(&self, node: usize, sges: &[Sge], data: &[u8]) {
        let mem = &self.nodes[node].end.env.mem;
        let mut rest = data;
        for sge in sges {
            let (here, later) = rest.split_at(rest.len().min(sge.len as usize));
            mem.poke(sge.lkey, sge.addr, here);
            rest = later;
        }
    }

    /// The first `len` bytes that the pieces hold.
    pub(super) fn peek(&self, node: usize, sges: &[Sge], len: u32) -> Vec<u8> {
        let mem = &self.nodes[node].end.env.mem;
        let mut out = Vec::with_capacity(len as usize);
        for sge in sges {
            let here = (sge.len as usize).min(len as usize - out.len());
            out.extend(mem.peek(sge.lkey, sge.addr, here));
        }
        out
    }
}
