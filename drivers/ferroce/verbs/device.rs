// SPDX-License-Identifier: GPL-2.0

//! A device on one interface: its tables of objects and its limits.

use super::{
    counters::{
        Counter,
        Counters, //
    },
    multicast::Groups,
    Ah,
    FastMr,
    Mr,
    Mw,
    Qp,
    Srq, //
};
use crate::{
    kernel_ext::{
        ib::device::IbDevice,
        lock::{
            new_bh_lock,
            BhLock, //
        },
        netdev::NetDevice,
        rcu::RcuTable, //
    },
    net::{
        Attachment,
        Interface,
        Path,
        PathConfig,
        Stack, //
    },
};
use core::sync::atomic::{
    AtomicBool,
    AtomicU32,
    AtomicU64,
    Ordering, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        Mutex, //
    },
};

/// What a device offers, in the terms of `struct ib_device_attr`.
pub(crate) mod limits {
    /// Work requests in a queue.
    pub(crate) const QP_WR: u32 = (1 << 15) - 1;
    /// Scatter/gather entries of a work request.
    pub(crate) const SGE: u32 = 64;
    /// Bytes of a work request that carries its data.
    pub(crate) const INLINE: u32 = SGE * 16;
    /// Completions in a queue.
    pub(crate) const CQE: u32 = (1 << 15) - 1;
    /// READs and atomics that a responder keeps for replay.
    pub(crate) const RD_ATOMIC: u8 = 128;
    /// QP numbers; 0 and 1 are special.
    pub(crate) const QPN: core::ops::Range<u32> = 16..1 << 20;
    /// Numbers of address handles; 0 is for none.
    pub(crate) const AH: core::ops::Range<u32> = 1..1 << 24;
    /// Shared receive queues.
    pub(crate) const SRQ: core::ops::Range<u32> = 1..1 << 20;
    /// Memory regions, by the index of their keys.
    pub(crate) const MR: core::ops::Range<u32> = 1..1 << 22;
    /// Multicast groups with members.
    pub(crate) const GROUPS: u32 = 8192;
    /// QPs in a multicast group, each of which gets a copy in softirq.
    pub(crate) const GROUP_QPS: usize = 64;
    /// Memory windows, in the same space.
    pub(crate) const MW: core::ops::Range<u32> = MR.end..1 << 23;
    /// Regions for fast registration, in the same space.
    pub(crate) const FAST_MR: core::ops::Range<u32> = MW.end..1 << 24;
    /// Pages of a fast registration.
    pub(crate) const FAST_PAGES: u32 = 512;
    /// Entries of the GID table.
    pub(crate) const GIDS: i32 = 1024;
}

/// Protection domain: objects of one do not reach those of another.
pub(crate) struct Pd {
    /// The device it is of.
    pub(crate) dev: Arc<Device>,
    /// Distinguishes it from all others of the device.
    pub(crate) id: u32,
    /// Its user is the kernel, which may reach kernel memory.
    pub(crate) kernel: bool,
}

/// XRC domain: targets of one take from SRQs of that one (IBTA annex A14).
pub(crate) struct Xrcd {
    /// Distinguishes it from all others of the device.
    pub(crate) id: u32,
}

/// A RoCEv2 device.
#[pin_data]
pub(crate) struct Device {
    /// The core's object, which owns us.
    pub(crate) ib: IbDevice,
    /// The interface's index in its namespace.
    pub(crate) ifindex: u32,
    /// `enum ib_mtu` that fits into the interface's MTU.
    mtu: AtomicU32,
    /// Whether the interface had a carrier when we last looked.
    active: AtomicBool,
    /// EUI-64 of the interface, big-endian: node and system image GUID.
    pub(crate) guid: [u8; 8],
    /// What happened.
    pub(crate) counters: Counters,
    /// By QP number.
    #[pin]
    pub(crate) qps: RcuTable<Qp>,
    /// Multicast groups.
    #[pin]
    pub(super) groups: Groups,
    /// By key without its variant byte.
    #[pin]
    pub(crate) mrs: RcuTable<Mr>,
    /// By number.
    #[pin]
    pub(super) srqs: RcuTable<Srq>,
    /// By number.
    #[pin]
    pub(super) ahs: RcuTable<Ah>,
    /// The same for windows, whose indices are others.
    #[pin]
    pub(crate) mws: RcuTable<Mw>,
    /// The same for fast registrations.
    #[pin]
    pub(super) fast_mrs: RcuTable<FastMr>,
    /// Where the search for the next free number begins.
    #[pin]
    pub(crate) next: Mutex<Cursors>,
    next_pd: AtomicU32,
    /// Serial number of the next QP.
    pub(super) next_serial: AtomicU64,
    /// The next address handle's number to try.
    pub(super) next_ah: AtomicU32,
    /// Our place on the interface, until the device is removed.
    #[pin]
    attachment: BhLock<Option<Attachment<Device>>>,
}

/// The next QP number and memory key to try.
#[derive(Default)]
pub(crate) struct Cursors {
    /// QP number.
    pub(crate) qpn: u32,
    /// Number of a shared receive queue.
    pub(crate) srq: u32,
    /// Index of a memory key.
    pub(crate) mr: u32,
    /// Index of a window's key.
    pub(crate) mw: u32,
    /// Index of a fast registration's key.
    pub(crate) fast_mr: u32,
    /// Variant byte of the next memory key.
    pub(crate) variant: u8,
}

impl Device {
    /// The driver's part of the core's device `ib` on `ndev`.
    pub(crate) fn new(ib: IbDevice, ndev: &NetDevice, guid: [u8; 8]) -> Result<Arc<Self>> {
        let counters = Counters::new()?;
        Arc::pin_init(
            pin_init!(Self {
                ib,
                ifindex: ndev.ifindex(),
                mtu: AtomicU32::new(path_mtu(ndev.mtu())),
                guid,
                active: AtomicBool::new(ndev.is_active()),
                counters,
                qps <- RcuTable::new(),
                groups <- Groups::new(),
                mrs <- RcuTable::new(),
                srqs <- RcuTable::new(),
                ahs <- RcuTable::new(),
                mws <- RcuTable::new(),
                fast_mrs <- RcuTable::new(),
                next <- new_mutex!(Cursors::default()),
                next_pd: AtomicU32::new(1),
                next_serial: AtomicU64::new(0),
                next_ah: AtomicU32::new(0),
                attachment <- new_bh_lock!(None, "Device::attachment"),
            }),
            GFP_KERNEL,
        )
    }

    /// Starts to receive on the interface. Fails as [`Stack::attach`] does.
    pub(crate) fn attach(dev: &Arc<Self>, stack: &Stack<Self>, ndev: &NetDevice) -> Result {
        let attachment = stack.attach(ndev, dev.clone())?;
        *dev.attachment.lock() = Some(attachment);
        Ok(())
    }

    /// A way to a peer; `ENODEV` once the device is being removed. Does not sleep.
    pub(crate) fn path(&self, config: &PathConfig) -> Result<Path> {
        self.attachment.lock().as_ref().ok_or(ENODEV)?.path(config)
    }

    /// The interface, until the device is removed.
    pub(super) fn interface(&self) -> Option<Interface> {
        self.attachment.lock().as_ref().map(Attachment::interface)
    }

    /// Stops to receive. No packet is on its way in after this.
    pub(crate) fn detach(&self) {
        let attachment = self.attachment.lock().take();
        if let Some(attachment) = attachment {
            attachment.detach();
        }
    }

    /// `enum ib_mtu` of the port.
    pub(crate) fn mtu(&self) -> u32 {
        self.mtu.load(Ordering::Relaxed)
    }

    /// The interface has gained or lost its carrier, perhaps.
    pub(crate) fn set_link_state(&self, active: bool) {
        let before = self.active.swap(active, Ordering::Relaxed);
        if before && !active {
            self.counters.add(Counter::LinkDowned, 1);
        }
    }

    /// The interface's MTU changed.
    pub(crate) fn set_link_mtu(&self, bytes: u32) {
        self.mtu.store(path_mtu(bytes), Ordering::Relaxed);
    }

    /// A new XRC domain.
    pub(crate) fn alloc_xrcd(dev: ArcBorrow<'_, Self>) -> Result<Arc<Xrcd>> {
        let id = dev.next_pd.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Xrcd { id }, GFP_KERNEL)?)
    }

    /// A new protection domain, for a process or for a `kernel` user.
    pub(crate) fn alloc_pd(dev: ArcBorrow<'_, Self>, kernel: bool) -> Result<Arc<Pd>> {
        let id = dev.next_pd.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(
            Pd {
                dev: dev.into(),
                id,
                kernel,
            },
            GFP_KERNEL,
        )?)
    }
}

/// The largest `enum ib_mtu` (1: 256 … 5: 4096) whose packets fit into a link's MTU.
///
/// 80 bytes are for IPv6, UDP, BTH, the longest extended headers and the ICRC.
fn path_mtu(link: u32) -> u32 {
    (2..=5)
        .rev()
        .find(|mtu| (128 << mtu) + 80 <= link)
        .unwrap_or(1)
}
