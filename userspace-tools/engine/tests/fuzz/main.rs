// SPDX-License-Identifier: GPL-2.0

//! Fuzzing: bytes from a kept corpus, changed at random, against whatever takes bytes from a peer or from a user.
//!
//! What an input made the target do is told by a number; an input with a new number joins the corpus of the run.
//! `FUZZ_RUNS=n` runs more, `FUZZ_SEED=n` others, `FUZZ_KEEP=1` writes what is new into the corpus, which lies in
//! `corpus/`, one input a line, in hexadecimal.

// The kernel side's decoder finds here what it has around it there.
extern crate self as kernel;
use ferroce_engine as engine;
use kernel_side::bindings;

mod driver;
mod kernel_side;
mod packet;
mod peer;
mod work;

/// The decoder needs nothing of it.
pub mod prelude {}

/// The decoder's surroundings.
mod kernel_ext {
    pub(crate) use crate::kernel_side::ring;
}
