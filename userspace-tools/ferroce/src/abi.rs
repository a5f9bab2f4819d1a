// SPDX-License-Identifier: GPL-2.0

//! The structs of `uapi/ferroce.h`, in the same order; what the fields mean is
//! said there. `tests/abi.rs` has a C compiler compare the two.

use bytemuck::Pod;
use bytemuck::Zeroable;
use std::mem::offset_of;
use std::mem::size_of;

/// Which version of the header this is.
pub const ABI_VERSION: u32 = 0;
/// The character device.
pub const DEVICE_PATH: &str = "/dev/ferroce";
/// At most so many GIDs are told about a device.
pub const MAX_GIDS: usize = 256;
/// At most so many queue pairs are named in one ENTER.
pub const MAX_ENTER_QPS: usize = 64;
/// The timeout of an ENTER that has none.
pub const WAIT_FOR_EVER: u64 = u64::MAX;

/// Value of `port_state` for a port that carries traffic.
pub const PORT_ACTIVE: u32 = 4;

/// Value of `ModifyQp::state`.
pub mod qp_state {
    #![expect(missing_docs, reason = "the names of the specification")]
    pub const INIT: u32 = 1;
    pub const RTR: u32 = 2;
    pub const RTS: u32 = 3;
}

/// Bits of `ModifyQp::mask`.
pub mod qp_mask {
    #![expect(missing_docs, reason = "the names of the specification")]
    pub const STATE: u32 = 1 << 0;
    pub const ACCESS: u32 = 1 << 3;
    pub const PKEY_INDEX: u32 = 1 << 4;
    pub const PORT: u32 = 1 << 5;
    pub const AV: u32 = 1 << 7;
    pub const PATH_MTU: u32 = 1 << 8;
    pub const TIMEOUT: u32 = 1 << 9;
    pub const RETRY_CNT: u32 = 1 << 10;
    pub const RNR_RETRY: u32 = 1 << 11;
    pub const RQ_PSN: u32 = 1 << 12;
    pub const MAX_RD_ATOMIC: u32 = 1 << 13;
    pub const MIN_RNR_TIMER: u32 = 1 << 15;
    pub const SQ_PSN: u32 = 1 << 16;
    pub const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub const DEST_QPN: u32 = 1 << 20;
}

/// The type of a reliable connected queue pair.
pub const QP_RC: u32 = 2;
/// Opcode of a work request that writes into the peer's memory.
pub const WR_RDMA_WRITE: u32 = 0;
/// Flag of a work request that yields a completion when it succeeds.
pub const SEND_SIGNALED: u32 = 1 << 1;

/// The size of a struct of the header and the place of each of its fields.
#[derive(Debug)]
pub struct Layout {
    /// Name of the struct in C, without the prefix `ferroce_`.
    pub c_name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Name in C, offset and size of each field.
    pub fields: &'static [(&'static str, usize, usize)],
}

macro_rules! abi {
    ($($(#[$doc:meta])* $name:ident = $c_name:ident { $($field:ident: $ty:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, Pod, Zeroable)]
            #[expect(missing_docs, reason = "uapi/ferroce.h documents the fields")]
            pub struct $name { $(pub $field: $ty,)* }
        )*

        /// The layout of every struct here.
        pub const LAYOUTS: &[Layout] = &[$(Layout {
            c_name: stringify!($c_name),
            size: size_of::<$name>(),
            fields: &[$((stringify!($field), offset_of!($name, $field), size_of::<$ty>()),)*],
        },)*];
    };
}

abi! {
    /// FERROCE_IOC_QUERY
    Query = query {
        abi_version: u32,
        pad: u32,
        features: u64,
    }

    /// FERROCE_IOC_LIST_DEVICES
    ListDevices = list_devices {
        indices: u64,
        capacity: u32,
        count: u32,
    }

    /// An entry of a device's GID table.
    Gid = gid {
        raw: [u8; 16],
        index: u32,
        type_: u32,
    }

    /// FERROCE_IOC_GET_DEVICE
    GetDevice = get_device {
        index: u32,
        gid_capacity: u32,
        gids: u64,
        gid_count: u32,
        ifindex: u32,
        port_state: u32,
        netdev_mtu: u32,
        path_mtu: u32,
        pad: u32,
        name: [u8; 64],
        netdev: [u8; 16],
    }

    /// FERROCE_IOC_BIND
    Bind = bind {
        index: u32,
        pad: u32,
    }

    /// FERROCE_IOC_ALLOC_PD
    AllocPd = alloc_pd {
        handle: u32,
        pad: u32,
    }

    /// FERROCE_IOC_REG_MR
    RegMr = reg_mr {
        addr: u64,
        length: u64,
        pd: u32,
        access: u32,
        handle: u32,
        lkey: u32,
        rkey: u32,
        pad: u32,
    }

    /// Where a ring is mapped.
    Mmap = mmap {
        offset: u64,
        size: u32,
        pad: u32,
    }

    /// FERROCE_IOC_CREATE_CQ
    CreateCq = create_cq {
        entries: u32,
        handle: u32,
        ring: Mmap,
    }

    /// FERROCE_IOC_CREATE_QP
    CreateQp = create_qp {
        type_: u32,
        flags: u32,
        pd: u32,
        send_cq: u32,
        recv_cq: u32,
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
        handle: u32,
        qpn: u32,
        sq: Mmap,
        rq: Mmap,
    }

    /// FERROCE_IOC_MODIFY_QP
    ModifyQp = modify_qp {
        handle: u32,
        mask: u32,
        state: u32,
        access: u32,
        path_mtu: u32,
        dest_qpn: u32,
        rq_psn: u32,
        sq_psn: u32,
        dgid: [u8; 16],
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        min_rnr_timer: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        pad: [u8; 7],
    }

    /// FERROCE_IOC_DESTROY
    Destroy = destroy {
        kind: u32,
        handle: u32,
    }

    /// FERROCE_IOC_ENTER
    Enter = enter {
        qps: u64,
        qp_count: u32,
        cq: u32,
        min_complete: u32,
        completed: u32,
        timeout_ns: u64,
    }

    /// The head of each ring.
    Ring = ring {
        log2_elem_size: u32,
        index_mask: u32,
        pad_1: [u32; 30],
        producer_index: u32,
        pad_2: [u32; 31],
        consumer_index: u32,
        pad_3: [u32; 31],
    }

    /// A piece of local memory.
    Sge = sge {
        addr: u64,
        length: u32,
        lkey: u32,
    }

    /// What a work request moves.
    Dma = dma {
        length: u32,
        resid: u32,
        cur_sge: u32,
        num_sge: u32,
        sge_offset: u32,
        reserved: u32,
    }

    /// An entry of a send queue.
    SendWqe = send_wqe {
        wr_id: u64,
        reserved_1: u32,
        opcode: u32,
        flags: u32,
        imm_data: u32,
        remote_addr: u64,
        rkey: u32,
        reserved_2: [u32; 27],
        status: u32,
        wqe_state: u32,
        iova: u64,
        reserved_3: [u32; 6],
        dma: Dma,
    }

    /// An entry of a receive queue.
    RecvWqe = recv_wqe {
        wr_id: u64,
        reserved: [u32; 2],
        dma: Dma,
    }

    /// An entry of a completion queue.
    Wc = wc {
        wr_id: u64,
        status: u32,
        opcode: u32,
        vendor_err: u32,
        byte_len: u32,
        imm_data: u32,
        qpn: u32,
        src_qpn: u32,
        flags: u32,
        pkey_index: u16,
        slid: u16,
        sl: u8,
        dlid_path_bits: u8,
        port_num: u8,
        reserved: u8,
    }
}

/// What the device lets a peer, or a receive, do with memory.
pub mod access {
    #![expect(missing_docs, reason = "the names of the specification")]
    pub const LOCAL_WRITE: u32 = 1 << 0;
    pub const REMOTE_WRITE: u32 = 1 << 1;
    pub const REMOTE_READ: u32 = 1 << 2;
}

/// `Destroy::kind`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are the objects' names")]
pub enum Object {
    Pd = 1,
    Mr = 2,
    Cq = 3,
    Qp = 4,
}

const MAGIC: u32 = 0xBC;

/// Makes the number of an ioctl that reads T from the caller, and writes it
/// back too if it is `_IOWR` in the header.
const fn ioctl<T>(nr: u32, writes_back: bool) -> u32 {
    let direction = if writes_back { 3 } else { 1 };
    (direction << 30) | ((size_of::<T>() as u32) << 16) | (MAGIC << 8) | nr
}

macro_rules! ioctls {
    ($($name:ident = $nr:literal $ty:ty, $writes_back:literal;)*) => {
        $(
            #[doc = concat!("FERROCE_IOC_", stringify!($name))]
            pub const $name: u32 = ioctl::<$ty>($nr, $writes_back);
        )*

        /// The name in C, without the prefix `FERROCE_IOC_`, and number of every ioctl.
        pub const IOCTLS: &[(&str, u32)] = &[$((stringify!($name), $name),)*];
    };
}

ioctls! {
    QUERY = 0x00 Query, true;
    LIST_DEVICES = 0x01 ListDevices, true;
    GET_DEVICE = 0x02 GetDevice, true;
    BIND = 0x03 Bind, false;
    ALLOC_PD = 0x10 AllocPd, true;
    REG_MR = 0x11 RegMr, true;
    CREATE_CQ = 0x12 CreateCq, true;
    CREATE_QP = 0x13 CreateQp, true;
    MODIFY_QP = 0x14 ModifyQp, false;
    DESTROY = 0x15 Destroy, false;
    ENTER = 0x20 Enter, true;
}
