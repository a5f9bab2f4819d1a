// SPDX-License-Identifier: GPL-2.0

//! An `ib_device` written in safe Rust.
//!
//! A driver implements [`Driver`]; [`device`] registers it with the RDMA core and
//! [`ops`] turns the core's callbacks into its methods. The core allocates its own
//! object for each PD, CQ and QP; behind it lies one pointer to the driver's
//! reference-counted object ([`slot`]), so that the packet path may hold on to one
//! that the core has freed. Queues are [`Ring`]s that [`mmap`] shows to user space.
//!
//! C side: include/rdma/ib_verbs.h, drivers/infiniband/core/device.c.

pub(crate) mod details;
pub(crate) mod device;
pub(crate) mod gid;
mod mmap;
mod ops;
pub(crate) mod pma;
pub(crate) mod port;
mod slot;
pub(crate) mod stats;
pub(crate) mod wr;

use super::{
    kmem::DirectMap,
    netdev::NetDevice,
    ring::Ring, //
};
use crate::bindings;
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
};

/// What a driver gives to the RDMA core. All methods run in process context unless said.
pub(crate) trait Driver: Sized + 'static {
    /// The `rdma link add … type` name.
    const LINK_TYPE: &'static CStr;
    /// `enum rdma_driver_id`, by which user space picks its provider.
    const DRIVER_ID: bindings::rdma_driver_id;
    /// ABI version of that provider.
    const ABI_VERSION: u32;

    /// The names of a port's counters.
    const COUNTERS: &'static [stats::StatName];

    /// The device behind an `ib_device`.
    type Device: Send + Sync;
    /// Protection domain.
    type Pd: Send + Sync;
    /// Address handle.
    type Ah: Send + Sync;
    /// Completion queue.
    type Cq: Send + Sync;
    /// XRC domain.
    type Xrcd: Send + Sync;
    /// Shared receive queue.
    type Srq: Send + Sync;
    /// Queue pair.
    type Qp: Send + Sync;
    /// Memory region.
    type Mr: Send + Sync;
    /// Region for fast registration.
    type FastMr: Send + Sync;
    /// Memory window.
    type Mw: Send + Sync;

    /// The static that holds this driver's table for the core.
    fn link_ops() -> &'static device::LinkOps;
    /// `rdma link add NAME type … netdev DEV`; RTNL is not held.
    fn new_link(name: &CStr, ndev: &NetDevice) -> Result;
    /// The device is about to go: no packet may reach it after this.
    fn remove(dev: ArcBorrow<'_, Self::Device>);

    /// Whether ports speak RoCEv1 besides RoCEv2.
    fn roce_v1() -> bool;
    /// Fills in capabilities.
    fn query_device(dev: &Self::Device, attr: &mut bindings::ib_device_attr);
    /// Fills in what does not come from the netdev.
    fn query_port(dev: &Self::Device, attr: &mut bindings::ib_port_attr);

    /// Tells details of a CQ.
    fn describe_cq(cq: &Self::Cq, out: &mut details::Details);
    /// Tells details of a QP.
    fn describe_qp(qp: &Self::Qp, out: &mut details::Details);
    /// Tells details of an SRQ.
    fn describe_srq(srq: &Self::Srq, out: &mut details::Details);
    /// Tells details of the region under `key`, if it is still there.
    fn describe_mr(dev: &Self::Device, key: u32, out: &mut details::Details);

    /// The value of counter `index` of [`Self::COUNTERS`].
    fn counter(dev: &Self::Device, index: usize) -> u64;

    /// What the port has counted, for the performance manager.
    fn port_counters(dev: &Self::Device) -> pma::PortCounters;

    /// A new protection domain, for a process or for a `kernel` user.
    fn alloc_pd(dev: ArcBorrow<'_, Self::Device>, kernel: bool) -> Result<Arc<Self::Pd>>;

    /// A new address handle. Any context.
    fn create_ah(pd: ArcBorrow<'_, Self::Pd>, attr: &gid::AhAttr) -> Result<Arc<Self::Ah>>;
    /// The number by which requests name it.
    fn ah_number(ah: &Self::Ah) -> u32;
    /// Changes where it leads.
    fn modify_ah(ah: &Self::Ah, attr: &gid::AhAttr) -> Result;
    /// Where it leads.
    fn query_ah(ah: &Self::Ah) -> gid::AhAttr;
    /// No request finds it after this. Any context.
    fn destroy_ah(dev: ArcBorrow<'_, Self::Device>, ah: Arc<Self::Ah>);

    /// Registers memory of the process.
    fn reg_user_mr(
        pd: ArcBorrow<'_, Self::Pd>,
        range: MrRange,
        access: u32,
    ) -> Result<Arc<Self::Mr>>;
    /// Registers a part of a dma-buf of the process; `range.start` is the offset in it.
    fn reg_user_mr_dmabuf(
        pd: ArcBorrow<'_, Self::Pd>,
        fd: c_int,
        range: MrRange,
        access: u32,
    ) -> Result<Arc<Self::Mr>>;
    /// Changes a region, or makes another one that takes its place.
    fn rereg_user_mr(
        mr: ArcBorrow<'_, Self::Mr>,
        change: &MrChange<'_, Self::Pd>,
    ) -> Result<Option<Arc<Self::Mr>>>;
    /// A region over all kernel memory, by its address.
    fn get_dma_mr(
        pd: ArcBorrow<'_, Self::Pd>,
        memory: DirectMap,
        access: u32,
    ) -> Result<Arc<Self::Mr>>;
    /// A kernel user's region for fast registration, of up to `max_pages` pages.
    fn alloc_fast_mr(
        pd: ArcBorrow<'_, Self::Pd>,
        memory: DirectMap,
        max_pages: u32,
    ) -> Result<Arc<Self::FastMr>>;
    /// Its key to begin with.
    fn fast_mr_key(mr: &Self::FastMr) -> u32;
    /// Begins the list of pages for the next registration; in softirq too.
    fn begin_pages(mr: &Self::FastMr);
    /// Adds a page by its kernel address.
    fn add_page(mr: &Self::FastMr, addr: u64) -> Result;
    /// Ends the list: `len` bytes from `iova` on, in pages of `page_size` bytes.
    fn end_pages(mr: &Self::FastMr, iova: u64, len: u64, page_size: u32) -> Result;
    /// After this nothing reads or writes the memory.
    fn free_fast_mr(mr: Arc<Self::FastMr>);
    /// lkey and rkey.
    fn mr_keys(mr: &Self::Mr) -> (u32, u32);
    /// After this nothing reads or writes the memory.
    fn dereg_mr(mr: ArcBorrow<'_, Self::Mr>) -> Result;

    /// Follows advice about `addr..addr + len` under `lkey`.
    fn advise_mr(
        pd: ArcBorrow<'_, Self::Pd>,
        advice: Advice,
        lkey: u32,
        addr: u64,
        len: u64,
    ) -> Result;

    /// A new memory window of `enum ib_mw_type`, and its key.
    fn alloc_mw(
        pd: ArcBorrow<'_, Self::Pd>,
        kind: bindings::ib_mw_type,
    ) -> Result<(Arc<Self::Mw>, u32)>;
    /// After this nobody is in the window.
    fn dealloc_mw(mw: Arc<Self::Mw>);

    /// A queue for at least `entries` completions that tells `sink` of events.
    fn create_cq(
        dev: ArcBorrow<'_, Self::Device>,
        entries: u32,
        sink: CqSink,
    ) -> Result<Arc<Self::Cq>>;
    /// The ring that user space maps.
    fn cq_ring(cq: &Self::Cq) -> Arc<Ring>;
    /// A ring of another size for [`Self::resize_cq`].
    fn larger_cq(cq: &Self::Cq, entries: u32) -> Result<Arc<Ring>>;
    /// Moves what is in the queue into another ring.
    fn resize_cq(cq: &Self::Cq, ring: Arc<Ring>) -> Result;
    /// Asks for an event at the next (solicited) completion; says whether some are there.
    fn req_notify_cq(cq: &Self::Cq, solicited_only: bool) -> bool;
    /// Takes the oldest completion out, for a kernel user. Any context.
    fn poll_cq(dev: &Self::Device, cq: &Self::Cq) -> Option<bindings::ib_wc>;
    /// Nothing reaches the sink after this.
    fn destroy_cq(cq: Arc<Self::Cq>);

    /// A new XRC domain.
    fn alloc_xrcd(dev: ArcBorrow<'_, Self::Device>) -> Result<Arc<Self::Xrcd>>;

    /// A new shared receive queue; `attr` is set to what it got. With `xrc` it is for targets
    /// of that domain, and its receives complete on that CQ.
    fn create_srq(
        pd: ArcBorrow<'_, Self::Pd>,
        attr: &mut bindings::ib_srq_attr,
        xrc: Option<XrcParts<'_, Self>>,
        sink: SrqSink,
    ) -> Result<Arc<Self::Srq>>;
    /// SRQ number, and the ring that user space maps.
    fn srq_parts(srq: &Self::Srq) -> (u32, Arc<Ring>);
    /// A ring of another size for [`Self::modify_srq`].
    fn larger_srq(srq: &Self::Srq, max_wr: u32) -> Result<Arc<Ring>>;
    /// Moves what is in the queue into another ring, and arms its limit, each if asked for.
    fn modify_srq(srq: &Self::Srq, ring: Option<Arc<Ring>>, limit: Option<u32>) -> Result;
    /// Reads attributes.
    fn query_srq(srq: &Self::Srq, attr: &mut bindings::ib_srq_attr);
    /// Takes receive requests of a kernel user, up to the first that fails. Any context.
    fn post_srq_recv(srq: &Self::Srq, wrs: &mut wr::RecvWrs<'_>) -> Result;
    /// Nothing reaches the sink after this.
    fn destroy_srq(srq: Arc<Self::Srq>);

    /// A new queue pair, whose work requests come from a process through its rings or from a
    /// `kernel` user through the `post_` methods; `init.cap` is set to what it got.
    fn create_qp(
        dev: ArcBorrow<'_, Self::Device>,
        given: &QpParts<'_, Self>,
        init: &mut bindings::ib_qp_init_attr,
        kernel: bool,
        sink: QpSink,
    ) -> Result<Arc<Self::Qp>>;
    /// QP number and the rings of the send and of the receive queue, if it has them.
    fn qp_rings(qp: &Self::Qp) -> (u32, Option<&Arc<Ring>>, Option<&Arc<Ring>>);
    /// Changes attributes; `mask` is of `enum ib_qp_attr_mask` and was checked by the core.
    fn modify_qp(qp: ArcBorrow<'_, Self::Qp>, attr: &bindings::ib_qp_attr, mask: u32) -> Result;
    /// Reads attributes.
    fn query_qp(
        qp: &Self::Qp,
        attr: &mut bindings::ib_qp_attr,
        init: &mut bindings::ib_qp_init_attr,
    );
    /// Lets a UD queue pair have a copy of what is sent to multicast group `mgid`; does
    /// nothing if it has already.
    fn attach_mcast(qp: ArcBorrow<'_, Self::Qp>, mgid: [u8; 16]) -> Result;
    /// Undoes that; `EINVAL` if it is not attached.
    fn detach_mcast(qp: ArcBorrow<'_, Self::Qp>, mgid: [u8; 16]) -> Result;
    /// The doorbell: new work requests are in the send ring.
    fn ring_doorbell(qp: ArcBorrow<'_, Self::Qp>) -> Result;
    /// Takes a kernel user's send requests up to the first that fails. Any context.
    fn post_send(qp: ArcBorrow<'_, Self::Qp>, wrs: &mut wr::SendWrs<'_>) -> Result;
    /// Takes a kernel user's receive requests up to the first that fails. Any context.
    fn post_recv(qp: ArcBorrow<'_, Self::Qp>, wrs: &mut wr::RecvWrs<'_>) -> Result;
    /// Nothing completes and nothing reaches the sink after this.
    fn destroy_qp(qp: Arc<Self::Qp>);
}

/// Memory of a process: `start..start + len`, which peers and work requests know as `iova..`.
#[derive(Clone, Copy)]
pub(crate) struct MrRange {
    /// Address in the process.
    pub(crate) start: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// Address of the first byte for everybody else.
    pub(crate) iova: u64,
}

/// What `ibv_advise_mr` asks for.
#[derive(Clone, Copy)]
pub(crate) struct Advice {
    /// The memory will be written.
    pub(crate) write: bool,
    /// Page faults are to be taken; else only what is there already is mapped.
    pub(crate) fault: bool,
    /// The caller waits for it.
    pub(crate) now: bool,
}

/// What `ibv_rereg_mr` changes of a region; the rest stays.
pub(crate) struct MrChange<'a, Pd> {
    /// The memory.
    pub(crate) range: Option<MrRange>,
    /// The protection domain.
    pub(crate) pd: Option<ArcBorrow<'a, Pd>>,
    /// `IB_ACCESS_*`.
    pub(crate) access: Option<u32>,
}

/// What the core gives a shared receive queue for XRC.
pub(crate) struct XrcParts<'a, D: Driver> {
    /// The domain whose targets may take from it.
    pub(crate) xrcd: ArcBorrow<'a, D::Xrcd>,
    /// Where its receives complete.
    pub(crate) cq: ArcBorrow<'a, D::Cq>,
}

/// What the core gives a new queue pair; which of it there is depends on its type.
pub(crate) struct QpParts<'a, D: Driver> {
    /// Protection domain.
    pub(crate) pd: Option<ArcBorrow<'a, D::Pd>>,
    /// Where sends complete.
    pub(crate) send_cq: Option<ArcBorrow<'a, D::Cq>>,
    /// Where receives complete.
    pub(crate) recv_cq: Option<ArcBorrow<'a, D::Cq>>,
    /// Where receives come from.
    pub(crate) srq: Option<ArcBorrow<'a, D::Srq>>,
    /// The domain of an XRC target.
    pub(crate) xrcd: Option<ArcBorrow<'a, D::Xrcd>>,
}

/// Checks the change of a QP of type `kind` (`enum ib_qp_type`): `mask` against the spec's
/// table of states and attributes (IBTA 10.3.1, as
/// `ib_modify_qp_is_ok` has it). `EINVAL` if something is missing or not allowed.
pub(crate) fn check_transition(
    kind: bindings::ib_qp_type,
    now: u32,
    attr: &bindings::ib_qp_attr,
    mask: u32,
) -> Result {
    let current = match mask & bindings::ib_qp_attr_mask_IB_QP_CUR_STATE {
        0 => now,
        _ => attr.cur_qp_state,
    };
    let next = match mask & bindings::ib_qp_attr_mask_IB_QP_STATE {
        0 => current,
        _ => attr.qp_state,
    };
    // SAFETY: it looks numbers up in a table, after checking their range.
    let allowed = unsafe { bindings::ib_modify_qp_is_ok(current, next, kind, mask) };
    allowed.then_some(()).ok_or(EINVAL)
}

/// Where completion events of a CQ go: the core's object.
///
/// The holder drops it in [`Driver::destroy_cq`], which the core calls before it frees the object.
pub(crate) struct CqSink(*mut bindings::ib_cq);

// SAFETY: the handler may be called from any context.
unsafe impl Send for CqSink {}
// SAFETY: as above.
unsafe impl Sync for CqSink {}

impl CqSink {
    /// Completions were lost. Any context.
    pub(crate) fn overrun(&self) {
        let mut record = bindings::ib_event {
            event: bindings::ib_event_type_IB_EVENT_CQ_ERR,
            ..Default::default()
        };
        // SAFETY: the core's object lives as long as the sink.
        unsafe {
            record.device = (*self.0).device;
            record.element.cq = self.0;
            if let Some(handler) = (*self.0).event_handler {
                handler(&mut record, (*self.0).cq_context);
            }
        }
    }

    /// Tells the owner of the CQ that a completion is there. Any context.
    pub(crate) fn notify(&self) {
        // SAFETY: the core's object lives as long as the sink.
        unsafe {
            if let Some(handler) = (*self.0).comp_handler {
                handler(self.0, (*self.0).cq_context);
            }
        }
    }
}

/// Where the limit event of an SRQ goes; dropped in [`Driver::destroy_srq`].
pub(crate) struct SrqSink(*mut bindings::ib_srq);

// SAFETY: the handler may be called from any context.
unsafe impl Send for SrqSink {}
// SAFETY: as above.
unsafe impl Sync for SrqSink {}

impl SrqSink {
    /// Fewer receives are left than the limit. Any context.
    pub(crate) fn limit_reached(&self) {
        let mut record = bindings::ib_event {
            event: bindings::ib_event_type_IB_EVENT_SRQ_LIMIT_REACHED,
            ..Default::default()
        };
        // SAFETY: the core's object lives as long as the sink.
        unsafe {
            record.device = (*self.0).device;
            record.element.srq = self.0;
            if let Some(handler) = (*self.0).event_handler {
                handler(&mut record, (*self.0).srq_context);
            }
        }
    }
}

/// Where asynchronous events of a QP go; dropped in [`Driver::destroy_qp`].
pub(crate) struct QpSink(*mut bindings::ib_qp);

// SAFETY: the handler may be called from any context.
unsafe impl Send for QpSink {}
// SAFETY: as above.
unsafe impl Sync for QpSink {}

/// The core's object of a QP, to be shown in completions. The driver does nothing else with it.
#[derive(Clone, Copy)]
pub(crate) struct QpHandle(*mut bindings::ib_qp);

// SAFETY: a name only.
unsafe impl Send for QpHandle {}
// SAFETY: as above.
unsafe impl Sync for QpHandle {}

impl QpHandle {
    /// What `ib_wc::qp` wants.
    pub(crate) fn as_ptr(self) -> *mut bindings::ib_qp {
        self.0
    }
}

impl QpSink {
    /// The QP's name for completions.
    pub(crate) fn handle(&self) -> QpHandle {
        QpHandle(self.0)
    }

    /// Reports `event` (`enum ib_event_type`) of this QP. Any context.
    pub(crate) fn event(&self, event: bindings::ib_event_type) {
        let mut record = bindings::ib_event {
            event,
            ..Default::default()
        };
        // SAFETY: the core's object lives as long as the sink.
        unsafe {
            record.device = (*self.0).device;
            record.element.qp = self.0;
            if let Some(handler) = (*self.0).event_handler {
                handler(&mut record, (*self.0).qp_context);
            }
        }
    }
}
