// SPDX-License-Identifier: GPL-2.0

//! Multicast groups of a device: which QPs get a copy of what is sent to a group
//! (IBTA 10.5, A17.4.6).
//!
//! A group is found under RCU by a hash of its GID. QPs are members by number: a QP is
//! detached before it is destroyed, as the core sees to. While a group has members the
//! interface is a member of the IP group that the GID stands for.

use super::{
    counters::Counter,
    device::limits,
    Device,
    Qp, //
};
use crate::{
    engine::{
        Instant,
        Packet, //
    },
    kernel_ext::rcu::RcuTable,
};
use core::{
    net::{
        IpAddr,
        Ipv6Addr, //
    },
    sync::atomic::{
        AtomicU32,
        Ordering, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        rcu,
        Arc,
        Mutex, //
    },
};

/// The GID of a group.
pub(crate) type Mgid = [u8; 16];

/// No QP has this number.
const NOBODY: u32 = 0;

/// A group and the QPs in it.
struct Group {
    mgid: Mgid,
    members: [AtomicU32; limits::GROUP_QPS],
}

impl Group {
    fn new(mgid: Mgid) -> Self {
        let members = [const { AtomicU32::new(NOBODY) }; limits::GROUP_QPS];
        Self { mgid, members }
    }

    fn members(&self) -> impl Iterator<Item = u32> + '_ {
        let all = self.members.iter().map(|slot| slot.load(Ordering::Relaxed));
        all.filter(|&qpn| qpn != NOBODY)
    }

    /// The slot that holds `qpn`, or is free if that is [`NOBODY`].
    fn slot(&self, qpn: u32) -> Option<&AtomicU32> {
        self.members
            .iter()
            .find(|slot| slot.load(Ordering::Relaxed) == qpn)
    }

    /// The IP group; IPv4 is mapped into IPv6 as in all GIDs.
    fn address(&self) -> IpAddr {
        let ip = Ipv6Addr::from(self.mgid);
        ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4)
    }
}

/// The groups whose GIDs have one hash.
struct Bucket(KVec<Arc<Group>>);

impl Bucket {
    fn find(&self, mgid: &Mgid) -> Option<&Arc<Group>> {
        self.0.iter().find(|group| group.mgid == *mgid)
    }
}

/// The groups of a device.
#[pin_data]
pub(crate) struct Groups {
    #[pin]
    table: RcuTable<Bucket>,
    /// How many have members. Held over changes; RTNL is taken under it.
    #[pin]
    count: Mutex<u32>,
}

/// FNV-1a.
fn hash(mgid: &Mgid) -> u32 {
    mgid.iter().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

impl Groups {
    /// None.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            table <- RcuTable::new(),
            count <- new_mutex!(0),
        })
    }

    fn get(&self, mgid: &Mgid) -> Option<Arc<Group>> {
        let guard = rcu::read_lock();
        let bucket = self.table.get(hash(mgid), &guard)?;
        bucket.find(mgid).cloned()
    }

    /// Puts the groups of `group`'s hash back without it, and with it if `stays`.
    fn rehash(&self, group: &Arc<Group>, stays: bool) -> Result {
        let index = hash(&group.mgid);
        let mut groups = KVec::new();
        let bucket = |guard: &rcu::Guard| Some(Arc::from(self.table.get(index, guard)?));
        let old: Option<Arc<Bucket>> = bucket(&rcu::read_lock());
        for other in old.iter().flat_map(|bucket| bucket.0.iter()) {
            if other.mgid != group.mgid {
                groups.push(other.clone(), GFP_KERNEL)?;
            }
        }
        if stays {
            groups.push(group.clone(), GFP_KERNEL)?;
        }
        if groups.is_empty() {
            self.table.remove(index);
            return Ok(());
        }
        self.table
            .replace(index, Arc::new(Bucket(groups), GFP_KERNEL)?)
    }
}

impl Qp {
    /// Lets it have a copy of what is sent to a group. Fails as [`Device::attach_group`] does.
    pub(crate) fn attach_group(&self, mgid: Mgid) -> Result {
        self.dev.attach_group(mgid, self.qpn)
    }

    /// Undoes that. Fails with `EINVAL` if it is not in the group.
    pub(crate) fn detach_group(&self, mgid: Mgid) -> Result {
        self.dev.detach_group(mgid, self.qpn)
    }
}

impl Device {
    /// Lets a QP have a copy of what is sent to a group, if it has not yet.
    ///
    /// Fails with `ENOMEM` beyond the limits of the device, as rdma_rxe does, or with what
    /// the interface says when it joins.
    pub(crate) fn attach_group(&self, mgid: Mgid, qpn: u32) -> Result {
        let mut count = self.groups.count.lock();
        let (group, new) = match self.groups.get(&mgid) {
            Some(group) => (group, false),
            None if *count >= limits::GROUPS => return Err(ENOMEM),
            None => (Arc::new(Group::new(mgid), GFP_KERNEL)?, true),
        };
        if group.slot(qpn).is_some() {
            return Ok(());
        }
        let free = group.slot(NOBODY).ok_or(ENOMEM)?;
        if group.members().next().is_none() {
            self.interface().ok_or(ENODEV)?.join(group.address())?;
            *count += 1;
        }
        if new {
            let listed = self.groups.rehash(&group, true);
            listed.inspect_err(|_| {
                self.leave(&group);
                *count -= 1;
            })?;
        }
        free.store(qpn, Ordering::Relaxed);
        Ok(())
    }

    /// Undoes [`Self::attach_group`]. Fails with `EINVAL` if the QP is not in the group.
    pub(crate) fn detach_group(&self, mgid: Mgid, qpn: u32) -> Result {
        let mut count = self.groups.count.lock();
        let group = self.groups.get(&mgid).ok_or(EINVAL)?;
        group
            .slot(qpn)
            .ok_or(EINVAL)?
            .store(NOBODY, Ordering::Relaxed);
        if group.members().next().is_none() {
            *count -= 1;
            self.leave(&group);
            // For want of memory a group without members stays, which does no harm.
            let _ = self.groups.rehash(&group, false);
        }
        Ok(())
    }

    fn leave(&self, group: &Group) {
        if let Some(interface) = self.interface() {
            interface.leave(group.address());
        }
    }

    /// Gives a packet to the members of a group. Softirq.
    pub(super) fn receive_group(
        &self,
        mgid: &Mgid,
        vlan: Option<u16>,
        now: Instant,
        packet: &Packet<'_>,
        rcu: &rcu::Guard,
    ) {
        let bucket = self.groups.table.get(hash(mgid), rcu);
        let Some(group) = bucket.as_ref().and_then(|bucket| bucket.find(mgid)) else {
            self.counters.add(Counter::NoGroup, 1);
            return;
        };
        for qp in group.members().filter_map(|qpn| self.qps.get(qpn, rcu)) {
            qp.with_engine(rcu, |engine, env| {
                env.side.vlan = vlan;
                engine.handle_packet(now, packet, env);
            });
            qp.finish(rcu);
        }
    }
}
