// SPDX-License-Identifier: GPL-2.0

//! Reliable connected queue pairs.

use crate::Error;
use crate::Gid;
use crate::Result;
use crate::abi;
use crate::abi::qp_mask;
use crate::abi::qp_state;
use crate::objects::Access;
use crate::objects::Object;
use crate::objects::Piece;
use crate::ring::Producer;
use crate::sys::RingMemory;
use bytemuck::Pod;
use bytemuck::Zeroable;
use std::sync::Arc;

/// How large a queue pair is to be.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// Work requests that may be under way.
    pub send_slots: u32,
    /// Receives that may be waiting.
    pub recv_slots: u32,
}

/// The other end, and how to talk to it.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its queue pair number.
    pub qpn: u32,
    /// Its address.
    pub gid: Gid,
    /// The first packet sequence number that it sends.
    pub psn: u32,
    /// The first that we send.
    pub own_psn: u32,
    /// Which of our device's addresses we use.
    pub sgid_index: u8,
    /// Payload bytes of a packet.
    pub path_mtu: u32,
    /// What it may do with our memory.
    pub access: Access,
}

/// A queue pair. What was posted is under way once `Device::enter` names it.
#[derive(Debug)]
pub struct Qp {
    object: Arc<Object>,
    _users: [Arc<Object>; 3],
    qpn: u32,
    sq: Producer,
}

/// A work request with one piece of memory.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct SendEntry {
    wqe: abi::SendWqe,
    sge: abi::Sge,
}

impl Qp {
    pub(crate) fn new(
        pd: &Arc<Object>,
        send_cq: &Arc<Object>,
        recv_cq: &Arc<Object>,
        config: &QpConfig,
    ) -> Result<Self> {
        let door = &pd.door;
        let mut arg = abi::CreateQp::zeroed();
        arg.type_ = abi::QP_RC;
        arg.pd = pd.handle;
        arg.send_cq = send_cq.handle;
        arg.recv_cq = recv_cq.handle;
        arg.max_send_wr = config.send_slots;
        arg.max_recv_wr = config.recv_slots;
        arg.max_send_sge = 1;
        arg.max_recv_sge = 1;
        door.create_qp(&mut arg)
            .map_err(Error::kernel("make a queue pair"))?;
        let object = Object::new(door, abi::Object::Qp, arg.handle);
        let sq = RingMemory::map(door, arg.sq, size_of::<SendEntry>())
            .map_err(Error::kernel("map a send queue"))?;
        Ok(Qp {
            object,
            _users: [pd, send_cq, recv_cq].map(Arc::clone),
            qpn: arg.qpn,
            sq: Producer::new(sq),
        })
    }

    pub(crate) fn handle(&self) -> u32 {
        self.object.handle
    }

    /// Its number, as the peer is told.
    pub fn number(&self) -> u32 {
        self.qpn
    }

    /// Makes it ready to send and to receive.
    pub fn connect(&mut self, peer: &Peer) -> Result<()> {
        let modify = |arg, what| self.object.door.modify_qp(arg).map_err(Error::kernel(what));
        modify(self.init(peer), "initialize the queue pair")?;
        modify(self.ready_to_receive(peer), "make the queue pair receive")?;
        modify(self.ready_to_send(peer), "make the queue pair send")
    }

    fn init(&self, peer: &Peer) -> abi::ModifyQp {
        abi::ModifyQp {
            handle: self.handle(),
            mask: qp_mask::STATE | qp_mask::ACCESS | qp_mask::PKEY_INDEX | qp_mask::PORT,
            state: qp_state::INIT,
            access: peer.access.0,
            ..Zeroable::zeroed()
        }
    }

    fn ready_to_receive(&self, peer: &Peer) -> abi::ModifyQp {
        abi::ModifyQp {
            handle: self.handle(),
            mask: qp_mask::STATE
                | qp_mask::AV
                | qp_mask::PATH_MTU
                | qp_mask::DEST_QPN
                | qp_mask::RQ_PSN
                | qp_mask::MAX_DEST_RD_ATOMIC
                | qp_mask::MIN_RNR_TIMER,
            state: qp_state::RTR,
            path_mtu: peer.path_mtu,
            dest_qpn: peer.qpn,
            rq_psn: peer.psn,
            dgid: peer.gid.0,
            sgid_index: peer.sgid_index,
            hop_limit: 64,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12, // 0.64 ms
            ..Zeroable::zeroed()
        }
    }

    fn ready_to_send(&self, peer: &Peer) -> abi::ModifyQp {
        abi::ModifyQp {
            handle: self.handle(),
            mask: qp_mask::STATE
                | qp_mask::TIMEOUT
                | qp_mask::RETRY_CNT
                | qp_mask::RNR_RETRY
                | qp_mask::SQ_PSN
                | qp_mask::MAX_RD_ATOMIC,
            state: qp_state::RTS,
            sq_psn: peer.own_psn,
            timeout: 14, // 67 ms
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 1,
            ..Zeroable::zeroed()
        }
    }

    /// Posts an RDMA write of `from` to the peer's memory. Only a `signaled` one
    /// completes in the CQ when it succeeds; it then stands for all before it.
    pub fn write(
        &mut self,
        wr_id: u64,
        from: Piece,
        remote_addr: u64,
        rkey: u32,
        signaled: bool,
    ) -> Result<()> {
        let entry = SendEntry {
            wqe: abi::SendWqe {
                wr_id,
                opcode: abi::WR_RDMA_WRITE,
                flags: if signaled { abi::SEND_SIGNALED } else { 0 },
                remote_addr,
                rkey,
                iova: remote_addr,
                dma: abi::Dma {
                    length: from.0.length,
                    resid: from.0.length,
                    num_sge: 1,
                    ..Zeroable::zeroed()
                },
                ..Zeroable::zeroed()
            },
            sge: from.0,
        };
        if self.sq.push(bytemuck::bytes_of(&entry)) {
            Ok(())
        } else {
            Err(Error::QueueFull)
        }
    }
}
