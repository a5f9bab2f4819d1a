// SPDX-License-Identifier: GPL-2.0

//! What lies under a memory region: pages of a process or of the kernel.
//!
//! Accessed under a QP's lock and in an RCU read-side section, in any context.

use super::{
    fast::Pages,
    mr::ON_DEMAND,
    Device, //
};
use crate::{
    engine::MemError,
    kernel_ext::{
        dmabuf::DmaBuf,
        implicit::Implicit,
        kmem::DirectMap,
        odp::Odp,
        umem::Umem, //
    },
};
use core::sync::atomic::AtomicU64;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// What a region's memory is.
pub(super) enum Backing {
    /// There is none: the region gives access to nothing.
    Nothing,
    /// Pinned pages of a process.
    User(Umem),
    /// Pages of a process that are fetched when they are wanted.
    OnDemand(Arc<Odp>),
    /// All memory of a process, fetched in the same way; byte 0 is address 0.
    Implicit(Arc<Implicit>),
    /// Memory of another driver.
    Shared(DmaBuf),
    /// All kernel memory, of which byte 0 is address 0.
    Kernel(DirectMap),
    /// Pages that a kernel user listed.
    Listed(Pages),
}

/// What an access says to the engine when it failed with `e`.
fn failure(e: Error) -> MemError {
    match e {
        EAGAIN => MemError::Absent,
        _ => MemError::Fault,
    }
}

/// The same for an atomic. A zero-based region may begin anywhere, so that an address which
/// is a multiple of 8 may lie wrong in memory: that is refused.
fn word_failure(e: Error) -> MemError {
    match e {
        EINVAL => MemError::Access,
        _ => failure(e),
    }
}

impl Backing {
    /// `len` bytes at `start` of the current process, pinned or on demand as `access` says.
    ///
    /// All of it on demand, which is written as `u64::MAX` bytes at 0, is implicit on-demand
    /// paging. Fails as [`Umem::pin`], [`Odp::watch`] and [`Implicit::new`] do.
    pub(super) fn of_process(dev: &Device, start: u64, len: u64, access: u32) -> Result<Self> {
        if len == 0 {
            return Ok(Self::Nothing);
        }
        let on_demand = access & ON_DEMAND != 0;
        if on_demand && start == 0 && len == u64::MAX {
            return Ok(Self::Implicit(Implicit::new()?));
        }
        let (start, len) = (start.try_into()?, len.try_into()?);
        Ok(match on_demand {
            true => Self::OnDemand(Odp::watch(start, len)?),
            false => Self::User(Umem::pin(dev.ib, start, len, access as i32)?),
        })
    }

    /// What it is, in a word.
    pub(super) fn name(&self) -> &'static CStr {
        match self {
            Self::Nothing => c"none",
            Self::User(_) => c"pinned",
            Self::OnDemand(_) => c"on-demand",
            Self::Implicit(_) => c"all-on-demand",
            Self::Shared(_) => c"dma-buf",
            Self::Kernel(_) => c"kernel",
            Self::Listed(_) => c"listed",
        }
    }

    /// Whether it may become writable for the process or its peers.
    pub(super) fn may_write(&self) -> bool {
        match self {
            Self::User(umem) => umem.writable(),
            Self::OnDemand(_)
            | Self::Implicit(_)
            | Self::Shared(_)
            | Self::Nothing
            | Self::Kernel(_)
            | Self::Listed(_) => true,
        }
    }

    /// Copies from byte `start` on.
    pub(super) fn read(&self, start: usize, dst: &mut [u8]) -> Result<(), MemError> {
        match self {
            Self::User(umem) => umem.read(start, dst),
            Self::OnDemand(odp) => Odp::read(odp, start, dst),
            Self::Implicit(all) => Implicit::read(all, start, dst),
            Self::Shared(buffer) => buffer.read(start, dst),
            Self::Kernel(memory) => memory.read(start, dst),
            Self::Listed(pages) => pages.read(start, dst),
            Self::Nothing => Err(EFAULT),
        }
        .map_err(failure)
    }

    /// Copies to byte `start` and what follows.
    pub(super) fn write(&self, start: usize, src: &[u8]) -> Result<(), MemError> {
        match self {
            Self::User(umem) => umem.write(start, src),
            Self::OnDemand(odp) => Odp::write(odp, start, src),
            Self::Implicit(all) => Implicit::write(all, start, src),
            Self::Shared(buffer) => buffer.write(start, src),
            Self::Kernel(memory) => memory.write(start, src),
            Self::Listed(pages) => pages.write(start, src),
            Self::Nothing => Err(EFAULT),
        }
        .map_err(failure)
    }

    /// Calls `f` with the word at byte `start`.
    pub(super) fn word<R>(
        &self,
        start: usize,
        f: impl FnOnce(&AtomicU64) -> R,
    ) -> Result<R, MemError> {
        match self {
            Self::User(umem) => umem.word(start).map(f),
            Self::OnDemand(odp) => Odp::word(odp, start, f),
            Self::Implicit(all) => Implicit::word(all, start, f),
            Self::Shared(buffer) => buffer.word(start).map(f),
            Self::Kernel(memory) => memory.word(start).map(f),
            Self::Listed(pages) => pages.word(start).map(f),
            Self::Nothing => Err(EFAULT),
        }
        .map_err(word_failure)
    }

    /// Has what is absent of a part fetched, for an access that may soon come.
    pub(super) fn prefetch(&self, start: usize, len: u64, write: bool) {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        match self {
            Self::OnDemand(odp) => Odp::prefetch(odp, start, len, write),
            Self::Implicit(all) => Implicit::prefetch(all, start, len, write),
            _ => {}
        }
    }
}
