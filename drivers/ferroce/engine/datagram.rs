// SPDX-License-Identifier: GPL-2.0

//! Receiving on an unreliable datagram queue pair (section 9.8.3.3). What does not fit or does not belong is dropped in
//! silence, and the receive it would have taken waits for the next datagram.

use super::sgl;
use super::Completion;
use super::Count;
use super::Env;
use super::MemError;
use super::Packet;
use super::Qp;
use super::QpEvent;
use super::Store;
use super::WcOpcode;
use super::WcStatus;

/// Bytes in front of the payload, where the GRH goes or the IPv4 header into the last 20 (section A17.4.5.1).
const GRH: u32 = 40;

impl<S: Store> Qp<S> {
    /// A datagram.
    pub(super) fn datagram(&mut self, pkt: &Packet<'_>, env: &mut impl Env) {
        let Some(deth) = pkt.deth.filter(|deth| deth.qkey == self.attrs.qkey) else {
            env.count(Count::WrongQkey);
            return;
        };
        let Ok(payload) = u32::try_from(pkt.payload.len()) else {
            return;
        };
        let len = payload.saturating_add(GRH);
        let Some(recv) = self.take_recv(env).filter(|recv| recv.total >= len) else {
            env.count(Count::NoBuffer);
            return;
        };
        let placed = self.place_datagram(pkt, self.recv_list(&recv), env);
        if placed == Err(MemError::Absent) {
            env.count(Count::NoBuffer);
            return;
        }
        if placed.is_err() {
            self.fail_receive(WcStatus::LocProtErr, env);
            env.event(QpEvent::Fatal);
            self.set_error(env);
            return;
        }
        self.resp.recv = None;
        env.count(Count::Received);
        env.complete_recv(Completion {
            wr_id: recv.wr_id,
            byte_len: len,
            imm: pkt.imm,
            src_qp: deth.src_qpn,
            solicited: pkt.bth.solicited,
            with_grh: pkt.grh.is_some(),
            ..self.recv_completion(WcOpcode::Recv)
        });
    }

    fn place_datagram(
        &self,
        pkt: &Packet<'_>,
        list: &[u8],
        env: &impl Env,
    ) -> Result<(), MemError> {
        if let Some(grh) = &pkt.grh {
            sgl::scatter(env.mem(), list, 0, grh)?;
        }
        sgl::scatter(env.mem(), list, GRH, pkt.payload)
    }
}
