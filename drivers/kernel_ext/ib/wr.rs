// SPDX-License-Identifier: GPL-2.0

//! Work requests of kernel users: the core's chained structs, read safely.
//!
//! C side: `struct ib_send_wr` and its relatives in include/rdma/ib_verbs.h.

use crate::bindings;
use core::marker::PhantomData;
use kernel::prelude::*;

/// What follows the common part of a send request, by its opcode.
pub(crate) enum Target {
    /// Nothing: SEND and local invalidation.
    None,
    /// READ and WRITE.
    Rdma {
        /// Address in the peer's memory.
        addr: u64,
        /// Key of the peer's memory.
        rkey: u32,
    },
    /// Atomics.
    Atomic {
        /// Address in the peer's memory.
        addr: u64,
        /// Key of the peer's memory.
        rkey: u32,
        /// Value to compare with, or summand.
        compare_add: u64,
        /// Value to store.
        swap: u64,
    },
    /// A fast registration.
    Register {
        /// The region's key as it was.
        mr: u32,
        /// Its key from now on.
        key: u32,
        /// `IB_ACCESS_*`.
        access: u32,
    },
    /// A datagram.
    Datagram {
        /// Number of the address handle.
        ah: u32,
        /// The peer's QP.
        qpn: u32,
        /// The Q_Key to send.
        qkey: u32,
        /// Index of the P_Key to send.
        pkey_index: u16,
    },
}

/// A scatter/gather element.
pub(crate) struct Sge {
    /// Kernel virtual address.
    pub(crate) addr: u64,
    /// Bytes.
    pub(crate) len: u32,
    /// Local key.
    pub(crate) lkey: u32,
}

/// The chain of send requests of one `ib_post_send`.
pub(crate) struct SendWrs<'a> {
    at: *const bindings::ib_send_wr,
    number: Option<AhNumber>,
    _chain: PhantomData<&'a bindings::ib_send_wr>,
}

/// Gets the number of an address handle.
pub(super) type AhNumber = unsafe fn(*const bindings::ib_ah) -> u32;

/// One send request.
pub(crate) struct SendWr<'a>(&'a bindings::ib_send_wr, Option<AhNumber>);

impl<'a> SendWrs<'a> {
    /// # Safety
    ///
    /// `first` is null or a chain as `ib_post_send` gets it, unchanged for `'a`: for a QP of
    /// datagrams if there is a `number`, which may be called with its address handles, else
    /// for a connected one.
    pub(super) unsafe fn new(first: *const bindings::ib_send_wr, number: Option<AhNumber>) -> Self {
        Self {
            at: first,
            number,
            _chain: PhantomData,
        }
    }

    /// The request whose turn it is.
    pub(crate) fn peek(&self) -> Option<SendWr<'a>> {
        // SAFETY: null or a request, by the contract of `new`.
        unsafe { self.at.as_ref() }.map(|wr| SendWr(wr, self.number))
    }

    /// That one is done.
    pub(crate) fn advance(&mut self) {
        if let Some(wr) = self.peek() {
            self.at = wr.0.next;
        }
    }

    /// The request that failed, for the core.
    pub(super) fn failed(&self) -> *const bindings::ib_send_wr {
        self.at
    }
}

impl SendWr<'_> {
    /// The user's name for it.
    pub(crate) fn wr_id(&self) -> u64 {
        // SAFETY: any bytes are a valid number.
        unsafe { self.0.__bindgen_anon_1.wr_id }
    }

    /// `enum ib_wr_opcode`.
    pub(crate) fn opcode(&self) -> u32 {
        self.0.opcode
    }

    /// `enum ib_send_flags`.
    pub(crate) fn flags(&self) -> u32 {
        self.0.send_flags as u32
    }

    /// Immediate data in network byte order, or the key to invalidate in the machine's.
    pub(crate) fn ex(&self) -> [u8; 4] {
        // SAFETY: any bytes are a valid number.
        unsafe { self.0.ex.invalidate_rkey }.to_ne_bytes()
    }

    /// Where it goes. `EINVAL` for an opcode that is not known.
    pub(crate) fn target(&self) -> Result<Target> {
        let wr = core::ptr::from_ref(self.0);
        if let Some(number) = self.1 {
            // SAFETY: on a QP of datagrams the request is the first field of an `ib_ud_wr`,
            // whose address handle lives until the request is done.
            return unsafe {
                let wr = &*wr.cast::<bindings::ib_ud_wr>();
                if wr.ah.is_null() {
                    return Err(EINVAL);
                }
                Ok(Target::Datagram {
                    ah: number(wr.ah),
                    qpn: wr.remote_qpn,
                    qkey: wr.remote_qkey,
                    pkey_index: wr.pkey_index,
                })
            };
        }
        Ok(match self.0.opcode {
            bindings::ib_wr_opcode_IB_WR_SEND
            | bindings::ib_wr_opcode_IB_WR_SEND_WITH_IMM
            | bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV
            | bindings::ib_wr_opcode_IB_WR_LOCAL_INV => Target::None,
            bindings::ib_wr_opcode_IB_WR_RDMA_WRITE
            | bindings::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM
            | bindings::ib_wr_opcode_IB_WR_RDMA_READ => {
                // SAFETY: with this opcode the request is the first field of an `ib_rdma_wr`.
                let wr = unsafe { &*wr.cast::<bindings::ib_rdma_wr>() };
                Target::Rdma {
                    addr: wr.remote_addr,
                    rkey: wr.rkey,
                }
            }
            bindings::ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP
            | bindings::ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD => {
                // SAFETY: with this opcode the request is the first field of an `ib_atomic_wr`.
                let wr = unsafe { &*wr.cast::<bindings::ib_atomic_wr>() };
                Target::Atomic {
                    addr: wr.remote_addr,
                    rkey: wr.rkey,
                    compare_add: wr.compare_add,
                    swap: wr.swap,
                }
            }
            bindings::ib_wr_opcode_IB_WR_REG_MR => {
                // SAFETY: with this opcode the request is the first field of an `ib_reg_wr`,
                // whose region is alive.
                let (wr, mr) = unsafe {
                    let wr = &*wr.cast::<bindings::ib_reg_wr>();
                    (wr, (*wr.mr).lkey)
                };
                Target::Register {
                    mr,
                    key: wr.key,
                    access: wr.access as u32,
                }
            }
            _ => return Err(EINVAL),
        })
    }

    /// The scatter/gather list.
    pub(crate) fn sges(&self) -> impl ExactSizeIterator<Item = Sge> + '_ {
        // SAFETY: by the contract of `SendWrs::new`.
        unsafe { sges(self.0.sg_list, self.0.num_sge) }
    }

    /// Copies the data of an inline request to the start of `out`; how long it is.
    ///
    /// Fails with `EINVAL` if it is longer than `out`.
    pub(crate) fn copy_inline(&self, out: &mut [u8]) -> Result<usize> {
        let mut done = 0usize;
        for sge in self.sges() {
            let end = done.checked_add(sge.len as usize).ok_or(EINVAL)?;
            let piece = out.get_mut(done..end).ok_or(EINVAL)?;
            // SAFETY: the kernel user names memory of its own, which may be on its stack.
            unsafe {
                core::ptr::copy_nonoverlapping(
                    sge.addr as *const u8,
                    piece.as_mut_ptr(),
                    piece.len(),
                )
            };
            done = end;
        }
        Ok(done)
    }
}

/// The chain of receive requests of one `ib_post_recv`.
pub(crate) struct RecvWrs<'a> {
    at: *const bindings::ib_recv_wr,
    _chain: PhantomData<&'a bindings::ib_recv_wr>,
}

/// One receive request.
pub(crate) struct RecvWr<'a>(&'a bindings::ib_recv_wr);

impl<'a> RecvWrs<'a> {
    /// # Safety
    ///
    /// `first` is null or a chain as `ib_post_recv` gets it, unchanged for `'a`.
    pub(super) unsafe fn new(first: *const bindings::ib_recv_wr) -> Self {
        Self {
            at: first,
            _chain: PhantomData,
        }
    }

    /// The request whose turn it is.
    pub(crate) fn peek(&self) -> Option<RecvWr<'a>> {
        // SAFETY: null or a request, by the contract of `new`.
        unsafe { self.at.as_ref() }.map(RecvWr)
    }

    /// That one is done.
    pub(crate) fn advance(&mut self) {
        if let Some(wr) = self.peek() {
            self.at = wr.0.next;
        }
    }

    /// The request that failed, for the core.
    pub(super) fn failed(&self) -> *const bindings::ib_recv_wr {
        self.at
    }
}

impl RecvWr<'_> {
    /// The user's name for it.
    pub(crate) fn wr_id(&self) -> u64 {
        // SAFETY: any bytes are a valid number.
        unsafe { self.0.__bindgen_anon_1.wr_id }
    }

    /// The scatter/gather list.
    pub(crate) fn sges(&self) -> impl ExactSizeIterator<Item = Sge> + '_ {
        // SAFETY: by the contract of `RecvWrs::new`.
        unsafe { sges(self.0.sg_list, self.0.num_sge) }
    }
}

/// # Safety
///
/// `list` has `count` elements if that is above 0, for `'a`.
unsafe fn sges<'a>(
    list: *const bindings::ib_sge,
    count: c_int,
) -> impl ExactSizeIterator<Item = Sge> + 'a {
    let list: &'a [bindings::ib_sge] = match usize::try_from(count) {
        // SAFETY: by our contract.
        Ok(count) if count > 0 => unsafe { core::slice::from_raw_parts(list, count) },
        _ => &[],
    };
    list.iter().map(|sge| Sge {
        addr: sge.addr,
        len: sge.length,
        lkey: sge.lkey,
    })
}
