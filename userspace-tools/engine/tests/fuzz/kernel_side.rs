// SPDX-License-Identifier: GPL-2.0

//! What the kernel side's decoder of work queue elements needs of its surroundings.

/// Numbers of include/uapi/rdma/ib_user_verbs.h, include/rdma/ib_verbs.h and include/uapi/rdma/rdma_user_rxe.h, under
/// the names that bindgen gives them.
pub(crate) mod bindings {
    #![allow(non_camel_case_types, non_upper_case_globals)]
    #![allow(dead_code, reason = "of the two structures only the size is used")]

    pub(crate) struct rxe_send_wqe([u8; 208]);
    pub(crate) struct rxe_recv_wqe([u8; 40]);

    pub(crate) const ib_send_flags_IB_SEND_FENCE: i32 = 1;
    pub(crate) const ib_send_flags_IB_SEND_SIGNALED: i32 = 2;
    pub(crate) const ib_send_flags_IB_SEND_SOLICITED: i32 = 4;
    pub(crate) const ib_send_flags_IB_SEND_INLINE: i32 = 8;

    pub(crate) const ib_wr_opcode_IB_WR_RDMA_WRITE: u32 = 0;
    pub(crate) const ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM: u32 = 1;
    pub(crate) const ib_wr_opcode_IB_WR_SEND: u32 = 2;
    pub(crate) const ib_wr_opcode_IB_WR_SEND_WITH_IMM: u32 = 3;
    pub(crate) const ib_wr_opcode_IB_WR_RDMA_READ: u32 = 4;
    pub(crate) const ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP: u32 = 5;
    pub(crate) const ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD: u32 = 6;
    pub(crate) const ib_wr_opcode_IB_WR_LOCAL_INV: u32 = 7;
    pub(crate) const ib_wr_opcode_IB_WR_BIND_MW: u32 = 8;
    pub(crate) const ib_wr_opcode_IB_WR_SEND_WITH_INV: u32 = 9;
    pub(crate) const ib_wr_opcode_IB_WR_FLUSH: u32 = 14;
    pub(crate) const ib_wr_opcode_IB_WR_ATOMIC_WRITE: u32 = 15;
    pub(crate) const ib_wr_opcode_IB_WR_REG_MR: u32 = 32;
}

/// One element of a ring, of any bytes.
pub(crate) mod ring {
    /// The element; what lies behind its end cannot be read.
    pub(crate) struct Ring(pub(crate) Vec<u8>);

    impl Ring {
        /// Copies bytes of the element out.
        pub(crate) fn read(&self, _index: u32, at: usize, out: &mut [u8]) -> Result<(), ()> {
            let end = at.checked_add(out.len()).ok_or(())?;
            out.copy_from_slice(self.0.get(at..end).ok_or(())?);
            Ok(())
        }
    }
}
