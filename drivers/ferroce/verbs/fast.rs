// SPDX-License-Identifier: GPL-2.0

//! Fast registration: a kernel user's region whose pages are listed by a call, and
//! which a work request turns on and LOCAL_INV or the peer's SEND turns off (IBTA 10.6.4.5).
//!
//! Keys of these regions have indices of their own, so that others pay nothing for them.
//! The packet path holds the region's lock while it copies: once a key is off, nothing
//! touches the pages.

use super::{
    backing::Backing,
    device::limits,
    Device,
    Pd, //
};
use crate::{
    engine::MemError,
    kernel_ext::{
        kmem::DirectMap,
        lock::{
            new_bh_lock,
            BhLock, //
        },
    },
};
use core::sync::atomic::AtomicU64;
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};

/// Whether a key is that of a fast registration.
pub(super) fn is_fast(key: u32) -> bool {
    limits::FAST_MR.contains(&(key >> 8))
}

/// Pages that a kernel user listed, and where its bytes begin in the first.
pub(super) struct Pages {
    memory: DirectMap,
    /// Kernel addresses; the room for them is there from the start.
    list: KVVec<usize>,
    page_size: usize,
    page_shift: u32,
    offset: usize,
}

impl Pages {
    fn new(memory: DirectMap, max_pages: usize) -> Result<Self> {
        Ok(Self {
            memory,
            list: KVVec::with_capacity(max_pages, GFP_KERNEL)?,
            page_size: PAGE_SIZE,
            page_shift: PAGE_SIZE.trailing_zeros(),
            offset: 0,
        })
    }

    /// Kernel address of byte `at`, and how many bytes follow in the same page.
    fn find(&self, at: usize) -> Result<(usize, usize)> {
        let at = self.offset.checked_add(at).ok_or(EFAULT)?;
        let index = at.checked_shr(self.page_shift).ok_or(EFAULT)?;
        let page = self.list.get(index).ok_or(EFAULT)?;
        let inside = at & (self.page_size - 1);
        Ok((page + inside, self.page_size - inside))
    }

    /// Copies from byte `start` on. `EFAULT` where there is no page.
    pub(super) fn read(&self, start: usize, out: &mut [u8]) -> Result {
        let mut done = 0;
        while done < out.len() {
            let (addr, room) = self.find(start + done)?;
            let end = out.len().min(done + room);
            let piece = out.get_mut(done..end).ok_or(EFAULT)?;
            self.memory.read(addr, piece)?;
            done = end;
        }
        Ok(())
    }

    /// Copies to byte `start` on. `EFAULT` where there is no page.
    pub(super) fn write(&self, start: usize, bytes: &[u8]) -> Result {
        let mut done = 0;
        while done < bytes.len() {
            let (addr, room) = self.find(start + done)?;
            let end = bytes.len().min(done + room);
            let piece = bytes.get(done..end).ok_or(EFAULT)?;
            self.memory.write(addr, piece)?;
            done = end;
        }
        Ok(())
    }

    /// The 64-bit word at byte `start`. `EINVAL` if it is not aligned, `EFAULT` where there is
    /// no page.
    pub(super) fn word(&self, start: usize) -> Result<&AtomicU64> {
        self.memory.word(self.find(start)?.0)
    }
}

/// A list of pages, and the addresses by which it is reached.
struct Listing {
    iova: u64,
    len: u64,
    /// Always [`Backing::Listed`].
    backing: Backing,
}

impl Listing {
    fn new(memory: DirectMap, max_pages: usize) -> Result<Self> {
        Ok(Self {
            iova: 0,
            len: 0,
            backing: Backing::Listed(Pages::new(memory, max_pages)?),
        })
    }

    fn pages(&mut self) -> Result<&mut Pages> {
        match &mut self.backing {
            Backing::Listed(pages) => Ok(pages),
            _ => Err(EINVAL),
        }
    }
}

#[derive(Clone, Copy)]
struct Rights {
    key: u32,
    access: u32,
}

struct State {
    /// What peers and work requests may do; `None` when the key is off.
    on: Option<Rights>,
    current: Listing,
    /// What the next registration takes: listed while the one before may still be on.
    next: Listing,
}

/// A region for fast registration.
#[pin_data]
pub(crate) struct FastMr {
    dev: Arc<Device>,
    pd: u32,
    index: u32,
    max_pages: usize,
    #[pin]
    state: BhLock<State>,
}

impl FastMr {
    /// A region for up to `max_pages` pages, whose key is off.
    ///
    /// Fails with `EINVAL` for more pages than the device offers, `EPERM` in a process's
    /// protection domain, `EBUSY` if there are too many regions, or `ENOMEM`.
    pub(crate) fn new(pd: &Pd, memory: DirectMap, max_pages: u32) -> Result<Arc<Self>> {
        if !pd.kernel {
            return Err(EPERM);
        }
        if max_pages > limits::FAST_PAGES {
            return Err(EINVAL);
        }
        let max_pages = max_pages as usize;
        let state = State {
            on: None,
            current: Listing::new(memory, max_pages)?,
            next: Listing::new(memory, max_pages)?,
        };
        let dev = &pd.dev;
        let mut next = dev.next.lock();
        let index = dev.fast_mrs.reserve(limits::FAST_MR, &mut next.fast_mr)?;
        drop(next);
        let filled = Arc::pin_init(
            pin_init!(Self {
                dev: dev.clone(),
                pd: pd.id,
                index,
                max_pages,
                state <- new_bh_lock!(state, "FastMr::state"),
            }),
            GFP_KERNEL,
        )
        .and_then(|mr| dev.fast_mrs.fill(index, mr.clone()).map(|()| mr));
        filled.inspect_err(|_| drop(dev.fast_mrs.remove(index)))
    }

    /// The key to begin with; its last byte is the user's to change.
    pub(crate) fn key(&self) -> u32 {
        self.index << 8
    }

    /// Begins a list of pages for the next registration.
    pub(crate) fn begin_pages(&self) {
        if let Ok(pages) = self.state.lock().next.pages() {
            pages.list.clear();
        }
    }

    /// Adds a page by its kernel address. Fails with `ENOMEM` beyond the most it may have.
    pub(crate) fn add_page(&self, addr: u64) -> Result {
        let mut state = self.state.lock();
        let pages = state.next.pages()?;
        if pages.list.len() >= self.max_pages {
            return Err(ENOMEM);
        }
        // There is room: nothing is allocated.
        Ok(pages.list.push(addr.try_into()?, GFP_ATOMIC)?)
    }

    /// The list is complete: `len` bytes from `iova` on, in pages of `page_size` bytes. Fails
    /// with `EINVAL` if that is no power of two.
    pub(crate) fn end_pages(&self, iova: u64, len: u64, page_size: u32) -> Result {
        if !page_size.is_power_of_two() {
            return Err(EINVAL);
        }
        let mut state = self.state.lock();
        state.next.iova = iova;
        state.next.len = len;
        let pages = state.next.pages()?;
        pages.page_size = page_size as usize;
        pages.page_shift = page_size.trailing_zeros();
        pages.offset = iova as usize & (pages.page_size - 1);
        Ok(())
    }

    /// Nobody touches the pages after this.
    pub(crate) fn free(&self) {
        drop(self.dev.fast_mrs.remove_sync(self.index));
    }

    /// The work request of a QP in `pd`: turns `key` on for what was listed last. `None` if it
    /// is another region's key, or one is on already.
    pub(super) fn register(&self, pd: u32, key: u32, access: u32) -> Option<()> {
        let mut state = self.state.lock();
        if self.pd != pd || key >> 8 != self.index || state.on.is_some() {
            return None;
        }
        let State { current, next, on } = &mut *state;
        core::mem::swap(current, next);
        *on = Some(Rights { key, access });
        Some(())
    }

    /// Turns `key` off. `None` if it is not on, or in another protection domain than `pd`.
    pub(super) fn invalidate(&self, pd: u32, key: u32) -> Option<()> {
        let mut state = self.state.lock();
        if self.pd != pd || state.on.is_none_or(|rights| rights.key != key) {
            return None;
        }
        state.on = None;
        Some(())
    }

    /// Calls `f` with the memory and the place in it of `span`, an address and a length, if
    /// all rights of `needed` are there. No work request takes the key away meanwhile.
    pub(super) fn with<R>(
        &self,
        pd: u32,
        key: u32,
        span: (u64, u64),
        needed: u32,
        f: impl FnOnce(&Backing, usize) -> Result<R, MemError>,
    ) -> Result<R, MemError> {
        let state = self.state.lock();
        let rights = state.on.filter(|on| on.key == key && self.pd == pd);
        if rights.ok_or(MemError::Key)?.access & needed != needed {
            return Err(MemError::Access);
        }
        let (va, len) = span;
        let start = va.checked_sub(state.current.iova).ok_or(MemError::Range)?;
        let end = start.checked_add(len).ok_or(MemError::Range)?;
        if end > state.current.len {
            return Err(MemError::Range);
        }
        let start = usize::try_from(start).map_err(|_| MemError::Range)?;
        f(&state.current.backing, start)
    }
}
