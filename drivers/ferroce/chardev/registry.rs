// SPDX-License-Identifier: GPL-2.0

//! Which contexts are bound to which device, so that they let go of one that is removed.
//!
//! The list's lock is held over finding a device and entering a context for it, and a
//! device has left [`crate::registry`] before its contexts are looked for here: so none
//! is missed.

use super::context::Context;
use crate::{
    kernel_ext::{
        global::Global,
        ib::port::Held, //
    },
    registry,
    verbs::Device, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        Mutex, //
    },
};

static BOUND: Global<List> = Global::new();

struct Bound {
    device: Arc<Device>,
    context: Arc<Context>,
}

#[pin_data]
struct List {
    #[pin]
    bound: Mutex<KVec<Bound>>,
}

/// Makes the list. Once, before the device file is there.
pub(super) fn open() -> Result {
    let list = Arc::pin_init(
        pin_init!(List { bound <- new_mutex!(KVec::new()) }),
        GFP_KERNEL,
    )?;
    BOUND.swap(Some(list));
    Ok(())
}

/// Gives the list back. No file is open any more.
pub(super) fn close() {
    drop(BOUND.swap(None));
}

/// The indices of the devices that the current task may use.
pub(super) fn indices() -> Result<KVec<u32>> {
    registry::with_devices(|devices| {
        let mut indices = KVec::new();
        for device in devices {
            if device.ib.hold().is_none_or(|held| !held.is_visible()) {
                continue;
            }
            indices.push(device.ib.index(), GFP_KERNEL)?;
        }
        Ok(indices)
    })
}

/// Lets `work` look at a device that the current task may use; `ENODEV` if there is none.
/// It stays until `work` returns.
pub(super) fn find<R>(
    index: u32,
    work: impl FnOnce(&Arc<Device>, &Held) -> Result<R>,
) -> Result<R> {
    registry::with_devices(|devices| {
        let device = devices
            .iter()
            .find(|device| device.ib.index() == index)
            .ok_or(ENODEV)?;
        let held = device.ib.hold().filter(Held::is_visible).ok_or(ENODEV)?;
        work(device, &held)
    })
}

/// Enters a context for a device, if `bind` succeeds.
pub(super) fn join(
    context: ArcBorrow<'_, Context>,
    index: u32,
    bind: impl FnOnce(Arc<Device>) -> Result,
) -> Result {
    let list = BOUND.get().ok_or(ENODEV)?;
    let mut bound = list.bound.lock();
    bound.reserve(1, GFP_KERNEL)?;
    find(index, |device, _| {
        bind(device.clone())?;
        let entry = Bound {
            device: device.clone(),
            context: context.into(),
        };
        Ok(bound.push(entry, GFP_KERNEL)?)
    })
}

/// Forgets a context, which is being closed.
pub(super) fn leave(context: &Context) {
    let left = take(|bound| core::ptr::eq(&*bound.context, context));
    drop(left);
}

/// Ends what contexts have on `device`, which has left [`crate::registry`].
pub(crate) fn device_gone(device: &Device) {
    while let Some(bound) = take(|bound| core::ptr::eq(&*bound.device, device)) {
        bound.context.device_gone();
    }
}

/// Takes the first entry out that is `wanted`.
fn take(wanted: impl Fn(&Bound) -> bool) -> Option<Bound> {
    let list = BOUND.get()?;
    let mut bound = list.bound.lock();
    let place = bound.iter().position(wanted)?;
    bound.remove(place).ok()
}
