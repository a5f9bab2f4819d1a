// SPDX-License-Identifier: GPL-2.0

//! What is worth counting. Nothing depends on the counts; they tell an operator what happened.

/// An event of a queue pair, reported by [`super::Env::count`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Count {
    /// A SEND was completed, with whatever status.
    Sent,
    /// A receive was completed without error.
    Received,
    /// A request that was executed before came again.
    DuplicateRequest,
    /// A gap in the peer's requests was reported to it.
    OutOfSequenceRequest,
    /// RNR was reported to the peer.
    RnrSent,
    /// The peer reported RNR.
    RnrReceived,
    /// The peer reported a gap.
    SequenceErrorReceived,
    /// An answer came to which nothing is outstanding: a duplicate or a ghost.
    StaleResponse,
    /// Sending goes back, since a packet was lost or not answered in time.
    Retry,
    /// As many retries as allowed did not help.
    RetryExceeded,
    /// The peer reported RNR more often than allowed.
    RnrRetryExceeded,
    /// Dropped: the queue pair does not take such packets in its state.
    WrongState,
    /// Dropped: the opcode is of another service than the queue pair's.
    WrongService,
    /// Dropped: the P_Key is of another partition.
    WrongPkey,
    /// Dropped: a datagram with another Q_Key than the queue pair's.
    WrongQkey,
    /// Dropped: a datagram for which no receive was posted, or one that is too short.
    NoBuffer,
}
