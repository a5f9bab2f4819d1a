// SPDX-License-Identifier: GPL-2.0

//! Details of objects for `rdma resource show … -dd`: names and numbers in the driver's part
//! of the core's message.
//!
//! C side: include/rdma/restrack.h, drivers/infiniband/core/nldev.c.

use crate::bindings;
use kernel::{
    error::to_result,
    prelude::*,
    str::CString, //
};

/// A message under construction.
pub(crate) struct Details {
    message: *mut bindings::sk_buff,
    /// What went wrong first; then nothing more is added.
    result: Result,
}

impl Details {
    /// Lets `tell` add details to `message`. Fails with `EMSGSIZE` if there is no room.
    ///
    /// # Safety
    ///
    /// `message` is a netlink message that is being filled, and nobody else's meanwhile.
    pub(super) unsafe fn fill(
        message: *mut bindings::sk_buff,
        tell: impl FnOnce(&mut Self),
    ) -> Result {
        let mut details = Self {
            message,
            result: Ok(()),
        };
        // SAFETY: by our contract; the nest is closed, or cut off, before we are back.
        unsafe {
            let kind = bindings::rdma_nldev_attr_RDMA_NLDEV_ATTR_DRIVER as c_int;
            let nest = bindings::nla_nest_start(message, kind);
            if nest.is_null() {
                return Err(EMSGSIZE);
            }
            tell(&mut details);
            match details.result {
                Ok(()) => drop(bindings::nla_nest_end(message, nest)),
                Err(_) => bindings::nla_nest_cancel(message, nest),
            }
        }
        details.result
    }

    fn add(&mut self, put: impl FnOnce(*mut bindings::sk_buff) -> c_int) {
        if self.result.is_ok() {
            self.result = to_result(put(self.message));
        }
    }

    /// Adds a number.
    pub(crate) fn number(&mut self, name: &CStr, value: u32) {
        // SAFETY: the message is ours, by the contract of `fill`; the name ends with a zero.
        self.add(|message| unsafe {
            bindings::rdma_nl_put_driver_u32(message, name.as_char_ptr(), value)
        });
    }

    /// Adds a number in hexadecimal, as a word: of longer ones `rdma` shows the lower half.
    pub(crate) fn hex(&mut self, name: &CStr, value: u64) {
        match CString::try_from_fmt(fmt!("{value:#x}")) {
            Ok(word) => self.word(name, &word),
            Err(e) => self.result = self.result.and(Err(e)),
        }
    }

    /// Adds a word.
    pub(crate) fn word(&mut self, name: &CStr, value: &CStr) {
        // SAFETY: as above, and so does the word.
        self.add(|message| unsafe {
            bindings::rdma_nl_put_driver_string(message, name.as_char_ptr(), value.as_char_ptr())
        });
    }
}
