// SPDX-License-Identifier: GPL-2.0

//! C bindings of ferroce, unified with those of the `kernel` crate.
//!
//! A type that `kernel::bindings` knows in full is that type; what it lacks, or
//! knows only by name, is defined here. Functions are declared anew, since their
//! arguments may be types that only this crate knows in full.

#![allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    rustdoc::all,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_imports
)]

use kernel::{
    ffi,
    prelude::*, //
};
use pin_init::MaybeZeroable;

pub use kernel::bindings::*;

type __kernel_size_t = usize;
type __kernel_ssize_t = isize;
type __kernel_ptrdiff_t = isize;

include!(concat!(env!("FERROCE_BINDINGS"), "/bindings_generated.rs"));

mod inlines {
    use super::*;
    include!(concat!(env!("FERROCE_BINDINGS"), "/inlines_generated.rs"));
}
pub use inlines::*;
