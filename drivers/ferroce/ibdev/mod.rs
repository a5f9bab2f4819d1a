// SPDX-License-Identifier: GPL-2.0

//! The verbs door: ferroce as an `ib_device`, which stock rdma-core drives through
//! the uABI of rdma_rxe. Each method translates between the core's structs and [`verbs`].

mod attr;
mod details;
mod wc;

use crate::{
    bindings,
    kernel_ext::{
        ib::{
            self,
            details::Details,
            device::LinkOps,
            gid::AhAttr,
            pma::PortCounters,
            stats::StatName,
            wr::{
                RecvWrs,
                SendWrs, //
            },
            Advice,
            CqSink,
            MrChange,
            MrRange,
            QpParts,
            QpSink,
            SrqSink,
            XrcParts, //
        },
        kmem::DirectMap,
        netdev::NetDevice,
        ring::Ring, //
    },
    registry,
    verbs::{
        advise,
        counters::{
            self,
            Counter, //
        },
        cq,
        create::{
            Parts,
            QpInit, //
        },
        device::limits,
        qp,
        Ah,
        Cq,
        Device,
        FastMr,
        Mr,
        Mw,
        Pd,
        Qp,
        Srq,
        Xrcd, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
};

static LINK_OPS: LinkOps = LinkOps::new::<Door>();

/// `EINVAL` for a number of completions that a queue cannot have.
fn check_entries(entries: u32) -> Result {
    (1..=limits::CQE)
        .contains(&entries)
        .then_some(())
        .ok_or(EINVAL)
}

/// The door.
pub(crate) struct Door;

impl ib::Driver for Door {
    const LINK_TYPE: &'static CStr = c"ferroce";
    // Stock rdma-core has a provider for this id; its ABI is what we speak.
    const DRIVER_ID: bindings::rdma_driver_id = bindings::rdma_driver_id_RDMA_DRIVER_RXE;
    const ABI_VERSION: u32 = 2;
    const COUNTERS: &'static [StatName] = counters::NAMES;

    type Device = Device;
    type Pd = Pd;
    type Ah = Ah;
    type Cq = Cq;
    type Srq = Srq;
    type Xrcd = Xrcd;
    type Qp = Qp;
    type Mr = Mr;
    type FastMr = FastMr;
    type Mw = Mw;

    fn link_ops() -> &'static LinkOps {
        &LINK_OPS
    }

    fn new_link(name: &CStr, ndev: &NetDevice) -> Result {
        registry::add(name, ndev)
    }

    fn remove(dev: ArcBorrow<'_, Device>) {
        registry::remove(&dev);
    }

    fn roce_v1() -> bool {
        crate::roce_v1()
    }

    fn query_device(dev: &Device, attr: &mut bindings::ib_device_attr) {
        attr::device(dev, attr);
    }

    fn query_port(dev: &Device, attr: &mut bindings::ib_port_attr) {
        attr::port(dev, attr);
    }

    fn describe_cq(cq: &Cq, out: &mut Details) {
        details::cq(cq, out);
    }

    fn describe_qp(qp: &Qp, out: &mut Details) {
        details::qp(qp, out);
    }

    fn describe_srq(srq: &Srq, out: &mut Details) {
        details::srq(srq, out);
    }

    fn describe_mr(dev: &Device, key: u32, out: &mut Details) {
        details::mr(dev, key, out);
    }

    fn counter(dev: &Device, index: usize) -> u64 {
        dev.counters.sum(index)
    }

    fn port_counters(dev: &Device) -> PortCounters {
        let sum = |counter: Counter| dev.counters.sum(counter as usize);
        PortCounters {
            link_downed: sum(Counter::LinkDowned),
            receive_errors: sum(Counter::BadIcrc).wrapping_add(sum(Counter::Malformed)),
            send_discards: sum(Counter::SendErrors),
            sent_bytes: sum(Counter::SentBytes),
            received_bytes: sum(Counter::ReceivedBytes),
            sent_packets: sum(Counter::SentPackets),
            received_packets: sum(Counter::ReceivedPackets),
        }
    }

    fn alloc_pd(dev: ArcBorrow<'_, Device>, kernel: bool) -> Result<Arc<Pd>> {
        Device::alloc_pd(dev, kernel)
    }

    fn reg_user_mr(pd: ArcBorrow<'_, Pd>, range: MrRange, access: u32) -> Result<Arc<Mr>> {
        Mr::register(&pd, range, access)
    }

    fn reg_user_mr_dmabuf(
        pd: ArcBorrow<'_, Pd>,
        fd: c_int,
        range: MrRange,
        access: u32,
    ) -> Result<Arc<Mr>> {
        Mr::share(&pd, fd, range, access)
    }

    fn rereg_user_mr(mr: ArcBorrow<'_, Mr>, change: &MrChange<'_, Pd>) -> Result<Option<Arc<Mr>>> {
        mr.reregister(change)
    }

    fn create_ah(pd: ArcBorrow<'_, Pd>, attr: &AhAttr) -> Result<Arc<Ah>> {
        Ah::new(&pd, attr)
    }

    fn ah_number(ah: &Ah) -> u32 {
        ah.number
    }

    fn modify_ah(ah: &Ah, attr: &AhAttr) -> Result {
        ah.modify(attr)
    }

    fn query_ah(ah: &Ah) -> AhAttr {
        ah.query()
    }

    fn destroy_ah(dev: ArcBorrow<'_, Device>, ah: Arc<Ah>) {
        ah.destroy(&dev);
    }

    fn get_dma_mr(pd: ArcBorrow<'_, Pd>, memory: DirectMap, access: u32) -> Result<Arc<Mr>> {
        Mr::dma(&pd, memory, access)
    }

    fn alloc_fast_mr(
        pd: ArcBorrow<'_, Pd>,
        memory: DirectMap,
        max_pages: u32,
    ) -> Result<Arc<FastMr>> {
        FastMr::new(&pd, memory, max_pages)
    }

    fn fast_mr_key(mr: &FastMr) -> u32 {
        mr.key()
    }

    fn begin_pages(mr: &FastMr) {
        mr.begin_pages();
    }

    fn add_page(mr: &FastMr, addr: u64) -> Result {
        mr.add_page(addr)
    }

    fn end_pages(mr: &FastMr, iova: u64, len: u64, page_size: u32) -> Result {
        mr.end_pages(iova, len, page_size)
    }

    fn free_fast_mr(mr: Arc<FastMr>) {
        mr.free();
    }

    fn mr_keys(mr: &Mr) -> (u32, u32) {
        (mr.key(), mr.key())
    }

    fn dereg_mr(mr: ArcBorrow<'_, Mr>) -> Result {
        mr.deregister()
    }

    fn advise_mr(pd: ArcBorrow<'_, Pd>, advice: Advice, lkey: u32, addr: u64, len: u64) -> Result {
        advise::advise(&pd, advice, lkey, addr, len)
    }

    fn alloc_mw(pd: ArcBorrow<'_, Pd>, kind: bindings::ib_mw_type) -> Result<(Arc<Mw>, u32)> {
        let mw = Mw::alloc(&pd, kind == bindings::ib_mw_type_IB_MW_TYPE_2)?;
        let key = mw.key();
        Ok((mw, key))
    }

    fn dealloc_mw(mw: Arc<Mw>) {
        mw.dealloc();
    }

    fn create_cq(_dev: ArcBorrow<'_, Device>, entries: u32, sink: CqSink) -> Result<Arc<Cq>> {
        check_entries(entries)?;
        Cq::new(entries, cq::Sink::Ib(sink))
    }

    fn cq_ring(cq: &Cq) -> Arc<Ring> {
        cq.ring()
    }

    fn larger_cq(cq: &Cq, entries: u32) -> Result<Arc<Ring>> {
        check_entries(entries)?;
        cq.larger(entries)
    }

    fn resize_cq(cq: &Cq, ring: Arc<Ring>) -> Result {
        cq.resize(ring)
    }

    fn req_notify_cq(cq: &Cq, solicited_only: bool) -> bool {
        cq.arm(solicited_only)
    }

    fn poll_cq(dev: &Device, cq: &Cq) -> Option<bindings::ib_wc> {
        wc::next(dev, cq)
    }

    fn destroy_cq(cq: Arc<Cq>) {
        cq.close();
    }

    fn alloc_xrcd(dev: ArcBorrow<'_, Device>) -> Result<Arc<Xrcd>> {
        Device::alloc_xrcd(dev)
    }

    fn create_srq(
        pd: ArcBorrow<'_, Pd>,
        attr: &mut bindings::ib_srq_attr,
        xrc: Option<XrcParts<'_, Self>>,
        sink: SrqSink,
    ) -> Result<Arc<Srq>> {
        let xrc = xrc.map(|xrc| (xrc.xrcd.id, xrc.cq.into()));
        let srq = Srq::new(&pd, attr.max_wr, attr.max_sge, xrc, sink)?;
        attr::srq(&srq, attr);
        Ok(srq)
    }

    fn srq_parts(srq: &Srq) -> (u32, Arc<Ring>) {
        (srq.number, srq.ring())
    }

    fn larger_srq(srq: &Srq, max_wr: u32) -> Result<Arc<Ring>> {
        srq.larger(max_wr)
    }

    fn modify_srq(srq: &Srq, ring: Option<Arc<Ring>>, limit: Option<u32>) -> Result {
        srq.modify(ring, limit)
    }

    fn query_srq(srq: &Srq, attr: &mut bindings::ib_srq_attr) {
        attr::srq(srq, attr);
    }

    fn post_srq_recv(srq: &Srq, wrs: &mut RecvWrs<'_>) -> Result {
        srq.post_recv(wrs)
    }

    fn destroy_srq(srq: Arc<Srq>) {
        srq.destroy();
    }

    fn create_qp(
        dev: ArcBorrow<'_, Device>,
        given: &QpParts<'_, Self>,
        init: &mut bindings::ib_qp_init_attr,
        kernel: bool,
        sink: QpSink,
    ) -> Result<Arc<Qp>> {
        let wanted = QpInit {
            kind: attr::kind(init.qp_type)?,
            send_wr: init.cap.max_send_wr,
            recv_wr: init.cap.max_recv_wr,
            send_sge: init.cap.max_send_sge,
            recv_sge: init.cap.max_recv_sge,
            inline: init.cap.max_inline_data,
            signal_all: init.sq_sig_type == bindings::ib_sig_type_IB_SIGNAL_ALL_WR,
            kernel,
        };
        let parts = Parts {
            dev: &dev.into(),
            pd: given.pd.as_deref(),
            send_cq: given.send_cq.map(Into::into),
            recv_cq: given.recv_cq.map(Into::into),
            srq: given.srq.map(Into::into),
            xrcd: given.xrcd.map(|xrcd| xrcd.id),
        };
        let qp = Qp::new(parts, wanted, qp::Sink::Ib(sink))?;
        init.cap = attr::caps(&qp.caps);
        Ok(qp)
    }

    fn qp_rings(qp: &Qp) -> (u32, Option<&Arc<Ring>>, Option<&Arc<Ring>>) {
        let (sq, rq) = qp.rings();
        (qp.qpn, sq, rq)
    }

    fn modify_qp(qp: ArcBorrow<'_, Qp>, attr: &bindings::ib_qp_attr, mask: u32) -> Result {
        let changes = attr::modify(attr, mask)?;
        let kind = attr::qp_type(qp.caps.kind);
        ib::check_transition(kind, qp.state() as u32, attr, mask)?;
        let path = match mask & bindings::ib_qp_attr_mask_IB_QP_AV {
            0 => None,
            _ => Some(AhAttr::new(&attr.ah_attr)?),
        };
        qp.modify(&changes, path.as_ref())
    }

    fn query_qp(qp: &Qp, attr: &mut bindings::ib_qp_attr, init: &mut bindings::ib_qp_init_attr) {
        attr::query(qp, attr);
        init.sq_sig_type = match qp.caps.signal_all {
            true => bindings::ib_sig_type_IB_SIGNAL_ALL_WR,
            false => bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
        };
    }

    fn attach_mcast(qp: ArcBorrow<'_, Qp>, mgid: [u8; 16]) -> Result {
        qp.attach_group(mgid)
    }

    fn detach_mcast(qp: ArcBorrow<'_, Qp>, mgid: [u8; 16]) -> Result {
        qp.detach_group(mgid)
    }

    fn ring_doorbell(qp: ArcBorrow<'_, Qp>) -> Result {
        qp.doorbell()
    }

    fn post_send(qp: ArcBorrow<'_, Qp>, wrs: &mut SendWrs<'_>) -> Result {
        qp.post_send(wrs)
    }

    fn post_recv(qp: ArcBorrow<'_, Qp>, wrs: &mut RecvWrs<'_>) -> Result {
        qp.post_recv(wrs)
    }

    fn destroy_qp(qp: Arc<Qp>) {
        qp.destroy();
    }
}
