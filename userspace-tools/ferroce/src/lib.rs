// SPDX-License-Identifier: GPL-2.0

//! Safe verbs over `/dev/ferroce`.
//!
//! ```no_run
//! use ferroce::{Access, Buffer, Context, QpConfig};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), ferroce::Error> {
//! let context = Context::open()?;
//! let info = context.devices()?.remove(0);
//! let device = context.bind(&info)?;
//! let pd = device.alloc_pd()?;
//! let mr = pd.register(Buffer::new(4096)?, Access::LOCAL_WRITE)?;
//! let mut cq = device.create_cq(16)?;
//! let mut qp = pd.create_qp(&cq, &cq, &QpConfig { send_slots: 8, recv_slots: 0 })?;
//! # let peer: ferroce::Peer = todo!();
//! # let (remote_addr, rkey) = (0, 0);
//! qp.connect(&peer)?;
//! qp.write(1, mr.piece(0, 4096), remote_addr, rkey, true)?;
//! device.enter(&[&qp], Some((&cq, 1)), Some(Duration::from_secs(1)))?;
//! println!("{:?}", cq.poll());
//! # Ok(())
//! # }
//! ```
//!
//! An object lives in the kernel until its value here is dropped and all that
//! was made from it too.

#![deny(unsafe_code)]

pub mod abi;
mod context;
mod error;
mod gid;
mod objects;
mod qp;
mod ring;
mod sys;

pub use context::Context;
pub use context::Device;
pub use context::DeviceInfo;
pub use context::GidEntry;
pub use error::Error;
pub use error::WorkError;
pub use gid::Gid;
pub use objects::Access;
pub use objects::Buffer;
pub use objects::Completion;
pub use objects::Cq;
pub use objects::Mr;
pub use objects::Pd;
pub use objects::Piece;
pub use qp::Peer;
pub use qp::Qp;
pub use qp::QpConfig;

/// The result of most calls here.
pub type Result<T> = std::result::Result<T, Error>;
