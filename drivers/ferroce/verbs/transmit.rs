// SPDX-License-Identifier: GPL-2.0

//! Sending what a QP's engine has to send.
//!
//! Frames are built under the QP's lock and sent without it: over veth the peer's
//! receive runs nested in the send and may want the same lock. One context at a time
//! sends for a QP, so that packets stay in order; others leave their work to it.

use super::{
    counters::Counter,
    env::Env,
    qp::{
        Engine,
        Qp, //
    },
};
use crate::{
    engine::{
        icrc,
        Instant,
        MemError,
        Transmit, //
    },
    kernel_ext::{
        crc::crc32_le,
        timer, //
    },
    net::{
        Frame,
        Path, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
};

/// Frames that one call sends before it lets others run; the timer goes on from there.
const BURST: usize = 256;
/// Bytes of the ICRC behind each packet.
const ICRC: usize = 4;

/// CRC-32 as the kernel computes it.
pub(super) struct KernelCrc;

impl icrc::Crc for KernelCrc {
    fn update(&self, state: u32, bytes: &[u8]) -> u32 {
        crc32_le(state, &[bytes])
    }

    fn chain(&self, state: u32, first: &[u8], then: &[u8]) -> u32 {
        crc32_le(state, &[first, then])
    }
}

impl Qp {
    /// Sends until the engine has nothing more for now, then sets the timer.
    pub(super) fn send_all(&self, rcu: &rcu::Guard) {
        if !self.start_sending() {
            self.dev.counters.add(Counter::Deferred, 1);
            return;
        }
        for _ in 0..BURST {
            let Some(frame) = self.next_frame(rcu) else {
                return;
            };
            match frame {
                Some(frame) => self.send_frame(frame),
                None => self.dev.counters.add(Counter::SendErrors, 1),
            }
        }
        self.inner.lock().side.sending = false;
        self.timer.arm(timer::now());
    }

    /// A packet that the network refuses is a packet lost: the transport repeats it.
    fn send_frame(&self, frame: Frame) {
        let counters = &self.dev.counters;
        let (packets, bytes) = frame.volume();
        match frame.send() {
            Ok(()) => {
                counters.add(Counter::SentPackets, packets);
                counters.add(Counter::SentBytes, bytes);
            }
            Err(_) => counters.add(Counter::SendErrors, 1),
        }
    }

    fn start_sending(&self) -> bool {
        let mut inner = self.inner.lock();
        !core::mem::replace(&mut inner.side.sending, true)
    }

    /// The next frame, built (or nothing, if that failed); `None` when there is no more.
    ///
    /// Whether there is more and who sends is settled under one lock, so that nothing that
    /// another context adds is left behind.
    fn next_frame(&self, rcu: &rcu::Guard) -> Option<Option<Frame>> {
        let next = self.with_engine(rcu, |engine, env| {
            let next = self.next_run(engine, env).map(|(run, path)| {
                let frame = path.and_then(|path| {
                    build(&path, &run, |i, buf| {
                        engine.write_packet(&run, i, buf, &env.mem)
                    })
                });
                if let Err(Failure::Memory(e)) = frame {
                    engine.transmit_failed(&run, e, env);
                }
                frame.ok()
            });
            if next.is_none() {
                env.side.sending = false;
                let due = engine.poll_timeout().map(|at| at.0);
                if let Some(at) = due.or_else(|| env.next_look(engine)) {
                    self.timer.arm(at);
                }
            }
            next
        });
        next.flatten()
    }

    /// The next run of packets, and the way it takes: the connection's, or that of a datagram's
    /// address handle.
    fn next_run(
        &self,
        engine: &mut Engine,
        env: &mut Env<'_>,
    ) -> Option<(Transmit, Result<Arc<Path>, Failure>)> {
        let now = Instant(timer::now());
        if !self.caps.kind.is_datagram() {
            let path = env.side.path.clone()?;
            let run = engine.poll_transmit(now, path.max_segments(env.side.segment), env)?;
            return Some((run, Ok(path)));
        }
        let run = engine.poll_transmit(now, 1, env)?;
        let path = match run.ah().and_then(|number| env.ah(number)) {
            Some(ah) => ah.path(&self.dev).map_err(|_| Failure::Lost),
            None => Err(Failure::Memory(MemError::Key)),
        };
        Some((run, path))
    }
}

/// Why a run is not sent.
enum Failure {
    /// The region went away since the engine looked.
    Memory(MemError),
    /// No memory for the frame, or no way to the peer: as good as lost on the wire.
    Lost,
}

/// Builds the frame of a run: headers and payload by the engine, and the ICRC.
fn build(
    path: &Path,
    run: &Transmit,
    write: impl Fn(usize, &mut [u8]) -> Result<(), MemError>,
) -> Result<Frame, Failure> {
    let count = run.count();
    let first = run.packet_len(0) + ICRC;
    let last = run.packet_len(count - 1) + ICRC;
    let mut frame = path.frame(first, count, last).map_err(|_| Failure::Lost)?;
    for i in 0..count {
        let (segment, pseudo) = frame.segment(i).map_err(|_| Failure::Lost)?;
        let body = segment.len() - ICRC;
        let (packet, crc) = segment.split_at_mut(body);
        write(i, packet).map_err(Failure::Memory)?;
        crc.copy_from_slice(&icrc::icrc(&KernelCrc, pseudo, packet).unwrap_or_default());
    }
    Ok(frame)
}
