// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions that the `kernel` crate lacks.

pub(crate) mod bh_work;
mod charge;
pub(crate) mod crc;
mod crc_table;
pub(crate) mod dmabuf;
pub(crate) mod fetchers;
mod fpu;
pub(crate) mod global;
pub(crate) mod ib;
pub(crate) mod implicit;
pub(crate) mod kmem;
pub(crate) mod lock;
pub(crate) mod multicast;
pub(crate) mod net;
pub(crate) mod netdev;
pub(crate) mod nf;
pub(crate) mod odp;
pub(crate) mod packet;
mod page_entry;
pub(crate) mod percpu;
pub(crate) mod random;
pub(crate) mod rcu;
pub(crate) mod ring;
pub(crate) mod route;
pub(crate) mod skb;
pub(crate) mod skb_pool;
pub(crate) mod timer;
pub(crate) mod uapi;
pub(crate) mod udp;
pub(crate) mod umem;
pub(crate) mod wait;
mod wanted;
