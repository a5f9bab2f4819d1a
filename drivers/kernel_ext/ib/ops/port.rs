// SPDX-License-Identifier: GPL-2.0

//! Callbacks of the device and its port.

use crate::{
    bindings,
    kernel_ext::ib::{
        device::DeviceSlot,
        Driver, //
    },
};
use kernel::prelude::*;

pub(super) unsafe extern "C" fn query_device<D: Driver>(
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

pub(super) unsafe extern "C" fn query_port<D: Driver>(
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

pub(super) unsafe extern "C" fn query_pkey(
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

pub(super) unsafe extern "C" fn query_gid<D: Driver>(
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

pub(super) unsafe extern "C" fn get_port_immutable<D: Driver>(
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
        (*immutable).core_cap_flags = bindings::RDMA_CORE_CAP_PROT_ROCE_UDP_ENCAP
            | bindings::RDMA_CORE_CAP_IB_MAD
            | bindings::RDMA_CORE_CAP_IB_CM
            | bindings::RDMA_CORE_CAP_AF_IB
            | bindings::RDMA_CORE_CAP_ETH_AH;
        if D::roce_v1() {
            (*immutable).core_cap_flags |= bindings::RDMA_CORE_CAP_PROT_ROCE;
        }
        (*immutable).max_mad_size = size_of::<bindings::ib_mad>() as u32;
        (*immutable).pkey_tbl_len = attr.pkey_tbl_len.into();
        (*immutable).gid_tbl_len = attr.gid_tbl_len;
    }
    0
}

pub(super) unsafe extern "C" fn get_link_layer(
    _ib: *mut bindings::ib_device,
    _port: u32,
) -> bindings::rdma_link_layer {
    bindings::rdma_link_layer_IB_LINK_LAYER_ETHERNET
}

pub(super) unsafe extern "C" fn alloc_ucontext(
    _context: *mut bindings::ib_ucontext,
    _udata: *mut bindings::ib_udata,
) -> c_int {
    0
}

pub(super) unsafe extern "C" fn dealloc_ucontext(_context: *mut bindings::ib_ucontext) {}
