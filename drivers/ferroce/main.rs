// SPDX-License-Identifier: GPL-2.0

//! ferroce: a RoCEv2 device in software over any Ethernet interface.

use kernel::prelude::*;

#[path = "../kernel_ext/mod.rs"]
mod kernel_ext;

use ferroce_bindings as bindings;

module! {
    type: Ferroce,
    name: "ferroce",
    authors: ["The Ferroce developers"],
    description: "RoCEv2 in software, in Rust",
    license: "GPL",
    alias: ["rdma-link-ferroce"],
}

struct Ferroce;

impl kernel::Module for Ferroce {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Ferroce)
    }
}
