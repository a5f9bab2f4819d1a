// SPDX-License-Identifier: GPL-2.0

//! Addresses of a RoCE path, out of the core's address handle.

use crate::bindings;
use core::net::{
    IpAddr,
    Ipv6Addr, //
};
use kernel::prelude::*;

/// Where packets of an address handle come from and go to.
pub(crate) struct PathAttr {
    /// Our address, of the source GID.
    pub(crate) src: IpAddr,
    /// The peer's address, of the destination GID.
    pub(crate) dst: IpAddr,
    /// TOS or traffic class.
    pub(crate) traffic_class: u8,
    /// TTL or hop limit; 0 was turned into the default of 64.
    pub(crate) hop_limit: u8,
    /// IPv6 flow label.
    pub(crate) flow_label: u32,
}

/// An IP address out of a RoCEv2 GID: IPv4 is mapped into IPv6 (IBTA annex A17.4.5).
fn address(gid: &bindings::ib_gid) -> IpAddr {
    // SAFETY: every bit pattern of the union is a valid array.
    let ip = Ipv6Addr::from(unsafe { gid.raw });
    ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4)
}

impl PathAttr {
    /// Reads an address handle's attributes.
    ///
    /// Fails with `EINVAL` if it has no global route.
    pub(crate) fn new(ah: &bindings::rdma_ah_attr) -> Result<Self> {
        if ah.ah_flags & bindings::ib_ah_flags_IB_AH_GRH as u8 == 0 || ah.grh.sgid_attr.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: the core holds the GID entry for as long as the handle's user does.
        let sgid = unsafe { &(*ah.grh.sgid_attr).gid };
        Ok(Self {
            src: address(sgid),
            dst: address(&ah.grh.dgid),
            traffic_class: ah.grh.traffic_class,
            hop_limit: if ah.grh.hop_limit == 0 {
                64
            } else {
                ah.grh.hop_limit
            },
            flow_label: ah.grh.flow_label,
        })
    }
}
