// SPDX-License-Identifier: GPL-2.0

//! Two queue pairs on a wire that a test controls: a virtual clock, latency, loss, duplication, reordering, corruption.
//! All chance comes from one seed, so a run can be repeated.

mod craft;
mod endpoint;
mod memory;
mod net;
mod pair;
mod rng;
pub mod world;

pub use craft::craft;
pub use endpoint::Endpoint;
pub use endpoint::HostEnv;
pub use endpoint::VecStore;
pub use memory::HostMemory;
pub use net::Faults;
pub use net::Verdict;
pub use pair::Pair;
pub use pair::Sent;
pub use pair::Setup;
pub use rng::Rng;
