// SPDX-License-Identifier: GPL-2.0

//! Kernel memory by its address, for the work requests of kernel users, whose
//! addresses are kernel virtual ones (`ib_uses_virt_dma`).
//!
//! Only memory of the direct map is reached: what comes from kmalloc or the page
//! allocator. An address of anything else (vmalloc, a module, user space) is refused,
//! so that a wrong one, which a peer may send, does no more than fail.
//! Any context.

use crate::bindings;
use core::sync::atomic::AtomicU64;
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

/// `EFAULT` unless all `len` bytes at `addr` are memory of the direct map.
fn check(addr: usize, len: usize) -> Result<*mut u8> {
    let last = addr.checked_add(len.saturating_sub(1)).ok_or(EFAULT)?;
    // SAFETY: it looks the page up and touches nothing.
    let valid = |at| unsafe { bindings::ferroce_virt_addr_valid(at as *const c_void) };
    if !valid(last) || !(addr..last).step_by(PAGE_SIZE).all(valid) {
        return Err(EFAULT);
    }
    Ok(addr as *mut u8)
}

/// The right to reach all kernel memory, which the RDMA core gives to a kernel user's
/// memory region: such a user answers for its addresses, as with a device that does DMA.
#[derive(Clone, Copy)]
pub(crate) struct DirectMap(());

impl DirectMap {
    /// For a region that the core asks for on behalf of a kernel user.
    pub(super) fn new() -> Self {
        Self(())
    }

    /// Copies from kernel memory at `addr`. `EFAULT` where there is none.
    pub(crate) fn read(&self, addr: usize, out: &mut [u8]) -> Result {
        let from = check(addr, out.len())?;
        // SAFETY: the bytes are mapped memory that the kernel user lets us read.
        unsafe { core::ptr::copy(from, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Copies to kernel memory at `addr`. `EFAULT` where there is none.
    pub(crate) fn write(&self, addr: usize, bytes: &[u8]) -> Result {
        let to = check(addr, bytes.len())?;
        // SAFETY: the bytes are mapped memory that the kernel user lets us write.
        unsafe { core::ptr::copy(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// The 64-bit word at `addr`, for an atomic. `EFAULT` where there is none, `EINVAL` if it
    /// is not aligned.
    pub(crate) fn word(&self, addr: usize) -> Result<&AtomicU64> {
        let at = check(addr, 8)?;
        if addr % 8 != 0 {
            return Err(EINVAL);
        }
        // SAFETY: eight aligned bytes of mapped memory, as in `write`.
        Ok(unsafe { AtomicU64::from_ptr(at.cast()) })
    }
}

/// Whether the kernel may touch a page at its address: secret memory (`memfd_secret`) has none.
pub(super) fn is_mapped(address: *const c_void) -> bool {
    let mut byte = 0u8;
    // SAFETY: it reads a byte into our variable, and survives an address that is not mapped.
    unsafe { bindings::copy_from_kernel_nofault((&raw mut byte).cast(), address, 1) == 0 }
}
