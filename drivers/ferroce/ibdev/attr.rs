// SPDX-License-Identifier: GPL-2.0

//! Attributes: the core's structs on one side, the engine's on the other.

use crate::{
    bindings,
    engine::{
        ModifyAttrs,
        Mtu,
        QpState, //
    },
    verbs::{
        create::{
            Kind,
            QpInit, //
        },
        device::limits,
        Device,
        Qp,
        Srq, //
    },
};
use kernel::prelude::*;

/// What the device can do.
pub(super) fn device(dev: &Device, attr: &mut bindings::ib_device_attr) {
    attr.sys_image_guid = u64::from_ne_bytes(dev.guid);
    attr.vendor_id = 0xff_ffff;
    attr.max_mr_size = u64::MAX;
    attr.page_size_cap = 0xffff_f000;
    attr.device_cap_flags = (bindings::ib_device_cap_flags_IB_DEVICE_RC_RNR_NAK_GEN
        | bindings::ib_device_cap_flags_IB_DEVICE_CURR_QP_STATE_MOD
        | bindings::ib_device_cap_flags_IB_DEVICE_SYS_IMAGE_GUID
        | bindings::ib_device_cap_flags_IB_DEVICE_SRQ_RESIZE
        | bindings::ib_device_cap_flags_IB_DEVICE_XRC
        | bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS
        | bindings::ib_device_cap_flags_IB_DEVICE_MEM_WINDOW
        | bindings::ib_device_cap_flags_IB_DEVICE_MEM_WINDOW_TYPE_2B
        | bindings::ib_device_cap_flags_IB_DEVICE_FLUSH_GLOBAL
        | bindings::ib_device_cap_flags_IB_DEVICE_ATOMIC_WRITE) as u64;
    attr.kernel_cap_flags = (bindings::ib_kernel_cap_flags_IBK_ALLOW_USER_UNREG
        | bindings::ib_kernel_cap_flags_IBK_ON_DEMAND_PAGING)
        .into();
    attr.odp_caps = on_demand();
    attr.max_qp = limits::QPN.end - limits::QPN.start;
    attr.max_qp_wr = limits::QP_WR;
    attr.max_send_sge = limits::SGE;
    attr.max_recv_sge = limits::SGE;
    attr.max_sge_rd = limits::SGE;
    attr.max_srq = limits::SRQ.end - limits::SRQ.start;
    attr.max_srq_wr = limits::QP_WR;
    attr.max_srq_sge = limits::SGE;
    attr.max_cq = 1 << 20;
    attr.max_cqe = limits::CQE;
    attr.max_mr = limits::MR.end - limits::MR.start;
    attr.max_mw = limits::MW.end - limits::MW.start;
    attr.max_pd = 1 << 20;
    attr.max_ah = limits::AH.end - limits::AH.start;
    attr.max_qp_rd_atom = limits::RD_ATOMIC.into();
    attr.max_qp_init_rd_atom = limits::RD_ATOMIC.into();
    attr.max_res_rd_atom = u32::from(limits::RD_ATOMIC) * attr.max_qp;
    attr.max_mcast_grp = limits::GROUPS;
    attr.max_mcast_qp_attach = limits::GROUP_QPS as u32;
    attr.max_total_mcast_qp_attach = limits::GROUPS * limits::GROUP_QPS as u32;
    attr.atomic_cap = bindings::ib_atomic_cap_IB_ATOMIC_HCA;
    attr.max_fast_reg_page_list_len = limits::FAST_PAGES;
    attr.max_pkeys = 1;
    attr.local_ca_ack_delay = 15;
}

/// What may be done with memory on demand, by transport. Unreliable ones have no way to ask
/// for a message again whose buffer was not there: they lose it, as for want of a receive.
fn on_demand() -> bindings::ib_odp_caps {
    use bindings::*;
    let datagram = ib_odp_transport_cap_bits_IB_ODP_SUPPORT_SEND
        | ib_odp_transport_cap_bits_IB_ODP_SUPPORT_RECV
        | ib_odp_transport_cap_bits_IB_ODP_SUPPORT_SRQ_RECV;
    let reliable = datagram
        | ib_odp_transport_cap_bits_IB_ODP_SUPPORT_WRITE
        | ib_odp_transport_cap_bits_IB_ODP_SUPPORT_READ
        | ib_odp_transport_cap_bits_IB_ODP_SUPPORT_ATOMIC
        | ib_odp_transport_cap_bits_IB_ODP_SUPPORT_FLUSH
        | ib_odp_transport_cap_bits_IB_ODP_SUPPORT_ATOMIC_WRITE;
    let mut caps = ib_odp_caps {
        general_caps: (ib_odp_general_cap_bits_IB_ODP_SUPPORT
            | ib_odp_general_cap_bits_IB_ODP_SUPPORT_IMPLICIT)
            .into(),
        ..Default::default()
    };
    caps.per_transport_caps.rc_odp_caps = reliable;
    caps.per_transport_caps.xrc_odp_caps = reliable;
    caps.per_transport_caps.ud_odp_caps = datagram;
    caps.per_transport_caps.uc_odp_caps = ib_odp_transport_cap_bits_IB_ODP_SUPPORT_SEND;
    caps
}

/// The port, but for what its interface says.
pub(super) fn port(dev: &Device, attr: &mut bindings::ib_port_attr) {
    attr.max_mtu = bindings::ib_mtu_IB_MTU_4096;
    attr.active_mtu = dev.mtu();
    attr.gid_tbl_len = limits::GIDS;
    attr.max_msg_sz = 1 << 31;
    attr.pkey_tbl_len = 1;
    attr.max_vl_num = 1;
}

/// The service of an `enum ib_qp_type`. Fails with `EOPNOTSUPP` for those that there are not.
pub(super) fn kind(qp_type: bindings::ib_qp_type) -> Result<Kind> {
    Ok(match qp_type {
        bindings::ib_qp_type_IB_QPT_RC => Kind::Rc,
        bindings::ib_qp_type_IB_QPT_UC => Kind::Uc,
        bindings::ib_qp_type_IB_QPT_UD => Kind::Ud,
        bindings::ib_qp_type_IB_QPT_GSI => Kind::Gsi,
        bindings::ib_qp_type_IB_QPT_XRC_INI => Kind::XrcIni,
        bindings::ib_qp_type_IB_QPT_XRC_TGT => Kind::XrcTgt,
        _ => return Err(EOPNOTSUPP),
    })
}

/// The `enum ib_qp_type` of a service.
pub(super) fn qp_type(kind: Kind) -> bindings::ib_qp_type {
    match kind {
        Kind::Rc => bindings::ib_qp_type_IB_QPT_RC,
        Kind::Uc => bindings::ib_qp_type_IB_QPT_UC,
        Kind::Ud => bindings::ib_qp_type_IB_QPT_UD,
        Kind::Gsi => bindings::ib_qp_type_IB_QPT_GSI,
        Kind::XrcIni => bindings::ib_qp_type_IB_QPT_XRC_INI,
        Kind::XrcTgt => bindings::ib_qp_type_IB_QPT_XRC_TGT,
    }
}

/// What a QP got.
pub(super) fn caps(init: &QpInit) -> bindings::ib_qp_cap {
    bindings::ib_qp_cap {
        max_send_wr: init.send_wr,
        max_recv_wr: init.recv_wr,
        max_send_sge: init.send_sge,
        max_recv_sge: init.recv_sge,
        max_inline_data: init.inline,
        ..Default::default()
    }
}

/// Access flags of a QP: those for the peer count, the others have no meaning there.
const ACCESS: u32 = bindings::ib_access_flags_IB_ACCESS_SUPPORTED;

/// The changes that `mask` selects. Fails with `EINVAL` for a state, an MTU, a P_Key index or
/// access flags that there are not, and for more READs in flight than the device has.
pub(super) fn modify(attr: &bindings::ib_qp_attr, mask: u32) -> Result<ModifyAttrs> {
    use bindings::*;
    let has = |bit| mask & bit != 0;
    let state = |wanted, value| match has(wanted) {
        true => QpState::from_ib(value).ok_or(EINVAL).map(Some),
        false => Ok(None),
    };
    let path_mtu = match has(ib_qp_attr_mask_IB_QP_PATH_MTU) {
        true => Some(Mtu::from_ib(attr.path_mtu).ok_or(EINVAL)?),
        false => None,
    };
    let access = attr.qp_access_flags as u32;
    let reads = attr.max_rd_atomic.max(attr.max_dest_rd_atomic);
    let reading = ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC | ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC;
    if has(ib_qp_attr_mask_IB_QP_PKEY_INDEX) && attr.pkey_index != 0
        || has(ib_qp_attr_mask_IB_QP_ACCESS_FLAGS) && access & !ACCESS != 0
        || has(reading) && reads > limits::RD_ATOMIC
    {
        return Err(EINVAL);
    }
    Ok(ModifyAttrs {
        cur_state: state(ib_qp_attr_mask_IB_QP_CUR_STATE, attr.cur_qp_state)?,
        state: state(ib_qp_attr_mask_IB_QP_STATE, attr.qp_state)?,
        access: has(ib_qp_attr_mask_IB_QP_ACCESS_FLAGS).then_some(access),
        pkey: has(ib_qp_attr_mask_IB_QP_PKEY_INDEX).then_some(0xffff),
        qkey: has(ib_qp_attr_mask_IB_QP_QKEY).then_some(attr.qkey),
        dest_qpn: has(ib_qp_attr_mask_IB_QP_DEST_QPN).then_some(attr.dest_qp_num),
        path_mtu,
        rq_psn: has(ib_qp_attr_mask_IB_QP_RQ_PSN).then_some(attr.rq_psn),
        sq_psn: has(ib_qp_attr_mask_IB_QP_SQ_PSN).then_some(attr.sq_psn),
        timeout: has(ib_qp_attr_mask_IB_QP_TIMEOUT).then_some(attr.timeout),
        retry_cnt: has(ib_qp_attr_mask_IB_QP_RETRY_CNT).then_some(attr.retry_cnt),
        rnr_retry: has(ib_qp_attr_mask_IB_QP_RNR_RETRY).then_some(attr.rnr_retry),
        min_rnr_timer: has(ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER).then_some(attr.min_rnr_timer),
        max_rd_atomic: has(ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC).then_some(attr.max_rd_atomic),
        max_dest_rd_atomic: has(ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC)
            .then_some(attr.max_dest_rd_atomic),
        sqd_event: has(ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY) && attr.en_sqd_async_notify != 0,
    })
}

/// A shared receive queue's attributes as they are now.
pub(super) fn srq(srq: &Srq, attr: &mut bindings::ib_srq_attr) {
    let now = srq.query();
    attr.max_wr = now.max_wr;
    attr.max_sge = now.max_sge;
    attr.srq_limit = now.limit;
}

/// A QP's attributes as they are now.
pub(super) fn query(qp: &Qp, attr: &mut bindings::ib_qp_attr) {
    let now = qp.query();
    attr.qp_state = qp.state() as u32;
    attr.cur_qp_state = attr.qp_state;
    attr.path_mtu = match qp.caps.kind.is_datagram() {
        true => qp.dev.mtu(),
        false => now.path_mtu as u32,
    };
    attr.path_mig_state = bindings::ib_mig_state_IB_MIG_MIGRATED;
    attr.qkey = now.qkey;
    attr.rq_psn = now.rq_psn;
    attr.sq_psn = now.sq_psn;
    attr.dest_qp_num = now.dest_qpn;
    attr.qp_access_flags = now.access as i32;
    attr.cap = caps(&qp.caps);
    attr.port_num = 1;
    attr.timeout = now.timeout;
    attr.retry_cnt = now.retry_cnt;
    attr.rnr_retry = now.rnr_retry;
    attr.min_rnr_timer = now.min_rnr_timer;
    attr.max_rd_atomic = now.max_rd_atomic;
    attr.max_dest_rd_atomic = now.max_dest_rd_atomic;
    attr.sq_draining = qp.is_draining().into();
    if let Some(ah) = qp.ah() {
        ah.fill(&mut attr.ah_attr);
    }
}
