// SPDX-License-Identifier: GPL-2.0

//! Address handles: where a datagram goes. A request names one by its number.
//!
//! The kernel's connection manager makes and destroys them with interrupts off. The way
//! is therefore looked up when the first datagram takes it.

use super::{
    device::limits,
    Device,
    Pd, //
};
use crate::{
    kernel_ext::{
        ib::gid::{
            self,
            AhAttr, //
        },
        lock::{
            new_bh_lock,
            BhLock, //
        },
    },
    net::{
        Path,
        PathConfig, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

struct Way {
    attr: AhAttr,
    /// Known once a datagram has taken it.
    path: Option<Arc<Path>>,
}

/// An address handle.
#[pin_data]
pub(crate) struct Ah {
    /// By which requests name it; not 0.
    pub(crate) number: u32,
    /// The protection domain whose QPs may use it.
    pub(super) pd: u32,
    #[pin]
    way: BhLock<Way>,
}

/// Fails with `EINVAL` for addresses of two families.
fn check(attr: &AhAttr) -> Result {
    let same = attr.path.src.is_ipv4() == attr.path.dst.is_ipv4();
    same.then_some(()).ok_or(EINVAL)
}

impl Ah {
    /// A new handle. Any context. Fails with `EINVAL` for addresses of two families, or
    /// `ENOMEM`.
    pub(crate) fn new(pd: &Pd, attr: &AhAttr) -> Result<Arc<Self>> {
        check(attr)?;
        let way = Way {
            attr: *attr,
            path: None,
        };
        pd.dev
            .ahs
            .insert_atomic(limits::AH, &pd.dev.next_ah, |number| {
                Arc::pin_init(
                    pin_init!(Self {
                        number,
                        pd: pd.id,
                        way <- new_bh_lock!(way, "Ah::way"),
                    }),
                    GFP_ATOMIC,
                )
            })
    }

    /// Changes where it leads. Fails with `EINVAL` as [`Self::new`] does.
    pub(crate) fn modify(&self, attr: &AhAttr) -> Result {
        check(attr)?;
        let mut way = self.way.lock();
        way.attr = *attr;
        way.path = None;
        Ok(())
    }

    /// What it was made with or changed to.
    pub(crate) fn query(&self) -> AhAttr {
        self.way.lock().attr
    }

    /// The way there. Fails with what the routing says when there is none. Does not sleep.
    pub(super) fn path(&self, dev: &Device) -> Result<Arc<Path>> {
        let mut way = self.way.lock();
        if let Some(path) = &way.path {
            return Ok(path.clone());
        }
        let attr = way.attr.path;
        let config = PathConfig {
            src: attr.src,
            dst: attr.dst,
            sport: gid::flow_port(match attr.flow_label {
                0 => self.number,
                label => label,
            }),
            tclass: attr.traffic_class,
            hop_limit: attr.hop_limit,
            flow_label: attr.flow_label,
            interface: attr.interface,
            station: attr.station,
        };
        let path = Arc::new(dev.path(&config)?, GFP_ATOMIC)?;
        way.path = Some(path.clone());
        Ok(path)
    }

    /// No request finds it after this. Any context.
    pub(crate) fn destroy(&self, dev: &Device) {
        drop(dev.ahs.remove_atomic(self.number));
    }
}
