// SPDX-License-Identifier: GPL-2.0

//! Frames of one ethertype.

use super::{
    net::NetRef,
    skb::{
        self,
        Receive,
        Received, //
    },
};
use crate::bindings;
use kernel::{
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

struct Inner<T: Receive> {
    net: Arc<NetRef>,
    handler: Arc<T>,
    ops: Opaque<bindings::packet_type>,
}

/// A handler for the frames of one ethertype that arrive in one namespace. It is registered
/// while this lives; dropping it waits for calls that still run.
pub(crate) struct PacketType<T: Receive>(KBox<Inner<T>>);

// SAFETY: the networking core only reads what is registered.
unsafe impl<T: Receive> Send for PacketType<T> {}
// SAFETY: as above.
unsafe impl<T: Receive> Sync for PacketType<T> {}

impl<T: Receive> PacketType<T> {
    /// Registers `handler`, which is given what is addressed to this host.
    pub(crate) fn register(ethertype: u16, net: Arc<NetRef>, handler: Arc<T>) -> Result<Self> {
        let inner = KBox::new(
            Inner {
                net,
                handler,
                ops: Opaque::new(pin_init::zeroed()),
            },
            GFP_KERNEL,
        )?;
        // SAFETY: nobody else knows the box yet, and it stays where it is until `drop`.
        unsafe {
            let ops = inner.ops.get();
            (*ops).type_ = ethertype.to_be();
            (*ops).func = Some(Self::call);
            (*ops).af_packet_priv = core::ptr::from_ref::<Inner<T>>(&inner).cast_mut().cast();
            bindings::dev_add_pack(ops);
        }
        Ok(Self(inner))
    }

    /// # Safety
    ///
    /// For the networking core only, with what a `Self` has registered.
    unsafe extern "C" fn call(
        skb: *mut bindings::sk_buff,
        dev: *mut bindings::net_device,
        ops: *mut bindings::packet_type,
        _first: *mut bindings::net_device,
    ) -> c_int {
        // SAFETY: the private pointer is the box that `drop` keeps until no call runs any
        // more; buffer and device are valid, and one reference on the buffer is ours.
        unsafe {
            let inner = &*(*ops).af_packet_priv.cast::<Inner<T>>();
            let here = inner
                .net
                .is(super::net::Net::from_raw(bindings::dev_net(dev)));
            let skb = bindings::skb_share_check(skb, bindings::FERROCE_GFP_ATOMIC_NOWARN);
            if skb.is_null() {
                return 0;
            }
            let packet = Received::from_raw(skb);
            if here && packet.is_for_us() {
                inner.handler.receive(packet);
            }
            skb::consume(skb);
        }
        0
    }
}

impl<T: Receive> Drop for PacketType<T> {
    fn drop(&mut self) {
        // SAFETY: registered in `register`; this waits for calls that run, and sleeps.
        unsafe { bindings::dev_remove_pack(self.0.ops.get()) };
    }
}
