// SPDX-License-Identifier: GPL-2.0

//! What can go wrong, and what to do about it.

use crate::abi;
use std::io;

/// A call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The module is not there.
    #[error(
        "there is no {}: load the module (insmod build/ferroce.ko)",
        abi::DEVICE_PATH
    )]
    NoModule,
    /// The device file may not be opened.
    #[error("{} may not be opened: run as root, or chmod 666 it", abi::DEVICE_PATH)]
    NotAllowed,
    /// The device file could not be opened for another reason.
    #[error("cannot open {}", abi::DEVICE_PATH)]
    Open(#[source] io::Error),
    /// The module speaks another version of the ABI.
    #[error(
        "the loaded module speaks ABI {found}, this program {}: build both from the same source",
        abi::ABI_VERSION
    )]
    Abi {
        /// Its version.
        found: u32,
    },
    /// The kernel refused a call.
    #[error("cannot {what}")]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// Its answer.
        #[source]
        source: io::Error,
    },
    /// Locked memory is limited and the limit is reached.
    #[error(
        "cannot pin {bytes} bytes of memory: the limit on locked memory is too low \
         (ulimit -l tells it; ulimit -l unlimited as root lifts it)"
    )]
    Memlock {
        /// How much was to be registered.
        bytes: usize,
    },
    /// More work was posted than the queue holds.
    #[error("the send queue is full: wait for completions first")]
    QueueFull,
}

impl Error {
    /// Makes an I/O error one of a call that was to do `what`.
    pub(crate) fn kernel(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Kernel { what, source }
    }

    pub(crate) fn open(source: io::Error) -> Error {
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => Error::NoModule,
            Some(libc::EACCES | libc::EPERM) => Error::NotAllowed,
            _ => Error::Open(source),
        }
    }
}

/// A work request failed: the completion's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} (status {status})", explain(*status))]
pub struct WorkError {
    /// `FERROCE_WC_*`
    pub status: u32,
}

fn explain(status: u32) -> &'static str {
    match status {
        1 => "more data than the buffer holds",
        2 => "the queue pair cannot do this operation",
        4 => "a local buffer is not covered by its memory region",
        5 => "flushed, as the queue pair is in error",
        6 => "a memory window could not be bound",
        7 => "the peer's answer makes no sense",
        8 => "a local buffer may not be written",
        9 => "the peer takes the request for invalid",
        10 => "the peer does not allow access to that memory",
        11 => "the peer could not do it",
        12 => "the peer does not answer: is it up, and does UDP port 4791 pass the firewalls?",
        13 => "the peer has posted no receive",
        19 => "the queue pair broke down",
        _ => "the device failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_device_file_tells_to_load_the_module() {
        let error = Error::open(io::Error::from_raw_os_error(libc::ENOENT));
        assert!(
            error.to_string().contains("insmod build/ferroce.ko"),
            "{error}"
        );
        let error = Error::open(io::Error::from_raw_os_error(libc::EACCES));
        assert!(error.to_string().contains("root"), "{error}");
    }

    #[test]
    fn a_work_error_has_words_and_number() {
        let error = WorkError { status: 10 };
        assert_eq!(
            error.to_string(),
            "the peer does not allow access to that memory (status 10)"
        );
    }
}
