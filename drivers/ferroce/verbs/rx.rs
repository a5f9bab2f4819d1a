// SPDX-License-Identifier: GPL-2.0

//! From a datagram on port 4791 to the QP it is for. Softirq.

use super::{
    counters::Counter,
    transmit::KernelCrc,
    Device, //
};
use crate::{
    engine::{
        icrc,
        wire::Service,
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
use core::cell::Cell;
use kernel::sync::rcu;

/// The packet in the bytes from BTH to ICRC, if it came as it was sent, behind IP header `ip`.
fn intact<'a>(
    ip: &[u8],
    pseudo: &mut icrc::Pseudo,
    segment: &'a [u8],
) -> Result<Packet<'a>, Counter> {
    let (body, sum) = segment.split_last_chunk::<4>().ok_or(Counter::Malformed)?;
    if icrc::icrc(&KernelCrc, pseudo, body).ok_or(Counter::Malformed)? != *sum {
        return Err(Counter::BadIcrc);
    }
    let mut packet = Packet::parse(body).map_err(|_| Counter::Malformed)?;
    if packet.opcode.service == Service::Ud {
        packet.grh = grh(ip);
    }
    Ok(packet)
}

/// The queue pair number of what is sent to a multicast group (IBTA 9.2.3).
const GROUP_QPN: u32 = 0xff_ffff;

/// The packets of one datagram that were intact, counted.
#[derive(Default)]
struct Volume {
    packets: Cell<u64>,
    bytes: Cell<u64>,
}

impl Volume {
    fn add(&self, bytes: usize) {
        self.packets.set(self.packets.get() + 1);
        self.bytes.set(self.bytes.get() + bytes as u64);
    }
}

/// What a datagram's receiver gets before the payload: the IPv6 header, or 20 bytes of nothing
/// and the IPv4 header (IBTA annex A17.4.5.1).
fn grh(ip: &[u8]) -> Option<[u8; 40]> {
    if let Some(v6) = ip.first_chunk::<40>().filter(|v6| v6[0] >> 4 == 6) {
        return Some(*v6);
    }
    let mut grh = [0; 40];
    grh[20..].copy_from_slice(ip.get(..20)?);
    Some(grh)
}

impl Endpoint for Device {
    /// Takes the packets of a datagram; those in a row for one QP under one lock, with one
    /// answer.
    fn receive(&self, datagram: &Datagram<'_>) {
        let rcu = rcu::read_lock();
        let now = Instant(timer::now());
        let volume = Volume::default();
        if datagram.payload.is_empty() {
            self.counters.add(Counter::Malformed, 1);
        }
        let headers = datagram.ip.len() + datagram.udp.len();
        let mut segments = datagram.segments();
        let packets = core::iter::from_fn(|| loop {
            let (pseudo, segment) = segments.next()?;
            match intact(datagram.ip, pseudo, segment) {
                Ok(packet) => {
                    volume.add(headers + segment.len());
                    return Some(packet);
                }
                Err(why) => self.counters.add(why, 1),
            }
        });
        let mut packets = packets.peekable();
        let group = datagram.group();
        while let Some(first) = packets.next() {
            let qpn = first.bth.dest_qpn;
            if group.is_some() || qpn == GROUP_QPN {
                match &group {
                    Some(mgid) if qpn == GROUP_QPN => {
                        self.receive_group(mgid, datagram.vlan, now, &first, &rcu);
                    }
                    _ => self.counters.add(Counter::WrongAddress, 1),
                }
                continue;
            }
            let Some(qp) = self.qps.get(qpn, &rcu) else {
                self.counters.add(Counter::UnknownQp, 1);
                continue;
            };
            qp.with_engine(&rcu, |engine, env| {
                env.side.vlan = datagram.vlan;
                let ours = env.is_from_peer(engine, datagram.ip);
                let mut next = Some(first);
                while let Some(packet) = next {
                    match ours {
                        true => engine.handle_packet(now, &packet, env),
                        false => self.counters.add(Counter::WrongAddress, 1),
                    }
                    next = packets.next_if(|packet| packet.bth.dest_qpn == qpn);
                }
            });
            qp.finish(&rcu);
        }
        drop(packets);
        self.counters
            .add(Counter::ReceivedPackets, volume.packets.get());
        self.counters
            .add(Counter::ReceivedBytes, volume.bytes.get());
    }

    fn event(&self, netdev: &NetDevice, event: Event) {
        match event {
            Event::ChangeMtu => self.set_link_mtu(netdev.mtu()),
            Event::Unregister => self.ib.unregister_later(),
            Event::Up | Event::Down | Event::Change => self.set_link_state(netdev.is_active()),
        }
    }
}
