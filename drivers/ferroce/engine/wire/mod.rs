// SPDX-License-Identifier: GPL-2.0

//! Packet formats, from the BTH to the pad (chapter 9 and annex A17).

mod bth;
mod credits;
mod headers;
mod opcode;
mod packet;

pub use bth::Bth;
pub use credits::Credits;
pub use headers::Aeth;
pub use headers::AtomicEth;
pub use headers::Deth;
pub use headers::Feth;
pub use headers::NakCode;
pub use headers::Reth;
pub use headers::Syndrome;
pub use opcode::Opcode;
pub use opcode::Operation;
pub use opcode::Service;
pub use packet::Packet;
pub use packet::ParseError;
