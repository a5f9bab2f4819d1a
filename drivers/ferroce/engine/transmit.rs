// SPDX-License-Identifier: GPL-2.0

//! Runs of packets to send, and their bytes.

use super::queue::Place;
use super::requester;
use super::sgl;
use super::wire::Aeth;
use super::wire::AtomicEth;
use super::wire::Bth;
use super::wire::Credits;
use super::wire::Deth;
use super::wire::Opcode;
use super::wire::Operation;
use super::wire::Reth;
use super::wire::Syndrome;
use super::Access;
use super::MemError;
use super::Memory;
use super::Psn;
use super::Qp;
use super::SendOp;
use super::Store;

/// Bit of a queue key that only the queue pair's own may have (section 10.2.5).
const CONTROLLED_QKEY: u32 = 1 << 31;

/// Where a run's packets come from.
#[derive(Copy, Clone, Debug)]
pub(super) enum Source {
    /// Packets of a work request, or a run of work requests of one packet each.
    Request,
    /// Request for so many bytes of a READ.
    ReadRequest(u32),
    /// READ response of the replay entry with this number.
    ReadResponse(u64),
    /// Answer to an atomic: the old value.
    AtomicAck(u64),
    /// ACK or NAK.
    Ack(Syndrome),
}

/// A run of packets of equal size but for a shorter last one: what one GSO super-skb can carry.
#[derive(Copy, Clone)]
pub struct Transmit {
    pub(super) source: Source,
    pub(super) wqe: u64,
    /// Number of the first packet within its message.
    pub(super) packet: u32,
    pub(super) psn: Psn,
    pub(super) msn: u32,
    pub(super) credits: Credits,
    pub(super) count: u32,
    pub(super) len: u32,
    pub(super) last_len: u32,
    pub(super) dest_qpn: u32,
    pub(super) ah: Option<u64>,
}

impl Transmit {
    /// Packets in the run.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Bytes of packet `i` from BTH to pad; the ICRC's four come on top.
    pub fn packet_len(&self, i: usize) -> usize {
        let last = i + 1 == self.count();
        (if last { self.last_len } else { self.len }) as usize
    }

    /// The peer's queue pair.
    pub fn dest_qpn(&self) -> u32 {
        self.dest_qpn
    }

    /// PSN of the first packet.
    pub fn first_psn(&self) -> Psn {
        self.psn
    }

    /// The address handle of a UD work request; `None` means the connection's path.
    pub fn ah(&self) -> Option<u64> {
        self.ah
    }
}

/// Rounds a payload length up to full words (section 9.2.4).
pub(super) fn padded(len: u32) -> u32 {
    len.saturating_add(3) & !3
}

/// How long a run can be: packets `from..to` of a message, `len` bytes each by number, at most `max` of them.
/// Returns their count and the length of the last one.
pub(super) fn run(from: u32, to: u32, max: u32, len: impl Fn(u32) -> u32) -> (u32, u32) {
    let full = len(from);
    let mut count = 1;
    while count < max && from + count < to {
        let k = from + count;
        let this = len(k);
        if this == full {
            count += 1;
        } else if this < full && k + 1 == to {
            return (count + 1, this);
        } else {
            break;
        }
    }
    (count, full)
}

/// Fills a packet's buffer from the front.
struct Writer<'a>(&'a mut [u8]);

impl<'a> Writer<'a> {
    /// The next `len` bytes, to be filled by the caller.
    fn room(&mut self, len: usize) -> Result<&'a mut [u8], MemError> {
        let buf = core::mem::take(&mut self.0);
        let (head, rest) = buf.split_at_mut_checked(len).ok_or(MemError::Range)?;
        self.0 = rest;
        Ok(head)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), MemError> {
        self.room(bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn pad(self) {
        self.0.fill(0);
    }
}

impl<S: Store> Qp<S> {
    /// Writes packet `i` of a run, BTH to pad, into `buf`, whose length is `t.packet_len(i)`.
    ///
    /// All packets of a run are written before the next call of `poll_transmit`. On an error the whole run is not
    /// sent, and `transmit_failed` is called.
    pub fn write_packet(
        &self,
        t: &Transmit,
        i: usize,
        buf: &mut [u8],
        mem: &impl Memory,
    ) -> Result<(), MemError> {
        let i = i as u32;
        let out = Writer(buf);
        match t.source {
            Source::Request => self.write_request(t, i, out, mem),
            Source::ReadRequest(len) => self.write_read_request(t, len, out),
            Source::ReadResponse(n) => self.write_read_response(t, n, i, out, mem),
            Source::AtomicAck(n) => self.write_atomic_ack(t, n, out),
            Source::Ack(syndrome) => self.write_ack(t, syndrome, out),
        }
    }

    fn bth(&self, t: &Transmit, op: Operation, i: u32, payload: u32) -> Bth {
        let service = self.cfg.qp_type.service();
        Bth {
            opcode: Opcode { service, op }.to_byte(),
            solicited: false,
            migrated: true,
            pad: (padded(payload) - payload) as u8,
            pkey: self.attrs.pkey,
            fecn: false,
            becn: false,
            dest_qpn: t.dest_qpn,
            ack_req: false,
            psn: t.psn.plus(i),
        }
    }

    fn write_request(
        &self,
        t: &Transmit,
        i: u32,
        mut out: Writer<'_>,
        mem: &impl Memory,
    ) -> Result<(), MemError> {
        let wqe = self.wqe(t.wqe).ok_or(MemError::Fault)?;
        let mtu = self.attrs.path_mtu;
        let k = t.packet + i;
        let shape = requester::shape(wqe, k, mtu);
        let place = Place {
            wqe: t.wqe,
            packet: k,
        };
        let bth = Bth {
            solicited: wqe.flags.solicited && requester::may_solicit(shape.op),
            ack_req: self.wants_ack(place),
            ..self.bth(t, shape.op, i, shape.payload)
        };
        out.put(&bth.encode())?;
        write_xrceth(wqe.srq, &mut out)?;
        let deth = Deth {
            qkey: self.attrs.qkey,
            src_qpn: self.cfg.qpn,
        };
        write_extensions(wqe.len, &wqe.op, shape.op, deth, &mut out)?;
        let data = self.wqe_data(t.wqe);
        let offset = wqe.offset(k, mtu);
        let payload = out.room(shape.payload as usize)?;
        if let SendOp::AtomicWrite { data, .. } = &wqe.op {
            payload.copy_from_slice(data);
        } else if wqe.flags.inline {
            let from = data.get(offset as usize..).ok_or(MemError::Range)?;
            let from = from.get(..payload.len()).ok_or(MemError::Range)?;
            payload.copy_from_slice(from);
        } else {
            sgl::gather(mem, data, offset, payload)?;
        }
        out.pad();
        Ok(())
    }

    fn write_read_request(
        &self,
        t: &Transmit,
        len: u32,
        mut out: Writer<'_>,
    ) -> Result<(), MemError> {
        let wqe = self.wqe(t.wqe).ok_or(MemError::Fault)?;
        let SendOp::Read { va, rkey } = wqe.op else {
            return Err(MemError::Fault);
        };
        let offset = wqe.offset(t.packet, self.attrs.path_mtu);
        let bth = Bth {
            ack_req: true,
            ..self.bth(t, Operation::ReadRequest, 0, 0)
        };
        let va = va.wrapping_add(u64::from(offset));
        out.put(&bth.encode())?;
        write_xrceth(wqe.srq, &mut out)?;
        out.put(&Reth { va, rkey, len }.encode())
    }

    fn write_read_response(
        &self,
        t: &Transmit,
        n: u64,
        i: u32,
        mut out: Writer<'_>,
        mem: &impl Memory,
    ) -> Result<(), MemError> {
        let entry = self.replay(n).ok_or(MemError::Fault)?;
        let k = t.packet + i;
        let mtu = self.attrs.path_mtu;
        let (op, len) = entry.response(k, mtu);
        out.put(&self.bth(t, op, i, len).encode())?;
        if op.has_aeth() {
            out.put(&ack_header(t).encode())?;
        }
        let payload = out.room(len as usize)?;
        if !payload.is_empty() {
            let (va, rkey) = entry.source(k, mtu).ok_or(MemError::Fault)?;
            mem.read(rkey, va, payload, Access::RemoteRead)?;
        }
        out.pad();
        Ok(())
    }

    fn write_atomic_ack(&self, t: &Transmit, n: u64, mut out: Writer<'_>) -> Result<(), MemError> {
        let old = self.replay(n).and_then(|entry| entry.old_value());
        let old = old.ok_or(MemError::Fault)?;
        out.put(&self.bth(t, Operation::AtomicAck, 0, 0).encode())?;
        out.put(&ack_header(t).encode())?;
        out.put(&old.to_be_bytes())
    }

    fn write_ack(
        &self,
        t: &Transmit,
        syndrome: Syndrome,
        mut out: Writer<'_>,
    ) -> Result<(), MemError> {
        let aeth = Aeth {
            syndrome,
            ..ack_header(t)
        };
        out.put(&self.bth(t, Operation::Ack, 0, 0).encode())?;
        out.put(&aeth.encode())
    }
}

fn ack_header(t: &Transmit) -> Aeth {
    Aeth {
        syndrome: Syndrome::Ack,
        credits: t.credits,
        msn: t.msn,
    }
}

/// Writes the header of an XRC request, 8 reserved bits and a number (section A14.3).
fn write_xrceth(srq: Option<u32>, out: &mut Writer<'_>) -> Result<(), MemError> {
    srq.map_or(Ok(()), |srq| out.put(&(srq & 0x00ff_ffff).to_be_bytes()))
}

/// Writes the headers that the packet's operation has after the BTH; `own` has what the queue pair says in a datagram.
fn write_extensions(
    len: u32,
    request: &SendOp,
    op: Operation,
    own: Deth,
    out: &mut Writer<'_>,
) -> Result<(), MemError> {
    match *request {
        SendOp::Datagram { qkey, imm, .. } => {
            let controlled = qkey & CONTROLLED_QKEY != 0;
            let qkey = if controlled { own.qkey } else { qkey };
            out.put(&Deth { qkey, ..own }.encode())?;
            imm.map_or(Ok(()), |imm| out.put(&imm))
        }
        SendOp::Write { va, rkey } if op.has_reth() => out.put(&Reth { va, rkey, len }.encode()),
        SendOp::WriteImm { va, rkey, imm } => {
            if op.has_reth() {
                out.put(&Reth { va, rkey, len }.encode())?;
            }
            if op.has_imm() {
                out.put(&imm)?;
            }
            Ok(())
        }
        SendOp::SendImm(imm) if op.has_imm() => out.put(&imm),
        SendOp::SendInvalidate(key) if op.has_ieth() => out.put(&key.to_be_bytes()),
        SendOp::CompareSwap {
            va,
            rkey,
            compare,
            swap,
        } => {
            let header = AtomicEth {
                va,
                rkey,
                swap_add: swap,
                compare,
            };
            out.put(&header.encode())
        }
        SendOp::FetchAdd { va, rkey, add } => {
            let header = AtomicEth {
                va,
                rkey,
                swap_add: add,
                compare: 0,
            };
            out.put(&header.encode())
        }
        SendOp::Flush {
            va,
            rkey,
            len,
            kind,
        } => {
            out.put(&kind.encode())?;
            out.put(&Reth { va, rkey, len }.encode())
        }
        SendOp::AtomicWrite { va, rkey, .. } => out.put(&Reth { va, rkey, len }.encode()),
        _ => Ok(()),
    }
}
