// SPDX-License-Identifier: GPL-2.0

//! Work requests that send nothing: windows, keys and fast registrations (section 10.8.3.3, "Work Request Operation
//! Ordering").
//!
//! The queue gives them their turn and the caller does the deed, see [`super::Env::local`]. They have no PSN, so
//! nothing acknowledges them: they are done when they have run and all before them is complete. Sending again what got
//! lost passes over those that have run.

use super::queue::Place;
use super::Env;
use super::LocalOp;
use super::Qp;
use super::SendOp;
use super::Store;
use super::WcStatus;

impl<S: Store> Qp<S> {
    /// Runs the local operations that are next in the send queue before work request `limit`. One that fails stays
    /// where it is, and fails the queue when it is the oldest.
    pub(super) fn run_local(&mut self, limit: u64, env: &mut impl Env) {
        while self.req.cursor.wqe < limit {
            let n = self.req.cursor.wqe;
            let Some((op, fence)) = self.local(n) else {
                return;
            };
            if n >= self.req.started {
                let fails = self.req.broken.is_some_and(|(broken, _)| broken == n);
                if fails || self.local_waits(n, &op, fence) {
                    return;
                }
                if let Err(status) = env.local(&op) {
                    self.req.broken = Some((n, status));
                    return;
                }
                self.req.started = n + 1;
            }
            self.req.cursor = Place {
                wqe: n + 1,
                packet: 0,
            };
            self.req.furthest = self.req.furthest.max(self.req.cursor);
            self.complete_local(env);
        }
    }

    /// Work request `n`, if it is a local operation, and whether it is fenced.
    fn local(&self, n: u64) -> Option<(LocalOp, bool)> {
        let wqe = self.wqe(n)?;
        match wqe.op {
            SendOp::Local(op) => Some((op, wqe.flags.fence)),
            _ => None,
        }
    }

    /// An operation that takes a key away waits for all before it, which may have to read that memory again. Others
    /// wait for READs and atomics if they are fenced.
    fn local_waits(&self, n: u64, op: &LocalOp, fence: bool) -> bool {
        let oldest = n == self.ring.head.wqe;
        let takes_away = matches!(op, LocalOp::Invalidate { .. });
        takes_away && !oldest || fence && self.req.fetching > 0
    }

    /// Completes the local operations at the head of the queue that have run.
    pub(super) fn complete_local(&mut self, env: &mut impl Env) {
        while self.ring.head.wqe < self.req.started && self.local(self.ring.head.wqe).is_some() {
            self.complete_oldest(WcStatus::Success, env);
        }
    }
}
