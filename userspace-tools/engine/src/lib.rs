// SPDX-License-Identifier: GPL-2.0

//! The protocol engine of the ferroce kernel module, compiled for the host, where it can be tested.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[path = "../../../drivers/ferroce/engine/mod.rs"]
pub mod engine;

pub use engine::*;
