// SPDX-License-Identifier: GPL-2.0

//! Work: connecting a queue pair, submitting and waiting.

use super::{
    context::{
        Context,
        CqEntry, //
    },
    devices::array,
    objects::ACCESS, //
};
use crate::{
    bindings,
    engine::{
        ModifyAttrs,
        Mtu,
        QpState, //
    },
    kernel_ext::{
        ib::{
            self,
            gid::{
                AhAttr,
                PathAttr, //
            }, //
        },
        timer,
        uapi::Argument, //
    },
    verbs::Device,
};
use core::net::{
    IpAddr,
    Ipv6Addr, //
};
use kernel::prelude::*;

/// The attributes there are.
const ATTRIBUTES: u32 = bindings::FERROCE_QP_STATE
    | bindings::FERROCE_QP_ACCESS
    | bindings::FERROCE_QP_PKEY_INDEX
    | bindings::FERROCE_QP_PORT
    | bindings::FERROCE_QP_AV
    | bindings::FERROCE_QP_PATH_MTU
    | bindings::FERROCE_QP_TIMEOUT
    | bindings::FERROCE_QP_RETRY_CNT
    | bindings::FERROCE_QP_RNR_RETRY
    | bindings::FERROCE_QP_RQ_PSN
    | bindings::FERROCE_QP_MAX_RD_ATOMIC
    | bindings::FERROCE_QP_MIN_RNR_TIMER
    | bindings::FERROCE_QP_SQ_PSN
    | bindings::FERROCE_QP_MAX_DEST_RD_ATOMIC
    | bindings::FERROCE_QP_DEST_QPN;

/// FERROCE_IOC_MODIFY_QP
pub(super) fn modify_qp(context: &Context, arg: Argument) -> Result {
    let arg: bindings::ferroce_modify_qp = arg.read()?;
    if arg.pad != [0; 7] || arg.mask & !ATTRIBUTES != 0 {
        return Err(EINVAL);
    }
    let attrs = attributes(&arg)?;
    context.with(|objects| {
        let qp = &objects.qps.get(arg.handle)?.qp;
        let transition = bindings::ib_qp_attr {
            qp_state: arg.state,
            ..Default::default()
        };
        let kind = bindings::ib_qp_type_IB_QPT_RC;
        ib::check_transition(kind, qp.state() as u32, &transition, arg.mask)?;
        let path = match arg.mask & bindings::FERROCE_QP_AV {
            0 => None,
            _ => Some(path(&objects.device, &arg)?),
        };
        qp.modify(&attrs, path.as_ref())
    })
}

/// The attributes that the mask names.
fn attributes(arg: &bindings::ferroce_modify_qp) -> Result<ModifyAttrs> {
    let has = |bit: u32| arg.mask & bit != 0;
    if has(bindings::FERROCE_QP_ACCESS) && arg.access & !ACCESS != 0 {
        return Err(EINVAL);
    }
    let mut attrs = ModifyAttrs::default();
    if has(bindings::FERROCE_QP_STATE) {
        attrs.state = Some(QpState::from_ib(arg.state).ok_or(EINVAL)?);
    }
    if has(bindings::FERROCE_QP_PATH_MTU) {
        attrs.path_mtu = Some(path_mtu(arg.path_mtu).ok_or(EINVAL)?);
    }
    attrs.access = has(bindings::FERROCE_QP_ACCESS).then_some(arg.access);
    attrs.dest_qpn = has(bindings::FERROCE_QP_DEST_QPN).then_some(arg.dest_qpn);
    attrs.rq_psn = has(bindings::FERROCE_QP_RQ_PSN).then_some(arg.rq_psn);
    attrs.sq_psn = has(bindings::FERROCE_QP_SQ_PSN).then_some(arg.sq_psn);
    attrs.timeout = has(bindings::FERROCE_QP_TIMEOUT).then_some(arg.timeout);
    attrs.retry_cnt = has(bindings::FERROCE_QP_RETRY_CNT).then_some(arg.retry_cnt);
    attrs.rnr_retry = has(bindings::FERROCE_QP_RNR_RETRY).then_some(arg.rnr_retry);
    attrs.min_rnr_timer = has(bindings::FERROCE_QP_MIN_RNR_TIMER).then_some(arg.min_rnr_timer);
    attrs.max_rd_atomic = has(bindings::FERROCE_QP_MAX_RD_ATOMIC).then_some(arg.max_rd_atomic);
    attrs.max_dest_rd_atomic =
        has(bindings::FERROCE_QP_MAX_DEST_RD_ATOMIC).then_some(arg.max_dest_rd_atomic);
    Ok(attrs)
}

fn path_mtu(bytes: u32) -> Option<Mtu> {
    (1..=5)
        .filter_map(Mtu::from_ib)
        .find(|mtu| mtu.bytes() == bytes)
}

fn path(device: &Device, arg: &bindings::ferroce_modify_qp) -> Result<AhAttr> {
    let (source, interface) = device.ib.hold().ok_or(ENODEV)?.gid(arg.sgid_index)?;
    let path = PathAttr {
        src: address(source),
        dst: address(arg.dgid),
        traffic_class: arg.traffic_class,
        hop_limit: if arg.hop_limit == 0 {
            64
        } else {
            arg.hop_limit
        },
        flow_label: arg.flow_label,
        interface,
        station: None,
    };
    Ok(AhAttr::plain(path, arg.dgid, arg.sgid_index))
}

/// The IP address that a RoCEv2 GID is: IPv4 is mapped into IPv6 (IBTA annex A17.4.5).
fn address(gid: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(gid).to_canonical()
}

/// FERROCE_IOC_ENTER
pub(super) fn enter(context: &Context, arg: Argument) -> Result {
    let mut enter: bindings::ferroce_enter = arg.read()?;
    if enter.qp_count > bindings::FERROCE_MAX_ENTER_QPS
        || (enter.cq == 0 && enter.min_complete != 0)
    {
        return Err(EINVAL);
    }
    submit(context, &enter)?;
    enter.completed = match enter.cq {
        0 => 0,
        cq => wait(context, cq, enter.min_complete, enter.timeout_ns)?,
    };
    arg.write(&enter)
}

/// Rings the doorbell of each queue pair, up to the first that fails.
fn submit(context: &Context, enter: &bindings::ferroce_enter) -> Result {
    let mut handles = array::<u32>(enter.qps, enter.qp_count as usize)?.reader();
    for _ in 0..enter.qp_count {
        let handle = handles.read()?;
        let qp = context.with(|objects| Ok(objects.qps.get(handle)?.qp.clone()))?;
        qp.doorbell()?;
    }
    Ok(())
}

/// Waits for completions; says how many there are.
fn wait(context: &Context, handle: u32, wanted: u32, timeout_ns: u64) -> Result<u32> {
    let find = || context.with(|objects| Ok(objects.cqs.get(handle)?.object.clone()));
    let CqEntry { cq, waiters } = find()?;
    let ring = cq.ring();
    if wanted > ring.capacity() {
        return Err(EINVAL);
    }
    if ring.len() < wanted && timeout_ns != 0 {
        let deadline = match timeout_ns {
            u64::MAX => None,
            ns => Some(timer::now().saturating_add(ns)),
        };
        waiters.wait_until(deadline, || {
            cq.arm(false);
            ring.len() >= wanted || cq.is_closed()
        })?;
        // Destroyed meanwhile, or its device is gone?
        find()?;
    }
    Ok(ring.len())
}
