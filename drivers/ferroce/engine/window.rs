// SPDX-License-Identifier: GPL-2.0

//! How much a requester has in flight.
//!
//! The specification leaves this to the sender (section 9.7.7 has credits for receive buffers only). A fixed window
//! that fits a fast link fills the queues of a slow one for longer than the ACK timeout, and then repetitions fill
//! them again. So the window grows while acknowledgements come soon, shrinks when they take a good part of the
//! timeout or a packet was lost, and starts anew after a timeout.

use super::Instant;

/// First window.
const START: u32 = 128 << 10;

/// The window of one queue pair, in bytes. `stream` counts the bytes of the send queue since RTS.
#[derive(Copy, Clone, Default)]
pub(super) struct Window {
    bytes: u32,
    max: u32,
    /// Doubles below this, above it grows by an eighth.
    threshold: u32,
    /// A position in the stream whose acknowledgement is timed, and when it was sent.
    probe: Option<(u64, Instant)>,
}

impl Window {
    /// Smallest window: a few packets of any MTU, so that a loss is noticed by a sequence NAK.
    pub(super) const MIN: u32 = 32 << 10;

    /// A window that never exceeds `max`.
    pub(super) fn new(max: u32) -> Self {
        Self {
            bytes: START.min(max),
            max,
            threshold: max,
            probe: None,
        }
    }

    /// Bytes that may be in flight.
    pub(super) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Everything up to `stream` has been sent.
    pub(super) fn sent(&mut self, now: Instant, stream: u64) {
        self.probe.get_or_insert((stream, now));
    }

    /// Everything up to `stream` has arrived; `timeout` is that of the wait for acknowledgements, in ns.
    pub(super) fn acknowledged(&mut self, now: Instant, stream: u64, timeout: Option<u64>) {
        let Some((_, sent)) = self.probe.filter(|(position, _)| stream >= *position) else {
            return;
        };
        self.probe = None;
        let took = now.0.saturating_sub(sent.0);
        let timeout = timeout.unwrap_or(u64::MAX);
        if took > timeout / 2 {
            self.shrink();
        } else if took <= timeout / 4 {
            let step = if self.bytes < self.threshold {
                self.bytes
            } else {
                self.bytes / 8
            };
            self.bytes = self.bytes.saturating_add(step).min(self.max);
        }
    }

    fn shrink(&mut self) {
        self.threshold = (self.bytes / 2).max(Self::MIN).min(self.max);
        self.bytes = self.threshold;
    }

    /// A packet was lost. What is sent again is not timed.
    pub(super) fn lost(&mut self) {
        self.probe = None;
        self.shrink();
    }

    /// Nothing came back for the time of the timeout.
    pub(super) fn timed_out(&mut self) {
        self.lost();
        self.bytes = Self::MIN.min(self.max);
    }
}
