// SPDX-License-Identifier: GPL-2.0

//! Memory of another driver, shared as a dma-buf and mapped into the kernel.
//!
//! A device that computes with the CPU has no DMA addresses, so the buffer is mapped as a
//! whole (`vmap`), which is also what keeps it in place. An exporter that moves its buffers
//! (with a `pin` operation) wants an attached device for that, and device memory is no
//! memory for atomics: both are refused.
//!
//! C side: include/linux/dma-buf.h, include/linux/iosys-map.h.

use crate::bindings;
use core::sync::atomic::AtomicU64;
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*, //
};

/// A reference to a dma-buf.
struct Buffer(*mut bindings::dma_buf);

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it came from `dma_buf_get` and is put once.
        unsafe { bindings::dma_buf_put(self.0) };
    }
}

/// A dma-buf's mapping in the kernel.
struct Mapping {
    buffer: Buffer,
    map: bindings::iosys_map,
}

impl Mapping {
    fn new(buffer: Buffer) -> Result<Self> {
        let mut map = bindings::iosys_map::default();
        // SAFETY: the buffer is referenced; the map is ours.
        to_result(unsafe { bindings::dma_buf_vmap_unlocked(buffer.0, &mut map) })?;
        Ok(Self { buffer, map })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped in `new`.
        unsafe { bindings::dma_buf_vunmap_unlocked(self.buffer.0, &mut self.map) };
    }
}

/// A part of a dma-buf. Dropping it may sleep.
pub(crate) struct DmaBuf {
    mapping: Mapping,
    start: *mut u8,
    len: usize,
}

// SAFETY: the mapping is shared memory and may be undone by any task.
unsafe impl Send for DmaBuf {}
// SAFETY: as above; access copies bytes.
unsafe impl Sync for DmaBuf {}

impl DmaBuf {
    /// Maps `len` bytes at `offset` of the dma-buf `fd` of the current process.
    ///
    /// Fails with `EBADF` or `EINVAL` for a descriptor of something else, `EINVAL` for a range
    /// that is not in the buffer or has no bytes, `EOPNOTSUPP` for a buffer that moves or is
    /// device memory, and as the exporter does.
    pub(crate) fn map(fd: c_int, offset: u64, len: u64) -> Result<Self> {
        // SAFETY: it looks the descriptor up, and the result is an error or a reference.
        let buffer = Buffer(from_err_ptr(unsafe { bindings::dma_buf_get(fd) })?);
        let (offset, len) = (usize::try_from(offset)?, usize::try_from(len)?);
        // SAFETY: the buffer is referenced; its size and operations never change.
        let (size, moves) = unsafe { ((*buffer.0).size, (*(*buffer.0).ops).pin.is_some()) };
        let end = offset
            .checked_add(len)
            .filter(|&end| end <= size && len > 0);
        end.ok_or(EINVAL)?;
        if moves {
            return Err(EOPNOTSUPP);
        }
        let mapping = Mapping::new(buffer)?;
        if mapping.map.is_iomem {
            return Err(EOPNOTSUPP);
        }
        // SAFETY: it is no device memory, so the union holds the address of all `size` bytes.
        let start = unsafe { mapping.map.__bindgen_anon_1.vaddr.cast::<u8>().add(offset) };
        // SAFETY: the buffer is referenced. CPU caches are coherent on the machines that we
        // run on; the exporter may have more to do.
        to_result(unsafe {
            bindings::dma_buf_begin_cpu_access(
                mapping.buffer.0,
                bindings::dma_data_direction::DMA_BIDIRECTIONAL,
            )
        })?;
        Ok(Self {
            mapping,
            start,
            len,
        })
    }

    fn at(&self, start: usize, len: usize) -> Result<*mut u8> {
        if start.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(EFAULT);
        }
        Ok(self.start.wrapping_add(start))
    }

    /// Copies from byte `start` on. `EFAULT` outside.
    pub(crate) fn read(&self, start: usize, out: &mut [u8]) -> Result {
        let from = self.at(start, out.len())?;
        // SAFETY: the bytes are mapped. Others may write meanwhile; these are plain bytes.
        unsafe { core::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Copies to byte `start` and what follows. `EFAULT` outside.
    pub(crate) fn write(&self, start: usize, bytes: &[u8]) -> Result {
        let to = self.at(start, bytes.len())?;
        // SAFETY: as in `read`.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// The aligned word at byte `start`. `EFAULT` outside, `EINVAL` if it is not aligned.
    pub(crate) fn word(&self, start: usize) -> Result<&AtomicU64> {
        let word = self.at(start, 8)?;
        if word.addr() % 8 != 0 {
            return Err(EINVAL);
        }
        // SAFETY: eight aligned bytes that stay mapped as long as `self`.
        Ok(unsafe { AtomicU64::from_ptr(word.cast()) })
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        // SAFETY: as in `map`, which began it. The mapping goes afterwards.
        unsafe {
            bindings::dma_buf_end_cpu_access(
                self.mapping.buffer.0,
                bindings::dma_data_direction::DMA_BIDIRECTIONAL,
            )
        };
    }
}
