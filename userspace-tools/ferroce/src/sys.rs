// SPDX-License-Identifier: GPL-2.0

//! The system calls on `/dev/ferroce` and the memory shared with it: all that
//! is unsafe, behind a safe face.

#![expect(unsafe_code, reason = "this is where it lives")]

use crate::abi;
use bytemuck::Pod;
use bytemuck::Zeroable;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// An open `/dev/ferroce`.
#[derive(Debug)]
pub(crate) struct Door(File);

impl Door {
    pub(crate) fn open(path: &str) -> io::Result<Self> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map(Door)
    }

    /// # Safety
    ///
    /// Addresses in `arg` must be those of memory that the ioctl may use as its
    /// description in the header says.
    unsafe fn ioctl<T: Pod>(&self, number: u32, arg: &mut T) -> io::Result<()> {
        // SAFETY: `arg` is valid for the size that `number` was made of, plain
        // old data whatever the kernel writes; the rest is the caller's promise.
        let ret =
            unsafe { libc::ioctl(self.0.as_raw_fd(), number.into(), std::ptr::from_mut(arg)) };
        if ret < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    pub(crate) fn query(&self) -> io::Result<abi::Query> {
        let mut arg = abi::Query::zeroed();
        // SAFETY: no addresses in it.
        unsafe { self.ioctl(abi::QUERY, &mut arg) }?;
        Ok(arg)
    }

    /// Fills `indices` as far as it goes and says how many there are.
    pub(crate) fn list_devices(&self, indices: &mut [u32]) -> io::Result<usize> {
        let mut arg = abi::ListDevices::zeroed();
        arg.indices = indices.as_mut_ptr() as u64;
        arg.capacity = u32::try_from(indices.len()).unwrap_or(u32::MAX);
        // SAFETY: the array is borrowed for the call and not shorter than said.
        unsafe { self.ioctl(abi::LIST_DEVICES, &mut arg) }?;
        Ok(arg.count as usize)
    }

    pub(crate) fn get_device(&self, index: u32) -> io::Result<(abi::GetDevice, Vec<abi::Gid>)> {
        let mut gids = vec![abi::Gid::zeroed(); abi::MAX_GIDS];
        let mut arg = abi::GetDevice::zeroed();
        arg.index = index;
        arg.gids = gids.as_mut_ptr() as u64;
        arg.gid_capacity = abi::MAX_GIDS as u32;
        // SAFETY: the array lives through the call and has the length said.
        unsafe { self.ioctl(abi::GET_DEVICE, &mut arg) }?;
        gids.truncate(arg.gid_count as usize);
        Ok((arg, gids))
    }

    pub(crate) fn bind(&self, index: u32) -> io::Result<()> {
        // SAFETY: no addresses in it.
        unsafe { self.ioctl(abi::BIND, &mut abi::Bind { index, pad: 0 }) }
    }

    pub(crate) fn alloc_pd(&self) -> io::Result<u32> {
        let mut arg = abi::AllocPd::zeroed();
        // SAFETY: no addresses in it.
        unsafe { self.ioctl(abi::ALLOC_PD, &mut arg) }?;
        Ok(arg.handle)
    }

    pub(crate) fn reg_mr(&self, pd: u32, memory: &Memory, access: u32) -> io::Result<abi::RegMr> {
        let mut arg = abi::RegMr::zeroed();
        arg.pd = pd;
        arg.addr = memory.address();
        arg.length = memory.len as u64;
        arg.access = access;
        // SAFETY: `Memory` hands out no references, so the device and the peer
        // may write to it at any time; the kernel pins the pages, so they even
        // may be unmapped first.
        unsafe { self.ioctl(abi::REG_MR, &mut arg) }?;
        Ok(arg)
    }

    pub(crate) fn create_cq(&self, entries: u32) -> io::Result<abi::CreateCq> {
        let mut arg = abi::CreateCq::zeroed();
        arg.entries = entries;
        // SAFETY: no addresses in it.
        unsafe { self.ioctl(abi::CREATE_CQ, &mut arg) }?;
        Ok(arg)
    }

    pub(crate) fn create_qp(&self, arg: &mut abi::CreateQp) -> io::Result<()> {
        // SAFETY: no addresses in it.
        unsafe { self.ioctl(abi::CREATE_QP, arg) }
    }

    pub(crate) fn modify_qp(&self, mut arg: abi::ModifyQp) -> io::Result<()> {
        // SAFETY: no addresses in it.
        unsafe { self.ioctl(abi::MODIFY_QP, &mut arg) }
    }

    pub(crate) fn destroy(&self, kind: abi::Object, handle: u32) -> io::Result<()> {
        let mut arg = abi::Destroy {
            kind: kind as u32,
            handle,
        };
        // SAFETY: no addresses in it.
        unsafe { self.ioctl(abi::DESTROY, &mut arg) }
    }

    /// Submits what is new in the send queues of `qps`, waits on `cq` (a handle
    /// and how many completions), and says how many are in that ring.
    pub(crate) fn enter(
        &self,
        qps: &[u32],
        cq: Option<(u32, u32)>,
        timeout_ns: u64,
    ) -> io::Result<u32> {
        let (cq, min_complete) = cq.unwrap_or((0, 0));
        let mut arg = abi::Enter::zeroed();
        arg.qps = qps.as_ptr() as u64;
        arg.qp_count = u32::try_from(qps.len()).unwrap_or(u32::MAX);
        arg.cq = cq;
        arg.min_complete = min_complete;
        arg.timeout_ns = timeout_ns;
        // SAFETY: the array is borrowed for the call, is only read, and has the
        // length said.
        unsafe { self.ioctl(abi::ENTER, &mut arg) }?;
        Ok(arg.completed)
    }
}

/// Pages that somebody else may change at any time: shared with the kernel, or
/// registered with a device. They are read and written by copies only.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Memory {}

impl Memory {
    /// New pages of zeros.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// The pages that the device offers at `place`.
    fn shared(door: &Door, place: abi::Mmap) -> io::Result<Self> {
        let offset = i64::try_from(place.offset).map_err(io::Error::other)?;
        Self::map(
            place.size as usize,
            libc::MAP_SHARED,
            door.0.as_raw_fd(),
            offset,
        )
    }

    fn map(len: usize, flags: i32, fd: i32, offset: i64) -> io::Result<Self> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, placed by the kernel, overlaps nothing.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Memory { start, len })
    }

    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The place of `len` bytes at `offset`; panics if they are not inside.
    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "{len} bytes at {offset} of {}",
            self.len
        );
        // SAFETY: inside of the mapping, as just checked.
        unsafe { self.start.as_ptr().add(offset) }
    }

    pub(crate) fn read(&self, offset: usize, to: &mut [u8]) {
        let from = self.at(offset, to.len());
        // SAFETY: both are valid for the length; `to` is not in a `Memory`.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
    }

    pub(crate) fn write(&self, offset: usize, from: &[u8]) {
        let to = self.at(offset, from.len());
        // SAFETY: both are valid for the length; `from` is not in a `Memory`.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    }

    fn atomic(&self, offset: usize) -> &AtomicU32 {
        let at = self.at(offset, size_of::<u32>());
        assert!(at.cast::<u32>().is_aligned(), "atomic at {offset}");
        // SAFETY: mapped and aligned as long as `self` lives; an atomic may
        // change under a shared reference.
        unsafe { AtomicU32::from_ptr(at.cast()) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody borrows from it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A mapped ring whose header has been found to fit its size.
#[derive(Debug)]
pub(crate) struct RingMemory {
    memory: Memory,
    log2_elem_size: u32,
    index_mask: u32,
}

impl RingMemory {
    /// Maps the ring at `place`, whose entries must hold `entry` bytes.
    pub(crate) fn map(door: &Door, place: abi::Mmap, entry: usize) -> io::Result<Self> {
        Self::new(Memory::shared(door, place)?, entry)
    }

    pub(crate) fn new(memory: Memory, entry: usize) -> io::Result<Self> {
        let mut head = abi::Ring::zeroed();
        memory.read(0, bytemuck::bytes_of_mut(&mut head));
        let slots = u64::from(head.index_mask) + 1;
        let fits = slots.is_power_of_two()
            && head.log2_elem_size < 32
            && entry <= 1 << head.log2_elem_size
            && (slots << head.log2_elem_size) + size_of::<abi::Ring>() as u64 <= memory.len as u64;
        if !fits {
            return Err(io::Error::other("the kernel gave a ring with a bad header"));
        }
        Ok(RingMemory {
            memory,
            log2_elem_size: head.log2_elem_size,
            index_mask: head.index_mask,
        })
    }

    pub(crate) fn index_mask(&self) -> u32 {
        self.index_mask
    }

    pub(crate) fn producer(&self) -> &AtomicU32 {
        self.memory
            .atomic(std::mem::offset_of!(abi::Ring, producer_index))
    }

    pub(crate) fn consumer(&self) -> &AtomicU32 {
        self.memory
            .atomic(std::mem::offset_of!(abi::Ring, consumer_index))
    }

    fn offset(&self, index: u32) -> usize {
        size_of::<abi::Ring>() + (((index & self.index_mask) as usize) << self.log2_elem_size)
    }

    pub(crate) fn read<T: Pod>(&self, index: u32) -> T {
        let mut entry = T::zeroed();
        self.memory
            .read(self.offset(index), bytemuck::bytes_of_mut(&mut entry));
        entry
    }

    /// Writes what fits into an entry, as `new` was told.
    pub(crate) fn write(&self, index: u32, entry: &[u8]) {
        assert!(
            entry.len() <= 1 << self.log2_elem_size,
            "entry too long for the ring"
        );
        self.memory.write(self.offset(index), entry);
    }
}
