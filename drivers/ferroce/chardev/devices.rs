// SPDX-License-Identifier: GPL-2.0

//! What there is: QUERY, LIST_DEVICES, GET_DEVICE.

use super::registry;
use crate::{
    bindings,
    kernel_ext::{
        ib::port::{
            GidEntry,
            Held, //
        },
        uapi::{
            Argument,
            Plain, //
        },
    },
    verbs::{
        device::limits,
        Device, //
    },
};
use kernel::{
    prelude::*,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

/// FERROCE_IOC_QUERY
pub(super) fn query(arg: Argument) -> Result {
    let mut query: bindings::ferroce_query = arg.read()?;
    if query.pad != 0 {
        return Err(EINVAL);
    }
    query.abi_version = bindings::FERROCE_ABI_VERSION;
    query.features = bindings::FERROCE_FEATURE_RC.into();
    arg.write(&query)
}

/// FERROCE_IOC_LIST_DEVICES
pub(super) fn list(arg: Argument) -> Result {
    let mut list: bindings::ferroce_list_devices = arg.read()?;
    let indices = registry::indices()?;
    let room = (list.capacity as usize).min(indices.len());
    let mut writer = array::<u32>(list.indices, room)?.writer();
    for index in indices.iter().take(room) {
        writer.write(index)?;
    }
    list.count = indices.len() as u32;
    arg.write(&list)
}

/// FERROCE_IOC_GET_DEVICE
pub(super) fn get(arg: Argument) -> Result {
    let mut answer: bindings::ferroce_get_device = arg.read()?;
    if answer.pad != 0 || answer.gid_capacity > bindings::FERROCE_MAX_GIDS {
        return Err(EINVAL);
    }
    let gids = registry::find(answer.index, |device, held| {
        describe(device, held, &mut answer);
        held.gids(limits::GIDS as usize)
    })?;
    let room = (answer.gid_capacity as usize).min(gids.len());
    let mut writer = array::<bindings::ferroce_gid>(answer.gids, room)?.writer();
    for gid in gids.iter().take(room) {
        writer.write_slice(entry(gid).bytes())?;
    }
    answer.gid_count = gids.len() as u32;
    arg.write(&answer)
}

fn describe(device: &Device, held: &Held, answer: &mut bindings::ferroce_get_device) {
    let interface = held.interface().unwrap_or_default();
    answer.ifindex = interface.index;
    answer.netdev_mtu = interface.mtu;
    answer.netdev = interface.name;
    answer.port_state = if interface.active {
        bindings::ferroce_port_state_FERROCE_PORT_ACTIVE
    } else {
        bindings::ferroce_port_state_FERROCE_PORT_DOWN
    };
    answer.path_mtu = 128 << device.mtu();
    answer.name = [0; bindings::FERROCE_NAME_LEN as usize];
    held.copy_name(&mut answer.name);
}

fn entry(gid: &GidEntry) -> bindings::ferroce_gid {
    bindings::ferroce_gid {
        raw: gid.raw,
        index: gid.index,
        type_: gid.kind,
    }
}

/// A user's array of `len` elements.
pub(super) fn array<T>(at: u64, len: usize) -> Result<UserSlice> {
    let bytes = len.checked_mul(size_of::<T>()).ok_or(EINVAL)?;
    Ok(UserSlice::new(UserPtr::from_addr(at.try_into()?), bytes))
}
