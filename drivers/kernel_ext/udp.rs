// SPDX-License-Identifier: GPL-2.0

//! A UDP port that the kernel keeps for itself.

use super::{
    net::NetRef,
    skb::{
        self,
        Receive,
        Received, //
    },
};
use crate::bindings;
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc, //
};

/// Which IP a socket speaks.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Family {
    /// IPv4.
    V4,
    /// IPv6 only.
    V6,
}

/// A bound UDP socket whose datagrams go to a handler; what the handler passes on is
/// dropped. The port is held while this lives; dropping it waits for calls that
/// still run. It must not outlive its namespace.
pub(crate) struct Port<T: Receive> {
    sock: NonNull<bindings::sock>,
    _handler: Arc<T>,
}

// SAFETY: the socket is touched when it is made and when it goes, by its owner.
unsafe impl<T: Receive> Send for Port<T> {}
// SAFETY: as above.
unsafe impl<T: Receive> Sync for Port<T> {}

/// The low bits of a socket's user data are flags of the C side.
const FLAGS: usize = 7;

impl<T: Receive> Port<T> {
    /// Binds `port` on every address of the namespace.
    pub(crate) fn bind(net: &NetRef, family: Family, port: u16, handler: Arc<T>) -> Result<Self> {
        const { assert!(align_of::<T>() > FLAGS) };
        net.with(|net| {
            let net = net.ok_or(ENETDOWN)?;
            let mut config = bindings::udp_port_cfg {
                local_udp_port: port.to_be(),
                ..pin_init::zeroed()
            };
            let mut socket = ptr::null_mut();
            // SAFETY: the namespace is alive, and both pointers are valid for the call.
            to_result(unsafe {
                match family {
                    Family::V4 => {
                        config.family = bindings::AF_INET as u8;
                        bindings::udp_sock_create4(net.as_raw(), &mut config, &mut socket)
                    }
                    Family::V6 => {
                        config.family = bindings::AF_INET6 as u8;
                        config.set_ipv6_v6only(1);
                        bindings::udp_sock_create6(net.as_raw(), &mut config, &mut socket)
                    }
                }
            })?;
            let mut tunnel = bindings::udp_tunnel_sock_cfg {
                sk_user_data: ptr::from_ref::<T>(&handler).cast_mut().cast(),
                encap_type: 1,
                encap_rcv: Some(Self::call),
                ..pin_init::zeroed()
            };
            // SAFETY: the socket was just made, so it has a `sk`, and it goes in `drop`
            // before the handler does.
            let sock = unsafe {
                let sock = (*socket).sk.cast::<bindings::sock>();
                bindings::setup_udp_tunnel_sock(net.as_raw(), sock.cast(), &mut tunnel);
                NonNull::new_unchecked(sock)
            };
            Ok(Self {
                sock,
                _handler: handler,
            })
        })
    }

    /// # Safety
    ///
    /// For UDP only, with the socket of a `Self`.
    unsafe extern "C" fn call(sock: *mut bindings::sock, skb: *mut bindings::sk_buff) -> c_int {
        // SAFETY: the socket is valid during the call; its user data may change meanwhile.
        let data = unsafe { ptr::addr_of!((*sock).sk_user_data).read_volatile() };
        // SAFETY: `data` is the `T` that `drop` keeps until no call runs any more, or null.
        let handler = unsafe { data.map_addr(|addr| addr & !FLAGS).cast::<T>().as_ref() };
        if let Some(handler) = handler {
            // SAFETY: the buffer is ours, and unshared on its way up.
            handler.receive(unsafe { Received::from_raw(skb) });
        }
        // SAFETY: with a return of 0 the buffer is ours.
        unsafe { skb::consume(skb) };
        0
    }
}

impl<T: Receive> Drop for Port<T> {
    fn drop(&mut self) {
        // SAFETY: bound in `bind`. After a grace period no call runs, and then the
        // handler goes.
        unsafe {
            bindings::udp_tunnel_sock_release(self.sock.as_ptr().cast());
            bindings::synchronize_net();
        }
    }
}
