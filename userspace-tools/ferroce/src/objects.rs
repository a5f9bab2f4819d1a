// SPDX-License-Identifier: GPL-2.0

//! Protection domains, memory regions and completion queues.

use crate::Error;
use crate::Result;
use crate::abi;
use crate::error::WorkError;
use crate::qp::Qp;
use crate::qp::QpConfig;
use crate::ring::Consumer;
use crate::sys::Door;
use crate::sys::Memory;
use crate::sys::RingMemory;
use std::ops::BitOr;
use std::sync::Arc;

/// An object in the kernel, destroyed with its last user.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) door: Arc<Door>,
    kind: abi::Object,
    pub(crate) handle: u32,
}

impl Object {
    pub(crate) fn new(door: &Arc<Door>, kind: abi::Object, handle: u32) -> Arc<Self> {
        Arc::new(Object {
            door: Arc::clone(door),
            kind,
            handle,
        })
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // It cannot be in use, and closing the file destroys what is left.
        let _ = self.door.destroy(self.kind, self.handle);
    }
}

/// What may be done with a memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(pub(crate) u32);

impl Access {
    /// The device may read from it.
    pub const LOCAL_READ: Access = Access(0);
    /// The device may write into it.
    pub const LOCAL_WRITE: Access = Access(abi::access::LOCAL_WRITE);
    /// The peer may write into it.
    pub const REMOTE_WRITE: Access = Access(abi::access::LOCAL_WRITE | abi::access::REMOTE_WRITE);
    /// The peer may read it.
    pub const REMOTE_READ: Access = Access(abi::access::REMOTE_READ);
}

impl BitOr for Access {
    type Output = Access;

    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// A protection domain: queue pairs reach the memory of their own only.
#[derive(Debug)]
pub struct Pd(Arc<Object>);

impl Pd {
    pub(crate) fn new(door: &Arc<Door>) -> Result<Self> {
        let handle = door
            .alloc_pd()
            .map_err(Error::kernel("make a protection domain"))?;
        Ok(Pd(Object::new(door, abi::Object::Pd, handle)))
    }

    /// Registers memory with the device.
    pub fn register(&self, buffer: Buffer, access: Access) -> Result<Mr> {
        let door = &self.0.door;
        let bytes = buffer.0.len();
        let reply =
            door.reg_mr(self.0.handle, &buffer.0, access.0)
                .map_err(|source| match source.raw_os_error() {
                    Some(libc::ENOMEM) => Error::Memlock { bytes },
                    _ => Error::kernel("register memory")(source),
                })?;
        Ok(Mr {
            _object: Object::new(door, abi::Object::Mr, reply.handle),
            _pd: Arc::clone(&self.0),
            buffer,
            lkey: reply.lkey,
            rkey: reply.rkey,
        })
    }

    /// Makes a reliable connected queue pair.
    pub fn create_qp(&self, send_cq: &Cq, recv_cq: &Cq, config: &QpConfig) -> Result<Qp> {
        Qp::new(&self.0, &send_cq.object, &recv_cq.object, config)
    }
}

/// Memory to be registered. The device and the peer may write to it at any
/// time, so it is reached by copies, never by reference.
#[derive(Debug)]
pub struct Buffer(Memory);

impl Buffer {
    /// Pages of zeros.
    pub fn new(len: usize) -> Result<Self> {
        Memory::anonymous(len)
            .map(Buffer)
            .map_err(Error::kernel("get memory"))
    }

    /// Copies bytes out; panics if they are not all inside.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        self.0.read(offset, to);
    }

    /// Copies bytes in; panics if they do not fit.
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.0.write(offset, from);
    }
}

/// A memory region: a buffer that the device knows.
#[derive(Debug)]
pub struct Mr {
    _object: Arc<Object>,
    _pd: Arc<Object>,
    buffer: Buffer,
    lkey: u32,
    rkey: u32,
}

impl Mr {
    /// Its memory.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Its address, as the peer is told.
    pub fn address(&self) -> u64 {
        self.buffer.0.address()
    }

    /// The key that lets the peer in.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// A part of it, to be sent or received into.
    pub fn piece(&self, offset: u64, len: u32) -> Piece {
        Piece(abi::Sge {
            addr: self.address().wrapping_add(offset),
            length: len,
            lkey: self.lkey,
        })
    }
}

/// A part of a memory region. The device checks that it is one.
#[derive(Clone, Copy, Debug)]
pub struct Piece(pub(crate) abi::Sge);

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    object: Arc<Object>,
    ring: Consumer,
}

/// A finished work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What the request was posted with.
    pub wr_id: u64,
    /// How it went.
    pub result: std::result::Result<(), WorkError>,
}

impl Cq {
    pub(crate) fn new(door: &Arc<Door>, entries: u32) -> Result<Self> {
        let what = "make a completion queue";
        let reply = door.create_cq(entries).map_err(Error::kernel(what))?;
        let object = Object::new(door, abi::Object::Cq, reply.handle);
        let ring = RingMemory::map(door, reply.ring, size_of::<abi::Wc>())
            .map_err(Error::kernel("map a completion queue"))?;
        Ok(Cq {
            object,
            ring: Consumer::new(ring),
        })
    }

    pub(crate) fn handle(&self) -> u32 {
        self.object.handle
    }

    /// Takes the oldest completion, without a system call.
    pub fn poll(&mut self) -> Option<Completion> {
        let wc: abi::Wc = self.ring.pop()?;
        let result = if wc.status == 0 {
            Ok(())
        } else {
            Err(WorkError { status: wc.status })
        };
        Some(Completion {
            wr_id: wc.wr_id,
            result,
        })
    }
}
