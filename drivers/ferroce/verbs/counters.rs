// SPDX-License-Identifier: GPL-2.0

//! A device's counters, as `rdma statistic` shows them.
//!
//! Each CPU counts in a cache line of its own, so queue pairs on different CPUs do not
//! meet here. Packets are counted a datagram or a frame at a time, not one by one.

use crate::{
    engine::Count,
    kernel_ext::{
        ib::stats::StatName,
        percpu::PerCpu, //
    },
};
use core::sync::atomic::{
    AtomicU64,
    Ordering, //
};
use kernel::prelude::*;

/// Makes the enum and its table of names from one list.
macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $counter:ident = $name:literal,)+) => {
        /// What is counted.
        #[derive(Copy, Clone, PartialEq, Eq)]
        pub(crate) enum Counter {
            $($(#[doc = $doc])+ $counter,)+
        }

        /// The names of all counters, in the order of [`Counter`].
        pub(crate) const NAMES: &[StatName] = &[$(StatName::new($name),)+];
    };
}

counters! {
    /// Packets sent.
    SentPackets = c"sent_pkts",
    /// Packets that arrived intact.
    ReceivedPackets = c"rcvd_pkts",
    /// Requests that came again.
    DuplicateRequests = c"duplicate_request",
    /// Gaps in a peer's requests that were reported.
    OutOfSequenceRequests = c"out_of_seq_request",
    /// RNR reported by a peer.
    RnrReceived = c"rcvd_rnr_err",
    /// RNR reported to a peer.
    RnrSent = c"send_rnr_err",
    /// Gaps that a peer reported.
    SequenceErrorsReceived = c"rcvd_seq_err",
    /// Times that work was left to the context which was sending for the queue pair.
    Deferred = c"ack_deferred",
    /// Connections given up for want of an answer.
    RetriesExceeded = c"retry_exceeded_err",
    /// Connections given up for too much RNR.
    RnrRetriesExceeded = c"retry_rnr_exceeded_err",
    /// Times that a queue pair sent again.
    Retries = c"completer_retry_err",
    /// Frames that the network did not take.
    SendErrors = c"send_err",
    /// Times that the link went down.
    LinkDowned = c"link_downed",
    /// SENDs completed.
    Sends = c"rdma_sends",
    /// Receives completed without error.
    Receives = c"rdma_recvs",
    /// Bytes sent, from the IP header to the ICRC.
    SentBytes = c"sent_bytes",
    /// Bytes that arrived intact, counted alike.
    ReceivedBytes = c"rcvd_bytes",
    /// Dropped: the ICRC is wrong or not there.
    BadIcrc = c"rcvd_bad_icrc",
    /// Dropped: the headers are no packet's.
    Malformed = c"rcvd_malformed",
    /// Dropped: no such queue pair.
    UnknownQp = c"rcvd_unknown_qp",
    /// Dropped: not from the queue pair's peer, or not to its address.
    WrongAddress = c"rcvd_wrong_address",
    /// Dropped: not in that state of the queue pair.
    WrongState = c"rcvd_wrong_state",
    /// Dropped: an opcode of another service.
    WrongService = c"rcvd_wrong_service",
    /// Dropped: a P_Key of another partition.
    WrongPkey = c"rcvd_wrong_pkey",
    /// Dropped: another Q_Key.
    WrongQkey = c"rcvd_wrong_qkey",
    /// Dropped: a datagram without a receive that it fits into.
    NoBuffer = c"rcvd_no_buffer",
    /// Dropped: to a multicast group of which no queue pair is a member.
    NoGroup = c"rcvd_no_group",
    /// Dropped: an answer to nothing.
    StaleResponses = c"rcvd_stale_response",
}

impl From<Count> for Counter {
    fn from(count: Count) -> Self {
        match count {
            Count::Sent => Self::Sends,
            Count::Received => Self::Receives,
            Count::DuplicateRequest => Self::DuplicateRequests,
            Count::OutOfSequenceRequest => Self::OutOfSequenceRequests,
            Count::RnrSent => Self::RnrSent,
            Count::RnrReceived => Self::RnrReceived,
            Count::SequenceErrorReceived => Self::SequenceErrorsReceived,
            Count::StaleResponse => Self::StaleResponses,
            Count::Retry => Self::Retries,
            Count::RetryExceeded => Self::RetriesExceeded,
            Count::RnrRetryExceeded => Self::RnrRetriesExceeded,
            Count::WrongState => Self::WrongState,
            Count::WrongService => Self::WrongService,
            Count::WrongPkey => Self::WrongPkey,
            Count::WrongQkey => Self::WrongQkey,
            Count::NoBuffer => Self::NoBuffer,
        }
    }
}

/// The counters of a device. They go up and never back, and wrap at 64 bits.
pub(crate) struct Counters(PerCpu<[AtomicU64; NAMES.len()]>);

impl Counters {
    /// All at 0. Fails with `ENOMEM`.
    pub(crate) fn new() -> Result<Self> {
        let zeros = || [const { AtomicU64::new(0) }; NAMES.len()];
        Ok(Self(PerCpu::new(zeros)?))
    }

    /// Adds to one of them. Any context.
    pub(crate) fn add(&self, counter: impl Into<Counter>, n: u64) {
        let here = self.0.here();
        if let Some(value) = here.and_then(|all| all.get(counter.into() as usize)) {
            value.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// The value of the counter of that number over all CPUs; 0 if there is none.
    pub(crate) fn sum(&self, index: usize) -> u64 {
        let values = self.0.iter().filter_map(|all| all.get(index));
        values.fold(0, |sum, value| {
            sum.wrapping_add(value.load(Ordering::Relaxed))
        })
    }
}
