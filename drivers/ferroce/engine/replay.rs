// SPDX-License-Identifier: GPL-2.0

//! The peer's READs and atomics: answers that are on their way, and those kept in case they are asked for again
//! (sections 9.7.5.1.2 to 9.7.5.1.5).

use super::transmit::padded;
use super::transmit::run;
use super::transmit::Source;
use super::transmit::Transmit;
use super::wire::Aeth;
use super::wire::Bth;
use super::wire::Operation;
use super::wire::Reth;
use super::Env;
use super::MemError;
use super::Mtu;
use super::Psn;
use super::Qp;
use super::QpType;
use super::Store;

/// What was asked for.
#[derive(Copy, Clone)]
enum Answer {
    /// Memory of this side.
    Read { va: u64, rkey: u32 },
    /// The value before an atomic.
    Atomic { old: u64 },
    /// That a FLUSH or an ATOMIC WRITE is done: an empty READ response.
    Done,
}

/// A READ or atomic of the peer. Made and read by the engine only; callers allocate them as [`ReadReplay::ZERO`].
#[derive(Copy, Clone)]
pub struct ReadReplay {
    answer: Answer,
    first: Psn,
    packets: u32,
    len: u32,
    msn: u32,
    /// XRC: the queue that stands for the protection domain of the memory.
    srq: u32,
    /// Packets `start..end` are wanted and those from `next` on still to be sent; nothing is if `next == end`.
    start: u32,
    next: u32,
    end: u32,
    /// Bytes of the message before `end`.
    end_byte: u32,
    /// The whole answer has been sent once.
    answered: bool,
}

impl ReadReplay {
    /// An unused entry.
    pub const ZERO: Self = Self {
        answer: Answer::Atomic { old: 0 },
        first: Psn::new(0),
        packets: 0,
        len: 0,
        msn: 0,
        srq: 0,
        start: 0,
        next: 0,
        end: 0,
        end_byte: 0,
        answered: false,
    };

    fn wanted(&self) -> bool {
        self.next < self.end
    }

    /// Operation and payload bytes of response packet `k`.
    pub(super) fn response(&self, k: u32, mtu: Mtu) -> (Operation, u32) {
        let op = match (k == self.start, k + 1 == self.end) {
            (true, true) => Operation::ReadOnly,
            (true, false) => Operation::ReadFirst,
            (false, true) => Operation::ReadLast,
            (false, false) => Operation::ReadMiddle,
        };
        let offset = k.saturating_mul(mtu.bytes());
        let len = self.end_byte.saturating_sub(offset).min(mtu.bytes());
        (op, len)
    }

    /// Bytes of response packet `k`, BTH to pad.
    fn response_len(&self, k: u32, mtu: Mtu) -> u32 {
        let (op, len) = self.response(k, mtu);
        let aeth = if op.has_aeth() { Aeth::SIZE } else { 0 };
        (Bth::SIZE + aeth) as u32 + padded(len)
    }

    /// Address and key of the data of response packet `k`.
    pub(super) fn source(&self, k: u32, mtu: Mtu) -> Option<(u64, u32)> {
        match self.answer {
            Answer::Read { va, rkey } => {
                let offset = u64::from(k) * u64::from(mtu.bytes());
                Some((va.wrapping_add(offset), rkey))
            }
            Answer::Atomic { .. } | Answer::Done => None,
        }
    }

    /// The old value, if this is an atomic.
    pub(super) fn old_value(&self) -> Option<u64> {
        match self.answer {
            Answer::Atomic { old } => Some(old),
            Answer::Read { .. } | Answer::Done => None,
        }
    }
}

impl Default for ReadReplay {
    fn default() -> Self {
        Self::ZERO
    }
}

impl<S: Store> Qp<S> {
    fn replay_slot(&self, n: u64) -> Option<usize> {
        let capacity = self.replay_capacity();
        (capacity > 0).then(|| (n % capacity) as usize)
    }

    /// READs and atomics that are remembered: at least as many as the peer may have in flight.
    fn replay_capacity(&self) -> u64 {
        self.store.replay.len() as u64
    }

    /// Replay entry `n`, counted since RESET, if it is remembered.
    pub(super) fn replay(&self, n: u64) -> Option<&ReadReplay> {
        let made = self.resp.replays;
        if n >= made || made - n > self.replay_capacity() {
            return None;
        }
        self.store.replay.get(self.replay_slot(n)?)
    }

    fn replay_mut(&mut self, n: u64) -> Option<&mut ReadReplay> {
        let slot = self.replay_slot(n)?;
        self.store.replay.get_mut(slot)
    }

    /// Numbers of the remembered entries, oldest first.
    fn replays(&self) -> core::ops::Range<u64> {
        let made = self.resp.replays;
        made.saturating_sub(self.replay_capacity())..made
    }

    /// The entry that the next READ or atomic takes the place of.
    fn displaced(&self) -> Option<&ReadReplay> {
        let oldest = self.resp.replays.checked_sub(self.replay_capacity())?;
        self.replay(oldest)
    }

    /// Whether the peer may ask for one more READ or atomic. If it keeps to the agreed number it does so only when it
    /// has the answer to the oldest; a repetition of that may then still be due, but is of no use to anybody.
    pub(super) fn replay_room(&self) -> bool {
        self.resp.unanswered < u32::from(self.attrs.max_dest_rd_atomic)
    }

    /// Whether one more answer can be remembered, for requests that some peers do not count among those agreed on.
    pub(super) fn answer_room(&self) -> bool {
        u64::from(self.resp.unanswered) < self.replay_capacity()
    }

    /// Remembers a READ at `psn` and wants its response sent.
    pub(super) fn remember_read(&mut self, psn: Psn, reth: &Reth, packets: u32, msn: u32) {
        self.remember(ReadReplay {
            answer: Answer::Read {
                va: reth.va,
                rkey: reth.rkey,
            },
            first: psn,
            packets,
            len: reth.len,
            msn,
            end: packets,
            end_byte: reth.len,
            ..ReadReplay::ZERO
        });
    }

    /// Remembers an atomic at `psn` and wants its answer sent.
    pub(super) fn remember_atomic(&mut self, psn: Psn, old: u64, msn: u32) {
        self.remember(ReadReplay {
            answer: Answer::Atomic { old },
            first: psn,
            packets: 1,
            msn,
            end: 1,
            ..ReadReplay::ZERO
        });
    }

    /// Remembers a FLUSH or an ATOMIC WRITE at `psn` and wants it confirmed.
    pub(super) fn remember_placement(&mut self, psn: Psn, msn: u32) {
        self.remember(ReadReplay {
            answer: Answer::Done,
            first: psn,
            packets: 1,
            msn,
            end: 1,
            ..ReadReplay::ZERO
        });
    }

    fn remember(&mut self, entry: ReadReplay) {
        if self.displaced().is_some_and(ReadReplay::wanted) {
            self.resp.answers = self.resp.answers.saturating_sub(1);
        }
        let srq = self.resp.srq;
        if let Some(slot) = self.replay_mut(self.resp.replays) {
            *slot = ReadReplay { srq, ..entry };
            self.resp.replays += 1;
            self.resp.answers += 1;
            self.resp.unanswered += 1;
        }
    }

    /// Wants an answer sent again: all of an atomic, or the part of a READ that a repeated request names. A request
    /// for something not remembered, or for other memory than the first time, is dropped.
    pub(super) fn repeat(&mut self, psn: Psn, reth: Option<&Reth>) {
        let mtu = self.attrs.path_mtu;
        let found = self.replays().rev().find(|&n| {
            self.replay(n)
                .is_some_and(|e| psn.since(e.first) < e.packets)
        });
        let Some(entry) = found.and_then(|n| self.replay_mut(n)) else {
            return;
        };
        let start = psn.since(entry.first);
        let fresh = !entry.wanted();
        match (entry.answer, reth) {
            (Answer::Atomic { .. } | Answer::Done, None) => (),
            (Answer::Read { va, rkey }, Some(again)) => {
                let offset = start.saturating_mul(mtu.bytes());
                let same = again.rkey == rkey && again.va == va.wrapping_add(u64::from(offset));
                let end = offset
                    .checked_add(again.len)
                    .filter(|&end| end <= entry.len);
                let Some(end_byte) = end.filter(|_| same) else {
                    return;
                };
                entry.end = start.saturating_add(mtu.packets(again.len));
                entry.end_byte = end_byte;
            }
            _ => return,
        }
        entry.start = start;
        entry.next = start;
        if fresh {
            self.resp.answers += 1;
        }
    }

    /// The next run of answers, oldest first.
    pub(super) fn poll_answer(&mut self, max_packets: u32, env: &mut impl Env) -> Option<Transmit> {
        if self.resp.answers == 0 {
            return None;
        }
        let found = self
            .replays()
            .find(|&n| self.replay(n).is_some_and(ReadReplay::wanted));
        let Some(n) = found else {
            self.resp.answers = 0;
            return None;
        };
        let entry = *self.replay(n)?;
        let mtu = self.attrs.path_mtu;
        let k = entry.next;
        if self.cfg.qp_type == QpType::XrcTgt && !env.select_srq(entry.srq) {
            self.response_failed(entry.first.plus(k), MemError::Key, env);
            return None;
        }
        let (source, len, count, last_len) = match entry.answer {
            Answer::Atomic { .. } => {
                let len = (Bth::SIZE + Aeth::SIZE + 8) as u32;
                (Source::AtomicAck(n), len, 1, len)
            }
            Answer::Read { .. } | Answer::Done => {
                let len = |k| entry.response_len(k, mtu);
                let (count, last_len) = run(k, entry.end, max_packets, len);
                (Source::ReadResponse(n), len(k), count, last_len)
            }
        };
        let done = k + count == entry.end;
        if done {
            self.resp.answers = self.resp.answers.saturating_sub(1);
        }
        if done && !entry.answered {
            self.resp.unanswered = self.resp.unanswered.saturating_sub(1);
        }
        let entry_mut = self.replay_mut(n)?;
        entry_mut.next = k + count;
        entry_mut.answered |= done;
        Some(Transmit {
            source,
            wqe: 0,
            packet: k,
            psn: entry.first.plus(k),
            msn: entry.msn,
            credits: self.own_credits(env),
            count,
            len,
            last_len,
            dest_qpn: self.attrs.dest_qpn,
            ah: None,
        })
    }

    /// The data of answer `n` from packet `k` on is being fetched: it goes out later.
    pub(super) fn response_stalled(&mut self, n: u64, k: u32) {
        let Some(entry) = self.replay_mut(n) else {
            return;
        };
        let done = !entry.wanted();
        entry.next = k;
        let at = entry.first.plus(k);
        if done {
            self.resp.answers += 1;
        }
        self.resp.stalled.begin(self.polled, at);
    }

    /// Forgets all answers, sent or not.
    pub(super) fn forget_answers(&mut self) {
        self.resp.answers = 0;
        self.resp.replays = 0;
        self.resp.unanswered = 0;
    }
}
