// SPDX-License-Identifier: GPL-2.0

//! Routes of outgoing flows, and a cache for one.

use super::{
    net::Net,
    netdev::NetDevice, //
};
use crate::bindings;
use core::{
    mem::ManuallyDrop,
    net::{
        IpAddr,
        Ipv4Addr,
        Ipv6Addr, //
    },
    ptr::{
        self,
        NonNull, //
    },
    sync::atomic::{
        AtomicPtr,
        AtomicU32,
        Ordering, //
    },
};
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::rcu, //
};

/// What a route is looked up for.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) struct Flow {
    /// The interface to leave through.
    pub(crate) ifindex: u32,
    /// Both addresses, of one family.
    pub(crate) addrs: Addrs,
    /// UDP source port.
    pub(crate) sport: u16,
    /// UDP destination port.
    pub(crate) dport: u16,
    /// IPv4 TOS or IPv6 traffic class.
    pub(crate) tclass: u8,
    /// IPv6 flow label.
    pub(crate) flow_label: u32,
}

/// A source and a destination address of one family.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Addrs {
    /// IPv4.
    V4(Ipv4Addr, Ipv4Addr),
    /// IPv6.
    V6(Ipv6Addr, Ipv6Addr),
}

impl Addrs {
    /// Pairs two addresses; `EAFNOSUPPORT` if they are of different families.
    pub(crate) fn new(src: IpAddr, dst: IpAddr) -> Result<Self> {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Ok(Self::V4(src, dst)),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Ok(Self::V6(src, dst)),
            _ => Err(EAFNOSUPPORT),
        }
    }
}

/// The C form of an IPv6 address.
pub(super) fn in6_addr(addr: Ipv6Addr) -> bindings::in6_addr {
    bindings::in6_addr {
        in6_u: bindings::in6_addr__bindgen_ty_1 {
            u6_addr8: addr.octets(),
        },
    }
}

impl Flow {
    fn common(&self) -> bindings::flowi_common {
        const ECN_MASK: u8 = 3;
        bindings::flowi_common {
            flowic_oif: self.ifindex as c_int,
            flowic_iif: bindings::LOOPBACK_IFINDEX as c_int,
            flowic_dscp: self.tclass & !ECN_MASK,
            flowic_proto: bindings::IPPROTO_UDP as u8,
            ..Default::default()
        }
    }

    fn ports(&self) -> bindings::flowi_uli {
        bindings::flowi_uli {
            ports: bindings::flowi_uli__bindgen_ty_1 {
                dport: self.dport.to_be(),
                sport: self.sport.to_be(),
            },
        }
    }
}

/// A route: a counted reference on a `dst_entry`.
pub(crate) struct Route(NonNull<bindings::dst_entry>);

// SAFETY: the reference count is atomic, and the entry is only read.
unsafe impl Send for Route {}

impl Route {
    /// Looks a route up. Does not sleep. The number is the route's cookie.
    fn lookup(net: &Net, flow: &Flow) -> Result<(Self, u32)> {
        match flow.addrs {
            Addrs::V4(src, dst) => {
                let mut key = bindings::flowi4 {
                    __fl_common: flow.common(),
                    saddr: u32::from_ne_bytes(src.octets()),
                    daddr: u32::from_ne_bytes(dst.octets()),
                    uli: flow.ports(),
                };
                // SAFETY: the namespace is alive and the key valid for the call.
                let route = from_err_ptr(unsafe {
                    bindings::ip_route_output_flow(net.as_raw(), &mut key, ptr::null())
                })?;
                Ok((Self(NonNull::new(route.cast()).ok_or(EHOSTUNREACH)?), 0))
            }
            Addrs::V6(src, dst) => {
                let class = u32::from(flow.tclass) << 20;
                let mut key = bindings::flowi6 {
                    __fl_common: flow.common(),
                    saddr: in6_addr(src),
                    daddr: in6_addr(dst),
                    flowlabel: (class | (flow.flow_label & 0xf_ffff)).to_be(),
                    uli: flow.ports(),
                    ..Default::default()
                };
                // SAFETY: as above.
                let route = from_err_ptr(unsafe {
                    bindings::ip6_dst_lookup_flow(net.as_raw(), ptr::null(), &mut key, ptr::null())
                })?;
                let route = Self(NonNull::new(route.cast()).ok_or(EHOSTUNREACH)?);
                // SAFETY: an IPv6 lookup gives an entry that begins an `rt6_info`, or an IPsec
                // bundle, which has no cookie.
                let (error, cookie) = unsafe {
                    let dst = route.0.as_ref();
                    let cookie = match route.is_transformed() {
                        false => bindings::rt6_get_cookie(route.0.as_ptr().cast()),
                        true => 0,
                    };
                    (dst.error, cookie)
                };
                match error {
                    0 => Ok((route, cookie)),
                    _ => Err(EHOSTUNREACH),
                }
            }
        }
    }

    fn raw(&self) -> &bindings::dst_entry {
        // SAFETY: the counted reference keeps the entry.
        unsafe { self.0.as_ref() }
    }

    /// The interface to leave through.
    pub(crate) fn device<'g>(&self, _guard: &'g rcu::Guard) -> &'g NetDevice {
        // SAFETY: an entry always has a device, which RCU keeps when another replaces it.
        unsafe {
            NetDevice::from_raw(
                ptr::addr_of!(self.raw().__bindgen_anon_1.dev)
                    .read_volatile()
                    .cast(),
            )
        }
    }

    /// The room to leave before the IP header.
    pub(crate) fn headroom(&self, guard: &rcu::Guard) -> usize {
        self.device(guard).link_headroom() + usize::from(self.raw().header_len)
    }

    /// Whether it is a route of IPv6.
    pub(super) fn is_v6(&self) -> bool {
        // SAFETY: an entry's operations are static.
        u32::from(unsafe { (*self.raw().ops).family }) == bindings::AF_INET6
    }

    /// Whether IPsec transforms what goes along here.
    #[cfg(CONFIG_XFRM)]
    pub(crate) fn is_transformed(&self) -> bool {
        !self.raw().xfrm.is_null()
    }

    /// Never, as this kernel has no IPsec.
    #[cfg(not(CONFIG_XFRM))]
    pub(crate) fn is_transformed(&self) -> bool {
        false
    }

    /// Gives the reference away.
    pub(super) fn into_raw(self) -> *mut bindings::dst_entry {
        ManuallyDrop::new(self).0.as_ptr()
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        // SAFETY: the reference is ours.
        unsafe { bindings::dst_release(self.0.as_ptr()) }
    }
}

/// The route of one flow, kept until the stack says that it is out of date.
///
/// It takes no lock and may be used from any context: entries are freed a grace
/// period after the last reference, so a reader may try to count one more.
pub(crate) struct RouteCache {
    dst: AtomicPtr<bindings::dst_entry>,
    cookie: AtomicU32,
}

impl RouteCache {
    /// An empty cache.
    pub(crate) fn new() -> Self {
        Self {
            dst: AtomicPtr::new(ptr::null_mut()),
            cookie: AtomicU32::new(0),
        }
    }

    /// The route, if it is still good.
    pub(crate) fn get(&self, _guard: &rcu::Guard) -> Option<Route> {
        // The cookie is that of this route or of another one; with another's the
        // check fails, which costs a lookup.
        let dst = NonNull::new(self.dst.load(Ordering::Acquire))?;
        // SAFETY: RCU keeps the memory; without a reference it is not touched further.
        if !unsafe { bindings::dst_hold_safe(dst.as_ptr()) } {
            return None;
        }
        let route = Route(dst);
        let cookie = self.cookie.load(Ordering::Relaxed);
        // SAFETY: the reference was just counted.
        let good = unsafe { bindings::dst_check(dst.as_ptr(), cookie) };
        (!good.is_null()).then_some(route)
    }

    /// Looks the route up anew and keeps it.
    pub(crate) fn refresh(&self, net: &Net, flow: &Flow) -> Result<Route> {
        let (route, cookie) = Route::lookup(net, flow)?;
        // SAFETY: the reference is ours, so one more may be counted.
        unsafe { bindings::dst_hold(route.0.as_ptr()) };
        self.cookie.store(cookie, Ordering::Relaxed);
        self.replace(route.0.as_ptr());
        Ok(route)
    }

    fn replace(&self, dst: *mut bindings::dst_entry) {
        let old = self.dst.swap(dst, Ordering::AcqRel);
        // SAFETY: the cache's own reference, or null, which is allowed.
        unsafe { bindings::dst_release(old) };
    }
}

impl Drop for RouteCache {
    fn drop(&mut self) {
        self.replace(ptr::null_mut());
    }
}
