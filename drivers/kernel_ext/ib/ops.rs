// SPDX-License-Identifier: GPL-2.0

//! The core's callbacks, each turned into a method of [`Driver`].
//!
//! All are called in process context. The core serialises creation, use and
//! destruction of each object, which is what makes [`Slot`] sound.

#![allow(
    clippy::missing_safety_doc,
    reason = "callbacks: the RDMA core is their only caller, and its contract is in ib_verbs.h"
)]

use super::{
    device::DeviceSlot,
    mmap::Mapping,
    slot::Slot,
    CqSink,
    Driver,
    QpSink, //
};
use crate::bindings;
use kernel::{
    alloc::KBox,
    error::to_result,
    prelude::*,
    sync::Arc, //
};

type PdSlot<D> = Slot<bindings::ib_pd, <D as Driver>::Pd>;
type CqSlot<D> = Slot<bindings::ib_cq, <D as Driver>::Cq>;
type QpSlot<D> = Slot<bindings::ib_qp, <D as Driver>::Qp>;
type MrSlot<D> = Slot<bindings::ib_mr, <D as Driver>::Mr>;
type ContextSlot = bindings::ib_ucontext;

fn errno(result: Result) -> c_int {
    result.map_or_else(|e| e.to_errno(), |()| 0)
}

/// The operations of driver `D`.
pub(super) fn table<D: Driver>() -> bindings::ib_device_ops {
    bindings::ib_device_ops {
        owner: kernel::module::this_module::<crate::LocalModule>()
            .as_ptr()
            .cast(),
        driver_id: D::DRIVER_ID,
        uverbs_abi_ver: D::ABI_VERSION,
        query_device: Some(query_device::<D>),
        query_port: Some(query_port::<D>),
        query_pkey: Some(query_pkey),
        query_gid: Some(query_gid::<D>),
        get_port_immutable: Some(get_port_immutable),
        get_link_layer: Some(get_link_layer),
        alloc_ucontext: Some(alloc_ucontext),
        dealloc_ucontext: Some(dealloc_ucontext),
        disassociate_ucontext: Some(dealloc_ucontext),
        mmap: Some(Mapping::mmap),
        mmap_free: Some(Mapping::free),
        alloc_pd: Some(alloc_pd::<D>),
        dealloc_pd: Some(dealloc_pd::<D>),
        reg_user_mr: Some(reg_user_mr::<D>),
        get_dma_mr: Some(get_dma_mr::<D>),
        dereg_mr: Some(dereg_mr::<D>),
        create_cq: Some(create_cq::<D>),
        destroy_cq: Some(destroy_cq::<D>),
        poll_cq: Some(poll_cq),
        req_notify_cq: Some(req_notify_cq::<D>),
        create_qp: Some(create_qp::<D>),
        modify_qp: Some(modify_qp::<D>),
        query_qp: Some(query_qp::<D>),
        destroy_qp: Some(destroy_qp::<D>),
        post_send: Some(post_send::<D>),
        post_recv: Some(post_recv),
        dealloc_driver: Some(DeviceSlot::<D>::dealloc),
        size_ib_pd: size_of::<PdSlot<D>>(),
        size_ib_cq: size_of::<CqSlot<D>>(),
        size_ib_qp: size_of::<QpSlot<D>>(),
        size_ib_ucontext: size_of::<ContextSlot>(),
        ..Default::default()
    }
}

// ---- device and port ----

unsafe extern "C" fn query_device<D: Driver>(
    ib: *mut bindings::ib_device,
    attr: *mut bindings::ib_device_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core gives a registered device, memory for the answer and a udata or null.
    unsafe {
        if !udata.is_null() && ((*udata).inlen != 0 || (*udata).outlen != 0) {
            return EINVAL.to_errno();
        }
        D::query_device(&DeviceSlot::<D>::get(ib), &mut *attr);
    }
    0
}

unsafe extern "C" fn query_port<D: Driver>(
    ib: *mut bindings::ib_device,
    port: u32,
    attr: *mut bindings::ib_port_attr,
) -> c_int {
    // SAFETY: as above; the netdev is referenced until `dev_put`.
    unsafe {
        let ndev = bindings::ib_device_get_netdev(ib, port);
        if ndev.is_null() {
            return ENODEV.to_errno();
        }
        let attr = &mut *attr;
        D::query_port(&DeviceSlot::<D>::get(ib), attr);
        attr.state = bindings::ib_get_curr_port_state(ndev);
        attr.phys_state = if attr.state == bindings::ib_port_state_IB_PORT_ACTIVE {
            bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_LINK_UP as u8
        } else if bindings::netif_get_flags(ndev) & bindings::net_device_flags_IFF_UP != 0 {
            bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_POLLING as u8
        } else {
            bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_DISABLED as u8
        };
        bindings::dev_put(ndev);
        bindings::ib_get_eth_speed(ib, port, &mut attr.active_speed, &mut attr.active_width)
    }
}

unsafe extern "C" fn query_pkey(
    _ib: *mut bindings::ib_device,
    _port: u32,
    index: u16,
    pkey: *mut u16,
) -> c_int {
    if index != 0 {
        return EINVAL.to_errno();
    }
    // SAFETY: the core gives memory for the answer.
    unsafe { *pkey = 0xffff };
    0
}

unsafe extern "C" fn query_gid<D: Driver>(
    ib: *mut bindings::ib_device,
    _port: u32,
    _index: c_int,
    gid: *mut bindings::ib_gid,
) -> c_int {
    // SAFETY: as above. The table of a RoCE port is the core's; this is for nobody else.
    unsafe {
        (*gid).global.subnet_prefix = 0;
        (*gid).global.interface_id = (*ib).node_guid;
    }
    0
}

unsafe extern "C" fn get_port_immutable(
    ib: *mut bindings::ib_device,
    port: u32,
    immutable: *mut bindings::ib_port_immutable,
) -> c_int {
    let mut attr = bindings::ib_port_attr::default();
    // SAFETY: the core gives a device that is being registered, and memory for the answer.
    unsafe {
        let err = bindings::ib_query_port(ib, port, &mut attr);
        if err != 0 {
            return err;
        }
        (*immutable).core_cap_flags =
            bindings::RDMA_CORE_CAP_PROT_ROCE_UDP_ENCAP | bindings::RDMA_CORE_CAP_ETH_AH;
        (*immutable).pkey_tbl_len = attr.pkey_tbl_len.into();
        (*immutable).gid_tbl_len = attr.gid_tbl_len;
    }
    0
}

unsafe extern "C" fn get_link_layer(
    _ib: *mut bindings::ib_device,
    _port: u32,
) -> bindings::rdma_link_layer {
    bindings::rdma_link_layer_IB_LINK_LAYER_ETHERNET
}

unsafe extern "C" fn alloc_ucontext(
    _context: *mut bindings::ib_ucontext,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    0
}

unsafe extern "C" fn dealloc_ucontext(_context: *mut bindings::ib_ucontext) {}

// ---- protection domains and memory ----

unsafe extern "C" fn alloc_pd<D: Driver>(
    ib: *mut bindings::ib_pd,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core gives a fresh PD of our size on a registered device.
    errno(unsafe {
        let device = DeviceSlot::<D>::get((*ib).device);
        D::alloc_pd(device).map(|pd| PdSlot::<D>::of(ib).fill(pd))
    })
}

unsafe extern "C" fn dealloc_pd<D: Driver>(
    ib: *mut bindings::ib_pd,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core destroys a PD that it made, once, when nothing uses it.
    drop(unsafe { PdSlot::<D>::of(ib) }.take());
    0
}

/// Makes the core's object for a region, which is ours to allocate.
fn new_mr<D: Driver>(pd: *mut bindings::ib_pd, result: Result<Arc<D::Mr>>) -> *mut bindings::ib_mr {
    let made = result.and_then(|mr| {
        let slot = MrSlot::<D>::empty();
        match slot {
            Ok(slot) => {
                let ib = KBox::into_raw(slot).cast::<bindings::ib_mr>();
                let (lkey, rkey) = D::mr_keys(&mr);
                // SAFETY: the slot is ours until the core has it.
                unsafe {
                    (*ib).device = (*pd).device;
                    (*ib).pd = pd;
                    (*ib).lkey = lkey;
                    (*ib).rkey = rkey;
                    MrSlot::<D>::of(ib).fill(mr);
                }
                Ok(ib)
            }
            Err(e) => {
                D::dereg_mr(mr);
                Err(e)
            }
        }
    });
    made.unwrap_or_else(|e| e.to_ptr())
}

unsafe extern "C" fn reg_user_mr<D: Driver>(
    pd: *mut bindings::ib_pd,
    start: u64,
    length: u64,
    iova: u64,
    access: c_int,
    dmah: *mut bindings::ib_dmah,
    _udata: *mut bindings::ib_udata,
) -> *mut bindings::ib_mr {
    if !dmah.is_null() {
        return EOPNOTSUPP.to_ptr();
    }
    // SAFETY: the core gives a PD of this driver.
    let object = unsafe { PdSlot::<D>::get(pd) };
    new_mr::<D>(
        pd,
        D::reg_user_mr(object, start, length, iova, access as u32),
    )
}

unsafe extern "C" fn get_dma_mr<D: Driver>(
    pd: *mut bindings::ib_pd,
    access: c_int,
) -> *mut bindings::ib_mr {
    // SAFETY: the core gives a PD of this driver.
    let object = unsafe { PdSlot::<D>::get(pd) };
    new_mr::<D>(pd, D::get_dma_mr(object, access as u32))
}

unsafe extern "C" fn dereg_mr<D: Driver>(
    ib: *mut bindings::ib_mr,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core gives back what `new_mr` made, once.
    unsafe {
        if let Some(mr) = MrSlot::<D>::of(ib).take() {
            D::dereg_mr(mr);
        }
        drop(KBox::from_raw(ib.cast::<MrSlot<D>>()));
    }
    0
}

// ---- completion queues ----

/// Copies a driver's answer out; what does not fit is an error of the provider.
unsafe fn respond<T>(udata: *mut bindings::ib_udata, answer: &T) -> Result {
    // SAFETY: `udata` is of a running call.
    unsafe {
        if (*udata).outlen < size_of::<T>() {
            return Err(EINVAL);
        }
        let from = core::ptr::from_ref(answer).cast_mut().cast();
        to_result(bindings::ib_copy_to_udata(udata, from, size_of::<T>()))
    }
}

unsafe extern "C" fn create_cq<D: Driver>(
    ib: *mut bindings::ib_cq,
    attr: *const bindings::ib_cq_init_attr,
    attrs: *mut bindings::uverbs_attr_bundle,
) -> c_int {
    // SAFETY: the core gives a fresh CQ of our size on a registered device; `attrs` is of a
    // running call, or null for a kernel user.
    errno(unsafe {
        if (*attr).flags != 0 || attrs.is_null() {
            return EOPNOTSUPP.to_errno();
        }
        let udata = &mut (*attrs).__bindgen_anon_1.__bindgen_anon_1.driver_udata as *mut _;
        let device = DeviceSlot::<D>::get((*ib).device);
        D::create_cq(device, (*attr).cqe, CqSink(ib)).and_then(|cq| {
            let slot = CqSlot::<D>::of(ib);
            let shown = Mapping::offer(udata, D::cq_ring(&cq)).and_then(|(mapping, mi)| {
                slot.mappings[0] = mapping;
                respond(udata, &bindings::rxe_create_cq_resp { mi })
            });
            (*ib).cqe = D::cq_ring(&cq).capacity() as c_int;
            slot.fill(cq);
            shown.inspect_err(|_| {
                if let Some(cq) = slot.take() {
                    D::destroy_cq(cq);
                }
            })
        })
    })
}

unsafe extern "C" fn destroy_cq<D: Driver>(
    ib: *mut bindings::ib_cq,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core destroys a CQ that it made, once, when no QP uses it.
    if let Some(cq) = unsafe { CqSlot::<D>::of(ib) }.take() {
        D::destroy_cq(cq);
    }
    0
}

/// Kernel users cannot create a CQ yet, so nothing is there to poll.
unsafe extern "C" fn poll_cq(
    _ib: *mut bindings::ib_cq,
    _entries: c_int,
    _wc: *mut bindings::ib_wc,
) -> c_int {
    EOPNOTSUPP.to_errno()
}

unsafe extern "C" fn req_notify_cq<D: Driver>(
    ib: *mut bindings::ib_cq,
    flags: bindings::ib_cq_notify_flags,
) -> c_int {
    let solicited = flags & bindings::ib_cq_notify_flags_IB_CQ_SOLICITED_MASK
        == bindings::ib_cq_notify_flags_IB_CQ_SOLICITED;
    // SAFETY: the core gives a live CQ of this driver.
    let cq = unsafe { CqSlot::<D>::get(ib) };
    let missed = D::req_notify_cq(&cq, solicited);
    (missed && flags & bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS != 0).into()
}

// ---- queue pairs ----

unsafe extern "C" fn create_qp<D: Driver>(
    ib: *mut bindings::ib_qp,
    init: *mut bindings::ib_qp_init_attr,
    udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core gives a fresh QP of our size, with PD and CQs of this driver.
    errno(unsafe {
        let init = &mut *init;
        if udata.is_null() || init.create_flags != 0 || !init.srq.is_null() {
            return EOPNOTSUPP.to_errno();
        }
        if init.send_cq.is_null() || init.recv_cq.is_null() || (*ib).pd.is_null() {
            return EINVAL.to_errno();
        }
        let device = DeviceSlot::<D>::get((*ib).device);
        let pd = PdSlot::<D>::get((*ib).pd);
        let send_cq = CqSlot::<D>::get(init.send_cq);
        let recv_cq = CqSlot::<D>::get(init.recv_cq);
        D::create_qp(device, pd, send_cq, recv_cq, init, QpSink(ib)).and_then(|qp| {
            let slot = QpSlot::<D>::of(ib);
            let (number, sq, rq) = D::qp_parts(&qp);
            (*ib).qp_num = number;
            let shown = show_rings(slot, udata, sq, rq);
            slot.fill(qp);
            shown.inspect_err(|_| {
                if let Some(qp) = slot.take() {
                    D::destroy_qp(qp);
                }
            })
        })
    })
}

unsafe fn show_rings<I, T>(
    slot: &mut Slot<I, T>,
    udata: *mut bindings::ib_udata,
    sq: &Arc<super::Ring>,
    rq: &Arc<super::Ring>,
) -> Result {
    // SAFETY: `udata` is of a running call.
    unsafe {
        let (mapping, sq_mi) = Mapping::offer(udata, sq)?;
        slot.mappings[0] = mapping;
        let (mapping, rq_mi) = Mapping::offer(udata, rq)?;
        slot.mappings[1] = mapping;
        respond(udata, &bindings::rxe_create_qp_resp { rq_mi, sq_mi })
    }
}

unsafe extern "C" fn modify_qp<D: Driver>(
    ib: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_attr,
    mask: c_int,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core gives a live QP of this driver and its attributes.
    errno(unsafe { D::modify_qp(QpSlot::<D>::get(ib), &*attr, mask as u32) })
}

unsafe extern "C" fn query_qp<D: Driver>(
    ib: *mut bindings::ib_qp,
    attr: *mut bindings::ib_qp_attr,
    _mask: c_int,
    init: *mut bindings::ib_qp_init_attr,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        D::query_qp(&QpSlot::<D>::get(ib), &mut *attr);
        (*init).event_handler = (*ib).event_handler;
        (*init).qp_context = (*ib).qp_context;
        (*init).send_cq = (*ib).send_cq;
        (*init).recv_cq = (*ib).recv_cq;
        (*init).cap = (*attr).cap;
        (*init).qp_type = (*ib).qp_type;
    }
    0
}

unsafe extern "C" fn destroy_qp<D: Driver>(
    ib: *mut bindings::ib_qp,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    // SAFETY: the core destroys a QP that it made, once.
    if let Some(qp) = unsafe { QpSlot::<D>::of(ib) }.take() {
        D::destroy_qp(qp);
    }
    0
}

/// User space writes its work requests into the ring and calls this without any.
unsafe extern "C" fn post_send<D: Driver>(
    ib: *mut bindings::ib_qp,
    wr: *const bindings::ib_send_wr,
    bad: *mut *const bindings::ib_send_wr,
) -> c_int {
    if !wr.is_null() {
        // SAFETY: the core gives memory for the request that failed.
        unsafe { *bad = wr };
        return EOPNOTSUPP.to_errno();
    }
    // SAFETY: the core gives a live QP of this driver.
    errno(D::ring_doorbell(unsafe { QpSlot::<D>::get(ib) }))
}

unsafe extern "C" fn post_recv(
    _ib: *mut bindings::ib_qp,
    wr: *const bindings::ib_recv_wr,
    bad: *mut *const bindings::ib_recv_wr,
) -> c_int {
    // SAFETY: the core gives memory for the request that failed.
    unsafe { *bad = wr };
    EOPNOTSUPP.to_errno()
}
