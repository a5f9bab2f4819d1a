// SPDX-License-Identifier: GPL-2.0

//! The devices of this module: made by `rdma link add`, gone by `rdma link del`, with
//! their interface, or with the module.
//!
//! The module unregisters its own devices only: rdma_rxe has the same driver id, and
//! `ib_unregister_driver` would take its devices along.

use crate::{
    chardev,
    ibdev::Door,
    kernel_ext::{
        global::Global,
        ib::device,
        netdev::NetDevice,
        random, //
    },
    net::Stack,
    verbs::Device, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

static REGISTRY: Global<Registry> = Global::new();

/// What there is while the module is loaded.
#[pin_data]
pub(crate) struct Registry {
    stack: Stack<Device>,
    #[pin]
    devices: Mutex<KVec<Arc<Device>>>,
}

/// Makes `rdma link add` work. Once, when the module starts.
pub(crate) fn open() -> Result {
    let stack = Stack::new()?;
    let registry = Arc::pin_init(
        pin_init!(Registry { stack, devices <- new_mutex!(KVec::new()) }),
        GFP_KERNEL,
    )?;
    REGISTRY.swap(Some(registry));
    Ok(())
}

/// Unregisters all devices and waits until they are gone. When the module stops, after
/// the link type was taken back.
pub(crate) fn close() {
    let Some(registry) = REGISTRY.get() else {
        return;
    };
    // Taken one by one, since each removes itself from the list.
    while let Some(dev) = registry.first() {
        dev.ib.unregister();
        drop(dev);
    }
    device::wait_until_gone();
    drop(registry);
    REGISTRY.swap(None);
}

/// Shows `look` every device there is; none leaves meanwhile.
pub(crate) fn with_devices<R>(look: impl FnOnce(&[Arc<Device>]) -> R) -> R {
    match REGISTRY.get() {
        Some(registry) => look(&registry.devices.lock()),
        None => look(&[]),
    }
}

/// Makes a device on `ndev` and registers it.
///
/// Fails with `EINVAL` for an interface that does not carry IP, `EPERM` for a VLAN, `EEXIST` if it has a device,
/// `EADDRINUSE` if UDP port 4791 is taken, `ENODEV` if the interface is going away, or as
/// the core does.
pub(crate) fn add(name: &CStr, ndev: &NetDevice) -> Result {
    let registry = REGISTRY.get().ok_or(ENODEV)?;
    if !ndev.carries_ip() {
        pr_err!("{}: neither Ethernet nor a tunnel of IP\n", ndev.name());
        return Err(EINVAL);
    }
    if ndev.vlan_id().is_some() {
        pr_err!(
            "{}: the addresses of a VLAN belong to a device on the interface below it\n",
            ndev.name()
        );
        return Err(EPERM);
    }
    let guid = registry.free_guid(ndev);
    device::register::<Door>(name, ndev, guid, |ib| {
        let dev = Device::new(ib, ndev, guid)?;
        // What stands in the way is in the log by now.
        Device::attach(&dev, &registry.stack, ndev)
            .map_err(|e| if e == EBUSY { EEXIST } else { e })?;
        let listed = registry.devices.lock().push(dev.clone(), GFP_KERNEL);
        listed.inspect_err(|_| dev.detach())?;
        Ok(dev)
    })
}

/// Forgets a device that the core gives back.
pub(crate) fn remove(dev: &Device) {
    dev.detach();
    if let Some(registry) = REGISTRY.get() {
        registry
            .devices
            .lock()
            .retain(|other| !core::ptr::eq::<Device>(&**other, dev));
    }
    chardev::device_gone(dev);
}

impl Registry {
    /// The GUID of a device on `ndev`: the EUI-64 that stands for its Ethernet address (RFC
    /// 4291, appendix A), or another one if a device has that, as with a VLAN and the
    /// interface below it, or if there is no address.
    fn free_guid(&self, ndev: &NetDevice) -> [u8; 8] {
        let devices = self.devices.lock();
        let is_free = |guid: &[u8; 8]| devices.iter().all(|other| other.guid != *guid);
        let own = ndev.mac().map(guid_of).filter(is_free);
        own.unwrap_or_else(|| {
            let mut guid = random::bytes();
            // Neither a group's nor one that was bought from the IEEE.
            guid[0] &= !3;
            guid
        })
    }

    fn first(&self) -> Option<Arc<Device>> {
        self.devices.lock().first().cloned()
    }
}

/// The EUI-64 that stands for an Ethernet address.
fn guid_of(mac: [u8; 6]) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac;
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}
