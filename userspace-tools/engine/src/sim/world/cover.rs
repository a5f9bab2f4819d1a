// SPDX-License-Identifier: GPL-2.0

//! What the runs have met: each opcode, with each fault, at a receiver in each state; each kind of work request with
//! each status; and which of these must be met for the suite to mean something.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::fabric::Fault;
use crate::wire::Opcode;
use crate::QpState;

/// States in the order of their numbers.
pub const STATES: [QpState; 7] = [
    QpState::Reset,
    QpState::Init,
    QpState::Rtr,
    QpState::Rts,
    QpState::Sqd,
    QpState::Sqe,
    QpState::Error,
];

/// Counts of what was met.
#[derive(Clone, Default)]
pub struct Cover {
    /// Packets by (opcode byte, fault, state of the receiver).
    packets: BTreeMap<(u8, u8, u8), u64>,
    /// Everything else, by what it was.
    others: BTreeMap<String, u64>,
    /// Runs.
    pub runs: u64,
}

/// `RC SendFirst`.
pub fn opcode_name(byte: u8) -> String {
    match Opcode::from_byte(byte) {
        Some(opcode) => format!("{:?} {:?}", opcode.service, opcode.op),
        None => format!("opcode {byte:#04x}"),
    }
}

impl Cover {
    /// A packet was met.
    pub fn packet(&mut self, opcode: u8, fault: Fault, state: QpState) {
        *self
            .packets
            .entry((opcode, fault as u8, state as u8))
            .or_default() += 1;
    }

    /// Something else was met.
    pub fn met(&mut self, what: impl Into<String>) {
        *self.others.entry(what.into()).or_default() += 1;
    }

    /// Adds the counts of other runs.
    pub fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        for (key, count) in &other.packets {
            *self.packets.entry(*key).or_default() += count;
        }
        for (key, count) in &other.others {
            *self.others.entry(key.clone()).or_default() += count;
        }
    }

    /// Packets with this opcode, fault and state; `None` stands for any.
    fn packets(&self, opcode: u8, fault: Option<Fault>, state: Option<QpState>) -> u64 {
        let wanted = |(key, count): (&(u8, u8, u8), &u64)| {
            let fits = key.0 == opcode
                && fault.is_none_or(|fault| fault as u8 == key.1)
                && state.is_none_or(|state| state as u8 == key.2);
            if fits {
                *count
            } else {
                0
            }
        };
        self.packets.iter().map(wanted).sum()
    }

    /// The pairs that must be met and were not.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for byte in super::must::opcodes() {
            let name = opcode_name(byte);
            for fault in Fault::ALL {
                if self.packets(byte, Some(fault), None) == 0 {
                    missing.push(format!("{name} with fault {}", fault.name()));
                }
            }
            for state in super::must::states(byte) {
                if self.packets(byte, None, Some(state)) == 0 {
                    missing.push(format!("{name} at a receiver in {state:?}"));
                }
            }
            for fault in Fault::ALL {
                if self.packets(byte, Some(fault), Some(QpState::Rts)) == 0 {
                    missing.push(format!("{name} with fault {} in Rts", fault.name()));
                }
            }
        }
        let others = super::must::others();
        missing.extend(
            others
                .into_iter()
                .filter(|what| !self.others.contains_key(what)),
        );
        missing
    }

    /// How many pairs there are to be met.
    pub fn wanted(&self) -> usize {
        let packets: usize = super::must::opcodes()
            .map(|byte| 2 * Fault::ALL.len() + super::must::states(byte).len())
            .sum();
        packets + super::must::others().len()
    }

    /// The report: a table for the packets, a list for the rest.
    pub fn report(&self) -> String {
        let mut out = format!("{} runs\n\n", self.runs);
        let _ = write!(out, "{:<22}", "packets");
        for fault in Fault::ALL {
            let _ = write!(out, "{:>10}", fault.name());
        }
        for state in STATES {
            let _ = write!(out, "{:>10}", format!("{state:?}"));
        }
        out.push('\n');
        for byte in super::must::opcodes() {
            let _ = write!(out, "{:<22}", opcode_name(byte));
            for fault in Fault::ALL {
                let _ = write!(out, "{:>10}", self.packets(byte, Some(fault), None));
            }
            for state in STATES {
                let _ = write!(out, "{:>10}", self.packets(byte, None, Some(state)));
            }
            out.push('\n');
        }
        out.push_str("\nopcode x fault x state of the receiver\n");
        for ((byte, fault, state), count) in &self.packets {
            let fault = Fault::ALL[usize::from(*fault)].name();
            let state = format!("{:?}", STATES[usize::from(*state)]);
            let _ = writeln!(
                out,
                "{:<22}{fault:<10}{state:<6}{count:>10}",
                opcode_name(*byte)
            );
        }
        out.push_str("\nothers\n");
        for (what, count) in &self.others {
            let _ = writeln!(out, "{what:<60}{count:>10}");
        }
        out
    }
}
