// SPDX-License-Identifier: GPL-2.0

//! What the runs must meet together. What is not listed cannot happen or is of no interest.

use crate::wire::Opcode;
use crate::wire::Operation;
use crate::wire::Service;
use crate::QpState;

/// Opcodes that must be met.
pub fn opcodes() -> impl Iterator<Item = u8> {
    (0..=u8::MAX).filter(|&byte| {
        let opcode = Opcode::from_byte(byte);
        opcode.is_some()
    })
}

/// States of a receiver that must be met by packets with this opcode.
pub fn states(byte: u8) -> Vec<QpState> {
    use QpState::*;
    let Some(opcode) = Opcode::from_byte(byte) else {
        return Vec::new();
    };
    match opcode.service {
        Service::Xrc if opcode.op.is_response() => vec![Rts, Error],
        Service::Xrc => vec![Init, Rtr, Rts, Error],
        Service::Rc if opcode.op.is_response() => vec![Reset, Rts, Sqd, Error],
        // without credits only the first packet of such a message is sent to one that has never answered
        Service::Rc if takes_receive(opcode.op) && !opcode.op.starts() => {
            vec![Reset, Rtr, Rts, Sqd, Error]
        }
        Service::Rc => vec![Reset, Init, Rtr, Rts, Sqd, Error],
        Service::Uc => vec![Init, Rtr, Rts, Sqd, Sqe, Error],
        _ => vec![Init, Rtr, Rts, Sqd, Sqe, Error],
    }
}

fn takes_receive(op: Operation) -> bool {
    op.is_send() || op.has_imm()
}

/// Everything else that must be met.
pub fn others() -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let kinds = [
        "Send",
        "SendImm",
        "SendInvalidate",
        "Write",
        "WriteImm",
        "Read",
        "CompareSwap",
        "FetchAdd",
        "Flush",
        "AtomicWrite",
    ];
    for kind in kinds.into_iter().chain(["Datagram"]) {
        for state in ["Rts", "Sqd", "Error"] {
            all.push(format!("{kind} posted in {state}"));
        }
        for status in ["Success", "WrFlushErr"] {
            all.push(format!("{kind} ended {status}"));
        }
        if !matches!(kind, "Flush" | "AtomicWrite") {
            all.push(format!("{kind} ended LocProtErr"));
        }
    }
    for end in [
        "Invalidate ended Success",
        "Invalidate ended WrFlushErr",
        "Invalidate ended LocQpOpErr",
        "Register ended Success",
    ] {
        all.push(end.into());
    }
    for kind in kinds {
        all.push(format!("{kind} ended RetryExcErr"));
    }
    for kind in &kinds[3..] {
        for status in ["RemAccessErr", "RemInvReqErr"] {
            all.push(format!("{kind} ended {status}"));
        }
    }
    for kind in ["Send", "SendImm", "SendInvalidate", "WriteImm"] {
        all.push(format!("{kind} ended RnrRetryExcErr"));
    }
    for kind in ["Send", "SendImm"] {
        for status in ["RemInvReqErr", "RemOpErr"] {
            all.push(format!("{kind} ended {status}"));
        }
    }
    all.push("Malformed ended LocQpOpErr".into());
    all.push("SendInvalidate ended RemAccessErr".into());
    for status in [
        "Success",
        "WrFlushErr",
        "LocLenErr",
        "LocProtErr",
        "LocAccessErr",
    ] {
        all.push(format!("receive {status}"));
    }
    for event in [
        "Fatal",
        "AccessError",
        "RequestError",
        "CommEstablished",
        "SqDrained",
        "LastWqeReached",
    ] {
        all.push(format!("event {event}"));
    }
    for code in 0..32 {
        all.push(format!("sent Rnr({code})"));
    }
    for code in [
        "Sequence",
        "InvalidRequest",
        "RemoteAccess",
        "RemoteOperational",
    ] {
        all.push(format!("sent Nak({code})"));
    }
    for trouble in [
        "flaw", "kill", "rebirth", "drain", "starve", "dark", "revoke",
    ] {
        all.push(format!("trouble {trouble}"));
    }
    all
}
