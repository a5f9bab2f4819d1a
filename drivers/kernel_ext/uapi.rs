// SPDX-License-Identifier: GPL-2.0

//! The argument of an ioctl: a struct of a C header, copied between user space
//! and kernel by the size that the command's number carries, so that both sides
//! may know different lengths of it (the rules of `copy_struct_from_user`).

use crate::bindings;
use core::mem::size_of;
use kernel::{
    ioctl::_IOC_SIZE,
    prelude::*,
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};

/// A struct that may be copied to and from user space.
///
/// # Safety
///
/// It has no padding, and any bytes make a valid value.
pub(crate) unsafe trait Plain: Copy + Default {
    /// Its bytes.
    fn bytes(&self) -> &[u8] {
        // SAFETY: without padding, every byte is initialised.
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    /// Its bytes, to be changed.
    fn bytes_mut(&mut self) -> &mut [u8] {
        let start = core::ptr::from_mut(self).cast();
        // SAFETY: as above, and any bytes may be written.
        unsafe { core::slice::from_raw_parts_mut(start, size_of::<Self>()) }
    }
}

macro_rules! plain {
    ($($name:ident,)*) => {
        // SAFETY: a struct of integers only, whose header says its padding; the sum of its
        // fields is checked against its size where -Wpadded compiles that header.
        $(unsafe impl Plain for bindings::$name {})*
    };
}

plain! {
    ferroce_query,
    ferroce_list_devices,
    ferroce_gid,
    ferroce_get_device,
    ferroce_bind,
    ferroce_alloc_pd,
    ferroce_reg_mr,
    ferroce_create_cq,
    ferroce_create_qp,
    ferroce_modify_qp,
    ferroce_destroy,
    ferroce_enter,
}

/// Where an ioctl's argument lies.
#[derive(Clone, Copy)]
pub(crate) struct Argument {
    at: usize,
    size: usize,
}

impl Argument {
    /// The argument at `at` of the command `cmd`.
    pub(crate) fn new(cmd: u32, at: usize) -> Self {
        Self {
            at,
            size: _IOC_SIZE(cmd),
        }
    }

    /// Copies it in. What the user's struct lacks is zero; what it has beyond ours must
    /// be (`E2BIG`).
    pub(crate) fn read<T: Plain>(self) -> Result<T> {
        let mut value = T::default();
        let mut reader = UserSlice::new(UserPtr::from_addr(self.at), self.size).reader();
        let known = value.bytes_mut();
        let shared = known.len().min(self.size);
        reader.read_slice(&mut known[..shared])?;
        while !reader.is_empty() {
            if reader.read::<u8>()? != 0 {
                return Err(E2BIG);
            }
        }
        Ok(value)
    }

    /// Copies `value` out, as far as the user's struct goes.
    pub(crate) fn write<T: Plain>(self, value: &T) -> Result {
        let bytes = value.bytes();
        let shared = bytes.len().min(self.size);
        UserSlice::new(UserPtr::from_addr(self.at), shared)
            .writer()
            .write_slice(&bytes[..shared])
    }
}

/// A command's number without the size of its argument.
pub(crate) const fn without_size(cmd: u32) -> u32 {
    cmd & !(kernel::uapi::_IOC_SIZEMASK << kernel::uapi::_IOC_SIZESHIFT)
}
