// SPDX-License-Identifier: GPL-2.0

//! What `rdma resource show … -dd` tells of our objects, beside what the core knows.

use crate::{
    kernel_ext::ib::details::Details,
    verbs::{
        mr::Mr,
        Cq,
        Device,
        Qp,
        Srq, //
    },
};

/// Completions that wait and what the owner wants to be told of.
pub(super) fn cq(cq: &Cq, out: &mut Details) {
    let now = cq.query();
    out.number(c"waiting", now.waiting);
    out.number(c"size", now.size);
    out.word(c"armed", now.armed);
    out.number(c"overrun", now.overrun.into());
}

/// Work requests that wait, and how sending goes.
pub(super) fn qp(qp: &Qp, out: &mut Details) {
    let (attrs, now) = (qp.query(), qp.progress());
    out.number(c"sq_in_use", now.sends);
    out.number(c"sq_size", qp.caps.send_wr);
    out.number(c"rq_waiting", now.receives);
    out.number(c"rq_size", qp.caps.recv_wr);
    if qp.caps.kind.is_datagram() {
        return;
    }
    out.number(c"path_mtu", attrs.path_mtu.bytes());
    out.number(c"window", now.window);
    out.number(c"timeout", attrs.timeout.into());
    out.number(c"retry_cnt", attrs.retry_cnt.into());
    out.number(c"rnr_retry", attrs.rnr_retry.into());
    out.number(c"max_rd_atomic", attrs.max_rd_atomic.into());
    out.number(c"max_dest_rd_atomic", attrs.max_dest_rd_atomic.into());
}

/// Receives that wait.
pub(super) fn srq(srq: &Srq, out: &mut Details) {
    let now = srq.query();
    out.number(c"waiting", now.waiting);
    out.number(c"size", now.max_wr);
    out.number(c"max_sge", now.max_sge);
    out.number(c"limit", now.limit);
}

/// What memory it is, and who may do what with it. Not where: everybody may ask.
pub(super) fn mr(dev: &Device, key: u32, out: &mut Details) {
    if let Some(now) = Mr::describe(dev, key) {
        out.word(c"memory", now.memory);
        out.hex(c"access", now.access.into());
        out.number(c"windows", now.windows);
    }
}
