// SPDX-License-Identifier: GPL-2.0

//! What the RDMA core knows about a registered device and its one port.
//!
//! Context: process.

use super::device::IbDevice;
use crate::bindings;
use kernel::prelude::*;

/// An entry of the GID table.
pub(crate) struct GidEntry {
    /// Its place in the table.
    pub(crate) index: u32,
    /// `enum ib_gid_type`.
    pub(crate) kind: u32,
    /// The GID itself.
    pub(crate) raw: [u8; 16],
}

/// The interface behind the port.
#[derive(Default)]
pub(crate) struct Interface {
    /// Its number.
    pub(crate) index: u32,
    /// Its name, filled up with zeros.
    pub(crate) name: [u8; 16],
    /// Its MTU in bytes.
    pub(crate) mtu: u32,
    /// Whether it carries packets.
    pub(crate) active: bool,
}

/// A registered device that stays so meanwhile: whoever unregisters it waits for this to go.
pub(crate) struct Held(IbDevice);

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the reference was taken by `hold`.
        unsafe { bindings::ib_device_put(self.0.as_ptr()) };
    }
}

impl IbDevice {
    /// The core's number of the device.
    pub(crate) fn index(self) -> u32 {
        // SAFETY: the object is alive.
        unsafe { (*self.as_ptr()).index }
    }

    /// Keeps the device registered, if it is.
    pub(crate) fn hold(self) -> Option<Held> {
        // SAFETY: the object is alive.
        unsafe { bindings::ib_device_try_get(self.as_ptr()) }.then_some(Held(self))
    }
}

impl Held {
    fn as_ptr(&self) -> *mut bindings::ib_device {
        self.0.as_ptr()
    }

    /// Copies the device's name to the start of `to`, whose last byte stays 0.
    pub(crate) fn copy_name(&self, to: &mut [u8]) {
        // SAFETY: the name of a registered device is NUL-terminated; a rename may change it
        // meanwhile, but not move it.
        let name = unsafe { &(*self.as_ptr()).name };
        copy_text(name, to);
    }

    /// Whether the current task may use the device from its network namespace.
    pub(crate) fn is_visible(&self) -> bool {
        // SAFETY: a running task has namespaces, and the device is alive.
        unsafe {
            let nsproxy = (*bindings::get_current()).nsproxy;
            bindings::rdma_dev_access_netns(self.as_ptr(), (*nsproxy).net_ns.cast())
        }
    }

    /// The interface, if it is still there.
    pub(crate) fn interface(&self) -> Option<Interface> {
        let mut interface = Interface::default();
        // SAFETY: the device is alive; the netdev is referenced until `dev_put`.
        unsafe {
            let ndev = bindings::ib_device_get_netdev(self.as_ptr(), 1);
            if ndev.is_null() {
                return None;
            }
            interface.index = (*ndev).ifindex as u32;
            copy_text(&(*ndev).name, &mut interface.name);
            interface.mtu = (*ndev).mtu;
            interface.active =
                bindings::ib_get_curr_port_state(ndev) == bindings::ib_port_state_IB_PORT_ACTIVE;
            bindings::dev_put(ndev);
        }
        Some(interface)
    }

    /// The RoCEv2 GID at `index` of the table and its interface. `ENOENT` if there is none,
    /// `EOPNOTSUPP` if it is one of RoCEv1.
    pub(crate) fn gid(&self, index: u8) -> Result<([u8; 16], Option<u32>)> {
        // SAFETY: the device is alive; an entry that was found is ours until `put`, and any
        // bytes make a valid array.
        unsafe {
            let attr = bindings::rdma_get_gid_attr(self.as_ptr(), 1, index.into());
            let attr = kernel::error::from_err_ptr(attr.cast_mut()).map_err(|_| ENOENT)?;
            let found = ((*attr).gid.raw, super::gid::interface(attr));
            let v2 = (*attr).gid_type == bindings::ib_gid_type_IB_GID_TYPE_ROCE_UDP_ENCAP;
            bindings::rdma_put_gid_attr(attr);
            v2.then_some(found).ok_or(EOPNOTSUPP)
        }
    }

    /// The entries of the GID table that are in use; at most `max` of them may be.
    pub(crate) fn gids(&self, max: usize) -> Result<KVVec<GidEntry>> {
        let mut raw = KVVec::new();
        raw.resize(max, bindings::ib_uverbs_gid_entry::default(), GFP_KERNEL)?;
        // SAFETY: the device is alive, and the array has room for `max` entries.
        let count = unsafe { bindings::rdma_query_gid_table(self.as_ptr(), raw.as_mut_ptr(), max) };
        let count = usize::try_from(count).map_err(|_| EIO)?;
        let mut gids = KVVec::with_capacity(count, GFP_KERNEL)?;
        for entry in raw.iter().take(count) {
            let mut gid = [0; 16];
            gid[..8].copy_from_slice(&entry.gid[0].to_ne_bytes());
            gid[8..].copy_from_slice(&entry.gid[1].to_ne_bytes());
            gids.push(
                GidEntry {
                    index: entry.gid_index,
                    kind: entry.gid_type,
                    raw: gid,
                },
                GFP_KERNEL,
            )?;
        }
        Ok(gids)
    }
}

/// Copies a NUL-terminated text as far as there is room.
fn copy_text(from: &[c_char], to: &mut [u8]) {
    let room = to.len().saturating_sub(1);
    for (to, from) in to
        .iter_mut()
        .take(room)
        .zip(from.iter().take_while(|c| **c != 0))
    {
        *to = *from;
    }
}
