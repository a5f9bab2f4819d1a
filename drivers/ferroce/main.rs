// SPDX-License-Identifier: GPL-2.0

//! ferroce: a RoCEv2 device in software over any Ethernet interface.
//!
//! Two doors ([`ibdev`] and [`chardev`]) lead to the same objects ([`verbs`]),
//! which run the protocol ([`engine`]) over the network ([`net`]). Everything unsafe is
//! in [`kernel_ext`].

use kernel::prelude::*;

mod chardev;
pub mod engine;
mod ibdev;
#[path = "../kernel_ext/mod.rs"]
mod kernel_ext;
mod net;
mod registry;
mod verbs;

use chardev::Chardev;
use ferroce_bindings as bindings;
use kernel_ext::{
    crc,
    fetchers::Fetchers,
    ib::device::LinkType, //
};

module! {
    type: Ferroce,
    name: "ferroce",
    authors: ["The Ferroce developers"],
    description: "RoCEv2 in software, in Rust",
    license: "GPL",
    alias: ["rdma-link-ferroce"],
    imports_ns: ["DMA_BUF"],
    params: {
        check_pkey: bool {
            default: true,
            description: "Drop packets of another partition (P_Key), as the specification wants",
        },
        roce_v1: bool {
            default: false,
            description: "Offer RoCEv1 too, by a second GID for each address",
        },
    },
}

/// Whether RoCEv1 is spoken too. Programs that take the first GID would then speak it
/// without meaning to, so it has to be asked for.
pub(crate) fn roce_v1() -> bool {
    module_parameters::roce_v1.value()
}

struct Ferroce {
    chardev: Option<Pin<KBox<Chardev>>>,
    link_type: Option<LinkType<ibdev::Door>>,
    /// Goes after all devices.
    _fetchers: Fetchers,
}

impl kernel::Module for Ferroce {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        crc::choose()?;
        let fetchers = Fetchers::new()?;
        registry::open()?;
        let chardev =
            KBox::pin_init(Chardev::new(), GFP_KERNEL).inspect_err(|_| registry::close())?;
        Ok(Ferroce {
            chardev: Some(chardev),
            link_type: Some(LinkType::register()),
            _fetchers: fetchers,
        })
    }
}

impl Drop for Ferroce {
    fn drop(&mut self) {
        // First no new devices, then no devices.
        self.link_type = None;
        self.chardev = None;
        registry::close();
    }
}
