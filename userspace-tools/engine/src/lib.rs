// SPDX-License-Identifier: GPL-2.0

//! The protocol engine of the ferroce kernel module, compiled for the host, and a simulator to test it in.

#![forbid(unsafe_code)]

#[path = "../../../drivers/ferroce/engine/mod.rs"]
pub mod engine;

pub mod crc;
pub mod pcap;
pub mod sim;

pub use engine::*;
