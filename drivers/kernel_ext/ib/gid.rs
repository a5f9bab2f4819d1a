// SPDX-License-Identifier: GPL-2.0

//! Addresses of a RoCE path, out of the core's address handle.

use crate::bindings;
use core::net::{
    IpAddr,
    Ipv6Addr, //
};
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::rcu, //
};

/// Where packets of an address handle come from and go to.
#[derive(Clone, Copy)]
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
    /// The interface that has our address, if the core knows: it may be one above the
    /// device's own, such as a VLAN.
    pub(crate) interface: Option<u32>,
    /// The Ethernet address to send to, if the source GID is one of RoCEv1.
    pub(crate) station: Option<[u8; 6]>,
}

/// The interface of an entry of the GID table.
///
/// # Safety
///
/// `attr` is an entry that is held.
pub(super) unsafe fn interface(attr: *const bindings::ib_gid_attr) -> Option<u32> {
    let _guard = rcu::read_lock();
    // SAFETY: by our contract, and RCU keeps the netdev.
    unsafe {
        let ndev = from_err_ptr(bindings::rdma_read_gid_attr_ndev_rcu(attr)).ok()?;
        Some((*ndev).ifindex as u32)
    }
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
        // The core has looked up the Ethernet address.
        let (sgid, interface, station) = unsafe {
            let entry = ah.grh.sgid_attr;
            let v1 = (*entry).gid_type == bindings::ib_gid_type_IB_GID_TYPE_ROCE;
            let station = v1.then_some(ah.__bindgen_anon_1.roce.dmac);
            (&(*entry).gid, interface(entry), station)
        };
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
            interface,
            station,
        })
    }
}

/// An address handle's attributes, as they can be asked for again.
#[derive(Clone, Copy)]
pub(crate) struct AhAttr {
    /// The way.
    pub(crate) path: PathAttr,
    dgid: [u8; 16],
    sgid_index: u8,
    service_level: u8,
    static_rate: u8,
    mac: [u8; 6],
}

impl AhAttr {
    /// Those of a path that has no more than this.
    pub(crate) fn plain(path: PathAttr, dgid: [u8; 16], sgid_index: u8) -> Self {
        Self {
            path,
            dgid,
            sgid_index,
            service_level: 0,
            static_rate: 0,
            mac: [0; 6],
        }
    }

    /// Reads an address handle's attributes. Fails as [`PathAttr::new`] does.
    pub(crate) fn new(ah: &bindings::rdma_ah_attr) -> Result<Self> {
        // SAFETY: every bit pattern of the unions is a valid array.
        let (dgid, mac) = unsafe { (ah.grh.dgid.raw, ah.__bindgen_anon_1.roce.dmac) };
        Ok(Self {
            path: PathAttr::new(ah)?,
            dgid,
            sgid_index: ah.grh.sgid_index,
            service_level: ah.sl,
            static_rate: ah.static_rate,
            mac,
        })
    }

    /// Writes them into the core's struct, but for what the core holds itself.
    pub(crate) fn fill(&self, ah: &mut bindings::rdma_ah_attr) {
        ah.type_ = bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE;
        ah.ah_flags = bindings::ib_ah_flags_IB_AH_GRH as u8;
        ah.port_num = 1;
        ah.sl = self.service_level;
        ah.static_rate = self.static_rate;
        ah.grh.dgid.raw = self.dgid;
        ah.grh.sgid_index = self.sgid_index;
        ah.grh.flow_label = self.path.flow_label;
        ah.grh.hop_limit = self.path.hop_limit;
        ah.grh.traffic_class = self.path.traffic_class;
        ah.__bindgen_anon_1.roce.dmac = self.mac;
    }
}

/// The UDP source port that stands for a flow label (IBTA annex A17.9.1 leaves the choice to
/// the sender; this is the kernel's).
pub(crate) fn flow_port(flow_label: u32) -> u16 {
    // SAFETY: it computes with a number.
    unsafe { bindings::rdma_flow_label_to_udp_sport(flow_label) }
}
