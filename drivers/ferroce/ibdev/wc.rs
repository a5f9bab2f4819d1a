// SPDX-License-Identifier: GPL-2.0

//! Completions as kernel users see them.

use crate::{
    bindings,
    verbs::{
        cq::Entry,
        Cq,
        Device, //
    },
};
use kernel::sync::rcu;

/// The oldest completion of `cq`, taken out.
///
/// Those of a QP that was destroyed are passed over: their work requests are no more.
pub(super) fn next(dev: &Device, cq: &Cq) -> Option<bindings::ib_wc> {
    let rcu = rcu::read_lock();
    for _ in 0..=cq.ring().capacity() {
        let entry = cq.poll()?;
        let qp = dev.qps.get(entry.qpn(), &rcu).and_then(|qp| qp.handle());
        if let Some(qp) = qp {
            return Some(translate(&entry, qp.as_ptr()));
        }
    }
    None
}

fn translate(entry: &Entry, qp: *mut bindings::ib_qp) -> bindings::ib_wc {
    let mut wc = bindings::ib_wc {
        status: entry.status(),
        opcode: entry.opcode(),
        byte_len: entry.byte_len(),
        qp,
        src_qp: entry.src_qp(),
        port_num: 1,
        ..Default::default()
    };
    wc.__bindgen_anon_1.wr_id = entry.wr_id();
    wc.ex.imm_data = u32::from_ne_bytes(entry.ex());
    for (is_set, flag) in [
        (entry.with_grh(), bindings::ib_wc_flags_IB_WC_GRH),
        (entry.with_imm(), bindings::ib_wc_flags_IB_WC_WITH_IMM),
        (
            entry.with_invalidate(),
            bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE,
        ),
    ] {
        if is_set {
            wc.wc_flags |= flag as i32;
        }
    }
    // The connection manager finds our GID by it.
    if let Some(id) = entry.vlan().filter(|_| entry.with_grh()) {
        wc.vlan_id = id;
        wc.wc_flags |= bindings::ib_wc_flags_IB_WC_WITH_VLAN as i32;
    }
    wc
}
