// SPDX-License-Identifier: GPL-2.0

//! Counters of a port: `rdma statistic`, and `hw_counters` in sysfs.

#![allow(
    clippy::missing_safety_doc,
    reason = "callbacks: the RDMA core is their only caller, and its contract is in ib_verbs.h"
)]

use super::{
    device::DeviceSlot,
    Driver, //
};
use crate::bindings;
use kernel::prelude::*;

/// The name of a counter.
#[repr(transparent)]
pub(crate) struct StatName(bindings::rdma_stat_desc);

impl StatName {
    /// A counter that is always on.
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self(bindings::rdma_stat_desc {
            name: name.to_bytes_with_nul().as_ptr().cast(),
            flags: 0,
            priv_: core::ptr::null(),
        })
    }
}

/// Milliseconds for which the core shows what it has read, as `rdma_alloc_hw_stats_struct` has it.
const LIFESPAN: c_ulong = 10;

/// `ib_device_ops::alloc_hw_port_stats`.
pub(super) unsafe extern "C" fn alloc_port<D: Driver>(
    _ib: *mut bindings::ib_device,
    _port: u32,
) -> *mut bindings::rdma_hw_stats {
    let names = D::COUNTERS;
    // SAFETY: the names are static, and each is the C struct and nothing else.
    unsafe {
        bindings::rdma_alloc_hw_stats_struct(names.as_ptr().cast(), names.len() as c_int, LIFESPAN)
    }
}

/// `ib_device_ops::get_hw_stats`: all counters, whichever is asked for.
pub(super) unsafe extern "C" fn get<D: Driver>(
    ib: *mut bindings::ib_device,
    stats: *mut bindings::rdma_hw_stats,
    port: u32,
    _index: c_int,
) -> c_int {
    if port == 0 || stats.is_null() {
        return EINVAL.to_errno();
    }
    let count = D::COUNTERS.len();
    // SAFETY: the core gives a registered device and what `alloc_port` made, which has room
    // for as many values as there are names.
    unsafe {
        let dev = DeviceSlot::<D>::get(ib);
        let values = (*stats).value.as_mut_slice(count);
        for (index, value) in values.iter_mut().enumerate() {
            *value = D::counter(&dev, index);
        }
    }
    count as c_int
}
