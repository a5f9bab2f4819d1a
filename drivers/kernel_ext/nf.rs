// SPDX-License-Identifier: GPL-2.0

//! A netfilter hook on the packets that are for this host.

use super::{
    net::NetRef,
    skb::{
        self,
        Receive,
        Received,
        Verdict, //
    },
};
use crate::bindings;
use core::mem::ManuallyDrop;
use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

/// A hook for IPv4 and IPv6 packets in `LOCAL_IN`, after every other hook. It is
/// registered while this lives; dropping it waits for calls that still run.
pub(crate) struct LocalIn<T: Receive> {
    net: Arc<NetRef>,
    ops: ManuallyDrop<KBox<Opaque<bindings::nf_hook_ops>>>,
    handler: ManuallyDrop<Arc<T>>,
}

// SAFETY: netfilter only reads the operations while they are registered.
unsafe impl<T: Receive> Send for LocalIn<T> {}
// SAFETY: as above.
unsafe impl<T: Receive> Sync for LocalIn<T> {}

impl<T: Receive> LocalIn<T> {
    /// Registers `handler` in the namespace.
    pub(crate) fn register(net: Arc<NetRef>, handler: Arc<T>) -> Result<Self> {
        let ops = bindings::nf_hook_ops {
            hook: Some(Self::call),
            priv_: core::ptr::from_ref::<T>(&handler).cast_mut().cast(),
            pf: bindings::NFPROTO_INET as u8,
            hooknum: bindings::nf_inet_hooks_NF_INET_LOCAL_IN,
            priority: c_int::MAX,
            ..pin_init::zeroed()
        };
        let ops = KBox::new(Opaque::new(ops), GFP_KERNEL)?;
        net.with(|net| {
            let net = net.ok_or(ENETDOWN)?;
            // SAFETY: the namespace is alive, and the boxed operations stay until `drop`.
            to_result(unsafe { bindings::nf_register_net_hook(net.as_raw(), ops.get()) })
        })?;
        Ok(Self {
            net,
            ops: ManuallyDrop::new(ops),
            handler: ManuallyDrop::new(handler),
        })
    }

    /// # Safety
    ///
    /// For netfilter only, with the private pointer of a registered `Self`.
    unsafe extern "C" fn call(
        handler: *mut c_void,
        skb: *mut bindings::sk_buff,
        _state: *const bindings::nf_hook_state,
    ) -> c_uint {
        // SAFETY: `handler` is the `T` that `drop` keeps until no call runs any more, and
        // netfilter gives the hook a buffer of its own.
        let (handler, packet) = unsafe { (&*handler.cast::<T>(), Received::from_raw(skb)) };
        match handler.receive(packet) {
            Verdict::Pass => bindings::NF_ACCEPT,
            Verdict::Consumed => {
                // SAFETY: with `NF_STOLEN` the buffer is ours.
                unsafe { skb::consume(skb) };
                bindings::NF_STOLEN
            }
        }
    }
}

impl<T: Receive> Drop for LocalIn<T> {
    fn drop(&mut self) {
        let unregistered = self.net.with(|net| {
            // SAFETY: registered in `register`, in this namespace, which is alive.
            net.map(|net| unsafe { bindings::nf_unregister_net_hook(net.as_raw(), self.ops.get()) })
        });
        if unregistered.is_none() {
            pr_err!("bug: a netfilter hook outlived its namespace, its memory is lost\n");
            return;
        }
        // SAFETY: may be called wherever one may sleep.
        unsafe { bindings::synchronize_net() };
        // SAFETY: no call runs any more, and neither is used again.
        unsafe {
            ManuallyDrop::drop(&mut self.ops);
            ManuallyDrop::drop(&mut self.handler);
        }
    }
}
