// SPDX-License-Identifier: GPL-2.0

//! What the owners of queues have to be told once a QP's lock is dropped: completion handlers
//! may want that lock.

use super::{
    create::Kind,
    Cq,
    Srq, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// What the owner of a CQ has to be told.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CqDue {
    /// The completion that it has waited for.
    pub(super) completion: bool,
    /// That completions were lost.
    pub(super) overrun: bool,
}

impl core::ops::BitOrAssign for CqDue {
    fn bitor_assign(&mut self, other: Self) {
        self.completion |= other.completion;
        self.overrun |= other.overrun;
    }
}

impl CqDue {
    pub(super) fn tell(self, cq: &Cq) {
        if self.completion {
            cq.notify();
        }
        if self.overrun {
            cq.tell_overrun();
        }
    }
}

/// What has to be told of the QP and of its own CQs.
#[derive(Default)]
pub(super) struct Due {
    pub(super) send: CqDue,
    pub(super) recv: CqDue,
    /// Bit per `enum ib_event_type`.
    pub(super) events: u32,
    /// Its limit was reached.
    pub(super) srq: Option<Arc<Srq>>,
}

impl Due {
    pub(super) fn is_empty(&self) -> bool {
        let none = CqDue::default();
        self.send == none && self.recv == none && self.events == 0 && self.srq.is_none()
    }
}

/// The same of the CQs that an XRC target's receives complete on: those of the SRQs that its
/// peer names. Other QPs have none.
#[derive(Default)]
pub(super) struct XrcDue(KVec<(Arc<Cq>, CqDue)>);

impl XrcDue {
    /// CQs that can wait at once.
    pub(super) const MOST: usize = 16;

    /// Fails with `ENOMEM`.
    pub(super) fn new(kind: Kind) -> Result<Self> {
        let most = match kind {
            Kind::XrcTgt => Self::MOST,
            _ => 0,
        };
        Ok(Self(KVec::with_capacity(most, GFP_KERNEL_ACCOUNT)?))
    }

    /// Whether [`Self::add`] will have a place for `cq`.
    pub(super) fn has_room(&self, cq: &Arc<Cq>) -> bool {
        self.0.len() < self.0.capacity() || self.0.iter().any(|(other, _)| Arc::ptr_eq(other, cq))
    }

    /// Adds what is due to the owner of `cq`.
    pub(super) fn add(&mut self, cq: &Arc<Cq>, due: CqDue) {
        if due == CqDue::default() {
            return;
        }
        match self.0.iter_mut().find(|(other, _)| Arc::ptr_eq(other, cq)) {
            Some((_, before)) => *before |= due,
            // There is room: who takes a receive asks before, and a QP takes one at a time.
            None => drop(self.0.push_within_capacity((cq.clone(), due))),
        }
    }

    /// The next one to be told.
    pub(super) fn take(&mut self) -> Option<(Arc<Cq>, CqDue)> {
        self.0.pop()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
