// SPDX-License-Identifier: GPL-2.0

//! The verbs objects around the engine: what both doors (the `ib_device` and the
//! character device) are thin translations into.
//!
//! Context: objects are made and destroyed in process context; packets and timers
//! come in softirq. A QP's engine is behind one bh lock, which is never held while a
//! packet is sent. Memory regions are looked up under RCU and used only inside the
//! read-side section, so that deregistration waits for a grace period and no more.

pub(crate) mod advise;
pub(crate) mod ah;
mod backing;
pub(crate) mod counters;
pub(crate) mod cq;
pub(crate) mod create;
pub(crate) mod device;
mod due;
mod env;
pub(crate) mod fast;
mod memory;
pub(crate) mod mr;
mod multicast;
pub(crate) mod mw;
mod post;
pub(crate) mod qp;
mod resize;
mod rx;
mod srq;
mod transmit;
pub(crate) mod wqe;

pub(crate) use self::{
    ah::Ah,
    cq::Cq,
    device::{
        Device,
        Pd,
        Xrcd, //
    },
    fast::FastMr,
    mr::Mr,
    mw::Mw,
    qp::Qp,
    srq::Srq, //
};
