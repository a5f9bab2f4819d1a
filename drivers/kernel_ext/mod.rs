// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions that the `kernel` crate lacks.

pub(crate) mod lock;
pub(crate) mod rcu;
pub(crate) mod ring;
pub(crate) mod timer;
pub(crate) mod umem;
