// SPDX-License-Identifier: GPL-2.0

//! The performance management agent of a port (IBTA 16.1): answers Get of its counters, for
//! `ports/1/counters` in sysfs and for whoever asks by management datagram.
//!
//! Context: process.

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

/// What a port counts.
pub(crate) struct PortCounters {
    /// Times that the link went down.
    pub(crate) link_downed: u64,
    /// Packets that arrived damaged.
    pub(crate) receive_errors: u64,
    /// Packets that were not sent.
    pub(crate) send_discards: u64,
    /// Bytes sent.
    pub(crate) sent_bytes: u64,
    /// Bytes received.
    pub(crate) received_bytes: u64,
    /// Packets sent.
    pub(crate) sent_packets: u64,
    /// Packets received.
    pub(crate) received_packets: u64,
}

const MAD: usize = size_of::<bindings::ib_mad>();
/// Where the attribute begins (IBTA 16.1.1).
const ATTRIBUTE: usize = 64;

const PERFORMANCE: u8 = 0x04;
const GET: u8 = 0x01;
const GET_RESPONSE: u8 = 0x81;
const CLASS_PORT_INFO: [u8; 2] = [0x00, 0x01];
const PORT_COUNTERS: [u8; 2] = [0x00, 0x12];
const PORT_COUNTERS_EXTENDED: [u8; 2] = [0x00, 0x1d];
/// 64-bit counters, without those of unicast and multicast apart.
const EXTENDED_NO_IETF: [u8; 2] = [0x04, 0x00];
const UNSUPPORTED_ATTRIBUTE: [u8; 2] = [0x00, 0x0c];
const INVALID_FIELD: [u8; 2] = [0x00, 0x1c];

/// The answer to a management datagram, if it is a Get of the performance class.
fn answer(request: &[u8; MAD], counters: &PortCounters) -> Option<[u8; MAD]> {
    if request[1] != PERFORMANCE || request[3] != GET {
        return None;
    }
    let mut out = [0; MAD];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(to) = out.get_mut(at..at + bytes.len()) {
            to.copy_from_slice(bytes);
        }
    };
    put(0, &request[..24]);
    put(3, &[GET_RESPONSE]);
    put(4, &[0, 0]);
    let attribute = [request[16], request[17]];
    let port = request[ATTRIBUTE + 1];
    match attribute {
        CLASS_PORT_INFO => {
            put(ATTRIBUTE, &[1, 1]);
            put(ATTRIBUTE + 2, &EXTENDED_NO_IETF);
        }
        PORT_COUNTERS | PORT_COUNTERS_EXTENDED if port != 1 => put(4, &INVALID_FIELD),
        PORT_COUNTERS => {
            put(ATTRIBUTE + 1, &[port]);
            narrow(counters, |at, bytes| put(ATTRIBUTE + at, bytes));
        }
        PORT_COUNTERS_EXTENDED => {
            put(ATTRIBUTE + 1, &[port]);
            put(ATTRIBUTE + 8, &words(counters.sent_bytes).to_be_bytes());
            put(
                ATTRIBUTE + 16,
                &words(counters.received_bytes).to_be_bytes(),
            );
            put(ATTRIBUTE + 24, &counters.sent_packets.to_be_bytes());
            put(ATTRIBUTE + 32, &counters.received_packets.to_be_bytes());
        }
        _ => put(4, &UNSUPPORTED_ATTRIBUTE),
    }
    Some(out)
}

/// Data is counted in units of four bytes (IBTA 16.1.3.5).
fn words(bytes: u64) -> u64 {
    bytes / 4
}

/// PortCounters, which stop at all ones instead of wrapping (IBTA 16.1.3.5).
fn narrow(counters: &PortCounters, mut put: impl FnMut(usize, &[u8])) {
    let u8s = |n: u64| u8::try_from(n).unwrap_or(u8::MAX);
    let u16s = |n: u64| u16::try_from(n).unwrap_or(u16::MAX).to_be_bytes();
    let u32s = |n: u64| u32::try_from(n).unwrap_or(u32::MAX).to_be_bytes();
    put(7, &[u8s(counters.link_downed)]);
    put(8, &u16s(counters.receive_errors));
    put(14, &u16s(counters.send_discards));
    put(24, &u32s(words(counters.sent_bytes)));
    put(28, &u32s(words(counters.received_bytes)));
    put(32, &u32s(counters.sent_packets));
    put(36, &u32s(counters.received_packets));
}

/// `ib_device_ops::process_mad`.
pub(super) unsafe extern "C" fn process_mad<D: Driver>(
    ib: *mut bindings::ib_device,
    _flags: c_int,
    _port: u32,
    _wc: *const bindings::ib_wc,
    _grh: *const bindings::ib_grh,
    request: *const bindings::ib_mad,
    response: *mut bindings::ib_mad,
    _size: *mut usize,
    _pkey_index: *mut u16,
) -> c_int {
    const TAKEN: c_int = bindings::ib_mad_result_IB_MAD_RESULT_SUCCESS as c_int;
    const REPLY: c_int = bindings::ib_mad_result_IB_MAD_RESULT_REPLY as c_int;
    // SAFETY: the core gives a registered device, and two datagrams of this length, which are
    // plain bytes.
    unsafe {
        let counters = D::port_counters(&DeviceSlot::<D>::get(ib));
        match answer(&request.cast::<[u8; MAD]>().read(), &counters) {
            Some(mad) => {
                response.cast::<[u8; MAD]>().write(mad);
                TAKEN | REPLY
            }
            None => TAKEN,
        }
    }
}
