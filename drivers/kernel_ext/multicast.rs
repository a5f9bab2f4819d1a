// SPDX-License-Identifier: GPL-2.0

//! Membership of an interface in IP multicast groups, with IGMP and MLD reports, so that
//! switches which snoop forward a group to here. C side: net/ipv4/igmp.c, net/ipv6/mcast.c.

use super::{
    net::NetRef,
    netdev::{
        self,
        NetDevice, //
    },
    route::in6_addr, //
};
use crate::bindings;
use core::net::IpAddr;
use kernel::{
    error::to_result,
    prelude::*, //
};

/// Makes interface `ifindex` a member of `group` until [`leave`] is called as often.
///
/// Fails with `ENODEV` if there is no such interface or it has not that IP, `ENOMEM`, or
/// `EINVAL`. Sleeps; not under RTNL.
pub(crate) fn join(net: &NetRef, ifindex: u32, group: IpAddr) -> Result {
    with_device(net, ifindex, |dev| match group {
        IpAddr::V4(group) => {
            // SAFETY: RTNL is held, which is what the in_device asks for.
            unsafe {
                let in_dev = bindings::__in_dev_get_rtnl(dev.as_raw());
                if in_dev.is_null() {
                    return Err(ENODEV);
                }
                bindings::ip_mc_inc_group(in_dev, u32::from_ne_bytes(group.octets()));
            }
            Ok(())
        }
        IpAddr::V6(group) => {
            // SAFETY: the device lives while RTNL is held, and the address is copied.
            to_result(unsafe { bindings::ipv6_dev_mc_inc(dev.as_raw(), &in6_addr(group)) })
        }
    })
}

/// Undoes one [`join`]. The membership of an interface that is gone went with it.
pub(crate) fn leave(net: &NetRef, ifindex: u32, group: IpAddr) {
    let left = with_device(net, ifindex, |dev| {
        // SAFETY: as above.
        unsafe {
            match group {
                IpAddr::V4(group) => {
                    let in_dev = bindings::__in_dev_get_rtnl(dev.as_raw());
                    if !in_dev.is_null() {
                        bindings::ip_mc_dec_group(in_dev, u32::from_ne_bytes(group.octets()));
                    }
                }
                IpAddr::V6(group) => {
                    bindings::ipv6_dev_mc_dec(dev.as_raw(), &in6_addr(group));
                }
            }
        }
        Ok(())
    });
    // The only error is that there is no interface.
    let _ = left;
}

fn with_device(net: &NetRef, ifindex: u32, act: impl FnOnce(&NetDevice) -> Result) -> Result {
    netdev::with_rtnl(|| {
        net.with(|net| {
            let net = net.ok_or(ENODEV)?;
            // SAFETY: the namespace is alive, and RTNL keeps what is found.
            let dev = unsafe { bindings::__dev_get_by_index(net.as_raw(), ifindex as c_int) };
            if dev.is_null() {
                return Err(ENODEV);
            }
            // SAFETY: it was found under RTNL, which is still held.
            act(unsafe { NetDevice::from_raw(dev) })
        })
    })
}
