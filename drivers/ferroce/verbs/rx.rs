// SPDX-License-Identifier: GPL-2.0

//! From a datagram on port 4791 to the QP it is for. Softirq.

use super::{
    transmit::KernelCrc,
    Device, //
};
use crate::{
    engine::{
        icrc,
        Instant,
        Packet, //
    },
    kernel_ext::{
        netdev::{
            Event,
            NetDevice, //
        },
        timer, //
    },
    net::{
        Datagram,
        Endpoint, //
    },
};
use kernel::sync::rcu;

/// The packet in the bytes from BTH to ICRC, if it came as it was sent.
fn intact<'a>(pseudo: &icrc::Pseudo, segment: &'a [u8]) -> Option<Packet<'a>> {
    let (body, sum) = segment.split_last_chunk::<4>()?;
    if icrc::icrc(&KernelCrc, pseudo, body)? != *sum {
        return None;
    }
    Packet::parse(body).ok()
}

impl Endpoint for Device {
    /// Takes the packets of a datagram; those in a row for one QP under one lock, with one
    /// answer.
    fn receive(&self, datagram: &Datagram<'_>) {
        let rcu = rcu::read_lock();
        let now = Instant(timer::now());
        let packets = datagram
            .segments()
            .filter_map(|(pseudo, segment)| intact(&pseudo, segment));
        let mut packets = packets.peekable();
        while let Some(first) = packets.next() {
            let qpn = first.bth.dest_qpn;
            let Some(qp) = self.qps.get(qpn, &rcu) else {
                continue;
            };
            qp.with_engine(&rcu, |engine, env| {
                engine.handle_packet(now, &first, env);
                while let Some(packet) = packets.next_if(|packet| packet.bth.dest_qpn == qpn) {
                    engine.handle_packet(now, &packet, env);
                }
            });
            qp.finish(&rcu);
        }
    }

    fn event(&self, netdev: &NetDevice, event: Event) {
        match event {
            Event::ChangeMtu => self.set_link_mtu(netdev.mtu()),
            Event::Unregister => self.ib.unregister_later(),
            Event::Up | Event::Down | Event::Change => {}
        }
    }
}
